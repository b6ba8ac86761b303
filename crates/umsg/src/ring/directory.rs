//! The rings of a namespace: finding, listing and removing them.

use super::doorbell::Button;
use super::error::RingError;
use super::lock::Locked;
use super::place::DoorbellPath;
use super::sender::Sender;
use super::shared::Shared;
use super::status::{Status, status};
use crate::error::OpenError;
use crate::error::SegmentError;
use crate::namespace::{
    FileAccess, FileError, Namespace, NamespaceError, QueueName, RINGS, socket_prefix,
};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::io::Errno;
use std::ffi::{OsStr, OsString};
use std::sync::Arc;
use umsg_shm::crash::crash_point;
use umsg_shm::posix_engine::Engine;
use umsg_shm::posix_engine::segment::{self, Segment};
use umsg_shm::sys::liveness;
use umsg_shm::sys::process;

/// A ring of a namespace.
#[derive(Debug)]
#[non_exhaustive]
pub struct Listed {
    /// The name of the ring, with its slash.
    pub name: OsString,
    /// The state of the ring, or the reason why it can't be read.
    pub found: Result<FoundRing, RingError>,
}

/// The state of a ring, and the owner of its file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct FoundRing {
    /// The owner's user id.
    pub uid: u32,
    /// The owner's group id.
    pub gid: u32,
    /// The state of the ring.
    pub status: Status,
}

/// Returns the rings of a namespace, sorted by name.
///
/// ```
/// # let dir = tempfile::tempdir_in("/dev/shm")?;
/// # let namespace = umsg::Namespace::at(dir.path())?;
/// # let mut ring = umsg::ring::Options::new().create_in(&namespace, "/r")?;
/// # let sender = ring.sender();
/// assert_eq!(umsg::ring::list(&namespace)?.len(), 1);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// [`NamespaceError`] if the namespace can't be read.
pub fn list(namespace: &Namespace) -> Result<Vec<Listed>, NamespaceError> {
    let names = namespace.ring_names()?.into_iter();
    let listed = names.map(|name| Listed {
        name: with_slash(&name),
        found: find_named(namespace, &name),
    });
    let is_gone = |listed: &Listed| matches!(listed.found, Err(RingError::NotFound));
    Ok(listed.filter(|listed| !is_gone(listed)).collect())
}

/// Returns the names of the rings of a namespace, each with the inode number of its file, without opening a ring. For programs that keep the rings
/// open and check for new rings.
///
/// While a process has a ring open, no other file of the namespace has this ring's inode number.
///
/// ```
/// # let dir = tempfile::tempdir_in("/dev/shm")?;
/// # let namespace = umsg::Namespace::at(dir.path())?;
/// # let ring = umsg::ring::Options::new().create_in(&namespace, "/r")?;
/// let names = umsg::ring::names(&namespace)?;
/// assert_eq!(names[0].0, "/r");
/// # drop(ring);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// The errors of [`list`].
pub fn names(namespace: &Namespace) -> Result<Vec<(OsString, u64)>, NamespaceError> {
    let files = namespace.ring_files()?.into_iter();
    Ok(files
        .map(|(name, inode)| (with_slash(&name), inode))
        .collect())
}

/// Returns the state of a named ring. The caller needs permission to send.
///
/// ```
/// # let dir = tempfile::tempdir_in("/dev/shm")?;
/// # let namespace = umsg::Namespace::at(dir.path())?;
/// # let mut ring = umsg::ring::Options::new().create_in(&namespace, "/r")?;
/// # let sender = ring.sender();
/// let found = umsg::ring::find(&namespace, "/r")?;
/// println!("{found:?}");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// The errors of [`Sender::open_in`].
pub fn find(namespace: &Namespace, name: impl AsRef<OsStr>) -> Result<FoundRing, RingError> {
    let name = QueueName::parse(name.as_ref()).map_err(OpenError::from)?;
    find_named(namespace, &name)
}

/// Removes the name of a ring whose owner has died, and all stale files of the ring in the namespace.
///
/// ```
/// # let dir = tempfile::tempdir_in("/dev/shm")?;
/// # let namespace = umsg::Namespace::at(dir.path())?;
/// # let mut ring = umsg::ring::Options::new().create_in(&namespace, "/r")?;
/// # let sender = ring.sender();
/// drop((ring, sender));
/// assert!(umsg::ring::unlink_in(&namespace, "/r").is_err(), "it went with its owner");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// [`RingError::Owned`] if the owner lives: the owner removes the name itself. ENOENT; EACCES if the caller is neither the
/// file's owner nor root; EINVAL, EACCES and ENAMETOOLONG for an invalid name.
pub fn unlink_in(namespace: &Namespace, name: impl AsRef<OsStr>) -> Result<(), RingError> {
    let name = QueueName::parse(name.as_ref()).map_err(OpenError::from)?;
    remove(namespace, &name, false)
}

