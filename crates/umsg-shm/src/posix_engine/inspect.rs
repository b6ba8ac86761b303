//! Inspection: counts of messages, and copies of messages that stay in the queue.

use super::wait::LEASES;
use super::{Engine, Refused, batch};
use crate::fault::Fault;
use crate::leases;
#[cfg(not(loom))]
use crate::leases::{LeaseRecord, Leases};
use crate::lock::tokens::ReceiverHeld;
use crate::posix_engine::Priorities;
use crate::posix_engine::segment::{History, Ring, Trace, has_begun};
use crate::sync::Ordering;
#[cfg(not(loom))]
use crate::sys::clock;
use crate::sys::clock::Deadline;
use crate::sys::thread::Thread;
use crate::waiters::{self, List, Node, State, Waiters};
use std::time::Duration;

/// The counts of a queue at one instant.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// The number of queued messages, and of their bytes.
    pub messages: u64,
    pub bytes: u64,
    /// The numbers of reserved and of leased messages.
    pub reserved: u64,
    pub leased: u64,
    /// The number of delayed messages.
    pub delayed: u64,
}

/// Copies of messages as they were at one instant, in order of delivery.
#[derive(Debug, Default)]
pub struct PeekedMessages {
    pub messages: Vec<Seen>,
    /// The bytes of the messages, one after the other.
    pub bytes: Vec<u8>,
    /// The histories of those messages that have a history, in order of delivery.
    pub histories: Vec<SeenHistory>,
    /// The traces of those messages that have a trace, each with the position of its message, in order of delivery.
    pub traces: Vec<(usize, Trace)>,
}

/// The history of an inspected message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SeenHistory {
    /// The position of the message among the inspected messages.
    pub position: usize,
    /// The identifier of the message, unique in the queue.
    pub id: u64,
    pub history: History,
}

/// A message that was inspected, whose bytes are in the [`PeekedMessages`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seen {
    /// The identifier of the message, unique in the queue. `None` if the message was never leased and is not in the store.
    pub id: Option<u64>,
    pub len: usize,
    pub key: usize,
    pub pid: u32,
    /// The time of the send, in nanoseconds of the machine's clock. In a snapshot, the time is of CLOCK_REALTIME.
    pub sent_at: u64,
    /// The time at which the message's time to live began, on the clock of `sent_at`. For a delayed message it is the delivery time, otherwise the
    /// time of the send.
    pub lives_since: u64,
    /// The number of leases of the message that ended without an acknowledgement.
    pub returns: u32,
    /// The delivery time of a delayed message, in nanoseconds of the machine's clock. A message that is already queued keeps its delivery time. 0 for
    /// a queued message that was not sent for a later time.
    pub due: u64,
    /// The remaining time until the delivery time, in nanoseconds. 0 for a queued message.
    pub delay: u64,
}

/// The longest wait of an inspection for a lock whose owner is stopped.
const PATIENCE: Duration = Duration::from_secs(1);

/// The distance, in messages, at which cells are prefetched.
const AHEAD: usize = 8;

/// The limit of the memory for copies, in bytes, that is faulted in before the lock is taken. Without a limit, forged counts could request any
/// amount.
const PREPARED: usize = 256 << 20;

/// The number of attempts to read counts while they change.
const ATTEMPTS: u32 = 64;

impl Engine {
    /// Repairs the receivers' side after a death, and ends the records of dead holders. Afterwards, the counts are correct.
    pub fn repair_receivers(&self, me: &Thread) {
        if self.segment().fixed().receiver.lock.is_orphaned() || self.may_reclaim() {
            // If another process has the lock, that process makes the repair.
            let _ = self.with_receiver_lock(me, Deadline::Passed, |receiving, wakes| {
                if self.may_reclaim() {
                    self.reclaim_and_serve(receiving, wakes)?;
                }
                Ok(())
            });
        }
    }

