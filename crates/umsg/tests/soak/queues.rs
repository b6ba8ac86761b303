//! Random violence to processes that send and receive through a queue, POSIX or System V.
//!
//! At the end of each round, the test fails unless only messages that dead receivers held are missing, no message came twice
//! or out of order, no process was stuck, and the queue's own counters agree.

use crate::chaos::harass::{
    self, Figures, Leaks, Part, SUPERVISOR, Work, commotion, expect_healthy, expect_prompt, rest,
    wakes_poller, wakes_sleeper,
};
use crate::chaos::journal::{How, Journal};
use crate::chaos::points::Face;
use crate::chaos::turns::Turns;
use crate::support::place::Place;
use crate::support::shared::Shared;
use crate::support::{Random, wait_until};
use std::fmt::Display;
use std::os::fd::BorrowedFd;
use std::path::PathBuf;
use std::sync::atomic::Ordering::SeqCst;
use std::time::Duration;
use umsg::diagnosis::Repaired;
#[cfg(feature = "crash-points")]
use umsg_shm::account::Account;

/// The length of the longest message, in bytes.
pub const SIZE: usize = 200;
const WORKERS: usize = 8;

/// A kind of queue. A message's label is its priority or its type.
pub trait Kind: Sync + Sized {
    type Queue: Sync;
    type Status;
    /// The work of a process, which records its calls in the journal.
    type Worker<'a>;
    const FACE: Face;
    /// True if a sender's messages keep their order only within a priority.
    const HAS_PRIORITIES: bool;
    /// True if an offer to a dead receiver may return after the queue is at rest.
    const RETURNS_OFFERS_LATE: bool;

    /// Opens the queue.
    fn open(place: &Place, random: &mut Random) -> Self::Queue;
    fn worker<'a>(queue: &'a Self::Queue, journal: &'a Journal, index: usize) -> Self::Worker<'a>;
    /// Returns a random message: its label and its length in bytes.
    fn message(random: &mut Random) -> (u16, usize);

