//! A value that a process finds out once.

use std::sync::atomic::{AtomicPtr, Ordering};

/// A place for a value. Not a `OnceLock`: a child forked while another thread fills one would wait for that thread for ever.
pub struct Published<T: 'static>(AtomicPtr<T>);

impl<T: Send + Sync> Default for Published<T> {
    fn default() -> Self {
        Published::nothing()
    }
}

impl<T: Send + Sync> Published<T> {
    /// Nothing yet.
    pub const fn nothing() -> Self {
        Published(AtomicPtr::new(std::ptr::null_mut()))
    }

    /// The value, found out by `find` if it is not there yet; of threads that do so at once, the first one's counts.
    ///
    /// # Errors
    /// Those of `find`; then the next call tries again.
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
        // SAFETY: not null, so it came from `keep`, which never frees what it published.
        Ok(unsafe { &*found })
    }

    fn keep(&self, value: T) -> *mut T {
        let fresh = Box::into_raw(Box::new(value));
        // Release: a process that finds the value finds it whole.
        match self.0.compare_exchange(
            std::ptr::null_mut(),
            fresh,
            Ordering::Release,
            Ordering::Acquire,
        ) {
            Ok(_) => fresh,
            Err(first) => {
                // SAFETY: another thread was first; ours comes from Box::into_raw and was seen by nobody.
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
