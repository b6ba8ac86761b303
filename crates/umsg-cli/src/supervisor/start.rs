//! Starts a supervisor. The caller is the process that is about to become the program.

use std::fmt;
use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, OFlags};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketFlags, SocketType, recvmsg, sendmsg, socketpair,
};
use umsg::Namespace;
use umsg::kernel_files::limit::{self, Limit};

use super::namespaces::Namespaces;
use super::serve::Inherited;
use super::{PROBE, Settings, explains, filter, serve};
use crate::ending;

/// The reason why a program can't be supervised.
#[derive(Debug)]
pub enum Fault {
    /// Another supervisor of umsg serves the process, for another namespace.
    OtherNamespace,
    /// A supervisor of another program serves the process. A process has at most one supervisor.
    OtherSupervisor,
    /// A step of the start failed: its name, and the error.
    Step(&'static str, io::Error),
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Fault::OtherNamespace => f.write_str(
                "another `umsg run` supervises this process, with another directory; give the same --dir, or start the program outside that `umsg run`",
            ),
            Fault::OtherSupervisor => f.write_str(
                "this process is supervised by another program (seccomp); start `umsg run` outside of that program",
            ),
            Fault::Step(step, error) => write!(
                f,
                "the supervisor can't start: {step}: {error}; link the program dynamically, or allow seccomp(2)"
            ),
        }
    }
}

/// The directory that the programs get, and the IPC namespace to which the directory belongs.
#[derive(Debug)]
pub struct Home {
    pub directory: PathBuf,
    /// The value of `$UMSG_IPC_NAMESPACE`.
    pub ipc_namespace: String,
}

fn step<E: Into<io::Error>>(name: &'static str) -> impl Fn(E) -> Fault {
    move |error| Fault::Step(name, error.into())
}

/// Starts a supervisor, and makes the kernel pass to it the calls on queues of this process and of all processes that it starts. Does nothing if a
/// supervisor already serves this process for the same namespace. The caller has only one thread. `namespace` is the caller's namespace: the
/// directory of `home`, or a directory inside it.
pub fn begin(namespace: &Path, home: &Home, settings: Settings) -> Result<(), Fault> {
    let metadata = namespace.metadata().map_err(step("stat"))?;
    let identity = (metadata.dev(), metadata.ino());
    match probe(identity) {
        Some(1) => return Ok(()),
        Some(_) => return Err(Fault::OtherNamespace),
        None => {}
    }
    let (own, supervisors) = socketpair(
        AddressFamily::UNIX,
        SocketType::SEQPACKET,
        SocketFlags::CLOEXEC,
        None,
    )
    .map_err(step("socketpair"))?;
    let supervisor = start(home, supervisors, settings)?;
    // If Yama restricts access to the memory of other processes, this call permits the supervisor to read the memory of this process. Children do not
    // inherit the permission. SAFETY: the call takes only numbers. A kernel without Yama refuses the call, and needs no permission.
    unsafe { libc::prctl(libc::PR_SET_PTRACER, supervisor, 0, 0, 0) };
    let listener = filter::install(settings).map_err(|error| match error.raw_os_error() {
        Some(libc::EBUSY) => Fault::OtherSupervisor,
        _ => Fault::Step("seccomp", error),
    })?;
    send(&own, &listener).map_err(step("sendmsg"))?;
    // If the supervisor dies, its end of the socket pair is closed. Then the read returns 0 bytes.
    let mut ready = [0];
    match rustix::io::read(&own, &mut ready) {
        Ok(1) => Ok(()),
        _ => Err(Fault::Step("read", io::ErrorKind::UnexpectedEof.into())),
    }
}

