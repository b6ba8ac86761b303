//! Namespaces of umsg that follow the kernel's IPC namespaces: ipc_namespaces(7).
//!
//! A process that has left the IPC namespace in which its `umsg run` was started uses other queues, as with the kernel. These queues are in a
//! directory inside the namespace's directory:
//!
//! ```text
//! /dev/shm/umsg-1000          the namespace of the IPC namespace in which `umsg run` was started
//! ├── ipc-141097              the namespace of the IPC namespace 141097, with all sub-directories of a namespace
//! ├── ipc-141098-1000         user 1000's own, because another user has taken the name ipc-141098
//! ├── ipc-141098-1000-2       the same, because another user has taken this name, too
//! └── ipc-i4026532177         before Linux 6.18: the namespace of the IPC namespace with this inode number
//! ```
//!
//! `UMSG_IPC_NAMESPACE` names the IPC namespace to which `$UMSG_DIR` belongs: its inode and its number, or `share` if no process leaves the
//! directory. Without the variable, a process stays with the directory. The drop-in follows a move of
//! its process, and then sets the variable; a supervisor of `umsg run` follows those of its programs.
//!
//! | event | effect |
//! |---|---|
//! | the first use of queues in another IPC namespace | its directory is made |
//! | the last process in the IPC namespace ends, and no mount and no descriptor leads to the namespace | the process removes the directory |
//! | the last process is killed, or has used no queue there | the directory stays until a process makes another one beside it, or until a sweep (`umsg gc`) |
//!
//! A process looks in /proc for other processes of the IPC namespace; supervisors do not count. It does not remove a directory that was made in a PID
//! namespace whose processes it can't see. Only the directories of root are used by processes of several users; root removes such a directory if
//! /proc hides no process from it. Another user removes a directory if /proc hides no process of this user.
//!
//! The number of an inode may be used again. If a process has made an IPC namespace and is alone in it, the namespace is new. The process then
//! removes the directory that an earlier namespace with this number has left.

use std::ffi::OsStr;
use std::fs::{self as files, DirBuilder};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use rustix::io::Errno;
use umsg_shm::crash::crash_point;
use umsg_shm::sys::ipc_namespace::{self, IpcNamespace, OWN};
use umsg_shm::sys::random::random;

use super::directory::Directory;
use super::error::NamespaceError;
use super::{Namespace, caller, home, record, resolve};
use processes::Others;

mod processes;

pub use processes::SUPERVISOR;

/// The variable with the IPC namespace of `$UMSG_DIR`.
pub(super) const VARIABLE: &str = "UMSG_IPC_NAMESPACE";
/// The value of the variable if all processes share the directory.
const SHARE: &str = "share";
const PREFIX: &str = "ipc-";
/// The most names for the directory of a user.
const NAMES: usize = 100;
/// The beginning of the name of a directory that is being removed.
const GOING: &str = ".ipc-";

// The accesses of these three words are Relaxed: no word publishes other data. The mutexes below guard the directories.

/// Set once this process has used a directory of another IPC namespace.
static HAS_FOLLOWED: AtomicBool = AtomicBool::new(false);

/// Set if this process has made its IPC namespace, and has not used queues in it.
static IS_NEW: AtomicBool = AtomicBool::new(false);

/// The inode of the IPC namespace in which the process determined its namespace; 0 if the process does not follow IPC namespaces.
static NOTED: AtomicU64 = AtomicU64::new(0);

/// The directory of another IPC namespace that this process uses.
static USED: Mutex<Option<Used>> = Mutex::new(None);

/// The directory that contains the directories of IPC namespaces that this process uses.
static BASE: Mutex<Option<PathBuf>> = Mutex::new(None);

/// Returns whether processes follow the kernel's IPC namespaces.
///
/// ```
/// // `UMSG_IPC_NAMESPACE=share` asks for one namespace in all IPC namespaces.
/// assert!(umsg::ipc::is_followed());
/// ```
pub fn is_followed() -> bool {
    std::env::var_os(VARIABLE).is_none_or(|value| value != SHARE)
}

