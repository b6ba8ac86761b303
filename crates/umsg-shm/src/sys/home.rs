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
    use rustix::fs::{CWD, readlinkat_raw};
    use std::mem::MaybeUninit;
    use std::sync::atomic::{AtomicU64, Ordering};

    /// The result of [`here`] plus one, in the process that first used the library: this process, or the ancestor from which it was forked. 0 before
    /// the first use.
    #[cfg_attr(target_os = "linux", unsafe(link_section = ".data.umsg"))]
    static FIRST: AtomicU64 = AtomicU64::new(0);

    /// The epoch of the process that last computed [`here`], and the result.
    #[cfg_attr(target_os = "linux", unsafe(link_section = ".data.umsg"))]
    static KNOWN: [AtomicU64; 2] = [AtomicU64::new(0), AtomicU64::new(0)];

    /// Returns the inode number of this process's PID namespace in the lower half, and that of its time namespace in the upper half. A half is 0 if
    /// /proc does not show the number.
    pub(crate) fn here() -> u64 {
        let ([of, here], epoch) = (&KNOWN, process::epoch());
        // Acquire: the stored result belongs to the stored epoch. Two threads may compute the result at once, with the same outcome.
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

    /// Returns whether this process is in another PID or time namespace than the parent whose mappings it inherited.
    pub(crate) fn is_stray() -> bool {
        here() + 1 != FIRST.load(Ordering::Relaxed)
    }

    fn find() -> u64 {
        if cfg!(miri) {
            return 0;
        }
        match inode_of("/proc/self/ns/pid") {
            0 => 0,
            // On a kernel without time namespaces, all processes share one clock.
            pid => pid | inode_of("/proc/self/ns/time") << 32,
        }
    }

    /// Returns the lower half of the inode number of a namespace. 0 if /proc does not show it.
    fn inode_of(link: &str) -> u64 {
        let inode = told_by(link);
        let inode = inode.or_else(|| rustix::fs::stat(link).ok().map(|stat| stat.st_ino));
        inode.map_or(0, |inode| inode & 0xffff_ffff)
    }

    /// Reads the number from the text of the link, such as `pid:[4026531836]`. stat(2) would make the kernel create the inode. So the function does
    /// not use stat(2), although a sandbox may permit stat(2) and refuse readlinkat(2).
    fn told_by(link: &str) -> Option<u64> {
        let mut text = [MaybeUninit::uninit(); 32];
        let (text, _) = readlinkat_raw(CWD, link, &mut text).ok()?;
        let (_, number) = std::str::from_utf8(text).ok()?.split_once('[')?;
        number.strip_suffix(']')?.parse().ok()
    }

    #[cfg(all(test, not(miri)))]
    mod tests {
        use super::*;

        #[test]
        fn the_links_tell_the_inodes_that_stat_tells() {
            for link in ["/proc/self/ns/pid", "/proc/self/ns/time"] {
                let inode = rustix::fs::stat(link).unwrap().st_ino;
                assert_eq!(told_by(link), Some(inode), "{link}");
                assert_eq!(inode_of(link), inode & 0xffff_ffff, "{link}");
            }
            for other in ["/proc/self/ns/none", "/proc/self/exe", "/proc/self"] {
                assert_eq!(told_by(other), None, "{other}");
            }
            assert_eq!(inode_of("/proc/self/ns/none"), 0);
        }
    }
}
