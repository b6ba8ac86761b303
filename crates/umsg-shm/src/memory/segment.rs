//! A mapped segment of either engine: the file, the layout, and the checked accessors.

use super::{Host, LastUse, Memory};
use crate::fault::{AttachError, Fault};
use crate::sync::{AtomicU64, Ordering};
use crate::sys::cpu;
use crate::sys::file::FileIdentity;
use crate::sys::liveness::Liveness;
use crate::sys::map::PAGE;
use crate::sys::required;
use rustix::fd::BorrowedFd;
use rustix::io::Errno;
use std::fmt::{self, Debug, Formatter};
use std::ops::Range;
use std::sync::Arc;

/// The fixed part of an engine's segments, at the first byte of the file. The type distinguishes the segments of the two engines.
///
/// # Safety
/// The type consists of atomics and is `repr(C)`. Its layouts begin with the type, and their regions lie inside the file.
pub unsafe trait Format: 'static {
    type Layout: Regions;
    /// The header of a cell: it consists of atomics.
    type Cell;
    /// The settings that the process keeps for its handle of the queue, and that are not in the segment.
    type Settings: Clone + Debug + Default;

    /// Returns the namespaces of the creator: [`crate::sys::home::here`].
    fn home(&self) -> &AtomicU64;
    /// Returns whether processes of several PID namespaces have received from the queue.
    fn is_shared(&self) -> bool;
    /// Returns whether processes of several PID namespaces use the queue.
    fn has_shared_lock(&self) -> bool;
    /// Returns the offset of the cell's block in the arena, in bytes; 0 if the cell has no block.
    fn block(cell: &Self::Cell) -> usize;
}

/// The places of the regions that the segments of both engines have. Offsets and lengths are in bytes.
pub trait Regions: Copy + Debug {
    /// Returns the length of the file.
    fn file_len(&self) -> usize;
    /// Returns the parts of the file that a copy for inspection needs.
    fn tables(&self) -> [Range<usize>; 2];
    fn arena(&self) -> Range<usize>;
    /// Returns the number of a message's bytes that the cell itself holds.
    fn inline(&self) -> usize;
}

/// Copies bytes without a call of memcpy if there are few. Such a call takes as long as a short copy, and its code costs one more page fault in a
/// forked child.
///
/// # Safety
/// The conditions of [`std::ptr::copy_nonoverlapping`].
#[inline(always)]
unsafe fn copy(from: *const u8, to: *mut u8, len: usize) {
    /// Copies a run of bytes as two words: its first word and its last word. The run is at least one word and at most two words long.
    #[inline(always)]
    unsafe fn ends<Word>(from: *const u8, to: *mut u8, len: usize) {
        let last = len - size_of::<Word>();
        // SAFETY: both words are in the run. The source does not overlap the target, so reading both words before one is written makes no difference.
        unsafe {
            let [begin, end] = [from, from.add(last)].map(|at| at.cast::<Word>().read_unaligned());
            to.cast::<Word>().write_unaligned(begin);
            to.add(last).cast::<Word>().write_unaligned(end);
        }
    }
    // SAFETY: by this function's contract.
    unsafe {
        match len {
            16..=32 => ends::<u128>(from, to, len),
            8..16 => ends::<u64>(from, to, len),
            _ => std::ptr::copy_nonoverlapping(from, to, len),
        }
    }
}

