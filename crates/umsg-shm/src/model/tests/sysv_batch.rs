//! System V queues: each thread sees all of a batch or nothing, even if threads die or wait meanwhile.
//!
//! | a defect | its effect here |
//! |---|---|
//! | the numbers of a batch become valid one after another | a part of the batch is seen, or left behind |
//! | the repair believes numbers beyond the last number in the control block | messages that were never sent |
//! | a blocked batch is not told of room, or not in time | a deadlock |

use super::stage::{LATER, SOON, Slices, alive, explore, polled};
use super::subject::{Subject, explore_death};
use super::sysv_stage::{Message, Queue};
use crate::crash::Point;
use crate::model::thread;
use crate::model::world::{self, Death};
use crate::sys::clock::Deadline;
use crate::sysv_engine::Refused;
use crate::sysv_engine::order::Want;

/// A batch of two types.
const BATCH: [Message; 3] = [(1, 5), (2, 6), (3, 5)];

/// Fills the queue with messages of type 9, numbered from 100.
fn fill(queue: &Queue, messages: u64) {
    queue.direct(|queue, me| {
        for number in 100..100 + messages {
            queue.send(me, (number, 9), Deadline::Passed).unwrap();
        }
    });
}

#[test]
fn a_receiver_sees_all_of_a_batch_or_nothing() {
    explore("typed batch: seen", 3, Slices::Endless, || {
        let queue = Queue::new(3);
        let sender = queue.spawn(1, |queue, me| {
            queue.send_batch(me, &BATCH, Deadline::Passed).unwrap();
        });
        queue.direct(|queue, me| {
            // The message of type 6 is received first.
            let first = polled_typed(|| queue.receive(me, Want::Exactly(6), Deadline::Passed));
            let others = [(); 2].map(|()| queue.receive(me, Want::Any, Deadline::Passed).unwrap());
            assert_eq!((first, others), ((2, 6), [(1, 5), (3, 5)]));
        });
        alive(sender);
        queue.audit();
    });
}

#[test]
fn each_blocked_receiver_gets_its_message_of_a_batch() {
    explore("typed batch: handed over", 1, Slices::Endless, || {
        let queue = Queue::new(3);
        let receivers = [5, 6].map(|mtype| {
            queue.spawn(mtype as u32, move |queue, me| {
                queue.receive(me, Want::Exactly(mtype), Deadline::Never)
            })
        });
        queue.direct(|queue, me| queue.send_batch(me, &BATCH, Deadline::Passed).unwrap());
        assert_eq!(receivers.map(alive), [Ok((1, 5)), Ok((2, 6))]);
        assert_eq!(queue.empty(), [(3, 5)]);
        queue.audit();
    });
}

#[test]
fn a_batch_whose_sender_dies_is_sent_whole_or_not_at_all() {
    let deaths = [
        (Point::MSG_FILLED, 2, false),
        (Point::MSG_BATCH_FILLED, 1, false),
        (Point::MSG_BATCH_FILLED, 3, false),
        (Point::MSG_BATCH_SENT, 1, true),
        (Point::MSG_NOTED, 1, true),
        (Point::MSG_OFFERED, 1, true),
        (Point::MSG_LINKED, 2, true),
    ];
    for (point, nth, is_sent) in deaths {
        let name = format!("typed batch: death at {point:?} {nth}");
        explore_death(&name, 2, move || {
            let queue = Queue::new(4);
            world::doom(1, Death::At(point), nth);
            let victim = queue.spawn(1, |queue, me| {
                queue.send_batch(me, &BATCH, Deadline::Passed)
            });
            let receiver = queue.spawn(2, |queue, me| queue.receive(me, Want::Exactly(5), LATER));
            let victim = thread::join(victim);
            let mut all = Vec::from_iter(alive(receiver));
            all.extend(queue.empty());
            all.sort_unstable();
            let is_sent = is_sent || victim.is_some();
            assert_eq!(all, if is_sent { BATCH.to_vec() } else { vec![] });
            queue.audit();
            victim.is_none()
        });
    }
}

