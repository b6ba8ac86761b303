//! The soak of dead letters: messages expire, are returned too often, wait for a later delivery, and are sent back, while the processes that
//! move them are killed.
//!
//! Each sent message is at each moment in one place: in the source, in the dead-letter queue, or acknowledged. At the end, each message was
//! acknowledged once. If the dead-letter queue drops its oldest messages, the number of missing messages is its count of dropped messages. The
//! senders are producers: after their end, or their death, the source is closed.

use crate::chaos::actor::Actor;
use crate::chaos::harass::{
    self, Figures, Leaks, Part, SUPERVISOR, Work, commotion, delay, expect_healthy, how, rest,
    take_time,
};
use crate::chaos::journal::{How, Journal};
use crate::chaos::points::Face;
use crate::support::child::{Child, Exit};
use crate::support::place::Place;
use crate::support::shared::{Shared, Zeroed};
use crate::support::{Random, wait_until};
use std::collections::{BTreeSet, HashMap};
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::time::Duration;
use umsg::posix::{self, OnFull, Peeked, Queue, ReceiveError, Redrive, SendError, unlink_in};

const SOURCE: &str = "/soak";
const DEAD: &str = "/soak.dead";
/// The length of the longest message, in bytes.
const SIZE: usize = 64;
const DEPTH: u32 = 30;
const SENDERS: usize = 4;
const WORKERS: usize = 8;
/// The maximum number of messages in a batch.
const BATCH: u64 = 3;
/// The time to live. It is short: a process that is stopped now and then lets messages expire.
const TIME_TO_LIVE: Duration = Duration::from_millis(60);
/// The maximum number of deliveries: a returned message is delivered once more, and then becomes a dead letter.
const DELIVERIES: u32 = 2;
/// With more set-aside messages than this, senders may lack room. The limit is lower than the number that takes room, because processes continue
/// between two checks.
const CROWDED: usize = 900;
/// The maximum number of latest messages that a check of the queues covers: it records first which of them were acknowledged. The queues hold fewer
/// messages than this.
const RECENT: usize = 20_000;
/// The maximum time until all leases and reservations of dead processes have ended, on a machine that is busy with other things.
const PATIENCE: Duration = Duration::from_secs(30);

/// The count of messages that all processes sent back from the dead-letter queue.
struct Account {
    redriven: AtomicU64,
}

// SAFETY: made of atomics.
unsafe impl Zeroed for Account {}

struct Soak {
    /// True if the dead-letter queue drops its oldest messages.
    drops: bool,
    place: Place,
    source: Queue,
    dead: Queue,
    journal: Shared<Journal>,
    account: Shared<Account>,
}

/// The queues of a process.
struct Queues {
    source: Queue,
    dead: Queue,
}

/// Returns whether a send succeeded. A queue that closed because all its producers were dead at one time is opened again.
fn is_sent<T>(queue: &Queue, result: Result<T, SendError>) -> bool {
    match result {
        Ok(_) => true,
        Err(SendError::Closed) => {
            queue.reopen_send().expect("an open queue");
            false
        }
        Err(SendError::Full | SendError::TimedOut | SendError::Interrupted) => false,
        Err(error) => panic!("{error}"),
    }
}

fn number_of(peeked: &Peeked) -> usize {
    let (number, _) = peeked.data.split_first_chunk().expect("a number");
    u32::from_le_bytes(*number) as usize
}

impl Soak {
    fn new(drops: bool, depth_of_dead: u32) -> Soak {
        let place = Place::new();
        let mut options = place.options(depth_of_dead, SIZE as u32);
        if drops {
            options.on_full(OnFull::DropOldest);
        }
        let dead = options.open(DEAD).expect("a queue");
        let mut options = place.options(DEPTH, SIZE as u32);
        options.dead_letter(DEAD).time_to_live(TIME_TO_LIVE);
        options.max_deliveries(DELIVERIES);
        options.close_with_last_producer(true);
        let source = options.open(SOURCE).expect("a queue");
        Soak {
            drops,
            place,
            source,
            dead,
            journal: Shared::new(),
            account: Shared::new(),
        }
    }

    fn goes_on(&self, part: Part) -> bool {
        self.journal.roles[part.index()].go.load(SeqCst) == 0
    }

