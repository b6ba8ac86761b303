//! Delayed messages: leases that are returned for a later delivery, and messages that are sent for a later time.
//!
//! A delayed message keeps its slot and its place in the queue's capacity, and its record is in the state `Delayed` ([`crate::leases`]). When the
//! delivery time has come, a process that checks the records puts the message into the store. This process is a sender, a receiver that finds the
//! queue empty or finds held messages, or a blocked receiver. A blocked receiver sleeps at most until the first delivery time.
//!
//! If one check finds several messages whose delivery time has come, they are delivered in the order of their times. Messages of one time are
//! delivered in the order of their sends (`leases/due.rs`). A returned message goes back to its place in its priority. A message that was sent for a
//! later time follows all messages of its priority that were sent before its delivery time. To ensure this order, a send first stores the messages
//! whose time has come, and then publishes its own message.
//!
//! While a message is delayed, the bit `DELAYED` of the attention word makes senders read the clock. A send tests this bit together with the bit of
//! pollers and the bit `SEND_CLOSED`, so a queue without delayed messages pays nothing. Unlike the other bits, this bit changes under the receiver
//! lock alone. One lock suffices: a send that begins after the delivery time begins long after the store to the bit.

use super::held_messages::LeaseHandle;
use super::{DELAYED, DeferredWakes, Engine, Refused};
use crate::counters::Event;
use crate::crash::crash_point;
use crate::doorbell::Watched;
use crate::fault::Fault;
use crate::leases::{self, LeaseRecord, Leases, State};
use crate::lock::STOPPED;
use crate::lock::tokens::ReceiverHeld;
use crate::posix_engine::Priorities;
use crate::posix_engine::segment::TraceKind;
use crate::sync::Ordering;
use crate::sys::clock::{self, Deadline};
use crate::sys::thread::Thread;
use crate::waiters::{List, Waiters};

impl Engine {
    /// Turns a lease into a delayed message.
    pub(super) fn delay_lease(
        &self,
        receiving: ReceiverHeld<'_>,
        record: &LeaseRecord,
        until: u64,
        wakes: &mut DeferredWakes,
    ) {
        self.begin_delay(receiving, record, until, wakes);
        self.segment().fixed().counters.count(Event::Returned);
    }

    /// Turns the record of a lease or reservation into the record of a delayed message. The holder no longer owns the message.
    fn begin_delay(
        &self,
        receiving: ReceiverHeld<'_>,
        record: &LeaseRecord,
        until: u64,
        wakes: &mut DeferredWakes,
    ) {
        // In a record, 0 means that there is no time limit.
        let until = until.max(1);
        let before = State::of(record);
        self.foretell_delay(receiving);
        if before == State::Reserved {
            // Messages with the same delivery time are delivered in the order of their sends, not of their reservations.
            Leases::of(self.segment()).issue_ticket(receiving, record);
        }
        // Until the state changes, this word is the time limit of a lease. In the record of a reservation, the word has no meaning.
        record.until.set(until);
        leases::set(record, State::Delayed);
        crash_point!(DELAY_HELD);
        record.pid.set(0);
        self.count_kind(receiving, before, -1);
        self.count_kind(receiving, State::Delayed, 1);
        self.segment().fixed().leases.limit(record, until);
        let waiters = Waiters::of(self.segment());
        if waiters.len(List::Receivers) != 0 {
            // A receiver that sleeps for a whole slice has to wake and compute a shorter sleep.
            wakes.add_everybody(waiters.usable());
        }
    }

    /// Sets or clears the bit that makes senders read the clock. The bit is set while a message is delayed.
    pub(super) fn note_delayed(&self, receiving: ReceiverHeld<'_>) {
        // Relaxed: the caller holds the receiver lock.
        let delayed = self
            .segment()
            .fixed()
            .leases
            .delayed
            .load(Ordering::Relaxed);
        let flags = if delayed != 0 { DELAYED } else { 0 };
        self.set_attention(receiving, DELAYED, flags);
    }

