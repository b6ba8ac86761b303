//! The trace of a message, in a region outside of the slot's cell: deliveries, returns and moves, with their times and processes.
//!
//! A queue notes traces if its creator has requested them. A bit of the cell shows whether the message has a trace
//! ([`Cell::has_trace`](super::Cell::has_trace)). The first event sets the bit, and the next send to the slot clears it together with the rest of the
//! word. So a send does nothing for traces. When a message moves to a dead-letter queue and back, its trace moves, too.
//!
//! The record is a ring of events. A writer holds the receiver lock, writes the event, and then counts the event. The place of the next event is
//! therefore never read: a writer may have died while it wrote to this place. The record keeps one event more than a reader gets. If the last event
//! is omitted, because its process died before the step took effect, the reader gets this older event. A trace is only for display. Every process
//! that may use the queue can write these words, so every combination of values is a valid trace.

use crate::sync::{Guarded32, Guarded64};

/// The number of places for events in the record of a slot.
const PLACES: usize = if cfg!(loom) { 4 } else { 15 };
/// The maximum number of events that a reader gets. The reader gets the last events.
pub const MOST_EVENTS: usize = PLACES - 2;

/// The kind of an event.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum TraceKind {
    /// No event: the place in the record was never written.
    #[default]
    None,
    /// A process leased the message.
    Delivered,
    /// The process with the lease returned the message.
    Returned,
    /// The lease ended at its time limit.
    TimedOut,
    /// The process with the lease died.
    HolderDied,
    /// The message was older than the time to live, and went to the dead-letter queue.
    DeadExpired,
    /// The message was delivered as often as the queue allows, and went to the dead-letter queue.
    DeadUndelivered,
    /// The queue was full, and the message went to the dead-letter queue.
    DeadDropped,
    /// The message was sent back from a dead-letter queue.
    Redriven,
    /// This version does not know the code in the segment.
    Unknown,
}

/// The kinds in the order of their codes.
const KINDS: [TraceKind; 9] = [
    TraceKind::None,
    TraceKind::Delivered,
    TraceKind::Returned,
    TraceKind::TimedOut,
    TraceKind::HolderDied,
    TraceKind::DeadExpired,
    TraceKind::DeadUndelivered,
    TraceKind::DeadDropped,
    TraceKind::Redriven,
];

/// The number of low bits in the word `what` for the kind. The delivery number is in the higher bits.
const KIND_BITS: u32 = 4;
/// The maximum delivery number in a trace.
const MOST_DELIVERIES: u32 = u32::MAX >> KIND_BITS;
/// The highest code, for an unknown kind: if an event of an unknown kind is copied, the copy gets this code.
const UNKNOWN: u32 = (1 << KIND_BITS) - 1;

/// An event of a message.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TraceEvent {
    pub kind: TraceKind,
    /// The time of the event, in nanoseconds of the machine's clock.
    pub at: u64,
    /// The process that leased the message, had the lease, or moved the message.
    pub pid: u32,
    /// The number of the delivery in this queue, counted from 1. 0 for a message that was not delivered.
    pub delivery: u32,
}

impl TraceEvent {
    fn what(&self) -> u32 {
        let kind = KINDS.iter().position(|kind| *kind == self.kind);
        self.delivery.min(MOST_DELIVERIES) << KIND_BITS | kind.map_or(UNKNOWN, |kind| kind as u32)
    }

    fn of(at: u64, pid: u32, what: u32) -> TraceEvent {
        let kind = KINDS.get((what & UNKNOWN) as usize);
        TraceEvent {
            kind: kind.copied().unwrap_or(TraceKind::Unknown),
            at,
            pid,
            delivery: what >> KIND_BITS,
        }
    }

    /// Returns whether the event ends a delivery.
    fn ends_delivery(&self) -> bool {
        matches!(
            self.kind,
            TraceKind::Returned | TraceKind::TimedOut | TraceKind::HolderDied
        )
    }

    /// Returns whether `other` is the same step of a message. A process may have noted `self` and died before the step took effect; the step is then
    /// noted once more.
    fn is_same_step(&self, other: &TraceEvent) -> bool {
        let same_kind = self.kind == other.kind || self.ends_delivery() && other.ends_delivery();
        same_kind && self.delivery == other.delivery.min(MOST_DELIVERIES)
    }
}

/// An event, in the form that a segment contains.
#[repr(C)]
#[derive(Default)]
struct EventRecord {
    at: Guarded64,
    pid: Guarded32,
    what: Guarded32,
}

