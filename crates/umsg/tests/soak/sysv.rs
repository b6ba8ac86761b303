//! The soak of System V queues: messages of six types, batches, delayed messages, leases, receivers that want other messages at each call, with and
//! without waiting, and with poll.

use super::queues::{CallError, Kind, SIZE, Soak, done};
use crate::chaos::clerk::Clerk;
use crate::chaos::harass::{self, briefly, how, waiting};
use crate::chaos::journal::{How, Journal};
use crate::chaos::points::Face;
use crate::support::Random;
use crate::support::place::Place;
use std::os::fd::BorrowedFd;
use std::path::PathBuf;
use std::time::Duration;
use umsg::diagnosis::Repaired;
use umsg::sysv::{self, Change, ControlError, Queue, ReceiveError, SendError, Status, Want};
#[cfg(feature = "crash-points")]
use umsg_shm::account::Account;

/// The number of soaks in this file, which share the time.
const SOAKS: u32 = 3;
const KEY: i32 = 0x50a4;
const TYPES: u64 = 6;
/// The maximum number of messages in a batch.
const BATCH: u64 = 3;

/// The soak of a System V queue.
struct SystemV {
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
        matches!(self, Self::NoMessage | Self::TimedOut | Self::Interrupted)
    }
}

/// Returns the messages that a receiver wants in one call, and how it waits for them. The wait has no limit only for messages that
/// some process is certain to send.
fn wish(random: &mut Random) -> (How, Want) {
    let mtype = 1 + random.below(TYPES) as i64;
    match random.below(6) {
        0 => (briefly(random), Want::Exactly(mtype)),
        1 => (briefly(random), Want::Except(mtype)),
        2 => (briefly(random), Want::Lowest(mtype)),
        3 => (how(random), Want::Lowest(i64::MAX)),
        _ => (how(random), Want::Any),
    }
}

fn want(random: Option<&mut Random>) -> Want {
    random.map_or(Want::Any, |random| wish(random).1)
}

/// Receives a message or a batch. Returns the numbers of the messages.
fn receive(
    clerk: &mut Clerk<'_>,
    in_batches: bool,
    (how, want): (How, Want),
    random: &mut Random,
) -> Vec<usize> {
    if in_batches {
        let most = 1 + random.below(4) as usize;
        return done(clerk.receive_batch(how, want, most)).unwrap_or_default();
    }
    let how = match random.below(8) {
        0 => {
            // A poll waits for any message, because it can't select a type.
            clerk.poll(harass::how(random));
            How::Try
        }
        _ => how,
    };
    done(clerk.receive(how, want)).into_iter().collect()
}

/// Holds a few leases at a time, and acknowledges most of them; some are returned, at once or
/// with a delay, and some end by themselves.
fn lease(clerk: &mut Clerk<'_>, random: &mut Random) -> bool {
    let most = random.below(4);
    let mut one = |_| {
        let (how, want) = wish(random);
        done(clerk.lease(how, want))
    };
    let leases: Vec<_> = (0..=most).map_while(&mut one).collect();
    let leased = !leases.is_empty();
    for lease in leases {
        match random.below(8) {
            0 => drop(lease),
            1 => {
                lease.limit(Duration::from_millis(1)).expect("a lease");
                std::mem::forget(lease);
            }
            2 => lease.return_after(harass::delay(random)).expect("a lease"),
            _ => drop(clerk.acknowledge(lease).expect("a lease without a limit")),
        }
    }
    leased
}

impl Kind for SystemV {
    type Queue = Queue;
    type Status = Status;
    type Worker<'a> = Clerk<'a>;
    const FACE: Face = Face::Sysv;
    const HAS_PRIORITIES: bool = false;
    const RETURNS_OFFERS_LATE: bool = true;

    fn open(place: &Place, random: &mut Random) -> Queue {
        let queue = place.open_sysv(KEY);
        queue.set_waiting(waiting(random));
        queue
    }

    fn worker<'a>(queue: &'a Queue, journal: &'a Journal, index: usize) -> Clerk<'a> {
        Clerk::of_short(queue, journal, index, SIZE)
    }

    fn message(random: &mut Random) -> (u16, usize) {
        let mtype = 1 + random.below(TYPES) as u16;
        (mtype, 1 + random.below(SIZE as u64) as usize)
    }

    /// The first sender sends batches.
    fn send(&self, clerk: &mut Clerk<'_>, sender: usize, random: &mut Random) -> bool {
        if sender == 0 {
            let count = 1 + random.below(BATCH);
            let batch: Vec<_> = (0..count).map(|_| Self::message(random)).collect();
            return done(clerk.send_batch(how(random), &batch)).is_some();
        }
        let (mtype, len) = Self::message(random);
        if self.delays && random.below(8) == 0 {
            let delay = harass::delay(random);
            return done(clerk.send_after(how(random), mtype, len, delay)).is_some();
        }
        Self::put(clerk, how(random), (mtype, len))
    }

    /// The first receiver receives batches, the next one leases.
    fn receive(&self, clerk: &mut Clerk<'_>, receiver: usize, random: &mut Random) -> bool {
        if receiver == 1 {
            return lease(clerk, random);
        }
        let wish = wish(random);
        !receive(clerk, receiver == 0, wish, random).is_empty()
    }

