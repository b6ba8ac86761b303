//! The identity of the calling thread, and how the kernel learns which lock word it holds.
//!
//! Linux walks a *robust list* when a thread dies: for each futex word named there that holds the thread's id it sets
//! FUTEX_OWNER_DIED and wakes a waiter. The list head has one field, `list_op_pending`, that names a single word
//! outside the list. A thread holds one of our locks at a time, so that field is all we need: name the word before
//! taking it, restore what was there after letting go. Neither the kernel nor libc ever follows a pointer that lies
//! in shared memory. Source: linux/kernel/futex/core.c, `exit_robust_list`; get_robust_list(2).

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

/// How often handlers have run on a thread. Counted by `umsg::signals::defer`, compared by calls that block: a futex sleep that a
/// signal interrupts says so itself, but a call does not only sleep.
///
/// The lowest bit of each count says that another thread wants this one's calls to end (`umsg::signals::Caller`), also one that
/// begins now.
#[derive(Debug)]
pub struct Interruptions {
    /// Handlers that were installed without SA_RESTART.
    without_restart: Count,
    /// All handlers.
    any: Count,
}

const WANTED: u32 = 1;
const HANDLER: u32 = 2;

// Relaxed throughout: the thread's handlers write the counts and the thread reads them; the kernel reads them for the thread.
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

    /// Wants the thread's calls to end. The caller wakes it, whichever word it sleeps on.
    pub fn want(&self) -> [&Count; 2] {
        let words = [&self.without_restart, &self.any];
        for word in words {
            word.fetch_or(WANTED, Relaxed);
        }
        words
    }

    /// Whether its calls were wanted to end; from now on they are not.
    pub fn take_wanted(&self) -> bool {
        let both = [&self.without_restart, &self.any].map(|word| word.fetch_and(!WANTED, Relaxed));
        (both[0] | both[1]) & WANTED != 0
    }

    /// Begins a call that goes on after a handler with SA_RESTART. In the drop-in, where all handlers count, any handler ends the
    /// call, and the drop-in makes it again ([`counted`](Self::counted)): as the kernel does, behind the others that wait.
    #[inline(always)]
    pub fn calm(&self) -> Calm<'_> {
        match do_all_handlers_defer() {
            true => self.calm_without_handlers(),
            false => Calm::of(&self.without_restart, false),
        }
    }

    /// How many handlers have run: those without SA_RESTART, and all.
    #[cfg_attr(loom, allow(dead_code, reason = "for the drop-in"))]
    pub fn counted(&self) -> [u32; 2] {
        [&self.without_restart, &self.any].map(|word| word.load(Relaxed) & !WANTED)
    }

    /// Begins a call that any handler ends, as msgsnd(2) and msgrcv(2) are: signal(7).
    #[inline(always)]
    pub(crate) fn calm_without_handlers(&self) -> Calm<'_> {
        Calm::of(&self.any, true)
    }
}

/// What a call knows of its thread's interruptions: how many there were when it began.
#[derive(Clone, Copy)]
pub struct Calm<'a> {
    count: &'a Count,
    then: u32,
    /// Whether any handler ends it.
    any: bool,
}

impl<'a> Calm<'a> {
    #[inline(always)]
    fn of(count: &'a Count, any: bool) -> Calm<'a> {
        let then = count.load(Relaxed) & !WANTED;
        Calm { count, then, any }
    }

    /// Whether a handler has interrupted the call.
    pub(crate) fn is_over(self) -> bool {
        self.count.load(Relaxed) != self.then
    }

    /// The count, and what it is while the calm lasts.
    pub(crate) fn word(self) -> (&'a Count, u32) {
        (self.count, self.then)
    }

    /// Whether a handler with SA_RESTART ends it, too.
    pub(crate) fn ends_by_any(self) -> bool {
        self.any
    }
}

/// The node whose message a thread has taken up last, and in which segment: its next call there clears the node away first.
/// A hint: a process that follows it looks whether the node is to be cleared away.
pub(crate) struct TakenUp(Cell<(usize, u32)>);

impl TakenUp {
    pub(crate) const fn none() -> TakenUp {
        TakenUp(Cell::new((0, 0)))
    }

    /// Remembers a node of the segment that lies at this address.
    pub(crate) fn remember(&self, segment: usize, node: u32) {
        self.0.set((segment, node));
    }

