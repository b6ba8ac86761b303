//! The count of changes of a namespace's System V queues and of its limits, in a page that processes map.
//!
//! A process that keeps data of a namespace ([`crate::sysv`], `scan.rs`) compares the directory and the record by lstat(2)
//! before it uses the data again. This comparison takes ten times as long as the kernel's IPC_INFO. With the count, one load shows that there was
//! no change:
//!
//! | a process that changes a queue's name or the limits | a process that uses kept data |
//! |---|---|
//! | the change, by a system call | load the count (Acquire) |
//! | add one to the count (Release) | is it the same as at the last comparison, and was that comparison not long ago? Then use the data |
//! | return to the caller | otherwise compare by lstat(2), and keep the count that was loaded before |
//!
//! A reader that sees the new count sees the change. A process that dies between the two steps, and a change by other means (rm, or a file that is
//! replaced), leave the count as it is. So a process relies on a count for the time [`BELIEVED`] only.
//!
//! In the page, announcements follow the count. A process announces there that it changes the numbers of messages and bytes of a queue: see
//! `sysv_engine/counted.rs` in `umsg-shm`. A process that keeps the sums over all queues relies on them for the time [`BELIEVED`], too.
//!
//! The file `.changes` has one page. Its first word is the count, which may overflow. The announcements begin at byte 64. The file belongs to the
//! owner of the directory. Only this owner and root may open it. If other users may create files in the namespace, there is no count, because these
//! users could set the count back.

use std::ffi::{CStr, OsStr};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use rustix::fs::{self, FileType, Mode, OFlags};
use rustix::io::{self, Errno};
use rustix::path::Arg;
use umsg_shm::announcements::Announcements;
use umsg_shm::memory::{ANNOUNCEMENTS, View};
use umsg_shm::sys::clock;
use umsg_shm::sys::stack::roomy;

use super::directory::Directory;
use super::queues::SYSV;
use super::staged::Staged;
use super::{INDICES, Namespace, Stamp, caller};

pub(super) const NAME: &str = ".changes";

/// Only the owner has access to the file.
const MODE: u32 = 0o600;

const SIZE: usize = 4096;

/// The time for which a process relies on a comparison, in nanoseconds of CLOCK_MONOTONIC_COARSE, which advances in steps of 1 to 10 ms.
pub(crate) const BELIEVED: u64 = 10_000_000;

/// A process that has found no count searches for a count again after this time, in nanoseconds.
const AGAIN: u64 = 1_000_000_000;

/// The count that was used last. None if this process keeps no count.
static LAST: Mutex<Option<Arc<Changes>>> = Mutex::new(None);

/// The page of the first namespace in which this process has announced changes of queues while [`LAST`] had no count of that namespace.
static ANNOUNCED: Mutex<Option<(Arc<Path>, View)>> = Mutex::new(None);

/// The time before which a reader does not search for a count.
static NOT_BEFORE: AtomicU64 = AtomicU64::new(0);

/// A comparison with the files of a namespace. For a while, no further comparison is needed if the count stays the same.
#[derive(Debug)]
pub(crate) struct Watch {
    changes: Arc<Changes>,
    /// The count before the comparison.
    count: u32,
    /// The time of [`clock::monotonic_coarse`] before the comparison.
    since: u64,
}

impl Watch {
    /// Begins a comparison. The caller calls this before it compares. None if the namespace has no count.
    pub(crate) fn begin(namespace: &Namespace) -> Option<Watch> {
        let changes = namespace.changes()?;
        let (count, since) = (changes.count()?, clock::monotonic_coarse());
        Some(Watch {
            changes,
            count,
            since,
        })
    }

    /// Returns whether the caller can rely on the comparison: the compared files are assumed to be unchanged.
    pub(crate) fn holds(&self, namespace: &Namespace) -> bool {
        self.changes.count() == Some(self.count)
            // The subtraction wraps around: a child in another time namespace may have an earlier clock.
            && clock::monotonic_coarse().wrapping_sub(self.since) < BELIEVED
            && self.changes.is_of(namespace)
    }

