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
//! The two sides of a POSIX queue share no cache line, because senders and receivers are mostly different threads. Threads that use one System V
//! queue both send and receive, and select their messages by type. With two sides, each thread would write the cache lines of both sides. Therefore a
//! System V queue has one lock.
//!
//! A message for a waiting receiver goes straight to the receiver's node. Three cache lines move between the cores: those of the lock, the node and
//! the cell. The waiting thread takes the message without the lock.
//!
//! | step of a message | takes effect with |
//! |---|---|
//! | sent | the store of its number ([`ControlBlock::sequence`](segment::Fixed)) |
//! | handed off to a receiver | the compare-and-swap on the receiver's node |
//! | taken from a node | the compare-and-swap of the node's owner |
//! | received from the queue | the store that frees its cell |
//!
//! All other data (the order, counts, free slots, lists of nodes) follow from cells, numbers and nodes. After the death
//! of a thread that held the lock, [`repair`] rebuilds them.

#[cfg(any(loom, feature = "crash-points"))]
mod account;
mod admit;
mod batch;
mod change;
mod counted;
mod delay;
mod end_of_stream;
#[cfg(all(test, not(loom)))]
mod forged;
mod inspect;
mod lease;
mod offer;
pub mod order;
mod receive;
mod recycle;
mod repair;
#[cfg(not(loom))]
mod salvage;
pub mod segment;
mod send;
mod slots;
#[cfg(all(test, not(loom)))]
pub(crate) mod tests;
mod wait;
mod watch;

pub use crate::lock::tokens::ReceiverHeld;
pub use batch::{Batch, Sink};
#[cfg_attr(loom, allow(unused_imports, reason = "for the model"))]
pub(crate) use counted::read_counts;
pub use inspect::{Counts, Seen};
pub use lease::LeaseHandle;
pub use receive::Taken;
pub use recycle::Successor;
pub use wait::Call;

use crate::doorbell::Doorbell;
use crate::doorbell::Watched;
use crate::fault::Fault;
use crate::lock::deferred_wakes::DeferredWakes;
use crate::lock::{Held, Left, LockError};
use crate::producers::NextQuery;
use crate::report::{self, What};
use crate::sync::fence_after_rmw;
use crate::sys::clock::Deadline;
use crate::sys::futex;
use crate::sys::thread::Thread;
use crate::sysv_engine::order::Order;
use crate::waiters::pacing::Pacing;
use crate::waiters::{List, Waiters};
use segment::{Fixed, Generation, Policy, Segment};

/// The reason why an attempt failed.
pub type Refused = crate::waiters::wait::Refused<Why>;

/// The reasons of a failed attempt that only System V queues have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Why {
    /// The message of `len` bytes is longer than the buffer, and stays in the queue.
    TooSmall { len: usize },
    /// The queue's rights have changed: the caller's permission has to be checked again.
    Rejudge,
    /// The queue was removed.
    Removed,
}

/// A handle of a System V queue in this process.
#[derive(Debug)]
pub struct Engine {
    segment: Segment,
    /// The generation of the queue: its place in the sequence of queues that the segment holds.
    generation: Generation,
    pub pacing: Pacing,
    /// The doorbell of this handle, which shows pollers the queue's level.
    doorbell: Doorbell,
    /// The delivery policy, which is read once.
    policy: Policy,
    /// For receives: the time at which this handle may check again whether a producer lives.
    next_query: NextQuery,
    /// For sends: the time at which this handle may check again whether a producer lives.
    next_query_to_send: NextQuery,
    /// True if calls wake waiters before they release the lock. Only a measurement sets this.
    wakes_inside: std::sync::atomic::AtomicBool,
}

impl Engine {
    pub fn new(segment: Segment) -> Engine {
        Engine {
            doorbell: Doorbell::of(&segment),
            policy: Policy::read(&segment.fixed().delivery),
            next_query: NextQuery::default(),
            next_query_to_send: NextQuery::default(),
            generation: segment.tenure().generation,
            segment,
            pacing: Pacing::default(),
            wakes_inside: std::sync::atomic::AtomicBool::new(false),
        }
    }

    /// Sets whether calls wake waiters before they release the lock. Only a measurement calls this function.
    pub fn set_wakes_inside(&self, inside: bool) {
        // Relaxed: the word is a setting, and publishes no other data.
        self.wakes_inside
            .store(inside, std::sync::atomic::Ordering::Relaxed);
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
    fn order(&self) -> Order<'_, Segment> {
        Order::of(&self.segment)
    }

    /// Returns the address of the mapping, which distinguishes the segments of this process.
    #[inline(always)]
    fn address(&self) -> usize {
        std::ptr::from_ref(self.fixed()).addr()
    }

    /// Returns the queue's delivery policy.
    pub fn policy(&self) -> Policy {
        self.policy
    }

    /// Returns whether the queue was removed.
    #[inline(always)]
    pub fn is_removed(&self) -> bool {
        self.fixed().rights.is_removed(self.generation)
    }

