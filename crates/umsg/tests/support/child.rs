//! Processes that may be killed at any time, and never survive the test.

use super::shared::Shared;
use std::backtrace::{Backtrace, BacktraceStatus};
use std::panic::AssertUnwindSafe;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Once, OnceLock};
use std::time::{Duration, Instant};

/// The maximum time for a step that a child does at once on a quiet machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// The way in which a child ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    Code(i32),
    Signal(i32),
}

/// Returns the current system calls of a process's threads, and of the process's children. Source: proc(5).
fn portrait(pid: libc::pid_t) -> String {
    let mut text = String::new();
    let Ok(tasks) = std::fs::read_dir(format!("/proc/{pid}/task")) else {
        return text;
    };
    for task in tasks.flatten() {
        let read = |name| std::fs::read_to_string(task.path().join(name)).unwrap_or_default();
        let stat = read("stat");
        let state = stat.rsplit_once(") ").map_or("?", |(_, rest)| &rest[..1]);
        text += &format!(
            "\n  process {pid}, thread {}: {state}, waits in {:?}, call and arguments {}, scheduled {}",
            task.file_name().display(),
            read("wchan"),
            read("syscall").trim(),
            read("schedstat").trim(),
        );
        let children = read("children");
        let children = children
            .split_whitespace()
            .filter_map(|pid| pid.parse().ok());
        text.extend(children.map(portrait));
    }
    text
}

/// Stops this process until another process continues it: a function for [`umsg_shm::crash::arm_fuse`].
pub fn stop() {
    // SAFETY: the call sends a signal to this thread.
    unsafe { libc::raise(libc::SIGSTOP) };
}

/// The number of forks before a test gives up, and the time after which the parent of a child that starts no thread forks again.
const FORKS: u32 = 30;
const START: Duration = Duration::from_secs(2);

/// The two decisions about a forked child.
const BEGUN: u64 = 1;
const GIVEN_UP: u64 = 2;

/// Starts a thread and waits for its end, until the process has one thread again.
///
/// The standard library's threads take a lock of that library when they start and when they end. If a thread of the harness has the lock during the
/// fork, the child's copy stays locked, and no thread of the child begins. Such a child does not return from here.
fn start_a_thread() {
    std::thread::spawn(|| ()).join().unwrap();
    // A thread that was joined may not have left the kernel, and unshare(2) with CLONE_NEWUSER fails in a process with several threads.
    let threads = || std::fs::read_dir("/proc/self/task").map(Iterator::count);
    while threads().is_ok_and(|count| count > 1) {
        std::thread::yield_now();
    }
}

/// Exit status of a child that panicked.
pub const PANICKED: i32 = 101;

/// A forked child. Killed and reaped when dropped.
pub struct Child {
    pid: libc::pid_t,
    exit: Option<Exit>,
    /// True if the child leads a process group. All processes of the group are signalled and reaped with the child.
    leads: bool,
}

impl Child {
    /// Forks; the child does `work` and exits with the result, without running any destructor.
    pub fn run(work: impl FnOnce() -> i32) -> Child {
        Child::begin(false, work)
    }

    /// Does the same as [`run`](Self::run), for a child that makes children itself, which are stopped and killed with it. The parent becomes
    /// the parent of orphans (PR_SET_CHILD_SUBREAPER).
    pub fn lead(work: impl FnOnce() -> i32) -> Child {
        Child::begin(true, work)
    }

