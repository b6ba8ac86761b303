//! The messages of a durable queue that are also in the stream. Each message stays in the stream until a local receiver has acknowledged it.

use async_nats::Subject;
use async_nats::jetstream::message::Acker;
use async_nats::jetstream::{Context, Message};
use std::collections::{BTreeMap, HashSet};
use std::time::{Duration, Instant};
use umsg::posix;

/// The messages that no local receiver has acknowledged, by the message's number in the queue.
#[derive(Debug)]
pub struct Unconsumed {
    /// The messages, by their number in the queue and their sequence in the stream. The number is 0 if a bridge died before it noted the number.
    messages: BTreeMap<(u64, u64), Copy>,
    /// The numbers of the messages that were in the queue or unacknowledged at the last [`look`](Unconsumed::look). Their sequences must stay in the
    /// window. The set does not have the number 0, which is no message's number in the queue.
    held: HashSet<u64>,
    /// The queue numbers of the messages that were in the window at the start. Until the time `until`, the server may still deliver these messages
    /// again.
    early: HashSet<u64>,
    until: Instant,
}

/// The copy of a message in the stream.
#[derive(Debug)]
struct Copy {
    context: Context,
    reply: Option<Subject>,
    /// The time of the delivery, or of the last report to the server that the message is still being processed.
    told: Instant,
    /// True if the last call of [`Unconsumed::take_consumed`] did not find the message in the queue.
    is_missing: bool,
}

impl Copy {
    fn acker(&self) -> Acker {
        Acker::new(self.context.clone(), self.reply.clone())
    }
}

impl Unconsumed {
    /// Makes the list from the messages in the queue, which an earlier bridge has placed. `early` are the numbers of the messages in the window: for
    /// the given time, the server may deliver any of these messages again, even a consumed one.
    ///
    /// # Errors
    /// The error is the sentence of the library.
    pub fn begin(
        queue: &posix::Queue,
        early: HashSet<u64>,
        time: Duration,
    ) -> Result<Unconsumed, String> {
        let mut unconsumed = Unconsumed {
            messages: BTreeMap::new(),
            held: HashSet::new(),
            early: HashSet::new(),
            until: Instant::now() + time,
        };
        unconsumed.look(queue)?;
        unconsumed.early = early;
        Ok(unconsumed)
    }

    /// Renews the set of held messages: the messages that are in the queue now, and those that no local receiver has acknowledged.
    ///
    /// # Errors
    /// The error is the sentence of the library.
    pub fn look(&mut self, queue: &posix::Queue) -> Result<(), String> {
        let held = queue.message_ids().map_err(|error| error.to_string())?;
        let unacknowledged = self.messages.keys().map(|(number, _)| *number);
        let unacknowledged = unacknowledged.filter(|number| *number != 0);
        self.held = held.into_iter().chain(unacknowledged).collect();
        self.early = HashSet::new();
        Ok(())
    }

    /// Notes that a message is in the queue. The number 0 has no effect: a bridge died before it noted the message's number.
    pub fn hold(&mut self, number: u64) {
        if number != 0 {
            self.held.insert(number);
        }
    }

    /// Returns whether the server may deliver a message again. For the number 0, returns true: a bridge died before it noted the message's number.
    #[must_use]
    pub fn is_held(&self, number: u64) -> bool {
        number == 0 || self.held.contains(&number) || self.early.contains(&number)
    }

    /// Adds a message that is in the queue. After a redelivery, the message is acknowledged through the new reply subject.
    pub fn add(&mut self, number: u64, sequence: u64, message: &Message) {
        let copy = Copy {
            context: message.context.clone(),
            reply: message.reply.clone(),
            told: Instant::now(),
            is_missing: false,
        };
        self.messages.insert((number, sequence), copy);
    }

    /// Returns the number of unacknowledged messages.
    #[must_use]
    pub fn len(&self) -> usize {
        self.messages.len()
    }

    /// Returns about how many messages of the stream are in the queue, or left it and are not yet acknowledged.
    #[must_use]
    pub fn most_held(&self) -> usize {
        // Before its redelivery, a message of an earlier bridge is only in `held`. After that it is also in `messages`, perhaps by the number 0, so a
        // sum would count it twice. The maximum is an approximation: messages of the number 0 that have left the queue are only in `messages`, and a
        // message that a local program sent directly into the queue can be in `held`.
        self.held.len().max(self.messages.len())
    }

    /// Returns whether there are no unacknowledged messages.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.messages.is_empty()
    }

    /// Removes the messages that have left the queue, and returns their acknowledgers. A message has left if two calls in a row find it neither
    /// queued nor delayed nor leased. One call is not enough: between a hand-off to a blocked receiver and its lease, a message is in no list.
    ///
    /// # Errors
    /// The error is the sentence of the library.
    pub fn take_consumed(&mut self, queue: &posix::Queue) -> Result<Vec<Acker>, String> {
        if self.messages.is_empty() && self.held.is_empty() {
            return Ok(Vec::new());
        }
        let held = queue.message_ids().map_err(|error| error.to_string())?;
        let held: HashSet<u64> = held.into_iter().collect();
        let mut consumed = Vec::new();
        self.held.retain(|number| {
            let mut copies = self.messages.range((*number, 0)..=(*number, u64::MAX));
            held.contains(number) || copies.next().is_some()
        });
        if Instant::now() > self.until {
            self.early = HashSet::new();
        }
        self.messages.retain(|(number, _), copy| {
            let is_missing = match number {
                0 => held.is_empty(),
                number => !held.contains(number),
            };
            let was_missing = std::mem::replace(&mut copy.is_missing, is_missing);
            let is_consumed = was_missing && copy.is_missing;
            if is_consumed {
                consumed.push(copy.acker());
            }
            !is_consumed
        });
        Ok(consumed)
    }

    /// Returns the messages whose acknowledgement time at the server must be extended.
    pub fn take_due(&mut self, after: Duration) -> Vec<Acker> {
        let mut due = Vec::new();
        for copy in self.messages.values_mut() {
            if copy.told.elapsed() > after {
                copy.told = Instant::now();
                due.push(copy.acker());
            }
        }
        due
    }
}