    /// Returns the same counts as [`counts`](Self::counts), but never in the middle of an operation on a polled queue or on held messages. Such an
    /// operation changes one count after the other, and rings the doorbell before its change. So the function takes the receiver lock in three cases:
    /// the queue is polled, has ever had held messages, or offers a message to a waiter. The function waits for the lock for at most a second. If it
    /// does not get the lock, it returns the counts without the lock.
    pub fn settled_counts(&self, me: &Thread) -> Counts {
        let has_had_held = || self.segment().fixed().leases.used.get() != 0;
        let has_offers = || Waiters::of(self.segment()).len(List::Offered) != 0;
        // In a model, the number of used records is plain memory, and a read without the lock would count as a race. So a model always takes the
        // lock.
        if !(self.must_ring() || has_offers() || cfg!(loom) || has_had_held()) {
            return self.counts();
        }
        let settled = self.with_receiver_lock(me, Deadline::Passed, |receiving, _| {
            let counts = self.counts();
            let offered = self.offered_leases(receiving);
            Ok(Counts {
                leased: counts.leased.saturating_add(offered),
                ..counts
            })
        });
        settled.unwrap_or_else(|_| self.counts())
    }

    /// Returns the number of messages that are offered to threads that will lease them.
    fn offered_leases(&self, _: ReceiverHeld<'_>) -> u64 {
        let is_one = |node: &Node| {
            List::of(node) == List::Offered
                && node.wanted.get() == LEASES
                && waiters::state(node) == State::Settled
        };
        let waiters = Waiters::of(self.segment());
        match waiters.len(List::Offered) {
            0 => 0,
            _ => waiters.all().filter(|(_, node)| is_one(node)).count() as u64,
        }
    }

    /// Returns the numbers of queued messages and bytes. The result is exact unless the queue changes during every attempt to read the numbers.
    pub fn counts(&self) -> Counts {
        let fixed = self.segment().fixed();
        let mut counts = Counts::default();
        for _ in 0..ATTEMPTS {
            // Acquire: the other values must be read between the two reads of the cursors.
            let (sent, is_batch) = self.ever_sent();
            let removed = fixed.published.removed();
            let held = fixed.receiver.held_so_far();
            let reserved = u64::from(fixed.leases.reserved.load(Ordering::Acquire));
            let in_the_way = u64::from(leases::in_the_way(
                fixed.leases.aside.load(Ordering::Acquire),
            ));
            let delayed = u64::from(fixed.leases.delayed.load(Ordering::Acquire));
            let bytes = fixed.sender.bytes_sent(sent, is_batch);
            let removed_bytes = fixed.published.removed_bytes();
            counts = Counts {
                messages: (sent.wrapping_sub(removed).wrapping_sub(held) as i64).max(0) as u64,
                bytes: (bytes.wrapping_sub(removed_bytes) as i64).max(0) as u64,
                reserved,
                leased: held.saturating_sub(reserved + in_the_way + delayed),
                delayed,
            };
            if self.ever_sent().0 == sent
                && fixed.published.removed() == removed
                && fixed.receiver.held_so_far() == held
            {
                break;
            }
        }
        counts
    }

    /// Returns the number of messages that were ever sent through the ring, and whether the last of these messages belong to an unfinished batch. If
    /// a sender died after the store to the stamp and before the store to the cursor, its message is sent. This function counts the message, and the
    /// next sender moves the cursor.
    pub(super) fn ever_sent(&self) -> (u64, bool) {
        let fixed = self.segment().fixed();
        let sent = fixed.sender.sent();
        let is_behind = fixed.sender.lock.is_orphaned()
            && (Ring::of(self.segment())
                .published(sent)
                .is_ok_and(|message| message.is_some())
                || fixed.receiver.drained_so_far().wrapping_sub(sent) as i64 > 0);
        if !is_behind {
            return (sent, false);
        }
        match batch::unfinished(self.segment(), sent) {
            Ok(Some(end)) => (end, true),
            _ => (sent.wrapping_add(1), false),
        }
    }

