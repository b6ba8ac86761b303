//! The store in POSIX order: the highest priority first, and the oldest message first within a priority.
//!
//! A bitmap of three levels shows which of the 32,768 priorities have messages. Each priority has a list. The search for the highest priority takes
//! three find-last-set instructions, regardless of the number of messages.
//!
//! ```text
//! level2   one word       bit i: level1[i] is not 0
//! level1   8 words        bit j of word i: level0[64 i + j] is not 0
//! level0   512 words      bit k of word w: priority 64 w + k has messages
//! fifos    head, tail     of each priority's list, linked through the links
//! ```
//!
//! The caller of each function holds the receiver lock.

use super::{Fifo, LEVEL1, PRIORITIES, Segment};
use crate::fault::Fault;
use crate::lock::tokens::ReceiverHeld;
use crate::posix_engine::tag::priority_of;
use crate::sync::Guarded64;

/// The store of a segment, as an ordered set of slots.
pub(crate) struct Priorities<'a> {
    segment: &'a Segment,
}

impl<'a> Priorities<'a> {
    #[inline(always)]
    pub(crate) fn of(segment: &'a Segment) -> Self {
        Priorities { segment }
    }

    /// Returns the highest priority that has messages.
    #[inline]
    pub(crate) fn highest(&self) -> Option<usize> {
        self.outermost(last_set)
    }

    /// Returns the lowest priority that has messages.
    pub(crate) fn lowest(&self) -> Option<usize> {
        self.outermost(first_set)
    }

    /// Returns the highest or the lowest priority that has messages. `find` finds the highest or the lowest bit of a word.
    #[inline(always)]
    fn outermost(&self, find: impl Fn(u64) -> Option<usize>) -> Option<usize> {
        let receiver = &self.segment.fixed().receiver;
        let i = find(receiver.level2.get())?;
        let j = find(receiver.level1.get(i)?.get())?;
        let word = i * 64 + j;
        let k = find(self.segment.level0(word).ok()?.get())?;
        Some(word * 64 + k)
    }

    /// Returns the highest priority below `priority` that has messages. Repeated calls walk the store in order of delivery.
    #[inline]
    pub(crate) fn next_below(&self, priority: usize) -> Option<usize> {
        let receiver = &self.segment.fixed().receiver;
        let (i, j, k) = split(priority);
        let word = priority / 64;
        if let Some(k) = last_set(self.segment.level0(word).ok()?.get() & below(k)) {
            return Some(word * 64 + k);
        }
        let (i, j) = match last_set(receiver.level1.get(i)?.get() & below(j)) {
            Some(j) => (i, j),
            None => {
                let i = last_set(receiver.level2.get() & below(i))?;
                (i, last_set(receiver.level1.get(i)?.get())?)
            }
        };
        let word = i * 64 + j;
        Some(word * 64 + last_set(self.segment.level0(word).ok()?.get())?)
    }

    /// Returns the first slot of a priority that has messages.
    #[inline]
    pub(crate) fn first(&self, priority: usize) -> Result<u32, Fault> {
        Ok(self.segment.fifo(priority)?.head.get())
    }

    /// Returns the slot after `slot` in the list of `priority`.
    pub(crate) fn after(&self, priority: usize, slot: u32) -> Result<Option<u32>, Fault> {
        if self.segment.fifo(priority)?.tail.get() == slot {
            return Ok(None);
        }
        Ok(Some(self.segment.link(slot)?.get()))
    }

    /// Adds a slot at the end of its priority's list.
    #[inline]
    pub(crate) fn push_back(
        &self,
        receiving: ReceiverHeld<'_>,
        priority: usize,
        slot: u32,
    ) -> Result<(), Fault> {
        let fifo = self.segment.fifo(priority)?;
        if self.has(priority)? {
            self.segment.link(fifo.tail.get())?.set(slot);
            fifo.tail.set(slot);
            return Ok(());
        }
        self.begin(receiving, fifo, priority, slot)
    }

