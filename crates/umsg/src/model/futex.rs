//! Sleeping on a word: looking at it and lying down is one step, as in the kernel.
//!
//! A sleep that would end within a slice times out at once (see [`super::time`]). A longer one ends when it is woken;
//! where the model has slices, also when nobody is awake any more, one sleeper after another.

use super::crash::strike;
use super::thread;
use super::world::{self, Death, Sleeper};
use crate::lock::SLICE;
use crate::sync::{AtomicU32, Ordering};
use crate::sys::clock::Deadline;
use crate::sys::futex::Slept;
use crate::sys::thread::Calm;

/// Sleeps while `word` holds `expected`, until woken or until `deadline`.
pub(crate) fn wait(word: &AtomicU32, expected: u32, deadline: Deadline) -> Slept {
    // Adding nothing reads the newest value, as the kernel does, and orders nothing.
    if word.fetch_or(0, Ordering::Relaxed) != expected {
        return Slept::Awake;
    }
    thread::with_current(|me| {
        let me = me.expect("only threads of a model sleep");
        let end = match deadline {
            Deadline::Never => None,
            Deadline::Passed => return Slept::TimedOut,
            Deadline::Monotonic(at) | Deadline::Realtime(at) => Some(at),
        };
        if let Some(at) = end
            && at < me.now.get() + SLICE
        {
            me.now.set(at.max(me.now.get()));
            return Slept::TimedOut;
        }
        lie_down(me.tid(), std::ptr::from_ref(word).addr(), end.is_some());
        if !overslept(me.tid()) {
            return Slept::Awake;
        }
        // The others first, if they can go on now: time must not race ahead of them.
        loom::thread::yield_now();
        me.now.set(end.unwrap_or(me.now.get()));
        Slept::TimedOut
    })
}

/// As [`wait`], but that a signal may end it: see [`world::interrupt`].
pub(crate) fn wait_in_calm(
    word: &AtomicU32,
    expected: u32,
    _calm: Calm<'_>,
    deadline: Deadline,
) -> Slept {
    let tid = thread::with_current(|me| me.map(|me| me.tid()));
    let is_interrupted = world::with(|world| {
        let index = world
            .interrupted
            .iter()
            .position(|&other| Some(other) == tid);
        index.map(|index| world.interrupted.swap_remove(index))
    });
    match is_interrupted {
        Some(_) => Slept::Interrupted,
        None => wait(word, expected, deadline),
    }
}

fn lie_down(tid: u32, address: usize, timed: bool) {
    let parks = world::with(|world| {
        world.sleepers.push(Sleeper {
            tid,
            address,
            thread: loom::thread::current(),
            timed,
        });
        world.pass_time();
        !world.overslept.contains(&tid)
    });
    // Nobody else ran since the look at the word: whoever takes us off the list finds us parked.
    if parks {
        loom::thread::park();
    }
}

fn overslept(tid: u32) -> bool {
    world::with(|world| {
        let index = world.overslept.iter().position(|&other| other == tid);
        index.map(|index| world.overslept.swap_remove(index))
    })
    .is_some()
}

/// Wakes up to `count` sleepers on `word`.
pub(crate) fn wake(word: &AtomicU32, count: i32) {
    strike(Death::Waking);
    wake_unless_dead(word, count);
}

/// The same where nobody can die: in the kernel.
pub(super) fn wake_unless_dead(word: &AtomicU32, count: i32) {
    // Looking at the list depends on what others have done with the word: loom has to know.
    word.fetch_or(0, Ordering::Relaxed);
    let address = std::ptr::from_ref(word).addr();
    for _ in 0..count {
        let sleeper = world::with(|world| {
            let index = world
                .sleepers
                .iter()
                .position(|sleeper| sleeper.address == address)?;
            Some(world.sleepers.remove(index))
        });
        match sleeper {
            Some(sleeper) => sleeper.thread.unpark(),
            None => return,
        }
    }
}