    /// The node, if one of this segment is remembered; and forgets it.
    #[inline(always)]
    pub(crate) fn recall(&self, segment: usize) -> Option<u32> {
        let (of, node) = self.0.get();
        (of == segment).then(|| {
            self.0.set((0, 0));
            node
        })
    }
}

/// Which processes' locks a thread has lately taken after their deaths: for people. The words say by then that the locks are the thread's own.
pub(crate) struct Bereaved(Cell<[(usize, u32); 2]>);

impl Bereaved {
    pub(crate) const fn none() -> Bereaved {
        Bereaved(Cell::new([(0, 0); 2]))
    }

    /// Notes that the lock at this address was the process's.
    pub(crate) fn note(&self, lock: usize, pid: u32) {
        let [last, _] = self.0.get();
        self.0.set([(lock, pid), last]);
    }

    /// Whose the lock at this address was; 0 for unknown, or if what that process left has been repaired.
    pub(crate) fn by(&self, lock: usize) -> u32 {
        let found = self.0.get().into_iter().find(|(of, _)| *of == lock);
        found.map_or(0, |(_, pid)| pid)
    }

    /// What the process left has been repaired.
    pub(crate) fn forget(&self, lock: usize) {
        let kept = |(of, pid)| if of == lock { (0, 0) } else { (of, pid) };
        self.0.set(self.0.get().map(kept));
    }
}

/// How long a thread has lately waited for locks whose owners did not get on: those are stopped, or hostile. A call that must not
/// block may meet several of them, one after the other, and is to wait for all together no longer than for one.
pub(crate) struct Stall(Cell<(u64, u64)>);

/// A wait that lasts longer is one for an owner that does not get on, in nanoseconds.
const LONG: u64 = 100_000_000;
/// A wait that begins so soon after a long one is probably the same call's, in nanoseconds.
const SOON: u64 = 20_000_000;
/// How long a call that has waited long enough waits for each further lock, in nanoseconds.
const LEAST: u64 = 10_000_000;

impl Stall {
    pub(crate) const fn none() -> Stall {
        Stall(Cell::new((0, 0)))
    }

    /// Until when a wait that begins now may last, if a call may wait for so long altogether.
    pub(crate) fn end(&self, now: u64, patience: u64) -> u64 {
        let (began, ended) = self.0.get();
        match now < ended.saturating_add(SOON) {
            true => began
                .saturating_add(patience)
                .max(now.saturating_add(LEAST)),
            false => now.saturating_add(patience),
        }
    }

    /// Notes a wait that is over.
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
    use crate::sync::Futex;
    use crate::sys::critical::Depth;
    use crate::sys::robust::{self, Head};
    use crate::sys::{home, process};
    use rustix::io::Errno;
    use std::cell::Cell;

    /// What a thread had named to the kernel before it named a word of ours.
    #[derive(Clone, Copy)]
    pub struct Outer(*mut u8);

    /// What a thread knows of itself. One a thread, in thread-local storage, never dropped.
    pub struct Thread {
        /// The process epoch in which the fields below were found out; 0 before.
        epoch: Cell<u64>,
        /// The kernel's id of the thread, as lock words hold it.
        tid: Cell<u32>,
        /// The process's id, and when the thread was started (0 until asked for).
        pid: Cell<u32>,
        birth: Cell<u64>,
        /// The thread's id, and above 32 bits the process's: what a lock in plain form holds.
        owner: Cell<u64>,
        /// Whether it takes locks in shared form only: its ids mean nothing in the queues that its process has inherited
        /// ([`home::is_stray`]), or the kernel would not mark a lock that it dies with.
        stray: Cell<bool>,
        /// The robust list head that the kernel has for this thread: libc's, or our own below. Our own, too, if the kernel has none.
        robust: Cell<*const Head>,
        /// Why the kernel has no head for this thread; 0 if it has one.
        unmarked: Cell<i32>,
        /// How many critical sections the thread is in: signals are deferred while it is not 0.
        pub critical: Depth,
        /// How often its calls were interrupted.
        pub interruptions: Interruptions,
        pub(crate) taken_up: TakenUp,
        pub(crate) stall: Stall,
        pub(crate) bereaved: Bereaved,
        /// How many signals of notifications the process had raised when the thread took what it was sent; see `umsg::notification`.
        pub raised: Cell<u32>,
        /// Head for a thread that libc did not register one for (made by a bare clone).
        own: Head,
    }

    thread_local! {
        static THREAD: Thread = const {
            Thread {
                epoch: Cell::new(0),
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
                bereaved: Bereaved::none(),
                raised: Cell::new(0),
                own: Head::new(),
            }
        };
    }

