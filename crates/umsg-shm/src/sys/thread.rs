//! The identity of the calling thread, and the lock word that it names to the kernel.
//!
//! When a thread dies, Linux walks its *robust list*. The kernel sets FUTEX_OWNER_DIED in each listed futex word that holds the thread's id, and
//! wakes a waiter. The list head has a field `list_op_pending`, which names a single word outside the list. A thread holds one of the library's locks
//! at a time, so this field is enough. The thread names the word before it takes the lock, and restores the previous value after it has released the
//! lock. Neither the kernel nor libc follows a pointer in shared memory. Source: linux/kernel/futex/core.c, `exit_robust_list`; get_robust_list(2).

#[cfg(loom)]
use crate::model::thread::do_all_handlers_defer;
#[cfg(loom)]
pub(crate) use crate::model::thread::{Outer, Thread};
#[cfg(not(loom))]
use crate::sys::critical::do_all_handlers_defer;
#[cfg(not(loom))]
pub use real::{Outer, Thread, current};

use std::cell::Cell;
use std::sync::atomic::{AtomicU32 as Count, Ordering::Relaxed};

/// The number of handlers that ran on a thread. `umsg::signals::defer` counts them, and blocking calls compare the counts. A sleep on a futex
/// reports an interruption itself, but a handler may also run while the call does not sleep.
///
/// The lowest bit of each count is set if another thread wants the calls of this thread to end (`umsg::signals::Caller`), even a call that begins
/// later.
#[derive(Debug)]
pub struct Interruptions {
    /// The number of handlers without SA_RESTART that have run.
    without_restart: Count,
    /// The number of all handlers that have run.
    any: Count,
}

const WANTED: u32 = 1;
const HANDLER: u32 = 2;

// All accesses are relaxed: the handlers of the thread write the counts, and the thread, or the kernel on its behalf, reads them.
impl Interruptions {
    pub(crate) const fn none() -> Interruptions {
        Interruptions {
            without_restart: Count::new(0),
            any: Count::new(0),
        }
    }

    /// Counts a handler.
    pub fn count(&self, restarts: bool) {
        self.any.fetch_add(HANDLER, Relaxed);
        if !restarts {
            self.without_restart.fetch_add(HANDLER, Relaxed);
        }
    }

    /// Requests the end of the thread's calls. Returns the two counts: the caller then wakes the thread, which sleeps on one of them.
    pub fn want(&self) -> [&Count; 2] {
        let words = [&self.without_restart, &self.any];
        for word in words {
            word.fetch_or(WANTED, Relaxed);
        }
        words
    }

    /// Clears the request, and returns whether there was a request.
    pub fn take_wanted(&self) -> bool {
        let both = [&self.without_restart, &self.any].map(|word| word.fetch_and(!WANTED, Relaxed));
        (both[0] | both[1]) & WANTED != 0
    }

    /// Begins a call that continues after a handler with SA_RESTART. In the drop-in, any handler ends the call, and the drop-in repeats the call
    /// ([`counted`](Self::counted)). As in the kernel, the repeated call waits after the other waiters.
    #[inline(always)]
    pub fn calm(&self) -> Calm<'_> {
        match do_all_handlers_defer() {
            true => self.calm_without_handlers(),
            false => Calm::of(&self.without_restart, false),
        }
    }

    /// Returns the number of handlers without SA_RESTART, and of all handlers.
    #[cfg_attr(loom, allow(dead_code, reason = "for the drop-in"))]
    pub fn counted(&self) -> [u32; 2] {
        [&self.without_restart, &self.any].map(|word| word.load(Relaxed) & !WANTED)
    }

    /// Begins a call that any handler ends, like msgsnd(2) and msgrcv(2): signal(7).
    #[inline(always)]
    pub(crate) fn calm_without_handlers(&self) -> Calm<'_> {
        Calm::of(&self.any, true)
    }
}

/// The number of interruptions of a thread at the beginning of a call.
#[derive(Clone, Copy)]
pub struct Calm<'a> {
    count: &'a Count,
    then: u32,
    /// True if any handler ends the call.
    any: bool,
}

