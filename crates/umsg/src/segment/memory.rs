//! The memory of a segment: a mapped file whose pages come into use one after another, and count in a namespace.

use super::quota::Quota;
use crate::error::Trouble;
use crate::namespace::Namespace;
use crate::sys::map::Mapping;
use rustix::fd::BorrowedFd;
use rustix::io::Errno;
use std::sync::Arc;

/// See the module. Items are handed out by offset and index; whoever asks says how many there are.
#[derive(Debug)]
pub(crate) struct Memory {
    /// Where the mapping begins.
    base: Base,
    map: Arc<Mapping>,
    quota: Option<Quota>,
}

/// The address of a mapping, at hand without asking the mapping that others share.
#[derive(Clone, Copy, Debug)]
struct Base(*mut u8);

// SAFETY: as for the mapping, which is kept beside it.
unsafe impl Send for Base {}
// SAFETY: as above.
unsafe impl Sync for Base {}

impl Memory {
    /// Maps the first `len` bytes of a file.
    pub(crate) fn map(file: BorrowedFd<'_>, len: usize) -> Result<Memory, Errno> {
        let map = Arc::new(Mapping::of_file(file, len)?);
        Ok(Memory {
            base: Base(map.base()),
            map,
            quota: None,
        })
    }

    /// The same mapping once more: it stays until nobody uses it.
    pub(crate) fn share(&self) -> Memory {
        Memory {
            base: self.base,
            map: Arc::clone(&self.map),
            quota: None,
        }
    }

    /// From now on, memory that comes into use counts in a namespace.
    pub(crate) fn set_quota(&mut self, quota: Quota) {
        self.quota = Some(quota);
    }

    /// The namespace that it counts in, if it is known.
    pub(crate) fn namespace(&self) -> Option<&Namespace> {
        self.quota.as_ref().map(Quota::namespace)
    }

    /// [`Trouble::Damaged`] if the file was cut short under the mapping.
    #[inline(always)]
    pub(crate) fn check(&self) -> Result<(), Trouble> {
        if self.map.is_cut() {
            return Err(Trouble::Damaged);
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
    ) -> Result<&T, Trouble> {
        if index >= count {
            return Err(Trouble::Damaged);
        }
        debug_assert!(offset + index * stride + size_of::<T>() <= self.map.len());
        // SAFETY: inside the mapping, which lives as long as `self`, aligned and valid: our caller vouches for it.
        Ok(unsafe { &*self.base.0.add(offset + index * stride).cast::<T>() })
    }

    /// Makes `len` bytes from `offset` on real memory.
    pub(crate) fn populate(&self, offset: usize, len: usize) -> Result<(), Trouble> {
        if len == 0 {
            return Ok(());
        }
        if self.quota.as_ref().is_some_and(|quota| !quota.allows(len)) {
            return Err(Trouble::OverLimit);
        }
        self.map.populate(offset, len).map_err(Trouble::from_memory)
    }
}