    /// Returns the announcements, as [`Changes::announcements`] does.
    pub(crate) fn announcements(&self) -> &Announcements {
        self.changes.announcements()
    }

    /// Returns whether the count belongs to this directory, as [`Changes::is_of_directory`] does.
    pub(crate) fn is_of_directory(&self, queues: &Stamp) -> bool {
        self.changes.is_of_directory(queues)
    }
}

/// The count of changes of a namespace, in its mapped page.
#[derive(Debug)]
pub(crate) struct Changes {
    namespace: PathBuf,
    /// The device and the inode of the directory of System V queues.
    queues: (u64, u64),
    view: View,
}

impl Changes {
    /// Returns the count; None if its file was truncated.
    pub(crate) fn count(&self) -> Option<u32> {
        self.view.count()
    }

    /// Returns the part of the page in which processes announce changes of the numbers in queues.
    pub(crate) fn announcements(&self) -> &Announcements {
        self.view.announcements()
    }

    /// Returns whether this is the count of `namespace`.
    pub(crate) fn is_of(&self, namespace: &Namespace) -> bool {
        self.namespace == namespace.path()
    }

    /// Returns whether the count is that of this directory, and other users may not create files in the directory.
    pub(crate) fn is_of_directory(&self, queues: &Stamp) -> bool {
        queues.identity() == self.queues && !queues.is_open_to_others()
    }

    /// Adds one for a change, and returns the previous count; None if the file was truncated.
    pub(crate) fn add_one(&self) -> Option<u32> {
        self.count()?;
        Some(self.view.add_one())
    }

    fn of(queues: &Directory, make: bool) -> Option<Arc<Changes>> {
        let namespace = queues.path().parent()?;
        let file = match open(queues) {
            None if make => {
                create(namespace)?;
                open(queues)?
            }
            found => found?,
        };
        let view = View::map(file.as_fd()).ok()?;
        let changes = Arc::new(Changes {
            namespace: namespace.to_owned(),
            queues: queues.identity(),
            view,
        });
        if let Ok(mut last) = LAST.try_lock() {
            *last = Some(Arc::clone(&changes));
        }
        Some(changes)
    }
}

fn last(is_right: impl FnOnce(&Changes) -> bool) -> Option<Arc<Changes>> {
    let last = LAST.try_lock().ok()?;
    last.clone()
        .filter(|changes| is_right(changes) && changes.count().is_some())
}

/// Counts a change of the names of System V queues. The first change creates the file of the count.
pub(super) fn note(queues: &Directory) {
    add_one(queues, true);
}

impl Namespace {
    /// Counts a change of the namespace's System V queues, if the namespace has a count.
    pub(crate) fn note_change(&self) {
        note_limits(self.path());
    }
}

/// Counts a change of the limits of the namespace at a path, if there is a count.
pub(super) fn note_limits(namespace: &Path) {
    if let Ok(queues) = Directory::look(&namespace.join(SYSV)) {
        add_one(&queues, false);
    }
}

fn add_one(queues: &Directory, make: bool) {
    if queues.open_to_others() {
        return;
    }
    if caller() != queues.owner() {
        if let Some(file) = open(queues) {
            add_from_outside(&file, 0);
        }
        return;
    }
    let known = last(|changes| changes.queues == queues.identity());
    if let Some(changes) = known.or_else(|| Changes::of(queues, make)) {
        changes.view.add_one();
    }
}

/// Adds one to a count, for root in another user's namespace. The function does not map the file, because that user could truncate it. If two
/// processes add at once, one addition may be lost, as when a process dies.
fn add_from_outside(file: &OwnedFd, at: usize) {
    let mut count = [0; size_of::<u32>()];
    if io::pread(file, &mut count, at as u64).is_ok() {
        let next = u32::from_ne_bytes(count).wrapping_add(1);
        // If the write fails, other processes learn of the change when the time [`BELIEVED`] is over.
        let _ = io::pwrite(file, &next.to_ne_bytes(), at as u64);
    }
}

