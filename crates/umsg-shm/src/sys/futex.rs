//! Sleeping on a word of shared memory.
//!
//! A thread sleeps by `futex_waitv`. The kernel restarts this call after a handler with SA_RESTART, as it restarts `mq_receive`, because its
//! time-out is absolute. A timed FUTEX_WAIT would end with EINTR. If a sandbox refuses `futex_waitv`, the thread sleeps by
//! FUTEX_WAIT_BITSET.
//!
//! `futex_waitv` also watches several words. A call that a signal may interrupt sleeps on its own word and on its thread's count of interruptions
//! ([`Calm`]). A handler that runs before the thread sleeps changes the count, so the kernel does not let the thread sleep. FUTEX_WAIT_BITSET watches
//! only one word. So it misses a handler that runs between the caller's last check of the count and the sleep.
//!
//! Some calls must end after any handler, with SA_RESTART or without. If all handlers change the count of interruptions, the changed count ends the
//! sleep. Otherwise such a call sleeps by FUTEX_WAIT_BITSET with a time-out, which ends with EINTR after any handler.

use super::clock::Deadline;
use super::thread::Calm;
#[cfg_attr(loom, allow(unused_imports, reason = "a model has its own"))]
use crate::sync::{AtomicU32, Futex};

/// The reason why a sleep ended. After `Awake`, the caller checks its word again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Slept {
    /// A wake-up, a changed word, or a spurious wake-up.
    Awake,
    /// The deadline passed.
    TimedOut,
    /// A signal handler without SA_RESTART ran.
    Interrupted,
}

#[cfg(not(loom))]
pub use real::{MOST_WORDS, probe, wait, wait_for_any, wait_in_calm, wake, wake_own};
#[cfg(not(loom))]
pub(crate) use real::{monotonic, touch};

#[cfg(not(loom))]
mod real {
    use super::{AtomicU32, Calm, Deadline, Futex, Slept};
    use crate::kernel;
    use crate::sys::clock;
    use crate::sys::stack::away;
    use std::sync::atomic::{AtomicBool, Ordering};

    const FUTEX_32: u32 = 2;
    /// A flag of an entry: only threads of this process sleep on the word, or wake its sleepers.
    const FUTEX_PRIVATE: u32 = 128;
    const SECOND: u64 = 1_000_000_000;

    /// An entry in the array of `futex_waitv` (`struct futex_waitv` of linux/futex.h).
    #[repr(C)]
    struct Waitv {
        value: u64,
        address: u64,
        flags: u32,
        reserved: u32,
    }

    impl Waitv {
        const NONE: Waitv = Waitv {
            value: 0,
            address: 0,
            flags: 0,
            reserved: 0,
        };

        fn new(address: *mut u32, value: u32, flags: u32) -> Waitv {
            Waitv {
                value: u64::from(value),
                address: address as u64,
                flags: FUTEX_32 | flags,
                reserved: 0,
            }
        }
    }

    /// True after the kernel or a sandbox has refused `futex_waitv`.
    static NO_WAITV: AtomicBool = AtomicBool::new(cfg!(miri));

    /// Sleeps while `word` holds `expected`, until a wake-up or until `deadline`.
    pub fn wait(word: &impl Futex, expected: u32, deadline: Deadline) -> Slept {
        let word = word.address();
        let words = [Waitv::new(word, expected, 0)];
        away(|| sleep(word, expected, deadline, &words))
    }

    /// Sleeps as [`wait`] does, unless a handler interrupts the call (`calm`). A handler that runs between the check of `calm` and the sleep ends the
    /// sleep at once: this call returns `Awake`, and the next call returns `Interrupted`.
    pub fn wait_in_calm(
        word: &AtomicU32,
        expected: u32,
        calm: Calm<'_>,
        deadline: Deadline,
    ) -> Slept {
        if calm.is_over() {
            return Slept::Interrupted;
        }
        if calm.ends_by_any() && !crate::sys::critical::do_all_handlers_defer() {
            return sleep_on_one(word, expected, deadline);
        }
        let (count, then) = calm.word();
        let words = [
            Waitv::new(word.as_ptr(), expected, 0),
            Waitv::new(count.as_ptr(), then, FUTEX_PRIVATE),
        ];
        sleep(word.as_ptr(), expected, deadline, &words)
    }

