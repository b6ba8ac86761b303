//! Time: each thread has its own clock, which moves only when a sleep of the thread times out.
//!
//! These clocks cover all effects of real time. A time-out that competes with other threads is modelled as an immediate time-out: loom lets the other
//! threads do any part of their work before the thread continues. A thread whose clock is ahead of the others finds that its peers seem to be
//! stopped.

use super::thread;

/// Returns the calling thread's time.
pub fn monotonic() -> u64 {
    thread::with_current(|me| me.map_or(thread::BEGINNING, |me| me.now.get()))
}

/// Returns the calling thread's time: the model has no coarse clock.
pub fn monotonic_coarse() -> u64 {
    monotonic()
}

/// Returns a time that is only displayed.
pub fn realtime() -> u64 {
    monotonic()
}

/// Returns a time that is only displayed.
pub fn realtime_coarse() -> u64 {
    thread::BEGINNING
}
