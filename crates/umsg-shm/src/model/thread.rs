//! A thread of a model: its id, its time, and the word that it has named to the kernel.

use super::futex::Named;
use super::world::{self, World};
use crate::lock::{OWNER_DIED, TID, WAITERS};
use crate::sync::Futex;
use crate::sys::liveness::Liveness;
use crate::sys::thread::{Bereaved, Interruptions, Stall, TakenUp};
use crate::sys::urgency::Urgency;
use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::ptr::null;

/// The time at which every thread begins, in nanoseconds.
pub const BEGINNING: u64 = 1;

/// The word that a thread had named to the kernel before it named a word of the library.
#[derive(Clone, Copy)]
pub struct Outer(Named);

/// Returns false: in a model there are no signal handlers.
pub fn do_all_handlers_defer() -> bool {
    false
}

/// The number of nested critical sections of a thread.
#[derive(Default)]
pub struct Depth(Cell<u32>);

impl Depth {
    pub fn enter(&self) {
        self.0.set(self.0.get() + 1);
    }

    pub fn leave(&self) {
        self.0
            .set(self.0.get().checked_sub(1).expect("a section to leave"));
    }
}

/// A thread of a model.
pub struct Thread {
    tid: u32,
    pub(super) now: Cell<u64>,
    pub critical: Depth,
    pub interruptions: Interruptions,
    pub taken_up: TakenUp,
    pub stall: Stall,
    pub urgency: Urgency,
    pub bereaved: Bereaved,
    /// The id of the thread's process, as the queue's PID namespace numbers it: see [`live_in`].
    pid: u32,
    stray: bool,
    named: Cell<Named>,
}

loom::thread_local! {
    /// The thread of the model that is running.
    static CURRENT: Cell<*const Thread> = Cell::new(null());
}

/// The panic with which a thread leaves the operation in which it dies.
struct Died;

/// Passes the calling thread to `work`, if the thread belongs to a model.
pub(crate) fn with_current<T>(work: impl FnOnce(Option<&Thread>) -> T) -> T {
    let current = CURRENT.with(Cell::get);
    // SAFETY: `live` sets the pointer to a thread on its own stack, and resets it before that stack ends.
    work(unsafe { current.as_ref() })
}

/// Begins a thread of the model. The result of the thread is None if it dies.
pub fn spawn<T: 'static>(
    tid: u32,
    life: impl FnOnce(&Thread) -> T + 'static,
) -> loom::thread::JoinHandle<Option<T>> {
    spawn_in(tid, tid, false, life)
}

/// Begins a thread as [`spawn`] does, but in the process with this id: see [`live_in`].
pub fn spawn_in<T: 'static>(
    tid: u32,
    pid: u32,
    stray: bool,
    life: impl FnOnce(&Thread) -> T + 'static,
) -> loom::thread::JoinHandle<Option<T>> {
    world::with(|world| world.living += 1);
    loom::thread::spawn(move || {
        let result = live_in(tid, pid, stray, life);
        world::with(World::leave);
        result
    })
}

/// Waits for the end of a thread, and returns its result. None if the thread died.
pub fn join<T>(thread: loom::thread::JoinHandle<Option<T>>) -> Option<T> {
    world::with(World::leave);
    let result = thread.join().expect("a panic would have ended the model");
    world::with(|world| world.living += 1);
    result
}

/// Runs `life` as a thread of the model. `life` runs on the calling loom thread, which is already among the living threads.
pub fn live<T>(tid: u32, life: impl FnOnce(&Thread) -> T) -> Option<T> {
    live_in(tid, tid, false, life)
}

/// Runs `life` as [`live`] does, in a process whose process id and liveness id are `pid`. With `stray`, the process is in another PID namespace than
/// the queue's home.
pub fn live_in<T>(tid: u32, pid: u32, stray: bool, life: impl FnOnce(&Thread) -> T) -> Option<T> {
    let thread = Thread {
        tid,
        now: Cell::new(BEGINNING),
        critical: Depth::default(),
        interruptions: Interruptions::none(),
        taken_up: TakenUp::none(),
        stall: Stall::none(),
        urgency: Urgency::unknown(),
        bereaved: Bereaved::none(),
        pid,
        stray,
        named: Cell::new(Named::Nothing),
    };
    CURRENT.with(|current| current.set(&raw const thread));
    let outcome = catch_unwind(AssertUnwindSafe(|| life(&thread)));
    match outcome {
        Ok(result) => {
            CURRENT.with(|current| current.set(null()));
            assert_eq!(thread.critical.0.get(), 0, "left a critical section open");
            let is_named = !matches!(thread.named.get(), Named::Nothing);
            assert!(!is_named, "left a word named");
            Some(result)
        }
        Err(panic) if panic.is::<Died>() => {
            CURRENT.with(|current| current.set(null()));
            None
        }
        Err(panic) => resume_unwind(panic),
    }
}

