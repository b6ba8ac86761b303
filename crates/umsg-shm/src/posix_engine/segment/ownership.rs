//! The part of a segment that only a ring uses: the owner of the ring, and whether the ring accepts messages. See `umsg::ring`.

use crate::sync::{AtomicU32, AtomicU64, Ordering};

/// The ring accepts no messages yet.
pub const DISABLED: u32 = 1;
/// The ring accepts messages.
pub const ENABLED: u32 = 2;
/// The ring accepts no messages any more.
pub const CLOSED: u32 = 3;

/// The words that make a queue a ring. [`crate::posix_engine::owner`] lists the states.
#[repr(C, align(128))]
#[derive(Default)]
pub struct Ownership {
    /// The state: [`DISABLED`], [`ENABLED`] or [`CLOSED`]. 0 if the queue is not a ring.
    state: AtomicU32,
    /// The number of messages that the ring holds without overflow.
    entries: AtomicU32,
    /// The receiving process, followed by its birth, which distinguishes the process from other processes with the same id. 0 until the ring has a
    /// receiver.
    pid: AtomicU32,
    birth: AtomicU64,
    /// The number of messages that senders chose to drop because the ring had no room.
    dropped: AtomicU64,
    /// The number of identifiers that senders have got so far.
    senders: AtomicU32,
    /// The number of identifiers that descriptors have got so far.
    descriptors: AtomicU32,
    /// The random part of the name of the ring's poll FIFO.
    doorbell: AtomicU64,
}

impl Ownership {
    /// Makes the queue a ring of `entries` entries, before another process sees it.
    pub fn begin(&self, entries: u32, state: u32) {
        self.entries.store(entries, Ordering::Relaxed);
        // Release: a process that reads that the queue is a ring sees the earlier stores.
        self.state.store(state, Ordering::Release);
    }

    /// Sets the receiving process, before another process sees the segment.
    pub fn name_owner(&self, pid: u32, birth: u64) {
        // Relaxed: no other process sees the segment before its file is linked, or shared.
        self.pid.store(pid, Ordering::Relaxed);
        self.birth.store(birth, Ordering::Relaxed);
    }

    /// Returns the receiving process and its birth. Both values are 0 if the queue is not a ring.
    pub fn owner(&self) -> (u32, u64) {
        // Relaxed: both words were stored before a process could find the ring.
        let birth = self.birth.load(Ordering::Relaxed);
        (self.pid.load(Ordering::Relaxed), birth)
    }

    /// Returns the state: [`DISABLED`], [`ENABLED`] or [`CLOSED`], or 0 if the queue is not a ring. The caller sees the stores that the owner made
    /// before it changed the state.
    #[inline(always)]
    pub fn state(&self) -> u32 {
        self.state.load(Ordering::Acquire)
    }

    /// Enables the ring, unless it is closed.
    pub fn enable(&self) {
        // Release: senders that read that the ring is enabled see the earlier stores.
        let _ =
            self.state
                .compare_exchange(DISABLED, ENABLED, Ordering::Release, Ordering::Relaxed);
    }

    /// Closes the ring.
    pub fn close(&self) {
        self.state.store(CLOSED, Ordering::Release);
    }

    /// Returns the number of messages that the ring holds without overflow.
    pub fn entries(&self) -> u32 {
        // Relaxed: the word was stored before a process could find the ring.
        self.entries.load(Ordering::Relaxed)
    }

    /// Returns a new identifier for a sender.
    pub fn add_sender(&self) -> u32 {
        // Relaxed, as in the functions that follow: the word is only a counter.
        self.senders.fetch_add(1, Ordering::Relaxed)
    }

    /// Returns the number of identifiers that senders have got so far.
    pub fn senders(&self) -> u32 {
        self.senders.load(Ordering::Relaxed)
    }

    /// Returns a new identifier for a descriptor.
    pub fn add_descriptor(&self) -> u32 {
        self.descriptors.fetch_add(1, Ordering::Relaxed)
    }

    /// Returns the number of identifiers that descriptors have got so far.
    pub fn descriptors(&self) -> u32 {
        self.descriptors.load(Ordering::Relaxed)
    }

    /// Counts a message that its sender dropped because the ring was full.
    pub fn count_dropped(&self) {
        self.dropped.fetch_add(1, Ordering::Relaxed);
    }

    /// Returns the number of messages that senders dropped because the ring was full.
    pub fn dropped(&self) -> u64 {
        self.dropped.load(Ordering::Relaxed)
    }

    /// Returns the random part of the name of the ring's poll FIFO.
    pub fn fifo_number(&self) -> u64 {
        // Relaxed: the word was stored before a process could find the ring.
        self.doorbell.load(Ordering::Relaxed)
    }

    /// Sets the random part of the name of the ring's poll FIFO, before another process sees the segment.
    pub fn set_fifo_number(&self, number: u64) {
        self.doorbell.store(number, Ordering::Relaxed);
    }
}
