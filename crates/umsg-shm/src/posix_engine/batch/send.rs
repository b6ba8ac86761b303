//! Sends several messages under one lock: either all of them or none, or as many as the queue has room for.

use super::super::send::ATTEMPTS;
use super::super::tag::priority_of;
use super::super::watch::DETOUR;
use super::super::{Engine, Refused};
use super::wait::Turn;
use crate::crash::crash_point;
use crate::fault::Fault;
use crate::lock::SLICE;
use crate::lock::tokens::{BothHeld, SenderHeld};
use crate::posix_engine::segment::{Cell, OnFull, Ring, Segment};
use crate::sys::clock::{self, Deadline};
use crate::sys::thread::Thread;

/// The distance, in messages, at which the sender prefetches cells. A batch needs the next cell sooner than single sends do, so the distance is
/// greater than in `posix_engine/send.rs`.
const AHEAD: u64 = 8;

/// Messages that one call sends.
#[allow(
    clippy::len_without_is_empty,
    reason = "a batch has at least one message"
)]
pub trait Batch {
    /// Returns the number of messages.
    fn len(&self) -> usize;

    /// Returns the bytes and the priority of a message, both checked. Each attempt to send calls this function again.
    fn message(&self, index: usize) -> (&[u8], usize);
}

/// The messages of a batch except the first one.
struct Rest<'a, B: ?Sized>(&'a B);

impl<B: Batch + ?Sized> Batch for Rest<'_, B> {
    fn len(&self) -> usize {
        self.0.len() - 1
    }

    fn message(&self, index: usize) -> (&[u8], usize) {
        self.0.message(index + 1)
    }
}

/// A single message and its priority are a batch of one message.
impl Batch for (&[u8], usize) {
    fn len(&self) -> usize {
        1
    }

    fn message(&self, _: usize) -> (&[u8], usize) {
        *self
    }
}

/// How much of a batch the call must send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Amount {
    /// Send all messages, or none.
    All,
    /// Send at least one message: the first messages of the batch, as many as the queue has room for.
    Some,
}

/// The result of an attempt under the sender lock in a queue with room.
enum Attempt {
    Sent(usize),
    /// The queue has room, but too few free slots. The value is the necessary number of free slots.
    NeedsSlots(u64),
}

/// The state of a batch whose messages are written, while its *gate* is not stamped yet. The gate is the cell of the first message.
struct Filled<'a> {
    /// The number of messages that are written. After an error, this number is smaller than the number of messages in the batch.
    count: u64,
    bytes: u64,
    /// The gate: the cell of the first message.
    gate: Option<&'a Cell>,
    /// The priority of the last message that is written.
    key: usize,
    /// The index of the first message in the last run of messages with equal priorities.
    run: u64,
    fault: Option<Fault>,
}

/// A whole batch, which is sent when its turn comes.
pub(in crate::posix_engine) struct Whole<'a, B: ?Sized>(pub(in crate::posix_engine) &'a B);

impl<B: Batch + ?Sized> Turn for Whole<'_, B> {
    type Outcome = ();

    fn wanted(&self) -> u64 {
        self.0.len() as u64
    }

    fn take(&mut self, both: BothHeld<'_>, engine: &Engine, me: &Thread) -> Result<(), Refused> {
        let fixed = engine.segment().fixed();
        let freed = fixed.published.freed(both.receiver());
        fixed.sender.see_freed(both.sender(), freed);
        let first = fixed.sender.next_position(both.sender());
        engine.publish_batch(both.sender(), me, self.0, first, self.wanted(), Amount::All)?;
        Ok(())
    }
}

impl Engine {
    /// Sends all messages together, and waits for room until `deadline`.
    pub fn send_batch<B: Batch + ?Sized>(
        &self,
        me: &Thread,
        batch: &B,
        deadline: Deadline,
    ) -> Result<(), Refused> {
        let attempt = || {
            self.try_send_batch(me, batch, Amount::All, deadline)
                .map(drop)
        };
        let messages = batch.len() as u64;
        match attempt() {
            Err(Refused::NotNow) => self.wait_for_room(me, messages, deadline, attempt, |calm| {
                self.block_for_turn(me, &mut Whole(batch), calm, deadline)
            }),
            other => other.map_err(|refused| refused.by(deadline)),
        }
    }

    /// Sends the first messages of the batch, as many as the queue has room for. If the queue has no room, waits until `deadline` to send the first
    /// message alone, and then adds the messages that fit. The batch must not be empty.
    pub fn send_some<B: Batch + ?Sized>(
        &self,
        me: &Thread,
        batch: &B,
        deadline: Deadline,
    ) -> Result<usize, Refused> {
        match self.try_send_batch(me, batch, Amount::Some, deadline) {
            Err(Refused::NotNow) => {}
            other => return other.map_err(|refused| refused.by(deadline)),
        }
        let (message, key) = batch.message(0);
        self.send(me, message, key, deadline)?;
        if batch.len() == 1 {
            return Ok(1);
        }
        // The call succeeds with the first message, even if it can't send more messages.
        let soon = deadline.or_slice(SLICE);
        let more = self.try_send_batch(me, &Rest(batch), Amount::Some, soon);
        Ok(1 + more.unwrap_or(0))
    }

