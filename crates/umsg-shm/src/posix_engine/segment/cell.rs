//! The cell of a slot: the header of a message, followed by the bytes of a short message.
//!
//! A cell is one cache line, or two lines that the prefetcher fetches together. A queue of messages of at most 16 bytes uses cells of one line, which
//! halve the memory for cells. See [`super::Layout::cell_len`].

use crate::sync::{AtomicU64, Guarded32, Guarded64, Ordering};

/// The header of a cell.
#[repr(C, align(16))]
#[derive(Default)]
pub struct Cell {
    /// The ring position, plus one, of the message that was last published in this cell. The stamp is the only word of the cell that a process reads
    /// without a lock. The release store to the stamp sends the message.
    pub(super) stamp: AtomicU64,
    /// The lower bits are the priority. In a ring, the upper bits are the tag of the message. In a queue, the upper bits are the delay of the send
    /// ([`DELAY`]), a bit for a history ([`HISTORY`]) and a bit for a trace ([`TRACE`]).
    pub(super) key: Guarded64,
    /// The length of the message in bytes.
    pub(super) len: Guarded32,
    /// The index of the first granule of the slot's block in the arena; 0 for no block. A free slot keeps its block.
    pub(super) block: Guarded32,
    /// Bit 0: the message is in the store. The higher bits count how often the message was leased and returned.
    stored: Guarded32,
    /// The process id of the sender.
    pid: Guarded32,
    /// The sequence number of a message in the store, which orders the messages of a priority.
    pub(super) sequence: Guarded64,
    /// The time of the send, in nanoseconds of the machine's clock. When a message that was sent for a later time enters the queue, this word becomes
    /// its delivery time.
    sent_at: Guarded64,
    #[cfg(loom)]
    pub(crate) payload: crate::model::segment::Inline,
}

impl Cell {
    /// Writes the header of a message that `pid` sends `now`.
    #[inline(always)]
    pub(crate) fn describe(&self, pid: u32, len: usize, key: usize, now: u64) {
        // The count of returns still belongs to the earlier message in the slot, so it is cleared.
        self.forget();
        self.key.set(key as u64);
        self.len.set(len as u32);
        self.pid.set(pid);
        self.sent_at.set(now);
    }

    /// Returns the length of the message in bytes, without a check.
    #[allow(clippy::len_without_is_empty, reason = "a message may be empty")]
    #[inline(always)]
    pub fn len(&self) -> usize {
        self.len.get() as usize
    }

    /// Returns the key, whose low bits are the priority, without a check.
    #[inline(always)]
    pub fn key(&self) -> u64 {
        self.key.get()
    }

    /// Returns whether the message has a history. The history is in the record of the message's slot.
    pub(crate) fn has_history(&self) -> bool {
        self.key.get() & HISTORY != 0
    }

    /// Notes that the message has a history. A later message in the slot starts without a history.
    pub(crate) fn set_history(&self) {
        self.key.set(self.key.get() | HISTORY);
    }

    /// Returns whether the message has a trace. The trace is in the record of the message's slot.
    pub(crate) fn has_trace(&self) -> bool {
        self.key.get() & TRACE != 0
    }

    /// Notes that the message has a trace. A later message in the slot starts without a trace.
    pub(crate) fn set_trace(&self) {
        self.key.set(self.key.get() | TRACE);
    }

    /// Returns the process id of the sender.
    #[inline(always)]
    pub(crate) fn pid(&self) -> u32 {
        self.pid.get()
    }

    /// Returns the time at which the message's time to live began, in nanoseconds of the machine's clock. For a message that was sent for a later
    /// time it is the delivery time, otherwise the time of the send.
    #[inline(always)]
    pub(crate) fn lives_since(&self) -> u64 {
        self.sent_at.get()
    }

    /// Returns the time of the send, in nanoseconds of the machine's clock.
    pub(crate) fn sent_at(&self) -> u64 {
        // The subtraction wraps, because a message from a snapshot may have been sent before the machine started.
        self.sent_at.get().wrapping_sub(self.send_delay())
    }

    /// Returns the time from the send to the delivery time, in nanoseconds. Returns 0 if the message was not sent for a later time.
    pub(crate) fn send_delay(&self) -> u64 {
        (self.key.get() & DELAY) >> DELAY_SHIFT << DELAY_UNIT
    }

