//! Which directories may become namespaces: those that are empty. A variable or an option with the wrong path must not
//! leave `mq/`, `msg/` and a record between somebody's files, nor in /dev.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;

use rustix::fs::{self, AtFlags, Dir, Mode, OFlags};
use rustix::io::{self, Errno};

use super::directory::Directory;
use super::error::NamespaceError;
use super::{bells, queues, record, temporary};

/// What a caller wants of a directory that is no namespace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Otherwise {
    /// Make it one.
    Make,
    /// Leave it alone.
    Refuse,
}

/// Lets a directory pass that is a namespace, or that may become one if that is wanted.
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
    // Who may not list it, or has no descriptor left, is not kept from it.
    match other_file(directory).unwrap_or(None) {
        Some(file) => Err(NamespaceError::HoldsOtherFiles {
            path: path.to_owned(),
            file,
        }),
        None => Ok(()),
    }
}

/// One that its maker left half made is one, and so is what can't be looked into: that is for others to judge.
fn is_namespace(directory: &Directory) -> bool {
    let is_missing = |name: &str| {
        let (at, path) = directory.locate(name);
        fs::statat(at, &path, AtFlags::SYMLINK_NOFOLLOW).err() == Some(Errno::NOENT)
    };
    [queues::POSIX, queues::SYSV, queues::RINGS, record::NAME]
        .iter()
        .any(|own| !is_missing(own))
}

/// A file that no maker of a namespace put there.
fn other_file(directory: &Directory) -> io::Result<Option<OsString>> {
    let (at, here) = directory.locate(".");
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    for entry in Dir::new(fs::openat(at, &here, flags, Mode::empty())?)? {
        let entry = entry?;
        let name = OsStr::from_bytes(entry.file_name().to_bytes());
        if !is_own(name) {
            return Ok(Some(name.to_owned()));
        }
    }
    Ok(None)
}

/// Others may be making a namespace of it at this moment.
fn is_own(name: &OsStr) -> bool {
    let own = [
        ".",
        "..",
        queues::POSIX,
        queues::SYSV,
        queues::RINGS,
        record::NAME,
    ];
    own.iter().any(|own| name == *own) || temporary::is_temporary(name) || bells::is_bell(name)
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
    fn who_only_looks_makes_nothing() {
        let dir = TestDir::new();
        let path = dir.path().to_owned();
        let error = Namespace::existing(&path).unwrap_err();
        assert_eq!(error, NamespaceError::NotANamespace { path });
        assert_eq!(dir.names(), [""; 0]);
        let made = dir.namespace();
        assert_eq!(Namespace::existing(dir.path()).unwrap(), made);
    }
}
