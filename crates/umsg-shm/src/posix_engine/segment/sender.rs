//! The senders' side of the ring: the position up to which messages are sent, and the room that senders have read.

use crate::crash::crash_point;
use crate::lock::Lock;
use crate::lock::tokens::{BothHeld, SenderHeld};
use crate::sync::{AtomicU64, Guarded32, Guarded64, Ordering};

/// The words of the senders' side.
#[repr(C, align(128))]
#[derive(Default)]
pub struct SenderSide {
    /// The sender lock.
    pub lock: Lock,
    /// The time of the last send, in nanoseconds of the machine's clock.
    last_send: AtomicU64,
    /// The ring position of the next message, which is the number of messages ever sent through the ring.
    pub(super) sent: AtomicU64,
    /// The number of bytes ever sent through the ring. Of the two elements, the element `sent & 1` is valid. So a store to `sent` changes the number
    /// of messages and the number of bytes together.
    pub(super) bytes: [AtomicU64; 2],
    /// The value of [`Published::freed`](super::published::Published) that a sender read last.
    pub(super) freed_seen: Guarded64,
    /// The value of [`Published::removed`](super::published::Published) that senders use: the value that a sender read last, or less if room is kept.
    pub(super) removed_seen: Guarded64,
    /// The part of the arena in use, in granules.
    pub(super) arena_len: Guarded32,
    /// 1 while the lists of the arena change.
    pub(super) arena_dirty: Guarded32,
    /// The ring position after the current or the last batch. While this position is greater than `sent`, a batch is unfinished. The word is atomic,
    /// because [`crate::posix_engine::Engine::counts`] reads it without the lock.
    pub(super) batch_end: AtomicU64,
    /// The value of `bytes` that becomes valid when the batch is sent.
    batch_bytes: AtomicU64,
    /// One bit for each page of the fifo region. The bit is set if the page has memory.
    fifo_pages: Guarded64,
}

impl SenderSide {
    /// Returns the ring position of the next message.
    #[inline(always)]
    pub(crate) fn next_position(&self, _: SenderHeld<'_>) -> u64 {
        // Relaxed: only holders of the sender lock store the word.
        self.sent.load(Ordering::Relaxed)
    }

    /// Returns the ring position up to which messages are sent. The caller sees these messages.
    #[inline(always)]
    pub(crate) fn sent(&self) -> u64 {
        self.sent.load(Ordering::Acquire)
    }

    /// Returns the result of [`sent`](Self::sent) as a hint: these messages may not be visible to the caller yet.
    #[inline(always)]
    pub fn sent_hint(&self) -> u64 {
        self.sent.load(Ordering::Relaxed)
    }

    /// Prepares the count of bytes for the message at `position`. The caller publishes the message afterwards.
    #[inline(always)]
    pub(crate) fn prepare_bytes(&self, _: SenderHeld<'_>, position: u64, len: usize) {
        // Relaxed: the store to `sent` publishes the bytes.
        let bytes = self.bytes[position as usize & 1].load(Ordering::Relaxed);
        let next = position.wrapping_add(1);
        self.bytes[next as usize & 1].store(bytes.wrapping_add(len as u64), Ordering::Relaxed);
    }

    /// Counts the messages before ring position `next` as sent.
    #[inline(always)]
    pub(crate) fn move_cursor(&self, _: SenderHeld<'_>, next: u64) {
        // Release: a process that reads `sent` with acquire sees the messages, too.
        self.sent.store(next, Ordering::Release);
    }

    /// Returns the number of bytes ever sent before position `sent`. With `is_batch`, `sent` is the end of an unfinished batch.
    pub(crate) fn bytes_sent(&self, sent: u64, is_batch: bool) -> u64 {
        // Acquire: the caller's next read of a cursor stays after this load.
        match is_batch {
            true => self.batch_bytes.load(Ordering::Acquire),
            false => self.bytes[sent as usize & 1].load(Ordering::Acquire),
        }
    }

    /// Notes that a batch ends at ring position `end`. The note is stored before the stamps of the batch, because a repair reads it.
    pub(crate) fn set_batch_end(&self, _: SenderHeld<'_>, end: u64) {
        // Release: this store precedes the stamps of the batch, and follows the removal of earlier stamps.
        self.batch_end.store(end, Ordering::Release);
    }

