//! Sleeping on a word of shared memory.
//!
//! `futex_waitv` is used for sleeping, because with its absolute time-out the kernel restarts it after a signal whose
//! handler was installed with SA_RESTART, as it restarts `mq_receive`; a timed FUTEX_WAIT would end with EINTR.
//! Where a sandbox refuses `futex_waitv` (EPERM, ENOSYS), FUTEX_WAIT_BITSET takes its place.

use super::clock::Deadline;
use crate::sync::AtomicU32;

/// How a sleep ended. All but `TimedOut` and `Interrupted` mean: look again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Slept {
    /// Woken, or the word had already changed, or for no reason at all.
    Awake,
    /// The deadline passed.
    TimedOut,
    /// A signal handler ran that was not installed with SA_RESTART.
    Interrupted,
}

#[cfg(not(loom))]
pub(crate) use real::{wait, wake};

#[cfg(not(loom))]
mod real {
    use super::{AtomicU32, Deadline, Slept};
    use std::sync::atomic::{AtomicBool, Ordering};

    const FUTEX_32: u32 = 2;
    const SECOND: u64 = 1_000_000_000;

    /// One entry of the array that `futex_waitv` takes (`struct futex_waitv` of linux/futex.h).
    #[repr(C)]
    struct Waitv {
        value: u64,
        address: u64,
        flags: u32,
        reserved: u32,
    }

    /// Set once the kernel or a sandbox has refused `futex_waitv`.
    static NO_WAITV: AtomicBool = AtomicBool::new(false);

    /// Sleeps while `word` holds `expected`, until woken or until `deadline`.
    pub(crate) fn wait(word: &AtomicU32, expected: u32, deadline: Deadline) -> Slept {
        let (clock, timeout) = match deadline {
            Deadline::Passed => return Slept::TimedOut,
            Deadline::Never => (libc::CLOCK_MONOTONIC, None),
            Deadline::Monotonic(at) => (libc::CLOCK_MONOTONIC, Some(timespec(at))),
            Deadline::Realtime(at) => (libc::CLOCK_REALTIME, Some(timespec(at))),
        };
        let timeout = timeout
            .as_ref()
            .map_or(std::ptr::null(), std::ptr::from_ref);
        // Relaxed: a hint that never goes back; whoever misses it asks the kernel once more.
        if !NO_WAITV.load(Ordering::Relaxed) {
            match waitv(word, expected, timeout, clock) {
                Err(libc::ENOSYS | libc::EPERM) => NO_WAITV.store(true, Ordering::Relaxed),
                other => return outcome(other),
            }
        }
        outcome(wait_bitset(word, expected, timeout, clock))
    }

    fn outcome(result: Result<(), i32>) -> Slept {
        match result {
            Err(libc::ETIMEDOUT) => Slept::TimedOut,
            Err(libc::EINTR) => Slept::Interrupted,
            _ => Slept::Awake,
        }
    }

    fn timespec(nanoseconds: u64) -> libc::timespec {
        libc::timespec {
            tv_sec: (nanoseconds / SECOND) as libc::time_t,
            tv_nsec: (nanoseconds % SECOND) as libc::c_long,
        }
    }

    fn waitv(
        word: &AtomicU32,
        expected: u32,
        timeout: *const libc::timespec,
        clock: i32,
    ) -> Result<(), i32> {
        let waiter = Waitv {
            value: u64::from(expected),
            address: word.as_ptr() as u64,
            flags: FUTEX_32,
            reserved: 0,
        };
        // SAFETY: `waiter` is one initialised entry that outlives the call; its address is a live, aligned u32;
        // `timeout` is null or points to a timespec of our caller that outlives the call.
        let result = unsafe {
            libc::syscall(
                libc::SYS_futex_waitv,
                &raw const waiter,
                1_u32,
                0_u32,
                timeout,
                clock,
            )
        };
        answer(result)
    }

    fn wait_bitset(
        word: &AtomicU32,
        expected: u32,
        timeout: *const libc::timespec,
        clock: i32,
    ) -> Result<(), i32> {
        let realtime = if clock == libc::CLOCK_REALTIME {
            libc::FUTEX_CLOCK_REALTIME
        } else {
            0
        };
        // SAFETY: the address is a live, aligned u32; `timeout` as above; the other pointer is not used by this
        // operation.
        let result = unsafe {
            libc::syscall(
                libc::SYS_futex,
                word.as_ptr(),
                libc::FUTEX_WAIT_BITSET | realtime,
                expected,
                timeout,
                std::ptr::null::<u32>(),
                libc::FUTEX_BITSET_MATCH_ANY,
            )
        };
        answer(result)
    }

    fn answer(result: libc::c_long) -> Result<(), i32> {
        if result >= 0 {
            return Ok(());
        }
        Err(crate::sys::errno())
    }

    /// Wakes up to `count` sleepers on `word`.
    pub(crate) fn wake(word: &AtomicU32, count: i32) {
        // SAFETY: FUTEX_WAKE reads nothing through the address, which is a live u32 anyway.
        let _ = unsafe { libc::syscall(libc::SYS_futex, word.as_ptr(), libc::FUTEX_WAKE, count) };
    }
}

#[cfg(loom)]
pub(crate) use crate::model::futex::{wait, wake};
