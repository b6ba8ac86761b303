//! Batches: each thread sees all of a batch or nothing, even if threads die or wait meanwhile.
//!
//! | a defect | its effect here |
//! |---|---|
//! | the first message is stamped first, or a read of the ring trusts a later stamp | part of a batch is seen |
//! | the repair does not remove the later stamps; or it counts only one message of a batch that was sent | messages that were never sent, or a lost one |
//! | the cursor moves by an even number | bytes are counted wrongly |
//! | the room for a blocked batch is not kept, or its turn ends without serving the waiters behind it | a waiter waits without end |

use super::stage::{LATER, Message, Queue, SOON, Slices, alive, explore, polled};
use super::subject::{Subject, explore_death};
use crate::crash::Point;
use crate::model::crash::step;
use crate::model::thread::{self, Thread};
use crate::model::world::{self, Death};
use crate::posix_engine::batch::{Batch, Sink};
use crate::posix_engine::{Refused, Taken};
use crate::sync::spin_hint;
use crate::sys::clock::Deadline;
use crate::waiters::{List, Waiters};

/// The messages of a batch: the bytes of each hold its number.
struct Letters(Vec<([u8; 8], usize)>);

impl Letters {
    fn of(messages: &[Message]) -> Letters {
        let bytes = |&(number, key): &Message| (number.to_ne_bytes(), key);
        Letters(messages.iter().map(bytes).collect())
    }
}

impl Batch for Letters {
    fn len(&self) -> usize {
        self.0.len()
    }

    fn message(&self, index: usize) -> (&[u8], usize) {
        let (bytes, key) = &self.0[index];
        (bytes, *key)
    }
}

/// The messages that a call has received.
#[derive(Default)]
struct Basket {
    room: [u8; 8],
    messages: Vec<Message>,
}

impl Sink for Basket {
    fn place(&mut self, _: usize) -> Option<&mut [u8]> {
        Some(&mut self.room)
    }

    fn taken(&mut self, taken: Taken) {
        assert_eq!(taken.len, 8);
        self.messages
            .push((u64::from_ne_bytes(self.room), taken.key));
    }
}

/// Receives up to `most` messages in one call.
pub(super) fn receive_batch(
    queue: &Queue,
    me: &Thread,
    most: usize,
    by: Deadline,
) -> Result<Vec<Message>, Refused> {
    step();
    let mut basket = Basket::default();
    let count = queue.engine().receive_batch(me, most, &mut basket, by)?;
    assert_eq!(count, basket.messages.len());
    Ok(basket.messages)
}

pub(super) fn send_batch(
    queue: &Queue,
    me: &Thread,
    messages: &[Message],
    by: Deadline,
) -> Result<(), Refused> {
    step();
    queue.engine().send_batch(me, &Letters::of(messages), by)
}

/// Returns the queue's counts of messages and of bytes.
fn counts(queue: &Queue) -> (u64, u64) {
    let counts = queue.engine().counts();
    (counts.messages, counts.bytes)
}

/// Fills the queue with messages of priority 0, numbered from 100.
fn fill(queue: &Queue, messages: u64) {
    queue.direct(|queue, me| {
        for number in 100..100 + messages {
            queue.send(me, (number, 0), Deadline::Passed).unwrap();
        }
    });
}

/// Waits until `count` senders are blocked.
fn wait_for_senders(queue: &Queue, count: u32) {
    while Waiters::of(queue.engine().segment()).len(List::Senders) != count {
        spin_hint();
    }
}

#[test]
fn a_receiver_sees_all_of_a_batch_or_nothing() {
    for priorities in [[0, 0, 0], [0, 2, 1]] {
        let name = format!("batch: {priorities:?}");
        explore(&name, 3, Slices::Endless, move || {
            let queue = Queue::new(3, 3);
            let batch: Vec<Message> = (1..).zip(priorities).collect();
            let mut expected = batch.clone();
            expected.sort_by_key(|message| std::cmp::Reverse(message.1));
            let sender = queue.spawn(1, move |queue, me| {
                send_batch(queue, me, &batch, Deadline::Passed).unwrap();
            });
            queue.direct(|queue, me| {
                let first = polled(|| queue.receive(me, Deadline::Passed));
                let others = [(); 2].map(|()| queue.receive(me, Deadline::Passed).unwrap());
                assert_eq!([first, others[0], others[1]], expected[..]);
            });
            alive(sender);
            assert_eq!(counts(&queue), (0, 0));
            queue.audit();
        });
    }
}

