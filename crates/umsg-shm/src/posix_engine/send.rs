//! Sending: the fast path, and the search for room in a full queue.

use super::tag::priority_of;
use super::watch::{DETOUR, RINGING};
use super::{Engine, NoSlot, Refused};
use crate::arena;
use crate::counters::Event;
use crate::crash::crash_point;
use crate::fault::Fault;
use crate::lock::tokens::{BothHeld, ReceiverHeld, SenderHeld};
use crate::lock::{Held, STOPPED};
use crate::posix_engine::segment::{Cell, OnFull, PRIORITIES, Ring};
use crate::report::{self, Subject, What};
use crate::sys::clock::{self, Deadline};
use crate::sys::thread::{Calm, Thread};
use crate::tracepoint;
use crate::waiters::wait::wait_and_attempt;
use crate::waiters::{List, Waiters};

/// The number of priorities whose list heads share a page of the fifo region.
pub(super) const FIFOS_A_PAGE: usize = 4096 / 8;

/// The distance, in messages, at which the sender prefetches the cells that it will write. At this distance, the fetch is complete when the sender
/// needs the cell, and the cell is still in the cache.
const AHEAD: u64 = 6;

/// The number of attempts of a send to a full queue, after the send has made or found room.
pub(super) const ATTEMPTS: u32 = 16;

impl Engine {
    /// Sends a message if the queue has room now. This function handles the plain case: the lock is free, no process polls and no message is delayed.
    /// In every other case, it calls another function as its last step.
    #[inline(always)]
    pub fn try_send(
        &self,
        me: &Thread,
        message: &[u8],
        key: usize,
        deadline: Deadline,
    ) -> Result<(), Refused> {
        let fixed = self.segment().fixed();
        // The attention word is a hint, read without the lock. The decision is made under the lock. Without the hint, each send to a polled queue
        // would take the sender lock and release it at once for the receiver lock.
        if fixed.wait_flags.attention() & DETOUR != 0 {
            return self.try_send_slow(me, (message, key), deadline, None);
        }
        let Some(held) = fixed.sender.lock.lock_if_free(me, self.segment()) else {
            return self.try_send_slow(me, (message, key), deadline, None);
        };
        if fixed.wait_flags.attention() & RINGING != 0 {
            return self.try_send_unlocked(held, me, (message, key), deadline, None);
        }
        if let Err(refused) = self.send_locked(held.sender(), me, message, key) {
            return self.try_send_unlocked(held, me, (message, key), deadline, Some(refused));
        }
        held.unlock();
        self.segment().check()?;
        self.serve_if_asked(me, deadline);
        Ok(())
    }

    /// Sends a message like [`try_send`](Self::try_send), after an attempt under the lock that sent nothing.
    #[inline(never)]
    fn try_send_unlocked(
        &self,
        held: Held<'_>,
        me: &Thread,
        message: (&[u8], usize),
        deadline: Deadline,
        attempt: Option<Refused>,
    ) -> Result<(), Refused> {
        held.unlock();
        self.try_send_slow(me, message, deadline, attempt)
    }

    /// Sends a message like [`try_send`](Self::try_send), after an attempt that sent nothing.
    #[inline(never)]
    fn try_send_slow(
        &self,
        me: &Thread,
        (message, key): (&[u8], usize),
        deadline: Deadline,
        mut attempt: Option<Refused>,
    ) -> Result<(), Refused> {
        let mut attempts = ATTEMPTS;
        let mut has_made_room = false;
        self.look_for_producers(me, deadline);
        loop {
            let result = match attempt.take() {
                Some(refused) => Err(refused),
                // The result of `must_ring` is a hint, as in `try_send`.
                None if self.must_ring() => self.send_watched(me, (message, key), deadline),
                None => {
                    self.store_due(me, deadline);
                    self.send_unwatched(me, (message, key), deadline)?
                }
            };
            self.segment().check()?;
            match result {
                Ok(()) => break,
                Err(Refused::Own(NoSlot)) => match self.grow(me, deadline, 1) {
                    // Another sender keeps the sender lock for a long time, or is stopped. This thread waits for that sender in `lock_sender`, where
                    // it blocks no receiver.
                    Err(Refused::Fault(Fault::Busy)) if !deadline.has_passed() => {}
                    other => other?,
                },
                // At each attempt, other senders have taken the room first.
                Err(Refused::NotNow) if attempts == 0 => return Err(Refused::NotNow),
                Err(Refused::NotNow) if self.policy().on_full == OnFull::DropOldest => {
                    attempts -= 1;
                    if !self.make_room(me, key, deadline)? {
                        return Ok(());
                    }
                    has_made_room = true;
                }
                Err(Refused::NotNow) if self.finds_room_after_all(me, deadline)? => attempts -= 1,
                Err(refused) => return Err(refused),
            }
        }
        self.serve_if_asked(me, deadline);
        report::tell();
        if has_made_room {
            // The message that was dropped to make room may be set aside for the dead-letter queue. This thread moves the dropped message to that
            // queue.
            self.do_chore();
        }
        Ok(())
    }

