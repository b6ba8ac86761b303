//! The critical sections of a thread, and the signals that are deferred until their end: the part of `umsg::signals` that a lock needs.

use std::cell::{Cell, UnsafeCell};
use std::mem::MaybeUninit;
use std::sync::atomic::{AtomicBool, Ordering, compiler_fence};

/// The part of the C library's signal mask that the kernel uses: 64 signals.
const MASK_BYTES: usize = 8;

/// The number of nested critical sections of a thread, and the signal that is deferred until they end.
pub struct Depth {
    depth: Cell<u32>,
    /// The number of the deferred signal, 0 for none. While a signal is deferred, all other signals are masked.
    deferred: Cell<i32>,
    info: UnsafeCell<MaybeUninit<libc::siginfo_t>>,
    mask: Cell<u64>,
}

impl Depth {
    pub(crate) const fn new() -> Depth {
        Depth {
            depth: Cell::new(0),
            deferred: Cell::new(0),
            info: UnsafeCell::new(MaybeUninit::uninit()),
            mask: Cell::new(0),
        }
    }

    /// Resets the state in a forked child, whose thread is in no critical section.
    pub(crate) fn reset(&self) {
        self.depth.set(0);
        self.deferred.set(0);
    }

    /// Returns whether the thread is in a critical section.
    pub fn is_open(&self) -> bool {
        self.depth.get() != 0
    }

    /// Begins a critical section.
    #[inline(always)]
    pub fn enter(&self) {
        self.depth.set(self.depth.get() + 1);
        // A handler runs on this thread, so a compiler fence is enough: it keeps the accesses of the critical section after the store.
        compiler_fence(Ordering::SeqCst);
    }

    /// Ends a critical section. The end of the outermost critical section delivers the deferred signal.
    #[inline(always)]
    pub fn leave(&self) {
        compiler_fence(Ordering::SeqCst);
        let depth = self.depth.get() - 1;
        self.depth.set(depth);
        compiler_fence(Ordering::SeqCst);
        if depth == 0 && self.deferred.get() != 0 {
            self.redeliver();
        }
    }

    #[cold]
    fn redeliver(&self) {
        let signal = self.deferred.replace(0);
        let mask = self.mask.get();
        // SAFETY: `info` was filled in `put_off`. The signal is blocked at this point, so it stays pending until the
        // mask is restored. The mask is a local variable with the kernel's size.
        unsafe {
            queue_again(signal, (*self.info.get()).as_ptr());
            libc::syscall(
                libc::SYS_rt_sigprocmask,
                libc::SIG_SETMASK,
                &raw const mask,
                std::ptr::null_mut::<u64>(),
                MASK_BYTES,
            );
        }
    }

    /// Defers the signal, and masks all other signals in the interrupted context, except the synchronous signals.
    ///
    /// # Safety
    /// `info` and `context` are the arguments that the kernel passed to the running handler.
    pub unsafe fn put_off(
        &self,
        signal: i32,
        info: *const libc::siginfo_t,
        context: *mut libc::ucontext_t,
    ) {
        // SAFETY: both arguments come from the kernel and point to valid objects. No other reference to `self.info` exists: its one other
        // user, `redeliver`, runs on this thread outside of critical sections.
        unsafe {
            if self.deferred.get() == 0 {
                (*self.info.get()).write(*info);
                self.deferred.set(signal);
            } else {
                // Several signals arrived at once, so the kernel has stacked the frames of their handlers. The handler with the newest frame has run
                // first. The frame of the current handler is older, so the mask in this frame is nearer to the thread's own mask.
                queue_again(signal, info);
            }
            let mask = (&raw mut (*context).uc_sigmask).cast::<u64>();
            self.mask.set(*mask);
            *mask = !SYNCHRONOUS
                .iter()
                .fold(0, |mask, signal| mask | 1 << (signal - 1));
        }
    }
}

/// Queues a signal to the calling thread, which blocks the signal or is about to block it.
///
/// # Safety
/// `info` points to the siginfo that the signal came with.
unsafe fn queue_again(signal: i32, info: *const libc::siginfo_t) {
    let process = rustix::process::getpid().as_raw_nonzero().get();
    let me = rustix::thread::gettid().as_raw_nonzero().get();
    // SAFETY: a process may queue any siginfo to its own threads, and the caller promises that `info` is valid.
    unsafe { libc::syscall(libc::SYS_rt_tgsigqueueinfo, process, me, signal, info) };
}

static ALL_DEFER: AtomicBool = AtomicBool::new(false);

/// Declares that the handlers of all signals, except those that an instruction raises ([`can_be_put_off`]), call `umsg::signals::defer`.
pub fn note_that_all_handlers_defer() {
    // Relaxed: a thread that does not see the store yet sleeps by the other system call, which is also correct (`sys/futex.rs`).
    ALL_DEFER.store(true, Ordering::Relaxed);
}

/// Returns whether the process has declared that all handlers defer: see [`note_that_all_handlers_defer`].
pub fn do_all_handlers_defer() -> bool {
    // Relaxed: as in `note_that_all_handlers_defer`.
    ALL_DEFER.load(Ordering::Relaxed)
}

/// Returns whether a signal can be deferred: no instruction of the thread can have raised it.
pub fn can_be_put_off(signal: i32) -> bool {
    !SYNCHRONOUS.contains(&signal)
}

/// The signals that an instruction of the thread raises. The thread can't continue before they are handled. The kernel kills the process if they are
/// blocked.
const SYNCHRONOUS: [i32; 7] = [
    libc::SIGSEGV,
    libc::SIGBUS,
    libc::SIGFPE,
    libc::SIGILL,
    libc::SIGTRAP,
    libc::SIGSYS,
    libc::SIGABRT,
];