    /// Copies up to `most` messages after the first `skip`, in order of delivery, as they are at one instant. Holds the
    /// receiver lock for a time in proportion to the messages skipped and copied.
    pub fn peek(&self, me: &Thread, skip: usize, most: usize) -> Result<PeekedMessages, Refused> {
        self.peek_and(me, skip, most, |_, _| Ok(()))
    }

    /// Copies all messages in order of delivery, and after them the delayed messages, as they are at one instant.
    #[cfg(not(loom))]
    pub fn peek_at_all(&self, me: &Thread) -> Result<PeekedMessages, Refused> {
        self.peek_and(me, 0, usize::MAX, |receiving, peeked| {
            self.copy_delayed_in_order(receiving, peeked)
        })
    }

    /// Copies up to `most` delayed messages in the order of their delivery times, as they are at one instant. Holds the receiver lock for a time in
    /// proportion to all held messages.
    #[cfg(not(loom))]
    pub fn peek_at_delayed(&self, me: &Thread, most: usize) -> Result<PeekedMessages, Refused> {
        self.peek_and(me, 0, 0, |receiving, peeked| {
            let mut delayed = self.delayed(receiving)?;
            delayed.sort_by_key(|record| record.place_in_time());
            delayed.truncate(most);
            self.copy_delayed(receiving, &delayed, peeked)
        })
    }

    /// Returns the sequence numbers of all messages of the store, and of the messages that are leased, delayed or being moved, at one instant.
    /// Messages of the ring have no sequence numbers yet.
    #[cfg(not(loom))]
    pub fn numbers(&self, me: &Thread) -> Result<Vec<u64>, Refused> {
        let deadline = Deadline::after(PATIENCE);
        let mut slots = Vec::with_capacity(self.counts().messages as usize);
        self.with_receiver_lock(me, deadline, |receiving, _| {
            self.find_in_store(receiving, 0, usize::MAX, &mut slots)?;
            for record in Leases::of(self.segment()).iter() {
                let (_, record) = record?;
                let holds = !matches!(
                    leases::State::of(record),
                    leases::State::Free | leases::State::Reserved | leases::State::Arrived
                );
                if holds {
                    slots.push(record.slot.get());
                }
            }
            let number = |slot: &u32| Ok(self.segment().cell(*slot)?.sequence());
            let numbers: Result<Vec<u64>, Fault> = slots.iter().map(number).collect();
            Ok(numbers?)
        })
        .map_err(|refused| refused.by(deadline))
    }

