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
//! `UMSG_IPC_NAMESPACE` names the IPC namespace to which `$UMSG_DIR` belongs: its inode number and its id, or `share` if no process leaves the
//! directory. Without the variable, a process stays with the directory. The drop-in follows a move of its process to another IPC namespace, and then
//! sets the variable. A supervisor of `umsg run` follows the moves of its programs.
//!
//! | event | effect |
//! |---|---|
//! | the first use of queues in another IPC namespace | its directory is made |
//! | the last process in the IPC namespace ends, and no mount and no descriptor leads to the namespace | the process removes the directory |
//! | the last process is killed, or has used no queue there | the directory stays until a process makes another one beside it, or until a sweep (`umsg gc`) |
//!
//! A process searches /proc for other processes of the IPC namespace, and ignores supervisors. It does not remove a directory that was made in a PID
//! namespace whose processes it can't see. Only root's directories are used by processes of several users. Root removes one of its directories only
//! if /proc shows root all processes. Another user removes one of its directories only if /proc shows all processes of this user.
//!
//! The kernel may use an inode number again. If a process has made an IPC namespace and is alone in it, the namespace is new. The process then
//! removes the directory that an earlier namespace with this inode number has left.

use std::fs as files;
use std::path::PathBuf;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use rustix::io::Errno;
use umsg_shm::sys::ipc_namespace::{self, IpcNamespace, OWN};

use super::error::NamespaceError;
use super::{Namespace, resolve};
use directories::{entries, is_in_sight, is_one, remove_all, remove_dead};
use processes::Others;

mod directories;
mod processes;

pub use processes::SUPERVISOR;

/// The environment variable that names the IPC namespace to which `$UMSG_DIR` belongs.
pub(super) const VARIABLE: &str = "UMSG_IPC_NAMESPACE";
/// The value of `$UMSG_IPC_NAMESPACE` with which all processes share the directory.
const SHARE: &str = "share";

// The accesses of the following three words are Relaxed: no word publishes other data. The mutexes after them guard the directories.

/// Set once this process has used a directory of another IPC namespace.
static HAS_FOLLOWED: AtomicBool = AtomicBool::new(false);

/// Set if this process has made its IPC namespace, and has not used queues in it.
static IS_NEW: AtomicBool = AtomicBool::new(false);

/// The inode of the IPC namespace in which the process was when it selected its namespace of queues; 0 if the process does not follow IPC namespaces.
static NOTED: AtomicU64 = AtomicU64::new(0);

/// The directory of another IPC namespace that this process uses.
static USED: Mutex<Option<Used>> = Mutex::new(None);

/// The directory that contains the directories of IPC namespaces that this process uses.
static BASE: Mutex<Option<PathBuf>> = Mutex::new(None);

/// Returns whether a program with this process's environment follows the kernel's IPC namespaces.
///
/// ```
/// // `UMSG_IPC_NAMESPACE=share` asks for one namespace in all IPC namespaces.
/// assert!(umsg::ipc::is_followed());
/// ```
pub fn is_followed() -> bool {
    std::env::var_os(VARIABLE).is_none_or(|value| value != SHARE)
}

/// Returns whether this process has used a directory of an IPC namespace other than that of `$UMSG_DIR`.
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

/// Returns whether the process is now in another IPC namespace than when it selected its namespace of queues. For example, a child that was created
/// in a new IPC namespace has moved.
///
/// ```
/// assert!(!umsg::ipc::has_moved());
/// ```
#[must_use]
pub fn has_moved() -> bool {
    let noted = NOTED.load(Ordering::Relaxed);
    noted != 0 && present().is_some_and(|own| own != noted)
}

/// Returns the name `UMSG_IPC_NAMESPACE` and its value for programs whose `$UMSG_DIR` belongs to the caller's IPC namespace.
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

/// Returns the name `UMSG_IPC_NAMESPACE`, and the value with which no program leaves `$UMSG_DIR`.
///
/// ```
/// assert_eq!(umsg::ipc::shared(), ("UMSG_IPC_NAMESPACE", "share"));
/// ```
#[must_use]
pub fn shared() -> (&'static str, &'static str) {
    (VARIABLE, SHARE)
}

/// The directory that a process has used for an IPC namespace.
#[derive(Debug)]
pub struct Used(IpcNamespace, PathBuf);