    /// Adds a slot whose message returns, at the place that its sequence number determines. In most cases, this place is the first, or it follows the
    /// slot that returned last.
    pub(crate) fn push_in_order(
        &self,
        receiving: ReceiverHeld<'_>,
        priority: usize,
        slot: u32,
    ) -> Result<(), Fault> {
        let fifo = self.segment.fifo(priority)?;
        let returned = &self.segment.fixed().leases.returned;
        let last = returned.get().checked_sub(1);
        returned.set(slot.wrapping_add(1));
        if !self.has(priority)? {
            return self.begin(receiving, fifo, priority, slot);
        }
        let head = fifo.head.get();
        if !self.is_earlier(head, slot)? {
            self.segment.link(slot)?.set(head);
            fifo.head.set(slot);
            return Ok(());
        }
        let mut before = head;
        if let Some(last) = last
            && self.is_listed_before(last, priority, slot)?
        {
            before = last;
        }
        for _ in 0..self.segment.layout().slots {
            let link = self.segment.link(before)?;
            if before == fifo.tail.get() {
                link.set(slot);
                fifo.tail.set(slot);
                return Ok(());
            }
            let next = link.get();
            if !self.is_earlier(next, slot)? {
                self.segment.link(slot)?.set(next);
                link.set(slot);
                return Ok(());
            }
            before = next;
        }
        Err(Fault::Damaged)
    }

    /// Returns whether the message of slot `one` entered the store before the message of slot `other`.
    fn is_earlier(&self, one: u32, other: u32) -> Result<bool, Fault> {
        let sequence = |slot| Ok(self.segment.cell(slot)?.sequence.get());
        Ok((sequence(other)?.wrapping_sub(sequence(one)?) as i64) > 0)
    }

    /// Returns whether slot `one` is in the list of a priority before slot `other`. Every stored message is in the list of its priority.
    fn is_listed_before(&self, one: u32, priority: usize, other: u32) -> Result<bool, Fault> {
        let cell = self.segment.cell(one)?;
        let is_listed = cell.is_stored() && priority_of(cell.key.get()) == priority;
        Ok(is_listed && self.is_earlier(one, other)?)
    }

    /// Removes the first slot of a priority.
    #[inline]
    pub(crate) fn pop(&self, receiving: ReceiverHeld<'_>, priority: usize) -> Result<(), Fault> {
        let fifo = self.segment.fifo(priority)?;
        let head = fifo.head.get();
        if head == fifo.tail.get() {
            return self.end(receiving, priority);
        }
        fifo.head.set(self.segment.link(head)?.get());
        Ok(())
    }

    /// Removes a slot from any place in the list of a priority.
    pub(crate) fn remove(
        &self,
        receiving: ReceiverHeld<'_>,
        priority: usize,
        slot: u32,
    ) -> Result<(), Fault> {
        let fifo = self.segment.fifo(priority)?;
        let mut before = fifo.head.get();
        if !self.has(priority)? {
            return Err(Fault::Damaged);
        }
        if before == slot {
            return self.pop(receiving, priority);
        }
        for _ in 0..self.segment.layout().slots {
            let link = self.segment.link(before)?;
            if before == fifo.tail.get() {
                break;
            }
            let next = link.get();
            if next == slot {
                if slot == fifo.tail.get() {
                    fifo.tail.set(before);
                }
                link.set(self.segment.link(slot)?.get());
                return Ok(());
            }
            before = next;
        }
        Err(Fault::Damaged)
    }

    /// Empties all lists, as the first step of a rebuild.
    pub(crate) fn clear(&self, _: ReceiverHeld<'_>) -> Result<(), Fault> {
        let receiver = &self.segment.fixed().receiver;
        receiver.level2.set(0);
        receiver.level1.iter().for_each(|word| word.set(0));
        for word in 0..PRIORITIES.div_ceil(64) {
            self.segment.level0(word)?.set(0);
        }
        Ok(())
    }

    /// Returns whether a priority has messages.
    #[inline]
    pub(crate) fn has(&self, priority: usize) -> Result<bool, Fault> {
        Ok(self.segment.level0(priority / 64)?.get() & bit(priority % 64) != 0)
    }

    /// Makes the list of a priority, with one slot.
    #[inline]
    fn begin(
        &self,
        _: ReceiverHeld<'_>,
        fifo: &Fifo,
        priority: usize,
        slot: u32,
    ) -> Result<(), Fault> {
        fifo.head.set(slot);
        fifo.tail.set(slot);
        let (i, j, k) = split(priority);
        let receiver = &self.segment.fixed().receiver;
        raise(self.segment.level0(priority / 64)?, k);
        raise(receiver.level1.get(i).ok_or(Fault::Damaged)?, j);
        raise(&receiver.level2, i);
        Ok(())
    }

    /// Ends the list of a priority: clears the priority's bit in the bitmap.
    #[inline]
    fn end(&self, _: ReceiverHeld<'_>, priority: usize) -> Result<(), Fault> {
        let (i, j, k) = split(priority);
        let receiver = &self.segment.fixed().receiver;
        let level1 = receiver.level1.get(i).ok_or(Fault::Damaged)?;
        if lower(self.segment.level0(priority / 64)?, k) && lower(level1, j) {
            lower(&receiver.level2, i);
        }
        Ok(())
    }
}

