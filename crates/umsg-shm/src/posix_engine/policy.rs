//! The overflow policy: what happens to messages for which the queue has no room, and to messages that expire or can't be delivered.
//!
//! | reason | result |
//! |---|---|
//! | the queue is full and drops the oldest message | the oldest message of the lowest priority makes room: it is dropped, or set aside if few messages are set aside |
//! | the message is older than the queue's time to live | dropped, or set aside, when a call finds it |
//! | the message was leased and returned as often as the queue allows | set aside |
//!
//! A message that is set aside is held in the state `Aside` until a process sends the message to the dead-letter queue. The send takes the locks of
//! the dead-letter queue, so the process must hold no lock of this queue. A message that is set aside takes a slot, but does not count towards the
//! queue's capacity.

use super::found::FoundMessage;
use super::{DeferredWakes, Engine, Refused};
use crate::counters::Event;
use crate::crash::crash_point;
use crate::fault::Fault;
use crate::leases::LeaseRecord;
use crate::leases::{self, Claim, Leases, State};
use crate::lock::tokens::ReceiverHeld;
use crate::posix_engine::Priorities;
use crate::posix_engine::segment::{Policy, Reason};
use crate::report::What;
use crate::sync::Ordering;
use crate::sys::clock::{self, Deadline};
#[cfg(not(loom))]
use crate::sys::stack::roomy;
use crate::sys::thread::Thread;

/// Additional work of calls on a queue: sending messages to the dead-letter queue. The calls do this work while they hold no lock. `umsg` provides
/// the function, because only that crate can open another queue.
pub struct Chore(Box<dyn Fn(&Engine) + Send + Sync>);

impl Chore {
    #[cfg(not(loom))]
    pub fn new(work: impl Fn(&Engine) + Send + Sync + 'static) -> Chore {
        Chore(Box::new(move |engine| roomy(|| work(engine))))
    }
}

impl std::fmt::Debug for Chore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Chore")
    }
}

/// The rule by which the next message is selected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Selection {
    /// The oldest message of the highest priority.
    Strict,
    /// The oldest message of the highest priority, among the messages that have not expired.
    Expiring,
    /// Lower priorities get turns: see [`fair`](super::fair). Messages may also expire.
    Fair,
}

impl Selection {
    pub(super) fn of(policy: &Policy) -> Selection {
        match (policy.fair_priorities, policy.time_to_live) {
            (0, 0) => Selection::Strict,
            (0, _) => Selection::Expiring,
            _ => Selection::Fair,
        }
    }
}

impl Engine {
    #[inline(always)]
    pub fn policy(&self) -> &Policy {
        self.segment().policy()
    }

    /// Returns whether a message is older than the queue's time to live.
    #[inline(always)]
    pub(super) fn is_expired(&self, found: &FoundMessage<'_>) -> bool {
        self.policy().time_to_live != 0 && self.is_too_old(found)
    }

    /// Returns whether a message has expired, as [`is_expired`](Self::is_expired) does, for a queue with a time to live.
    #[inline(always)]
    fn is_too_old(&self, found: &FoundMessage<'_>) -> bool {
        clock::age(found.cell.lives_since()) > self.policy().time_to_live
    }

