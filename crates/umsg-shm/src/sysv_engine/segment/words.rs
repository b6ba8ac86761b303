//! The words of a segment by name, for a diagnosis, and for tests that forge them.

use super::{Cell, Fixed};
use crate::sync::{AtomicU32, AtomicU64, Guarded32, Guarded64, Loose32, Loose64};

/// The words of the rights and the control block that a diagnosis compares. The engine changes them by named steps only.
#[derive(Clone, Copy)]
pub struct Words<'a> {
    pub state: &'a AtomicU32,
    pub version: &'a AtomicU32,
    pub mode: &'a AtomicU32,
    pub free: &'a Guarded32,
    pub used: &'a Guarded32,
    pub usable: &'a Guarded32,
    pub sequence: &'a Guarded64,
    pub messages: &'a AtomicU32,
    pub bytes: &'a AtomicU64,
    pub capacity: &'a AtomicU64,
    pub held: &'a AtomicU64,
    pub held_bytes: &'a AtomicU64,
    pub repairs: &'a AtomicU32,
}

impl Fixed {
    /// The words of the segment by name.
    pub fn words(&self) -> Words<'_> {
        let (rights, control) = (&self.rights, &self.control);
        Words {
            state: &rights.state,
            version: &rights.version,
            mode: &rights.mode,
            free: &control.free,
            used: &control.used,
            usable: &control.usable,
            sequence: &control.sequence,
            messages: &control.messages,
            bytes: &control.bytes,
            capacity: &control.capacity,
            held: &control.held,
            held_bytes: &control.held_bytes,
            repairs: &control.repairs,
        }
    }
}

/// The words of a cell that a diagnosis compares.
#[derive(Clone, Copy)]
pub struct CellWords<'a> {
    pub len: &'a Loose32,
    pub mtype: &'a Loose64,
    pub block: &'a Guarded32,
}

impl Cell {
    /// The words of the cell by name.
    pub fn words(&self) -> CellWords<'_> {
        CellWords {
            len: &self.len,
            mtype: &self.mtype,
            block: &self.block,
        }
    }
}
