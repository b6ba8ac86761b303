//! The wake word of a ring: sleeping for messages, and polling for them.
//!
//! | a defect | its effect here |
//! |---|---|
//! | no barrier between the store to the wake word and the next check of the ring, or no such check; the sender does not read the wake word | a deadlock |
//! | a sender wakes the receiver one message too early, or for each message | a wake-up that is not needed |
//! | a batch that had to wait for its turn does not wake the receiver | a deadlock |

use super::ring_stage::Ring;
use super::stage::{Slices, alive, explore};
use super::subject::Subject;
use crate::model::thread::Thread;
use crate::posix_engine::Refused;
use crate::sys::clock::Deadline;

/// Receives this many messages.
fn receive(ring: &Ring, me: &Thread, count: usize) -> Vec<u64> {
    (0..count)
        .map(|_| ring.receive(me, Deadline::Never).unwrap())
        .collect()
}

/// Checks that the messages of each sender were received in the order in which it sent them. The tens digit of a message's number identifies the
/// sender.
fn assert_in_order(received: &[u64], expected: &[u64]) {
    for sender in 0..4 {
        let of = received.iter().filter(|number| **number / 10 == sender);
        assert!(of.is_sorted(), "{received:?}");
    }
    let mut all = received.to_vec();
    all.sort_unstable();
    assert_eq!(all, expected);
}

#[test]
fn many_senders_wake_one_receiver_and_keep_their_order() {
    explore("ring: two senders", 1, Slices::Endless, || {
        let ring = Ring::new(3, 3);
        let owner = ring.own(|ring, me| receive(ring, me, 3));
        let other = ring.spawn(1, |ring, me| {
            ring.send(me, 10, Deadline::Passed).unwrap();
        });
        ring.direct(|ring, me| {
            ring.send(me, 20, Deadline::Passed).unwrap();
            ring.send(me, 21, Deadline::Passed).unwrap();
        });
        alive(other);
        assert_in_order(&alive(owner), &[10, 20, 21]);
        assert!(ring.close_account().is_empty());
    });
}

#[test]
fn a_receiver_that_waits_for_two_is_woken_once_and_not_before() {
    explore("ring: two of two senders", 2, Slices::Endless, || {
        let ring = Ring::new(2, 2);
        let owner = ring.own(|ring, me| {
            ring.wait(me, 2, Deadline::Never).unwrap();
            assert_eq!(ring.engine().available(), 2, "woken too early");
            assert!(ring.turns() <= 2, "woken in vain");
        });
        let other = ring.spawn(1, |ring, me| {
            ring.send(me, 10, Deadline::Passed).unwrap();
        });
        ring.direct(|ring, me| ring.send(me, 20, Deadline::Passed).unwrap());
        alive(other);
        alive(owner);
        assert_in_order(&ring.close_account(), &[10, 20]);
    });
}

#[test]
fn a_batch_wakes_the_receiver_that_waits_for_a_part_of_it_once() {
    explore("ring: two of a batch", 3, Slices::Endless, || {
        let ring = Ring::new(3, 3);
        let owner = ring.own(|ring, me| {
            ring.wait(me, 2, Deadline::Never).unwrap();
            assert_eq!(ring.engine().available(), 3, "part of a batch");
            assert!(ring.turns() <= 2, "woken in vain");
        });
        ring.direct(|ring, me| {
            ring.send_batch(me, &[10, 11, 12], Deadline::Passed)
                .unwrap()
        });
        alive(owner);
        assert_eq!(ring.close_account(), [10, 11, 12]);
    });
}

#[test]
fn a_wait_that_ends_by_time_says_what_there_is() {
    explore("ring: time-out", 3, Slices::Endless, || {
        let ring = Ring::new(2, 2);
        let owner = ring.own(|ring, me| {
            let waited = ring.wait(me, 1, super::stage::SOON);
            let taken = ring.take(me);
            match waited {
                Ok(()) => assert_eq!(taken, Ok(10)),
                Err(refused) => assert_eq!(refused, Refused::TimedOut),
            }
            // If the previous wait timed out, the sender may ring for it late. That ring must not end the next wait too early.
            taken.or_else(|_| ring.receive(me, Deadline::Never))
        });
        ring.direct(|ring, me| ring.send(me, 10, Deadline::Passed).unwrap());
        assert_eq!(alive(owner), Ok(10));
        assert!(ring.close_account().is_empty());
    });
}