#[test]
fn a_look_finds_nothing_behind_a_gate_that_is_not_stamped() {
    explore("batch: peeking", 3, Slices::Endless, || {
        let queue = Queue::new(3, 3);
        fill(&queue, 1);
        let sender = queue.spawn(1, |queue, me| {
            send_batch(queue, me, &[(1, 0), (2, 0)], Deadline::Passed).unwrap();
        });
        queue.direct(|queue, me| {
            let seen = queue.engine().peek(me, 0, 3).unwrap().iter().count();
            assert!(seen == 1 || seen == 3, "part of a batch");
        });
        alive(sender);
        assert_eq!(counts(&queue), (3, 24));
        assert_eq!(queue.empty(), [(100, 0), (1, 0), (2, 0)]);
        queue.audit();
    });
}

/// The points at which the sender of a batch dies, and whether the batch was sent.
const DEATHS: [(Point, bool); 6] = [
    (Point::BATCH_NOTED, false),
    (Point::BATCH_STAMPED, false),
    (Point::BATCH_PUBLISHED, true),
    (Point::BATCH_COUNTED, true),
    (Point::SEND_COUNTED, true),
    (Point::SEND_UNSERVED, true),
];

#[test]
fn a_batch_whose_sender_dies_is_sent_whole_or_not_at_all() {
    for (point, is_sent) in DEATHS {
        // Each batch has an even number of messages, so the cursor moves in two steps.
        for batch in [[(1, 0), (2, 0)], [(1, 2), (2, 1)]] {
            let name = format!("batch: {batch:?}, death at {point:?}");
            explore(&name, 2, Slices::End, move || {
                let queue = Queue::new(4, 4);
                world::doom(1, Death::At(point), 1);
                let victim = queue.spawn(1, move |queue, me| {
                    send_batch(queue, me, &batch, Deadline::Passed)
                });
                let heir = queue.spawn(2, |queue, me| queue.send(me, (3, 1), Deadline::Never));
                let received =
                    queue.direct(|queue, me| polled(|| queue.receive(me, Deadline::Passed)));
                assert!(thread::join(victim).is_none());
                alive(heir).unwrap();
                let left = counts(&queue);
                let mut all = queue.empty();
                assert_eq!(left, (all.len() as u64, 8 * all.len() as u64));
                all.push(received);
                all.sort_unstable();
                let mut expected = if is_sent { batch.to_vec() } else { vec![] };
                expected.push((3, 1));
                assert_eq!(all, expected);
                queue.audit();
            });
        }
    }
}

#[test]
fn a_repair_of_a_batch_can_be_repaired() {
    explore("batch: two deaths", 2, Slices::End, || {
        let queue = Queue::new(4, 4);
        world::doom(1, Death::At(Point::BATCH_STAMPED), 1);
        world::doom(2, Death::At(Point::BATCH_TAKEN_BACK), 1);
        let victim = queue.spawn(1, |queue, me| {
            send_batch(queue, me, &[(1, 0), (2, 0), (3, 0)], Deadline::Passed)
        });
        assert!(thread::join(victim).is_none());
        let heirs =
            [2, 3].map(|tid| queue.spawn(tid, |queue, me| queue.send(me, (4, 0), Deadline::Never)));
        let [second, third] = heirs.map(thread::join);
        let sent = second.iter().chain(&third).count();
        // One of the threads repairs after the death of the first victim. If that thread is the second victim, it dies during the repair.
        assert!(third.is_some());
        assert_eq!(queue.empty(), vec![(4, 0); sent]);
        queue.audit();
    });
}