/// A trace, in the form that a segment contains.
#[repr(C)]
#[derive(Default)]
pub struct TraceRecord {
    /// The number of events that were ever noted. Event n is at index n modulo the number of places.
    noted: Guarded32,
    _spare: [Guarded32; 3],
    events: [EventRecord; PLACES],
}

#[cfg(not(loom))]
const _: () = assert!(size_of::<TraceRecord>() == 256);

/// A trace in the memory of a process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Trace {
    noted: u32,
    events: [TraceEvent; PLACES],
}

impl Trace {
    /// Returns the known events, the oldest first.
    pub fn events(&self) -> impl ExactSizeIterator<Item = &TraceEvent> {
        (self.forgotten()..self.noted).map(|n| self.event(n))
    }

    fn event(&self, n: u32) -> &TraceEvent {
        &self.events[n as usize % PLACES]
    }

    /// Returns the number of the oldest event that a reader gets. The events of a message are numbered from 0.
    fn first(&self) -> u32 {
        self.noted.saturating_sub(MOST_EVENTS as u32)
    }

    /// Returns the number of the oldest event that a copy of the trace contains. If older events are left out, the copy has one event more than a
    /// reader gets.
    fn first_kept(&self) -> u32 {
        self.first().saturating_sub(1)
    }

    /// Returns how many of the message's first events are unknown. If a place has no event, all events before it are unknown, too. Such places occur
    /// if the count of events is forged. In a copy, the place of the oldest event may be empty.
    pub fn forgotten(&self) -> u32 {
        let mut places = (self.first()..self.noted).rev();
        let empty = places.find(|n| self.event(*n).kind == TraceKind::None);
        empty.map_or(self.first(), |n| n + 1)
    }

    /// Adds an event.
    pub(crate) fn add(&mut self, event: TraceEvent) {
        self.events[self.noted as usize % PLACES] = event;
        self.noted = self.noted.wrapping_add(1);
    }

    /// Returns the trace of a message that was delivered `deliveries` times. If a process noted a delivery and died before the lease took effect, the
    /// noted event has a higher delivery number and is omitted.
    pub(crate) fn as_delivered(mut self, deliveries: u32) -> Trace {
        let Some(last) = self.events().last() else {
            return self;
        };
        if last.kind == TraceKind::Delivered && last.delivery > deliveries.min(MOST_DELIVERIES) {
            self.noted -= 1;
        }
        self
    }
}

impl TraceRecord {
    /// Empties the record, for another message.
    pub(crate) fn clear(&self) {
        self.noted.set(0);
    }

    /// Removes the last event if it notes the same step as `event`.
    pub(crate) fn take_back(&self, event: &TraceEvent) {
        let noted = self.noted.get();
        let Some(last) = noted.checked_sub(1) else {
            return;
        };
        if self.event(last).is_same_step(event) {
            self.noted.set(last);
        }
    }

    /// Writes an event after the counted events. A call of [`count`](Self::count) then adds the event to the trace.
    pub(crate) fn write_next(&self, event: &TraceEvent) {
        let place = &self.events[self.noted.get() as usize % PLACES];
        place.at.set(event.at);
        place.pid.set(event.pid);
        place.what.set(event.what());
    }

    /// Counts the event that [`write_next`](Self::write_next) has written, and thereby adds it to the trace.
    pub(crate) fn count(&self) {
        // After 2^32 events, the number is 0, and the trace is empty.
        self.noted.set(self.noted.get().wrapping_add(1));
    }

    fn event(&self, n: u32) -> TraceEvent {
        let place = &self.events[n as usize % PLACES];
        TraceEvent::of(place.at.get(), place.pid.get(), place.what.get())
    }

    /// Writes a complete trace, for a message that no other process sees yet.
    pub(crate) fn write(&self, trace: &Trace) {
        for n in trace.first_kept()..trace.noted {
            let (event, place) = (trace.event(n), &self.events[n as usize % PLACES]);
            place.at.set(event.at);
            place.pid.set(event.pid);
            place.what.set(event.what());
        }
        self.noted.set(trace.noted);
    }

