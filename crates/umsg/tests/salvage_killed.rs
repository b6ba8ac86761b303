//! `umsg doctor --repair` is killed, at every point that it passes and at any time. A process that calls then gets a result,
//! another repair completes the work, and no intact message is lost or comes twice.

mod chaos;
mod support;

use chaos::killing::Way;
use std::fs;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use support::Random;
use support::child::{Child, Exit, stop};
use support::place::Place;
use support::shared::Shared;
use umsg::diagnosis::{Diagnosis, Owner, Problem, ProblemKind, Repaired};
use umsg::ring::{self, Options, Post, ReceiveError, Ring, Sender};
use umsg::{posix, sysv};
use umsg_shm::crash;

/// The points at which a repair that rebuilds a queue can die. The repair of a System V queue does not pass the points of the ring.
const POINTS: [&str; 8] = [
    "SALVAGE_BEGUN",
    "SALVAGE_SURVEYED",
    "SALVAGE_BLOCKS_LAID",
    "SALVAGE_MARKED",
    "SALVAGE_RENUMBERED",
    "SALVAGE_NUMBERED",
    "SALVAGE_EMPTIED",
    "SALVAGE_DONE",
];
/// The points that a repair passes only if its kind of queue has a ring.
const IN_RING: [&str; 2] = ["SALVAGE_MARKED", "SALVAGE_EMPTIED"];
/// The mark of a queue that is being rebuilt: docs/format.md.
const MENDING: u32 = 2;
const PATIENCE: Duration = Duration::from_secs(10);
/// The number of repairs of each kind of queue that are killed while they rebuild it.
const ROUNDS: usize = 24;
const KEY: i32 = 0x77;
const NAME: &str = "/q";
/// The length of the longest message, in bytes.
const SIZE: usize = 400;

/// One kind of queue, with messages in it.
trait Kind {
    const NAME: &'static str;
    /// The ways to corrupt the queue: each is an offset in the file, and the bytes that are written there.
    const SCRIBBLES: &'static [(u64, &'static [u8])];
    /// The offset of the mark of damage, or of rebuilding: docs/format.md.
    const DAMAGE: u64;
    const HAS_RING: bool;
    fn new() -> Self;
    fn file(&self) -> PathBuf;
    fn repair(&self) -> Repaired;
    fn diagnose(&self) -> Diagnosis;
    /// Opens the queue, and sends "more". Returns whether the message was sent. The call may fail with any error, but it must return.
    fn send(&self) -> bool;
    /// Sends "more" through the earlier handle, as [`send`](Self::send) does through a new one.
    fn send_as_before(&self) -> bool;
    /// Receives all messages.
    fn drain(&mut self) -> Vec<Vec<u8>>;
}

/// Returns the messages of [`Posix`] and of [`SystemV`].
fn messages() -> impl Iterator<Item = (u8, Vec<u8>)> {
    (0..20_u8).map(|n| (n % 4, vec![n; usize::from(n) * 20]))
}

struct Posix(Place, posix::Queue);

impl Kind for Posix {
    const NAME: &'static str = "a POSIX queue";
    const HAS_RING: bool = true;
    const DAMAGE: u64 = 48;
    const SCRIBBLES: &'static [(u64, &'static [u8])] = &[
        (640, &[0; 8]),
        (816, &[99]),
        (536, &[0xff; 4]),
        (536_576, &[0xff; 256]),
    ];

    fn new() -> Self {
        let place = Place::new();
        let queue = place.create(NAME, 50, SIZE as u32);
        messages().for_each(|(n, message)| queue.try_send(&message, n.into()).unwrap());
        queue.messages(1).unwrap();
        // Some messages are in the store, some in the ring, and one is leased.
        std::mem::forget(queue.try_receive_lease().unwrap());
        (30..35).for_each(|n| queue.try_send(&[n; 11], 2).unwrap());
        Posix(place, queue)
    }

    fn file(&self) -> PathBuf {
        self.0.path().join("mq/q")
    }

    fn repair(&self) -> Repaired {
        posix::repair(&self.0.namespace, NAME).expect("a repair")
    }

    fn diagnose(&self) -> Diagnosis {
        posix::diagnose(&self.0.namespace, NAME).expect("a diagnosis")
    }

    fn send(&self) -> bool {
        self.0.open(NAME).try_send(b"more", 9).is_ok()
    }

    fn send_as_before(&self) -> bool {
        self.1.try_send(b"more", 9).is_ok()
    }

    fn drain(&mut self) -> Vec<Vec<u8>> {
        let mut buffer = [0; SIZE];
        let receive = || match self.1.try_receive(&mut buffer) {
            Ok(received) => Some(buffer[..received.len].to_vec()),
            Err(posix::ReceiveError::Empty) => None,
            Err(error) => panic!("{error}"),
        };
        std::iter::from_fn(receive).collect()
    }
}

