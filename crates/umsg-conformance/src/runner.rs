//! Runs one case in a separate process, and returns its outcome.
//!
//! ```text
//!   test thread ──fork──► case process (leads a group) ──fork──► children of the case
//!        ▲                      │                                      │
//!        └────── report pipe ◄──┴──────────────────────────────────────┘
//! ```
//!
//! The case process writes records to a pipe, the report. A record names a queue that the case will create, and that the runner removes at the end.
//! Or the record says that the case passed, that it failed, or that the backend does not support the case. When the case process has ended, the
//! runner kills the rest of its process group.

use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::fs::PermissionsExt;
use std::panic;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Once;
use std::sync::atomic::{AtomicI32, Ordering};
use std::time::{Duration, Instant};

use crate::backend::{Basics, Family, Kind};
use crate::sys::{self, End, Forked, Pause};

/// A case: a function that panics if the behaviour differs from its name.
pub type Case<F> = fn(&<F as Family>::Site);

/// The longest duration of a case. After this time, the runner treats the case as hung.
const PATIENCE: Duration = Duration::from_secs(120);

/// The maximum length of a record's text, in bytes; a longer text is cut off. One write puts such a record into the pipe as a whole.
const LONGEST: usize = 3000;

/// In a case process, the descriptor of the pipe to which it writes its report. In other processes, the value is -1.
static REPORT: AtomicI32 = AtomicI32::new(-1);

/// The meaning of a record of the report.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Tag {
    Queue = b'Q' as isize,
    Passed = b'P' as isize,
    Skipped = b'S' as isize,
    Failed = b'F' as isize,
}

/// The result of a case.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// The case passed.
    Passed,
    /// The case can't run in this environment, for this reason.
    Skipped(String),
    /// The case failed, with this text.
    Failed(String),
}

/// Writes a record, if this process runs a case.
fn report(tag: Tag, text: &[u8]) {
    let fd = REPORT.load(Ordering::Relaxed);
    if fd < 0 {
        return;
    }
    let text = &text[..text.len().min(LONGEST)];
    let mut record = vec![tag as u8];
    record.extend((text.len() as u16).to_le_bytes());
    record.extend(text);
    let _ = sys::write_record(fd, &record);
}

/// Reports that the case may create this queue, so that the runner removes the queue at the end.
pub(crate) fn announce(queue: &[u8]) {
    report(Tag::Queue, queue);
}

/// Ends the case as skipped, because it can't run in this environment.
pub(crate) fn skip(reason: &str) -> ! {
    report(Tag::Skipped, reason.as_bytes());
    sys::leave(0)
}

/// Makes a case process send the message of a panic to the report. Panics of other processes are printed as usual.
fn report_panics() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let before = panic::take_hook();
        panic::set_hook(Box::new(move |panic| {
            if REPORT.load(Ordering::Relaxed) < 0 {
                return before(panic);
            }
            report(Tag::Failed, panic.to_string().as_bytes());
            sys::leave(101);
        }));
    });
}

/// Makes a namespace directory for umsg that every user can enter. The directory is removed when the value is dropped.
///
/// # Panics
/// If `/dev/shm` can't be written to.
pub fn namespace_directory() -> tempfile::TempDir {
    directory(0o1777)
}

/// Makes a namespace directory like [`namespace_directory`], but only the caller can use it. In such a directory, a process reuses the segments of
/// removed queues.
///
/// # Panics
/// If `/dev/shm` can't be written to.
pub fn own_namespace_directory() -> tempfile::TempDir {
    directory(0o700)
}

fn directory(mode: u32) -> tempfile::TempDir {
    let directory = tempfile::Builder::new()
        .prefix("umsg-conformance-")
        .tempdir_in("/dev/shm")
        .expect("a directory in /dev/shm");
    std::fs::set_permissions(directory.path(), std::fs::Permissions::from_mode(mode))
        .expect("chmod");
    directory
}

/// Runs a case on a backend.
///
/// # Panics
/// If no process can be made.
pub fn verdict<F: Family>(kind: &Kind<F>, helper: &Path, case: Case<F>) -> Verdict {
    report_panics();
    let made = kind.needs_directory() && !matches!(kind, Kind::Preloaded(_));
    let made = made.then(namespace_directory);
    let given = std::env::var_os("UMSG_DIR").map_or(PathBuf::from("/"), PathBuf::from);
    let directory = made
        .as_ref()
        .map_or(given, |made| made.path().to_path_buf());
    let (reading, writing) = sys::pipe().expect("a pipe");
    match fork_with_threads() {
        Forked::Child => {
            drop(reading);
            run_here(writing.as_raw_fd(), kind, &directory, helper, case)
        }
        Forked::Parent(child) => {
            drop(writing);
            Supervision::new(child, reading.as_raw_fd(), F::remove_from_kernel).watch()
        }
    }
}

