//! One ring for both directions.
//!
//! Receivers write the numbers of free slots into the ring; senders fill the slots *in that order*. So the message at
//! ring position `p` is in slot `ring[p]`, the receiver knows before it arrives where it will be, and the slot's own
//! stamp says when it is there: one cache line (two with more than 16 bytes) carries the message and the news.
//!
//! ```text
//!        drained            sent                freed
//!           |                 |                   |
//!  ... gone | filled, waiting | free, to be filled | not written yet ...
//!           |                 |                   |
//!   slot.stamp == position+1   slot.stamp is old
//! ```
//!
//! `drained` and `freed` move under the receiver lock, `sent` under the sender lock. All three only grow, but for
//! `freed`, which goes back by one when a blocked sender takes a slot for the message it waits with (under both locks).
//!
//! A position maps to an entry by a mask. The ring is doubled under both locks by copying its lower half to the upper
//! one: whatever position an entry stands for, the larger mask leads to it or to its copy.

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

    /// The slot at a position, and its cell.
    #[inline(always)]
    pub fn slot(&self, position: u64) -> Result<(u32, &'a Cell), Fault> {
        // Relaxed: entries are written before `freed` is stored with release, and read after it was loaded with
        // acquire, or under the receiver lock.
        let slot = self.segment.ring(position).load(Ordering::Relaxed);
        Ok((slot, self.segment.cell(slot)?))
    }

    /// The message at a position, if it was published.
    #[inline(always)]
    pub(crate) fn published(&self, position: u64) -> Result<Option<(u32, &'a Cell)>, Fault> {
        let (slot, cell) = self.slot(position)?;
        // Acquire: SEND. Pairs with the release store in `publish`: the message is seen with its stamp.
        Ok((cell.stamp.load(Ordering::Acquire) == stamp(position)).then_some((slot, cell)))
    }

    /// Sends the message that stands in the cell at `position`. The one store that makes a send take effect.
    #[inline(always)]
    pub(crate) fn publish(cell: &Cell, position: u64) {
        // Release: SEND. Pairs with the acquire in `published`.
        cell.stamp.store(stamp(position), Ordering::Release);
    }

    /// Writes a slot that no process uses behind the free ones. It is free when `freed` is moved past it.
    #[inline(always)]
    pub(crate) fn write(&self, position: u64, slot: u32) {
        // Release: GONE. Pairs with the fences in `recover::sender_side` and `seems_filled`; all others need no more than
        // `slot` says.
        self.segment.ring(position).store(slot, Ordering::Release);
    }
}

/// What a cell's stamp is once the message at `position` is published there: never 0, never the same twice.
#[inline(always)]
fn stamp(position: u64) -> u64 {
    position.wrapping_add(1)
}
