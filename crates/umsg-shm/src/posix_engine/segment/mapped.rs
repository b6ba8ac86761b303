//! The mapped segment of a POSIX queue: access to its regions.

use super::{
    Cell, Deliveries, Fifo, Fixed, GRANULE, HistoryRecord, Layout, LeaseRecord, MORE_NOTICES,
    NODES, Node, Notice, PRIORITIES, Policy, TraceRecord,
};
use crate::fault::Fault;
use crate::memory::{Format, LastUse, Regions};
use crate::sync::{AtomicU32, AtomicU64, Guarded32, Guarded64};
use crate::sys::map::PAGE;
use std::ops::Range;

/// A mapped segment of a POSIX queue.
pub type Segment = crate::memory::Segment<Fixed>;

// SAFETY: `Fixed` is `repr(C)` and consists of atomics. The layouts of `Layout::new` begin with `Fixed` and end at the end of the file.
unsafe impl Format for Fixed {
    type Layout = Layout;
    type Cell = Cell;
    type Settings = Policy;

    fn home(&self) -> &AtomicU64 {
        &self.header.home
    }

    fn is_shared(&self) -> bool {
        self.receiver.lock.is_shared()
    }

    fn has_shared_lock(&self) -> bool {
        self.receiver.lock.is_shared() || self.sender.lock.is_shared()
    }

    #[inline(always)]
    fn block(cell: &Cell) -> usize {
        cell.block.get() as usize * GRANULE
    }
}

impl Regions for Layout {
    fn file_len(&self) -> usize {
        self.len
    }

    fn tables(&self) -> [Range<usize>; 2] {
        [0..self.arena, self.notices..self.len]
    }

    #[inline(always)]
    fn arena(&self) -> Range<usize> {
        self.arena..self.arena + self.arena_len
    }

    #[inline(always)]
    fn inline(&self) -> usize {
        Layout::inline(self)
    }
}

impl Segment {
    /// Makes the last process that unmaps the segment remove its file. The caller calls this function before it shares the segment.
    pub fn set_last_close(&mut self, last_close: LastUse) {
        self.set_last_use(last_close);
        self.fixed().rules.note_use();
    }

    pub(crate) fn set_policy(&mut self, policy: Policy) {
        *self.settings_mut() = policy;
    }

    /// Sets the name of the dead-letter queue, which the process has read from the queue's label.
    pub fn set_dead_letter(&mut self, name: Option<Vec<u8>>) {
        self.settings_mut().dead_letter = name;
    }

    #[inline(always)]
    pub fn policy(&self) -> &Policy {
        self.settings()
    }

    /// Returns the item at `index` of a region with `count` items at `offset`. The caller takes the region from the layout.
    #[inline(always)]
    fn entry<T>(&self, offset: usize, index: usize, count: usize) -> Result<&T, Fault> {
        // SAFETY: the regions lie inside the mapping, at multiples of 4096, and contain as many items as the layout states. All types of items
        // consist of atomics.
        unsafe { self.item(offset, size_of::<T>(), index, count) }
    }

    #[inline(always)]
    pub fn cell(&self, slot: u32) -> Result<&Cell, Fault> {
        let Layout {
            cells,
            cell_len,
            slots,
            ..
        } = *self.layout();
        // SAFETY: as in `entry`, the cells lie inside the mapping and consist of atomics. A cell is longer than its header, and its length is a
        // multiple of the header's alignment (asserted in `cell.rs`).
        unsafe { self.item(cells, cell_len, slot as usize, slots) }
    }

    /// Returns the entry of the ring for a ring position.
    #[inline(always)]
    pub fn ring(&self, position: u64) -> &AtomicU32 {
        let mask = self.fixed().geometry.ring_mask_with_entries();
        self.ring_at(position as usize & mask as usize)
    }

    /// Returns the entry of the ring at an index.
    #[inline(always)]
    pub(crate) fn ring_at(&self, index: usize) -> &AtomicU32 {
        let index = index & (self.layout().ring_len - 1);
        let ring = self.layout().ring;
        // SAFETY: as in `entry`, the region lies inside the mapping and consists of atomics. The index was masked with the length of the region, a
        // power of two.
        unsafe { &*self.base().add(ring).cast::<AtomicU32>().add(index) }
    }

    /// Returns the link of a slot: the word with the next slot in the list of the message's priority. The links are not in the cells, so linking a
    /// message does not fetch the cell of its neighbour.
    #[inline(always)]
    pub fn link(&self, slot: u32) -> Result<&Guarded32, Fault> {
        self.entry(self.layout().links, slot as usize, self.layout().slots)
    }

