//! Signals that arrive inside a critical section are put off until it ends.
//!
//! A handler may send to the very queue whose lock its own thread holds. It would wait for itself. So a handler that
//! is going to use umsg asks [`defer`] first: inside a critical section the signal is remembered, every further
//! signal is masked in the interrupted context, and the handler returns at once; when the section ends, the signal is
//! queued again with its siginfo, the mask is restored, and the kernel delivers it as if it had just arrived. A
//! critical section is well below a microsecond long, so nobody notices.
//!
//! Whether a thread is inside one is known from a private, thread-local depth, never from a lock word, which a peer
//! can forge.

#[cfg(not(loom))]
pub(crate) use real::Depth;
#[cfg(not(loom))]
pub use real::defer;

#[cfg(not(loom))]
mod real {
    use crate::sys::thread;
    use std::cell::{Cell, UnsafeCell};
    use std::mem::MaybeUninit;
    use std::sync::atomic::{Ordering, compiler_fence};

    /// Where the C library keeps the signal mask of the kernel's size: 64 signals.
    const MASK_BYTES: usize = 8;

    /// How deep a thread is in critical sections, and the signal that waits for the end of them.
    pub(crate) struct Depth {
        depth: Cell<u32>,
        /// The number of the signal that was put off, 0 for none. While there is one, all others are masked.
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

        /// After a fork: the child is in no critical section.
        pub(crate) fn reset(&self) {
            self.depth.set(0);
            self.deferred.set(0);
        }

        /// Begins a critical section.
        #[inline(always)]
        pub(crate) fn enter(&self) {
            self.depth.set(self.depth.get() + 1);
            // A handler runs on this very thread: only the compiler must not move the section's work up.
            compiler_fence(Ordering::SeqCst);
        }

        /// Ends a critical section; delivers what was put off if it was the outermost.
        #[inline(always)]
        pub(crate) fn leave(&self) {
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
            // mask is restored. The mask is a local of the kernel's size.
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

        /// Remembers the signal and masks all others in the interrupted context, but for the synchronous ones.
        ///
        /// # Safety
        /// As for [`defer`].
        unsafe fn put_off(
            &self,
            signal: i32,
            info: *const libc::siginfo_t,
            context: *mut libc::ucontext_t,
        ) {
            // SAFETY: the caller hands on what the kernel gave to its handler: both point to valid objects. No other
            // reference to `self.info` exists: its one other user, `redeliver`, runs on this thread outside of
            // critical sections.
            unsafe {
                if self.deferred.get() == 0 {
                    (*self.info.get()).write(*info);
                    self.deferred.set(signal);
                } else {
                    // Several arrived at once, their frames are stacked: this one's is below the first one's, and its
                    // mask is nearer to the thread's own.
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

    /// Queues a signal to the calling thread, which blocks it or is about to.
    ///
    /// # Safety
    /// `info` points to the siginfo that the signal came with.
    unsafe fn queue_again(signal: i32, info: *const libc::siginfo_t) {
        let process = rustix::process::getpid().as_raw_nonzero().get();
        let me = rustix::thread::gettid().as_raw_nonzero().get();
        // SAFETY: a process may queue any siginfo to a thread of its own; the caller vouches for `info`.
        unsafe { libc::syscall(libc::SYS_rt_tgsigqueueinfo, process, me, signal, info) };
    }

    /// Signals that a thread's own instruction raises: they can't wait, and while they are blocked they kill.
    const SYNCHRONOUS: [i32; 7] = [
        libc::SIGSEGV,
        libc::SIGBUS,
        libc::SIGFPE,
        libc::SIGILL,
        libc::SIGTRAP,
        libc::SIGSYS,
        libc::SIGABRT,
    ];

    /// To be called first in a signal handler that uses umsg, or whose signal may interrupt a thread that does and
    /// that then uses umsg: answers whether the handler has to return at once, because the signal is delivered again
    /// as soon as the interrupted call has left its critical section.
    ///
    /// ```no_run
    /// extern "C" fn handler(signal: i32, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
    ///     // SAFETY: these are the arguments that the kernel gave to this handler.
    ///     if unsafe { umsg::signals::defer(signal, info, context.cast()) } {
    ///         return;
    ///     }
    ///     // here a queue may be used
    /// }
    /// ```
    ///
    /// The handler must have been installed with SA_SIGINFO. Signals that an instruction raises itself (SIGSEGV,
    /// SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGSYS, SIGABRT) are never put off. The drop-in does this for every handler.
    ///
    /// # Safety
    /// `info` and `context` are those that the kernel gave to the running handler.
    pub unsafe fn defer(
        signal: i32,
        info: *const libc::siginfo_t,
        context: *mut libc::ucontext_t,
    ) -> bool {
        let depth = &thread::current().critical;
        if depth.depth.get() == 0 || SYNCHRONOUS.contains(&signal) {
            return false;
        }
        // SAFETY: by this function's own contract.
        unsafe { depth.put_off(signal, info, context) };
        true
    }
}

#[cfg(loom)]
pub(crate) use crate::model::thread::Depth;
