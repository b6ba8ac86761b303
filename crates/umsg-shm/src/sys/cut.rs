//! Files that a peer truncates while they are mapped.
//!
//! A process that accesses a page after the new end of the file gets SIGBUS. A handler that calls [`mend`] lets the thread continue: a page of zeroes
//! replaces the missing page, and the mapping is marked as truncated. The call then reports a corrupted queue. Every later call on the queue in this
//! process also reports a corrupted queue, because the mapping no longer shows the file.
//!
//! All functions may run in a signal handler.

use crate::reclaim::{Chunks, Zeroed};
use crate::sys::map::PAGE;
use rustix::mm::{MapFlags, ProtFlags};
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicUsize, Ordering};

/// A mapping whose file may be truncated.
#[derive(Debug)]
pub(crate) struct Range {
    /// The address of the first byte; 0 if the entry is free.
    start: AtomicUsize,
    /// The number of bytes; 0 while the entry is being changed.
    len: AtomicUsize,
    cut: AtomicBool,
}

// SAFETY: zeroes are an empty range, and all fields are atomics.
unsafe impl Zeroed for Range {}

const CHUNK: usize = 256;
/// The number of mappings that can be mended. If there are more mappings, the library maps no further file.
const MOST: usize = 1 << 20;

static RANGES: Chunks<Range, CHUNK, { MOST / CHUNK }> = Chunks::new();

/// A hint for the search for a free entry: all entries below this index are in use, unless one was freed meanwhile.
static LOWEST: AtomicUsize = AtomicUsize::new(0);

/// The number of truncated mappings of this process. The number has its own cache line, apart from words that are written often.
#[repr(align(128))]
struct Cuts(AtomicU32);
static CUTS: Cuts = Cuts(AtomicU32::new(0));

impl Range {
    /// Adds a mapping. Returns None if there is no memory for the entry, or if all entries are in use.
    pub(crate) fn enter(start: usize, len: usize) -> Option<&'static Range> {
        let mut index = LOWEST.load(Ordering::Relaxed);
        loop {
            let range = RANGES.get_or_grow(index)?;
            if range.claim(start, len) {
                LOWEST.store(index + 1, Ordering::Relaxed);
                return Some(range);
            }
            index += 1;
        }
    }

    /// Takes this entry for a mapping, if the entry is free.
    fn claim(&self, start: usize, len: usize) -> bool {
        // Relaxed: the store below publishes the entry to handlers.
        let claimed = self
            .start
            .compare_exchange(0, start, Ordering::Relaxed, Ordering::Relaxed);
        if claimed.is_ok() {
            self.cut.store(false, Ordering::Relaxed);
            // Release: a thread that reads the length sees the other fields.
            self.len.store(len, Ordering::Release);
        }
        claimed.is_ok()
    }

    /// Frees the entry of a mapping, before the mapping is unmapped.
    pub(crate) fn leave(&self) {
        if self.cut.load(Ordering::Relaxed) {
            CUTS.0.fetch_sub(1, Ordering::Relaxed);
        }
        self.len.store(0, Ordering::Relaxed);
        // Release: the entry is free after all stores above.
        self.start.store(0, Ordering::Release);
        // A hint: the next search begins at the first entry.
        LOWEST.store(0, Ordering::Relaxed);
    }

    /// Returns whether the file was truncated. The caller calls [`any`] first.
    pub(crate) fn is_cut(&self) -> bool {
        self.cut.load(Ordering::Relaxed)
    }

    /// Returns whether the mapping contains an address that a thread has just accessed. If the entry changes between the
    /// two reads, the result is false, rightly: a mapping that a thread accesses is in use, so the entry of such a mapping does not change.
    fn contains(&self, address: usize) -> bool {
        // Acquire: a thread that reads a start sees that the previous length was cleared. A thread that reads a length sees the start that belongs to
        // it.
        let read = || {
            let start = self.start.load(Ordering::Acquire);
            (start, self.len.load(Ordering::Acquire))
        };
        let (start, len) = read();
        address.wrapping_sub(start) < len && read() == (start, len)
    }

    /// Replaces the page at an address with a page of zeroes. Returns false if there is no memory for that page.
    fn mend(&self, address: usize) -> bool {
        let page = address / PAGE * PAGE;
        // SAFETY: the page belongs to a mapping of this module, which consists of atomics and bytes: zeroes are as valid as the previous contents.
        // The mapping stays while its page is replaced, because the thread that accessed the page is still using it.
        let replaced = unsafe {
            rustix::mm::mmap_anonymous(
                std::ptr::with_exposed_provenance_mut(page),
                PAGE,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::PRIVATE | MapFlags::FIXED,
            )
        };
        if replaced.is_ok() && !self.cut.swap(true, Ordering::Relaxed) {
            CUTS.0.fetch_add(1, Ordering::Relaxed);
        }
        replaced.is_ok()
    }
}