    #[inline(always)]
    pub(crate) fn node(&self, index: u32) -> Result<&Node, Fault> {
        self.entry(self.layout().nodes, index as usize, NODES)
    }

    pub(crate) fn lease_record(&self, index: u32) -> Result<&LeaseRecord, Fault> {
        self.entry(
            self.layout().lease_records,
            index as usize,
            self.layout().slots,
        )
    }

    /// Allocates memory for more than `usable` lease records. Returns the number of records that have memory after the call.
    pub(crate) fn populate_lease_records(&self, usable: u32) -> Result<u32, Fault> {
        let layout = self.layout();
        self.populate_page_of(
            (layout.lease_records, size_of::<LeaseRecord>(), layout.slots),
            usable,
        )
    }

    /// Returns an additional record for a registration, outside of the fixed part.
    pub(crate) fn more_notice(&self, index: usize) -> Result<&Notice, Fault> {
        self.entry(self.layout().notices, index, MORE_NOTICES)
    }

    /// Allocates memory for more than `usable` additional records for registrations. Returns the number of these records that have memory after the
    /// call.
    pub(crate) fn populate_notices(&self, usable: u32) -> Result<u32, Fault> {
        if usable as usize >= MORE_NOTICES {
            return Err(Fault::NoMemory);
        }
        let notices = self.layout().notices;
        self.populate_page_of((notices, size_of::<Notice>(), MORE_NOTICES), usable)
    }

    /// Returns the times of the first and the last lease of a slot's message.
    pub(crate) fn deliveries(&self, slot: u32) -> Result<&Deliveries, Fault> {
        let layout = self.layout();
        self.entry(layout.deliveries, slot as usize, layout.slots)
    }

    /// Allocates memory for the lease times of more than `usable` slots. Returns the number of slots whose times have memory after the call.
    pub(crate) fn populate_deliveries(&self, usable: u32) -> Result<u32, Fault> {
        let layout = self.layout();
        let region = (layout.deliveries, size_of::<Deliveries>(), layout.slots);
        self.populate_page_of(region, usable)
    }

    /// Returns the history of the message in a slot. The history is valid if a bit of the message's cell shows that the message has one.
    pub(crate) fn history(&self, slot: u32) -> Result<&HistoryRecord, Fault> {
        let layout = self.layout();
        self.entry(layout.histories, slot as usize, layout.slots)
    }

    /// Allocates memory for the histories of more than `usable` slots. Returns the number of slots whose histories have memory after the call.
    pub(crate) fn populate_histories(&self, usable: u32) -> Result<u32, Fault> {
        let layout = self.layout();
        let region = (layout.histories, size_of::<HistoryRecord>(), layout.slots);
        self.populate_page_of(region, usable)
    }

    /// Returns the trace of the message in a slot. The trace is valid if a bit of the message's cell shows that the message has one.
    pub(crate) fn trace(&self, slot: u32) -> Result<&TraceRecord, Fault> {
        let layout = self.layout();
        self.entry(layout.traces, slot as usize, layout.slots)
    }

    /// Allocates memory for the traces of more than `usable` slots. Returns the number of slots whose traces have memory after the call.
    pub(crate) fn populate_traces(&self, usable: u32) -> Result<u32, Fault> {
        let layout = self.layout();
        let region = (layout.traces, size_of::<TraceRecord>(), layout.slots);
        self.populate_page_of(region, usable)
    }

    #[inline(always)]
    pub fn fifo(&self, priority: usize) -> Result<&Fifo, Fault> {
        self.entry(self.layout().fifos, priority, PRIORITIES)
    }

    /// Returns a word of the first level of the priority bitmap.
    #[inline(always)]
    pub fn level0(&self, word: usize) -> Result<&Guarded64, Fault> {
        self.entry(self.layout().levels, word, PRIORITIES / 64)
    }

    /// Returns the four words of the block header that begins at this granule.
    #[inline(always)]
    pub(crate) fn granule(&self, granule: u32) -> Result<&[AtomicU32; 4], Fault> {
        self.entry(
            self.layout().arena,
            granule as usize,
            self.layout().arena_len / GRANULE,
        )
    }

    /// Copies the message of `len` bytes out of its slot into the beginning of `buffer`.
    #[inline(always)]
    pub(crate) fn copy_out(&self, cell: &Cell, len: usize, buffer: &mut [u8]) -> Result<(), Fault> {
        if len > buffer.len() {
            return Err(Fault::Damaged);
        }
        self.copy_prefix(cell, len, buffer).map(drop)
    }

