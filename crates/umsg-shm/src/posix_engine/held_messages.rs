//! Messages that a process holds longer than a call: the common part of leases and reservations. This module ends a record at its time limit or after
//! the death of its holder. [`crate::leases`] lists the states of a record.

use super::found::FoundMessage;
use super::{DeferredWakes, Engine, Refused};
use crate::counters::Event;
use crate::crash::crash_point;
use crate::doorbell::Watched;
use crate::fault::Fault;
use crate::leases::LeaseRecord;
use crate::leases::{self, Leases, State};
use crate::lock::tokens::ReceiverHeld;
use crate::posix_engine::Priorities;
use crate::posix_engine::segment::TraceKind;
use crate::report::What;
use crate::sync::Ordering;
use crate::sys::clock::{self, Deadline};
use crate::sys::thread::Thread;

/// The handle of a message that this process holds. The key in it is the message's priority.
pub type LeaseHandle = leases::LeaseHandle<usize>;

impl Engine {
    /// Returns whether a held message uses the queue's capacity. The messages that are set aside use the capacity only if they are more than the
    /// spare slots. Under the receiver lock, the result is exact. Without the lock, the result is a hint.
    #[inline(always)]
    pub(super) fn holds_any(&self) -> bool {
        self.segment().fixed().receiver.held() != 0
    }

    /// Returns whether a message is held or can expire. If so, messages or room may become available without a call of another process.
    #[inline(always)]
    pub(super) fn can_expire(&self) -> bool {
        self.holds_any() || self.policy().time_to_live != 0
    }

    /// Returns whether this call must look for dead holders and for expired messages. This search is made from time to time, not in each call.
    #[inline(always)]
    pub(super) fn may_reclaim(&self) -> bool {
        self.can_expire() && self.is_reclaim_due()
    }

    #[cold]
    fn is_reclaim_due(&self) -> bool {
        let roots = &self.segment().fixed().leases;
        roots.is_look_due(clock::monotonic_coarse())
    }

    /// Adds `change` to the number of held messages. The change is 1 for a message that becomes held, and -1 for a message whose hold ends.
    pub(super) fn count_held(&self, receiving: ReceiverHeld<'_>, change: i64) {
        self.segment()
            .fixed()
            .receiver
            .count_held(receiving, change);
    }

    /// Adds `change` to the number of held messages in the state `state`. For delayed messages, also updates their attention bit. For messages that
    /// are set aside, also updates the number of held messages that use the queue's capacity.
    pub(super) fn count_kind(&self, receiving: ReceiverHeld<'_>, state: State, change: i32) {
        let roots = &self.segment().fixed().leases;
        let kind = match state {
            State::Reserved => &roots.reserved,
            State::Aside | State::Moving => &roots.aside,
            State::Delayed => &roots.delayed,
            State::Free | State::Leased | State::Arrived | State::Redriving => return,
        };
        // Relaxed: the value is exact under the receiver lock. Other threads read it as a hint.
        let before = kind.load(Ordering::Relaxed);
        let now = before.wrapping_add_signed(change);
        kind.store(now, Ordering::Relaxed);
        if state == State::Delayed {
            self.note_delayed(receiving);
        }
        if matches!(state, State::Aside | State::Moving) {
            self.count_held(
                receiving,
                i64::from(leases::in_the_way(now)) - i64::from(leases::in_the_way(before)),
            );
        }
    }

    /// Ends the record of a lease or reservation. The slot of the message then belongs to the caller.
    pub(super) fn release_record(
        &self,
        receiving: ReceiverHeld<'_>,
        index: u32,
        record: &LeaseRecord,
    ) -> Result<(), Fault> {
        let state = State::of(record);
        Leases::of(self.segment()).release(receiving, index, record)?;
        self.count_kind(receiving, state, -1);
        if matches!(
            state,
            State::Reserved | State::Leased | State::Delayed | State::Redriving
        ) {
            self.count_held(receiving, -1);
        }
        Ok(())
    }

    /// Frees the slot of a lease or reservation that has ended, and serves waiters: a blocked sender gets the room, and a receiver may get the
    /// message of that sender. The caller announced the room to pollers before it ended the record.
    pub(super) fn free_held(
        &self,
        receiving: ReceiverHeld<'_>,
        slot: u32,
        wakes: &mut DeferredWakes,
    ) {
        self.free_slot(receiving, slot);
        self.settle_freed(receiving, wakes);
    }

    /// Serves waiters after slots have become free.
    fn settle_freed(&self, receiving: ReceiverHeld<'_>, wakes: &mut DeferredWakes) {
        // An error is only noted, and not returned, because the records have ended even if the list of waiters is corrupt.
        if self.serve(receiving, wakes).is_err() {
            self.note_damage();
        }
        self.update_wait_flags(receiving);
        self.publish_counts(receiving);
    }

