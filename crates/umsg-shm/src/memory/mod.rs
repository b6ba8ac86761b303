//! The memory of a segment: a mapped file. Its pages are allocated when they are needed, and count towards a namespace's limit.

mod file;
mod host;
mod segment;
mod view;

pub use file::{OUT_OF_RANGE, fnv, set_length};
pub use host::{FifoName, Host, NOT_OURS};
pub use segment::{Format, Regions, Segment};
pub use view::{ANNOUNCEMENTS, View};

use crate::fault::{AttachError, Fault};
use crate::sys::extent::real_parts;
use crate::sys::file::FileIdentity;
use crate::sys::home::{here, is_stray};
use crate::sys::liveness::{Liveness, UNREGISTERED};
use crate::sys::map::{Mapping, PAGE};
use rustix::fd::BorrowedFd;
use rustix::io::Errno;
use std::fmt::Debug;
use std::ops::Range;
use std::panic::{RefUnwindSafe, UnwindSafe};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// The last user of a mapping drops this value. The drop removes the file of a queue that is removed on its last close.
pub(crate) type LastUse = Box<dyn Debug + Send + Sync + UnwindSafe + RefUnwindSafe>;

/// The number of bytes that one system call reads from the file for a copy.
const CHUNK: usize = 16 * PAGE;
static ZEROES: [u8; PAGE] = [0; PAGE];

/// A mapped file. The functions return an item of a region by its index, and check the index against the number of items, which the caller passes.
#[derive(Debug)]
pub(crate) struct Memory {
    /// The address of the first byte.
    base: Base,
    map: Arc<Mapped>,
    /// The namespace of the file, if it is known.
    host: Option<Arc<dyn Host>>,
    /// True if new memory counts towards the limit of the namespace `host`.
    is_counted: bool,
    /// True if the creator of the queue had the PID and time namespaces of this process.
    is_home: bool,
    /// The identity and the owner of the file.
    file: FileIdentity,
}

/// The state that all users of a mapping share.
#[derive(Debug)]
struct Mapped {
    map: Mapping,
    /// The guard of a queue that is removed on its last close; None for other queues. Fields are dropped in their order: the mapping, which keeps the
    /// queue in use, is dropped before the guard.
    last_close: Option<LastUse>,
}

/// The address of a mapping. This copy of the address, outside of the shared mapping, saves each access the read of one cache line.
#[derive(Clone, Copy, Debug)]
struct Base(*mut u8);

// SAFETY: the address is valid in all threads while the mapping exists; the struct that has the address also owns the mapping.
unsafe impl Send for Base {}
// SAFETY: as for `Send`.
unsafe impl Sync for Base {}

impl Liveness for Memory {
    fn own(&self) -> u32 {
        self.host
            .as_ref()
            .map_or(UNREGISTERED, |host| host.own_life())
    }

    fn known_own(&self) -> Option<u32> {
        self.host.as_ref()?.known_life()
    }

    fn is_over(&self, life: u32) -> bool {
        life == 0 || self.host.as_ref().is_some_and(|host| host.is_over(life))
    }

    #[inline(always)]
    fn is_elsewhere(&self) -> bool {
        !self.is_home
    }

    fn is_home(&self) -> bool {
        self.is_home && !is_stray()
    }

    fn is_private(&self) -> bool {
        self.file.is_private()
    }

    /// Returns false. Only the form of the locks would show whether all records are in plain form, and this type does not have the address of the
    /// locks.
    fn is_plain(&self) -> bool {
        false
    }
}

impl Memory {
    /// Maps the first `len` bytes of a file.
    pub(crate) fn map(file: BorrowedFd<'_>, len: usize) -> Result<Memory, Errno> {
        let mut memory = Memory::of(Mapping::of_file(file, len)?);
        memory.file = FileIdentity::of(file)?;
        Ok(memory)
    }

