//! Random violence to processes that send and receive through a POSIX queue: with and without waiting, in batches, in place, told by
//! poll and by notifications, in several threads, in signal handlers and in forked children.
//!
//! At the end of each round nothing may be missing but what a dead receiver may have held, nothing may have come twice or out
//! of order, no process may have been stuck, and the queue's own counters must agree. Ten seconds for all; `UMSG_SOAK_SECONDS` asks for
//! another time, `UMSG_SOAK_SEED` for the violence of another time.

mod support;

use std::sync::atomic::Ordering::SeqCst;
use std::time::Duration;
use support::actor::Actor;
use support::harass::{
    self, Figures, Leaks, Part, SUPERVISOR, Work, commotion, expect_healthy, expect_prompt, how,
    rest, take_time, waiting, wakes_poller, wakes_sleeper,
};
use support::journal::{How, Journal};
use support::place::Place;
use support::points::Face;
use support::shared::Shared;
use support::turns::Turns;
use support::{Random, wait_until};
use umsg::posix::{self, Lease, Queue, ReceiveError, SendError, unlink_in};

#[global_allocator]
static ALLOCATOR: harass::Vigilant = harass::Vigilant;

/// The longest message, in bytes.
const SIZE: usize = 200;
/// Soaks in this file, which share the time.
const SOAKS: u32 = 4;
const WORKERS: usize = 8;
/// Messages of a batch, at most.
const BATCH: u64 = 4;

/// What the workers do besides plain sending and receiving.
#[derive(Clone, Copy, PartialEq)]
enum Manner {
    /// Batches, polling, notifications.
    Plain,
    /// Every other worker sends and receives in place.
    InPlace,
    /// One receives all, which is not killed and so gets everything in order.
    InOrder,
}

struct Soak {
    manner: Manner,
    place: Place,
    queue: Queue,
    journal: Shared<Journal>,
}

fn message(random: &mut Random) -> (u16, usize) {
    let priority = match random.below(3) {
        0 => 0,
        1 => random.below(4) as u16,
        _ => random.below(32_768) as u16,
    };
    (priority, 1 + random.below(SIZE as u64) as usize)
}

/// Whether a call succeeded; what may come of one that waits is no failure.
fn is_sent<T>(result: Result<T, SendError>) -> bool {
    match result {
        Ok(_) => true,
        Err(SendError::Full | SendError::TimedOut | SendError::Interrupted) => false,
        Err(error) => panic!("send: {error}"),
    }
}

fn received<T>(result: Result<T, ReceiveError>) -> Option<T> {
    match result {
        Ok(received) => Some(received),
        Err(ReceiveError::Empty | ReceiveError::TimedOut | ReceiveError::Interrupted) => None,
        Err(error) => panic!("receive: {error}"),
    }
}

/// Messages one after the other, and some together.
fn send(actor: &mut Actor<'_>, random: &mut Random) -> bool {
    let how = how(random);
    if random.below(4) == 0 {
        let count = 2 + random.below(BATCH - 1);
        let batch: Vec<_> = (0..count).map(|_| message(random)).collect();
        return is_sent(actor.send_batch(how, &batch));
    }
    let (priority, len) = message(random);
    is_sent(actor.send(how, priority, len))
}

/// One or two reservations at a time, some of which are given back.
fn send_in_place(actor: &mut Actor<'_>, random: &mut Random) -> bool {
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
    reserved
}

/// In one of the ways there are: the numbers of what came.
fn receive(actor: &mut Actor<'_>, random: &mut Random) -> Vec<usize> {
    let one = |result| received(result).into_iter().collect();
    match random.below(16) {
        0 | 1 => received(actor.receive_batch(how(random), 1 + random.below(4) as usize))
            .unwrap_or_default(),
        2 | 3 => {
            actor.poll(how(random));
            one(actor.receive(How::Try))
        }
        4 => {
            actor.await_notification(Duration::from_millis(random.below(20)));
            one(actor.receive(How::Try))
        }
        _ => one(actor.receive(how(random))),
    }
}

/// A few leases at a time, most of which are acknowledged; some are returned, and some may have ended by themselves.
fn receive_in_place(actor: &mut Actor<'_>, random: &mut Random) -> bool {
    let leases: Vec<_> = (0..=random.below(4))
        .map_while(|_| received(actor.lease(how(random))))
        .collect();
    let leased = !leases.is_empty();
    for lease in leases {
        match random.below(8) {
            0 => drop(lease),
            1 => end_by_itself(lease),
            _ => drop(actor.acknowledge(lease).expect("a lease without a limit")),
        }
    }
    leased
}

