//! Processes of several users that carry out the orders of the test.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType};

/// The time after which a process without an answer is taken as stuck: each wait in a process is shorter.
const PATIENCE: Duration = Duration::from_secs(90);
/// The longest order and answer, in bytes.
const LONGEST: usize = 16 << 10;

/// The answer of an actor to an order: a text, or an error.
pub type Answer = Result<String, String>;

/// A user without supplementary groups.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct User {
    pub name: &'static str,
    pub uid: u32,
    pub gid: u32,
}

impl User {
    /// Gives this child process the user's ids.
    fn enter(self) {
        // SAFETY: the calls change only settings of this process.
        unsafe {
            if self.uid != 0 {
                assert_eq!(libc::setgroups(0, std::ptr::null()), 0);
                assert_eq!(libc::setresgid(self.gid, self.gid, self.gid), 0);
                assert_eq!(libc::setresuid(self.uid, self.uid, self.uid), 0);
            }
            libc::umask(0);
            // This call comes after the change of user, which would clear the signal for the parent's death.
            libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
        }
    }
}

/// A forked process, which is killed and reaped when dropped.
pub struct Actor {
    what: String,
    pid: libc::pid_t,
    orders: OwnedFd,
}

impl Actor {
    /// Forks a process that takes the ids of a user, prepares itself, and then answers orders. The first answer tells whether the preparation
    /// succeeded.
    pub fn start<S: FnMut(&str) -> Answer>(
        user: User,
        what: impl Into<String>,
        prepare: impl FnOnce() -> Result<S, String>,
    ) -> Actor {
        let flags = SocketFlags::CLOEXEC;
        let kind = SocketType::SEQPACKET;
        let (orders, theirs) =
            rustix::net::socketpair(AddressFamily::UNIX, kind, flags, None).unwrap();
        // SAFETY: the child leaves with _exit; glibc's malloc is usable in a child of a process with threads.
        let pid = unsafe { libc::fork() };
        assert!(pid >= 0, "fork");
        if pid == 0 {
            drop(orders);
            let done = catch_unwind(AssertUnwindSafe(|| {
                if user.uid != 0 {
                    super::fault::prepare();
                }
                user.enter();
                serve(theirs.as_fd(), prepare());
            }));
            if let Err(panic) = done {
                say(
                    theirs.as_fd(),
                    Err(format!("panicked: {}", text_of(&*panic))),
                );
            }
            // SAFETY: ends the process.
            unsafe { libc::_exit(0) };
        }
        Actor {
            what: what.into(),
            pid,
            orders,
        }
    }

    pub fn pid(&self) -> u32 {
        self.pid as u32
    }

    /// Sends an order, and does not wait for the answer.
    pub fn order(&self, text: &str) {
        // A failed send is ignored: the actor has ended, and the wait for its answer reports this.
        let _ = rustix::net::send(&self.orders, text.as_bytes(), SendFlags::NOSIGNAL);
    }

    /// Waits for the end of the process, and describes the end. The process is not reaped.
    fn end(&self) -> String {
        // SAFETY: all zeroes are a value of the structure.
        let mut how: libc::siginfo_t = unsafe { std::mem::zeroed() };
        let options = libc::WEXITED | libc::WNOWAIT;
        // SAFETY: the structure is a local variable of this function.
        let waited = unsafe { libc::waitid(libc::P_PID, self.pid(), &raw mut how, options) };
        if waited != 0 {
            return std::io::Error::last_os_error().to_string();
        }
        // SAFETY: waitid(2) fills in this field.
        let status = unsafe { how.si_status() };
        match how.si_code {
            libc::CLD_EXITED => format!("exit code {status}"),
            _ => format!("signal {status}"),
        }
    }

