//! Finds the messages of a look that no earlier look has found. A look is a copy of the messages at the head of the queue.
//!
//! A queued message may have no ID by which two looks could recognise it. So a message is identified by its bytes, its sender, its priority or type,
//! and the time of its send. Each look computes that time anew from the clock, with a difference of less than [`JITTER`]. If several messages are
//! equal in all these properties, each look counts them: the messages above the earlier count are new.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::time::{Duration, SystemTime};

use super::Seen;
use crate::inlet::Rank;

/// The maximum difference between the times that two looks compute for the same send.
const JITTER: Duration = Duration::from_millis(20);
/// The number of remembered messages above which old entries are removed.
const MOST: usize = 65_536;
/// An absent message is remembered for at least this number of looks, because messages of higher priorities may push it out of the looks for a while.
const LOOKS: u64 = 64;

/// The messages of earlier looks.
#[derive(Default)]
pub struct Memory {
    known: HashMap<u64, Vec<Sight>>,
    count: usize,
    look: u64,
}

/// A message that was seen.
struct Sight {
    sent: SystemTime,
    /// The number of the last look that found the message.
    look: u64,
}

impl Memory {
    /// Returns the messages of a look that no earlier look has found.
    pub fn new_ones(&mut self, messages: Vec<Seen>) -> Vec<Seen> {
        self.look += 1;
        let new = messages.into_iter().filter(|message| self.is_new(message));
        let new = new.collect();
        self.forget();
        new
    }

    fn is_new(&mut self, message: &Seen) -> bool {
        let (look, sent) = (self.look, message.sent);
        let alike = self.known.entry(hash(message)).or_default();
        let is_same = |sight: &&mut Sight| {
            let apart = sent
                .duration_since(sight.sent)
                .unwrap_or_else(|earlier| earlier.duration());
            sight.look != look && apart < JITTER
        };
        match alike.iter_mut().find(is_same) {
            Some(sight) => {
                sight.look = look;
                false
            }
            None => {
                // Old entries of this message are removed here, because a sender may repeat one message for ever.
                let before = alike.len();
                alike.retain(|sight| sight.look + LOOKS >= look);
                alike.push(Sight { sent, look });
                self.count = self.count + alike.len() - before;
                true
            }
        }
    }

    fn forget(&mut self) {
        if self.count <= MOST {
            return;
        }
        let oldest = self.look.saturating_sub(LOOKS);
        self.known.retain(|_, alike| {
            alike.retain(|sight| sight.look >= oldest);
            !alike.is_empty()
        });
        self.count = self.known.values().map(Vec::len).sum();
    }
}

fn hash(message: &Seen) -> u64 {
    let mut hasher = DefaultHasher::new();
    match message.rank {
        Rank::Priority(priority) => (0, u64::from(priority)).hash(&mut hasher),
        Rank::Type(mtype) => (1, mtype.cast_unsigned()).hash(&mut hasher),
    }
    message.pid.hash(&mut hasher);
    message.data.hash(&mut hasher);
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(data: &str, sent: u64) -> Seen {
        Seen {
            rank: Rank::Priority(1),
            pid: 7,
            sent: SystemTime::UNIX_EPOCH + Duration::from_millis(sent),
            returns: 0,
            id: None,
            data: data.as_bytes().to_vec(),
        }
    }

    fn look(memory: &mut Memory, messages: &[(&str, u64)]) -> Vec<String> {
        let messages = messages.iter().map(|(data, sent)| message(data, *sent));
        let new = memory.new_ones(messages.collect()).into_iter();
        new.map(|seen| String::from_utf8(seen.data).unwrap())
            .collect()
    }

    #[test]
    fn each_message_is_new_once_although_its_time_varies() {
        let mut memory = Memory::default();
        assert_eq!(look(&mut memory, &[("a", 1000), ("b", 1000)]), ["a", "b"]);
        assert!(look(&mut memory, &[("b", 1003), ("a", 998)]).is_empty());
        assert_eq!(look(&mut memory, &[("b", 1000), ("c", 2000)]), ["c"]);
        assert!(
            look(&mut memory, &[("a", 1000)]).is_empty(),
            "it was out of the looks"
        );
    }

    #[test]
    fn equal_messages_are_counted() {
        let mut memory = Memory::default();
        assert_eq!(look(&mut memory, &[("a", 1000), ("a", 1000)]), ["a", "a"]);
        assert_eq!(
            look(&mut memory, &[("a", 1000), ("a", 1000), ("a", 1001)]),
            ["a"]
        );
        assert_eq!(look(&mut memory, &[("a", 5000)]), ["a"]);
    }

    #[test]
    fn the_memory_is_bounded() {
        let mut memory = Memory::default();
        for n in 0..MOST as u64 + 1000 {
            memory.new_ones(vec![message("x", n * 100), message(&n.to_string(), n)]);
        }
        assert!(memory.count <= MOST);
        assert!(memory.known.values().map(Vec::len).max() <= Some(LOOKS as usize + 1));
    }
}
