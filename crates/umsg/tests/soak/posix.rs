//! The soak of POSIX queues: with and without waiting, in batches, in place, with a delay, with poll and with notifications.

#[path = "dead_letters.rs"]
mod dead_letters;

use super::queues::{CallError, Kind, SIZE, Soak, done};
use crate::chaos::actor::Actor;
use crate::chaos::harass::{delay, how, take_time, waiting};
use crate::chaos::journal::{How, Journal};
use crate::chaos::points::Face;
use crate::support::Random;
use crate::support::place::Place;
use std::os::fd::BorrowedFd;
use std::path::PathBuf;
use std::time::Duration;
use umsg::diagnosis::Repaired;
use umsg::posix::{self, Lease, Queue, ReceiveError, SendError, Status, unlink_in};
#[cfg(feature = "crash-points")]
use umsg_shm::account::Account;

/// The number of soaks in this file and in `dead_letters.rs`, which share the time.
const SOAKS: u32 = 6;
const NAME: &str = "/soak";
/// The maximum number of messages in a batch.
const BATCH: u64 = 4;

/// The soak of a POSIX queue.
struct Posix {
    /// True if every other worker sends and receives in place.
    in_place: bool,
    /// True if some messages are sent with a delay.
    delays: bool,
}

impl CallError for SendError {
    fn is_usual(&self) -> bool {
        matches!(self, Self::Full | Self::TimedOut | Self::Interrupted)
    }
}

impl CallError for ReceiveError {
    fn is_usual(&self) -> bool {
        matches!(self, Self::Empty | Self::TimedOut | Self::Interrupted)
    }
}

/// Sends a batch, or one message with or without a delay. Returns whether a message was sent.
fn send(actor: &mut Actor<'_>, delays: bool, random: &mut Random) -> bool {
    let how = how(random);
    if random.below(4) == 0 {
        let count = 2 + random.below(BATCH - 1);
        let batch: Vec<_> = (0..count).map(|_| Posix::message(random)).collect();
        return done(actor.send_batch(how, &batch)).is_some();
    }
    let (priority, len) = Posix::message(random);
    if delays && random.below(8) == 0 {
        return done(actor.send_after(how, priority, len, delay(random))).is_some();
    }
    Posix::put(actor, how, (priority, len))
}

