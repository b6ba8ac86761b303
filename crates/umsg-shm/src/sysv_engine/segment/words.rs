//! The words of a segment by name, for a diagnosis, and for tests that forge them.

use super::{Cell, Fixed};
use crate::sync::{AtomicU32, AtomicU64, Guarded32, Guarded64, Loose32, Loose64, words};

words! {
    /// The words of the rights and the control block that a diagnosis compares.
    Words of Fixed {
        state: AtomicU32 = rights.state,
        version: AtomicU32 = rights.version,
        mode: AtomicU32 = rights.mode,
        free: Guarded32 = control.free,
        used: Guarded32 = control.used,
        usable: Guarded32 = control.usable,
        sequence: Guarded64 = control.sequence,
        messages: AtomicU32 = control.messages,
        bytes: AtomicU64 = control.bytes,
        capacity: AtomicU64 = control.capacity,
        held: AtomicU64 = control.held,
        held_bytes: AtomicU64 = control.held_bytes,
        repairs: AtomicU32 = control.repairs,
    }
}

words! {
    /// The words of a cell that a diagnosis compares.
    CellWords of Cell {
        len: Loose32 = len,
        mtype: Loose64 = mtype,
        block: Guarded32 = block,
    }
}
