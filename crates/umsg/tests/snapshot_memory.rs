//! A snapshot's file that claims more than it holds takes memory only in proportion to its bytes.

mod support;

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use support::written::{Written, sample};
use umsg::posix::{Snapshot, SnapshotError};

/// Notes the largest block that the calling thread asked for.
struct Noting;

thread_local! {
    static LARGEST: Cell<usize> = const { Cell::new(0) };
}

fn note(size: usize) {
    // The access fails while a thread ends.
    let _ = LARGEST.try_with(|largest| largest.set(largest.get().max(size)));
}

// SAFETY: passes all calls on to the system's allocator; its notes need no memory.
unsafe impl GlobalAlloc for Noting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        note(layout.size());
        // SAFETY: by the caller's promises.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        // SAFETY: by the caller's promises; the block came from this allocator.
        unsafe { System.dealloc(block, layout) }
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        note(size);
        // SAFETY: by the caller's promises; the block came from this allocator.
        unsafe { System.realloc(block, layout, size) }
    }
}

#[global_allocator]
static ALLOCATOR: Noting = Noting;

/// Returns the largest block of memory that reading asks for, and the result of reading.
fn largest(bytes: &[u8]) -> (usize, Result<Snapshot, SnapshotError>) {
    LARGEST.set(0);
    let snapshot = Snapshot::read(&mut &bytes[..]);
    (LARGEST.get(), snapshot)
}

/// The number of bytes for which the reader may make room before it has read them. A vector that grows takes at most twice the bytes that were read.
const STEP: usize = 64 << 10;

#[test]
fn promises_of_a_header_take_no_memory() {
    let promises: [fn(&mut Written); 3] = [
        |w| w.counts = Some((u64::MAX, u64::MAX)),
        |w| w.counts = Some((1 << 40, 0)),
        |w| w.record_head = 4096,
    ];
    for promise in promises {
        let mut written = sample();
        promise(&mut written);
        let (largest, read) = largest(&written.bytes());
        assert!(read.is_err());
        assert!(largest <= 2 * STEP, "{largest} bytes at once");
    }
}

#[test]
fn a_length_of_16_mib_with_nothing_behind_it_takes_no_memory() {
    let mut written = sample();
    written.message_size = 16 << 20;
    written.messages.clear();
    written.counts = Some((1, 16 << 20));
    let mut bytes = written.bytes();
    bytes.truncate(92);
    bytes.extend((16_u32 << 20).to_le_bytes());
    bytes.extend([0; 100]);
    let (largest, read) = largest(&bytes);
    assert!(matches!(read, Err(SnapshotError::Truncated { .. })));
    assert!(largest <= 2 * STEP, "{largest} bytes at once");
}

#[test]
fn a_long_message_that_is_there_takes_at_most_twice_its_length() {
    let mut written = sample();
    written.message_size = 1 << 20;
    written.messages[1].data = vec![7; 1 << 20];
    let bytes = written.bytes();
    let (largest, read) = largest(&bytes);
    assert_eq!(read.unwrap().messages().nth(1).unwrap().data.len(), 1 << 20);
    assert!(largest <= 2 * bytes.len() + STEP, "{largest} bytes at once");
}
