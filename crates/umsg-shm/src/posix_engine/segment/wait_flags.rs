//! The cache line that a sender reads after it has published a message. The line shows which waiters the sender must serve, and contains the wake
//! word of a ring.
//!
//! [`crate::posix_engine::wake_word`] describes the states of the wake word, and the steps of each thread.

use crate::lock::tokens::ReceiverHeld;
use crate::sync::{AtomicU32, AtomicU64, Ordering};

/// A bit of the wake word: the receiver of the ring sleeps on the wake word, or is about to sleep.
pub(crate) const ARMED: u32 = 1;
/// A bit of the wake word: a process polls the descriptor of the ring.
pub(crate) const POLLED: u32 = 2;
/// The amount by which the wake word grows with each arming. So the compare-and-swap of a sender that has read an earlier value fails.
pub(crate) const TURN: u32 = 4;

/// The words that senders read after they have published a message.
#[repr(C, align(128))]
#[derive(Default)]
pub struct WaitFlags {
    /// The attention word, which shows the waiters that senders must serve. [`crate::posix_engine`] defines its bits; 0 for none.
    pub(super) attention: AtomicU32,
    /// The wake word of a ring's receiver.
    pub(super) wake_word: AtomicU32,
    /// The ring position at which senders wake the receiver, or make its descriptor readable.
    threshold: AtomicU64,
}

impl WaitFlags {
    /// Returns the attention word.
    #[inline(always)]
    pub fn attention(&self) -> u32 {
        // Relaxed: ATTENTION. The caller places the barrier, or holds the lock under which the flag is set.
        self.attention.load(Ordering::Relaxed)
    }

    /// Sets the bits of the attention word that are in `bits` to their values in `flags`.
    pub(crate) fn set_attention(&self, _: ReceiverHeld<'_>, bits: u32, flags: u32) {
        // Relaxed: ATTENTION. A thread that begins to wait adds the fence. Clearing a flag needs no fence.
        let others = self.attention.load(Ordering::Relaxed) & !bits;
        self.attention.store(others | flags, Ordering::Relaxed);
    }

    /// Begins the next turn of the wake word. Senders ring when they reach the ring position `threshold`. Returns the new wake word.
    pub(crate) fn arm(&self, threshold: u64, how: u32) -> u32 {
        // Acquire: pairs with the release in `take_ring`. The old turn ends for all senders before the new turn begins.
        let turn = self.wake_word.fetch_and(!(TURN - 1), Ordering::Acquire) & !(TURN - 1);
        // Relaxed: the wake word publishes the threshold.
        self.threshold.store(threshold, Ordering::Relaxed);
        let armed = turn.wrapping_add(TURN) | how;
        // Release: a sender that sees the wake word of this turn sees its threshold.
        self.wake_word.store(armed, Ordering::Release);
        armed
    }

    /// Ends the turn. The caller is the receiver, which then checks for messages.
    pub(crate) fn silence(&self) {
        // Relaxed: a sender that reads the word without its low bits does nothing. If a sender has read the armed word before, the sender rings
        // without effect.
        self.wake_word.fetch_and(!(TURN - 1), Ordering::Relaxed);
    }

    /// Returns whether a thread waits for the wake word. The result is a hint for senders.
    #[inline(always)]
    pub(crate) fn seems_armed(&self) -> bool {
        // Relaxed: ATTENTION. The unlock was a full barrier between the store to the cursor and this load. The barrier pairs with the fence after
        // `arm`.
        self.wake_word.load(Ordering::Relaxed) & (ARMED | POLLED) != 0
    }

    /// Returns the wake word. The caller also sees the threshold of this turn.
    pub(crate) fn wake_word(&self) -> u32 {
        self.wake_word.load(Ordering::Acquire)
    }

    /// Returns the threshold of the turn that [`wake_word`](Self::wake_word) returned, or of a later turn.
    pub(crate) fn threshold(&self) -> u64 {
        // Relaxed: if the threshold belongs to a later turn, the compare-and-swap of `take_ring` fails.
        self.threshold.load(Ordering::Relaxed)
    }

    /// Ends the turn of `wake_word`. If several senders reach the threshold, only one of them gets the result true.
    #[must_use]
    pub(crate) fn take_ring(&self, wake_word: u32) -> bool {
        let silent = wake_word & !(ARMED | POLLED);
        // Release: the store pairs with the acquire in `arm`. The message needs no release, because the receiver checks for it after the fence of its
        // next arming. Relaxed on failure: the sender then does nothing more.
        self.wake_word
            .compare_exchange(wake_word, silent, Ordering::Release, Ordering::Relaxed)
            .is_ok()
    }

    /// Returns the futex on which the receiver of the ring sleeps.
    pub(crate) fn futex(&self) -> &AtomicU32 {
        &self.wake_word
    }

    /// Returns the number of turns of the wake word so far.
    #[cfg(any(test, feature = "testing"))]
    pub(crate) fn turns(&self) -> u32 {
        // Relaxed: only the receiver begins turns.
        self.wake_word.load(Ordering::Relaxed) / TURN
    }
}
