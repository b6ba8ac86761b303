//! Queries of a queue's state without a lock: the number of messages that ever passed through the queue, and the age of the oldest message.
//!
//! A process that watches queues must not delay the processes that use them. So these functions take no lock, repair no data, and write no word.

use super::Engine;
use crate::counters::read_steadily;
use crate::leases::{LeaseRecord, Leases, State};
use crate::lock::tokens::ReceiverHeld;
use crate::posix_engine::Priorities;
use crate::posix_engine::segment::{Cell, Ring};
use crate::posix_engine::tag::priority_of;
use crate::waiters::{List, Waiters};
use std::collections::BTreeMap;

/// The numbers of messages that ever entered and left a queue, and of their bytes. A salvage keeps the counts of messages, and restarts
/// the counts of bytes with the bytes of the messages that it kept.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// The number of messages that entered the queue. A reserved slot counts, too.
    pub sent: u64,
    pub sent_bytes: u64,
    /// The number of messages that have left the queue, with the cancelled reservations. A leased, offered or delayed message has not left the queue.
    pub removed: u64,
    pub removed_bytes: u64,
}

impl Engine {
    /// Returns the totals. `sent` is never smaller than `removed`.
    ///
    /// The numbers belong to one instant if no call changes the queue during a few attempts to read them. Otherwise a message that is moving may be
    /// counted as removed too early or too late, and a later result may be smaller by this message. A process that dies in such a step leaves the
    /// counts in this state until the next call, and may leave a message that is counted as sent and as removed, but never came.
    ///
    /// If messages are held or offered, the call reads their records.
    pub fn totals(&self) -> Totals {
        read_steadily(|| self.pulse(), || self.totals_now())
    }

    /// Returns the words that change if a message enters the queue, leaves it, or becomes held.
    fn pulse(&self) -> ([u64; 4], u32) {
        let fixed = self.segment().fixed();
        let words = [
            fixed.published.removed(),
            fixed.published.removed_bytes(),
            fixed.published.entered().0,
            fixed.receiver.held(),
        ];
        (words, Waiters::of(self.segment()).len(List::Offered))
    }

    fn totals_now(&self) -> Totals {
        let published = &self.segment().fixed().published;
        // The removed messages are read first: a message that has left the queue was sent before, so `sent` is never smaller than `removed`.
        let removed = published.removed();
        let removed_bytes = published.removed_bytes();
        let (entered, entered_bytes) = published.entered();
        // An offered message, and the bytes of a held message, count as removed in the published words.
        let (offered, offered_bytes) = self.offered_hint();
        let kept_bytes = self.held_bytes_hint().wrapping_add(offered_bytes);
        let (sent, is_batch) = self.ever_sent();
        let sent_bytes = self.segment().fixed().sender.bytes_sent(sent, is_batch);
        let (entered_later, bytes_later) = published.entered();
        // The words are those of other processes, so a difference may be below 0.
        let at_least_0 = |count: u64| (count as i64).max(0) as u64;
        let sent = sent.wrapping_add(entered_later);
        let sent_bytes = sent_bytes.wrapping_add(bytes_later);
        let removed = removed.wrapping_add(entered).wrapping_sub(offered);
        let removed_bytes = removed_bytes
            .wrapping_add(entered_bytes)
            .wrapping_sub(kept_bytes);
        Totals {
            sent,
            sent_bytes,
            removed: at_least_0(removed).min(sent),
            removed_bytes: at_least_0(removed_bytes).min(sent_bytes),
        }
    }

    /// Makes the totals of the bytes begin with the messages that the queue contains now; also the totals of the messages, unless the ring keeps its
    /// position. The counts are published, no message is offered, and none was sent or taken since the ring restarted.
    pub(super) fn restart_totals(&self, receiving: ReceiverHeld<'_>, keeps_position: bool) {
        let fixed = self.segment().fixed();
        let stored_bytes = 0u64.wrapping_sub(fixed.published.removed_bytes());
        let bytes = stored_bytes.wrapping_add(self.held_bytes_hint());
        let (entered, _) = fixed.published.entered();
        // The least number with which the messages in the queue have come.
        let least = fixed
            .receiver
            .stored(receiving)
            .wrapping_add(fixed.receiver.held())
            .saturating_sub(fixed.sender.sent());
        // The process that overwrote the queue may have overwritten the word, too.
        let messages = match keeps_position && entered >> 47 == 0 {
            true => entered.max(least),
            false => least,
        };
        fixed.published.restart_entered(receiving, messages, bytes);
    }

