//! The supervisor: its actions on the workers, and its check that no worker is stuck.

use super::aim::{Aim, Mark};
use super::crew::{self, STORM};
use super::figures::Figures;
use super::{PARTS, Part, THREADS, Work};
use crate::chaos::journal::{Deed, MESSAGES, Role};
use crate::support::child::{Child, Exit, complaints, let_calls_be_interrupted};
use crate::support::{Random, milliseconds, now, wait_until};
use std::sync::atomic::Ordering::SeqCst;
use std::time::{Duration, Instant};

/// The maximum time for which a worker is in a call that should succeed; time in which any process is stopped does not count.
/// Also the maximum delay of a call after its deadline; time in which the worker itself is stopped does not count.
const STUCK: Duration = Duration::from_secs(1);
/// The time after which the supervisor suspects that a process is stuck: longer than two slices.
const SUSPICIOUS: Duration = Duration::from_millis(220);
/// The maximum time until the survivors of a round end, on a machine that is busy with other things.
const END: Duration = Duration::from_secs(30);
/// The maximum time between two checks that the supervisor adds to a stall. If the supervisor gets no CPU time, the other processes may get none,
/// either.
const LOOK: Duration = Duration::from_millis(10);

/// One role of a worker, and the process that has this role now.
struct Worker {
    role: usize,
    child: Child,
    /// The point at which the worker dies by itself.
    mark: Option<Mark>,
    /// The time at which the worker continues, if it is stopped.
    stopped_until: Option<Instant>,
    watches: [Watch; THREADS],
}

impl Worker {
    /// Returns whether a call of the worker takes so long that the worker may be stuck. Such a worker is neither killed nor sent a signal, because
    /// that would hide the stall.
    fn is_stalled(&self) -> bool {
        let mut watches = self.watches.iter();
        watches.any(|watch| watch.stalled.max(watch.late) > SUSPICIOUS)
    }
}

/// The call of a thread when its progress was last checked.
#[derive(Clone, Copy, Default)]
struct Watch {
    begun: u64,
    /// The time without progress, while no process was stopped.
    stalled: Duration,
    /// The time since the deadline of the call.
    late: Duration,
}

struct Supervisor<'a, W> {
    work: &'a W,
    random: Random,
    seed: u64,
    spawned: u64,
    aim: Aim,
    /// The number of panics in children before this round.
    complaints: u64,
    seen: Figures,
}

/// Lets the workers work for a time and then end, and does violence to them meanwhile.
pub fn harass(work: &impl Work, seed: u64, time: Duration) -> Figures {
    // The signal is ignored before any worker is forked, because a worker may get the signal before its first call.
    let_calls_be_interrupted();
    // SAFETY: the call installs no handler.
    unsafe { libc::signal(STORM, libc::SIG_IGN) };
    let mut supervisor = Supervisor {
        work,
        random: Random::new(seed),
        seed,
        spawned: 0,
        aim: Aim::new(work),
        complaints: complaints(),
        seen: Figures::default(),
    };
    supervisor.run(time);
    supervisor.seen.note_deeds(work.journal());
    supervisor.seen
}

