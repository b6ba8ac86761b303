//! The words of a segment by name, for a diagnosis, and for tests that forge them.

use super::{Cell, Fixed};
use crate::sync::{AtomicU32, AtomicU64, Guarded32, Guarded64, Loose32, Loose64, words};

words! {
    /// The words of the rights and the control block that a diagnosis compares.
    Words of Fixed {
        AtomicU32: state = rights.state, version = rights.version, mode = rights.mode,
            messages = control.messages, repairs = control.repairs;
        Guarded32: free = control.free, used = control.used, usable = control.usable;
        Guarded64: sequence = control.sequence;
        AtomicU64: bytes = control.bytes, capacity = control.capacity, held = control.held,
            held_bytes = control.held_bytes;
    }
}

words! {
    /// The words of a cell that a diagnosis compares.
    CellWords of Cell {
        Loose32: len;
        Loose64: mtype;
        Guarded32: block;
    }
}
