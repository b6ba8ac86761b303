//! The calls that block. A worker waits for each one in the library, without a limit of its own: so the call keeps its place among the waiters of
//! its queue, like a call of any other process. The watch looks at all of them each [`TICK`](super::watch::TICK), and ends those whose thread has a
//! signal or is gone.

use std::fs::File;
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use umsg::signals::Caller;

use super::listener::{Call, Listener};
use super::memory::{self, Signal};

/// ERESTARTSYS: the kernel begins the call again, or ends it with EINTR if the signal's handler has no SA_RESTART. The kernel never shows this
/// number to a thread that has a signal.
const BEGIN_AGAIN: i32 = 512;

/// The thread is gone: its call needs no answer.
const GONE: i32 = -1;

/// A call that blocks.
pub struct Wait {
    pub call: Call,
    /// The worker.
    caller: Caller,
    /// The file in /proc that shows the thread's signals.
    status: Option<File>,
    /// The errno with which the call ends, [`GONE`], or 0. Relaxed: the word publishes no other data.
    end: AtomicI32,
    /// The last look found a signal that another thread may take.
    is_doubtful: AtomicBool,
}

/// Why a wait ends without a message and without room.
pub enum End {
    Errno(i32),
    Gone,
}

impl Wait {
    /// Follows each interruption of the worker. None: the call goes on.
    pub fn end(&self) -> Option<End> {
        match self.end.load(Ordering::Relaxed) {
            0 => None,
            GONE => Some(End::Gone),
            errno => Some(End::Errno(errno)),
        }
    }

    /// Looks for a reason to end the call.
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
            // Calls on System V queues never begin again.
            Signal::OfThread if is_system_v => Some(libc::EINTR),
            Signal::OfThread => Some(BEGIN_AGAIN),
            // A running thread takes it at once. If it stays, it is probably this thread's.
            Signal::OfProcess => was_doubtful.then_some(libc::EINTR),
        }
    }
}

/// All calls that block.
#[derive(Default)]
pub struct Waits(Mutex<Vec<Arc<Wait>>>);

impl Waits {
    /// Performs the wait of the calling worker, which may be interrupted until `work` returns.
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
        // From now on the watch does not interrupt this thread.
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
