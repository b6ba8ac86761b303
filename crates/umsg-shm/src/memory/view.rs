//! The first page of a file, mapped to be read again and again without a system call.

use crate::announcements::Announcements;
use crate::fault::AttachError;
use crate::sync::{AtomicU32, Ordering};
use crate::sys::map::{Mapping, PAGE};
use rustix::fd::BorrowedFd;

/// The place of the announcements in a namespace's page, in bytes.
pub const ANNOUNCEMENTS: usize = 64;

/// A mapping of the first page. The mapping keeps the file's memory allocated.
#[derive(Debug)]
pub struct View(Mapping);

impl View {
    /// Maps the first page of a file. The file is open for reading and writing, and is at least a page long.
    ///
    /// # Errors
    /// `System` if the file can't be mapped.
    pub fn map(file: BorrowedFd<'_>) -> Result<View, AttachError> {
        let map = Mapping::of_file(file, PAGE).map_err(|e| AttachError::from_errno("mmap", e))?;
        Ok(View(map))
    }

    /// Returns whether the file was truncated. In that case, the words read as zeroes.
    pub(crate) fn is_cut(&self) -> bool {
        self.0.is_cut()
    }

    /// Returns the count in the first word; None if the file was truncated.
    pub fn count(&self) -> Option<u32> {
        let count = self.word_at(0).load(Ordering::Acquire);
        (!self.is_cut()).then_some(count)
    }

    /// Adds one to the count in the first word, and returns the previous count. A process that sees the new count also sees all earlier stores of
    /// this thread.
    pub fn add_one(&self) -> u32 {
        self.word_at(0).fetch_add(1, Ordering::Release)
    }

    /// Returns the announcements of a namespace, which lie at the offset [`ANNOUNCEMENTS`].
    pub fn announcements(&self) -> &Announcements {
        const {
            assert!(ANNOUNCEMENTS + size_of::<Announcements>() <= PAGE);
            assert!(ANNOUNCEMENTS.is_multiple_of(align_of::<Announcements>()));
        };
        // SAFETY: by the assertions, the announcements lie inside the page and are aligned. They consist of atomics.
        unsafe { self.item_at(ANNOUNCEMENTS) }
    }

    /// Runs `work` on the word at an offset, a multiple of four.
    ///
    /// # Panics
    /// If the offset is beyond the page.
    pub(crate) fn with_word<T>(&self, at: usize, work: impl FnOnce(&AtomicU32) -> T) -> T {
        work(self.word_at(at))
    }

    /// Returns the word at an offset, a multiple of four.
    ///
    /// # Panics
    /// If the offset is beyond the page.
    #[inline]
    pub(crate) fn u32_at(&self, at: usize) -> u32 {
        // Relaxed: the words may come from different instants, as with a read(2).
        self.word_at(at).load(Ordering::Relaxed)
    }

    /// Returns the item at an offset.
    ///
    /// # Safety
    /// The item lies inside the page, the offset is a multiple of its alignment, and every bit pattern is a `T`, because `T` consists of atomics.
    #[inline]
    pub(crate) unsafe fn item_at<T>(&self, at: usize) -> &T {
        debug_assert!(at + size_of::<T>() <= PAGE && at.is_multiple_of(align_of::<T>()));
        // SAFETY: the caller promises that the item lies inside the page, is aligned and is valid. The mapping lives as long as `self`.
        unsafe { &*self.0.base().add(at).cast::<T>() }
    }

    #[inline]
    fn word_at(&self, at: usize) -> &AtomicU32 {
        assert!(at < PAGE && at.is_multiple_of(size_of::<u32>()));
        // SAFETY: the word is in the page, by the assertion, aligned, and mapped as long as `self`. Other processes write the word with atomics
        // through a mapping, or by a system call.
        unsafe { &*self.0.base().add(at).cast::<AtomicU32>() }
    }
}
