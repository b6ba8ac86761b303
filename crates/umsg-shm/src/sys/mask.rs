//! The calling thread's signal mask.

use crate::kernel;
use std::cell::Cell;

/// All signals except two kinds: those that an instruction raises, which can't wait, and the two signals of libc. setuid(2) waits until every thread
/// has taken the second signal of libc.
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

/// Masks all signals of the thread until this value is dropped.
pub struct Masked {
    before: u64,
}

thread_local! {
    /// The number of [`Masked`] values that the thread has.
    static DEPTH: Cell<u32> = const { Cell::new(0) };
}

impl Masked {
    pub fn all() -> Masked {
        // If the thread has another `Masked`, its mask is already set.
        let before = match DEPTH.get() {
            0 => set(ALL),
            _ => ALL,
        };
        DEPTH.set(DEPTH.get() + 1);
        Masked { before }
    }

    /// Returns the mask that the drop restores.
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

/// Returns the number of [`Masked`] values that the thread has.
pub(crate) fn depth() -> u32 {
    DEPTH.get()
}

/// Runs `work` with the given mask, which the thread had before its first [`Masked`].
pub(crate) fn lifted_to<T>(mask: u64, work: impl FnOnce() -> T) -> T {
    let _lifted = Lifted {
        depth: DEPTH.replace(0),
        masked: set(mask),
    };
    work()
}

/// The state that the end of [`lifted_to`] restores.
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

/// Unmasks all signals of the thread.
pub fn clear() {
    set(0);
}

/// Sets the thread's mask, and returns the previous mask. In a handler, the change ends with the handler: the kernel then restores the mask of the
/// interrupted context.
pub fn set(mask: u64) -> u64 {
    let mut before = 0_u64;
    // SAFETY: the call gets the addresses of two masks of the kernel's size.
    unsafe { change(&raw const mask, &raw mut before) };
    before
}

/// Returns the thread's mask. In a handler, the mask contains the signal that is handled, unless the handler was installed with SA_NODEFER.
pub(crate) fn current() -> u64 {
    let mut mask = 0_u64;
    // SAFETY: the call gets the address of one mask of the kernel's size. Without a new mask, the call sets nothing.
    unsafe { change(std::ptr::null(), &raw mut mask) };
    mask
}

/// # Safety
/// Each pointer points to a mask, or is null.
unsafe fn change(to: *const u64, before: *mut u64) {
    let (to, before) = (to.expose_provenance(), before.expose_provenance());
    let (how, size) = (libc::SIG_SETMASK as usize, size_of::<u64>());
    let arguments = [how, to, before, size, 0, 0];
    // SAFETY: the caller promises two masks, which have the stated size. The call can't fail.
    let _ = unsafe { kernel::call(libc::SYS_rt_sigprocmask, arguments) };
}

/// Runs `work` with no signal masked.
pub fn unmasked<T>(work: impl FnOnce() -> T) -> T {
    lifted_to(0, work)
}