/// Returns the answer of the supervisor of this process; None if there is no supervisor. The question is a call of mq_getsetattr(2) with a bad
/// descriptor and further arguments. The function executes the system call instruction, because a loaded drop-in would intercept libc's function.
fn probe((device, inode): (u64, u64)) -> Option<i64> {
    let result: i64;
    #[cfg(target_arch = "x86_64")]
    // SAFETY: the call reads and writes no memory; the instruction changes rax, rcx and r11.
    unsafe {
        std::arch::asm!(
            "syscall",
            inlateout("rax") libc::SYS_mq_getsetattr => result,
            in("rdi") -1_i64, in("rsi") 0_u64, in("rdx") 0_u64, in("r10") PROBE, in("r8") device, in("r9") inode,
            lateout("rcx") _, lateout("r11") _,
            options(nostack),
        );
    }
    #[cfg(target_arch = "aarch64")]
    // SAFETY: the call reads and writes no memory; the instruction changes x0.
    unsafe {
        std::arch::asm!(
            "svc 0",
            in("x8") libc::SYS_mq_getsetattr,
            inlateout("x0") -1_i64 => result,
            in("x1") 0_u64, in("x2") 0_u64, in("x3") PROBE, in("x4") device, in("x5") inode,
            options(nostack),
        );
    }
    (result > 0).then_some(result)
}

/// Starts the supervisor's process, and returns its process id. The process is not a child of this one: the program would be surprised by a child
/// that it has not started.
fn start(home: &Home, socket: OwnedFd, settings: Settings) -> Result<libc::pid_t, Fault> {
    let (pid, pids) =
        rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC).map_err(step("pipe"))?;
    // SAFETY: the caller has only one thread, so that the child may do all that this process may do.
    match unsafe { libc::fork() } {
        -1 => return Err(Fault::Step("fork", io::Error::last_os_error())),
        0 => {
            // SAFETY: the child of the first fork also has only one thread, so that its child may do all that it may do.
            match unsafe { libc::fork() } {
                -1 => exit(1),
                0 => {
                    let me = std::process::id().to_ne_bytes();
                    drop(pid);
                    if rustix::io::write(&pids, &me).is_ok() {
                        drop(pids);
                        let _ = become_supervisor(home, socket, settings);
                    }
                    exit(1)
                }
                _ => exit(0),
            }
        }
        child => {
            drop((socket, pids));
            // SAFETY: the call waits for a child of this process, and writes no status.
            while unsafe { libc::waitpid(child, std::ptr::null_mut(), 0) } == -1
                && io::Error::last_os_error().kind() == io::ErrorKind::Interrupted
            {}
        }
    }
    let mut number = [0; 4];
    match rustix::io::read(&pid, &mut number) {
        Ok(4) => Ok(libc::pid_t::from_ne_bytes(number)),
        _ => Err(Fault::Step("fork", io::ErrorKind::UnexpectedEof.into())),
    }
}

/// Ends a child process without running the exit handlers and without writing the buffers that it inherited.
fn exit(status: i32) -> ! {
    // SAFETY: the call takes only a number.
    unsafe { libc::_exit(status) }
}

/// Makes this process the supervisor: leaves the process group, streams, descriptors and directory of the program, then receives the calls and
/// answers them. Returns only on failure.
///
/// The supervisor stays in the session of the program. The scheduler groups processes by session, and a switch between two groups makes each call
/// take longer.
fn become_supervisor(home: &Home, socket: OwnedFd, settings: Settings) -> io::Result<()> {
    rustix::process::setpgid(None, None)?;
    // A service manager sends these signals to all processes of a service. The supervisor ignores them, because the programs need it while they end.
    ending::ignore(&[libc::SIGHUP, libc::SIGINT, libc::SIGQUIT, libc::SIGTERM]);
    let inherited = if settings.files {
        inherited_limits()
    } else {
        vec![]
    };
    let nothing = rustix::fs::open("/dev/null", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())?;
    rustix::stdio::dup2_stdin(&nothing)?;
    rustix::stdio::dup2_stdout(&nothing)?;
    if !explains() {
        rustix::stdio::dup2_stderr(&nothing)?;
    }
    drop(nothing);
    let kept = inherited.iter().map(|(_, file, _)| file.as_fd());
    close_all_but(kept.chain([socket.as_fd()]))?;
    raise_limit();
    rustix::process::chdir("/")?;
    rustix::process::umask(Mode::empty());
    let base = Namespace::at(&home.directory).map_err(io::Error::other)?;
    let namespaces = Namespaces::new(base, &home.ipc_namespace);
    rustix::thread::set_name(umsg::ipc::SUPERVISOR)?;
    let listener = receive(&socket)?;
    rustix::io::write(&socket, &[1])?;
    drop(socket);
    serve::serve(listener, namespaces, settings, inherited).map(|never| match never {})
}