/// Returns whether this process has used the directory of another IPC namespace than that of `$UMSG_DIR`.
///
/// ```
/// assert!(!umsg::ipc::has_followed(), "the process has stayed in its IPC namespace");
/// ```
#[inline]
#[must_use]
pub fn has_followed() -> bool {
    HAS_FOLLOWED.load(Ordering::Relaxed)
}

/// Returns the inode number of the calling thread's IPC namespace. None without /proc.
///
/// ```
/// assert!(umsg::ipc::present().is_some());
/// ```
#[must_use]
pub fn present() -> Option<u64> {
    ipc_namespace::inode(OWN).ok()
}

/// Returns whether the process is in another IPC namespace than when it determined its namespace. This is so for a child that was created in a new
/// IPC namespace.
///
/// ```
/// assert!(!umsg::ipc::has_moved());
/// ```
#[must_use]
pub fn has_moved() -> bool {
    let noted = NOTED.load(Ordering::Relaxed);
    noted != 0 && present().is_some_and(|own| own != noted)
}

/// Returns the value of the variable, and its name, for programs whose `$UMSG_DIR` belongs to the caller's IPC namespace.
///
/// ```
/// let (name, value) = umsg::ipc::variable().unwrap();
/// std::process::Command::new("true").env(name, value);
/// ```
#[must_use]
pub fn variable() -> Option<(&'static str, String)> {
    let own = ipc_namespace::of(OWN).ok()?;
    Some((VARIABLE, format!("{}-{}", own.inode, own.id.unwrap_or(0))))
}

/// Returns the variable and the value with which no program leaves `$UMSG_DIR`.
///
/// ```
/// assert_eq!(umsg::ipc::shared(), ("UMSG_IPC_NAMESPACE", "share"));
/// ```
#[must_use]
pub fn shared() -> (&'static str, &'static str) {
    (VARIABLE, SHARE)
}

/// A directory that a process has used.
#[derive(Debug)]
pub struct Used(IpcNamespace, PathBuf);

/// Notes that the calling process has moved to another IPC namespace. `is_new` says that the process has created the IPC namespace. The next use of
/// queues determines the namespace again. Returns the directory of the IPC namespace that the process has left.
///
/// ```no_run
/// // After unshare(CLONE_NEWIPC):
/// let left = umsg::ipc::note_move(true);
/// left.into_iter().for_each(umsg::ipc::Used::leave);
/// ```
pub fn note_move(is_new: bool) -> Option<Used> {
    IS_NEW.store(is_new, Ordering::Relaxed);
    Namespace::forget_of_this_process();
    USED.try_lock().ok().and_then(|mut used| used.take())
}

/// An IPC namespace of the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Identity(IpcNamespace);

/// Finds the namespaces of processes in several IPC namespaces, for a process that acts for them.
#[derive(Debug)]
pub struct Resolver {
    base: Namespace,
    home: Home,
}

