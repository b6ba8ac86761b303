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

    /// Of the process in which the library was used first, of this line of forks: 1 is added, 0 stands for none yet.
    #[cfg_attr(target_os = "linux", unsafe(link_section = ".data.umsg"))]
    static FIRST: AtomicU64 = AtomicU64::new(0);

    /// The epoch in which the namespaces were asked for last, and the answer.
    #[cfg_attr(target_os = "linux", unsafe(link_section = ".data.umsg"))]
    static KNOWN: [AtomicU64; 2] = [AtomicU64::new(0), AtomicU64::new(0)];

    /// The inode number of this process's PID namespace, and above 32 bits that of its time namespace. 0 if /proc does not say.
    pub(crate) fn here() -> u64 {
        let ([of, here], epoch) = (&KNOWN, process::epoch());
        // Acquire: the answer belongs to the epoch. Two threads may find it out at once, and find the same.
        if epoch == 0 || of.load(Ordering::Acquire) != epoch {
            let found = parent::here().unwrap_or_else(find);
            parent::note_learned();
            // Relaxed: whichever thread is first finds the same.
            let _ = FIRST.compare_exchange(0, found + 1, Ordering::Relaxed, Ordering::Relaxed);
            here.store(found, Ordering::Relaxed);
            of.store(epoch, Ordering::Release);
        }
        here.load(Ordering::Relaxed)
    }

    /// Returns the answer of [`here`], if this process has asked before.
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
            // A kernel without time namespaces has one time for all processes.
            pid => pid | inode("/proc/self/ns/time") << 32,
        }
    }
}
