//! Where the order of typed messages lies: the words, and what a segment has to offer to hold them.

use crate::fault::Fault;
use crate::sync::{Guarded32, Guarded64};

/// A segment, as a place for the order. Everything is guarded by the queue's one lock.
pub trait TypeIndexStore {
    /// The place of a slot; [`Fault::Damaged`] of one that can't exist.
    fn place(&self, slot: u32) -> Result<&Place, Fault>;
    /// Slots in circulation: all that may be linked, and the bound of every walk along the messages.
    fn places(&self) -> u32;
    /// A record for a type; [`Fault::Damaged`] of one that can't exist.
    fn kind(&self, index: u32) -> Result<&Kind, Fault>;
    fn kinds(&self) -> &TypeRoots;
    /// Makes more records real memory than the `usable` ones that are; answers how many are then. As many as before is the
    /// answer of a segment that has one for each of its slots: some of them are idle, whenever a message needs one.
    fn provide_kinds(&self, usable: u32) -> Result<u32, Fault>;
}

/// One a slot: where its message stands in the order. Links are index + 1, 0 for none.
#[repr(C)]
#[derive(Default)]
pub struct Place {
    /// When the message came, compared with others.
    pub sequence: Guarded64,
    /// The next message of the same type.
    pub next_of_kind: Guarded32,
    /// Neighbours in order of arrival. They stay as they are when the message is removed: should it come back, it
    /// finds its old neighbours quickly.
    pub next: Guarded32,
    pub previous: Guarded32,
    /// The record of the message's type; 0: the slot is not in the order.
    pub kind: Guarded32,
}

/// One a type. Links are index + 1, 0 for none.
#[repr(C, align(64))]
#[derive(Default)]
pub struct Kind {
    /// The type, an i64's bits.
    pub mtype: Guarded64,
    /// Sequence number of this type's first message; [`NONE`] without any.
    pub(crate) first: Guarded64,
    /// The smallest `first` in this subtree.
    pub(crate) least: Guarded64,
    /// The type's messages.
    pub head: Guarded32,
    pub tail: Guarded32,
    pub count: Guarded32,
    /// Neighbours in the tree.
    pub left: Guarded32,
    pub right: Guarded32,
    pub parent: Guarded32,
    /// The next of those that ran empty, while `listed` is 1; of the unused records, if this is one.
    pub(crate) newer: Guarded32,
    pub(crate) listed: Guarded32,
    /// The first type of the bucket that lies in this record, and the next of the bucket that this type is in.
    pub(crate) bucket: Guarded32,
    pub(crate) chain: Guarded32,
}

/// In place of a sequence number: no message.
pub(crate) const NONE: u64 = u64::MAX;

/// So many types, unlike in their lowest bits, are found without a search.
pub(super) const RECENT: usize = 8;

/// Where the lists and the tree begin. Links are index + 1, 0 for none.
#[repr(C, align(128))]
#[derive(Default)]
pub struct TypeRoots {
    // -- first line: what each message writes
    /// The messages in order of arrival.
    pub head: Guarded32,
    pub tail: Guarded32,
    pub root: Guarded32,
    /// The message that was looked at last, and how many are before it; see [`super::inspect`].
    pub(crate) cursor: Guarded32,
    pub(crate) position: Guarded32,
    /// The message that came back last.
    pub(crate) returned: Guarded32,
    /// Types that were used lately, by their lowest bits.
    pub(crate) recent: [Guarded32; RECENT],
    // -- second line: what types that come and go write
    /// First unused record; those that were ever used; those that are real memory.
    pub(crate) free: Guarded32,
    pub used: Guarded32,
    pub usable: Guarded32,
    /// Types that ran empty, the one that did so first at the front, and how many they are.
    pub(crate) oldest: Guarded32,
    pub(crate) newest: Guarded32,
    pub(crate) listed: Guarded32,
    /// Shapes the tree and the hash table. A process that makes the queue chooses it by chance, so that no choice of types makes
    /// the one deep or the other slow.
    pub(crate) seed: Guarded64,
}

impl Kind {
    #[inline(always)]
    pub(super) fn mtype(&self) -> i64 {
        self.mtype.get() as i64
    }

    #[inline(always)]
    pub(super) fn is_empty(&self) -> bool {
        self.head.get() == 0
    }
}

/// What a link names; nothing if it is 0.
#[inline(always)]
pub(super) fn target(link: &Guarded32) -> Option<u32> {
    link.get().checked_sub(1)
}

/// The link that names an index.
#[inline(always)]
pub(super) fn link(index: u32) -> u32 {
    index.wrapping_add(1)
}

#[cfg(not(loom))]
const _: () = {
    use std::mem::offset_of;
    assert!(size_of::<Place>() == 24 && size_of::<Kind>() == 64);
    assert!(size_of::<TypeRoots>() == 128 && offset_of!(TypeRoots, free) <= 64);
};
