//! The entries of the directories of queues: listing and counting them, and their memory.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use rustix::fs::{self, AtFlags, Dir, DirEntry, FileType, Mode, OFlags};
use rustix::io::Errno;

use super::directory::Directory;
use super::error::NamespaceError;
use super::names::QueueName;
use super::queues::{POSIX, RINGS};
use super::stamp::Stamp;
use super::{Namespace, transient};
use umsg_shm::sys::extent::is_in_tmpfs;

/// The bytes that a tmpfs directory counts in its size for each entry, `.` and `..` included (`BOGO_DIRENT_SIZE`).
const TMPFS_ENTRY: u64 = 20;

impl Namespace {
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

    /// Returns whether the name of a queue is free. The check costs one system call. It does not check the directory: a caller that creates the queue
    /// does that.
    pub(crate) fn is_free(&self, name: &QueueName) -> bool {
        let path = self.path().join(POSIX).join(name.as_os_str());
        fs::lstat(path).is_err_and(|error| error == Errno::NOENT)
    }

    /// Returns the names of all rings, in the order of their bytes. Returns no names if the namespace has no trusted directory of rings.
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

    /// Returns the names of all rings as [`queue_files`](Self::queue_files) does. Returns no names if the namespace has no trusted directory of
    /// rings.
    ///
    /// # Errors
    /// The errors of [`queue_names`](Self::queue_names).
    pub(crate) fn ring_files(&self) -> Result<Vec<(QueueName, u64)>, NamespaceError> {
        self.queues_of(RINGS)
            .map_or(Ok(Vec::new()), |rings| files_of(&rings))
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

/// Returns whether a directory that was just opened has fewer than `max_queues` POSIX queues. In a tmpfs, the size of the directory gives an upper
/// bound on the number of queues, which usually answers the question. Otherwise the function reads all entries.
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
        // The directory of a queue that is removed at its last close: the queue's file is inside.
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

/// Does the same as [`for_each_entry`], for at most `most` entries.
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
    use crate::namespace::testing::TestDir;

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
        let most = most_entries(&Directory::open(&dir.path().join(POSIX)).unwrap());
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
