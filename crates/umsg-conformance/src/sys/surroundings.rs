//! The environment of a process: variables, namespaces, limits, priorities, and the time.

use super::check;
use crate::errno::Errno;
use std::ffi::CString;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// Sets an environment variable of this process. C code sees the change, too.
pub fn set_environment(name: &str, value: &Path) {
    let name = CString::new(name).expect("no NUL");
    let value = CString::new(value.as_os_str().as_bytes()).expect("no NUL");
    // SAFETY: setenv copies the strings, which end with a NUL. The process has one thread.
    unsafe { libc::setenv(name.as_ptr(), value.as_ptr(), 1) };
}

/// Moves this process into a private IPC namespace. The queues in it are removed with the namespace. Returns `None` without permission.
pub fn enter_private_ipc_namespace() -> Option<()> {
    // SAFETY: the call only changes which IPC objects this process sees.
    (unsafe { libc::unshare(libc::CLONE_NEWIPC) } == 0).then_some(())
}

/// Moves this process into an IPC namespace, given by a descriptor of `/proc/PID/ns/ipc`.
///
/// # Errors
/// The errors of `setns`.
pub fn enter_ipc_namespace(namespace: BorrowedFd<'_>) -> Result<(), Errno> {
    // SAFETY: the call only changes which IPC objects this process sees.
    check(unsafe { libc::setns(namespace.as_raw_fd(), libc::CLONE_NEWIPC) }).map(drop)
}

/// Gives up the capability CAP_SYS_RESOURCE: with it, the process could exceed the kernel's limits on queues.
pub fn give_up_raised_limits() {
    const CAP_SYS_RESOURCE: u32 = 24;
    const VERSION_3: u32 = 0x2008_0522;
    let header = [VERSION_3, 0];
    // Each set has three words: the effective, permitted and inheritable capabilities. The first set has their lower 32 bits, the second their upper
    // 32 bits.
    let mut sets = [[0_u32; 3]; 2];
    // SAFETY: the call gets a header for this thread and two sets, as its version 3 requires.
    unsafe { libc::syscall(libc::SYS_capget, header.as_ptr(), sets.as_mut_ptr()) };
    for set in &mut sets[0] {
        *set &= !(1 << CAP_SYS_RESOURCE);
    }
    // SAFETY: the call gets a header for this thread and two sets, as its version 3 requires.
    unsafe { libc::syscall(libc::SYS_capset, header.as_ptr(), sets.as_ptr()) };
}

/// Sets the file mode creation mask, and returns the previous mask.
pub fn umask(mask: u32) -> u32 {
    // SAFETY: the call has no preconditions.
    unsafe { libc::umask(mask) }
}

/// Sets the nice value of this thread.
///
/// # Errors
/// The errors of `setpriority`.
pub fn set_nice(nice: i32) -> Result<(), Errno> {
    // SAFETY: the call has no preconditions.
    check(unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, nice) }).map(drop)
}

/// Runs this thread under `SCHED_FIFO` with this priority.
///
/// # Errors
/// The errors of `sched_setscheduler`.
pub fn set_realtime_priority(priority: i32) -> Result<(), Errno> {
    let parameters = libc::sched_param {
        sched_priority: priority,
    };
    // SAFETY: the structure is valid.
    check(unsafe { libc::sched_setscheduler(0, libc::SCHED_FIFO, &parameters) }).map(drop)
}

/// Limits the number of descriptors of this process.
///
/// # Errors
/// The errors of `setrlimit`.
pub fn limit_descriptors(count: u64) -> Result<(), Errno> {
    let limit = libc::rlimit {
        rlim_cur: count,
        rlim_max: count,
    };
    // SAFETY: the structure is valid.
    check(unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &limit) }).map(drop)
}

/// Sets the RLIMIT_MSGQUEUE of this process: the maximum number of bytes in the kernel's queues of its user. The kernel checks the limit only in
/// calls of this process.
///
/// # Errors
/// The errors of `setrlimit`.
pub fn limit_kernel_queues(bytes: u64) -> Result<(), Errno> {
    let limit = libc::rlimit {
        rlim_cur: bytes,
        rlim_max: bytes,
    };
    // SAFETY: the structure is valid.
    check(unsafe { libc::setrlimit(libc::RLIMIT_MSGQUEUE, &limit) }).map(drop)
}

/// Limits the number of System V queues in this process's IPC namespace. The function may be called between fork and exec.
///
/// # Errors
/// The errors of `open` and `write`.
pub fn limit_kernel_system_v_queues(count: u8) -> io::Result<()> {
    let digits = [
        b'0' + count / 100,
        b'0' + count / 10 % 10,
        b'0' + count % 10,
    ];
    let mut file = std::fs::File::options()
        .write(true)
        .open("/proc/sys/kernel/msgmni")?;
    io::Write::write_all(&mut file, &digits)
}

/// Makes a time from these numbers, which may be invalid.
pub const fn time(tv_sec: i64, tv_nsec: i64) -> libc::timespec {
    libc::timespec { tv_sec, tv_nsec }
}

/// Returns the time of the wall clock that is `milliseconds` from now. A negative number gives a time in the past.
pub fn from_now(milliseconds: i64) -> libc::timespec {
    let mut now = time(0, 0);
    // SAFETY: the call writes the time to a local.
    unsafe { libc::clock_gettime(libc::CLOCK_REALTIME, &mut now) };
    let nanoseconds = now.tv_sec * 1_000_000_000 + now.tv_nsec + milliseconds * 1_000_000;
    time(
        nanoseconds.div_euclid(1_000_000_000),
        nanoseconds.rem_euclid(1_000_000_000),
    )
}
