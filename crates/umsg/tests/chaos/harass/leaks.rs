//! The processes, descriptors and files that must be as before once no process works any more.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// The descriptors of the test process before the soak.
pub struct Leaks {
    descriptors: Descriptors,
}

/// Descriptors by number, with the names of their files.
type Descriptors = BTreeMap<u32, PathBuf>;

/// The library keeps its own descriptors at this number and above, if the limit of descriptors permits.
const OWN: u32 = 512;

impl Leaks {
    /// Must be called before any process works. From now on, this process is the parent of all orphans among its descendants.
    pub fn watch() -> Leaks {
        // SAFETY: the call changes only a setting of this process.
        unsafe { libc::prctl(libc::PR_SET_CHILD_SUBREAPER, 1) };
        Leaks {
            descriptors: descriptors(),
        }
    }

    /// Fails if a process, descriptor or file is left after all processes have ended and everything was closed and
    /// removed. `empty` are the directories that have to be empty.
    pub fn expect_none(self, empty: &[&Path], what: &str) {
        let mut status = 0;
        // SAFETY: the status is a local.
        let left = unsafe { libc::waitpid(-1, &raw mut status, libc::WNOHANG) };
        assert_eq!(left, -1, "{what}: a process is left (or 0: it lives)");
        let left: Vec<_> = descriptors()
            .into_iter()
            .filter(|(number, file)| self.descriptors.get(number) != Some(file))
            .filter(|(number, file)| *number < OWN || !is_kept(file))
            .collect();
        assert!(left.is_empty(), "{what}: descriptors are left: {left:?}");
        for directory in empty {
            let Ok(entries) = std::fs::read_dir(directory) else {
                continue;
            };
            let names: Vec<_> = entries.map(|entry| entry.unwrap().file_name()).collect();
            assert!(names.is_empty(), "{what}: left in {directory:?}: {names:?}");
        }
    }
}

/// Returns whether the descriptor leads to a pipe or to /dev/null. A process keeps such descriptors after it has woken pollers that wait for an edge.
fn is_kept(file: &Path) -> bool {
    file == "/dev/null" || file.as_os_str().as_encoded_bytes().starts_with(b"pipe:")
}

fn descriptors() -> Descriptors {
    let directory = std::fs::read_dir("/proc/self/fd").unwrap();
    let numbers = directory.map(|entry| entry.unwrap().file_name());
    let numbers: Vec<_> = numbers
        .map(|name| name.to_str().unwrap().parse().unwrap())
        .collect();
    // The listing's own descriptor, which is closed by now, leads to no file.
    let file = |number| std::fs::read_link(format!("/proc/self/fd/{number}"));
    numbers
        .into_iter()
        .filter_map(|number| Some((number, file(number).ok()?)))
        .collect()
}
