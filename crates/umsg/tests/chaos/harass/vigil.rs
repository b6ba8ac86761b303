//! An allocator that ends a process in which a signal handler allocates. The handler may have interrupted malloc in its own thread, and would then
//! wait for malloc's lock without end.

use crate::support::child::complain;
use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

thread_local! {
    /// True if the thread is in a signal handler.
    static IS_HANDLING: Cell<bool> = const { Cell::new(false) };
}

/// The system's allocator. An allocation in a signal handler ends the process.
pub struct Vigilant;

fn look() {
    if IS_HANDLING.replace(false) {
        complain("a handler allocates or frees memory");
        std::process::abort();
    }
}

// SAFETY: all calls are passed on to the system's allocator.
unsafe impl GlobalAlloc for Vigilant {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        look();
        // SAFETY: by the caller's promises.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        look();
        // SAFETY: by the caller's promises. The block came from the system's allocator.
        unsafe { System.dealloc(block, layout) }
    }
}

/// Runs the work of a handler.
pub(super) fn handle(work: impl FnOnce()) {
    let outer = IS_HANDLING.replace(true);
    work();
    IS_HANDLING.set(outer);
}