    /// Returns the number of messages that are offered to receivers, and of their bytes.
    fn offered_hint(&self) -> (u64, u64) {
        let waiters = Waiters::of(self.segment());
        if waiters.len(List::Offered) == 0 {
            return (0, 0);
        }
        let nodes = waiters.all().map(|(_, node)| node);
        let offered = nodes.filter(|node| List::of(node) == List::Offered);
        offered.fold((0, 0), |(messages, bytes), node| {
            let len = self.segment().cell(node.slot.get()).map(Cell::len);
            (messages + 1, bytes + len.unwrap_or(0) as u64)
        })
    }

    /// Returns the number of bytes in the leased and the delayed messages, and in those that are being moved back to their original queue.
    fn held_bytes_hint(&self) -> u64 {
        if self.segment().fixed().receiver.held() == 0 {
            return 0;
        }
        let is_held = |record: &LeaseRecord| {
            matches!(
                State::of(record),
                State::Leased | State::Delayed | State::Redriving
            )
        };
        // The list may change during the walk, which its length bounds.
        let records = Leases::of(self.segment()).iter().filter_map(Result::ok);
        records
            .filter(|(_, record)| is_held(record))
            .filter_map(|(_, record)| self.segment().cell(record.slot.get()).ok())
            .map(|cell| cell.len() as u64)
            .sum()
    }

    /// Returns the time at which the oldest queued message entered the queue, in nanoseconds of the machine's clock: the time of its send, or of its
    /// delayed delivery. Returns `None` if the queue is empty.
    ///
    /// The result is a hint: a receiver may take the message meanwhile, and another message may be written into its slot. Then the result is the time
    /// of the new message.
    pub fn oldest_hint(&self) -> Option<u64> {
        let receiver = &self.segment().fixed().receiver;
        // The messages in the ring are in order of arrival, so the first one is the oldest.
        let first = Ring::of(self.segment()).published(receiver.drained_so_far());
        let in_ring = first.ok().flatten().map(|(_, cell)| cell.lives_since());
        let in_store = match receiver.stored_so_far() {
            0 => None,
            _ => self.oldest_in_store(),
        };
        let both = in_ring.into_iter().chain(in_store);
        // A slot without a message has the time 0.
        both.filter(|&at| at != 0).min()
    }

    /// Counts up to `most` queued messages by priority, the highest priority first. The count includes the messages of the store, and then the newest
    /// messages of the ring.
    ///
    /// The result is a hint: receivers and senders change the store and the ring meanwhile. The walk ends after `most` messages, even if another
    /// process writes wrong links.
    pub fn priorities_hint(&self, most: usize) -> Vec<(u32, u64)> {
        let mut counts = BTreeMap::<u32, u64>::new();
        let mut left = most;
        let receiver = &self.segment().fixed().receiver;
        if receiver.stored_so_far() != 0 {
            let order = Priorities::of(self.segment());
            let used = std::iter::successors(order.highest(), |&one| order.next_below(one));
            for priority in used {
                if left == 0 {
                    break;
                }
                let mut slot = order.first(priority).ok();
                while let Some(at) = slot.filter(|_| left != 0) {
                    *counts.entry(priority as u32).or_default() += 1;
                    left -= 1;
                    slot = order.after(priority, at).ok().flatten();
                }
            }
        }
        let ring = Ring::of(self.segment());
        let (drained, (sent, _)) = (receiver.drained_so_far(), self.ever_sent());
        let waiting = sent.wrapping_sub(drained).min(left as u64);
        for position in (0..waiting).map(|back| sent.wrapping_sub(back + 1)) {
            if let Ok(Some((_, cell))) = ring.published(position) {
                *counts.entry(priority_of(cell.key()) as u32).or_default() += 1;
            }
        }
        counts.into_iter().rev().collect()
    }

