//! The PID and time namespaces of a process, in which its thread ids and start times are valid.

#[cfg(loom)]
pub(crate) use crate::model::thread::{here, is_stray};
#[cfg(not(loom))]
pub(super) use real::known;
#[cfg(not(loom))]
pub(crate) use real::{here, is_stray};

#[cfg(not(loom))]
mod real {
    use crate::sys::{parent, process};
    use std::sync::atomic::{AtomicU64, Ordering};

    /// The value of the process in which this line of forks first used the library, plus 1. 0 before the first use.
    #[cfg_attr(target_os = "linux", unsafe(link_section = ".data.umsg"))]
    static FIRST: AtomicU64 = AtomicU64::new(0);

    /// The epoch of the last query of the namespaces, and the result.
    #[cfg_attr(target_os = "linux", unsafe(link_section = ".data.umsg"))]
    static KNOWN: [AtomicU64; 2] = [AtomicU64::new(0), AtomicU64::new(0)];

    /// The inode number of this process's PID namespace, and above 32 bits that of its time namespace. 0 if /proc does not say.
    pub(crate) fn here() -> u64 {
        let ([of, here], epoch) = (&KNOWN, process::epoch());
        // Acquire: the result belongs to the epoch. Two threads may compute it at once, with the same result.
        if epoch == 0 || of.load(Ordering::Acquire) != epoch {
            let found = parent::here().unwrap_or_else(find);
            parent::note_learned();
            // Relaxed: every thread computes the same value.
            let _ = FIRST.compare_exchange(0, found + 1, Ordering::Relaxed, Ordering::Relaxed);
            here.store(found, Ordering::Relaxed);
            of.store(epoch, Ordering::Release);
        }
        here.load(Ordering::Relaxed)
    }

    /// Returns the result of [`here`], if this process has computed it before.
    pub(in crate::sys) fn known() -> Option<u64> {
        let ([of, here], epoch) = (&KNOWN, process::epoch());
        // Acquire: as in `here`.
        let is_known = epoch != 0 && of.load(Ordering::Acquire) == epoch;
        is_known.then(|| here.load(Ordering::Relaxed))
    }

    /// Returns whether this process was forked into other namespaces than those of the process from which it inherited its mappings.
    pub(crate) fn is_stray() -> bool {
        here() + 1 != FIRST.load(Ordering::Relaxed)
    }

    fn find() -> u64 {
        if cfg!(miri) {
            return 0;
        }
        let inode = |path| rustix::fs::stat(path).map_or(0, |stat| stat.st_ino & 0xffff_ffff);
        match inode("/proc/self/ns/pid") {
            0 => 0,
            // On a kernel without time namespaces, all processes share one clock.
            pid => pid | inode("/proc/self/ns/time") << 32,
        }
    }
}