    /// Returns whether the delivery time of a delayed message may have come. Under the receiver lock, a result of `false` is exact.
    pub(super) fn may_be_due(&self) -> bool {
        let fixed = self.segment().fixed();
        fixed.wait_flags.attention() & DELAYED != 0
            && fixed.leases.is_due(clock::monotonic_coarse())
    }

    /// Stores the delayed messages whose time has come. The caller calls this function before it sends, so that its own message follows the delayed
    /// messages.
    pub(super) fn store_due(&self, me: &Thread, deadline: Deadline) {
        if self.may_be_due() {
            // The caller sends even if the lock is not available, because a process that is stopped with the receiver lock must not block senders.
            // The delayed messages then stay delayed until a receiver stores them, after the caller's message.
            let _ = self.with_receiver_lock(me, deadline.or_slice(STOPPED), |receiving, wakes| {
                Ok(self.reclaim_and_serve(receiving, wakes)?)
            });
        }
    }

    /// Stores a delayed message whose time has come.
    pub(super) fn deliver_delayed(
        &self,
        receiving: ReceiverHeld<'_>,
        index: u32,
        record: &LeaseRecord,
    ) -> Result<(), Fault> {
        let (slot, deliveries) = (record.slot.get(), record.deliveries.get());
        let found = self.in_hand(receiving, slot)?;
        let order = Priorities::of(self.segment());
        if deliveries == 0 {
            // The messages in the ring were sent before the delivery time of this message, so they enter the store first.
            self.drain(receiving)?;
            self.foretell_doorbell(receiving, 1, 0);
            found.cell.become_due(record.until.get());
            self.mark_stored(receiving, found.cell);
            crash_point!(DUE_MARKED);
            order.push_back(receiving, found.key, slot)?;
        } else {
            self.foretell_doorbell(receiving, 1, 0);
            found.cell.set_returns(deliveries, true);
            crash_point!(DUE_MARKED);
            order.push_in_order(receiving, found.key, slot)?;
        }
        self.count_stored(receiving, found.len as u64, 1);
        self.release_record(receiving, index, record)
    }

    /// Ends a lease, and delivers its message again at the time `until` of the monotonic clock, in nanoseconds, or later. Returns false if the lease
    /// has ended already.
    pub fn return_at(
        &self,
        me: &Thread,
        handle: &LeaseHandle,
        until: u64,
    ) -> Result<bool, Refused> {
        self.with_receiver_lock(me, Deadline::Never, |receiving, wakes| {
            let leases = Leases::of(self.segment());
            leases.with_leased(handle, |record| {
                self.trace_end(receiving, record, TraceKind::Returned);
                match self.is_undeliverable(record) {
                    true => self.set_lease_aside(receiving, record),
                    false => self.delay_lease(receiving, record, until, wakes),
                }
                self.wake_at_end(receiving, wakes);
                Ok(())
            })
        })
    }

    /// Sends the message of `len` bytes in the reserved slot at the time `until` of the monotonic clock, in nanoseconds. Returns false if the
    /// reservation has ended.
    pub fn commit_at(
        &self,
        me: &Thread,
        handle: &LeaseHandle,
        (len, key): (usize, usize),
        until: u64,
    ) -> Result<bool, Refused> {
        self.prepare_commit(me, key, Deadline::Never)?;
        self.with_receiver_lock(me, Deadline::Never, |receiving, wakes| {
            self.check_producers(receiving, me, wakes)?;
            let Some(record) = self.reserved(handle)? else {
                return Ok(false);
            };
            let cell = self.segment().cell(record.slot.get())?;
            self.segment().shorten(cell, handle.len, len)?;
            self.describe(me, cell, len, key);
            let published = &self.segment().fixed().published;
            published.count_entered_bytes(receiving, len);
            self.begin_delay(receiving, record, until, wakes);
            Ok(true)
        })
    }
}
