//! Peeking at several messages while other messages are sent. All messages that are peeked at were queued at one instant, and are in order of
//! delivery.
//!
//! | a defect | its effect here |
//! |---|---|
//! | the one-priority word is not read again after the ring | a message follows one of a lower priority |

use super::stage::{Message, Queue, Slices, alive, explore};
use super::subject::Subject;
use crate::sys::clock::Deadline;
use loom::sync::atomic::{AtomicUsize, Ordering};
use std::sync::Arc;

/// Inspects a queue while a sender sends messages of these priorities, and checks that the messages found were queued at one instant. The first
/// `before` messages are sent before the inspection.
fn is_of_one_instant(name: &str, before: usize, priorities: &'static [usize]) {
    explore(name, 2, Slices::Endless, move || {
        let queue = Queue::new(priorities.len() + 1, priorities.len() + 1);
        let returned = Arc::new(AtomicUsize::new(before));
        let messages = || (0_u64..).zip(priorities.iter().copied());
        queue.direct(|queue, me| {
            for message in messages().take(before) {
                queue.send(me, message, Deadline::Passed).unwrap();
            }
        });
        let sender = {
            let returned = Arc::clone(&returned);
            queue.spawn(1, move |queue, me| {
                for message in messages().skip(before) {
                    queue.send(me, message, Deadline::Passed).unwrap();
                    returned.store(message.0 as usize + 1, Ordering::Release);
                }
            })
        };
        let least = returned.load(Ordering::Acquire);
        let seen = look(&queue);
        assert!(seen.len() >= least, "{seen:?} lacks what was sent before");
        let mut sent: Vec<Message> = messages().take(seen.len()).collect();
        sent.sort_by_key(|(_, priority)| std::cmp::Reverse(*priority));
        assert_eq!(seen, sent, "never were just these queued");
        alive(sender);
        assert_eq!(queue.empty().len(), priorities.len());
        queue.audit();
    });
}

fn look(queue: &Queue) -> Vec<Message> {
    queue.direct(|queue, me| {
        let look = queue.engine().peek(me, 0, usize::MAX).unwrap();
        let number = |bytes: &[u8]| u64::from_ne_bytes(bytes.try_into().unwrap());
        look.iter()
            .map(|(seen, bytes)| (number(bytes), seen.key))
            .collect()
    })
}

#[test]
fn what_is_sent_during_a_look_is_in_it_wholly_or_not_at_all() {
    is_of_one_instant("look: one priority", 1, &[1, 1, 1]);
    is_of_one_instant("look: a higher priority", 1, &[1, 1, 2]);
    is_of_one_instant("look: up and down", 1, &[0, 3, 0]);
    is_of_one_instant("look: an empty queue", 0, &[2, 3]);
}
