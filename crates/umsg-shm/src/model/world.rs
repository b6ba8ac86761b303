//! The state of a model's kernel: which threads live, which sleep, and which will die.
//!
//! This module uses no types of loom. loom switches threads only inside its own operations, so all code between two such operations is one step, as
//! in a kernel. All threads of a model run on one thread of the system, which holds the world in its local storage.

use crate::crash::Point;
use crate::sync::{AtomicU32, Ordering};
use std::cell::RefCell;
use std::sync::Arc;

/// The step at which a thread dies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Death {
    /// The thread passes this crash point.
    At(Point),
    /// The thread is about to call the kernel to wake a process.
    Waking,
}

/// The planned death of a thread.
#[derive(Clone, Copy, Debug)]
struct Doom {
    tid: u32,
    death: Death,
    /// The number of the pass at which the thread dies; 1 for the first pass.
    nth: u32,
}

/// A thread that sleeps on a word.
pub(super) struct Sleeper {
    pub(super) tid: u32,
    pub(super) address: usize,
    pub(super) thread: loom::thread::Thread,
    /// True if the sleep has a deadline.
    pub(super) timed: bool,
}

/// The state of a model's kernel.
#[derive(Default)]
pub(super) struct World {
    /// True if a sleep ends with its slice when no process is awake. If false, a lost wake-up is a deadlock.
    pub(super) slices: bool,
    /// The number of slices that have ended.
    pub(super) ended: u32,
    /// The number of running threads: threads that have begun, have not ended, and do not only wait for the end of other threads.
    pub(super) living: usize,
    /// The sleeping threads. The thread that has slept longest comes first.
    pub(super) sleepers: Vec<Sleeper>,
    /// The threads whose slice has ended their sleep, and that have not noticed the end of the sleep yet.
    pub(super) overslept: Vec<u32>,
    /// The threads whose next sleep a signal ends.
    pub(super) interrupted: Vec<u32>,
    pub(super) dead: Vec<u32>,
    /// The threads with a real-time policy.
    pub(super) real_time: Vec<u32>,
    /// The addresses of futexes with priority inheritance on which a thread has slept.
    pub(super) inherited: Vec<usize>,
    /// The word of the turnstile: see [`super::crash`].
    pub(super) turnstile: Option<Arc<AtomicU32>>,
    /// A word that each death changes. The change orders the writes of the dead thread before the end of its life.
    pub(super) ends: Option<Arc<AtomicU32>>,
    /// The number of signals that senders have raised in other processes, which consent to them.
    pub(super) signals: u32,
    dooms: Vec<Doom>,
}

thread_local! {
    static WORLD: RefCell<World> = RefCell::default();
}

/// The greatest number of slices that may end in one execution. If more slices end, time passes but no thread makes progress.
const PATIENCE: u32 = 40;

/// Reads or changes the state of the kernel.
pub(super) fn with<T>(work: impl FnOnce(&mut World) -> T) -> T {
    WORLD.with_borrow_mut(work)
}

/// Makes the state of a new kernel, at the beginning of an execution.
pub fn begin(slices: bool) {
    with(|world| {
        *world = World {
            slices,
            // The one living thread is the thread that runs the model.
            living: 1,
            turnstile: Some(Arc::new(AtomicU32::new(0))),
            ends: Some(Arc::new(AtomicU32::new(0))),
            ..World::default()
        };
    });
}

/// Dooms a thread to die when it passes the point for the `nth` time.
pub fn doom(tid: u32, death: Death, nth: u32) {
    with(|world| world.dooms.push(Doom { tid, death, nth }));
}

/// Lets a signal handler run when the thread sleeps next. As with an immediate time-out, this represents a handler at any moment.
pub fn interrupt(tid: u32) {
    with(|world| world.interrupted.push(tid));
}

/// Gives a thread a real-time policy.
pub fn hurry(tid: u32) {
    with(|world| world.real_time.push(tid));
}

/// Returns the number of signals that senders have raised in other processes.
pub fn signals() -> u32 {
    with(|world| world.signals)
}

/// Ends the life of a process.
pub(super) fn end(life: u32) {
    if let Some(ends) = with(|world| world.ends.clone()) {
        // Release: orders the writes of the process before its end.
        ends.fetch_add(1, Ordering::Release);
    }
    with(|world| world.dead.push(life));
}

/// Returns whether the life of a process is over.
pub(super) fn is_over(life: u32) -> bool {
    if let Some(ends) = with(|world| world.ends.clone()) {
        // Acquire: pairs with the release in `end`. This read-modify-write adds nothing, and reads the newest value.
        ends.fetch_add(0, Ordering::Acquire);
    }
    has_died(life)
}

/// Returns whether the thread has died.
pub fn has_died(tid: u32) -> bool {
    with(|world| world.dead.contains(&tid))
}

impl World {
    /// Returns the thread that has slept longest on a word.
    pub(super) fn first_on(&self, address: usize) -> Option<u32> {
        let mut sleepers = self.sleepers.iter();
        let first = sleepers.find(|sleeper| sleeper.address == address)?;
        Some(first.tid)
    }

    /// Ends the sleep of a thread, and returns the thread for its wake-up.
    pub(super) fn take_off(&mut self, tid: u32) -> loom::thread::Thread {
        let index = self.sleepers.iter().position(|sleeper| sleeper.tid == tid);
        self.sleepers.remove(index.expect("a sleeper")).thread
    }

    /// Returns whether a thread that passes a point dies at this point.
    pub(super) fn strikes(&mut self, tid: u32, death: Death) -> bool {
        let Some(index) = self
            .dooms
            .iter()
            .position(|doom| doom.tid == tid && doom.death == death)
        else {
            return false;
        };
        self.dooms[index].nth -= 1;
        if self.dooms[index].nth != 0 {
            return false;
        }
        self.dooms.swap_remove(index);
        true
    }

    /// Notes that a thread has ended, or waits for the end of other threads.
    pub(super) fn leave(&mut self) {
        self.living -= 1;
        self.pass_time();
    }

    /// Lets time pass if no process is awake: the thread that has slept longest wakes.
    pub(super) fn pass_time(&mut self) {
        if !self.slices || self.sleepers.len() < self.living {
            return;
        }
        let Some(index) = self.sleepers.iter().position(|sleeper| sleeper.timed) else {
            return;
        };
        self.ended += 1;
        assert!(
            self.ended < PATIENCE,
            "time passes and nobody gets any further"
        );
        let sleeper = self.sleepers.remove(index);
        self.overslept.push(sleeper.tid);
        if sleeper.thread.id() != loom::thread::current().id() {
            sleeper.thread.unpark();
        }
    }
}
