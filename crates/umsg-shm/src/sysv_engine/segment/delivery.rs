//! The delivery policy of a queue, and its producers.

use crate::producers::Producers;
use crate::sync::{AtomicU32, AtomicU64, Ordering};

/// The policy as it lies in a segment, and the producers. The creator writes the policy, and each process reads it once, on attaching.
#[repr(C, align(128))]
#[derive(Default)]
pub struct Delivery {
    /// Two delays of a returned message before it is delivered again, in nanoseconds: the delay after its first return, and the longest delay.
    /// Without a delay, both numbers are 0.
    retry_delay: [AtomicU64; 2],
    /// 1 if the end of the last producer closes the queue for sending, otherwise 0.
    close_with_producers: AtomicU32,
    reserved: AtomicU32,
    /// The producers. The lock protects their records.
    pub producers: Producers,
}

/// The delivery policy in the memory of a process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Policy {
    /// Two delays of a returned message before it is delivered again, in nanoseconds: the delay after its first return, which doubles with each
    /// further return, and the longest delay. Without a delay, both numbers are 0.
    pub retry_delay: [u64; 2],
    /// True if the end of the last producer closes the queue for sending.
    pub close_with_producers: bool,
}

impl Policy {
    /// Writes the policy into a new segment.
    #[cfg(not(loom))]
    pub(crate) fn write(&self, delivery: &Delivery) {
        // Relaxed: no other process sees the segment yet.
        for (word, delay) in delivery.retry_delay.iter().zip(self.retry_delay) {
            word.store(delay, Ordering::Relaxed);
        }
        let closes = self.close_with_producers.into();
        delivery
            .close_with_producers
            .store(closes, Ordering::Relaxed);
    }

    /// Reads the policy of a segment. In the word `close_with_producers`, every number except 0 means true.
    pub fn read(delivery: &Delivery) -> Policy {
        // Relaxed: the words were written once, before any process could attach.
        let load = Ordering::Relaxed;
        Policy {
            retry_delay: delivery.retry_delay.each_ref().map(|word| word.load(load)),
            close_with_producers: delivery.close_with_producers.load(load) != 0,
        }
    }
}
