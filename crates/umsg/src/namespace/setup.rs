//! The namespace that all users of a machine share, made by an administrator.

use std::fs::read_dir;
use std::path::{Path, PathBuf};

use rustix::fs::{self, Mode};
use rustix::io::Errno;

use super::contents::{self, Otherwise};
use super::directory::Directory;
use super::error::NamespaceError;
use super::{Namespace, caller, claim, entries, queues, trust, user};

const SHARED_MODE: u32 = 0o1777;

/// The lines for tmpfiles.d(5) that create the shared namespace at boot. `umsg setup` creates it at once.
pub const TMPFILES: &str = "\
# The message queues of umsg that all users share (tmpfiles.d(5)).
# Owned by root, and sticky: all users can create queues, and no user can remove another user's queue.
d /dev/shm/umsg      1777 root root -
d /dev/shm/umsg/mq   1777 root root -
d /dev/shm/umsg/msg  1777 root root -
d /dev/shm/umsg/ring 1777 root root -
d /dev/shm/umsg/bell 1777 root root -
d /dev/shm/umsg/own  1777 root root -
";

/// The findings and the actions of [`Namespace::setup_shared`].
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct SetupReport {
    /// The shared namespace's directory.
    pub path: PathBuf,
    /// True if the directory was missing and was created.
    pub directory_made: bool,
    /// True if the directory existed with another mode, which was set to 1777.
    pub mode_changed: bool,
    /// True if a sub-directory for queues, POSIX or System V, was missing and was created.
    pub queues_directory_made: bool,
    /// True if the record with the caller's PID namespace was written, because it was missing or came from an earlier boot.
    pub record_written: bool,
    /// Users' own namespaces that hold queues. Programs that start later no longer find these queues.
    pub out_of_sight: Vec<OutOfSight>,
}

/// A user's own namespace that programs no longer find, because the shared namespace takes precedence.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct OutOfSight {
    /// The user's directory; programs reach it with `UMSG_DIR`.
    pub path: PathBuf,
    /// The user's id.
    pub user: u32,
    /// The number of queues in the user's directory.
    pub queues: usize,
}

impl Namespace {
    /// Makes a directory the namespace of all users. The directory belongs to root, and has mode 1777, the sub-directories for queues, and a record
    /// that names the caller's PID namespace. The call can be repeated: a repeated call changes only the wrong parts. [`Namespace::resolve`] checks
    /// `/dev/shm/umsg`.
    ///
    /// Running programs keep their namespace.
    ///
    /// ```no_run
    /// // As root, when the machine starts.
    /// let report = umsg::Namespace::setup_shared("/dev/shm/umsg")?;
    /// println!("{report:?}");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// `NotPermitted` (`EPERM`) unless the caller is root; `Stranger` (`EACCES`) if a user other than root owns the directory; `HoldsOtherFiles`
    /// (`ENOTEMPTY`) if the directory is no namespace and not empty; and the errors of creating directories.
    ///
    /// # If the process dies
    /// Other users get access to the directory last. Repeat the call to complete the namespace.
    pub fn setup_shared(path: impl AsRef<Path>) -> Result<SetupReport, NamespaceError> {
        let path = path.as_ref().to_owned();
        if caller() != 0 {
            let (action, who) = ("set up", "root");
            return Err(NamespaceError::NotPermitted { path, action, who });
        }
        let directory_made = make(&path)?;
        let mut directory = Directory::open(&path)?;
        trust::check_owner(&directory, 0)?;
        contents::check(&directory, Otherwise::Make)?;
        for kind in [
            queues::POSIX,
            queues::SYSV,
            queues::RINGS,
            queues::POLL_FIFOS,
            queues::OWN,
        ] {
            queues::evict(&directory, kind)?;
        }
        let posix_made = queues::make_fit(&directory, queues::POSIX, SHARED_MODE, 0)?;
        let sysv_made = queues::make_fit(&directory, queues::SYSV, SHARED_MODE, 0)?;
        let rings_made = queues::make_fit(&directory, queues::RINGS, SHARED_MODE, 0)?;
        let poll_fifos_made = queues::make_fit(&directory, queues::POLL_FIFOS, SHARED_MODE, 0)?;
        let own_made = queues::make_fit(&directory, queues::OWN, SHARED_MODE, 0)?;
        let record_written = claim::claim(&mut directory)?;
        let mode_differs = directory.mode() != SHARED_MODE;
        if mode_differs {
            directory.set_mode(SHARED_MODE)?;
        }
        Ok(SetupReport {
            directory_made,
            mode_changed: mode_differs && !directory_made,
            queues_directory_made: posix_made
                || sysv_made
                || rings_made
                || poll_fifos_made
                || own_made,
            record_written,
            out_of_sight: path.parent().map(out_of_sight).unwrap_or_default(),
            path,
        })
    }
}

fn make(path: &Path) -> Result<bool, NamespaceError> {
    match fs::mkdir(path, Mode::RWXU) {
        Ok(()) => Ok(true),
        Err(Errno::EXIST) => Ok(false),
        Err(e) => Err(NamespaceError::changing(
            "mkdir",
            path.parent().unwrap_or(path),
            e,
        )),
    }
}

