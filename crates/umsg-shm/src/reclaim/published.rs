//! A value that a process computes once.

use std::sync::atomic::{AtomicPtr, Ordering};

/// A place for a value that a process computes once. The place is not a `OnceLock`: if another thread fills a `OnceLock` during a fork, the child
/// waits for ever for that thread.
pub struct Published<T: 'static>(AtomicPtr<T>);

impl<T: Send + Sync> Default for Published<T> {
    fn default() -> Self {
        Published::nothing()
    }
}

impl<T: Send + Sync> Published<T> {
    /// Makes an empty place.
    pub const fn nothing() -> Self {
        Published(AtomicPtr::new(std::ptr::null_mut()))
    }

    /// Returns the value. If there is no value, `find` computes it. If several threads compute a value at once, the first result is kept.
    ///
    /// # Errors
    /// The errors of `find`. After an error, the next call tries again.
    #[inline]
    pub fn get_or_find<E>(
        &'static self,
        find: impl FnOnce() -> Result<T, E>,
    ) -> Result<&'static T, E> {
        // Acquire: pairs with the release in `keep`.
        let mut found = self.0.load(Ordering::Acquire);
        if found.is_null() {
            found = self.keep(find()?);
        }
        // SAFETY: the pointer is not null, so it came from `keep`, which never frees a published value.
        Ok(unsafe { &*found })
    }

    /// Empties the place. The value stays in memory, because other threads may be using it.
    pub fn forget(&self) {
        self.0.store(std::ptr::null_mut(), Ordering::Release);
    }

    fn keep(&self, value: T) -> *mut T {
        let fresh = Box::into_raw(Box::new(value));
        // Release: a thread that finds the pointer finds the complete value.
        match self.0.compare_exchange(
            std::ptr::null_mut(),
            fresh,
            Ordering::Release,
            Ordering::Acquire,
        ) {
            Ok(_) => fresh,
            Err(first) => {
                // SAFETY: another thread has stored its value first, so no other thread has the pointer to this value, which comes from
                // Box::into_raw.
                drop(unsafe { Box::from_raw(fresh) });
                first
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Published;

    #[test]
    fn a_value_is_found_out_once_and_an_error_is_not_kept() {
        static PLACE: Published<u32> = Published::nothing();
        assert_eq!(PLACE.get_or_find(|| Err("not now")), Err("not now"));
        assert_eq!(PLACE.get_or_find(|| Ok::<_, ()>(7)), Ok(&7));
        assert_eq!(PLACE.get_or_find(|| Ok::<_, ()>(8)), Ok(&7));
    }

    #[test]
    fn threads_that_find_it_out_at_once_agree() {
        static PLACE: Published<usize> = Published::nothing();
        let found: Vec<usize> = std::thread::scope(|scope| {
            let find = |index| scope.spawn(move || PLACE.get_or_find(|| Ok::<_, ()>(index)));
            let threads: Vec<_> = (0..8).map(find).collect();
            let values = threads
                .into_iter()
                .map(|thread| *thread.join().unwrap().unwrap());
            values.collect()
        });
        assert!(found.iter().all(|value| *value == found[0]), "{found:?}");
    }
}
