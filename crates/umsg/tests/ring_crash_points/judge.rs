//! The judge: the owner of a ring, which checks the messages of each sender.

use super::senders::{LONG, Owner};
use crate::chaos::journal::How;
use crate::chaos::killing::STUCK;
use crate::chaos::poll_readable;
use std::collections::HashMap;
use std::time::{Duration, Instant};
use umsg::ring::{Ring, Until};

/// The owner of the ring, which checks the messages of each sender.
pub struct Judge {
    pub ring: Ring,
    pub next: HashMap<u32, u64>,
    pub longest: Duration,
}

impl Judge {
    pub fn new(ring: Ring) -> Judge {
        Judge {
            ring,
            next: HashMap::new(),
            longest: Duration::ZERO,
        }
    }

    pub fn note(next: &mut HashMap<u32, u64>, pid: u32, number: u64, payload: &[u8]) {
        let expected = next.entry(pid).or_default();
        assert_eq!(number, *expected, "a message is missing, or comes twice");
        assert!(payload.iter().all(|&byte| byte == number as u8));
        assert_eq!(payload.len() % LONG, number as usize % 65);
        *expected += 1;
    }

    /// Receives messages in the way of `owner`. Fails unless the first message arrives soon.
    pub fn receive(&mut self, owner: Owner) {
        let begun = Instant::now();
        assert!(self.receive_within(owner, STUCK), "the ring stands still");
        self.longest = self.longest.max(begun.elapsed());
    }

    /// Does the same as [`receive`](Self::receive), but allows that no message comes. Returns whether a message came.
    pub fn receive_within(&mut self, owner: Owner, patience: Duration) -> bool {
        let came = match owner {
            Owner::Polls => poll_readable(self.ring.pollable(), How::Within(patience)),
            Owner::WaitsForThree => self.ring.wait(3, Until::After(patience)).is_ok(),
            Owner::IsSlow | Owner::Sleeps | Owner::Dawdles => {
                if owner == Owner::IsSlow {
                    std::thread::sleep(Duration::from_millis(1));
                }
                let Ok(message) = self.ring.receive_timeout(patience) else {
                    return false;
                };
                let (tag, number) = (message.tag, message.user_data);
                Judge::note(&mut self.next, tag.pid, number, message.payload);
                return true;
            }
        };
        self.empty();
        came
    }

    pub fn empty(&mut self) {
        let next = &mut self.next;
        self.ring
            .drain(|message| {
                Judge::note(next, message.tag.pid, message.user_data, message.payload);
            })
            .unwrap();
    }

    pub fn of(&self, pid: u32) -> u64 {
        self.next.get(&pid).copied().unwrap_or(0)
    }
}
