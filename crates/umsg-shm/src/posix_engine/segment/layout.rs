//! The layout of a segment: the offsets of its regions. The offsets follow from the capacity of the queue in messages, and the message size.

use super::cell::{LONG_CELL, SHORT_CELL};
use super::{
    Cell, Deliveries, Fifo, Fixed, HistoryRecord, LeaseRecord, NODES, Node, Notice, TraceRecord,
};
use crate::arena::{ALIGN, ARENA_GAP, region_len};

/// The number of priorities of POSIX, which are 0 to 32,767.
#[cfg(not(loom))]
pub const PRIORITIES: usize = 32_768;
#[cfg(loom)]
pub const PRIORITIES: usize = 4;

/// The number of additional records for registrations, outside of the fixed part. A notified process that has not run yet keeps its record.
#[cfg(not(loom))]
pub const MORE_NOTICES: usize = 1024;
#[cfg(loom)]
pub const MORE_NOTICES: usize = 1;

/// The number of additional slots: a reserve for senders, beyond one slot for each message and each node.
#[cfg(not(loom))]
const SPARE: usize = 64;
#[cfg(loom)]
const SPARE: usize = 2;

/// The offsets of the regions, in bytes from the start of the file, and the numbers of items in the regions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    pub max_messages: usize,
    pub message_size: usize,
    pub(crate) levels: usize,
    pub fifos: usize,
    pub nodes: usize,
    pub ring: usize,
    pub links: usize,
    pub lease_records: usize,
    pub cells: usize,
    /// The length of a cell, in bytes: a power of two.
    pub cell_len: usize,
    pub arena: usize,
    /// The length of the arena, in bytes.
    pub arena_len: usize,
    pub notices: usize,
    /// The times of leases, one for each slot.
    pub deliveries: usize,
    /// The histories of dead letters, one for each slot.
    pub histories: usize,
    /// The traces of messages, one for each slot.
    pub traces: usize,
    /// The maximum number of slots in use.
    pub slots: usize,
    /// The maximum number of ring entries: a power of two, at least `slots`.
    pub ring_len: usize,
    /// The length of the file, in bytes.
    pub len: usize,
}

impl Layout {
    /// Computes the layout of a queue of up to `max_messages` messages of up to `message_size` bytes.
    pub fn new(max_messages: usize, message_size: usize) -> Layout {
        let slots = max_messages + NODES + SPARE;
        let ring_len = slots.next_power_of_two();
        let levels = size_of::<Fixed>().next_multiple_of(ALIGN);
        let fifos = levels + (PRIORITIES.div_ceil(64) * 8).next_multiple_of(ALIGN);
        let nodes = fifos + (PRIORITIES * size_of::<Fifo>()).next_multiple_of(ALIGN);
        let ring = nodes + (NODES * size_of::<Node>()).next_multiple_of(ALIGN);
        let links = ring + (ring_len * 4).next_multiple_of(ALIGN);
        let lease_records = links + (slots * 4).next_multiple_of(ALIGN);
        let cells = lease_records + (slots * size_of::<LeaseRecord>()).next_multiple_of(ALIGN);
        let cell_len = cell_len(message_size);
        let arena_len = arena_len(slots, message_size);
        let gap = if arena_len == 0 { 0 } else { ARENA_GAP };
        let arena = cells + (slots * cell_len).next_multiple_of(ALIGN) + gap;
        let notices = arena + arena_len;
        let deliveries = notices + (MORE_NOTICES * size_of::<Notice>()).next_multiple_of(ALIGN);
        let histories = deliveries + (slots * size_of::<Deliveries>()).next_multiple_of(ALIGN);
        let traces = histories + (slots * size_of::<HistoryRecord>()).next_multiple_of(ALIGN);
        let len = traces + (slots * size_of::<TraceRecord>()).next_multiple_of(ALIGN);
        Layout {
            max_messages,
            message_size,
            levels,
            fifos,
            nodes,
            ring,
            links,
            lease_records,
            cells,
            cell_len,
            arena,
            arena_len,
            notices,
            deliveries,
            histories,
            traces,
            slots,
            ring_len,
            len,
        }
    }

    /// Returns the maximum length of a message in a cell, in bytes. A longer message is in a block of the arena.
    #[inline(always)]
    pub fn inline(&self) -> usize {
        inline(self.cell_len)
    }
}

const fn inline(cell_len: usize) -> usize {
    cell_len - size_of::<Cell>()
}

/// Returns the length of a cell. Short messages use short cells. A short cell needs half the memory, so fewer pages are allocated when the queue is
/// filled for the first time.
fn cell_len(message_size: usize) -> usize {
    if message_size <= inline(SHORT_CELL) {
        SHORT_CELL
    } else {
        LONG_CELL
    }
}

/// Returns the length of the arena. The arena has room for the longest message of each slot, with the header of the message's block.
fn arena_len(slots: usize, message_size: usize) -> usize {
    if message_size <= inline(LONG_CELL) {
        return 0;
    }
    let block = message_size.next_multiple_of(64) + 64;
    region_len(slots.saturating_mul(block))
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn the_largest_queue_fits_into_the_address_space() {
        let layout = Layout::new(1_048_576, 16 << 20);
        assert!(layout.len < 1 << 40, "{layout:?}");
        assert_eq!(layout.arena_len, region_len(usize::MAX));
    }

    #[test]
    fn regions_follow_each_other_without_overlap() {
        let layout = Layout::new(10, 8192);
        let ends = [
            (layout.levels, PRIORITIES / 8),
            (layout.fifos, PRIORITIES * 8),
            (layout.nodes, NODES * 64),
            (layout.ring, layout.ring_len * 4),
            (layout.links, layout.slots * 4),
            (layout.lease_records, layout.slots * 48),
            (layout.cells, layout.slots * layout.cell_len),
            (layout.arena, layout.arena_len),
            (layout.notices, MORE_NOTICES * 64),
            (layout.deliveries, layout.slots * 16),
            (layout.histories, layout.slots * 320),
            (layout.traces, layout.slots * 256),
        ];
        for pair in ends.windows(2) {
            assert!(pair[0].0 + pair[0].1 <= pair[1].0, "{layout:?}");
        }
        assert_eq!(layout.notices + MORE_NOTICES * 64, layout.deliveries);
        assert!(layout.ring_len >= layout.slots);
    }

    #[test]
    fn short_messages_need_no_arena() {
        assert_eq!(Layout::new(10, 80).arena_len, 0);
        assert_ne!(Layout::new(10, 81).arena_len, 0);
    }

    #[test]
    fn a_message_of_16_bytes_lies_in_one_cache_line() {
        assert_eq!(Layout::new(10, 16).cell_len, 64);
        assert_eq!(Layout::new(10, 17).cell_len, 128);
    }
}
