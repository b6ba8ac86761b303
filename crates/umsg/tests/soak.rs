//! Four senders, four receivers, and a supervisor that kills and stops them at random. Some send and receive in place: what
//! they hold when they are killed has to come back.
//!
//! At the end nothing may be missing but what a killed receiver may have held, nothing may have come twice, nobody may
//! have been stuck, and the queue's own counters must agree. Five seconds for each;
//! `UMSG_SOAK_SECONDS` asks for another time.

mod support;

use std::sync::atomic::Ordering::SeqCst;
use std::time::{Duration, Instant};
use support::child::{Child, Exit, let_calls_be_interrupted};
use support::journal::{Actor, How, Journal, MESSAGES, Role};
use support::place::Place;
use support::shared::Shared;
use support::{Random, milliseconds, now, turn, wait_until};
use umsg::posix::{Lease, Queue, ReceiveError, SendError, Waiting};

const SENDERS: usize = 4;
const WORKERS: usize = 8;
/// The supervisor's own part.
const SUPERVISOR: usize = 8;

/// The longest message, in bytes.
const SIZE: usize = 200;

/// How long a worker may be inside of a call that should succeed, stopped time not counted.
const STUCK: Duration = Duration::from_secs(2);
/// The longest that a timed call waits.
const TIMED: u64 = 30;

/// What a worker does in one call, and how.
fn how(random: &mut Random) -> How {
    match random.below(4) {
        0 => How::Block,
        1 => How::Within(Duration::from_millis(random.below(TIMED))),
        2 => How::Within(Duration::from_micros(random.below(300))),
        _ => How::Try,
    }
}

fn mode(random: &mut Random) -> Waiting {
    match random.below(3) {
        0 => Waiting::Blocking,
        _ => Waiting::Adaptive,
    }
}

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

/// Sleeps now and then, so that the queue is sometimes full and sometimes empty, and a journal lasts.
fn rest(random: &mut Random, worked: bool) {
    let micros = match random.below(50) {
        0 => random.below(3000),
        _ if worked => return,
        _ => random.below(100),
    };
    std::thread::sleep(Duration::from_micros(micros));
}

/// Half of the workers die by themselves at a named point, where the feature is compiled in: deaths that a signal at a
/// random time hits too seldom, beside others that are at work.
fn arm_some_point(random: &mut Random) {
    #[cfg(feature = "crash-points")]
    if random.below(2) == 0 {
        let points = umsg::crash::POINTS;
        let (_, name, _) = points[random.below(points.len() as u64) as usize];
        umsg::crash::arm(name, 1 + random.below(60) as u32);
    }
    let _ = random;
}

/// One worker's place, and the process that has it now.
struct Worker {
    role: usize,
    child: Child,
    /// When it goes on, if it is stopped.
    stopped_until: Option<Instant>,
    /// The call that was going on when its progress was last looked at, and for how long without anybody stopped.
    watched: (u64, Duration),
}

struct Soak {
    /// Whether every other worker sends and receives in place.
    in_place: bool,
    place: Place,
    queue: Queue,
    journal: Shared<Journal>,
    random: Random,
    spawned: u64,
    kills: u32,
    /// Workers that died at a named point.
    deaths: u32,
    stops: u32,
    /// Receivers killed inside of a receive.
    dead_receivers: usize,
    longest: Duration,
}

impl Soak {
    fn new(depth: u32, in_place: bool, seed: u64) -> Soak {
        // Before any worker is forked: one may be asked to end as its first act.
        let_calls_be_interrupted();
        let place = Place::new();
        let queue = place.create("/soak", depth, SIZE as u32);
        Soak {
            in_place,
            place,
            queue,
            journal: Shared::new(),
            random: Random::new(seed),
            spawned: 0,
            kills: 0,
            deaths: 0,
            stops: 0,
            dead_receivers: 0,
            longest: Duration::ZERO,
        }
    }

    fn role(&self, role: usize) -> &Role {
        &self.journal.roles[role]
    }

    fn start(&mut self, role: usize) -> Child {
        self.spawned += 1;
        let mut random = Random::new(self.spawned * 64 + role as u64);
        self.role(role).begun_at.store(0, SeqCst);
        self.role(role).receiving.store(0, SeqCst);
        Child::run(|| {
            arm_some_point(&mut random);
            let queue = self.place.open("/soak");
            queue.set_waiting(mode(&mut random));
            let mut actor = Actor::new(&queue, &self.journal, role, SIZE);
            match (role < SENDERS, role % 2 == 1 && self.in_place) {
                (true, false) => send_for_ever(&mut actor, &mut random),
                (true, true) => send_in_place_for_ever(&mut actor, &mut random),
                (false, false) => receive_for_ever(&mut actor, &mut random),
                (false, true) => receive_in_place_for_ever(&mut actor, &mut random),
            }
            0
        })
    }

    fn start_all(&mut self) -> Vec<Worker> {
        (0..WORKERS)
            .map(|role| Worker {
                role,
                child: self.start(role),
                stopped_until: None,
                watched: (0, Duration::ZERO),
            })
            .collect()
    }

    /// Kills one worker, or stops it for a while, or lets it be.
    fn harass(&mut self, workers: &mut [Worker]) {
        let victim = self.random.below(WORKERS as u64) as usize;
        let worker = &mut workers[victim];
        if self.random.below(8) == 0 && worker.stopped_until.is_none() {
            worker.child.signal(libc::SIGSTOP);
            let time = Duration::from_millis(5 + self.random.below(150));
            worker.stopped_until = Some(Instant::now() + time);
            self.stops += 1;
            return;
        }
        worker.child.signal(libc::SIGKILL);
        self.kills += 1;
        self.replace(worker);
    }