    /// Returns the ring position after the current or the last batch.
    pub(crate) fn batch_end(&self) -> u64 {
        // Acquire: the caller's reads of the batch stay after this load.
        self.batch_end.load(Ordering::Acquire)
    }

    /// Prepares the count of bytes for the batch from ring position `first` on. The caller stamps the gate, the first cell of the batch, afterwards.
    pub(crate) fn prepare_batch_bytes(&self, _: SenderHeld<'_>, first: u64, bytes: u64) {
        let before = self.bytes[first as usize & 1].load(Ordering::Relaxed);
        // Release: this store precedes the stamp of the batch's first message, because a repair reads it.
        self.batch_bytes
            .store(before.wrapping_add(bytes), Ordering::Release);
    }

    /// Counts a batch as sent. Each move of the cursor has to change its parity, because the parity selects the valid element of `bytes`. So the
    /// cursor moves twice for a batch with an even number of messages.
    pub(crate) fn count_batch(&self, sending: SenderHeld<'_>, end: u64) {
        // Relaxed: the caller holds the sender lock.
        let bytes = self.batch_bytes.load(Ordering::Relaxed);
        let step = |to: u64| {
            self.bytes[to as usize & 1].store(bytes, Ordering::Relaxed);
            self.move_cursor(sending, to);
        };
        if end.wrapping_sub(self.next_position(sending)) & 1 == 0 {
            step(end.wrapping_sub(1));
            crash_point!(BATCH_COUNTED);
        }
        step(end);
    }

    /// Returns the number of free slots from ring position `position` on, by the value of `freed` that a sender read last.
    #[inline(always)]
    pub(crate) fn known_free(&self, position: u64) -> u64 {
        self.freed_seen.get().wrapping_sub(position)
    }

    /// Notes that slots are free up to ring position `freed`.
    pub(crate) fn see_freed(&self, _: SenderHeld<'_>, freed: u64) {
        self.freed_seen.set(freed);
    }

    /// Returns the number of messages that had left the queue when a sender last checked.
    #[inline(always)]
    pub(crate) fn removed_seen(&self) -> u64 {
        self.removed_seen.get()
    }

    /// Notes the number of messages that have left the queue.
    #[inline(always)]
    pub(crate) fn see_removed(&self, removed: u64) {
        self.removed_seen.set(removed);
    }

    /// Makes the queue look full to senders, until a sender checks the receivers' side: KEPT. The queue has the capacity `max`.
    pub(crate) fn keep_room(&self, sending: SenderHeld<'_>, max: usize) {
        let sent = self.next_position(sending);
        self.removed_seen.set(sent.wrapping_sub(max as u64));
    }

    /// Returns whether a page of the fifo region has memory.
    pub(crate) fn has_fifo_page(&self, page: usize) -> bool {
        self.fifo_pages.get() & 1 << page != 0
    }

    /// Notes that a page of the fifo region has memory.
    pub(crate) fn add_fifo_page(&self, page: usize) {
        self.fifo_pages.set(self.fifo_pages.get() | 1 << page);
    }

    /// Sets the bits of the pages of the fifo region that have memory.
    pub(crate) fn set_fifo_pages(&self, _: BothHeld<'_>, pages: u64) {
        self.fifo_pages.set(pages);
    }

    /// Returns whether the last owner of the lock died while it changed the lists of the arena.
    pub(crate) fn is_arena_broken(&self, _: SenderHeld<'_>) -> bool {
        self.arena_dirty.get() != 0
    }

    /// Notes the time of a send.
    #[inline(always)]
    pub(crate) fn note_send(&self, now: u64) {
        // Relaxed: the time is only displayed.
        self.last_send.store(now, Ordering::Relaxed);
    }

    /// Returns the time of the last send, in nanoseconds of the machine's clock.
    pub fn last_send(&self) -> u64 {
        self.last_send.load(Ordering::Relaxed)
    }

    /// Sets the words for `slots` free slots. No other process sees the segment.
    pub(crate) fn begin(&self, slots: usize) {
        self.freed_seen.set(slots as u64);
        self.add_fifo_page(0);
    }

    /// Restarts at ring position `first`, as if no bytes had been sent.
    pub(super) fn restart(&self, sending: SenderHeld<'_>, first: u64) {
        self.set_batch_end(sending, first);
        for bytes in &self.bytes {
            bytes.store(0, Ordering::Release);
        }
    }
}