    /// The number of words on which a thread can sleep at once, FUTEX_WAITV_MAX.
    pub const MOST_WORDS: usize = 128;

    /// The longest sleep, in nanoseconds, on the first of several words if the kernel can't watch all of them.
    const POLL: u64 = 5_000_000;

    /// Sleeps while each word has the value that is given with it. An address that is no longer mapped also ends the sleep.
    pub fn wait_for_any(words: &[(*mut u32, u32)], deadline: Deadline) {
        let mut all = [const { Waitv::NONE }; MOST_WORDS];
        for (place, &(address, value)) in all.iter_mut().zip(words) {
            *place = Waitv::new(address, value, 0);
        }
        let Some(timeout) = monotonic(deadline) else {
            return;
        };
        let len = words.len().min(MOST_WORDS);
        let is_refused = NO_WAITV.load(Ordering::Relaxed)
            || waitv(&all[..len], address(&timeout)).is_err_and(is_refusal);
        if is_refused && let Some((first, value)) = words.first() {
            let timeout = match monotonic(deadline.or_slice(POLL)) {
                Some(until) if words.len() > 1 => until,
                _ => timeout,
            };
            let _ = wait_bitset(*first, *value, address(&timeout));
        }
    }

    /// Sleeps on `words`, or on the first of them (`word`) if the kernel can't watch several.
    fn sleep(word: *mut u32, expected: u32, deadline: Deadline, words: &[Waitv]) -> Slept {
        let Some(timeout) = monotonic(deadline) else {
            return Slept::TimedOut;
        };
        // Relaxed: a hint that is never cleared; a thread that misses the hint calls the kernel once more.
        if !NO_WAITV.load(Ordering::Relaxed) {
            match waitv(words, address(&timeout)) {
                Err(errno) if is_refusal(errno) => NO_WAITV.store(true, Ordering::Relaxed),
                other => return outcome(other),
            }
        }
        outcome(wait_bitset(word, expected, address(&timeout)))
    }

    /// Sleeps on one word. If there is a deadline, any handler ends the sleep.
    fn sleep_on_one(word: &AtomicU32, expected: u32, deadline: Deadline) -> Slept {
        match monotonic(deadline) {
            None => Slept::TimedOut,
            Some(timeout) => outcome(wait_bitset(word.as_ptr(), expected, address(&timeout))),
        }
    }

    /// Returns the deadline as a time of CLOCK_MONOTONIC: `Some(None)` for a call that never ends by itself, `None` if the deadline has passed.
    ///
    /// A time of CLOCK_REALTIME is converted by its current distance from now. A caller sleeps in slices, and converts the time again for each slice.
    pub(crate) fn monotonic(deadline: Deadline) -> Option<Option<libc::timespec>> {
        match deadline.or_slice(u64::MAX) {
            Deadline::Passed => None,
            Deadline::Monotonic(at) if deadline != Deadline::Never => {
                Some(Some(timespec(clock::for_kernel(at))))
            }
            _ => Some(None),
        }
    }

