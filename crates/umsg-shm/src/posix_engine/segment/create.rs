//! Making a segment: a file of full length, its first pages on real memory, its header filled in.

use super::Ring;
use super::mapped::Segment;
use super::{Fixed, LAYOUT_HASH, Layout, LeaseRecord, MAGIC, NODES, Node, Policy, VERSION};
use crate::fault::AttachError;
use crate::memory::set_length;
use crate::sync::Ordering;
use crate::sys::clock;
use crate::sys::home::here;
use crate::sys::map::PAGE;
use rustix::fd::BorrowedFd;

/// Fills an empty file. It becomes a queue when it gets its name.
pub fn create(
    file: BorrowedFd<'_>,
    layout: Layout,
    mode: u32,
    policy: &Policy,
) -> Result<Segment, AttachError> {
    set_length(file, layout.len)?;
    let mut segment = Segment::map(file, layout)?;
    let slots = (PAGE / layout.cell_len).min(layout.slots);
    for (offset, len) in [
        (0, size_of::<Fixed>()),
        (layout.levels, PAGE),
        (layout.fifos, PAGE),
        (layout.nodes, PAGE),
        (layout.ring, PAGE),
        (layout.links, PAGE),
        // A lease is a way to empty a queue whose file system is full: it needs none.
        (layout.lease_records, PAGE),
        (layout.cells, PAGE),
    ] {
        segment.populate(offset, len)?;
    }
    fill_in(&segment, slots, mode);
    policy.write(&segment.fixed().rules);
    segment.set_policy(policy.clone());
    Ok(segment)
}

fn fill_in(segment: &Segment, slots: usize, mode: u32) {
    let fixed = segment.fixed();
    let layout = segment.layout();
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
    let header = &fixed.header;
    header.version.store(VERSION, Ordering::Relaxed);
    header.layout_hash.store(LAYOUT_HASH, Ordering::Relaxed);
    header
        .max_messages
        .store(layout.max_messages as u32, Ordering::Relaxed);
    header
        .message_size
        .store(layout.message_size as u32, Ordering::Relaxed);
    header.len.store(layout.len as u64, Ordering::Relaxed);
    header.mode.store(mode, Ordering::Relaxed);
    header.creator.store(std::process::id(), Ordering::Relaxed);
    header.home.store(here(), Ordering::Relaxed);
    header
        .created_at
        .store(clock::realtime(), Ordering::Relaxed);
    header.magic.store(MAGIC, Ordering::Relaxed);
    debug_assert!(Ring::of(segment).slot(0).is_ok());
}
