//! Arrays that grow by chunks and never move, for data that threads read without a lock and that must not come from malloc.

use std::mem::MaybeUninit;
use std::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};

use rustix::mm::{MapFlags, ProtFlags};

/// A type for which memory of zeroes is a valid value.
///
/// # Safety
/// All-zero bytes are a valid value of the type. Several threads can use the type through `&T`. The type needs no drop.
pub unsafe trait Zeroed: Sync {}

/// An array of `ROOTS` times `CHUNK` elements, all zero at first. The first chunk is part of the array. So a process with few elements maps no memory
/// for them, and a fork does not have to copy one more area of memory. Each further chunk is mapped at the first request to write one of its
/// elements, and is never unmapped. A forked child has a copy of all chunks.
#[repr(C)]
pub struct Chunks<T, const CHUNK: usize, const ROOTS: usize> {
    /// The highest index that was requested for writing, plus one. The word lies in the page of the first elements.
    end: AtomicUsize,
    first: MaybeUninit<[T; CHUNK]>,
    /// The addresses of the chunks. The first entry is unused, because the first chunk is part of the array.
    roots: [AtomicPtr<T>; ROOTS],
}

impl<T: Zeroed, const CHUNK: usize, const ROOTS: usize> Default for Chunks<T, CHUNK, ROOTS> {
    fn default() -> Self {
        Chunks::new()
    }
}

impl<T: Zeroed, const CHUNK: usize, const ROOTS: usize> Chunks<T, CHUNK, ROOTS> {
    /// Creates an array of zeroes.
    pub const fn new() -> Self {
        Chunks {
            end: AtomicUsize::new(0),
            first: MaybeUninit::zeroed(),
            roots: [const { AtomicPtr::new(std::ptr::null_mut()) }; ROOTS],
        }
    }

    /// Returns an element; None if its chunk is not mapped. The first chunk always exists.
    #[inline(always)]
    pub fn get(&self, index: usize) -> Option<&T> {
        // SAFETY: zeroes are a valid value of the elements (`Zeroed`), and each change was made through a reference to an element.
        let first = unsafe { self.first.assume_init_ref() };
        first.get(index).or_else(|| self.get_further(index))
    }

    #[inline(always)]
    fn get_further(&self, index: usize) -> Option<&T> {
        // Acquire: pairs with the release in `grow`. The kernel has zeroed the chunk, so the pair only makes the mapping visible.
        let chunk = self.roots.get(index / CHUNK)?.load(Ordering::Acquire);
        // SAFETY: a non-null chunk has CHUNK elements, was zeroed (valid by `Zeroed`) and is never unmapped.
        (!chunk.is_null()).then(|| unsafe { &*chunk.add(index % CHUNK) })
    }

    /// Returns an element, and maps its chunk if necessary. Returns `None` beyond the end of the array, or without memory.
    pub fn get_or_grow(&self, index: usize) -> Option<&T> {
        if index >= ROOTS * CHUNK {
            return None;
        }
        // Relaxed: a thread that reads an older value has not seen the element, either. The value is written without a load before it: a load as the
        // first access to the page would cost one more page fault.
        let end = index + 1;
        let first = self
            .end
            .compare_exchange(0, end, Ordering::Relaxed, Ordering::Relaxed);
        if first.is_err_and(|known| known < end) {
            self.end.fetch_max(end, Ordering::Relaxed);
        }
        match self.get(index) {
            None => self.grow(index / CHUNK).and_then(|()| self.get(index)),
            found => found,
        }
    }

    #[cold]
    fn grow(&self, root: usize) -> Option<()> {
        let root = self.roots.get(root)?;
        let bytes = size_of::<T>() * CHUNK;
        let access = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: the kernel chooses the address, so no existing mapping is replaced.
        let fresh = unsafe {
            rustix::mm::mmap_anonymous(std::ptr::null_mut(), bytes, access, MapFlags::PRIVATE)
                .ok()?
        };
        // Release: pairs with the acquire in `get_further`.
        let raced = root.compare_exchange(
            std::ptr::null_mut(),
            fresh.cast(),
            Ordering::Release,
            Ordering::Relaxed,
        );
        if raced.is_err() {
            // SAFETY: no other thread has the address of the mapping that was just made.
            unsafe { rustix::mm::munmap(fresh, bytes).ok() };
        }
        Some(())
    }

    /// Returns the elements from `first` to `last`, both included, with their indices. Skips the elements after the highest element that was ever
    /// requested for writing. Skips the chunks of which no element was requested.
    pub fn range(&self, first: usize, last: usize) -> impl Iterator<Item = (usize, &T)> {
        let end = self.end.load(Ordering::Relaxed).min(last.saturating_add(1));
        (first / CHUNK..end.div_ceil(CHUNK))
            .filter(|root| *root == 0 || !self.roots[*root].load(Ordering::Relaxed).is_null())
            .flat_map(move |root| first.max(root * CHUNK)..end.min(root * CHUNK + CHUNK))
            .filter_map(|index| Some((index, self.get(index)?)))
    }
}

#[cfg(test)]
mod tests {
    use super::{Chunks, Zeroed};
    use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

    // SAFETY: zero is a valid number, threads share the type by reference, and it needs no drop.
    unsafe impl Zeroed for AtomicUsize {}

    type Small = Chunks<AtomicUsize, 4, 3>;

    #[test]
    fn elements_appear_when_wanted_and_start_at_zero() {
        let chunks = Small::new();
        assert!(chunks.get(5).is_none());
        chunks.get_or_grow(5).unwrap().store(7, Relaxed);
        assert_eq!(chunks.get(5).unwrap().load(Relaxed), 7);
        assert_eq!(
            chunks.get(4).unwrap().load(Relaxed),
            0,
            "a neighbour in the same chunk"
        );
        assert!(chunks.get(8).is_none(), "another chunk");
        assert_eq!(chunks.get(0).unwrap().load(Relaxed), 0, "the first chunk");
    }

    #[test]
    fn there_is_nothing_beyond_the_end() {
        let chunks = Small::new();
        assert!(chunks.get(12).is_none());
        assert!(chunks.get_or_grow(12).is_none());
        assert!(chunks.get_or_grow(usize::MAX).is_none());
    }

    #[test]
    fn a_range_leaves_out_what_was_never_wanted() {
        let chunks = Small::new();
        chunks.get_or_grow(9);
        let seen = chunks.range(0, usize::MAX).map(|(index, _)| index);
        assert_eq!(seen.collect::<Vec<_>>(), [0, 1, 2, 3, 8, 9]);
        let seen: Vec<usize> = chunks
            .range(2, usize::MAX)
            .map(|(index, _)| index)
            .collect();
        assert_eq!(seen, [2, 3, 8, 9]);
        assert_eq!(chunks.range(20, 30).count(), 0);
        assert_eq!(chunks.range(3, 3).count(), 1);
        assert_eq!(Small::new().range(0, 11).count(), 0, "nothing was wanted");
    }
}
