//! Decides which directories may become namespaces: only empty ones. A wrong path in a variable or an option must not put `mq/`, `msg/` and
//! a record among other files, for example in /dev.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;

use rustix::fs::{self, AtFlags, Dir, FileType, Mode, OFlags};
use rustix::io::{self, Errno};

use super::directory::Directory;
use super::error::NamespaceError;
use super::{caller, dead_letters, life, queues, record, temporary};

/// The treatment of a directory that is not a namespace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Otherwise {
    /// The directory may become a namespace.
    Make,
    /// The directory is refused.
    Refuse,
}

/// Accepts a directory that is a namespace. If `otherwise` permits, also accepts a directory that may become a namespace.
///
/// # Errors
/// `NotANamespace`, `HoldsOtherFiles`.
pub(super) fn check(directory: &Directory, otherwise: Otherwise) -> Result<(), NamespaceError> {
    let path = directory.path();
    if is_namespace(directory) {
        return Ok(());
    }
    if otherwise == Otherwise::Refuse {
        let path = path.to_owned();
        return Err(NamespaceError::NotANamespace { path });
    }
    // If the process may not list the directory, or has no descriptor left, the directory is accepted.
    match other_file(directory).unwrap_or(None) {
        // Another process may have made the directory a namespace meanwhile, with a queue in it.
        Some(file) if !is_namespace(directory) => Err(NamespaceError::HoldsOtherFiles {
            path: path.to_owned(),
            file,
        }),
        _ => Ok(()),
    }
}

/// Returns whether a directory is a namespace: it has a record, or all sub-directories of a namespace. One such sub-directory proves nothing, because
/// any directory may have one. If the caller may not complete the namespace, the sub-directory of POSIX queues is enough. An entry that the caller
/// can't inspect counts as present.
fn is_namespace(directory: &Directory) -> bool {
    if is(directory, record::NAME, FileType::RegularFile) {
        return true;
    }
    match directory.may_be_mended_by(caller()) {
        true => KINDS.iter().all(|kind| is_directory(directory, kind)),
        false => is_directory(directory, queues::POSIX),
    }
}

/// The sub-directories of a namespace, in the order of their creation.
const KINDS: [&str; 5] = [
    queues::POSIX,
    queues::SYSV,
    queues::RINGS,
    queues::POLL_FIFOS,
    queues::OWN,
];

fn is_directory(directory: &Directory, name: &str) -> bool {
    is(directory, name, FileType::Directory)
}

/// Returns whether an entry of this name exists and has this type. Returns true for an entry that can't be inspected.
fn is(directory: &Directory, name: impl AsRef<OsStr>, wanted: FileType) -> bool {
    let (at, path) = directory.locate(name.as_ref());
    match fs::statat(at, &path, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(stat) => FileType::from_raw_mode(stat.st_mode) == wanted,
        Err(error) => error != Errno::NOENT,
    }
}

/// Returns the name of an entry that does not belong to a namespace. None if the directory has no such entry.
fn other_file(directory: &Directory) -> io::Result<Option<OsString>> {
    Ok(names(directory, ".")?
        .into_iter()
        .find(|name| !is_own(directory, name)))
}

/// Returns the names of the entries of the directory, or of one of its sub-directories.
fn names(directory: &Directory, at: &str) -> io::Result<Vec<OsString>> {
    let (at, here) = directory.locate(at);
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let mut names = Vec::new();
    for entry in Dir::new(fs::openat(at, &here, flags, Mode::empty())?)? {
        let entry = entry?;
        let name = OsStr::from_bytes(entry.file_name().to_bytes());
        if name != "." && name != ".." {
            names.push(name.to_owned());
        }
    }
    Ok(names)
}