impl Resolver {
    /// Returns the resolver of a directory. `value` is the value of `$UMSG_IPC_NAMESPACE` for the programs. None if all programs share the
    /// directory.
    ///
    /// ```no_run
    /// let (_, value) = umsg::ipc::variable().unwrap();
    /// let base = umsg::Namespace::resolve()?;
    /// let resolver = umsg::ipc::Resolver::new(base, &value).unwrap();
    /// assert_eq!(resolver.identify("/proc/self/ns/ipc")?, None);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn new(base: Namespace, value: &str) -> Option<Resolver> {
        let home = Home::parse(value)?;
        Some(Resolver { base, home })
    }

    /// Returns the IPC namespace to which a link of /proc leads. None: the IPC namespace of the base.
    ///
    /// ```no_run
    /// let (_, value) = umsg::ipc::variable().unwrap();
    /// let resolver = umsg::ipc::Resolver::new(umsg::Namespace::resolve()?, &value).unwrap();
    /// assert_eq!(resolver.identify("/proc/self/ns/ipc")?, None);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// The link can't be followed.
    pub fn identify(&self, link: &str) -> Result<Option<Identity>, NamespaceError> {
        let failed = |errno| NamespaceError::looking("stat", link.as_ref(), errno);
        if self
            .home
            .has_inode(ipc_namespace::inode(link).map_err(failed)?)
        {
            return Ok(None);
        }
        let of = ipc_namespace::of(link).map_err(failed)?;
        Ok((!self.home.is(of)).then_some(Identity(of)))
    }

    /// Returns the namespace of the IPC namespace to which a link of /proc leads. `of` is the result of [`identify`](Self::identify).
    ///
    /// ```no_run
    /// let (_, value) = umsg::ipc::variable().unwrap();
    /// let resolver = umsg::ipc::Resolver::new(umsg::Namespace::resolve()?, &value).unwrap();
    /// let link = "/proc/4711/ns/ipc";
    /// if let Some(other) = resolver.identify(link)? {
    ///     println!("{}", resolver.follow(link, other)?.namespace().path().display());
    /// }
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// The errors of [`Namespace::at`].
    pub fn follow(&self, link: &str, of: Identity) -> Result<Followed, NamespaceError> {
        let Identity(of) = of;
        // Before the directory: while it is used, no other IPC namespace gets the number of the inode.
        let kept = match of.id {
            Some(_) => None,
            None => Some(files::File::open(link).map_err(|error| {
                let errno = Errno::from_io_error(&error).unwrap_or(Errno::IO);
                NamespaceError::looking("open", link.as_ref(), errno)
            })?),
        };
        let namespace = resolve::inside(&self.base, directory(self.base.path(), of)?)?;
        Ok(Followed {
            namespace,
            _kept: kept,
        })
    }

    /// Removes the directories of IPC namespaces that have ended, apart from the calling process and its descriptors. Returns whether any other is
    /// left.
    ///
    /// ```no_run
    /// let (_, value) = umsg::ipc::variable().unwrap();
    /// let resolver = umsg::ipc::Resolver::new(umsg::Namespace::resolve()?, &value).unwrap();
    /// if resolver.sweep() {
    ///     println!("some IPC namespaces are in use");
    /// }
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn sweep(&self) -> bool {
        let base = self.base.path();
        remove_dead(base, Some(std::process::id()));
        entries(base).iter().any(|name| is_one(name))
    }
}

/// The namespace of another IPC namespace, for a process that acts for others.
#[derive(Debug)]
pub struct Followed {
    namespace: Namespace,
    /// The IPC namespace, unless its identity is a number that no later one gets.
    _kept: Option<files::File>,
}

impl Followed {
    /// The namespace, whose directory is inside that of the base.
    ///
    /// ```no_run
    /// let (_, value) = umsg::ipc::variable().unwrap();
    /// let resolver = umsg::ipc::Resolver::new(umsg::Namespace::resolve()?, &value).unwrap();
    /// let link = "/proc/4711/ns/ipc";
    /// if let Some(other) = resolver.identify(link)? {
    ///     println!("{}", resolver.follow(link, other)?.namespace().path().display());
    /// }
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn namespace(&self) -> &Namespace {
        &self.namespace
    }
}

impl Used {
    /// Removes the directory if no process is in its IPC namespace any more. The caller has left that namespace before.
    ///
    /// ```no_run
    /// // After unshare(CLONE_NEWIPC):
    /// if let Some(left) = umsg::ipc::note_move(true) {
    ///     left.leave();
    /// }
    /// ```
    pub fn leave(self) {
        let Used(of, path) = self;
        let Some(base) = path.parent().filter(|_| is_in_sight(&path)) else {
            return;
        };
        let others = Others::look(None, |found| found.contains(&of));
        if !others.have(of) && others.suffice(base) {
            remove_all(base, |name| path.file_name() == Some(name));
        }
    }
}