/// Lets a lease end by itself, and does not wait for that.
fn end_by_itself(lease: Lease<'_>) {
    lease.limit(Duration::from_millis(1)).expect("a lease");
    std::mem::forget(lease);
}

impl Work for Soak {
    type Tool = Queue;

    fn workers(&self) -> usize {
        WORKERS
    }

    fn senders(&self) -> usize {
        match self.manner {
            Manner::InOrder => WORKERS - 1,
            _ => WORKERS / 2,
        }
    }

    fn threads(&self, role: usize) -> usize {
        if self.spares(role) { 1 } else { 4 }
    }

    fn spares(&self, role: usize) -> bool {
        self.manner == Manner::InOrder && role >= self.senders()
    }

    fn face(&self) -> Face {
        Face::Posix
    }

    fn journal(&self) -> &Journal {
        &self.journal
    }

    fn open(&self, random: &mut Random) -> Queue {
        let queue = self.place.open("/soak");
        queue.set_waiting(waiting(random));
        queue
    }

    fn play(&self, queue: &Queue, part: Part, random: &mut Random) {
        let mut actor = Actor::new(queue, &self.journal, part.index(), SIZE);
        let (sends, in_place) = (part.role < self.senders(), part.role % 2 == 1);
        let in_place = in_place && self.manner == Manner::InPlace;
        let mut turns = Turns::default();
        while actor.me().go.load(SeqCst) == 0 {
            let worked = match (sends, in_place) {
                (true, false) => {
                    take_time(random);
                    send(&mut actor, random)
                }
                (true, true) => send_in_place(&mut actor, random),
                (false, true) => receive_in_place(&mut actor, random),
                (false, false) => {
                    let numbers = receive(&mut actor, random);
                    if self.manner == Manner::InOrder {
                        turns.expect(&self.journal, &numbers, true);
                    }
                    !numbers.is_empty()
                }
            };
            rest(random, worked);
            commotion(self, queue, part, random);
        }
    }

    fn visit(&self, queue: &Queue, index: usize, random: &mut Random) {
        let mut actor = Actor::new(queue, &self.journal, index, SIZE);
        for _ in 0..random.below(10) {
            let (how, (priority, len)) = (
                How::Within(Duration::from_micros(random.below(500))),
                message(random),
            );
            // One receiver may be the only one.
            match random.below(2) {
                0 if self.manner != Manner::InOrder => drop(received(actor.receive(how))),
                _ => drop(is_sent(actor.send(how, priority, len))),
            }
        }
    }

    fn handle(&self, queue: &Queue, index: usize, random: &mut Random) {
        let journal = &self.journal;
        if self.manner == Manner::InOrder || random.below(2) == 0 {
            let (priority, len) = message(random);
            let mut bytes = [0; SIZE];
            let bytes = &mut bytes[..len.max(4)];
            let (number, records) = journal.next(1);
            records[0].begin(number, journal.author(index), priority, bytes);
            records[0].end(is_sent(queue.try_send(bytes, priority.into())));
        } else {
            let mut room = journal.room(index, SIZE);
            if let Some(taken) = received(queue.try_receive(&mut room)) {
                journal.note(&room[..taken.len], taken.priority.into());
            }
        }
    }

    fn lacks(&self) -> Option<(bool, bool)> {
        let held = self.queue.attributes();
        let taken = held.messages + held.reserved + held.leased;
        // A batch may wait beside some places, and others behind it.
        let is_full = taken + self.journal.most_wanted(1) as usize > held.max_messages;
        Some((is_full, held.messages == 0))
    }

    fn describe(&self) -> String {
        format!("{:?}", self.queue.status())
    }

    fn judge(&self, round: &mut Figures, what: &str) {
        self.drain(what);
        self.journal.expect_none_missing(what);
        let status = self.queue.status();
        assert!(!status.damaged, "{what}: marked as damaged");
        let attributes = status.attributes;
        let counted = (attributes.messages, attributes.bytes);
        assert_eq!(counted, (0, 0), "{what}: counts of an empty queue");
        self.expect_room_soon(what);
        self.check_capacity(what);
        // Who comes by takes the dead from the lists.
        let after = self.queue.status();
        let blocked = (after.blocked_senders, after.blocked_receivers);
        assert_eq!(blocked, (0, 0), "{what}");
        self.check_bytes(what);
        self.check_promptness(what);
        let statistics = status.statistics;
        round.sent = self.journal.sent() as u64;
        round.received = self.journal.received() as u64;
        round.lost = self.journal.lost_with_receivers() as u64;
        round.repairs =
            u64::from(statistics.sender_repairs) + u64::from(statistics.receiver_repairs);
    }

