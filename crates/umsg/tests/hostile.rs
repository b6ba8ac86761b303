//! An attacker that may open a queue's file for writing overwrites it while four victims work: with random words, plausible
//! words and whole pages. The attacker also truncates the file.
//!
//! No victim may crash, access memory outside of its mapping or its buffers, or be in a call for more than a second longer than the call may wait.
//! Another test writes each value at a boundary, one at a time, into each word of a file that is in use (`boundary.rs`). The attack takes some
//! seconds for each kind of queue; `UMSG_HOSTILE_SECONDS` sets another time for all kinds together.

#[path = "hostile/boundary.rs"]
mod boundary;
#[path = "hostile/face.rs"]
mod face;
#[path = "hostile/guards.rs"]
mod guards;
#[path = "hostile/posix.rs"]
mod posix;
#[path = "hostile/ring.rs"]
mod ring;
mod support;
#[path = "hostile/sysv.rs"]
mod sysv;
#[path = "hostile/vandal.rs"]
mod vandal;
#[path = "hostile/watch.rs"]
mod watch;

use face::Face;
use std::path::Path;
use std::sync::atomic::Ordering::SeqCst;
use std::time::{Duration, Instant};
use support::child::{Child, Exit};
use support::place::Place;
use support::shared::Shared;
use support::{Random, now, turn, wait_until};
use umsg::diagnosis::ProblemKind;
use umsg::signals::catch_truncation;
use vandal::{Manner, Vandal};
use watch::{Record, VICTIMS, Watch, Watchdog};

/// The time for which one queue is attacked. After a longer attack, a repair would rarely succeed.
const ROUND: Duration = Duration::from_millis(250);
/// The longest wait. Only a process that the attack blocks takes this long.
const PATIENCE: Duration = Duration::from_secs(20);
/// The limit on the address space of a victim, in bytes: no attack can make the victim allocate more memory. The file of a System V queue alone takes
/// more than three gigabytes of addresses.
const ADDRESSES: u64 = 16 << 30;

/// Returns the time for which each kind of queue is attacked.
fn time() -> Duration {
    let asked = std::env::var("UMSG_HOSTILE_SECONDS").ok();
    let seconds = asked.and_then(|text| text.parse().ok()).unwrap_or(9);
    Duration::from_secs(seconds) / 3
}

/// The results of the doctor: healthy, repaired, not repairable, or not readable.
const HEALTHY: i32 = 0;
const CURED: i32 = 1;
const INCURABLE: i32 = 2;
const NO_QUEUE: i32 = 3;

/// Attacks in as many rounds as there is time for.
fn attack(what: &str, faces: &[&dyn Face]) {
    let _turn = turn();
    let seed = now();
    eprintln!("hostile, {what}: seed {seed}");
    let (record, begun) = (Shared::<Record>::new(), Instant::now());
    let (mut rounds, mut longest) = (0, Duration::ZERO);
    // On a slow machine, the rounds go on at least until the file was truncated and the doctor has repaired a queue.
    let lacks =
        || record.cuts.load(SeqCst) == 0 || record.patients[CURED as usize].load(SeqCst) == 0;
    while begun.elapsed() < time() || rounds < 3 || (lacks() && rounds < 20) {
        let manner = [Manner::Scribble, Manner::Scribble, Manner::Cut][rounds % 3];
        let round = Round {
            face: faces[rounds / 3 % faces.len()],
            place: Place::new(),
            record: &record,
            seed: seed.wrapping_add(rounds as u64 * 64),
        };
        longest = longest.max(round.run(manner));
        rounds += 1;
    }
    eprintln!(
        "hostile, {what}: {rounds} rounds, {} words and {} pages overwritten, {} cuts; {} calls: {}; longest {:.0} ms; {} of {} \
         mappings between guards",
        record.words.load(SeqCst),
        record.pages.load(SeqCst),
        record.cuts.load(SeqCst),
        record.calls(),
        record.outcomes(),
        longest.as_secs_f64() * 1e3,
        record.guarded.load(SeqCst),
        record.guarded.load(SeqCst) + record.unguarded.load(SeqCst),
    );
    let [healthy, cured, incurable, none] = &record.patients;
    eprintln!(
        "hostile, {what}: the doctor found {} queues healthy, repaired {}, could not repair {}, and {} are none any more",
        healthy.load(SeqCst),
        cured.load(SeqCst),
        incurable.load(SeqCst),
        none.load(SeqCst),
    );
    assert!(record.errors(0) > 100, "nothing was tried");
    assert!(record.errors(libc::EBADMSG) > 0, "nothing was harmed");
    assert!(record.cuts.load(SeqCst) > 0, "nothing was cut");
    assert!(record.guarded.load(SeqCst) > 0, "no guard stood");
    assert!(cured.load(SeqCst) > 0, "the doctor has repaired nothing");
}

/// A round of the attack: one queue from its creation to its end.
struct Round<'a> {
    face: &'a dyn Face,
    place: Place,
    record: &'a Record,
    seed: u64,
}