    /// Reads a trace. Every combination of values is a valid trace.
    pub(crate) fn read(&self) -> Trace {
        let mut trace = Trace {
            noted: self.noted.get(),
            ..Trace::default()
        };
        for n in trace.first_kept()..trace.noted {
            trace.events[n as usize % PLACES] = self.event(n);
        }
        trace
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    fn event(n: u32) -> TraceEvent {
        TraceEvent {
            kind: TraceKind::Delivered,
            at: n.into(),
            pid: n + 1,
            delivery: n + 2,
        }
    }

    #[test]
    fn a_trace_keeps_the_last_events_and_counts_the_others() {
        let (record, mut trace) = (TraceRecord::default(), Trace::default());
        for n in 0..40 {
            record.write_next(&event(n));
            // If the process dies at this point, the event is not noted, and the earlier events are intact.
            assert_eq!(record.read().noted, trace.noted);
            assert!(record.read().events().eq(trace.events()));
            record.count();
            trace.add(event(n));
            let read = record.read();
            let kept: Vec<_> = read.events().copied().collect();
            let first = (n + 1).saturating_sub(MOST_EVENTS as u32);
            assert_eq!(kept, (first..=n).map(event).collect::<Vec<_>>());
            assert_eq!(read.forgotten(), first);
            let copy = TraceRecord::default();
            copy.write(&read);
            assert_eq!(copy.read(), read);
        }
    }

    #[test]
    fn a_step_that_did_not_take_effect_is_replaced() {
        let record = TraceRecord::default();
        let note = |event: TraceEvent| {
            record.take_back(&event);
            record.write_next(&event);
            record.count();
        };
        let ended = |kind| TraceEvent { kind, ..event(0) };
        note(event(0));
        note(TraceEvent { pid: 9, ..event(0) });
        note(ended(TraceKind::Returned));
        note(ended(TraceKind::HolderDied));
        let kinds: Vec<_> = record.read().events().map(|e| (e.kind, e.pid)).collect();
        assert_eq!(
            kinds,
            [(TraceKind::Delivered, 9), (TraceKind::HolderDied, 1)]
        );
        note(event(1));
        assert_eq!(record.read().as_delivered(2).events().len(), 2);
        assert_eq!(record.read().as_delivered(3).events().len(), 3);
    }

    #[test]
    fn an_event_that_does_not_count_leaves_the_one_before_all_others() {
        let record = TraceRecord::default();
        for n in 0..40 {
            record.write_next(&event(n));
            record.count();
        }
        let kept = |last: u32| (last - MOST_EVENTS as u32..last).map(event);
        let copy = TraceRecord::default();
        copy.write(&record.read());
        for record in [&record, &copy] {
            // The last event is written but not counted, as after the death of a writer.
            record.write_next(&event(99));
            let read = record.read().as_delivered(40);
            assert!(read.events().copied().eq(kept(39)));
            record.take_back(&event(39));
            assert!(record.read().events().copied().eq(kept(39)));
        }
    }

    #[test]
    fn no_reader_gets_an_event_without_a_kind() {
        let record = TraceRecord::default();
        // The test forges the count of events: only the first two places are written.
        for n in 0..2 {
            record.write_next(&event(n));
            record.count();
        }
        record.noted.set(9);
        assert_eq!(record.read().events().len(), 0);
        assert_eq!(record.read().forgotten(), 9);
        for n in 9..12 {
            record.write_next(&event(n));
            record.count();
        }
        let copy = TraceRecord::default();
        copy.write(&record.read());
        for record in [&record, &copy] {
            let read = record.read();
            assert!(read.events().copied().eq((9..12).map(event)));
            assert_eq!(read.forgotten(), 9);
        }
        record.take_back(&event(11));
        assert!(record.read().events().copied().eq((9..11).map(event)));
    }

    #[test]
    fn any_words_are_a_trace() {
        let record = TraceRecord::default();
        let words = [
            (u32::MAX, MOST_EVENTS),
            (u32::MAX - 1, MOST_EVENTS),
            (1 << 31, 0),
            (16, 0),
            (15, MOST_EVENTS),
        ];
        for (word, known) in words {
            record.noted.set(word);
            for place in &record.events {
                place.what.set(word);
            }
            let read = record.read();
            assert_eq!(read.events().len(), known);
            assert_eq!(read.events().len() as u32 + read.forgotten(), word);
            let copy = TraceRecord::default();
            copy.write(&read);
            assert_eq!(copy.read(), read);
            let is_kind = |e: &TraceEvent| e.kind == TraceKind::Unknown;
            assert!(read.events().all(is_kind));
            assert!(
                read.as_delivered(0)
                    .events()
                    .all(|e| e.delivery <= MOST_DELIVERIES)
            );
            record.write_next(&event(1));
            record.count();
        }
        record.noted.set(0);
        assert_eq!(record.read().as_delivered(0).events().len(), 0);
    }
}
