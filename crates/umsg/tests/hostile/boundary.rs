//! Writes values at boundaries, one at a time, into each word of a queue's file that is in use, and then performs every operation.
//!
//! There is no list of the fields. The test takes each word of the fixed part. In each further page, it takes the first words that are in use. The
//! values to write include the numbers that the fixed part of the file contains: limits, indices and counts. For each such number N, the test writes
//! N - 1, N and N + 1. Each case begins with the original file. If a case kills the process, or a call takes too long, the report names the word and
//! the value of the case. A run takes every third case. Which third it takes changes each second. `UMSG_BOUNDARY=all` takes all cases, with all
//! limits for each word.

use super::face::{Face, SIZE, Turns};
use super::limit_addresses;
use super::posix::{self, Posix};
use super::ring::Rings;
use super::support::child::{Child, Exit};
use super::support::place::Place;
use super::support::shared::{Shared, Zeroed};
use super::support::{Random, now, turn, wait_until};
use super::sysv::{self, SysV};
use super::vandal::real_pages;
use super::watch::{Record, VICTIMS, Watch, Watchdog};
use std::collections::BTreeSet;
use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::time::Duration;
use umsg::signals::catch_truncation;
use umsg::sysv::Want;

/// The number of bytes at the start of the file that are one structure.
const FIXED: usize = 8192;
const PAGE: usize = 4096;
/// The maximum number of words that are tested in each further page.
const FEW: usize = 40;
/// A run takes one case out of this number of cases.
const THIRD: usize = 3;
/// The number of operations after each written value.
const OPERATIONS: u32 = 3;
/// The limit on every wait: no step takes as long.
const PATIENCE: Duration = Duration::from_secs(20);
/// A call that waits for a lock with an invented owner is released after this time.
const HELD: Duration = Duration::from_secs(3);

/// The case that a process is trying.
#[derive(Default)]
struct Case {
    at: AtomicU64,
    value: AtomicU64,
    /// The value in the file before the case.
    was: AtomicU64,
    bytes: AtomicU64,
    count: AtomicU64,
}

impl Case {
    fn tell(&self) -> String {
        format!(
            "{:#x} in place of {:#x} in {} bytes at {}",
            self.value.load(SeqCst),
            self.was.load(SeqCst),
            self.bytes.load(SeqCst),
            self.at.load(SeqCst)
        )
    }

    /// Undoes the case in the file.
    fn undo(&self, file: &Path) {
        let file = File::options().write(true).open(file).expect("the file");
        let bytes = self.was.load(SeqCst).to_le_bytes();
        let len = self.bytes.load(SeqCst) as usize;
        file.write_all_at(&bytes[..len], self.at.load(SeqCst))
            .expect("the word");
    }
}

#[derive(Default)]
struct Cases([Case; VICTIMS]);

// SAFETY: made of atomics.
unsafe impl Zeroed for Cases {}

/// The file of a queue, and its contents before the cases.
struct Image {
    file: File,
    len: u64,
    pages: Vec<(usize, Vec<u8>)>,
}

impl Image {
    fn of(path: &Path) -> Image {
        let file = File::options().read(true).write(true).open(path);
        let file = file.expect("the file");
        let len = file.metadata().expect("its length").len();
        let pages = real_pages(&file, len as usize);
        Image { file, len, pages }
    }

    fn restore(&self) {
        if self.file.metadata().expect("its length").len() != self.len {
            self.file.set_len(self.len).expect("its length");
        }
        for (offset, bytes) in real_pages(&self.file, self.len as usize) {
            let page = self.pages.binary_search_by_key(&offset, |(at, _)| *at);
            let was = page.map_or(&[0; PAGE][..], |page| &self.pages[page].1);
            if bytes != was {
                self.file.write_all_at(was, offset as u64).expect("a page");
            }
        }
    }

    fn word(&self, at: usize) -> u32 {
        let page = self.pages.iter().rfind(|(offset, _)| *offset <= at);
        page.and_then(|(offset, bytes)| bytes.get(at - offset..at - offset + 4))
            .map_or(0, |bytes| {
                u32::from_le_bytes(bytes.try_into().expect("4 bytes"))
            })
    }

