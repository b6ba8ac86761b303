//! Selects the namespace that a program uses.

use std::ffi::OsString;
use std::mem::MaybeUninit;
use std::path::{Path, PathBuf};

use rustix::fs;
use rustix::io::Errno;

use super::contents::{self, Otherwise};
use super::directory::Directory;
use super::error::NamespaceError;
use super::{Namespace, NamespaceKind, caller, claim, ipc, queues, trust, user};

/// The link to the directory of the calling process, which contains links from descriptors to their files.
const PROC: &str = "/proc/self";
const VARIABLE: &str = "UMSG_DIR";
const BASE: &str = "/dev/shm";
const SHARED: &str = "umsg";
/// The mode bits that the directory for queues takes over from the namespace's directory.
const COMMON_MODE: u32 = 0o1777;

impl Namespace {
    /// Returns the namespace of this program: `$UMSG_DIR` if it is set and not empty; or else `/dev/shm/umsg` if root has created it; or else
    /// `/dev/shm/umsg-UID` of the effective user, created at its first use. If another user has taken that name, all programs of the user
    /// use `/dev/shm/umsg-UID-` and 16 random hexadecimal digits.
    ///
    /// A set-user-ID or set-group-ID program ignores `$UMSG_DIR`.
    ///
    /// If `$UMSG_IPC_NAMESPACE` names another IPC namespace of the kernel than the caller's, the call returns the namespace of the caller's IPC
    /// namespace, which is inside the selected directory. `umsg run` and the drop-in set that variable.
    ///
    /// ```no_run
    /// // The directory that `UMSG_DIR` names, the system's, or one of this user's own.
    /// let namespace = umsg::Namespace::resolve()?;
    /// println!("queues are in {}", namespace.path().display());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// The errors of [`Namespace::at`]. If `$UMSG_DIR` or root's directory can't be used, the call fails, and does not take another
    /// directory: otherwise two programs would use different namespaces. All programs ignore a `/dev/shm/umsg` of another user than root;
    /// see [`Namespace::passed_over`].
    pub fn resolve() -> Result<Namespace, NamespaceError> {
        resolve_in(Path::new(BASE), chosen(), caller(), Otherwise::Make)
    }

    /// Returns the namespace as [`resolve`](Self::resolve) does, for a program that only reads. A selected or shared directory that is not a
    /// namespace stays unchanged.
    ///
    /// ```no_run
    /// for queue in umsg::posix::list(&umsg::Namespace::resolve_existing()?)? {
    ///     println!("{}", queue.name.display());
    /// }
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// `NotANamespace` (`ENOENT`), and the errors of [`Namespace::at`].
    pub fn resolve_existing() -> Result<Namespace, NamespaceError> {
        resolve_in(Path::new(BASE), chosen(), caller(), Otherwise::Refuse)
    }

    /// Returns the namespace in an existing directory. If the caller owns the directory or is root, the call creates missing parts: the
    /// subdirectories for queues, and in a private namespace the record. A namespace is created only in an empty directory.
    ///
    /// ```
    /// let dir = tempfile::tempdir_in("/dev/shm")?;
    /// let namespace = umsg::Namespace::at(dir.path())?;
    /// assert!(umsg::posix::list(&namespace)?.is_empty());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// - `Missing` (`ENOENT`), `NotADirectory` (`ENOTDIR`), `Symlink` (`ELOOP`), `NotAccessible` (`EACCES`);
    /// - `HoldsOtherFiles` (`ENOTEMPTY`): the directory is not a namespace, and has other files;
    /// - `Stranger`, `OwnerNotMapped`, `Tamperable` (`EACCES`): other users could tamper with the queues;
    /// - `RecordDamaged` (`EBADMSG`), `RecordVersion` (`EOPNOTSUPP`);
    /// - `NoQueuesDirectory` (`ENOENT`): the caller has no permission to complete the namespace.
    ///
    /// # If the process dies
    /// The next caller with the permission completes the namespace.
    pub fn at(dir: impl AsRef<Path>) -> Result<Namespace, NamespaceError> {
        at(dir.as_ref(), Otherwise::Make)
    }

