//! A thread of a model: its id, its time, the word that it has named to the kernel.

use super::world::{self, World};
use crate::lock::{OWNER_DIED, TID, WAITERS};
use crate::sync::{AtomicU32, Ordering};
use crate::sys::thread::{Interruptions, Stall, TakenUp};
use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::ptr::null;

/// The time at which every thread begins, in nanoseconds.
pub(crate) const BEGINNING: u64 = 1;

/// What a thread had named to the kernel before it named a word of ours.
#[derive(Clone, Copy)]
pub(crate) struct Outer(*const AtomicU32);

/// Critical sections that a thread is in.
#[derive(Default)]
pub(crate) struct Depth(Cell<u32>);

impl Depth {
    pub(crate) fn enter(&self) {
        self.0.set(self.0.get() + 1);
    }

    pub(crate) fn leave(&self) {
        self.0
            .set(self.0.get().checked_sub(1).expect("a section to leave"));
    }
}

/// See the module.
pub(crate) struct Thread {
    tid: u32,
    pub(super) now: Cell<u64>,
    pub(crate) critical: Depth,
    pub(crate) interruptions: Interruptions,
    pub(crate) taken_up: TakenUp,
    pub(crate) stall: Stall,
    named: Cell<*const AtomicU32>,
}

loom::thread_local! {
    /// The thread that is running.
    static CURRENT: Cell<*const Thread> = Cell::new(null());
}

/// The panic with which a thread leaves the operation in which it dies.
struct Died;

/// The calling thread, if it is one of a model's.
pub(super) fn with_current<T>(work: impl FnOnce(Option<&Thread>) -> T) -> T {
    let current = CURRENT.with(Cell::get);
    // SAFETY: `live` sets the pointer to a thread on its own stack and takes it back before that is gone.
    work(unsafe { current.as_ref() })
}

/// Begins a thread of the model. Its result is None if it dies.
pub(crate) fn spawn<T: 'static>(
    tid: u32,
    life: impl FnOnce(&Thread) -> T + 'static,
) -> loom::thread::JoinHandle<Option<T>> {
    world::with(|world| world.living += 1);
    loom::thread::spawn(move || {
        let result = live(tid, life);
        world::with(World::leave);
        result
    })
}

/// Waits for the end of a thread. None if it died.
pub(crate) fn join<T>(thread: loom::thread::JoinHandle<Option<T>>) -> Option<T> {
    world::with(World::leave);
    let result = thread.join().expect("a panic would have ended the model");
    world::with(|world| world.living += 1);
    result
}

/// Does something as a thread of the model, on the thread of loom that runs the model and is counted already.
pub(crate) fn live<T>(tid: u32, life: impl FnOnce(&Thread) -> T) -> Option<T> {
    let thread = Thread {
        tid,
        now: Cell::new(BEGINNING),
        critical: Depth::default(),
        interruptions: Interruptions::none(),
        taken_up: TakenUp::none(),
        stall: Stall::none(),
        named: Cell::new(null()),
    };
    CURRENT.with(|current| current.set(&raw const thread));
    let outcome = catch_unwind(AssertUnwindSafe(|| life(&thread)));
    match outcome {
        Ok(result) => {
            CURRENT.with(|current| current.set(null()));
            assert_eq!(thread.critical.0.get(), 0, "left a critical section open");
            assert!(thread.named.get().is_null(), "left a word named");
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
    pub(crate) fn tid(&self) -> u32 {
        self.tid
    }

    pub(crate) fn pid(&self) -> u32 {
        self.tid
    }

    pub(crate) fn birth(&self) -> u64 {
        u64::from(self.tid)
    }

    pub(crate) fn name(&self, word: &AtomicU32) -> Outer {
        let outer = Outer(self.named.get());
        self.rename(word);
        outer
    }

    pub(crate) fn rename(&self, word: &AtomicU32) {
        self.named.set(word);
    }

    pub(crate) fn unname(&self, outer: Outer) {
        self.named.set(outer.0);
    }

    /// Lets time pass, for this thread alone.
    pub(crate) fn oversleep(&self, nanoseconds: u64) {
        self.now.set(self.now.get() + nanoseconds);
    }

    /// Dies: the kernel marks the word that is named, then the stack is left.
    pub(crate) fn die(&self) -> ! {
        // SAFETY: what is named is a word of the segment, which outlives the threads that use it.
        if let Some(word) = unsafe { self.named.get().as_ref() } {
            exit_robust_list(word, self.tid);
        }
        world::with(|world| world.dead.push(self.tid));
        resume_unwind(Box::new(Died));
    }
}

/// What the kernel does to the word that a dead thread has named: linux/kernel/futex/core.c, `handle_futex_death`.
fn exit_robust_list(word: &AtomicU32, tid: u32) {
    // Adding nothing reads the newest value, as the kernel does.
    let mut now = word.fetch_or(0, Ordering::Relaxed);
    loop {
        if now == 0 {
            super::futex::wake_unless_dead(word, 1);
            return;
        }
        if now & TID != tid {
            return;
        }
        match word.compare_exchange(
            now,
            now & WAITERS | OWNER_DIED,
            Ordering::AcqRel,
            Ordering::Relaxed,
        ) {
            Ok(_) if now & WAITERS != 0 => {
                super::futex::wake_unless_dead(word, 1);
                return;
            }
            Ok(_) => return,
            Err(other) => now = other,
        }
    }
}

/// Whether the thread has died.
pub(crate) fn is_dead(_pid: u32, tid: u32, _birth: u64) -> bool {
    world::has_died(tid)
}

/// Each thread of a model is a process of its own.
pub(crate) fn is_process_dead(pid: u32, _birth: u64) -> bool {
    world::has_died(pid)
}

/// Nobody is stopped.
pub(crate) fn can_process_run(pid: u32, birth: u64) -> bool {
    !is_process_dead(pid, birth)
}

/// One user.
pub(crate) fn real_user(_pid: u32) -> u32 {
    0
}

/// See [`real_user`]: there is one process.
pub(crate) fn own_user(_pid: u32) -> Option<u32> {
    Some(0)
}

/// See [`is_process_dead`].
pub(crate) fn birth(pid: u32) -> u64 {
    u64::from(pid)
}

/// All threads of a model have one rank.
pub(crate) fn rank(_tid: u32) -> u32 {
    120
}
