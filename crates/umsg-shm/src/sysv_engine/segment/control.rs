//! The control block: the words that every send and receive uses. The queue's lock guards them.

use crate::lock::Lock;
use crate::lock::tokens::ReceiverHeld;
use crate::sync::{AtomicU32, AtomicU64, Guarded32, Guarded64, Ordering};
use crate::sys::clock::{self, SECOND};
use crate::waiters::{Links, List};

/// The words that every operation reads and writes.
#[repr(C, align(128))]
#[derive(Default)]
pub struct ControlBlock {
    // -- first cache line, which each send and receive writes
    pub lock: Lock,
    /// The first free slot plus 1; 0 for none.
    pub(super) free: Guarded32,
    /// The number of queued messages: msg_qnum of msgctl(2).
    pub(super) messages: AtomicU32,
    /// The sequence number of the last sent message. The store of this word sends a message.
    pub(super) sequence: Guarded64,
    /// The number of bytes in the queued messages: msg_cbytes of msgctl(2).
    pub(super) bytes: AtomicU64,
    /// The times of the last send and of the last receive: CLOCK_REALTIME, in seconds since 1970.
    pub(super) sent_at: AtomicU64,
    pub(super) received_at: AtomicU64,
    /// The process ids of the last sender and of the last receiver.
    pub(super) sender: AtomicU32,
    pub(super) receiver: AtomicU32,
    // -- second cache line, which each operation reads, and a wait or a lease writes: leased messages and their bytes. These messages are not queued,
    // but take room.
    pub(super) held: AtomicU64,
    pub(super) held_bytes: AtomicU64,
    /// The list of the threads that wait for a message.
    pub(super) receivers: Links,
    /// The list of the threads with an offered message.
    pub(super) offered: Links,
    /// The list of the threads that wait for room.
    pub(super) senders: Links,
    /// The number of nodes that have memory.
    pub(super) nodes: Guarded32,
    /// The last ticket that a waiter has got.
    pub(super) ticket: Guarded64,
    // -- third cache line, which each operation reads, and IPC_SET and new memory write: the bytes that may be queued (msg_qbytes).
    pub(super) capacity: AtomicU64,
    /// The number of slots that were ever used.
    pub(super) used: Guarded32,
    /// The number of slots that have memory.
    pub(super) usable: Guarded32,
    /// The number of granules of the arena in use.
    pub(super) arena_len: Guarded32,
    /// 1 while the arena's lists are being changed.
    pub(super) arena_dirty: Guarded32,
    /// The number of repairs since the creation.
    pub(super) repairs: AtomicU32,
    /// The words of the doorbell: the level that it shows, and the number of its FIFO.
    pub doorbell: crate::doorbell::Words,
}

/// A number of messages, and their bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sum {
    pub messages: u64,
    pub bytes: u64,
}

/// The counts of a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Contents {
    pub queued: Sum,
    pub leased: Sum,
    /// The number of bytes that may be queued.
    pub capacity: u64,
}

impl Contents {
    /// Returns whether there is room for `messages` more messages of `bytes` bytes together. Source: msg_fits_inqueue in linux/ipc/msg.c.
    #[inline(always)]
    fn has_room(&self, messages: u64, bytes: u64) -> bool {
        let Contents { queued, leased, .. } = self;
        let all = |some: u64, more: u64, held: u64| some.saturating_add(more).saturating_add(held);
        all(queued.bytes, bytes, leased.bytes) <= self.capacity
            && all(queued.messages, messages, leased.messages) <= self.capacity
    }

    /// Returns the length in bytes of the longest message for which there is room.
    #[inline(always)]
    pub(crate) fn room(&self) -> u64 {
        let Contents { queued, leased, .. } = self;
        let left = |some: u64, held: u64| self.capacity.saturating_sub(some.saturating_add(held));
        match left(queued.messages, leased.messages) {
            0 => 0,
            _ => left(queued.bytes, leased.bytes),
        }
    }

    /// Returns the number of messages that take room: the queued and the leased messages.
    #[cfg(not(loom))]
    pub(crate) fn messages(&self) -> u64 {
        self.queued.messages.saturating_add(self.leased.messages)
    }
}

/// The last send and the last receive of a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LastUses {
    /// The time of the last send, in seconds since 1970; 0 for never.
    pub(crate) sent_at: u64,
    /// The time of the last receive, in seconds since 1970; 0 for never.
    pub(crate) received_at: u64,
    pub(crate) sender: u32,
    pub(crate) receiver: u32,
}

