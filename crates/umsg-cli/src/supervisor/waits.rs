//! The calls that block. For each call, a worker waits in the library without a time limit. So the call keeps its place among the waiters of its
//! queue, like a call of any other process. The watch thread looks at all these calls every [`TICK`](super::watch::TICK), and ends the calls whose
//! threads have a signal or have died.

use std::fs::File;
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use umsg::signals::Caller;

use super::listener::{Call, Listener};
use super::memory::{self, Signal};

/// ERESTARTSYS: the kernel restarts the call, or ends it with EINTR if the signal's handler has no SA_RESTART. A thread with a pending signal never
/// sees this number.
const BEGIN_AGAIN: i32 = 512;

/// The value that means: the thread has died, so its call needs no answer.
const GONE: i32 = -1;

/// A call that blocks.
pub struct Wait {
    pub call: Call,
    /// The worker that waits in the library. The watch thread can interrupt it.
    caller: Caller,
    /// The file in /proc that shows the thread's signals.
    status: Option<File>,
    /// The errno with which the call ends, or [`GONE`]; 0 while the call continues. Relaxed: the word publishes no other data.
    end: AtomicI32,
    /// True if the last look found a signal of the process that another thread may handle.
    is_doubtful: AtomicBool,
}

/// The reason why a wait ends without a message and without room.
pub enum End {
    Errno(i32),
    Gone,
}

impl Wait {
    /// Returns the reason for the end of the call. The worker calls this function after each interruption. None means that the call continues to
    /// wait.
    pub fn end(&self) -> Option<End> {
        match self.end.load(Ordering::Relaxed) {
            0 => None,
            GONE => Some(End::Gone),
            errno => Some(End::Errno(errno)),
        }
    }

    /// Looks for a reason to end the call. Returns the errno of the call, [`GONE`], or None if the call continues to wait.
    fn look(&self, listener: &Listener) -> Option<i32> {
        if !listener.waits(&self.call) {
            return Some(GONE);
        }
        let is_system_v = [libc::SYS_msgsnd, libc::SYS_msgrcv].contains(&self.call.number);
        let signal = memory::signal(self.call.thread, self.status.as_ref());
        let is_doubtful = signal == Signal::OfProcess;
        let was_doubtful = self.is_doubtful.swap(is_doubtful, Ordering::Relaxed);
        match signal {
            Signal::None => None,
            // The kernel never restarts a call on a System V queue.
            Signal::OfThread if is_system_v => Some(libc::EINTR),
            Signal::OfThread => Some(BEGIN_AGAIN),
            // A running thread of the process would handle the signal at once. If the signal is still pending at the next look, it is probably for
            // this thread.
            Signal::OfProcess => was_doubtful.then_some(libc::EINTR),
        }
    }
}

/// All calls that block.
#[derive(Default)]
pub struct Waits(Mutex<Vec<Arc<Wait>>>);

impl Waits {
    /// Performs the wait of a call in the calling worker. The watch thread may interrupt the worker until `work` returns.
    pub fn perform(&self, call: &Call, work: impl FnOnce(&Wait)) {
        let caller = Caller::current();
        let wait = Arc::new(Wait {
            call: *call,
            caller,
            status: memory::open_status(call.thread).ok(),
            end: AtomicI32::new(0),
            is_doubtful: AtomicBool::new(false),
        });
        self.all().push(Arc::clone(&wait));
        work(&wait);
        self.all().retain(|other| !Arc::ptr_eq(other, &wait));
        // The call is no longer in the list, so the watch thread does not interrupt this worker any more. An earlier interruption is cleared.
        let _ = caller.take_end();
    }

    /// Looks at all calls once.
    pub fn look(&self, listener: &Listener) {
        let waits = self.all().clone();
        for wait in waits {
            let Some(end) = wait.look(listener) else {
                continue;
            };
            let all = self.all();
            if all.iter().any(|other| Arc::ptr_eq(other, &wait)) {
                wait.end.store(end, Ordering::Relaxed);
                wait.caller.end_call();
            }
        }
    }

    pub fn is_empty(&self) -> bool {
        self.all().is_empty()
    }

    fn all(&self) -> MutexGuard<'_, Vec<Arc<Wait>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
