//! The calling thread's signal mask.

use std::cell::Cell;

/// All signals but those that an instruction raises, which can't wait, and the two that libc uses itself: setuid(2) waits until
/// every thread has had the second.
const ALL: u64 = !(0b11 << 31
    | bit(libc::SIGBUS)
    | bit(libc::SIGSEGV)
    | bit(libc::SIGILL)
    | bit(libc::SIGFPE)
    | bit(libc::SIGTRAP)
    | bit(libc::SIGSYS));

const fn bit(signal: i32) -> u64 {
    1 << (signal - 1)
}

/// Masks all signals until it is dropped.
pub struct Masked {
    before: u64,
}

thread_local! {
    /// How many [`Masked`] the thread has.
    static DEPTH: Cell<u32> = const { Cell::new(0) };
}

impl Masked {
    pub fn all() -> Masked {
        // Within another one, the mask is this one's already.
        let before = match DEPTH.get() {
            0 => set(ALL),
            _ => ALL,
        };
        DEPTH.set(DEPTH.get() + 1);
        Masked { before }
    }

    /// The mask that comes back.
    pub(crate) fn before(&self) -> u64 {
        self.before
    }
}

impl Drop for Masked {
    fn drop(&mut self) {
        DEPTH.set(DEPTH.get() - 1);
        if DEPTH.get() == 0 {
            set(self.before);
        }
    }
}

/// How many times over the thread has masked all signals.
pub(crate) fn depth() -> u32 {
    DEPTH.get()
}

/// Does something with a mask from before all [`Masked`] of the thread.
pub(crate) fn lifted_to<T>(mask: u64, work: impl FnOnce() -> T) -> T {
    let _lifted = Lifted {
        depth: DEPTH.replace(0),
        masked: set(mask),
    };
    work()
}

/// What comes back when this is dropped.
struct Lifted {
    depth: u32,
    masked: u64,
}

impl Drop for Lifted {
    fn drop(&mut self) {
        set(self.masked);
        DEPTH.set(self.depth);
    }
}

/// Masks none.
pub fn clear() {
    set(0);
}

/// Sets the mask, and tells the one before.
fn set(mask: u64) -> u64 {
    let mut before = 0_u64;
    // SAFETY: two masks of the kernel's size, which is said.
    unsafe {
        libc::syscall(
            libc::SYS_rt_sigprocmask,
            libc::SIG_SETMASK,
            &raw const mask,
            &raw mut before,
            size_of::<u64>(),
        );
    }
    before
}

/// Does something with no signal masked.
pub fn unmasked<T>(work: impl FnOnce() -> T) -> T {
    lifted_to(0, work)
}
