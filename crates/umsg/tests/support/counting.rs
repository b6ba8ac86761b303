//! The system's allocator with a count of its calls, for tests that a call takes no memory of malloc.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

thread_local! {
    /// The number of blocks that this thread has allocated or freed.
    static CALLS: Cell<u32> = const { Cell::new(0) };
}

fn note() {
    CALLS.set(CALLS.get() + 1);
}

/// The system's allocator with a count of its calls.
struct Counting;

// SAFETY: all calls are passed on to the system's allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        note();
        // SAFETY: by the caller's promises.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        note();
        // SAFETY: by the caller's promises. The block came from the system's allocator.
        unsafe { System.dealloc(block, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Returns the number of blocks that this thread has allocated or freed.
pub fn calls() -> u32 {
    CALLS.get()
}
