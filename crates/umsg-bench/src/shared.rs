//! A few words that the processes of a measurement share: barriers and results.

use std::ptr;
use std::slice;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::failure::Failure;

/// Words in anonymous shared memory, zero at first, inherited by forked children.
pub struct SharedWords {
    words: &'static [AtomicU64],
}

impl SharedWords {
    pub fn new(count: usize) -> Result<Self, Failure> {
        // SAFETY: the call makes a new anonymous mapping at an address that the kernel chooses.
        let start = unsafe {
            libc::mmap(
                ptr::null_mut(),
                count * size_of::<AtomicU64>(),
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED | libc::MAP_ANONYMOUS,
                -1,
                0,
            )
        };
        if start == libc::MAP_FAILED {
            return Err(Failure::system("mmap"));
        }
        // SAFETY: the mapping is page-aligned, holds `count` words, and is zero, which is a valid AtomicU64. It lives until the drop of this value,
        // and only this value lends the slice.
        let words = unsafe { slice::from_raw_parts(start.cast::<AtomicU64>(), count) };
        Ok(Self { words })
    }

    pub fn get(&self, index: usize) -> u64 {
        self.words[index].load(Ordering::Acquire)
    }

    pub fn set(&self, index: usize, value: u64) {
        self.words[index].store(value, Ordering::Release);
    }

    /// Returns a word, for callers that need another memory order than [`Self::get`] and [`Self::set`].
    #[inline]
    pub fn word(&self, index: usize) -> &AtomicU64 {
        &self.words[index]
    }

    /// Returns some of the words as bytes.
    ///
    /// # Safety
    /// No other process may touch these words as long as the slice is in use.
    #[allow(
        clippy::mut_from_ref,
        reason = "shared memory, handed out by agreement"
    )]
    pub unsafe fn bytes_mut(&self, first: usize, count: usize) -> &mut [u8] {
        let words = &self.words[first..first + count];
        // SAFETY: the words lie in the mapping, which is writable. The caller promises that no other process touches them.
        unsafe {
            slice::from_raw_parts_mut(words.as_ptr().cast_mut().cast::<u8>(), size_of_val(words))
        }
    }

    /// Adds one to a word, and returns the sum.
    pub fn increment(&self, index: usize) -> u64 {
        self.words[index].fetch_add(1, Ordering::AcqRel) + 1
    }
}

impl Drop for SharedWords {
    fn drop(&mut self) {
        // SAFETY: this unmaps the mapping that `new` made, once; no slice of the mapping outlives this value.
        unsafe {
            libc::munmap(
                self.words.as_ptr().cast_mut().cast(),
                size_of_val(self.words),
            );
        }
    }
}
