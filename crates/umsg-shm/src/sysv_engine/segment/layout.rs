//! The layout of a System V queue's segment: it follows from the queue's capacity and from its longest message.

use super::{Cell, Fixed, WaiterRecord};
use crate::arena::{ALIGN, ARENA_GAP, GRANULE, region_len};
use crate::leases::LeaseRecord;
use crate::sysv_engine::order::{Kind, OrderLinks};
use crate::waiters::NODES;

/// The length of a cell, in bytes: a cache line.
pub const CELL: usize = 64;

/// The greatest number of slots of a queue, whatever its capacity is.
pub(crate) const MOST_SLOTS: usize = 1 << 22;

/// The largest possible capacity of a queue, in bytes: the range of qbytes.
#[cfg(not(loom))]
pub const MOST_BYTES: u64 = u32::MAX as u64;
/// The longest possible message of any queue, in bytes.
#[cfg(not(loom))]
pub const LONGEST: u32 = 16 << 20;

/// The number of spare slots, in addition to those for queued messages and for blocked threads.
const SPARE: usize = 64;

/// The offsets of the regions, in bytes from the start of the file, and their numbers of items.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    /// The greatest possible number of queued bytes.
    pub capacity: u64,
    /// The length of the longest message that the queue accepts, in bytes.
    pub msgmax: usize,
    pub waiters: usize,
    pub lease_records: usize,
    pub places: usize,
    pub kinds: usize,
    pub cells: usize,
    pub arena: usize,
    /// The length of the arena, in bytes.
    pub arena_len: usize,
    /// The number of slots, which is also the number of type records.
    pub slots: usize,
    /// The length of the file, in bytes.
    pub len: usize,
}

impl Layout {
    /// Returns the layout of a queue that may hold up to `capacity` bytes in messages of up to `msgmax` bytes.
    pub fn new(capacity: u64, msgmax: usize) -> Layout {
        let slots = (capacity as usize).clamp(1, MOST_SLOTS) + NODES + SPARE;
        let waiters = size_of::<Fixed>().next_multiple_of(ALIGN);
        let lease_records = waiters + (NODES * size_of::<WaiterRecord>()).next_multiple_of(ALIGN);
        let places = lease_records + (slots * size_of::<LeaseRecord>()).next_multiple_of(ALIGN);
        let kinds = places + (slots * size_of::<OrderLinks>()).next_multiple_of(ALIGN);
        let cells = kinds + (slots * size_of::<Kind>()).next_multiple_of(ALIGN);
        let arena = cells + (slots * CELL).next_multiple_of(ALIGN) + ARENA_GAP;
        let arena_len = arena_len(capacity, msgmax);
        Layout {
            capacity,
            msgmax,
            waiters,
            lease_records,
            places,
            kinds,
            cells,
            arena,
            arena_len,
            slots,
            len: arena + arena_len,
        }
    }

    /// Returns the length of the longest message that a cell itself can hold, in bytes. A longer message lies wholly in a block of the arena.
    #[inline(always)]
    pub const fn inline() -> usize {
        CELL - size_of::<Cell>()
    }
}

/// The least room for the parked messages of blocked senders, in bytes. If the capacity of the queue is larger, the room has the size of the
/// capacity.
const WAITING: usize = 64 << 20;

/// Returns the length of the arena. The shortest message in a block takes less than twice its length, so queued messages get
/// twice the capacity. The room for the parked messages of blocked senders is added.
fn arena_len(capacity: u64, msgmax: usize) -> usize {
    let waiting = (NODES * (msgmax + 2 * GRANULE)).min(WAITING.max(capacity as usize));
    region_len(
        (capacity as usize)
            .saturating_mul(2)
            .saturating_add(waiting),
    )
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn regions_follow_each_other_without_overlap() {
        for (capacity, msgmax) in [
            (1, 0),
            (16_384, 8192),
            (1 << 30, 8192),
            (MOST_BYTES, LONGEST as usize),
        ] {
            let layout = Layout::new(capacity, msgmax);
            let ends = [
                (layout.waiters, NODES * size_of::<WaiterRecord>()),
                (
                    layout.lease_records,
                    layout.slots * size_of::<LeaseRecord>(),
                ),
                (layout.places, layout.slots * size_of::<OrderLinks>()),
                (layout.kinds, layout.slots * size_of::<Kind>()),
                (layout.cells, layout.slots * CELL),
                (layout.arena, layout.arena_len),
            ];
            for pair in ends.windows(2) {
                assert!(pair[0].0 + pair[0].1 <= pair[1].0, "{layout:?}");
            }
            assert_eq!(layout.arena + layout.arena_len, layout.len);
        }
    }

    #[test]
    fn the_addresses_of_a_process_suffice_for_as_many_queues_as_the_kernel_has() {
        for msgmax in [8192, LONGEST as usize] {
            assert!(Layout::new(1 << 30, msgmax).len < 6 << 30);
        }
        assert!(Layout::new(1 << 30, 8192).len < (1 << 47) / 32_000);
    }
}
