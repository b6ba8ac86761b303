//! After the violence: the doctor finds nothing, and who waits is told at once again, by who ends its wait.
//!
//! Who waits looks up ten times a second by itself, because a waker may die. So one that nobody wakes is late, not stuck, and only
//! time tells. That of the quickest of several turns: no machine is busy in all of them.

use crate::support::child::{Child, Exit};
use crate::support::journal::How;
use crate::support::shared::Shared;
use crate::support::{milliseconds, now, poll_readable, wait_until};
use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::time::Duration;
use umsg::diagnosis::{Diagnosis, Life, Repaired};

/// Nothing takes as long when nobody does violence.
pub const CALM: Duration = Duration::from_secs(10);

const TURNS: usize = 9;
/// Half of the time after which a waiter looks up by itself, in nanoseconds.
const PROMPT: u64 = 50_000_000;

/// Fails if the doctor has anything to say of a queue that nobody uses; but that the dead are still among those who wait, before he has taken
/// them away.
pub fn expect_healthy(repaired: &Repaired, what: &str) {
    let waited = |diagnosis: &Diagnosis| {
        let mut blocked = diagnosis.blocked.iter();
        blocked.any(|one| one.who.life == Life::Dead)
    };
    let (before, after) = (problems(&repaired.before), problems(&repaired.after));
    let of_the_dead = usize::from(waited(&repaired.before));
    // Each in one line, the first of a failure: `cargo xtask defects` looks no further.
    assert_eq!(before.len(), of_the_dead, "{what}: {before:?}");
    let left = &repaired.after.blocked;
    assert!(after.is_empty(), "{what}: {after:?}: {left:?}");
    assert_eq!(repaired.kept, None, "{what}: it was made anew");
}

fn problems(diagnosis: &Diagnosis) -> Vec<&str> {
    let problems = diagnosis.problems.iter();
    problems.map(|problem| &problem.what[..]).collect()
}

/// Fails if who waits is late each time. `turn` answers how long after the end of its wait one heard of it, in nanoseconds.
pub fn expect_prompt(what: &str, mut turn: impl FnMut() -> u64) {
    let mut quickest = u64::MAX;
    for _ in 0..TURNS {
        quickest = quickest.min(turn());
        if quickest < PROMPT {
            return;
        }
    }
    panic!(
        "{what} is not woken, and looks up by itself after {:.0} ms",
        milliseconds(quickest)
    );
}

/// Waits until somebody is in the list of those who wait, and asleep: for some time it looks whether that pays.
pub fn expect_asleep(what: &str, waits: impl FnMut() -> bool) {
    assert!(wait_until(CALM, waits), "{what}: nobody waits");
    std::thread::sleep(Duration::from_millis(5));
}

/// Lets a child `wait`; `act` ends its wait. Answers how long after that it heard of it.
pub fn wakes(what: &str, wait: impl FnOnce(), act: impl FnOnce()) -> u64 {
    let woken = Shared::<AtomicU64>::new();
    let mut child = Child::run(|| {
        wait();
        woken.store(now(), SeqCst);
        0
    });
    act();
    let ended = now();
    child.expect(Exit::Code(0), what);
    woken.load(SeqCst).saturating_sub(ended)
}

/// As [`wakes`], of a child that polls; `send` makes what it polls readable.
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
    let act = || {
        let is_there = wait_until(CALM, || polls.load(SeqCst) == 1);
        assert!(is_there, "{what}: nobody polls");
        std::thread::sleep(Duration::from_millis(2));
        send();
    };
    wakes(what, poll, act)
}
