//! The directories of a namespace's queues, one for each kind, and the entries of the directory of POSIX queues.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use rustix::fs::{self, AtFlags, Dir, DirEntry, FileType, Mode, OFlags};
use rustix::io::Errno;

use super::Namespace;
use super::directory::{Directory, permissions};
use super::error::{NamespaceError, is_directory};
use super::names::QueueName;
use super::stamp::Stamp;
use super::{transient, trust};
use umsg_shm::sys::extent::is_in_tmpfs;
use umsg_shm::sys::random::random;

/// The sub-directory for POSIX queues: a file for each queue, named like the queue without its slash.
pub(super) const POSIX: &str = "mq";
/// The sub-directory for System V queues; see [`super::msg`].
pub(super) const SYSV: &str = "msg";
/// The sub-directory for rings: one file a ring, named like the ring without its slash.
pub(crate) const RINGS: &str = "ring";
/// The sub-directory for the doorbells of queues that are polled; see [`super::poll_fifos`].
pub(super) const POLL_FIFOS: &str = "bell";
/// The sub-directory for the private files of each user next to the System V queues; see [`super::msg`].
pub(super) const OWN: &str = "own";
/// The path from these directories to the namespace's directory.
pub(super) const TO_NAMESPACE: &str = "../";

/// The bytes that a tmpfs directory counts in its size for each entry, `.` and `..` included (`BOGO_DIRENT_SIZE`).
const TMPFS_ENTRY: u64 = 20;

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

    /// Returns the names of all POSIX queues, in the order of their bytes.
    ///
    /// # Errors
    /// The errors of opening the namespace; `NotAccessible` if the caller may not list it.
    pub(crate) fn queue_names(&self) -> Result<Vec<QueueName>, NamespaceError> {
        let mut names = Vec::new();
        for_each_queue(&self.queues()?, |_, name| {
            names.push(name);
            Ok(())
        })?;
        names.sort_unstable();
        Ok(names)
    }

    /// Returns the result of lstat(2) for the name of a queue, without its slash.
    pub(crate) fn look_up(&self, name: &OsStr) -> Option<fs::Stat> {
        fs::lstat(self.path().join(POSIX).join(name)).ok()
    }

    /// Returns the stamp of the directory of POSIX queues. None if it can't be inspected. The directory is not checked.
    pub(crate) fn queues_stamp(&self) -> Option<Stamp> {
        let stat = fs::lstat(self.path().join(POSIX)).ok()?;
        Some(Stamp::of(&stat))
    }

    /// Returns whether the name of a queue is free. The check costs one system call. The directory is not checked: a caller that creates the queue
    /// checks it.
    pub(crate) fn is_free(&self, name: &QueueName) -> bool {
        let path = self.path().join(POSIX).join(name.as_os_str());
        fs::lstat(path).is_err_and(|error| error == Errno::NOENT)
    }

    /// Returns the names of all rings, in the order of their bytes. There are none if the namespace has no trusted directory of rings.
    ///
    /// # Errors
    /// The errors of [`queue_names`](Self::queue_names).
    pub(crate) fn ring_names(&self) -> Result<Vec<QueueName>, NamespaceError> {
        let mut names = Vec::new();
        if let Ok(rings) = self.queues_of(RINGS) {
            for_each_queue(&rings, |_, name| {
                names.push(name);
                Ok(())
            })?;
        }
        names.sort_unstable();
        Ok(names)
    }

    /// Returns the names of all POSIX queues, each with the inode number of its file, in the order of their bytes. No queue is opened.
    ///
    /// # Errors
    /// The errors of [`queue_names`](Self::queue_names).
    pub(crate) fn queue_files(&self) -> Result<Vec<(QueueName, u64)>, NamespaceError> {
        files_of(&self.queues()?)
    }

    /// Returns the names of all rings as [`queue_files`](Self::queue_files) does. There are none if the namespace has no trusted directory of rings.
    ///
    /// # Errors
    /// The errors of [`queue_names`](Self::queue_names).
    pub(crate) fn ring_files(&self) -> Result<Vec<(QueueName, u64)>, NamespaceError> {
        self.queues_of(RINGS)
            .map_or(Ok(Vec::new()), |rings| files_of(&rings))
    }

    /// Removes a user's sockets whose names begin with `prefix` from the directory of rings, if the caller has the permission.
    ///
    /// Other entries stay: unlink(2) waits for the lock of a file, which the file's owner may hold without limit.
    pub(crate) fn remove_sockets_of_rings(&self, prefix: &str, owner: u32) {
        let Ok(rings) = self.queues_of(RINGS) else {
            return;
        };
        let _ = for_each_entry(&rings, |entry, _| {
            let name = entry.file_name().to_bytes();
            if name.starts_with(prefix.as_bytes()) {
                let (at, path) = rings.locate(OsStr::from_bytes(name));
                // No other user can replace the owner's socket before the unlink: the directory belongs to the owner, or is sticky.
                let is_socket = |stat: &fs::Stat| {
                    FileType::from_raw_mode(stat.st_mode) == FileType::Socket
                        && stat.st_uid == owner
                };
                if matches!(fs::statat(at, &path, AtFlags::SYMLINK_NOFOLLOW), Ok(stat) if is_socket(&stat))
                {
                    let _ = fs::unlinkat(at, &path, AtFlags::empty());
                }
            }
            Ok(())
        });
    }

    /// Returns the memory that queues of both kinds and rings occupy now, in bytes: the allocated memory, not the declared one.
    /// [`Limits::max_bytes`](crate::Limits::max_bytes) limits it.
    ///
    /// ```
    /// # let dir = tempfile::tempdir_in("/dev/shm")?;
    /// # let namespace = umsg::Namespace::at(dir.path())?;
    /// # let queue = umsg::posix::OpenOptions::new().read(true).write(true).create(true).namespace(&namespace).open("/q")?;
    /// let before = namespace.allocated_bytes()?;
    /// queue.send(&[7; 8192], 0)?;
    /// assert!(namespace.allocated_bytes()? > before);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// The errors of opening the namespace; `NotAccessible` if the caller may not list it.
    pub fn allocated_bytes(&self) -> Result<u64, NamespaceError> {
        let mut bytes = allocated_in(&self.queues()?)?;
        // A namespace of a version before rings has no directory for them.
        if let Ok(rings) = self.queues_of(RINGS) {
            bytes = bytes.saturating_add(allocated_in(&rings)?);
        }
        Ok(bytes.saturating_add(self.msg_allocated_bytes()?))
    }
}

