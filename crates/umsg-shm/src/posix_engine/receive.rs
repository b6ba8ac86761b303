//! Receiving: the fast path, the receive under the lock, and the wait for a message.

#[cfg(all(test, not(loom)))]
mod tests;

use super::found::{FoundIn, FoundMessage, Taken};
use super::policy::Selection;
use super::wait::{Receipt, Taker};
use super::{DeferredWakes, Engine, Refused};
use crate::counters::Event;
use crate::crash::crash_point;
use crate::doorbell::Watched;
use crate::fault::Fault;
use crate::lock::Held;
use crate::lock::tokens::ReceiverHeld;
use crate::posix_engine::Priorities;
use crate::posix_engine::segment::{Cell, Ring, has_begun};
use crate::report::{self, Subject, What};
use crate::sync::{Ordering, fence};
use crate::sys::clock::{self, Deadline};
use crate::sys::thread::Thread;
use crate::tracepoint;
use crate::waiters::Node;
use crate::waiters::wait::wait_and_attempt;
use crate::waiters::{List, Waiters};

/// The distance, in ring positions, at which the receiver prefetches cells.
const AHEAD: u64 = 6;
/// The number of messages in a stream for which the receiver reads the senders' cursor once.
const LOOK_AT_SENT: u32 = 8;

/// The next message in the ring, as a receiver reads it without the lock.
struct Sighted<'a> {
    position: u64,
    /// The value of the one-priority word, which was read before the stamp of the message.
    run: u64,
    slot: u32,
    cell: &'a Cell,
}

/// A receive that copies its message into the caller's buffer.
struct Copy<'a> {
    buffer: &'a mut [u8],
}

impl Receipt for Copy<'_> {
    type Outcome = Taken;

    #[inline(always)]
    fn take(&mut self, taker: Taker<'_>, wakes: &mut DeferredWakes) -> Result<Taken, Refused> {
        taker.engine.receive_locked(taker, self.buffer, wakes)
    }

    fn accept(
        &mut self,
        taker: Taker<'_>,
        node: &Node,
        found: FoundMessage<'_>,
    ) -> Result<Taken, Refused> {
        let engine = taker.engine;
        engine
            .segment()
            .copy_out(found.cell, found.len, self.buffer)?;
        engine.finish_offer(taker.receiving, node, &found)?;
        Ok(found.taken())
    }
}

impl Engine {
    /// Receives a message if the queue has a message now. This function handles the plain case: the lock is free, the next message is in the ring,
    /// all messages from this message on have the same priority, and the receive has no other duty. In every other case, it calls another function as
    /// its last step.
    #[inline(always)]
    pub fn try_receive(
        &self,
        me: &Thread,
        buffer: &mut [u8],
        deadline: Deadline,
    ) -> Result<Taken, Refused> {
        let Some(sighted) = self.sight() else {
            return self.try_receive_slow(me, buffer, deadline);
        };
        let lock = &self.segment().fixed().receiver.lock;
        let Some(held) = lock.lock_if_free(me, self.segment()) else {
            return self.try_receive_slow(me, buffer, deadline);
        };
        let Some(taken) = self.take_sighted(held.receiver(), me, &sighted, buffer) else {
            return self.try_receive_unlocked(held, me, buffer, deadline);
        };
        held.unlock();
        self.segment().check()?;
        Ok(taken)
    }

    /// The rest of [`try_receive`](Self::try_receive), if the check of the plain case failed while the lock was held: releases the lock, and receives
    /// by the general steps.
    #[inline(never)]
    fn try_receive_unlocked(
        &self,
        held: Held<'_>,
        me: &Thread,
        buffer: &mut [u8],
        deadline: Deadline,
    ) -> Result<Taken, Refused> {
        held.unlock();
        self.try_take(me, &mut Copy { buffer }, deadline)
    }

    /// The rest of [`try_receive`](Self::try_receive), if the check of the plain case failed before the lock was taken.
    #[inline(never)]
    fn try_receive_slow(
        &self,
        me: &Thread,
        buffer: &mut [u8],
        deadline: Deadline,
    ) -> Result<Taken, Refused> {
        self.try_take(me, &mut Copy { buffer }, deadline)
    }

