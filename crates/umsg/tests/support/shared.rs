//! Memory that parent and children share and that a killed child leaves behind.

use std::ops::Deref;
use std::ptr::null_mut;

/// A value in memory that stays shared across fork. Zeroed at first.
pub struct Shared<T> {
    place: *mut T,
}

/// Types made of atomics, for which all zeroes are a valid value.
///
/// # Safety
/// All zeroes must be a valid value, and the type must be Sync by being made of atomics only.
pub unsafe trait Zeroed: Sync {}

// SAFETY: the type is an atomic, for which zeroes are valid.
unsafe impl Zeroed for std::sync::atomic::AtomicU64 {}

impl<T: Zeroed> Shared<T> {
    pub fn new() -> Shared<T> {
        // SAFETY: the mapping is anonymous, and the kernel chooses its address.
        let place = unsafe {
            libc::mmap(
                null_mut(),
                size_of::<T>(),
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED | libc::MAP_ANONYMOUS,
                -1,
                0,
            )
        };
        assert_ne!(place, libc::MAP_FAILED, "shared memory");
        Shared {
            place: place.cast(),
        }
    }
}

impl<T: Zeroed> Deref for Shared<T> {
    type Target = T;

    fn deref(&self) -> &T {
        // SAFETY: the value is mapped, page-aligned and zeroed, and so valid by the trait's contract. It lives as long as `self`.
        unsafe { &*self.place }
    }
}

impl<T> Drop for Shared<T> {
    fn drop(&mut self) {
        // SAFETY: `new` made the mapping, and no reference to it is left.
        unsafe { libc::munmap(self.place.cast(), size_of::<T>()) };
    }
}

// SAFETY: the pointer leads to a value that is Sync.
unsafe impl<T: Zeroed> Sync for Shared<T> {}
// SAFETY: the pointer leads to a value that is Sync.
unsafe impl<T: Zeroed> Send for Shared<T> {}
