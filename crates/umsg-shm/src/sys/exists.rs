//! Whether there is a process or thread of a number. The kernel is asked with signal 0: /proc may hide what others run. Whom the caller may
//! not signal exists.

/// A process; also one that has ended and waits for its parent.
pub(crate) fn process(pid: u32) -> bool {
    // SAFETY: signal 0 only asks.
    let result = unsafe { libc::kill(pid as libc::pid_t, 0) };
    is_found(result.into())
}

/// A thread, of whichever process.
pub fn thread(tid: u32) -> bool {
    // SAFETY: as above.
    is_found(unsafe { libc::syscall(libc::SYS_tkill, tid, 0) })
}

/// A thread of the process `pid`.
pub(crate) fn thread_of(pid: u32, tid: u32) -> bool {
    // SAFETY: as above.
    is_found(unsafe { libc::syscall(libc::SYS_tgkill, pid, tid, 0) })
}

fn is_found(result: libc::c_long) -> bool {
    result == 0 || super::errno() != libc::ESRCH
}

#[cfg(test)]
mod tests {
    use super::*;

    /// No process or thread has it: PID_MAX_LIMIT of linux/threads.h is less.
    const NONE: u32 = 1 << 23;

    #[test]
    #[cfg_attr(miri, ignore = "there are no signals")]
    fn this_thread_is_found_in_its_process_and_nobody_else_is() {
        let me = crate::sys::thread::current();
        let (pid, tid) = (me.pid(), me.tid());
        assert!(process(pid) && thread(tid) && thread_of(pid, tid));
        assert!(!process(NONE) && !thread(NONE));
        assert!(!thread_of(pid, NONE) && !thread_of(NONE, tid));
    }
}
