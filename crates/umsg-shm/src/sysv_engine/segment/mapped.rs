//! A System V queue's segment as it is: a mapped file.

use super::layout::CELL;
use super::{Cell, Fixed, Layout, Seat};
use crate::arena;
use crate::arena::{ArenaRoots, GRANULE};
use crate::fault::{AttachError, Fault};
use crate::leases::{LeaseRecord, LeaseRoots};
use crate::lock::Lock;
use crate::memory::{Host, Memory};
use crate::sync::{AtomicU32, AtomicU64, Guarded32, Guarded64, Ordering};
use crate::sys::liveness::Liveness;
use crate::sys::required;
use crate::sysv_engine::order::{Kind, Place, TypeIndexStore, TypeRoots};
use crate::waiters::{Links, NODES, Node};
use crate::{leases, waiters};
use rustix::fd::BorrowedFd;
use rustix::io::Errno;
use std::sync::Arc;

/// Bytes in a page.
const PAGE: usize = 4096;

/// A mapped segment. Every accessor checks its index against the layout that this process computed itself, so nothing
/// that a peer writes leads out of the mapping.
#[derive(Debug)]
pub struct Segment {
    memory: Memory,
    layout: Layout,
}

impl Liveness for Segment {
    fn own(&self) -> u32 {
        self.memory.own()
    }

    fn is_over(&self, life: u32) -> bool {
        self.memory.is_over(life)
    }

    #[inline(always)]
    fn is_elsewhere(&self) -> bool {
        self.memory.is_elsewhere()
    }

    fn is_home(&self) -> bool {
        self.memory.is_home()
    }

    fn is_plain(&self) -> bool {
        self.memory.is_home() && !self.fixed().control.lock.is_shared()
    }
}

impl Segment {
    /// Maps a file that is known to have this layout.
    pub(crate) fn map(file: BorrowedFd<'_>, layout: Layout) -> Result<Segment, AttachError> {
        required::check()?;
        let memory =
            Memory::map(file, layout.len).map_err(|e| AttachError::of_mapping(e, layout.len))?;
        Ok(Segment { memory, layout })
    }

    /// A private copy of a file's segment as it is now, but for what its blocks hold: for a process that only looks.
    pub fn copy_of(file: BorrowedFd<'_>, layout: Layout) -> Result<Segment, Errno> {
        Ok(Segment {
            memory: Memory::copy_of(file, layout.len, std::slice::from_ref(&(0..layout.arena)))?,
            layout,
        })
    }

    /// The address of the first byte.
    pub fn address(&self) -> usize {
        self.memory.base().addr()
    }

    /// Has a copy know whose lives its records name.
    pub fn settle_copy(&mut self, host: Arc<dyn Host>) {
        self.settle_home();
        self.memory.set_host(host);
    }

    /// Finds out whether it was created in this process's PID and time namespace. Before it is shared.
    pub(crate) fn settle_home(&mut self) {
        // Relaxed: stored before the file was linked.
        let home = self.fixed().header.home.load(Ordering::Relaxed);
        self.memory.set_home(home);
    }

    /// The same mapping once more: it stays until no process uses it.
    pub(crate) fn share(&self) -> Segment {
        Segment {
            memory: self.memory.share(),
            layout: self.layout,
        }
    }

    /// From now on, memory that comes into use counts in a namespace. For a process that only looks: others [`join`](Self::join).
    pub fn count_in(&mut self, host: Arc<dyn Host>) {
        self.memory.count_in(host);
    }

    /// As [`count_in`](Self::count_in), and has others know of this process's death if processes of several PID namespaces use the queue.
    ///
    /// # Errors
    /// `Unregistered`.
    pub fn join(&mut self, host: Arc<dyn Host>) -> Result<(), AttachError> {
        self.memory.count_in(host);
        let mut locks = [&self.fixed().control.lock].into_iter();
        match !self.is_home() || locks.any(Lock::is_shared) {
            true => self.memory.join(),
            false => Ok(()),
        }
    }

    /// Which file it is.
    pub fn file(&self) -> crate::sys::file::FileIdentity {
        self.memory.file()
    }

    /// The namespace in which its memory counts, if that is known.
    pub(crate) fn counted_in(&self) -> Option<&Arc<dyn Host>> {
        self.memory.counted_in()
    }

    /// [`Fault::Damaged`] if the file was cut short under the mapping.
    #[inline(always)]
    pub(crate) fn check(&self) -> Result<(), Fault> {
        self.memory.check()
    }

