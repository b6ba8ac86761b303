//! Receiving several messages under one lock.
//!
//! As in single receives, each message is copied out and taken before the next message. A receiver that dies loses the messages that it had taken,
//! and no message is delivered twice. The freed slots, the counts and the room for waiters are published once, at the end of the batch.

use super::super::found::{FoundMessage, Taken};
use super::super::wait::{Receipt, Taker};
use super::super::{DeferredWakes, Engine, Refused};
use crate::crash::crash_point;
use crate::fault::Fault;
use crate::lock::SLICE;
use crate::lock::tokens::ReceiverHeld;
use crate::posix_engine::segment::Ring;
use crate::sys::clock::Deadline;
use crate::sys::thread::Thread;
use crate::waiters::Node;
use crate::waiters::{List, Waiters};

/// The distance, in ring positions, at which the receiver prefetches cells.
const AHEAD: u64 = 8;

/// The destination of received messages.
pub trait Sink {
    /// Returns room of at least `len` bytes for the next message. If the method returns `None`, the message stays in the queue and the receive ends.
    /// The caller of this method holds the receiver lock.
    fn place(&mut self, len: usize) -> Option<&mut [u8]>;

    /// Tells the sink that a message is taken. The bytes of the message are at the beginning of the room that [`place`](Self::place) has returned.
    fn taken(&mut self, taken: Taken);
}

/// Receives the queued messages that fit into the sink.
struct Collect<'a, S: ?Sized> {
    sink: &'a mut S,
    most: usize,
    /// True if the first message was offered to this thread's node. In this case, the call has not yet searched the queue for more messages.
    offered: bool,
}

/// The reason why a run of messages ends. A run is a sequence of messages that are taken from the ring in order.
enum Stopped {
    /// The next message to deliver must be chosen: the message at the front has expired, or a lower priority may have its turn. A run can't drop an
    /// expired message, because the drop would change the free slots.
    ToSelect,
    /// The queue is empty, enough messages are taken, or the next message does not fit into the sink.
    Over,
}

impl<S: Sink + ?Sized> Receipt for Collect<'_, S> {
    type Outcome = usize;

    fn take(&mut self, taker: Taker<'_>, wakes: &mut DeferredWakes) -> Result<usize, Refused> {
        let Taker {
            receiving, engine, ..
        } = taker;
        engine.receive_batch_locked(receiving, self.most, self.sink, wakes)
    }

    fn accept(
        &mut self,
        taker: Taker<'_>,
        node: &Node,
        found: FoundMessage<'_>,
    ) -> Result<usize, Refused> {
        let engine = taker.engine;
        // A sink has room for each possible first message, or has no room at all. Without room, the message returns to the queue.
        let room = self.sink.place(found.len).ok_or(Refused::NotNow)?;
        engine.segment().copy_out(found.cell, found.len, room)?;
        engine.finish_offer(taker.receiving, node, &found)?;
        self.sink.taken(found.taken());
        self.offered = true;
        Ok(1)
    }
}

impl Engine {
    /// Waits until `deadline` for a first message. Then receives up to `most` messages that are in the queue. Returns 0 if the sink has no room for
    /// the first message.
    pub fn receive_batch<S: Sink + ?Sized>(
        &self,
        me: &Thread,
        most: usize,
        sink: &mut S,
        deadline: Deadline,
    ) -> Result<usize, Refused> {
        let mut collect = Collect {
            sink,
            most,
            offered: false,
        };
        let received = match self.try_take(me, &mut collect, deadline) {
            Err(Refused::NotNow) => self.receive_slow(me, &mut collect, deadline)?,
            other => other.map_err(|refused| refused.by(deadline))?,
        };
        if !collect.offered || most <= received {
            return Ok(received);
        }
        // The call succeeds with the first message, even if it can't take more messages.
        collect.most = most - received;
        let more = self.try_take(me, &mut collect, deadline.or_slice(SLICE));
        Ok(received + more.unwrap_or(0))
    }

    /// Takes the messages that are in the queue, in order of delivery.
    fn receive_batch_locked<S: Sink + ?Sized>(
        &self,
        receiving: ReceiverHeld<'_>,
        most: usize,
        sink: &mut S,
        wakes: &mut DeferredWakes,
    ) -> Result<usize, Refused> {
        let Some(first) = self.next(receiving, wakes)? else {
            return Err(Refused::NotNow);
        };
        self.pacing.received();
        self.refresh_sent_seen();
        let mut received = 0;
        let outcome = self.take_all(receiving, first, most, sink, &mut received);
        if received == 0 {
            return outcome.map(|()| 0).map_err(Refused::from);
        }
        self.note_receive();
        // The call succeeds with the messages taken so far, even if the next message or the list of waiters is corrupt.
        let waits = Waiters::of(self.segment()).len(List::Senders) != 0;
        if outcome.is_err() || waits && self.admit(receiving, wakes).is_err() {
            self.note_damage();
        }
        self.publish_counts(receiving);
        crash_point!(RECEIVE_ADMITTED);
        Ok(received)
    }

