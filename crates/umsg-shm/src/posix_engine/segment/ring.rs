//! The ring, which passes free slots to senders and messages to receivers.
//!
//! Receivers write free slots into the ring, and senders fill the slots *in that order*. The message at ring position `p` is therefore in slot
//! `ring[p]`, and the receiver can find the slot before the message arrives. The stamp of the slot shows the arrival. One cache line contains the
//! message and the stamp. A message of more than 16 bytes takes two lines.
//!
//! ```text
//!        drained            sent                freed
//!           |                 |                   |
//!  ... gone | filled, waiting | free, to be filled | not written yet ...
//!           |                 |                   |
//!   slot.stamp == position+1   slot.stamp is old
//! ```
//!
//! `drained` and `freed` move under the receiver lock, `sent` under the sender lock. All three only grow, with one exception: under both locks,
//! `freed` decreases by one when a blocked sender or a reservation takes a slot.
//!
//! A mask converts a position to the index of an entry. To double the ring, a thread that holds both locks copies the lower half to the upper half.
//! With the larger mask, each position then gives its old entry or the copy of this entry.

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

    /// Returns the slot and the cell of the message at a position. Returns `None` if the message is not published yet.
    #[inline(always)]
    pub(crate) fn published(&self, position: u64) -> Result<Option<(u32, &'a Cell)>, Fault> {
        let (slot, cell) = self.slot(position)?;
        Ok(Ring::holds(cell, position).then_some((slot, cell)))
    }

    /// Returns whether a cell contains the message at a position.
    #[inline(always)]
    pub(crate) fn holds(cell: &Cell, position: u64) -> bool {
        // Acquire: SEND. Pairs with the release store in `publish`, so a thread that sees the stamp sees the message.
        cell.stamp.load(Ordering::Acquire) == stamp(position)
    }

    /// Publishes the message in the cell at `position`. This single store sends the message.
    #[inline(always)]
    pub(crate) fn publish(cell: &Cell, position: u64) {
        // Release: SEND. Pairs with the acquire in `published`.
        cell.stamp.store(stamp(position), Ordering::Release);
    }

    /// Writes the number of an unused slot into the ring, after the free slots. The slot becomes free when `freed` passes the position.
    #[inline(always)]
    pub(crate) fn write(&self, position: u64, slot: u32) {
        // Release: GONE. The store pairs with the fences in `recover::sender_side` and `seems_filled`. Other readers need only the value.
        self.segment.ring(position).store(slot, Ordering::Release);
    }
}

/// Returns the stamp of a message that is published at `position`. A stamp is never 0, and two messages never have the same stamp.
#[inline(always)]
fn stamp(position: u64) -> u64 {
    position.wrapping_add(1)
}
