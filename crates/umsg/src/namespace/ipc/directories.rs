//! The directories of IPC namespaces: their names, and when they are made and removed.

use std::ffi::{OsStr, OsString};
use std::fs::{self as files, DirBuilder};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use rustix::io::Errno;
use umsg_shm::crash::crash_point;
use umsg_shm::sys::ipc_namespace::IpcNamespace;
use umsg_shm::sys::random::random;

use super::processes::Others;
use crate::namespace::directory::Directory;
use crate::namespace::error::NamespaceError;
use crate::namespace::{Namespace, caller, home, record};

const PREFIX: &str = "ipc-";
/// The maximum number of names that are tried for the directory of a user.
const NAMES: usize = 100;
/// The beginning of the name of a directory that is being removed.
const GOING: &str = ".ipc-";

/// Returns the usual name of the directory of an IPC namespace.
fn name_of(of: IpcNamespace) -> String {
    match of.id {
        Some(id) => format!("{PREFIX}{id}"),
        None => format!("{PREFIX}i{}", of.inode),
    }
}

/// The IPC namespace that the name of a directory names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Named {
    Id(u64),
    Inode(u64),
}

impl Named {
    /// Parses the name of a directory. Returns None for a name that this module does not make.
    fn by(name: &OsStr) -> Option<Named> {
        let name = name.to_str()?.strip_prefix(PREFIX)?;
        let mut parts = name.split('-');
        let first = parts.next()?;
        let number = |digits: &str| {
            let is_usual = digits.bytes().all(|byte| byte.is_ascii_digit());
            digits.parse().ok().filter(|_| is_usual)
        };
        // The parts after the first are the user and the counter of the name, as in `ipc-141098-1000-2`.
        if parts.clone().count() > 2 || !parts.all(|part| number(part).is_some()) {
            return None;
        }
        match first.strip_prefix('i') {
            Some(inode) => number(inode).map(Named::Inode),
            None => number(first).map(Named::Id),
        }
    }

    /// Returns whether the name may be that of `namespace`. A sandbox may show the id of the namespace to one process, and hide it from another.
    fn may_be(self, namespace: IpcNamespace) -> bool {
        match self {
            Named::Id(id) => namespace.id.is_none_or(|own| own == id),
            Named::Inode(inode) => namespace.inode == inode,
        }
    }
}

/// Returns whether a directory of this name may belong to an IPC namespace.
fn belongs(name: &OsStr, to: IpcNamespace) -> bool {
    Named::by(name).is_some_and(|named| named.may_be(to))
}

/// Returns the directory of an IPC namespace inside a namespace's directory. Creates it if necessary.
pub(super) fn find_or_make(base: &Path, of: IpcNamespace) -> Result<PathBuf, NamespaceError> {
    let (usual, user) = (name_of(of), caller());
    // Root's directory is tried before the caller's, so that processes of several users in one IPC namespace use the same directory.
    let mut names = vec![
        usual.clone(),
        format!("{usual}-0"),
        format!("{usual}-{user}"),
    ];
    // Other users may have taken all names so far, and some of the following names.
    names.extend((2..=NAMES).map(|number| format!("{usual}-{user}-{number}")));
    for _ in 0..2 {
        let paths: Vec<_> = names.iter().map(|name| base.join(name)).collect();
        // All names are tried, even if no directory has the first one: the user that has taken the first name may have given it up, and other
        // processes use a later name.
        if let Some(found) = paths.iter().find(|path| is_own(path)) {
            return Ok(found.clone());
        }
        remove_dead(base, None);
        for path in paths
            .iter()
            .enumerate()
            .filter_map(|(at, path)| (at != 1).then_some(path))
        {
            match make(base, path) {
                Ok(()) => return Ok(path.clone()),
                // Another process of the same user, or of root, has made the directory meanwhile.
                Err(_) if is_own(path) => return Ok(path.clone()),
                Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {}
                Err(error) => {
                    let errno = Errno::from_io_error(&error).unwrap_or(Errno::IO);
                    return Err(NamespaceError::changing("mkdir", base, errno));
                }
            }
        }
    }
    Err(NamespaceError::changing("mkdir", base, Errno::EXIST))
}

