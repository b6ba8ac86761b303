//! Descriptors from outside are entered in the table when they arrive. So a program may read or query a queue's descriptor before its first mq_*
//! call with it.
//!
//! The drop-in inspects the descriptors with which the program was started one by one: each one when the program first uses its number in a hooked
//! function. Inspecting all numbers takes a tenth of the time of a program's start, and as long as creating a queue in the kernel. So the drop-in
//! inspects all numbers only in two cases: when it finds the first descriptor that may be a queue, or when the program uses a number that has no bit
//! in [`SEEN`]. After that, it inspects no more.
//!
//! A descriptor that the program gets later is not inherited. So the drop-in marks the number of each queue that the process opens as seen. The
//! library's own descriptors close on exec, and inherited descriptors do not. So an inspection in one thread skips the files that another thread is
//! opening.

use std::cell::Cell;
use std::ffi::c_int;
use std::mem::MaybeUninit;
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use rustix::fs::{FileType, Mode, OFlags, RawDir, SeekFrom, Stat};
use rustix::io::FdFlags;
use umsg_shm::sys::stack::roomy;

use crate::adopt::adopt;
use crate::{errno, fd, knobs, ours, process, start, table};

/// The number of descriptor numbers that are tried one by one, from 0 on. Listing them in /proc would take ten times as long, because the kernel
/// creates an inode for each listed descriptor.
const FEW: c_int = 16;

/// Set once all inherited descriptors have been inspected. The unit tests inherit none.
#[unsafe(link_section = ".data.umsg")]
static COMPLETE: AtomicBool = AtomicBool::new(cfg!(test));

/// One bit for each descriptor number. The bit is set if the number was inspected and belongs to no inherited queue, or if the process got the number
/// after its start.
#[unsafe(link_section = ".data.umsg")]
static SEEN: [AtomicU64; 4] = [const { AtomicU64::new(0) }; 4];

thread_local! {
    /// Set while the thread inspects all descriptors. The descriptors that it opens meanwhile are the library's own.
    static LOOKING: Cell<bool> = const { Cell::new(false) };
}

/// Marks a number as seen. The program got it just now, so the inherited descriptor that had this number is closed.
pub(crate) fn note_later(number: c_int) {
    if are_expected()
        && let Some((word, bit)) = seen(number)
    {
        word.fetch_or(bit, Ordering::Relaxed);
    }
}

/// Inspects a descriptor, if the program may have inherited it and no earlier call has inspected it.
#[inline(always)]
pub(crate) fn look_once(number: c_int) {
    // Acquire: if all inherited queues are entered, this thread sees their entries. Relaxed: the bit publishes no other data.
    if are_expected()
        && seen(number).is_none_or(|(word, bit)| word.load(Ordering::Relaxed) & bit == 0)
    {
        look(number);
    }
}

/// Returns whether the program may have an inherited queue that is not entered yet.
#[inline(always)]
pub(crate) fn are_expected() -> bool {
    !COMPLETE.load(Ordering::Acquire)
}

/// Returns the word of [`SEEN`] that contains the bit of a number, and the mask of the bit. Returns `None` if the number is too high.
#[inline(always)]
fn seen(number: c_int) -> Option<(&'static AtomicU64, u64)> {
    // A negative number becomes a large number without a bit.
    let place = number as u32 as usize;
    SEEN.get(place / 64).map(|word| (word, 1 << (place % 64)))
}

#[cold]
fn look(number: c_int) {
    // Before the constructor has run, malloc may still be starting. In a vfork child, the number may belong to another file than in the parent.
    if number < 0 || LOOKING.get() || !start::is_done() || !process::owns_table() {
        return;
    }
    match seen(number) {
        Some((word, bit)) if !may_be_inherited_queue(number) => {
            word.fetch_or(bit, Ordering::Relaxed);
        }
        _ => _ = look_at_all(),
    }
}

