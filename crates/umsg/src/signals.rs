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
//!
//! [`defer`] has a second effect, on the call that was interrupted. A blocking call ends with `Interrupted` (EINTR) when a
//! handler without SA_RESTART runs while it sleeps (a call on a System V queue: with any handler): that much the kernel tells it.
//! But it also spins before it sleeps, and wakes up every 100 ms to look around, and a handler that runs in these microseconds
//! would go unnoticed. So `defer` counts handlers on their thread, and the call looks at the count before it sleeps, in one step
//! with falling asleep.

#[cfg(not(loom))]
pub(crate) use real::Depth;
#[cfg(not(loom))]
pub(crate) use real::do_all_handlers_defer;

/// In a model there are no handlers.
#[cfg(loom)]
pub(crate) fn do_all_handlers_defer() -> bool {
    false
}

#[cfg(not(loom))]
pub use real::{Caller, Handlers, all_handlers_defer, can_wait, defer, defer_with_flags};
#[cfg(not(loom))]
mod truncation;
#[cfg(not(loom))]
pub use truncation::{catch_truncation, guard_mappings, mend_truncation};

#[cfg(not(loom))]
mod real {
    use crate::sys::futex;
    use crate::sys::thread::{self, Interruptions};
    use std::cell::{Cell, UnsafeCell};
    use std::mem::MaybeUninit;
    use std::sync::atomic::{AtomicBool, Ordering, compiler_fence};

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

        /// Whether the thread is in a critical section.
        pub(crate) fn is_open(&self) -> bool {
            self.depth.get() != 0
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

    /// A thread whose blocking calls another thread may end: for the drop-in's pthread_cancel.
    #[doc(hidden)]
    #[derive(Clone, Copy)]
    pub struct Caller(&'static Interruptions);

    impl Caller {
        /// The calling thread.
        pub fn current() -> Caller {
            Caller(&thread::current().interruptions)
        }

        /// As an address, to be kept in an atomic word; not 0.
        pub fn address(self) -> usize {
            std::ptr::from_ref(self.0).expose_provenance()
        }

        /// What [`address`](Self::address) gave.
        ///
        /// # Safety
        /// The thread has not ended, or has ended and was not joined.
        pub unsafe fn at(address: usize) -> Caller {
            // SAFETY: `address` is that of a field of the thread's storage, which lives as long as the caller promises.
            Caller(unsafe { &*std::ptr::with_exposed_provenance(address) })
        }

        /// Has the call in which the thread is blocked, or the next one, end with `Interrupted` where it would block.
        pub fn end_call(self) {
            self.0.want().into_iter().for_each(futex::wake_own);
        }

        /// The handlers that have run on the calling thread so far.
        pub fn handlers(self) -> Handlers {
            Handlers(self.0.counted())
        }

        /// Whether a call of the calling thread was to end; from now on it is not.
        pub fn take_end(self) -> bool {
            self.0.take_wanted()
        }
    }

    /// The handlers that had run on a thread at some time.
    #[doc(hidden)]
    #[derive(Clone, Copy)]
    pub struct Handlers([u32; 2]);

    impl Handlers {
        /// Whether handlers have run since on the same thread, all of them with SA_RESTART.
        pub fn are_followed_by_restarts(self) -> bool {
            let ([without_restart, any], now) = (self.0, Caller::current().handlers().0);
            now[0] == without_restart && now[1] != any
        }
    }

    static ALL_DEFER: AtomicBool = AtomicBool::new(false);

    /// For the drop-in: from now on all handlers of this process that matter call [`defer`].
    #[doc(hidden)]
    pub fn all_handlers_defer() {
        // Relaxed: who does not know yet sleeps in the other way, which serves as well.
        ALL_DEFER.store(true, Ordering::Relaxed);
    }

    /// Whether a handler that has not called [`defer`] is none that matters.
    pub(crate) fn do_all_handlers_defer() -> bool {
        ALL_DEFER.load(Ordering::Relaxed)
    }

    /// Whether a signal can be put off: not one that a thread's own instruction may have raised.
    #[doc(hidden)]
    pub fn can_wait(signal: i32) -> bool {
        !SYNCHRONOUS.contains(&signal)
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
    /// If the handler was installed without SA_RESTART, which `defer` asks the kernel (one system call), a blocking call
    /// that it interrupted ends with `Interrupted` (EINTR), be it asleep or about to sleep; one on a System V queue ends
    /// whatever the handler was installed with. Without `defer`, or where
    /// the kernel or a sandbox has no futex_waitv(2), a handler that runs just before the call falls asleep is missed,
    /// and the call goes on.
    ///
    /// # Safety
    /// `info` and `context` are those that the kernel gave to the running handler.
    pub unsafe fn defer(
        signal: i32,
        info: *const libc::siginfo_t,
        context: *mut libc::ucontext_t,
    ) -> bool {
        // SAFETY: by this function's own contract.
        unsafe { enter(signal, info, context, || installed_flags(signal)) }
    }

    /// [`defer`] for who knows the flags that the handler was installed with.
    ///
    /// # Safety
    /// As for [`defer`].
    #[doc(hidden)]
    pub unsafe fn defer_with_flags(
        signal: i32,
        info: *const libc::siginfo_t,
        context: *mut libc::ucontext_t,
        flags: i32,
    ) -> bool {
        // SAFETY: by this function's own contract.
        unsafe { enter(signal, info, context, || flags) }
    }

    /// # Safety
    /// As for [`defer`].
    unsafe fn enter(
        signal: i32,
        info: *const libc::siginfo_t,
        context: *mut libc::ucontext_t,
        flags: impl FnOnce() -> i32,
    ) -> bool {
        let me = thread::current();
        if me.critical.is_open() && can_wait(signal) {
            // SAFETY: by this function's own contract.
            unsafe { me.critical.put_off(signal, info, context) };
            return true;
        }
        me.interruptions.count(flags() & libc::SA_RESTART != 0);
        false
    }

    /// The flags that a signal's handler was installed with. The kernel keeps them when SA_RESETHAND has taken the handler.
    fn installed_flags(signal: i32) -> i32 {
        // SAFETY: numbers and a pointer, for which zero is a value.
        let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
        // SAFETY: `action` is writable; nothing is installed. The function may be called in a handler.
        unsafe { libc::sigaction(signal, std::ptr::null(), &raw mut action) };
        action.sa_flags
    }
}

#[cfg(loom)]
pub(crate) use crate::model::thread::Depth;