/// Makes the directory `path`. Only the caller has access to it, until it gets the permission bits of the directory `base`.
fn make(base: &Path, path: &Path) -> std::io::Result<()> {
    let mode = files::metadata(base)?.permissions().mode() & 0o1777;
    DirBuilder::new().mode(0o700).create(path)?;
    crash_point!(IPC_DIRECTORY_MADE);
    files::set_permissions(path, PermissionsExt::from_mode(mode))
}

/// Returns whether /proc shows all processes that use the directory of an IPC namespace. /proc shows them if the caller is in the PID namespace in
/// which the directory was made, or in the initial PID namespace.
pub(super) fn is_in_sight(path: &Path) -> bool {
    /// Source: linux/proc_ns.h, PROC_PID_INIT_INO.
    const INITIAL: u64 = 0xEFFF_FFFC;
    let Ok(own) = home::pid_namespace() else {
        return false;
    };
    let recorded = || {
        let record = record::read(&Directory::open(path).ok()?).ok()??;
        Some(record.home.pid_namespace == own)
    };
    own.inode == INITIAL || recorded() == Some(true)
}

impl Namespace {
    /// Returns the number of directories of IPC namespaces that have ended.
    pub(crate) fn left_ipc(&self) -> usize {
        dead(self.path(), None).len()
    }

    /// Removes the directories of IPC namespaces that have ended. Returns their number.
    pub(crate) fn remove_left_ipc(&self) -> usize {
        remove_dead(self.path(), None)
    }
}

/// Removes the directories that [`dead`] names. Returns their number.
pub(super) fn remove_dead(base: &Path, but: Option<u32>) -> usize {
    let mut names = dead(base, but);
    if !names.is_empty() {
        // A thread may have moved to another IPC namespace during the search, so that the search missed the thread. So a second search has to confirm
        // the result.
        let again = dead(base, but);
        names.retain(|name| again.contains(name));
    }
    remove_all(base, |name| names.iter().any(|one| one == name))
}

/// Returns the names of the directories that the caller may remove: those of IPC namespaces that have ended, or whose only process is `but`.
fn dead(base: &Path, but: Option<u32>) -> Vec<OsString> {
    let mut names = entries(base);
    // Directories of other users are skipped: their owners could fill such a directory faster than the caller empties it.
    names.retain(|name| is_one(name) && is_own(&base.join(name)));
    if names.is_empty() {
        return names;
    }
    let is_found =
        |name: &OsStr, found: &[IpcNamespace]| found.iter().any(|one| belongs(name, *one));
    let others = Others::look(but, |found| names.iter().all(|name| is_found(name, found)));
    let suffice = others.suffice(base);
    names.retain(|name| {
        let is_unused = !is_found(name, &others.found);
        is_going(name) || is_unused && suffice && is_in_sight(&base.join(name))
    });
    names
}

pub(super) fn entries(base: &Path) -> Vec<OsString> {
    let entries = files::read_dir(base).into_iter().flatten().flatten();
    entries.map(|entry| entry.file_name()).collect()
}

fn is_going(name: &OsStr) -> bool {
    name.to_str().is_some_and(|name| name.starts_with(GOING))
}

/// Returns whether a directory with this name belongs to an IPC namespace, or is the remains of such a directory.
pub(super) fn is_one(name: &OsStr) -> bool {
    is_going(name) || Named::by(name).is_some()
}

/// Returns whether a directory belongs to the caller or to root.
fn is_own(path: &Path) -> bool {
    files::symlink_metadata(path).is_ok_and(|it| it.is_dir() && [0, caller()].contains(&it.uid()))
}

/// Removes directories with all their files. Each directory first gets another name, so that no process finds a half-removed one.
pub(super) fn remove_all(base: &Path, is_wanted: impl Fn(&OsStr) -> bool) -> usize {
    let mut removed = 0;
    for name in entries(base).iter().filter(|name| is_wanted(name)) {
        let path = base.join(name);
        let going = match is_going(name) {
            true => path,
            false => {
                let going = base.join(format!("{GOING}{:016x}", random()));
                if files::rename(&path, &going).is_err() {
                    continue;
                }
                going
            }
        };
        crash_point!(IPC_DIRECTORY_GOING);
        removed += usize::from(files::remove_dir_all(&going).is_ok());
    }
    removed
}