    /// Takes messages until the queue is empty, enough messages are taken, or a message does not fit.
    fn take_all<S: Sink + ?Sized>(
        &self,
        receiving: ReceiverHeld<'_>,
        first: FoundMessage<'_>,
        most: usize,
        sink: &mut S,
        received: &mut usize,
    ) -> Result<(), Fault> {
        let mut next = Some(first);
        while let Some(found) = next.take()
            && *received < most
        {
            let left = most - *received;
            let (run, stopped) = self.take_run(receiving, found, left, sink);
            *received += run;
            match stopped? {
                Stopped::ToSelect => next = self.upcoming(receiving)?,
                Stopped::Over => {}
            }
        }
        Ok(())
    }

    /// Takes messages from the ring in order, as long as the next message in the ring is the next one to deliver. Frees their slots together. Returns
    /// the number of messages, and the reason to stop.
    #[inline(always)]
    fn take_run<S: Sink + ?Sized>(
        &self,
        receiving: ReceiverHeld<'_>,
        first: FoundMessage<'_>,
        most: usize,
        sink: &mut S,
    ) -> (usize, Result<Stopped, Fault>) {
        let published = &self.segment().fixed().published;
        let before = published.freed(receiving);
        let mut freed = before;
        let mut found = first;
        let stopped = loop {
            match self.take_one(receiving, &found, sink, freed) {
                Ok(true) => freed = freed.wrapping_add(1),
                Ok(false) => break Ok(Stopped::Over),
                Err(fault) => break Err(fault),
            }
            if freed.wrapping_sub(before) == most as u64 {
                break Ok(Stopped::Over);
            }
            match self.best(receiving) {
                Ok(Some(next)) if self.is_passed_over(&next) => break Ok(Stopped::ToSelect),
                Ok(Some(next)) => found = next,
                Ok(None) => break Ok(Stopped::Over),
                Err(fault) => break Err(fault),
            }
        };
        if freed != before {
            crash_point!(RECEIVE_BATCH_TAKEN);
            published.free_up_to(receiving, freed);
            crash_point!(RECEIVE_FREED);
        }
        (freed.wrapping_sub(before) as usize, stopped)
    }

    /// Copies a message out, takes the message, and writes its slot into the ring at position `freed`. Returns false if the message does not fit into
    /// the sink.
    #[inline(always)]
    fn take_one<S: Sink + ?Sized>(
        &self,
        receiving: ReceiverHeld<'_>,
        found: &FoundMessage<'_>,
        sink: &mut S,
        freed: u64,
    ) -> Result<bool, Fault> {
        self.prefetch_in_batch(found);
        let Some(room) = sink.place(found.len) else {
            return Ok(false);
        };
        self.segment().copy_out(found.cell, found.len, room)?;
        crash_point!(RECEIVE_COPIED);
        self.take(receiving, found)?;
        // From `freed` on, the entries of the ring belong to the owner of the receiver lock.
        Ring::of(self.segment()).write(freed, found.slot);
        crash_point!(RECEIVE_RETURNED);
        sink.taken(found.taken());
        Ok(true)
    }

    /// Reads the senders' cursor once for a batch. The read is omitted if the last value that was read is far enough ahead.
    #[inline(always)]
    fn refresh_sent_seen(&self) {
        let fixed = self.segment().fixed();
        let drained = fixed.receiver.drained_hint();
        if fixed.receiver.known_sent(drained) <= AHEAD as i64 {
            fixed.receiver.see_sent(fixed.sender.sent_hint());
        }
    }

    /// Prefetches the cell of a later message, if that message was sent.
    #[inline(always)]
    fn prefetch_in_batch(&self, found: &FoundMessage<'_>) {
        if found.is_stored() {
            return self.prefetch_stored(found);
        }
        let receiver = &self.segment().fixed().receiver;
        let position = receiver.drained_hint().wrapping_add(AHEAD);
        if receiver.known_sent(position) > 0
            && let Ok((slot, _)) = Ring::of(self.segment()).slot(position)
        {
            self.segment().prefetch(slot);
        }
    }
}
