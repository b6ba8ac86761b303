//! Reports whether there are several processors, and the number of the current processor.

/// Returns whether the machine has several online processors. Each process finds out the answer once. The affinity of the calling thread does not
/// matter: a thread that is bound to one processor may wait for a thread on another processor.
#[cfg(not(loom))]
pub(crate) fn are_several() -> bool {
    use std::sync::atomic::{AtomicU8, Ordering};
    const UNKNOWN: u8 = 0;
    const ONE: u8 = 1;
    const SEVERAL: u8 = 2;
    // `KNOWN` is not a OnceLock: a signal handler may interrupt the initialisation of a OnceLock, and a fork may copy a half-initialised OnceLock.
    static KNOWN: AtomicU8 = AtomicU8::new(UNKNOWN);
    // Relaxed: every thread finds the same answer.
    match KNOWN.load(Ordering::Relaxed) {
        UNKNOWN => {
            // Usually the process may use several processors, and one system call shows this. A thread that is bound to one processor mostly learns
            // of another processor from its own processor number, or from the affinity of process 1. If neither shows another processor, the thread
            // asks libc, which reads a file of /sys.
            let several_for = |process| {
                rustix::thread::sched_getaffinity(process).is_ok_and(|cpus| cpus.count() > 1)
            };
            // SAFETY: the call only returns a number.
            let online = || unsafe { libc::sysconf(libc::_SC_NPROCESSORS_ONLN) };
            let is_told = || {
                several_for(None) || current() != 0 || several_for(Some(rustix::thread::Pid::INIT))
            };
            let several = (!cfg!(miri) && is_told()) || online() > 1;
            KNOWN.store(if several { SEVERAL } else { ONE }, Ordering::Relaxed);
            several
        }
        known => known == SEVERAL,
    }
}

/// Returns the processor on which the calling thread runs.
#[cfg(not(loom))]
#[inline]
pub fn current() -> usize {
    if cfg!(miri) {
        return 0;
    }
    // glibc reads the number without a system call, from the rseq area, if glibc has registered one.
    rustix::thread::sched_getcpu()
}

#[cfg(loom)]
pub(crate) fn are_several() -> bool {
    false
}

#[cfg(loom)]
pub fn current() -> usize {
    0
}

/// Lets other threads run on this processor before this thread continues. Source: sched_yield(2).
#[cfg(not(loom))]
pub(crate) fn give_way() {
    std::thread::yield_now();
}

#[cfg(loom)]
pub(crate) fn give_way() {
    loom::thread::yield_now();
}
