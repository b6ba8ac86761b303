//! The processes whose end closes the queue for sending, see [`crate::posix_engine::producers`].

use crate::sync::{Guarded32, Guarded64};

/// The number of processes that may count as producers at the same time.
pub const PRODUCERS: usize = if cfg!(loom) { 2 } else { 32 };

/// A process that counts as producer.
#[repr(C)]
#[derive(Default)]
pub(crate) struct ProducerRecord {
    /// The process; 0 for none. Stored last: it takes effect.
    pub(crate) pid: Guarded32,
    /// The number of its guards.
    pub(crate) guards: Guarded32,
    /// Its birth, which distinguishes it from other processes with the same id.
    pub(crate) birth: Guarded64,
}

/// All of them. The receiver lock protects all words.
#[repr(C)]
#[derive(Default)]
pub struct Producers {
    /// 1: a process has counted since the queue was created or reopened.
    pub(crate) any: Guarded32,
    reserved: Guarded32,
    pub(crate) records: [ProducerRecord; PRODUCERS],
}

#[cfg(not(loom))]
const _: () = assert!(size_of::<ProducerRecord>() == 16 && size_of::<Producers>() == 520);
