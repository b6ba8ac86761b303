//! After the violence: the doctor finds no problem, and a waiter is woken at once by the process that ends its wait.
//!
//! A waiter checks the queue ten times a second by itself, because a waker may die. So a waiter that no process wakes is late, not stuck, and only
//! the time shows the delay. Therefore the test ends the wait when the waiter has just checked and gone to sleep again, a tenth of a second before
//! its next check. The test judges the quickest of several turns, because no machine is busy in all of them.

use crate::chaos::journal::How;
use crate::chaos::poll_readable;
use crate::support::child::{Child, Exit};
use crate::support::shared::Shared;
use crate::support::{milliseconds, now, wait_until};
use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::time::Duration;
use umsg::diagnosis::{Diagnosis, Life, Repaired};

/// The limit on each wait: without violence, no wait takes as long.
pub const CALM: Duration = Duration::from_secs(10);

const TURNS: usize = 15;
/// The number of turns in which the waiter has to be prompt. A single prompt turn proves nothing: its waker may have been delayed until the waiter
/// checked by itself.
const PROMPT_TURNS: usize = 2;
/// Half of the time between two checks of a waiter, in nanoseconds.
const PROMPT: u64 = 50_000_000;

/// Fails if the doctor reports a problem of a queue that no process uses. Dead processes among the waiters are permitted until the doctor
/// has removed them.
pub fn expect_healthy(repaired: &Repaired, what: &str) {
    let waited = |diagnosis: &Diagnosis| {
        let mut blocked = diagnosis.blocked.iter();
        blocked.any(|one| one.who.life == Life::Dead)
    };
    let (before, after) = (problems(&repaired.before), problems(&repaired.after));
    let of_the_dead = usize::from(waited(&repaired.before));
    // Each problem is on the first line of a failure, because `cargo xtask defects` reads only that line.
    assert_eq!(before.len(), of_the_dead, "{what}: {before:?}");
    let left = &repaired.after.blocked;
    assert!(!repaired.after.busy, "{what}: it could not be checked");
    assert!(after.is_empty(), "{what}: {after:?}: {left:?}");
    assert_eq!(repaired.kept, None, "{what}: it was made anew");
}

fn problems(diagnosis: &Diagnosis) -> Vec<&str> {
    let problems = diagnosis.problems.iter();
    problems.map(|problem| &problem.what[..]).collect()
}

/// Fails if a waiting process is late in each turn. `turn` returns the time from the end of a wait until the waiter noticed it, in nanoseconds.
pub fn expect_prompt(what: &str, mut turn: impl FnMut() -> u64) {
    let mut times = Vec::new();
    for _ in 0..TURNS {
        times.push(turn());
        times.sort_unstable();
        let prompt = times.iter().filter(|time| **time < PROMPT);
        if prompt.count() == PROMPT_TURNS {
            return;
        }
    }
    panic!(
        "{what} is not woken, and looks up by itself after {:.0} ms",
        milliseconds(times[PROMPT_TURNS - 1])
    );
}

/// A thread that waits.
pub struct Sleeper {
    status: String,
}

impl Sleeper {
    /// Returns the calling thread, for use by other processes.
    pub fn this_thread() -> Sleeper {
        // SAFETY: has no preconditions.
        let thread = unsafe { libc::gettid() };
        Sleeper {
            status: format!("/proc/{}/task/{thread}/status", std::process::id()),
        }
    }

    /// Returns the first thread of a child.
    fn of(child: &Child) -> Sleeper {
        Sleeper {
            status: format!("/proc/{}/status", child.pid()),
        }
    }

    /// Waits until the thread has just gone to sleep.
    pub fn expect_to_fall_asleep(&self) {
        // The number of sleeps. Source: proc(5).
        let sleeps = || {
            let status = std::fs::read_to_string(&self.status).unwrap_or_default();
            let mut lines = status.lines();
            lines
                .find(|line| line.starts_with("voluntary_ctxt_switches"))
                .map(str::to_owned)
        };
        let before = sleeps();
        let has_slept = || sleeps() != before;
        assert!(wait_until(CALM, has_slept), "it sleeps for good");
    }
}

/// Lets a child `wait`. When `is_waiting` holds and the child sleeps, `act` ends its wait. Returns the time from the call of `act` until the child
/// noticed the end of its wait.
pub fn wakes_sleeper(
    what: &str,
    wait: impl FnOnce(),
    is_waiting: impl FnMut() -> bool,
    act: impl FnOnce(),
) -> u64 {
    let act = |child: &Child| {
        assert!(wait_until(CALM, is_waiting), "{what}: no process waits");
        Sleeper::of(child).expect_to_fall_asleep();
        act();
    };
    wakes(what, wait, act)
}

fn wakes(what: &str, wait: impl FnOnce(), act: impl FnOnce(&Child)) -> u64 {
    let woken = Shared::<AtomicU64>::new();
    let mut child = Child::run(|| {
        wait();
        woken.store(now(), SeqCst);
        0
    });
    act(&child);
    let ended = now();
    child.expect(Exit::Code(0), what);
    woken.load(SeqCst).saturating_sub(ended)
}

/// Checks as [`wakes_sleeper`] does, for a child that polls, which never wakes by itself; `send` makes the polled queue readable.
pub fn wakes_poller<'a>(
    what: &str,
    pollable: impl FnOnce() -> BorrowedFd<'a>,
    send: impl FnOnce(),
) -> u64 {
    let polls = Shared::<AtomicU64>::new();
    let poll = || {
        let descriptor = pollable();
        polls.store(1, SeqCst);
        assert!(poll_readable(descriptor, How::Within(CALM)), "not told");
    };
    let act = |_: &Child| {
        let is_there = wait_until(CALM, || polls.load(SeqCst) == 1);
        assert!(is_there, "{what}: no process polls");
        std::thread::sleep(Duration::from_millis(2));
        send();
    };
    wakes(what, poll, act)
}
