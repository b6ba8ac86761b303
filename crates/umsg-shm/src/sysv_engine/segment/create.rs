//! Creation of a System V queue's segment.

use super::{
    Fixed, LAYOUT_HASH, Layout, MAGIC, Permissions, Policy, Segment, VERSION, WaiterRecord,
};
use crate::fault::AttachError;
use crate::leases::LeaseRecord;
use crate::memory::set_length;
use crate::sync::Ordering;
use crate::sys::clock::{self, SECOND};
use crate::sys::map::PAGE;
use crate::waiters::NODES;
use rustix::fd::BorrowedFd;
use std::hash::{BuildHasher as _, Hasher as _, RandomState};

/// The identity and the rights of a new queue.
#[derive(Clone, Copy, Debug)]
pub struct Identity {
    /// The identifier.
    pub id: i32,
    /// The key; 0 for IPC_PRIVATE.
    pub key: i32,
    /// The permission bits, the user and the group of the owner.
    pub mode: u32,
    pub uid: u32,
    pub gid: u32,
    /// The number of bytes that may be queued in the new queue.
    pub qbytes: u64,
    pub policy: Policy,
}

/// Makes a segment of an empty file. The file becomes a queue when it gets its names.
pub fn create(
    file: BorrowedFd<'_>,
    layout: Layout,
    identity: &Identity,
) -> Result<Segment, AttachError> {
    set_length(file, layout.len)?;
    let segment = Segment::map(file, layout)?;
    segment.populate(0, size_of::<Fixed>())?;
    segment.populate(layout.waiters, PAGE)?;
    // The first leases then need no further memory: a receiver can use leases to empty a queue whose namespace has no memory left.
    segment.populate(layout.lease_records, PAGE)?;
    fill_in(&segment, identity);
    Ok(segment)
}

fn fill_in(segment: &Segment, identity: &Identity) {
    let fixed = segment.fixed();
    let layout = segment.layout();
    // Relaxed throughout: no other process sees the segment before its file is linked.
    let header = &fixed.header;
    // Later changes read the same clock, so the time of the last change never goes back.
    let now = clock::realtime_coarse();
    let permissions = Permissions {
        uid: identity.uid,
        gid: identity.gid,
        cuid: identity.uid,
        cgid: identity.gid,
        mode: identity.mode,
    };
    fixed.rights.begin(&permissions, now / SECOND);
    identity.policy.write(&fixed.delivery);
    let seed = RandomState::new().build_hasher().finish();
    fixed.kinds.begin(seed);
    fixed
        .control
        .capacity
        .store(identity.qbytes, Ordering::Relaxed);
    fixed
        .control
        .nodes
        .set((PAGE / size_of::<WaiterRecord>()).min(NODES) as u32);
    let lease_records = PAGE / size_of::<LeaseRecord>();
    fixed.leases.usable.set(lease_records as u32);
    header.version.store(VERSION, Ordering::Relaxed);
    header.layout_hash.store(LAYOUT_HASH, Ordering::Relaxed);
    header.capacity.store(layout.capacity, Ordering::Relaxed);
    header.len.store(layout.len as u64, Ordering::Relaxed);
    header.msgmax.store(layout.msgmax as u32, Ordering::Relaxed);
    header.id.store(identity.id as u32, Ordering::Relaxed);
    header.key.store(identity.key as u32, Ordering::Relaxed);
    header.creator.store(std::process::id(), Ordering::Relaxed);
    header.created_at.store(now, Ordering::Relaxed);
    header
        .home
        .store(crate::sys::home::here(), Ordering::Relaxed);
    header.magic.store(MAGIC, Ordering::Relaxed);
}
