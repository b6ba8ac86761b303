//! Finds out whether a process or thread exists, by sending it signal 0. Files of /proc are no proof, because /proc may hide processes of other
//! users. If the caller lacks the permission to signal a process (EPERM), the process exists.

/// Returns whether a process exists. A zombie exists.
pub(crate) fn process(pid: u32) -> bool {
    // SAFETY: signal 0 has no effect.
    let result = unsafe { libc::kill(pid as libc::pid_t, 0) };
    is_found(result.into())
}

/// Returns whether a thread with this id exists in any process.
pub fn thread(tid: u32) -> bool {
    // SAFETY: signal 0 has no effect.
    is_found(unsafe { libc::syscall(libc::SYS_tkill, tid, 0) })
}

/// Returns whether a thread of the process `pid` exists.
pub(crate) fn thread_of(pid: u32, tid: u32) -> bool {
    // SAFETY: signal 0 has no effect.
    is_found(unsafe { libc::syscall(libc::SYS_tgkill, pid, tid, 0) })
}

fn is_found(result: libc::c_long) -> bool {
    result == 0 || super::errno() != libc::ESRCH
}

#[cfg(test)]
mod tests {
    use super::*;

    /// No process or thread has this id: PID_MAX_LIMIT of linux/threads.h is lower.
    const NONE: u32 = 1 << 23;

    #[test]
    #[cfg_attr(miri, ignore = "there are no signals")]
    fn this_thread_is_found_in_its_process_and_no_other_is() {
        let me = crate::sys::thread::current();
        let (pid, tid) = (me.pid(), me.tid());
        assert!(process(pid) && thread(tid) && thread_of(pid, tid));
        assert!(!process(NONE) && !thread(NONE));
        assert!(!thread_of(pid, NONE) && !thread_of(NONE, tid));
    }
}
