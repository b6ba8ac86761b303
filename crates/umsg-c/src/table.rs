//! Tables that grow and whose places are never unmapped.

use std::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};

const CHUNK: usize = 64;
const CHUNKS: usize = 1024;
/// How many places a table can have.
pub(crate) const PLACES: usize = CHUNK * CHUNKS;

/// What a place holds at first.
pub(crate) trait Empty: Sync + 'static {
    const EMPTY: Self;
}

/// A table. Reading and growing take no lock, so that a forked child finds nothing half done.
pub(crate) struct Table<T: Empty> {
    chunks: [AtomicPtr<[T; CHUNK]>; CHUNKS],
    /// Where to begin to look for a free place.
    next: AtomicUsize,
}

impl<T: Empty> Table<T> {
    pub(crate) const fn new() -> Self {
        Table {
            chunks: [const { AtomicPtr::new(std::ptr::null_mut()) }; CHUNKS],
            next: AtomicUsize::new(0),
        }
    }

    /// The place of this number, if there is one already.
    #[inline(always)]
    pub(crate) fn get(&'static self, index: usize) -> Option<&'static T> {
        // Acquire: pairs with the release in `grow`; the places are filled.
        let chunk = self.chunks.get(index / CHUNK)?.load(Ordering::Acquire);
        // SAFETY: null, or what `grow` leaked: nobody frees it or has another than a shared reference to it.
        let chunk = unsafe { chunk.as_ref() }?;
        Some(&chunk[index % CHUNK])
    }

    /// What `claim` makes of the first place that it takes, and the number of that place; None if all are taken.
    pub(crate) fn claim<R>(
        &'static self,
        mut claim: impl FnMut(&'static T) -> Option<R>,
    ) -> Option<(usize, R)> {
        // Relaxed: a hint.
        let first = self.next.load(Ordering::Relaxed);
        for index in (first..first + PLACES).map(|index| index % PLACES) {
            let place = self.get(index).or_else(|| self.grow(index))?;
            if let Some(claimed) = claim(place) {
                self.next.store(index + 1, Ordering::Relaxed);
                return Some((index, claimed));
            }
        }
        None
    }

    #[cold]
    fn grow(&'static self, index: usize) -> Option<&'static T> {
        let entry = self.chunks.get(index / CHUNK)?;
        let fresh: *mut [T; CHUNK] = Box::into_raw(Box::new([const { T::EMPTY }; CHUNK]));
        let null = std::ptr::null_mut();
        // Release: who finds the chunk finds its places filled.
        let entered = entry.compare_exchange(null, fresh, Ordering::Release, Ordering::Relaxed);
        if entered.is_err() {
            // SAFETY: another thread was first; ours comes from Box::into_raw and was seen by nobody.
            drop(unsafe { Box::from_raw(fresh) });
        }
        self.get(index)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicBool;

    impl Empty for AtomicBool {
        const EMPTY: AtomicBool = AtomicBool::new(false);
    }

    fn claim(place: &'static AtomicBool) -> Option<()> {
        (!place.swap(true, Ordering::Relaxed)).then_some(())
    }

    #[test]
    fn every_place_is_claimed_once_and_then_none_is_left() {
        static TABLE: Table<AtomicBool> = Table::new();
        assert!(TABLE.get(0).is_none());
        for expected in 0..PLACES {
            assert_eq!(TABLE.claim(claim), Some((expected, ())));
        }
        assert_eq!(TABLE.claim(claim), None);
        TABLE.get(777).unwrap().store(false, Ordering::Relaxed);
        assert_eq!(TABLE.claim(claim), Some((777, ())));
        assert!(TABLE.get(PLACES).is_none());
    }
}
