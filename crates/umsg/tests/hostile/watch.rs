//! The messages of victims to their supervisor: the current call and the time at which it has to return, and the results of all other calls.

use super::support::now;
use super::support::shared::Zeroed;
use std::panic::Location;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::SeqCst};
use std::time::Duration;
use umsg::{posix, ring, sysv};

pub const VICTIMS: usize = 4;

/// The time after its deadline at which a call must return; for a non-blocking call, after its beginning. A call that finds a lock with a
/// living owner waits for a second before it takes the owner for stopped. A repair visits as many slots as the file claims, at most four
/// million. In unoptimized code, this takes more than a second.
pub const GRACE: Duration = match cfg!(debug_assertions) {
    true => Duration::from_secs(5),
    false => Duration::from_secs(1),
};
/// The measuring error: the watch checks every few milliseconds.
const TOLERANCE: Duration = Duration::from_millis(100);

/// A call may wait this long for a lock that has an owner. Each attack is shorter than this.
const ATTACK: Duration = Duration::from_secs(10);

/// The number of counters for error numbers. A higher number is counted as the highest.
const ERRORS: usize = 134;

/// The current call of one victim.
#[derive(Default)]
struct Post {
    /// The time at which the victim's current call began (CLOCK_MONOTONIC, in nanoseconds); 0 if the victim is in no call.
    begun_at: AtomicU64,
    /// The maximum time of the call, in nanoseconds.
    may_last: AtomicU64,
    /// The line of the source code that makes the call.
    line: AtomicU32,
}

/// Memory that victims, attacker and supervisor share.
pub struct Record {
    posts: [Post; VICTIMS],
    /// Set when all processes must end.
    end: AtomicU32,
    calls: AtomicU64,
    /// The number of calls by error number; number 0 counts successes.
    outcomes: [AtomicU64; ERRORS],
    /// The counts of the attacker's actions.
    pub words: AtomicU64,
    pub pages: AtomicU64,
    pub cuts: AtomicU64,
    /// The numbers of queues that were healthy after an attack, that the doctor repaired, that it could not repair, and that were no queues any
    /// more.
    pub patients: [AtomicU64; 4],
    /// The numbers of mappings with only guard pages next to them, and of other mappings.
    pub guarded: AtomicU64,
    pub unguarded: AtomicU64,
}

// SAFETY: made of atomics.
unsafe impl Zeroed for Record {}

/// Errors that have a number.
pub trait Numbered {
    fn number(&self) -> i32;
}

macro_rules! numbered {
    ($($error:ty),*) => {
        $(impl Numbered for $error {
            fn number(&self) -> i32 {
                self.errno()
            }
        })*
    };
}

numbered!(
    posix::SendError,
    posix::ReceiveError,
    posix::LeaseError,
    posix::NotifyError,
    posix::OpenError,
    posix::SnapshotError,
    sysv::SendError,
    sysv::ReceiveError,
    sysv::ControlError,
    sysv::OpenError,
    ring::SendError,
    ring::ReceiveError,
    ring::RingError
);

impl Numbered for std::io::Error {
    fn number(&self) -> i32 {
        self.raw_os_error().expect("an error of the system")
    }
}

/// A victim's view of the record.
#[derive(Clone, Copy)]
pub struct Watch<'a> {
    record: &'a Record,
    role: usize,
}

impl<'a> Watch<'a> {
    pub fn new(record: &'a Record, role: usize) -> Watch<'a> {
        Watch { record, role }
    }

    pub fn goes_on(&self) -> bool {
        self.record.goes_on()
    }

    /// Makes a call that waits at most for `time`.
    #[track_caller]
    pub fn timed<T, E: Numbered>(
        &self,
        time: Duration,
        call: impl FnOnce() -> Result<T, E>,
    ) -> Option<T> {
        let post = &self.record.posts[self.role];
        let may_last = time + GRACE + TOLERANCE;
        post.line.store(Location::caller().line(), SeqCst);
        post.may_last.store(may_last.as_nanos() as u64, SeqCst);
        post.begun_at.store(now(), SeqCst);
        let result = call();
        post.begun_at.store(0, SeqCst);
        let number = result.as_ref().err().map_or(0, Numbered::number);
        assert!(number >= 0, "an error without a number");
        self.record.calls.fetch_add(1, SeqCst);
        self.record.outcomes[(number as usize).min(ERRORS - 1)].fetch_add(1, SeqCst);
        result.ok()
    }

    /// Makes a call that does not wait.
    #[track_caller]
    pub fn call<T, E: Numbered>(&self, call: impl FnOnce() -> Result<T, E>) -> Option<T> {
        self.timed(Duration::ZERO, call)
    }

    /// Makes a call that ends a lease or a reservation: the call waits for the queue's lock as long as the lock has an owner.
    #[track_caller]
    pub fn end<T, E: Numbered>(&self, call: impl FnOnce() -> Result<T, E>) -> Option<T> {
        self.timed(ATTACK, call)
    }

    /// Does the same as [`end`](Self::end), for a call that can't fail.
    #[track_caller]
    pub fn let_go(&self, call: impl FnOnce()) {
        self.end(|| {
            call();
            Ok::<(), std::io::Error>(())
        });
    }

    /// Makes a call that does not wait and can't fail.
    #[track_caller]
    pub fn ask<T>(&self, call: impl FnOnce() -> T) -> T {
        self.timed(Duration::ZERO, || Ok::<T, std::io::Error>(call()))
            .expect("an answer")
    }

    /// Records whether a mapping is between guards.
    pub fn note_guards(&self, is_guarded: bool) {
        let count = match is_guarded {
            true => &self.record.guarded,
            false => &self.record.unguarded,
        };
        count.fetch_add(1, SeqCst);
    }
}

impl Record {
    pub fn goes_on(&self) -> bool {
        self.end.load(SeqCst) == 0
    }