/// Returns the position of a priority's bit in the bitmap: the words of the levels and the bits in the words.
#[inline(always)]
fn split(priority: usize) -> (usize, usize, usize) {
    (
        priority / 4096 % LEVEL1.max(1),
        priority / 64 % 64,
        priority % 64,
    )
}

#[inline(always)]
fn bit(index: usize) -> u64 {
    1 << index
}

/// Returns a mask of all bits below the bit `index`.
#[inline(always)]
fn below(index: usize) -> u64 {
    bit(index) - 1
}

#[inline(always)]
fn last_set(word: u64) -> Option<usize> {
    word.checked_ilog2().map(|index| index as usize)
}

#[inline(always)]
fn first_set(word: u64) -> Option<usize> {
    (word != 0).then(|| word.trailing_zeros() as usize)
}

#[inline(always)]
fn raise(word: &Guarded64, index: usize) {
    word.set(word.get() | bit(index));
}

/// Clears a bit of a word. Returns whether the word is then 0.
#[inline(always)]
fn lower(word: &Guarded64, index: usize) -> bool {
    let rest = word.get() & !bit(index);
    word.set(rest);
    rest == 0
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::posix_engine::segment::testing;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    /// A plain model of the store: priorities in order, each with its slots, sorted by sequence number.
    #[derive(Default)]
    struct Model(BTreeMap<usize, Vec<(u64, u32)>>);

    impl Model {
        fn add(&mut self, priority: usize, sequence: u64, slot: u32) {
            let list = self.0.entry(priority).or_default();
            list.push((sequence, slot));
            list.sort_unstable();
        }

        fn pop(&mut self) -> Option<(usize, u64, u32)> {
            let mut highest = self.0.last_entry()?;
            let priority = *highest.key();
            let (sequence, slot) = highest.get_mut().remove(0);
            if highest.get().is_empty() {
                highest.remove();
            }
            Some((priority, sequence, slot))
        }

        fn lowest(&self) -> Option<usize> {
            self.0.keys().next().copied()
        }

        fn in_order(&self) -> Vec<(usize, u32)> {
            let lists = self.0.iter().rev();
            lists
                .flat_map(|(&priority, list)| list.iter().map(move |&(_, slot)| (priority, slot)))
                .collect()
        }
    }

    fn walk(order: &Priorities<'_>) -> Vec<(usize, u32)> {
        let (mut found, mut priority) = (Vec::new(), order.highest());
        while let Some(of) = priority {
            let mut slot = Some(order.first(of).unwrap());
            while let Some(here) = slot {
                found.push((of, here));
                slot = order.after(of, here).unwrap();
            }
            priority = order.next_below(of);
        }
        found
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 1 } else { 64 }))]

        #[test]
        fn the_store_delivers_what_a_sorted_map_would(
            few in any::<bool>(),
            steps in prop::collection::vec((0..3_u8, 0..PRIORITIES), 1..300),
        ) {
            let segment = testing::segment(400, 8);
            let order = Priorities::of(&segment);
            let (mut model, mut returned) = (Model::default(), Vec::new());
            for (slot, (step, priority)) in steps.into_iter().enumerate() {
                let priority = if few { priority % 3 * 64 } else { priority };
                match (step, model.0.is_empty()) {
                    (0, false) => {
                        let (priority, sequence, slot) = model.pop().unwrap();
                        prop_assert_eq!(order.highest(), Some(priority));
                        prop_assert_eq!(order.first(priority).unwrap(), slot);
                        segment.cell(slot).unwrap().set_stored(false);
                        order.pop(ReceiverHeld::in_test(), priority).unwrap();
                        returned.push((priority, sequence, slot));
                    }
                    (1, _) if !returned.is_empty() => {
                        let (priority, sequence, slot) = returned.swap_remove(priority % returned.len());
                        segment.cell(slot).unwrap().set_stored(true);
                        order.push_in_order(ReceiverHeld::in_test(), priority, slot).unwrap();
                        model.add(priority, sequence, slot);
                    }
                    _ => {
                        let slot = slot as u32;
                        let cell = segment.cell(slot).unwrap();
                        cell.sequence.set(u64::from(slot));
                        cell.key.set(priority as u64);
                        cell.set_stored(true);
                        order.push_back(ReceiverHeld::in_test(), priority, slot).unwrap();
                        model.add(priority, u64::from(slot), slot);
                    }
                }
                prop_assert_eq!(walk(&order), model.in_order());
                prop_assert_eq!(order.lowest(), model.lowest());
            }
            order.clear(ReceiverHeld::in_test()).unwrap();
            prop_assert_eq!(order.highest(), None);
        }
    }
}