    fn send(&self, queues: &Queues, part: Part, random: &mut Random) {
        let queue = &queues.source;
        let mut actor = Actor::new(queue, &self.journal, part.index(), SIZE);
        let _producer = loop {
            match queue.producer() {
                Ok(producer) => break producer,
                Err(error) => _ = is_sent::<()>(queue, Err(error)),
            }
        };
        while self.goes_on(part) {
            take_time(random);
            let message = |random: &mut Random| {
                let priority = random.below(3) as u16;
                (priority, 1 + random.below(SIZE as u64) as usize)
            };
            let ((priority, len), how) = (message(random), how(random));
            let sent = match random.below(4) {
                0 => {
                    let count = 2 + random.below(BATCH - 1);
                    let batch: Vec<_> = (0..count).map(|_| message(random)).collect();
                    is_sent(queue, actor.send_batch(how, &batch))
                }
                1 => is_sent(queue, actor.send_after(how, priority, len, delay(random))),
                _ => is_sent(queue, actor.send(how, priority, len)),
            };
            rest(random, sent);
            commotion(self, queues, part, random);
        }
    }

    fn receive(&self, queues: &Queues, part: Part, random: &mut Random) {
        let mut actor = Actor::new(&queues.source, &self.journal, part.index(), SIZE);
        while self.goes_on(part) {
            // The last worker mostly sends dead letters back.
            let redrives = match part.role == WORKERS - 1 {
                true => random.below(4) != 0,
                false => random.below(16) == 0,
            };
            let worked = match redrives {
                true => self.redrive(&queues.dead, part.index(), random),
                false => self.lease(&mut actor, how(random), random),
            };
            rest(random, worked);
            commotion(self, queues, part, random);
        }
    }

    /// Leases a message and acknowledges it, or returns it at once or with a delay, or lets the lease end by itself.
    fn lease(&self, actor: &mut Actor<'_>, how: How, random: &mut Random) -> bool {
        let lease = match actor.lease(how) {
            Ok(lease) => lease,
            Err(
                ReceiveError::Empty
                | ReceiveError::TimedOut
                | ReceiveError::Interrupted
                | ReceiveError::Closed,
            ) => return false,
            Err(error) => panic!("{error}"),
        };
        match random.below(8) {
            0 => drop(lease),
            1 => lease.return_after(delay(random)).expect("a lease"),
            2 => {
                lease.limit(Duration::from_millis(1)).expect("a lease");
                std::mem::forget(lease);
            }
            _ => _ = actor.acknowledge(lease).expect("a lease without a limit"),
        }
        true
    }

    /// Sends the first dead letters back, several or a single one. Returns whether a message was sent back.
    fn redrive(&self, dead: &Queue, index: usize, random: &mut Random) -> bool {
        let which = Redrive::new();
        let which = match random.below(4) {
            0 => which.count(1).to(SOURCE),
            1 => which.count(30),
            _ => which.count(8).source(SOURCE),
        };
        self.journal.begin(index, How::Block);
        let redriven = dead.redrive(&which);
        self.journal.end(index);
        match redriven {
            Ok(redriven) => {
                let messages = redriven.messages as u64;
                self.account.redriven.fetch_add(messages, SeqCst);
                messages != 0
            }
            Err(ReceiveError::Interrupted | ReceiveError::TimedOut) => false,
            Err(error) => panic!("a redrive: {error}"),
        }
    }

    /// Returns whether each of the last messages was acknowledged, and the number of the first of these messages.
    fn acknowledged(&self) -> (usize, Vec<bool>) {
        let messages = self.journal.messages();
        let first = messages.len().saturating_sub(RECENT);
        let received = messages[first..]
            .iter()
            .map(|message| message.received.load(SeqCst) != 0);
        (first, received.collect())
    }

    /// Fails if a message is in two places at once. Other processes move messages meanwhile. But a message that has the same place in the dead-letter
    /// queue before and after the check was there all the time.
    fn expect_one_place(&self) {
        let (first, acknowledged) = self.acknowledged();
        let list = |queue: &Queue| queue.messages(usize::MAX);
        let (Ok(before), Ok(source), Ok(after)) =
            (list(&self.dead), list(&self.source), list(&self.dead))
        else {
            // A stopped process, which is about to continue, still holds a lock.
            return;
        };
        for list in [&before, &source, &after] {
            let mut numbers = BTreeSet::new();
            for number in list.iter().map(number_of) {
                let was_taken = number
                    .checked_sub(first)
                    .and_then(|at| acknowledged.get(at));
                assert_ne!(
                    was_taken,
                    Some(&true),
                    "message {number} was acknowledged, and is in a queue"
                );
                assert!(
                    numbers.insert(number),
                    "message {number} is twice in a queue"
                );
            }
        }
        let places = |list: &[Peeked]| {
            let place = |peeked: &Peeked| {
                let history = peeked
                    .history
                    .as_ref()
                    .expect("a dead letter has a history");
                (number_of(peeked), history.id)
            };
            list.iter().map(place).collect::<HashMap<_, _>>()
        };
        let (before, after) = (places(&before), places(&after));
        for number in source.iter().map(number_of) {
            let (was, is) = (before.get(&number), after.get(&number));
            assert!(
                was.is_none() || was != is,
                "message {number} is in two queues"
            );
        }
    }

