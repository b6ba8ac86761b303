//! The number of processors, and the current processor.

/// Returns the number of online processors, which is read once. The affinity of the calling thread does not count: a thread that is bound to
/// one processor may wait for a thread on another one.
#[cfg(not(loom))]
pub(crate) fn available() -> usize {
    use std::sync::atomic::{AtomicUsize, Ordering};
    static COUNT: AtomicUsize = AtomicUsize::new(0);
    // Relaxed: every thread finds the same number.
    match COUNT.load(Ordering::Relaxed) {
        0 => {
            // SAFETY: asks for a number.
            let online = unsafe { libc::sysconf(libc::_SC_NPROCESSORS_ONLN) };
            let count = usize::try_from(online).unwrap_or(1).max(1);
            COUNT.store(count, Ordering::Relaxed);
            count
        }
        count => count,
    }
}

/// Returns the processor on which the calling thread runs.
#[cfg(not(loom))]
#[inline]
pub fn current() -> usize {
    if cfg!(miri) {
        return 0;
    }
    // glibc reads it from the rseq area, if it registered one, without a system call.
    rustix::thread::sched_getcpu()
}

#[cfg(loom)]
pub(crate) fn available() -> usize {
    1
}

#[cfg(loom)]
pub fn current() -> usize {
    0
}

/// Lets other threads run on this processor first. Source: sched_yield(2).
#[cfg(not(loom))]
pub(crate) fn give_way() {
    std::thread::yield_now();
}

#[cfg(loom)]
pub(crate) fn give_way() {
    loom::thread::yield_now();
}
