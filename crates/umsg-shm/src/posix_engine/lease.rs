//! Leases: a receiver reads a message in place.
//!
//! A lease leaves the message in its slot and notes the holder of the message in a record. An acknowledgement frees the slot. A return, the death of
//! the holder, or the time limit puts the message back in its old place.

use super::found::FoundMessage;
use super::held_messages::LeaseHandle;
use super::wait::{LEASES, Receipt, Taker};
use super::{DeferredWakes, Engine, Refused};
use crate::crash::crash_point;
use crate::doorbell::Watched;
use crate::fault::Fault;
use crate::leases::{self, LeaseRecord, Leases, State};
use crate::lock::tokens::ReceiverHeld;
use crate::posix_engine::segment::TraceKind;
use crate::sys::clock::Deadline;
use crate::sys::liveness;
use crate::sys::thread::Thread;
use crate::waiters::Node;
use crate::waiters::Waiters;

/// A receive that leases a message in place.
struct Lease;

impl Receipt for Lease {
    type Outcome = LeaseHandle;

    const MARK: u32 = LEASES;

    fn take(
        &mut self,
        taker: Taker<'_>,
        wakes: &mut DeferredWakes,
    ) -> Result<LeaseHandle, Refused> {
        let Taker {
            receiving,
            engine,
            me,
        } = taker;
        let Some(found) = engine.next(receiving, wakes)? else {
            return Err(Refused::NotNow);
        };
        engine.sequence_offered(receiving, &found);
        let handle = engine.keep(receiving, me, &found)?;
        engine.take(receiving, &found)?;
        crash_point!(LEASE_TAKEN);
        engine.note_lease(receiving);
        Ok(handle)
    }

    fn accept(
        &mut self,
        taker: Taker<'_>,
        node: &Node,
        found: FoundMessage<'_>,
    ) -> Result<LeaseHandle, Refused> {
        let (receiving, engine) = (taker.receiving, taker.engine);
        let handle = engine.keep(receiving, taker.me, &found)?;
        Waiters::of(engine.segment()).remove(receiving, node)?;
        found.cell.forget();
        engine.note_lease(receiving);
        Ok(handle)
    }
}

impl Engine {
    /// Leases the next message, if the queue has a message now.
    pub fn try_lease(&self, me: &Thread, deadline: Deadline) -> Result<LeaseHandle, Refused> {
        liveness::register(self.segment());
        self.try_take(me, &mut Lease, deadline)
    }

    /// Leases the next message. Waits until `deadline` for a message.
    pub fn lease(&self, me: &Thread, deadline: Deadline) -> Result<LeaseHandle, Refused> {
        match self.try_lease(me, deadline) {
            Err(Refused::NotNow) => self.receive_slow(me, &mut Lease, deadline),
            other => other.map_err(|refused| refused.by(deadline)),
        }
    }

    /// Leases a message to the caller. The store to the record's state is the decisive step: after it the message is leased, even if other words
    /// still show it in the queue.
    fn keep(
        &self,
        receiving: ReceiverHeld<'_>,
        me: &Thread,
        found: &FoundMessage<'_>,
    ) -> Result<LeaseHandle, Fault> {
        let deliveries = found.cell.returns().saturating_add(1);
        let (index, record) =
            Leases::of(self.segment()).claim_own(receiving, me, found.slot, deliveries)?;
        self.trace_delivery(receiving, found, me.pid(), deliveries);
        leases::set(record, State::Leased);
        crash_point!(LEASE_HELD);
        if self.policy().sets_aside() {
            self.note_delivery(receiving, found.slot, deliveries == 1);
        }
        Ok(self.handle(index, record, found))
    }

    fn note_lease(&self, receiving: ReceiverHeld<'_>) {
        self.count_held(receiving, 1);
        self.publish_counts(receiving);
        self.note_receive();
    }

    /// Ends a lease and removes its message. Returns false if the lease has already ended at its time limit.
    pub fn acknowledge(&self, me: &Thread, handle: &LeaseHandle) -> Result<bool, Refused> {
        self.end_lease(me, handle, |engine, receiving, record, wakes| {
            let slot = record.slot.get();
            let cell = engine.segment().cell(slot)?;
            engine.foretell_doorbell(receiving, 0, 1);
            engine.release_record(receiving, handle.index, record)?;
            crash_point!(LEASE_ENDED);
            // The cell may have a count of returns that a repair stored, if the lease was being returned when a process died.
            cell.forget();
            engine.free_held(receiving, slot, wakes);
            engine.wake_at_end(receiving, wakes);
            Ok(())
        })
    }

    /// Ends a lease and makes its message the first of its priority. Returns false if the lease has already ended at its time limit.
    pub fn give_back(&self, me: &Thread, handle: &LeaseHandle) -> Result<bool, Refused> {
        self.end_lease(me, handle, |engine, receiving, record, wakes| {
            engine.trace_end(receiving, record, TraceKind::Returned);
            engine.return_lease(receiving, handle.index, record, wakes)?;
            crash_point!(RETURN_ENDED);
            engine.serve(receiving, wakes)?;
            engine.update_wait_flags(receiving);
            // If the message was set aside instead, the queue may be at the end of the stream.
            engine.wake_at_end(receiving, wakes);
            Ok(())
        })
    }

    fn end_lease(
        &self,
        me: &Thread,
        handle: &LeaseHandle,
        end: impl FnOnce(
            &Engine,
            ReceiverHeld<'_>,
            &LeaseRecord,
            &mut DeferredWakes,
        ) -> Result<(), Fault>,
    ) -> Result<bool, Refused> {
        self.with_receiver_lock(me, Deadline::Never, |receiving, wakes| {
            let leases = Leases::of(self.segment());
            leases.with_leased(handle, |record| Ok(end(self, receiving, record, wakes)?))
        })
    }
}
