//! The receivers' side: the position up to which the ring is drained, the contents of the store, and the roots of the waiters' lists.

use super::Links;
use crate::doorbell::{DeferredRing, Doorbell, Ringer, Words};
use crate::lock::Lock;
use crate::lock::tokens::{BothHeld, ReceiverHeld};
use crate::sync::{AtomicU32, AtomicU64, Guarded32, Guarded64, Ordering};

/// The number of words of the second level of the priority bitmap.
#[cfg(not(loom))]
pub const LEVEL1: usize = super::PRIORITIES / 64 / 64;
#[cfg(loom)]
pub const LEVEL1: usize = 1;

/// The words of the receivers' side.
#[repr(C, align(128))]
#[derive(Default)]
pub struct ReceiverSide {
    // -- first line: the words that each receive writes
    // The receiver lock.
    pub lock: Lock,
    /// The time of the last receive, in nanoseconds of the machine's clock.
    last_receive: AtomicU64,
    /// The ring position of the next message that is taken from the ring.
    pub(super) drained: AtomicU64,
    /// The number of bytes ever taken from the ring. Of the two elements, the element `drained & 1` is valid.
    pub(super) bytes: [AtomicU64; 2],
    /// The number of messages in the store.
    pub(super) stored: AtomicU64,
    /// The value of [`SenderSide::sent`](super::sender::SenderSide) that the receiver read last. Prefetches extend to this position.
    sent_seen: Guarded64,
    // -- second line: the words that each receive reads, and that a sender reads if it finds no room. They are written when a thread blocks or
    // holds a message.
    // Third level of the priority bitmap.
    pub(super) level2: Guarded64,
    /// The number of messages that are held longer than a call. Held messages count towards the queue's capacity, and are not queued.
    pub(super) held: AtomicU64,
    /// The list of blocked receivers.
    pub(super) receivers: Links,
    /// The list of blocked senders.
    pub(super) senders: Links,
    /// The list of receivers with an offer.
    pub(super) offered: Links,
    /// The flags of pollers: see [`crate::doorbell`]; 0 if no process polls.
    pub(super) watched: Guarded32,
    /// The registration for a notification, if a process is registered: see [`crate::posix_engine::notification`]. Threads that spin read the word as
    /// a hint.
    pub(super) registered: AtomicU32,
    // -- blocking and the store
    // The number of nodes that have memory.
    pub(super) nodes: Guarded32,
    /// The last ticket that a waiter has got.
    pub(super) ticket: Guarded64,
    /// The sequence number of the message that entered the store last.
    pub(super) sequence: Guarded64,
    /// The number of bytes in the messages of the store.
    pub(super) stored_bytes: AtomicU64,
    /// The second level of the priority bitmap.
    pub(super) level1: [Guarded64; LEVEL1],
    /// The words of the doorbell: the level that pollers see, and the number of the FIFO.
    pub(super) doorbell: Words,
    /// The number of additional records for registrations that have memory.
    pub(super) notices: AtomicU32,
    /// The state of the turns of lower priorities, see [`crate::posix_engine::fair`]. Every value is valid.
    turn: Guarded32,
}

/// The offset of the state of the turns, for the layout hash.
#[cfg(not(loom))]
pub(super) const TURN: usize = std::mem::offset_of!(ReceiverSide, turn);

/// The offset of the doorbell's words.
#[cfg(not(loom))]
pub(super) const DOORBELL: usize = std::mem::offset_of!(ReceiverSide, doorbell);

impl ReceiverSide {
    /// Returns the ring position of the next message that is taken from the ring.
    #[inline(always)]
    pub(crate) fn drained(&self, _: ReceiverHeld<'_>) -> u64 {
        // Relaxed: only holders of the receiver lock store the word.
        self.drained.load(Ordering::Relaxed)
    }

    /// Returns the result of [`drained`](Self::drained) without the lock. The caller's later reads stay after this read.
    #[inline(always)]
    pub(crate) fn drained_so_far(&self) -> u64 {
        self.drained.load(Ordering::Acquire)
    }

    /// Returns the result of [`drained`](Self::drained) as a hint, or for a caller with its own fence.
    #[inline(always)]
    pub(crate) fn drained_hint(&self) -> u64 {
        self.drained.load(Ordering::Relaxed)
    }

    /// Returns the number of messages in the store.
    #[inline(always)]
    pub(crate) fn stored(&self, _: ReceiverHeld<'_>) -> u64 {
        // Relaxed: only holders of the receiver lock store the word.
        self.stored.load(Ordering::Relaxed)
    }

    /// Returns the number of messages in the store, without the lock. The caller's later reads stay after this read.
    #[inline(always)]
    pub(crate) fn stored_so_far(&self) -> u64 {
        self.stored.load(Ordering::Acquire)
    }