    /// Returns the namespace as [`at`](Self::at) does, for a program that only reads. A directory that is not a namespace stays unchanged.
    ///
    /// ```
    /// # let dir = tempfile::tempdir_in("/dev/shm")?;
    /// # let namespace = umsg::Namespace::at(dir.path())?;
    /// assert!(umsg::Namespace::existing(dir.path()).is_ok());
    /// assert!(umsg::Namespace::existing("/none/at/all").is_err());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// `NotANamespace` (`ENOENT`), and the errors of [`Namespace::at`].
    pub fn existing(dir: impl AsRef<Path>) -> Result<Namespace, NamespaceError> {
        at(dir.as_ref(), Otherwise::Refuse)
    }
}

/// The name of a namespace that is ignored because another user has taken the name.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct PassedOver {
    /// The ignored path: `/dev/shm/umsg` or `/dev/shm/umsg-UID`.
    pub path: PathBuf,
    /// The user id of the path's owner.
    pub owner: u32,
}

impl Namespace {
    /// Returns the names that [`Namespace::resolve`] ignores because untrusted users have taken them: `/dev/shm/umsg` of another user than
    /// root, `/dev/shm/umsg-UID` of another user than the caller.
    ///
    /// ```no_run
    /// for namespace in umsg::Namespace::passed_over() {
    ///     println!("not used: {namespace:?}");
    /// }
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn passed_over() -> Vec<PassedOver> {
        passed_over_in(Path::new(BASE), caller())
    }
}

fn passed_over_in(base: &Path, caller: u32) -> Vec<PassedOver> {
    let shared = base.join(SHARED);
    let shared = fs::lstat(&shared).ok().map(|stat| (shared, stat.st_uid));
    let taken = [
        shared.filter(|(_, owner)| *owner != 0),
        user::taken(base, caller),
    ];
    let taken = taken.into_iter().flatten();
    taken
        .map(|(path, owner)| PassedOver { path, owner })
        .collect()
}

fn at(dir: &Path, otherwise: Otherwise) -> Result<Namespace, NamespaceError> {
    let path = absolute(dir)?;
    let kind = kind_of(&path, caller());
    admitted(path, kind, caller(), otherwise)
}

/// Returns the value of `UMSG_DIR`, unless the program must ignore the variable.
fn chosen() -> Option<OsString> {
    match is_setuid() {
        true => None,
        false => std::env::var_os(VARIABLE),
    }
}

/// Returns whether the program was started with more privileges than its caller has, as secure_getenv(3) does: the user who starts a set-user-ID
/// program must not choose its directory. A daemon that changes its user later keeps its namespace.
fn is_setuid() -> bool {
    umsg_shm::sys::process::was_started_with_privilege()
}

/// Returns the namespace in a directory inside that of another namespace.
pub(super) fn inside(base: &Namespace, path: PathBuf) -> Result<Namespace, NamespaceError> {
    admitted(path, base.kind, caller(), Otherwise::Make)
}

fn resolve_in(
    base: &Path,
    chosen: Option<OsString>,
    caller: u32,
    otherwise: Otherwise,
) -> Result<Namespace, NamespaceError> {
    let base = base_in(base, chosen, caller, otherwise)?;
    if is_setuid() {
        return Ok(base);
    }
    ipc::followed(base, inside)
}

/// Returns the namespace that the process would use if it ignored its IPC namespace: that of `chosen` (the value of `$UMSG_DIR`), the shared one, or
/// the user's own.
fn base_in(
    base: &Path,
    chosen: Option<OsString>,
    caller: u32,
    otherwise: Otherwise,
) -> Result<Namespace, NamespaceError> {
    if let Some(dir) = chosen.filter(|dir| !dir.is_empty()) {
        return admitted(
            absolute(Path::new(&dir))?,
            NamespaceKind::Environment,
            caller,
            otherwise,
        );
    }
    let shared = base.join(SHARED);
    match is_shared(&shared)? {
        true => admitted(shared, NamespaceKind::Shared, caller, otherwise),
        false => user_in(base, caller),
    }
}

