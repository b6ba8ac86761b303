//! The system calls that running cases and histories in processes of their own takes.

use std::ffi::{CString, c_void};
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::ptr;
use std::sync::atomic::AtomicU32;
use std::time::{Duration, Instant};

use crate::errno::Errno;

/// A process id, or a thread id.
pub type Pid = i32;

/// The result of a C call that returns -1 for a failure.
fn check(returned: i32) -> Result<i32, Errno> {
    if returned == -1 {
        Err(Errno::last())
    } else {
        Ok(returned)
    }
}

/// Sets an environment variable of this process for C code.
pub fn set_environment(name: &str, value: &Path) {
    let name = CString::new(name).expect("no NUL");
    let value = CString::new(value.as_os_str().as_bytes()).expect("no NUL");
    // SAFETY: NUL-terminated strings that setenv copies; called in a process with one thread.
    unsafe { libc::setenv(name.as_ptr(), value.as_ptr(), 1) };
}

/// `sigaction`, or somebody's replacement of it.
pub type Sigaction = unsafe extern "C" fn(i32, *const libc::sigaction, *mut libc::sigaction) -> i32;

/// Installs a handler.
///
/// # Errors
/// Those of `sigaction`.
pub fn handle_signal(
    sigaction: Sigaction,
    signal: i32,
    handler: extern "C" fn(i32),
    flags: i32,
) -> Result<(), Errno> {
    // SAFETY: integers and function addresses, for which all zeroes are a value.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    action.sa_sigaction = handler as *const () as usize;
    action.sa_flags = flags;
    // SAFETY: a valid action whose handler takes the signal number; no old action is asked for.
    check(unsafe { sigaction(signal, &action, ptr::null_mut()) }).map(drop)
}

/// Ignores a signal, or gives it its default action back.
pub fn set_disposition(signal: i32, disposition: libc::sighandler_t) {
    // SAFETY: SIG_IGN or SIG_DFL.
    unsafe { libc::signal(signal, disposition) };
}

/// Moves this process into an IPC namespace of its own, whose queues vanish with it. `None` without the right to.
pub fn enter_private_ipc_namespace() -> Option<()> {
    // SAFETY: changes which IPC objects this process sees, nothing else.
    (unsafe { libc::unshare(libc::CLONE_NEWIPC) } == 0).then_some(())
}

/// Moves this process into the namespace behind a descriptor of `/proc/PID/ns/ipc`.
///
/// # Errors
/// Those of `setns`.
pub fn enter_ipc_namespace(namespace: BorrowedFd<'_>) -> Result<(), Errno> {
    // SAFETY: changes which IPC objects this process sees, nothing else.
    check(unsafe { libc::setns(namespace.as_raw_fd(), libc::CLONE_NEWIPC) }).map(drop)
}

/// This process.
pub fn pid() -> Pid {
    // SAFETY: has no preconditions.
    unsafe { libc::getpid() }
}

/// This thread.
pub fn tid() -> Pid {
    // SAFETY: has no preconditions.
    unsafe { libc::gettid() }
}

/// Whether this process runs as root.
pub fn is_root() -> bool {
    // SAFETY: has no preconditions.
    unsafe { libc::geteuid() == 0 }
}

/// The two processes after a fork.
pub enum Forked {
    /// Here is the parent; the child has this id.
    Parent(Pid),
    /// Here is the child.
    Child,
}

/// `fork`.
///
/// # Errors
/// Those of `fork`.
pub fn fork() -> Result<Forked, Errno> {
    // SAFETY: the child goes on with what glibc keeps usable after a fork (memory, files) and ends with `leave`.
    match check(unsafe { libc::fork() })? {
        0 => Ok(Forked::Child),
        child => Ok(Forked::Parent(child)),
    }
}

/// Ends this process at once, without running anything.
pub fn leave(status: i32) -> ! {
    // SAFETY: has no preconditions.
    unsafe { libc::_exit(status) }
}

/// `kill`; a process that is gone is no failure.
pub fn kill(pid: Pid, signal: i32) {
    assert!(!(-1..=1).contains(&pid), "a signal to process {pid}");
    // SAFETY: has no preconditions.
    unsafe { libc::kill(pid, signal) };
}

/// Puts this process at the head of a group of its own.
pub fn lead_group() {
    // SAFETY: has no preconditions.
    unsafe { libc::setpgid(0, 0) };
}

/// Has this process killed when its parent goes.
pub fn die_with_parent() {
    // SAFETY: has no preconditions.
    unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) };
}

/// How a process ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// It returned this status.
    Exit(i32),
    /// This signal killed it.
    Signal(i32),
}

