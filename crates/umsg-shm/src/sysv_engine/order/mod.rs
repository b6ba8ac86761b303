//! The order of a System V queue's messages: by arrival, and within each type. The oldest message is the first in both orders.
//!
//! Every message is in two lists: the arrival list of all messages, and the list of its type. The types in use are nodes of a search tree. Each node
//! stores the number of the oldest message of its subtree, so that a search can skip whole subtrees:
//!
//! ```text
//! messages   1:A   2:B   3:A   4:C   5:B        sequence number : type
//!            head                  tail         of the arrival list
//!
//! tree                  B  2 -> 5               first = 2, least = 1
//!                     /   \
//!            A  1 -> 3     C  4                 first = 1, least = 1      first = 4, least = 4
//! ```
//!
//! | a receiver wants | the first such message is |
//! |---|---|
//! | any message | the head of the arrival list |
//! | a type | the head of the type's list; a hash of the type finds its record: see [`index`] |
//! | any other type | the head of the arrival list; if the head has the unwanted type, the oldest message in the subtrees beside the path to this type |
//! | the lowest type up to a bound | the head of the leftmost node that has messages |
//!
//! A type without messages stays in the tree for its next message: see [`types`]. Sequence numbers ascend with arrival. A
//! message that comes back goes to the place of its number.
//!
//! The caller of each function holds the queue's lock. All data of the order can be computed from the messages. After the death of the lock's owner,
//! the words may have any value. [`Order::clear`] and one [`Order::push_back`] for each message, in order of their numbers, rebuild them. A hostile
//! peer may write any word at any time: all walks are bounded, and an impossible value is [`Fault::Damaged`].

mod index;
mod inspect;
mod returned;
mod store;
#[cfg(all(test, not(loom)))]
mod testing;
#[cfg(all(test, not(loom)))]
mod tests;
mod tree;
mod types;

pub use store::{
    Kind, KindWords, OrderLinks, OrderLinksWords, TypeIndexStore, TypeRoots, TypeRootsWords,
};

use crate::fault::Fault;
use crate::lock::tokens::ReceiverHeld;
use store::{NONE, link, target};

/// The messages that a receiver wants, as the `msgtyp` argument of msgrcv(2) selects them. A type is 1 or more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Want {
    /// The first message of any type: `msgtyp` 0.
    Any,
    /// The first message of this type: `msgtyp` above 0.
    Exactly(i64),
    /// The first message of any type except this type: `msgtyp` above 0 with MSG_EXCEPT.
    Except(i64),
    /// The first message of the lowest type up to this type: the absolute value of a `msgtyp` below 0.
    Lowest(i64),
}

/// The order of the messages in a segment. The functions name a message by its slot.
pub(crate) struct Order<'a, S: TypeIndexStore> {
    store: &'a S,
}

impl<'a, S: TypeIndexStore> Order<'a, S> {
    #[inline(always)]
    pub(crate) fn of(store: &'a S) -> Self {
        Order { store }
    }

    /// Returns the slot of the first wanted message.
    #[inline(always)]
    pub(crate) fn first(&self, want: Want) -> Result<Option<u32>, Fault> {
        match want {
            Want::Any => Ok(target(&self.store.kinds().head)),
            Want::Exactly(mtype) => Ok(self.find(mtype)?.and_then(|(_, kind)| target(&kind.head))),
            Want::Except(mtype) => self.first_except(mtype),
            Want::Lowest(most) => {
                let lowest = self.lowest(&self.store.kinds().root)?;
                let wanted = lowest.filter(|kind| kind.mtype() <= most);
                Ok(wanted.and_then(|kind| target(&kind.head)))
            }
        }
    }

    /// Adds a message after all other messages. The caller has called [`Order::provide`] for its type, so there is always enough memory.
    #[inline(always)]
    pub(crate) fn push_back(
        &self,
        _: ReceiverHeld<'_>,
        slot: u32,
        mtype: i64,
        sequence: u64,
    ) -> Result<(), Fault> {
        let (index, kind) = self.find_or_create(mtype)?;
        let (roots, place) = (self.store.kinds(), self.store.place(slot)?);
        place.sequence.set(sequence);
        place.next_of_kind.set(0);
        place.next.set(0);
        let last = roots.tail.get();
        place.previous.set(last);
        place.kind.set(link(index));
        match last.checked_sub(1) {
            Some(last) => self.store.place(last)?.next.set(link(slot)),
            None => roots.head.set(link(slot)),
        }
        roots.tail.set(link(slot));
        kind.count.set(kind.count.get().wrapping_add(1));
        match target(&kind.tail) {
            Some(last) => self.store.place(last)?.next_of_kind.set(link(slot)),
            None => {
                kind.head.set(link(slot));
                kind.first.set(sequence);
                self.lower(kind, sequence)?;
            }
        }
        kind.tail.set(link(slot));
        Ok(())
    }

    /// Removes a message, which is the first of its type.
    #[inline(always)]
    pub(crate) fn remove(&self, receiving: ReceiverHeld<'_>, slot: u32) -> Result<(), Fault> {
        let place = self.store.place(slot)?;
        let index = target(&place.kind).ok_or(Fault::Damaged)?;
        let kind = self.store.kind(index)?;
        if kind.head.get() != link(slot) {
            return Err(Fault::Damaged);
        }
        let first = kind.first.get();
        self.note_removal(slot, place)?;
        self.unlink(receiving, place)?;
        kind.count.set(kind.count.get().wrapping_sub(1));
        let next = place.next_of_kind.get();
        kind.head.set(next);
        match next.checked_sub(1) {
            Some(next) => kind.first.set(self.store.place(next)?.sequence.get()),
            None => {
                kind.tail.set(0);
                kind.first.set(NONE);
                self.rest(index, kind)?;
            }
        }
        self.refresh(kind, first)
    }

    /// Takes a message out of the arrival list. The links of the message itself still name its old neighbours.
    #[inline(always)]
    fn unlink(&self, _: ReceiverHeld<'_>, place: &OrderLinks) -> Result<(), Fault> {
        let roots = self.store.kinds();
        let (previous, next) = (place.previous.get(), place.next.get());
        match previous.checked_sub(1) {
            Some(before) => self.store.place(before)?.next.set(next),
            None => roots.head.set(next),
        }
        match next.checked_sub(1) {
            Some(behind) => self.store.place(behind)?.previous.set(previous),
            None => roots.tail.set(previous),
        }
        place.kind.set(0);
        Ok(())
    }

    /// Empties the order. The call is the first step of a rebuild.
    pub(crate) fn clear(&self, _: ReceiverHeld<'_>) -> Result<(), Fault> {
        for slot in 0..self.store.places() {
            self.store.place(slot)?.kind.set(0);
        }
        let roots = self.store.kinds();
        roots.recent.iter().for_each(|word| word.set(0));
        let words = [
            &roots.head,
            &roots.tail,
            &roots.root,
            &roots.cursor,
            &roots.position,
            &roots.returned,
            &roots.free,
            &roots.used,
            &roots.oldest,
            &roots.newest,
            &roots.listed,
        ];
        words.iter().for_each(|word| word.set(0));
        Ok(())
    }
}
