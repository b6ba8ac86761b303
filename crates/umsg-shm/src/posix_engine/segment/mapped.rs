//! A segment as it is: a mapped file.

use super::{
    Cell, Fifo, Fixed, GRANULE, Layout, LeaseRecord, MORE_NOTICES, NODES, Node, Notice, PRIORITIES,
    Policy,
};
use crate::fault::{AttachError, Fault};
use crate::lock::Lock;
use crate::memory::{Host, LastUse, Memory};
use crate::sync::{AtomicU32, Guarded32, Guarded64};
use crate::sys::liveness::Liveness;
use crate::sys::required;
use rustix::fd::BorrowedFd;
use rustix::io::Errno;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// A mapped segment. Every accessor checks its index against the layout that this process computed itself, so nothing
/// that a peer writes leads out of the mapping.
#[derive(Debug)]
pub struct Segment {
    memory: Memory,
    layout: Layout,
    policy: Policy,
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
        self.memory.is_home() && !self.fixed().receiver.lock.is_shared()
    }
}

impl Segment {
    /// Maps a file that is known to have this layout.
    pub(crate) fn map(file: BorrowedFd<'_>, layout: Layout) -> Result<Segment, AttachError> {
        required::check()?;
        let memory =
            Memory::map(file, layout.len).map_err(|e| AttachError::of_mapping(e, layout.len))?;
        Ok(Segment {
            memory,
            layout,
            policy: Policy::default(),
        })
    }

    /// A private copy of a file's segment as it is now, but for what its blocks hold: for a process that only looks.
    pub fn copy_of(file: BorrowedFd<'_>, layout: Layout) -> Result<Segment, Errno> {
        Ok(Segment {
            memory: Memory::copy_of(
                file,
                layout.len,
                &[0..layout.arena, layout.notices..layout.len],
            )?,
            layout,
            policy: Policy::default(),
        })
    }

    /// The address of the first byte.
    pub fn address(&self) -> usize {
        self.memory.base().addr()
    }

    /// The same mapping once more: it stays until no process uses it.
    pub fn share(&self) -> Segment {
        Segment {
            memory: self.memory.share(),
            layout: self.layout,
            policy: self.policy.clone(),
        }
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
        let mut locks = [&self.fixed().receiver.lock, &self.fixed().sender.lock].into_iter();
        match !self.is_home() || locks.any(Lock::is_shared) {
            true => self.memory.join(),
            false => Ok(()),
        }
    }

    /// The last process that unmaps it removes it. Before it is shared.
    pub fn set_last_close(&mut self, last_close: LastUse) {
        self.memory.set_last_close(last_close);
        self.fixed().rules.note_use();
    }

    /// Which file it is.
    pub fn file(&self) -> crate::sys::file::FileIdentity {
        self.memory.file()
    }

    /// The namespace in which its memory counts, if that is known.
    pub(crate) fn counted_in(&self) -> Option<&Arc<dyn Host>> {
        self.memory.counted_in()
    }

    pub(crate) fn set_policy(&mut self, policy: Policy) {
        self.policy = policy;
    }

    /// Notes the dead-letter queue that the queue's label names.
    pub fn set_dead_letter(&mut self, name: Option<Vec<u8>>) {
        self.policy.dead_letter = name;
    }

    #[inline(always)]
    pub fn policy(&self) -> &Policy {
        &self.policy
    }

    /// [`Fault::Damaged`] if the file was cut short under the mapping.
    #[inline(always)]
    pub fn check(&self) -> Result<(), Fault> {
        self.memory.check()
    }

    #[inline(always)]
    pub fn layout(&self) -> &Layout {
        &self.layout
    }

    /// The item at `index` of the region of `count` items at `offset`, which is one of the layout's.
    #[inline(always)]
    fn item<T>(&self, offset: usize, index: usize, count: usize) -> Result<&T, Fault> {
        // SAFETY: regions lie inside the mapping with as many items as the layout says, at multiples of 4096; all types of
        // items consist of atomics.
        unsafe { self.memory.item(offset, size_of::<T>(), index, count) }
    }

    #[inline(always)]
    pub fn fixed(&self) -> &Fixed {
        // SAFETY: every layout begins with the fixed part, which consists of atomics; a mapping is page-aligned.
        unsafe { &*self.memory.base().cast::<Fixed>() }
    }

    #[inline(always)]
    pub fn cell(&self, slot: u32) -> Result<&Cell, Fault> {
        let Layout {
            cells,
            cell_len,
            slots,
            ..
        } = self.layout;
        // SAFETY: as in `item`; a cell is longer than its header, and its length a multiple of the header's alignment.
        unsafe { self.memory.item(cells, cell_len, slot as usize, slots) }
    }

