//! Deferral of signals that arrive inside a critical section.
//!
//! A handler may send to a queue whose lock its own thread holds. The handler would then wait for its own thread. A handler that uses
//! umsg therefore calls [`defer`] first. Inside a critical section, `defer` records the signal and masks all further signals in
//! the interrupted context, and the handler returns at once. When the section ends, the signal is queued again with its siginfo
//! and the mask is restored. The kernel then delivers the signal as if it had just arrived. A critical section takes well below
//! a microsecond, so the delay is not noticeable.
//!
//! A private, thread-local depth says whether a thread is inside a critical section. The lock word is not used for this, because another process
//! can forge it.
//!
//! [`defer`] has a second effect, on the interrupted call. The kernel ends a blocking call with `Interrupted` (EINTR) when a
//! handler without SA_RESTART runs while the call sleeps. A call on a System V queue ends when any handler runs. But a call also spins before it
//! sleeps, and wakes up every 100 ms to check the queue. If a handler runs while the call is awake, the kernel does not end the call. So `defer`
//! counts the handlers of each thread, and the call checks the count and falls asleep in one step.
pub use real::{Caller, Handlers, all_handlers_defer, can_wait, defer, defer_with_flags};
mod truncation;
pub use truncation::{catch_truncation, guard_mappings, mend_truncation};
mod real {
    use umsg_shm::sys::thread::{self, Interruptions};
    use umsg_shm::sys::{critical, futex};

    /// A thread whose blocking calls another thread may end. The drop-in needs this type for pthread_cancel.
    #[doc(hidden)]
    #[derive(Clone, Copy, Debug)]
    pub struct Caller(&'static Interruptions);

    impl Caller {
        /// Returns the calling thread.
        #[must_use]
        pub fn current() -> Caller {
            Caller(&thread::current().interruptions)
        }

        /// Returns the address of the thread's data, which a program can keep in an atomic word. The address is not 0.
        #[must_use]
        pub fn address(self) -> usize {
            std::ptr::from_ref(self.0).expose_provenance()
        }

        /// Restores the thread from its [`address`](Self::address).
        ///
        /// # Safety
        /// The thread is alive, or has ended and was not joined yet.
        #[must_use]
        pub unsafe fn at(address: usize) -> Caller {
            // SAFETY: `address` is the address of a field in the thread's storage. The caller promises that this storage still exists.
            Caller(unsafe { &*std::ptr::with_exposed_provenance(address) })
        }

        /// Ends the call in which the thread is blocked, or otherwise the next call that would block. The call returns `Interrupted`.
        pub fn end_call(self) {
            self.0.want().into_iter().for_each(futex::wake_own);
        }

        /// Returns the count of the handlers that have run on the calling thread so far.
        #[must_use]
        pub fn handlers(self) -> Handlers {
            Handlers(self.0.counted())
        }

        /// Returns whether another thread has asked to end the calling thread's call, and clears that request.
        #[must_use]
        pub fn take_end(self) -> bool {
            self.0.take_wanted()
        }
    }

    /// A count of the handlers that had run on a thread at some time.
    #[doc(hidden)]
    #[derive(Clone, Copy, Debug)]
    pub struct Handlers([u32; 2]);

    impl Handlers {
        /// Returns whether handlers have run on the same thread since this count, all of them with SA_RESTART.
        #[must_use]
        pub fn are_followed_by_restarts(self) -> bool {
            let ([without_restart, any], now) = (self.0, Caller::current().handlers().0);
            now[0] == without_restart && now[1] != any
        }
    }

    /// Declares that the handlers of all signals, except those that an instruction raises, call [`defer`]. The drop-in calls this function.
    #[doc(hidden)]
    pub fn all_handlers_defer() {
        critical::note_that_all_handlers_defer();
    }

    /// Returns whether a signal can be deferred. A signal can't be deferred if an instruction of the thread may have raised it.
    #[doc(hidden)]
    #[must_use]
    pub fn can_wait(signal: i32) -> bool {
        critical::can_be_put_off(signal)
    }

    /// Defers a signal that has interrupted a critical section. Returns whether the handler has to return at once; the signal is
    /// delivered again as soon as the interrupted call has left its critical section.
    ///
    /// Call `defer` first in each signal handler that uses umsg, and in each handler of a signal that may interrupt a thread that uses umsg.
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
    /// The handler must have been installed with SA_SIGINFO. Signals that an instruction raises itself (SIGSEGV, SIGBUS, SIGFPE,
    /// SIGILL, SIGTRAP, SIGSYS, SIGABRT) are never deferred. The drop-in defers signals for every handler.
    ///
    /// `defer` asks the kernel for the handler's flags (one system call). If the handler was installed without SA_RESTART, a blocking call that it
    /// interrupted ends with `Interrupted` (EINTR), whether the call slept or was about to sleep. A call on a System V queue ends with any
    /// flags. Without `defer`, or without futex_waitv(2), a handler that runs just before the call falls asleep does not end the call.
    ///
    /// # Safety
    /// `info` and `context` are the arguments that the kernel gave to the running handler.
    pub unsafe fn defer(
        signal: i32,
        info: *const libc::siginfo_t,
        context: *mut libc::ucontext_t,
    ) -> bool {
        // SAFETY: by this function's own contract.
        unsafe { enter(signal, info, context, || installed_flags(signal)) }
    }

    /// Defers a signal as [`defer`] does, for a process that knows the flags of the installed handler.
    ///
    /// # Safety
    /// The caller meets the conditions of [`defer`].
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
    /// The caller meets the conditions of [`defer`].
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

    /// Returns the flags of a signal's installed handler. The kernel keeps the flags after SA_RESETHAND has reset the handler.
    fn installed_flags(signal: i32) -> i32 {
        // SAFETY: `sigaction` consists of numbers and a pointer, for which zero is a value.
        let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
        // SAFETY: `action` is writable, and nothing is installed. sigaction(2) is async-signal-safe.
        unsafe { libc::sigaction(signal, std::ptr::null(), &raw mut action) };
        action.sa_flags
    }
}
