//! A mapped segment of a System V queue: access to its regions.

use super::layout::CELL;
use super::{Cell, Fixed, Generation, Layout, WaiterRecord};
use crate::arena;
use crate::arena::{ArenaRoots, GRANULE};
use crate::fault::Fault;
use crate::leases::{LeaseRecord, LeaseRoots};
use crate::lock::tokens::ReceiverHeld;
use crate::memory::{Format, Regions};
use crate::sync::{AtomicU32, AtomicU64, Guarded32, Guarded64};
use crate::sys::map::PAGE;
use crate::sysv_engine::order::{Kind, OrderLinks, TypeIndexStore, TypeRoots};
use crate::waiters::{Links, NODES, Node};
use crate::{leases, waiters};
use std::ops::Range;

/// Identifies the queue to which a handle belongs: a segment can hold several queues, one after the other.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tenure {
    pub generation: Generation,
    pub id: i32,
}

/// A mapped segment of a System V queue.
pub type Segment = crate::memory::Segment<Fixed>;

impl Segment {
    /// Announces to the namespace, if the namespace is known, that the counts of the queue may change.
    pub(crate) fn announce_counts(&self) {
        if let Some(host) = self.host() {
            host.announce_counts(self.tenure().id);
        }
    }
}

// SAFETY: `Fixed` is `repr(C)` and consists of atomics. Each layout of `Layout::new` begins with `Fixed`, and its last region ends at `Layout::len`,
// the length of the file.
unsafe impl Format for Fixed {
    type Layout = Layout;
    type Cell = Cell;
    type Settings = Tenure;

    fn home(&self) -> &AtomicU64 {
        &self.header.home
    }

    fn is_shared(&self) -> bool {
        self.control.lock.is_shared()
    }

    fn has_shared_lock(&self) -> bool {
        self.is_shared()
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
        [0..self.arena, self.len..self.len]
    }

    #[inline(always)]
    fn arena(&self) -> Range<usize> {
        self.arena..self.arena + self.arena_len
    }

    #[inline(always)]
    fn inline(&self) -> usize {
        Layout::inline()
    }
}

impl Segment {
    /// Returns the queue to which this handle belongs.
    pub fn tenure(&self) -> Tenure {
        *self.settings()
    }

    /// Makes this handle belong to another queue of the segment.
    pub(crate) fn set_tenure(&mut self, tenure: Tenure) {
        *self.settings_mut() = tenure;
    }

    /// Sets the identifier of a queue whose file has no names yet.
    pub fn set_id(&mut self, id: i32) {
        self.fixed().header.set_id(id);
        self.settings_mut().id = id;
    }

    /// Returns a handle that belongs to another queue of the segment.
    pub fn share_as(&self, tenure: Tenure) -> Segment {
        let mut segment = self.share();
        segment.set_tenure(tenure);
        segment
    }

    /// Returns the item at `index` of the layout's region that begins at `offset` and has `count` items.
    #[inline(always)]
    fn entry<T>(&self, offset: usize, index: u32, count: usize) -> Result<&T, Fault> {
        // SAFETY: regions lie inside the mapping with as many items as the layout says, at multiples of 4096; all
        // types of items consist of atomics.
        unsafe { self.item(offset, size_of::<T>(), index as usize, count) }
    }

    #[inline(always)]
    pub fn waiter_record(&self, index: u32) -> Result<&WaiterRecord, Fault> {
        self.entry(self.layout().waiters, index, NODES)
    }

    #[inline(always)]
    pub fn cell(&self, slot: u32) -> Result<&Cell, Fault> {
        // SAFETY: as in `entry`; a cell is longer than its header, and its length is a multiple of the header's alignment (asserted beside `Cell`).
        unsafe {
            self.item(
                self.layout().cells,
                CELL,
                slot as usize,
                self.layout().slots,
            )
        }
    }

    /// Allocates memory for the cells and places of more slots than `usable`. Returns the number of slots that have memory after the call.
    #[cold]
    pub(crate) fn provide_slots(&self, usable: u32) -> Result<u32, Fault> {
        let usable = usable as usize;
        if usable >= self.layout().slots {
            return Err(Fault::UsedUp);
        }
        // Each call doubles the number of slots, but adds at most 64 pages of cells.
        let more = usable.clamp(PAGE / CELL, 64 * PAGE / CELL);
        let next = (usable + more).min(self.layout().slots);
        self.populate(self.layout().cells + usable * CELL, (next - usable) * CELL)?;
        let place = size_of::<OrderLinks>();
        self.populate(
            self.layout().places + usable * place,
            (next - usable) * place,
        )?;
        Ok(next as u32)
    }

    /// Overwrites all cells, places, type records and blocks that were ever used with zeroes: no part of a message remains.
    pub(crate) fn wipe(&self, _: ReceiverHeld<'_>) {
        let (layout, control) = (self.layout(), &self.fixed().control);
        let slots = (control.used() as usize).min(layout.slots);
        let kinds = (self.fixed().kinds.usable() as usize).min(layout.slots);
        let blocks = (control.arena_len().get() as usize * GRANULE).min(layout.arena_len);
        self.zero(layout.cells, slots * CELL);
        self.zero(layout.places, slots * size_of::<OrderLinks>());
        self.zero(layout.kinds, kinds * size_of::<Kind>());
        self.zero(layout.arena, blocks);
    }

