//! Four senders, four receivers, and a supervisor that kills and stops them at random.

use super::child::{Child, Exit, let_calls_be_interrupted};
use super::journal::{How, Journal, MESSAGES, Role};
use super::{Random, milliseconds, now, wait_until};
use std::sync::atomic::Ordering::SeqCst;
use std::time::{Duration, Instant};
use umsg::posix::Waiting;

/// The first roles send, the others receive; the supervisor has a part of its own.
pub const SENDERS: usize = 4;
pub const WORKERS: usize = 8;
pub const SUPERVISOR: usize = 8;

/// How long a worker may be inside of a call that should succeed, stopped time not counted.
const STUCK: Duration = Duration::from_secs(2);
/// The longest that a timed call waits, in milliseconds.
const TIMED: u64 = 30;

/// What the workers do.
pub trait Work {
    /// Plays a role until its `go` is set. Runs in a process of its own.
    fn play(&self, role: usize, random: &mut Random);
    /// Whether there may be no room to send, and nothing to receive: who waits for that is not stuck. None if nobody can
    /// tell at this moment.
    fn lacks(&self) -> Option<(bool, bool)>;
    /// What to say of the queue if somebody is stuck.
    fn describe(&self) -> String;
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

/// What was done to the workers.
pub struct Harassed {
    pub kills: u32,
    /// Workers that died at a named point.
    pub deaths: u32,
    pub stops: u32,
    /// Messages that receivers may have held when they were killed inside of a receive.
    pub in_dead_hands: usize,
    pub longest: Duration,
}

struct Supervisor<'a, W> {
    work: &'a W,
    journal: &'a Journal,
    random: Random,
    spawned: u64,
    seen: Harassed,
}

/// Lets the workers work for a time and then end, and kills and stops them meanwhile.
pub fn harass(work: &impl Work, journal: &Journal, seed: u64, time: Duration) -> Harassed {
    // Before any worker is forked: one may be asked to end as its first act.
    let_calls_be_interrupted();
    let mut supervisor = Supervisor {
        work,
        journal,
        random: Random::new(seed),
        spawned: 0,
        seen: Harassed {
            kills: 0,
            deaths: 0,
            stops: 0,
            in_dead_hands: 0,
            longest: Duration::ZERO,
        },
    };
    supervisor.run(time);
    supervisor.seen
}