/// Removes a name as [`unlink_in`] does, even if the owner lives. A living owner, and the senders that have opened the ring, can still use the ring.
/// Other processes no longer find the ring.
///
/// ```
/// # let dir = tempfile::tempdir_in("/dev/shm")?;
/// # let namespace = umsg::Namespace::at(dir.path())?;
/// # let mut ring = umsg::ring::Options::new().create_in(&namespace, "/r")?;
/// # let sender = ring.sender();
/// umsg::ring::unlink_anyway_in(&namespace, "/r")?;
/// assert!(umsg::ring::list(&namespace)?.is_empty());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// The errors of [`unlink_in`], without `Owned`.
pub fn unlink_anyway_in(namespace: &Namespace, name: impl AsRef<OsStr>) -> Result<(), RingError> {
    let name = QueueName::parse(name.as_ref()).map_err(OpenError::from)?;
    remove(namespace, &name, true)
}

pub(super) fn remove(
    namespace: &Namespace,
    name: &QueueName,
    anyway: bool,
) -> Result<(), RingError> {
    let file = match open_file(namespace, name) {
        Ok(file) => file,
        // The file can't be opened, so the file can't be locked either.
        Err(error) if anyway || has_no_owner(&error) => {
            return namespace.unlink_file_in(RINGS, name).map_err(file_error);
        }
        Err(error) => return Err(error),
    };
    match attach_file(namespace, file.as_fd()) {
        Ok(segment) => {
            let (last, _) = segment.fixed().ownership.owner();
            let owner = owner(&segment);
            if let Some(pid) = owner
                && !anyway
            {
                return Err(RingError::Owned(pid));
            }
            remove_file(namespace, name, &file, (owner.is_none(), last), anyway)
        }
        Err(error) if anyway || has_no_owner(&error) => {
            remove_file(namespace, name, &file, (true, 0), anyway)
        }
        Err(error) => Err(error),
    }
}

/// Returns whether the file with this name is no ring, and so has no owner.
fn has_no_owner(error: &RingError) -> bool {
    matches!(
        error,
        RingError::NotARing
            | RingError::Open(
                OpenError::Segment(SegmentError::Damaged(_))
                    | OpenError::Segment(SegmentError::NotAQueue(_))
            )
    )
}

/// Removes a file under its lock, unless another file has the name in the meantime. Also removes the doorbell of the ring, if no process receives
/// through the doorbell.
fn remove_file(
    namespace: &Namespace,
    name: &QueueName,
    file: &OwnedFd,
    (is_left, last): (bool, u32),
    anyway: bool,
) -> Result<(), RingError> {
    let locked = Locked::of(file.as_fd());
    if locked.is_none() && !anyway {
        return Err(RingError::Owned(last));
    }
    if named(namespace, name)? != inode(file.as_fd())? {
        // Another process has removed the file first.
        return Ok(());
    }
    // If the owner lives, its senders still use the doorbell, so the doorbell stays.
    if is_left {
        let stat = rustix::fs::fstat(file).map_err(|e| OpenError::from_errno("fstat", e))?;
        namespace.remove_sockets_of_rings(&socket_prefix(stat.st_ino), stat.st_uid);
        crash_point!(RING_CLEARED);
    }
    namespace.unlink_file_in(RINGS, name).map_err(file_error)
}

fn inode(file: BorrowedFd<'_>) -> Result<u64, OpenError> {
    let stat = rustix::fs::fstat(file).map_err(|e| OpenError::from_errno("fstat", e))?;
    Ok(stat.st_ino)
}

/// Returns the inode number of the file that has the name.
fn named(namespace: &Namespace, name: &QueueName) -> Result<u64, RingError> {
    Ok(inode(open_file(namespace, name)?.as_fd())?)
}

pub(super) fn file_error(error: FileError) -> RingError {
    match error {
        FileError::NotFound => RingError::NotFound,
        other => OpenError::from(other).into(),
    }
}

