//! Creates a segment: a file of full length, whose first pages have memory and whose header is filled in.

use super::Ring;
use super::mapped::Segment;
use super::{Fixed, Layout, LeaseRecord, NODES, Node, Policy};
use crate::fault::AttachError;
use crate::memory::set_length;
use crate::sync::Ordering;
use crate::sys::map::PAGE;
use rustix::fd::BorrowedFd;

/// Makes a segment in an empty file. The file becomes a queue when the caller gives it a name.
pub fn create(
    file: BorrowedFd<'_>,
    layout: Layout,
    mode: u32,
    policy: &Policy,
) -> Result<Segment, AttachError> {
    set_length(file, layout.len)?;
    let mut segment = Segment::map(file, layout)?;
    let mut pages = first_pages(&layout).into_iter().peekable();
    while let Some((offset, mut len)) = pages.next() {
        // Adjacent pages get memory by one call.
        while let Some((_, more)) = pages.next_if(|&(next, _)| next == offset + len) {
            len += more;
        }
        segment.populate(offset, len)?;
    }
    segment.fixed().header.note_creator();
    fill_in(&segment, mode);
    policy.write(&segment.fixed().rules);
    segment.set_policy(policy.clone());
    Ok(segment)
}

/// Returns the parts of a new segment that have memory, as offsets and lengths in bytes.
pub(super) fn first_pages(layout: &Layout) -> [(usize, usize); 8] {
    [
        (0, size_of::<Fixed>().next_multiple_of(PAGE)),
        (layout.levels, PAGE),
        (layout.fifos, PAGE),
        (layout.nodes, PAGE),
        (layout.ring, PAGE),
        (layout.links, PAGE),
        // The first lease needs no new memory: a receiver may use leases to empty a queue whose file system is full.
        (layout.lease_records, PAGE),
        (layout.cells, PAGE),
    ]
}

/// Fills in a segment. Before the call, its first pages have memory, the header contains the creator, and all bytes after the header are zero.
pub(super) fn fill_in(segment: &Segment, mode: u32) {
    let fixed = segment.fixed();
    let layout = segment.layout();
    let slots = (PAGE / layout.cell_len).min(layout.slots);
    // Relaxed throughout: no other process sees the segment before its file is linked.
    for slot in 0..slots {
        segment.ring_at(slot).store(slot as u32, Ordering::Relaxed);
    }
    let ring_len = (PAGE / 4).min(layout.ring_len);
    fixed.geometry.begin(ring_len, slots);
    fixed.published.begin(slots);
    fixed.sender.begin(slots);
    fixed
        .receiver
        .set_nodes((PAGE / size_of::<Node>()).min(NODES));
    let lease_records = (PAGE / size_of::<LeaseRecord>()).min(layout.slots);
    fixed.leases.usable.set(lease_records as u32);
    fixed.header.begin(layout, mode);
    debug_assert!(Ring::of(segment).slot(0).is_ok());
}
