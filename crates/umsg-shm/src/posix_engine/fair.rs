//! Fair priorities: in a queue with this option, a lower priority gets a turn after a certain number of deliveries of the highest priority.
//!
//! ```text
//! fair_priorities = 2, nothing is sent meanwhile       number: the priority of a delivery
//!
//! queued     9 9 9 9 9 9   5 5   1 1
//! delivered  9 9 5   9 9 1   9 9 1   5                  the last 5 is the only priority left
//! ```
//!
//! A delivery *passes* the lower priorities that have messages. After n deliveries that passed lower priorities, the next delivery takes the oldest
//! message of a lower priority. The lower priorities take turns in descending order: the next turn belongs to the first priority below the last turn,
//! and after the lowest priority the turns start again at the top. So no message waits for ever. If k priorities below the highest have messages,
//! each of them gets one of k * (n + 1) deliveries.
//!
//! Only the choice of the next message differs from strict order. The store is the same, and within a priority the oldest message is first. A message
//! that is offered to a blocked receiver, or leased, counts as delivered. A message that expires or is dropped does not count.
//!
//! The state is one word. The holder of the receiver lock stores the word after the delivery. If that process is killed before the store, the
//! delivery does not count: a lower priority may get a second turn, and no priority loses its turn. Every value of the word is valid.

use super::found::{FoundIn, FoundMessage};
use super::inspect::add;
use super::{Engine, Priorities};
use crate::crash::crash_point;
use crate::fault::Fault;
use crate::lock::tokens::ReceiverHeld;

/// The number of deliveries that have passed lower priorities, and the lower priority that had the last turn.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Turn {
    passed: u16,
    last: u16,
}

impl Turn {
    fn of_word(word: u32) -> Turn {
        Turn {
            passed: (word >> 16) as u16,
            last: word as u16,
        }
    }

    fn word(self) -> u32 {
        u32::from(self.passed) << 16 | u32::from(self.last)
    }

    /// Chooses the priority of the next delivery in a queue with `fair_priorities = after`. Returns this priority, and the state after the delivery.
    /// `highest` is the highest priority that has messages. `below` returns the next lower priority that has messages.
    pub(super) fn choose(
        self,
        after: u32,
        highest: usize,
        below: impl Fn(usize) -> Option<usize>,
    ) -> (usize, Turn) {
        let Some(second) = below(highest) else {
            // The delivery passes no priority.
            return (highest, self);
        };
        if u32::from(self.passed) < after {
            let passed = self.passed.saturating_add(1);
            return (highest, Turn { passed, ..self });
        }
        // The last turn may belong to a priority above the present highest priority.
        let priority = below(highest.min(self.last.into())).unwrap_or(second);
        let last = priority as u16;
        (priority, Turn { passed: 0, last })
    }
}

impl Engine {
    /// Returns the state of the turns.
    pub(super) fn turn(&self, receiving: ReceiverHeld<'_>) -> Turn {
        Turn::of_word(self.segment().fixed().receiver.turn(receiving))
    }

    /// Chooses the priority of the next delivery from the store. Returns this priority, and the state after the delivery.
    fn choose(&self, receiving: ReceiverHeld<'_>) -> Result<(usize, Turn), Fault> {
        let order = Priorities::of(self.segment());
        let highest = order.highest().ok_or(Fault::Damaged)?;
        let after = self.policy().fair_priorities;
        let turn = self.turn(receiving);
        Ok(turn.choose(after, highest, |priority| order.next_below(priority)))
    }

