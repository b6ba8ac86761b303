//! Three senders and an owner, and a supervisor that kills them at random; half of them die at a named point.
//!
//! Whatever dies: each owner gets each sender's messages whole, in order and without a gap; nobody is stuck in a call; and another
//! owner gets the name. Ten seconds; `UMSG_SOAK_SECONDS` asks for another time.

mod support;

use std::collections::HashMap;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::SeqCst};
use std::time::{Duration, Instant};
use support::child::{Child, Exit};
use support::harass::{time, waiting};
use support::place::Place;
use support::shared::{Shared, Zeroed};
use support::{Random, now, turn};
use umsg::ring::{Options, Post, RecvError, Ring, RingError, SendError, Sender, Until};

/// The first role owns the ring, the others send.
const WORKERS: usize = 4;
/// How long a call may last that has somebody to wait for.
const STUCK: Duration = Duration::from_secs(2);
const NAME: &str = "/soak";

/// What the workers leave for the supervisor.
struct Record {
    /// When the call began that a worker is in; 0 for none.
    begun_at: [AtomicU64; WORKERS],
    received: AtomicU64,
    owners: AtomicU64,
    /// The workers are to end.
    end: AtomicU32,
}

// SAFETY: made of atomics.
unsafe impl Zeroed for Record {}

impl Record {
    fn call<T>(&self, role: usize, call: impl FnOnce() -> T) -> T {
        self.begun_at[role].store(now(), SeqCst);
        let result = call();
        self.begun_at[role].store(0, SeqCst);
        result
    }

    fn goes_on(&self) -> bool {
        self.end.load(SeqCst) == 0
    }
}

fn post(number: u64) -> Post {
    Post::new(number).payload(&[number as u8; 64][..number as usize % 65])
}

/// Makes the ring, as soon as its last owner is found dead.
fn make(place: &Place, random: &mut Random) -> Option<Ring> {
    let mut options = Options::new();
    options.entries(1 + random.below(64) as u32);
    options.overflow(random.below(2) as u32 * 2000);
    match options.create_in(&place.namespace, NAME) {
        Ok(ring) => Some(ring),
        Err(RingError::Owned(_)) => None,
        Err(error) => panic!("{error}"),
    }
}

/// Receives until the end, in all the ways there are.
fn own(place: &Place, record: &Record, random: &mut Random) {
    let Some(mut ring) = make(place, random) else {
        return;
    };
    record.owners.fetch_add(1, SeqCst);
    ring.set_waiting(waiting(random));
    let mut next = HashMap::new();
    let mut note = |message: umsg::ring::Message<'_>| {
        let expected = next.entry(message.tag).or_insert(0);
        let number = message.user_data;
        assert_eq!(number, *expected, "a message is missing, or comes twice");
        assert_eq!(message.payload, vec![number as u8; number as usize % 65]);
        *expected += 1;
        record.received.fetch_add(1, SeqCst);
    };
    while record.goes_on() {
        let until = Until::After(Duration::from_millis(random.below(20)));
        match random.below(5) {
            0 => drop(record.call(0, || ring.wait(1 + random.below(20), until))),
            1 => drop(ring.pollable()),
            2 => drop(record.call(0, || ring.drain(&mut note)).unwrap()),
            3 => std::thread::sleep(Duration::from_micros(random.below(3000))),
            _ => match record.call(0, || ring.recv_timeout(Duration::from_millis(20))) {
                Ok(message) => note(message),
                Err(error) => assert_eq!(error, RecvError::TimedOut),
            },
        }
    }
}