/// Returns whether the path is the namespace of all users. Every process can create the name in /dev/shm, but only root can create a file
/// that root owns. All processes ignore such a directory of another user, even that user's own processes.
fn is_shared(path: &Path) -> Result<bool, NamespaceError> {
    match fs::lstat(path) {
        Ok(stat) => Ok(stat.st_uid == 0),
        Err(Errno::NOENT) => Ok(false),
        Err(e) => Err(NamespaceError::looking("stat", path, e)),
    }
}

/// Returns the user's own directory, and creates it if necessary.
fn user_in(base: &Path, user: u32) -> Result<Namespace, NamespaceError> {
    let path = user::directory(base, user)?;
    admitted(path, NamespaceKind::User, user, Otherwise::Make)
}

/// Returns the namespace in a directory if the caller has access, and creates missing parts if the caller has the permission.
fn admitted(
    path: PathBuf,
    kind: NamespaceKind,
    caller: u32,
    otherwise: Otherwise,
) -> Result<Namespace, NamespaceError> {
    check_proc()?;
    let mut directory = Directory::open(&path)?;
    trust::check(&directory, caller)?;
    contents::check(&directory, otherwise)?;
    claim::admit(&mut directory, caller)?;
    let mode = directory.mode() & COMMON_MODE;
    let is_planted = match queues::make_fit(&directory, queues::POSIX, mode, caller) {
        // Another user has created an entry in the place of the directory. Rings and System V queues still work; the use of a POSIX queue fails.
        Err(error) if queues::is_planted(&directory, queues::POSIX, &error) => true,
        fit => fit.map(|_| false)?,
    };
    // A namespace of an earlier version has no directory for System V queues. A caller without the permission to create this directory uses the other
    // kinds of queues. An error is reported to the process that uses the directory.
    let _ = queues::make_fit(&directory, queues::SYSV, mode, caller);
    let _ = queues::make_fit(&directory, queues::RINGS, mode, caller);
    let _ = queues::make_fit(&directory, queues::POLL_FIFOS, mode, caller);
    let _ = queues::make_fit(&directory, queues::OWN, mode, caller);
    crate::log::begin();
    Ok(Namespace {
        owner: directory.owner(),
        identity: directory.identity(),
        is_own: directory.owner() == caller && !directory.open_to_others() && !is_planted,
        path: path.into(),
        kind,
    })
}

/// Checks that /proc exists. Without this check, later calls would blame the permissions for a missing /proc. Other errors are reported by the call
/// that needs /proc.
///
/// The link is read and not followed: a read of the directory of a new process makes the kernel create inodes, which takes several microseconds. If
/// /proc belongs to a PID namespace that does not contain the process, the link has no target.
fn check_proc() -> Result<(), NamespaceError> {
    let mut number = [MaybeUninit::uninit(); 16];
    match fs::readlinkat_raw(fs::CWD, PROC, &mut number) {
        Err(Errno::NOENT) => Err(NamespaceError::NoProc),
        _ => Ok(()),
    }
}

/// Makes a path absolute, because the program may change its working directory later.
fn absolute(dir: &Path) -> Result<PathBuf, NamespaceError> {
    std::path::absolute(dir).map_err(|e| {
        let errno = Errno::from_io_error(&e).unwrap_or(Errno::NOENT);
        NamespaceError::looking("getcwd", dir, errno)
    })
}

