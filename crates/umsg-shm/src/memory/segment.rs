//! A mapped segment, whatever its engine: the file, the layout, and the checked ways into it.

use super::{Host, LastUse, Memory};
use crate::fault::{AttachError, Fault};
use crate::sync::{AtomicU64, Ordering};
use crate::sys::file::FileIdentity;
use crate::sys::liveness::Liveness;
use crate::sys::map::PAGE;
use crate::sys::required;
use rustix::fd::BorrowedFd;
use rustix::io::Errno;
use std::fmt::{self, Debug, Formatter};
use std::ops::Range;
use std::sync::Arc;

/// The fixed part of an engine's segments, from the first byte of the file. It tells one engine's segments from another's.
///
/// # Safety
/// The type consists of atomics and is `repr(C)`. Its layouts begin with it, and their regions lie inside the file.
pub unsafe trait Format: 'static {
    type Layout: Regions;
    /// The header of a cell: it consists of atomics.
    type Cell;
    /// What a process knows of the queue beyond the segment.
    type Settings: Clone + Debug + Default;

    /// The namespaces of the creator: [`crate::sys::home::here`].
    fn home(&self) -> &AtomicU64;
    /// Whether processes of several PID namespaces have received from the queue.
    fn is_shared(&self) -> bool;
    /// Whether processes of several PID namespaces use the queue.
    fn has_shared_lock(&self) -> bool;
    /// Where the block that belongs to a cell begins in the arena, in bytes; 0 for none.
    fn block(cell: &Self::Cell) -> usize;
}

/// Where the regions of a segment lie that all engines have. Offsets and lengths are in bytes.
pub trait Regions: Copy + Debug {
    /// Length of the file.
    fn file_len(&self) -> usize;
    /// What a copy for inspection needs.
    fn tables(&self) -> [Range<usize>; 2];
    fn arena(&self) -> Range<usize>;
    /// Bytes of a message that lie in the cell itself.
    fn inline(&self) -> usize;
}

/// A mapped segment. Every accessor checks its index against the layout that this process computed itself, so nothing
/// that a peer writes leads out of the mapping.
pub struct Segment<F: Format> {
    memory: Memory,
    layout: F::Layout,
    settings: F::Settings,
}

impl<F: Format> Debug for Segment<F> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.debug_struct("Segment")
            .field("memory", &self.memory)
            .field("layout", &self.layout)
            .field("settings", &self.settings)
            .finish()
    }
}

impl<F: Format> Liveness for Segment<F> {
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
        self.memory.is_home() && !self.fixed().is_shared()
    }
}

impl<F: Format> Segment<F> {
    fn of(memory: Memory, layout: F::Layout) -> Segment<F> {
        Segment {
            memory,
            layout,
            settings: F::Settings::default(),
        }
    }

    /// Maps a file that is known to have this layout.
    pub(crate) fn map(file: BorrowedFd<'_>, layout: F::Layout) -> Result<Segment<F>, AttachError> {
        required::check()?;
        let len = layout.file_len();
        let memory = Memory::map(file, len).map_err(|e| AttachError::of_mapping(e, len))?;
        Ok(Segment::of(memory, layout))
    }

    /// Copies a file's segment as it is now, without the contents of its blocks. The copy is private: for inspection.
    pub fn copy_of(file: BorrowedFd<'_>, layout: F::Layout) -> Result<Segment<F>, Errno> {
        let memory = Memory::copy_of(file, layout.file_len(), &layout.tables())?;
        Ok(Segment::of(memory, layout))
    }

    /// The same mapping once more: it stays until its last user is dropped.
    pub fn share(&self) -> Segment<F> {
        Segment {
            memory: self.memory.share(),
            layout: self.layout,
            settings: self.settings.clone(),
        }
    }

    /// The first byte.
    #[inline(always)]
    pub(crate) fn base(&self) -> *mut u8 {
        self.memory.base()
    }

    /// The address of the first byte.
    pub fn address(&self) -> usize {
        self.base().addr()
    }

    /// Names the host that knows the lives in a copy's records.
    pub fn settle_copy(&mut self, host: Arc<dyn Host>) {
        self.settle_home();
        self.memory.set_host(host);
    }

    /// Finds out whether it was created in this process's PID and time namespace. Before it is shared.
    pub(crate) fn settle_home(&mut self) {
        // Relaxed: stored before the file was linked.
        let home = self.fixed().home().load(Ordering::Relaxed);
        self.memory.set_home(home);
    }

    /// From now on, memory that comes into use counts in a namespace. For inspection: users of the queue [`join`](Self::join).
    pub fn count_in(&mut self, host: Arc<dyn Host>) {
        self.memory.count_in(host);
    }