impl<'a> Calm<'a> {
    #[inline(always)]
    fn of(count: &'a Count, any: bool) -> Calm<'a> {
        let then = count.load(Relaxed) & !WANTED;
        Calm { count, then, any }
    }

    /// Returns whether a handler has interrupted the call.
    pub(crate) fn is_over(self) -> bool {
        self.count.load(Relaxed) != self.then
    }

    /// Returns the count of interruptions, and the value that it has without an interruption.
    pub(crate) fn word(self) -> (&'a Count, u32) {
        (self.count, self.then)
    }

    /// Returns whether a handler with SA_RESTART ends the call, too.
    pub(crate) fn ends_by_any(self) -> bool {
        self.any
    }
}

/// The node from which a thread took its last message, and the segment of the node. The thread's next call on that segment first frees the node. This
/// record is a hint: the call checks the node.
pub(crate) struct TakenUp(Cell<(usize, u32)>);

impl TakenUp {
    pub(crate) const fn none() -> TakenUp {
        TakenUp(Cell::new((0, 0)))
    }

    /// Records a node of the segment at this address.
    pub(crate) fn remember(&self, segment: usize, node: u32) {
        self.0.set((segment, node));
    }

    /// Returns the node and clears the record, if the record names this segment.
    #[inline(always)]
    pub(crate) fn recall(&self, segment: usize) -> Option<u32> {
        let (of, node) = self.0.get();
        (of == segment).then(|| {
            self.0.set((0, 0));
            node
        })
    }
}

/// The dead processes whose locks a thread took recently, for diagnosis. The words of these locks then name the thread, no longer the dead owner.
pub(crate) struct Bereaved(Cell<[(usize, u32); 2]>);

impl Bereaved {
    pub(crate) const fn none() -> Bereaved {
        Bereaved(Cell::new([(0, 0); 2]))
    }

    /// Records that a process held the lock at this address.
    pub(crate) fn note(&self, lock: usize, pid: u32) {
        let [last, _] = self.0.get();
        self.0.set([(lock, pid), last]);
    }

    /// Returns the process that held the lock at this address; 0 if it is unknown, or if the repair has ended.
    pub(crate) fn by(&self, lock: usize) -> u32 {
        let found = self.0.get().into_iter().find(|(of, _)| *of == lock);
        found.map_or(0, |(_, pid)| pid)
    }

    /// Clears the record of the lock's dead owner, after the repair.
    pub(crate) fn forget(&self, lock: usize) {
        let kept = |(of, pid)| if of == lock { (0, 0) } else { (of, pid) };
        self.0.set(self.0.get().map(kept));
    }
}

/// The time for which a thread recently waited for locks of stopped or hostile owners. A call that must not block may meet several such locks in
/// sequence. Its total wait must not exceed the wait for one such lock.
pub(crate) struct Stall(Cell<(u64, u64)>);

/// A wait longer than this number of nanoseconds is a wait for a stopped or hostile owner.
const LONG: u64 = 100_000_000;
/// A wait that begins within this number of nanoseconds after a long wait probably belongs to the same call.
const SOON: u64 = 20_000_000;
/// The wait for each further lock, in nanoseconds, after a call has waited long enough.
const LEAST: u64 = 10_000_000;

impl Stall {
    pub(crate) const fn none() -> Stall {
        Stall(Cell::new((0, 0)))
    }

    /// Returns the end of a wait that begins now, for a call whose total wait is limited.
    pub(crate) fn end(&self, now: u64, patience: u64) -> u64 {
        let (began, ended) = self.0.get();
        match now < ended.saturating_add(SOON) {
            true => began
                .saturating_add(patience)
                .max(now.saturating_add(LEAST)),
            false => now.saturating_add(patience),
        }
    }

    /// Records a finished wait.
    pub(crate) fn note(&self, began: u64, now: u64) {
        let (first, ended) = self.0.get();
        if began < ended.saturating_add(SOON) {
            self.0.set((first, now));
        } else if now.saturating_sub(began) > LONG {
            self.0.set((began, now));
        }
    }
}

#[cfg(not(loom))]
mod real {
    use super::{Bereaved, Interruptions, Stall, TakenUp};
    use crate::reclaim::local;
    use crate::sync::Futex;
    use crate::sys::clock;
    use crate::sys::critical::Depth;
    use crate::sys::robust::{self, Head};
    use crate::sys::urgency::Urgency;
    use crate::sys::{home, process};
    use rustix::io::Errno;
    use std::cell::Cell;

    /// The word that a thread had named to the kernel before it named a word of the library.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    pub struct Outer(*mut u8);