    /// Makes a private copy of parts of a file, in memory of `len` bytes. All other bytes of the copy are zero, also the bytes after the end of the
    /// file. Holes stay holes, in the file and in the copy: a read through a mapping would allocate memory for them.
    ///
    /// No other process writes to the copy, so a checked value stays valid.
    pub(crate) fn copy_of(
        file: BorrowedFd<'_>,
        len: usize,
        parts: &[Range<usize>],
    ) -> Result<Memory, Errno> {
        let map = Mapping::scratch(len)?;
        // SAFETY: the mapping was just made: it is at least `len` bytes long, zeroed, and private.
        let bytes = unsafe { std::slice::from_raw_parts_mut(map.base(), len) };
        let real = real_parts(file, len);
        for part in parts {
            for real in real.iter().map(|real| overlap(real, part)) {
                read_part(file, bytes, real)?;
            }
        }
        let mut memory = Memory::of(map);
        memory.file = FileIdentity::of(file)?;
        Ok(memory)
    }

    fn of(map: Mapping) -> Memory {
        Memory {
            base: Base(map.base()),
            map: Arc::new(Mapped {
                map,
                last_close: None,
            }),
            host: None,
            is_counted: false,
            is_home: true,
            file: FileIdentity::default(),
        }
    }

    /// Returns the identity of the file; the default for a mapping without a file.
    pub(crate) fn file(&self) -> FileIdentity {
        self.file
    }

    /// Records the mode that the file of a new queue gets.
    pub(crate) fn set_file_mode(&mut self, mode: u32) {
        self.file.set_mode(mode);
    }

    /// Sets the guard of a queue that is removed on its last close. Called before the mapping is shared.
    pub(crate) fn set_last_close(&mut self, last_close: LastUse) {
        if let Some(mapped) = Arc::get_mut(&mut self.map) {
            mapped.last_close = Some(last_close);
        }
    }

    /// Returns a second handle of the mapping. The mapping ends with its last handle.
    pub(crate) fn share(&self) -> Memory {
        Memory {
            base: self.base,
            map: Arc::clone(&self.map),
            host: self.host.clone(),
            is_counted: false,
            is_home: self.is_home,
            file: self.file,
        }
    }

    /// Makes new memory count towards a namespace's limit.
    pub(crate) fn count_in(&mut self, host: Arc<dyn Host>) {
        self.host = Some(host);
        self.is_counted = true;
    }

    /// Registers this process's liveness id, before it takes a lock in shared form. Does nothing for a segment without a namespace.
    ///
    /// # Errors
    /// `Unregistered` if the liveness id can't be registered.
    pub(crate) fn join(&self) -> Result<(), AttachError> {
        self.host.as_ref().map_or(Ok(()), |host| host.join())
    }

    /// Returns the namespace of the file, if it is known.
    pub(crate) fn host(&self) -> Option<&dyn Host> {
        self.host.as_deref()
    }

    /// Sets the host that checks the liveness ids in the records of a copy.
    pub(crate) fn set_host(&mut self, host: Arc<dyn Host>) {
        self.host = Some(host);
    }

    /// Sets the PID and time namespaces of the creator, in the form of [`here`]. Called before the mapping is shared.
    pub(crate) fn set_home(&mut self, home: u64) {
        self.is_home = home != 0 && home == here();
    }

    /// Returns the namespace whose limit counts this memory, if the namespace is known.
    pub(crate) fn counted_in(&self) -> Option<&Arc<dyn Host>> {
        self.host.as_ref().filter(|_| self.is_counted)
    }

    /// Returns [`Fault::Damaged`] if the file was truncated under the mapping.
    #[inline(always)]
    pub(crate) fn check(&self) -> Result<(), Fault> {
        if self.map.map.is_cut() {
            return Err(Fault::Damaged);
        }
        Ok(())
    }

    /// Returns the address of the first byte.
    #[inline(always)]
    pub(crate) fn base(&self) -> *mut u8 {
        self.base.0
    }