struct SystemV(Place, sysv::Queue);

impl Kind for SystemV {
    const NAME: &'static str = "a System V queue";
    const HAS_RING: bool = false;
    const DAMAGE: u64 = 56;
    const SCRIBBLES: &'static [(u64, &'static [u8])] = &[
        (256 + 16, &[0xff; 4]),
        (256 + 20, &[0xff; 4]),
        (256 + 24, &[0xff; 8]),
        (512, &[0xff; 64]),
    ];

    fn new() -> Self {
        let (place, queue) = Place::new().with_sysv_queue(KEY);
        messages().for_each(|(n, message)| queue.try_send(i64::from(n) + 1, &message).unwrap());
        std::mem::forget(queue.try_receive_lease(sysv::Want::Any).unwrap());
        SystemV(place, queue)
    }

    fn file(&self) -> PathBuf {
        self.0.path().join("msg/0")
    }

    fn repair(&self) -> Repaired {
        sysv::repair(&self.0.namespace, KEY).expect("a repair")
    }

    fn diagnose(&self) -> Diagnosis {
        sysv::diagnose(&self.0.namespace, KEY).expect("a diagnosis")
    }

    fn send(&self) -> bool {
        self.0.open_sysv(KEY).try_send(9, b"more").is_ok()
    }

    fn send_as_before(&self) -> bool {
        self.1.try_send(9, b"more").is_ok()
    }

    fn drain(&mut self) -> Vec<Vec<u8>> {
        let mut buffer = [0; 8192];
        let receive = || match self.1.try_receive(sysv::Want::Any, &mut buffer) {
            Ok(received) => Some(buffer[..received.len].to_vec()),
            Err(sysv::ReceiveError::NoMessage) => None,
            Err(error) => panic!("{error}"),
        };
        std::iter::from_fn(receive).collect()
    }
}

struct OfRing(Place, Ring);

impl Kind for OfRing {
    const NAME: &'static str = "a ring";
    const HAS_RING: bool = true;
    const DAMAGE: u64 = 48;
    const SCRIBBLES: &'static [(u64, &'static [u8])] = &[(640, &[0; 8])];

    fn new() -> Self {
        let place = Place::new();
        let mut options = Options::new();
        let ring = options
            .entries(32)
            .create_in(&place.namespace, NAME)
            .unwrap();
        let sender = ring.sender();
        (0..20).for_each(|n| sender.try_send(&Post::new(n)).unwrap());
        OfRing(place, ring)
    }

    fn file(&self) -> PathBuf {
        self.0.path().join("ring/q")
    }

    fn repair(&self) -> Repaired {
        ring::repair(&self.0.namespace, NAME).expect("a repair")
    }

    fn diagnose(&self) -> Diagnosis {
        ring::diagnose(&self.0.namespace, NAME).expect("a diagnosis")
    }

    fn send(&self) -> bool {
        let sender = Sender::open_in(&self.0.namespace, NAME);
        sender.is_ok_and(|sender| sender.try_send(&Post::new(99)).is_ok())
    }

    fn send_as_before(&self) -> bool {
        self.1.sender().try_send(&Post::new(99)).is_ok()
    }

    fn drain(&mut self) -> Vec<Vec<u8>> {
        let receive = || match self.1.try_receive() {
            Ok(message) => Some(message.user_data.to_le_bytes().to_vec()),
            Err(ReceiveError::Empty) => None,
            Err(error) => panic!("{error}"),
        };
        std::iter::from_fn(receive).collect()
    }
}