#[test]
fn messages_beyond_the_entries_keep_their_order_until_there_is_room_again() {
    explore("ring: overflow", 1, Slices::Endless, || {
        // The ring has one entry. Three more messages do not fit, so the ring is doubled twice for them.
        let ring = Ring::new(3, 1);
        let owner = ring.own(|ring, me| receive(ring, me, 4));
        ring.direct(|ring, me| {
            for number in 10..14 {
                ring.send(me, number, Deadline::Never).unwrap();
            }
        });
        assert_eq!(alive(owner), [10, 11, 12, 13]);
        assert!(ring.close_account().is_empty());
    });
}

#[test]
fn a_full_ring_lets_its_senders_in_one_after_the_other() {
    explore("ring: full", 1, Slices::Endless, || {
        let ring = Ring::new(1, 1);
        ring.direct(|ring, me| ring.send(me, 0, Deadline::Passed).unwrap());
        let owner = ring.own(|ring, me| receive(ring, me, 3));
        let senders = [1, 2].map(|tid| {
            ring.spawn(tid, move |ring, me| {
                let number = u64::from(tid) * 10;
                ring.send(me, number, Deadline::Never).unwrap();
            })
        });
        senders.into_iter().for_each(alive);
        assert_in_order(&alive(owner), &[0, 10, 20]);
        assert!(ring.close_account().is_empty());
    });
}

#[test]
fn a_full_ring_refuses_a_sender_that_does_not_wait() {
    explore("ring: refused", 3, Slices::Endless, || {
        let ring = Ring::new(1, 1);
        ring.direct(|ring, me| ring.send(me, 10, Deadline::Passed).unwrap());
        let owner = ring.own(|ring, me| ring.receive(me, Deadline::Never));
        let sent = ring.direct(|ring, me| ring.send(me, 11, Deadline::Passed));
        assert_eq!(alive(owner), Ok(10));
        match sent {
            Ok(()) => assert_eq!(ring.close_account(), [11]),
            Err(refused) => {
                assert_eq!(refused, Refused::NotNow);
                assert!(ring.close_account().is_empty());
            }
        }
    });
}

#[test]
fn a_batch_that_has_waited_for_its_turn_rings() {
    explore("ring: a blocked batch", 2, Slices::Endless, || {
        let ring = Ring::new(2, 2);
        ring.direct(|ring, me| ring.send(me, 10, Deadline::Passed).unwrap());
        let owner = ring.own(|ring, me| receive(ring, me, 3));
        ring.direct(|ring, me| ring.send_batch(me, &[20, 21], Deadline::Never).unwrap());
        assert_eq!(alive(owner), [10, 20, 21]);
        assert!(ring.close_account().is_empty());
    });
}

#[test]
fn a_poller_and_a_sender_see_each_other() {
    explore("ring: polling", 2, Slices::Endless, || {
        let ring = Ring::new(2, 2);
        let owner = ring.own(|ring, me| [(); 2].map(|()| ring.receive_polled(me).unwrap()));
        ring.direct(|ring, me| {
            ring.send(me, 10, Deadline::Passed).unwrap();
            ring.send(me, 11, Deadline::Passed).unwrap();
        });
        assert_eq!(alive(owner), [10, 11]);
        assert!(ring.close_account().is_empty());
    });
}

#[test]
fn of_two_senders_that_make_a_descriptor_readable_none_is_missed() {
    explore("ring: polling, two senders", 2, Slices::Endless, || {
        let ring = Ring::new(2, 2);
        let owner = ring.own(|ring, me| vec![ring.receive_polled(me), ring.receive_polled(me)]);
        let other = ring.spawn(1, |ring, me| ring.send(me, 10, Deadline::Passed));
        ring.direct(|ring, me| ring.send(me, 20, Deadline::Passed).unwrap());
        assert_eq!(alive(other), Ok(()));
        let received: Vec<u64> = alive(owner).into_iter().map(Result::unwrap).collect();
        assert_in_order(&received, &[10, 20]);
        assert!(ring.close_account().is_empty());
    });
}

#[test]
fn a_wait_takes_the_bell_from_the_descriptor_and_misses_nothing() {
    explore("ring: polling, then waiting", 3, Slices::Endless, || {
        let ring = Ring::new(2, 2);
        let owner = ring.own(|ring, me| {
            ring.engine().arm_for_polling(me);
            receive(ring, me, 1)
        });
        ring.direct(|ring, me| ring.send(me, 10, Deadline::Passed).unwrap());
        assert_eq!(alive(owner), [10]);
        assert!(ring.close_account().is_empty());
    });
}