/// The function that installs a handler of SIGBUS; null for none.
static GUARD: AtomicPtr<()> = AtomicPtr::new(std::ptr::null_mut());

/// True if a handler of SIGBUS is installed, or if [`guard`] installs one before a file is mapped.
static HANDLED: AtomicBool = AtomicBool::new(false);

/// Sets the function that is called before each mapping of a queue's file.
pub fn guard_by(guard: fn()) {
    // Relaxed: the function exists from the start of the process.
    GUARD.store(guard as *mut (), Ordering::Relaxed);
    note_handler();
}

/// Notes that the program has a handler that calls [`mend`].
pub fn note_handler() {
    // Relaxed: a thread that does not see the store yet maps fewer files.
    HANDLED.store(true, Ordering::Relaxed);
}

/// Returns whether the program has a handler that calls [`mend`]. Without such a handler, a process maps only queues that it opens.
pub fn is_handled() -> bool {
    // Relaxed: as in `note_handler`.
    HANDLED.load(Ordering::Relaxed)
}

/// Calls the guard before a file is mapped: the handler is installed before the first access to the mapping.
pub(crate) fn guard() {
    let guard = GUARD.load(Ordering::Relaxed);
    if !guard.is_null() {
        // SAFETY: `guard_by` stored the pointer, which is that of a function of this type.
        let guard = unsafe { std::mem::transmute::<*mut (), fn()>(guard) };
        guard();
    }
}

/// Returns whether the file of any mapping of this process was truncated.
#[inline(always)]
pub(crate) fn any() -> bool {
    // Relaxed: the thread that accessed the page has counted the truncation itself. Other threads may see the count a moment later.
    CUTS.0.load(Ordering::Relaxed) != 0
}

/// Mends the mapping at an address. Returns false if no mapping contains the address.
pub fn mend(address: usize) -> bool {
    RANGES
        .range(0, MOST - 1)
        .map(|(_, range)| range)
        .find(|range| range.contains(address))
        .is_some_and(|range| range.mend(address))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_that_is_taken_over_meanwhile_never_contains_what_neither_does() {
        const LONG: (usize, usize) = (0x1000_0000, 0x100_0000);
        const SHORT: (usize, usize) = (0x7000_0000, PAGE);
        const ROUNDS: usize = if cfg!(miri) { 200 } else { 2_000_000 };
        let range = Range {
            start: AtomicUsize::new(0),
            len: AtomicUsize::new(0),
            cut: AtomicBool::new(false),
        };
        let is_over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for (start, len) in [LONG, SHORT].into_iter().cycle().take(ROUNDS) {
                    assert!(range.claim(start, len));
                    range.leave();
                }
                is_over.store(true, Ordering::Relaxed);
            });
            while !is_over.load(Ordering::Relaxed) {
                assert!(!range.contains(SHORT.0 + PAGE));
            }
        });
        assert!(range.claim(SHORT.0, SHORT.1));
        assert!(range.contains(SHORT.0) && !range.contains(SHORT.0 + PAGE));
    }
}
