//! Random violence to processes that send and receive through a System V queue: messages of six types, batches, leases, receivers that
//! each time want something else, with and without waiting, told by poll, in several threads, in signal handlers and in forked
//! children.
//!
//! At the end of each round nothing may be missing but what a dead receiver may have held, nothing may have come twice or out
//! of order, no process may have been stuck, and the queue's own counters must agree. Ten seconds for all; `UMSG_SOAK_SECONDS` asks for
//! another time, `UMSG_SOAK_SEED` for the violence of another time.

mod support;

use std::sync::atomic::Ordering::SeqCst;
use std::time::Duration;
use support::clerk::Clerk;
use support::harass::{
    self, Figures, Leaks, Part, SUPERVISOR, Work, briefly, commotion, expect_healthy,
    expect_prompt, how, rest, waiting, wakes_poller, wakes_sleeper,
};
use support::journal::{How, Journal};
use support::place::Place;
use support::points::Face;
use support::shared::Shared;
use support::turns::Turns;
use support::{Random, wait_until};
use umsg::sysv::{self, Change, ControlError, Lease, Queue, ReceiveError, SendError, Status, Want};

#[global_allocator]
static ALLOCATOR: harass::Vigilant = harass::Vigilant;

/// Soaks in this file, which share the time.
const SOAKS: u32 = 3;
const WORKERS: usize = 8;

const KEY: i32 = 0x50a4;
const TYPES: u64 = 6;

/// The longest message, in bytes, and the most of a batch.
const SIZE: usize = 200;
const BATCH: u64 = 3;

fn message(random: &mut Random) -> (u16, usize) {
    let mtype = 1 + random.below(TYPES) as u16;
    (mtype, 1 + random.below(SIZE as u64) as usize)
}

/// What a receiver wants in one call, and how it waits for that: only what a process sends for sure is worth waiting for
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

/// A batch now and then, or a message.
fn send(clerk: &mut Clerk<'_>, in_batches: bool, random: &mut Random) -> bool {
    if in_batches {
        let batch: Vec<_> = (0..=random.below(BATCH)).map(|_| message(random)).collect();
        return is_sent(clerk.send_batch(how(random), &batch));
    }
    let (mtype, len) = message(random);
    is_sent(clerk.send(how(random), mtype, len))
}

/// In one of the ways there are: the numbers of what came.
fn receive(
    clerk: &mut Clerk<'_>,
    in_batches: bool,
    wish: impl Fn(&mut Random) -> (How, Want),
    random: &mut Random,
) -> Vec<usize> {
    let (how, want) = wish(random);
    if in_batches {
        let most = 1 + random.below(4) as usize;
        return received(clerk.receive_batch(how, want, most)).unwrap_or_default();
    }
    let how = match random.below(8) {
        0 => {
            // For any message: the kernel's queues can't be polled for a type either.
            clerk.poll(harass::how(random));
            How::Try
        }
        _ => how,
    };
    received(clerk.receive(how, want)).into_iter().collect()
}

/// A few leases at a time, most of which are acknowledged; some are returned, and some may have ended by themselves.
fn lease(clerk: &mut Clerk<'_>, random: &mut Random) -> bool {
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
    leased
}

/// Lets a lease end by itself, and does not wait for that.
fn end_by_itself(lease: Lease<'_>) {
    lease.limit(Duration::from_millis(1)).expect("a lease");
    std::mem::forget(lease);
}

struct Soak {
    /// One receives all, which is not killed and so gets everything in order.
    in_order: bool,
    place: Place,
    queue: Queue,
    journal: Shared<Journal>,
}

impl Work for Soak {
    type Tool = Queue;

    fn workers(&self) -> usize {
        WORKERS
    }

    fn senders(&self) -> usize {
        if self.in_order {
            WORKERS - 1
        } else {
            WORKERS / 2
        }
    }

    fn threads(&self, role: usize) -> usize {
        if self.spares(role) { 1 } else { 4 }
    }

    fn spares(&self, role: usize) -> bool {
        self.in_order && role >= self.senders()
    }

