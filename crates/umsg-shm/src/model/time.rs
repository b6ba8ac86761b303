//! Time: each thread's own, and it moves only when the thread's sleep times out.
//!
//! That covers all that real time can do. A time-out that races with other threads is one that comes at once, because
//! loom lets the others do any part of their work before the thread goes on. That a thread's clock is ahead of
//! another's is what a stopped thread looks like to its peers.

use super::thread;

/// The calling thread's time.
pub fn monotonic() -> u64 {
    thread::with_current(|me| me.map_or(thread::BEGINNING, |me| me.now.get()))
}

/// The same.
pub fn monotonic_coarse() -> u64 {
    monotonic()
}

/// A time for people.
pub fn realtime() -> u64 {
    monotonic()
}

/// A time for people.
pub fn realtime_coarse() -> u64 {
    thread::BEGINNING
}
