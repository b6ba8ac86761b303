//! The presence word shows whether a segment contains a queue. With this word, a process can reuse the segment of a queue that it has removed.
//!
//! | state | meaning | leaves it |
//! |---|---|---|
//! | ordinary | the file's name decides | nothing |
//! | sole | a queue that only its creator has opened | the creator: removed; an opener, another remover: ordinary |
//! | removed | no queue; only the creator changes the segment | the creator changes it to sole; a process that wants the name changes it to gone |
//! | gone | no queue, for ever; the process that locks the file removes its name | nothing |
//!
//! If the creator dies, a sole queue becomes an ordinary queue when another process opens it. A removed queue's file is removed by a process that
//! wants the file's name, or by a sweep. If the process that has to remove the name dies, the next process that wants the name removes it.
//!
//! The lowest 2 bits of the word are the state. The other bits count the queues that the segment has contained, so that a reader without a mapping
//! notices a new queue. A file keeps the same name for all its queues. So if a slow opener joins a later queue of the file, that queue has the name
//! that the opener wanted.

use crate::sync::{AtomicU64, Ordering};

const STATE: u64 = 3;
const ORDINARY: u64 = 0;
const SOLE: u64 = 1;
const REMOVED: u64 = 2;
const GONE: u64 = 3;
/// The amount by which the word grows with each further queue.
const NEXT: u64 = 4;

/// The presence word of a segment.
#[repr(transparent)]
#[derive(Debug, Default)]
pub struct Presence(AtomicU64);

/// A value of the presence word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seen(u64);

impl Seen {
    /// Decodes the word as it was read from a file.
    pub fn of_word(word: u64) -> Seen {
        Seen(word)
    }

    /// Returns whether the segment contains a queue.
    #[must_use]
    pub fn is_queue(self) -> bool {
        matches!(self.0 & STATE, ORDINARY | SOLE)
    }

    /// Returns the number of the queue: the queues of a segment are counted from 0.
    #[must_use]
    pub fn number(self) -> u64 {
        self.0 / NEXT
    }

    /// Returns whether the state is ordinary. In this state, the queue exists if the file has its name.
    #[must_use]
    pub fn is_ordinary(self) -> bool {
        self.0 & STATE == ORDINARY
    }
}

/// The result of [`Presence::take`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Taken {
    /// The creator can't reuse the segment, so the file's name may be removed.
    Gone,
    /// The segment contains a queue.
    Queue,
}

impl Presence {
    /// Marks a new segment without a name as a queue that only its creator has opened.
    pub fn begin_sole(&self) {
        // Relaxed: no other process sees the segment before its file is linked.
        self.0.store(SOLE, Ordering::Relaxed);
    }

    /// Returns the current value. The value is a hint, unless its state is final.
    pub fn look(&self) -> Seen {
        Seen(self.0.load(Ordering::Relaxed))
    }

    /// Returns whether only the creator has opened the queue. The result is a hint.
    #[must_use]
    pub fn is_sole(&self) -> bool {
        self.look().0 & STATE == SOLE
    }

    /// Opens the queue, which then has the ordinary state. Returns false if the segment contains no queue.
    #[must_use]
    pub fn join(&self) -> bool {
        // Acquire: the load pairs with the release in `revive`, so that the opener sees the filled-in words of the new queue.
        let mut now = self.0.load(Ordering::Acquire);
        loop {
            match now & STATE {
                ORDINARY => return true,
                SOLE => {}
                _ => return false,
            }
            // AcqRel: the acquire has the same purpose as in the load above. By the release, the creator's next attempt to remove the queue fails
            // before the opener uses the queue.
            let to = now & !STATE | ORDINARY;
            match self
                .0
                .compare_exchange(now, to, Ordering::AcqRel, Ordering::Acquire)
            {
                Ok(_) => return true,
                Err(found) => now = found,
            }
        }
    }

    /// Removes the queue. The caller is its creator. Returns false if another process may have opened the queue.
    #[must_use]
    pub fn remove(&self) -> bool {
        self.change(SOLE, |sole| sole & !STATE | REMOVED)
    }

    /// Publishes the next queue in the segment. The creator has filled in the segment. Returns false if another process has taken the file's name.
    #[must_use]
    pub fn revive(&self) -> bool {
        self.change(REMOVED, |removed| {
            removed.wrapping_add(NEXT) & !STATE | SOLE
        })
    }

    /// Takes the segment from the creator of a removed queue. The creator can't reuse the segment afterwards.
    pub fn take(&self) -> Taken {
        match self.change(REMOVED, |removed| removed | GONE) || self.look().0 & STATE == GONE {
            true => Taken::Gone,
            false => Taken::Queue,
        }
    }

    fn change(&self, from: u64, to: impl Fn(u64) -> u64) -> bool {
        let now = self.0.load(Ordering::Relaxed);
        // AcqRel: the creator's stores before `revive` precede an opener's `join`. The creator's stores after `remove` follow the `remove`. Relaxed
        // on failure: the caller then does not use the segment. One attempt suffices: it fails only if another process has changed the state.
        now & STATE == from
            && self
                .0
                .compare_exchange(now, to(now), Ordering::AcqRel, Ordering::Relaxed)
                .is_ok()
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    fn sole() -> Presence {
        let presence = Presence::default();
        presence.begin_sole();
        presence
    }

    #[test]
    fn the_creator_removes_and_makes_queues_of_a_segment_that_no_other_process_opens() {
        let presence = sole();
        for _ in 0..3 {
            let before = presence.look();
            assert!(presence.is_sole() && before.is_queue());
            assert!(presence.remove() && !presence.remove());
            assert!(!presence.look().is_queue() && !presence.join());
            assert!(presence.revive() && !presence.revive());
            assert_ne!(presence.look().number(), before.number());
        }
    }

    #[test]
    fn a_queue_that_was_opened_is_an_ordinary_one_for_ever() {
        let presence = sole();
        assert!(presence.join() && presence.join());
        assert!(presence.look().is_ordinary() && !presence.is_sole());
        assert!(!presence.remove() && !presence.revive());
        assert_eq!(presence.take(), Taken::Queue);
        assert!(presence.join());
    }

    #[test]
    fn a_removed_queue_whose_name_is_taken_never_comes_back() {
        let presence = sole();
        assert_eq!(presence.take(), Taken::Queue);
        assert!(presence.remove());
        assert_eq!(presence.take(), Taken::Gone);
        assert_eq!(presence.take(), Taken::Gone);
        assert!(!presence.revive() && !presence.join() && !presence.remove());
    }

    #[test]
    fn a_queue_that_never_was_one_alone_stays_ordinary() {
        let presence = Presence::default();
        assert!(presence.look().is_ordinary() && presence.join() && !presence.remove());
        assert_eq!(presence.take(), Taken::Queue);
    }
}