    /// Returns the memory that the segment uses without its arena, in bytes.
    pub fn memory(&self) -> u64 {
        let control = &self.fixed().control;
        let slots = (control.usable.get() as usize).min(self.layout().slots);
        let waiters = (control.nodes.get() as usize).min(NODES);
        let kinds = (self.fixed().kinds.usable() as usize).min(self.layout().slots);
        let lease_records = (self.fixed().leases.usable.get() as usize).min(self.layout().slots);
        (self.layout().waiters
            + (kinds * size_of::<Kind>()).next_multiple_of(PAGE)
            + (lease_records * size_of::<LeaseRecord>()).next_multiple_of(PAGE)
            + (waiters * size_of::<WaiterRecord>()).next_multiple_of(PAGE)
            + slots * (CELL + size_of::<OrderLinks>())) as u64
    }
}

impl waiters::WaiterStore for Segment {
    #[inline(always)]
    fn is_shared(&self) -> bool {
        self.fixed().control.lock.is_shared()
    }

    #[inline(always)]
    fn node(&self, index: u32) -> Result<&Node, Fault> {
        self.waiter_record(index).map(WaiterRecord::node)
    }

    #[inline(always)]
    fn links(&self, list: waiters::List) -> Option<&Links> {
        self.fixed().control.links(list)
    }

    fn ticket(&self) -> &Guarded64 {
        self.fixed().control.ticket()
    }

    fn nodes_in_use(&self) -> &Guarded32 {
        self.fixed().control.nodes()
    }

    fn provide_nodes(&self, usable: u32, more: usize) -> Result<(), Fault> {
        let record = size_of::<WaiterRecord>();
        self.populate(
            self.layout().waiters + usable as usize * record,
            more * record,
        )
    }
}

impl leases::LeaseStore for Segment {
    fn lease_record(&self, index: u32) -> Result<&LeaseRecord, Fault> {
        self.entry(self.layout().lease_records, index, self.layout().slots)
    }

    fn populate_lease_records(&self, usable: u32) -> Result<u32, Fault> {
        let layout = self.layout();
        self.populate_page_of(
            (layout.lease_records, size_of::<LeaseRecord>(), layout.slots),
            usable,
        )
    }

    fn roots_of_leases(&self) -> &LeaseRoots {
        &self.fixed().leases
    }

    fn held(&self) -> &AtomicU64 {
        self.fixed().control.held()
    }

    fn slots(&self) -> usize {
        self.layout().slots
    }
}

impl arena::ArenaStore for Segment {
    type Held<'a> = ReceiverHeld<'a>;

    #[inline(always)]
    fn granule(&self, granule: u32) -> Result<&[AtomicU32; 4], Fault> {
        self.entry(
            self.layout().arena,
            granule,
            self.layout().arena_len / GRANULE,
        )
    }

    fn roots(&self) -> &ArenaRoots {
        &self.fixed().arena
    }

    fn arena_len(&self) -> &Guarded32 {
        self.fixed().control.arena_len()
    }

    fn arena_dirty(&self) -> &Guarded32 {
        self.fixed().control.arena_dirty()
    }

    fn arena_limit(&self) -> u32 {
        (self.layout().arena_len / GRANULE) as u32
    }

    fn populate_arena(&self, first_granule: u32, granules: u32) -> Result<(), Fault> {
        self.populate(
            self.layout().arena + first_granule as usize * GRANULE,
            granules as usize * GRANULE,
        )
    }

    fn is_block_of(&self, slot: u32, block: u32) -> Result<bool, Fault> {
        Ok(slot < self.fixed().control.used.get() && self.cell(slot)?.block.get() == block + 1)
    }

    fn free_blocks(
        &self,
        release: &mut dyn FnMut(&Guarded32) -> Result<(), Fault>,
    ) -> Result<(), Fault> {
        crate::sysv_engine::slots::each_free(self, |cell| release(cell.block()))
    }
}

impl TypeIndexStore for Segment {
    #[inline(always)]
    fn place(&self, slot: u32) -> Result<&OrderLinks, Fault> {
        self.entry(self.layout().places, slot, self.layout().slots)
    }

    #[inline(always)]
    fn kind(&self, index: u32) -> Result<&Kind, Fault> {
        self.entry(self.layout().kinds, index, self.layout().slots)
    }

    fn places(&self) -> u32 {
        self.fixed().control.used().min(self.layout().slots as u32)
    }

    #[inline(always)]
    fn kinds(&self) -> &TypeRoots {
        &self.fixed().kinds
    }

    fn provide_kinds(&self, usable: u32) -> Result<u32, Fault> {
        let kind = size_of::<Kind>();
        let usable = usable as usize;
        let next = (usable + PAGE / kind).min(self.layout().slots);
        if next <= usable {
            return Ok(usable as u32);
        }
        self.populate(self.layout().kinds + usable * kind, (next - usable) * kind)?;
        Ok(next as u32)
    }
}