impl<W: Work> Supervisor<'_, W> {
    /// Returns the records of a worker: of its threads, its handlers and its children.
    fn records(&self, role: usize) -> &[Role] {
        &self.work.journal().roles[role * PARTS..][..PARTS]
    }

    fn start(&mut self, role: usize) -> Worker {
        self.spawned += 1;
        let seed = self.seed ^ (self.spawned * 64 + role as u64);
        for record in self.records(role) {
            record.begun_at.store(0, SeqCst);
            record.receiving.store(0, SeqCst);
            record.wants.store(0, SeqCst);
            record.lives.fetch_add(1, SeqCst);
        }
        let mark = match self.work.spares(role) {
            true => None,
            false => self.aim.next(self.work.kind(role), &mut self.random),
        };
        let child = Child::lead(|| {
            crew::live(self.work, role, seed, mark);
            0
        });
        Worker {
            role,
            child,
            mark,
            stopped_until: None,
            watches: Default::default(),
        }
    }

    fn start_all(&mut self) -> Vec<Worker> {
        (0..self.work.workers())
            .map(|role| self.start(role))
            .collect()
    }

    fn run(&mut self, time: Duration) {
        let mut workers = self.start_all();
        let begun = Instant::now();
        let mut looked = Instant::now();
        while begun.elapsed() < time && self.work.journal().used() < MESSAGES / 2 {
            // Periods with many deaths in a row and periods with few deaths alternate.
            let pause = match begun.elapsed().as_millis() / 700 % 3 {
                0 => 5_000 + self.random.below(30_000),
                _ => 500 + self.random.below(8000),
            };
            let next = Instant::now() + Duration::from_micros(pause);
            while Instant::now() < next {
                std::thread::sleep(Duration::from_micros(500));
                let_go_on(&mut workers);
                self.replace_the_dead(&mut workers);
                self.watch(&mut workers, looked.elapsed().min(LOOK));
                looked = Instant::now();
            }
            if !is_any_stopped(&workers) {
                self.work.check();
            }
            self.harass_one(&mut workers);
        }
        self.end(workers);
    }

    /// Kills one worker, or stops it for a while, or floods it with signals.
    fn harass_one(&mut self, workers: &mut [Worker]) {
        let victim = self.random.below(workers.len() as u64) as usize;
        let anybody_stopped = is_any_stopped(workers);
        let worker = &mut workers[victim];
        self.count_descriptors(worker);
        match self.random.below(40) {
            0 | 1 if !anybody_stopped => self.stop(worker),
            2..6 if !worker.is_stalled() => self.storm(worker),
            _ if self.work.spares(worker.role) || worker.is_stalled() => {}
            _ => {
                worker.child.signal(libc::SIGKILL);
                self.seen.kills += 1;
                self.replace(worker);
            }
        }
    }

    /// Fails if a worker has more descriptors than it can need.
    fn count_descriptors(&mut self, worker: &Worker) {
        // The worker may have become another program, or be dead.
        let Ok(entries) = std::fs::read_dir(format!("/proc/{}/fd", worker.child.pid())) else {
            return;
        };
        let (role, count) = (worker.role, entries.count());
        self.seen.descriptors = self.seen.descriptors.max(count);
        let most = self.work.descriptors(role);
        assert!(
            count <= most,
            "role {role} has {count} descriptors, more than {most}: some are left open"
        );
    }

    /// Stops a worker, mostly for some milliseconds; at times for longer than the time for which non-blocking calls wait for a lock.
    fn stop(&mut self, worker: &mut Worker) {
        let time = match self.random.below(16) {
            0 => 1100 + self.random.below(300),
            _ => 5 + self.random.below(120),
        };
        worker.child.signal(libc::SIGSTOP);
        worker.stopped_until = Some(Instant::now() + Duration::from_millis(time));
        self.seen.stops += 1;
    }

    fn storm(&mut self, worker: &Worker) {
        let signals = 10 + self.random.below(40);
        for _ in 0..signals {
            worker.child.signal_leader(STORM);
            std::thread::sleep(Duration::from_micros(50));
        }
        self.seen.signals += signals;
    }

    /// Starts a new worker in place of one that died.
    fn replace(&mut self, worker: &mut Worker) {
        let exit = worker.child.wait(END);
        let exit = exit.unwrap_or_else(|| panic!("role {} does not die", worker.role));
        self.expect_to_be_excusable(worker.role, exit);
        self.note_dead_hands(worker.role);
        *worker = self.start(worker.role);
    }

    /// Fails unless a worker was killed, or has become another program, which handles signals in its own way.
    fn expect_to_be_excusable(&self, role: usize, exit: Exit) {
        let has_become_another = self.work.journal().deeds(Deed::Exec) != 0;
        let is_excusable = match exit {
            Exit::Signal(libc::SIGKILL) => true,
            Exit::Code(0) | Exit::Signal(libc::SIGUSR1 | STORM) => has_become_another,
            _ => false,
        };
        assert!(is_excusable, "role {role} crashed: {exit:?}");
        let complaints = complaints() - self.complaints;
        assert_eq!(
            complaints, 0,
            "a child has panicked, and was killed before it ended"
        );
    }

    /// Records the messages that dead processes may have taken.
    fn note_dead_hands(&mut self, role: usize) {
        let numbers = role * PARTS..(role + 1) * PARTS;
        self.seen.in_dead_hands += self.work.journal().look_into_hands(numbers);
    }

    /// Starts new workers in place of those that have died by themselves.
    fn replace_the_dead(&mut self, workers: &mut [Worker]) {
        for worker in workers {
            if let Some(exit) = worker.child.wait(Duration::ZERO) {
                if let (Exit::Signal(libc::SIGKILL), Some(mark)) = (exit, worker.mark) {
                    self.seen.deaths += 1;
                    self.aim.hit(mark);
                }
                self.replace(worker);
            }
        }
    }

    /// Adds the time since the last check to the stall of every thread that should have made progress in it. A stopped
    /// worker may hold a lock, so time in which any process is stopped does not count. The time of a call that waits for
    /// missing room or a missing message does not count, either. A call with a deadline has to return by then, even
    /// while other processes are stopped.
    fn watch(&mut self, workers: &mut [Worker], passed: Duration) {
        let mut stuck = None;
        let anybody_stopped = is_any_stopped(workers);
        let (full, empty) = self.work.lacks().unwrap_or((true, true));
        for worker in &mut *workers {
            let hopeless = if worker.role < self.work.senders() {
                full
            } else {
                empty
            };
            for thread in 0..THREADS {
                let part = Part {
                    role: worker.role,
                    thread,
                };
                let record = &self.work.journal().roles[part.index()];
                let (begun, due) = (record.begun_at.load(SeqCst), record.due_at.load(SeqCst));
                let watch = &mut worker.watches[thread];
                if begun == 0 || begun != watch.begun {
                    *watch = Watch {
                        begun,
                        ..Watch::default()
                    };
                    continue;
                }
                if !hopeless && !anybody_stopped {
                    watch.stalled += passed;
                }
                if due != 0 && now() > due && worker.stopped_until.is_none() {
                    watch.late += passed;
                }
                self.seen.stall = self.seen.stall.max(watch.stalled);
                self.seen.late = self.seen.late.max(watch.late);
                if watch.stalled >= STUCK || watch.late >= STUCK {
                    stuck = Some((part, *watch));
                }
            }
        }
        if let Some((part, watch)) = stuck {
            panic!(
                "role {}, thread {} is stuck: {:?} in one call, {:?} of that after it was due; {:.0} ms since it began; {}",
                part.role,
                part.thread,
                watch.stalled,
                watch.late,
                milliseconds(now() - watch.begun),
                self.scene(workers),
            );
        }
    }

    /// Returns the report about a stuck worker. The report shows all workers, because the call of another worker may delay the stuck worker.
    fn scene(&self, workers: &[Worker]) -> String {
        let mut scene = String::new();
        for worker in workers {
            scene += &format!("\nrole {}:{}", worker.role, worker.child.portrait());
        }
        format!("queue {}{scene}", self.work.describe())
    }

    /// Lets the survivors end: senders first, while there are receivers.
    fn end(&mut self, mut workers: Vec<Worker>) {
        for worker in &workers {
            worker.child.signal(libc::SIGCONT);
        }
        for number in 0..workers.len() {
            let worker = &mut workers[number];
            for record in self.records(worker.role) {
                record.go.store(1, SeqCst);
            }
            let ended = wait_until(END, || {
                worker.child.signal_threads(libc::SIGUSR1);
                worker.child.wait(Duration::from_millis(1)).is_some()
            });
            let role = worker.role;
            assert!(
                ended,
                "role {role} is stuck at the end: {}",
                self.scene(&workers)
            );
            let worker = &mut workers[number];
            match worker.child.wait(Duration::ZERO) {
                Some(Exit::Code(0)) => {}
                Some(exit) => self.expect_to_be_excusable(worker.role, exit),
                None => unreachable!("it has ended"),
            }
            self.note_dead_hands(worker.role);
        }
    }
}

fn is_any_stopped(workers: &[Worker]) -> bool {
    workers.iter().any(|worker| worker.stopped_until.is_some())
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