/// Waits for a child, up to a time.
pub fn wait(child: Pid, patience: Duration) -> Option<End> {
    let mut pause = Pause::new(patience);
    loop {
        let mut status = 0;
        // SAFETY: a valid place for the status.
        let waited = unsafe { libc::waitpid(child, &mut status, libc::WNOHANG) };
        if waited == child {
            return Some(if libc::WIFSIGNALED(status) {
                End::Signal(libc::WTERMSIG(status))
            } else {
                End::Exit(libc::WEXITSTATUS(status))
            });
        }
        if waited == -1 && Errno::last() != Errno::EINTR {
            return None;
        }
        if !pause.again() {
            return None;
        }
    }
}

/// Bounded waiting: short pauses that get longer, until time is up.
pub struct Pause {
    until: Instant,
    next: Duration,
}

impl Pause {
    /// Waits for so long at most.
    pub fn new(patience: Duration) -> Pause {
        Pause {
            until: Instant::now() + patience,
            next: Duration::from_micros(20),
        }
    }

    /// Pauses; false if time is up.
    pub fn again(&mut self) -> bool {
        if Instant::now() >= self.until {
            return false;
        }
        std::thread::sleep(self.next);
        self.next = (self.next * 2).min(Duration::from_millis(5));
        true
    }
}

/// The state letter of a thread or process as `/proc` shows it; `None` when it is gone.
pub fn state(id: Pid) -> Option<u8> {
    let text = std::fs::read(format!("/proc/{id}/stat")).ok()?;
    let after = text.iter().rposition(|&byte| byte == b')')?;
    text.get(after + 2).copied()
}

/// Whether a process has ended, reaped or not.
pub fn is_gone(pid: Pid) -> bool {
    match state(pid) {
        None | Some(b'X') => true,
        // Its first thread has; others may have to yet.
        Some(b'Z') => threads(pid).is_none_or(|threads| threads <= 1),
        Some(_) => false,
    }
}

/// How many threads a process has, as `/proc` shows it.
fn threads(pid: Pid) -> Option<u32> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let (_, after) = text.rsplit_once(')')?;
    after.split_whitespace().nth(17)?.parse().ok()
}

/// Waits until a process has ended, reaped or not. False if it did not.
pub fn wait_until_gone(pid: Pid, patience: Duration) -> bool {
    let mut pause = Pause::new(patience);
    while !is_gone(pid) {
        if !pause.again() {
            return false;
        }
    }
    true
}

/// A pipe, closed on exec: its reading end and its writing end.
///
/// # Errors
/// Those of `pipe2`.
pub fn pipe() -> Result<(OwnedFd, OwnedFd), Errno> {
    let mut ends = [0; 2];
    // SAFETY: a place for two descriptors.
    check(unsafe { libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC) })?;
    Ok(owned(ends))
}

/// A pair of connected sockets that keep records apart, closed on exec.
///
/// # Errors
/// Those of `socketpair`.
pub fn sockets() -> Result<(OwnedFd, OwnedFd), Errno> {
    let mut ends = [0; 2];
    let kind = libc::SOCK_SEQPACKET | libc::SOCK_CLOEXEC;
    // SAFETY: a place for two descriptors.
    check(unsafe { libc::socketpair(libc::AF_UNIX, kind, 0, ends.as_mut_ptr()) })?;
    Ok(owned(ends))
}

/// Passes a descriptor through a socket: a second descriptor of what it leads to, closed on exec.
///
/// # Errors
/// Those of `socketpair`, `sendmsg` and `recvmsg`.
pub fn through_a_socket(fd: RawFd) -> Result<OwnedFd, Errno> {
    #[repr(C)]
    struct Control {
        header: libc::cmsghdr,
        fd: RawFd,
    }
    let (from, to) = sockets()?;
    let mut byte = [0_u8; 1];
    let mut bytes = libc::iovec {
        iov_base: byte.as_mut_ptr().cast(),
        iov_len: 1,
    };
    let length = size_of::<libc::cmsghdr>() + size_of::<RawFd>();
    let header = libc::cmsghdr {
        cmsg_len: length,
        cmsg_level: libc::SOL_SOCKET,
        cmsg_type: libc::SCM_RIGHTS,
    };
    let mut control = Control { header, fd };
    // SAFETY: integers and pointers, for which all zeroes are a value.
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    message.msg_iov = &mut bytes;
    message.msg_iovlen = 1;
    message.msg_control = ptr::from_mut(&mut control).cast();
    message.msg_controllen = size_of::<Control>();
    // SAFETY: one byte and one control message with one descriptor, all alive during the call.
    check(unsafe { libc::sendmsg(from.as_raw_fd(), &message, 0) } as i32)?;
    // SAFETY: the same places, now to be written to.
    check(unsafe { libc::recvmsg(to.as_raw_fd(), &mut message, libc::MSG_CMSG_CLOEXEC) } as i32)?;
    // SAFETY: new in this process, and owned by nobody else.
    Ok(unsafe { OwnedFd::from_raw_fd(control.fd) })
}

