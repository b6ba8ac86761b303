//! Prefetches stored messages: the processor begins to fetch a cell from memory before a receive needs the cell.
//!
//! Messages of mixed priorities are in cells all over the region. A walk over the next few messages at each receive would cost more than it saves.
//! Therefore a handle remembers the messages that it has prefetched, and each receive walks one message further.
//!
//! ```text
//! received    next: the expected ones, fetched already    walked to now
//!    9           8      8      5                              2
//! ```
//!
//! The expected messages are a guess: other processes receive as well, and messages of higher priority arrive. A wrong guess costs one unnecessary
//! fetch of a cache line.

use crate::posix_engine::Priorities;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};

/// The distance, in messages, at which a handle prefetches. A fetch from memory takes as long as two or three receives.
const AHEAD: usize = 4;
/// The value of an empty entry in the buffer of expected messages.
const NONE: u64 = u64::MAX;

/// The messages that a handle expects to receive next. The value is private to the process, and is used under the receiver lock. The value has
/// separate cache lines, like [`Pacing`](crate::waiters::pacing::Pacing).
#[derive(Debug)]
#[repr(align(128))]
pub(super) struct Expected {
    /// A circular buffer of the expected messages: the priority and the slot of each.
    places: [AtomicU64; AHEAD],
    /// The index of the next expected message.
    next: AtomicU32,
}

impl Default for Expected {
    fn default() -> Self {
        Expected {
            places: [const { AtomicU64::new(NONE) }; AHEAD],
            next: AtomicU32::new(0),
        }
    }
}

// All accesses are Relaxed: the values are guesses of one process, which accesses them under the receiver lock.
impl Expected {
    /// Notes that the message in `slot` is being received, and prefetches a later message. The received message is still in its list.
    #[inline(always)]
    pub(super) fn received(
        &self,
        order: &Priorities<'_>,
        key: usize,
        slot: u32,
        fetch: impl Fn(u32) + Copy,
    ) {
        let (next, got) = (self.next.load(Relaxed) as usize % AHEAD, pack(key, slot));
        if self.places[next].load(Relaxed) == got {
            self.walk_on(order, next, fetch);
        } else {
            self.find_again(order, next, got, fetch);
        }
    }

    /// Replaces the received message in the buffer of expected messages. The new entry is the message after the last expected message.
    #[inline(always)]
    fn walk_on(&self, order: &Priorities<'_>, next: usize, fetch: impl Fn(u32)) {
        let last = self.places[(next + AHEAD - 1) % AHEAD].load(Relaxed);
        let place = step(order, last);
        self.places[next].store(place, Relaxed);
        self.next.store(((next + 1) % AHEAD) as u32, Relaxed);
        if place != NONE {
            fetch(place as u32);
        }
    }

    /// Updates the expected messages after the receive of another message than the next expected one: other handles have received the expected
    /// messages before it, or the received message has a higher priority.
    fn find_again(
        &self,
        order: &Priorities<'_>,
        next: usize,
        got: u64,
        fetch: impl Fn(u32) + Copy,
    ) {
        let expected = |ahead: usize| (next + ahead) % AHEAD;
        let gone = (1..AHEAD).find(|&ahead| self.places[expected(ahead)].load(Relaxed) == got);
        match gone {
            Some(gone) => (0..=gone).for_each(|ahead| self.walk_on(order, expected(ahead), fetch)),
            None if step(order, got) == self.places[next].load(Relaxed) => {}
            None => self.begin(order, got, fetch),
        }
    }

    /// Fills the buffer with the messages after `place`, and fetches them.
    #[cold]
    fn begin(&self, order: &Priorities<'_>, mut place: u64, fetch: impl Fn(u32)) {
        for expected in &self.places {
            place = step(order, place);
            expected.store(place, Relaxed);
            if place != NONE {
                fetch(place as u32);
            }
        }
        self.next.store(0, Relaxed);
    }
}

#[inline(always)]
fn pack(key: usize, slot: u32) -> u64 {
    (key as u64) << 32 | u64::from(slot)
}

