//! What must be as it was once nobody works any more: processes, descriptors, files.

use std::path::Path;

/// What there was at first.
pub struct Leaks {
    descriptors: usize,
}

impl Leaks {
    /// Before anybody works. From now on this process is the parent of all orphans among its descendants.
    pub fn watch() -> Leaks {
        // SAFETY: a setting of this process.
        unsafe { libc::prctl(libc::PR_SET_CHILD_SUBREAPER, 1) };
        Leaks {
            descriptors: descriptors(),
        }
    }

    /// When all have ended and everything was closed and removed; `empty` are the directories in which nothing may be left.
    pub fn expect_none(self, empty: &[&Path], what: &str) {
        let mut status = 0;
        // SAFETY: the status is a local.
        let left = unsafe { libc::waitpid(-1, &raw mut status, libc::WNOHANG) };
        assert_eq!(left, -1, "{what}: a process is left (or 0: it lives)");
        assert_eq!(
            descriptors(),
            self.descriptors,
            "{what}: descriptors are left"
        );
        for directory in empty {
            let Ok(entries) = std::fs::read_dir(directory) else {
                continue;
            };
            let names: Vec<_> = entries.map(|entry| entry.unwrap().file_name()).collect();
            assert!(names.is_empty(), "{what}: left in {directory:?}: {names:?}");
        }
    }
}

fn descriptors() -> usize {
    std::fs::read_dir("/proc/self/fd").unwrap().count()
}