    /// The data that a thread keeps about itself. Each thread has one such value, in thread-local storage. The value is never dropped.
    pub struct Thread {
        /// The epoch of the process for which the fields below were computed; [`NOT_YET`] before that.
        epoch: Cell<u64>,
        /// The kernel's id of the thread, in the form of lock words.
        tid: Cell<u32>,
        /// The process id, and the start time of the thread (0 before the first request).
        pid: Cell<u32>,
        birth: Cell<u64>,
        /// The word with which the thread takes a lock in plain form: the thread id in the lower half, the process id in the upper half.
        owner: Cell<u64>,
        /// True if the thread takes locks only in shared form. There are two reasons: its ids are not valid in the queues that its process inherited
        /// ([`home::is_stray`]), or the kernel would not mark its locks at its death.
        stray: Cell<bool>,
        /// The thread's robust list head in the kernel: libc's, or `own` below. Without a head in the kernel, the field also points to `own`.
        robust: Cell<*const Head>,
        /// The errno that explains why the kernel has no head for this thread; 0 if the kernel has a head.
        unmarked: Cell<i32>,
        /// The number of nested critical sections: signals are deferred while it is not 0.
        pub critical: Depth,
        /// The number of interruptions of the thread's calls.
        pub interruptions: Interruptions,
        pub(crate) taken_up: TakenUp,
        pub(crate) stall: Stall,
        pub(crate) urgency: Urgency,
        pub(crate) bereaved: Bereaved,
        /// The shift of CLOCK_MONOTONIC as the thread noted it: see [`clock::monotonic_coarse_of`].
        pub(in crate::sys) ahead: Cell<u64>,
        /// The number of notification signals that the process had raised when the thread last made the kernel deliver pending signals; see
        /// `umsg::notification`.
        pub raised: Cell<u32>,
        /// True while the thread is in a receiver of reports; see [`crate::report`]. A forked child keeps the mark, and returns from the receiver,
        /// too.
        pub(crate) tells: Cell<bool>,
        /// True if the thread notes and delivers no reports; see [`crate::report::mute_thread`]. A forked child keeps the mark.
        pub(crate) muted: Cell<bool>,
        /// The head for a thread without a head of libc (made by a bare clone).
        own: Head,
    }

    /// The value in place of an epoch while the fields of a thread are not computed yet.
    const NOT_YET: u64 = u64::MAX;

    thread_local! {
        static THREAD: Thread = const {
            Thread {
                epoch: Cell::new(NOT_YET),
                tid: Cell::new(0),
                pid: Cell::new(0),
                birth: Cell::new(0),
                owner: Cell::new(0),
                stray: Cell::new(false),
                robust: Cell::new(std::ptr::null()),
                unmarked: Cell::new(0),
                critical: Depth::new(),
                interruptions: Interruptions::none(),
                taken_up: TakenUp::none(),
                stall: Stall::none(),
                urgency: Urgency::unknown(),
                bereaved: Bereaved::none(),
                ahead: Cell::new(clock::NOT_NOTED),
                raised: Cell::new(0),
                tells: Cell::new(false),
                // In the unit tests of this crate, a thread delivers no reports until it asks for them, because all tests share one process.
                muted: Cell::new(cfg!(test)),
                own: Head::new(),
            }
        };
    }

    /// Returns the calling thread.
    #[inline(always)]
    pub fn current() -> &'static Thread {
        let thread = match local::get::<{ local::THREAD }>() {
            0 => first(),
            address => std::ptr::with_exposed_provenance(address),
        };
        // SAFETY: the storage lives as long as its thread and has no destructor; `Thread` is neither Send nor Sync,
        // so the reference stays on the thread, and no caller keeps it beyond a call.
        let thread = unsafe { &*thread };
        if thread.epoch.get() != process::epoch() {
            thread.introduce();
        }
        thread
    }

    /// Finds the calling thread's storage, and stores its address for the next call.
    #[cold]
    fn first() -> *const Thread {
        let thread = THREAD.with(std::ptr::from_ref);
        local::set::<{ local::THREAD }>(thread.expose_provenance());
        thread
    }