    /// Sends the batch, or a part of it, if the queue has room now. Returns the number of sent messages.
    fn try_send_batch<B: Batch + ?Sized>(
        &self,
        me: &Thread,
        batch: &B,
        amount: Amount,
        deadline: Deadline,
    ) -> Result<usize, Refused> {
        let mut attempts = ATTEMPTS;
        let sent = loop {
            let held = self.lock_sender(me, deadline)?;
            let sending = held.sender();
            let attempt = if self.segment().fixed().wait_flags.attention() & DETOUR != 0 {
                held.unlock();
                self.send_batch_with_duties(me, batch, amount, deadline)
            } else {
                let attempt = self.send_batch_locked(sending, me, batch, amount);
                held.unlock();
                attempt
            };
            self.segment().check()?;
            match attempt {
                Ok(Attempt::Sent(count)) => break count,
                Ok(Attempt::NeedsSlots(wanted)) => match self.grow(me, deadline, wanted) {
                    // The call tries again to get a busy lock until the deadline, as in the send of a single message.
                    Err(Refused::Fault(Fault::Busy)) if !deadline.has_passed() => {}
                    other => other?,
                },
                Err(Refused::NotNow) if attempts == 0 => return Err(Refused::NotNow),
                Err(Refused::NotNow) if self.policy().on_full == OnFull::DropOldest => {
                    attempts -= 1;
                    // If the new messages themselves are dropped, the messages that would fit into an empty queue count as sent.
                    let count = batch.len().min(self.segment().layout().max_messages);
                    let keys = (0..count).map(|index| batch.message(index).1);
                    let best = keys.max().unwrap_or_default();
                    if !self.make_room_for_batch(me, best, count, deadline)? {
                        return Ok(count);
                    }
                }
                Err(Refused::NotNow) if self.finds_room_after_all(me, deadline)? => attempts -= 1,
                Err(refused) => return Err(refused),
            }
        };
        self.serve_if_asked(me, deadline);
        Ok(sent)
    }

