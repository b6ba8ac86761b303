//! Memory for the duration of a repair. The memory is not from malloc, because a repair may run in a signal handler.

use crate::fault::Fault;
use std::ops::{Deref, DerefMut};

#[cfg(not(loom))]
mod real {
    use super::Fault;
    use crate::sys::map::Mapping;

    /// A slice of plain values, zeroed at first.
    pub(crate) struct Scratch<T: Copy> {
        map: Mapping,
        len: usize,
        of: std::marker::PhantomData<T>,
    }

    impl<T: Copy> Scratch<T> {
        /// Allocates `len` values of a `T` for which zeroed bytes are a valid value.
        pub(crate) fn new(len: usize) -> Result<Self, Fault> {
            let map = Mapping::scratch(len * size_of::<T>()).map_err(Fault::from_memory)?;
            Ok(Scratch {
                map,
                len,
                of: std::marker::PhantomData,
            })
        }

        pub(crate) fn truncate(&mut self, len: usize) {
            self.len = self.len.min(len);
        }

        pub(super) fn slice(&self) -> &[T] {
            // SAFETY: the mapping is page-aligned and has room for at least `len` values. The mapping is zeroed or holds values that were written
            // through the slice, and lives as long as `self`, its only owner.
            unsafe { std::slice::from_raw_parts(self.map.base().cast(), self.len) }
        }

        pub(super) fn slice_mut(&mut self) -> &mut [T] {
            // SAFETY: as for the shared slice; `self` is borrowed exclusively.
            unsafe { std::slice::from_raw_parts_mut(self.map.base().cast(), self.len) }
        }
    }
}
#[cfg(not(loom))]
pub(crate) use real::Scratch;

/// A slice of plain values.
#[cfg(loom)]
pub(crate) struct Scratch<T: Copy>(Vec<T>);

#[cfg(loom)]
impl<T: Copy + Default> Scratch<T> {
    pub(crate) fn new(len: usize) -> Result<Self, Fault> {
        Ok(Scratch(vec![T::default(); len]))
    }
}

#[cfg(loom)]
impl<T: Copy> Scratch<T> {
    pub(crate) fn truncate(&mut self, len: usize) {
        self.0.truncate(len);
    }

    fn slice(&self) -> &[T] {
        &self.0
    }

    fn slice_mut(&mut self) -> &mut [T] {
        &mut self.0
    }
}

impl<T: Copy> Deref for Scratch<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        self.slice()
    }
}

impl<T: Copy> DerefMut for Scratch<T> {
    fn deref_mut(&mut self) -> &mut [T] {
        self.slice_mut()
    }
}