/// Raises the soft limit of descriptors to the hard limit, because the supervisor has descriptors for all programs.
fn raise_limit() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let limit = getrlimit(Resource::Nofile);
    let most = Rlimit {
        current: limit.maximum,
        ..limit
    };
    // If the call fails, the supervisor can serve fewer queues.
    let _ = setrlimit(Resource::Nofile, most);
}

/// Returns the limits that the program has open for writing from its start, such as the standard output of `echo 5 >/proc/sys/kernel/msgmni`.
fn inherited_limits() -> Vec<Inherited> {
    let me = rustix::process::geteuid().as_raw();
    let numbers = std::fs::read_dir("/proc/self/fd").into_iter().flatten();
    let numbers = numbers.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<i32>().ok());
    let numbers: Vec<i32> = numbers.collect();
    let find = |number: i32| {
        // The supervisor's own descriptor of the file is for reading only: the supervisor must notice when all descriptors for writing are closed.
        let path = format!("/proc/self/fd/{number}");
        let status = rustix::fs::stat(&path).ok()?;
        if !limit::is_marked(&status, me) {
            return None;
        }
        let file = rustix::fs::open(&path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()).ok()?;
        let limit = Limit::of_file(file.as_fd())?;
        let info = std::fs::read_to_string(format!("/proc/self/fdinfo/{number}")).ok()?;
        let flags = info.lines().find_map(|line| line.strip_prefix("flags:"))?;
        let flags = i32::from_str_radix(flags.trim(), 8).ok()?;
        Some((limit, file, flags & libc::O_ACCMODE == libc::O_RDWR))
    };
    numbers.into_iter().filter_map(find).collect()
}

/// Closes the descriptors that this process shares with the program. Otherwise, for example, a pipe would stay open after the program has closed it.
fn close_all_but<'a>(kept: impl Iterator<Item = BorrowedFd<'a>>) -> io::Result<()> {
    let mut kept: Vec<u32> = kept.map(|file| file.as_raw_fd().cast_unsigned()).collect();
    kept.sort_unstable();
    let mut first = 3;
    for end in kept.into_iter().chain([u32::MAX]) {
        let last = if end == u32::MAX {
            end
        } else {
            end.saturating_sub(1)
        };
        // SAFETY: this process no longer uses the objects of these descriptors, and it never returns to the code that owns them.
        if first <= last && unsafe { libc::syscall(libc::SYS_close_range, first, last, 0) } != 0 {
            return Err(io::Error::last_os_error());
        }
        first = first.max(end.saturating_add(1));
    }
    Ok(())
}

fn send(socket: &OwnedFd, listener: &OwnedFd) -> rustix::io::Result<()> {
    let descriptors = [listener.as_fd()];
    let mut room = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = SendAncillaryBuffer::new(&mut room);
    ancillary.push(SendAncillaryMessage::ScmRights(&descriptors));
    sendmsg(
        socket,
        &[IoSlice::new(&[1])],
        &mut ancillary,
        SendFlags::NOSIGNAL,
    )
    .map(drop)
}

fn receive(socket: &OwnedFd) -> io::Result<OwnedFd> {
    let mut room = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut room);
    let mut byte = [0];
    recvmsg(
        socket,
        &mut [IoSliceMut::new(&mut byte)],
        &mut ancillary,
        RecvFlags::CMSG_CLOEXEC,
    )?;
    let found = ancillary.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut descriptors) => descriptors.next(),
        _ => None,
    });
    found.ok_or_else(|| io::ErrorKind::UnexpectedEof.into())
}