    /// Fails unless the source closes after the death of its last producer, and a receiver learns of the end once no message is left. All earlier
    /// producers have ended or died.
    fn expect_the_end(&self, what: &str) {
        let mut last = Child::run(|| {
            // This call is refused if the queue has closed already.
            std::mem::forget(self.source.producer());
            0
        });
        last.expect(Exit::Code(0), what);
        let mut actor = Actor::new(&self.source, &self.journal, SUPERVISOR, SIZE);
        let is_closed = wait_until(PATIENCE, || {
            match actor.lease(How::Try) {
                Ok(lease) => _ = actor.acknowledge(lease).expect("a lease"),
                Err(ReceiveError::Closed) => return true,
                Err(ReceiveError::Empty) => std::thread::sleep(Duration::from_millis(5)),
                Err(error) => panic!("{what}: {error}"),
            }
            false
        });
        assert!(
            is_closed,
            "{what}: no producer is left, and the queue is open: {}",
            self.describe()
        );
        self.source.reopen_send().expect("an open queue");
    }

    /// Sends all dead letters back and acknowledges all messages, until no process holds one.
    fn drain(&self, what: &str) {
        let mut actor = Actor::new(&self.source, &self.journal, SUPERVISOR, SIZE);
        let is_done = wait_until(PATIENCE, || {
            let redriven = self
                .dead
                .redrive(&Redrive::new())
                .expect("the dead letters");
            let mut count = redriven.messages;
            while let Ok(lease) = actor.lease(How::Try) {
                count += 1;
                _ = actor.acknowledge(lease).expect("a lease");
            }
            if count == 0 {
                // The messages that dead processes hold come back after a slice.
                std::thread::sleep(Duration::from_millis(20));
            }
            [&self.source, &self.dead].into_iter().all(is_empty)
        });
        assert!(
            is_done,
            "{what}: dead processes hold messages: {}",
            self.describe()
        );
    }

    /// Fails unless both queues work as at first: messages move in both directions, no lease or reservation is left, and each slot is free.
    fn expect_soundness(&self, what: &str) {
        for _ in 0..2 {
            assert!(self.source.try_send(&[0; 8], 0).is_ok(), "{what}: no room");
            // The message goes to the dead-letter queue: it is returned too often, or expires on a busy machine.
            let goes_back = || {
                if let Ok(lease) = self.source.try_receive_lease() {
                    let _ = lease.give_back();
                }
                self.dead
                    .redrive(&Redrive::new())
                    .is_ok_and(|done| done.messages == 1)
            };
            assert!(wait_until(PATIENCE, goes_back), "{what}: no dead letter");
            let ends = || match self.source.try_receive_lease() {
                Ok(lease) => lease.acknowledge().is_ok(),
                // The message has expired once more.
                Err(_) => self.dead.redrive(&Redrive::new()).is_err(),
            };
            assert!(wait_until(PATIENCE, ends), "{what}: it did not come back");
        }
        for name in [SOURCE, DEAD] {
            expect_healthy(
                &posix::repair(&self.place.namespace, name).expect("a repair"),
                what,
            );
            let found = posix::diagnose(&self.place.namespace, name).expect("a diagnosis");
            assert!(
                found.holds.is_empty(),
                "{what}: {name}: holds are left: {:?}",
                found.holds
            );
        }
        #[cfg(feature = "crash-points")]
        for queue in [&self.source, &self.dead] {
            let account = queue.account().expect("no process is stopped");
            assert_eq!(account.free, account.slots, "{what}: {account:?}");
        }
    }
}

/// Returns whether a queue has no message in any state. A message that was offered to a dead receiver comes back when its node is inspected.
fn is_empty(queue: &Queue) -> bool {
    let status = queue.status();
    let now = &status.attributes;
    let held = now.reserved + now.leased + now.delayed + status.set_aside;
    now.messages + held + status.blocked_receivers == 0
}

