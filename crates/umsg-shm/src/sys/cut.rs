//! Files that are cut short while they are mapped.
//!
//! A process that touches a page that its file does not have any more gets SIGBUS. A handler that asks [`mend`] first goes on: the page is
//! replaced by one of zeroes, the mapping is marked as cut, and the call that touched it answers that the queue is damaged. From
//! then on every call on the queue in this process does, because its pages are not all the file's any more.
//!
//! All of this may run in a signal handler.

use crate::reclaim::{Chunks, Zeroed};
use crate::sys::map::PAGE;
use rustix::mm::{MapFlags, ProtFlags};
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicUsize, Ordering};

/// A mapping that may be cut short.
#[derive(Debug)]
pub(crate) struct Range {
    /// Address of the first byte; 0: nobody's.
    start: AtomicUsize,
    /// Bytes; 0 while the range is being entered or taken out.
    len: AtomicUsize,
    cut: AtomicBool,
}

// SAFETY: zeroes are a range that is nobody's, and all fields are atomics.
unsafe impl Zeroed for Range {}

const CHUNK: usize = 256;
/// Mappings that can be mended; further ones are refused.
const MOST: usize = 1 << 20;

static RANGES: Chunks<Range, CHUNK, { MOST / CHUNK }> = Chunks::new();

/// No range below is nobody's, unless one was left meanwhile.
static LOWEST: AtomicUsize = AtomicUsize::new(0);

/// How many mappings of this process were cut. Away from everything that is written.
#[repr(align(128))]
struct Cuts(AtomicU32);
static CUTS: Cuts = Cuts(AtomicU32::new(0));

impl Range {
    /// Enters a mapping. None if there is no memory for it.
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

    /// Makes it a mapping's, if it is nobody's.
    fn claim(&self, start: usize, len: usize) -> bool {
        // Relaxed: what a handler reads is stored below.
        let claimed = self
            .start
            .compare_exchange(0, start, Ordering::Relaxed, Ordering::Relaxed);
        if claimed.is_ok() {
            self.cut.store(false, Ordering::Relaxed);
            // Release: a thread that sees the length sees the rest.
            self.len.store(len, Ordering::Release);
        }
        claimed.is_ok()
    }

    /// Takes a mapping out, before it is unmapped.
    pub(crate) fn leave(&self) {
        if self.cut.load(Ordering::Relaxed) {
            CUTS.0.fetch_sub(1, Ordering::Relaxed);
        }
        self.len.store(0, Ordering::Relaxed);
        // Release: nobody's again, after all of the above.
        self.start.store(0, Ordering::Release);
        // A hint: the next one begins to look from the first chunk.
        LOWEST.store(0, Ordering::Relaxed);
    }

    /// Whether the mapping was cut. Ask [`any`] first.
    pub(crate) fn is_cut(&self) -> bool {
        self.cut.load(Ordering::Relaxed)
    }

    /// A range that changes meanwhile does not: whose page was touched is in use, and stands still.
    fn contains(&self, address: usize) -> bool {
        // Acquire: a thread that sees a start sees that the length of the one before was taken out; a thread that sees a length sees its start.
        let read = || {
            let start = self.start.load(Ordering::Acquire);
            (start, self.len.load(Ordering::Acquire))
        };
        let (start, len) = read();
        address.wrapping_sub(start) < len && read() == (start, len)
    }

    /// Replaces the page at an address by one of zeroes. False if there is no memory for it.
    fn mend(&self, address: usize) -> bool {
        let page = address / PAGE * PAGE;
        // SAFETY: the page belongs to a mapping of ours, which consists of atomics and bytes: zeroes are as valid as what was
        // there. It stays mapped while it is replaced, because the thread that touched it is still using it.
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

/// What makes a handler of SIGBUS ready; null: nothing.
static GUARD: AtomicPtr<()> = AtomicPtr::new(std::ptr::null_mut());

/// From now on `guard` is called before each mapping of a queue's file.
pub fn guard_by(guard: fn()) {
    // Relaxed: a function is there from the start.
    GUARD.store(guard as *mut (), Ordering::Relaxed);
}

/// Before a file is mapped: no access to a mapping comes before the handler that mends it.
pub(crate) fn guard() {
    let guard = GUARD.load(Ordering::Relaxed);
    if !guard.is_null() {
        // SAFETY: `guard_by` stored it, a function of this type.
        let guard = unsafe { std::mem::transmute::<*mut (), fn()>(guard) };
        guard();
    }
}

/// Whether any mapping of this process was cut.
#[inline(always)]
pub(crate) fn any() -> bool {
    // Relaxed: the thread that touched the page has counted it itself; others know a moment later.
    CUTS.0.load(Ordering::Relaxed) != 0
}

/// Mends the mapping that an address belongs to. False if it belongs to none.
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