    fn long(&self, at: usize) -> u64 {
        u64::from(self.word(at)) | u64::from(self.word(at + 4)) << 32
    }

    /// Returns the offsets of the words.
    fn words(&self) -> Vec<usize> {
        let mut words: Vec<usize> = (0..FIXED).step_by(4).collect();
        // The counters and the bytes after the last field are omitted, because operations treat all their values alike.
        words.retain(|at| !(2600..6500).contains(at) && *at < 7700);
        for (offset, bytes) in &self.pages {
            if *offset >= FIXED {
                let in_page = (*offset..offset + bytes.len()).step_by(4);
                let used = in_page.filter(|at| self.word(*at) != 0 || self.word(at - 4) != 0);
                words.extend(used.take(FEW));
            }
        }
        words
    }

    /// Returns numbers that may be counts or limits of this queue: those in the fixed part, one more and one less.
    fn limits(&self) -> Vec<u64> {
        let words = (0..FIXED).step_by(4).map(|at| self.word(at));
        let found: BTreeSet<u32> = words.filter(|word| (3..1 << 26).contains(word)).collect();
        let around = found
            .into_iter()
            .flat_map(|word| [word - 1, word, word + 1]);
        let all: BTreeSet<u64> = around.map(u64::from).collect();
        all.into_iter().collect()
    }
}

/// A word, its length in bytes, and the value to write.
type Poke = (usize, usize, u64);

/// Returns the cases, each once.
fn pokes(image: &Image, all: bool) -> Vec<Poke> {
    let limits = image.limits();
    let mut pokes = Vec::new();
    for (number, at) in image.words().into_iter().enumerate() {
        let word = image.word(at);
        let neighbours = [image.word(at.saturating_sub(4)), image.word(at + 4)];
        let mut values =
            BTreeSet::from([0, 1, 2, u32::MAX, u32::MAX - 1, 1 << 31, i32::MAX as u32]);
        values.extend([
            word.wrapping_add(1),
            word.wrapping_sub(1),
            word ^ 1 << 31,
            0x3fff_ffff,
        ]);
        values.extend(neighbours);
        let some = limits
            .iter()
            .skip(number % 7)
            .step_by(if all { 1 } else { 7 });
        values.extend(some.map(|limit| *limit as u32));
        values.remove(&word);
        pokes.extend(values.into_iter().map(|value| (at, 4, value.into())));
        if at % 8 == 0 {
            let long = image.long(at);
            let mut values =
                BTreeSet::from([0, u64::MAX, u64::MAX - 1, 1 << 63, i64::MAX as u64, 1 << 32]);
            values.extend([
                long.wrapping_add(1 << 32),
                long.wrapping_sub(1),
                long.wrapping_sub(1 << 32),
            ]);
            values.remove(&long);
            pokes.extend(values.into_iter().map(|value| (at, 8, value)));
        }
    }
    pokes
}

/// Returns whether all cases are requested.
fn all_are_asked_for() -> bool {
    std::env::var("UMSG_BOUNDARY").is_ok_and(|what| what == "all")
}

/// A function that returns whether a stage is complete.
type IsSet = fn(&Place) -> bool;

/// A function that prepares a new queue before the cases, in a separate process. This process is killed once the preparation is complete.
type Stage = fn(&Place);

/// A run over the cases of one kind of queue. Each process tries its part of the cases in a place of its own.
struct Trial<'a> {
    face: &'a dyn Face,
    stage: Option<(Stage, IsSet)>,
    all: bool,
    third: usize,
    places: [Place; VICTIMS],
    record: Shared<Record>,
    cases: Shared<Cases>,
}

