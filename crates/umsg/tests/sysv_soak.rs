//! Four senders and four receivers of System V queues, and a supervisor that kills and stops them at random: messages of six
//! types, batches, leases, and receivers that each time want something else.
//!
//! At the end nothing may be missing but what a killed receiver may have held, nothing may have come twice, nobody may
//! have been stuck, and the queue's own counters must agree. Five seconds for each;
//! `UMSG_SOAK_SECONDS` asks for another time.

mod support;

use std::sync::atomic::Ordering::SeqCst;
use std::time::Duration;
use support::clerk::Clerk;
use support::harass::{
    Harassed, SENDERS, SUPERVISOR, Work, briefly, harass, how, rest, time, waiting,
};
use support::journal::{How, Journal};
use support::place::Place;
use support::shared::Shared;
use support::{Random, now, turn, wait_until};
use umsg::sysv::{Change, ControlError, Lease, Queue, ReceiveError, SendError, Status, Want};

const KEY: i32 = 0x50a4;
const TYPES: u64 = 6;

/// The longest message, in bytes, and the most of a batch.
const SIZE: usize = 200;
const BATCH: u64 = 3;

fn message(random: &mut Random) -> (u16, usize) {
    let mtype = 1 + random.below(TYPES) as u16;
    (mtype, 1 + random.below(SIZE as u64) as usize)
}

/// What a receiver wants in one call, and how it waits for that: only what somebody sends for sure is worth waiting for
/// without an end.
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
        Err(ReceiveError::NoMessage | ReceiveError::TimedOut | ReceiveError::Interrupted) => None,
        Err(error) => panic!("receive: {error}"),
    }
}

fn send_for_ever(clerk: &mut Clerk<'_>, random: &mut Random) {
    while clerk.me().go.load(SeqCst) == 0 {
        let (mtype, len) = message(random);
        let sent = is_sent(clerk.send(how(random), mtype, len));
        rest(random, sent);
    }
}

fn send_batches_for_ever(clerk: &mut Clerk<'_>, random: &mut Random) {
    while clerk.me().go.load(SeqCst) == 0 {
        let batch: Vec<_> = (0..=random.below(BATCH)).map(|_| message(random)).collect();
        let sent = is_sent(clerk.send_batch(how(random), &batch));
        rest(random, sent);
    }
}

fn receive_for_ever(clerk: &mut Clerk<'_>, random: &mut Random) {
    while clerk.me().go.load(SeqCst) == 0 {
        let (how, want) = wish(random);
        let received = received(clerk.receive(how, want)).is_some();
        rest(random, received);
    }
}

fn receive_batches_for_ever(clerk: &mut Clerk<'_>, random: &mut Random) {
    while clerk.me().go.load(SeqCst) == 0 {
        let (how, want) = wish(random);
        let most = 1 + random.below(4) as usize;
        let received = received(clerk.receive_batch(how, want, most)).is_some();
        rest(random, received);
    }
}