    pub fn begin(&self) {
        self.end.store(0, SeqCst);
    }

    pub fn end(&self) {
        self.end.store(1, SeqCst);
    }

    pub fn calls(&self) -> u64 {
        self.calls.load(SeqCst)
    }

    /// Returns the outcomes of the calls, for people.
    pub fn outcomes(&self) -> String {
        let counted = self.outcomes.iter().enumerate();
        let counted = counted.map(|(number, count)| (number as i32, count.load(SeqCst)));
        let mut counted: Vec<_> = counted.filter(|(_, count)| *count != 0).collect();
        counted.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
        let texts = counted.iter().map(|(number, count)| match *number {
            0 => format!("{count} succeeded"),
            other => format!("{count} {}", name(other)),
        });
        texts.collect::<Vec<_>>().join(", ")
    }

    /// Returns the number of calls that ended with an error number.
    pub fn errors(&self, number: i32) -> u64 {
        self.outcomes[number as usize].load(SeqCst)
    }
}

fn name(number: i32) -> String {
    let known = [
        (libc::EAGAIN, "EAGAIN"),
        (libc::ETIMEDOUT, "ETIMEDOUT"),
        (libc::EBADMSG, "EBADMSG"),
        (libc::EDEADLK, "EDEADLK"),
        (libc::EINVAL, "EINVAL"),
        (libc::ENOSPC, "ENOSPC"),
        (libc::ENOMEM, "ENOMEM"),
        (libc::EIDRM, "EIDRM"),
        (libc::ENOMSG, "ENOMSG"),
        (libc::EMSGSIZE, "EMSGSIZE"),
        (libc::ENOENT, "ENOENT"),
        (libc::ESTALE, "ESTALE"),
        (libc::EBUSY, "EBUSY"),
        (libc::EACCES, "EACCES"),
        (libc::E2BIG, "E2BIG"),
        (libc::EPERM, "EPERM"),
        (libc::EINTR, "EINTR"),
        (libc::EOWNERDEAD, "EOWNERDEAD"),
    ];
    let name = known.iter().find(|(known, _)| *known == number);
    name.map_or_else(|| format!("errno {number}"), |(_, name)| (*name).to_owned())
}

/// Measures how long victims are in their calls, without the time in which the machine ran another process in their place.
pub struct Watchdog {
    pids: [i32; VICTIMS],
    looked_at: u64,
    waited: [u64; VICTIMS],
    /// The call of each victim at the last check, and its time so far.
    seen: [(u64, u64); VICTIMS],
    pub longest: Duration,
}

/// If the time between two checks is longer than this, the machine stood still, and the time does not count.
const LATE: u64 = 50_000_000;

impl Watchdog {
    pub fn new(pids: [i32; VICTIMS]) -> Watchdog {
        Watchdog {
            pids,
            looked_at: now(),
            waited: pids.map(waited),
            seen: [(0, 0); VICTIMS],
            longest: Duration::ZERO,
        }
    }

    /// Returns the time that a victim had been in its call at the last check.
    pub fn taken(&self, role: usize) -> Duration {
        Duration::from_nanos(self.seen[role].1)
    }

    /// Checks all victims. Returns a report on a victim that has been in a call for too long.
    pub fn look(&mut self, record: &Record) -> Result<(), String> {
        let now = now();
        let passed = (now - self.looked_at).min(LATE);
        self.looked_at = now;
        for (role, post) in record.posts.iter().enumerate() {
            let waited = waited(self.pids[role]);
            let waited_since = waited.saturating_sub(self.waited[role]);
            self.waited[role] = waited;
            let begun = post.begun_at.load(SeqCst);
            let (seen, taken) = &mut self.seen[role];
            if begun == 0 || begun != *seen {
                (*seen, *taken) = (begun, 0);
                continue;
            }
            *taken += passed.saturating_sub(waited_since);
            self.longest = self.longest.max(Duration::from_nanos(*taken));
            if *taken > post.may_last.load(SeqCst) {
                let line = post.line.load(SeqCst);
                let taken = Duration::from_nanos(*taken);
                return Err(format!(
                    "victim {role} (process {}) is in the call of line {line} for {taken:?}",
                    self.pids[role]
                ));
            }
        }
        Ok(())
    }
}

/// Returns the time for which a process was ready to run but did not run, in nanoseconds. 0 if the process has ended, or if the kernel does not
/// report the time.
fn waited(pid: i32) -> u64 {
    let text = std::fs::read_to_string(format!("/proc/{pid}/schedstat")).unwrap_or_default();
    let second = text.split_whitespace().nth(1);
    second.and_then(|text| text.parse().ok()).unwrap_or(0)
}
