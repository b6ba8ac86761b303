//! How many processors this process may use, and which one it is on.

/// How many processors the calling thread may run on; read once.
#[cfg(not(loom))]
pub(crate) fn available() -> usize {
    use std::sync::atomic::{AtomicUsize, Ordering};
    static COUNT: AtomicUsize = AtomicUsize::new(0);
    // Relaxed: every thread would find the same number.
    match COUNT.load(Ordering::Relaxed) {
        0 => {
            let count = rustix::thread::sched_getaffinity(None)
                .map_or(1, |set| set.count() as usize)
                .max(1);
            COUNT.store(count, Ordering::Relaxed);
            count
        }
        count => count,
    }
}

/// The processor that the calling thread is on at the moment.
#[cfg(not(loom))]
#[inline]
pub(crate) fn current() -> usize {
    // glibc answers from the rseq area where it registered one: a load, no system call.
    rustix::thread::sched_getcpu()
}

#[cfg(loom)]
pub(crate) fn available() -> usize {
    1
}

#[cfg(loom)]
pub(crate) fn current() -> usize {
    0
}