impl Trial<'_> {
    fn run(&self, what: &str) {
        let _turn = turn();
        self.record.begin();
        self.places
            .iter()
            .for_each(|place| self.face.prepare(place));
        self.places.iter().for_each(|place| self.set(place));
        let mut children: [Child; VICTIMS] = std::array::from_fn(|role| self.child(role));
        let pids: [i32; VICTIMS] = std::array::from_fn(|role| children[role].pid());
        let mut watchdog = Watchdog::new(pids);
        let mut are_done = [false; VICTIMS];
        while are_done.contains(&false) {
            std::thread::sleep(Duration::from_millis(5));
            if let Err(complaint) = watchdog.look(&self.record) {
                let cases: Vec<_> = self.cases.0.iter().map(Case::tell).collect();
                panic!("{what}: {complaint}: {cases:#?}");
            }
            for role in 0..VICTIMS {
                self.let_go(role, watchdog.taken(role));
                are_done[role] = match children[role].wait(Duration::ZERO) {
                    None => false,
                    Some(Exit::Code(0)) => true,
                    Some(exit) => panic!("{what}: {exit:?}: {}", self.cases.0[role].tell()),
                };
            }
        }
        let count: u64 = self
            .cases
            .0
            .iter()
            .map(|case| case.count.load(SeqCst))
            .sum();
        eprintln!(
            "{what}: {count} cases; {} calls: {}",
            self.record.calls(),
            self.record.outcomes()
        );
        assert!(count > 1000, "{what}: {count}");
        assert!(self.record.errors(0) > count, "{what}: nothing worked");
        assert!(
            self.record.errors(libc::EBADMSG) > 0,
            "{what}: nothing was noticed"
        );
    }

    /// Runs the stage in a process, and kills the process.
    fn set(&self, place: &Place) {
        if let Some((stage, is_set)) = self.stage {
            let mut actor = Child::run(|| {
                stage(place);
                0
            });
            assert!(wait_until(PATIENCE, || is_set(place)), "the stage");
            actor.kill();
        }
    }

    /// If a call has waited too long for a lock, undoes the case. No process holds this lock: the case wrote its owner.
    fn let_go(&self, role: usize, taken: Duration) {
        if taken > HELD
            && let Some(file) = self.face.file(&self.places[role])
        {
            self.cases.0[role].undo(&file);
        }
    }

    fn child(&self, role: usize) -> Child {
        Child::run(|| {
            catch_truncation().expect("a handler");
            limit_addresses();
            let (place, case) = (&self.places[role], &self.cases.0[role]);
            let other = place.create("/other", 4, 100);
            other.try_send(b"untouched", 3).expect("room");
            let other = place.path().join("mq/other");
            let before = fs::read(&other).expect("the other queue");
            let watch = Watch::new(&self.record, role);
            let mut random = Random::new(role as u64 + 1);
            let mut part = None;
            let mut operations = 0;
            let mut next = |random: &mut Random| {
                operations += 1;
                if operations % OPERATIONS != 1 {
                    return true;
                }
                let (image, pokes) = part.get_or_insert_with(|| {
                    let image = Image::of(&self.face.file(place).expect("a file"));
                    let (skipped, step) = match self.all {
                        true => (role, VICTIMS),
                        false => (role * THIRD + self.third, VICTIMS * THIRD),
                    };
                    let pokes = pokes(&image, self.all).into_iter();
                    let pokes = pokes.skip(skipped).step_by(step);
                    (image, pokes)
                });
                let Some(poke) = pokes.next() else {
                    image.restore();
                    return false;
                };
                self.poke(place, watch, image, poke, case, random);
                true
            };
            let turns = Turns {
                watch,
                random: &mut random,
                next: &mut next,
            };
            self.face.take_turns(place, turns);
            assert!(
                fs::read(&other).expect("the other queue") == before,
                "another queue"
            );
            0
        })
    }

    fn poke(
        &self,
        place: &Place,
        watch: Watch<'_>,
        image: &Image,
        poke: Poke,
        case: &Case,
        random: &mut Random,
    ) {
        let (at, len, value) = poke;
        image.restore();
        let was = image.long(at) & (u64::MAX >> (64 - 8 * len));
        case.at.store(at as u64, SeqCst);
        case.was.store(was, SeqCst);
        case.bytes.store(len as u64, SeqCst);
        case.value.store(value, SeqCst);
        case.count.fetch_add(1, SeqCst);
        let write = || {
            image
                .file
                .write_all_at(&value.to_le_bytes()[..len], at as u64)
                .expect("a word")
        };
        write();
        match random.below(24) {
            0 => self.face.look_in(place, watch),
            // Two diagnoses and a repair, each of which may walk four million records.
            1 => drop(watch.timed(PATIENCE, || Ok::<_, std::io::Error>(self.face.cure(place)))),
            _ => {}
        }
    }
}

