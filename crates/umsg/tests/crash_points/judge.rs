//! The checks after the death of a process.

use super::acts::any;
use super::stage::Stage;
use crate::chaos::journal::{How, SHORTEST};
use crate::chaos::killing::{BYSTANDER, OBSERVER, STUCK, VICTIM};
use crate::chaos::stage::Death;
use crate::support::{Random, wait_until};
use std::sync::atomic::Ordering::SeqCst;
use std::time::Duration;
use umsg::posix::SendError;

impl Stage<'_> {
    /// Makes all processes notice that dead receivers are dead, and receives the messages that were offered to them.
    fn take_offers_back(&self, what: &str) {
        let mut actor = self.worker(OBSERVER);
        let is_done = wait_until(STUCK, || {
            let _ = actor.send(How::Try, 0, 4);
            std::thread::sleep(Duration::from_millis(105));
            while actor.receive(How::Try).is_ok() {}
            self.blocked().1 == 0
        });
        assert!(is_done, "{what}: offered to the dead for good");
    }

    /// Receives the remaining messages.
    fn drain(&self) -> Vec<usize> {
        let mut actor = self.worker(OBSERVER);
        std::iter::from_fn(|| actor.receive(How::Try).ok()).collect()
    }

    pub(super) fn judge(&self, death: &Death, what: &str) {
        // Repairs the senders' side, if its lock is orphaned.
        let _ = self.worker(OBSERVER).send(How::Try, 0, 4);
        // A message that was offered to a receiver that waits for a lease counts as leased in the attributes, until a call takes the offer back.
        let is_offered = self.blocked().1 != 0;
        if is_offered {
            self.take_offers_back(what);
        }
        // A query first takes the messages of dead holders back, unless the same query was made within the last tick.
        let returned = wait_until(STUCK, || {
            let attributes = self.queue.attributes();
            attributes.leased + attributes.reserved == 0
        });
        assert!(returned, "{what}: held by the dead for good");
        if !is_offered {
            self.judge_the_rest(death.prefilled, what);
        }
        let missing = self.journal.missing(what);
        self.check_batch(death, what);
        assert!(
            missing <= death.losses,
            "{what}: {missing} messages lost, {} may be",
            death.losses
        );
        let rest = self.queue.attributes();
        assert_eq!(
            (rest.messages, rest.bytes),
            (0, 0),
            "{what}: attributes of an empty queue"
        );
        assert!(!self.queue.status().damaged, "{what}: marked as damaged");
        if self.scenario.bystander.sends() && !self.scenario.leases {
            // Since the death, first the newcomer and then the observer have received all messages.
            let received = self.journal.received_after(death.receipts);
            let came_before = |one, other| self.came_before(death.prefilled, one, other);
            self.journal.check_turns(&received, came_before, what);
        }
    }

    /// Fails unless the remaining messages are counted exactly and come out in order.
    fn judge_the_rest(&self, prefilled: usize, what: &str) {
        let before = self.queue.attributes();
        let left = self.drain();
        assert_eq!(before.messages, left.len(), "{what}: attributes");
        let bytes: u64 = left
            .iter()
            .map(|&number| u64::from(self.journal.messages[number].len.load(SeqCst)))
            .sum();
        assert_eq!(before.bytes, bytes, "{what}: attributes");
        let came_before = |one, other| self.came_before(prefilled, one, other);
        self.journal.check_order(&left, came_before, what);
    }

    /// Returns whether a message was certainly sent before another one.
    fn came_before(&self, prefilled: usize, one: usize, other: usize) -> bool {
        let phase = |number: usize| {
            let sender = self.journal.messages[number].sender.load(SeqCst) as usize;
            match sender {
                _ if number < prefilled => 0,
                VICTIM => 1,
                // A blocked bystander's messages come before, between or after the victim's and the newcomer's.
                BYSTANDER => 9,
                _ => 2,
            }
        };
        match (phase(one), phase(other)) {
            (9, _) => false,
            (earlier, 9) => earlier == 0,
            (earlier, later) => earlier < later,
        }
    }

    /// Fails unless exactly as many messages fit as in a new queue.
    pub(super) fn check_capacity(&self, what: &str) {
        let depth = self.scenario.shape.depth as usize;
        let mut actor = self.worker(OBSERVER);
        let (mut sent, mut bytes) = (0, 0);
        let mut random = Random::new(sent as u64);
        let refused = loop {
            let (priority, len) = any(&mut random);
            match actor.send(How::Try, priority, len.min(256)) {
                Ok(_) => {
                    sent += 1;
                    bytes += len.clamp(SHORTEST, 256) as u64;
                }
                Err(error) => break error,
            }
            assert!(sent <= depth, "{what}: more messages fit than should");
        };
        assert_eq!(refused, SendError::Full, "{what}");
        assert_eq!(sent, depth, "{what}: fewer messages fit than should");
        let attributes = self.queue.attributes();
        assert_eq!(
            (attributes.messages, attributes.bytes),
            (sent, bytes),
            "{what}"
        );
        let received = self.drain();
        assert_eq!(received.len(), depth, "{what}");
        self.journal.check_order(&received, |_, _| false, what);
        assert_eq!(self.journal.missing(what), 0, "{what}: lost at rest");
    }
}