/// The number of forks before the runner gives up, and the time after which the parent of a child that starts no thread forks again.
const FORKS: u32 = 30;
const START: Duration = Duration::from_secs(2);

/// The two decisions about a forked child.
const BEGUN: u32 = 1;
const GIVEN_UP: u32 = 2;

/// Forks a child in which threads of the standard library can start.
///
/// Such a thread takes a lock of the standard library when it starts and when it ends. If a thread of the test harness has the lock during the fork,
/// the child's copy stays locked, and no thread of the child begins. The parent kills such a child before the case, and forks again.
fn fork_with_threads() -> Forked {
    for _ in 0..FORKS {
        // The child begins the case only if the parent has not given it up.
        let fate = sys::shared_words(1).expect("shared memory");
        let decide = |decision| {
            let order = Ordering::SeqCst;
            fate[0].compare_exchange(0, decision, order, order).is_ok()
        };
        match sys::fork().expect("a process") {
            Forked::Child => {
                sys::die_with_parent();
                if start_a_thread() && decide(BEGUN) {
                    return Forked::Child;
                }
                sys::leave(101)
            }
            Forked::Parent(child) => {
                let mut pause = Pause::new(START);
                while fate[0].load(Ordering::SeqCst) == 0 && pause.again() {}
                let is_given_up = decide(GIVEN_UP);
                sys::unmap_words(fate);
                if !is_given_up {
                    return Forked::Parent(child);
                }
                sys::kill(child, libc::SIGKILL);
                sys::wait(child, PATIENCE);
            }
        }
    }
    panic!("no child could start a thread");
}

/// Starts a thread and waits for its end, until the process has one thread again. Returns false if no thread can start.
fn start_a_thread() -> bool {
    let thread = std::thread::Builder::new().spawn(|| ());
    let has_ended = thread.is_ok_and(|thread| thread.join().is_ok());
    // A thread that was joined may not have left the kernel.
    let threads = || std::fs::read_dir("/proc/self/task").map(Iterator::count);
    while threads().is_ok_and(|count| count > 1) {
        std::thread::yield_now();
    }
    has_ended
}

/// Runs the case, in the case process.
fn run_here<F: Family>(
    report_to: RawFd,
    kind: &Kind<F>,
    directory: &Path,
    helper: &Path,
    case: Case<F>,
) -> ! {
    sys::lead_group();
    sys::die_with_parent();
    sys::umask(0o022);
    // First, all descriptors except the standard streams and the report are closed. Then the report moves to a high number, so that the low numbers
    // that a case expects are free.
    sys::close_all(3, report_to as u32 - 1);
    sys::close_all(report_to as u32 + 1, u32::MAX);
    let report_to = move_up(report_to);
    REPORT.store(report_to, Ordering::Relaxed);
    let backend = kind
        .make(directory)
        .unwrap_or_else(|why| panic!("no backend: {why}"));
    backend.enter();
    case(&F::site(kind, backend, helper));
    report(Tag::Passed, b"");
    sys::leave(0)
}

/// Moves a descriptor to a number that cases do not use.
fn move_up(fd: RawFd) -> RawFd {
    const NUMBER: RawFd = 250;
    // SAFETY: no file is open at the new number, and no code uses the old number any more.
    unsafe {
        libc::syscall(libc::SYS_dup3, fd, NUMBER, libc::O_CLOEXEC);
        libc::syscall(libc::SYS_close, fd);
    }
    NUMBER
}

/// The state with which the parent supervises a case process.
struct Supervision {
    child: sys::Pid,
    report: RawFd,
    received: Vec<u8>,
    remove_from_kernel: fn(&[u8]),
}

impl Supervision {
    fn new(child: sys::Pid, report: RawFd, remove_from_kernel: fn(&[u8])) -> Supervision {
        Supervision {
            child,
            report,
            received: Vec::new(),
            remove_from_kernel,
        }
    }