    /// Notes that the delivery time `due` of a delayed message has come. If the process dies between the two stores, a second call completes the
    /// change.
    pub(crate) fn become_due(&self, due: u64) {
        let delay = due.wrapping_sub(self.sent_at.get()) as i64;
        if delay > 0 {
            let bits = (delay as u64) >> DELAY_UNIT << DELAY_SHIFT & DELAY;
            self.key.set(self.key.get() & !DELAY | bits);
            self.sent_at.set(due);
        }
    }

    /// Sets the time of the send to `now`. A blocked sender has written the message earlier, and the message enters the queue now.
    pub(crate) fn renew(&self, now: u64) {
        self.sent_at.set(now);
    }

    /// Sets the process id of the first sender, the time of the first send and the number of returns of a message from a snapshot.
    pub(crate) fn restore(&self, pid: u32, sent_at: u64, returns: u32) {
        self.pid.set(pid);
        self.sent_at.set(sent_at);
        self.set_returns(returns, false);
    }

    /// Returns the sequence number of the message in the store.
    pub(crate) fn sequence(&self) -> u64 {
        self.sequence.get()
    }

    /// Sets the sequence number of the message in the store.
    pub(crate) fn set_sequence(&self, sequence: u64) {
        self.sequence.set(sequence);
    }

    /// Returns the word that names the block of the slot, for [`crate::arena`].
    #[inline(always)]
    pub fn block(&self) -> &Guarded32 {
        &self.block
    }

    /// Returns the ring position of the message that was last published in this cell.
    #[cfg(not(loom))]
    pub(crate) fn position(&self) -> u64 {
        // Relaxed: the caller holds both locks.
        self.stamp.load(Ordering::Relaxed).wrapping_sub(1)
    }

    /// Removes the stamp. The cell then looks like a cell in which no message was published.
    pub(crate) fn clear_stamp(&self) {
        // Release: in a repair, this store precedes the store to `batch_end`. Receivers read the stamps of a batch only after the stamp of its first
        // message.
        self.stamp.store(0, Ordering::Release);
    }

    /// Returns whether the message is in the store.
    #[inline(always)]
    pub fn is_stored(&self) -> bool {
        self.stored.get() & 1 != 0
    }

    /// Returns whether the slot never contained a message.
    #[cfg(not(loom))]
    pub(crate) fn is_unused(&self) -> bool {
        // Relaxed: a salvage calls this function under both locks.
        let stamp = self.stamp.load(Ordering::Relaxed);
        stamp == 0 && self.pid.get() == 0 && self.stored.get() == 0
    }

    /// Marks the message as stored or not stored, by a single store. A repair calls this function.
    pub(crate) fn set_stored(&self, stored: bool) {
        self.stored.set(self.stored.get() & !1 | u32::from(stored));
    }

    /// Marks the message as not stored, and clears the number of its returns, so that the slot can take another message.
    #[inline(always)]
    pub(crate) fn forget(&self) {
        self.stored.set(0);
    }

    /// Returns the number of times that the message was leased and returned.
    pub(crate) fn returns(&self) -> u32 {
        self.stored.get() >> 1
    }

    /// Sets the number of the message's returns, and whether the message is in the store, by a single store.
    pub(crate) fn set_returns(&self, returns: u32, stored: bool) {
        self.stored
            .set(returns.min(u32::MAX >> 1) << 1 | u32::from(stored));
    }
}

/// The bit of a key that shows that the message has a history. In a ring, the bit belongs to the tag.
const HISTORY: u64 = 1 << 63;
/// The bit of a key that shows that the message has a trace.
const TRACE: u64 = 1 << 62;
/// The bits of a key that contain the time from the send to the delivery time, in units of 2^16 ns. Rings use these bits for the tag, and have no
/// delayed messages.
const DELAY: u64 = !(HISTORY | TRACE) >> DELAY_SHIFT << DELAY_SHIFT;
/// The position of the lowest bit of [`DELAY`], which is above the priority.
const DELAY_SHIFT: u32 = 16;
/// The unit of [`DELAY`] is 2 to this power, in nanoseconds. The greatest delay is 146 years.
const DELAY_UNIT: u32 = 16;

/// The length of a short cell in bytes, with the header.
pub(crate) const SHORT_CELL: usize = 64;
/// The length of a long cell in bytes, with the header.
pub(crate) const LONG_CELL: usize = 128;

#[cfg(not(loom))]
const _: () = {
    assert!(size_of::<Cell>() == 48 && size_of::<Cell>() < SHORT_CELL);
    // Cells follow one another without gaps, so the length of a cell keeps the next header aligned.
    assert!(SHORT_CELL.is_multiple_of(align_of::<Cell>()));
    assert!(LONG_CELL.is_multiple_of(align_of::<Cell>()));
};