impl Round<'_> {
    /// Returns the time of the longest call.
    fn run(&self, manner: Manner) -> Duration {
        self.face.prepare(&self.place);
        self.record.begin();
        let mut victims: [Child; VICTIMS] = std::array::from_fn(|role| self.victim(role));
        let pids: [i32; VICTIMS] = std::array::from_fn(|role| victims[role].pid());
        let mut file = None;
        let is_there = wait_until(PATIENCE, || {
            file = self.face.file(&self.place);
            file.is_some()
        });
        assert!(is_there, "no victim made anything");
        let file = file.expect("a file");
        let mut attacker = self.attacker(&file, manner, &pids);
        let mut watchdog = Watchdog::new(pids);
        let begun = Instant::now();
        while begun.elapsed() < ROUND {
            self.look(&mut watchdog);
            attacker.expect_alive();
            victims.iter_mut().for_each(Child::expect_alive);
        }
        self.record.end();
        let mut are_done = || {
            self.look(&mut watchdog);
            victims
                .iter_mut()
                .all(|victim| victim.wait(Duration::ZERO).is_some())
        };
        while !are_done() {}
        for victim in &mut victims {
            victim.expect(Exit::Code(0), &format!("a victim, seed {}", self.seed));
        }
        attacker.expect(Exit::Code(0), "the attacker");
        self.consult(&file);
        self.bystander();
        watchdog.longest
    }

    fn look(&self, watchdog: &mut Watchdog) {
        std::thread::sleep(Duration::from_millis(5));
        if let Err(complaint) = watchdog.look(self.record) {
            panic!("{complaint}; seed {}", self.seed);
        }
    }

    fn victim(&self, role: usize) -> Child {
        Child::run(|| {
            catch_truncation().expect("a handler");
            limit_addresses();
            let mut random = Random::new(self.seed + role as u64);
            let watch = Watch::new(self.record, role);
            self.face.play(&self.place, role, watch, &mut random);
            0
        })
    }

    fn attacker(&self, file: &Path, manner: Manner, pids: &[i32]) -> Child {
        Child::run(|| {
            let random = Random::new(self.seed + VICTIMS as u64);
            Vandal::new(file, manner, pids, self.record, random).rage();
            0
        })
    }

    /// Fails unless the doctor describes the damage of the attack, and a queue that it reports as healthy works.
    fn consult(&self, file: &Path) {
        let mut doctor = Child::run(|| {
            catch_truncation().expect("a handler");
            limit_addresses();
            // The attacker may have restored sound pages at the end, so a few words are overwritten again.
            let mut random = Random::new(self.seed + VICTIMS as u64 + 1);
            let words = random.below(40) as u32;
            if file.exists() {
                Vandal::new(file, Manner::Cut, &[], self.record, random).scribble(words);
            }
            let Some(repaired) = self.face.cure(&self.place) else {
                return NO_QUEUE;
            };
            let problems = repaired.before.problems.iter();
            let mut problems = problems.chain(&repaired.after.problems);
            assert!(problems.all(|problem| !problem.what.is_empty() && !problem.advice.is_empty()));
            if repaired.failed.is_some() {
                return INCURABLE;
            }
            let left = &repaired.after.problems;
            // The only problem that a repair may leave is a dead process, such as the receiver of a ring.
            assert!(
                left.iter().all(|problem| problem.kind == ProblemKind::Died),
                "{left:#?}"
            );
            self.face.expect_to_work(&self.place);
            match repaired.before.is_healthy() {
                true => HEALTHY,
                false => CURED,
            }
        });
        let seed = self.seed;
        match doctor.wait(PATIENCE) {
            Some(Exit::Code(outcome @ HEALTHY..=NO_QUEUE)) => {
                self.record.patients[outcome as usize].fetch_add(1, SeqCst);
            }
            other => panic!("the doctor: {other:?} (none: it hangs), seed {seed}"),
        }
    }

    /// Fails unless the attacked queue can be created again.
    fn bystander(&self) {
        Child::run(|| {
            catch_truncation().expect("a handler");
            self.face.remake(&self.place);
            0
        })
        .expect(Exit::Code(0), "the process that makes the queue anew");
    }
}

/// Under AddressSanitizer there is no limit, because AddressSanitizer reserves terabytes of addresses.
fn limit_addresses() {
    let limit = libc::rlimit {
        rlim_cur: ADDRESSES,
        rlim_max: ADDRESSES,
    };
    if std::env::var_os("UMSG_HOSTILE_UNLIMITED").is_some() {
        return;
    }
    // SAFETY: the call changes a limit of this process.
    let result = unsafe { libc::setrlimit(libc::RLIMIT_AS, &raw const limit) };
    assert_eq!(result, 0, "setrlimit");
}

#[test]
fn a_process_that_overwrites_a_posix_queue_crashes_and_hangs_no_other() {
    let plain = posix::Posix {
        with_policies: false,
    };
    let strict = posix::Posix {
        with_policies: true,
    };
    attack("POSIX queues", &[&plain, &strict]);
}

#[test]
fn a_process_that_overwrites_a_system_v_queue_crashes_and_hangs_no_other() {
    attack("System V queues", &[&sysv::SysV]);
}

#[test]
fn a_process_that_overwrites_a_ring_crashes_and_hangs_no_other() {
    attack("rings", &[&ring::Rings]);
}