/// Returns the id of the ring's receiving process, if the process lives.
fn owner(segment: &Segment) -> Option<u32> {
    let (pid, birth) = segment.fixed().ownership.owner();
    (pid != 0 && !liveness::is_dead(segment, birth, |birth| process::is_dead(pid, birth)))
        .then_some(pid)
}

fn find_named(namespace: &Namespace, name: &QueueName) -> Result<FoundRing, RingError> {
    Ok(Observer::of(namespace, name)?.look())
}

/// A ring that stays mapped, so that its state can be read repeatedly. An observer is neither a sender nor a receiver.
#[derive(Debug)]
pub struct Observer {
    engine: Engine,
    inode: u64,
    uid: u32,
    gid: u32,
}

impl Observer {
    /// Maps a named ring. The caller needs permission to send.
    ///
    /// ```
    /// # let dir = tempfile::tempdir_in("/dev/shm")?;
    /// # let namespace = umsg::Namespace::at(dir.path())?;
    /// # let mut ring = umsg::ring::Options::new().create_in(&namespace, "/r")?;
    /// # let sender = ring.sender();
    /// let observer = umsg::ring::Observer::open_in(&namespace, "/r")?;
    /// assert_eq!(observer.look().status.messages, 0);
    /// sender.send(&umsg::ring::Post::new(7))?;
    /// assert_eq!(observer.look().status.messages, 1);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// The errors of [`Sender::open_in`].
    pub fn open_in(namespace: &Namespace, name: impl AsRef<OsStr>) -> Result<Observer, RingError> {
        let name = QueueName::parse(name.as_ref()).map_err(OpenError::from)?;
        Observer::of(namespace, &name)
    }

    fn of(namespace: &Namespace, name: &QueueName) -> Result<Observer, RingError> {
        let (segment, file) = attach(namespace, name)?;
        let stat = rustix::fs::fstat(&file).map_err(|e| OpenError::from_errno("fstat", e))?;
        Ok(Observer {
            engine: Engine::new(segment),
            inode: stat.st_ino,
            uid: stat.st_uid,
            gid: stat.st_gid,
        })
    }

    /// Returns the state of the ring, without taking a lock. The ring may have lost its name: see [`inode`](Self::inode).
    ///
    /// ```
    /// # let dir = tempfile::tempdir_in("/dev/shm")?;
    /// # let namespace = umsg::Namespace::at(dir.path())?;
    /// # let mut ring = umsg::ring::Options::new().create_in(&namespace, "/r")?;
    /// let observer = umsg::ring::Observer::open_in(&namespace, "/r")?;
    /// assert!(observer.look().status.owner_alive);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn look(&self) -> FoundRing {
        FoundRing {
            uid: self.uid,
            gid: self.gid,
            status: status(&self.engine),
        }
    }

    /// Returns the inode number of the ring's file, as [`names`] gives it while the file has a name.
    ///
    /// ```
    /// # let dir = tempfile::tempdir_in("/dev/shm")?;
    /// # let namespace = umsg::Namespace::at(dir.path())?;
    /// # let mut ring = umsg::ring::Options::new().create_in(&namespace, "/r")?;
    /// let observer = umsg::ring::Observer::open_in(&namespace, "/r")?;
    /// assert_eq!(umsg::ring::names(&namespace)?, [("/r".into(), observer.inode())]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn inode(&self) -> u64 {
        self.inode
    }

    /// Returns whether a name refers to this ring: the ring was not removed, and no other ring has replaced it. If the lookup
    /// fails for another reason than a missing or invalid name, the result is true. The call makes one system call.
    ///
    /// ```
    /// # let dir = tempfile::tempdir_in("/dev/shm")?;
    /// # let namespace = umsg::Namespace::at(dir.path())?;
    /// # let mut ring = umsg::ring::Options::new().create_in(&namespace, "/r")?;
    /// let observer = umsg::ring::Observer::open_in(&namespace, "/r")?;
    /// assert!(observer.is_named(&namespace, "/r"));
    /// drop(ring);
    /// assert!(!observer.is_named(&namespace, "/r"));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn is_named(&self, namespace: &Namespace, name: impl AsRef<OsStr>) -> bool {
        let Ok(name) = QueueName::parse(name.as_ref()) else {
            return false;
        };
        // The mapping of the ring keeps the inode's number from other files.
        match rustix::fs::lstat(namespace.path().join(RINGS).join(name.as_os_str())) {
            Ok(stat) => stat.st_ino == self.inode,
            Err(error) => error != Errno::NOENT,
        }
    }
}

