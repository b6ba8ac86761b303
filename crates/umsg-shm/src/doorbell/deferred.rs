//! A deferred ring: the sender of a message to an empty queue rings after it has released the locks.
//!
//! The kernel wakes a poller during the write that rings. On one processor, the poller then interrupts the sender. If the sender held the lock, the
//! poller would sleep on the lock, and each message would cost two more switches of the processor. So the sender notes the ring in the segment, sends
//! the message, releases the locks and then rings. Only after the ring, the sender wakes waiters and reports events. The word in the segment has
//! these states:
//!
//! | state | set by | the FIFO holds |
//! |---|---|---|
//! | none | the sender, after it has rung | the packets of [`Words::shown`](super::Words) |
//! | [`PENDING`] | the sender, under the locks, before the message exists | one packet if the sender has rung, else none; `shown` says one |
//! | [`SEEN`] | an owner of the lock that has found the packet | the packets of `shown` |
//! | [`LATE`] | an owner of the lock that has not found the packet: it rings in place of the sender | the packets of `shown`, and one more if the sender has rung since |
//!
//! The sender may die or be stopped before it rings. So each process that reads or changes the level of the queue under the lock first makes sure
//! that the ring is done. No call sees a message of which pollers have not been told. A receive that leaves the queue empty need not ring.
//!
//! A sender whose ring is late takes the lock again and counts the packets. Until then the other processes count the packets at each change, and no
//! other ring is deferred. If the sender is dead, [`LATE`] ends after [`REFUSALS`] further sends.

use super::PollFifo;
use crate::lock::tokens::ReceiverHeld;
use crate::sync::{AtomicU64, Ordering};

/// The bits of the state in the word.
const STATE: u64 = 3;
const PENDING: u64 = 1;
const SEEN: u64 = 2;
const LATE: u64 = 3;

/// The lowest bit of the ring position of the message.
const POSITION: u32 = 2;
/// The lowest bit of the number of sends that could not defer a ring because another ring is late.
const REFUSED: u32 = 48;
/// The number of sends that could not defer a ring, after which the sender of the late ring is assumed to be dead.
const REFUSALS: u64 = 1000;

/// The word of the segment that notes a deferred ring.
#[derive(Default)]
#[repr(transparent)]
pub struct DeferredRing(AtomicU64);

/// Identifies a pending ring, by the value of the word that notes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ticket(u64);

/// A ring that the calling thread has deferred.
pub(crate) struct Deferred<'a> {
    pub(super) ticket: Ticket,
    pub(super) fifo: PollFifo<'a>,
    /// True if the ring has to wake the pollers of all events.
    pub(super) loudly: bool,
}

impl Deferred<'_> {
    /// Rings the doorbell. Returns the ticket, and whether the FIFO has the packet.
    pub(crate) fn ring(self) -> (Ticket, bool) {
        let is_rung = self.fifo.add(self.loudly) || {
            // A loud ring needs another descriptor, which the process may lack.
            let is_rung = self.loudly && self.fifo.add(false);
            if is_rung {
                self.fifo.nudge();
            }
            is_rung
        };
        (self.ticket, is_rung)
    }
}

impl Ticket {
    /// Returns the word of this ticket with its state replaced by `state`. The bits from [`REFUSED`] on are 0.
    fn in_state(self, state: u64) -> u64 {
        self.0 & !STATE | state
    }

    fn is_of(self, word: u64, state: u64) -> bool {
        word & ((1 << REFUSED) - 1) == self.in_state(state)
    }
}

impl DeferredRing {
    /// Notes a ring for the message at `position`. Returns None if no ring may be deferred now.
    pub(super) fn begin(&self, _: ReceiverHeld<'_>, position: u64) -> Option<Ticket> {
        // Relaxed: without the lock, a sender only ends its own ring, which is PENDING or SEEN. Both values are right: a ring read as PENDING refuses
        // the new ring, and a new ring replaces a SEEN ring and an ended ring.
        let word = self.0.load(Ordering::Relaxed);
        match word & STATE {
            PENDING => return None,
            LATE if word >> REFUSED < REFUSALS => {
                self.0.store(word + (1 << REFUSED), Ordering::Relaxed);
                return None;
            }
            _ => {}
        }
        let position = position << POSITION & ((1 << REFUSED) - 1);
        let ticket = Ticket(position | PENDING);
        // Release: as for guarded words, the store of the word takes effect before that of the message, even if the thread is killed.
        self.0.store(ticket.0, Ordering::Release);
        Some(ticket)
    }

    /// Forgets the ring. The caller holds the lock, or is the only user.
    pub(super) fn forget(&self) {
        // Release: as in `begin`, the stores of a killed thread take effect in their order.
        self.0.store(0, Ordering::Release);
    }

    /// Returns the ticket of the pending ring. `None` if no ring is pending.
    pub(crate) fn pending(&self) -> Option<Ticket> {
        // Acquire: a thread that finds the state ended finds the packet, too.
        let word = self.0.load(Ordering::Acquire);
        (word & STATE == PENDING).then_some(Ticket(word))
    }

    /// Returns whether a ring is late.
    pub(super) fn is_late(&self) -> bool {
        // Relaxed: the state changes under the lock.
        self.0.load(Ordering::Relaxed) & STATE == LATE
    }

    /// Notes that the packet of a pending ring was found.
    pub(super) fn note_seen(&self, ticket: Ticket) {
        self.replace(ticket, SEEN);
    }

    /// Notes that the packet of a pending ring was not found. Returns false if the sender has rung meanwhile: then its packet is in the FIFO.
    pub(super) fn note_late(&self, ticket: Ticket) -> bool {
        self.replace(ticket, LATE)
    }

    fn replace(&self, ticket: Ticket, state: u64) -> bool {
        let (success, failure) = (Ordering::AcqRel, Ordering::Acquire);
        let to = ticket.in_state(state);
        self.0
            .compare_exchange(ticket.0, to, success, failure)
            .is_ok()
    }

    /// Ends the ring of the calling thread, which has rung. Returns false if the ring was late: then the packets have to be counted.
    pub(crate) fn end(&self, ticket: Ticket) -> bool {
        // Release: a process that sees the end also sees the packet in the FIFO; pairs with the Acquire in `pending` and `replace`.
        let (success, failure) = (Ordering::AcqRel, Ordering::Acquire);
        let end = |word| self.0.compare_exchange(word, 0, success, failure);
        match end(ticket.0) {
            Err(word) if ticket.is_of(word, SEEN) => {
                let _ = end(word);
                true
            }
            Err(word) => !ticket.is_of(word, LATE),
            Ok(_) => true,
        }
    }

    /// Ends a ring that is late, or that failed. Returns whether pollers have to be woken; None if another process has already ended the ring.
    pub(super) fn end_late(&self, _: ReceiverHeld<'_>, ticket: Ticket) -> Option<bool> {
        let word = self.0.load(Ordering::Acquire);
        let is_pending = ticket.is_of(word, PENDING);
        (is_pending || ticket.is_of(word, LATE)).then(|| {
            self.forget();
            is_pending
        })
    }

    /// Returns whether the word notes no ring.
    #[cfg(not(loom))]
    pub(crate) fn is_none(&self) -> bool {
        // Relaxed: the caller is the only user.
        self.0.load(Ordering::Relaxed) == 0
    }
}
