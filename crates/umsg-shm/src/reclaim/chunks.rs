//! Arrays that grow by chunks and never move: for state that is read without a lock and must not be allocated by malloc.

use std::sync::atomic::{AtomicPtr, Ordering};

use rustix::mm::{MapFlags, ProtFlags};

/// Types for which memory of zeroes is a valid value.
///
/// # Safety
/// All-zero bytes are a value of the type, it can be used by several threads through `&T`, and it needs no drop.
pub unsafe trait Zeroed: Sync {}

/// `ROOTS` times `CHUNK` elements, all zero at first. A chunk is mapped at the first request to write one of its elements, and is never
/// unmapped. A forked child has a copy, as of all private memory.
pub struct Chunks<T, const CHUNK: usize, const ROOTS: usize> {
    roots: [AtomicPtr<T>; ROOTS],
}

impl<T: Zeroed, const CHUNK: usize, const ROOTS: usize> Default for Chunks<T, CHUNK, ROOTS> {
    fn default() -> Self {
        Chunks::new()
    }
}

impl<T: Zeroed, const CHUNK: usize, const ROOTS: usize> Chunks<T, CHUNK, ROOTS> {
    /// An array without memory.
    pub const fn new() -> Self {
        Chunks {
            roots: [const { AtomicPtr::new(std::ptr::null_mut()) }; ROOTS],
        }
    }

    /// Returns an element, if its chunk is mapped.
    #[inline(always)]
    pub fn get(&self, index: usize) -> Option<&T> {
        // Acquire: pairs with the release in `grow`. The chunk is zeroed by the kernel, so it only orders the mapping.
        let chunk = self.roots.get(index / CHUNK)?.load(Ordering::Acquire);
        // SAFETY: a non-null chunk has CHUNK elements, was zeroed (valid by `Zeroed`) and is never unmapped.
        (!chunk.is_null()).then(|| unsafe { &*chunk.add(index % CHUNK) })
    }

    /// Returns an element, and maps its chunk if necessary. Returns `None` beyond the end of the array, or without memory.
    pub fn get_or_grow(&self, index: usize) -> Option<&T> {
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
        // Release: see `get`.
        let raced = root.compare_exchange(
            std::ptr::null_mut(),
            fresh.cast(),
            Ordering::Release,
            Ordering::Relaxed,
        );
        if raced.is_err() {
            // SAFETY: no other thread knows the mapping that was just made.
            unsafe { rustix::mm::munmap(fresh, bytes).ok() };
        }
        Some(())
    }

    /// Returns the elements of mapped chunks from `first` to `last`, both included, with their indices.
    pub fn range(&self, first: usize, last: usize) -> impl Iterator<Item = (usize, &T)> {
        let last = last.min(ROOTS * CHUNK - 1);
        (first / CHUNK..=last / CHUNK)
            .filter(|root| !self.roots[*root].load(Ordering::Relaxed).is_null())
            .flat_map(move |root| first.max(root * CHUNK)..=last.min(root * CHUNK + CHUNK - 1))
            .filter_map(|index| Some((index, self.get(index)?)))
    }
}

#[cfg(test)]
mod tests {
    use super::{Chunks, Zeroed};
    use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

    // SAFETY: zero is a number, and the type is made for sharing.
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
        assert!(chunks.get(0).is_none(), "another chunk");
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
        chunks.get_or_grow(1);
        chunks.get_or_grow(9);
        let seen: Vec<usize> = chunks
            .range(2, usize::MAX)
            .map(|(index, _)| index)
            .collect();
        assert_eq!(seen, [2, 3, 8, 9, 10, 11]);
        assert_eq!(chunks.range(20, 30).count(), 0);
        assert_eq!(chunks.range(3, 3).count(), 1);
    }
}
