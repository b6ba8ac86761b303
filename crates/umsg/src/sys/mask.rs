//! The calling thread's signal mask.

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
pub(crate) struct Masked {
    before: u64,
}

impl Masked {
    pub(crate) fn all() -> Masked {
        Masked { before: set(ALL) }
    }
}

impl Drop for Masked {
    fn drop(&mut self) {
        set(self.before);
    }
}

/// Masks none.
pub(crate) fn clear() {
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
pub(crate) fn unmasked<T>(work: impl FnOnce() -> T) -> T {
    let before = set(0);
    let done = work();
    set(before);
    done
}