/// Notes that the calling process has moved to another IPC namespace. `is_new` says that the process has created the IPC namespace. The next use of
/// queues selects a namespace of queues again. Returns the directory of the IPC namespace that the process has left.
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

/// Finds the namespaces of queues for programs in several IPC namespaces, on behalf of a supervisor that acts for these programs.
#[derive(Debug)]
pub struct Resolver {
    base: Namespace,
    home: Home,
}

impl Resolver {
    /// Returns a resolver for programs whose `$UMSG_DIR` is `base`. `value` is the value of `$UMSG_IPC_NAMESPACE` for these programs. None if all
    /// programs share the directory.
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

    /// Returns the IPC namespace to which a link of /proc leads. None if it is the IPC namespace of the base.
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

    /// Returns the namespace of queues for the IPC namespace to which a link of /proc leads. `of` is the result of [`identify`](Self::identify). The
    /// caller keeps the pin as long as it uses the namespace.
    ///
    /// ```no_run
    /// let (_, value) = umsg::ipc::variable().unwrap();
    /// let resolver = umsg::ipc::Resolver::new(umsg::Namespace::resolve()?, &value).unwrap();
    /// let link = "/proc/4711/ns/ipc";
    /// if let Some(other) = resolver.identify(link)? {
    ///     let (namespace, _pin) = resolver.follow(link, other)?;
    ///     println!("{}", namespace.path().display());
    /// }
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// The errors of [`Namespace::at`].
    pub fn follow(&self, link: &str, of: Identity) -> Result<(Namespace, Pin), NamespaceError> {
        let Identity(of) = of;
        // The link is opened before the directory is found: while the link is open, no other IPC namespace gets the inode number.
        let kept = match of.id {
            Some(_) => None,
            None => Some(files::File::open(link).map_err(|error| {
                let errno = Errno::from_io_error(&error).unwrap_or(Errno::IO);
                NamespaceError::looking("open", link.as_ref(), errno)
            })?),
        };
        let namespace =
            resolve::inside(&self.base, directories::find_or_make(self.base.path(), of)?)?;
        Ok((namespace, Pin { _kept: kept }))
    }

    /// Removes the directories of IPC namespaces that have ended. Ignores the calling process and its descriptors. Returns whether any directory of
    /// an IPC namespace is left.
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

/// Prevents the kernel from giving the inode number of an IPC namespace to a later one. For a process that acts for others.
#[derive(Debug)]
pub struct Pin {
    /// An open link to the IPC namespace. None if the kernel gives the namespace an id, which no later namespace gets.
    _kept: Option<files::File>,
}

impl Used {
    /// Removes the directory if its IPC namespace has no process any more. The caller has left that IPC namespace before the call.
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

/// Returns the namespace for the caller's IPC namespace: `base`, or a namespace inside the directory of `base`. `admit` opens a directory inside the
/// directory of `base`.
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
    if own.id.is_none() && IS_NEW.swap(false, Ordering::Relaxed) && is_alone_in(own) {
        directories::remove_of_inode(base.path(), own.inode);
    }
    let path = directories::find_or_make(base.path(), own)?;
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

/// Returns whether no other process is in the IPC namespace. Another process, for example a child forked after the IPC namespace was made, may
/// already have made the directory for this IPC namespace.
fn is_alone_in(of: IpcNamespace) -> bool {
    let others = Others::look(Some(std::process::id()), |found| found.contains(&of));
    !others.have(of) && !others.has_failed
}

/// Returns the directory of `$UMSG_DIR` and the value of `$UMSG_IPC_NAMESPACE`, if this process uses the directory of another IPC namespace.
///
/// ```
/// assert_eq!(umsg::ipc::base(), None, "the process has stayed in its IPC namespace");
/// ```
#[must_use]
pub fn base() -> Option<(PathBuf, String)> {
    let base = BASE.try_lock().ok()?.clone()?;
    Some((base, std::env::var(VARIABLE).ok()?))
}

/// The IPC namespace that `$UMSG_IPC_NAMESPACE` names.
#[derive(Debug)]
struct Home {
    inode: u64,
    /// The id of the IPC namespace; 0 if unknown.
    id: u64,
}

impl Home {
    /// Parses the value of `$UMSG_IPC_NAMESPACE`. Returns None for `share` and for an invalid value: then no process leaves the directory.
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
