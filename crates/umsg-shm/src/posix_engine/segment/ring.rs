//! The ring, which transports slots in both directions.
//!
//! Receivers write the numbers of free slots into the ring; senders fill the slots *in that order*. The message at ring
//! position `p` is therefore in slot `ring[p]`: the receiver knows the slot before the message arrives. The stamp of the
//! slot shows the arrival. One cache line carries both message and stamp; a message of more than 16 bytes takes two.
//!
//! ```text
//!        drained            sent                freed
//!           |                 |                   |
//!  ... gone | filled, waiting | free, to be filled | not written yet ...
//!           |                 |                   |
//!   slot.stamp == position+1   slot.stamp is old
//! ```
//!
//! `drained` and `freed` move under the receiver lock, `sent` under the sender lock. They only grow, with one exception:
//! `freed` goes back by one, under both locks, when a blocked sender takes a slot for its message.
//!
//! A mask maps a position to an entry. To double the ring, a thread that holds both locks copies the lower half to the
//! upper half. The larger mask then leads from each position to its entry or to the copy.

use crate::fault::Fault;
use crate::posix_engine::segment::{Cell, Segment};
use crate::sync::Ordering;

/// The ring of a segment.
pub struct Ring<'a> {
    segment: &'a Segment,
}

impl<'a> Ring<'a> {
    #[inline(always)]
    pub fn of(segment: &'a Segment) -> Self {
        Ring { segment }
    }

    /// Returns the slot at a position, and its cell.
    #[inline(always)]
    pub fn slot(&self, position: u64) -> Result<(u32, &'a Cell), Fault> {
        // Relaxed: a receiver writes an entry before it stores `freed` with release. This thread has loaded `freed` with acquire, or holds the
        // receiver lock.
        let slot = self.segment.ring(position).load(Ordering::Relaxed);
        Ok((slot, self.segment.cell(slot)?))
    }

    /// Returns the slot and the cell of the message at a position, if the message was published.
    #[inline(always)]
    pub(crate) fn published(&self, position: u64) -> Result<Option<(u32, &'a Cell)>, Fault> {
        let (slot, cell) = self.slot(position)?;
        Ok(Ring::holds(cell, position).then_some((slot, cell)))
    }

    /// Returns whether a cell holds the message at a position.
    #[inline(always)]
    pub(crate) fn holds(cell: &Cell, position: u64) -> bool {
        // Acquire: SEND. Pairs with the release store in `publish`, so a thread that sees the stamp sees the message.
        cell.stamp.load(Ordering::Acquire) == stamp(position)
    }

    /// Publishes the message in the cell at `position`. This one store makes a send take effect.
    #[inline(always)]
    pub(crate) fn publish(cell: &Cell, position: u64) {
        // Release: SEND. Pairs with the acquire in `published`.
        cell.stamp.store(stamp(position), Ordering::Release);
    }

    /// Writes an unused slot behind the free slots. The slot is free once `freed` has passed it.
    #[inline(always)]
    pub(crate) fn write(&self, position: u64, slot: u32) {
        // Release: GONE. Pairs with the fences in `recover::sender_side` and `seems_filled`. Other readers need only
        // the value.
        self.segment.ring(position).store(slot, Ordering::Release);
    }
}

/// Returns the stamp that a cell gets when the message at `position` is published. It is never 0, and no two messages have the same stamp.
#[inline(always)]
fn stamp(position: u64) -> u64 {
    position.wrapping_add(1)
}