    /// Returns the next message in the ring, read without the lock. Returns `None` if a condition of the plain case is false.
    #[inline(always)]
    fn sight(&self) -> Option<Sighted<'_>> {
        let fixed = self.segment().fixed();
        let run = fixed.run.before_stamp();
        let position = fixed.receiver.drained_so_far();
        if fixed.receiver.stored_hint() != 0 || !has_begun(run, position) {
            return None;
        }
        let (slot, cell) = Ring::of(self.segment()).published(position).ok()??;
        self.segment().prefetch_rest(cell);
        Some(Sighted {
            position,
            run,
            slot,
            cell,
        })
    }

    /// Receives a message that was read without the lock, if the conditions of the plain case are also true under the lock.
    ///
    /// While `drained` equals the position of the message, the message is still in the ring. The stamp, which is read once more, proves that the
    /// message is in this slot, even after a repair in between. RUN: the one-priority word was read before the stamp, and has not changed since.
    #[inline(always)]
    fn take_sighted(
        &self,
        receiving: ReceiverHeld<'_>,
        me: &Thread,
        sighted: &Sighted<'_>,
        buffer: &mut [u8],
    ) -> Option<Taken> {
        let fixed = self.segment().fixed();
        let receiver = &fixed.receiver;
        let is_next = receiver.drained(receiving) == sighted.position
            && receiver.stored(receiving) == 0
            && Ring::holds(sighted.cell, sighted.position)
            && fixed.run.is_still(sighted.run);
        if !is_next || receiver.has_duties(receiving) || self.policy().time_to_live != 0 {
            return None;
        }
        let found = self.found(sighted.slot, sighted.cell, FoundIn::Ring).ok()?;
        self.prefetch_upcoming(&found, self.pacing.received());
        let taken = self.consume(receiving, me, &found, buffer).ok()?;
        self.publish_counts(receiving);
        crash_point!(RECEIVE_ADMITTED);
        Some(taken)
    }

    /// Takes a message if the queue has a message now.
    #[inline(always)]
    pub(super) fn try_take<R: Receipt>(
        &self,
        me: &Thread,
        receipt: &mut R,
        deadline: Deadline,
    ) -> Result<R::Outcome, Refused> {
        if !self.seems_filled() {
            if !self.needs_a_look() {
                self.pacing.found_nothing();
                self.segment().check()?;
                return Err(Refused::NotNow);
            }
            self.let_ringer_finish(me);
        }
        self.with_receiver_lock(me, deadline, |receiving, wakes| {
            receipt.take(self.taker(receiving, me), wakes)
        })
    }

    /// Returns whether the receiver must check the queue under the lock although it sees no message. The reasons: the lock's owner is dead, an offer
    /// was made to a receiver that is dead or stopped, leases may end, a process polls, or a producer may have died.
    fn needs_a_look(&self) -> bool {
        Waiters::of(self.segment()).len(List::Offered) != 0
            || (self.holds_any() && self.may_reclaim())
            || self.segment().fixed().receiver.lock.is_orphaned()
            // A sender may be about to send a message that its doorbell has already announced.
            || self.must_ring()
            // The last producer may have died.
            || self.policy().close_with_producers
    }

    /// Returns whether the queue has a message, read without the lock. If the result is false, the queue was empty at some instant during the call.
    #[inline(always)]
    pub(super) fn seems_filled(&self) -> bool {
        let receiver = &self.segment().fixed().receiver;
        let geometry = &self.segment().fixed().geometry;
        loop {
            let mask = geometry.ring_mask();
            let drained = receiver.drained_so_far();
            if receiver.stored_so_far() != 0 {
                return true;
            }
            match Ring::of(self.segment()).published(drained) {
                Ok(None) => {}
                Ok(Some((slot, _))) => {
                    self.segment().prefetch(slot);
                    return true;
                }
                Err(_) => return true,
            }
            // GONE, WIDER: the entry may belong to another slot, because a receiver passed the position or the ring was
            // doubled. The fence pairs with the release in `Ring::write`: a thread that read the changed entry sees the
            // new cursor or mask.
            fence(Ordering::Acquire);
            if receiver.drained_hint() == drained && geometry.ring_mask() == mask {
                return false;
            }
        }
    }

    #[inline(always)]
    pub(super) fn receive_locked(
        &self,
        Taker { receiving, me, .. }: Taker<'_>,
        buffer: &mut [u8],
        wakes: &mut DeferredWakes,
    ) -> Result<Taken, Refused> {
        let Some(found) = self.next(receiving, wakes)? else {
            return Err(Refused::NotNow);
        };
        self.prefetch_upcoming(&found, self.pacing.received());
        let taken = self.consume(receiving, me, &found, buffer)?;
        // The receive succeeds even if the list of waiting senders is corrupt.
        if Waiters::of(self.segment()).len(List::Senders) != 0
            && self.admit(receiving, wakes).is_err()
        {
            self.note_damage();
        }
        self.publish_counts(receiving);
        crash_point!(RECEIVE_ADMITTED);
        Ok(taken)
    }

    /// Returns the message that the caller gets. First serves receivers that have waited longer. Before the queue counts as empty, messages of dead
    /// holders are put back into it.
    #[inline(always)]
    pub(super) fn next(
        &self,
        receiving: ReceiverHeld<'_>,
        wakes: &mut DeferredWakes,
    ) -> Result<Option<FoundMessage<'_>>, Fault> {
        let waiters = Waiters::of(self.segment());
        if waiters.len(List::Receivers) | waiters.len(List::Offered) != 0 {
            self.serve(receiving, wakes)?;
            self.update_wait_flags(receiving);
        }
        // Until now, the queue contained the message that the caller takes, so the queue may become empty with this receive.
        self.note_change(receiving, wakes);
        let found = match self.holds_any() || self.selection != Selection::Strict {
            true => self.next_in_time(receiving, wakes)?,
            false => self.best(receiving)?,
        };
        if found.is_some() {
            self.foretell_doorbell(receiving, -1, 1);
        }
        Ok(found)
    }

    /// Returns the message that the caller gets, like [`next`](Self::next), for a queue with held messages, a time to live or fair priorities.
    /// Messages of dead holders are put back first, because they may have a higher priority.
    #[cold]
    fn next_in_time(
        &self,
        receiving: ReceiverHeld<'_>,
        wakes: &mut DeferredWakes,
    ) -> Result<Option<FoundMessage<'_>>, Fault> {
        if self.holds_any() && self.may_reclaim() {
            self.reclaim_and_serve(receiving, wakes)?;
        }
        let upcoming = self.upcoming(receiving);
        wakes.add_reports();
        match upcoming? {
            // Expired messages were removed, so waiting senders get room.
            None if Waiters::of(self.segment()).len(List::Senders) != 0 => {
                self.admit(receiving, wakes)?;
                self.upcoming(receiving)
            }
            found => Ok(found),
        }
    }

    /// Copies a message out, takes it from the queue and frees its slot.
    #[inline(always)]
    fn consume(
        &self,
        receiving: ReceiverHeld<'_>,
        me: &Thread,
        found: &FoundMessage<'_>,
        buffer: &mut [u8],
    ) -> Result<Taken, Fault> {
        self.segment().copy_out(found.cell, found.len, buffer)?;
        crash_point!(RECEIVE_COPIED);
        self.take(receiving, found)?;
        self.free_slot(receiving, found.slot);
        crash_point!(RECEIVE_FREED);
        let receiver = &self.segment().fixed().receiver;
        receiver.note_receive(clock::monotonic_coarse_of(me));
        tracepoint!(receive, self.segment().address(), found.len, found.key);
        Ok(found.taken())
    }

    /// Prefetches the cell of a message that follows `found` in a stream.
    #[inline(always)]
    fn prefetch_upcoming(&self, found: &FoundMessage<'_>, streak: u32) {
        if found.is_stored() {
            self.prefetch_stored(found);
        } else if streak != 0 {
            self.prefetch_in_ring(streak);
        }
    }

    /// Prefetches the cell of a later message in the ring, if the message was sent. If the sender still writes a cache line, a prefetch of the line
    /// would cost both sides a transfer. A read of the senders' cursor for each message would cost as much, so the receiver reads it once in
    /// [`LOOK_AT_SENT`] messages.
    #[inline(always)]
    pub(super) fn prefetch_in_ring(&self, streak: u32) {
        let fixed = self.segment().fixed();
        let position = fixed.receiver.drained_hint().wrapping_add(AHEAD);
        if fixed.receiver.known_sent(position) > 0 {
            if let Ok((slot, _)) = Ring::of(self.segment()).slot(position) {
                self.segment().prefetch(slot);
            }
        } else if streak % LOOK_AT_SENT == 1 {
            fixed.receiver.see_sent(fixed.sender.sent_hint());
        }
    }

    /// Prefetches the cell of a message in the store, a few messages after `found`.
    #[inline]
    pub(super) fn prefetch_stored(&self, found: &FoundMessage<'_>) {
        let order = Priorities::of(self.segment());
        let fetch = |slot| {
            self.segment().prefetch(slot);
            // The next prefetch continues from this slot, and needs the slot's link.
            self.segment().prefetch_link(slot);
        };
        self.expected.received(&order, found.key, found.slot, fetch);
    }

    /// Notes the present time as the time of the last receive.
    #[inline(always)]
    pub(super) fn note_receive(&self) {
        let receiver = &self.segment().fixed().receiver;
        receiver.note_receive(clock::monotonic_coarse());
    }

    /// Receives a message, and waits until `deadline` for a message.
    #[inline(never)]
    pub fn receive(
        &self,
        me: &Thread,
        buffer: &mut [u8],
        deadline: Deadline,
    ) -> Result<Taken, Refused> {
        match self.try_receive(me, buffer, deadline) {
            Err(Refused::NotNow) => self.receive_slow(me, &mut Copy { buffer }, deadline),
            other => other.map_err(|refused| refused.by(deadline)),
        }
    }

    /// Waits for a message, after a failed attempt.
    #[inline(never)]
    pub(super) fn receive_slow<R: Receipt>(
        &self,
        me: &Thread,
        receipt: &mut R,
        deadline: Deadline,
    ) -> Result<R::Outcome, Refused> {
        let calm = me.interruptions.calm();
        let began = report::begin_wait();
        let mut is_counted = false;
        let wait = |receipt: &mut R| {
            if self.spin_for_message(calm, deadline) {
                return Ok(None);
            }
            // A call counts as one wait, even if it waits again because the message that was offered to it was withdrawn.
            if !std::mem::replace(&mut is_counted, true) {
                self.segment().fixed().counters.count(Event::ReceiveBlocked);
            }
            self.block_receiver(me, receipt, calm, deadline)
        };
        let attempt = |receipt: &mut R| self.try_take(me, receipt, deadline);
        let outcome = wait_and_attempt(receipt, deadline, wait, attempt);
        report::end_wait(What::WaitedForMessage, Subject::Named(&self.name), began);
        outcome
    }
}