/// The functions for the counts. Every word is exact under the lock, and a hint without the lock.
impl ControlBlock {
    /// Returns the counts of the queue.
    #[inline(always)]
    pub(crate) fn contents(&self) -> Contents {
        // Relaxed: the value is exact under the lock, otherwise a hint.
        let load = |word: &AtomicU64| word.load(Ordering::Relaxed);
        Contents {
            queued: Sum {
                messages: self.messages().into(),
                bytes: load(&self.bytes),
            },
            leased: Sum {
                messages: load(&self.held),
                bytes: load(&self.held_bytes),
            },
            capacity: load(&self.capacity),
        }
    }

    /// Replaces the counts, after a repair has counted the messages.
    pub(crate) fn recount(&self, _: ReceiverHeld<'_>, queued: Sum, leased: Sum) {
        // Relaxed: the caller holds the lock.
        let store = |word: &AtomicU64, value| word.store(value, Ordering::Relaxed);
        self.messages
            .store(queued.messages as u32, Ordering::Relaxed);
        store(&self.bytes, queued.bytes);
        store(&self.held, leased.messages);
        store(&self.held_bytes, leased.bytes);
    }

    /// Returns the number of queued messages.
    #[inline(always)]
    pub fn messages(&self) -> u32 {
        // Relaxed: the value is exact under the lock, otherwise a hint.
        self.messages.load(Ordering::Relaxed)
    }

    /// Returns whether there is room for `messages` more messages of `bytes` bytes together.
    #[inline(always)]
    pub(crate) fn has_room(&self, messages: u64, bytes: u64) -> bool {
        self.contents().has_room(messages, bytes)
    }

    /// Returns the result of [`has_room`](Self::has_room) for a queue without leased messages.
    #[inline(always)]
    pub(crate) fn has_room_beside_queued(&self, messages: u64, bytes: u64) -> bool {
        let leased = Sum::default();
        let contents = Contents {
            leased,
            ..self.contents()
        };
        contents.has_room(messages, bytes)
    }

    /// Returns the number of bytes that may be queued: msg_qbytes of msgctl(2).
    pub(crate) fn capacity(&self) -> u64 {
        // Relaxed: the value is exact under the lock, otherwise a hint.
        self.capacity.load(Ordering::Relaxed)
    }

    /// Sets the number of bytes that may be queued.
    pub fn set_capacity(&self, _: ReceiverHeld<'_>, bytes: u64) {
        // Relaxed: the value is exact under the lock, otherwise a hint.
        self.capacity.store(bytes, Ordering::Relaxed);
    }

    /// Adds to the counts of queued messages and their bytes; negative numbers subtract.
    #[inline(always)]
    pub(crate) fn count_queued(&self, _: ReceiverHeld<'_>, messages: i64, bytes: i64) {
        add(&self.bytes, bytes);
        let count = self.messages().wrapping_add_signed(messages as i32);
        // Relaxed: the value is exact under the lock, otherwise a hint.
        self.messages.store(count, Ordering::Relaxed);
    }

    /// Adds to the counts of leased messages and their bytes; negative numbers subtract.
    #[inline(always)]
    pub(crate) fn count_leased(&self, _: ReceiverHeld<'_>, messages: i64, bytes: i64) {
        add(&self.held, messages);
        add(&self.held_bytes, bytes);
    }

    /// Returns whether any message is leased.
    #[inline(always)]
    pub(crate) fn has_leased(&self) -> bool {
        // Relaxed: the value is exact under the lock, otherwise a hint.
        self.held.load(Ordering::Relaxed) != 0
    }

    /// Notes the last sender and the time of its send, CLOCK_REALTIME in nanoseconds since 1970.
    #[inline(always)]
    pub(crate) fn note_send(&self, pid: u32, now: u64) {
        // Relaxed: the values are only displayed.
        self.sent_at.store(now / SECOND, Ordering::Relaxed);
        self.sender.store(pid, Ordering::Relaxed);
    }

    /// Notes the last receiver and the current time.
    #[inline(always)]
    pub(crate) fn note_receive(&self, pid: u32) {
        let now = clock::realtime_coarse() / SECOND;
        // Relaxed: the values are only displayed.
        self.received_at.store(now, Ordering::Relaxed);
        self.receiver.store(pid, Ordering::Relaxed);
    }

    /// Sets the last sender or the last receiver to `pid`: the process for which the caller has sent or received.
    pub(crate) fn name_last(&self, list: List, pid: u32) {
        let word = match list {
            List::Receivers => &self.receiver,
            _ => &self.sender,
        };
        // Relaxed: shown to users only.
        word.store(pid, Ordering::Relaxed);
    }

    /// Returns the last send and the last receive.
    pub(crate) fn last_uses(&self) -> LastUses {
        // Relaxed: the values are only displayed.
        LastUses {
            sent_at: self.sent_at.load(Ordering::Relaxed),
            received_at: self.received_at.load(Ordering::Relaxed),
            sender: self.sender.load(Ordering::Relaxed),
            receiver: self.receiver.load(Ordering::Relaxed),
        }
    }