/// Returns whether a directory that was just opened has fewer than `max_queues` POSIX queues. In a tmpfs, the size of the directory mostly decides.
/// If not, the function reads all entries.
pub(super) fn has_room_for_a_queue(
    queues: &Directory,
    max_queues: u32,
) -> Result<bool, NamespaceError> {
    if most_entries_when_opened(queues).is_some_and(|most| most < u64::from(max_queues)) {
        return Ok(true);
    }
    Ok((count(queues)? as u64) < u64::from(max_queues))
}

fn count(queues: &Directory) -> Result<usize, NamespaceError> {
    let mut count = 0;
    for_each_queue(queues, |_, _| {
        count += 1;
        Ok(())
    })?;
    Ok(count)
}

/// Returns the number of queues in the namespace at `path`, regardless of its owner.
pub(super) fn count_below(path: &Path) -> Result<usize, NamespaceError> {
    let posix = count(&Directory::open(&path.join(POSIX))?)?;
    // A namespace of a version before System V queues has no directory for them.
    Ok(posix + super::msg::count_below(path).unwrap_or(0))
}

/// Returns the memory of all files of a directory, in bytes.
fn allocated_in(queues: &Directory) -> Result<u64, NamespaceError> {
    let mut bytes = 0u64;
    for_each_queue(queues, |queues, name| {
        bytes = bytes.saturating_add(allocated(queues, name.as_os_str())?);
        Ok(())
    })?;
    Ok(bytes)
}

/// Returns the memory of a file, in bytes. 0 if no file has that name.
pub(super) fn allocated(queues: &Directory, name: &OsStr) -> Result<u64, NamespaceError> {
    let (at, path) = queues.locate(name);
    match fs::statat(at, &path, AtFlags::SYMLINK_NOFOLLOW) {
        // The file of a queue that is removed at its last close.
        Ok(stat) if FileType::from_raw_mode(stat.st_mode) == FileType::Directory => {
            Ok(transient::file_of(queues, name).map_or(0, |stat| bytes_of(&stat)))
        }
        Ok(stat) => Ok(bytes_of(&stat)),
        Err(Errno::NOENT) => Ok(0), // unlinked meanwhile
        Err(e) => Err(NamespaceError::looking("stat", queues.path(), e)),
    }
}