    /// Sends as the sender of this index does. Returns whether a message was sent.
    fn send(&self, worker: &mut Self::Worker<'_>, sender: usize, random: &mut Random) -> bool;
    /// Receives as the receiver of this index does. Returns whether a message came.
    fn receive(&self, worker: &mut Self::Worker<'_>, receiver: usize, random: &mut Random) -> bool;
    /// Receives the next messages of any label. Returns their numbers.
    fn receive_any(worker: &mut Self::Worker<'_>, random: &mut Random) -> Vec<usize>;
    /// Sends one message. Returns whether the message was sent.
    fn put(worker: &mut Self::Worker<'_>, how: How, message: (u16, usize)) -> bool;
    /// Receives one message; with `random`, one of a random selection. Returns whether a message came.
    fn take(worker: &mut Self::Worker<'_>, how: How, random: Option<&mut Random>) -> bool;
    /// Sends messages for waiting receivers of all selections, dead receivers included.
    fn offer_to_all(worker: &mut Self::Worker<'_>);

    /// Sends without a record in the journal, and without memory from malloc.
    fn try_send(queue: &Self::Queue, label: u16, bytes: &[u8]) -> bool;
    /// Receives without a record in the journal, and without memory from malloc. Returns the message's length and label.
    fn try_receive(
        queue: &Self::Queue,
        random: Option<&mut Random>,
        room: &mut [u8],
    ) -> Option<(usize, u64)>;
    fn pollable(queue: &Self::Queue) -> BorrowedFd<'_>;

    /// Returns the status of the queue; None while a stopped process holds the lock.
    fn status(queue: &Self::Queue) -> Option<Self::Status>;
    /// Returns the numbers of blocked senders and of blocked receivers.
    fn blocked(status: &Self::Status) -> (usize, usize);
    /// Returns whether no dead process waits or holds a message.
    fn is_at_rest(status: &Self::Status) -> bool;
    fn repairs(status: &Self::Status) -> u64;
    /// Returns whether there may be no room to send, and whether there may be no message to receive.
    fn lacks(status: &Self::Status, journal: &Journal) -> (bool, bool);
    fn describe(queue: &Self::Queue, place: &Place) -> String;

    /// Fails unless the counts are those of an empty, sound queue.
    fn check_counts(status: &Self::Status, what: &str);
    /// Returns the number of messages of 150 bytes that fit into the queue.
    fn fits(status: &Self::Status) -> usize;
    /// Fails if an empty queue has lost memory since `before`, or still has waiters.
    fn check_memory(queue: &Self::Queue, before: &Self::Status, what: &str);
    /// Returns the number of slots in each state. None while a stopped process holds a lock.
    #[cfg(feature = "crash-points")]
    fn account(queue: &Self::Queue) -> Option<Account>;
    /// Waits for the message that `wake_receiver` sends.
    fn wait_for_message(queue: &Self::Queue);
    fn wake_receiver(queue: &Self::Queue);
    fn wait_for_room(queue: &Self::Queue);
    /// Fails unless a registered process is notified at once.
    fn check_notification(_queue: &Self::Queue) {}
    fn repair(place: &Place) -> Repaired;
    /// Removes the queue. Returns the directory of its kind, in which no file may be left.
    fn remove(queue: Self::Queue, place: &Place) -> PathBuf;
}

/// An error of a call that may wait.
pub trait CallError: Display {
    /// Returns whether any call may end with this error, because there was no room or no message.
    fn is_usual(&self) -> bool;
}

/// Returns the result of a successful call; `None` if the call ended with an error that any call may give.
pub fn done<T, E: CallError>(result: Result<T, E>) -> Option<T> {
    match result {
        Ok(done) => Some(done),
        Err(error) if error.is_usual() => None,
        Err(error) => panic!("{error}"),
    }
}

pub struct Soak<K: Kind> {
    kind: K,
    /// True if one process receives all messages in order. This process is not killed.
    in_order: bool,
    place: Place,
    queue: K::Queue,
    journal: Shared<Journal>,
}

impl<K: Kind> Work for Soak<K> {
    type Tool = K::Queue;

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
        K::FACE
    }

    fn journal(&self) -> &Journal {
        &self.journal
    }

    fn open(&self, random: &mut Random) -> K::Queue {
        K::open(&self.place, random)
    }

    fn play(&self, queue: &K::Queue, part: Part, random: &mut Random) {
        let mut worker = K::worker(queue, &self.journal, part.index());
        let mut turns = Turns::default();
        while self.journal.roles[part.index()].go.load(SeqCst) == 0 {
            let worked = if part.role < self.senders() {
                self.kind.send(&mut worker, part.role, random)
            } else if self.in_order {
                let numbers = K::receive_any(&mut worker, random);
                turns.expect(&self.journal, &numbers, K::HAS_PRIORITIES);
                !numbers.is_empty()
            } else {
                let receiver = part.role - self.senders();
                self.kind.receive(&mut worker, receiver, random)
            };
            rest(random, worked);
            commotion(self, queue, part, random);
        }
    }

    fn visit(&self, queue: &K::Queue, index: usize, random: &mut Random) {
        let mut worker = K::worker(queue, &self.journal, index);
        for _ in 0..random.below(10) {
            let how = How::Within(Duration::from_micros(random.below(500)));
            let message = K::message(random);
            match random.below(2) {
                0 if !self.in_order => K::take(&mut worker, how, Some(random)),
                _ => K::put(&mut worker, how, message),
            };
        }
    }

    fn handle(&self, queue: &K::Queue, index: usize, random: &mut Random) {
        let journal = &self.journal;
        if self.in_order || random.below(2) == 0 {
            let (label, len) = K::message(random);
            let mut bytes = [0; SIZE];
            let bytes = &mut bytes[..len.max(4)];
            let (number, records) = journal.next(1);
            records[0].begin(number, journal.author(index), label, bytes);
            records[0].end(K::try_send(queue, label, bytes));
        } else {
            let mut room = journal.room(index, SIZE);
            if let Some((len, label)) = K::try_receive(queue, Some(random), &mut room) {
                journal.note(&room[..len], label);
            }
        }
    }

    fn lacks(&self) -> Option<(bool, bool)> {
        Some(K::lacks(&K::status(&self.queue)?, &self.journal))
    }

    fn check(&self) {
        #[cfg(feature = "crash-points")]
        if let Some(account) = K::account(&self.queue) {
            assert_eq!(account.lost(), 0, "slots that are in no place: {account:?}");
        }
    }

    fn describe(&self) -> String {
        K::describe(&self.queue, &self.place)
    }

    fn judge(&self, round: &mut Figures, what: &str) {
        self.drain(what);
        self.journal.expect_none_missing(what);
        let status = self.status();
        K::check_counts(&status, what);
        self.expect_room_soon(what);
        self.check_capacity(&status, what);
        expect_healthy(&K::repair(&self.place), what);
        self.check_promptness(what);
        round.sent = self.journal.sent() as u64;
        round.received = self.journal.received() as u64;
        round.lost = self.journal.lost_with_receivers() as u64;
        round.repairs = K::repairs(&status);
    }

    fn end(self, leaks: Leaks, what: &str) {
        // A process that begins to poll removes the doorbells that no process polls any more.
        K::pollable(&self.queue);
        // If a doorbell already existed, this process has not made one, and so has removed none. Then the sweep removes the unused doorbells.
        self.place.namespace.sweep().expect("the namespace");
        let directory = K::remove(self.queue, &self.place);
        drop(self.journal);
        leaks.expect_none(&[&directory], what);
        self.place.expect_no_poll_fifos(what);
    }
}

impl<K: Kind> Soak<K> {
    /// Soaks a queue that `make` creates for each round.
    pub fn run(
        what: &'static str,
        soaks: u32,
        in_order: bool,
        make: impl Fn(&Place) -> (K, K::Queue),
    ) {
        harass::soak(what, soaks, || {
            let place = Place::new();
            let (kind, queue) = make(&place);
            let journal = Shared::new();
            Soak {
                kind,
                in_order,
                place,
                queue,
                journal,
            }
        });
    }

    fn status(&self) -> K::Status {
        K::status(&self.queue).expect("no process is stopped")
    }

    /// Receives all remaining messages, until no dead process waits or holds a message. Messages of dead processes come back after a slice.
    fn drain(&self, what: &str) {
        let mut worker = K::worker(&self.queue, &self.journal, SUPERVISOR);
        let is_done = wait_until(Duration::from_secs(3), || {
            K::offer_to_all(&mut worker);
            while K::take(&mut worker, How::Try, None) {}
            let is_at_rest = K::is_at_rest(&self.status());
            if !is_at_rest {
                std::thread::sleep(Duration::from_millis(105));
            }
            is_at_rest
        });
        let state = || self.describe();
        assert!(
            is_done,
            "{what}: dead processes wait or hold messages: {}",
            state()
        );
        if K::RETURNS_OFFERS_LATE {
            std::thread::sleep(Duration::from_millis(105));
            while K::take(&mut worker, How::Try, None) {}
        }
    }

    /// Fails unless there is room within a second. For a tenth of a second, room may be kept for a batch whose sender has just died.
    fn expect_room_soon(&self, what: &str) {
        let has_room = || K::try_send(&self.queue, 1, &[7]);
        assert!(wait_until(Duration::from_secs(1), has_room), "{what}");
        assert!(self.receive(), "{what}");
    }

    fn receive(&self) -> bool {
        K::try_receive(&self.queue, None, &mut [0; SIZE]).is_some()
    }

    /// Fails unless no slot was lost: the queue takes as many messages as at first, in no more memory, and each slot is free at the end.
    fn check_capacity(&self, before: &K::Status, what: &str) {
        let fits = K::fits(before);
        for _ in 0..2 {
            let send = |_: &usize| K::try_send(&self.queue, 1, &[7; 150]);
            assert_eq!((0..=fits).take_while(send).count(), fits, "{what}");
            let receive = || self.receive().then_some(());
            assert_eq!(std::iter::from_fn(receive).count(), fits, "{what}");
        }
        K::check_memory(&self.queue, before, what);
        #[cfg(feature = "crash-points")]
        {
            let account = K::account(&self.queue).expect("no process is stopped");
            assert_eq!(account.free, account.slots, "{what}: {account:?}");
        }
    }

    /// Fails unless a receiver, a sender and a poller that wait wake up at once.
    fn check_promptness(&self, what: &str) {
        let queue = &self.queue;
        let empty = || while self.receive() {};
        let blocked = || K::status(queue).map_or((0, 0), |status| K::blocked(&status));
        expect_prompt(&format!("{what}: a blocked receiver"), || {
            let wait = || K::wait_for_message(queue);
            let took = wakes_sleeper(what, wait, || blocked().1 == 1, || K::wake_receiver(queue));
            empty();
            took
        });
        expect_prompt(&format!("{what}: a blocked sender"), || {
            while K::try_send(queue, 1, &[7; SIZE]) {}
            let wait = || K::wait_for_room(queue);
            let act = || assert!(self.receive(), "a message");
            wakes_sleeper(what, wait, || blocked().0 == 1, act)
        });
        expect_prompt(&format!("{what}: a poller"), || {
            empty();
            let send = || assert!(K::try_send(queue, 1, &[7; SIZE]), "room");
            wakes_poller(what, || K::pollable(queue), send)
        });
        empty();
        K::check_notification(queue);
    }
}