/// Returns the namespace for the caller's IPC namespace: `base`, or a namespace inside its directory. `admit` opens a directory inside the base's.
pub(super) fn followed(
    base: Namespace,
    admit: impl Fn(&Namespace, PathBuf) -> Result<Namespace, NamespaceError>,
) -> Result<Namespace, NamespaceError> {
    let Some(value) = std::env::var_os(VARIABLE) else {
        return Ok(base);
    };
    let Some(home) = value.to_str().and_then(Home::parse) else {
        return Ok(base);
    };
    // Without /proc, the search for the base has already reported an error.
    let Some(present) = present() else {
        return Ok(base);
    };
    NOTED.store(present, Ordering::Relaxed);
    if home.has_inode(present) {
        return Ok(base);
    }
    let own =
        ipc_namespace::of(OWN).map_err(|e| NamespaceError::looking("open", OWN.as_ref(), e))?;
    if home.is(own) {
        return Ok(base);
    }
    let path = directory(base.path(), own)?;
    let namespace = admit(&base, path)?;
    if let Ok(mut known) = BASE.try_lock() {
        *known = Some(base.path().to_owned());
    }
    if let Ok(mut used) = USED.try_lock() {
        *used = Some(Used(own, namespace.path().to_owned()));
    }
    HAS_FOLLOWED.store(true, Ordering::Relaxed);
    Ok(namespace)
}

/// Returns the directory of `$UMSG_DIR` and the value of the variable, if this process uses the directory of another IPC namespace.
///
/// ```
/// assert_eq!(umsg::ipc::base(), None, "the process has stayed in its IPC namespace");
/// ```
#[must_use]
pub fn base() -> Option<(PathBuf, String)> {
    let base = BASE.try_lock().ok()?.clone()?;
    Some((base, std::env::var(VARIABLE).ok()?))
}

/// The IPC namespace that the variable names.
#[derive(Debug)]
struct Home {
    inode: u64,
    /// 0 if the number is unknown.
    id: u64,
}

impl Home {
    /// None for other values, with which no process leaves the directory.
    fn parse(value: &str) -> Option<Home> {
        let (inode, id) = value.split_once('-')?;
        Some(Home {
            inode: inode.parse().ok()?,
            id: id.parse().ok()?,
        })
    }

    fn has_inode(&self, inode: u64) -> bool {
        self.inode == inode
    }