fn owned(ends: [RawFd; 2]) -> (OwnedFd, OwnedFd) {
    // SAFETY: just made, and owned by nobody else.
    unsafe { (OwnedFd::from_raw_fd(ends[0]), OwnedFd::from_raw_fd(ends[1])) }
}

/// Writes one record. Signals do not disturb it.
///
/// # Errors
/// Those of `write`.
pub fn write_record(fd: RawFd, bytes: &[u8]) -> io::Result<()> {
    loop {
        // SAFETY: a live slice and its length. This is the system call itself, so that nothing that stands in for
        // libc's function sees what belongs to the tests.
        let written = unsafe { libc::syscall(libc::SYS_write, fd, bytes.as_ptr(), bytes.len()) };
        if written >= 0 {
            return Ok(());
        }
        let error = io::Error::last_os_error();
        if error.kind() != io::ErrorKind::Interrupted {
            return Err(error);
        }
    }
}

/// Reads one record, or what there is: its length, 0 at the end. Signals do not disturb it.
///
/// # Errors
/// Those of `read`.
pub fn read_record(fd: RawFd, buffer: &mut [u8]) -> io::Result<usize> {
    loop {
        // SAFETY: a live slice and its length.
        let read = unsafe { libc::syscall(libc::SYS_read, fd, buffer.as_mut_ptr(), buffer.len()) };
        if read >= 0 {
            return Ok(read as usize);
        }
        let error = io::Error::last_os_error();
        if error.kind() != io::ErrorKind::Interrupted {
            return Err(error);
        }
    }
}

/// Whether there is something to read (or the other end is closed), after waiting for so long at most.
pub fn readable(fd: RawFd, patience: Duration) -> bool {
    let mut poll = libc::pollfd {
        fd,
        events: libc::POLLIN,
        revents: 0,
    };
    let milliseconds = patience.as_millis().try_into().unwrap_or(i32::MAX);
    // SAFETY: one valid entry.
    unsafe { libc::poll(&mut poll, 1, milliseconds) == 1 }
}

/// A set for select of these descriptors, which are below FD_SETSIZE.
pub fn set_of(fds: &[RawFd]) -> libc::fd_set {
    // SAFETY: bits, for which all zeroes are a value.
    let mut set: libc::fd_set = unsafe { std::mem::zeroed() };
    for &fd in fds {
        assert!((0..libc::FD_SETSIZE as RawFd).contains(&fd));
        // SAFETY: within the set.
        unsafe { libc::FD_SET(fd, &mut set) };
    }
    set
}

/// Whether a descriptor below FD_SETSIZE is in a set.
pub fn is_in(fd: RawFd, set: &libc::fd_set) -> bool {
    assert!((0..libc::FD_SETSIZE as RawFd).contains(&fd));
    // SAFETY: within the set.
    unsafe { libc::FD_ISSET(fd, set) }
}

/// Puts a duplicate of a descriptor at a number of choice; it stays open on exec.
///
/// # Errors
/// Those of `dup3`.
pub fn place(fd: BorrowedFd<'_>, number: RawFd) -> Result<(), Errno> {
    // SAFETY: the caller keeps nothing at that number.
    check(unsafe { libc::syscall(libc::SYS_dup3, fd.as_raw_fd(), number, 0) } as i32).map(drop)
}

/// A file in memory, closed on exec.
///
/// # Errors
/// Those of `memfd_create`.
pub fn memory_file() -> Result<std::fs::File, Errno> {
    // SAFETY: NUL-terminated.
    let fd = check(unsafe { libc::memfd_create(c"umsg-conformance".as_ptr(), libc::MFD_CLOEXEC) })?;
    // SAFETY: just made, and owned by nobody else.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) }.into())
}

/// The descriptor at a number that is known to be open, and is nobody's.
pub fn take(number: RawFd) -> OwnedFd {
    // SAFETY: for callers that were handed it by whoever started this program.
    unsafe { OwnedFd::from_raw_fd(number) }
}

