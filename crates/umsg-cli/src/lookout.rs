//! A thread that interrupts a wait that has become pointless, for example because the queue was removed.
//!
//! The command waits for a message in one long call. So it keeps its place in the wait queue, and `umsg who` shows the whole time of the wait. The
//! lookout interrupts this call by SIGURG. It repeats the signal until the call ends, because a signal that arrives just before the thread sleeps
//! does not end the sleep.

use std::io;
use std::ptr;
use std::sync::atomic::{AtomicI32, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::thread;
use std::time::Duration;

use crate::opened::GLANCE;

/// The interval at which SIGURG is repeated until the wait ends.
pub const PERSISTENCE: Duration = Duration::from_millis(20);

/// A function that returns whether a wait is pointless.
type Reason = Box<dyn Fn() -> bool + Send>;

/// The thread that interrupts waits. It starts with the first wait.
#[derive(Default)]
pub struct Lookout {
    shared: Arc<Shared>,
    runs: OnceLock<bool>,
}

#[derive(Default)]
struct Shared {
    reasons: Mutex<Vec<Reason>>,
    /// The id of the thread that waits in the queue; 0 if no thread waits.
    waiting: AtomicI32,
}

/// Marks the calling thread as waiting in the queue, until this value is dropped.
pub struct Waiting<'a> {
    thread: &'a AtomicI32,
    /// Whether the lookout interrupts the wait if it becomes pointless.
    pub is_watched: bool,
}

impl Lookout {
    /// Adds a reason to interrupt waits. The function `reason` is called once a second.
    pub fn interrupt_if(&self, reason: impl Fn() -> bool + Send + 'static) {
        let reasons = &self.shared.reasons;
        let mut reasons = reasons.lock().unwrap_or_else(PoisonError::into_inner);
        reasons.push(Box::new(reason));
    }

    /// Marks the calling thread as the one that waits in the queue.
    pub fn begin(&self) -> Waiting<'_> {
        let is_watched = *self.runs.get_or_init(|| self.start().is_ok());
        mark(&self.shared.waiting, is_watched)
    }

    fn start(&self) -> io::Result<()> {
        handle_interruptions()?;
        let shared = Arc::clone(&self.shared);
        let look = move || {
            loop {
                thread::sleep(GLANCE);
                while shared.is_pointless() {
                    interrupt(&shared.waiting);
                    thread::sleep(PERSISTENCE);
                }
            }
        };
        // No other thread joins this thread. It ends with the process.
        thread::Builder::new().spawn(look).map(drop)
    }
}

impl Shared {
    fn is_pointless(&self) -> bool {
        let reasons = self.reasons.lock().unwrap_or_else(PoisonError::into_inner);
        // Relaxed: see `mark`.
        self.waiting.load(Ordering::Relaxed) != 0 && reasons.iter().any(|reason| reason())
    }
}

/// Stores the id of the calling thread in `thread`, so that [`interrupt`] finds the thread that waits.
pub fn mark(thread: &AtomicI32, is_watched: bool) -> Waiting<'_> {
    let me = rustix::thread::gettid().as_raw_nonzero().get();
    // Relaxed: a late interruption is repeated. After an interruption that is too early, the wait continues.
    thread.store(me, Ordering::Relaxed);
    Waiting { thread, is_watched }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        // Relaxed: see `mark`.
        self.thread.store(0, Ordering::Relaxed);
    }
}

/// Sends SIGURG to the thread that waits.
pub fn interrupt(thread: &AtomicI32) {
    // Relaxed: see `mark`.
    let thread = thread.load(Ordering::Relaxed);
    if thread != 0 {
        let process = rustix::process::getpid().as_raw_nonzero().get();
        // SAFETY: the call has no pointers. A signal for a thread that has ended fails; SIGURG has a handler that does nothing.
        unsafe { libc::syscall(libc::SYS_tgkill, process, thread, libc::SIGURG) };
    }
}

/// Makes SIGURG interrupt calls.
pub fn handle_interruptions() -> io::Result<()> {
    extern "C" fn do_nothing(_: libc::c_int) {}
    // SAFETY: all zeros are a valid sigaction, and the call gets a pointer to a live one. The handler does nothing, so it is
    // async-signal-safe.
    let failed = unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = do_nothing as extern "C" fn(libc::c_int) as usize;
        libc::sigaction(libc::SIGURG, &raw const action, ptr::null_mut()) != 0
    };
    match failed {
        true => Err(io::Error::last_os_error()),
        false => Ok(()),
    }
}
