//! Descriptors from outside are entered in the table when they arrive, so that a program may read or query a queue's descriptor before it
//! calls an mq_* function with it.

use std::ffi::c_int;
use std::mem::MaybeUninit;
use std::os::fd::AsFd;

use rustix::fs::{FileType, Mode, OFlags, RawDir, SeekFrom, Stat};

use crate::adopt::adopt;
use crate::{fd, ours, table};

/// Numbers below this are tried one by one: /proc makes an inode for each descriptor that it lists, which takes ten times as long.
const FEW: c_int = 16;

/// Enters the queues that the program was started with.
pub(crate) fn inherited() {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    // Without /proc, an mq_* function enters the inherited queues later.
    let Ok(directory) = rustix::fs::open("/proc/self/fd", flags, Mode::empty()) else {
        return;
    };
    let count = count_of(&directory);
    if count == 0 {
        look_at_listed(&directory);
        return;
    }
    let mut found = 0;
    for number in 0..FEW {
        found += usize::from(look_at(number));
        // Another thread may open a descriptor meanwhile, which must not count for a higher one.
        if found == count && count_of(&directory) == count {
            return;
        }
    }
    // A descriptor's place in the directory is its number plus 2, behind `.` and `..`.
    let rest = rustix::fs::seek(&directory, SeekFrom::Start(FEW as u64 + 2));
    if rest.is_err() || found + look_at_listed(&directory) != count {
        let _ = rustix::fs::seek(&directory, SeekFrom::Start(0));
        look_at_listed(&directory);
    }
}

/// Returns the number of descriptors, which Linux 6.2 and later tell as the size of the directory; earlier ones tell 0.
fn count_of(directory: impl AsFd) -> usize {
    rustix::fs::fstat(directory).map_or(0, |status| status.st_size as usize)
}

/// Enters the queues among the descriptors that a directory of /proc lists from its present place on. Returns the number of descriptors.
fn look_at_listed(directory: impl AsFd) -> usize {
    let mut room = [MaybeUninit::uninit(); 1024];
    let mut entries = RawDir::new(directory, &mut room);
    let mut count = 0;
    while let Some(Ok(entry)) = entries.next() {
        let number = entry.file_name().to_str().ok();
        if let Some(number) = number.and_then(|name| name.parse().ok()) {
            look_at(number);
            count += 1;
        }
    }
    count
}

/// Enters a descriptor, if it is a queue's. Returns whether it is open.
fn look_at(number: c_int) -> bool {
    let status = fd::borrow(number).and_then(|descriptor| rustix::fs::fstat(descriptor).ok());
    if status.is_some_and(|status| may_be_queue(&status)) {
        received(number);
    }
    status.is_some()
}

/// Returns whether a file may be a whole queue: a regular file of whole pages.
fn may_be_queue(status: &Stat) -> bool {
    const PAGE: i64 = 4096;
    FileType::from_raw_mode(status.st_mode) == FileType::RegularFile
        && status.st_size > 0
        && status.st_size % PAGE == 0
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