    /// Returns the item at `index` of a region that begins at `offset` and has `count` items, `stride` bytes apart.
    ///
    /// # Safety
    /// The region lies inside the mapping. `offset` and `stride` are multiples of `T`'s alignment, and `stride` is at least the size of `T`.
    /// Every bit pattern is a valid `T`, because `T` consists of atomics.
    #[inline(always)]
    pub(crate) unsafe fn item<T>(
        &self,
        offset: usize,
        stride: usize,
        index: usize,
        count: usize,
    ) -> Result<&T, Fault> {
        if index >= count {
            return Err(Fault::Damaged);
        }
        debug_assert!(offset + index * stride + size_of::<T>() <= self.map.map.len());
        // SAFETY: the caller promises that the item is inside the mapping, aligned and valid. The mapping lives as long as `self`.
        Ok(unsafe { &*self.base.0.add(offset + index * stride).cast::<T>() })
    }

    /// Returns whether this is the only handle of the mapping.
    pub(crate) fn is_only_handle(&self) -> bool {
        Arc::strong_count(&self.map) == 1
    }

    /// Returns whether `len` bytes from `offset` on are zero. `offset` and `len` are multiples of 8.
    pub(crate) fn is_zero(&self, offset: usize, len: usize) -> bool {
        let end = offset + len;
        assert!(offset.is_multiple_of(8) && len.is_multiple_of(8) && end <= self.map.map.len());
        (offset..end).step_by(8).all(|at| {
            // SAFETY: inside the mapping, which lives as long as `self`, and aligned. A peer may write the word at the same time, so this is an
            // atomic load; Relaxed, because the result is only a hint.
            let word = unsafe { &*self.base.0.add(at).cast::<AtomicU64>() };
            word.load(Ordering::Relaxed) == 0
        })
    }

    /// Fills `len` bytes from `offset` on with zeroes. The caller has the only handle of the file's only mapping.
    pub(crate) fn clear(&self, offset: usize, len: usize) {
        debug_assert!(offset + len <= self.map.map.len() && self.is_only_handle());
        // SAFETY: inside the mapping, which lives as long as `self`; no reference into the mapping exists, because `self` is its only handle.
        unsafe { self.base.0.add(offset).write_bytes(0, len) };
    }

    /// Fills `len` bytes from `offset` on with zeroes. The caller holds the lock that guards them.
    pub(crate) fn zero(&self, offset: usize, len: usize) {
        let end = offset.checked_add(len);
        assert!(end.is_some_and(|end| end <= self.map.map.len()));
        // SAFETY: inside the mapping, which lives as long as `self`. A peer that breaks the protocol may read or write the bytes at the same
        // time; they are atomics or payload, of which every value is expected.
        unsafe { self.base.0.add(offset).write_bytes(0, len) };
    }

    /// Allocates the pages of `len` bytes from `offset` on.
    pub(crate) fn populate(&self, offset: usize, len: usize) -> Result<(), Fault> {
        if len == 0 {
            return Ok(());
        }
        if self.counted_in().is_some_and(|host| !host.allows(len)) {
            return Err(Fault::OverLimit);
        }
        self.map
            .map
            .populate(offset, len)
            .map_err(Fault::from_memory)
    }
}

fn overlap(one: &Range<usize>, other: &Range<usize>) -> Range<usize> {
    one.start.max(other.start)..one.end.min(other.end)
}

/// Reads a part of a file into zeroed memory. The function does not store pages of zeroes, so holes of the file take no memory in the copy.
///
/// pread(2) takes no lock of the file's inode. lseek(2), which distinguishes holes from memory, takes this lock: see [`extent`](crate::sys::extent).
fn read_part(file: BorrowedFd<'_>, bytes: &mut [u8], part: Range<usize>) -> Result<(), Errno> {
    let mut chunk = vec![0; CHUNK];
    let (mut at, end) = (part.start, part.end.min(bytes.len()));
    while at < end {
        let wanted = (end - at).min(CHUNK);
        match rustix::io::pread(file, &mut chunk[..wanted], at as u64) {
            // The end of the file.
            Ok(0) => return Ok(()),
            Ok(read) => {
                copy_pages(&chunk[..read], &mut bytes[at..at + read]);
                at += read;
            }
            Err(Errno::INTR) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

fn copy_pages(from: &[u8], to: &mut [u8]) {
    let pages = from.chunks(PAGE).zip(to.chunks_mut(PAGE));
    pages
        .filter(|(from, _)| *from != &ZEROES[..from.len()])
        .for_each(|(from, to)| to.copy_from_slice(from));
}