    fn peek_and(
        &self,
        me: &Thread,
        skip: usize,
        most: usize,
        more: impl FnOnce(ReceiverHeld<'_>, &mut PeekedMessages) -> Result<(), Fault>,
    ) -> Result<PeekedMessages, Refused> {
        let deadline = Deadline::after(PATIENCE);
        let (mut slots, mut peeked) = self.room_for(most);
        self.with_receiver_lock(me, deadline, |receiving, wakes| {
            // Messages whose leases are orphaned go back to the queue first.
            if self.holds_any() && self.may_reclaim() {
                self.reclaim_and_serve(receiving, wakes)?;
            }
            self.find(receiving, skip, most, &mut slots)?;
            for (n, slot) in slots.iter().enumerate() {
                if let Some(ahead) = slots.get(n + AHEAD) {
                    self.segment().prefetch(*ahead);
                }
                let returns = self.segment().cell(*slot)?.returns();
                self.copy_seen(receiving, (*slot, returns), &mut peeked)?;
            }
            Ok(more(receiving, &mut peeked)?)
        })
        .map_err(|refused| refused.by(deadline))?;
        Ok(peeked)
    }

    /// Allocates private memory for the expected messages in advance, so that few allocations and page faults happen under the lock.
    fn room_for(&self, most: usize) -> (Vec<u32>, PeekedMessages) {
        let counts = self.counts();
        let layout = self.segment().layout();
        let messages = most.min(counts.messages as usize).min(layout.slots);
        let bytes = messages.saturating_mul(layout.message_size);
        let bytes = bytes.min(counts.bytes as usize).min(PREPARED);
        let (mut slots, mut peeked) = (Vec::new(), PeekedMessages::default());
        // An error is ignored: without memory, the copy of a message reports the error later.
        let _ = slots.try_reserve_exact(messages);
        let _ = peeked.messages.try_reserve_exact(messages);
        if peeked.bytes.try_reserve(bytes).is_ok() {
            peeked.bytes.resize(bytes, 0);
            peeked.bytes.clear();
        }
        (slots, peeked)
    }

    /// Lists the slots of the messages, in order of delivery.
    fn find(
        &self,
        receiving: ReceiverHeld<'_>,
        skip: usize,
        most: usize,
        slots: &mut Vec<u32>,
    ) -> Result<(), Fault> {
        let fixed = self.segment().fixed();
        let receiver = &fixed.receiver;
        let run = fixed.run.before_stamp();
        let drained = receiver.drained(receiving);
        if receiver.stored(receiving) == 0 && has_begun(run, drained) {
            // Here, all messages in the ring have one priority, so the order in the ring is the order of delivery.
            self.find_in_ring(drained, skip, most, slots)?;
            if fixed.run.is_still(run) {
                return Ok(());
            }
            slots.clear();
        }
        self.drain(receiving)?;
        self.publish_counts(receiving);
        self.find_in_store(receiving, skip, most, slots)
    }

    /// Lists messages of the ring. At the instant at which the last stamp is read, all listed messages are in the ring: no message is received
    /// meanwhile, and the ring has no gaps.
    fn find_in_ring(
        &self,
        drained: u64,
        skip: usize,
        most: usize,
        slots: &mut Vec<u32>,
    ) -> Result<(), Fault> {
        let ring = Ring::of(self.segment());
        let end = skip.saturating_add(most);
        for n in 0..end.min(self.segment().layout().slots) {
            let Some((slot, _)) = ring.published(drained.wrapping_add(n as u64))? else {
                break;
            };
            if n >= skip {
                add(slots, slot)?;
            }
        }
        Ok(())
    }

    pub(super) fn find_in_store(
        &self,
        receiving: ReceiverHeld<'_>,
        skip: usize,
        most: usize,
        slots: &mut Vec<u32>,
    ) -> Result<(), Fault> {
        if self.policy().fair_priorities != 0 {
            return self.find_in_turns(receiving, skip, most, slots);
        }
        let order = Priorities::of(self.segment());
        let (mut passed, end) = (0, skip.saturating_add(most));
        let mut priority = order.highest();
        while let Some(of) = priority {
            let mut slot = Some(order.first(of)?);
            while let Some(here) = slot {
                if passed == end {
                    return Ok(());
                }
                // A walk over more messages than slots shows corruption, because each slot is in one list, once.
                if passed == self.segment().layout().slots {
                    return Err(Fault::Damaged);
                }
                if passed >= skip {
                    add(slots, here)?;
                }
                passed += 1;
                slot = order.after(of, here)?;
            }
            priority = order.next_below(of);
        }
        Ok(())
    }

    /// Returns the records of the delayed messages.
    #[cfg(not(loom))]
    fn delayed(&self, _: ReceiverHeld<'_>) -> Result<Vec<&LeaseRecord>, Fault> {
        let mut delayed = Vec::new();
        for record in Leases::of(self.segment()).iter() {
            let (_, record) = record?;
            if leases::State::of(record) == leases::State::Delayed {
                delayed.try_reserve(1).map_err(|_| Fault::NoMemory)?;
                delayed.push(record);
            }
        }
        Ok(delayed)
    }

    /// Copies the delayed messages. The returned messages are first, in their old order. The messages that were sent for a later time follow, in the
    /// order of their delivery times.
    #[cfg(not(loom))]
    fn copy_delayed_in_order(
        &self,
        receiving: ReceiverHeld<'_>,
        peeked: &mut PeekedMessages,
    ) -> Result<(), Fault> {
        let mut delayed = self.delayed(receiving)?;
        delayed.sort_by_cached_key(|record| match record.deliveries.get() {
            0 => (true, record.place_in_time()),
            _ => {
                let cell = self.segment().cell(record.slot.get());
                (false, (cell.map_or(0, |cell| cell.sequence()), 0))
            }
        });
        self.copy_delayed(receiving, &delayed, peeked)
    }

    #[cfg(not(loom))]
    fn copy_delayed(
        &self,
        receiving: ReceiverHeld<'_>,
        delayed: &[&LeaseRecord],
        peeked: &mut PeekedMessages,
    ) -> Result<(), Fault> {
        let now = clock::monotonic();
        for record in delayed {
            let (slot, deliveries) = (record.slot.get(), record.deliveries.get());
            self.copy_seen(receiving, (slot, deliveries), peeked)?;
            if let Some(seen) = peeked.messages.last_mut() {
                seen.returns = record.deliveries.get();
                seen.due = record.until.get();
                seen.delay = record.until.get().saturating_sub(now).max(1);
            }
        }
        Ok(())
    }

    fn copy_seen(
        &self,
        receiving: ReceiverHeld<'_>,
        (slot, deliveries): (u32, u32),
        peeked: &mut PeekedMessages,
    ) -> Result<(), Fault> {
        let found = self.in_hand(receiving, slot)?;
        let start = peeked.bytes.len();
        // A larger sum shows corruption: the messages have separate memory, so all messages together are shorter than the file.
        if start + found.len > self.segment().layout().len {
            return Err(Fault::Damaged);
        }
        let no_memory = |_| Fault::NoMemory;
        peeked.bytes.try_reserve(found.len).map_err(no_memory)?;
        peeked.messages.try_reserve(1).map_err(no_memory)?;
        peeked.bytes.resize(start + found.len, 0);
        self.segment()
            .copy_out(found.cell, found.len, &mut peeked.bytes[start..])?;
        if let Some(history) = self.history_of(receiving, &found) {
            peeked.histories.try_reserve(1).map_err(no_memory)?;
            peeked.histories.push(SeenHistory {
                position: peeked.messages.len(),
                id: found.cell.sequence(),
                history,
            });
        }
        if let Some(trace) = self.trace_of(receiving, &found, deliveries) {
            peeked.traces.try_reserve(1).map_err(no_memory)?;
            peeked.traces.push((peeked.messages.len(), trace));
        }
        peeked.messages.push(Seen {
            id: found.cell.is_stored().then(|| found.cell.sequence()),
            len: found.len,
            key: found.key,
            pid: found.cell.pid(),
            sent_at: found.cell.sent_at(),
            lives_since: found.cell.lives_since(),
            returns: found.cell.returns(),
            due: match found.cell.send_delay() {
                0 => 0,
                _ => found.cell.lives_since(),
            },
            delay: 0,
        });
        Ok(())
    }
}

pub(super) fn add(slots: &mut Vec<u32>, slot: u32) -> Result<(), Fault> {
    slots.try_reserve(1).map_err(|_| Fault::NoMemory)?;
    slots.push(slot);
    Ok(())
}

impl PeekedMessages {
    /// Returns the history of the message at a position.
    pub fn history(&self, position: usize) -> Option<&SeenHistory> {
        let at = self
            .histories
            .binary_search_by_key(&position, |seen| seen.position);
        self.histories.get(at.ok()?)
    }