/// Returns whether a descriptor may be an inherited descriptor of a queue's file. Closing one of the library's own files also calls this function,
/// but such a descriptor closes on exec.
fn may_be_inherited_queue(number: c_int) -> bool {
    let status = status(number);
    if let Some(status) = &status {
        knobs::note_arrival(status);
    }
    status.is_some_and(|status| may_be_queue(&status)) && stays_on_exec(number)
}

fn status(number: c_int) -> Option<Stat> {
    fd::borrow(number).and_then(|descriptor| rustix::fs::fstat(descriptor).ok())
}

/// Enters into the table the queues with which the program was started. Returns false in a vfork child, which shares the table of its parent, and
/// during an inspection by the same thread: then no queue is entered.
pub(crate) fn look_at_all() -> bool {
    if COMPLETE.load(Ordering::Acquire) {
        return true;
    }
    if LOOKING.get() || !process::owns_table() {
        return false;
    }
    // Two threads may inspect the descriptors at the same time: each thread continues only when all queues are entered.
    let before = errno::get();
    LOOKING.set(true);
    roomy(enter_inherited);
    LOOKING.set(false);
    errno::set(before);
    // Release: pairs with the acquire load in `are_expected`.
    COMPLETE.store(true, Ordering::Release);
    true
}

/// The directory that lists the descriptors of this process.
const LIST: &str = "/proc/self/fd";

fn enter_inherited() {
    let count = count();
    let mut found = 0;
    for number in 0..FEW {
        if found == count {
            break;
        }
        found += usize::from(look_at(number));
    }
    // If another thread has opened a low descriptor meanwhile, `found` includes it instead of a higher inherited one. In that case, the second count
    // differs from the first.
    if count != 0 && found == count && self::count() == count {
        return;
    }
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    // Without /proc, an mq_* function enters the inherited queues later.
    let Ok(directory) = rustix::fs::open(LIST, flags, Mode::empty()) else {
        return;
    };
    // A descriptor's position in the directory is its number plus 2, because `.` and `..` come first. The list also contains the descriptor of the
    // directory itself.
    let rest = rustix::fs::seek(&directory, SeekFrom::Start(FEW as u64 + 2));
    if count == 0 || rest.is_err() || found + look_at_listed(&directory) != count {
        let _ = rustix::fs::seek(&directory, SeekFrom::Start(0));
        look_at_listed(&directory);
    }
}

/// Returns the number of descriptors: the size of the directory since Linux 6.2, and 0 before.
fn count() -> usize {
    rustix::fs::stat(LIST).map_or(0, |status| status.st_size as usize)
}

/// Enters into the table the queues among the descriptors that a directory of /proc lists after its current position. Returns the number of listed
/// descriptors.
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

/// Enters a descriptor into the table, if it is that of an inherited queue. Returns whether the descriptor is open.
fn look_at(number: c_int) -> bool {
    let status = status(number);
    if let Some(status) = &status {
        knobs::note_arrival(status);
    }
    if status.is_some_and(|status| may_be_queue(&status)) && stays_on_exec(number) {
        received(number);
    }
    status.is_some()
}

fn stays_on_exec(number: c_int) -> bool {
    fd::borrow(number)
        .and_then(|descriptor| rustix::io::fcntl_getfd(descriptor).ok())
        .is_some_and(|flags| !flags.contains(FdFlags::CLOEXEC))
}

/// Returns whether a file may be the complete file of a queue: a regular file of whole pages.
fn may_be_queue(status: &Stat) -> bool {
    const PAGE: i64 = 4096;
    FileType::from_raw_mode(status.st_mode) == FileType::RegularFile
        && status.st_size > 0
        && status.st_size % PAGE == 0
}

/// Enters a descriptor into the table, if it is that of a queue.
pub(crate) fn received(number: c_int) {
    if table::knows(number) {
        // If the drop-in missed the close of this number, the number's entry is stale, and this call removes the entry.
        drop(ours::file(number));
    }
    if !table::knows(number) {
        // A failure is ignored here: the call that uses the descriptor reports it.
        drop(adopt(number));
    }
}
