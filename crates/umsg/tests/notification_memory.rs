//! A send that raises its own process's signal touches no memory of malloc's: it may be a handler's, which has interrupted malloc.

mod support;

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::time::Duration;
use support::place::Place;
use support::wait_until;
use umsg::posix::Notify;

thread_local! {
    /// Blocks that this thread has taken or given back.
    static CALLS: Cell<u32> = const { Cell::new(0) };
}

fn note() {
    CALLS.set(CALLS.get() + 1);
}

/// The system's allocator, counting.
struct Counting;

// SAFETY: all is passed on to the system's.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        note();
        // SAFETY: our caller's promises.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        note();
        // SAFETY: our caller's promises; the block came from there.
        unsafe { System.dealloc(block, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

#[test]
fn a_send_that_raises_its_own_processs_signal_takes_and_frees_no_memory() {
    let place = Place::new();
    let queue = place.create("/q", 4, 8);
    for _ in 0..3 {
        // Ignored where nobody handles it.
        let registration = queue.notify(Notify::signal(libc::SIGWINCH)).unwrap();
        CALLS.set(0);
        queue.send(b"x", 0).unwrap();
        assert_eq!(CALLS.get(), 0);
        assert!(!registration.is_armed());
        queue.try_receive(&mut [0; 8]).unwrap();
        drop(registration);
    }
    // What is left of them, the queue's mapping among it, a thread of the library gives back.
    let path = place.path().join("mq/q");
    drop(queue);
    let is_unmapped = || {
        let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
        !maps.contains(path.to_str().unwrap())
    };
    assert!(wait_until(Duration::from_secs(20), is_unmapped));
}