    /// Returns the trace of the message at a position.
    pub fn trace(&self, position: usize) -> Option<&Trace> {
        let at = self.traces.binary_search_by_key(&position, |seen| seen.0);
        self.traces.get(at.ok()?).map(|(_, trace)| trace)
    }

    /// Iterates over the messages, each with its bytes.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (&Seen, &[u8])> {
        let mut rest = &self.bytes[..];
        self.messages.iter().map(move |seen| {
            let (bytes, behind) = rest.split_at(seen.len);
            rest = behind;
            (seen, bytes)
        })
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::posix_engine::segment::testing;
    use crate::sys::clock::Deadline;
    use crate::sys::thread;

    /// Creates an engine with messages of these lengths and priorities. The bytes of each message are its index.
    fn engine(messages: &[(usize, usize)]) -> Engine {
        let engine = Engine::new(testing::segment(16, 4096));
        for (number, &(len, key)) in messages.iter().enumerate() {
            engine
                .try_send(
                    thread::current(),
                    &vec![number as u8; len],
                    key,
                    Deadline::Passed,
                )
                .unwrap();
        }
        engine
    }

    fn keys_and_bytes(peeked: &PeekedMessages) -> Vec<(usize, Vec<u8>)> {
        peeked
            .iter()
            .map(|(seen, bytes)| (seen.key, bytes.to_vec()))
            .collect()
    }