    /// Sends a message under the sender lock alone. If a process polls, calls [`send_watched`](Self::send_watched).
    fn send_unwatched(
        &self,
        me: &Thread,
        (message, key): (&[u8], usize),
        deadline: Deadline,
    ) -> Result<Result<(), Refused>, Fault> {
        let held = self.lock_sender(me, deadline)?;
        let sending = held.sender();
        if self.must_ring() {
            held.unlock();
            return Ok(self.send_watched(me, (message, key), deadline));
        }
        let result = self.send_locked(sending, me, message, key);
        held.unlock();
        Ok(result)
    }

    /// Returns whether a sender that found no room should try again. A dead holder or an expired lease may give room. A receiver may have died after
    /// it made room, or a batch for which room was kept may have ended. In the last two cases, the owner of the receiver lock repairs the queue or
    /// serves the waiters, and publishes the room.
    #[cold]
    pub(super) fn finds_room_after_all(
        &self,
        me: &Thread,
        deadline: Deadline,
    ) -> Result<bool, Refused> {
        if self.may_reclaim() {
            self.with_receiver_lock(me, deadline, |receiving, wakes| {
                Ok(self.reclaim_and_serve(receiving, wakes)?)
            })?;
            return Ok(true);
        }
        let was_left = self.segment().fixed().receiver.lock.is_orphaned();
        if !was_left && (self.no_sender_waits() || !self.seems_to_hold_room(1)) {
            return Ok(false);
        }
        self.with_receiver_lock(me, deadline, |receiving, wakes| {
            self.serve(receiving, wakes)?;
            self.update_wait_flags(receiving);
            Ok(was_left || self.no_sender_waits())
        })
    }

    /// Serves waiting receivers, after the message is published and the lock is released.
    #[inline(always)]
    pub(super) fn serve_if_asked(&self, me: &Thread, deadline: Deadline) {
        crash_point!(SEND_UNSERVED);
        // ATTENTION: the unlock was a full barrier between the stamp and this load. The barrier pairs with the fences of `enlist_receiver` and
        // `look_around`.
        let wait_flags = &self.segment().fixed().wait_flags;
        // A send to a polled queue has served the waiters under its lock.
        if wait_flags.attention() & !DETOUR != 0 {
            self.serve_after_send(me, deadline);
        }
        self.ring_if_asked();
    }

    /// Fills the next free slot and publishes its message.
    #[inline(always)]
    pub(super) fn send_locked(
        &self,
        sending: SenderHeld<'_>,
        me: &Thread,
        message: &[u8],
        key: usize,
    ) -> Result<(), Refused> {
        let fixed = self.segment().fixed();
        let sender = &fixed.sender;
        let position = sender.next_position(sending);
        if !self.has_room(position) {
            return Err(Refused::NotNow);
        }
        if !fixed.has_free_slots(sending, position, 1) {
            return Err(Refused::Own(NoSlot));
        }
        let ring = Ring::of(self.segment());
        let (slot, cell) = ring.slot(position)?;
        self.fill(sending, me, slot, cell, message, key)?;
        crash_point!(SEND_FILLED);
        self.announce(sending, position, key)?;
        sender.prepare_bytes(sending, position, message.len());
        Ring::publish(cell, position);
        crash_point!(SEND_PUBLISHED);
        sender.move_cursor(sending, position.wrapping_add(1));
        crash_point!(SEND_COUNTED);
        tracepoint!(send, self.segment().address(), message.len(), key);
        // Only free slots are prefetched: the entries from `freed` on contain slots that receivers may be reading.
        if sender.known_free(position) > AHEAD
            && let Ok((slot, _)) = ring.slot(position.wrapping_add(AHEAD))
        {
            self.segment().prefetch_to_write(slot);
        }
        Ok(())
    }

    /// Returns whether the queue has room for a message at this position.
    #[inline(always)]
    pub(super) fn has_room(&self, position: u64) -> bool {
        let seen = self.segment().fixed().sender.removed_seen();
        let queued = position.wrapping_sub(seen) as i64;
        queued < self.segment().layout().max_messages as i64 || self.room(position, 1) == 1
    }

