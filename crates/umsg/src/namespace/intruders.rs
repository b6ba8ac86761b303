//! Entries that are not queues, in the directories of queues. A program that does not use umsg has created these entries.

use std::ffi::{CStr, OsStr};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use rustix::fs::{self, AtFlags, FileType, Stat};

use super::Namespace;
use super::directory::Directory;
use super::entries::for_each_entry;
use super::error::NamespaceError;
use super::queues::{RINGS, SYSV};
use super::{msg, transient};

const OTHER: &str = "a FIFO, a socket or a device";

/// An entry of a namespace that takes the place of a queue or ring: a symbolic link, a FIFO, a directory.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Intruder {
    /// The path of the entry.
    pub path: PathBuf,
    /// The type of the entry, as in "a symbolic link".
    pub what: &'static str,
}

impl Namespace {
    /// Returns the entries that are neither queues nor rings, in the directories of queues and rings, ordered by path. umsg creates no such entries.
    /// Such an entry prevents the creation of a queue of its name. umsg never follows, opens or removes the entry. The contents of regular files are
    /// not checked: [`posix::list`](crate::posix::list) reports the files that are no queues.
    ///
    /// ```
    /// # let dir = tempfile::tempdir_in("/dev/shm")?;
    /// # let namespace = umsg::Namespace::at(dir.path())?;
    /// assert!(namespace.intruders()?.is_empty());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// Fails if the namespace can't be listed.
    pub fn intruders(&self) -> Result<Vec<Intruder>, NamespaceError> {
        let mut found = in_directory(&self.queues()?, |queues, name, stat| {
            let is_goner = || transient::is_ones(queues, OsStr::from_bytes(name.to_bytes()));
            what(stat).filter(|_| !is_goner())
        })?;
        // A namespace of an earlier version may have no directory for System V queues, or for rings.
        if let Ok(typed) = self.queues_of(SYSV) {
            found.extend(in_directory(&typed, msg::what_else)?);
        }
        if let Ok(rings) = self.queues_of(RINGS) {
            // A ring's socket, whose name begins with `.bell-`, is in the directory of rings, and is no intruder.
            let is_poll_fifo = |name: &CStr| name.to_bytes().starts_with(b".bell-");
            found.extend(in_directory(&rings, |_, name, stat| {
                what(stat).filter(|what| *what != OTHER || !is_poll_fifo(name))
            })?);
        }
        found.sort_unstable_by(|one, other| one.path.cmp(&other.path));
        Ok(found)
    }
}

fn in_directory(
    queues: &Directory,
    what: impl Fn(&Directory, &CStr, &Stat) -> Option<&'static str>,
) -> Result<Vec<Intruder>, NamespaceError> {
    let mut found = Vec::new();
    for_each_entry(queues, |entry, _| {
        let name = entry.file_name();
        let shown = OsStr::from_bytes(name.to_bytes());
        let (at, path) = queues.locate(shown);
        let stat = fs::statat(at, &path, AtFlags::SYMLINK_NOFOLLOW);
        // An entry that no longer exists is not reported.
        if let Ok(stat) = stat
            && !matches!(name.to_bytes(), b"." | b"..")
            && let Some(what) = what(queues, name, &stat)
        {
            let path = queues.path().join(shown);
            found.push(Intruder { path, what });
        }
        Ok(())
    })?;
    Ok(found)
}

/// Returns the type of a file that can't be a queue.
pub(super) fn what(stat: &Stat) -> Option<&'static str> {
    match FileType::from_raw_mode(stat.st_mode) {
        FileType::RegularFile => None,
        FileType::Directory => Some("a directory"),
        FileType::Symlink => Some("a symbolic link"),
        _ => Some(OTHER),
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::TestDir;
    use rustix::fs::{CWD, Mode, mkfifoat};
    use std::os::unix::fs::{PermissionsExt, symlink};

    #[test]
    fn what_is_no_queue_is_found_in_each_directory_and_nothing_of_ours() {
        let dir = TestDir::new();
        let namespace = dir.namespace();
        let at = |path: &str| dir.path().join(path);
        for file in ["mq/q", "ring/r", "msg/3"] {
            std::fs::write(at(file), b"").unwrap();
        }
        std::fs::create_dir(at("mq/goes")).unwrap();
        std::fs::write(at("mq/goes/queue"), b"").unwrap();
        std::fs::create_dir(at("mq/left")).unwrap();
        std::fs::set_permissions(at("mq/left"), PermissionsExt::from_mode(0o711)).unwrap();
        symlink("3", at("msg/k-00000001")).unwrap();
        assert_eq!(namespace.intruders().unwrap(), []);

        symlink("q", at("mq/link")).unwrap();
        std::fs::create_dir(at("ring/directory")).unwrap();
        mkfifoat(CWD, at("msg/4"), Mode::RWXU).unwrap();
        std::fs::create_dir(at("msg/k-00000002")).unwrap();
        symlink("/etc/passwd", at("msg/k-00000003")).unwrap();
        std::fs::write(at("msg/letter"), b"").unwrap();
        let found = namespace.intruders().unwrap();
        let found: Vec<_> = found
            .iter()
            .map(|found| (found.path.clone(), found.what))
            .collect();
        let expected = [
            ("mq/link", "a symbolic link"),
            ("msg/4", "a FIFO, a socket or a device"),
            ("msg/k-00000002", "a directory"),
            ("msg/k-00000003", "a symbolic link"),
            ("msg/letter", "a file with an invalid name"),
            ("ring/directory", "a directory"),
        ];
        assert_eq!(found, expected.map(|(path, what)| (at(path), what)));
    }
}
