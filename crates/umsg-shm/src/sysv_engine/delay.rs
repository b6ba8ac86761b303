//! Delayed messages: leases that are returned for a later delivery, and messages that are sent for a later time.
//!
//! A delayed message keeps its slot and its room in the queue, and its record is in the state `Delayed` ([`crate::leases`]). At the delivery time, a
//! thread that checks the records puts the message into the order. Calls that send or receive check the records while messages are held, and so do
//! blocked receivers. A blocked receiver sleeps at most until the first delivery time.
//!
//! If one check finds several messages to deliver, they are delivered in the order of their delivery times. Messages with the same delivery time are
//! delivered in the order of their sends (`leases/due.rs`). A returned message goes back to its place by its number. A message that was sent for a
//! later time gets its number at its delivery: a send first delivers the messages whose time has come, and then numbers its own message. So a
//! delivered message comes after the messages that were sent before its delivery time, and before the messages that are sent later.

use super::segment::Choice;
use super::wait::Call;
use super::{Engine, Refused};
use crate::counters::Event;
use crate::crash::crash_point;
use crate::doorbell::Watched;
use crate::fault::Fault;
use crate::leases::{self, Claim, LeaseRecord, Leases, State};
use crate::lock::deferred_wakes::DeferredWakes;
use crate::lock::tokens::ReceiverHeld;
use crate::sync::Ordering;
use crate::sys::clock;
use crate::sys::thread::Thread;
use crate::sysv_engine::LeaseHandle;
use crate::waiters::{List, NO_SLOT};

impl Engine {
    /// Sends a message that is delivered when the monotonic clock reads `due()` nanoseconds, or later. Waits for room until the call's
    /// deadline; `due` is called when there is room.
    pub fn send_later(
        &self,
        call: &Call<'_>,
        mtype: i64,
        message: &[u8],
        due: &dyn Fn() -> u64,
    ) -> Result<(), Refused> {
        let choice = Choice::Room {
            slot: NO_SLOT,
            messages: 1,
            bytes: message.len() as u64,
        };
        self.attempt_or_wait_for_room(
            call,
            |receiving, wakes| {
                self.send_later_locked(receiving, call, (mtype, message), due, wakes)
            },
            |receiving| self.enlist(receiving, call, choice),
        )
    }

    fn send_later_locked(
        &self,
        receiving: ReceiverHeld<'_>,
        call: &Call<'_>,
        (mtype, message): (i64, &[u8]),
        due: &dyn Fn() -> u64,
        wakes: &mut DeferredWakes,
    ) -> Result<(), Refused> {
        self.check_rights(receiving, call.rights)?;
        self.check_room(receiving, (1, message.len() as u64), wakes)?;
        let now = clock::realtime_coarse();
        self.order().provide(mtype)?;
        let (slot, cell) = self.fill(receiving, call.me, mtype, message, now)?;
        // No process holds a delayed message, so the record names no process.
        let claim = Claim {
            slot,
            pid: 0,
            birth: 0,
            deliveries: 0,
        };
        let record = match Leases::of(self.segment()).claim(receiving, &claim) {
            Ok((_, record)) => record,
            Err(fault) => {
                self.push_free(receiving, slot)?;
                return Err(fault.into());
            }
        };
        self.foretell_delay(receiving);
        let due = due().max(1);
        record.until.set(due);
        leases::set(record, State::Delayed);
        crash_point!(MSG_DELAY_NOTED);
        // This store sends the message. A repair frees a record whose cell has no message.
        cell.begin();
        crash_point!(MSG_DELAYED);
        let control = &self.fixed().control;
        control.count_leased(receiving, 1, message.len() as i64);
        self.count_delayed(receiving, 1);
        self.limit_sleep(receiving, record, due, wakes);
        control.note_send(call.me.pid(), now);
        Ok(())
    }

    /// Turns a lease into a delayed message.
    pub(super) fn delay_lease(
        &self,
        receiving: ReceiverHeld<'_>,
        record: &LeaseRecord,
        until: u64,
        wakes: &mut DeferredWakes,
    ) {
        // In a record, 0 means no time limit, so the least time is 1.
        let until = until.max(1);
        self.foretell_delay(receiving);
        // Until the state changes, other processes treat this word as the time limit of the lease.
        record.until.set(until);
        leases::set(record, State::Delayed);
        crash_point!(MSG_DELAYED);
        record.pid.set(0);
        self.count_delayed(receiving, 1);
        self.fixed().counters.count(Event::Returned);
        self.limit_sleep(receiving, record, until, wakes);
    }

    /// Ends a lease, and delivers its message again when the monotonic clock reads `until` nanoseconds, or later. Returns false if the lease has
    /// ended already.
    pub fn return_at(
        &self,
        me: &Thread,
        handle: &LeaseHandle,
        until: u64,
    ) -> Result<bool, Refused> {
        self.end_lease(me, handle, |receiving, record, wakes| {
            self.delay_lease(receiving, record, until, wakes);
            Ok(())
        })
    }

    /// Delivers the messages whose delivery time has come. A send calls this function before it numbers its own message.
    pub(super) fn deliver_due(
        &self,
        receiving: ReceiverHeld<'_>,
        wakes: &mut DeferredWakes,
    ) -> Result<(), Fault> {
        let roots = &self.fixed().leases;
        let now = clock::monotonic_coarse();
        // Relaxed: the caller holds the lock.
        if roots.delayed.load(Ordering::Relaxed) != 0 && roots.is_due(now) {
            self.reclaim(receiving, now, wakes)?;
        }
        Ok(())
    }

    /// Delivers a delayed message whose delivery time has come: to a waiting receiver, or into the order.
    pub(super) fn deliver_delayed(
        &self,
        receiving: ReceiverHeld<'_>,
        index: u32,
        record: &LeaseRecord,
        wakes: &mut DeferredWakes,
    ) -> Result<(), Fault> {
        let (slot, deliveries) = (record.slot.get(), record.deliveries.get());
        let cell = self.segment().cell(slot)?;
        let len = self.len_of(cell)?;
        self.provide_for(receiving, slot)?;
        self.foretell_doorbell(receiving, 1, 0);
        match deliveries {
            0 => {
                let sequence = self.number(receiving, slot, 1)?;
                self.fixed().control.send_up_to(receiving, sequence);
            }
            deliveries => cell.set_returns(deliveries, true),
        }
        crash_point!(MSG_DUE);
        Leases::of(self.segment()).release(receiving, index, record)?;
        self.count_delayed(receiving, -1);
        self.fixed()
            .control
            .count_leased(receiving, -1, -(len as i64));
        self.return_to_queue(receiving, slot, wakes)
    }

    /// Notes the delivery time of a message, and wakes sleeping receivers, which then compute the length of their sleep again.
    fn limit_sleep(
        &self,
        _: ReceiverHeld<'_>,
        record: &LeaseRecord,
        until: u64,
        wakes: &mut DeferredWakes,
    ) {
        self.fixed().leases.limit(record, until);
        if self.waiters().len(List::Receivers) != 0 {
            wakes.add_everybody(self.waiters().usable());
        }
    }

    fn count_delayed(&self, _: ReceiverHeld<'_>, change: i32) {
        let delayed = &self.fixed().leases.delayed;
        // Relaxed: the value is exact under the lock, otherwise a hint.
        let now = delayed.load(Ordering::Relaxed).wrapping_add_signed(change);
        delayed.store(now, Ordering::Relaxed);
    }
}
