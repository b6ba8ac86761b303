//! Decides which thread of the supervisor receives the system calls of the programs.
//!
//! One thread, the leader, receives calls and answers them: a switch between two threads would cost as much as a call. A program can make a call take
//! long: the call accesses memory of a FUSE file system, or a stopped process holds the queue's lock. Then another thread takes the lead and receives
//! the next calls. The former leader completes its call and becomes a worker.
//!
//! | word | the leader | changed by |
//! |---|---|---|
//! | even | waits for a call | the leader, when it has one: [`Lead::begin`] |
//! | odd | answers a call | the leader: [`Lead::end`]; or its successor: [`Lead::take_over`] |
//!
//! Each change of the word adds 1. `end` and `take_over` change the word from the same odd value, so only one of them succeeds. So there is one
//! leader at any time.

use std::sync::atomic::{AtomicU64, Ordering};

#[derive(Debug, Default)]
pub struct Lead(AtomicU64);

/// The call that the leader is answering: an odd value of the word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Turn(u64);

impl Lead {
    /// Marks that the leader has received a call.
    pub fn begin(&self) -> Turn {
        // SeqCst: pairs with `Pause::may_be_long`, which sets the flag of a long pause before it reads this word.
        Turn(self.0.fetch_add(1, Ordering::SeqCst) + 1)
    }

    /// Marks that the leader has answered its call. Returns whether the thread is still the leader.
    #[must_use]
    pub fn end(&self, turn: Turn) -> bool {
        self.leave(turn)
    }

    /// Takes the lead from a leader that is still answering this call. Returns whether the caller is now the leader.
    #[must_use]
    pub fn take_over(&self, turn: Turn) -> bool {
        self.leave(turn)
    }

    fn leave(&self, Turn(turn): Turn) -> bool {
        // Relaxed: the word publishes no other data.
        let (old, new) = (Ordering::Relaxed, Ordering::Relaxed);
        self.0.compare_exchange(turn, turn + 1, old, new).is_ok()
    }

    /// Returns the value of the word.
    pub fn word(&self) -> u64 {
        self.0.load(Ordering::SeqCst)
    }

    /// Returns the call that the leader is answering if the word has this value. Returns None between two calls.
    pub fn turn(word: u64) -> Option<Turn> {
        (word % 2 == 1).then_some(Turn(word))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_a_leader_and_its_successor_one_leads() {
        let lead = Lead::default();
        assert_eq!(Lead::turn(lead.word()), None);
        let first = lead.begin();
        assert_eq!(Lead::turn(lead.word()), Some(first));
        assert!(lead.end(first) && !lead.take_over(first));
        let second = lead.begin();
        assert!(!lead.take_over(first));
        assert!(lead.take_over(second) && !lead.take_over(second));
        // The new leader receives a call before the former leader ends its own call.
        let third = lead.begin();
        assert!(!lead.end(second) && lead.end(third));
    }
}
