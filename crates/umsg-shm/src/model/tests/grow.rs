//! Adding slots while senders and receivers work: the ring is doubled meanwhile.
//!
//! | a defect | its effect here |
//! |---|---|
//! | the ring's lower half is not copied, or after the mask is stored; a check does not compare the mask again | a queue that is not empty is reported as empty |
//! | a slot is freed, or taken, without ordering | a race on the message |
//! | growing, or parking a message, without the loan of the sender lock | a race on the cursors |

use super::stage::{Queue, Slices, alive, explore, polled};
use super::subject::Subject;
use crate::sys::clock::Deadline;

#[test]
fn a_receiver_does_not_notice_that_the_ring_is_doubled() {
    explore("grow: under a receiver", 2, Slices::Endless, || {
        let queue = Queue::new(3, 2);
        // This message has position 0, so the messages of the sender begin at the second of the two entries of the ring.
        queue.direct(|queue, me| {
            queue.send(me, (0, 0), Deadline::Passed).unwrap();
            assert_eq!(queue.receive(me, Deadline::Passed), Ok((0, 0)));
        });
        let sender = queue.spawn(1, |queue, me| {
            for number in 1..=3 {
                queue.send(me, (number, 0), Deadline::Never).unwrap();
            }
        });
        let received = queue
            .direct(|queue, me| [(); 3].map(|()| polled(|| queue.receive(me, Deadline::Passed))));
        assert_eq!(received, [(1, 0), (2, 0), (3, 0)]);
        alive(sender);
        queue.audit();
    });
}

#[test]
fn what_is_there_is_seen_while_the_ring_is_doubled() {
    explore("grow: beside a look", 3, Slices::Endless, || {
        let queue = Queue::new(3, 2);
        // These messages have the positions 2 and 3, which the doubled ring maps to other entries.
        queue.direct(|queue, me| {
            for number in 0..4 {
                queue.send(me, (number, 0), Deadline::Passed).unwrap();
                if number < 2 {
                    queue.receive(me, Deadline::Passed).unwrap();
                }
            }
        });
        let sender = queue.spawn(1, |queue, me| queue.send(me, (4, 0), Deadline::Never));
        let received = queue.direct(|queue, me| queue.receive(me, Deadline::Passed));
        assert_eq!(received, Ok((2, 0)));
        assert_eq!(alive(sender), Ok(()));
        assert_eq!(queue.empty(), [(3, 0), (4, 0)]);
        queue.audit();
    });
}

#[test]
fn two_senders_that_find_no_slot_both_get_one() {
    explore("grow: two senders", 2, Slices::Endless, || {
        let queue = Queue::new(4, 1);
        let senders = [1, 2].map(|tid| {
            queue.spawn(tid, move |queue, me| {
                let number = u64::from(tid) * 10;
                queue.send(me, (number, 0), Deadline::Never).unwrap();
                queue.send(me, (number + 1, 0), Deadline::Never).unwrap();
            })
        });
        senders.into_iter().for_each(alive);
        let mut received = queue.empty();
        let of = |tid: u64| received.iter().filter(move |message| message.0 / 10 == tid);
        assert!(of(1).is_sorted() && of(2).is_sorted(), "{received:?}");
        received.sort_unstable();
        assert_eq!(received, [(10, 0), (11, 0), (20, 0), (21, 0)]);
        queue.audit();
    });
}

#[test]
fn a_blocked_sender_brings_a_slot_for_its_own_message() {
    blocked_senders(2, &[1]);
}

#[test]
fn blocked_senders_bring_a_slot_each() {
    blocked_senders(0, &[1, 2]);
}

/// Explores senders that are all blocked because one message fills the queue.
fn blocked_senders(preemptions: usize, senders: &'static [u32]) {
    let name = format!("grow: for blocked senders, {}", senders.len());
    explore(&name, preemptions, Slices::Endless, move || {
        let queue = Queue::new(1, 1);
        queue.direct(|queue, me| queue.send(me, (0, 0), Deadline::Passed).unwrap());
        let spawn = |&tid: &u32| {
            queue.spawn(tid, move |queue, me| {
                queue
                    .send(me, (u64::from(tid), 0), Deadline::Never)
                    .unwrap();
            })
        };
        let blocked: Vec<_> = senders.iter().map(spawn).collect();
        let mut received: Vec<_> = queue.direct(|queue, me| {
            let receive = |_| queue.receive(me, Deadline::Never).unwrap();
            (0..=senders.len()).map(receive).collect()
        });
        blocked.into_iter().for_each(alive);
        assert_eq!(received[0], (0, 0));
        received.sort_unstable();
        let mut expected = vec![(0, 0)];
        expected.extend(senders.iter().map(|&tid| (u64::from(tid), 0)));
        assert_eq!(received, expected);
        queue.audit();
    });
}