    fn begin(leads: bool, work: impl FnOnce() -> i32) -> Child {
        let_children_complain();
        for _ in 0..FORKS {
            // The child begins its work only if the parent has not given it up.
            let fate = Shared::<AtomicU64>::new();
            let decide = |decision| {
                let decided =
                    fate.compare_exchange(0, decision, Ordering::SeqCst, Ordering::SeqCst);
                decided.is_ok()
            };
            // SAFETY: the child leaves with _exit. Before, it calls the library and libc's malloc, which glibc makes usable in a child of a process
            // with threads. Threads of the standard library may not be usable: then the parent kills the child before `work`.
            let pid = unsafe { libc::fork() };
            assert!(pid >= 0, "fork");
            if leads {
                // SAFETY: the call moves this process's own child, or the child itself, into a process group. Both processes make the call, because
                // either may be first.
                unsafe { libc::setpgid(pid, pid) };
            }
            if pid == 0 {
                die_with_parent();
                IS_CHILD.store(true, Ordering::Relaxed);
                let begin = || {
                    start_a_thread();
                    // A child that was given up is about to be killed.
                    if decide(BEGUN) { work() } else { PANICKED }
                };
                let code = std::panic::catch_unwind(AssertUnwindSafe(begin)).unwrap_or(PANICKED);
                // SAFETY: ends the process.
                unsafe { libc::_exit(code) };
            }
            let mut child = Child {
                pid,
                exit: None,
                leads,
            };
            let forked = Instant::now();
            while fate.load(Ordering::SeqCst) == 0 && forked.elapsed() < START {
                std::thread::sleep(Duration::from_micros(50));
            }
            if !decide(GIVEN_UP) {
                return child;
            }
            child.kill();
        }
        panic!("no child could start a thread");
    }

    pub fn pid(&self) -> libc::pid_t {
        self.pid
    }

    /// Returns the current system calls of the child and its children, for the report about a stuck child.
    pub fn portrait(&self) -> String {
        portrait(self.pid)
    }

    /// Sends a signal, unless the child was reaped. If the child leads a group, the whole group gets the signal.
    pub fn signal(&self, signal: i32) {
        if self.exit.is_none() {
            let target = if self.leads { -self.pid } else { self.pid };
            // SAFETY: the signal goes to a child of this process that was not reaped, so no other process has its id.
            unsafe { libc::kill(target, signal) };
        }
    }

    /// Does the same as [`signal`](Self::signal), for the child alone.
    pub fn signal_leader(&self, signal: i32) {
        if self.exit.is_none() {
            // SAFETY: the signal goes to a child of this process that was not reaped, so no other process has its id.
            unsafe { libc::kill(self.pid, signal) };
        }
    }

    /// Sends a signal to each of the child's threads.
    pub fn signal_threads(&self, signal: i32) {
        let Ok(tasks) = std::fs::read_dir(format!("/proc/{}/task", self.pid)) else {
            return;
        };
        let names = tasks.filter_map(|task| task.ok()?.file_name().into_string().ok());
        for thread in names.filter_map(|name| name.parse::<libc::pid_t>().ok()) {
            if self.exit.is_none() {
                // SAFETY: the signal goes to a thread of a child of this process that was not reaped, or to no thread.
                unsafe { libc::syscall(libc::SYS_tgkill, self.pid, thread, signal) };
            }
        }
    }