/// Closes every descriptor in a range, without anybody who stands in for libc noticing.
///
/// To be called at the very start of a child, when nothing uses them.
pub fn close_all(first: u32, last: u32) {
    // SAFETY: see above.
    unsafe { libc::syscall(libc::SYS_close_range, first, last, 0) };
}

/// Forgets a descriptor that is known to be closed, or is to stay open.
pub fn forget(fd: OwnedFd) {
    std::mem::forget(fd);
}

/// Memory that this process shares with the children that it forks: zeroes at first, never unmapped.
///
/// # Errors
/// Those of `mmap`.
pub fn shared_words(count: usize) -> Result<&'static [AtomicU32], Errno> {
    map_words(count, libc::MAP_SHARED | libc::MAP_ANONYMOUS, -1)
}

/// The memory of a file that is long enough, never unmapped.
///
/// # Errors
/// Those of `mmap`.
pub fn words_of(file: BorrowedFd<'_>, count: usize) -> Result<&'static [AtomicU32], Errno> {
    map_words(count, libc::MAP_SHARED, file.as_raw_fd())
}

fn map_words(count: usize, flags: i32, fd: RawFd) -> Result<&'static [AtomicU32], Errno> {
    let protection = libc::PROT_READ | libc::PROT_WRITE;
    // SAFETY: a new mapping at an address of the kernel's choice disturbs no other.
    let start = unsafe { libc::mmap(ptr::null_mut(), count * 4, protection, flags, fd, 0) };
    if start == libc::MAP_FAILED {
        return Err(Errno::last());
    }
    // SAFETY: within the file or anonymous, aligned to a page, never unmapped, and only ever used as atomics.
    Ok(unsafe { std::slice::from_raw_parts(start.cast(), count) })
}

/// Another user for a child to become.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct User {
    /// Its user id.
    pub uid: u32,
    /// Its group.
    pub gid: u32,
    /// A supplementary group.
    pub supplementary: Option<u32>,
}

impl User {
    /// Nobody: no rights beyond those of others.
    pub const NOBODY: User = User {
        uid: 65534,
        gid: 65534,
        supplementary: None,
    };
    /// Another unprivileged user, of another group.
    pub const SOMEBODY: User = User {
        uid: 65533,
        gid: 65533,
        supplementary: None,
    };
    /// Unprivileged, but of root's group.
    pub const OF_ROOTS_GROUP: User = User {
        uid: 65532,
        gid: 0,
        supplementary: None,
    };
    /// Unprivileged, with root's group as a supplementary one.
    pub const WITH_ROOTS_GROUP: User = User {
        uid: 65531,
        gid: 65531,
        supplementary: Some(0),
    };

    /// Makes this process a process of this user, for good. Needs root.
    ///
    /// # Errors
    /// Those of `setgroups`, `setresgid` and `setresuid`.
    pub fn assume(self, by: &Credentials) -> Result<(), Errno> {
        let groups: Vec<u32> = self.supplementary.into_iter().collect();
        // SAFETY: a live slice and its length.
        check(unsafe { (by.setgroups)(groups.len(), groups.as_ptr()) })?;
        // SAFETY: has no preconditions.
        check(unsafe { (by.setresgid)(self.gid, self.gid, self.gid) })?;
        // SAFETY: has no preconditions.
        check(unsafe { (by.setresuid)(self.uid, self.uid, self.uid) })?;
        Ok(())
    }

    /// Makes it the effective user and group of this process only.
    ///
    /// # Errors
    /// Those of `setresgid` and `setresuid`.
    pub fn assume_effective(self, by: &Credentials) -> Result<(), Errno> {
        const SAME: u32 = u32::MAX;
        // SAFETY: has no preconditions.
        check(unsafe { (by.setresgid)(SAME, self.gid, SAME) })?;
        // SAFETY: has no preconditions.
        check(unsafe { (by.setresuid)(SAME, self.uid, SAME) })?;
        Ok(())
    }
}

/// The functions by which a process becomes another user's, whoever provides them.
#[allow(missing_docs)]
#[derive(Clone, Copy)]
pub struct Credentials {
    pub setgroups: unsafe extern "C" fn(libc::size_t, *const libc::gid_t) -> i32,
    pub setresgid: unsafe extern "C" fn(libc::gid_t, libc::gid_t, libc::gid_t) -> i32,
    pub setresuid: unsafe extern "C" fn(libc::uid_t, libc::uid_t, libc::uid_t) -> i32,
}

impl Credentials {
    /// What this program is linked to.
    pub const OF_LIBC: Credentials = Credentials {
        setgroups: libc::setgroups,
        setresgid: libc::setresgid,
        setresuid: libc::setresuid,
    };
}