    /// Starts a new worker in place of one that was killed.
    fn replace(&mut self, worker: &mut Worker) {
        worker
            .child
            .expect(Exit::Signal(libc::SIGKILL), "a worker before it was killed");
        self.dead_receivers += self.role(worker.role).receiving.load(SeqCst) as usize;
        worker.child = self.start(worker.role);
        worker.stopped_until = None;
        worker.watched = (0, Duration::ZERO);
    }

    /// Starts new workers in place of those that have died at a point.
    fn replace_the_dead(&mut self, workers: &mut [Worker]) {
        for worker in workers {
            if worker.child.wait(Duration::ZERO).is_some() {
                self.deaths += 1;
                self.replace(worker);
            }
        }
    }

    fn let_go_on(workers: &mut [Worker]) {
        for worker in workers {
            if worker
                .stopped_until
                .is_some_and(|until| Instant::now() >= until)
            {
                worker.child.signal(libc::SIGCONT);
                worker.stopped_until = None;
            }
        }
    }

    /// Adds the time since the last look to the stall of every worker that should have got on in it. One that is
    /// stopped may hold a lock, so time in which anybody is stopped does not count; neither does that of a call that
    /// waits for something that is not there.
    fn watch(&mut self, workers: &mut [Worker], passed: Duration) {
        let anybody_stopped = workers.iter().any(|worker| worker.stopped_until.is_some());
        let held = self.queue.attributes();
        let taken = held.messages + held.reserved + held.leased;
        let (empty, full) = (held.messages == 0, taken >= held.max_messages);
        for worker in workers {
            let begun = self.journal.roles[worker.role].begun_at.load(SeqCst);
            let hopeless = if worker.role < SENDERS { full } else { empty };
            if begun == 0 || begun != worker.watched.0 {
                worker.watched = (begun, Duration::ZERO);
            } else if !hopeless && !anybody_stopped {
                worker.watched.1 += passed;
                self.longest = self.longest.max(worker.watched.1);
            }
            assert!(
                worker.watched.1 < STUCK,
                "role {} is stuck: {:?} in one call, queue {:?}, {} ms since it began",
                worker.role,
                worker.watched.1,
                self.queue.status(),
                milliseconds(now() - begun)
            );
        }
    }

    fn run(&mut self, time: Duration) {
        let mut workers = self.start_all();
        let begun = Instant::now();
        let mut looked = Instant::now();
        while begun.elapsed() < time && self.journal.used() < MESSAGES - 100_000 {
            let next = Instant::now() + Duration::from_micros(500 + self.random.below(8000));
            while Instant::now() < next {
                std::thread::sleep(Duration::from_micros(500));
                Self::let_go_on(&mut workers);
                self.replace_the_dead(&mut workers);
                self.watch(&mut workers, looked.elapsed());
                looked = Instant::now();
            }
            self.harass(&mut workers);
        }
        self.end(workers);
    }

    /// Lets the survivors end: senders first, while there are receivers.
    fn end(&mut self, workers: Vec<Worker>) {
        for worker in &workers {
            worker.child.signal(libc::SIGCONT);
        }
        let (mut senders, mut receivers) = (Vec::new(), Vec::new());
        for worker in workers {
            if worker.role < SENDERS {
                senders.push(worker);
            } else {
                receivers.push(worker);
            }
        }
        for worker in senders.iter_mut().chain(&mut receivers) {
            self.role(worker.role).go.store(1, SeqCst);
            let ended = wait_until(Duration::from_secs(5), || {
                worker.child.signal(libc::SIGUSR1);
                worker.child.wait(Duration::from_millis(1)).is_some()
            });
            assert!(ended, "role {} is stuck at the end", worker.role);
            let exit = worker.child.wait(Duration::ZERO);
            if exit == Some(Exit::Signal(libc::SIGKILL)) {
                self.dead_receivers += self.role(worker.role).receiving.load(SeqCst) as usize;
            } else {
                assert_eq!(exit, Some(Exit::Code(0)), "a surviving worker");
            }
        }
    }

    fn judge(&self, what: &str) {
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
            "soak, {what}: {} kills and {} deaths at a point ({} inside of a receive), {} stops, {} messages sent and {} received, {missing} lost with \
             their receivers, {left} left at the end; {} and {} repairs, {} slots; longest stall {:.1} ms",
            self.kills,
            self.deaths,
            self.dead_receivers,
            self.stops,
            self.journal.used(),
            self.journal.received(),
            status.statistics.sender_repairs,
            status.statistics.receiver_repairs,
            status.slots,
            self.longest.as_secs_f64() * 1e3,
        );
        assert!(
            missing <= self.dead_receivers,
            "{what}: {missing} messages lost"
        );
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

/// How long to go on, twice.
fn time() -> Duration {
    let asked = std::env::var("UMSG_SOAK_SECONDS").ok();
    Duration::from_secs(asked.and_then(|text| text.parse().ok()).unwrap_or(10))
}

fn soak(depth: u32, in_place: bool, what: &str) {
    let _turn = turn();
    let seed = now();
    eprintln!("soak, {what}: seed {seed}");
    let mut soak = Soak::new(depth, in_place, seed);
    soak.run(time() / 2);
    soak.judge(what);
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
