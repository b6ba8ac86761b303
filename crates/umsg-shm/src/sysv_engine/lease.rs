//! Leases: receiving a message in place. [`crate::leases`] has the table of states.
//!
//! A leased message is not queued, but takes room in the queue. It keeps its slot and its number. An acknowledgement frees the slot. A return, the
//! death of the holder, or the end of the time limit puts the message back to the place of its number. The message comes back at once, or after the
//! queue's retry delay ([`delay`](super::delay)).

use super::receive::{FoundMessage, Receipt, Step};
use super::wait::{Call, Waiter};
use super::{Engine, Refused};
use crate::counters::Event;
use crate::crash::crash_point;
use crate::doorbell::Watched;
use crate::fault::Fault;
use crate::leases::LeaseRecord;
use crate::leases::{self, Leases, State};
use crate::lock::deferred_wakes::DeferredWakes;
use crate::lock::tokens::ReceiverHeld;
use crate::report::What;
use crate::sys::clock::{self, Deadline};
use crate::sys::liveness;
use crate::sys::thread::Thread;
#[cfg(not(loom))]
use crate::sysv_engine::order::TypeIndexStore;
use crate::sysv_engine::order::Want;
use crate::waiters;

/// The handle of a leased message of this process. Its key is the type of the message.
pub type LeaseHandle = leases::LeaseHandle<i64>;

/// A receive that leases its message in place.
pub(super) struct Lease;

impl Lease {
    /// The size of the buffer in the waiter record of a thread that leases its message. No other receiver has a buffer of this size.
    pub(super) const SIZE: u64 = u64::MAX;
}

impl Receipt for Lease {
    type Outcome = LeaseHandle;

    fn longest(&self) -> u64 {
        Lease::SIZE
    }

    fn take(
        &mut self,
        receiving: ReceiverHeld<'_>,
        step: Step<'_>,
    ) -> Result<LeaseHandle, Refused> {
        let Step {
            engine,
            call,
            found,
        } = step;
        let handle = engine.keep(receiving, call.me, found)?;
        engine.unqueue(receiving, found.slot, found.len)?;
        engine.fixed().control.note_receive(call.me.pid());
        Ok(handle)
    }

    /// Accepts the offer under the lock, in contrast to a receive that copies: the lock guards the lease records.
    fn accept(&mut self, me: Waiter<'_>, step: Step<'_>) -> Result<Option<LeaseHandle>, Refused> {
        let Step {
            engine,
            call,
            found,
        } = step;
        call.unname();
        // If the lock's owner is stopped, the call fails, and the message goes back to the queue.
        engine.with_lock(call.me, call.deadline, |receiving, _| {
            if waiters::state(me.node()) != waiters::State::Settled {
                return Ok(None);
            }
            let handle = engine.keep(receiving, call.me, found)?;
            engine.waiters().remove(receiving, me.node())?;
            waiters::give_up(me.node());
            Ok(Some(handle))
        })
    }
}

impl Engine {
    /// Leases the first wanted message. Waits for a message until the call's deadline.
    pub fn lease(&self, call: &Call<'_>, want: Want) -> Result<LeaseHandle, Refused> {
        liveness::register(self.segment());
        self.take_or_wait(call, want, &mut Lease)
    }

    /// Leases a message to the caller. From the store of the record's state on, the message is leased, even if other words still say that it is
    /// queued.
    fn keep(
        &self,
        receiving: ReceiverHeld<'_>,
        me: &Thread,
        found: FoundMessage<'_>,
    ) -> Result<LeaseHandle, Fault> {
        let deliveries = found.cell.returns().saturating_add(1);
        let leases = Leases::of(self.segment());
        let (index, record) = leases.claim_own(receiving, me, found.slot, deliveries)?;
        leases::set(record, State::Leased);
        crash_point!(MSG_LEASED);
        self.fixed()
            .control
            .count_leased(receiving, 1, found.len as i64);
        Ok(LeaseHandle {
            index,
            ticket: record.ticket.get(),
            slot: found.slot,
            len: found.len,
            key: found.mtype(),
            deliveries,
            pid: found.cell.pid(),
            sent_at: found.cell.sent_at(),
        })
    }

    /// Ends a lease and removes its message. Returns false if the lease has ended already: its time was up, or the record has another holder.
    pub fn acknowledge(&self, me: &Thread, handle: &LeaseHandle) -> Result<bool, Refused> {
        self.end_lease(me, handle, |receiving, record, wakes| {
            let slot = record.slot.get();
            let len = self.len_of(self.segment().cell(slot)?)?;
            self.foretell_doorbell(receiving, 0, len as i64);
            // The message is removed before the record is freed: a repair frees the record of a message that was removed.
            self.segment().cell(slot)?.end();
            crash_point!(MSG_ACKNOWLEDGED);
            Leases::of(self.segment()).release(receiving, handle.index, record)?;
            self.fixed()
                .control
                .count_leased(receiving, -1, -(len as i64));
            self.push_free(receiving, slot)?;
            self.admit_if_any(receiving, wakes);
            self.wake_at_end(receiving, wakes)
        })
    }