/// Returns the message after `place` in the order of delivery. Returns [`NONE`] after the last message.
#[inline(always)]
fn step(order: &Priorities<'_>, place: u64) -> u64 {
    if place == NONE {
        return NONE;
    }
    let (key, slot) = ((place >> 32) as usize, place as u32);
    if let Ok(Some(next)) = order.after(key, slot) {
        return pack(key, next);
    }
    let behind = order.next_below(key);
    behind
        .and_then(|lower| Some(pack(lower, order.first(lower).ok()?)))
        .unwrap_or(NONE)
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::lock::tokens::ReceiverHeld;
    use crate::posix_engine::segment::{Segment, testing};
    use std::cell::RefCell;

    /// A store of messages, and the slots that were prefetched.
    struct Store {
        segment: Segment,
        expected: Expected,
        fetched: RefCell<Vec<u32>>,
    }

    impl Store {
        fn of(receiving: ReceiverHeld<'_>, priorities: &[usize]) -> Self {
            let store = Store {
                segment: testing::segment(64, 8),
                expected: Expected::default(),
                fetched: RefCell::default(),
            };
            for (slot, &priority) in priorities.iter().enumerate() {
                store.add(receiving, priority, slot as u32);
            }
            store
        }

        fn add(&self, receiving: ReceiverHeld<'_>, priority: usize, slot: u32) {
            Priorities::of(&self.segment)
                .push_back(receiving, priority, slot)
                .unwrap();
        }

        /// Receives the next message. Returns its slot, and whether it had been prefetched.
        fn receive(&self, receiving: ReceiverHeld<'_>) -> (u32, bool) {
            let order = Priorities::of(&self.segment);
            let priority = order.highest().unwrap();
            let slot = order.first(priority).unwrap();
            let was_fetched = self.fetched.borrow().contains(&slot);
            let fetch = |slot| self.fetched.borrow_mut().push(slot);
            self.expected.received(&order, priority, slot, fetch);
            order.pop(receiving, priority).unwrap();
            (slot, was_fetched)
        }

        fn drain(&self, receiving: ReceiverHeld<'_>) -> Vec<(u32, bool)> {
            let order = Priorities::of(&self.segment);
            std::iter::from_fn(|| order.highest().map(|_| self.receive(receiving))).collect()
        }
    }

    #[test]
    fn every_message_but_the_first_is_fetched_once_before_it_is_received() {
        let store = Store::of(
            ReceiverHeld::in_test(),
            &[3, 900, 7, 7, 30_000, 0, 900, 7, 64, 63],
        );
        let expected = [4, 1, 6, 8, 9, 2, 3, 7, 0, 5];
        let expected = expected.map(|slot| (slot, slot != 4));
        assert_eq!(store.drain(ReceiverHeld::in_test()), expected);
        let mut fetched = store.fetched.into_inner();
        fetched.sort_unstable();
        assert_eq!(fetched, [0, 1, 2, 3, 5, 6, 7, 8, 9]);
    }

    #[test]
    fn a_message_of_higher_priority_in_between_keeps_the_prefetched_messages() {
        let store = Store::of(ReceiverHeld::in_test(), &[50, 40, 30, 20, 10, 5, 4]);
        assert_eq!(store.receive(ReceiverHeld::in_test()), (0, false));
        for (slot, better) in [(60, 100), (61, 45), (62, 44)] {
            store.add(ReceiverHeld::in_test(), better, slot);
            assert_eq!(store.receive(ReceiverHeld::in_test()), (slot, false));
        }
        for slot in 1..7 {
            assert_eq!(store.receive(ReceiverHeld::in_test()), (slot, true));
        }
    }

    #[test]
    fn a_handle_begins_again_when_many_better_ones_have_come() {
        let store = Store::of(ReceiverHeld::in_test(), &[3, 2, 1]);
        store.receive(ReceiverHeld::in_test());
        for slot in 10..40 {
            store.add(ReceiverHeld::in_test(), 1000 - slot as usize, slot);
        }
        assert_eq!(store.receive(ReceiverHeld::in_test()), (10, false));
        for slot in 11..40 {
            assert_eq!(store.receive(ReceiverHeld::in_test()), (slot, true));
        }
    }

    #[test]
    fn a_handle_that_takes_turns_with_another_receiver_finds_its_messages_prefetched() {
        let store = Store::of(ReceiverHeld::in_test(), &[9, 8, 7, 6, 5, 4, 3, 2, 1, 0]);
        let order = Priorities::of(&store.segment);
        assert_eq!(store.receive(ReceiverHeld::in_test()), (0, false));
        for turn in 0..4 {
            order.pop(ReceiverHeld::in_test(), 8 - 2 * turn).unwrap();
            assert_eq!(
                store.receive(ReceiverHeld::in_test()),
                (2 * turn as u32 + 2, true)
            );
        }
        // Each message was prefetched once.
        assert_eq!(store.fetched.borrow().len(), 9);
    }

    #[test]
    fn a_handle_begins_again_when_others_have_received_what_it_expected() {
        let store = Store::of(ReceiverHeld::in_test(), &[9, 8, 7, 6, 5, 4, 3, 2, 1, 0]);
        store.receive(ReceiverHeld::in_test());
        let order = Priorities::of(&store.segment);
        for taken in [8, 7, 6, 5, 4, 3] {
            order.pop(ReceiverHeld::in_test(), taken).unwrap();
        }
        assert_eq!(store.receive(ReceiverHeld::in_test()), (7, false));
        assert_eq!(store.drain(ReceiverHeld::in_test()), [(8, true), (9, true)]);
    }
}