#[test]
fn a_blocked_batch_is_sent_once_there_is_room_for_all_of_it() {
    explore("typed batch: blocked", 2, Slices::Endless, || {
        let queue = Queue::new(3);
        fill(&queue, 2);
        let sender = queue.spawn(1, |queue, me| queue.send_batch(me, &BATCH, Deadline::Never));
        queue.direct(|queue, me| {
            let received = [(); 5].map(|()| queue.receive(me, Want::Any, Deadline::Never).unwrap());
            assert_eq!(received, [(100, 9), (101, 9), (1, 5), (2, 6), (3, 5)]);
        });
        assert_eq!(alive(sender), Ok(()));
        queue.audit();
    });
}

#[test]
fn a_time_out_and_room_decide_for_one_of_them() {
    explore("typed batch: time-out", 3, Slices::Endless, || {
        let queue = Queue::new(3);
        fill(&queue, 1);
        let sender = queue.spawn(1, |queue, me| queue.send_batch(me, &BATCH, SOON));
        let first = queue.direct(|queue, me| queue.receive(me, Want::Any, Deadline::Passed));
        assert_eq!(first, Ok((100, 9)));
        let expected = match alive(sender) {
            Ok(()) => BATCH.to_vec(),
            Err(refused) => {
                assert_eq!(refused, Refused::TimedOut);
                vec![]
            }
        };
        assert_eq!(queue.empty(), expected);
        queue.audit();
    });
}

#[test]
fn a_sender_beside_a_batch_goes_on_whatever_becomes_of_the_batch() {
    explore("typed batch: one beside it", 1, Slices::Endless, || {
        let queue = Queue::new(3);
        fill(&queue, 3);
        let batch = queue.spawn(1, |queue, me| queue.send_batch(me, &BATCH, SOON));
        let single = queue.spawn(2, |queue, me| queue.send(me, (4, 7), Deadline::Never));
        queue.direct(|queue, me| {
            for number in 100..103 {
                let received = queue.receive(me, Want::Exactly(9), Deadline::Passed);
                assert_eq!(received, Ok((number, 9)));
            }
        });
        let mut expected = match alive(batch) {
            Ok(()) => BATCH.to_vec(),
            Err(refused) => {
                assert_eq!(refused, Refused::TimedOut);
                vec![]
            }
        };
        let mut left = Vec::new();
        // The thread may wait for the room that the batch took.
        while !left.contains(&(4, 7)) {
            left.push(
                queue.direct(|queue, me| queue.receive(me, Want::Any, Deadline::Never).unwrap()),
            );
        }
        assert_eq!(alive(single), Ok(()));
        left.extend(queue.empty());
        left.sort_unstable();
        expected.push((4, 7));
        assert_eq!(left, expected);
        queue.audit();
    });
}

#[test]
fn a_batch_is_received_whole_and_its_slots_are_filled_again() {
    explore("typed batch: received", 2, Slices::Endless, || {
        let queue = Queue::new(2);
        let sender = queue.spawn(1, |queue, me| {
            queue
                .send_batch(me, &[(1, 5), (2, 6)], Deadline::Passed)
                .unwrap();
            queue
                .send_batch(me, &[(3, 6), (4, 5)], Deadline::Never)
                .unwrap();
        });
        queue.direct(|queue, me| {
            let first = polled_typed(|| queue.receive_batch(me, 2, Deadline::Passed));
            assert_eq!(first, [(1, 5), (2, 6)]);
            let mut second = queue.receive_batch(me, 3, Deadline::Never).unwrap();
            if second.len() == 1 {
                second.extend(queue.receive_batch(me, 3, Deadline::Passed).unwrap());
            }
            assert_eq!(second, [(3, 6), (4, 5)]);
        });
        alive(sender);
        queue.audit();
    });
}

/// Repeats an attempt until it succeeds.
fn polled_typed<T>(mut attempt: impl FnMut() -> Result<T, Refused>) -> T {
    polled(|| {
        attempt().map_err(|refused| match refused {
            Refused::NotNow => crate::posix_engine::Refused::NotNow,
            other => panic!("{other:?}"),
        })
    })
}
