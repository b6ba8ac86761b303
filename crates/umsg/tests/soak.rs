//! Four senders, four receivers, and a supervisor that kills and stops them at random. Some send and receive in place: what
//! they hold when they are killed has to come back.
//!
//! At the end nothing may be missing but what a killed receiver may have held, nothing may have come twice, nobody may
//! have been stuck, and the queue's own counters must agree. Five seconds for each;
//! `UMSG_SOAK_SECONDS` asks for another time.

mod support;

use std::sync::atomic::Ordering::SeqCst;
use std::time::Duration;
use support::harass::{
    Harassed, SENDERS, SUPERVISOR, WORKERS, Work, harass, how, rest, time, waiting,
};
use support::journal::{Actor, How, Journal};
use support::place::Place;
use support::shared::Shared;
use support::{Random, now, turn, wait_until};
use umsg::posix::{Lease, Queue, ReceiveError, SendError};

/// The longest message, in bytes.
const SIZE: usize = 200;

fn send_for_ever(actor: &mut Actor<'_>, random: &mut Random) {
    while actor.me().go.load(SeqCst) == 0 {
        let priority = match random.below(3) {
            0 => 0,
            1 => random.below(4) as u16,
            _ => random.below(32_768) as u16,
        };
        let how = how(random);
        let sent = match actor.send(how, priority, 1 + random.below(SIZE as u64) as usize) {
            Ok(_) => true,
            Err(SendError::Full | SendError::TimedOut | SendError::Interrupted) => false,
            Err(error) => panic!("send: {error}"),
        };
        rest(random, sent);
    }
}

/// As [`send_for_ever`], in place: with one or two reservations at a time, some of which are given back.
fn send_in_place_for_ever(actor: &mut Actor<'_>, random: &mut Random) {
    while actor.me().go.load(SeqCst) == 0 {
        let len = 4 + random.below(SIZE as u64 - 4) as usize;
        let rooms: Vec<_> = (0..=random.below(2))
            .map_while(|_| match actor.reserve(how(random), len) {
                Ok(room) => Some(room),
                Err(SendError::Full | SendError::TimedOut | SendError::Interrupted) => None,
                Err(error) => panic!("reserve: {error}"),
            })
            .collect();
        let reserved = !rooms.is_empty();
        for room in rooms {
            let (priority, len) = (random.below(5) as u16, random.below(len as u64) as usize);
            if random.below(8) != 0 {
                actor.commit(room, priority, len).expect("a reservation");
            }
        }
        rest(random, reserved);
    }
}

/// As [`receive_for_ever`], in place: a few leases at a time, most of which are acknowledged; some are returned, and some
/// may have ended by themselves.
fn receive_in_place_for_ever(actor: &mut Actor<'_>, random: &mut Random) {
    while actor.me().go.load(SeqCst) == 0 {
        let leases: Vec<_> = (0..=random.below(4))
            .map_while(|_| match actor.lease(how(random)) {
                Ok(lease) => Some(lease),
                Err(ReceiveError::Empty | ReceiveError::TimedOut | ReceiveError::Interrupted) => {
                    None
                }
                Err(error) => panic!("lease: {error}"),
            })
            .collect();
        let leased = !leases.is_empty();
        for lease in leases {
            match random.below(8) {
                0 => drop(lease),
                1 => end_by_itself(lease),
                _ => drop(actor.acknowledge(lease).expect("a lease without a limit")),
            }
        }
        rest(random, leased);
    }
}

/// Lets a lease end by itself, and does not wait for that.
fn end_by_itself(lease: Lease<'_>) {
    lease.limit(Duration::from_millis(1)).expect("a lease");
    std::mem::forget(lease);
}

fn receive_for_ever(actor: &mut Actor<'_>, random: &mut Random) {
    while actor.me().go.load(SeqCst) == 0 {
        let received = match actor.receive(how(random)) {
            Ok(_) => true,
            Err(ReceiveError::Empty | ReceiveError::TimedOut | ReceiveError::Interrupted) => false,
            Err(error) => panic!("receive: {error}"),
        };
        rest(random, received);
    }
}

struct Soak {
    /// Whether every other worker sends and receives in place.
    in_place: bool,
    place: Place,
    queue: Queue,
    journal: Shared<Journal>,
}