    /// Sends a batch as [`send_batch_locked`](Self::send_batch_locked) does, in a queue that a process polls, that is closed for sending, or that has
    /// delayed messages.
    #[cold]
    fn send_batch_with_duties<B: Batch + ?Sized>(
        &self,
        me: &Thread,
        batch: &B,
        amount: Amount,
        deadline: Deadline,
    ) -> Result<Attempt, Refused> {
        self.look_for_producers(me, deadline);
        if !self.must_ring() {
            self.store_due(me, deadline);
            let held = self.lock_sender(me, deadline)?;
            let attempt = match self.must_ring() {
                true => None,
                false => Some(self.send_batch_locked(held.sender(), me, batch, amount)),
            };
            held.unlock();
            if let Some(attempt) = attempt {
                return attempt;
            }
        }
        let send = |engine: &Engine, sending: SenderHeld<'_>| {
            engine.send_batch_locked(sending, me, batch, amount)
        };
        self.send_ringing(me, batch.len() as i64, deadline, send)
    }

    fn send_batch_locked<B: Batch + ?Sized>(
        &self,
        sending: SenderHeld<'_>,
        me: &Thread,
        batch: &B,
        amount: Amount,
    ) -> Result<Attempt, Refused> {
        let fixed = self.segment().fixed();
        let first = fixed.sender.next_position(sending);
        let wanted = batch.len() as u64;
        let count = self.room(first, wanted);
        if count == 0 || amount == Amount::All && count < wanted {
            return Err(Refused::NotNow);
        }
        if !fixed.has_free_slots(sending, first, count) {
            return Ok(Attempt::NeedsSlots(count));
        }
        let sent = self.publish_batch(sending, me, batch, first, count, amount)?;
        Ok(Attempt::Sent(sent))
    }

    /// Fills the free slots from `first` on, and sends their messages.
    pub(super) fn publish_batch<B: Batch + ?Sized>(
        &self,
        sending: SenderHeld<'_>,
        me: &Thread,
        batch: &B,
        first: u64,
        count: u64,
        amount: Amount,
    ) -> Result<usize, Fault> {
        let sender = &self.segment().fixed().sender;
        let mut end = first.wrapping_add(count);
        // The end of the batch is stored before the stamps, because a repair uses it to find all stamps of a dead sender.
        sender.set_batch_end(sending, end);
        crash_point!(BATCH_NOTED);
        let filled = self.fill_batch(sending, me, batch, first, count);
        match filled.fault {
            Some(fault) if amount == Amount::All || filled.count == 0 => {
                take_back(sending, self.segment(), first, end)?;
                return Err(fault);
            }
            Some(_) => {
                end = first.wrapping_add(filled.count);
                sender.set_batch_end(sending, end);
            }
            None => {}
        }
        self.open_gate(sending, first, end, &filled)?;
        Ok(filled.count as usize)
    }

    /// Writes the messages into their cells, and stamps all cells except the first.
    #[inline(always)]
    fn fill_batch<B: Batch + ?Sized>(
        &self,
        sending: SenderHeld<'_>,
        me: &Thread,
        batch: &B,
        first: u64,
        count: u64,
    ) -> Filled<'_> {
        let fixed = self.segment().fixed();
        let ring = Ring::of(self.segment());
        let now = clock::monotonic_coarse();
        let free = fixed.sender.known_free(first);
        let mut filled = Filled {
            count: 0,
            bytes: 0,
            gate: None,
            key: fixed.run.last_priority(sending),
            run: 0,
            fault: None,
        };
        for index in 0..count {
            let position = first.wrapping_add(index);
            if free.wrapping_sub(index) > AHEAD
                && let Ok((slot, _)) = ring.slot(position.wrapping_add(AHEAD))
            {
                self.segment().prefetch_to_write(slot);
            }
            let message = batch.message(index as usize);
            if let Err(fault) = self.fill_one(sending, me, &mut filled, position, message, now) {
                filled.fault = Some(fault);
                break;
            }
        }
        fixed.sender.note_send(now);
        filled
    }

    #[inline(always)]
    fn fill_one<'a>(
        &'a self,
        sending: SenderHeld<'_>,
        me: &Thread,
        filled: &mut Filled<'a>,
        position: u64,
        (message, key): (&[u8], usize),
        now: u64,
    ) -> Result<(), Fault> {
        let priority = priority_of(key as u64);
        if priority != filled.key {
            self.provide_fifo(priority)?;
        }
        let (slot, cell) = Ring::of(self.segment()).slot(position)?;
        self.place_bytes(sending, slot, cell, message)?;
        cell.describe(me.pid(), message.len(), key, now);
        if priority != filled.key {
            (filled.key, filled.run) = (priority, filled.count);
        }
        match filled.gate {
            None => filled.gate = Some(cell),
            Some(_) => Ring::publish(cell, position),
        }
        filled.count += 1;
        filled.bytes = filled.bytes.wrapping_add(message.len() as u64);
        Ok(())
    }

    /// Stamps the cell of the first message. This store sends all messages of the batch.
    fn open_gate(
        &self,
        sending: SenderHeld<'_>,
        first: u64,
        end: u64,
        filled: &Filled<'_>,
    ) -> Result<(), Fault> {
        let fixed = self.segment().fixed();
        let sender = &fixed.sender;
        let gate = filled.gate.ok_or(Fault::Damaged)?;
        if filled.run != 0 || fixed.run.last_priority(sending) != filled.key {
            // RUN: the call stores the one-priority word, which describes the last run of messages of one priority. The page for the list of that
            // priority has memory, so the call can't fail.
            self.announce_slow(sending, first.wrapping_add(filled.run), filled.key)?;
        }
        sender.prepare_batch_bytes(sending, first, filled.bytes);
        crash_point!(BATCH_STAMPED);
        Ring::publish(gate, first);
        crash_point!(BATCH_PUBLISHED);
        sender.count_batch(sending, end);
        crash_point!(SEND_COUNTED);
        Ok(())
    }
}

/// Returns the end of a batch that a sender has begun and not counted as sent. Returns `None` if no such batch exists.
pub(in crate::posix_engine) fn unfinished(
    segment: &Segment,
    sent: u64,
) -> Result<Option<u64>, Fault> {
    let end = segment.fixed().sender.batch_end();
    let left = end.wrapping_sub(sent);
    match left as i64 {
        ..=0 => Ok(None),
        _ if left > segment.layout().slots as u64 => Err(Fault::Damaged),
        _ => Ok(Some(end)),
    }
}

/// Removes the stamps of a batch whose first cell has no stamp: the batch was not sent.
pub(in crate::posix_engine) fn take_back(
    sending: SenderHeld<'_>,
    segment: &Segment,
    first: u64,
    end: u64,
) -> Result<(), Fault> {
    let ring = Ring::of(segment);
    for step in 1..end.wrapping_sub(first) {
        if let Some((_, cell)) = ring.published(first.wrapping_add(step))? {
            cell.clear_stamp();
        }
    }
    crash_point!(BATCH_TAKEN_BACK);
    segment.fixed().sender.set_batch_end(sending, first);
    Ok(())
}
