//! Names that no queue has, for the drop-in.
//!
//! An open(2) of a missing file makes an entry in the kernel's cache of names, and frees the entry again. This open takes twice as long as lstat(2)
//! of the directory. A missing name stays missing as long as the directory does not change. Each new name changes the times of the directory, and so
//! does each change of the directory's mode or owner.

use crate::namespace::{Namespace, Stamp};
use umsg_shm::sys::clock;

/// The state of the directory of POSIX queues.
#[derive(Clone, Copy, Debug)]
pub struct Directory {
    stamp: Stamp,
    /// True if each later change gives another stamp.
    is_settled: bool,
}

impl Directory {
    /// Inspects the directory. Returns None if the caller can't inspect it.
    #[doc(hidden)]
    #[must_use]
    pub fn look(namespace: &Namespace) -> Option<Directory> {
        // The clock is read before the directory, so a change after the inspection has this time or a later time.
        let now = clock::realtime_coarse();
        let stamp = namespace.queues_stamp()?;
        Some(Directory {
            stamp,
            is_settled: stamp.is_settled(now),
        })
    }

    /// Returns whether the directory has not changed between this check and `later`.
    #[doc(hidden)]
    #[must_use]
    pub fn is_unchanged_in(&self, later: &Directory) -> bool {
        self.is_settled && self.stamp == later.stamp
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::posix::OpenOptions;
    use std::os::unix::fs::PermissionsExt;
    use std::time::{Duration, Instant};

    /// Inspects the directory until it is settled.
    fn settled(namespace: &Namespace) -> Directory {
        let began = Instant::now();
        loop {
            let directory = Directory::look(namespace).unwrap();
            if directory.is_settled {
                return directory;
            }
            assert!(began.elapsed() < Duration::from_secs(60));
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    #[test]
    fn a_directory_that_may_change_within_its_time_is_never_unchanged() {
        let dir = tempfile::tempdir_in("/dev/shm").unwrap();
        let mut directory = settled(&Namespace::at(dir.path()).unwrap());
        assert!(directory.is_unchanged_in(&directory));
        directory.is_settled = false;
        assert!(!directory.is_unchanged_in(&directory));
    }

    #[test]
    fn each_name_that_is_made_and_each_change_of_the_rights_shows() {
        let dir = tempfile::tempdir_in("/dev/shm").unwrap();
        let namespace = Namespace::at(dir.path()).unwrap();
        let look = || Directory::look(&namespace).unwrap();
        let mut options = OpenOptions::new();
        options
            .read(true)
            .write(true)
            .create(true)
            .namespace(&namespace);
        let (here, aside) = (dir.path().join("mq"), dir.path().join("aside"));
        let changes: [&dyn Fn(); 4] = [
            &|| drop(options.open("/q").unwrap()),
            &|| std::fs::rename(here.join("q"), here.join("r")).unwrap(),
            &|| std::fs::set_permissions(&here, PermissionsExt::from_mode(0o500)).unwrap(),
            &|| {
                std::fs::rename(&here, &aside).unwrap();
                std::fs::create_dir(&here).unwrap();
            },
        ];
        for change in changes {
            let before = settled(&namespace);
            assert!(before.is_unchanged_in(&look()));
            change();
            assert!(!before.is_unchanged_in(&look()));
        }
        std::fs::remove_dir_all(&here).unwrap();
        assert!(Directory::look(&namespace).is_none());
    }
}
