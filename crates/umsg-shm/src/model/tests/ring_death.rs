//! Death at a ring: of a sender at each of its steps, and of the owner.
//!
//! | a defect | its effect here |
//! |---|---|
//! | the wake word is silenced before the descriptor is readable | a poller sleeps without end although other processes send |
//! | a slice does not count the messages of a dead sender | a wait for that many messages never ends |
//! | a sender that waits for room does not check whether the owner lives | the sender waits without end |

use super::ring_stage::{OWNER, Ring};
use super::stage::{Slices, alive, explore};
use super::subject::{Deaths, Subject};
use crate::crash::Point;
use crate::model::thread;
use crate::model::world::{self, Death};
use crate::posix_engine::{CLOSED, Refused};
use crate::sync::Ordering;
use crate::sys::clock::Deadline;

/// Explores a model in which a process may die. Fails if no execution has such a death.
fn dies(
    name: &str,
    preemptions: usize,
    slices: Slices,
    play: impl Fn() -> bool + Send + Sync + 'static,
) {
    let deaths = Deaths::default();
    deaths.explore(name, preemptions, slices, play);
    deaths.expect(name);
}

/// The points at which a sender dies, and whether its message was sent.
const SENDER: &[(Death, bool)] = &[
    (Death::At(Point::SEND_FILLED), false),
    (Death::At(Point::SEND_PUBLISHED), true),
    (Death::At(Point::SEND_COUNTED), true),
    (Death::At(Point::SEND_UNSERVED), true),
    (Death::At(Point::RING_DUE), true),
    (Death::At(Point::RING_SILENCED), true),
    (Death::Waking, true),
];

#[test]
fn a_sender_that_dies_keeps_no_message_of_another_from_a_sleeper() {
    for &(death, sent) in SENDER {
        let name = format!("ring, death: a sender at {death:?}");
        dies(&name, 1, Slices::End, move || {
            let ring = Ring::new(2, 2);
            world::doom(1, death, 1);
            let owner = ring.own(|ring, me| ring.receive(me, Deadline::Never).unwrap());
            let victim = ring.spawn(1, |ring, me| ring.send(me, 10, Deadline::Passed).unwrap());
            let other = ring.spawn(2, |ring, me| ring.send(me, 20, Deadline::Never).unwrap());
            let died = thread::join(victim).is_none();
            alive(other);
            let first = alive(owner);
            let mut all = ring.close_account();
            all.push(first);
            all.sort_unstable();
            let expected: &[u64] = if sent || !died { &[10, 20] } else { &[20] };
            assert_eq!(all, expected);
            died
        });
    }
}

#[test]
fn a_message_of_the_dead_that_was_sent_ends_a_wait_for_as_many() {
    for &(death, sent) in SENDER.iter().filter(|(_, sent)| *sent) {
        assert!(sent);
        let name = format!("ring, death: the second of two senders at {death:?}");
        dies(&name, 2, Slices::End, move || {
            let ring = Ring::new(2, 2);
            ring.direct(|ring, me| ring.send(me, 10, Deadline::Passed).unwrap());
            world::doom(1, death, 1);
            let owner = ring.own(|ring, me| {
                ring.wait(me, 2, Deadline::Never).unwrap();
                ring.engine().available()
            });
            let victim = ring.spawn(1, |ring, me| ring.send(me, 20, Deadline::Passed).unwrap());
            let died = thread::join(victim).is_none();
            assert_eq!(alive(owner), 2);
            assert_eq!(ring.close_account(), [10, 20]);
            died
        });
    }
}

#[test]
fn a_sender_that_dies_keeps_no_message_of_another_from_a_poller() {
    // A poller does not check the ring by itself: another sender has to ring.
    for death in [
        Point::SEND_FILLED,
        Point::SEND_PUBLISHED,
        Point::SEND_COUNTED,
        Point::SEND_UNSERVED,
        Point::RING_DUE,
        Point::RING_PULLED,
    ] {
        let name = format!("ring, death: a sender to who polls at {death:?}");
        dies(&name, 1, Slices::Endless, move || {
            let ring = Ring::new(2, 2);
            world::doom(1, Death::At(death), 1);
            let owner = ring.own(|ring, me| {
                let mut received = Vec::new();
                while !received.contains(&20) {
                    received.push(ring.receive_polled(me).unwrap());
                }
                received
            });
            let victim = ring.spawn(1, |ring, me| ring.send(me, 10, Deadline::Passed).unwrap());
            let other = ring.spawn(2, |ring, me| ring.send(me, 20, Deadline::Never).unwrap());
            let died = thread::join(victim).is_none();
            alive(other);
            let mut all = alive(owner);
            all.extend(ring.close_account());
            all.sort_unstable();
            let sent = !died || death != Point::SEND_FILLED;
            let expected: &[u64] = if sent { &[10, 20] } else { &[20] };
            assert_eq!(all, expected);
            died
        });
    }
}

#[test]
fn a_sender_that_waits_for_room_learns_that_the_owner_has_died() {
    for death in [
        Point::RECEIVE_COPIED,
        Point::RECEIVE_TAKEN,
        Point::RECEIVE_FREED,
        Point::RECEIVE_ADMITTED,
        Point::RING_ARMED,
    ] {
        let name = format!("ring, death: the owner at {death:?}");
        dies(&name, 1, Slices::End, move || {
            let ring = Ring::new(1, 1);
            ring.direct(|ring, me| ring.send(me, 10, Deadline::Passed).unwrap());
            world::doom(OWNER, Death::At(death), 1);
            let owner = ring.own(|ring, me| {
                loop {
                    ring.receive(me, Deadline::Never).unwrap();
                }
            });
            let sender = ring.spawn(1, |ring, me| {
                (11..).find_map(|number| ring.send(me, number, Deadline::Never).err())
            });
            assert!(thread::join::<()>(owner).is_none());
            assert_eq!(alive(sender), Some(Refused::TimedOut));
            ring.close_account();
            true
        });
    }
}

#[test]
fn senders_that_wait_for_room_learn_that_the_ring_is_closed() {
    explore("ring: closed", 1, Slices::End, || {
        let ring = Ring::new(1, 1);
        ring.direct(|ring, me| ring.send(me, 10, Deadline::Passed).unwrap());
        let sender = ring.spawn(1, |ring, me| ring.send(me, 11, Deadline::Never));
        let batch = ring.spawn(2, |ring, me| ring.send_batch(me, &[12], Deadline::Never));
        ring.direct(|ring, me| {
            ring.engine().segment().fixed().ownership.close();
            ring.engine().wake_senders(me);
        });
        assert_eq!(alive(sender), Err(Refused::TimedOut));
        assert_eq!(alive(batch), Err(Refused::TimedOut));
        assert_eq!(ring.close_account(), [10]);
    });
}
