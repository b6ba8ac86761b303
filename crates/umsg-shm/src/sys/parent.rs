//! The values that a forked child takes over from its parent: its PID and time namespaces, and the shift of its clock.
//!
//! /proc shows the namespaces of a process. To answer, the kernel creates four inodes, which takes half as long as the fork. A child has its parent's
//! namespaces unless the parent has called unshare(2) or setns(2). Two comparisons show that the parent has called neither:
//! | namespace | the child has the parent's if |
//! |---|---|
//! | PID | getppid(2) returns the parent's own number. A parent outside of the child's namespace has the number 0 |
//! | time | CLOCK_MONOTONIC and CLOCK_BOOTTIME are as far from CLOCK_REALTIME, which no namespace shifts, as they were in the parent |
//!
//! A new time namespace that shifts no clock is treated as the parent's time namespace: start times are the same in both. If the parent is dead, or a
//! clock was set meanwhile, the child asks /proc.
//!
//! libc's fork calls [`before_fork`] in the parent and [`after_fork`] in the child. [`after_fork`] leaves a note in the page that a fork wipes. So a
//! grandchild never mistakes the words of its grandparent for the words of its parent.
//!
//! The comparison of process ids can't confuse a dead parent with another process.
//! After the parent's death, getppid(2) returns the id of an ancestor that lived at the same time, or 1 for the first process of the PID namespace.
//! If the parent itself has id 1, its death ends the namespace and all children.
//!
//! setns(2) moves a process itself to another time namespace. So a process notes the distances of its clocks when it learns its namespaces, and
//! passes nothing on if the distances have changed. The process also notes its own process id: a process that shares the memory of another process
//! must pass nothing on.

use super::{clock, home, process};
use rustix::time::{ClockId, clock_gettime};
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

/// The values that the process leaves for a child when it forks. All accesses are relaxed: a child has one thread, and threads that fork at the same
/// time write equal values, or times that differ by microseconds.
struct Parent {
    /// The process id of the parent; 0 if the other fields are not valid.
    pid: AtomicU64,
    here: AtomicU64,
    ahead: AtomicU64,
    /// The distances of the parent's clocks: see [`distances`].
    distances: [AtomicI64; 2],
}

#[cfg_attr(target_os = "linux", unsafe(link_section = ".data.umsg"))]
static PARENT: Parent = Parent {
    pid: AtomicU64::new(0),
    here: AtomicU64::new(0),
    ahead: AtomicU64::new(0),
    distances: [const { AtomicI64::new(0) }; 2],
};

/// The last process that learned its namespaces, and the distances of its clocks at that time. All accesses are relaxed, as for `PARENT`.
#[cfg_attr(target_os = "linux", unsafe(link_section = ".data.umsg"))]
static LEARNED: (AtomicU64, [AtomicI64; 2]) = (AtomicU64::new(0), [const { AtomicI64::new(0) }; 2]);

/// If two distances differ by more than this number of nanoseconds, the clock is treated as shifted. The difference is also larger if a thread loses
/// its processor between two readings. In both cases the thread asks /proc. A smaller shift hardly matters, because the unit of start times is 10 ms.
const PRECISION: u64 = 100_000;

/// Notes the namespaces of this process for the children that it is about to fork. pthread_atfork(3) registers this function.
pub extern "C" fn before_fork() {
    let known = match (home::known(), clock::known_ahead()) {
        (Some(here), Some(ahead)) => Some((here, ahead)),
        // A child that passes its parent's namespaces on to its own child also stores them for itself.
        _ => inherited().inspect(|_| keep()),
    };
    let (own, now) = (own_number(), distances());
    let known = known.filter(|_| is_as_learned(own, now));
    if let Some((here, ahead)) = known {
        PARENT.here.store(here, Ordering::Relaxed);
        PARENT.ahead.store(ahead, Ordering::Relaxed);
        note(now, &PARENT.distances);
    }
    let pid = known.map_or(0, |_| own);
    PARENT.pid.store(pid, Ordering::Relaxed);
}

/// Returns whether this process has learned its namespaces, and its clocks have the same distances from each other as at that time.
fn is_as_learned(own: u64, now: [i64; 2]) -> bool {
    LEARNED.0.load(Ordering::Relaxed) == own && are_near(now, &LEARNED.1)
}

/// Returns the time namespace of this process, if it was read with the PID namespace, which saves a read of /proc.
pub(super) fn time_namespace() -> Option<u64> {
    let time = home::known()? >> 32;
    (time != 0 && is_as_learned(own_number(), distances())).then_some(time)
}

/// Notes that this process has learned its namespaces.
pub(super) fn note_learned() {
    note(settled_distances(), &LEARNED.1);
    LEARNED.0.store(own_number(), Ordering::Relaxed);
}

/// Returns the process id by a system call. libc's getpid would cost one more page fault in a forked child.
fn own_number() -> u64 {
    rustix::process::getpid().as_raw_nonzero().get() as u64
}

fn note(distances: [i64; 2], words: &[AtomicI64; 2]) {
    for (word, distance) in words.iter().zip(distances) {
        word.store(distance, Ordering::Relaxed);
    }
}