impl Work for Soak {
    type Tool = Queues;

    fn workers(&self) -> usize {
        WORKERS
    }

    fn senders(&self) -> usize {
        SENDERS
    }

    fn face(&self) -> Face {
        Face::Posix
    }

    fn journal(&self) -> &Journal {
        &self.journal
    }

    fn open(&self, _random: &mut Random) -> Queues {
        Queues {
            source: self.place.open(SOURCE),
            dead: self.place.open(DEAD),
        }
    }

    fn play(&self, queues: &Queues, part: Part, random: &mut Random) {
        match part.role < SENDERS {
            true => self.send(queues, part, random),
            false => self.receive(queues, part, random),
        }
    }

    fn visit(&self, queues: &Queues, index: usize, random: &mut Random) {
        let mut actor = Actor::new(&queues.source, &self.journal, index, SIZE);
        for _ in 0..random.below(10) {
            let how = How::Within(Duration::from_micros(random.below(500)));
            match random.below(3) {
                0 => _ = is_sent(&queues.source, actor.send(how, 1, SIZE)),
                1 => _ = self.redrive(&queues.dead, index, random),
                _ => _ = self.lease(&mut actor, how, random),
            }
        }
    }

    /// Any call may move messages to the dead-letter queue, and then allocates memory, which no handler may.
    fn handle(&self, _: &Queues, _: usize, _: &mut Random) {}

    fn lacks(&self) -> Option<(bool, bool)> {
        let now = self.source.attributes();
        let taken = now.messages + now.reserved + now.leased + now.delayed;
        let is_full = taken + self.journal.most_wanted(1) as usize > now.max_messages;
        // Set-aside messages may take room.
        let is_crowded = self.source.status().set_aside > CROWDED;
        Some((is_full || is_crowded, now.messages == 0))
    }

    fn check(&self) {
        self.expect_one_place();
        #[cfg(feature = "crash-points")]
        for queue in [&self.source, &self.dead] {
            if let Some(account) = queue.account() {
                assert_eq!(account.lost(), 0, "slots that are in no place: {account:?}");
            }
        }
    }

    fn describe(&self) -> String {
        format!("{:?}, {:?}", self.source.status(), self.dead.status())
    }

    fn judge(&self, round: &mut Figures, what: &str) {
        self.expect_the_end(what);
        self.drain(what);
        let dropped = self.dead.status().statistics.dropped as usize;
        match self.drops {
            false => {
                self.journal.expect_none_missing(what);
                assert_eq!(dropped, 0, "{what}: dropped messages");
            }
            true => {
                let missing = self.journal.missing(what);
                // A process that dies between the count and the drop of a message has counted a message that stays in the queue. A message whose
                // receiver died while it acknowledged the message may have been dropped, and is not missing.
                let deaths = (round.kills + round.deaths) as usize;
                let is_exact = (missing..=missing + 2 * deaths).contains(&dropped);
                assert!(
                    is_exact,
                    "{what}: {missing} messages are lost, and {dropped} were dropped"
                );
            }
        }
        self.expect_soundness(what);
        let redriven = self.account.redriven.load(SeqCst);
        assert!(redriven > 0, "{what}: no message was sent back");
        round.sent = self.journal.sent() as u64;
        round.received = self.journal.received() as u64;
        let repairs = |queue: &Queue| {
            let counted = queue.status().statistics;
            u64::from(counted.sender_repairs) + u64::from(counted.receiver_repairs)
        };
        round.repairs = repairs(&self.source) + repairs(&self.dead);
    }

    fn end(self, leaks: Leaks, what: &str) {
        for name in [SOURCE, DEAD] {
            unlink_in(&self.place.namespace, name).expect("the queue");
        }
        drop((self.source, self.dead, self.journal, self.account));
        leaks.expect_none(&[&self.place.path().join("mq")], what);
    }
}

fn soak(what: &'static str, drops: bool, depth_of_dead: u32) {
    harass::soak(what, super::SOAKS, || Soak::new(drops, depth_of_dead));
}

#[test]
fn random_kills_around_dead_letters_and_redrives_lose_nothing_and_double_nothing() {
    soak("POSIX, dead letters", false, 500);
}

#[test]
fn random_kills_around_dropped_dead_letters_lose_as_many_as_are_counted() {
    soak(
        "POSIX, dead letters of which the oldest are dropped",
        true,
        10,
    );
}
