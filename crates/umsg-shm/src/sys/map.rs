//! Mappings of a segment's file, of scratch memory for a repair, and of a page that a fork wipes.

use crate::sys::cut::{self, Range};
use crate::sys::futex;
use rustix::fd::BorrowedFd;
use rustix::io::Errno;
use rustix::mm::{Advice, MapFlags, ProtFlags};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, Ordering};

/// True after the kernel or a sandbox has refused MADV_POPULATE_WRITE.
static NO_POPULATE: AtomicBool = AtomicBool::new(false);

/// The number of bytes in a page. Regions of a segment start at multiples of this number.
pub const PAGE: usize = 4096;

/// The flag of a mapping of memory that belongs to this process alone.
const OWN: MapFlags = match cfg!(miri) {
    true => MapFlags::PRIVATE,
    false => MapFlags::PRIVATE.union(MapFlags::NORESERVE),
};

/// A mapping that is unmapped on drop.
#[derive(Debug)]
pub struct Mapping {
    base: NonNull<u8>,
    len: usize,
    /// For a file: the entry that records a truncation of the file.
    range: Option<&'static Range>,
}

// SAFETY: a mapping is memory; the modules that hand out references into it decide which thread may touch which part.
unsafe impl Send for Mapping {}
// SAFETY: as for `Send`.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Maps the first `len` bytes of a file, shared, for reading and writing. Fails with `NOMEM` if the handler of SIGBUS has no room to record the
    /// mapping.
    pub fn of_file(file: BorrowedFd<'_>, len: usize) -> Result<Mapping, Errno> {
        if cfg!(miri) {
            return Mapping::scratch(len);
        }
        cut::guard();
        let flags = MapFlags::SHARED | MapFlags::NORESERVE;
        // SAFETY: the kernel chooses the address, so no existing mapping is replaced.
        let base = unsafe {
            rustix::mm::mmap(
                std::ptr::null_mut(),
                len,
                ProtFlags::READ | ProtFlags::WRITE,
                flags,
                file,
                0,
            )?
        };
        let mut mapping = Mapping {
            base: NonNull::new(base.cast()).ok_or(Errno::NOMEM)?,
            len,
            range: None,
        };
        let range = Range::enter(base.expose_provenance(), len).ok_or(Errno::NOMEM)?;
        mapping.range = Some(range);
        Ok(mapping)
    }

    /// Maps the first `len` bytes of a file in memory (memfd), shared: for reading, or for reading and writing. The length of the file is sealed.
    #[cfg(not(loom))]
    pub(crate) fn of_memory(
        file: BorrowedFd<'_>,
        len: usize,
        is_written: bool,
    ) -> Result<Mapping, Errno> {
        let protection = match is_written {
            true => ProtFlags::READ | ProtFlags::WRITE,
            false => ProtFlags::READ,
        };
        let address = std::ptr::null_mut();
        // SAFETY: as in `of_file`.
        let base =
            unsafe { rustix::mm::mmap(address, len, protection, MapFlags::SHARED, file, 0)? };
        Ok(Mapping {
            base: NonNull::new(base.cast()).ok_or(Errno::NOMEM)?,
            len,
            range: None,
        })
    }

    /// Makes the kernel leave the mapping out of the children of later forks.
    #[cfg(not(loom))]
    pub(crate) fn keep_from_children(&self) -> Result<(), Errno> {
        // SAFETY: this is the whole mapping, and the advice changes no contents.
        unsafe { rustix::mm::madvise(self.base().cast(), self.len, Advice::LinuxDontFork) }
    }

    /// Maps a part of a file without access, to ask the kernel about its pages. The file may end before this part.
    #[cfg(not(loom))]
    pub fn to_look_up(file: BorrowedFd<'_>, offset: usize, len: usize) -> Result<Mapping, Errno> {
        let (protection, flags) = (ProtFlags::READ, MapFlags::PRIVATE);
        let address = std::ptr::null_mut();
        // SAFETY: as in `of_file`.
        let base =
            unsafe { rustix::mm::mmap(address, len, protection, flags, file, offset as u64)? };
        Ok(Mapping {
            base: NonNull::new(base.cast()).ok_or(Errno::NOMEM)?,
            len,
            range: None,
        })
    }

    /// Asks the kernel which pages from `index` on are in memory. Bit 0 of a byte in `flags` is the answer for one page. Source: mincore(2).
    #[cfg(not(loom))]
    pub(crate) fn are_present(&self, index: usize, flags: &mut [u8]) -> Result<(), Errno> {
        debug_assert!((index + flags.len()) * PAGE <= self.len.next_multiple_of(PAGE));
        let first = self.base().wrapping_add(index * PAGE);
        // SAFETY: the call reads no memory of the range, and writes one byte for each page; `flags` has a byte for each page.
        let result = unsafe { libc::mincore(first.cast(), flags.len() * PAGE, flags.as_mut_ptr()) };
        match result {
            0 => Ok(()),
            _ => Err(Errno::from_raw_os_error(super::errno())),
        }
    }

    /// Maps `len` bytes of zeroed private memory. A signal handler may call this function, in contrast to malloc.
    pub(crate) fn scratch(len: usize) -> Result<Mapping, Errno> {
        // SAFETY: as in `of_file`.
        let base = unsafe {
            rustix::mm::mmap_anonymous(
                std::ptr::null_mut(),
                len.max(1),
                ProtFlags::READ | ProtFlags::WRITE,
                OWN,
            )?
        };
        Ok(Mapping {
            base: NonNull::new(base.cast()).ok_or(Errno::NOMEM)?,
            len: len.max(1),
            range: None,
        })
    }

    /// Returns the address of the first byte of the mapping.
    #[inline(always)]
    pub fn base(&self) -> *mut u8 {
        self.base.as_ptr()
    }

    /// Returns whether the file was truncated, and a handler replaced missing pages with pages of zeroes.
    #[inline(always)]
    pub(crate) fn is_cut(&self) -> bool {
        cut::any() && self.range.is_some_and(Range::is_cut)
    }

    /// Returns the length of the mapping in bytes.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Allocates the pages of `len` bytes from `offset` on, and maps them for writing. So a full file system is an error of this call, and never a
    /// SIGBUS later. The range is extended to whole pages.
    ///
    /// MADV_POPULATE_WRITE allocates like `fallocate`, needs no descriptor (a daemon may have closed the descriptor), and saves the page faults. If
    /// the advice is refused, the kernel writes to each page ([`futex::touch`]).
    pub(crate) fn populate(&self, offset: usize, len: usize) -> Result<(), Errno> {
        let start = offset / PAGE * PAGE;
        let end = (offset + len)
            .next_multiple_of(PAGE)
            .min(self.len.next_multiple_of(PAGE));
        if len == 0 || start >= end || cfg!(miri) {
            return Ok(());
        }
        let base = self.base().wrapping_add(start);
        // Relaxed: a hint that is never cleared; a thread that misses the hint calls the kernel once more.
        if !NO_POPULATE.load(Ordering::Relaxed) {
            match self.advise_to_populate(start, end - start) {
                Ok(()) => return Ok(()),
                // The kernel reports a write that would raise SIGBUS with this errno.
                Err(Errno::FAULT) => return Err(Errno::NOSPC),
                Err(error @ (Errno::NOMEM | Errno::HWPOISON)) => return Err(error),
                // The kernel or a sandbox refuses the advice.
                Err(_) => NO_POPULATE.store(true, Ordering::Relaxed),
            }
        }
        (0..end - start)
            .step_by(PAGE)
            .try_for_each(|page| futex::touch(base.wrapping_add(page).cast()))
    }

    fn advise_to_populate(&self, start: usize, len: usize) -> Result<(), Errno> {
        loop {
            // SAFETY: the caller's range lies inside this mapping; the advice changes no contents.
            let result = unsafe {
                rustix::mm::madvise(
                    self.base().add(start).cast(),
                    len,
                    Advice::LinuxPopulateWrite,
                )
            };
            if result != Err(Errno::INTR) {
                return result;
            }
        }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        if let Some(range) = self.range {
            range.leave();
        }
        // SAFETY: the range is exactly the mapping, and no reference into the mapping exists any longer.
        let _ = unsafe { rustix::mm::munmap(self.base().cast(), self.len) };
    }
}

/// Returns a page that reads as zeroes in a forked child, and is never unmapped. Returns None if there is no memory, or if the kernel or a
/// sandbox refuses MADV_WIPEONFORK.
pub(crate) fn wiped_on_fork() -> Option<*mut u8> {
    let mapping = Mapping::scratch(PAGE).ok()?;
    let base = mapping.base();
    if !cfg!(miri) {
        // SAFETY: the page was mapped just now, and this process uses it alone.
        unsafe { rustix::mm::madvise(base.cast(), PAGE, Advice::LinuxWipeOnFork) }.ok()?;
    }
    std::mem::forget(mapping);
    Some(base)
}