    #[inline(always)]
    pub fn layout(&self) -> &Layout {
        &self.layout
    }

    #[inline(always)]
    pub fn fixed(&self) -> &Fixed {
        // SAFETY: every layout begins with the fixed part, which consists of atomics; a mapping is page-aligned.
        unsafe { &*self.memory.base().cast::<Fixed>() }
    }

    /// The item at `index` of the region of `count` items at `offset`, which is one of the layout's.
    #[inline(always)]
    fn item<T>(&self, offset: usize, index: u32, count: usize) -> Result<&T, Fault> {
        // SAFETY: regions lie inside the mapping with as many items as the layout says, at multiples of 4096; all
        // types of items consist of atomics.
        unsafe {
            self.memory
                .item(offset, size_of::<T>(), index as usize, count)
        }
    }

    #[inline(always)]
    pub fn seat(&self, index: u32) -> Result<&Seat, Fault> {
        self.item(self.layout.seats, index, NODES)
    }

    #[inline(always)]
    pub fn cell(&self, slot: u32) -> Result<&Cell, Fault> {
        // SAFETY: as in `item`; a cell is longer than its header.
        unsafe {
            self.memory
                .item(self.layout.cells, CELL, slot as usize, self.layout.slots)
        }
    }

    /// Makes `len` bytes from `offset` on real memory.
    pub(super) fn provide(&self, offset: usize, len: usize) -> Result<(), Fault> {
        self.memory.populate(offset, len)
    }

    /// Makes the cell and the place of more slots real memory than `usable`; answers how many are.
    #[cold]
    pub(crate) fn provide_slots(&self, usable: u32) -> Result<u32, Fault> {
        let usable = usable as usize;
        if usable >= self.layout.slots {
            return Err(Fault::UsedUp);
        }
        // Twice as many each time, up to 64 pages.
        let more = usable.clamp(PAGE / CELL, 64 * PAGE / CELL);
        let next = (usable + more).min(self.layout.slots);
        self.memory
            .populate(self.layout.cells + usable * CELL, (next - usable) * CELL)?;
        let place = size_of::<Place>();
        self.memory
            .populate(self.layout.places + usable * place, (next - usable) * place)?;
        Ok(next as u32)
    }

    /// Where `len` bytes of payload lie: in the cell, or in the block that it names.
    #[inline(always)]
    pub(crate) fn payload(&self, cell: &Cell, len: usize) -> Result<*mut u8, Fault> {
        if len <= Layout::inline() {
            let cell = std::ptr::from_ref(cell).addr() - self.memory.base().addr();
            // SAFETY: the bytes behind the header belong to the cell, which lies inside the mapping.
            return Ok(unsafe { self.memory.base().add(cell + size_of::<Cell>()) });
        }
        let offset = cell.block.get() as usize * GRANULE;
        if offset == 0 || offset + len > self.layout.arena_len {
            return Err(Fault::Damaged);
        }
        // SAFETY: offset + len was checked against the arena's length; the arena lies inside the mapping.
        Ok(unsafe { self.memory.base().add(self.layout.arena + offset) })
    }

    /// Copies a message into its slot.
    #[inline(always)]
    pub(crate) fn copy_in(&self, cell: &Cell, message: &[u8]) -> Result<(), Fault> {
        let place = self.payload(cell, message.len())?;
        // SAFETY: `place` has room for the message inside the mapping, and our caller's bytes lie elsewhere. A peer
        // that breaks the protocol may write at the same time: then the bytes are arbitrary, as they may be anyway.
        unsafe { std::ptr::copy_nonoverlapping(message.as_ptr(), place, message.len()) };
        Ok(())
    }

    /// Copies the beginning of a message of `len` bytes into `buffer`: as much as fits. Answers how many bytes.
    #[inline(always)]
    pub(crate) fn copy_out(
        &self,
        cell: &Cell,
        len: usize,
        buffer: &mut [u8],
    ) -> Result<usize, Fault> {
        let place = self.payload(cell, len)?;
        let copied = len.min(buffer.len());
        // SAFETY: as in `copy_in`, the other way round; no more than the buffer has room for.
        unsafe { std::ptr::copy_nonoverlapping(place, buffer.as_mut_ptr(), copied) };
        Ok(copied)
    }