    fn peek(engine: &Engine, skip: usize, most: usize) -> Result<PeekedMessages, Refused> {
        engine.peek(thread::current(), skip, most)
    }

    #[test]
    fn a_peek_is_in_order_of_delivery_from_the_ring_and_from_the_store() {
        for keys in [[7, 7, 7, 7], [1, 9, 1, 9]] {
            let sent = [(3, keys[0]), (0, keys[1]), (4096, keys[2]), (100, keys[3])];
            let engine = engine(&sent);
            let mut wanted: Vec<_> = (0..4)
                .map(|n| (sent[n].1, vec![n as u8; sent[n].0]))
                .collect();
            wanted.sort_by_key(|(key, _)| std::cmp::Reverse(*key));
            for (skip, most) in [
                (0, 0),
                (0, 1),
                (0, 4),
                (0, usize::MAX),
                (1, 2),
                (3, 9),
                (4, 1),
            ] {
                let seen = keys_and_bytes(&peek(&engine, skip, most).unwrap());
                let part: Vec<_> = wanted.iter().skip(skip).take(most).cloned().collect();
                assert_eq!(seen, part, "{keys:?} {skip} {most}");
            }
            assert!(
                peek(&engine, usize::MAX, usize::MAX)
                    .unwrap()
                    .messages
                    .is_empty()
            );
            assert_eq!(engine.counts().messages, 4);
        }
    }

    #[test]
    fn a_list_that_leads_back_to_itself_is_corruption_and_ends_the_peek() {
        let engine = engine(&[(8, 1), (8, 2), (8, 1), (8, 1)]);
        assert_eq!(peek(&engine, 0, 9).unwrap().messages.len(), 4);
        let order = Priorities::of(engine.segment());
        let first = order.first(1).unwrap();
        engine.segment().link(first).unwrap().set(first);
        let damaged = Refused::Fault(Fault::Damaged);
        assert_eq!(peek(&engine, 0, usize::MAX).err(), Some(damaged));
        engine.segment().link(first).unwrap().set(u32::MAX);
        assert_eq!(peek(&engine, 0, usize::MAX).err(), Some(damaged));
    }

    #[test]
    fn a_length_or_a_priority_that_no_message_has_is_damage() {
        let engine = engine(&[(8, 1), (8, 1)]);
        let (_, cell) = Ring::of(engine.segment()).slot(1).unwrap();
        let damaged = Refused::Fault(Fault::Damaged);
        cell.words().len.set(4097);
        assert_eq!(peek(&engine, 0, 2).err(), Some(damaged));
        cell.words().len.set(8);
        cell.words().key.set(32_768);
        assert_eq!(peek(&engine, 0, 2).err(), Some(damaged));
        assert_eq!(peek(&engine, 0, 1).unwrap().messages.len(), 1);
    }
}