    /// Replaces the message that is next in strict order by the message that is next with fair priorities.
    pub(super) fn in_turn<'a>(
        &'a self,
        receiving: ReceiverHeld<'_>,
        next: FoundMessage<'a>,
    ) -> Result<FoundMessage<'a>, Fault> {
        if !next.is_stored() {
            // The message is in the ring, so all messages have one priority.
            return Ok(next);
        }
        let (priority, _) = self.choose(receiving)?;
        let slot = Priorities::of(self.segment()).first(priority)?;
        let found = self.stored_at(slot, priority)?;
        Ok(found.at(FoundIn::StoreInTurn))
    }

    /// Takes a message from the store, and counts its delivery.
    #[cold]
    pub(super) fn take_in_turn(
        &self,
        receiving: ReceiverHeld<'_>,
        found: &FoundMessage<'_>,
    ) -> Result<(), Fault> {
        let (_, turn) = self.choose(receiving)?;
        self.take_stored(receiving, found)?;
        let receiver = &self.segment().fixed().receiver;
        receiver.set_turn(receiving, turn.word());
        crash_point!(TURN_COUNTED);
        Ok(())
    }

    /// Lists up to `most` messages of the store after the first `skip`, in the order of their delivery if no further message is sent.
    pub(super) fn find_in_turns(
        &self,
        receiving: ReceiverHeld<'_>,
        skip: usize,
        most: usize,
        slots: &mut Vec<u32>,
    ) -> Result<(), Fault> {
        let order = Priorities::of(self.segment());
        let mut heads = self.heads()?;
        let mut turn = self.turn(receiving);
        // A walk over more messages than slots shows corruption, because each slot is in one list, once.
        let bound = skip.saturating_add(most).min(self.segment().layout().slots);
        for passed in 0..bound {
            let Some(&(highest, _)) = heads.last() else {
                return Ok(());
            };
            let below = |priority| {
                let lower = heads.partition_point(|head| head.0 < priority);
                Some(heads.get(lower.checked_sub(1)?)?.0)
            };
            let (priority, next) = turn.choose(self.policy().fair_priorities, highest, below);
            turn = next;
            let at = heads.partition_point(|head| head.0 < priority);
            let head = heads.get_mut(at).ok_or(Fault::Damaged)?;
            if passed >= skip {
                add(slots, head.1)?;
            }
            match order.after(priority, head.1)? {
                Some(behind) => head.1 = behind,
                None => {
                    heads.remove(at);
                }
            }
        }
        match heads.is_empty() || skip.saturating_add(most) <= bound {
            true => Ok(()),
            false => Err(Fault::Damaged),
        }
    }

    /// Returns, in ascending order, the priorities that have messages, each with the slot of its oldest message.
    fn heads(&self) -> Result<Vec<(usize, u32)>, Fault> {
        let order = Priorities::of(self.segment());
        let mut heads = Vec::new();
        let mut priority = order.highest();
        while let Some(of) = priority {
            heads.try_reserve(1).map_err(|_| Fault::NoMemory)?;
            heads.push((of, order.first(of)?));
            priority = order.next_below(of);
        }
        heads.reverse();
        Ok(heads)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::{BTreeMap, VecDeque};

    /// A plain model of the queue: a map from priorities to the numbers of their messages. The model follows the rule in the module's documentation
    /// exactly.
    #[derive(Default)]
    struct Plain {
        queued: BTreeMap<u16, VecDeque<usize>>,
        passed: u32,
        last: Option<u16>,
    }

    impl Plain {
        fn send(&mut self, priority: u16, number: usize) {
            self.queued.entry(priority).or_default().push_back(number);
        }

        fn receive(&mut self, after: u32) -> Option<usize> {
            let in_use: Vec<u16> = self.queued.keys().rev().copied().collect();
            let (&highest, lower) = in_use.split_first()?;
            let mut priority = highest;
            if self.passed == after && !lower.is_empty() {
                let next = lower
                    .iter()
                    .find(|&&lower| self.last.is_some_and(|last| lower < last));
                priority = *next.unwrap_or(&lower[0]);
                (self.passed, self.last) = (0, Some(priority));
            } else if !lower.is_empty() {
                self.passed += 1;
            }
            self.take(priority)
        }

        fn take(&mut self, priority: u16) -> Option<usize> {
            let messages = self.queued.get_mut(&priority)?;
            let number = messages.pop_front();
            if messages.is_empty() {
                self.queued.remove(&priority);
            }
            number
        }
    }

    /// Delivers one message of the model `plain`, which the rule of the engine chooses.
    fn deliver(plain: &mut Plain, turn: &mut Turn, after: u32) -> Option<usize> {
        let highest = usize::from(*plain.queued.keys().next_back()?);
        let below = |priority: usize| {
            let lower = plain.queued.range(..priority as u16).next_back()?;
            Some(usize::from(*lower.0))
        };
        let (priority, next) = turn.choose(after, highest, below);
        *turn = next;
        plain.take(priority as u16)
    }

    fn both(after: u32, steps: &[Option<u16>]) -> Result<(), TestCaseError> {
        let (mut by_rule, mut by_engine) = (Plain::default(), Plain::default());
        let mut turn = Turn::default();
        for (number, step) in steps.iter().enumerate() {
            match step {
                Some(priority) => {
                    by_rule.send(*priority, number);
                    by_engine.send(*priority, number);
                }
                None => {
                    let received = deliver(&mut by_engine, &mut turn, after);
                    prop_assert_eq!(received, by_rule.receive(after), "step {}", number);
                }
            }
        }
        Ok(())
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 2 } else { 512 }))]

        #[test]
        fn a_choice_is_as_the_rule_says(
            after in 1..4_u32,
            steps in prop::collection::vec(prop::option::of(0..6_u16), 1..200),
        ) {
            both(after, &steps)?;
        }

        #[test]
        fn the_first_message_of_each_priority_is_delivered_within_its_bound(
            after in 1..5_u32,
            lower in prop::collection::btree_set(0..50_u16, 1..6),
            word in any::<u32>(),
        ) {
            // The highest priority always has messages. In each state of the test, all lower priorities have messages, too.
            let in_use: Vec<usize> = lower.iter().map(|&priority| priority.into()).chain([60]).collect();
            let below = |priority| in_use.iter().rev().copied().find(|&lower| lower < priority);
            let mut turn = Turn::of_word(word);
            let bound = lower.len() as u32 * (after + 1);
            let mut delivered = BTreeMap::new();
            for _ in 0..bound {
                let (priority, next) = turn.choose(after, 60, below);
                turn = next;
                *delivered.entry(priority).or_insert(0) += 1;
            }
            for priority in lower {
                prop_assert!(delivered.contains_key(&usize::from(priority)), "{}: {:?}", priority, delivered);
            }
            prop_assert!(delivered[&60] >= (bound - 1) / (after + 1) * after, "{:?}", delivered);
        }
    }

    #[test]
    fn a_turn_is_one_word() {
        let turn = Turn {
            passed: 65_535,
            last: 32_767,
        };
        assert_eq!(Turn::of_word(turn.word()), turn);
        assert_eq!(Turn::default().word(), 0);
    }
}
