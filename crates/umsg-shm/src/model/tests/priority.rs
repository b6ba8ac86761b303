//! The one-priority word: messages of one priority are taken straight from the ring, and yet no message overtakes a message of a higher priority
//! whose send had returned.
//!
//! | a defect | its effect here |
//! |---|---|
//! | another priority is not announced, or is announced one position too early | a message overtakes one of a higher priority |
//! | the fast path is taken although the store holds messages | a message overtakes one of a higher priority |
//! | the repair leaves the cursor behind a stamp, or looks for the stamp only in the slot that the entry names, which may be another slot by now | a message is lost |

use super::stage::{Message, Queue, Slices, alive, explore, polled};
use super::subject::Subject;
use crate::crash::Point;
use crate::model::thread::{self, Thread};
use crate::model::world::{self, Death};
use crate::sys::clock::Deadline;
use loom::sync::atomic::{AtomicUsize, Ordering};
use std::sync::Arc;

/// A queue, the messages that are sent, and the number of sends that have returned.
struct Log {
    queue: Queue,
    messages: Vec<Message>,
    returned: AtomicUsize,
}

impl Log {
    /// Makes a queue, and messages of these priorities that are numbered from 0.
    fn of(priorities: &[usize]) -> Arc<Log> {
        Arc::new(Log {
            queue: Queue::new(priorities.len() + 1, priorities.len() + 1),
            messages: priorities
                .iter()
                .enumerate()
                .map(|(number, &priority)| (number as u64, priority))
                .collect(),
            returned: AtomicUsize::new(0),
        })
    }

    fn send(&self, me: &Thread, message: Message) {
        self.queue.send(me, message, Deadline::Passed).unwrap();
        self.returned
            .store(message.0 as usize + 1, Ordering::Release);
    }

    fn send_all(&self, me: &Thread) {
        for &message in &self.messages {
            self.send(me, message);
        }
    }

    /// Receives all messages. A message that was sent before a call to receive must not have a higher priority than the message that the call
    /// returns.
    fn receive_all(&self, me: &Thread) {
        let mut left = self.messages.clone();
        while !left.is_empty() {
            let (returned, received) = polled(|| {
                let returned = self.returned.load(Ordering::Acquire);
                let received = self.queue.receive(me, Deadline::Passed)?;
                Ok((returned, received))
            });
            for &(number, priority) in &left {
                let better = priority > received.1 || priority == received.1 && number < received.0;
                assert!(
                    number as usize >= returned || !better,
                    "{received:?} overtook {:?}",
                    (number, priority)
                );
            }
            left.retain(|&message| message != received);
        }
    }
}

/// Checks the order of messages between one sender and one receiver.
fn keeps_order(name: &str, priorities: &'static [usize]) {
    explore(name, 2, Slices::Endless, move || {
        let log = Log::of(priorities);
        let sender = {
            let log = Arc::clone(&log);
            thread::spawn(1, move |me| log.send_all(me))
        };
        log.queue.direct(|_, me| log.receive_all(me));
        alive(sender);
        log.queue.audit();
    });
}

#[test]
fn a_higher_priority_comes_first_once_its_send_has_returned() {
    keeps_order("priority: up", &[0, 3]);
    keeps_order("priority: up and down", &[0, 3, 0]);
    keeps_order("priority: down and up", &[3, 0, 3]);
}

#[test]
fn a_higher_priority_is_seen_behind_a_backlog() {
    explore("priority: behind a backlog", 3, Slices::Endless, || {
        let log = Log::of(&[1, 1, 2]);
        // The one-priority word does not change during these sends, so they take the fast path.
        log.queue.direct(|queue, me| {
            log.send(me, log.messages[0]);
            log.send(me, log.messages[1]);
            assert_eq!(queue.receive(me, Deadline::Passed), Ok((0, 1)));
        });
        let sender = {
            let log = Arc::clone(&log);
            thread::spawn(1, move |me| log.send(me, log.messages[2]))
        };
        log.queue.direct(|queue, me| {
            let returned = log.returned.load(Ordering::Acquire);
            let first = queue.receive(me, Deadline::Passed).unwrap();
            if returned == 3 {
                assert_eq!(first, (2, 2));
            }
            let second = polled(|| queue.receive(me, Deadline::Passed));
            assert_ne!(first, second);
        });
        alive(sender);
        log.queue.audit();
    });
}

#[test]
fn what_a_dead_sender_announced_misleads_no_receiver() {
    for point in [
        Point::SEND_FILLED,
        Point::SEND_RUN_CHANGED,
        Point::SEND_PUBLISHED,
        Point::SEND_COUNTED,
    ] {
        for heir_priority in [1, 3] {
            let name = format!("priority: death at {point:?}, then {heir_priority}");
            explore(&name, 2, Slices::End, move || {
                let log = Log::of(&[1, 3, heir_priority]);
                log.queue.direct(|_, me| log.send(me, log.messages[0]));
                world::doom(1, Death::At(point), 1);
                let victim = {
                    let log = Arc::clone(&log);
                    thread::spawn(1, move |me| {
                        log.queue
                            .send(me, log.messages[1], Deadline::Never)
                            .unwrap();
                    })
                };
                let heir = {
                    let log = Arc::clone(&log);
                    thread::spawn(2, move |me| {
                        log.queue
                            .send(me, log.messages[2], Deadline::Never)
                            .unwrap();
                        log.returned.store(3, Ordering::Release);
                    })
                };
                let received = log.queue.direct(|queue, me| {
                    let returned = log.returned.load(Ordering::Acquire);
                    let first = queue.receive(me, Deadline::Passed).unwrap();
                    if returned == 3 {
                        assert!(first.1 == 3 || log.messages[2].1 == 1, "{first:?}");
                    }
                    first
                });
                // If thread 2, the heir, sent before the victim, the heir's message has announced the priority, so the victim did not pass the point.
                let died = thread::join(victim).is_none();
                assert!(died || point == Point::SEND_RUN_CHANGED && heir_priority == 3);
                alive(heir);
                let mut rest = log.queue.empty();
                // The messages that remain in the queue at the end are in order.
                assert!(rest.is_sorted_by(|a, b| a.1 >= b.1), "{rest:?}");
                rest.push(received);
                rest.sort_unstable();
                let mut expected = log.messages.clone();
                if died && matches!(point, Point::SEND_FILLED | Point::SEND_RUN_CHANGED) {
                    expected.remove(1);
                }
                assert_eq!(rest, expected);
                log.queue.audit();
            });
        }
    }
}