impl Thread {
    pub fn tid(&self) -> u32 {
        self.tid
    }

    pub fn pid(&self) -> u32 {
        self.pid
    }

    pub fn owner(&self) -> u64 {
        u64::from(self.tid) | u64::from(self.pid) << 32
    }

    pub fn is_stray(&self) -> bool {
        self.stray
    }

    pub fn birth(&self) -> u64 {
        u64::from(self.tid)
    }

    pub fn named(&self) -> Outer {
        Outer(self.named.get())
    }

    pub fn rename(&self, word: &impl Futex) {
        self.named.set(word.named());
    }

    pub fn unname(&self, outer: Outer) {
        self.named.set(outer.0);
    }

    /// Lets this much time pass, for this thread alone.
    pub fn oversleep(&self, nanoseconds: u64) {
        self.now.set(self.now.get() + nanoseconds);
    }

    /// Dies: the kernel marks the word that the thread has named, then the thread unwinds its stack.
    pub fn die(&self) -> ! {
        exit_robust_list(self.named.get(), self.tid);
        world::end(self.pid);
        super::inheritance::exit_pi_state_list(self.tid);
        resume_unwind(Box::new(Died));
    }
}

/// Marks the word that a dead thread has named, as the kernel does: linux/kernel/futex/core.c, `handle_futex_death`.
fn exit_robust_list(word: Named, tid: u32) {
    if matches!(word, Named::Nothing) {
        return;
    }
    let mut now = word.read();
    loop {
        if now == 0 {
            super::futex::wake_unless_dead(word, 1);
            return;
        }
        if now & TID != tid {
            return;
        }
        match word.replace(now, now & WAITERS | OWNER_DIED) {
            Ok(()) if now & WAITERS != 0 => {
                super::futex::wake_unless_dead(word, 1);
                return;
            }
            Ok(()) => return,
            Err(other) => now = other,
        }
    }
}

/// Returns whether the thread with this id has died.
pub fn is_dead(_pid: u32, tid: u32, _birth: u64) -> bool {
    world::has_died(tid)
}

/// Returns the PID namespace of the calling thread, which is the same for all threads. [`is_stray`] says whether a thread is in another namespace.
pub fn here() -> u64 {
    0
}

/// Returns whether the calling thread is a stray: see [`Thread::is_stray`].
pub fn is_stray() -> bool {
    with_current(|me| me.is_some_and(Thread::is_stray))
}

/// The liveness ids of a model. The liveness id of a process is its process id.
pub struct Processes;

impl Liveness for Processes {
    fn own(&self) -> u32 {
        with_current(|me| me.map_or(0, Thread::pid))
    }

    fn is_over(&self, life: u32) -> bool {
        life == 0 || world::is_over(life)
    }

    fn is_elsewhere(&self) -> bool {
        false
    }

    fn is_home(&self) -> bool {
        !is_stray()
    }

    fn is_private(&self) -> bool {
        true
    }

    fn is_plain(&self) -> bool {
        false
    }
}

/// Returns whether a process has died. Each thread of a model is a separate process.
pub fn is_process_dead(pid: u32, _birth: u64) -> bool {
    world::has_died(pid)
}

/// Returns false: no process of a model is stopped.
pub fn is_process_stopped(_pid: u32) -> bool {
    false
}

/// Returns the same user for all processes of a model.
pub fn real_user(_pid: u32) -> u32 {
    0
}

/// Returns the user of all processes of a model.
pub fn own_user(_pid: u32) -> Option<u32> {
    Some(0)
}

/// Returns a birth that differs for each process id.
pub fn birth(pid: u32) -> u64 {
    u64::from(pid)
}

/// Returns the rank of a thread. All ordinary threads of a model have one rank, and all real-time threads have another rank.
pub fn rank(tid: u32) -> u32 {
    match world::with(|world| world.real_time.contains(&tid)) {
        true => 1,
        false => 120,
    }
}