/// Returns whether the distances of the clocks are close to the noted distances, so that no clock was shifted since.
fn are_near(now: [i64; 2], noted: &[AtomicI64; 2]) -> bool {
    let then = noted.each_ref().map(|word| word.load(Ordering::Relaxed));
    are_close(now, then)
}

fn are_close(now: [i64; 2], then: [i64; 2]) -> bool {
    let mut shifts = now.into_iter().zip(then);
    shifts.all(|(now, then)| now.abs_diff(then) < PRECISION)
}

/// Notes in a forked child that `PARENT` describes its parent. pthread_atfork(3) registers this function.
pub fn after_fork() {
    if let Some(word) = process::forked() {
        word.store(1, Ordering::Relaxed);
    }
}

/// Finds out the namespaces and the shift of the clock of this process, and stores them.
fn keep() {
    process::begin_epoch();
    home::here();
    clock::monotonic_coarse();
}

/// Returns the namespaces of this process, if its parent has noted them and the process still has them.
pub(super) fn here() -> Option<u64> {
    inherited().map(|(here, _)| here)
}

/// Returns the shift of this process's clock, if its parent has noted it and the process still has it.
pub(super) fn ahead() -> Option<u64> {
    inherited().map(|(_, ahead)| ahead)
}

fn inherited() -> Option<(u64, u64)> {
    let is_forked = process::forked().is_some_and(|word| word.load(Ordering::Relaxed) != 0);
    let pid = PARENT.pid.load(Ordering::Relaxed);
    if !is_forked || pid == 0 {
        return None;
    }
    let parent = rustix::process::getppid().map_or(0, |pid| pid.as_raw_nonzero().get());
    let is_same = parent as u64 == pid && are_near(distances(), &PARENT.distances);
    is_same.then(|| {
        let words = [&PARENT.here, &PARENT.ahead];
        words.map(|word| word.load(Ordering::Relaxed)).into()
    })
}

/// Returns the distances from CLOCK_MONOTONIC and from CLOCK_BOOTTIME to CLOCK_REALTIME, in nanoseconds.
fn distances() -> [i64; 2] {
    let read = |clock| {
        let now = clock_gettime(clock);
        now.tv_sec
            .wrapping_mul(1_000_000_000)
            .wrapping_add(now.tv_nsec)
    };
    let realtime = read(ClockId::Realtime);
    [ClockId::Monotonic, ClockId::Boottime].map(|clock| realtime.wrapping_sub(read(clock)))
}

/// Returns the distances as two readings in a row give them. A process notes them once: if the thread lost its processor between the readings of two
/// clocks, all later children of the process would ask /proc. If no two readings agree, returns the last reading.
fn settled_distances() -> [i64; 2] {
    const TRIES: usize = 8;
    let mut last = distances();
    for _ in 0..TRIES {
        let now = distances();
        if are_close(now, last) {
            return now;
        }
        last = now;
    }
    last
}

#[cfg(all(test, not(miri)))]
mod tests {
    use super::*;
    use std::ffi::c_int;

    /// Runs `work` in a forked child, and returns the result of `work`, at most 254; 255 if a signal has ended the child.
    fn answer_of_child(work: impl FnOnce() -> c_int) -> c_int {
        // SAFETY: the child makes system calls and reads atomics, and ends without running the parent's code.
        match unsafe { libc::fork() } {
            0 => {
                let answer = work();
                // SAFETY: ends the child.
                unsafe { libc::_exit(answer) }
            }
            child => {
                let mut status = -1;
                // SAFETY: the call waits for a child of this process, and writes to a local.
                unsafe { libc::waitpid(child, &raw mut status, 0) };
                match libc::WIFEXITED(status) {
                    true => libc::WEXITSTATUS(status),
                    false => 255,
                }
            }
        }
    }

    /// Runs `work` in a forked child, and returns the result of `work`.
    fn in_child(work: impl FnOnce() -> bool) -> bool {
        answer_of_child(|| c_int::from(!work())) == 0
    }

    /// Runs `work` as [`in_child`] does, and calls the fork handlers as libc's fork does.
    fn in_known_child(work: impl FnOnce() -> bool) -> bool {
        before_fork();
        in_child(|| {
            after_fork();
            work()
        })
    }

    /// Repeats `test` until it is true. A test fails if the thread loses its processor between the readings of two clocks, because the child then
    /// asks /proc.
    fn at_last(test: impl Fn() -> bool) -> bool {
        (0..100).any(|_| test())
    }

    /// Computes the process's namespaces and the shift of its clock from /proc.
    fn know() -> Option<(u64, u64)> {
        keep();
        home::known().zip(clock::known_ahead())
    }

    #[test]
    fn a_forked_child_has_the_namespaces_of_its_parent() {
        let is_inherited = || {
            let own = know();
            in_known_child(|| own.is_some() && inherited() == own && know() == own)
        };
        assert!(at_last(|| in_child(is_inherited)));
    }