    fn address(timeout: &Option<libc::timespec>) -> *const libc::timespec {
        timeout
            .as_ref()
            .map_or(std::ptr::null(), std::ptr::from_ref)
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
            tv_sec: (nanoseconds / SECOND).cast_signed(),
            tv_nsec: (nanoseconds % SECOND) as libc::c_long,
        }
    }

    fn waitv(words: &[Waitv], timeout: *const libc::timespec) -> Result<(), i32> {
        // SAFETY: `words` are initialised entries that outlive the call; the kernel checks their addresses, and only reads them; `timeout` is null,
        // or points to a timespec that the caller keeps during the call.
        let result = unsafe {
            libc::syscall(
                libc::SYS_futex_waitv,
                words.as_ptr(),
                words.len() as u32,
                0_u32,
                timeout,
                libc::CLOCK_MONOTONIC,
            )
        };
        answer(result)
    }

    fn wait_bitset(
        word: *mut u32,
        expected: u32,
        timeout: *const libc::timespec,
    ) -> Result<(), i32> {
        // SAFETY: the kernel checks the address, and only reads it; `timeout` is null, or points to a timespec that the caller keeps during the call;
        // the other pointer is not used by this operation.
        let result = unsafe {
            libc::syscall(
                libc::SYS_futex,
                word,
                libc::FUTEX_WAIT_BITSET,
                expected,
                timeout,
                std::ptr::null::<u32>(),
                libc::FUTEX_BITSET_MATCH_ANY,
            )
        };
        answer(result)
    }

    /// Returns whether an errno of `futex_waitv` means that the call is missing or refused.
    fn is_refusal(errno: i32) -> bool {
        !matches!(
            errno,
            libc::EAGAIN | libc::ETIMEDOUT | libc::EINTR | libc::EFAULT | libc::ENOMEM
        )
    }

    fn answer(result: libc::c_long) -> Result<(), i32> {
        if result >= 0 {
            return Ok(());
        }
        Err(crate::sys::errno())
    }

    /// Returns an error if futex(2) is refused. Each process calls the kernel until one call has succeeded.
    pub fn probe() -> Result<(), rustix::io::Errno> {
        static IS_ALLOWED: AtomicBool = AtomicBool::new(false);
        // Relaxed: a hint; a thread that misses the hint calls the kernel once more.
        if IS_ALLOWED.load(Ordering::Relaxed) {
            return Ok(());
        }
        let word = std::sync::atomic::AtomicU32::new(0);
        let arguments = [word.as_ptr().addr(), libc::FUTEX_WAKE as usize, 1, 0, 0, 0];
        // SAFETY: as in `wake_own`.
        let result = unsafe { kernel::call(libc::SYS_futex, arguments) };
        result.map_err(rustix::io::Errno::from_raw_os_error)?;
        IS_ALLOWED.store(true, Ordering::Relaxed);
        Ok(())
    }

    /// Makes the kernel write to a page: it atomically adds 0 to the word at `address`. So the page is allocated, and a full file system is
    /// an error instead of a SIGBUS.
    ///
    /// # Errors
    /// ENOSPC, ENOMEM, and the errno of a sandbox.
    pub(crate) fn touch(address: *mut u32) -> Result<(), rustix::io::Errno> {
        /// FUTEX_OP(FUTEX_OP_ADD, 0, FUTEX_OP_CMP_EQ, 0) of linux/futex.h.
        const ADD_NOTHING: u32 = 1 << 28;
        let own = std::sync::atomic::AtomicU32::new(0);
        let operation = libc::FUTEX_WAKE_OP | libc::FUTEX_PRIVATE_FLAG;
        // SAFETY: the kernel checks both addresses, and adds 0 to the second word, which changes nothing. No thread sleeps on the first word, and
        // no thread sleeps on the second word with a process-private key.
        let result = unsafe {
            libc::syscall(
                libc::SYS_futex,
                own.as_ptr(),
                operation,
                1,
                0_usize,
                address,
                ADD_NOTHING,
            )
        };
        match answer(result) {
            // The kernel reports a write that would raise SIGBUS with this errno.
            Err(libc::EFAULT) => Err(rustix::io::Errno::NOSPC),
            other => other.map_err(rustix::io::Errno::from_raw_os_error),
        }
    }

    /// Wakes the thread that sleeps on a word that is private to this process.
    pub fn wake_own(word: &std::sync::atomic::AtomicU32) {
        let wake = libc::FUTEX_WAKE | libc::FUTEX_PRIVATE_FLAG;
        // SAFETY: FUTEX_WAKE reads nothing through the address, which is a live u32 anyway.
        let _ = unsafe { libc::syscall(libc::SYS_futex, word.as_ptr(), wake, 1) };
    }

    /// Wakes up to `count` sleepers on `word`.
    pub fn wake(word: &impl Futex, count: i32) {
        // SAFETY: FUTEX_WAKE reads nothing through the address, which is a live u32 anyway.
        let _ = unsafe { libc::syscall(libc::SYS_futex, word.address(), libc::FUTEX_WAKE, count) };
    }
}

#[cfg(loom)]
pub(crate) use crate::model::futex::{wait, wait_in_calm, wake};
