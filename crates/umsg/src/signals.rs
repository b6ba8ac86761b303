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
pub use real::{Caller, Handlers, all_handlers_defer, can_wait, defer, defer_with_flags};
mod truncation;
pub use truncation::{catch_truncation, guard_mappings, mend_truncation};
mod real {
    use umsg_shm::sys::thread::{self, Interruptions};
    use umsg_shm::sys::{critical, futex};

    /// A thread whose blocking calls another thread may end: for the drop-in's pthread_cancel.
    #[doc(hidden)]
    #[derive(Clone, Copy, Debug)]
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
    #[derive(Clone, Copy, Debug)]
    pub struct Handlers([u32; 2]);

    impl Handlers {
        /// Whether handlers have run since on the same thread, all of them with SA_RESTART.
        pub fn are_followed_by_restarts(self) -> bool {
            let ([without_restart, any], now) = (self.0, Caller::current().handlers().0);
            now[0] == without_restart && now[1] != any
        }
    }

    /// For the drop-in: from now on all handlers of this process that matter call [`defer`].
    #[doc(hidden)]
    pub fn all_handlers_defer() {
        critical::note_that_all_handlers_defer();
    }

    /// Whether a signal can be put off: not one that a thread's own instruction may have raised.
    #[doc(hidden)]
    pub fn can_wait(signal: i32) -> bool {
        critical::can_be_put_off(signal)
    }

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

    /// [`defer`] for a process that knows the flags that the handler was installed with.
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