fn try_all(what: &str, face: &dyn Face, stage: Option<(Stage, IsSet)>) {
    let trial = Trial {
        face,
        stage,
        all: all_are_asked_for(),
        third: (now() / 1_000_000_000) as usize % THIRD,
        places: std::array::from_fn(|_| Place::new()),
        record: Shared::new(),
        cases: Shared::new(),
    };
    trial.run(what);
}

const PLAIN: Posix = Posix {
    with_policies: false,
};

#[test]
fn no_value_at_a_boundary_in_a_posix_queue_crashes_or_hangs_a_process() {
    try_all("POSIX", &PLAIN, None);
}

#[test]
fn no_value_at_a_boundary_in_a_queue_with_policies_crashes_or_hangs_a_process() {
    let strict = Posix {
        with_policies: true,
    };
    try_all("POSIX with policies", &strict, None);
}

/// A full queue with two dead blocked senders, one of them with a batch, and a lease and a reservation of a dead process.
#[test]
fn no_value_at_a_boundary_beside_dead_senders_crashes_or_hangs_a_process() {
    let stage: Stage = |place| {
        let queue = place.open(posix::NAME);
        std::mem::forget(queue.receive_lease().expect("a message"));
        std::mem::forget(queue.reserve(900).expect("room"));
        while queue.try_send(&[9; 200], 2).is_ok() {}
        std::thread::scope(|scope| {
            scope.spawn(|| queue.send(&[8; 1000], 4));
            scope.spawn(|| queue.send_batch(&[(b"1", 1), (b"2", 2)]));
        });
    };
    let is_set: IsSet = |place| place.open(posix::NAME).status().blocked_senders == 2;
    try_all("POSIX, dead senders", &PLAIN, Some((stage, is_set)));
}

/// An empty queue with dead blocked receivers, and a dead registration.
#[test]
fn no_value_at_a_boundary_beside_dead_receivers_crashes_or_hangs_a_process() {
    let stage: Stage = |place| {
        let queue = place.open(posix::NAME);
        let mut buffer = [0; SIZE];
        while queue.try_receive(&mut buffer).is_ok() {}
        let _told = queue.notify_waiter().expect("a registration");
        std::thread::scope(|scope| {
            scope.spawn(|| queue.receive_vec());
            scope.spawn(|| queue.receive_lease().map(drop));
        });
    };
    let is_set: IsSet = |place| place.open(posix::NAME).status().blocked_receivers == 2;
    try_all("POSIX, dead receivers", &PLAIN, Some((stage, is_set)));
}

#[test]
fn no_value_at_a_boundary_in_a_system_v_queue_crashes_or_hangs_a_process() {
    try_all("System V", &SysV, None);
}

/// A full queue with a dead blocked sender, a dead receiver of a type without messages, and a lease of a dead process.
#[test]
fn no_value_at_a_boundary_beside_dead_users_of_a_system_v_queue_crashes_or_hangs_a_process() {
    let stage: Stage = |place| {
        let queue = place.open_sysv(sysv::KEY);
        std::mem::forget(queue.receive_lease(Want::Any).expect("a message"));
        while queue.try_send(3, &[9; 500]).is_ok() {}
        std::thread::scope(|scope| {
            scope.spawn(|| queue.send(4, &[8; 1000]));
            scope.spawn(|| queue.receive(Want::Exactly(99), &mut [0; 8192]).map(drop));
        });
    };
    let is_set: IsSet = |place| {
        let status = place.open_sysv(sysv::KEY).status();
        status.is_ok_and(|status| (status.blocked_senders, status.blocked_receivers) == (1, 1))
    };
    try_all("System V, dead users", &SysV, Some((stage, is_set)));
}

#[test]
fn no_value_at_a_boundary_in_a_ring_crashes_or_hangs_a_process() {
    try_all("ring", &Rings, None);
}