    /// Waits until the child has [stopped](stop).
    #[track_caller]
    pub fn expect_to_stop(&self, what: &str) {
        let is_stopped = || {
            let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.pid));
            stat.is_ok_and(|stat| stat.contains(") T "))
        };
        assert!(
            super::wait_until(PATIENCE, is_stopped),
            "{what}: no process came by"
        );
    }

    /// Waits for the child's end, at most for `patience`. Returns None if the child has not ended.
    pub fn wait(&mut self, patience: Duration) -> Option<Exit> {
        if self.exit.is_some() {
            return self.exit;
        }
        if !self.ends_within(patience) {
            return None;
        }
        let status = self.reap();
        self.exit = Some(if libc::WIFSIGNALED(status) {
            Exit::Signal(libc::WTERMSIG(status))
        } else {
            Exit::Code(libc::WEXITSTATUS(status))
        });
        self.exit
    }

    /// Waits for the child's end. Fails the test unless the child ends in time, with `exit`.
    #[track_caller]
    pub fn expect(&mut self, exit: Exit, what: &str) {
        match self.wait(PATIENCE) {
            Some(end) => assert_eq!(end, exit, "{what}"),
            None => panic!("{what}: stuck"),
        }
    }

    /// Fails the test if the child has ended.
    #[track_caller]
    pub fn expect_alive(&mut self) {
        let end = self.wait(Duration::ZERO);
        assert_eq!(end, None, "process {} has ended", self.pid);
    }

    /// Reaps the child, which has ended. Kills and reaps the processes that it leads.
    fn reap(&self) -> i32 {
        let mut status = 0;
        if self.leads {
            self.signal(libc::SIGKILL);
        }
        // SAFETY: the call waits for a child of this process, and the status is a local variable.
        let pid = retried(|| unsafe { libc::waitpid(self.pid, &raw mut status, 0) });
        assert_eq!(pid, self.pid, "waitpid");
        let mut ignored = 0;
        // SAFETY: the call waits for children of this process in the child's group, and the status is a local variable.
        while self.leads && retried(|| unsafe { libc::waitpid(-self.pid, &raw mut ignored, 0) }) > 0
        {
        }
        status
    }

    fn ends_within(&self, patience: Duration) -> bool {
        // SAFETY: the descriptor leads to a child of this process, and is closed below.
        let descriptor = unsafe { libc::syscall(libc::SYS_pidfd_open, self.pid, 0) } as i32;
        assert!(descriptor >= 0, "pidfd_open");
        let mut poll = libc::pollfd {
            fd: descriptor,
            events: libc::POLLIN,
            revents: 0,
        };
        let end = Instant::now() + patience;
        let ended = retried(|| {
            let left = end.saturating_duration_since(Instant::now());
            let left = i32::try_from(left.as_millis()).unwrap_or(i32::MAX);
            // SAFETY: the call takes one entry, a local variable.
            unsafe { libc::poll(&raw mut poll, 1, left) }
        });
        // SAFETY: the descriptor belongs to this function.
        unsafe { libc::close(descriptor) };
        ended == 1
    }

    /// Kills the child and reaps it.
    pub fn kill(&mut self) {
        self.signal(libc::SIGKILL);
        self.wait(PATIENCE).expect("a killed child");
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        if self.exit.is_none() {
            self.signal(libc::SIGKILL);
            self.reap();
        }
    }
}

/// Repeats a call that a signal handler interrupts.
fn retried(mut call: impl FnMut() -> i32) -> i32 {
    loop {
        let result = call();
        let interrupted = || std::io::Error::last_os_error().raw_os_error() == Some(libc::EINTR);
        if result >= 0 || !interrupted() {
            return result;
        }
    }
}

/// Makes this process die with its parent, so that a killed test leaves no children.
fn die_with_parent() {
    // SAFETY: the call changes only a setting of this process.
    unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) };
}

/// True if a test forked this process.
static IS_CHILD: AtomicBool = AtomicBool::new(false);

/// A child's panic is written to standard error, because the harness would keep the text in memory that dies with the child. The hook is set before
/// the first child is forked. A child that is forked while another test panics could not set the hook, because it would wait for the locks of that
/// panic without end. Returns the number of panics in children, including children that were killed before the panic ended them.
pub fn complaints() -> u64 {
    COMPLAINTS
        .get()
        .map_or(0, |count| count.load(Ordering::SeqCst))
}

static COMPLAINTS: OnceLock<Shared<AtomicU64>> = OnceLock::new();

fn let_children_complain() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        COMPLAINTS.get_or_init(Shared::new);
        let of_tests = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            if !IS_CHILD.load(Ordering::Relaxed) {
                return of_tests(info);
            }
            complain(&info.to_string());
        }));
    });
}

/// Reports a failure in this process, with a backtrace if backtraces are enabled.
pub fn complain(what: &str) {
    if let Some(complaints) = COMPLAINTS.get() {
        complaints.fetch_add(1, Ordering::SeqCst);
    }
    write_error(&format!("child {}: {what}\n", std::process::id()));
    // The backtrace comes last, because it takes a lock that a child may have inherited.
    let known = Backtrace::capture();
    if known.status() == BacktraceStatus::Captured {
        write_error(&known.to_string());
    }
}

fn write_error(text: &str) {
    // SAFETY: the bytes of a live string.
    unsafe { libc::write(2, text.as_ptr().cast(), text.len()) };
}

/// Makes SIGUSR1 end a blocking call with EINTR.
pub fn let_calls_be_interrupted() {
    extern "C" fn nothing(_: libc::c_int) {}
    // SAFETY: the handler does nothing, and has no SA_RESTART. sigaction(2) allows a zeroed structure.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = nothing as extern "C" fn(libc::c_int) as usize;
        libc::sigaction(libc::SIGUSR1, &raw const action, std::ptr::null_mut());
    }
}
