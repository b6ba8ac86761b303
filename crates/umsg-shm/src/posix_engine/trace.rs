//! Traces of messages: the functions by which the engine notes events.
//!
//! The event of a delivery is noted before the store that makes the delivery effective. If the process dies in between, the event stays in the trace.
//! A reader omits the event, and the next delivery or return replaces it. The events of a move travel with the copy of the message.

use super::Engine;
use super::found::FoundMessage;
use crate::crash::crash_point;
use crate::leases::{LeaseRecord, State};
use crate::lock::tokens::ReceiverHeld;
use crate::posix_engine::segment::{Cell, Reason, Trace, TraceEvent, TraceKind};
use crate::sys::clock;

impl Engine {
    /// Returns whether the events of a message must be noted.
    #[inline(always)]
    fn is_traced(&self, cell: &Cell) -> bool {
        self.policy().trace_messages || cell.has_trace()
    }

    /// Notes that the process `pid` will now lease the message for the `delivery`-th time.
    #[inline(always)]
    pub(super) fn trace_delivery(
        &self,
        receiving: ReceiverHeld<'_>,
        found: &FoundMessage<'_>,
        pid: u32,
        delivery: u32,
    ) {
        if self.is_traced(found.cell) {
            self.note_event(
                receiving,
                (found.slot, found.cell),
                (TraceKind::Delivered, pid, delivery),
            );
        }
    }

    /// Notes that a lease will now end without an acknowledgement.
    #[inline(always)]
    pub(super) fn trace_end(
        &self,
        receiving: ReceiverHeld<'_>,
        record: &LeaseRecord,
        kind: TraceKind,
    ) {
        let slot = record.slot.get();
        if let Ok(cell) = self.segment().cell(slot)
            && self.is_traced(cell)
        {
            let (pid, delivery) = (record.pid.get(), record.deliveries.get());
            self.note_event(receiving, (slot, cell), (kind, pid, delivery));
        }
    }

    /// Notes an event. Without memory for traces, the event is not noted.
    #[cold]
    fn note_event(
        &self,
        receiving: ReceiverHeld<'_>,
        (slot, cell): (u32, &Cell),
        (kind, pid, delivery): (TraceKind, u32, u32),
    ) {
        if !self.provide_trace(receiving, slot) {
            return;
        }
        let Ok(record) = self.segment().trace(slot) else {
            return;
        };
        let event = TraceEvent {
            kind,
            at: clock::monotonic_coarse(),
            pid,
            delivery,
        };
        match cell.has_trace() {
            true => record.take_back(&event),
            // The record contains the trace of an earlier message in the slot.
            false => record.clear(),
        }
        record.write_next(&event);
        crash_point!(TRACE_WRITTEN);
        record.count();
        cell.set_trace();
        crash_point!(TRACE_NOTED);
    }

    /// Allocates memory for the record of a slot. Returns false if no memory is available.
    fn provide_trace(&self, _: ReceiverHeld<'_>, slot: u32) -> bool {
        let roots = &self.segment().fixed().leases;
        while roots.traces.get() <= slot {
            match self.segment().populate_traces(roots.traces.get()) {
                Ok(usable) => roots.traces.set(usable),
                Err(_) => return false,
            }
        }
        true
    }

    /// Returns the trace of a message that was delivered `deliveries` times. Returns `None` if the message's events are not noted.
    pub(super) fn trace_of(
        &self,
        _: ReceiverHeld<'_>,
        found: &FoundMessage<'_>,
        deliveries: u32,
    ) -> Option<Trace> {
        if !self.is_traced(found.cell) {
            return None;
        }
        let has_memory = found.slot < self.segment().fixed().leases.traces.get();
        if !has_memory || !found.cell.has_trace() {
            return Some(Trace::default());
        }
        let trace = self.segment().trace(found.slot).ok()?.read();
        Some(trace.as_delivered(deliveries))
    }

    /// Sets the trace of a message that arrives from another queue. If no memory is available, the message gets no trace.
    pub(super) fn set_trace(
        &self,
        receiving: ReceiverHeld<'_>,
        found: &FoundMessage<'_>,
        trace: &Trace,
    ) {
        if self.provide_trace(receiving, found.slot)
            && let Ok(record) = self.segment().trace(found.slot)
        {
            record.write(trace);
            found.cell.set_trace();
        }
    }

    /// Returns the trace with which a record's message leaves the queue at the time `at`. The trace in the queue stays unchanged, because the move
    /// may fail.
    pub(super) fn trace_of_departure(
        &self,
        receiving: ReceiverHeld<'_>,
        found: &FoundMessage<'_>,
        record: &LeaseRecord,
        at: u64,
    ) -> Option<Trace> {
        let delivery = record.deliveries.get();
        let mut trace = self.trace_of(receiving, found, delivery)?;
        let kind = match (
            State::of(record),
            Reason::of_number(record.until.get() as u32),
        ) {
            (State::Redriving, _) => TraceKind::Redriven,
            (_, Reason::Expired) => TraceKind::DeadExpired,
            (_, Reason::Undelivered) => TraceKind::DeadUndelivered,
            (_, Reason::Dropped) => TraceKind::DeadDropped,
            (_, Reason::Unknown) => TraceKind::Unknown,
        };
        trace.add(TraceEvent {
            kind,
            at,
            pid: record.pid.get(),
            delivery,
        });
        Some(trace)
    }
}
