//! The words of the order in a segment, and the trait of a segment that has them.

use crate::fault::Fault;
use crate::lock::tokens::ReceiverHeld;
use crate::sync::{Guarded32, Guarded64, words};

/// Access to the words of the order in a segment. The queue's one lock guards all of them.
pub trait TypeIndexStore {
    /// Returns the place of a slot; [`Fault::Damaged`] for an impossible slot.
    fn place(&self, slot: u32) -> Result<&OrderLinks, Fault>;
    /// Returns the number of slots that were ever used. The number bounds every walk along the messages.
    fn places(&self) -> u32;
    /// Returns the record of a type; [`Fault::Damaged`] for an impossible index.
    fn kind(&self, index: u32) -> Result<&Kind, Fault>;
    /// Returns the roots of the lists and of the tree.
    fn kinds(&self) -> &TypeRoots;
    /// Allocates memory for more records than the first `usable` records. Returns the number of records that have memory after the call.
    ///
    /// If the segment already has a record for each of its slots, returns `usable`. A message that needs a record then finds an idle record.
    fn provide_kinds(&self, usable: u32) -> Result<u32, Fault>;
}

/// The place of a slot's message in the order. A link is an index plus 1; 0 leads nowhere.
#[repr(C)]
#[derive(Default)]
pub struct OrderLinks {
    /// The sequence number of the message, which ascends with arrival.
    pub(super) sequence: Guarded64,
    /// The link to the next message of the same type.
    pub(super) next_of_kind: Guarded32,
    /// The links to the neighbours in order of arrival. The links keep their values when the message is removed, so that a message that comes back
    /// finds its place quickly.
    pub(super) next: Guarded32,
    pub(super) previous: Guarded32,
    /// The link to the record of the message's type; 0 if the slot is not in the order.
    pub(super) kind: Guarded32,
}

/// The record of a type. A link is an index plus 1; 0 leads nowhere.
#[repr(C, align(64))]
#[derive(Default)]
pub struct Kind {
    /// The type, as the bits of an i64.
    pub(super) mtype: Guarded64,
    /// The sequence number of this type's first message; [`NONE`] if the type has no message.
    pub(super) first: Guarded64,
    /// The smallest `first` in this subtree.
    pub(super) least: Guarded64,
    /// The list of the type's messages, and its length.
    pub(super) head: Guarded32,
    pub(super) tail: Guarded32,
    pub(super) count: Guarded32,
    /// The links to the neighbours in the tree.
    pub(super) left: Guarded32,
    pub(super) right: Guarded32,
    pub(super) parent: Guarded32,
    /// A link: to the next record of the idle list while `listed` is 1; to the next unused record if this record is unused.
    pub(super) newer: Guarded32,
    pub(super) listed: Guarded32,
    /// The link to the first type of the bucket that begins in this record.
    pub(super) bucket: Guarded32,
    /// The link to the next type of the bucket to which this type belongs.
    pub(super) chain: Guarded32,
}

/// The value in place of a sequence number if there is no message.
pub(super) const NONE: u64 = u64::MAX;

/// The number of cache words for records. Types that were used recently and differ in their lowest bits are found without a search.
pub(super) const RECENT: usize = 8;

/// The roots of the lists and of the tree. A link is an index plus 1; 0 leads nowhere.
#[repr(C, align(128))]
#[derive(Default)]
pub struct TypeRoots {
    // -- first cache line, which each message writes: the list of messages in order of arrival.
    pub(super) head: Guarded32,
    pub(super) tail: Guarded32,
    pub(super) root: Guarded32,
    /// The link to the message that was inspected last: see [`super::inspect`].
    pub(super) cursor: Guarded32,
    /// The position of the message to which the cursor leads.
    pub(super) position: Guarded32,
    /// The link to the message that came back last.
    pub(super) returned: Guarded32,
    /// The cache words: links to the records of recent types, by the lowest bits of the types.
    pub(super) recent: [Guarded32; RECENT],
    // -- second cache line, which is written only when a type comes or goes: the first unused record, the number of records that were ever used, and
    // the number of records with memory.
    pub(super) free: Guarded32,
    pub(super) used: Guarded32,
    pub(super) usable: Guarded32,
    /// The idle list: its oldest entry, its newest entry, and its length.
    pub(super) oldest: Guarded32,
    pub(super) newest: Guarded32,
    pub(super) listed: Guarded32,
    /// The seed of the hash, which shapes the tree and the hash table. The creator of the queue chooses it at random, so that no choice of types
    /// makes the tree deep or the table slow.
    pub(super) seed: Guarded64,
}

impl OrderLinks {
    /// Returns the sequence number of the message.
    #[inline(always)]
    pub(crate) fn sequence(&self) -> u64 {
        self.sequence.get()
    }

    /// Sets the sequence number of a message that is not in the order.
    #[inline(always)]
    pub(crate) fn set_sequence(&self, _: ReceiverHeld<'_>, sequence: u64) {
        self.sequence.set(sequence);
    }

    /// Returns the link of a free slot to the next free slot: that slot plus 1, or 0 for none.
    #[inline(always)]
    pub(crate) fn next_free(&self) -> u32 {
        self.next.get()
    }

    /// Links a free slot to the next free slot.
    #[inline(always)]
    pub(crate) fn set_next_free(&self, _: ReceiverHeld<'_>, link: u32) {
        self.next.set(link);
    }
}

words! {
    /// The words of an [`OrderLinks`] that a diagnosis compares.
    OrderLinksWords of OrderLinks {
        Guarded64: sequence;
        Guarded32: next_of_kind, next, previous, kind;
    }
}

impl TypeRoots {
    /// Makes the roots of a new queue.
    #[cfg(not(loom))]
    pub(crate) fn begin(&self, seed: u64) {
        self.seed.set(seed);
    }

    /// Returns the number of records that have memory.
    #[cfg(not(loom))]
    pub(crate) fn usable(&self) -> u32 {
        self.usable.get()
    }

    /// Limits a corrupted number of records to the records that have memory.
    #[cfg(not(loom))]
    pub(crate) fn cut_to(&self, _: ReceiverHeld<'_>, usable: u32) {
        self.usable.set(usable);
    }
}

words! {
    /// The words of the roots that a diagnosis compares.
    TypeRootsWords of TypeRoots {
        Guarded32: head, tail, root, used, usable;
    }
}

words! {
    /// The words of a type's record that a diagnosis compares.
    KindWords of Kind {
        Guarded64: mtype;
        Guarded32: head, tail, count, left, right, parent;
    }
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

/// Returns the index that a link names; None for 0.
#[inline(always)]
pub(super) fn target(link: &Guarded32) -> Option<u32> {
    link.get().checked_sub(1)
}

/// Returns the link that names an index.
#[inline(always)]
pub(super) fn link(index: u32) -> u32 {
    index.wrapping_add(1)
}

#[cfg(not(loom))]
const _: () = {
    use std::mem::offset_of;
    assert!(size_of::<OrderLinks>() == 24 && size_of::<Kind>() == 64);
    assert!(size_of::<TypeRoots>() == 128 && offset_of!(TypeRoots, free) <= 64);
};