    /// The ring's entry for a position.
    #[inline(always)]
    pub fn ring(&self, position: u64) -> &AtomicU32 {
        // Acquire: WIDER. Changes only under both locks, but `seems_filled` reads it under none: it pairs with the release
        // in `widen_ring`, so that a process that sees the larger mask sees the copied half.
        let mask = self.fixed().geometry.ring_mask.load(Ordering::Acquire);
        self.ring_at(position as usize & mask as usize)
    }

    /// The ring's entry at an index.
    #[inline(always)]
    pub(crate) fn ring_at(&self, index: usize) -> &AtomicU32 {
        let index = index & (self.layout.ring_len - 1);
        debug_assert!(self.layout.ring + (index + 1) * 4 <= self.layout.len);
        // SAFETY: as in `item`; the index was masked with the length of the region, a power of two.
        unsafe {
            &*self
                .memory
                .base()
                .add(self.layout.ring)
                .cast::<AtomicU32>()
                .add(index)
        }
    }

    /// The slot that follows a stored one in the list of its priority. Apart from the cells, so that linking a message
    /// does not fetch its neighbour's.
    #[inline(always)]
    pub fn link(&self, slot: u32) -> Result<&Guarded32, Fault> {
        self.item(self.layout.links, slot as usize, self.layout.slots)
    }

    #[inline(always)]
    pub(crate) fn node(&self, index: u32) -> Result<&Node, Fault> {
        self.item(self.layout.nodes, index as usize, NODES)
    }

    pub(crate) fn hold(&self, index: u32) -> Result<&LeaseRecord, Fault> {
        self.item(self.layout.holds, index as usize, self.layout.slots)
    }

    /// Makes more records of holds real memory than `usable`; answers how many.
    pub(crate) fn populate_holds(&self, usable: u32) -> Result<u32, Fault> {
        let first = (usable as usize * size_of::<LeaseRecord>()).next_multiple_of(PAGE);
        let all = self.layout.slots * size_of::<LeaseRecord>();
        if first >= all {
            return Err(Fault::Damaged);
        }
        self.populate(self.layout.holds + first, PAGE)?;
        Ok(((first + PAGE).min(all) / size_of::<LeaseRecord>()) as u32)
    }

    /// A registration beyond those in the fixed part.
    pub(crate) fn more_notice(&self, index: usize) -> Result<&Notice, Fault> {
        self.item(self.layout.notices, index, MORE_NOTICES)
    }

    /// Makes more of them real memory than `usable`; answers how many.
    pub(crate) fn populate_notices(&self, usable: u32) -> Result<u32, Fault> {
        let first = (usable as usize * size_of::<Notice>()).next_multiple_of(PAGE);
        if first >= MORE_NOTICES * size_of::<Notice>() {
            return Err(Fault::NoMemory);
        }
        self.populate(self.layout.notices + first, PAGE)?;
        Ok(((first + PAGE) / size_of::<Notice>()) as u32)
    }

    #[inline(always)]
    pub fn fifo(&self, priority: usize) -> Result<&Fifo, Fault> {
        self.item(self.layout.fifos, priority, PRIORITIES)
    }

    /// First level of the priority bitmap.
    #[inline(always)]
    pub fn level0(&self, word: usize) -> Result<&Guarded64, Fault> {
        self.item(self.layout.levels, word, PRIORITIES / 64)
    }

    /// One of the four words of the granule of the arena that heads a block.
    #[inline(always)]
    pub(crate) fn granule(&self, granule: u32) -> Result<&[AtomicU32; 4], Fault> {
        self.item(
            self.layout.arena,
            granule as usize,
            self.layout.arena_len / GRANULE,
        )
    }

    /// Where `len` bytes of payload lie: in the cell, or in the block that it names.
    #[inline(always)]
    pub(crate) fn payload(&self, cell: &Cell, len: usize) -> Result<*mut u8, Fault> {
        let offset = if len <= self.layout.inline() {
            std::ptr::from_ref(cell).addr() - self.memory.base().addr() + size_of::<Cell>()
        } else {
            let offset = cell.block.get() as usize * GRANULE;
            if offset == 0 || offset + len > self.layout.arena_len {
                return Err(Fault::Damaged);
            }
            self.layout.arena + offset
        };
        // SAFETY: in the cell, `len` bytes behind its header still belong to it; in the arena, offset + len was checked
        // against its length. Both lie inside the mapping.
        Ok(unsafe { self.memory.base().add(offset) })
    }

    /// Copies a message into its slot; one that is too long for the cell into the block that the cell names.
    #[inline(always)]
    pub(crate) fn copy_in(&self, cell: &Cell, message: &[u8]) -> Result<(), Fault> {
        let place = self.payload(cell, message.len())?;
        // SAFETY: `place` has room for the message inside the mapping, and our caller's bytes lie elsewhere. A peer
        // that breaks the protocol may write at the same time: then the bytes are arbitrary, as they may be anyway.
        unsafe { std::ptr::copy_nonoverlapping(message.as_ptr(), place, message.len()) };
        Ok(())
    }

