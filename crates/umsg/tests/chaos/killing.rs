//! Common parts of the tests at named points: the roles of processes, the longest stall of a process, and the observations.

use crate::support::milliseconds;
use std::collections::BTreeMap;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::time::{Duration, Instant};
use umsg::diagnosis::Repaired;
use umsg_shm::crash::{self, POINTS};

use crate::support::shared::{Shared, Zeroed};

/// The roles of the processes that take part, as indices of the journal.
pub const OBSERVER: usize = 0;
pub const BYSTANDER: usize = 1;
pub const VICTIM: usize = 2;
pub const NEWCOMER: usize = 3;
pub const REPAIRER: usize = 4;

/// The maximum time for which other processes may stall after a death: two slices of 100 ms. The median of the rounds at a point must not exceed this
/// time.
pub const GOAL: Duration = Duration::from_millis(200);
/// The limit on every stall, even on a busy machine.
pub const STALL: Duration = Duration::from_secs(1);
/// The limit on every wait: no step of these tests takes as long.
pub const STUCK: Duration = Duration::from_secs(10);

/// The usual number of kills of a victim at a point. After `PATIENCE`, no further kill begins, but there are at least `LEAST` kills.
const ROUNDS: u32 = 20;
const LEAST: u32 = 3;
const MOST: u32 = 60;
const PATIENCE: Duration = Duration::from_millis(80);

/// The action of the bystander while the victim dies.
#[derive(Clone, Copy, PartialEq)]
pub enum Bystander {
    /// Has the queue open, and continues after the victim's death.
    Idle,
    /// Receives (from a System V queue messages of one type), and is blocked when the victim begins.
    Receives,
    /// Sends, and is blocked when the victim begins.
    Sends,
    /// Sends batches of two messages, and is blocked when the victim begins.
    SendsBatches,
}

impl Bystander {
    pub fn sends(self) -> bool {
        matches!(self, Bystander::Sends | Bystander::SendsBatches)
    }
}

/// The victim's operations in batches.
#[derive(Clone, Copy, PartialEq)]
pub enum Batches {
    None,
    /// The victim sends batches: of each batch, all messages are received, or none.
    Sends,
    /// The victim receives batches: when it copies one message, it may already have taken further messages.
    Receives,
}

/// The action of the observer once the victim is blocked.
#[derive(Clone, Copy, PartialEq)]
pub enum Nudge {
    Nothing,
    Send,
    Receive,
}

/// The process that repairs after the victim's death.
#[derive(Clone, Copy)]
pub enum Repairer<'a> {
    /// The next process that uses the queue.
    Anybody,
    /// A separate process whose points are recorded.
    Watched(&'a Shared<Way>),
    /// A process that dies at this point.
    DiesAt(&'a str),
    /// `umsg doctor --repair`, which finds wrong bytes and rebuilds the queue.
    MakesAnew,
}

impl std::fmt::Display for Repairer<'_> {
    fn fmt(&self, to: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Repairer::Anybody => Ok(()),
            Repairer::Watched(_) => write!(to, " / then a repair"),
            Repairer::DiesAt(point) => write!(to, " / then {point}"),
            Repairer::MakesAnew => write!(to, " / then the queue is made anew"),
        }
    }
}

/// Writes the mark of corruption into a queue's file at this offset, as a process does that finds corruption.
pub fn note_damage(file: &Path, offset: u64) {
    let file = File::options().write(true).open(file);
    let file = file.expect("the queue's file");
    file.write_all_at(&[1], offset).expect("a word");
}

/// Fails unless a repair has rebuilt the queue.
#[track_caller]
pub fn expect_rebuilt(repaired: &Repaired, what: &str) {
    let is_made = repaired.failed.is_none() && repaired.kept.is_some();
    assert!(is_made, "{what}: {repaired:#?}");
}

/// The points that a process has passed, one bit each.
pub struct Way([AtomicU64; POINTS.len().div_ceil(64)]);

