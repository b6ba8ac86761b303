//! The program's action for each signal. `signals` has replaced these actions in the kernel.
//!
//! The remembered action and the kernel's action must belong together, even if several threads install handlers at the same time. A thread changes
//! both in a [`Turn`], and a handler waits on entry for the end of a turn ([`settled`]).

use std::ffi::c_int;
use std::sync::atomic::{AtomicI32, AtomicU32, AtomicU64, AtomicUsize, Ordering, fence};

use umsg_shm::sys::mask;

use crate::process;

pub(crate) const SIGNALS: usize = 65;

/// The program's action for a signal.
pub(crate) struct Wanted {
    /// Odd while a thread changes the other fields: see [`Turn`].
    version: AtomicU32,
    /// The address of a handler, 0 for none.
    pub(crate) handler: AtomicUsize,
    /// `sa_flags`.
    pub(crate) flags: AtomicI32,
    /// `sa_mask`, in the kernel's format.
    pub(crate) mask: AtomicU64,
}

static WANTED: [Wanted; SIGNALS] = [const {
    Wanted {
        version: AtomicU32::new(0),
        handler: AtomicUsize::new(0),
        flags: AtomicI32::new(0),
        mask: AtomicU64::new(0),
    }
}; SIGNALS];

/// All signals except the two that libc uses internally.
pub(crate) const ALL: u64 = !(0b11 << 31);

/// Returns the program's action for a signal, if the drop-in's handler may replace the signal's handlers.
pub(crate) fn wanted(signal: c_int) -> Option<&'static Wanted> {
    let index = usize::try_from(signal).ok()?;
    WANTED
        .get(index)
        .filter(|_| umsg::signals::can_wait(signal) || signal == libc::SIGBUS)
}

/// A thread's turn to change the remembered action of a signal together with the kernel's. All signals are masked meanwhile, because the thread's
/// handlers may need a turn, too.
pub(crate) struct Turn {
    wanted: &'static Wanted,
    /// The version before the turn.
    pub(crate) version: u32,
    /// The thread's mask, which the end of the turn restores. None if the caller has already masked all signals.
    mask: Option<u64>,
}

impl Turn {
    /// Waits for the caller's turn. `None` if the drop-in does not remember an action for the signal. Also `None` in a vfork child, which has its own
    /// handlers in the kernel but its parent's memory.
    pub(crate) fn take(signal: c_int) -> Option<Turn> {
        let wanted = wanted(signal).filter(|_| process::owns_table())?;
        let mask = mask::set(ALL);
        Some(Turn::wait(wanted, Some(mask)))
    }

    /// Waits for the caller's turn, in the process that owns the table. The caller has masked all signals.
    pub(crate) fn take_while_masked(signal: c_int) -> Option<Turn> {
        wanted(signal).map(|wanted| Turn::wait(wanted, None))
    }

    fn wait(wanted: &'static Wanted, mask: Option<u64>) -> Turn {
        let mut waited = 0;
        loop {
            let version = wanted.version.load(Ordering::Relaxed);
            // Acquire: makes the changes of the last turn visible. Fence: other threads see the odd version before the changes of this turn.
            if version.is_multiple_of(2)
                && wanted
                    .version
                    .compare_exchange(version, version + 1, Ordering::Acquire, Ordering::Relaxed)
                    .is_ok()
            {
                fence(Ordering::Release);
                return Turn {
                    wanted,
                    version,
                    mask,
                };
            }
            waited = pause(waited);
        }
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        // Release: a reader that sees this version also sees the changes.
        let next = self.version.wrapping_add(2);
        self.wanted.version.store(next, Ordering::Release);
        if let Some(mask) = self.mask {
            mask::set(mask);
        }
    }
}

/// Ends, in a forked child, the turns of threads that the child does not have. An incomplete change of such a thread stays incomplete.
pub(crate) fn forget_other_threads() {
    for wanted in &WANTED {
        let version = wanted.version.load(Ordering::Relaxed);
        // The version is stored only if needed: a store copies the page, which parent and child share until then.
        if !version.is_multiple_of(2) {
            wanted
                .version
                .store(version.wrapping_add(1), Ordering::Relaxed);
        }
    }
}

/// Waits a little for the end of another thread's turn. Each further wait is longer, because the other thread may have a lower priority.
fn pause(waited: u32) -> u32 {
    if waited < 100 {
        rustix::thread::sched_yield();
    } else {
        let moment = rustix::thread::Timespec {
            tv_sec: 0,
            tv_nsec: 50_000,
        };
        let _ = rustix::thread::nanosleep(&moment);
    }
    waited.saturating_add(1)
}

/// The remembered action of a signal, as it was before a replacement.
#[derive(Default)]
pub(crate) struct Before {
    pub(crate) version: u32,
    pub(crate) handler: usize,
    pub(crate) flags: c_int,
    pub(crate) mask: u64,
}

/// Returns the remembered action of a signal, for callers that hold a turn or can't take a turn.
pub(crate) fn before(signal: c_int) -> Before {
    wanted(signal).map_or(Before::default(), |wanted| Before {
        version: wanted.version.load(Ordering::Acquire),
        handler: wanted.handler.load(Ordering::Relaxed),
        flags: wanted.flags.load(Ordering::Relaxed),
        mask: wanted.mask.load(Ordering::Relaxed),
    })
}

/// Waits until no turn is in progress, and returns the remembered action of a signal. The wait is limited: a child made by a bare clone may wait for
/// the turn of a thread that exists only in its parent.
pub(crate) fn settled(signal: c_int) -> Before {
    let mut waited = 0;
    loop {
        let found = before(signal);
        // Acquire: the version is read again after the other fields.
        fence(Ordering::Acquire);
        let version = wanted(signal).map_or(0, |wanted| wanted.version.load(Ordering::Relaxed));
        if found.version == version && version.is_multiple_of(2) || waited == 1000 {
            return found;
        }
        waited = pause(waited);
    }
}

/// Undoes [`stand_in`].
pub(crate) fn restore(signal: c_int, before: &Before) {
    if let Some(wanted) = wanted(signal) {
        wanted.handler.store(before.handler, Ordering::Relaxed);
        wanted.flags.store(before.flags, Ordering::Relaxed);
        wanted.mask.store(before.mask, Ordering::Relaxed);
    }
}