    /// Returns the number of repairs since the creation.
    pub fn repairs(&self) -> u32 {
        // Relaxed: the number is only displayed.
        self.repairs.load(Ordering::Relaxed)
    }
}

#[inline(always)]
fn add(word: &AtomicU64, more: i64) {
    // Relaxed: the value is exact under the lock, otherwise a hint.
    let sum = word.load(Ordering::Relaxed).wrapping_add_signed(more);
    word.store(sum, Ordering::Relaxed);
}

/// The function for the removal of a queue whose segment is kept.
impl ControlBlock {
    /// Sets the words to the values of an empty queue. The lock, the waiter records, the numbers of items with memory, and the doorbell stay as
    /// they are.
    pub(crate) fn empty(&self, _: ReceiverHeld<'_>) {
        // Relaxed: the caller holds the lock; other threads read the words as hints.
        let counts = [
            &self.bytes,
            &self.sent_at,
            &self.received_at,
            &self.held,
            &self.held_bytes,
        ];
        for count in counts {
            count.store(0, Ordering::Relaxed);
        }
        for word in [&self.messages, &self.sender, &self.receiver] {
            word.store(0, Ordering::Relaxed);
        }
        for word in [&self.free, &self.used, &self.arena_len, &self.arena_dirty] {
            word.set(0);
        }
        self.sequence.set(0);
    }
}

/// The functions for the number of the last sent message.
impl ControlBlock {
    /// Returns the sequence number of the last sent message.
    #[inline(always)]
    pub(crate) fn last_number(&self) -> u64 {
        self.sequence.get()
    }

    /// Sends all messages up to this number, by one store.
    #[inline(always)]
    pub(crate) fn send_up_to(&self, _: ReceiverHeld<'_>, number: u64) {
        self.sequence.set(number);
    }
}

/// The functions for the slots.
impl ControlBlock {
    /// Returns the first free slot.
    #[inline(always)]
    pub(crate) fn first_free(&self) -> Option<u32> {
        self.free.get().checked_sub(1)
    }

    /// Returns the link to the first free slot: the slot plus 1, 0 for none.
    #[inline(always)]
    pub(crate) fn free_link(&self) -> u32 {
        self.free.get()
    }

    /// Makes `link`, a link to a slot, the beginning of the free list.
    #[inline(always)]
    pub(crate) fn set_free_link(&self, _: ReceiverHeld<'_>, link: u32) {
        self.free.set(link);
    }

    /// Returns the number of slots that were ever used.
    #[inline(always)]
    pub(crate) fn used(&self) -> u32 {
        self.used.get()
    }

    /// Returns the number of slots that have memory.
    #[inline(always)]
    pub(crate) fn usable(&self) -> u32 {
        self.usable.get()
    }

    /// Notes that this slot is used, too: it follows the slots that were used before.
    pub(crate) fn use_slot(&self, _: ReceiverHeld<'_>, slot: u32) {
        self.used.set(slot + 1);
    }

    /// Records the number of slots that have memory.
    pub(crate) fn set_usable(&self, _: ReceiverHeld<'_>, usable: u32) {
        self.usable.set(usable);
    }

    /// Limits the number of used slots and the number of slots with memory to `slots`, because a process may have corrupted them.
    pub(crate) fn cut_slots(&self, _: ReceiverHeld<'_>, slots: u32) {
        self.used.set(slots);
        self.usable.set(slots);
    }

    /// Limits a corrupted capacity to that of the segment's layout, and the number of nodes to the nodes with memory.
    #[cfg(not(loom))]
    pub(crate) fn cut_to(&self, _: ReceiverHeld<'_>, capacity: u64, nodes: u32) {
        self.nodes.set(nodes);
        // Relaxed: the caller holds the lock.
        self.capacity.fetch_min(capacity, Ordering::Relaxed);
    }
}

/// The functions for the words that the modules of waiters, leases and the arena keep in the control block.
impl ControlBlock {
    /// Returns the ends of a list of waiter records.
    #[inline(always)]
    pub(crate) fn links(&self, list: List) -> Option<&Links> {
        match list {
            List::None => None,
            List::Receivers => Some(&self.receivers),
            List::Offered => Some(&self.offered),
            List::Senders => Some(&self.senders),
        }
    }

    #[inline(always)]
    pub(crate) fn ticket(&self) -> &Guarded64 {
        &self.ticket
    }

    #[inline(always)]
    pub(crate) fn nodes(&self) -> &Guarded32 {
        &self.nodes
    }

    #[inline(always)]
    pub(crate) fn held(&self) -> &AtomicU64 {
        &self.held
    }

    #[inline(always)]
    pub(crate) fn arena_len(&self) -> &Guarded32 {
        &self.arena_len
    }

    #[inline(always)]
    pub(crate) fn arena_dirty(&self) -> &Guarded32 {
        &self.arena_dirty
    }
}