    /// Ends a lease by a return. The message goes back to its old place, at once or after the queue's retry delay. After too many returns,
    /// the message is set aside.
    pub(super) fn return_lease(
        &self,
        receiving: ReceiverHeld<'_>,
        index: u32,
        record: &LeaseRecord,
        wakes: &mut DeferredWakes,
    ) -> Result<(), Fault> {
        if self.is_undeliverable(record) {
            self.set_lease_aside(receiving, record);
            return Ok(());
        }
        if let Some(until) = record.retry_at(self.policy().retry_delay) {
            self.delay_lease(receiving, record, until, wakes);
            return Ok(());
        }
        let slot = record.slot.get();
        let found = self.in_hand(receiving, slot)?;
        self.foretell_doorbell(receiving, 1, 0);
        found.cell.set_returns(record.deliveries.get(), true);
        crash_point!(RETURN_MARKED);
        Priorities::of(self.segment()).push_in_order(receiving, found.key, slot)?;
        self.count_stored(receiving, found.len as u64, 1);
        self.release_record(receiving, index, record)?;
        self.segment().fixed().counters.count(Event::Returned);
        Ok(())
    }

    /// Ends records whose holder is dead or whose time limit has passed, and drops expired messages.
    pub(super) fn reclaim_leases(
        &self,
        receiving: ReceiverHeld<'_>,
        wakes: &mut DeferredWakes,
    ) -> Result<(), Fault> {
        if self.policy().time_to_live != 0 {
            self.sweep(receiving)?;
        }
        let (now, mut has_freed) = (clock::monotonic_coarse(), false);
        Leases::of(self.segment()).end_overdue(receiving, now, |index, record, state| {
            match state {
                State::Leased => {
                    let until = record.until.get();
                    let kind = match until != 0 && until <= now {
                        true => TraceKind::TimedOut,
                        false => TraceKind::HolderDied,
                    };
                    self.trace_end(receiving, record, kind);
                    if kind == TraceKind::HolderDied {
                        self.report(What::HolderDied, record.pid.get());
                    }
                    return self.return_lease(receiving, index, record, wakes);
                }
                State::Delayed => return self.deliver_delayed(receiving, index, record),
                _ => self.report(What::HolderDied, record.pid.get()),
            }
            let slot = record.slot.get();
            self.segment().cell(slot)?;
            self.foretell_doorbell(receiving, 0, 1);
            self.release_record(receiving, index, record)?;
            self.free_slot(receiving, slot);
            has_freed = true;
            Ok(())
        })?;
        if has_freed {
            // Waiters are served after the walk over the records. Serving a waiter may give a record to an expired message, and the walk must not see
            // new records.
            self.settle_freed(receiving, wakes);
        }
        self.publish_counts(receiving);
        wakes.add_reports();
        Ok(())
    }

    /// Ends records whose holder is dead or whose time limit has passed, drops expired messages, and serves waiters.
    #[cold]
    pub(super) fn reclaim_and_serve(
        &self,
        receiving: ReceiverHeld<'_>,
        wakes: &mut DeferredWakes,
    ) -> Result<(), Fault> {
        self.reclaim_leases(receiving, wakes)?;
        self.serve(receiving, wakes)?;
        self.update_wait_flags(receiving);
        Ok(())
    }

    /// Sets the time at which a lease ends, in nanoseconds of the monotonic clock. 0 means no limit. Returns false if the lease has ended.
    pub fn limit(&self, me: &Thread, handle: &LeaseHandle, until: u64) -> Result<bool, Refused> {
        self.with_receiver_lock(me, Deadline::Never, |_, _| {
            let leases = Leases::of(self.segment());
            leases.with_leased(handle, |record| {
                self.segment().fixed().leases.limit(record, until);
                Ok(())
            })
        })
    }

    /// Ends a lease as at its time limit: see [`Leases::expire`].
    #[cfg(not(loom))]
    pub fn expire_lease(&self, handle: &LeaseHandle) {
        Leases::of(self.segment()).expire(handle);
    }

    /// Returns the address of a held message.
    #[cfg(not(loom))]
    pub fn place(&self, handle: &LeaseHandle) -> Result<*mut u8, Fault> {
        let cell = self.segment().cell(handle.slot)?;
        self.segment().payload(cell, handle.len)
    }

    /// Returns the handle with which the holder refers to its message.
    pub(super) fn handle(
        &self,
        index: u32,
        record: &LeaseRecord,
        found: &FoundMessage<'_>,
    ) -> LeaseHandle {
        LeaseHandle {
            index,
            ticket: record.ticket.get(),
            slot: found.slot,
            len: found.len,
            key: found.key,
            deliveries: record.deliveries.get(),
            pid: found.cell.pid(),
            sent_at: found.cell.sent_at(),
        }
    }
}