/// Removes the directories with this inode number in their names.
pub(super) fn remove_of_inode(base: &Path, inode: u64) {
    remove_all(base, |name| Named::by(name) == Some(Named::Inode(inode)));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::namespace::testing::TestDir;
    use std::collections::BTreeSet;
    use umsg_shm::sys::ipc_namespace::{self, OWN};

    #[test]
    fn the_directory_of_an_ended_namespace_is_removed_and_that_of_a_living_one_stays() {
        let dir = TestDir::new();
        let base = dir.namespace();
        let own = ipc_namespace::of(OWN).unwrap();
        let living = find_or_make(base.path(), own).unwrap();
        assert_eq!(find_or_make(base.path(), own).unwrap(), living);
        // If the kernel gives no ids, the directory's name has the inode number.
        let none = IpcNamespace {
            inode: 7,
            id: own.id.map(|_| u64::MAX),
        };
        let ended = find_or_make(base.path(), none).unwrap();
        Namespace::at(&ended).unwrap();
        files::write(ended.join("file"), b"").unwrap();
        files::create_dir(base.path().join(".ipc-0123456789abcdef")).unwrap();
        assert_eq!(base.left_ipc(), 2);
        assert_eq!(base.remove_left_ipc(), 2);
        assert!(living.exists() && !ended.exists());
        assert_eq!(base.left_ipc(), 0);
    }

    #[test]
    fn a_name_belongs_to_one_namespace() {
        for (name, expected) in [
            ("ipc-5", true),
            ("ipc-5-1000", true),
            ("ipc-55", false),
            ("ipc-i5", false),
            ("ipc-i9", true),
            ("ipc-5-1000-2", true),
            ("ipc-5-1000-2-1", false),
            ("ipc-5-", false),
            ("ipc-5-backup", false),
            ("ipc-+5", false),
            ("ipc-", false),
            ("mq", false),
        ] {
            let five = IpcNamespace {
                inode: 9,
                id: Some(5),
            };
            assert_eq!(belongs(OsStr::new(name), five), expected, "{name}");
        }
        // If the id of a namespace is unknown, each directory with an id in its name may belong to the namespace. A directory with an inode number in
        // its name belongs to the namespace only if the inode is the same.
        let nameless = IpcNamespace { inode: 9, id: None };
        assert!(belongs(OsStr::new("ipc-5"), nameless));
        assert!(!belongs(OsStr::new("ipc-i5"), nameless));
    }

    #[test]
    fn a_directory_of_another_kind_of_name_stays() {
        let dir = TestDir::new();
        let base = dir.namespace();
        let other = base.path().join("ipc-backup");
        files::create_dir(&other).unwrap();
        assert_eq!(base.left_ipc(), 0);
        assert_eq!(base.remove_left_ipc(), 0);
        assert!(other.exists());
    }

    #[test]
    fn names_that_another_user_has_taken_are_passed_over() {
        let dir = TestDir::new();
        let base = dir.namespace();
        let user = caller();
        // The symlinks take the place of another user's files: the function uses neither. The set removes the duplicate name of a test that runs as
        // root.
        let living = ipc_namespace::of(OWN).unwrap();
        let usual = name_of(living);
        let names = [
            usual.clone(),
            format!("{usual}-0"),
            format!("{usual}-{user}"),
            format!("{usual}-{user}-2"),
        ];
        for name in BTreeSet::from(names) {
            std::os::unix::fs::symlink("/", base.path().join(name)).unwrap();
        }
        let own = find_or_make(base.path(), living).unwrap();
        assert!(own.ends_with(format!("{usual}-{user}-3")), "{own:?}");
        assert_eq!(find_or_make(base.path(), living).unwrap(), own);
        files::remove_file(base.path().join(&usual)).unwrap();
        assert_eq!(find_or_make(base.path(), living).unwrap(), own, "in use");
    }
}