/// Sends to whoever owns the ring, until it is gone.
fn send(place: &Place, record: &Record, role: usize, random: &mut Random) {
    let Ok(sender) = Sender::open_in(&place.namespace, NAME) else {
        std::thread::sleep(Duration::from_millis(1));
        return;
    };
    let mut number = 0;
    while record.goes_on() {
        let count = 1 + random.below(4);
        let posts: Vec<Post> = (number..number + count).map(post).collect();
        let until = match random.below(3) {
            0 => Until::Now,
            1 => Until::After(Duration::from_millis(random.below(20))),
            _ => Until::Forever,
        };
        let sent = record.call(role, || match count {
            1 => sender.send_long(
                &posts[0],
                &[number as u8; 64][..number as usize % 65],
                until,
            ),
            _ => sender.send_batch_until(&posts, until),
        });
        match sent {
            Ok(()) => number += count,
            Err(SendError::Full | SendError::TimedOut) => {}
            Err(SendError::OwnerDead | SendError::Closed) => return,
            Err(error) => panic!("{error}"),
        }
        if random.below(8) == 0 {
            std::thread::sleep(Duration::from_micros(random.below(2000)));
        }
    }
}

/// Half of the workers die by themselves at a named point, where the feature is compiled in.
fn arm_some_point(random: &mut Random) {
    #[cfg(feature = "crash-points")]
    if random.below(2) == 0 {
        let points = umsg::crash::POINTS;
        let (_, name, _) = points[random.below(points.len() as u64) as usize];
        umsg::crash::arm(name, 1 + random.below(60) as u32);
    }
    let _ = random;
}

fn start(place: &Place, record: &Record, role: usize, seed: u64) -> Child {
    record.begun_at[role].store(0, SeqCst);
    Child::run(|| {
        let mut random = Random::new(seed);
        arm_some_point(&mut random);
        while record.goes_on() {
            match role {
                0 => own(place, record, &mut random),
                _ => send(place, record, role, &mut random),
            }
        }
        0
    })
}

/// Fails if a worker is in one call for too long.
fn watch(record: &Record) {
    for (role, begun_at) in record.begun_at.iter().enumerate() {
        let begun = begun_at.load(SeqCst);
        let time = Duration::from_nanos(now().saturating_sub(begun));
        assert!(begun == 0 || time < STUCK, "role {role} is stuck: {time:?}");
    }
}

#[test]
fn random_kills_of_senders_and_owners_lose_nothing_and_stop_nobody() {
    let _turn = turn();
    let seed = now();
    eprintln!("soak, rings: seed {seed}");
    let (place, record, mut random) = (Place::new(), Shared::<Record>::new(), Random::new(seed));
    let mut spawned = 0;
    let mut worker = |role: usize| {
        spawned += 1;
        start(&place, &record, role, seed ^ spawned << 8)
    };
    let mut children: Vec<Child> = (0..WORKERS).map(&mut worker).collect();
    let (mut kills, mut deaths) = (0, 0);
    let begun = Instant::now();
    while begun.elapsed() < time() {
        std::thread::sleep(Duration::from_micros(500 + random.below(8000)));
        watch(&record);
        for (role, child) in children.iter_mut().enumerate() {
            if child.wait(Duration::ZERO).is_some() {
                child.expect(Exit::Signal(libc::SIGKILL), "a worker");
                deaths += 1;
                *child = worker(role);
            }
        }
        // Owners live longer than senders: each has some to receive from.
        let role = random.below(WORKERS as u64 * 2) as usize % (WORKERS + 3) % WORKERS;
        children[role].kill();
        kills += 1;
        children[role] = worker(role);
    }
    record.end.store(1, SeqCst);
    // Senders first: they may wait for room.
    for child in children.iter_mut().rev() {
        let exit = child
            .wait(Duration::from_secs(10))
            .expect("stuck at the end");
        assert!(
            matches!(exit, Exit::Code(0) | Exit::Signal(libc::SIGKILL)),
            "{exit:?}"
        );
    }
    let (owners, received) = (record.owners.load(SeqCst), record.received.load(SeqCst));
    eprintln!(
        "soak, rings: {kills} kills and {deaths} deaths at a point, {owners} owners, {received} messages received"
    );
    assert!(owners > 3 && received > 1000, "nothing was tried");
    // The last of them has dropped it, or has died: another takes the name, and nothing is left.
    drop(Options::new().create_in(&place.namespace, NAME).unwrap());
    let left = std::fs::read_dir(place.path().join("ring"))
        .unwrap()
        .count();
    assert_eq!(left, 0, "something is left behind");
}
