//! The engine of System V queues: messages with types, under one lock.
//!
//! ```text
//!                 +---------------- lock ----------------+
//!   send -------> | cell filled, number stored = sent    | -------> receive
//!                 |   a receiver waits for it: its node  |
//!                 |   else: the order (types, arrival)   |
//!                 +--------------------------------------+
//!     parked: a blocked sender's message      offered: a blocked receiver's message
//! ```
//!
//! A POSIX queue has two sides that share no cache line, because senders and receivers are mostly different threads.
//! Threads that talk through one System V queue each do both and pick their answers by type: every line would be written by
//! all processes. So there is one lock, and a message for a process that waits goes straight to its node: from core to core that is
//! the lock's line, the node's and the cell's. The waiting thread takes it without the lock.
//!
//! | a message is sent | by storing its number ([`ControlBlock::sequence`](segment::Fixed)) |
//! |---|---|
//! | handed over | by the CAS on a node's word |
//! | taken from a node | by the CAS of the node's owner |
//! | received from the queue | by the store that frees its cell |
//!
//! Everything else (the order, counts, free slots, lists of nodes) follows from cells, numbers and nodes; [`repair`] makes it
//! anew when a thread has died under the lock.

mod admit;
mod batch;
mod change;
#[cfg(all(test, not(loom)))]
mod forged;
mod inspect;
mod lease;
mod offer;
pub mod order;
mod receive;
mod repair;
#[cfg(not(loom))]
mod salvage;
pub mod segment;
mod send;
mod slots;
#[cfg(all(test, not(loom)))]
pub(crate) mod tests;
pub mod wait;
mod watch;

pub use batch::{Batch, Sink};
pub use inspect::{Counts, Seen};
pub use lease::LeaseHandle;
pub use receive::Taken;
pub use wait::Call;

use crate::doorbell::Doorbell;
use crate::doorbell::Watched;
use crate::fault::Fault;
use crate::lock::deferred_wakes::DeferredWakes;
use crate::lock::tokens::ReceiverHeld;
use crate::lock::{Held, Left, LockError};
use crate::sync::{Ordering, fence_after_rmw};
use crate::sys::clock::Deadline;
use crate::sys::futex;
use crate::sys::thread::Thread;
use crate::sysv_engine::order::Typed;
use crate::waiters::pacing::Pacing;
use crate::waiters::{List, Waiters};
use segment::{Fixed, LIVE, REMOVED, Segment};

/// Why an attempt did not succeed.
pub type Refused = crate::waiters::wait::Refused<Why>;

/// The reasons that POSIX queues don't have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Why {
    /// The message is longer than the buffer, and stays in the queue.
    TooSmall { len: usize },
    /// Permissions have changed: the caller is judged again.
    Rejudge,
    /// The queue was removed.
    Removed,
}

/// A System V queue as the engine sees it.
#[derive(Debug)]
pub struct Engine {
    segment: Segment,
    pub pacing: Pacing,
    /// By which it is polled.
    doorbell: Doorbell,
    /// For a measurement: wake before the lock is dropped.
    pub wakes_inside: std::sync::atomic::AtomicBool,
}

impl Engine {
    pub fn new(segment: Segment) -> Engine {
        Engine {
            #[cfg(not(loom))]
            doorbell: Doorbell::new(segment.counted_in().cloned(), segment.file()),
            #[cfg(loom)]
            doorbell: Doorbell::default(),
            segment,
            pacing: Pacing::default(),
            wakes_inside: std::sync::atomic::AtomicBool::new(false),
        }
    }

    #[inline(always)]
    pub fn segment(&self) -> &Segment {
        &self.segment
    }

    #[inline(always)]
    fn fixed(&self) -> &Fixed {
        self.segment.fixed()
    }