    /// The calling thread.
    #[inline(always)]
    pub fn current() -> &'static Thread {
        let thread = THREAD.with(std::ptr::from_ref);
        // SAFETY: the storage lives as long as its thread and has no destructor; `Thread` is neither Send nor Sync,
        // so the reference stays on the thread, and no caller keeps it beyond a call.
        let thread = unsafe { &*thread };
        if thread.epoch.get() != process::epoch() || thread.epoch.get() == 0 {
            thread.introduce();
        }
        thread
    }

    impl Thread {
        /// Finds out the thread's identity: on its first call, and on the first after a fork.
        #[cold]
        fn introduce(&self) {
            let epoch = process::begin_epoch();
            self.tid
                .set(rustix::thread::gettid().as_raw_nonzero().get() as u32);
            self.pid
                .set(rustix::process::getpid().as_raw_nonzero().get() as u32);
            self.birth.set(0);
            self.owner
                .set(u64::from(self.tid.get()) | u64::from(self.pid.get()) << 32);
            self.critical.reset();
            self.find_robust_list();
            self.stray.set(home::is_stray() || self.unmarked.get() != 0);
            // Last: a handler that runs on the way, and uses a queue, finds out everything itself.
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

        /// Whether the kernel marks a lock that this thread dies with, and those of the threads and processes that it starts: each of
        /// them registers a head of its own.
        ///
        /// # Errors
        /// The errno of set_robust_list(2).
        pub(crate) fn can_be_marked(&self) -> Result<(), Errno> {
            match self.unmarked.get() {
                // SAFETY: `introduce` found the head to be registered.
                0 => unsafe { robust::register_again(self.robust.get()) },
                errno => Err(Errno::from_raw_os_error(errno)),
            }
        }

        /// The kernel's id of the thread.
        #[inline(always)]
        pub fn tid(&self) -> u32 {
            self.tid.get()
        }

        /// The kernel's id of the process.
        #[inline(always)]
        pub fn pid(&self) -> u32 {
            self.pid.get()
        }

        /// The thread's id, and above 32 bits the process's.
        #[inline(always)]
        pub(crate) fn owner(&self) -> u64 {
            self.owner.get()
        }

        /// Whether it takes locks in shared form only.
        #[inline(always)]
        pub(crate) fn is_stray(&self) -> bool {
            self.stray.get()
        }

        /// When the thread was started, in clock ticks since boot; 0 if that can't be found out.
        pub fn birth(&self) -> u64 {
            if self.birth.get() == 0 {
                self.birth.set(super::birth_of(self.pid(), self.tid()));
            }
            self.birth.get()
        }

        #[inline(always)]
        fn robust(&self) -> &Head {
            // SAFETY: `introduce` stored a head that libc or we keep alive as long as the thread; Cells only.
            unsafe { &*self.robust.get() }
        }

        /// What is named to the kernel, for `unname`: a signal handler may run between the two and do the same.
        #[inline(always)]
        pub(crate) fn named(&self) -> Outer {
            Outer(self.robust().list_op_pending.get())
        }

        /// Names `word` to the kernel, in place of what was named: if the thread dies while the word holds its id, the kernel marks it.
        #[inline(always)]
        pub(crate) fn rename(&self, word: &impl Futex) {
            let head = self.robust();
            let entry = word
                .address()
                .cast::<u8>()
                .wrapping_offset(-(head.futex_offset.get() as isize));
            head.list_op_pending.set(entry);
            // The kernel reads the field when the thread is dead: program order is all that matters.
            std::sync::atomic::compiler_fence(std::sync::atomic::Ordering::SeqCst);
        }

        /// Restores what was named before `name`.
        #[inline(always)]
        pub(crate) fn unname(&self, outer: Outer) {
            std::sync::atomic::compiler_fence(std::sync::atomic::Ordering::SeqCst);
            self.robust().list_op_pending.set(outer.0);
        }
    }
}

/// Whether the thread is proved dead: no such thread any more, or its id belongs to one that started at another time.
/// Unknown means alive.
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
        // It may have ended meanwhile.
        0 => !exists(),
        now => birth != 0 && now != birth,
    }
}

#[cfg(loom)]
pub(crate) use crate::model::thread::is_dead;

/// When a thread was started, in clock ticks since boot; 0 if /proc does not say.
#[cfg(not(loom))]
fn birth_of(pid: u32, tid: u32) -> u64 {
    super::stat::Stat::of_thread(pid, tid).map_or(0, |stat| stat.birth)
}

/// A thread's place among waiters, as the kernel sorts those of its own queues: by priority, lower first; 0 for a
/// deadline thread, 1 to 99 for a real-time one, then by nice value. That of a thread that is gone is an ordinary one.
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
