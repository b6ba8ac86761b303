//! Descriptors from outside are entered in the table when they arrive, so that a program may read or query a queue's descriptor before it
//! calls an mq_* function with it.

use std::ffi::c_int;
use std::mem::MaybeUninit;

use rustix::fs::{Mode, OFlags, RawDir};

use crate::adopt::adopt;
use crate::{ours, table};

/// Enters the queues that the program was started with.
pub(crate) fn inherited() {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    // Without /proc, an mq_* function finds them later.
    let Ok(directory) = rustix::fs::open("/proc/self/fd", flags, Mode::empty()) else {
        return;
    };
    let mut room = [MaybeUninit::uninit(); 1024];
    let mut entries = RawDir::new(&directory, &mut room);
    while let Some(Ok(entry)) = entries.next() {
        if let Some(number) = entry
            .file_name()
            .to_str()
            .ok()
            .and_then(|name| name.parse().ok())
        {
            received(number);
        }
    }
}

/// Enters a descriptor, if it is a queue's.
pub(crate) fn received(number: c_int) {
    if table::knows(number) {
        // Stale, if the number was closed behind our back: then this forgets it.
        drop(ours::file(number));
    }
    if !table::knows(number) {
        // The call that uses the descriptor reports the failure.
        drop(adopt(number));
    }
}
