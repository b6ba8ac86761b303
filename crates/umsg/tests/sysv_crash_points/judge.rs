//! The checks after the death of a process.

use super::acts::{any, status};
use super::stage::{QBYTES, Stage, WANTED};
use crate::chaos::journal::{How, SHORTEST};
use crate::chaos::killing::{OBSERVER, STUCK};
use crate::chaos::stage::Death;
use crate::support::{Random, wait_until};
use std::sync::atomic::Ordering::SeqCst;
use std::time::Duration;
use umsg::sysv::{SendError, Want};

impl Stage<'_> {
    /// Receives the remaining messages. Returns their numbers.
    fn drain(&self) -> Vec<usize> {
        let mut clerk = self.worker(OBSERVER);
        std::iter::from_fn(|| clerk.receive(How::Try, Want::Any).ok()).collect()
    }

    pub(super) fn judge(&self, death: &Death, what: &str) {
        // A query of the status first returns the messages of dead holders to the queue, unless the same query was made within the last tick.
        let returned = wait_until(STUCK, || status(&self.queue).leased == 0);
        assert!(returned, "{what}: held by the dead for good");
        let before = status(&self.queue);
        let entry = before.entry;
        let types = self.queue.types(QBYTES).expect("the types");
        let left = self.drain();
        // If no process has noticed the death of a blocked sender, its message may have been admitted meanwhile, and the counts differ.
        if before.blocked_senders == 0 {
            self.check_counts(&left, (entry.messages, entry.bytes), &types, what);
        }
        self.check_arrivals(&left, death.prefilled, what);
        let (missing, losses) = (self.settle(death.losses, what), death.losses);
        assert!(
            missing <= losses,
            "{what}: {missing} messages lost, {losses} may be"
        );
        self.check_batch(death, what);
        let rest = status(&self.queue);
        let counted = (rest.entry.messages, rest.entry.bytes, rest.leased_bytes);
        assert_eq!(counted, (0, 0, 0), "{what}: counts of an empty queue");
        assert!(!rest.damaged, "{what}: marked as damaged");
    }

    /// Makes all processes notice that waiters are dead, and receives the messages that were offered to them. These messages are back after a slice.
    /// Returns the number of missing messages.
    fn settle(&self, losses: usize, what: &str) -> usize {
        let mut clerk = self.worker(OBSERVER);
        let is_done = wait_until(STUCK, || {
            if self.blocked().1 != 0 {
                let _ = clerk.send(How::Try, WANTED, SHORTEST);
                std::thread::sleep(Duration::from_millis(105));
            }
            while clerk.receive(How::Try, Want::Any).is_ok() {}
            self.blocked() == (0, 0) && self.journal.missing(what) <= losses
        });
        assert!(
            is_done || self.blocked() == (0, 0),
            "{what}: the dead wait for good"
        );
        self.journal.missing(what)
    }

    /// Fails unless the counts of the queue match the messages that were left in it.
    fn check_counts(&self, left: &[usize], counted: (u64, u64), types: &[(i64, u32)], what: &str) {
        let record = |&number: &usize| &self.journal.messages[number];
        let bytes = left
            .iter()
            .map(|number| u64::from(record(number).len.load(SeqCst)))
            .sum();
        assert_eq!(counted, (left.len() as u64, bytes), "{what}: counts");
        let mut by_type = std::collections::BTreeMap::<i64, u32>::new();
        for number in left {
            let mtype = record(number).priority.load(SeqCst);
            *by_type.entry(mtype.into()).or_default() += 1;
        }
        assert!(
            by_type.into_iter().eq(types.iter().copied()),
            "{what}: counts of types"
        );
    }

    /// Checks that the messages of a queue at rest came in order of arrival: those of each sender in its order, and all of them after the older
    /// messages.
    fn check_arrivals(&self, numbers: &[usize], prefilled: usize, what: &str) {
        let sender = |number: usize| self.journal.messages[number].sender.load(SeqCst);
        for (index, &one) in numbers.iter().enumerate() {
            for &other in &numbers[index + 1..] {
                let turned = sender(one) == sender(other) && one > other;
                let late = one >= prefilled && other < prefilled;
                assert!(
                    !turned && !late,
                    "{what}: message {one} was received before {other}"
                );
            }
        }
    }

    /// Fails unless exactly as many messages fit as in a new queue.
    pub(super) fn check_capacity(&self, what: &str) {
        let mut clerk = self.worker(OBSERVER);
        let mut random = Random::new(5);
        let (mut sent, mut bytes) = (0, 0);
        let (refused, len) = loop {
            let (mtype, len) = any(&mut random);
            let len = len.max(SHORTEST);
            match clerk.send(How::Try, mtype, len) {
                Ok(_) => (sent, bytes) = (sent + 1, bytes + len),
                Err(error) => break (error, len),
            }
        };
        assert_eq!(refused, SendError::Full, "{what}");
        assert!(bytes <= QBYTES, "{what}: more fits than should");
        assert!(
            bytes + len > QBYTES,
            "{what}: {bytes} bytes and not {len} more"
        );
        let entry = status(&self.queue).entry;
        assert_eq!(
            (entry.messages, entry.bytes),
            (sent, bytes as u64),
            "{what}"
        );
        let received = self.drain();
        assert_eq!(received.len() as u64, sent, "{what}");
        self.check_arrivals(&received, 0, what);
        assert_eq!(self.journal.missing(what), 0, "{what}: lost at rest");
    }
}