    /// Bytes in use by everything but the arena.
    pub fn memory(&self) -> u64 {
        let control = &self.fixed().control;
        let slots = (control.usable.get() as usize).min(self.layout.slots);
        let seats = (control.nodes.get() as usize).min(NODES);
        let kinds = (self.fixed().kinds.usable.get() as usize).min(self.layout.slots);
        let holds = (self.fixed().holding.usable.get() as usize).min(self.layout.slots);
        (self.layout.seats
            + (kinds * size_of::<Kind>()).next_multiple_of(PAGE)
            + (holds * size_of::<LeaseRecord>()).next_multiple_of(PAGE)
            + (seats * size_of::<Seat>()).next_multiple_of(PAGE)
            + slots * (CELL + size_of::<Place>())) as u64
    }
}

impl waiters::WaiterStore for Segment {
    #[inline(always)]
    fn is_shared(&self) -> bool {
        self.fixed().control.lock.is_shared()
    }

    #[inline(always)]
    fn node(&self, index: u32) -> Result<&Node, Fault> {
        self.seat(index).map(|seat| &seat.node)
    }

    #[inline(always)]
    fn links(&self, list: waiters::List) -> Option<&Links> {
        super::links(&self.fixed().control, list)
    }

    fn ticket(&self) -> &Guarded64 {
        &self.fixed().control.ticket
    }

    fn nodes_in_use(&self) -> &Guarded32 {
        &self.fixed().control.nodes
    }

    fn provide_nodes(&self, usable: u32, more: usize) -> Result<(), Fault> {
        let seat = size_of::<Seat>();
        self.memory
            .populate(self.layout.seats + usable as usize * seat, more * seat)
    }
}

impl leases::LeaseStore for Segment {
    fn hold(&self, index: u32) -> Result<&LeaseRecord, Fault> {
        self.item(self.layout.holds, index, self.layout.slots)
    }

    fn populate_holds(&self, usable: u32) -> Result<u32, Fault> {
        let hold = size_of::<LeaseRecord>();
        let first = (usable as usize * hold).next_multiple_of(PAGE);
        let all = self.layout.slots * hold;
        if first >= all {
            return Err(Fault::Damaged);
        }
        self.memory.populate(self.layout.holds + first, PAGE)?;
        Ok(((first + PAGE).min(all) / hold) as u32)
    }

    fn holding(&self) -> &LeaseRoots {
        &self.fixed().holding
    }

    fn held(&self) -> &AtomicU64 {
        &self.fixed().control.held
    }

    fn slots(&self) -> usize {
        self.layout.slots
    }
}

impl arena::ArenaStore for Segment {
    #[inline(always)]
    fn granule(&self, granule: u32) -> Result<&[AtomicU32; 4], Fault> {
        self.item(self.layout.arena, granule, self.layout.arena_len / GRANULE)
    }

    fn roots(&self) -> &ArenaRoots {
        &self.fixed().arena
    }

    fn arena_len(&self) -> &Guarded32 {
        &self.fixed().control.arena_len
    }

    fn arena_dirty(&self) -> &Guarded32 {
        &self.fixed().control.arena_dirty
    }

    fn arena_limit(&self) -> u32 {
        (self.layout.arena_len / GRANULE) as u32
    }

    fn populate_arena(&self, first_granule: u32, granules: u32) -> Result<(), Fault> {
        self.memory.populate(
            self.layout.arena + first_granule as usize * GRANULE,
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
        crate::sysv_engine::slots::each_free(self, |cell| release(&cell.block))
    }
}

impl TypeIndexStore for Segment {
    #[inline(always)]
    fn place(&self, slot: u32) -> Result<&Place, Fault> {
        self.item(self.layout.places, slot, self.layout.slots)
    }

    #[inline(always)]
    fn kind(&self, index: u32) -> Result<&Kind, Fault> {
        self.item(self.layout.kinds, index, self.layout.slots)
    }

    fn places(&self) -> u32 {
        self.fixed()
            .control
            .used
            .get()
            .min(self.layout.slots as u32)
    }

    #[inline(always)]
    fn kinds(&self) -> &TypeRoots {
        &self.fixed().kinds
    }

    fn provide_kinds(&self, usable: u32) -> Result<u32, Fault> {
        let kind = size_of::<Kind>();
        let usable = usable as usize;
        let next = (usable + PAGE / kind).min(self.layout.slots);
        if next <= usable {
            return Ok(usable as u32);
        }
        self.memory
            .populate(self.layout.kinds + usable * kind, (next - usable) * kind)?;
        Ok(next as u32)
    }
}