    /// Ends a lease and puts the message back. Returns false if the lease has ended already.
    pub fn give_back(&self, me: &Thread, handle: &LeaseHandle) -> Result<bool, Refused> {
        self.end_lease(me, handle, |receiving, record, wakes| {
            self.return_lease(receiving, handle.index, record, wakes)
        })
    }

    /// Returns the number of a leased message, which no other message of the queue has. None if the lease has ended.
    #[cfg(not(loom))]
    pub fn lease_number(&self, me: &Thread, handle: &LeaseHandle) -> Result<Option<u64>, Refused> {
        let mut number = None;
        self.end_lease(me, handle, |_, record, _| {
            number = Some(self.segment().place(record.slot.get())?.sequence());
            Ok(())
        })?;
        Ok(number)
    }

    /// Limits a lease in time: it ends when the monotonic clock reads `until` nanoseconds; 0 for no limit. Returns false if the lease has ended.
    pub fn limit(&self, me: &Thread, handle: &LeaseHandle, until: u64) -> Result<bool, Refused> {
        self.end_lease(me, handle, |_, record, _| {
            self.fixed().leases.limit(record, until);
            Ok(())
        })
    }

    /// Ends a lease as if its time were up: see [`Leases::expire`].
    #[cfg(not(loom))]
    pub fn expire(&self, handle: &LeaseHandle) {
        Leases::of(self.segment()).expire(handle);
    }

    /// Returns the address of a leased message.
    #[cfg(not(loom))]
    pub fn place(&self, handle: &LeaseHandle) -> Result<*mut u8, Fault> {
        let cell = self.segment().cell(handle.slot)?;
        self.segment().payload(cell, handle.len)
    }

    /// Runs `work` on the record of a lease that has not ended. Returns false if the lease has ended.
    pub(super) fn end_lease(
        &self,
        me: &Thread,
        handle: &LeaseHandle,
        work: impl FnOnce(ReceiverHeld<'_>, &LeaseRecord, &mut DeferredWakes) -> Result<(), Fault>,
    ) -> Result<bool, Refused> {
        self.with_lock(me, Deadline::Never, |receiving, wakes| {
            let leases = Leases::of(self.segment());
            leases.with_leased(handle, |record| Ok(work(receiving, record, wakes)?))
        })
    }

    fn return_lease(
        &self,
        receiving: ReceiverHeld<'_>,
        index: u32,
        record: &LeaseRecord,
        wakes: &mut DeferredWakes,
    ) -> Result<(), Fault> {
        if let Some(until) = record.retry_at(self.policy.retry_delay) {
            self.delay_lease(receiving, record, until, wakes);
            return Ok(());
        }
        let slot = record.slot.get();
        let cell = self.segment().cell(slot)?;
        let len = self.len_of(cell)?;
        self.provide_for(receiving, slot)?;
        self.foretell_doorbell(receiving, 1, 0);
        cell.set_returns(record.deliveries.get(), true);
        crash_point!(MSG_RETURNED);
        Leases::of(self.segment()).release(receiving, index, record)?;
        self.fixed()
            .control
            .count_leased(receiving, -1, -(len as i64));
        self.fixed().counters.count(Event::Returned);
        self.return_to_queue(receiving, slot, wakes)
    }

    /// Checks the records if the time for a check has come: ends overdue leases and the leases of dead holders, and delivers the delayed messages
    /// whose delivery time has come. Returns whether the records were checked.
    #[cold]
    pub(super) fn reclaim_if_due(
        &self,
        receiving: ReceiverHeld<'_>,
        wakes: &mut DeferredWakes,
    ) -> Result<bool, Fault> {
        let now = clock::monotonic_coarse();
        if !self.fixed().control.has_leased() || !self.fixed().leases.is_look_due(now) {
            return Ok(false);
        }
        self.reclaim(receiving, now, wakes)?;
        Ok(true)
    }

    pub(super) fn reclaim(
        &self,
        receiving: ReceiverHeld<'_>,
        now: u64,
        wakes: &mut DeferredWakes,
    ) -> Result<(), Fault> {
        let leases = Leases::of(self.segment());
        leases.end_overdue(receiving, now, |index, record, state| match state {
            State::Delayed => self.deliver_delayed(receiving, index, record, wakes),
            _ => {
                let until = record.until.get();
                if until == 0 || until > now {
                    self.report(What::HolderDied, record.pid.get());
                    wakes.add_reports();
                }
                self.return_lease(receiving, index, record, wakes)
            }
        })
    }
}