    /// Copies the message of `len` bytes out of its slot into the beginning of `buffer`.
    #[inline(always)]
    pub(crate) fn copy_out(&self, cell: &Cell, len: usize, buffer: &mut [u8]) -> Result<(), Fault> {
        if len > buffer.len() {
            return Err(Fault::Damaged);
        }
        let place = self.payload(cell, len)?;
        // SAFETY: as in `copy_in`, the other way round.
        unsafe { std::ptr::copy_nonoverlapping(place, buffer.as_mut_ptr(), len) };
        Ok(())
    }

    /// Makes a message that was written in place for `room` bytes one of `len`: a short one lies in the cell, wherever the
    /// room for it was.
    pub(crate) fn shorten(&self, cell: &Cell, room: usize, len: usize) -> Result<(), Fault> {
        let (from, to) = (self.payload(cell, room)?, self.payload(cell, len)?);
        if from != to {
            // SAFETY: both have room for `len` bytes inside the mapping, and lie in different regions of it.
            unsafe { std::ptr::copy_nonoverlapping(from, to, len.min(room)) };
        }
        Ok(())
    }

    /// Makes `len` bytes from `offset` on real memory.
    pub(crate) fn populate(&self, offset: usize, len: usize) -> Result<(), Fault> {
        self.memory.populate(offset, len)
    }

    /// Bytes in use by everything but the arena, with `slots` in circulation.
    pub fn memory(&self, slots: usize) -> u64 {
        let ring = self.fixed().geometry.ring_mask.load(Ordering::Relaxed) as usize + 1;
        let holds = (self.fixed().holding.usable.get() as usize).min(self.layout.slots);
        let notices = self.fixed().receiver.notices.load(Ordering::Relaxed) as usize;
        (self.layout.fifos
            + (holds * size_of::<LeaseRecord>()).next_multiple_of(PAGE)
            + notices.min(MORE_NOTICES) * size_of::<Notice>()
            + 2 * 4096
            + ring.min(self.layout.ring_len) * 4
            + slots * self.layout.cell_len) as u64
    }

    /// Begins to fetch the cell of a slot that is going to be read.
    #[inline(always)]
    pub(crate) fn prefetch(&self, slot: u32) {
        if let Ok(cell) = self.cell(slot) {
            let first = std::ptr::from_ref(cell).cast::<u8>();
            prefetch_line(first);
            if self.layout.cell_len > LINE {
                prefetch_line(first.wrapping_add(LINE));
            }
        }
    }

    /// Begins to fetch what names the slot behind another in a list.
    #[inline(always)]
    pub(crate) fn prefetch_link(&self, slot: u32) {
        if let Ok(link) = self.link(slot) {
            prefetch_line(std::ptr::from_ref(link).cast());
        }
    }

    /// Begins to fetch the cell of a slot that is going to be written.
    #[inline(always)]
    pub fn prefetch_to_write(&self, slot: u32) {
        if let Ok(cell) = self.cell(slot) {
            let first = std::ptr::from_ref(cell).cast::<u8>();
            prefetch_line_to_write(first);
            if self.layout.cell_len > LINE {
                prefetch_line_to_write(first.wrapping_add(LINE));
            }
        }
    }
}

/// Bytes in a page.
const PAGE: usize = 4096;

/// Bytes in a cache line.
const LINE: usize = 64;

/// Begins to fetch a cache line. A hint: the address need not even be valid.
#[inline(always)]
fn prefetch_line(address: *const u8) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a prefetch has no effect but on the cache, whatever the address.
    unsafe {
        std::arch::x86_64::_mm_prefetch::<{ std::arch::x86_64::_MM_HINT_T0 }>(address.cast());
    }
    #[cfg(target_arch = "aarch64")]
    // SAFETY: as above.
    unsafe {
        std::arch::asm!("prfm pldl1keep, [{}]", in(reg) address, options(nostack, preserves_flags, readonly));
    }
}

/// Begins to fetch a cache line for writing: the other core loses it at once, not when the store is made.
#[inline(always)]
fn prefetch_line_to_write(address: *const u8) {
    if cfg!(miri) {
        return;
    }
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a prefetch has no effect but on the cache; a processor that does not know this one does nothing.
    unsafe {
        std::arch::asm!("prefetchw [{}]", in(reg) address, options(nostack, preserves_flags, readonly));
    }
    #[cfg(target_arch = "aarch64")]
    // SAFETY: as above.
    unsafe {
        std::arch::asm!("prfm pstl1keep, [{}]", in(reg) address, options(nostack, preserves_flags, readonly));
    }
}