    #[test]
    fn a_child_passes_on_what_it_has_from_its_parent() {
        let is_passed_on = || {
            let own = know();
            in_known_child(|| in_known_child(|| own.is_some() && inherited() == own))
        };
        assert!(at_last(|| in_child(is_passed_on)));
    }

    #[test]
    fn a_child_of_a_process_that_knows_nothing_takes_over_nothing() {
        // A fork wipes the namespaces that the test process has computed.
        let knows_nothing = || home::known().is_none();
        let inherits_nothing = || knows_nothing() && in_known_child(|| inherited().is_none());
        assert!(in_child(inherits_nothing));
    }

    #[test]
    fn the_child_of_a_bare_fork_takes_over_nothing_and_neither_does_its_child() {
        let inherits_nothing = || {
            let (own, nothing) = (know(), || inherited().is_none());
            // The process in the middle has the note of its parent. Its own child must not have that note.
            own.is_some() && in_known_child(|| in_child(|| nothing() && in_known_child(nothing)))
        };
        assert!(in_child(inherits_nothing));
    }

    #[test]
    fn a_child_whose_parent_is_dead_takes_over_nothing() {
        const AGAIN: u8 = 2;
        let answer = || {
            let mut pipe = [0; 2];
            // SAFETY: the array has room for two descriptors.
            unsafe { libc::pipe(pipe.as_mut_ptr()) };
            let orphan = || {
                let parent = rustix::process::getppid();
                before_fork();
                // SAFETY: as in `in_child`; the parent ends at once.
                if unsafe { libc::fork() } != 0 {
                    return true;
                }
                after_fork();
                let middle = PARENT.pid.load(Ordering::Relaxed);
                let of = || rustix::process::getppid().map(|pid| pid.as_raw_nonzero().get());
                while of().map(|pid| pid as u64) == Some(middle) {
                    std::thread::yield_now();
                }
                let answer = match middle {
                    // The thread lost its processor between the readings of two clocks.
                    0 => AGAIN,
                    _ => u8::from(parent.is_some() && inherited().is_none()),
                };
                // SAFETY: the first call writes one byte to a pipe, and the second call ends the process.
                unsafe {
                    libc::write(pipe[1], (&raw const answer).cast(), 1);
                    libc::_exit(0)
                }
            };
            let mut answer = 0_u8;
            let is_answered = know().is_some()
                && in_known_child(orphan)
                // SAFETY: there is room for one byte.
                && unsafe { libc::read(pipe[0], (&raw mut answer).cast(), 1) } == 1;
            is_answered.then_some(answer)
        };
        // Each answer comes from a separate process, because a process notes the distances of its clocks once.
        let mut answers = (0..100).map(|_| answer_of_child(|| answer().map_or(0, c_int::from)));
        assert_eq!(answers.find(|&answer| answer != AGAIN.into()), Some(1));
    }

    /// Enters new namespaces in a forked child, with a user namespace unless root runs the test, and forks again.
    fn beyond(namespaces: c_int, prepare: impl Fn() -> bool, work: impl FnOnce() -> bool) -> bool {
        let can = |flags| in_child(|| enter(flags) && prepare());
        let flags = match can(namespaces) {
            true => namespaces,
            false => namespaces | libc::CLONE_NEWUSER,
        };
        if !can(flags) {
            eprintln!("the test needs namespaces, which this system refuses: it is left out");
            return true;
        }
        in_child(|| know().is_some() && enter(flags) && prepare() && in_known_child(work))
    }

    fn enter(flags: c_int) -> bool {
        // SAFETY: the call changes the namespaces of a forked child.
        unsafe { libc::unshare(flags) == 0 }
    }

    #[test]
    fn a_child_in_another_pid_namespace_takes_over_nothing() {
        let is_another = || rustix::process::getppid().is_none() && inherited().is_none();
        assert!(beyond(libc::CLONE_NEWPID, || true, is_another));
    }

    #[test]
    fn a_child_in_a_time_namespace_with_another_clock_takes_over_nothing() {
        const CLONE_NEWTIME: c_int = 0x80;
        for shift in ["monotonic 7 0\n", "boottime 0 10000000\n"] {
            let shifted = || std::fs::write("/proc/self/timens_offsets", shift).is_ok();
            assert!(beyond(CLONE_NEWTIME, shifted, || inherited().is_none()));
        }
        let inherits = || inherited().is_some();
        assert!(at_last(|| beyond(CLONE_NEWTIME, || true, inherits)));
    }

    #[test]
    fn a_process_that_has_moved_to_another_time_namespace_passes_nothing_on() {
        const CLONE_NEWTIME: c_int = 0x80;
        let moved = || {
            let namespace = std::fs::File::open("/proc/self/ns/time_for_children");
            std::fs::write("/proc/self/timens_offsets", "monotonic 7 0\n").is_ok()
                // SAFETY: the call moves a forked child to another namespace, by a descriptor that is open.
                && namespace.is_ok_and(|file| unsafe {
                    libc::setns(std::os::fd::AsRawFd::as_raw_fd(&file), CLONE_NEWTIME) == 0
                })
        };
        assert!(beyond(CLONE_NEWTIME, moved, || inherited().is_none()));
    }
}