fn with_slash(name: &QueueName) -> OsString {
    let mut whole = OsString::from("/");
    whole.push(name.as_os_str());
    whole
}

fn open_file(namespace: &Namespace, name: &QueueName) -> Result<OwnedFd, RingError> {
    namespace
        .open_file_in(RINGS, name, FileAccess::ReadWrite, false)
        .map_err(file_error)
}

fn attach(namespace: &Namespace, name: &QueueName) -> Result<(Segment, OwnedFd), RingError> {
    let file = open_file(namespace, name)?;
    Ok((attach_file(namespace, file.as_fd())?, file))
}

fn attach_file(namespace: &Namespace, file: BorrowedFd<'_>) -> Result<Segment, RingError> {
    let mut segment = segment::attach(file)?;
    segment.count_in(namespace.host());
    if segment.fixed().ownership.state() == 0 {
        return Err(RingError::NotARing);
    }
    Ok(segment)
}

/// Returns the sender's end of the doorbell (the button) of the ring in a file.
pub(super) fn button(namespace: &Namespace, file: BorrowedFd<'_>) -> Result<Button, RingError> {
    button_of(namespace, file, &attach_file(namespace, file)?)
}

fn button_of(
    namespace: &Namespace,
    file: BorrowedFd<'_>,
    segment: &Segment,
) -> Result<Button, RingError> {
    let place = DoorbellPath::of(namespace, file, segment);
    Ok(Button::Named(
        place.map_err(|e| OpenError::from_errno("fstat", e))?,
    ))
}

/// Opens a named ring for sending.
pub(super) fn open(namespace: &Namespace, name: &OsStr) -> Result<Sender, RingError> {
    let name = QueueName::parse(name).map_err(OpenError::from)?;
    let (mut segment, file) = attach(namespace, &name)?;
    segment.join(namespace.host())?;
    let button = button_of(namespace, file.as_fd(), &segment)?;
    Ok(Sender::new(Arc::new(Shared::new(segment, button))))
}

/// A ring's name in its namespace.
#[derive(Debug)]
pub(super) struct Name {
    namespace: Namespace,
    name: QueueName,
    /// The inode number of the ring's file.
    inode: u64,
}

impl Name {
    pub(super) fn new(
        namespace: &Namespace,
        name: QueueName,
        file: BorrowedFd<'_>,
    ) -> Result<Name, OpenError> {
        Ok(Name {
            namespace: namespace.clone(),
            name,
            inode: inode(file)?,
        })
    }

    /// Returns the name as programs give it, with its slash.
    pub(super) fn with_slash(&self) -> OsString {
        self.name.with_slash()
    }

