//! The choice of the thread that takes the calls.
//!
//! One thread, the leader, takes calls and answers them: a change of threads would cost as much as a call. A call can take long for a reason that
//! lies in a program: its memory is that of a FUSE file system, or a stopped process holds the queue's lock. Then the leader loses the lead. Another
//! thread takes the next calls, and the former leader ends as a worker.
//!
//! | word | the leader | changed by |
//! |---|---|---|
//! | even | waits for a call | the leader, when it has one: [`Lead::begin`] |
//! | odd | answers a call | the leader: [`Lead::end`]; or its successor: [`Lead::take_over`] |
//!
//! Each change adds 1. So of the last two, one succeeds, and there is one leader at any time.

use std::sync::atomic::{AtomicU64, Ordering};

#[derive(Debug, Default)]
pub struct Lead(AtomicU64);

/// A call that the leader answers: an odd value of the word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Turn(u64);

impl Lead {
    /// The leader has taken a call.
    pub fn begin(&self) -> Turn {
        // SeqCst: pairs with `Pause::may_be_long`, which looks at the word after it has announced a long pause.
        Turn(self.0.fetch_add(1, Ordering::SeqCst) + 1)
    }

    /// The leader has answered its call. Returns whether it is still the leader.
    #[must_use]
    pub fn end(&self, turn: Turn) -> bool {
        self.leave(turn)
    }

    /// Takes the lead from a leader that is still in this call. Returns whether the caller leads.
    #[must_use]
    pub fn take_over(&self, turn: Turn) -> bool {
        self.leave(turn)
    }

    fn leave(&self, Turn(turn): Turn) -> bool {
        // Relaxed: the word publishes no other data.
        let (old, new) = (Ordering::Relaxed, Ordering::Relaxed);
        self.0.compare_exchange(turn, turn + 1, old, new).is_ok()
    }

    /// The value of the word.
    pub fn word(&self) -> u64 {
        self.0.load(Ordering::SeqCst)
    }

    /// The call that the leader answers at a value of the word.
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
        // The successor has taken a call before the former leader ends its own.
        let third = lead.begin();
        assert!(!lead.end(second) && lead.end(third));
    }
}
