//! The directories of a namespace's queues, one for each kind: making, mending and opening them.

use std::path::Path;

use rustix::fs::{self, AtFlags, FileType, Mode};
use rustix::io::Errno;

use super::Namespace;
use super::directory::{Directory, permissions};
use super::error::{NamespaceError, is_directory};
use super::trust;
use umsg_shm::sys::random::random;

/// The sub-directory for POSIX queues: a file for each queue, named like the queue without its slash.
pub(super) const POSIX: &str = "mq";
/// The sub-directory for System V queues; see [`super::msg`].
pub(super) const SYSV: &str = "msg";
/// The sub-directory for rings: one file a ring, named like the ring without its slash.
pub(crate) const RINGS: &str = "ring";
/// The sub-directory for the doorbells of queues that are polled; see [`super::poll_fifos`].
pub(super) const POLL_FIFOS: &str = "bell";
/// The sub-directory for the private files that each user has for System V queues; see [`super::msg`].
pub(super) const OWN: &str = "own";
/// The path from a directory of queues to the namespace's directory.
pub(super) const TO_NAMESPACE: &str = "../";

/// Creates a directory with this mode and the namespace's owner, if it is missing or incomplete and the caller has the permission. Returns
/// whether the directory was created.
///
/// # If the process dies
/// A directory with a wrong owner or mode stays. The next caller with the permission completes it.
pub(super) fn make_fit(
    namespace: &Directory,
    name: &str,
    mode: u32,
    caller: u32,
) -> Result<bool, NamespaceError> {
    let may_mend = namespace.may_be_mended_by(caller);
    if is_fit(namespace, name, mode, may_mend) {
        return Ok(false);
    }
    let (mut queues, made) = open_or_make(namespace, name, may_mend)?;
    if may_mend && queues.may_be_mended_by(caller) {
        mend(&mut queues, namespace, mode, caller)?;
    }
    trust::check(&queues, namespace.owner())?;
    Ok(made)
}

/// Returns whether a directory needs no change. The function does not open the directory, because each use opens and checks it again.
fn is_fit(namespace: &Directory, name: &str, mode: u32, may_mend: bool) -> bool {
    let (at, path) = namespace.locate(name);
    fs::statat(at, &path, AtFlags::SYMLINK_NOFOLLOW).is_ok_and(|stat| {
        let needs_no_mending = || stat.st_uid == namespace.owner() && permissions(&stat) == mode;
        FileType::from_raw_mode(stat.st_mode) == FileType::Directory
            && trust::owner_of_trusted(&stat, namespace.owner()).is_some()
            && (!may_mend || needs_no_mending())
    })
}

/// Returns whether an error means that another user has put an entry in the place of a directory for queues.
pub(super) fn is_planted(namespace: &Directory, name: &str, error: &NamespaceError) -> bool {
    use NamespaceError::{NotADirectory, OwnerNotMapped, Stranger, Symlink};
    let there = match error {
        Stranger { path, .. } | OwnerNotMapped { path, .. } => path,
        NotADirectory { path } | Symlink { path } => path,
        _ => return false,
    };
    let is_strangers = |stat: fs::Stat| ![0, namespace.owner()].contains(&stat.st_uid);
    *there == namespace.path().join(name) && fs::lstat(there).is_ok_and(is_strangers)
}

/// Renames an entry that another user has put in the place of a directory for queues, to an unused name. For root.
pub(super) fn evict(namespace: &Directory, name: &str) -> Result<(), NamespaceError> {
    let (at, path) = namespace.locate(name);
    let is_strangers = |stat: &fs::Stat| ![0, namespace.owner()].contains(&stat.st_uid);
    match fs::statat(at, &path, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(stat) if is_strangers(&stat) => {}
        _ => return Ok(()),
    }
    let (to, aside) = namespace.locate(format!("planted-{name}-{:016x}", random()));
    fs::renameat(at, &path, to, &aside)
        .map_err(|e| NamespaceError::changing("rename", namespace.path(), e))
}

fn open_or_make(
    namespace: &Directory,
    name: &str,
    may_make: bool,
) -> Result<(Directory, bool), NamespaceError> {
    let path = namespace.path().join(name);
    match open(&path) {
        Err(NamespaceError::NoQueuesDirectory { .. }) if may_make => {
            let made = make(namespace, name)?;
            Ok((open(&path)?, made))
        }
        opened => Ok((opened?, false)),
    }
}

/// Makes a directory of queues. Returns false if another process was faster.
fn make(namespace: &Directory, name: &str) -> Result<bool, NamespaceError> {
    let (at, name) = namespace.locate(name);
    match fs::mkdirat(at, &name, Mode::RWXU) {
        Ok(()) => Ok(true),
        Err(Errno::EXIST) => Ok(false),
        Err(e) => Err(NamespaceError::changing("mkdir", namespace.path(), e)),
    }
}

/// Corrects the owner and the mode of a directory of queues. Leaves a directory of another user unchanged.
fn mend(
    queues: &mut Directory,
    namespace: &Directory,
    mode: u32,
    caller: u32,
) -> Result<(), NamespaceError> {
    let roots_own = caller == 0 && queues.owner() == 0;
    if roots_own && namespace.owner() != 0 {
        queues.set_owner(namespace)?;
    }
    let trusted = queues.owner() == namespace.owner();
    if trusted && queues.mode() != mode {
        queues.set_mode(mode)
    } else {
        Ok(())
    }
}