    /// Returns the number of messages for which the queue has room, at most `wanted`.
    #[inline(always)]
    pub(super) fn room(&self, position: u64, wanted: u64) -> u64 {
        let fixed = self.segment().fixed();
        let max = self.segment().layout().max_messages as i64;
        let left = |removed: u64| {
            let queued = position.wrapping_sub(removed) as i64;
            max.saturating_sub(queued).clamp(0, wanted as i64) as u64
        };
        let seen = left(fixed.sender.removed_seen());
        if seen == wanted {
            return seen;
        }
        // ROOM: the slots of all messages that count as removed are free.
        let removed = fixed.published.removed();
        if !self.no_sender_waits() {
            // KEPT: senders wait, so the room that was published meanwhile belongs to them or is kept for a batch.
            return seen;
        }
        fixed.sender.see_removed(removed);
        left(removed)
    }

    /// Returns whether no sender is blocked. Under the sender lock, the result `true` is exact. Otherwise the result is a hint.
    #[inline(always)]
    pub(super) fn no_sender_waits(&self) -> bool {
        Waiters::of(self.segment()).len(List::Senders) == 0
    }

    /// Makes the queue look full to senders until no thread waits for room: KEPT. The caller will wait.
    pub(super) fn keep_room(&self, both: BothHeld<'_>) {
        let max = self.segment().layout().max_messages;
        self.segment().fixed().sender.keep_room(both.sender(), max);
    }

    /// Writes a message into a slot that the caller owns.
    #[inline(always)]
    pub(super) fn fill(
        &self,
        sending: SenderHeld<'_>,
        me: &Thread,
        slot: u32,
        cell: &Cell,
        message: &[u8],
        key: usize,
    ) -> Result<(), Fault> {
        self.place_bytes(sending, slot, cell, message)?;
        self.describe(me, cell, message.len(), key);
        Ok(())
    }

    /// Writes the bytes of a message into a slot that the caller owns.
    #[inline(always)]
    pub(super) fn place_bytes(
        &self,
        sending: SenderHeld<'_>,
        slot: u32,
        cell: &Cell,
        message: &[u8],
    ) -> Result<(), Fault> {
        if message.len() > self.segment().layout().inline() {
            arena::ensure(self.segment(), sending, slot, cell.block(), message.len())?;
        }
        self.segment().copy_in(cell, message)
    }

    /// Writes the header of a message into a slot that the caller owns. The slot already contains the bytes of the message.
    #[inline(always)]
    pub(super) fn describe(&self, me: &Thread, cell: &Cell, len: usize, key: usize) {
        let now = clock::monotonic_coarse_of(me);
        cell.describe(me.pid(), len, key, now);
        self.segment().fixed().sender.note_send(now);
    }

    /// Changes the one-priority word if this message and the last message have different priorities.
    #[inline(always)]
    fn announce(&self, sending: SenderHeld<'_>, position: u64, key: usize) -> Result<(), Fault> {
        let key = priority_of(key as u64);
        if self.segment().fixed().run.last_priority(sending) == key {
            return Ok(());
        }
        self.announce_slow(sending, position, key)
    }

    #[inline(never)]
    pub(super) fn announce_slow(
        &self,
        sending: SenderHeld<'_>,
        position: u64,
        key: usize,
    ) -> Result<(), Fault> {
        self.provide_fifo(key)?;
        self.segment().fixed().run.begin(sending, position, key);
        crash_point!(SEND_RUN_CHANGED);
        Ok(())
    }

    /// Makes sure that the list head of a priority has memory. The sender allocates this memory: a send may fail for lack of memory, but a receive
    /// must not.
    pub(super) fn provide_fifo(&self, key: usize) -> Result<(), Fault> {
        let sender = &self.segment().fixed().sender;
        let page = key / FIFOS_A_PAGE;
        if !sender.has_fifo_page(page) {
            self.segment()
                .populate(self.segment().layout().fifos + page * 4096, 4096)?;
            sender.add_fifo_page(page);
        }
        Ok(())
    }

    /// Serves waiters after a message was published: the sender's part of a hand-off.
    #[cold]
    fn serve_after_send(&self, me: &Thread, deadline: Deadline) {
        // An error is ignored, because the message is sent. Waiters check the queue at the end of each slice.
        let _ = self.with_receiver_lock(me, deadline.or_slice(STOPPED), |receiving, wakes| {
            self.serve(receiving, wakes)?;
            self.update_wait_flags(receiving);
            Ok(())
        });
    }

    /// Sends a message, and waits for room until `deadline`.
    #[inline(never)]
    pub fn send(
        &self,
        me: &Thread,
        message: &[u8],
        key: usize,
        deadline: Deadline,
    ) -> Result<(), Refused> {
        let attempt = || self.try_send(me, message, key, deadline);
        match attempt() {
            Err(Refused::NotNow) => self.wait_for_room(me, 1, deadline, attempt, |calm| {
                self.block_sender(me, (message, key), calm, deadline)
            }),
            other => other.map_err(|refused| refused.by(deadline)),
        }
    }

