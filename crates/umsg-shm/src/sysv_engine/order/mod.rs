//! System V order: by arrival, and by type, each first come first served.
//!
//! Every message is in two lists: that of all messages, in order of arrival, and that of its type. The types in use are
//! nodes of a search tree; each node knows the oldest message of its subtree, so that whole subtrees can be passed by:
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
//! | wanted | found |
//! |---|---|
//! | any message | the head of the arrival list |
//! | of a type | its record, by a hash of the type: see [`index`] |
//! | not of a type | the head of the arrival list; if that is of the type, the least on the way down to it |
//! | of the lowest type up to a bound | the leftmost node that has messages |
//!
//! A type without messages stays in the tree for its next one: see [`types`]. Sequence numbers ascend with arrival; a
//! message that comes back goes where its number puts it.
//!
//! Everything here is called under the queue's lock, and derived: after the death of a holder of the lock the words may
//! be anything; [`Typed::clear`] and one [`Typed::push_back`] a message, in order of their numbers, make it whole. A
//! peer may write anything at any time: all walks are bounded, and what can't be is [`Fault::Damaged`].

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

pub use store::{Kind, Place, TypeIndexStore, TypeRoots};

use crate::fault::Fault;
use crate::lock::tokens::ReceiverHeld;
use store::{NONE, link, target};

/// Which message a receiver wants, as the `msgtyp` of msgrcv(2) says it. Types are 1 or more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Want {
    /// The first of all: `msgtyp` 0.
    Any,
    /// The first of this type: `msgtyp` above 0.
    Exactly(i64),
    /// The first of any other type: `msgtyp` above 0 with MSG_EXCEPT.
    Except(i64),
    /// The first of the lowest type that is at most this: `msgtyp` below 0, without its sign.
    Lowest(i64),
}

/// A segment's order, as a set of slots.
pub(crate) struct Typed<'a, S: TypeIndexStore> {
    shelf: &'a S,
}

impl<'a, S: TypeIndexStore> Typed<'a, S> {
    #[inline(always)]
    pub(crate) fn of(shelf: &'a S) -> Self {
        Typed { shelf }
    }

    /// The first message that is wanted.
    #[inline]
    pub(crate) fn first(&self, want: Want) -> Result<Option<u32>, Fault> {
        match want {
            Want::Any => Ok(target(&self.shelf.kinds().head)),
            Want::Exactly(mtype) => Ok(self.find(mtype)?.and_then(|(_, kind)| target(&kind.head))),
            Want::Except(mtype) => self.first_except(mtype),
            Want::Lowest(most) => {
                let lowest = self.lowest(&self.shelf.kinds().root)?;
                let wanted = lowest.filter(|kind| kind.mtype() <= most);
                Ok(wanted.and_then(|kind| target(&kind.head)))
            }
        }
    }

    /// Adds a message behind all others. Fails for want of memory only without a [`Typed::provide`] before.
    #[inline]
    pub(crate) fn push_back(
        &self,
        _: ReceiverHeld<'_>,
        slot: u32,
        mtype: i64,
        sequence: u64,
    ) -> Result<(), Fault> {
        let (index, kind) = self.find_or_create(mtype)?;
        let (roots, place) = (self.shelf.kinds(), self.shelf.place(slot)?);
        place.sequence.set(sequence);
        place.next_of_kind.set(0);
        place.next.set(0);
        let last = roots.tail.get();
        place.previous.set(last);
        place.kind.set(link(index));
        match last.checked_sub(1) {
            Some(last) => self.shelf.place(last)?.next.set(link(slot)),
            None => roots.head.set(link(slot)),
        }
        roots.tail.set(link(slot));
        kind.count.set(kind.count.get().wrapping_add(1));
        match target(&kind.tail) {
            Some(last) => self.shelf.place(last)?.next_of_kind.set(link(slot)),
            None => {
                kind.head.set(link(slot));
                kind.first.set(sequence);
                self.lower(kind, sequence)?;
            }
        }
        kind.tail.set(link(slot));
        Ok(())
    }

    /// Removes a message, the first of its type.
    #[inline]
    pub(crate) fn remove(&self, receiving: ReceiverHeld<'_>, slot: u32) -> Result<(), Fault> {
        let place = self.shelf.place(slot)?;
        let index = target(&place.kind).ok_or(Fault::Damaged)?;
        let kind = self.shelf.kind(index)?;
        if kind.head.get() != link(slot) {
            return Err(Fault::Damaged);
        }
        let first = kind.first.get();
        self.look_past(slot, place)?;
        self.unlink(receiving, place)?;
        kind.count.set(kind.count.get().wrapping_sub(1));
        let next = place.next_of_kind.get();
        kind.head.set(next);
        match next.checked_sub(1) {
            Some(next) => kind.first.set(self.shelf.place(next)?.sequence.get()),
            None => {
                kind.tail.set(0);
                kind.first.set(NONE);
                self.rest(index, kind)?;
            }
        }
        self.refresh(kind, first)
    }

    /// Takes a message out of the arrival list, and leaves its own links as they are.
    #[inline(always)]
    fn unlink(&self, _: ReceiverHeld<'_>, place: &Place) -> Result<(), Fault> {
        let roots = self.shelf.kinds();
        let (previous, next) = (place.previous.get(), place.next.get());
        match previous.checked_sub(1) {
            Some(before) => self.shelf.place(before)?.next.set(next),
            None => roots.head.set(next),
        }
        match next.checked_sub(1) {
            Some(behind) => self.shelf.place(behind)?.previous.set(previous),
            None => roots.tail.set(previous),
        }
        place.kind.set(0);
        Ok(())
    }

    /// Forgets everything: the first step of rebuilding.
    pub(crate) fn clear(&self, _: ReceiverHeld<'_>) -> Result<(), Fault> {
        for slot in 0..self.shelf.places() {
            self.shelf.place(slot)?.kind.set(0);
        }
        let roots = self.shelf.kinds();
        roots.recent.iter().for_each(|word| word.set(0));
        let words = [
            &roots.head,
            &roots.tail,
            &roots.root,
            &roots.cursor,
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