    /// Returns the number of messages in the store, as a hint.
    #[inline(always)]
    pub(crate) fn stored_hint(&self) -> u64 {
        self.stored.load(Ordering::Relaxed)
    }

    /// Moves the cursor past the message of `len` bytes at ring position `drained`.
    #[inline(always)]
    pub(crate) fn advance(&self, _: ReceiverHeld<'_>, drained: u64, len: usize) {
        // Relaxed: the store to `drained` publishes the bytes.
        let bytes = self.bytes[drained as usize & 1].load(Ordering::Relaxed);
        let next = drained.wrapping_add(1);
        self.bytes[next as usize & 1].store(bytes.wrapping_add(len as u64), Ordering::Relaxed);
        // Release: this store publishes the bytes, and `seems_filled` reads it without the lock.
        self.drained.store(next, Ordering::Release);
    }

    /// Adds `messages` (1 or -1), and the messages' bytes, to the counts of the store.
    #[inline(always)]
    pub(crate) fn count_stored(&self, receiving: ReceiverHeld<'_>, bytes: u64, messages: i64) {
        let stored_bytes = self.stored_bytes.load(Ordering::Relaxed);
        let bytes = match messages < 0 {
            true => stored_bytes.wrapping_sub(bytes),
            false => stored_bytes.wrapping_add(bytes),
        };
        let messages = self.stored(receiving).wrapping_add_signed(messages);
        self.set_stored(receiving, messages, bytes);
    }

    /// Sets the counts of the store. Receivers read the counts without the lock, so a repair sets them only once, at its end.
    #[inline(always)]
    pub(crate) fn set_stored(&self, _: ReceiverHeld<'_>, messages: u64, bytes: u64) {
        // Relaxed: other threads read the word only under the lock.
        self.stored_bytes.store(bytes, Ordering::Relaxed);
        // Release: `seems_filled` reads the word without the lock.
        self.stored.store(messages, Ordering::Release);
    }

    /// Returns the sequence number for the next message that enters the store.
    pub(crate) fn next_sequence(&self, _: ReceiverHeld<'_>) -> u64 {
        self.sequence.set(self.sequence.get().wrapping_add(1));
        self.sequence.get()
    }

    /// Makes the sequence numbers of later messages greater than `sequence`.
    pub(crate) fn raise_sequence(&self, _: ReceiverHeld<'_>, sequence: u64) {
        if sequence.wrapping_sub(self.sequence.get()) as i64 > 0 {
            self.sequence.set(sequence);
        }
    }

    /// Sets the sequence number of the message that entered the store last.
    pub(crate) fn set_sequence(&self, _: BothHeld<'_>, sequence: u64) {
        self.sequence.set(sequence);
    }

    /// Returns the distance from ring position `position` to the value of `sent` that the receiver read last.
    #[inline(always)]
    pub(crate) fn known_sent(&self, position: u64) -> i64 {
        self.sent_seen.get().wrapping_sub(position) as i64
    }

    /// Notes a value of `sent` that the receiver has read.
    #[inline(always)]
    pub(crate) fn see_sent(&self, sent: u64) {
        self.sent_seen.set(sent);
    }

    /// Returns the number of messages that are held longer than a call. Under the receiver lock, the result is exact. Without the lock, the result is
    /// a hint.
    #[inline(always)]
    pub(crate) fn held(&self) -> u64 {
        self.held.load(Ordering::Relaxed)
    }

    /// Returns the number of messages that are held longer than a call, without the lock. The caller's later reads stay after this read.
    pub(crate) fn held_so_far(&self) -> u64 {
        self.held.load(Ordering::Acquire)
    }

    /// Adds `change` to the number of messages that are held longer than a call.
    pub(crate) fn count_held(&self, _: ReceiverHeld<'_>, change: i64) {
        // Relaxed: the value is exact under the receiver lock. Other threads read it as a hint.
        let held = self.held.load(Ordering::Relaxed);
        self.held
            .store(held.wrapping_add_signed(change), Ordering::Relaxed);
    }

    /// Returns the number of messages that have left the queue: the messages that were taken from the ring, minus the stored and the held messages.
    #[inline(always)]
    pub(crate) fn removed(&self, receiving: ReceiverHeld<'_>) -> u64 {
        let drained = self.drained(receiving);
        drained
            .wrapping_sub(self.stored(receiving))
            .wrapping_sub(self.held())
    }

    /// Returns the numbers of messages and of bytes that have left the queue.
    #[inline(always)]
    pub(super) fn removed_with_bytes(&self, receiving: ReceiverHeld<'_>) -> (u64, u64) {
        // Relaxed: only holders of the receiver lock store these words.
        let drained = self.drained(receiving);
        let bytes = self.bytes[drained as usize & 1].load(Ordering::Relaxed);
        let removed_bytes = bytes.wrapping_sub(self.stored_bytes.load(Ordering::Relaxed));
        let removed = drained
            .wrapping_sub(self.stored(receiving))
            .wrapping_sub(self.held());
        (removed, removed_bytes)
    }