    /// Waits for the end of the case process, kills the rest of its process group, removes its queues, and returns the verdict.
    fn watch(mut self) -> Verdict {
        let until = Instant::now() + PATIENCE;
        let end = loop {
            if let Some(end) = sys::wait(self.child, Duration::ZERO) {
                break Some(end);
            }
            if Instant::now() >= until {
                break None;
            }
            self.read(Duration::from_millis(2));
        };
        sys::kill(-self.child, libc::SIGKILL);
        if end.is_none() {
            sys::wait(self.child, Duration::from_secs(10));
        }
        while self.read(Duration::ZERO) {}
        self.judge(end)
    }

    /// Reads the available bytes of the report. Returns false if no bytes arrived in time.
    fn read(&mut self, patience: Duration) -> bool {
        let mut buffer = [0; 4096];
        if !sys::readable(self.report, patience) {
            return false;
        }
        match sys::read_record(self.report, &mut buffer) {
            Ok(length) if length > 0 => {
                self.received.extend(&buffer[..length]);
                true
            }
            _ => {
                // The report is at its end, so the runner now only waits for the end of the child.
                std::thread::sleep(patience);
                false
            }
        }
    }

    /// Returns the complete records of the report.
    fn records(&self) -> Vec<(u8, &[u8])> {
        let (mut records, mut rest) = (Vec::new(), &self.received[..]);
        while let [tag, low, high, after @ ..] = rest {
            let length = usize::from(u16::from_le_bytes([*low, *high]));
            let Some((text, after)) = after.split_at_checked(length) else {
                break;
            };
            records.push((*tag, text));
            rest = after;
        }
        records
    }

    fn judge(&self, end: Option<End>) -> Verdict {
        let records = self.records();
        let find = |wanted: Tag| {
            records
                .iter()
                .find(|(tag, _)| *tag == wanted as u8)
                .map(|(_, text)| *text)
        };
        let words = |text: &[u8]| String::from_utf8_lossy(text).into_owned();
        for (_, queue) in records.iter().filter(|(tag, _)| *tag == Tag::Queue as u8) {
            (self.remove_from_kernel)(queue);
        }
        if let Some(text) = find(Tag::Failed) {
            return Verdict::Failed(words(text));
        }
        match end {
            None => Verdict::Failed(format!(
                "it had not ended after {} s and was killed",
                PATIENCE.as_secs()
            )),
            Some(End::Exit(0)) => match (find(Tag::Skipped), find(Tag::Passed)) {
                (Some(reason), _) => Verdict::Skipped(words(reason)),
                (None, Some(_)) => Verdict::Passed,
                (None, None) => Verdict::Failed("its process ended without a word".to_string()),
            },
            Some(end) => Verdict::Failed(format!("its process ended with {end:?}")),
        }
    }
}

/// Runs a case as a test. Panics if the case fails, and reports if it is skipped.
///
/// # Panics
/// If the case fails.
pub fn run<F: Family>(kind: &Kind<F>, helper: &Path, title: &str, case: Case<F>) {
    if let Kind::Preloaded(library) = kind
        && std::env::var_os(PRELOADED).is_none()
    {
        return run_preloaded(library, title);
    }
    let label = kind.label();
    match verdict(kind, helper, case) {
        Verdict::Passed => {}
        Verdict::Skipped(reason) => say(&format!("skipped on the {label}: {title}: {reason}\n")),
        Verdict::Failed(how) => panic!("on the {label}, {title}:\n{how}"),
    }
}

/// The environment variable that marks this test program when it runs with the drop-in preloaded.
const PRELOADED: &str = "UMSG_CONFORMANCE_PRELOADED";

/// Starts this program again with the drop-in preloaded, and runs the test `title` in it.
fn run_preloaded(library: &Path, title: &str) {
    let directory = namespace_directory();
    let output = Command::new(std::env::current_exe().expect("this program"))
        .args([title, "--exact", "--nocapture"])
        .env("LD_PRELOAD", library)
        .env("UMSG_DIR", directory.path())
        .env(PRELOADED, "1")
        .output()
        .expect("this program again");
    let text = [output.stdout, output.stderr].concat();
    let text = String::from_utf8_lossy(&text);
    for skipped in text.lines().filter(|line| line.starts_with("skipped on")) {
        say(&format!("{skipped}\n"));
    }
    assert!(
        output.status.success() && text.contains("1 passed"),
        "{text}"
    );
}

/// Prints a text in spite of the output capture of the test harness, because skipped checks must be visible.
pub fn say(text: &str) {
    let _ = sys::write_record(libc::STDERR_FILENO, text.as_bytes());
}
