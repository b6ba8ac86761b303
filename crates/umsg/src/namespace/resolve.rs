//! Which namespace a program uses.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use rustix::fs;
use rustix::io::Errno;

use super::contents::{self, Otherwise};
use super::directory::Directory;
use super::error::NamespaceError;
use super::{Namespace, NamespaceKind, caller, claim, queues, trust, user};

/// Descriptors lead to their files from here.
const PROC: &str = "/proc/self/fd";
const VARIABLE: &str = "UMSG_DIR";
const BASE: &str = "/dev/shm";
const SHARED: &str = "umsg";
/// The bits of a mode that the directory for queues has in common with the namespace's.
const COMMON_MODE: u32 = 0o1777;

impl Namespace {
    /// The namespace of this program: `$UMSG_DIR` if it is set and not empty; else `/dev/shm/umsg` if root has made it; else
    /// `/dev/shm/umsg-UID` of the effective user, made on first use. If another user has taken that name, it is
    /// `/dev/shm/umsg-UID-` and 16 random hexadecimal digits, for all programs of the user.
    ///
    /// A program that runs with another user's or group's rights than its caller's (setuid) ignores the variable.
    ///
    /// ```no_run
    /// // The directory that `UMSG_DIR` names, the system's, or one of this user's own.
    /// let namespace = umsg::Namespace::resolve()?;
    /// println!("queues are in {}", namespace.path().display());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// Those of [`Namespace::at`]. A directory that is chosen, or root's, and can't be used is an error, never passed over:
    /// else two programs that should meet would not. What another user than root put at `/dev/shm/umsg` is passed over by all programs;
    /// see [`Namespace::passed_over`].
    pub fn resolve() -> Result<Namespace, NamespaceError> {
        resolve_in(Path::new(BASE), chosen(), caller(), Otherwise::Make)
    }

    /// As [`resolve`](Self::resolve), for a process that only looks: a directory that is chosen or shared and is no namespace stays as it is.
    ///
    /// ```no_run
    /// for queue in umsg::posix::list(&umsg::Namespace::resolve_existing()?)? {
    ///     println!("{}", queue.name.display());
    /// }
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// `NotANamespace` (`ENOENT`), and those of [`Namespace::at`].
    pub fn resolve_existing() -> Result<Namespace, NamespaceError> {
        resolve_in(Path::new(BASE), chosen(), caller(), Otherwise::Refuse)
    }

    /// The namespace in a directory that exists. If the caller owns the directory or is root, it is made fit
    /// where something is missing: the sub-directories for queues, and in a private one the record. A namespace is made
    /// of an empty directory only.
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
    /// - `HoldsOtherFiles` (`ENOTEMPTY`): it is no namespace and was not meant to be one;
    /// - `Stranger`, `Tamperable` (`EACCES`): others could tamper with the queues;
    /// - `RecordDamaged` (`EBADMSG`), `RecordVersion` (`EOPNOTSUPP`);
    /// - `NoQueuesDirectory` (`ENOENT`): the caller may not complete it.
    ///
    /// # If the process dies
    /// A namespace half made is completed by the next caller that may.
    pub fn at(dir: impl AsRef<Path>) -> Result<Namespace, NamespaceError> {
        at(dir.as_ref(), Otherwise::Make)
    }

    /// As [`at`](Self::at), for a process that only looks: a directory that is no namespace stays as it is.
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
    /// `NotANamespace` (`ENOENT`), and those of [`Namespace::at`].
    pub fn existing(dir: impl AsRef<Path>) -> Result<Namespace, NamespaceError> {
        at(dir.as_ref(), Otherwise::Refuse)
    }
}

/// A name of a namespace that another user has taken, and that is therefore passed over.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct PassedOver {
    /// What stands there: `/dev/shm/umsg` or `/dev/shm/umsg-UID`.
    pub path: PathBuf,
    /// The user id of its owner.
    pub owner: u32,
}

impl Namespace {
    /// The names that [`Namespace::resolve`] would look at, and that users that can't be trusted with them have taken: `/dev/shm/umsg` of
    /// another user than root, `/dev/shm/umsg-UID` of another user than the caller.
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

/// What the variable names, for those that may choose.
fn chosen() -> Option<OsString> {
    match is_setuid() {
        true => None,
        false => std::env::var_os(VARIABLE),
    }
}

/// As secure_getenv(3): a user that runs a setuid program must not choose its directory. How it was started counts; a daemon
/// that changes its user later stays where it is.
fn is_setuid() -> bool {
    umsg_shm::sys::process::was_started_with_privilege()
}

fn resolve_in(
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

/// Whether a namespace of all users stands there: all processes can make the name in /dev/shm, but only root a thing of root's. What
/// another user made there is passed over by all processes, its maker included.
fn is_shared(path: &Path) -> Result<bool, NamespaceError> {
    match fs::lstat(path) {
        Ok(stat) => Ok(stat.st_uid == 0),
        Err(Errno::NOENT) => Ok(false),
        Err(e) => Err(NamespaceError::looking("stat", path, e)),
    }
}

/// The user's own directory, made if need be.
fn user_in(base: &Path, user: u32) -> Result<Namespace, NamespaceError> {
    let path = user::directory(base, user)?;
    admitted(path, NamespaceKind::User, user, Otherwise::Make)
}

/// The namespace in a directory, if the caller is let in; made fit as far as the caller may.
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
    match queues::make_fit(&directory, queues::POSIX, mode, caller) {
        // A stranger has planted it. Rings and System V queues go on; POSIX queues are refused when one is used.
        Err(error) if queues::is_planted(&directory, queues::POSIX, &error) => {}
        fit => drop(fit?),
    }
    // A namespace of before System V queues has no directory for them, and a caller that may not make it uses the others:
    // what is wrong with it, if anything, is told to a process that uses it.
    let _ = queues::make_fit(&directory, queues::SYSV, mode, caller);
    let _ = queues::make_fit(&directory, queues::RINGS, mode, caller);
    let _ = queues::make_fit(&directory, queues::POLL_FIFOS, mode, caller);
    let _ = queues::make_fit(&directory, queues::OWN, mode, caller);
    Ok(Namespace {
        owner: directory.owner(),
        identity: directory.identity(),
        path: path.into(),
        kind,
    })
}

/// The first call says what is missing: later calls would blame the modes of files. Other errors are told by the call that needs the directory.
fn check_proc() -> Result<(), NamespaceError> {
    match fs::stat(PROC) {
        Err(Errno::NOENT) => Err(NamespaceError::NoProc),
        _ => Ok(()),
    }
}

/// The program may change its working directory later.
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
        OTHER_STRANGER, STRANGER, TestDir, as_user, chmod, chown, is_root, mode, owner,
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
        if !is_root() {
            return;
        }
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
        if !is_root() {
            return;
        }
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
        if !is_root() {
            return;
        }
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
        if !is_root() {
            return;
        }
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
        if !is_root() {
            return;
        }
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
        if !is_root() {
            return;
        }
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