    impl Thread {
        /// Computes the thread's identity at its first call, and at the first call after a fork.
        #[cold]
        fn introduce(&self) {
            let epoch = process::begin_epoch();
            self.tid
                .set(rustix::thread::gettid().as_raw_nonzero().get() as u32);
            self.pid
                .set(rustix::process::getpid().as_raw_nonzero().get() as u32);
            self.birth.set(0);
            self.ahead.set(clock::NOT_NOTED);
            self.owner
                .set(u64::from(self.tid.get()) | u64::from(self.pid.get()) << 32);
            self.critical.reset();
            self.find_robust_list();
            self.stray.set(home::is_stray() || self.unmarked.get() != 0);
            // This store comes last: a handler that runs before it and uses a queue computes everything itself.
            std::sync::atomic::compiler_fence(std::sync::atomic::Ordering::SeqCst);
            self.epoch.set(epoch);
        }

        fn find_robust_list(&self) {
            let (head, unmarked) = match robust::registered(&self.own) {
                Ok(head) => (head, 0),
                Err(errno) => (&raw const self.own, errno.raw_os_error()),
            };
            self.robust.set(head);
            self.unmarked.set(unmarked);
        }

        /// Checks that the kernel marks the locks of this thread at its death. The result is also valid for threads and processes that this thread
        /// starts, because each of them registers its own head by the same call.
        ///
        /// # Errors
        /// The errno of set_robust_list(2), if the kernel does not mark the locks.
        pub(crate) fn can_be_marked(&self) -> Result<(), Errno> {
            match self.unmarked.get() {
                // SAFETY: `introduce` found the head to be registered.
                0 => unsafe { robust::register_again(self.robust.get()) },
                errno => Err(Errno::from_raw_os_error(errno)),
            }
        }

        /// Returns the kernel's id of the thread.
        #[inline(always)]
        pub fn tid(&self) -> u32 {
            self.tid.get()
        }

        /// Returns the kernel's id of the process.
        #[inline(always)]
        pub fn pid(&self) -> u32 {
            self.pid.get()
        }

        /// Returns the word with which the thread takes a lock in plain form: the thread id in the lower half, the process id in the upper half.
        #[inline(always)]
        pub(crate) fn owner(&self) -> u64 {
            self.owner.get()
        }

        /// Returns whether the thread takes locks only in shared form.
        #[inline(always)]
        pub(crate) fn is_stray(&self) -> bool {
            self.stray.get()
        }

        /// Returns the start time of the thread, in clock ticks since boot; 0 for unknown.
        pub fn birth(&self) -> u64 {
            if self.birth.get() == 0 {
                self.birth.set(super::birth_of(self.pid(), self.tid()));
            }
            self.birth.get()
        }

        #[inline(always)]
        fn robust(&self) -> &Head {
            // SAFETY: `introduce` stored a head that exists as long as the thread, and that consists of `Cell`s.
            unsafe { &*self.robust.get() }
        }

        /// Returns the word that the thread has named to the kernel, for `unname`. A signal handler may run between these two calls, and may itself
        /// make both calls.
        #[inline(always)]
        pub(crate) fn named(&self) -> Outer {
            Outer(self.robust().list_op_pending.get())
        }

        /// Names `word` to the kernel in place of the previous word. If the thread dies while the word holds its id, the kernel marks the
        /// word.
        #[inline(always)]
        pub(crate) fn rename(&self, word: &impl Futex) {
            let head = self.robust();
            let entry = word
                .address()
                .cast::<u8>()
                .wrapping_offset(-(head.futex_offset.get() as isize));
            head.list_op_pending.set(entry);
            // The kernel reads the field after the thread's death, so the order of the program is enough.
            std::sync::atomic::compiler_fence(std::sync::atomic::Ordering::SeqCst);
        }

        /// Restores the word that the thread had named to the kernel before it named a word of the library.
        #[inline(always)]
        pub(crate) fn unname(&self, outer: Outer) {
            std::sync::atomic::compiler_fence(std::sync::atomic::Ordering::SeqCst);
            self.robust().list_op_pending.set(outer.0);
        }
    }
}

/// Returns whether a thread is proved dead: no thread has the id, or the thread with the id has another start time. A thread whose state is unknown
/// is treated as alive.
#[cfg(not(loom))]
pub fn is_dead(pid: u32, tid: u32, birth: u64) -> bool {
    if cfg!(miri) {
        return false;
    }
    let exists = || super::exists::thread_of(pid, tid);
    if !exists() {
        return true;
    }
    match birth_of(pid, tid) {
        // /proc does not show the thread, which may have ended meanwhile.
        0 => !exists(),
        now => birth != 0 && now != birth,
    }
}