    /// After a failed attempt, waits for room for `messages` messages, and attempts again, until the deadline. If `block` returns `None`, the
    /// function makes the next attempt.
    #[cold]
    pub(super) fn wait_for_room<T>(
        &self,
        me: &Thread,
        messages: u64,
        deadline: Deadline,
        attempt: impl Fn() -> Result<T, Refused>,
        block: impl Fn(Calm<'_>) -> Result<Option<T>, Refused>,
    ) -> Result<T, Refused> {
        if self.policy().on_full == OnFull::Fail {
            return Err(Refused::NotNow);
        }
        let calm = me.interruptions.calm();
        let began = report::begin_wait();
        let mut is_counted = false;
        let wait = |(): &mut ()| {
            if self.spin_for_room(messages, calm, deadline) {
                return Ok(None);
            }
            // A call counts as one blocked send, even if it waits again.
            if !std::mem::replace(&mut is_counted, true) {
                self.segment().fixed().counters.count(Event::SendBlocked);
            }
            let outcome = block(calm)?;
            if outcome.is_some() {
                // If `block` has sent the message itself, the receiver of a ring may have to be woken.
                self.ring_if_asked();
            }
            Ok(outcome)
        };
        let outcome = wait_and_attempt(&mut (), deadline, wait, |()| attempt());
        report::end_wait(What::WaitedForRoom, Subject::Named(&self.name), began);
        outcome
    }

    /// Returns whether the queue seems to have room for this number of messages, without the room that is kept for a waiter. The result is a hint,
    /// read without the locks.
    pub(super) fn seems_roomy(&self, messages: u64) -> bool {
        self.no_sender_waits() && self.seems_to_hold_room(messages)
    }

    /// Returns whether the queue seems to have room for this number of messages, including room that is kept for a waiter. The result is a hint, read
    /// without the locks.
    pub(super) fn seems_to_hold_room(&self, messages: u64) -> bool {
        let fixed = self.segment().fixed();
        // `removed` is read first, so all messages that count as removed also count as sent. If `sent` is outdated, the only effect is an unnecessary
        // attempt.
        let removed = fixed.published.removed();
        let sent = fixed.sender.sent();
        let queued = sent.wrapping_sub(removed) as i64;
        queued.saturating_add(messages as i64) <= self.segment().layout().max_messages as i64
    }

    /// Takes a slot for the message of a sender that will block, and writes the message into the slot. Returns `None` if the queue now has room.
    pub(super) fn park(
        &self,
        receiving: ReceiverHeld<'_>,
        me: &Thread,
        message: &[u8],
        key: usize,
        deadline: Deadline,
    ) -> Result<Option<u32>, Refused> {
        let sender = &self.segment().fixed().sender;
        let both = self.borrow_sender_lock(receiving, me, deadline)?;
        let result = self.park_borrowed(both, me, message, key);
        sender.lock.give_back();
        result
    }

    fn park_borrowed(
        &self,
        both: BothHeld<'_>,
        me: &Thread,
        message: &[u8],
        key: usize,
    ) -> Result<Option<u32>, Refused> {
        let sender = &self.segment().fixed().sender;
        if self.has_room(sender.next_position(both.sender())) {
            return Ok(None);
        }
        self.keep_room(both);
        let (slot, cell) = self.take_free_slot(both)?;
        crash_point!(PARK_SLOT_TAKEN);
        let filled = self
            .fill(both.sender(), me, slot, cell, message, key)
            .and_then(|()| self.provide_fifo(priority_of(key as u64)));
        if let Err(fault) = filled {
            self.free_slot(both.receiver(), slot);
            return Err(fault.into());
        }
        crash_point!(PARK_FILLED);
        Ok(Some(slot))
    }

    /// Takes a slot from the end of the free slots. No sender can be filling that slot, because the caller holds both locks.
    pub(super) fn take_free_slot(&self, both: BothHeld<'_>) -> Result<(u32, &Cell), Refused> {
        let fixed = self.segment().fixed();
        self.grow_until(both, 1)?;
        let last = fixed.published.freed(both.receiver()).wrapping_sub(1);
        let (slot, cell) = Ring::of(self.segment()).slot(last)?;
        fixed.move_free_end(both, last);
        Ok((slot, cell))
    }

    /// Returns whether a message may have this priority.
    pub fn is_priority(key: u32) -> bool {
        (key as usize) < PRIORITIES
    }
}