/// Corrupts a queue, has `kill` kill a repair, and checks the result. `kill` returns None if the repair ended before it was
/// killed. Returns the mark that the dead repair left.
fn kill_one<K: Kind>(
    scribble: usize,
    what: &str,
    kill: impl FnOnce(&K) -> Option<Child>,
) -> Option<u32> {
    let mut kind = K::new();
    let what = format!("{}, scribble {scribble}, {what}", K::NAME);
    let (offset, bytes) = K::SCRIBBLES[scribble];
    let file = fs::File::options().write(true).open(kind.file()).unwrap();
    file.write_all_at(bytes, offset).unwrap();
    let mut dead = kill(&kind)?;
    dead.expect(Exit::Signal(libc::SIGKILL), &what);
    let mut found = [0; 4];
    let file = fs::File::open(kind.file()).unwrap();
    file.read_exact_at(&mut found, K::DAMAGE).unwrap();
    // While the file has no mark, a call could do anything to the corrupted queue. So the test makes no calls then.
    let mark = u32::from_ne_bytes(found);
    let sent = match mark {
        0 => 0,
        _ => expect_answers(&kind, &what),
    };
    let repaired = kind.repair();
    assert!(repaired.after.is_healthy(), "{what}: {repaired:#?}");
    let held_the_lock = |problem: &Problem| problem.kind == ProblemKind::Died;
    if mark == 0 && repaired.before.problems.iter().any(held_the_lock) {
        // The repair died as the owner of the lock, before it had marked the queue as corrupted. So the next repair trusted the words of the queue,
        // as after any death.
        return Some(mark);
    }
    // This process still holds the leased messages. All other messages are compared with those of a new copy of the queue.
    let found = kind.drain();
    let mut whole = K::new();
    let whole = whole.drain();
    let more =
        |message: &&Vec<u8>| message[..] == b"more"[..] || message[..] == 99_u64.to_le_bytes();
    assert_eq!(found.iter().filter(more).count(), sent, "{what}");
    let found: Vec<_> = found.iter().filter(|message| !more(message)).collect();
    let lens = |messages: &[&Vec<u8>]| {
        messages
            .iter()
            .map(|message| message.len())
            .collect::<Vec<_>>()
    };
    let whole: Vec<_> = whole.iter().collect();
    assert!(
        found == whole,
        "{what}: lengths {:?} instead of {:?}: {:#?}",
        lens(&found),
        lens(&whole),
        (&repaired.before.problems, &repaired.done)
    );
    assert!(kind.repair().before.is_healthy(), "{what}");
    assert!(kind.send(), "{what}");
    Some(mark)
}

/// Sends a message from a new process, and one through the earlier handle of this process. Fails if the new process hangs. Returns how many of the
/// two messages were sent.
fn expect_answers<K: Kind>(kind: &K, what: &str) -> usize {
    let mut newcomer = Child::run(|| i32::from(kind.send()));
    let Some(Exit::Code(sent @ 0..=1)) = newcomer.wait(PATIENCE) else {
        panic!("{what}: the newcomer is stuck, or crashed");
    };
    sent as usize + usize::from(kind.send_as_before())
}

/// Kills a repair at each point that it passes.
fn kill_at_points<K: Kind>() {
    for scribble in 0..K::SCRIBBLES.len() {
        let way = Shared::<Way>::new();
        kill_one::<K>(scribble, "unharmed", |kind| {
            Child::run(|| {
                way.of(|| kind.repair());
                0
            })
            .expect(Exit::Code(0), "a repair");
            None
        });
        let passed = way.points();
        for point in POINTS {
            let is_passed = passed.contains(&point) || !K::HAS_RING && IN_RING.contains(&point);
            assert!(is_passed, "{}: not by {point}", K::NAME);
        }
        for point in passed {
            for nth in [1, 2].into_iter().take(1 + usize::from(scribble == 0)) {
                kill_one::<K>(scribble, point, |kind| {
                    let mut repairer = Child::run(|| {
                        crash::arm(point, nth);
                        kind.repair();
                        0
                    });
                    // A repair passes some points only once.
                    let died = repairer.wait(PATIENCE) != Some(Exit::Code(0));
                    assert!(died || nth == 2, "{point}");
                    died.then_some(repairer)
                });
            }
        }
    }
}