    /// Returns the earliest time of a message in the store. The messages of one priority are in order of arrival, so only the first message of each
    /// priority is read.
    fn oldest_in_store(&self) -> Option<u64> {
        let order = Priorities::of(self.segment());
        // Each priority is lower than the previous one, so the iteration ends even if another process overwrites the words.
        let used = std::iter::successors(order.highest(), |&priority| order.next_below(priority));
        let first = |priority| {
            let slot = order.first(priority).ok()?;
            Some(self.segment().cell(slot).ok()?.lives_since())
        };
        used.filter_map(first).filter(|&at| at != 0).min()
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::posix_engine::segment::testing;
    use crate::sys::clock::{self, Deadline};
    use crate::sys::thread;

    fn send(engine: &Engine, message: &[u8], priority: usize) {
        engine
            .try_send(thread::current(), message, priority, Deadline::Passed)
            .unwrap();
    }

    fn receive(engine: &Engine) {
        let mut buffer = [0; 4096];
        engine
            .try_receive(thread::current(), &mut buffer, Deadline::Passed)
            .unwrap();
    }

    #[test]
    fn totals_grow_with_each_message_and_never_shrink() {
        let engine = Engine::new(testing::segment(16, 4096));
        assert_eq!(engine.totals(), Totals::default());
        for (len, priority) in [(3, 1), (100, 9), (0, 1)] {
            send(&engine, &vec![7; len], priority);
        }
        receive(&engine);
        let totals = engine.totals();
        assert_eq!((totals.sent, totals.sent_bytes), (3, 103));
        assert_eq!((totals.removed, totals.removed_bytes), (1, 100));
        receive(&engine);
        receive(&engine);
        let totals = engine.totals();
        assert_eq!((totals.sent, totals.removed), (3, 3));
        assert_eq!(totals.sent_bytes, totals.removed_bytes);
    }

    #[test]
    fn the_oldest_message_is_found_in_the_ring_and_in_the_store() {
        let engine = Engine::new(testing::segment(16, 4096));
        assert_eq!(engine.oldest_hint(), None);
        let before = clock::monotonic_coarse();
        send(&engine, b"old", 1);
        let oldest = engine.oldest_hint().unwrap();
        assert!(oldest >= before);
        // The clock of messages is coarse, so the test waits until the clock advances between the two sends.
        while clock::monotonic_coarse() == oldest {
            std::thread::yield_now();
        }
        send(&engine, b"new", 9);
        assert_eq!(engine.oldest_hint(), Some(oldest));
        // The receive of the message of the higher priority moves both messages into the store.
        receive(&engine);
        assert_eq!(engine.oldest_hint(), Some(oldest));
        send(&engine, b"newer", 9);
        assert_eq!(engine.oldest_hint(), Some(oldest));
        receive(&engine);
        receive(&engine);
        assert_eq!(engine.oldest_hint(), None);
    }

    #[test]
    fn priorities_are_counted_in_the_ring_and_in_the_store() {
        let engine = Engine::new(testing::segment(16, 4096));
        assert_eq!(engine.priorities_hint(100), []);
        for priority in [1, 9, 1, 5, 9] {
            send(&engine, b"x", priority);
        }
        assert_eq!(engine.priorities_hint(100), [(9, 2), (5, 1), (1, 2)]);
        // The receive moves all messages into the store, and takes one message of priority 9.
        receive(&engine);
        send(&engine, b"x", 7);
        assert_eq!(
            engine.priorities_hint(100),
            [(9, 1), (7, 1), (5, 1), (1, 2)]
        );
        assert_eq!(engine.priorities_hint(2), [(9, 1), (5, 1)]);
    }

    #[test]
    fn a_glance_needs_no_lock() {
        let engine = Engine::new(testing::segment(16, 4096));
        send(&engine, b"here", 3);
        let look = || {
            let (totals, oldest) = (engine.totals(), engine.oldest_hint());
            (totals, oldest, engine.counts(), engine.priorities_hint(9))
        };
        let before = look();
        let seen = std::cell::Cell::new(None);
        engine
            .change_closing(thread::current(), |_, _, _| {
                // If the other thread took a lock that this thread holds, the test would wait for ever.
                std::thread::scope(|scope| {
                    seen.set(Some(scope.spawn(look).join().unwrap()));
                });
                false
            })
            .unwrap();
        assert_eq!(seen.into_inner(), Some(before));
    }
}
