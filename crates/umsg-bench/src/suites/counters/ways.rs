//! The variants that keep totals independently of CPUs, and the interface of all variants.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::failure::Failure;
use crate::shared::SharedWords;

/// A way to keep the totals of messages and bytes.
pub trait Way: Sized + Sync {
    fn make(threads: usize) -> Result<Self, Failure>;

    /// Counts a send (one message and its bytes) or a receive (the negative numbers) of this thread on its own queue.
    fn add(&self, thread: usize, messages: i64, bytes: i64);

    /// Returns the totals: messages and bytes.
    fn read(&self) -> (i64, i64);
}

/// Words a line: two cache lines of 64 bytes, which processors fetch as a pair.
pub const WORDS: usize = 16;

/// Lines with two counts each, shared by processes.
pub struct Lines {
    words: SharedWords,
    count: usize,
}

impl Lines {
    pub fn new(count: usize) -> Result<Self, Failure> {
        let words = SharedWords::new(count * WORDS)?;
        Ok(Self { words, count })
    }

    /// Returns the messages and bytes of a line.
    #[inline]
    pub fn line(&self, index: usize) -> [&AtomicU64; 2] {
        [0, 1].map(|word| self.words.word(index * WORDS + word))
    }

    /// Returns the first word of the first line.
    #[cfg(target_arch = "x86_64")]
    pub fn start(&self) -> *const AtomicU64 {
        self.words.word(0)
    }

    /// Adds to a cache line to which other threads also add.
    #[inline]
    pub fn add_atomically(&self, index: usize, messages: i64, bytes: i64) {
        let counts = self.line(index);
        // Relaxed: the counts are read when no thread works. In two's complement, the addition of a negative number subtracts.
        counts[0].fetch_add(messages as u64, Ordering::Relaxed);
        counts[1].fetch_add(bytes as u64, Ordering::Relaxed);
    }

    pub fn sum(&self) -> (i64, i64) {
        (0..self.count).fold((0, 0), |(messages, bytes), index| {
            // Relaxed: the caller reads the counts while no thread writes.
            let [more, more_bytes] = self.line(index).map(|word| word.load(Ordering::Relaxed));
            (messages + more as i64, bytes + more_bytes as i64)
        })
    }
}

/// One cache line for all threads.
pub struct Shared(Lines);

impl Way for Shared {
    fn make(_threads: usize) -> Result<Self, Failure> {
        Lines::new(1).map(Self)
    }

    #[inline]
    fn add(&self, _thread: usize, messages: i64, bytes: i64) {
        self.0.add_atomically(0, messages, bytes);
    }

    fn read(&self) -> (i64, i64) {
        self.0.sum()
    }
}

/// The counts that each queue keeps under its own lock.
pub struct PerQueue(Lines);

impl Way for PerQueue {
    fn make(threads: usize) -> Result<Self, Failure> {
        Lines::new(threads).map(Self)
    }

    #[inline]
    fn add(&self, thread: usize, messages: i64, bytes: i64) {
        // Relaxed: only this thread writes the counts of its queue, as it would under the queue's lock.
        let add = |count: &AtomicU64, more: i64| {
            let sum = count.load(Ordering::Relaxed).wrapping_add(more as u64);
            count.store(sum, Ordering::Relaxed);
        };
        let counts = self.0.line(thread);
        add(counts[0], messages);
        add(counts[1], bytes);
    }

    fn read(&self) -> (i64, i64) {
        self.0.sum()
    }
}

#[cfg(test)]
mod tests {
    use super::super::cpu::{PerCpu, PerCpuAtomic};
    use super::*;

    fn counts<W: Way>() -> (i64, i64) {
        let way = W::make(3).unwrap();
        way.add(0, 1, 8);
        way.add(2, 1, 100);
        way.add(2, -1, -8);
        way.add(1, 1, 1);
        way.read()
    }

    #[test]
    fn all_ways_come_to_the_same_sum() {
        let found = [
            counts::<Shared>(),
            counts::<PerQueue>(),
            counts::<PerCpuAtomic>(),
        ];
        assert_eq!(found, [(2, 101); 3]);
        if PerCpu::make(1).is_ok() {
            assert_eq!(counts::<PerCpu>(), (2, 101));
        }
    }
}