fn kind_of(path: &Path, caller: u32) -> NamespaceKind {
    if path == Path::new(BASE).join(SHARED) && is_shared(path) == Ok(true) {
        return NamespaceKind::Shared;
    }
    let in_base = path.parent() == Some(Path::new(BASE));
    match user::owner_in(path) {
        Some(owner) if in_base && owner == caller => NamespaceKind::User,
        _ => NamespaceKind::Environment,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::namespace::testing::{
        OTHER_STRANGER, STRANGER, TestDir, as_user, chmod, chown, mode, owner,
    };

    fn resolve(dir: &TestDir, chosen: Option<&Path>) -> Result<Namespace, NamespaceError> {
        resolve_in(
            dir.path(),
            chosen.map(Into::into),
            caller(),
            Otherwise::Make,
        )
    }

    fn found(dir: &TestDir, chosen: Option<&Path>) -> (PathBuf, NamespaceKind) {
        let namespace = resolve(dir, chosen).unwrap();
        (namespace.path().to_owned(), namespace.kind())
    }

    #[test]
    fn the_variable_comes_first_then_the_shared_directory_then_the_users_own() {
        umsg_testkit::needs_root!();
        let (dir, chosen) = (TestDir::new(), TestDir::new());
        let own = dir.path().join(format!("umsg-{}", caller()));
        assert_eq!(found(&dir, None), (own.clone(), NamespaceKind::User));
        assert_eq!(mode(&own), 0o700);
        let shared = dir.path().join("umsg");
        Namespace::setup_shared(&shared).unwrap();
        assert_eq!(found(&dir, None), (shared.clone(), NamespaceKind::Shared));
        assert_eq!(
            found(&dir, Some(Path::new(""))),
            (shared, NamespaceKind::Shared)
        );
        let expected = (chosen.path().to_owned(), NamespaceKind::Environment);
        assert_eq!(found(&dir, Some(chosen.path())), expected);
    }

    #[test]
    fn a_user_without_a_directory_gets_one_of_his_own() {
        umsg_testkit::needs_root!();
        let dir = TestDir::shared();
        as_user(STRANGER, || {
            let namespace = resolve(&dir, None).unwrap();
            assert_eq!(namespace.path(), dir.path().join("umsg-65534"));
            assert_eq!(
                (mode(namespace.path()), owner(namespace.path())),
                (0o700, STRANGER)
            );
            assert_eq!(resolve(&dir, None).unwrap(), namespace);
        });
    }

    #[test]
    fn threads_that_make_the_users_directory_at_once_all_get_it() {
        let dir = TestDir::new();
        std::thread::scope(|scope| {
            let threads: Vec<_> = (0..8)
                .map(|_| scope.spawn(|| resolve(&dir, None).unwrap()))
                .collect();
            for thread in threads {
                assert_eq!(
                    thread.join().unwrap().path(),
                    dir.path().join(format!("umsg-{}", caller()))
                );
            }
        });
        assert_eq!(dir.names().len(), 1);
    }

    #[test]
    fn a_users_directory_made_under_a_strange_umask_is_opened_up() {
        umsg_testkit::needs_root!();
        let dir = TestDir::shared();
        let own = dir.path().join("umsg-65534");
        std::fs::create_dir(&own).unwrap();
        chown(&own, STRANGER);
        chmod(&own, 0);
        as_user(STRANGER, || drop(resolve(&dir, None).unwrap()));
        assert_eq!(mode(&own), 0o700);
    }

    #[test]
    fn what_a_stranger_put_in_place_of_the_shared_namespace_is_passed_over_by_everybody() {
        umsg_testkit::needs_root!();
        type Make = fn(&Path);
        let makes: [Make; 4] = [
            |path| std::fs::create_dir(path).unwrap(),
            |path| std::fs::write(path, b"").unwrap(),
            |path| std::os::unix::fs::symlink("/nonexistent", path).unwrap(),
            |path| std::fs::create_dir_all(path.join("mq")).unwrap(),
        ];
        for make in makes {
            let dir = TestDir::shared();
            let shared = dir.path().join("umsg");
            as_user(STRANGER, || make(&shared));
            let own = |user: u32| dir.path().join(format!("umsg-{user}"));
            assert_eq!(found(&dir, None), (own(0), NamespaceKind::User));
            for user in [STRANGER, OTHER_STRANGER] {
                as_user(user, || {
                    assert_eq!(found(&dir, None), (own(user), NamespaceKind::User));
                });
            }
            let passed_over = passed_over_in(dir.path(), 0);
            let expected = PassedOver {
                path: shared,
                owner: STRANGER,
            };
            assert_eq!(passed_over, [expected]);
        }
    }

    #[test]
    fn a_users_directory_that_a_stranger_made_first_is_gone_round() {
        umsg_testkit::needs_root!();
        let dir = TestDir::shared();
        let taken = dir.path().join(format!("umsg-{}", caller()));
        std::fs::create_dir(&taken).unwrap();
        chown(&taken, STRANGER);
        let (own, kind) = found(&dir, None);
        assert_eq!(kind, NamespaceKind::User);
        assert_eq!((owner(&own), mode(&own)), (0, 0o700));
        assert_eq!(found(&dir, None), (own, kind));
        assert_eq!(passed_over_in(dir.path(), 0)[0].path, taken);
    }

    #[test]
    fn an_untrustworthy_shared_directory_is_an_error_and_not_passed_over() {
        let dir = TestDir::new();
        let shared = dir.path().join("umsg");
        std::fs::create_dir(&shared).unwrap();
        chmod(&shared, 0o777);
        let error = resolve(&dir, None).unwrap_err();
        assert!(matches!(error, NamespaceError::Tamperable { .. }));
        assert!(
            error
                .to_string()
                .contains(&format!("chmod +t {}", shared.display()))
        );
        assert_eq!(dir.names(), ["umsg"]);
    }

    #[test]
    fn what_is_no_directory_is_refused_specifically() {
        let dir = TestDir::new();
        let path = |name: &str| dir.path().join(name);
        std::fs::write(path("file"), b"").unwrap();
        std::os::unix::fs::symlink(dir.path(), path("link")).unwrap();
        let error = |name| Namespace::at(path(name)).unwrap_err();
        assert_eq!(
            error("file"),
            NamespaceError::NotADirectory { path: path("file") }
        );
        assert_eq!(
            error("link"),
            NamespaceError::Symlink { path: path("link") }
        );
        assert_eq!(
            error("missing"),
            NamespaceError::Missing {
                path: path("missing")
            }
        );
        assert_eq!(
            error("file/x"),
            NamespaceError::NotADirectory {
                path: path("file/x")
            }
        );
    }

    #[test]
    fn a_directory_that_may_not_be_searched_or_written_is_refused_specifically() {
        umsg_testkit::needs_root!();
        let dir = TestDir::new();
        let path = dir.path().to_owned();
        as_user(STRANGER, || {
            let error = Namespace::at(&path).unwrap_err();
            assert_eq!(error, NamespaceError::NotAccessible { path: path.clone() });
        });
        chmod(&path, 0o755);
        as_user(STRANGER, || {
            let error = user_in(&path, STRANGER).unwrap_err();
            assert!(matches!(error, NamespaceError::NotWritable { path: p, .. } if p == path));
        });
    }

    #[test]
    fn a_relative_directory_is_made_absolute() {
        let dir = TestDir::new();
        let relative = Path::new("/dev/shm/.").join(dir.path().file_name().unwrap());
        assert_eq!(Namespace::at(relative).unwrap().path(), dir.path());
        assert!(absolute(Path::new("x")).unwrap().is_absolute());
    }

    #[test]
    fn the_well_known_directories_are_recognised() {
        let kind = |path: &str| kind_of(Path::new(path), 1000);
        assert_eq!(kind("/dev/shm/umsg-1000"), NamespaceKind::User);
        for other in [
            "/dev/shm/umsg-1001",
            "/dev/shm/umsg-01000",
            "/tmp/umsg-1000",
            "/tmp/umsg",
        ] {
            assert_eq!(kind(other), NamespaceKind::Environment, "{other}");
        }
    }
}