/// Returns the users' own namespaces in `base` that hold queues. Skips unreadable entries.
fn out_of_sight(base: &Path) -> Vec<OutOfSight> {
    let Ok(entries) = read_dir(base) else {
        return Vec::new();
    };
    let mut found: Vec<_> = entries
        .flatten()
        .filter_map(|e| user_namespace(e.path()))
        .collect();
    found.sort_by_key(|namespace| namespace.user);
    found
}

/// Returns the namespace in this directory, if the directory belongs to the user in its name and holds queues.
fn user_namespace(path: PathBuf) -> Option<OutOfSight> {
    let user = user::owner_in(&path)?;
    // The call uses fstatat(2), which no sandbox refuses. The standard library uses statx(2).
    let stat = fs::lstat(&path).ok()?;
    let queues = entries::count_below(&path).ok()?;
    (stat.st_uid == user && queues > 0).then_some(OutOfSight { path, user, queues })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::namespace::record;
    use crate::namespace::testing::{STRANGER, TestDir, as_user, chmod, chown, mode};

    fn shared(dir: &TestDir) -> PathBuf {
        dir.path().join("umsg")
    }

    #[test]
    fn a_shared_namespace_is_made_once_and_left_alone_afterwards() {
        umsg_testkit::needs_root!();
        let dir = TestDir::new();
        let report = Namespace::setup_shared(shared(&dir)).unwrap();
        assert!(report.directory_made && report.queues_directory_made && report.record_written);
        assert!(!report.mode_changed);
        for path in ["", "bell", "mq", "msg", "own", "ring"].map(|sub| shared(&dir).join(sub)) {
            assert_eq!(mode(&path), 0o1777);
        }
        let again = Namespace::setup_shared(shared(&dir)).unwrap();
        assert!(!again.directory_made && !again.queues_directory_made && !again.record_written);
        assert!(!again.mode_changed);
    }

    #[test]
    fn strangers_make_queues_in_a_shared_namespace() {
        umsg_testkit::needs_root!();
        let dir = TestDir::new();
        chmod(dir.path(), 0o755);
        Namespace::setup_shared(shared(&dir)).unwrap();
        as_user(STRANGER, || {
            let namespace = Namespace::at(shared(&dir)).unwrap();
            let new = crate::namespace::Unpublished::create(&namespace, 0o600).unwrap();
            new.publish(&crate::namespace::testing::name("/q"), 0o600)
                .unwrap();
            assert_eq!(namespace.queue_names().unwrap().len(), 1);
        });
    }

    #[test]
    fn a_directory_made_by_hand_is_completed() {
        umsg_testkit::needs_root!();
        let dir = TestDir::new();
        std::fs::create_dir(shared(&dir)).unwrap();
        chmod(&shared(&dir), 0o777);
        let report = Namespace::setup_shared(shared(&dir)).unwrap();
        assert!(!report.directory_made && report.mode_changed && report.queues_directory_made);
        assert!(
            record::read(&Directory::open(&shared(&dir)).unwrap())
                .unwrap()
                .is_some()
        );
        assert_eq!(mode(&shared(&dir)), 0o1777);
    }

    #[test]
    fn a_strangers_directory_is_not_taken_over() {
        umsg_testkit::needs_root!();
        let dir = TestDir::new();
        std::fs::create_dir(shared(&dir)).unwrap();
        chown(&shared(&dir), STRANGER);
        let error = Namespace::setup_shared(shared(&dir)).unwrap_err();
        assert!(matches!(
            error,
            NamespaceError::Stranger {
                owner: STRANGER,
                ..
            }
        ));
        assert!(!shared(&dir).join("mq").exists());
    }

    #[test]
    fn only_root_sets_up() {
        umsg_testkit::needs_root!();
        let dir = TestDir::shared();
        as_user(STRANGER, || {
            let error = Namespace::setup_shared(shared(&dir)).unwrap_err();
            assert!(matches!(error, NamespaceError::NotPermitted { .. }));
        });
        assert!(!shared(&dir).exists());
    }

    #[test]
    fn users_own_queues_that_fall_out_of_sight_are_reported() {
        umsg_testkit::needs_root!();
        let dir = TestDir::new();
        for (name, queues) in [
            ("umsg-65534", 2),
            ("umsg-0", 0),
            ("umsg-x", 1),
            ("umsg-7", 1),
        ] {
            let path = dir.path().join(name);
            std::fs::create_dir_all(path.join("mq")).unwrap();
            for n in 0..queues {
                std::fs::write(path.join("mq").join(n.to_string()), b"").unwrap();
            }
            chown(&path, if name == "umsg-65534" { STRANGER } else { 0 });
        }
        let report = Namespace::setup_shared(shared(&dir)).unwrap();
        let path = dir.path().join("umsg-65534");
        assert_eq!(
            report.out_of_sight,
            [OutOfSight {
                path,
                user: STRANGER,
                queues: 2
            }]
        );
    }
}