fn bytes_of(stat: &fs::Stat) -> u64 {
    let blocks = u64::try_from(stat.st_blocks).unwrap_or(0);
    blocks.saturating_mul(512)
}

/// Returns an upper bound on the number of entries, if the file system offers one without a listing. In a tmpfs, the bound is exact, except that it
/// includes `.` and `..`.
pub(super) fn most_entries(queues: &Directory) -> Option<u64> {
    let (at, here) = queues.locate("");
    let stat = fs::statat(at, &here, AtFlags::EMPTY_PATH).ok()?;
    is_in_tmpfs(at).ok()?.then(|| entries_of(&stat))
}

/// Does the same as [`most_entries`] for a directory that was opened a moment ago.
fn most_entries_when_opened(queues: &Directory) -> Option<u64> {
    let (at, _) = queues.locate("");
    is_in_tmpfs(at).ok()?.then(|| entries_of(queues.stat()))
}

fn entries_of(tmpfs_directory: &fs::Stat) -> u64 {
    u64::try_from(tmpfs_directory.st_size).unwrap_or(0) / TMPFS_ENTRY
}

/// Returns the result of lstat(2) for the file of a POSIX queue. The file bears the queue's name, or lies in a directory of that name (see
/// `transient/`).
pub(super) fn file_of_queue(queues: &Directory, name: &OsStr) -> Option<fs::Stat> {
    let (at, path) = queues.locate(name);
    let stat = fs::statat(at, &path, AtFlags::SYMLINK_NOFOLLOW).ok()?;
    match FileType::from_raw_mode(stat.st_mode) {
        FileType::RegularFile => Some(stat),
        FileType::Directory => transient::file_of(queues, name),
        _ => None,
    }
}

/// Returns the names of all queues of a directory, each with the inode number of its file, in the order of their bytes.
fn files_of(queues: &Directory) -> Result<Vec<(QueueName, u64)>, NamespaceError> {
    let mut files = Vec::new();
    for_each_queue_file(queues, |name, inode| {
        files.push((name, inode));
        Ok(())
    })?;
    files.sort_unstable();
    Ok(files)
}

/// Calls `visit` with each regular file in the directory, and with each directory that holds a POSIX queue.
pub(super) fn for_each_queue(
    queues: &Directory,
    mut visit: impl FnMut(&Directory, QueueName) -> Result<(), NamespaceError>,
) -> Result<(), NamespaceError> {
    for_each_queue_file(queues, |name, _| visit(queues, name))
}

/// Does the same as [`for_each_queue`], and also passes the inode number of the file.
fn for_each_queue_file(
    queues: &Directory,
    mut visit: impl FnMut(QueueName, u64) -> Result<(), NamespaceError>,
) -> Result<(), NamespaceError> {
    let may_go = queues.path().ends_with(POSIX);
    for_each_entry(queues, |entry, is_file| {
        let name = OsStr::from_bytes(entry.file_name().to_bytes());
        let transient = || {
            let may_be = may_go
                && matches!(entry.file_type(), FileType::Directory | FileType::Unknown)
                && !matches!(name.as_bytes(), b"." | b"..");
            let stat = may_be.then(|| transient::file_of(queues, name))?;
            stat.map(|stat| stat.st_ino)
        };
        match is_file.then_some(entry.ino()).or_else(transient) {
            Some(inode) => visit(QueueName::of_entry(entry.file_name()), inode),
            None => Ok(()),
        }
    })
}

/// Calls `visit` with the entry of each regular file in the directory.
pub(super) fn for_each_file(
    queues: &Directory,
    mut visit: impl FnMut(&DirEntry) -> Result<(), NamespaceError>,
) -> Result<(), NamespaceError> {
    for_each_entry(queues, |entry, is_file| match is_file {
        true => visit(entry),
        false => Ok(()),
    })
}

/// Calls `visit` with each entry of the directory, and whether it is a regular file.
pub(super) fn for_each_entry(
    queues: &Directory,
    visit: impl FnMut(&DirEntry, bool) -> Result<(), NamespaceError>,
) -> Result<(), NamespaceError> {
    for_first_entries(queues, usize::MAX, visit)
}