/// The user and group that this process acts as.
pub fn user() -> User {
    // SAFETY: has no preconditions.
    let (uid, gid) = unsafe { (libc::geteuid(), libc::getegid()) };
    User {
        uid,
        gid,
        supplementary: None,
    }
}

/// Starts a thread of C: one that may be cancelled, and has nothing of Rust's to be dropped.
///
/// # Errors
/// Those of `pthread_create`.
///
/// # Safety
/// What the argument points to has to be there as long as the thread.
pub unsafe fn start_thread(
    thread: &mut libc::pthread_t,
    function: extern "C-unwind" fn(*mut c_void) -> *mut c_void,
    argument: *mut c_void,
) -> Result<(), Errno> {
    type Function = extern "C" fn(*mut c_void) -> *mut c_void;
    // SAFETY: the two differ in what may unwind through the function, and libc's own frames let it.
    let function = unsafe { std::mem::transmute::<*const (), Function>(function as *const ()) };
    // SAFETY: a place for the thread, default attributes, a function of the right type; the rest is the caller's.
    match unsafe { libc::pthread_create(thread, ptr::null(), function, argument) } {
        0 => Ok(()),
        errno => Err(Errno(errno)),
    }
}

/// Gives up CAP_SYS_RESOURCE, with which the kernel's limits on queues would not hold.
pub fn give_up_raised_limits() {
    const CAP_SYS_RESOURCE: u32 = 24;
    const VERSION_3: u32 = 0x2008_0522;
    let header = [VERSION_3, 0];
    // Effective, permitted and inheritable capabilities, the lower 32 and then the upper 32.
    let mut sets = [[0_u32; 3]; 2];
    // SAFETY: a header for this thread and two sets, as version 3 has them.
    unsafe { libc::syscall(libc::SYS_capget, header.as_ptr(), sets.as_mut_ptr()) };
    for set in &mut sets[0] {
        *set &= !(1 << CAP_SYS_RESOURCE);
    }
    // SAFETY: as above.
    unsafe { libc::syscall(libc::SYS_capset, header.as_ptr(), sets.as_ptr()) };
}

/// Sets the file mode creation mask and returns the one before.
pub fn umask(mask: u32) -> u32 {
    // SAFETY: has no preconditions.
    unsafe { libc::umask(mask) }
}

/// Sets the nice value of this thread.
///
/// # Errors
/// Those of `setpriority`.
pub fn set_nice(nice: i32) -> Result<(), Errno> {
    // SAFETY: has no preconditions.
    check(unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, nice) }).map(drop)
}

/// Runs this thread under `SCHED_FIFO` with this priority.
///
/// # Errors
/// Those of `sched_setscheduler`.
pub fn set_realtime_priority(priority: i32) -> Result<(), Errno> {
    let parameters = libc::sched_param {
        sched_priority: priority,
    };
    // SAFETY: a valid structure.
    check(unsafe { libc::sched_setscheduler(0, libc::SCHED_FIFO, &parameters) }).map(drop)
}

/// Limits the number of descriptors of this process.
///
/// # Errors
/// Those of `setrlimit`.
pub fn limit_descriptors(count: u64) -> Result<(), Errno> {
    let limit = libc::rlimit {
        rlim_cur: count,
        rlim_max: count,
    };
    // SAFETY: a valid structure.
    check(unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &limit) }).map(drop)
}

/// Limits the memory that the kernel's message queues of this user may take, for this process: RLIMIT_MSGQUEUE.
///
/// # Errors
/// Those of `setrlimit`.
pub fn limit_kernel_queues(bytes: u64) -> Result<(), Errno> {
    let limit = libc::rlimit {
        rlim_cur: bytes,
        rlim_max: bytes,
    };
    // SAFETY: a valid structure.
    check(unsafe { libc::setrlimit(libc::RLIMIT_MSGQUEUE, &limit) }).map(drop)
}

/// Limits how many System V queues there can be in this process's IPC namespace. Between fork and exec, too.
///
/// # Errors
/// Those of `open` and `write`.
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

/// A point of the wall clock, `milliseconds` from now (or before now).
pub fn from_now(milliseconds: i64) -> libc::timespec {
    let mut now = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: a valid place for the time.
    unsafe { libc::clock_gettime(libc::CLOCK_REALTIME, &mut now) };
    let nanoseconds = now.tv_sec * 1_000_000_000 + now.tv_nsec + milliseconds * 1_000_000;
    libc::timespec {
        tv_sec: nanoseconds.div_euclid(1_000_000_000),
        tv_nsec: nanoseconds.rem_euclid(1_000_000_000),
    }
}