/// A mapped segment. Every accessor checks its index against the layout that this process has computed. So no value that a peer writes leads
/// out of the mapping.
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

    fn known_own(&self) -> Option<u32> {
        self.memory.known_own()
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

    fn is_private(&self) -> bool {
        self.memory.is_private()
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

    /// Maps a file whose layout the caller has checked.
    pub(crate) fn map(file: BorrowedFd<'_>, layout: F::Layout) -> Result<Segment<F>, AttachError> {
        required::check()?;
        // The call finds out now whether there are several processors. The call may read a file, and a real-time thread that waits for a lock must
        // not read a file.
        cpu::are_several();
        let len = layout.file_len();
        let memory = Memory::map(file, len).map_err(|e| AttachError::of_mapping(e, len))?;
        Ok(Segment::of(memory, layout))
    }

    /// Makes a private copy of a file's segment for inspection, without the contents of its blocks.
    pub fn copy_of(file: BorrowedFd<'_>, layout: F::Layout) -> Result<Segment<F>, Errno> {
        let memory = Memory::copy_of(file, layout.file_len(), &layout.tables())?;
        Ok(Segment::of(memory, layout))
    }

    /// Returns a second handle of the mapping. The mapping ends with its last handle.
    pub fn share(&self) -> Segment<F> {
        Segment {
            memory: self.memory.share(),
            layout: self.layout,
            settings: self.settings.clone(),
        }
    }

    /// Returns the namespace of the file, if it is known.
    pub(crate) fn host(&self) -> Option<&dyn Host> {
        self.memory.host()
    }

    /// Returns whether this is the only handle of the mapping.
    pub fn is_only_handle(&self) -> bool {
        self.memory.is_only_handle()
    }

    /// Returns whether `len` bytes from `offset` on are zero.
    pub(crate) fn is_zero(&self, offset: usize, len: usize) -> bool {
        self.memory.is_zero(offset, len)
    }

    /// Fills `len` bytes from `offset` on with zeroes. The caller has the only handle of the file's only mapping.
    pub(crate) fn clear(&self, offset: usize, len: usize) {
        self.memory.clear(offset, len);
    }

    /// Fills `len` bytes from `offset` on with zeroes. The caller holds the lock that guards them.
    pub(crate) fn zero(&self, offset: usize, len: usize) {
        self.memory.zero(offset, len);
    }

    /// Returns the address of the first byte, as a pointer.
    #[inline(always)]
    pub(crate) fn base(&self) -> *mut u8 {
        self.memory.base()
    }

    /// Returns the address of the first byte, as a number.
    pub fn address(&self) -> usize {
        self.base().addr()
    }

    /// Sets the host that checks the liveness ids in a copy's records.
    pub fn settle_copy(&mut self, host: Arc<dyn Host>) {
        self.settle_home();
        self.memory.set_host(host);
    }

    /// Finds out whether the creator of the queue had the PID and time namespaces of this process. Called before the segment is shared.
    pub(crate) fn settle_home(&mut self) {
        // Relaxed: the creator stored the word before it linked the file.
        let home = self.fixed().home().load(Ordering::Relaxed);
        self.memory.set_home(home);
    }

    /// Makes new memory count towards a namespace's limit. This call is enough for inspection; users of the queue call [`join`](Self::join).
    pub fn count_in(&mut self, host: Arc<dyn Host>) {
        self.memory.count_in(host);
    }

    /// Makes new memory count towards a namespace's limit, as [`count_in`](Self::count_in) does. If processes of several PID namespaces use the
    /// queue, the call also registers this process's liveness id, so that other processes notice the death of this process.
    ///
    /// # Errors
    /// `Unregistered` if the liveness id can't be registered.
    pub fn join(&mut self, host: Arc<dyn Host>) -> Result<(), AttachError> {
        self.memory.count_in(host);
        match !self.is_home() || self.fixed().has_shared_lock() {
            true => self.memory.join(),
            false => Ok(()),
        }
    }

    /// Makes the last process that unmaps the segment remove its file. Called before the segment is shared.
    pub(crate) fn set_last_use(&mut self, last_use: LastUse) {
        self.memory.set_last_close(last_use);
    }

    /// Returns the identity of the file.
    pub fn file(&self) -> FileIdentity {
        self.memory.file()
    }

    /// Records the mode that the file of a new queue gets.
    pub fn set_file_mode(&mut self, mode: u32) {
        self.memory.set_file_mode(mode);
    }

    /// Returns the namespace whose limit counts this memory, if the namespace is known.
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

    /// Returns [`Fault::Damaged`] if the file was truncated under the mapping.
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

    /// Returns the item at `index` of a region that begins at `offset` and has `count` items, `stride` bytes apart.
    ///
    /// # Safety
    /// The region is one of the layout's regions: it lies inside the mapping, `offset` and `stride` are multiples of `T`'s alignment, and `T`
    /// consists of atomics.
    #[inline(always)]
    pub(crate) unsafe fn item<T>(
        &self,
        offset: usize,
        stride: usize,
        index: usize,
        count: usize,
    ) -> Result<&T, Fault> {
        // SAFETY: by this function's contract.
        unsafe { self.memory.item(offset, stride, index, count) }
    }

    /// Returns the address of `len` bytes of payload: in the cell, or in the block that the cell names.
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
        // SAFETY: in the cell, the `len` bytes after the header belong to the cell; in the arena, offset + len was checked against the length. Both
        // places are inside the mapping.
        Ok(unsafe { self.base().add(offset) })
    }

    /// Copies a message into its slot. If the message is too long for the cell, it goes into the block that the cell names.
    #[inline(always)]
    pub(crate) fn copy_in(&self, cell: &F::Cell, message: &[u8]) -> Result<(), Fault> {
        let place = self.payload(cell, message.len())?;
        // SAFETY: `place` has room for the message inside the mapping, which does not overlap the caller's bytes. A peer that breaks the
        // protocol may write at the same time. Then the bytes are arbitrary, which every reader expects.
        unsafe { copy(message.as_ptr(), place, message.len()) };
        Ok(())
    }

    /// Copies the beginning of a message of `len` bytes into `buffer`: as many bytes as fit. Returns the number of copied bytes.
    #[inline(always)]
    pub(crate) fn copy_prefix(
        &self,
        cell: &F::Cell,
        len: usize,
        buffer: &mut [u8],
    ) -> Result<usize, Fault> {
        let place = self.payload(cell, len)?;
        let copied = len.min(buffer.len());
        // SAFETY: as in `copy_in`, with source and target exchanged, and limited to the length of the buffer.
        unsafe { copy(place, buffer.as_mut_ptr(), copied) };
        Ok(copied)
    }

    /// Allocates the pages of `len` bytes from `offset` on.
    pub(crate) fn populate(&self, offset: usize, len: usize) -> Result<(), Fault> {
        self.memory.populate(offset, len)
    }

    /// Allocates the next page of a table of `count` items of `size` bytes, of which `usable` items have memory. Returns the number of items that
    /// have memory after the call.
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