impl Work for Soak {
    fn play(&self, role: usize, random: &mut Random) {
        let queue = self.place.open("/soak");
        queue.set_waiting(waiting(random));
        let mut actor = Actor::new(&queue, &self.journal, role, SIZE);
        match (role < SENDERS, role % 2 == 1 && self.in_place) {
            (true, false) => send_for_ever(&mut actor, random),
            (true, true) => send_in_place_for_ever(&mut actor, random),
            (false, false) => receive_for_ever(&mut actor, random),
            (false, true) => receive_in_place_for_ever(&mut actor, random),
        }
    }

    fn lacks(&self) -> Option<(bool, bool)> {
        let held = self.queue.attributes();
        let taken = held.messages + held.reserved + held.leased;
        Some((taken >= held.max_messages, held.messages == 0))
    }

    fn describe(&self) -> String {
        format!("{:?}", self.queue.status())
    }
}

impl Soak {
    fn new(depth: u32, in_place: bool) -> Soak {
        let place = Place::new();
        let queue = place.create("/soak", depth, SIZE as u32);
        Soak {
            in_place,
            place,
            queue,
            journal: Shared::new(),
        }
    }

    fn judge(&self, harassed: &Harassed, what: &str) {
        let mut actor = Actor::new(&self.queue, &self.journal, SUPERVISOR, SIZE);
        let mut left = 0;
        let is_done = wait_until(Duration::from_secs(3), || {
            // A receiver whose death nobody noticed gets this one offered, and loses it again after a slice.
            let _ = actor.send(How::Within(Duration::from_millis(1)), 0, 8);
            while actor.receive(How::Try).is_ok() {
                left += 1;
            }
            let status = self.queue.status();
            let held = status.attributes.reserved + status.attributes.leased;
            let blocked = status.blocked_receivers != 0 || held != 0;
            if blocked {
                std::thread::sleep(Duration::from_millis(105));
            }
            !blocked
        });
        assert!(
            is_done,
            "{what}: the dead are offered or hold something for good"
        );
        let status = self.queue.status();
        let missing = self.journal.missing(what);
        eprintln!(
            "soak, {what}: {harassed}; {} messages sent and {} received, {missing} lost with their receivers, {left} left at \
             the end; {} and {} repairs, {} slots",
            self.journal.used(),
            self.journal.received(),
            status.statistics.sender_repairs,
            status.statistics.receiver_repairs,
            status.slots,
        );
        let most = harassed.in_dead_hands;
        assert!(missing <= most, "{what}: {missing} messages lost");
        assert!(!status.damaged, "{what}: marked as damaged");
        let attributes = status.attributes;
        assert_eq!((attributes.messages, attributes.bytes), (0, 0), "{what}");
        assert_eq!(
            (status.blocked_senders, status.blocked_receivers),
            (0, 0),
            "{what}"
        );
        self.check_capacity(what);
    }

    /// No slot was lost: the queue takes as many messages as at first.
    fn check_capacity(&self, what: &str) {
        let depth = self.queue.attributes().max_messages;
        for _ in 0..2 {
            let fit = (0..=depth)
                .take_while(|_| self.queue.try_send(&[7; 150], 1).is_ok())
                .count();
            assert_eq!(fit, depth, "{what}");
            let left = std::iter::from_fn(|| self.queue.try_receive(&mut [0; SIZE]).ok()).count();
            assert_eq!(left, depth, "{what}");
        }
        let slots = self.queue.status().slots;
        // At least a page of slots; a sixteenth at a time; and what waiters and offers hold.
        assert!(
            slots <= depth + depth / 16 + 2 * 32 + WORKERS,
            "{what}: {slots} slots"
        );
    }
}

fn soak(depth: u32, in_place: bool, what: &str) {
    let _turn = turn();
    let seed = now();
    eprintln!("soak, {what}: seed {seed}");
    let soak = Soak::new(depth, in_place);
    let harassed = harass(&soak, &soak.journal, seed, time() / 2);
    soak.judge(&harassed, what);
}

#[test]
fn random_kills_around_a_shallow_queue_lose_nothing_and_stop_nobody() {
    soak(10, false, "10 messages deep");
}

#[test]
fn random_kills_around_a_deep_queue_lose_nothing_and_stop_nobody() {
    soak(1000, false, "1000 messages deep");
}

#[test]
fn random_kills_of_those_that_hold_messages_in_place_lose_nothing_and_stop_nobody() {
    soak(20, true, "20 messages deep, half of it in place");
}