/// Kills repairs at random times.
fn kill_at_random<K: Kind>(seed: u64) {
    let mut random = Random::new(seed);
    let mut killed = 0;
    for round in 0..12_u64 {
        let scribble = round as usize % K::SCRIBBLES.len();
        let mark = kill_one::<K>(scribble, &format!("seed {seed}"), |kind| {
            let mut repairer = Child::run(|| {
                // In the first round, the repair stops, and so can't finish before it is killed.
                if round == 0 {
                    crash::arm_fuse("SALVAGE_BEGUN", stop);
                }
                kind.repair();
                0
            });
            match round {
                0 => repairer.expect_to_stop("a repair"),
                _ => std::thread::sleep(Duration::from_micros(random.below(12_000))),
            }
            repairer.signal(libc::SIGKILL);
            let died = repairer.wait(PATIENCE) != Some(Exit::Code(0));
            died.then_some(repairer)
        });
        killed += u32::from(mark.is_some());
    }
    eprintln!("{}: {killed} of 12 repairs killed", K::NAME);
    assert_ne!(killed, 0, "{}: no process died in time", K::NAME);
}

/// The time that a repair lives after it has begun to rebuild a queue, in nanoseconds.
static LEFT: AtomicU64 = AtomicU64::new(0);

/// Starts a timer that kills this process after `LEFT`.
fn light_fuse() {
    // SAFETY: zeroed memory is a valid sigevent and a valid itimerspec; all pointers are to locals.
    unsafe {
        let mut event: libc::sigevent = std::mem::zeroed();
        event.sigev_notify = libc::SIGEV_SIGNAL;
        event.sigev_signo = libc::SIGKILL;
        let mut timer = std::ptr::null_mut();
        let clock = libc::CLOCK_MONOTONIC;
        assert_eq!(libc::timer_create(clock, &raw mut event, &raw mut timer), 0);
        let mut times: libc::itimerspec = std::mem::zeroed();
        times.it_value.tv_nsec = LEFT.load(Ordering::Relaxed) as i64;
        let set = libc::timer_settime(timer, 0, &raw const times, std::ptr::null_mut());
        assert_eq!(set, 0);
    }
}

/// Kills repairs at random times while they rebuild the queue.
fn kill_while_repairing<K: Kind>(seed: u64) {
    let mut random = Random::new(seed);
    let mut half_made = 0;
    for round in 0..ROUNDS {
        let scribble = round % K::SCRIBBLES.len();
        // The time ranges from less to more than a repair takes.
        LEFT.store(1 + random.below(500 << (round % 12)), Ordering::Relaxed);
        let mark = kill_one::<K>(scribble, &format!("seed {seed}, mending"), |kind| {
            let mut repairer = Child::run(|| {
                crash::arm_fuse("SALVAGE_BEGUN", light_fuse);
                kind.repair();
                0
            });
            let died = repairer.wait(PATIENCE) != Some(Exit::Code(0));
            died.then_some(repairer)
        });
        half_made += usize::from(mark == Some(MENDING));
    }
    eprintln!("{}: {half_made} of {ROUNDS} queues left half made", K::NAME);
    assert_ne!(half_made, 0, "{}: no process died in time", K::NAME);
}

/// Kills this process after a while, during which another repair begins.
fn linger() {
    std::thread::sleep(Duration::from_millis(15));
    // SAFETY: ends this process.
    unsafe { libc::raise(libc::SIGKILL) };
}