    #[inline(always)]
    fn waiters(&self) -> Waiters<'_, Segment> {
        Waiters::of(&self.segment)
    }

    #[inline(always)]
    fn order(&self) -> Typed<'_, Segment> {
        Typed::of(&self.segment)
    }

    /// Tells the segment from others of the process.
    #[inline(always)]
    fn address(&self) -> usize {
        std::ptr::from_ref(self.fixed()).addr()
    }

    /// Whether the queue was removed.
    #[inline(always)]
    pub fn is_removed(&self) -> bool {
        // Relaxed: under the lock exact; elsewhere as of a moment ago.
        self.fixed().rights.state.load(Ordering::Relaxed) == REMOVED
    }

    /// Takes the lock; if its last owner died, repairs first. A process that waits for it gives that up at the end of a slice, if the queue was removed: it
    /// need not be let go any more.
    #[inline(always)]
    fn lock<'a>(
        &'a self,
        me: &'a Thread,
        deadline: Deadline,
        wakes: &mut DeferredWakes,
    ) -> Result<Held<'a>, Refused> {
        let lock = &self.fixed().control.lock;
        match lock.lock_unless(me, &self.segment, deadline, || self.is_removed()) {
            Ok((held, Left::InOrder)) => Ok(held),
            other => self.lock_slow(me, deadline, other, wakes),
        }
    }

    #[cold]
    fn lock_slow<'a>(
        &'a self,
        me: &'a Thread,
        deadline: Deadline,
        mut attempt: Result<(Held<'a>, Left), LockError>,
        wakes: &mut DeferredWakes,
    ) -> Result<Held<'a>, Refused> {
        if let Err(LockError::Nobodys) = attempt {
            let lock = &self.fixed().control.lock;
            lock.free_of_nobody();
            attempt = lock.lock_unless(me, &self.segment, deadline, || self.is_removed());
        }
        match attempt {
            Ok((held, Left::InOrder)) => Ok(held),
            // Nothing is done with it any more, and its owner may live: see `remove_unlocked`.
            Ok((held, Left::ByTheDead)) if self.is_removed() => {
                let receiving = held.receiver();
                self.mend_doorbell(receiving);
                Ok(held)
            }
            Ok((held, Left::ByTheDead)) => {
                let receiving = held.receiver();
                repair::repair(receiving, self)?;
                match self.serve(receiving, wakes) {
                    Err(Fault::Damaged) => return Err(Fault::Damaged.into()),
                    // Without memory waiters are not served yet; others can take what there is.
                    _ => wakes.add_everybody(self.waiters().usable()),
                }
                self.mend_doorbell(receiving);
                Ok(held)
            }
            Err(LockError::OwnedByCaller) => Err(Fault::OwnedByCaller.into()),
            Err(_) if self.is_removed() => Err(Refused::Own(Why::Removed)),
            Err(LockError::TimedOut | LockError::Nobodys) => Err(Fault::Busy.into()),
        }
    }

    /// Runs `work` under the lock, then wakes whose waiting it ended.
    #[inline(always)]
    fn with_lock<T>(
        &self,
        me: &Thread,
        deadline: Deadline,
        work: impl FnOnce(ReceiverHeld<'_>, &mut DeferredWakes) -> Result<T, Refused>,
    ) -> Result<T, Refused> {
        let mut wakes = DeferredWakes::default();
        let held = self.lock(me, deadline, &mut wakes)?;
        let receiving = held.receiver();
        let result = self
            .enter(receiving, me, &mut wakes)
            .and_then(|()| work(receiving, &mut wakes));
        if let Err(Refused::NotNow) = result {
            self.look_at_doorbell(receiving);
        }
        self.leave(held, &wakes, Held::unlock);
        self.segment.check()?;
        result
    }

    /// Drops the lock and wakes.
    #[inline(always)]
    fn leave<'a, T>(
        &self,
        held: Held<'a>,
        wakes: &DeferredWakes,
        unlock: impl FnOnce(Held<'a>) -> T,
    ) -> T {
        self.settle_doorbell(held.receiver());
        if wakes.is_empty() {
            return unlock(held);
        }
        self.leave_and_wake(held, wakes, unlock)
    }

    /// What every operation does first: is there still a queue, and is there something to clear away?
    #[inline(always)]
    fn enter(
        &self,
        receiving: ReceiverHeld<'_>,
        me: &Thread,
        wakes: &mut DeferredWakes,
    ) -> Result<(), Refused> {
        // Relaxed: under the lock.
        if self.fixed().rights.state.load(Ordering::Relaxed) != LIVE {
            return Err(self.why_not_live());
        }
        if self.waiters().len(List::Offered) != 0 {
            self.reap(receiving, me, wakes)?;
        }
        Ok(())
    }

    /// Why there is no queue to work with: it was removed, or a process has overwritten its state.
    #[cold]
    fn why_not_live(&self) -> Refused {
        match self.is_removed() {
            true => Refused::Own(Why::Removed),
            false => Refused::Fault(Fault::Damaged),
        }
    }

    /// Refuses a caller that was judged by what does not hold any more.
    #[inline(always)]
    fn check_rights(&self, _: ReceiverHeld<'_>, version: u32) -> Result<(), Refused> {
        // Relaxed: under the lock.
        if self.fixed().rights.version.load(Ordering::Relaxed) == version {
            Ok(())
        } else {
            Err(Refused::Own(Why::Rejudge))
        }
    }

    #[inline(never)]
    fn leave_and_wake<'a, T>(
        &self,
        held: Held<'a>,
        wakes: &DeferredWakes,
        unlock: impl FnOnce(Held<'a>) -> T,
    ) -> T {
        // Relaxed: a setting.
        if self.wakes_inside.load(std::sync::atomic::Ordering::Relaxed) {
            self.wake(wakes);
            return unlock(held);
        }
        let left = unlock(held);
        self.wake(wakes);
        left
    }

    fn wake(&self, wakes: &DeferredWakes) {
        // ASLEEP: the CAS that ended the wait came before; pairs with the fence in `sleep`. Whichever comes second sees
        // the other: we that it sleeps, or it that it need not.
        fence_after_rmw();
        for index in wakes.nodes().iter().copied().chain(wakes.everybody()) {
            self.wake_one(index);
        }
    }

    fn wake_one(&self, index: u32) {
        if let Ok(seat) = self.segment.seat(index)
            && seat.asleep.load(Ordering::Relaxed) != 0
        {
            futex::wake(&seat.node.word, 1);
        }
    }

    /// Notes that the segment holds nonsense.
    #[cold]
    pub fn note_damage(&self) {
        self.fixed().header.damage.note();
    }
}