    /// Shortens a message that was written in place, from `room` bytes to `len`. If the shortened message fits into the cell, the bytes move from the
    /// block to the cell.
    pub(crate) fn shorten(&self, cell: &Cell, room: usize, len: usize) -> Result<(), Fault> {
        let (from, to) = (self.payload(cell, room)?, self.payload(cell, len)?);
        if from != to {
            // SAFETY: source and target have room for `len` bytes inside the mapping, and lie in different regions.
            unsafe { std::ptr::copy_nonoverlapping(from, to, len.min(room)) };
        }
        Ok(())
    }

    /// Returns the number of bytes in use for `slots` slots in circulation, without the arena.
    pub fn memory(&self, slots: usize) -> u64 {
        let ring = self.fixed().geometry.ring_mask() as usize + 1;
        let lease_records = (self.fixed().leases.usable.get() as usize).min(self.layout().slots);
        let notices = self.fixed().receiver.more_notices() as usize;
        let leases = &self.fixed().leases;
        let deliveries = (leases.deliveries.get() as usize).min(self.layout().slots);
        let histories = (leases.histories.get() as usize).min(self.layout().slots);
        let traces = (leases.traces.get() as usize).min(self.layout().slots);
        (self.layout().fifos
            + (lease_records * size_of::<LeaseRecord>()).next_multiple_of(PAGE)
            + notices.min(MORE_NOTICES) * size_of::<Notice>()
            + (deliveries * size_of::<Deliveries>()).next_multiple_of(PAGE)
            + (histories * size_of::<HistoryRecord>()).next_multiple_of(PAGE)
            + (traces * size_of::<TraceRecord>()).next_multiple_of(PAGE)
            + 2 * 4096
            + ring.min(self.layout().ring_len) * 4
            + slots * self.layout().cell_len) as u64
    }

    /// Prefetches the cell of a slot for reading.
    #[inline(always)]
    pub(crate) fn prefetch(&self, slot: u32) {
        if let Ok(cell) = self.cell(slot) {
            prefetch_line(std::ptr::from_ref(cell).cast());
            self.prefetch_rest(cell);
        }
    }

    /// Prefetches the bytes of a message after the first line of its cell.
    #[inline(always)]
    pub(crate) fn prefetch_rest(&self, cell: &Cell) {
        if self.layout().cell_len > LINE {
            prefetch_line(std::ptr::from_ref(cell).cast::<u8>().wrapping_add(LINE));
        }
    }

    /// Prefetches the link of a slot.
    #[inline(always)]
    pub(crate) fn prefetch_link(&self, slot: u32) {
        if let Ok(link) = self.link(slot) {
            prefetch_line(std::ptr::from_ref(link).cast());
        }
    }

    /// Prefetches the cell of a slot for writing.
    #[inline(always)]
    pub fn prefetch_to_write(&self, slot: u32) {
        if let Ok(cell) = self.cell(slot) {
            let first = std::ptr::from_ref(cell).cast::<u8>();
            prefetch_line_to_write(first);
            if self.layout().cell_len > LINE {
                prefetch_line_to_write(first.wrapping_add(LINE));
            }
        }
    }
}

/// The number of bytes in a cache line.
const LINE: usize = 64;

/// Prefetches a cache line. The address is a hint: it may be invalid.
#[inline(always)]
fn prefetch_line(address: *const u8) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a prefetch affects only the cache, at any address.
    unsafe {
        std::arch::x86_64::_mm_prefetch::<{ std::arch::x86_64::_MM_HINT_T0 }>(address.cast());
    }
    #[cfg(target_arch = "aarch64")]
    // SAFETY: a prefetch affects only the cache, at any address.
    unsafe {
        std::arch::asm!("prfm pldl1keep, [{}]", in(reg) address, options(nostack, preserves_flags, readonly));
    }
}

/// Prefetches a cache line for writing. Without this prefetch, a later store to the line would have to wait until another core gives up the line.
#[inline(always)]
fn prefetch_line_to_write(address: *const u8) {
    if cfg!(miri) {
        return;
    }
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a prefetch affects only the cache. A processor without this instruction ignores it.
    unsafe {
        std::arch::asm!("prefetchw [{}]", in(reg) address, options(nostack, preserves_flags, readonly));
    }
    #[cfg(target_arch = "aarch64")]
    // SAFETY: a prefetch affects only the cache.
    unsafe {
        std::arch::asm!("prfm pstl1keep, [{}]", in(reg) address, options(nostack, preserves_flags, readonly));
    }
}
