//! The memory of a segment: a mapped file whose pages come into use one after another, and count in a namespace.

mod file;
mod host;
mod segment;

pub use file::{OUT_OF_RANGE, fnv, set_length};
pub use host::{FifoName, Host, NOT_OURS};
pub use segment::{Format, Regions, Segment};

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

/// Dropped when the last user of a mapping lets go of it. That removes the file of a queue that goes with its last user.
pub(crate) type LastUse = Box<dyn Debug + Send + Sync + UnwindSafe + RefUnwindSafe>;

/// How many bytes of a file are read at once for a copy.
const CHUNK: usize = 16 * PAGE;
static ZEROES: [u8; PAGE] = [0; PAGE];

/// See the module. Items are handed out by offset and index; a process that asks says how many there are.
#[derive(Debug)]
pub(crate) struct Memory {
    /// Where the mapping begins.
    base: Base,
    map: Arc<Mapped>,
    /// The namespace in which its file lies, if that is known.
    host: Option<Arc<dyn Host>>,
    /// Whether memory that comes into use counts there.
    is_counted: bool,
    /// Whether it was created in the PID and time namespace of the process that mapped it.
    is_home: bool,
    /// Which file it is, and of whom.
    file: FileIdentity,
}

/// What all share that use a mapping.
#[derive(Debug)]
struct Mapped {
    map: Mapping,
    /// Of a queue that goes with its last user. Behind the mapping, which is what holds it: fields are dropped in this order.
    last_close: Option<LastUse>,
}

/// The address of a mapping, at hand without asking the mapping that others share.
#[derive(Clone, Copy, Debug)]
struct Base(*mut u8);

// SAFETY: as for the mapping, which is kept beside it.
unsafe impl Send for Base {}
// SAFETY: as above.
unsafe impl Sync for Base {}

impl Liveness for Memory {
    fn own(&self) -> u32 {
        self.host
            .as_ref()
            .map_or(UNREGISTERED, |host| host.own_life())
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

    /// It does not know where the locks are, which would tell.
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

    /// A private copy of parts of a file, in memory of `len` bytes; the rest reads as zeroes, and so does what the file does not have.
    /// Holes stay holes, in the file and in the copy; reading them through a mapping would fill them.
    ///
    /// No other process writes it, so what was checked stays so.
    pub(crate) fn copy_of(
        file: BorrowedFd<'_>,
        len: usize,
        parts: &[Range<usize>],
    ) -> Result<Memory, Errno> {
        let map = Mapping::scratch(len)?;
        // SAFETY: the mapping is at least so long, zeroed, and no other process's: it was made just now.
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

    /// Which file it is; the default of what is mapped from none.
    pub(crate) fn file(&self) -> FileIdentity {
        self.file
    }

    /// The mapping holds a queue that goes with its last user. Before it is shared.
    pub(crate) fn set_last_close(&mut self, last_close: LastUse) {
        if let Some(mapped) = Arc::get_mut(&mut self.map) {
            mapped.last_close = Some(last_close);
        }
    }

    /// The same mapping once more: it stays until no process uses it.
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

    /// From now on, memory that comes into use counts in a namespace.
    pub(crate) fn count_in(&mut self, host: Arc<dyn Host>) {
        self.host = Some(host);
        self.is_counted = true;
    }

    /// Has this process known by its life, before it takes a lock in shared form. In vain without a namespace.
    ///
    /// # Errors
    /// `Unregistered`.
    pub(crate) fn join(&self) -> Result<(), AttachError> {
        self.host.as_ref().map_or(Ok(()), |host| host.join())
    }

    /// Has a copy know whose lives its records name.
    pub(crate) fn set_host(&mut self, host: Arc<dyn Host>) {
        self.host = Some(host);
    }

    /// It was created in the PID and time namespace of `home`, as [`here`] has it. Before it is shared.
    pub(crate) fn set_home(&mut self, home: u64) {
        self.is_home = home != 0 && home == here();
    }

    /// The namespace in which it counts, if that is known.
    pub(crate) fn counted_in(&self) -> Option<&Arc<dyn Host>> {
        self.host.as_ref().filter(|_| self.is_counted)
    }

    /// [`Fault::Damaged`] if the file was cut short under the mapping.
    #[inline(always)]
    pub(crate) fn check(&self) -> Result<(), Fault> {
        if self.map.map.is_cut() {
            return Err(Fault::Damaged);
        }
        Ok(())
    }

    /// The first byte.
    #[inline(always)]
    pub(crate) fn base(&self) -> *mut u8 {
        self.base.0
    }

    /// The item at `index` of a region of `T`s, `stride` bytes from one to the next, that begins at `offset` and has
    /// `count` of them.
    ///
    /// # Safety
    /// The region lies inside the mapping, `offset` and `stride` are multiples of `T`'s alignment, `stride` is not below its
    /// size, and every bit pattern is a `T`: it consists of atomics.
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
        // SAFETY: inside the mapping, which lives as long as `self`, aligned and valid: our caller vouches for it.
        Ok(unsafe { &*self.base.0.add(offset + index * stride).cast::<T>() })
    }

    /// Makes `len` bytes from `offset` on real memory.
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

/// Reads a part of a file into zeroed memory. Pages of zeroes are left out, so that holes of the file take no memory.
///
/// pread(2) takes no lock of the file's inode; lseek(2), which tells holes from memory, does: see [`extent`](crate::sys::extent).
fn read_part(file: BorrowedFd<'_>, bytes: &mut [u8], part: Range<usize>) -> Result<(), Errno> {
    let mut chunk = vec![0; CHUNK];
    let (mut at, end) = (part.start, part.end.min(bytes.len()));
    while at < end {
        let wanted = (end - at).min(CHUNK);
        match rustix::io::pread(file, &mut chunk[..wanted], at as u64) {
            // The file ends here.
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