// SAFETY: made of atomics.
unsafe impl Zeroed for Way {}

impl Way {
    /// Runs `work`, and records the points that it passes.
    pub fn of<T>(&self, work: impl FnOnce() -> T) -> T {
        crash::forget();
        let done = work();
        for (index, word) in self.0.iter().enumerate() {
            word.store(crash::passed(index), SeqCst);
        }
        done
    }

    pub fn points(&self) -> Vec<&'static str> {
        let has = |point: usize| self.0[point / 64].load(SeqCst) & (1 << (point % 64)) != 0;
        let passed = POINTS.iter().filter(|(point, _, _)| has(*point as usize));
        passed.map(|(_, name, _)| *name).collect()
    }
}

/// The rounds of kills at one point: as many as the limit of time allows, or UMSG_CRASH_ROUNDS of them. Further rounds follow until
/// a process dies, because on a busy machine a process may reach the point seldom.
pub struct Rounds {
    asked: Option<u32>,
    begun: Instant,
    next: u32,
}

impl Rounds {
    pub fn new() -> Rounds {
        let asked = std::env::var("UMSG_CRASH_ROUNDS").ok();
        Rounds {
            asked: asked.and_then(|text| text.parse().ok()),
            begun: Instant::now(),
            next: 0,
        }
    }

    /// Returns the number of the next round, if there is one.
    pub fn next(&mut self, has_died: bool) -> Option<u32> {
        let round = self.next;
        self.next += 1;
        let is_usual = match self.asked {
            Some(asked) => round < asked,
            None => round < LEAST || (round < ROUNDS && self.begun.elapsed() < PATIENCE),
        };
        (is_usual || (!has_died && round < MOST)).then_some(round)
    }
}

/// The observations of one test.
#[derive(Default)]
pub struct Figures {
    kills: u32,
    /// The number of kills at each point.
    at: BTreeMap<String, u32>,
    longest: u64,
    longest_at: String,
    /// The longest stall of the current round, and of the rounds since the last judgement.
    stall: u64,
    stalls: Vec<u64>,
}

impl Figures {
    pub fn note_kill(&mut self, point: &str) {
        self.kills += 1;
        *self.at.entry(point.to_owned()).or_default() += 1;
    }

    pub fn kills_at(&self, point: &str) -> u32 {
        self.at.get(point).copied().unwrap_or_default()
    }

    pub fn note_stall(&mut self, stall: u64, what: &str) {
        if stall > self.longest {
            self.longest = stall;
            self.longest_at = what.to_owned();
        }
        self.stall = self.stall.max(stall);
        let is_short = stall < STALL.as_nanos() as u64;
        let stalled = milliseconds(stall);
        assert!(is_short, "{what}: a process stalled for {stalled:.0} ms");
    }

    pub fn end_round(&mut self) {
        self.stalls.push(std::mem::take(&mut self.stall));
    }

    /// Fails if processes stalled for too long in half or more of the rounds since the last judgement. On a busy machine,
    /// processes stall in many rounds, so `again` makes further ones.
    pub fn judge_stalls(&mut self, what: &str, mut again: impl FnMut(&mut Figures)) {
        let goal = GOAL.as_nanos() as u64;
        for _ in 0..ROUNDS {
            let short = self.stalls.iter().filter(|&&stall| stall < goal);
            if short.count() * 2 > self.stalls.len() {
                self.stalls.clear();
                return;
            }
            again(self);
        }
        let stalls = &self.stalls;
        panic!(
            "{what}: in half of the rounds a process stalled for {GOAL:?} or longer: {stalls:?} ns"
        );
    }

    pub fn print(&self, what: &str) {
        eprintln!(
            "{what}: {} kills at {} points, longest stall {:.1} ms ({})",
            self.kills,
            self.at.len(),
            milliseconds(self.longest),
            self.longest_at
        );
    }
}