    /// Returns the word with the registration for a notification. Under the receiver lock, the result is exact. Without the lock, the result is a
    /// hint.
    #[inline(always)]
    pub(crate) fn registration(&self) -> u32 {
        self.registered.load(Ordering::Relaxed)
    }

    /// Sets the word with the registration for a notification.
    pub(crate) fn set_registration(&self, _: ReceiverHeld<'_>, registration: u32) {
        // Release: as for a guarded word, the release only orders the store for a repair after the death of this thread.
        self.registered.store(registration, Ordering::Release);
    }

    /// Returns the number of additional records for registrations that have memory. The result is valid without the lock.
    pub(crate) fn more_notices(&self) -> u32 {
        // Acquire: pairs with the release in `set_more_notices`.
        self.notices.load(Ordering::Acquire)
    }

    /// Sets the number of additional records for registrations that have memory.
    pub(crate) fn set_more_notices(&self, _: ReceiverHeld<'_>, count: u32) {
        // Release: pairs with the acquire in `more_notices`.
        self.notices.store(count, Ordering::Release);
    }

    /// Returns the state of the turns of lower priorities.
    pub(crate) fn turn(&self, _: ReceiverHeld<'_>) -> u32 {
        self.turn.get()
    }

    /// Sets the state of the turns of lower priorities.
    pub(crate) fn set_turn(&self, _: ReceiverHeld<'_>, turn: u32) {
        self.turn.set(turn);
    }

    /// Returns whether a receive has other duties: a thread waits, a message is held, a process polls, or a process is registered for a notification.
    /// All words for this check are on one cache line.
    #[inline(always)]
    pub(crate) fn has_duties(&self, _: ReceiverHeld<'_>) -> bool {
        // Relaxed: this thread holds the receiver lock, and so does each thread that writes these words.
        let waiting = [&self.receivers, &self.senders, &self.offered]
            .map(|links| links.len.load(Ordering::Relaxed));
        let lists = waiting[0] | waiting[1] | waiting[2];
        lists | self.watched.get() | self.registration() != 0 || self.held() != 0
    }

    /// Sets the number of nodes that have memory.
    pub(crate) fn set_nodes(&self, count: usize) {
        self.nodes.set(count as u32);
    }

    /// Returns the doorbell for the steps of one operation of this process.
    #[inline(always)]
    pub(crate) fn ringer<'a>(
        &'a self,
        deferred: &'a DeferredRing,
        doorbell: &'a Doorbell,
    ) -> Ringer<'a> {
        Ringer {
            watched: &self.watched,
            words: &self.doorbell,
            doorbell,
            deferred: Some(deferred),
        }
    }

    /// Returns the words of the doorbell: the level that pollers see, and the number of the FIFO.
    #[cfg(loom)]
    pub(crate) fn doorbell(&self) -> &Words {
        &self.doorbell
    }

    /// Returns the number in the name of the poll FIFO.
    pub fn fifo_number(&self) -> u64 {
        self.doorbell.name.get()
    }

    /// Returns whether a process polls.
    pub fn is_watched(&self) -> bool {
        self.watched.get() != 0
    }

    /// Notes the time of a receive.
    #[inline(always)]
    pub(crate) fn note_receive(&self, now: u64) {
        // Relaxed: the time is only displayed.
        self.last_receive.store(now, Ordering::Relaxed);
    }

    /// Returns the time of the last receive, in nanoseconds of the machine's clock.
    pub fn last_receive(&self) -> u64 {
        self.last_receive.load(Ordering::Relaxed)
    }

    /// Restarts at ring position `first`, as if no bytes had been taken.
    pub(super) fn restart(&self, first: u64) {
        for bytes in &self.bytes {
            bytes.store(0, Ordering::Release);
        }
        self.sent_seen.set(first);
        self.drained.store(first, Ordering::Release);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn each_duty_of_a_receive_is_seen() {
        let receiving = ReceiverHeld::in_test();
        let one = |links: &Links| links.len.store(1, Ordering::Relaxed);
        let is_seen = |begin: &dyn Fn(&ReceiverSide)| {
            let side = ReceiverSide::default();
            begin(&side);
            side.has_duties(receiving)
        };
        assert!(!is_seen(&|_| ()));
        assert!(is_seen(&|side| one(&side.receivers)), "a receiver waits");
        assert!(is_seen(&|side| one(&side.senders)), "a sender waits");
        assert!(is_seen(&|side| one(&side.offered)), "an offer is out");
        assert!(
            is_seen(&|side| side.count_held(receiving, 1)),
            "one is held"
        );
        assert!(is_seen(&|side| side.watched.set(1)), "a process polls");
        let register = |side: &ReceiverSide| side.set_registration(receiving, 1);
        assert!(is_seen(&register), "a process is registered");
    }
}