    fn receive_any(clerk: &mut Clerk<'_>, random: &mut Random) -> Vec<usize> {
        let in_batches = random.below(4) == 0;
        let wish = (how(random), Want::Any);
        receive(clerk, in_batches, wish, random)
    }

    fn put(clerk: &mut Clerk<'_>, how: How, (mtype, len): (u16, usize)) -> bool {
        done(clerk.send(how, mtype, len)).is_some()
    }

    fn take(clerk: &mut Clerk<'_>, how: How, random: Option<&mut Random>) -> bool {
        done(clerk.receive(how, want(random))).is_some()
    }

    fn offer_to_all(clerk: &mut Clerk<'_>) {
        for mtype in 1..=TYPES as u16 {
            Self::put(clerk, How::Try, (mtype, 8));
        }
    }

    fn try_send(queue: &Queue, mtype: u16, bytes: &[u8]) -> bool {
        done(queue.try_send(mtype.into(), bytes)).is_some()
    }

    fn try_receive(
        queue: &Queue,
        random: Option<&mut Random>,
        room: &mut [u8],
    ) -> Option<(usize, u64)> {
        let taken = done(queue.try_receive(want(random), room))?;
        Some((taken.len, taken.mtype as u64))
    }

    fn pollable(queue: &Queue) -> BorrowedFd<'_> {
        queue.pollable().expect("a doorbell")
    }

    fn status(queue: &Queue) -> Option<Status> {
        match queue.status() {
            Ok(status) => Some(status),
            Err(ControlError::Busy) => None,
            Err(error) => panic!("status: {error}"),
        }
    }

    fn blocked(status: &Status) -> (usize, usize) {
        (status.blocked_senders, status.blocked_receivers)
    }

    fn is_at_rest(status: &Status) -> bool {
        let held = status.leased + status.delayed;
        Self::blocked(status) == (0, 0) && held == 0 && status.entry.messages == 0
    }

    fn repairs(status: &Status) -> u64 {
        status.statistics.repairs.into()
    }

    fn lacks(status: &Status, journal: &Journal) -> (bool, bool) {
        // A batch may wait for more room than the queue has free, and other senders may wait after the batch.
        let largest = journal.most_wanted(SIZE as u64);
        let taken = status.entry.bytes + status.leased_bytes;
        let is_full = taken + largest > status.entry.qbytes;
        (is_full, status.entry.messages == 0)
    }

    fn describe(queue: &Queue, place: &Place) -> String {
        let diagnosis = sysv::diagnose(&place.namespace, KEY);
        format!("{:?}, {diagnosis:?}", queue.status())
    }

    fn check_counts(status: &Status, what: &str) {
        assert!(!status.damaged, "{what}: marked as damaged");
        let entry = &status.entry;
        let counted = (entry.messages, entry.bytes, status.leased_bytes);
        assert_eq!(counted, (0, 0, 0), "{what}: counts of an empty queue");
    }

    fn fits(status: &Status) -> usize {
        status.entry.qbytes as usize / 150
    }

    fn check_memory(queue: &Queue, before: &Status, what: &str) {
        let after = Self::status(queue).expect("no process is stopped");
        // The arena grows by 64 KiB at a time.
        let grown = after.memory.saturating_sub(before.memory);
        assert!(grown <= 64 << 10, "{what}: {grown} bytes more");
    }

    #[cfg(feature = "crash-points")]
    fn account(queue: &Queue) -> Option<Account> {
        queue.account()
    }

    fn wait_for_message(queue: &Queue) {
        queue.receive(Want::Exactly(3), &mut [0; SIZE]).unwrap();
    }

    fn wake_receiver(queue: &Queue) {
        for mtype in [2, 3] {
            queue.try_send(mtype, &[7; SIZE]).expect("room");
        }
    }

    fn wait_for_room(queue: &Queue) {
        queue.send(1, &[7; SIZE]).unwrap();
    }

    fn repair(place: &Place) -> Repaired {
        sysv::repair(&place.namespace, KEY).expect("a repair")
    }

    fn remove(queue: Queue, place: &Place) -> PathBuf {
        queue.remove().expect("the queue");
        place.path().join("msg")
    }
}

fn soak(qbytes: u64, in_order: bool, what: &'static str) {
    Soak::run(what, SOAKS, in_order, |place| {
        let queue = place.create_sysv(KEY);
        let change = Change {
            qbytes: Some(qbytes),
            ..Change::default()
        };
        queue.set(&change).expect("a smaller queue");
        // A delayed message is delivered after messages with higher numbers.
        let delays = !in_order;
        (SystemV { delays }, queue)
    });
}

#[test]
fn random_kills_around_a_small_queue_lose_nothing_and_stop_no_process() {
    soak(1000, false, "System V, 1,000 bytes");
}

#[test]
fn random_kills_around_a_large_queue_lose_nothing_and_stop_no_process() {
    soak(16_384, false, "System V, 16,384 bytes");
}

#[test]
fn one_receiver_gets_all_messages_in_order_whatever_happens_to_senders() {
    soak(4_096, true, "System V, one receiver");
}