/// Makes one or two reservations at a time, and gives some of them back.
fn send_in_place(actor: &mut Actor<'_>, random: &mut Random) -> bool {
    let len = 4 + random.below(SIZE as u64 - 4) as usize;
    let rooms: Vec<_> = (0..=random.below(2))
        .map_while(|_| done(actor.reserve(how(random), len)))
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

/// Holds a few leases at a time, and acknowledges most of them; some are returned, at once or
/// with a delay, and some end by themselves.
fn receive_in_place(actor: &mut Actor<'_>, random: &mut Random) -> bool {
    let leases: Vec<_> = (0..=random.below(4))
        .map_while(|_| done(actor.lease(how(random))))
        .collect();
    let leased = !leases.is_empty();
    for lease in leases {
        match random.below(8) {
            0 => drop(lease),
            1 => end_by_itself(lease),
            2 => lease.return_after(delay(random)).expect("a lease"),
            _ => drop(actor.acknowledge(lease).expect("a lease without a limit")),
        }
    }
    leased
}

/// Lets a lease end by itself, and does not wait for its end.
fn end_by_itself(lease: Lease<'_>) {
    lease.limit(Duration::from_millis(1)).expect("a lease");
    std::mem::forget(lease);
}

impl Kind for Posix {
    type Queue = Queue;
    type Status = Status;
    type Worker<'a> = Actor<'a>;
    const FACE: Face = Face::Posix;
    const HAS_PRIORITIES: bool = true;
    const RETURNS_OFFERS_LATE: bool = false;

    fn open(place: &Place, random: &mut Random) -> Queue {
        let queue = place.open(NAME);
        queue.set_waiting(waiting(random));
        queue
    }

    fn worker<'a>(queue: &'a Queue, journal: &'a Journal, index: usize) -> Actor<'a> {
        Actor::new(queue, journal, index, SIZE)
    }

    fn message(random: &mut Random) -> (u16, usize) {
        let priority = match random.below(3) {
            0 => 0,
            1 => random.below(4) as u16,
            _ => random.below(32_768) as u16,
        };
        (priority, 1 + random.below(SIZE as u64) as usize)
    }

    fn send(&self, actor: &mut Actor<'_>, sender: usize, random: &mut Random) -> bool {
        if self.in_place && sender % 2 == 1 {
            return send_in_place(actor, random);
        }
        take_time(random);
        send(actor, self.delays, random)
    }

    fn receive(&self, actor: &mut Actor<'_>, receiver: usize, random: &mut Random) -> bool {
        if self.in_place && receiver % 2 == 1 {
            return receive_in_place(actor, random);
        }
        !Posix::receive_any(actor, random).is_empty()
    }

    fn receive_any(actor: &mut Actor<'_>, random: &mut Random) -> Vec<usize> {
        let one = |result| done(result).into_iter().collect();
        match random.below(16) {
            0 | 1 => done(actor.receive_batch(how(random), 1 + random.below(4) as usize))
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

    fn put(actor: &mut Actor<'_>, how: How, (priority, len): (u16, usize)) -> bool {
        done(actor.send(how, priority, len)).is_some()
    }

    fn take(actor: &mut Actor<'_>, how: How, _: Option<&mut Random>) -> bool {
        done(actor.receive(how)).is_some()
    }

    fn offer_to_all(actor: &mut Actor<'_>) {
        Posix::put(actor, How::Within(Duration::from_millis(1)), (0, 8));
    }

    fn try_send(queue: &Queue, priority: u16, bytes: &[u8]) -> bool {
        done(queue.try_send(bytes, priority.into())).is_some()
    }

    fn try_receive(queue: &Queue, _: Option<&mut Random>, room: &mut [u8]) -> Option<(usize, u64)> {
        let taken = done(queue.try_receive(room))?;
        Some((taken.len, taken.priority.into()))
    }

    fn pollable(queue: &Queue) -> BorrowedFd<'_> {
        queue.pollable().expect("a doorbell")
    }

    fn status(queue: &Queue) -> Option<Status> {
        Some(queue.status())
    }

    fn blocked(status: &Status) -> (usize, usize) {
        (status.blocked_senders, status.blocked_receivers)
    }

    fn is_at_rest(status: &Status) -> bool {
        let held =
            status.attributes.reserved + status.attributes.leased + status.attributes.delayed;
        status.blocked_receivers == 0 && held == 0
    }

    fn repairs(status: &Status) -> u64 {
        let statistics = &status.statistics;
        u64::from(statistics.sender_repairs) + u64::from(statistics.receiver_repairs)
    }

    fn lacks(status: &Status, journal: &Journal) -> (bool, bool) {
        let held = &status.attributes;
        let taken = held.messages + held.reserved + held.leased + held.delayed;
        // A batch may wait for more room than the queue has free, and other senders may wait after the batch.
        let is_full = taken + journal.most_wanted(1) as usize > held.max_messages;
        (is_full, held.messages == 0)
    }

    fn describe(queue: &Queue, _: &Place) -> String {
        format!("{:?}", queue.status())
    }

    fn check_counts(status: &Status, what: &str) {
        assert!(!status.damaged, "{what}: marked as damaged");
        let counted = (status.attributes.messages, status.attributes.bytes);
        assert_eq!(counted, (0, 0), "{what}: counts of an empty queue");
    }

    fn fits(status: &Status) -> usize {
        status.attributes.max_messages
    }

    fn check_memory(queue: &Queue, _: &Status, what: &str) {
        // Every process that uses the queue takes dead waiters from the lists.
        assert_eq!(Posix::blocked(&queue.status()), (0, 0), "{what}");
    }

    #[cfg(feature = "crash-points")]
    fn account(queue: &Queue) -> Option<Account> {
        queue.account()
    }

    fn wait_for_message(queue: &Queue) {
        queue.receive_vec().unwrap();
    }

    fn wake_receiver(queue: &Queue) {
        queue.try_send(b"calm", 1).expect("room");
    }

    fn wait_for_room(queue: &Queue) {
        queue.send(b"calm", 1).unwrap();
    }

    fn check_notification(queue: &Queue) {
        let mut awaited = queue.notify_waiter().expect("a registration");
        queue.try_send(b"calm", 1).expect("room");
        awaited.try_wait().expect("to be told");
        queue.receive_vec().expect("a message");
    }

    fn repair(place: &Place) -> Repaired {
        posix::repair(&place.namespace, NAME).expect("a repair")
    }

    fn remove(_: Queue, place: &Place) -> PathBuf {
        unlink_in(&place.namespace, NAME).expect("the queue");
        place.path().join("mq")
    }
}

fn soak(depth: u32, in_place: bool, in_order: bool, what: &'static str) {
    Soak::run(what, SOAKS, in_order, |place| {
        let queue = place.create(NAME, depth, SIZE as u32);
        // A delayed message is delivered after messages with higher numbers.
        let delays = !in_order;
        (Posix { in_place, delays }, queue)
    });
}

#[test]
fn random_kills_around_a_shallow_queue_lose_nothing_and_stop_no_process() {
    soak(10, false, false, "POSIX, 10 messages");
}

#[test]
fn random_kills_around_a_deep_queue_lose_nothing_and_stop_no_process() {
    soak(1000, false, false, "POSIX, 1000 messages");
}

#[test]
fn random_kills_of_lease_owners_lose_nothing_and_stop_no_process() {
    let what = "POSIX, 20 messages, half of them in place";
    soak(20, true, false, what);
}

#[test]
fn one_receiver_gets_all_messages_in_order_whatever_happens_to_senders() {
    soak(30, false, true, "POSIX, one receiver");
}