    fn face(&self) -> Face {
        Face::Sysv
    }

    fn journal(&self) -> &Journal {
        &self.journal
    }

    fn open(&self, random: &mut Random) -> Queue {
        let queue = self.place.open_typed(KEY);
        queue.set_waiting(waiting(random));
        queue
    }

    fn play(&self, queue: &Queue, part: Part, random: &mut Random) {
        let mut clerk = Clerk::of_short(queue, &self.journal, part.index(), SIZE);
        let mut turns = Turns::default();
        // The first who sends and the first who receives do so in batches; the next receiver leases.
        let first = part.role == 0 || part.role == self.senders();
        while clerk.me().go.load(SeqCst) == 0 {
            let worked = if part.role < self.senders() {
                send(&mut clerk, first, random)
            } else if self.in_order {
                let any = |random: &mut Random| (how(random), Want::Any);
                let in_batches = random.below(4) == 0;
                let numbers = receive(&mut clerk, in_batches, any, random);
                turns.expect(&self.journal, &numbers, false);
                !numbers.is_empty()
            } else if part.role == self.senders() + 1 {
                lease(&mut clerk, random)
            } else {
                !receive(&mut clerk, first, wish, random).is_empty()
            };
            rest(random, worked);
            commotion(self, queue, part, random);
        }
    }

    fn visit(&self, queue: &Queue, index: usize, random: &mut Random) {
        let mut clerk = Clerk::of_short(queue, &self.journal, index, SIZE);
        for _ in 0..random.below(10) {
            let how = How::Within(Duration::from_micros(random.below(500)));
            let (_, want) = wish(random);
            let (mtype, len) = message(random);
            // One receiver may be the only one.
            match random.below(2) {
                0 if !self.in_order => drop(received(clerk.receive(how, want))),
                _ => drop(is_sent(clerk.send(how, mtype, len))),
            }
        }
    }

    fn handle(&self, queue: &Queue, index: usize, random: &mut Random) {
        let journal = &self.journal;
        if self.in_order || random.below(2) == 0 {
            let (mtype, len) = message(random);
            let mut bytes = [0; SIZE];
            let bytes = &mut bytes[..len.max(4)];
            let (number, records) = journal.next(1);
            records[0].begin(number, journal.author(index), mtype, bytes);
            records[0].end(is_sent(queue.try_send(mtype.into(), bytes)));
        } else {
            let (_, want) = wish(random);
            let mut room = journal.room(index, SIZE);
            if let Some(taken) = received(queue.try_receive(want, &mut room)) {
                journal.note(&room[..taken.len], taken.mtype as u64);
            }
        }
    }

    fn lacks(&self) -> Option<(bool, bool)> {
        let status = self.status()?;
        // A batch may wait beside some room, and others behind it.
        let largest = self.journal.most_wanted(SIZE as u64);
        let taken = status.entry.bytes + status.leased_bytes;
        let is_full = taken + largest > status.entry.qbytes;
        Some((is_full, status.entry.messages == 0))
    }

    fn describe(&self) -> String {
        let diagnosis = sysv::diagnose(&self.place.namespace, KEY);
        format!("{:?}, {diagnosis:?}", self.queue.status())
    }

    fn judge(&self, round: &mut Figures, what: &str) {
        self.drain(what);
        self.journal.expect_none_missing(what);
        let status = self.status().expect("nobody is stopped");
        assert!(!status.damaged, "{what}: marked as damaged");
        let counted = (
            status.entry.messages,
            status.entry.bytes,
            status.leased_bytes,
        );
        assert_eq!(counted, (0, 0, 0), "{what}: counts of an empty queue");
        self.check_capacity(&status, what);
        self.check_bytes(what);
        self.check_promptness(what);
        round.sent = self.journal.sent() as u64;
        round.received = self.journal.received() as u64;
        round.lost = self.journal.lost_with_receivers() as u64;
        round.repairs = status.statistics.repairs.into();
    }