/// Announces that the numbers of messages and bytes of the queue `id` may change. The caller holds the queue's lock, and may be a signal handler, so
/// this function does not call malloc.
pub(super) fn announce_counts(namespace: &Namespace, id: i32) {
    let index = id as u32 % INDICES;
    if let Ok(last) = LAST.try_lock()
        && let Some(changes) = last.as_ref()
        && changes.is_of(namespace)
    {
        changes.announcements().announce(index);
        return;
    }
    let mut kept = ANNOUNCED.try_lock().ok();
    match kept.as_deref_mut() {
        Some(Some((path, view))) if **path == *namespace.path() => {
            view.announcements().announce(index);
        }
        kept => roomy(|| announce_in_file(namespace, index, kept)),
    }
}

/// Announces, through the file `.changes`, that the numbers in a queue may change. For the first namespace, the page of the file stays mapped.
fn announce_in_file(
    namespace: &Namespace,
    index: u32,
    kept: Option<&mut Option<(Arc<Path>, View)>>,
) {
    let Some(file) = open_for_counts(namespace) else {
        return;
    };
    if caller() != namespace.owner() {
        // Here, root announces in another user's namespace, and does not map the file. The announcement does not name the queue, so other processes
        // read all queues again.
        return add_from_outside(&file, ANNOUNCEMENTS);
    }
    let Ok(view) = View::map(file.as_fd()) else {
        return;
    };
    view.announcements().announce(index);
    if let Some(none @ None) = kept {
        *none = Some((Arc::clone(&namespace.path), view));
    }
}

/// Opens the file `.changes`, if it belongs to the owner of the namespace.
fn open_for_counts(namespace: &Namespace) -> Option<OwnedFd> {
    let mut path = [0; libc::PATH_MAX as usize];
    let parts = [
        namespace.path().as_os_str().as_bytes(),
        b"/",
        NAME.as_bytes(),
    ];
    let mut rest = path.as_mut_slice();
    for part in parts {
        let (here, beyond) = rest.split_at_mut_checked(part.len())?;
        here.copy_from_slice(part);
        rest = beyond;
    }
    let path = CStr::from_bytes_until_nul(&path).ok()?;
    open_path(path, namespace.owner())
}

impl Namespace {
    /// Creates the count of changes, if the namespace can have one. For a caller that will use the count repeatedly.
    pub(crate) fn begin_count_of_changes(&self) {
        let queues = Directory::look(&self.path().join(SYSV)).ok();
        let own = queues.filter(|queues| !queues.open_to_others() && queues.owner() == caller());
        if let Some(queues) = own {
            Changes::of(&queues, true);
        }
    }

    /// Returns the count of changes; None if the namespace has none.
    pub(crate) fn changes(&self) -> Option<Arc<Changes>> {
        if let Some(changes) = last(|changes| changes.is_of(self)) {
            return Some(changes);
        }
        let now = clock::monotonic_coarse();
        // Relaxed: at worst, two threads search for the count at the same time.
        if now < NOT_BEFORE.load(Ordering::Relaxed) {
            return None;
        }
        NOT_BEFORE.store(now + AGAIN, Ordering::Relaxed);
        let is_private = |path: &Path| {
            Directory::look(path)
                .ok()
                .filter(|directory| !directory.open_to_others())
        };
        is_private(self.path())?;
        let queues = is_private(&self.path().join(SYSV))?;
        (queues.owner() == caller())
            .then(|| Changes::of(&queues, false))
            .flatten()
    }
}

/// Opens the file of the count beside a directory of System V queues, if the owner of the directory made it.
fn open(queues: &Directory) -> Option<OwnedFd> {
    open_path(queues.path().parent()?.join(NAME), queues.owner())
}

fn open_path(path: impl Arg, owner: u32) -> Option<OwnedFd> {
    let flags = OFlags::RDWR | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = fs::open(path, flags, Mode::empty()).ok()?;
    let stat = fs::fstat(&file).ok()?;
    let is_file = FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile;
    let is_private = stat.st_mode & 0o077 == 0 && stat.st_uid == owner;
    let is_whole = stat.st_size >= SIZE as i64 && stat.st_nlink == 1;
    (is_file && is_private && is_whole).then_some(file)
}

