//! The segment of a POSIX queue with a few items, in vectors.

use crate::fault::Fault;
use crate::leases::LeaseRecord;
use crate::posix_engine::segment::{
    Cell, Deliveries, Fifo, Fixed, HistoryRecord, Layout, MORE_NOTICES, Notice, PRIORITIES, Policy,
    TraceRecord,
};
use crate::sync::{AtomicU32, Guarded32, Guarded64, Ordering};
use crate::sys::liveness::all_live;
use crate::waiters::{NODES, Node};

/// The eight bytes in a cell. loom checks the accesses to these bytes.
#[derive(Default)]
pub struct Inline(Guarded64);

/// The segment of a POSIX queue in a model.
pub struct Segment {
    layout: Layout,
    policy: Policy,
    fixed: Box<Fixed>,
    levels: Vec<Guarded64>,
    fifos: Vec<Fifo>,
    nodes: Vec<Node>,
    lease_records: Vec<LeaseRecord>,
    notices: Vec<Notice>,
    deliveries: Vec<Deliveries>,
    histories: Vec<HistoryRecord>,
    traces: Vec<TraceRecord>,
    ring: Vec<AtomicU32>,
    cells: Vec<Cell>,
    links: Vec<Guarded32>,
}

// The queue's processes belong to its home namespaces. Only the models of the lock explore the shared form.
all_live!(Segment, home: true);

impl std::fmt::Debug for Segment {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Segment").finish_non_exhaustive()
    }
}

fn some<T: Default>(count: usize) -> Vec<T> {
    std::iter::repeat_with(T::default).take(count).collect()
}

impl Segment {
    /// Creates a queue for up to `max_messages` messages, as `segment::create` makes it. `slots` slots are in circulation, in the shortest ring that
    /// has an entry for each of them (at least 2 entries).
    pub fn new(max_messages: usize, slots: usize) -> Segment {
        let layout = Layout::new(max_messages, 8);
        let segment = Segment {
            layout,
            policy: Policy::default(),
            fixed: Box::default(),
            levels: some(PRIORITIES.div_ceil(64)),
            fifos: some(PRIORITIES),
            nodes: some(NODES),
            lease_records: some(layout.slots),
            notices: some(MORE_NOTICES),
            deliveries: some(layout.slots),
            histories: some(layout.slots),
            traces: some(layout.slots),
            ring: some(layout.ring_len),
            cells: some(layout.slots),
            links: some(layout.slots),
        };
        // The order of the slots is reversed: an entry that was never written can't have the right value by chance.
        for slot in 0..slots {
            segment.ring[slot].store((slots - 1 - slot) as u32, Ordering::Relaxed);
        }
        let fixed = segment.fixed();
        fixed
            .geometry
            .begin(slots.next_power_of_two().max(2), slots);
        fixed.published.begin(slots);
        fixed.sender.begin(slots);
        segment
    }

    pub fn set_policy(&mut self, policy: Policy) {
        self.policy = policy;
    }

    /// Returns none: a model's segment has no place in a file system.
    pub fn namespace(&self) -> Option<&()> {
        None
    }

    pub fn policy(&self) -> &Policy {
        &self.policy
    }

    /// Always succeeds: there is no file that could be truncated.
    pub fn check(&self) -> Result<(), Fault> {
        Ok(())
    }

    pub fn layout(&self) -> &Layout {
        &self.layout
    }

    pub fn fixed(&self) -> &Fixed {
        &self.fixed
    }

    pub fn cell(&self, slot: u32) -> Result<&Cell, Fault> {
        self.cells.get(slot as usize).ok_or(Fault::Damaged)
    }

    pub fn ring(&self, position: u64) -> &AtomicU32 {
        let mask = self.fixed.geometry.ring_mask_with_entries();
        self.ring_at(position as usize & mask as usize)
    }

    pub fn ring_at(&self, index: usize) -> &AtomicU32 {
        &self.ring[index & (self.layout.ring_len - 1)]
    }

    pub fn node(&self, index: u32) -> Result<&Node, Fault> {
        self.nodes.get(index as usize).ok_or(Fault::Damaged)
    }

    pub fn lease_record(&self, index: u32) -> Result<&LeaseRecord, Fault> {
        self.lease_records.get(index as usize).ok_or(Fault::Damaged)
    }

    pub fn populate_lease_records(&self, _usable: u32) -> Result<u32, Fault> {
        Ok(self.lease_records.len() as u32)
    }

    pub fn more_notice(&self, index: usize) -> Result<&Notice, Fault> {
        self.notices.get(index).ok_or(Fault::Damaged)
    }

    pub fn populate_notices(&self, _usable: u32) -> Result<u32, Fault> {
        Ok(self.notices.len() as u32)
    }

    pub fn deliveries(&self, slot: u32) -> Result<&Deliveries, Fault> {
        self.deliveries.get(slot as usize).ok_or(Fault::Damaged)
    }

    pub fn populate_deliveries(&self, _usable: u32) -> Result<u32, Fault> {
        Ok(self.deliveries.len() as u32)
    }

    pub fn history(&self, slot: u32) -> Result<&HistoryRecord, Fault> {
        self.histories.get(slot as usize).ok_or(Fault::Damaged)
    }

    pub fn populate_histories(&self, _usable: u32) -> Result<u32, Fault> {
        Ok(self.histories.len() as u32)
    }

    pub fn trace(&self, slot: u32) -> Result<&TraceRecord, Fault> {
        self.traces.get(slot as usize).ok_or(Fault::Damaged)
    }

    pub fn populate_traces(&self, _usable: u32) -> Result<u32, Fault> {
        Ok(self.traces.len() as u32)
    }

    pub fn fifo(&self, priority: usize) -> Result<&Fifo, Fault> {
        self.fifos.get(priority).ok_or(Fault::Damaged)
    }

    pub fn level0(&self, word: usize) -> Result<&Guarded64, Fault> {
        self.levels.get(word).ok_or(Fault::Damaged)
    }

    /// Returns an error: there is no arena, because messages have at most eight bytes.
    pub fn granule(&self, _granule: u32) -> Result<&[AtomicU32; 4], Fault> {
        Err(Fault::Damaged)
    }

    pub fn copy_in(&self, cell: &Cell, message: &[u8]) -> Result<(), Fault> {
        let mut bytes = [0; 8];
        bytes[..message.len()].copy_from_slice(message);
        cell.payload.0.set(u64::from_ne_bytes(bytes));
        Ok(())
    }

    pub fn copy_out(&self, cell: &Cell, len: usize, buffer: &mut [u8]) -> Result<(), Fault> {
        let bytes = cell.payload.0.get().to_ne_bytes();
        buffer[..len].copy_from_slice(&bytes[..len]);
        Ok(())
    }

    pub fn shorten(&self, _cell: &Cell, _room: usize, _len: usize) -> Result<(), Fault> {
        Ok(())
    }

    /// Does nothing: memory is always allocated.
    pub fn populate(&self, _offset: usize, _len: usize) -> Result<(), Fault> {
        Ok(())
    }

    pub fn link(&self, slot: u32) -> Result<&Guarded32, Fault> {
        self.links.get(slot as usize).ok_or(Fault::Damaged)
    }

    pub fn prefetch_to_write(&self, _slot: u32) {}

    pub fn prefetch(&self, _slot: u32) {}

    pub fn prefetch_link(&self, _slot: u32) {}

    pub fn prefetch_rest(&self, _cell: &Cell) {}
}