/// Two repairs at once, one of which is killed at a point: the other repair does not mistake the half-repaired queue for a sound one.
fn kill_one_of_two<K: Kind>(seed: u64) {
    let mut random = Random::new(seed);
    let (mut half_made, mut followed) = (0, 0);
    for round in 0..ROUNDS {
        let (point, scribble) = (POINTS[round % POINTS.len()], round % K::SCRIBBLES.len());
        let what = format!("{}, one of two, {point}, seed {seed}", K::NAME);
        kill_one::<K>(scribble, &what, |kind| {
            let begin_other = || {
                Child::run(|| {
                    kind.repair();
                    0
                })
            };
            // The rounds alternate: the second repair dies, or the first repair dies while the second one runs.
            let is_first = (round / POINTS.len()).is_multiple_of(2);
            let earlier = (!is_first).then(begin_other);
            std::thread::sleep(Duration::from_micros(random.below(4000)));
            let mut repairer = Child::run(|| {
                match is_first {
                    true => crash::arm_fuse(point, linger),
                    false => crash::arm(point, 1),
                }
                kind.repair();
                0
            });
            let mut other = earlier.unwrap_or_else(|| {
                std::thread::sleep(Duration::from_micros(random.below(8000)));
                begin_other()
            });
            let died = repairer.wait(PATIENCE) != Some(Exit::Code(0));
            other.expect(Exit::Code(0), "the other repair");
            let left = kind.diagnose();
            let is_orphaned = |owner: &Owner| matches!(owner, Owner::Died(_));
            if left.locks.iter().any(|lock| is_orphaned(&lock.owner)) {
                assert!(left.damage.is_some(), "{what}: {:#?}", left.problems);
                half_made += 1;
            }
            followed += usize::from(died && is_first);
            died.then_some(repairer)
        });
    }
    eprintln!(
        "{}: {half_made} of {ROUNDS} queues left half made by one of two, {followed} of those that came first died",
        K::NAME
    );
    assert_ne!(followed, 0, "{}: no process came after a dead one", K::NAME);
}

fn kill<K: Kind>() {
    kill_at_points::<K>();
    kill_at_random::<K>(support::now());
    kill_while_repairing::<K>(support::now());
    kill_one_of_two::<K>(support::now());
}

/// The messages lie in the slots in reverse order. After them comes a message that its sender still holds. A message without a place in the order
/// does not change the order of the other messages.
#[test]
fn a_repair_that_is_killed_while_it_numbers_leaves_messages_in_their_order_beside_a_blocked_sender()
{
    const COUNT: u8 = 50;
    let place = Place::new();
    let queue = place.create(NAME, COUNT.into(), 100);
    let receive = || queue.receive_vec().unwrap().data;
    // The message of the highest priority is received first, so the slots are used again from the last to the first.
    (0..COUNT).for_each(|n| queue.try_send(&[n], n.into()).unwrap());
    (0..COUNT).for_each(|_| drop(receive()));
    for _ in 0..COUNT / 2 {
        queue.try_send(b"on", 0).unwrap();
        receive();
    }
    (0..COUNT).for_each(|n| queue.try_send(&[n], 0).unwrap());
    let repair = || posix::repair(&place.namespace, NAME).expect("a repair");
    let scribble = || {
        let file = place.path().join("mq/q");
        let file = fs::File::options().write(true).open(file).unwrap();
        file.write_all_at(&[99], 816).unwrap();
    };
    // The first repair numbers the messages, beginning with 1.
    scribble();
    assert_eq!(repair().kept, Some(COUNT.into()));
    let mut sender = Child::run(|| place.open(NAME).send(&[COUNT], 0).map_or(1, |()| 0));
    let blocked = || posix::diagnose(&place.namespace, NAME).unwrap().blocked;
    assert!(support::wait_until(PATIENCE, || blocked().len() == 1));
    for nth in [1, 2, 20, 40] {
        scribble();
        let mut repairer = Child::run(|| {
            crash::arm("SALVAGE_RENUMBERED", nth);
            repair();
            0
        });
        repairer.expect(Exit::Signal(libc::SIGKILL), "a repair");
    }
    assert_eq!(repair().kept, Some(u64::from(COUNT) + 1));
    let found: Vec<_> = (0..=COUNT).map(|_| receive()[0]).collect();
    assert_eq!(found, (0..=COUNT).collect::<Vec<_>>());
    sender.expect(Exit::Code(0), "the sender");
}

#[test]
fn a_repair_of_a_posix_queue_that_is_killed_is_ended_by_another() {
    kill::<Posix>();
}

#[test]
fn a_repair_of_a_system_v_queue_that_is_killed_is_ended_by_another() {
    kill::<SystemV>();
}

#[test]
fn a_repair_of_a_ring_that_is_killed_is_ended_by_another() {
    kill::<OfRing>();
}