/// Makes the file of the count, unless it exists.
fn create(namespace: &Path) -> Option<()> {
    let mut directory = Directory::open(namespace).ok()?;
    if directory.open_to_others() || directory.owner() != caller() {
        return None;
    }
    let staged = Staged::create(&mut directory, "", MODE).ok()?;
    // The file is written, so that it has memory: otherwise a store to its page would raise SIGBUS if the system had no memory for it.
    if io::write(staged.file(), &[0; SIZE]) != Ok(SIZE) {
        staged.discard(&directory);
        return None;
    }
    match staged.link(&directory, OsStr::new(NAME)) {
        Ok(_) | Err(Errno::EXIST) => Some(()),
        Err(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Limits;
    use crate::namespace::KeySymlink;
    use crate::namespace::testing::{STRANGER, TestDir, chown, mode};

    fn count(dir: &TestDir) -> u32 {
        let bytes = std::fs::read(dir.path().join(NAME)).unwrap();
        assert_eq!(bytes.len(), SIZE);
        u32::from_ne_bytes(bytes[..4].try_into().unwrap())
    }

    #[test]
    fn each_name_that_is_made_or_removed_is_counted_and_each_change_of_the_limits() {
        let dir = TestDir::new();
        let namespace = dir.namespace();
        let files = namespace.msg_files().unwrap();
        files.put_key_symlink("p-7", KeySymlink::Of(7)).unwrap();
        assert_eq!(count(&dir), 1);
        assert_eq!(mode(&dir.path().join(NAME)), MODE);
        assert!(files.take_key_symlink("p-7", caller()));
        assert_eq!(count(&dir), 2);
        assert!(
            files.put_key_symlink("p-8", KeySymlink::Of(8)).is_ok()
                && files.put_key_symlink("p-8", KeySymlink::Of(8)).is_err()
        );
        assert_eq!(count(&dir), 3, "only a change counts");
        namespace.set_limits(&Limits::default()).unwrap();
        assert_eq!(count(&dir), 4);
    }

    #[test]
    fn a_count_that_another_user_could_write_or_that_is_cut_off_or_has_a_second_name_is_none() {
        let dir = TestDir::new();
        let path = dir.path().join(NAME);
        dir.namespace();
        let queues = Directory::look(&dir.path().join(SYSV)).unwrap();
        std::fs::write(&path, [0; SIZE]).unwrap();
        assert!(open(&queues).is_none(), "readable by others");
        fs::chmod(&path, Mode::from_raw_mode(MODE)).unwrap();
        assert!(open(&queues).is_some());
        std::fs::hard_link(&path, dir.path().join("second")).unwrap();
        assert!(open(&queues).is_none(), "two names");
        std::fs::remove_file(dir.path().join("second")).unwrap();
        std::fs::write(&path, [0; 100]).unwrap();
        assert!(open(&queues).is_none(), "too short");
    }

    #[test]
    fn root_counts_changes_in_the_namespace_of_a_user_and_maps_nothing() {
        umsg_testkit::needs_root!();
        let dir = TestDir::new();
        let namespace = dir.namespace();
        for path in ["", SYSV] {
            chown(&dir.path().join(path), STRANGER);
        }
        let path = dir.path().join(NAME);
        std::fs::write(&path, [0; SIZE]).unwrap();
        fs::chmod(&path, Mode::from_raw_mode(MODE)).unwrap();
        chown(&path, STRANGER);
        note(&Directory::look(&dir.path().join(SYSV)).unwrap());
        assert_eq!(count(&dir), 1);
        assert!(namespace.changes().is_none());
    }

    #[test]
    fn a_namespace_of_all_users_has_no_count() {
        let dir = TestDir::shared();
        let namespace = dir.namespace();
        let files = namespace.msg_files().unwrap();
        files.put_key_symlink("p-7", KeySymlink::Of(7)).unwrap();
        assert!(!dir.path().join(NAME).exists() && namespace.changes().is_none());
    }
}
