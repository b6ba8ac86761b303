//! A shelf in plain memory.

use super::{Kind, Place, TypeIndexStore, TypeRoots};
use crate::fault::Fault;
use std::cell::Cell;

pub(crate) struct Desk {
    pub(crate) places: Vec<Place>,
    pub(crate) kinds: Vec<Kind>,
    pub(crate) roots: TypeRoots,
    /// Records that may become real memory; the machine has no more.
    pub(crate) memory: Cell<u32>,
    /// Calls that asked for more.
    pub(crate) provided: Cell<u32>,
}

impl Desk {
    /// A desk for so many messages.
    pub(crate) fn new(places: usize) -> Desk {
        Desk {
            places: (0..places).map(|_| Place::default()).collect(),
            kinds: (0..places).map(|_| Kind::default()).collect(),
            roots: TypeRoots::default(),
            memory: Cell::new(places as u32),
            provided: Cell::new(0),
        }
    }
}

impl TypeIndexStore for Desk {
    fn place(&self, slot: u32) -> Result<&Place, Fault> {
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