    /// Takes the lock. If its last owner died, the function repairs the queue first.
    ///
    /// The owner of the lock of a removed queue may never release it. So a thread that waits for the lock gives up at the
    /// end of a slice if the queue was removed.
    #[inline(always)]
    fn lock<'a>(
        &'a self,
        me: &'a Thread,
        deadline: Deadline,
        wakes: &mut DeferredWakes,
    ) -> Result<Held<'a>, Refused> {
        match self.fixed().control.lock.lock_if_free(me, &self.segment) {
            Some(held) => Ok(held),
            None => self.lock_slow(me, deadline, wakes),
        }
    }

    #[cold]
    fn lock_slow<'a>(
        &'a self,
        me: &'a Thread,
        deadline: Deadline,
        wakes: &mut DeferredWakes,
    ) -> Result<Held<'a>, Refused> {
        let lock = &self.fixed().control.lock;
        let is_over = || self.is_removed();
        let mut attempt = lock.lock_contended(me, &self.segment, deadline, &is_over);
        if let Err(LockError::NoThread) = attempt {
            lock.take_from_impossible();
            attempt = lock.lock_contended(me, &self.segment, deadline, &is_over);
        }
        match attempt {
            Ok((held, Left::InOrder)) => Ok(held),
            Ok((held, Left::Counted)) => {
                self.announce_counts(held.receiver());
                Ok(held)
            }
            // A removed queue is not repaired: no call uses it, and the previous owner of the lock may be alive (`remove_unlocked`). A later queue of
            // the segment is repaired, even through a handle of an earlier queue.
            Ok((held, Left::ByTheDead)) if self.fixed().rights.state().is_removed() => {
                let receiving = held.receiver();
                self.announce_counts(receiving);
                self.repair_poll_fifo(receiving);
                Ok(held)
            }
            Ok((held, Left::ByTheDead)) => {
                let receiving = held.receiver();
                self.announce_counts(receiving);
                repair::repair(receiving, self)?;
                self.report(What::Repaired, self.fixed().died_last());
                wakes.add_reports();
                match self.serve(receiving, wakes) {
                    Err(Fault::Damaged) => return Err(Fault::Damaged.into()),
                    // Without memory, this thread serves no waiters. It wakes all waiters, which then serve themselves.
                    _ => wakes.add_everybody(self.waiters().usable()),
                }
                self.repair_poll_fifo(receiving);
                Ok(held)
            }
            Err(LockError::OwnedByCaller) => Err(Fault::OwnedByCaller.into()),
            Err(_) if self.is_removed() => Err(Refused::Own(Why::Removed)),
            Err(LockError::TimedOut | LockError::NoThread) => Err(Fault::Busy.into()),
        }
    }

    /// Runs `work` under the lock, releases the lock, and wakes the threads whose waits ended.
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
        self.leave(held, &mut wakes, Held::unlock);
        self.segment.check()?;
        result
    }

    /// Releases the lock and wakes the threads in `wakes`.
    #[inline(always)]
    fn leave<'a, T>(
        &self,
        held: Held<'a>,
        wakes: &mut DeferredWakes,
        unlock: impl FnOnce(Held<'a>) -> T,
    ) -> T {
        self.settle_doorbell(held.receiver(), wakes);
        if wakes.is_empty() {
            return unlock(held);
        }
        // Relaxed: the word is a setting, and publishes no other data.
        if self.wakes_inside.load(std::sync::atomic::Ordering::Relaxed) {
            self.wake(wakes);
            let left = unlock(held);
            wakes.tell_reports();
            return left;
        }
        let left = unlock(held);
        self.wake(wakes);
        wakes.tell_reports();
        left
    }

    /// Begins an operation under the lock: checks that the queue still exists, and removes offers that have an outcome.
    #[inline(always)]
    fn enter(
        &self,
        receiving: ReceiverHeld<'_>,
        me: &Thread,
        wakes: &mut DeferredWakes,
    ) -> Result<(), Refused> {
        if !self.fixed().rights.is_live(self.generation) {
            return Err(self.why_not_live());
        }
        if self.waiters().len(List::Offered) != 0 {
            self.reap(receiving, me, wakes)?;
        }
        Ok(())
    }

    /// Returns the reason why the queue is not live: it was removed, or a process has overwritten the state.
    #[cold]
    fn why_not_live(&self) -> Refused {
        match self.is_removed() {
            true => Refused::Own(Why::Removed),
            false => Refused::Fault(Fault::Damaged),
        }
    }

    /// Returns an error if the caller's permission was checked under an older version of the rights.
    #[inline(always)]
    fn check_rights(&self, _: ReceiverHeld<'_>, version: u32) -> Result<(), Refused> {
        if self.fixed().rights.version() == version {
            Ok(())
        } else {
            Err(Refused::Own(Why::Rejudge))
        }
    }

    #[inline(never)]
    fn wake(&self, wakes: &DeferredWakes) {
        // ASLEEP: pairs with the fence in `sleep`. The compare-and-swap that ended the wait comes before this fence. So either this thread
        // sees that the waiter sleeps, or the waiter sees that its wait has ended.
        fence_after_rmw();
        for index in wakes.nodes().iter().copied().chain(wakes.everybody()) {
            self.wake_one(index);
        }
        #[cfg(not(loom))]
        if wakes.need_timekeeper() {
            crate::doorbell::Polled::keep_time_after_call(self);
        }
    }

    fn wake_one(&self, index: u32) {
        if let Ok(record) = self.segment.waiter_record(index)
            && record.is_asleep()
        {
            futex::wake(&record.node().word, 1);
        }
    }

    /// Notes an event for the log of the program, see [`report`]. `pid` is the id of a dead process.
    #[cold]
    fn report(&self, what: What, pid: u32) {
        let id = self.fixed().header.id();
        report::note(what, report::Subject::Id(id), pid, 0);
    }

    /// Records in the header that the segment is corrupted.
    #[cold]
    pub fn note_damage(&self) {
        self.fixed().header.damage.note();
        self.report(What::Corrupted, 0);
    }
}