impl<W: Work> Supervisor<'_, W> {
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
            self.work.play(role, &mut random);
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

    fn run(&mut self, time: Duration) {
        let mut workers = self.start_all();
        let begun = Instant::now();
        let mut looked = Instant::now();
        while begun.elapsed() < time && self.journal.used() < MESSAGES - 100_000 {
            let next = Instant::now() + Duration::from_micros(500 + self.random.below(8000));
            while Instant::now() < next {
                std::thread::sleep(Duration::from_micros(500));
                let_go_on(&mut workers);
                self.replace_the_dead(&mut workers);
                self.watch(&mut workers, looked.elapsed());
                looked = Instant::now();
            }
            self.harass_one(&mut workers);
        }
        self.end(workers);
    }

    /// Kills one worker, or stops it for a while, or lets it be.
    fn harass_one(&mut self, workers: &mut [Worker]) {
        let victim = self.random.below(WORKERS as u64) as usize;
        let worker = &mut workers[victim];
        if self.random.below(8) == 0 && worker.stopped_until.is_none() {
            worker.child.signal(libc::SIGSTOP);
            let time = Duration::from_millis(5 + self.random.below(150));
            worker.stopped_until = Some(Instant::now() + time);
            self.seen.stops += 1;
            return;
        }
        worker.child.signal(libc::SIGKILL);
        self.seen.kills += 1;
        self.replace(worker);
    }

    /// Starts a new worker in place of one that was killed.
    fn replace(&mut self, worker: &mut Worker) {
        worker
            .child
            .expect(Exit::Signal(libc::SIGKILL), "a worker before it was killed");
        self.seen.in_dead_hands += self.role(worker.role).receiving.load(SeqCst) as usize;
        worker.child = self.start(worker.role);
        worker.stopped_until = None;
        worker.watched = (0, Duration::ZERO);
    }

    /// Starts new workers in place of those that have died at a point.
    fn replace_the_dead(&mut self, workers: &mut [Worker]) {
        for worker in workers {
            if worker.child.wait(Duration::ZERO).is_some() {
                self.seen.deaths += 1;
                self.replace(worker);
            }
        }
    }

    /// Adds the time since the last look to the stall of every worker that should have got on in it. One that is
    /// stopped may hold a lock, so time in which anybody is stopped does not count; neither does that of a call that
    /// waits for something that is not there.
    fn watch(&mut self, workers: &mut [Worker], passed: Duration) {
        let anybody_stopped = workers.iter().any(|worker| worker.stopped_until.is_some());
        let (full, empty) = self.work.lacks().unwrap_or((true, true));
        for worker in workers {
            let begun = self.journal.roles[worker.role].begun_at.load(SeqCst);
            let hopeless = if worker.role < SENDERS { full } else { empty };
            if begun == 0 || begun != worker.watched.0 {
                worker.watched = (begun, Duration::ZERO);
            } else if !hopeless && !anybody_stopped {
                worker.watched.1 += passed;
                self.seen.longest = self.seen.longest.max(worker.watched.1);
            }
            assert!(
                worker.watched.1 < STUCK,
                "role {} is stuck: {:?} in one call, queue {}, {} ms since it began",
                worker.role,
                worker.watched.1,
                self.work.describe(),
                milliseconds(now() - begun)
            );
        }
    }

    /// Lets the survivors end: senders first, while there are receivers.
    fn end(&mut self, mut workers: Vec<Worker>) {
        for worker in &workers {
            worker.child.signal(libc::SIGCONT);
        }
        for worker in &mut workers {
            self.role(worker.role).go.store(1, SeqCst);
            let ended = wait_until(Duration::from_secs(5), || {
                worker.child.signal(libc::SIGUSR1);
                worker.child.wait(Duration::from_millis(1)).is_some()
            });
            assert!(ended, "role {} is stuck at the end", worker.role);
            let exit = worker.child.wait(Duration::ZERO);
            if exit == Some(Exit::Signal(libc::SIGKILL)) {
                self.seen.in_dead_hands += self.role(worker.role).receiving.load(SeqCst) as usize;
            } else {
                assert_eq!(exit, Some(Exit::Code(0)), "a surviving worker");
            }
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

/// How a worker makes its next call.
pub fn how(random: &mut Random) -> How {
    match random.below(4) {
        0 => How::Block,
        _ => briefly(random),
    }
}

/// How it makes one that may never succeed.
pub fn briefly(random: &mut Random) -> How {
    match random.below(3) {
        0 => How::Within(Duration::from_millis(random.below(TIMED))),
        1 => How::Within(Duration::from_micros(random.below(300))),
        _ => How::Try,
    }
}

pub fn waiting(random: &mut Random) -> Waiting {
    match random.below(3) {
        0 => Waiting::Blocking,
        _ => Waiting::Adaptive,
    }
}

/// Sleeps now and then, so that the queue is sometimes full and sometimes empty, and a journal lasts.
pub fn rest(random: &mut Random, worked: bool) {
    let micros = match random.below(50) {
        0 => random.below(3000),
        _ if worked => return,
        _ => random.below(100),
    };
    std::thread::sleep(Duration::from_micros(micros));
}

/// How long to go on: 10 seconds, unless `UMSG_SOAK_SECONDS` asks for another time.
pub fn time() -> Duration {
    let asked = std::env::var("UMSG_SOAK_SECONDS").ok();
    Duration::from_secs(asked.and_then(|text| text.parse().ok()).unwrap_or(10))
}

impl std::fmt::Display for Harassed {
    fn fmt(&self, to: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            to,
            "{} kills and {} deaths at a point ({} messages in dead hands), {} stops; longest stall {:.1} ms",
            self.kills,
            self.deaths,
            self.in_dead_hands,
            self.stops,
            self.longest.as_secs_f64() * 1e3
        )
    }
}