/// A few leases at a time, most of which are acknowledged; some are returned, and some may have ended by themselves.
fn lease_for_ever(clerk: &mut Clerk<'_>, random: &mut Random) {
    while clerk.me().go.load(SeqCst) == 0 {
        let leases: Vec<_> = (0..=random.below(4))
            .map_while(|_| {
                let (how, want) = wish(random);
                received(clerk.lease(how, want))
            })
            .collect();
        let leased = !leases.is_empty();
        for lease in leases {
            match random.below(8) {
                0 => drop(lease),
                1 => end_by_itself(lease),
                _ => drop(clerk.acknowledge(lease).expect("a lease without a limit")),
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

struct Soak {
    place: Place,
    queue: Queue,
    journal: Shared<Journal>,
}

impl Work for Soak {
    fn play(&self, role: usize, random: &mut Random) {
        let queue = self.place.open_typed(KEY);
        queue.set_waiting(waiting(random));
        let mut clerk = Clerk::new(&queue, &self.journal, role);
        match role {
            0 => send_batches_for_ever(&mut clerk, random),
            1..SENDERS => send_for_ever(&mut clerk, random),
            SENDERS => receive_batches_for_ever(&mut clerk, random),
            5 => lease_for_ever(&mut clerk, random),
            _ => receive_for_ever(&mut clerk, random),
        }
    }

    fn lacks(&self) -> Option<(bool, bool)> {
        let status = self.status()?;
        let largest = (1 + BATCH) * SIZE as u64;
        let taken = status.entry.bytes + status.leased_bytes;
        let is_full = taken + largest > status.entry.qbytes;
        Some((is_full, status.entry.messages == 0))
    }

    fn describe(&self) -> String {
        format!("{:?}", self.queue.status())
    }
}

impl Soak {
    fn new(qbytes: u64) -> Soak {
        let place = Place::new();
        let queue = place.create_typed(KEY);
        let change = Change {
            qbytes: Some(qbytes),
            ..Change::default()
        };
        queue.set(&change).expect("a smaller queue");
        Soak {
            place,
            queue,
            journal: Shared::new(),
        }
    }

    /// None while somebody who holds the lock is stopped.
    fn status(&self) -> Option<Status> {
        match self.queue.status() {
            Ok(status) => Some(status),
            Err(ControlError::Busy) => None,
            Err(error) => panic!("status: {error}"),
        }
    }

    /// Takes out what is left, and gives those who are dead and wait what they wait for: it comes back after a slice.
    fn drain(&self, what: &str) -> usize {
        let mut clerk = Clerk::new(&self.queue, &self.journal, SUPERVISOR);
        let mut left = 0;
        let is_done = wait_until(Duration::from_secs(3), || {
            for mtype in 1..=TYPES as u16 {
                let _ = clerk.send(How::Try, mtype, 8);
            }
            while clerk.receive(How::Try, Want::Any).is_ok() {
                left += 1;
            }
            let status = self.status().expect("nobody is stopped");
            let waiting = status.blocked_receivers + status.blocked_senders;
            let is_at_rest = waiting == 0 && status.leased == 0 && status.entry.messages == 0;
            if !is_at_rest {
                std::thread::sleep(Duration::from_millis(105));
            }
            is_at_rest
        });
        assert!(
            is_done,
            "{what}: the dead wait or hold something for good: {}",
            self.describe()
        );
        // What the last round offered to the dead.
        std::thread::sleep(Duration::from_millis(105));
        while clerk.receive(How::Try, Want::Any).is_ok() {
            left += 1;
        }
        left
    }

    fn judge(&self, harassed: &Harassed, what: &str) {
        let left = self.drain(what);
        let status = self.status().expect("nobody is stopped");
        let missing = self.journal.missing(what);
        eprintln!(
            "soak, {what}: {harassed}; {} messages sent and {} received, {missing} lost with their receivers, {left} left at \
             the end; {} repairs, {} bytes of memory",
            self.journal.used(),
            self.journal.received(),
            status.statistics.repairs,
            status.memory,
        );
        let most = harassed.in_dead_hands;
        assert!(missing <= most, "{what}: {missing} messages lost");
        assert!(!status.damaged, "{what}: marked as damaged");
        let counted = (
            status.entry.messages,
            status.entry.bytes,
            status.leased_bytes,
        );
        assert_eq!(counted, (0, 0, 0), "{what}");
        self.check_capacity(&status, what);
    }

    /// The queue takes as much as at first, and no more memory.
    fn check_capacity(&self, before: &Status, what: &str) {
        let fits = before.entry.qbytes as usize / 150;
        for _ in 0..2 {
            let fit = (0..=fits)
                .take_while(|_| self.queue.try_send(1, &[7; 150]).is_ok())
                .count();
            assert_eq!(fit, fits, "{what}");
            let receive = || self.queue.try_receive(Want::Any, &mut [0; SIZE]).ok();
            assert_eq!(std::iter::from_fn(receive).count(), fits, "{what}");
        }
        let after = self.status().expect("nobody is stopped");
        // The arena grows by 64 KiB.
        let grown = after.memory.saturating_sub(before.memory);
        assert!(grown <= 64 << 10, "{what}: {grown} bytes more");
    }
}

fn soak(qbytes: u64, what: &str) {
    let _turn = turn();
    let seed = now();
    eprintln!("soak, {what}: seed {seed}");
    let soak = Soak::new(qbytes);
    let harassed = harass(&soak, &soak.journal, seed, time() / 2);
    soak.judge(&harassed, what);
}

#[test]
fn random_kills_around_a_small_queue_lose_nothing_and_stop_nobody() {
    soak(1000, "1,000 bytes");
}

#[test]
fn random_kills_around_a_large_queue_lose_nothing_and_stop_nobody() {
    soak(16_384, "16,384 bytes");
}