#[test]
fn a_blocked_batch_is_sent_once_there_is_room_for_all_of_it() {
    explore("batch: blocked", 2, Slices::Endless, || {
        let queue = Queue::new(2, 2);
        fill(&queue, 2);
        let sender = queue.spawn(1, |queue, me| {
            send_batch(queue, me, &[(1, 1), (2, 0)], Deadline::Never)
        });
        queue.direct(|queue, me| {
            let received = [(); 4].map(|()| queue.receive(me, Deadline::Never).unwrap());
            assert_eq!(received, [(100, 0), (101, 0), (1, 1), (2, 0)]);
        });
        assert_eq!(alive(sender), Ok(()));
        assert_eq!(counts(&queue), (0, 0));
        queue.audit();
    });
}

#[test]
fn a_time_out_and_room_decide_for_one_of_them() {
    explore("batch: time-out", 3, Slices::Endless, || {
        let queue = Queue::new(2, 2);
        fill(&queue, 1);
        let sender = queue.spawn(1, |queue, me| {
            send_batch(queue, me, &[(1, 0), (2, 0)], SOON)
        });
        let first = queue.direct(|queue, me| queue.receive(me, Deadline::Passed));
        assert_eq!(first, Ok((100, 0)));
        let expected = match alive(sender) {
            Ok(()) => vec![(1, 0), (2, 0)],
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
fn room_is_kept_for_a_blocked_batch_and_given_up_with_it() {
    for by in [Deadline::Never, LATER] {
        let name = format!("batch: room that is kept, {by:?}");
        explore(&name, 2, Slices::End, move || {
            let queue = Queue::new(2, 2);
            fill(&queue, 2);
            let sender = queue.spawn(1, move |queue, me| {
                send_batch(queue, me, &[(1, 0), (2, 0)], by)
            });
            wait_for_senders(&queue, 1);
            queue.direct(|queue, me| {
                assert_eq!(queue.receive(me, Deadline::Passed), Ok((100, 0)));
                let newcomer = queue.send(me, (3, 0), Deadline::Passed);
                if by == Deadline::Never {
                    assert_eq!(newcomer, Err(Refused::NotNow), "took the room of a batch");
                    assert_eq!(queue.receive(me, Deadline::Passed), Ok((101, 0)));
                }
            });
            match alive(sender) {
                Ok(()) => assert_eq!(queue.empty(), [(1, 0), (2, 0)]),
                Err(refused) => {
                    assert_eq!(refused, Refused::TimedOut);
                    let sent = queue.direct(|queue, me| queue.send(me, (4, 0), Deadline::Passed));
                    let left = queue.empty();
                    assert_eq!(left.len(), 2, "{sent:?} {left:?}");
                }
            }
            queue.audit();
        });
    }
}

#[test]
fn a_sender_behind_a_batch_goes_on_when_the_batch_gives_up() {
    explore("batch: one behind it", 1, Slices::Endless, || {
        let queue = Queue::new(2, 2);
        fill(&queue, 1);
        let batch = queue.spawn(1, |queue, me| {
            send_batch(queue, me, &[(1, 0), (2, 0)], SOON)
        });
        let single = queue.spawn(2, |queue, me| queue.send(me, (3, 0), Deadline::Never));
        assert_eq!(alive(batch), Err(Refused::TimedOut));
        assert_eq!(alive(single), Ok(()));
        assert_eq!(queue.empty(), [(100, 0), (3, 0)]);
        queue.audit();
    });
}

#[test]
fn a_blocked_batch_whose_sender_dies_stops_no_other() {
    let points = [
        (Point::WAIT_LISTED, false),
        (Point::WAIT_UNNAMED, false),
        (Point::WAIT_NAMED, false),
        (Point::WAIT_WOKEN, false),
        (Point::GROW_LENT, false),
        (Point::BATCH_STAMPED, false),
        (Point::BATCH_PUBLISHED, true),
        (Point::BATCH_COUNTED, true),
    ];
    for (point, is_sent) in points {
        // The sender lock is lent twice: when the batch is enlisted, and when it is sent.
        let nth = 1 + u32::from(point == Point::GROW_LENT);
        let name = format!("batch: blocked, death at {point:?}");
        explore_death(&name, 2, move || {
            let queue = Queue::new(2, 2);
            fill(&queue, 2);
            world::doom(1, Death::At(point), nth);
            let victim = queue.spawn(1, |queue, me| {
                send_batch(queue, me, &[(1, 0), (2, 0)], LATER)
            });
            let (mut all, late) = queue.direct(|queue, me| {
                let received = [(); 2].map(|()| queue.receive(me, Deadline::Never).unwrap());
                (received.to_vec(), queue.send(me, (3, 0), LATER))
            });
            let outcome = thread::join(victim);
            all.extend(queue.empty());
            all.sort_unstable();
            let mut expected = vec![(100, 0), (101, 0)];
            match outcome {
                None if !is_sent => assert_eq!(late, Ok(()), "room is kept for the dead"),
                Some(Err(refused)) => assert_eq!(refused, Refused::TimedOut),
                None | Some(Ok(())) => expected.extend([(1, 0), (2, 0)]),
            }
            if late.is_ok() {
                expected.push((3, 0));
            }
            expected.sort_unstable();
            assert_eq!(all, expected);
            queue.audit();
            outcome.is_none()
        });
    }
}

#[test]
fn a_batch_is_received_whole_and_its_slots_are_filled_again() {
    explore("batch: received", 2, Slices::Endless, || {
        let queue = Queue::new(2, 2);
        let sender = queue.spawn(1, |queue, me| {
            send_batch(queue, me, &[(1, 0), (2, 0)], Deadline::Passed).unwrap();
            send_batch(queue, me, &[(3, 0), (4, 1)], Deadline::Never).unwrap();
        });
        queue.direct(|queue, me| {
            let first = polled(|| receive_batch(queue, me, 2, Deadline::Passed));
            assert_eq!(first, [(1, 0), (2, 0)]);
            let second = receive_batch(queue, me, 3, Deadline::Never).unwrap();
            // A thread that slept gets the best message as an offer, and then takes the other messages.
            assert_eq!(second, [(4, 1), (3, 0)]);
        });
        alive(sender);
        queue.audit();
    });
}

#[test]
fn a_batch_receive_lets_everybody_in_for_whom_it_makes_room() {
    explore(
        "batch: received beside blocked senders",
        1,
        Slices::Endless,
        || {
            let queue = Queue::new(2, 2);
            fill(&queue, 2);
            let senders = [1, 2].map(|tid| {
                queue.spawn(tid, move |queue, me| {
                    queue
                        .send(me, (u64::from(tid), 0), Deadline::Never)
                        .unwrap();
                })
            });
            let mut all = queue.direct(|queue, me| {
                let mut all = Vec::new();
                while all.len() < 4 {
                    all.extend(receive_batch(queue, me, 2, Deadline::Never).unwrap());
                }
                all
            });
            senders.into_iter().for_each(alive);
            assert_eq!(all[..2], [(100, 0), (101, 0)]);
            all[2..].sort_unstable();
            assert_eq!(all[2..], [(1, 0), (2, 0)]);
            queue.audit();
        },
    );
}

#[test]
fn a_receiver_that_dies_in_a_batch_loses_what_it_had_taken() {
    let points = [
        (Point::RECEIVE_COPIED, 2, 1),
        (Point::RECEIVE_RETURNED, 2, 2),
        (Point::RECEIVE_BATCH_TAKEN, 1, 3),
        (Point::RECEIVE_FREED, 1, 3),
        (Point::RECEIVE_ADMITTED, 1, 3),
    ];
    for (point, nth, lost) in points {
        for keys in [[0, 0, 0], [2, 1, 0]] {
            let name = format!("batch: receiver of {keys:?}, death at {point:?}");
            explore(&name, 2, Slices::End, move || {
                let queue = Queue::new(4, 4);
                let before: Vec<Message> = (1..).zip(keys).collect();
                queue.direct(|queue, me| {
                    send_batch(queue, me, &before, Deadline::Passed).unwrap();
                });
                world::doom(1, Death::At(point), nth);
                let victim =
                    queue.spawn(1, |queue, me| receive_batch(queue, me, 3, Deadline::Passed));
                let sender = queue.spawn(2, |queue, me| queue.send(me, (4, 0), Deadline::Never));
                assert!(thread::join(victim).is_none());
                alive(sender).unwrap();
                let mut expected = before[lost..].to_vec();
                expected.push((4, 0));
                assert_eq!(queue.empty(), expected);
                queue.audit();
            });
        }
    }
}