    /// Finds the message that is delivered next, and removes expired messages before it.
    #[inline(always)]
    pub(super) fn upcoming(
        &self,
        receiving: ReceiverHeld<'_>,
    ) -> Result<Option<FoundMessage<'_>>, Fault> {
        match self.best(receiving)? {
            Some(found) if self.is_passed_over(&found) => self.upcoming_slow(receiving, found),
            found => Ok(found),
        }
    }

    /// Returns whether a call may have to deliver another message than `found`, the next message in strict order. The reasons: `found` has expired,
    /// or a lower priority may have its turn.
    #[inline(always)]
    pub(super) fn is_passed_over(&self, found: &FoundMessage<'_>) -> bool {
        match self.selection {
            Selection::Strict => false,
            Selection::Expiring => self.is_too_old(found),
            Selection::Fair => found.is_stored() || self.is_expired(found),
        }
    }

    #[cold]
    fn upcoming_slow<'a>(
        &'a self,
        receiving: ReceiverHeld<'_>,
        next: FoundMessage<'a>,
    ) -> Result<Option<FoundMessage<'a>>, Fault> {
        let mut next = Some(next);
        // A walk over more messages than slots shows corruption.
        for _ in 0..=self.segment().layout().slots {
            let Some(mut found) = next else {
                return Ok(None);
            };
            if self.selection == Selection::Fair {
                found = self.in_turn(receiving, found)?;
            }
            if !self.is_expired(&found) {
                return Ok(Some(found));
            }
            self.expire(receiving, &found)?;
            next = self.best(receiving)?;
        }
        Err(Fault::Damaged)
    }

    /// Drops an expired message, or sets it aside.
    fn expire(&self, receiving: ReceiverHeld<'_>, found: &FoundMessage<'_>) -> Result<(), Fault> {
        self.segment().fixed().counters.count(Event::Expired);
        self.report(What::Expired, 0);
        if self.policy().sets_aside() {
            return self.set_aside(receiving, found, Reason::Expired);
        }
        self.drop_message(receiving, found)
    }

    /// Removes a message from the queue permanently.
    fn drop_message(
        &self,
        receiving: ReceiverHeld<'_>,
        found: &FoundMessage<'_>,
    ) -> Result<(), Fault> {
        self.take_undelivered(receiving, found)?;
        self.free_slot(receiving, found.slot);
        self.publish_counts(receiving);
        Ok(())
    }

    /// Removes a message that no receiver gets. With fair priorities, the removal does not count as a turn.
    fn take_undelivered(
        &self,
        receiving: ReceiverHeld<'_>,
        found: &FoundMessage<'_>,
    ) -> Result<(), Fault> {
        match found.is_stored() {
            true => self.take_stored(receiving, found),
            false => self.take(receiving, found),
        }
    }

    /// Removes a message from the queue, and holds the message for the dead-letter queue.
    fn set_aside(
        &self,
        receiving: ReceiverHeld<'_>,
        found: &FoundMessage<'_>,
        reason: Reason,
    ) -> Result<(), Fault> {
        let of_no_process = Claim {
            slot: found.slot,
            pid: 0,
            birth: 0,
            deliveries: found.cell.returns(),
        };
        let (_, record) = Leases::of(self.segment()).claim(receiving, &of_no_process)?;
        record.until.set(reason.number().into());
        leases::set(record, State::Aside);
        crash_point!(ASIDE_HELD);
        self.take_undelivered(receiving, found)?;
        self.count_kind(receiving, State::Aside, 1);
        self.publish_counts(receiving);
        Ok(())
    }

    /// Returns whether one more message may be set aside without reducing the queue's capacity.
    fn may_set_aside(&self) -> bool {
        // Relaxed: the caller holds the receiver lock.
        let aside = self.segment().fixed().leases.aside.load(Ordering::Relaxed);
        leases::in_the_way(aside.saturating_add(1)) == 0
    }

    /// Returns whether a message was leased and returned as often as the queue allows.
    pub(super) fn is_undeliverable(&self, record: &LeaseRecord) -> bool {
        let policy = self.policy();
        policy.max_deliveries != 0
            && policy.sets_aside()
            && record.deliveries.get() >= policy.max_deliveries
    }

    /// Turns a lease into a message that is set aside.
    pub(super) fn set_lease_aside(&self, receiving: ReceiverHeld<'_>, record: &LeaseRecord) {
        // The word `until` now contains the reason. Until the state changes, other processes treat the reason as the time limit of the lease. This
        // does no harm, because the lease ends now.
        record.until.set(Reason::Undelivered.number().into());
        leases::set(record, State::Aside);
        crash_point!(ASIDE_HELD);
        self.count_kind(receiving, State::Aside, 1);
        self.count_held(receiving, -1);
    }

    /// Drops the expired messages of the whole queue. The list of each priority is in order of time, so only first messages are checked.
    pub(super) fn sweep(&self, receiving: ReceiverHeld<'_>) -> Result<(), Fault> {
        self.drain(receiving)?;
        let order = Priorities::of(self.segment());
        let mut priority = order.highest();
        let mut bound = self.segment().layout().slots;
        while let Some(of) = priority {
            let slot = order.first(of)?;
            let found = self.stored_at(slot, of)?;
            if self.is_expired(&found) {
                bound = bound.checked_sub(1).ok_or(Fault::Damaged)?;
                self.expire(receiving, &found)?;
                if order.has(of)? {
                    continue;
                }
            }
            priority = order.next_below(of);
        }
        Ok(())
    }

    /// Makes room for a message of priority `key` in a queue that drops old messages. Returns false if the new message must be dropped instead.
    pub(super) fn make_room(
        &self,
        me: &Thread,
        key: usize,
        deadline: Deadline,
    ) -> Result<bool, Refused> {
        self.with_receiver_lock(me, deadline, |receiving, wakes| {
            self.begin_to_make_room(receiving, wakes)?;
            if self.has_room_now(receiving, 1) {
                return Ok(true);
            }
            self.drain(receiving)?;
            // If the store has no message even after the drain, held messages take all the room of the queue.
            let lowest = Priorities::of(self.segment())
                .lowest()
                .ok_or(Refused::NotNow)?;
            if key < lowest {
                self.segment().fixed().counters.count(Event::Dropped);
                return Ok(false);
            }
            self.drop_lowest(receiving)?;
            Ok(true)
        })
    }

    /// Serves waiters and drops expired messages, before a queued message is dropped to make room.
    fn begin_to_make_room(
        &self,
        receiving: ReceiverHeld<'_>,
        wakes: &mut DeferredWakes,
    ) -> Result<(), Refused> {
        self.serve(receiving, wakes)?;
        self.update_wait_flags(receiving);
        if !self.no_sender_waits() {
            // The senders that wait already get the present room and all room that becomes free. So this send makes no room for its own message.
            return Err(Refused::NotNow);
        }
        if self.policy().time_to_live != 0 {
            self.sweep(receiving)?;
            wakes.add_reports();
        }
        Ok(())
    }

    /// Drops the oldest message of the lowest priority, to make room for a message that is to be sent.
    fn drop_lowest(&self, receiving: ReceiverHeld<'_>) -> Result<(), Fault> {
        let order = Priorities::of(self.segment());
        let lowest = order.lowest().ok_or(Fault::Damaged)?;
        self.segment().fixed().counters.count(Event::Dropped);
        let found = self.stored_at(order.first(lowest)?, lowest)?;
        if self.policy().sets_aside() && self.may_set_aside() {
            match self.set_aside(receiving, &found, Reason::Dropped) {
                // A message can be set aside only with a record, and there is no memory for a record. The message is dropped instead.
                Err(Fault::NoMemory) => {}
                other => return other,
            }
        }
        self.drop_message(receiving, &found)
    }

    /// Makes the room that a batch needs, as [`make_room`](Self::make_room) does for one message. Makes either all of this room or none. `key` is the
    /// highest priority in the batch.
    pub(super) fn make_room_for_batch(
        &self,
        me: &Thread,
        key: usize,
        messages: usize,
        deadline: Deadline,
    ) -> Result<bool, Refused> {
        self.with_receiver_lock(me, deadline, |receiving, wakes| {
            self.begin_to_make_room(receiving, wakes)?;
            let missing = (messages as i64)
                .saturating_sub(self.room_now(receiving))
                .max(0) as u64;
            if missing > self.segment().layout().slots as u64 {
                return Err(Fault::Damaged.into());
            }
            self.drain(receiving)?;
            if self.segment().fixed().receiver.stored(receiving) < missing {
                // Held messages take so much room that even the drop of all messages in the store makes too little room for the batch.
                return Err(Refused::NotNow);
            }
            if !self.has_no_better(key, missing)? {
                for _ in 0..messages {
                    self.segment().fixed().counters.count(Event::Dropped);
                }
                return Ok(false);
            }
            for _ in 0..missing {
                self.drop_lowest(receiving)?;
            }
            Ok(true)
        })
    }

    /// Returns whether the store has at least this number of messages of priority `key` or of lower priorities.
    fn has_no_better(&self, key: usize, mut messages: u64) -> Result<bool, Fault> {
        let order = Priorities::of(self.segment());
        let mut priority = match order.has(key)? {
            true => Some(key),
            false => order.next_below(key),
        };
        while let Some(of) = priority {
            let mut slot = Some(order.first(of)?);
            while let Some(here) = slot {
                if messages <= 1 {
                    return Ok(true);
                }
                messages -= 1;
                slot = order.after(of, here)?;
            }
            priority = order.next_below(of);
        }
        Ok(messages == 0)
    }

    pub fn set_chore(&mut self, chore: Option<Chore>) {
        self.chore = chore;
    }

    /// Sends messages that were set aside to the dead-letter queue, if the queue has one. The caller holds no lock.
    #[inline(always)]
    pub fn do_chore(&self) {
        if let Some(chore) = &self.chore {
            self.do_chore_slow(chore);
        }
    }

    #[cold]
    fn do_chore_slow(&self, chore: &Chore) {
        // Relaxed: the number is a hint.
        if self.segment().fixed().leases.aside.load(Ordering::Relaxed) != 0 {
            (chore.0)(self);
        }
    }
}