    fn is(&self, of: IpcNamespace) -> bool {
        self.has_inode(of.inode) || of.id.is_some_and(|id| id == self.id)
    }
}

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
    /// None for other names, which are not this module's.
    fn by(name: &OsStr) -> Option<Named> {
        let name = name.to_str()?.strip_prefix(PREFIX)?;
        let mut parts = name.split('-');
        let first = parts.next()?;
        let number = |digits: &str| {
            let is_usual = digits.bytes().all(|byte| byte.is_ascii_digit());
            digits.parse().ok().filter(|_| is_usual)
        };
        // The user, and the number of the name.
        if parts.clone().count() > 2 || !parts.all(|part| number(part).is_some()) {
            return None;
        }
        match first.strip_prefix('i') {
            Some(inode) => number(inode).map(Named::Inode),
            None => number(first).map(Named::Id),
        }
    }

    /// Returns whether this may be the name of the namespace. A sandbox may refuse the number of the namespace to one process, and not to another.
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
fn directory(base: &Path, of: IpcNamespace) -> Result<PathBuf, NamespaceError> {
    if of.id.is_none() && IS_NEW.swap(false, Ordering::Relaxed) && is_alone_in(of) {
        remove_all(base, |name| Named::by(name) == Some(Named::Inode(of.inode)));
    }
    let (usual, user) = (name_of(of), caller());
    // The directory of root comes before the caller's, so that processes of several users in one IPC namespace use the same directory.
    let mut names = vec![
        usual.clone(),
        format!("{usual}-0"),
        format!("{usual}-{user}"),
    ];
    // Another user may have taken all of these, and some of the following.
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
                // A process of the same user has made it meanwhile.
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

/// Returns whether no other process is in the IPC namespace. A process that was forked after the namespace was made may have made its directory.
fn is_alone_in(of: IpcNamespace) -> bool {
    let others = Others::look(Some(std::process::id()), |found| found.contains(&of));
    !others.have(of) && !others.has_failed
}

/// Makes a directory with the mode of the base. Until the directory has this mode, it is closed to other users.
fn make(base: &Path, path: &Path) -> std::io::Result<()> {
    let mode = files::metadata(base)?.permissions().mode() & 0o1777;
    DirBuilder::new().mode(0o700).create(path)?;
    crash_point!(IPC_DIRECTORY_MADE);
    files::set_permissions(path, PermissionsExt::from_mode(mode))
}

/// Removes, at the end of this process, the directories of the IPC namespaces that end with the process.
///
/// ```no_run
/// umsg::ipc::leave_at_exit();
/// ```
pub fn leave_at_exit() {
    if let Some(base) = BASE.try_lock().ok().and_then(|mut base| base.take()) {
        remove_dead(&base, Some(std::process::id()));
    }
}

/// Returns whether /proc shows all processes that use the directory of an IPC namespace. /proc shows them if the caller is in the PID namespace in
/// which the directory was made, or in the initial PID namespace.
fn is_in_sight(path: &Path) -> bool {
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
fn remove_dead(base: &Path, but: Option<u32>) -> usize {
    let mut names = dead(base, but);
    if !names.is_empty() {
        // A thread may have moved, during the search, from an IPC namespace that the search had still before it to one behind it.
        let again = dead(base, but);
        names.retain(|name| again.contains(name));
    }
    remove_all(base, |name| names.iter().any(|one| one == name))
}

/// Returns the names of the directories that the caller may remove: those of IPC namespaces that have ended, or whose only process is `but`.
fn dead(base: &Path, but: Option<u32>) -> Vec<std::ffi::OsString> {
    let mut names = entries(base);
    // Another user may fill a directory of such a name without end.
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

fn entries(base: &Path) -> Vec<std::ffi::OsString> {
    let entries = files::read_dir(base).into_iter().flatten().flatten();
    entries.map(|entry| entry.file_name()).collect()
}

fn is_going(name: &OsStr) -> bool {
    name.to_str().is_some_and(|name| name.starts_with(GOING))
}

/// Returns whether a directory of this name is one of an IPC namespace, or the remains of one.
fn is_one(name: &OsStr) -> bool {
    is_going(name) || Named::by(name).is_some()
}

/// Returns whether a directory belongs to the caller or to root.
fn is_own(path: &Path) -> bool {
    files::symlink_metadata(path).is_ok_and(|it| it.is_dir() && [0, caller()].contains(&it.uid()))
}

/// Removes directories with all their files. Each directory first gets another name, so that no process finds a half-removed one.
fn remove_all(base: &Path, is_wanted: impl Fn(&OsStr) -> bool) -> usize {
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::namespace::testing::TestDir;
    use std::collections::BTreeSet;

    #[test]
    fn the_directory_of_an_ended_namespace_is_removed_and_that_of_a_living_one_stays() {
        let dir = TestDir::new();
        let base = dir.namespace();
        let own = ipc_namespace::of(OWN).unwrap();
        let living = directory(base.path(), own).unwrap();
        assert_eq!(directory(base.path(), own).unwrap(), living);
        // Where the kernel gives no ids, no directory is named by one.
        let none = IpcNamespace {
            inode: 7,
            id: own.id.map(|_| u64::MAX),
        };
        let ended = directory(base.path(), none).unwrap();
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
        // Without the id of a namespace, each directory that is named by an id may belong to it. A directory that is named by an inode belongs to it
        // only if the inode is the same.
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
        // A symlink is no directory of the caller's, like any file of another user. Root is a user, too.
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
        let own = directory(base.path(), living).unwrap();
        assert!(own.ends_with(format!("{usual}-{user}-3")), "{own:?}");
        assert_eq!(directory(base.path(), living).unwrap(), own);
        files::remove_file(base.path().join(&usual)).unwrap();
        assert_eq!(directory(base.path(), living).unwrap(), own, "in use");
    }
}