    /// The queue is removed, and with it all that there was.
    fn end(self, leaks: Leaks, what: &str) {
        // Who begins to poll takes away the doorbells that no process polls any more.
        self.queue.pollable().expect("a doorbell");
        // It may have found one to poll, and made none.
        self.place.namespace.sweep().expect("the namespace");
        self.queue.remove().expect("the queue");
        drop(self.journal);
        leaks.expect_none(&[], what);
        self.place.expect_no_bells(what);
        let names = std::fs::read_dir(self.place.path().join("msg")).expect("the directory");
        let names: Vec<_> = names.map(|name| name.unwrap().file_name()).collect();
        assert!(names.is_empty(), "{what}: files are left: {names:?}");
    }
}

impl Soak {
    fn new(qbytes: u64, in_order: bool) -> Soak {
        let place = Place::new();
        let queue = place.create_typed(KEY);
        let change = Change {
            qbytes: Some(qbytes),
            ..Change::default()
        };
        queue.set(&change).expect("a smaller queue");
        Soak {
            in_order,
            place,
            queue,
            journal: Shared::new(),
        }
    }

    /// None while a process that holds the lock is stopped.
    fn status(&self) -> Option<Status> {
        match self.queue.status() {
            Ok(status) => Some(status),
            Err(ControlError::Busy) => None,
            Err(error) => panic!("status: {error}"),
        }
    }

    /// Takes out what is left, and gives those that are dead and wait what they wait for: it comes back after a slice.
    fn drain(&self, what: &str) -> usize {
        let mut clerk = Clerk::of_short(&self.queue, &self.journal, SUPERVISOR, SIZE);
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

    /// No process has left anything that should not be there: what each slot, list and counter says fits together.
    fn check_bytes(&self, what: &str) {
        let repaired = sysv::repair(&self.place.namespace, KEY).expect("a repair");
        expect_healthy(&repaired, what);
    }

    /// Who waits for a message or for room, and a poller, is told at once.
    fn check_promptness(&self, what: &str) {
        let queue = &self.queue;
        let send = |mtype| queue.try_send(mtype, &[7; SIZE]);
        let receive = || queue.try_receive(Want::Any, &mut [0; SIZE]);
        let empty = || while receive().is_ok() {};
        let is_one = |count: fn(&Status) -> usize| {
            move || self.status().is_some_and(|status| count(&status) == 1)
        };
        expect_prompt(&format!("{what}: a blocked receiver"), || {
            let wait = || {
                queue.receive(Want::Exactly(3), &mut [0; SIZE]).unwrap();
            };
            let act = || {
                send(2).expect("room");
                send(3).expect("room");
            };
            let is_waiting = is_one(|status| status.blocked_receivers);
            let took = wakes_sleeper(what, wait, is_waiting, act);
            empty();
            took
        });
        expect_prompt(&format!("{what}: a blocked sender"), || {
            while send(1).is_ok() {}
            let wait = || queue.send(1, &[7; SIZE]).unwrap();
            let is_waiting = is_one(|status| status.blocked_senders);
            let act = || assert!(receive().is_ok(), "a message");
            wakes_sleeper(what, wait, is_waiting, act)
        });
        expect_prompt(&format!("{what}: a poller"), || {
            empty();
            let pollable = || queue.pollable().expect("a doorbell");
            wakes_poller(what, pollable, || send(1).expect("room"))
        });
        empty();
    }
}

fn soak(qbytes: u64, in_order: bool, what: &'static str) {
    harass::soak(what, SOAKS, || Soak::new(qbytes, in_order));
}

#[test]
fn random_kills_around_a_small_queue_lose_nothing_and_stop_nobody() {
    soak(1000, false, "System V, 1,000 bytes");
}

#[test]
fn random_kills_around_a_large_queue_lose_nothing_and_stop_nobody() {
    soak(16_384, false, "System V, 16,384 bytes");
}

#[test]
fn one_receiver_gets_all_messages_in_order_whatever_happens_to_senders() {
    soak(4_096, true, "System V, one receiver");
}
