//! Removal of a queue whose segment is kept, and creation of the next queue in this segment, whose pages already have memory. Both happen under the
//! lock, which belongs to the segment and outlives its queues. [`segment::Rights`](super::segment::Rights) has the states.
//!
//! Other handles of the removed queue may exist, in this process and in other processes. Each of these handles finds its queue removed, because the
//! generation has ended, and changes nothing. A segment is kept only if nothing refers to the removed queue without the lock:
//!
//! | if this refers to the queue | then |
//! |---|---|
//! | a waiter record of a thread that waits, or that has an outcome to read | the queue is removed in full |
//! | a lease or a delayed message, also one that has ended | the same |
//! | a producer, a policy, an end of the stream | the same |
//! | a poller's FIFO | the same |
//! | processes of another PID namespace | the same |
//! | a change of its rights | the same: other users may have access |

use super::segment::{Fixed, Generation, Policy};
use super::{Engine, Refused};
use crate::crash::crash_point;
use crate::fault::Fault;
use crate::lock::Held;
use crate::lock::deferred_wakes::DeferredWakes;
use crate::lock::tokens::ReceiverHeld;
use crate::sys::clock::{self, Deadline, SECOND};
use crate::sys::thread::Thread;
use crate::waiters::{self, List, State};

/// The greatest number of slots with memory in a segment that is kept.
const SLOTS: u32 = 256;
/// The greatest number of granules in the arena of a segment that is kept (128 KiB).
const GRANULES: u32 = 8192;

/// The properties of the next queue in a segment.
#[derive(Clone, Copy, Debug)]
pub struct Successor {
    pub id: i32,
    /// The turn of the identifier, which grows with each further use of an index. The sequence number of the identifier is the turn modulo 65,535.
    pub turn: u64,
    /// The number of bytes that may be queued in the new queue.
    pub qbytes: u64,
}

impl Engine {
    /// Removes the queue as [`remove`](Self::remove) does, and keeps the segment, without messages, for [`revive`](Self::revive). `may` runs under
    /// the lock, and may refuse the removal. Returns false without a change if the segment can't be kept.
    ///
    /// Fails with [`Fault::Busy`] if the lock does not become free while the caller spins.
    ///
    /// # If the process dies
    /// Other processes find that the queue either still exists or is removed.
    pub fn vacate<E>(
        &self,
        me: &Thread,
        may: impl FnOnce(&Fixed) -> Result<(), E>,
    ) -> Result<Result<bool, E>, Refused> {
        self.with_lock(me, Deadline::Passed, |receiving, _| {
            if let Err(refused) = may(self.fixed()) {
                return Ok(Err(refused));
            }
            if !self.is_unattached(receiving)
                || !self.fixed().rights.vacate(receiving, self.generation)
            {
                return Ok(Ok(false));
            }
            crash_point!(MSG_VACATED);
            self.empty(receiving)?;
            crash_point!(MSG_EMPTIED);
            Ok(Ok(true))
        })
    }

    /// Makes the next queue of a segment that this handle has vacated, and returns its generation. Returns None if another process has taken the
    /// segment away or has made a queue in it, or if `successor` declines. `successor` runs under the lock.
    ///
    /// # If the process dies
    /// Other processes find either no queue or a complete queue in the segment.
    pub fn revive(
        &self,
        me: &Thread,
        successor: impl FnOnce(&Fixed) -> Option<Successor>,
    ) -> Option<Generation> {
        let mut wakes = DeferredWakes::default();
        let held = self.lock(me, Deadline::Passed, &mut wakes).ok()?;
        let next = self.revive_held(held.receiver(), me, successor);
        self.leave(held, &mut wakes, Held::unlock);
        next
    }

    fn revive_held(
        &self,
        receiving: ReceiverHeld<'_>,
        me: &Thread,
        successor: impl FnOnce(&Fixed) -> Option<Successor>,
    ) -> Option<Generation> {
        let fixed = self.fixed();
        if !fixed.rights.is_vacant(self.generation) {
            return None;
        }
        let Successor { id, turn, qbytes } = successor(fixed)?;
        let now = clock::realtime_coarse();
        fixed.header.begin_next(id, turn, me.pid(), now);
        fixed.control.set_capacity(receiving, qbytes);
        fixed.rights.begin_next(receiving, now / SECOND);
        crash_point!(MSG_REFILLED);
        let next = fixed.rights.revive(receiving, self.generation);
        crash_point!(MSG_REVIVED);
        next
    }

    /// Returns whether nothing refers to the queue without the lock, and whether the segment is small enough to be kept.
    fn is_unattached(&self, receiving: ReceiverHeld<'_>) -> bool {
        let fixed = self.fixed();
        let (control, rights) = (&fixed.control, &fixed.rights);
        // A queue whose rights were never changed has this version: each generation adds one to the version, and each change also adds one.
        let is_unchanged = rights.version() == 1 + self.generation.number();
        is_unchanged
            && control.repairs() == 0
            && control.usable() <= SLOTS
            && control.arena_len().get() <= GRANULES
            && fixed.leases.used.get() == 0
            && self.policy == Policy::default()
            && !fixed.delivery.producers.had_any(receiving)
            && rights.watched().get() == 0
            && control.doorbell.is_unused()
            && !control.lock.is_shared()
            && !fixed.header.damage.is_noted()
            && self.has_no_waiter(receiving)
    }

    fn has_no_waiter(&self, _: ReceiverHeld<'_>) -> bool {
        // No thread has ever waited if no ticket was issued.
        self.fixed().control.ticket().get() == 0
            || [List::Receivers, List::Offered, List::Senders]
                .into_iter()
                .all(|list| self.waiters().len(list) == 0)
                && self
                    .waiters()
                    .all()
                    .all(|(_, node)| waiters::state(node) == State::Free)
    }

    /// Resets the contents of the segment to those of a new queue.
    fn empty(&self, receiving: ReceiverHeld<'_>) -> Result<(), Fault> {
        let (fixed, control) = (self.fixed(), &self.fixed().control);
        let is_used = control.used() != 0;
        if is_used {
            self.order().clear(receiving)?;
            self.segment().wipe(receiving);
        }
        if control.arena_len().get() != 0 {
            fixed.arena.empty();
        }
        control.empty(receiving);
        fixed.counters.reset();
        Ok(())
    }
}
