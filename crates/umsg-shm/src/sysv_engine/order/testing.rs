//! A [`TypeIndexStore`] in plain memory, for tests.

use super::{Kind, OrderLinks, TypeIndexStore, TypeRoots};
use crate::fault::Fault;
use std::cell::Cell;

pub(crate) struct Records {
    pub(crate) places: Vec<OrderLinks>,
    pub(crate) kinds: Vec<Kind>,
    pub(crate) roots: TypeRoots,
    /// The number of type records for which there is memory.
    pub(crate) memory: Cell<u32>,
    /// The number of calls that asked for more records.
    pub(crate) provided: Cell<u32>,
}

impl Records {
    /// Makes a store for `places` messages.
    pub(crate) fn new(places: usize) -> Records {
        Records {
            places: (0..places).map(|_| OrderLinks::default()).collect(),
            kinds: (0..places).map(|_| Kind::default()).collect(),
            roots: TypeRoots::default(),
            memory: Cell::new(places as u32),
            provided: Cell::new(0),
        }
    }
}

impl TypeIndexStore for Records {
    fn place(&self, slot: u32) -> Result<&OrderLinks, Fault> {
        self.places.get(slot as usize).ok_or(Fault::Damaged)
    }

    fn places(&self) -> u32 {
        self.places.len() as u32
    }

    fn kind(&self, index: u32) -> Result<&Kind, Fault> {
        self.kinds.get(index as usize).ok_or(Fault::Damaged)
    }

    fn kinds(&self) -> &TypeRoots {
        &self.roots
    }

    fn provide_kinds(&self, usable: u32) -> Result<u32, Fault> {
        self.provided.set(self.provided.get() + 1);
        let more = usable.saturating_add(16).min(self.kinds.len() as u32);
        if more > self.memory.get() {
            return Err(Fault::NoMemory);
        }
        Ok(more)
    }
}