fn open(path: &Path) -> Result<Directory, NamespaceError> {
    Directory::open(path).map_err(|error| match error {
        NamespaceError::Missing { path } if path.parent().is_some_and(is_directory) => {
            NamespaceError::NoQueuesDirectory { path }
        }
        NamespaceError::Missing { path } => NamespaceError::Missing {
            path: path.parent().unwrap_or(&path).to_owned(),
        },
        error => error,
    })
}

impl Namespace {
    /// Opens the directory of the POSIX queues and checks its owner, on the descriptor.
    pub(super) fn queues(&self) -> Result<Directory, NamespaceError> {
        self.queues_of(POSIX)
    }

    /// Opens the directory of one kind of queue, and checks its owner on the descriptor.
    pub(super) fn queues_of(&self, kind: &str) -> Result<Directory, NamespaceError> {
        let queues = open(&self.path().join(kind))?;
        trust::check(&queues, self.owner())?;
        Ok(queues)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::namespace::testing::{
        OTHER_STRANGER, STRANGER, TestDir, as_user, chmod, chown, mode, owner,
    };

    fn queues(dir: &TestDir) -> std::path::PathBuf {
        dir.path().join(POSIX)
    }

    #[test]
    fn the_directories_for_queues_take_the_mode_of_the_namespace() {
        for (dir, expected) in [(TestDir::new(), 0o700), (TestDir::shared(), 0o1777)] {
            Namespace::at(dir.path()).unwrap();
            for kind in [POSIX, SYSV] {
                assert_eq!(mode(&dir.path().join(kind)), expected);
            }
        }
    }

    #[test]
    fn root_makes_a_users_directory_for_queues_and_gives_it_to_the_user() {
        umsg_testkit::needs_root!();
        let dir = TestDir::new();
        chown(dir.path(), STRANGER);
        make_fit(&Directory::open(dir.path()).unwrap(), POSIX, 0o700, 0).unwrap();
        assert_eq!(
            (owner(&queues(&dir)), mode(&queues(&dir))),
            (STRANGER, 0o700)
        );
    }

    #[test]
    fn a_directory_that_its_maker_left_half_made_is_mended() {
        let dir = TestDir::shared();
        std::fs::create_dir(queues(&dir)).unwrap();
        chmod(&queues(&dir), 0o700);
        Namespace::at(dir.path()).unwrap();
        assert_eq!(mode(&queues(&dir)), 0o1777);
    }

    #[test]
    fn what_a_stranger_puts_in_place_of_a_directory_for_queues_is_refused_for_that_kind_alone() {
        umsg_testkit::needs_root!();
        type Make = fn(&Path);
        let makes: [Make; 4] = [
            |path| std::fs::create_dir(path).unwrap(),
            |path| std::fs::write(path, b"").unwrap(),
            |path| std::os::unix::fs::symlink("/dev", path).unwrap(),
            |path| fs::mkfifoat(fs::CWD, path, Mode::RWXU).unwrap(),
        ];
        for make in makes {
            let dir = TestDir::shared();
            Namespace::setup_shared(dir.path()).unwrap();
            for kind in [POSIX, SYSV, RINGS] {
                std::fs::remove_dir(dir.path().join(kind)).unwrap();
                as_user(STRANGER, || make(&dir.path().join(kind)));
                for user in [0, STRANGER, OTHER_STRANGER] {
                    as_user(user, || {
                        let namespace = Namespace::at(dir.path()).unwrap();
                        for other in [POSIX, SYSV, RINGS] {
                            let is_refused = namespace.queues_of(other).is_err();
                            assert_eq!(is_refused, other == kind, "{kind} {other}");
                        }
                    });
                }
                Namespace::setup_shared(dir.path()).unwrap();
                assert!(dir.namespace().queues_of(kind).is_ok());
            }
        }
    }

    #[test]
    fn a_directory_that_turns_untrustworthy_later_is_refused_at_the_next_call() {
        let dir = TestDir::new();
        let namespace = dir.namespace();
        chmod(&queues(&dir), 0o777);
        let error = namespace.queue_names().unwrap_err();
        assert!(matches!(error, NamespaceError::Tamperable { .. }));
    }

    #[test]
    fn a_missing_directory_for_queues_and_a_missing_namespace_are_distinguished() {
        let dir = TestDir::new();
        let namespace = dir.namespace();
        std::fs::remove_dir(queues(&dir)).unwrap();
        let error = namespace.queue_names().unwrap_err();
        assert_eq!(
            error,
            NamespaceError::NoQueuesDirectory { path: queues(&dir) }
        );
        std::fs::remove_dir_all(dir.path()).unwrap();
        let error = namespace.queue_names().unwrap_err();
        assert_eq!(
            error,
            NamespaceError::Missing {
                path: dir.path().to_owned()
            }
        );
    }

    #[test]
    fn an_error_names_the_user_that_can_make_the_missing_directory() {
        umsg_testkit::needs_root!();
        let dir = TestDir::shared();
        as_user(STRANGER, || {
            let error = Namespace::at(dir.path()).unwrap_err();
            assert_eq!(
                error,
                NamespaceError::NoQueuesDirectory { path: queues(&dir) }
            );
            assert!(error.to_string().contains("owner or root to create it"));
        });
    }
}