#[cfg(loom)]
pub(crate) use crate::model::thread::is_dead;

/// Returns whether no thread has the id. The call takes a quarter of a microsecond; [`is_dead`] takes a few microseconds, because it recognises
/// another thread that has got the id.
#[cfg(not(loom))]
pub(crate) fn is_gone(pid: u32, tid: u32) -> bool {
    !cfg!(miri) && !super::exists::thread_of(pid, tid)
}

#[cfg(loom)]
pub(crate) fn is_gone(pid: u32, tid: u32) -> bool {
    is_dead(pid, tid, 0)
}

/// Returns the start time of a thread, in clock ticks since boot; 0 if /proc does not show it.
#[cfg(not(loom))]
fn birth_of(pid: u32, tid: u32) -> u64 {
    super::stat::Stat::of_thread(pid, tid).map_or(0, |stat| stat.birth)
}

/// Returns whether a thread has a real-time policy: SCHED_FIFO, SCHED_RR or SCHED_DEADLINE.
pub(crate) fn is_real_time(tid: u32) -> bool {
    /// The rank of the most urgent ordinary thread.
    const ORDINARY: u32 = 100;
    rank(tid) < ORDINARY
}

/// Returns a thread's rank among waiters, in the kernel's order; lower ranks come first. Rank 0 is a deadline thread, 1 to 99 are real-time
/// threads, and higher ranks follow the nice value. A dead thread has the rank of an ordinary thread.
#[cfg(not(loom))]
pub(crate) fn rank(tid: u32) -> u32 {
    if cfg!(miri) {
        return 120;
    }
    /// The beginning of `struct sched_attr` of linux/sched/types.h, its first version.
    #[repr(C)]
    #[derive(Default)]
    struct Attributes {
        size: u32,
        policy: u32,
        flags: u64,
        nice: i32,
        priority: u32,
        deadline: [u64; 3],
    }
    let mut attributes = Attributes::default();
    let size = size_of::<Attributes>();
    // SAFETY: the kernel writes at most the size given, which is the struct's.
    let result =
        unsafe { libc::syscall(libc::SYS_sched_getattr, tid, &raw mut attributes, size, 0) };
    match (result, attributes.policy as i32) {
        (0, libc::SCHED_FIFO | libc::SCHED_RR) => 100_u32.saturating_sub(attributes.priority),
        (0, libc::SCHED_DEADLINE) => 0,
        (0, _) => 120_u32.saturating_add_signed(attributes.nice),
        _ => 120,
    }
}

#[cfg(loom)]
pub(crate) use crate::model::thread::rank;

#[cfg(all(test, not(loom)))]
mod tests {
    use super::{LEAST, LONG, SOON, Stall};

    const PATIENCE: u64 = 10 * LONG;
    const BEGUN: u64 = 1_000 * LONG;

    #[test]
    fn short_waits_take_nothing_from_later_ones() {
        let stall = Stall::none();
        let mut now = BEGUN;
        for _ in 0..100 {
            assert_eq!(stall.end(now, PATIENCE), now + PATIENCE);
            stall.note(now, now + LONG);
            now += LONG;
        }
    }

    #[test]
    fn waits_for_several_that_do_not_get_on_last_as_long_as_for_one() {
        let stall = Stall::none();
        stall.note(BEGUN, BEGUN + 3 * LONG);
        let second = BEGUN + 3 * LONG + 1;
        assert_eq!(stall.end(second, PATIENCE), BEGUN + PATIENCE);
        stall.note(second, BEGUN + PATIENCE);
        let third = BEGUN + PATIENCE + SOON - 1;
        assert_eq!(stall.end(third, PATIENCE), third + LEAST);
    }

    #[test]
    fn a_later_call_waits_as_long_as_any() {
        let stall = Stall::none();
        stall.note(BEGUN, BEGUN + PATIENCE);
        let later = BEGUN + PATIENCE + SOON;
        assert_eq!(stall.end(later, PATIENCE), later + PATIENCE);
        stall.note(later, later + 1);
        let next = later + 2;
        assert_eq!(stall.end(next, PATIENCE), next + PATIENCE);
    }
}