    /// The queue is removed, and with it all that there was.
    fn end(self, leaks: Leaks, what: &str) {
        // Who begins to poll takes away the doorbells that no process polls any more.
        self.queue.pollable().expect("a doorbell");
        // It may have found one to poll, and made none.
        self.place.namespace.sweep().expect("the namespace");
        unlink_in(&self.place.namespace, "/soak").expect("the queue");
        drop((self.queue, self.journal));
        leaks.expect_none(&[&self.place.path().join("mq")], what);
        self.place.expect_no_bells(what);
    }
}

impl Soak {
    fn new(depth: u32, manner: Manner) -> Soak {
        let place = Place::new();
        let queue = place.create("/soak", depth, SIZE as u32);
        Soak {
            manner,
            place,
            queue,
            journal: Shared::new(),
        }
    }

    /// Takes out what is left, and has all processes notice who is dead; how much it was.
    fn drain(&self, what: &str) -> usize {
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
        left
    }

    /// Room may be kept for a batch whose sender has just died: for a tenth of a second, and less than one.
    fn expect_room_soon(&self, what: &str) {
        let second = Duration::from_secs(1);
        self.queue.send_timeout(&[7], 1, second).expect(what);
        self.queue.try_receive(&mut [0; SIZE]).expect(what);
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
        let most = depth + depth / 16 + 2 * 32 + WORKERS * 6;
        assert!(slots <= most, "{what}: {slots} slots: some are lost");
    }

    /// No process has left anything that should not be there: what each slot, list and counter says fits together.
    fn check_bytes(&self, what: &str) {
        let repaired = posix::repair(&self.place.namespace, "/soak").expect("a repair");
        expect_healthy(&repaired, what);
    }

    /// Who waits for a message or for room, a poller and who is registered, is told at once.
    fn check_promptness(&self, what: &str) {
        let queue = &self.queue;
        let (send, receive) = (
            || queue.try_send(b"calm", 1),
            || queue.try_receive(&mut [0; SIZE]),
        );
        let empty = || while receive().is_ok() {};
        expect_prompt(&format!("{what}: a blocked receiver"), || {
            let wait = || drop(queue.receive_vec().unwrap());
            let is_waiting = || queue.status().blocked_receivers == 1;
            wakes_sleeper(what, wait, is_waiting, || send().expect("room"))
        });
        expect_prompt(&format!("{what}: a blocked sender"), || {
            while send().is_ok() {}
            let wait = || queue.send(b"calm", 1).unwrap();
            let is_waiting = || queue.status().blocked_senders == 1;
            let act = || assert!(receive().is_ok(), "a message");
            wakes_sleeper(what, wait, is_waiting, act)
        });
        expect_prompt(&format!("{what}: a poller"), || {
            empty();
            let pollable = || queue.pollable().expect("a doorbell");
            wakes_poller(what, pollable, || send().expect("room"))
        });
        empty();
        let mut awaited = queue.notify_waiter().expect("a registration");
        send().expect("room");
        awaited.try_wait().expect("to be told");
        empty();
    }
}

fn soak(depth: u32, manner: Manner, what: &'static str) {
    harass::soak(what, SOAKS, || Soak::new(depth, manner));
}

#[test]
fn random_kills_around_a_shallow_queue_lose_nothing_and_stop_nobody() {
    soak(10, Manner::Plain, "POSIX, 10 messages");
}

#[test]
fn random_kills_around_a_deep_queue_lose_nothing_and_stop_nobody() {
    soak(1000, Manner::Plain, "POSIX, 1000 messages");
}

#[test]
fn random_kills_of_those_that_hold_messages_in_place_lose_nothing_and_stop_nobody() {
    soak(
        20,
        Manner::InPlace,
        "POSIX, 20 messages, half of them in place",
    );
}

#[test]
fn one_receiver_gets_all_messages_in_order_whatever_happens_to_senders() {
    soak(30, Manner::InOrder, "POSIX, one receiver");
}