/// Returns whether an entry may belong to an incomplete namespace. Another process may be creating a namespace in this directory, or may have died
/// during the creation. In both cases the sub-directories are empty.
fn is_own(directory: &Directory, name: &OsStr) -> bool {
    if let Some(kind) = KINDS.iter().find(|kind| name == **kind) {
        let is_empty = names(directory, kind).is_ok_and(|names| names.is_empty());
        return is_directory(directory, kind) && is_empty;
    }
    temporary::is_temporary(name) || dead_letters::is_label(name) || life::is_life(name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::namespace::Namespace;
    use crate::namespace::testing::TestDir;

    #[test]
    fn a_directory_with_other_files_is_left_alone() {
        let dir = TestDir::new();
        std::fs::write(dir.path().join("letter"), b"").unwrap();
        let error = Namespace::at(dir.path()).unwrap_err();
        let expected = NamespaceError::HoldsOtherFiles {
            path: dir.path().to_owned(),
            file: "letter".into(),
        };
        assert_eq!(error, expected);
        assert!(error.to_string().contains("such as \"letter\""));
        assert_eq!(dir.names(), ["letter"]);
    }

    #[test]
    fn a_directory_with_other_files_is_none_whatever_else_is_called_like_a_part_of_one() {
        type Make = fn(&std::path::Path);
        let empty: Make = |path| std::fs::create_dir(path).unwrap();
        let file: Make = |path| std::fs::write(path, b"").unwrap();
        let full: Make = |path| {
            std::fs::create_dir(path).unwrap();
            std::fs::write(path.join("main.c"), b"").unwrap();
        };
        for kind in KINDS {
            // Two cases: a file or a directory beside the entries of a namespace, and a single entry that no creator of a namespace leaves.
            for (make, is_alone) in [
                (empty, false),
                (file, false),
                (full, false),
                (file, true),
                (full, true),
            ] {
                let dir = TestDir::new();
                make(&dir.path().join(kind));
                if !is_alone {
                    std::fs::write(dir.path().join("letter"), b"").unwrap();
                }
                let before = dir.names();
                let error = Namespace::at(dir.path()).unwrap_err();
                assert!(
                    matches!(error, NamespaceError::HoldsOtherFiles { .. }),
                    "{kind}: {error}"
                );
                assert_eq!(dir.names(), before);
                let path = dir.path().to_owned();
                let error = Namespace::existing(&path).unwrap_err();
                assert_eq!(error, NamespaceError::NotANamespace { path });
            }
        }
    }

    #[test]
    fn what_a_dead_maker_left_half_made_is_completed() {
        for made in 0..=KINDS.len() {
            let dir = TestDir::new();
            for kind in &KINDS[..made] {
                std::fs::create_dir(dir.path().join(kind)).unwrap();
            }
            Namespace::at(dir.path()).unwrap();
            assert!(KINDS.iter().all(|kind| dir.path().join(kind).is_dir()));
        }
    }

    #[test]
    fn a_namespace_stays_one_whatever_comes_to_lie_beside_it() {
        for own in [queues::POSIX, record::NAME] {
            let dir = TestDir::new();
            Namespace::at(dir.path()).unwrap();
            std::fs::write(dir.path().join("letter"), b"").unwrap();
            let path = dir.path().join(own);
            match own == queues::POSIX {
                true => std::fs::remove_dir(path).unwrap(),
                false => std::fs::remove_file(path).unwrap(),
            }
            Namespace::at(dir.path()).unwrap();
        }
    }

    #[test]
    fn what_a_dead_maker_left_is_no_other_file() {
        let dir = TestDir::new();
        std::fs::write(dir.path().join(".tmp-1-2-3-4"), b"").unwrap();
        Namespace::at(dir.path()).unwrap();
    }

    #[test]
    fn a_process_that_only_looks_makes_nothing() {
        let dir = TestDir::new();
        let path = dir.path().to_owned();
        let error = Namespace::existing(&path).unwrap_err();
        assert_eq!(error, NamespaceError::NotANamespace { path });
        assert_eq!(dir.names(), [""; 0]);
        let made = dir.namespace();
        assert_eq!(Namespace::existing(dir.path()).unwrap(), made);
    }
}
