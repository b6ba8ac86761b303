//! Sleeps on a word, in a model: the check of the word and the sleep are one step, as in the kernel.
//!
//! A sleep that would end within a slice times out at once (see [`super::time`]). A longer sleep ends with a wake-up. In a model with slices, a
//! longer sleep also ends when no process is awake any more: then one sleeper after another times out.

use super::crash::strike;
use super::thread;
use super::world::{self, Death, Sleeper};
use crate::lock::SLICE;
use crate::sync::{AtomicU32, AtomicU64, Futex, Ordering};
use crate::sys::clock::Deadline;
use crate::sys::futex::Slept;
use crate::sys::thread::Calm;

/// A futex, as the kernel of a model identifies it.
#[derive(Clone, Copy)]
pub enum Named {
    Nothing,
    Word(*const AtomicU32),
    /// The futex is the low half of the word.
    Half(*const AtomicU64),
}

/// A value that no word has: the thread id in it is impossible, and no count reaches this value.
const NO_WORD: u32 = u32::MAX;

impl Futex for AtomicU32 {
    fn named(&self) -> Named {
        Named::Word(self)
    }
}

impl Futex for AtomicU64 {
    fn named(&self) -> Named {
        Named::Half(self)
    }
}

impl Named {
    /// Returns the newest value of the futex, as a read by the kernel does. The read changes nothing and orders nothing.
    ///
    /// The read is a compare-and-swap that fails. loom lets a read-modify-write find a newest value, but does not put the access next to that value
    /// in the order of all changes. If the compare-and-swap stored the value again, a thread could read the old value although it has stored another
    /// value since.
    pub(super) fn read(self) -> u32 {
        let order = Ordering::Relaxed;
        // SAFETY: the named word belongs to the segment, which outlives the threads that use it.
        match self {
            Named::Nothing => 0,
            Named::Word(word) => unsafe { &*word }
                .compare_exchange(NO_WORD, NO_WORD, order, order)
                .unwrap_or_else(|now| now),
            Named::Half(word) => unsafe { &*word }
                .compare_exchange(NO_WORD.into(), NO_WORD.into(), order, order)
                .unwrap_or_else(|now| now) as u32,
        }
    }

    /// Replaces the value `old` by `new`. Returns the current value as an error if it is not `old`.
    pub(super) fn replace(self, old: u32, new: u32) -> Result<(), u32> {
        let (success, failure) = (Ordering::AcqRel, Ordering::Relaxed);
        // SAFETY: as in `read`.
        match self {
            Named::Nothing => Ok(()),
            Named::Word(word) => unsafe { &*word }
                .compare_exchange(old, new, success, failure)
                .map(drop),
            Named::Half(word) => {
                let word = unsafe { &*word };
                let now = word.load(failure);
                let half = |whole: u64, low: u32| whole >> 32 << 32 | u64::from(low);
                word.compare_exchange(half(now, old), half(now, new), success, failure)
                    .map(drop)
                    .map_err(|now| now as u32)
            }
        }
    }

    pub(super) fn address(self) -> usize {
        match self {
            Named::Nothing => 0,
            Named::Word(word) => word.addr(),
            Named::Half(word) => word.addr(),
        }
    }
}

/// Sleeps while `word` holds `expected`, until a wake-up or until `deadline`.
pub fn wait(word: &impl Futex, expected: u32, deadline: Deadline) -> Slept {
    let word = word.named();
    if word.read() != expected {
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
        lie_down(me.pid(), word.address(), end.is_some());
        if !overslept(me.pid()) {
            return Slept::Awake;
        }
        // Other threads run first if they can: the time of this thread must not overtake them.
        loom::thread::yield_now();
        me.now.set(end.unwrap_or(me.now.get()));
        Slept::TimedOut
    })
}

/// Sleeps as [`wait`] does, but a signal may end the sleep: see [`world::interrupt`].
pub fn wait_in_calm(word: &AtomicU32, expected: u32, _calm: Calm<'_>, deadline: Deadline) -> Slept {
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

pub(super) fn lie_down(tid: u32, address: usize, timed: bool) {
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
    // No other thread has run since the read of the word. So a thread that later removes this thread from the list finds it parked.
    if parks {
        loom::thread::park();
    }
}

pub(super) fn overslept(tid: u32) -> bool {
    world::with(|world| {
        let index = world.overslept.iter().position(|&other| other == tid);
        index.map(|index| world.overslept.swap_remove(index))
    })
    .is_some()
}

/// Wakes up to `count` sleepers on `word`.
pub fn wake(word: &impl Futex, count: i32) {
    strike(Death::Waking);
    wake_unless_dead(word.named(), count);
}

/// Wakes sleepers as the kernel does: the calling thread can't die in this step.
pub(super) fn wake_unless_dead(word: Named, count: i32) {
    // This read tells loom that the list depends on changes of the word by other threads.
    word.read();
    let address = word.address();
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