    /// As [`count_in`](Self::count_in), and makes this process's death known to others if processes of several PID namespaces use the queue.
    ///
    /// # Errors
    /// `Unregistered`.
    pub fn join(&mut self, host: Arc<dyn Host>) -> Result<(), AttachError> {
        self.memory.count_in(host);
        match !self.is_home() || self.fixed().has_shared_lock() {
            true => self.memory.join(),
            false => Ok(()),
        }
    }

    /// The last process that unmaps it removes it. Before it is shared.
    pub(crate) fn set_last_use(&mut self, last_use: LastUse) {
        self.memory.set_last_close(last_use);
    }

    /// Which file it is.
    pub fn file(&self) -> FileIdentity {
        self.memory.file()
    }

    /// The namespace in which its memory counts, if that is known.
    pub(crate) fn counted_in(&self) -> Option<&Arc<dyn Host>> {
        self.memory.counted_in()
    }

    #[inline(always)]
    pub(crate) fn settings(&self) -> &F::Settings {
        &self.settings
    }

    pub(crate) fn settings_mut(&mut self) -> &mut F::Settings {
        &mut self.settings
    }

    /// [`Fault::Damaged`] if the file was cut short under the mapping.
    #[inline(always)]
    pub fn check(&self) -> Result<(), Fault> {
        self.memory.check()
    }

    #[inline(always)]
    pub fn layout(&self) -> &F::Layout {
        &self.layout
    }

    #[inline(always)]
    pub fn fixed(&self) -> &F {
        // SAFETY: every layout begins with the fixed part, which consists of atomics; a mapping is page-aligned.
        unsafe { &*self.base().cast::<F>() }
    }

    /// The item at `index` of a region of `count` items, `stride` bytes from one to the next, from `offset` on.
    ///
    /// # Safety
    /// The region is one of the layout's: it lies inside the mapping, `offset` and `stride` are multiples of `T`'s alignment, and `T`
    /// consists of atomics.
    #[inline(always)]
    pub(crate) unsafe fn item<T>(
        &self,
        offset: usize,
        stride: usize,
        index: usize,
        count: usize,
    ) -> Result<&T, Fault> {
        // SAFETY: the caller vouches for it.
        unsafe { self.memory.item(offset, stride, index, count) }
    }

    /// The first byte of `len` bytes of payload: in the cell, or in the block that it names.
    #[inline(always)]
    pub(crate) fn payload(&self, cell: &F::Cell, len: usize) -> Result<*mut u8, Fault> {
        let offset = if len <= self.layout.inline() {
            std::ptr::from_ref(cell).addr() - self.base().addr() + size_of::<F::Cell>()
        } else {
            let offset = F::block(cell);
            let arena = self.layout.arena();
            if offset == 0 || offset + len > arena.end - arena.start {
                return Err(Fault::Damaged);
            }
            arena.start + offset
        };
        // SAFETY: in the cell, `len` bytes behind its header still belong to it; in the arena, offset + len was checked
        // against its length. Both lie inside the mapping.
        Ok(unsafe { self.base().add(offset) })
    }

    /// Copies a message into its slot; one that is too long for the cell into the block that the cell names.
    #[inline(always)]
    pub(crate) fn copy_in(&self, cell: &F::Cell, message: &[u8]) -> Result<(), Fault> {
        let place = self.payload(cell, message.len())?;
        // SAFETY: `place` has room for the message inside the mapping, and our caller's bytes lie elsewhere. A peer
        // that breaks the protocol may write at the same time: then the bytes are arbitrary, as they may be anyway.
        unsafe { std::ptr::copy_nonoverlapping(message.as_ptr(), place, message.len()) };
        Ok(())
    }

    /// Copies the beginning of a message of `len` bytes into `buffer`: as much as fits. Answers how many bytes.
    #[inline(always)]
    pub(crate) fn copy_prefix(
        &self,
        cell: &F::Cell,
        len: usize,
        buffer: &mut [u8],
    ) -> Result<usize, Fault> {
        let place = self.payload(cell, len)?;
        let copied = len.min(buffer.len());
        // SAFETY: as in `copy_in`, the other way round; no more than the buffer has room for.
        unsafe { std::ptr::copy_nonoverlapping(place, buffer.as_mut_ptr(), copied) };
        Ok(copied)
    }

    /// Makes `len` bytes from `offset` on real memory.
    pub(crate) fn populate(&self, offset: usize, len: usize) -> Result<(), Fault> {
        self.memory.populate(offset, len)
    }

    /// Makes a page more of a table of `count` items of `size` bytes real memory than `usable` items. Returns how many items are
    /// real memory then.
    pub(crate) fn populate_page_of(
        &self,
        (table, size, count): (usize, usize, usize),
        usable: u32,
    ) -> Result<u32, Fault> {
        let first = (usable as usize * size).next_multiple_of(PAGE);
        let all = count * size;
        if first >= all {
            return Err(Fault::Damaged);
        }
        self.populate(table + first, PAGE)?;
        Ok(((first + PAGE).min(all) / size) as u32)
    }
}