/// Does the same as [`for_each_entry`], for at most that number of entries.
pub(super) fn for_first_entries(
    queues: &Directory,
    most: usize,
    mut visit: impl FnMut(&DirEntry, bool) -> Result<(), NamespaceError>,
) -> Result<(), NamespaceError> {
    let refuse = |e| NamespaceError::looking("open", queues.path(), e);
    let (at, here) = queues.locate(".");
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let listing = fs::openat(at, &here, flags, Mode::empty()).and_then(Dir::new);
    for entry in listing.map_err(refuse)?.take(most) {
        let entry = entry.map_err(refuse)?;
        visit(&entry, is_regular(queues, &entry))?;
    }
    Ok(())
}

fn is_regular(queues: &Directory, entry: &DirEntry) -> bool {
    if entry.file_type() != FileType::Unknown {
        return entry.file_type() == FileType::RegularFile;
    }
    let (at, path) = queues.locate(OsStr::from_bytes(entry.file_name().to_bytes()));
    fs::statat(at, &path, AtFlags::SYMLINK_NOFOLLOW)
        .is_ok_and(|stat| FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile)
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

    #[test]
    fn a_dead_rings_sockets_are_removed_and_what_others_put_beside_them_stays() {
        let dir = TestDir::shared();
        let namespace = dir.namespace();
        let at = |name: &str| dir.path().join(RINGS).join(name);
        let bind = |name: &str| drop(std::os::unix::net::UnixDatagram::bind(at(name)).unwrap());
        bind(".bell-5-a");
        bind(".bell-55-a");
        std::fs::write(at(".bell-5-file"), b"").unwrap();
        fs::mkfifoat(fs::CWD, at(".bell-5-fifo"), Mode::RWXU).unwrap();
        let caller = crate::namespace::caller();
        namespace.remove_sockets_of_rings(".bell-5-", caller + 1);
        assert!(at(".bell-5-a").exists());
        namespace.remove_sockets_of_rings(".bell-5-", caller);
        assert!(!at(".bell-5-a").exists());
        for stays in [".bell-55-a", ".bell-5-file", ".bell-5-fifo"] {
            assert!(at(stays).exists(), "{stays}");
        }
    }

    #[test]
    fn regular_files_and_nothing_else_are_listed_and_counted_in_order() {
        let dir = TestDir::new();
        let namespace = dir.namespace();
        for file in ["b", "a", ".tmp-1", "..."] {
            std::fs::write(dir.queue(file), b"").unwrap();
        }
        std::fs::create_dir(dir.queue("directory")).unwrap();
        std::os::unix::fs::symlink("a", dir.queue("link")).unwrap();
        let names = namespace.queue_names().unwrap();
        let shown: Vec<_> = names.iter().map(QueueName::to_string).collect();
        assert_eq!(shown, ["/...", "/.tmp-1", "/a", "/b"]);
        assert_eq!(namespace.queue_names().unwrap().len(), 4);
    }

    #[test]
    fn there_is_room_until_the_last_queue_is_made_whatever_else_lies_there() {
        let dir = TestDir::new();
        let namespace = dir.namespace();
        for file in 0..5 {
            std::fs::write(dir.queue(&file.to_string()), b"").unwrap();
        }
        std::fs::create_dir(dir.queue("directory")).unwrap();
        let room: Vec<_> = [0, 5, 6, 7, 8, 100]
            .into_iter()
            .map(|max| has_room_for_a_queue(&namespace.queues().unwrap(), max).unwrap())
            .collect();
        assert_eq!(room, [false, false, true, true, true, true]);
    }

    #[test]
    fn the_size_of_a_tmpfs_directory_bounds_its_entries() {
        let dir = TestDir::new();
        dir.namespace();
        for file in 0..5 {
            std::fs::write(dir.queue(&file.to_string()), b"").unwrap();
        }
        let most = most_entries(&Directory::open(&queues(&dir)).unwrap());
        assert_eq!(most, Some(7));
    }

    #[test]
    fn bytes_are_counted_when_they_are_used_not_when_they_are_declared() {
        let dir = TestDir::new();
        let namespace = dir.namespace();
        std::fs::write(dir.queue("used"), [1; 10_000]).unwrap();
        std::fs::File::create(dir.queue("declared"))
            .unwrap()
            .set_len(1 << 30)
            .unwrap();
        let bytes = namespace.allocated_bytes().unwrap();
        assert!((10_000..1 << 20).contains(&bytes), "{bytes}");
    }
}