    /// Waits for the answer. An actor that is stuck, or was killed, answers with an error.
    pub fn answer(&self) -> Answer {
        let what = &self.what;
        if !readable_within(self.orders.as_fd(), PATIENCE) {
            return Err(format!("{what} is stuck: {}", self.portrait()));
        }
        let mut bytes = vec![0; LONGEST];
        let len = rustix::net::recv(&self.orders, &mut bytes[..], RecvFlags::empty());
        let len = len.map_or(0, |(len, _)| len);
        let text = String::from_utf8_lossy(&bytes[..len]).into_owned();
        match text.split_at_checked(1) {
            Some(("+", text)) => Ok(text.to_owned()),
            Some((_, text)) => Err(format!("{what}: {text}")),
            None => Err(format!("{what} has ended: {}", self.end())),
        }
    }

    pub fn ask(&self, text: &str) -> Answer {
        self.order(text);
        self.answer()
    }

    /// Describes the states of the process's threads and their current system calls. Source: proc(5).
    fn portrait(&self) -> String {
        let tasks = std::fs::read_dir(format!("/proc/{}/task", self.pid));
        let tasks = tasks.into_iter().flatten().flatten();
        let read = |task: &std::fs::DirEntry, name| {
            std::fs::read_to_string(task.path().join(name)).unwrap_or_default()
        };
        tasks
            .map(|task| {
                let stat = read(&task, "stat");
                let state = stat.rsplit_once(") ").map_or("?", |(_, rest)| &rest[..1]);
                format!(
                    "thread {:?} in state {state}, in {:?}, in call {}; ",
                    task.file_name(),
                    read(&task, "wchan"),
                    read(&task, "syscall").trim()
                )
            })
            .collect()
    }
}

impl Drop for Actor {
    fn drop(&mut self) {
        // SAFETY: the process is a child that was not reaped, so no other process has its id.
        unsafe { libc::kill(self.pid, libc::SIGKILL) };
        let end = Instant::now() + PATIENCE;
        let mut status = 0;
        // SAFETY: the process is a child of this one, and the status is a local variable. The wait is bounded, because the process may be in
        // uninterruptible sleep.
        while unsafe { libc::waitpid(self.pid, &raw mut status, libc::WNOHANG) } == 0 {
            if Instant::now() > end {
                eprintln!("process {} does not end", self.pid);
                return;
            }
            std::thread::sleep(Duration::from_micros(200));
        }
    }
}

fn serve<S: FnMut(&str) -> Answer>(orders: BorrowedFd<'_>, prepared: Result<S, String>) {
    let mut act = match prepared {
        Ok(act) => {
            say(orders, Ok(String::new()));
            act
        }
        Err(error) => return say(orders, Err(error)),
    };
    let mut bytes = vec![0; LONGEST];
    while let Ok((len @ 1.., _)) = rustix::net::recv(orders, &mut bytes[..], RecvFlags::empty()) {
        let order = String::from_utf8_lossy(&bytes[..len]).into_owned();
        say(orders, act(&order));
    }
}

fn say(orders: BorrowedFd<'_>, answer: Answer) {
    let mut text = match &answer {
        Ok(text) => format!("+{text}"),
        Err(text) => format!("-{text}"),
    };
    text.truncate(LONGEST);
    let _ = rustix::net::send(orders, text.as_bytes(), SendFlags::NOSIGNAL);
}

fn text_of(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().cloned();
    text.or_else(|| panic.downcast_ref::<&str>().map(|text| text.to_string()))
        .unwrap_or_default()
}

/// Polls until a descriptor is readable or hung up.
pub fn readable_within(descriptor: BorrowedFd<'_>, patience: Duration) -> bool {
    let end = Instant::now() + patience;
    loop {
        let left = end.saturating_duration_since(Instant::now());
        let left = Timespec {
            tv_sec: left.as_secs() as i64,
            tv_nsec: left.subsec_nanos().into(),
        };
        let mut polled = [PollFd::from_borrowed_fd(descriptor, PollFlags::IN)];
        match rustix::event::poll(&mut polled, Some(&left)) {
            Ok(count) => return count == 1,
            Err(rustix::io::Errno::INTR) => {}
            Err(error) => panic!("poll: {}", io::Error::from(error)),
        }
    }
}
