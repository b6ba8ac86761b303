//! How many processors this process may use, and which one it is on.

/// How many processors are online; read once. Not how many the calling thread may run on: a thread that is bound to
/// one may well wait for another that is bound to another.
#[cfg(not(loom))]
pub(crate) fn available() -> usize {
    use std::sync::atomic::{AtomicUsize, Ordering};
    static COUNT: AtomicUsize = AtomicUsize::new(0);
    // Relaxed: every thread would find the same number.
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

/// The processor that the calling thread is on at the moment.
#[cfg(not(loom))]
#[inline]
pub fn current() -> usize {
    if cfg!(miri) {
        return 0;
    }
    // glibc answers from the rseq area where it registered one: a load, no system call.
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