    /// Removes the name, unless another ring has the name in the meantime. Processes that have the ring open can still use it. The removal needs no
    /// free descriptor, because a process without a free descriptor would otherwise keep the name in use until the process ends.
    pub(super) fn remove(self) {
        let path = self.namespace.path().join(RINGS);
        let path = path.join(self.name.as_os_str());
        if matches!(rustix::fs::lstat(&path), Ok(stat) if stat.st_ino == self.inode) {
            let _ = rustix::fs::unlink(&path);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ring::Options;

    fn namespace() -> (tempfile::TempDir, Namespace) {
        let home = tempfile::tempdir_in("/dev/shm").unwrap();
        let namespace = Namespace::at(home.path()).unwrap();
        (home, namespace)
    }

    #[test]
    fn rings_are_listed_by_name_with_what_they_say_of_themselves() {
        let (_home, namespace) = namespace();
        let _two = Options::new().create_in(&namespace, "/two").unwrap();
        let mut options = Options::new();
        options.entries(5).overflow(7).longest(100).disabled(true);
        let _one = options.create_in(&namespace, "/one").unwrap();
        std::fs::write(namespace.path().join(RINGS).join("strange"), b"x").unwrap();
        let listed = list(&namespace).unwrap();
        let names: Vec<_> = listed.iter().map(|listed| &listed.name).collect();
        assert_eq!(names, ["/one", "/strange", "/two"]);
        let status = listed[0].found.as_ref().unwrap().status;
        assert_eq!(
            (status.entries, status.overflow, status.longest),
            (5, 7, 100)
        );
        assert_eq!((status.enabled, status.senders), (false, 0));
        assert!(listed[1].found.is_err());
    }

    #[test]
    fn a_living_owner_keeps_the_name_and_gives_up_none_but_its_own() {
        let (_home, namespace) = namespace();
        let first = Options::new().create_in(&namespace, "/ring").unwrap();
        let error = unlink_in(&namespace, "/ring").unwrap_err();
        assert_eq!(error.errno(), libc::EBUSY);
        unlink_anyway_in(&namespace, "/ring").unwrap();
        assert_eq!(find(&namespace, "/ring").unwrap_err().errno(), libc::ENOENT);
        let second = Options::new().create_in(&namespace, "/ring").unwrap();
        drop(first);
        assert!(find(&namespace, "/ring").unwrap().status.owner_alive);
        drop(second);
        let left = std::fs::read_dir(namespace.path().join(RINGS)).unwrap();
        assert_eq!(left.count(), 0);
    }

    #[test]
    fn what_is_no_ring_can_be_removed() {
        let (_home, namespace) = namespace();
        std::fs::write(namespace.path().join(RINGS).join("strange"), b"x").unwrap();
        unlink_in(&namespace, "/strange").unwrap();
        assert_eq!(
            unlink_in(&namespace, "/strange").unwrap_err().errno(),
            libc::ENOENT
        );
    }

    #[test]
    fn a_process_that_finds_a_damaged_file_removes_no_new_ring_of_its_name() {
        let (_home, namespace) = namespace();
        let path = namespace.path().join(RINGS).join("r");
        std::fs::write(&path, b"no ring at all").unwrap();
        let damaged = std::fs::File::open(&path).unwrap();
        let slower = || Options::new().create_in(&namespace, "/r");
        std::thread::scope(|scope| {
            // This thread plays the faster process, which holds this lock while it removes the damaged file.
            let locked = Locked::of(damaged.as_fd()).unwrap();
            let slower = scope.spawn(slower);
            std::thread::sleep(std::time::Duration::from_millis(100));
            std::fs::remove_file(&path).unwrap();
            let faster = Options::new().create_in(&namespace, "/r").unwrap();
            drop(locked);
            let error = slower.join().unwrap().unwrap_err();
            assert_eq!(error.errno(), libc::EBUSY, "{error}");
            assert!(find(&namespace, "/r").unwrap().status.owner_alive);
            drop(faster);
        });
        assert_eq!(find(&namespace, "/r").unwrap_err().errno(), libc::ENOENT);
    }

    #[test]
    fn a_ring_works_where_the_path_is_longer_than_a_sockets_address() {
        let home = tempfile::tempdir_in("/dev/shm").unwrap();
        let mut path = home.path().to_owned();
        (0..3).for_each(|_| path.push("x".repeat(100)));
        std::fs::create_dir_all(&path).unwrap();
        let namespace = Namespace::at(&path).unwrap();
        let mut ring = Options::new().create_in(&namespace, "/r").unwrap();
        let sender = crate::ring::Sender::open_in(&namespace, "/r").unwrap();
        let is_readable = |ring: &mut crate::ring::Ring| {
            let descriptor = ring.pollable();
            let mut polled = [rustix::event::PollFd::new(
                &descriptor,
                rustix::event::PollFlags::IN,
            )];
            let now = rustix::event::Timespec::default();
            rustix::event::poll(&mut polled, Some(&now)).unwrap() == 1
        };
        assert!(!is_readable(&mut ring));
        let file = std::fs::File::open("/dev/null").unwrap();
        let (post, now) = (crate::ring::Post::new(1), crate::ring::Until::Now);
        sender.send_fd(&post, file.as_fd(), now).unwrap();
        assert!(is_readable(&mut ring));
        assert!(ring.try_receive().unwrap().descriptor.is_some());
        drop(ring);
        let left = std::fs::read_dir(namespace.path().join(RINGS)).unwrap();
        assert_eq!(left.count(), 0);
    }

    #[test]
    fn a_ring_counts_in_the_bytes_of_its_namespace_and_is_bound_by_their_limit() {
        let (_home, namespace) = namespace();
        let ring = Options::new()
            .entries(4)
            .overflow(4)
            .create_in(&namespace, "/ring");
        let ring = ring.unwrap();
        let bytes = namespace.allocated_bytes().unwrap();
        assert!(bytes >= 32 << 10, "{bytes}");
        let mut limits = namespace.limits().unwrap();
        limits.max_bytes = Some(bytes - 1);
        namespace.set_limits(&limits).unwrap();
        let error = Options::new().create_in(&namespace, "/other").unwrap_err();
        assert_eq!(error.errno(), libc::ENOSPC);
        drop(ring);
        assert_eq!(namespace.allocated_bytes().unwrap(), 0);
    }
}
