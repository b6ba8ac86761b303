//! The labels that name dead-letter queues: symbolic links in the namespace's directory, `.dead-INODE-NUMBER`.
//!
//! ```text
//! .dead-00000000000004d2-8c1f0e5b7a3d9246 -> mq/failed      of the user that owns the queue's file
//!       inode of that file, number in its segment
//! ```
//!
//! Every process that may write to a queue's file can write any name into its segment. A receiver that trusted this name would send messages with its
//! own rights to a queue that the writer chose. So the segment holds only a number, and the text of a link holds the name. The text of a link never
//! changes, and its owner is the user that made it.
//!
//! | the link | is it trusted? |
//! |---|---|
//! | belongs to the owner of the queue's file, and bears the inode of that file | yes |
//! | belongs to another user: forged, or the queue's file has another owner by now | no |
//! | bears the inode of another file: it belongs to another queue | no; the caller reads the inode itself, so a writer of the segment can choose only the number |
//! | is missing: removed, or the number was overwritten | no |
//!
//! **If a process dies** after it has made the label, and before the queue has its name, the label stays until a call of
//! [`Namespace::remove_left_labels`]. The call removes the labels without a queue that are older than [`YOUNG`]. Once the queue has its name, the
//! creator looks for the label. If a change of the clock made another process remove the label, the creator creates the label again.

use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::time::Duration;

use rustix::fs::{self, AtFlags, Dir, FileType, Mode, OFlags, Stat};
use rustix::io::{self, Errno};

use super::directory::Directory;
use super::entries::{file_of_queue, for_each_queue};
use super::error::NamespaceError;
use super::file_error::FileError;
use super::names::QueueName;
use super::publish::creation_error;
use super::queues::POSIX;
use super::{Namespace, caller};
use umsg_shm::sys::clock;
use umsg_shm::sys::random::random;

const PREFIX: &str = ".dead-";
/// The number of hexadecimal digits of each part of a label's name: the inode number and the label's own number.
const DIGITS: usize = 16;
/// The maximum length of a link's text that is accepted, in bytes.
const LONGEST: usize = POSIX.len() + 1 + 255;
/// A younger label without a queue may belong to a queue that is being created.
const YOUNG: Duration = Duration::from_secs(60);

/// Returns whether a file in the namespace's directory has the name of a label.
pub(super) fn is_label(name: &OsStr) -> bool {
    name.as_bytes().starts_with(PREFIX.as_bytes())
}

/// The label of a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Label {
    /// The inode number of the queue's file.
    pub(crate) inode: u64,
    /// The number that the queue's segment holds; 0 if the queue has no label.
    pub(crate) number: u64,
}

impl Label {
    fn file_name(self) -> OsString {
        let Label { inode, number } = self;
        format!("{PREFIX}{inode:0DIGITS$x}-{number:0DIGITS$x}").into()
    }

    fn parse(name: &OsStr) -> Option<Label> {
        let (inode, number) = name.to_str()?.strip_prefix(PREFIX)?.split_once('-')?;
        let label = Label {
            inode: u64::from_str_radix(inode, 16).ok()?,
            number: u64::from_str_radix(number, 16).ok()?,
        };
        (label.file_name() == name).then_some(label)
    }
}

/// A label of a queue that has no name yet. If this value is dropped before the queue is published, it removes the label.
#[derive(Debug)]
pub(crate) struct NewLabel {
    namespace: Namespace,
    label: Label,
    dead_letters: QueueName,
    /// True if the label exists and has to be removed on drop.
    is_made: bool,
}

impl NewLabel {
    /// Makes the label that names the dead-letter queue of the queue whose file has the status `file`.
    ///
    /// # Errors
    /// The errors of making a file in the namespace's directory.
    pub(crate) fn make(
        namespace: &Namespace,
        file: &Stat,
        dead_letters: &QueueName,
    ) -> Result<NewLabel, FileError> {
        let directory = Directory::open(namespace.path())?;
        loop {
            let mut new = NewLabel {
                namespace: namespace.clone(),
                label: Label {
                    inode: file.st_ino,
                    number: random(),
                },
                dead_letters: dead_letters.clone(),
                is_made: false,
            };
            match new.link(&directory) {
                Err(Errno::EXIST) => {}
                made => {
                    made.map_err(|e| creation_error("open", &directory, e))?;
                    new.is_made = true;
                    return Ok(new);
                }
            }
        }
    }

    pub(crate) fn number(&self) -> u64 {
        self.label.number
    }

    /// Keeps the label, because the queue has got its name.
    pub(crate) fn keep(mut self) {
        self.is_made = false;
        if let Ok(directory) = Directory::open(self.namespace.path()) {
            // The call usually fails with EEXIST. It succeeds if a sweep has removed the label because the creation took long.
            let _ = self.link(&directory);
        }
    }

    fn link(&self, directory: &Directory) -> io::Result<()> {
        let mut text = OsString::from(POSIX);
        text.push("/");
        text.push(self.dead_letters.as_os_str());
        let (at, path) = directory.locate(self.label.file_name());
        fs::symlinkat(&text, at, &path)
    }
}

impl Drop for NewLabel {
    fn drop(&mut self) {
        if self.is_made {
            self.namespace.remove_label(self.label);
        }
    }
}

impl Namespace {
    /// Returns the dead-letter queue that a label names. `owner` owns the queue's file, and only a label of this user is trusted. None if there is no
    /// such label.
    pub(crate) fn dead_letters(&self, label: Label, owner: u32) -> Option<QueueName> {
        let directory = Directory::open(self.path()).ok()?;
        let (at, path) = directory.locate(label.file_name());
        // The link is opened once. All further checks examine the opened link, even if its name leads to another file by then.
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let link = fs::openat(at, &path, flags, Mode::empty()).ok()?;
        let stat = fs::fstat(&link).ok()?;
        let is_link = FileType::from_raw_mode(stat.st_mode) == FileType::Symlink;
        if !is_link || stat.st_uid != owner {
            return None;
        }
        let text = fs::readlinkat(&link, "", Vec::with_capacity(LONGEST + 1)).ok()?;
        let name = text.to_bytes().strip_prefix(POSIX.as_bytes())?;
        QueueName::parse(OsStr::from_bytes(name)).ok()
    }

    /// Returns the label of a queue whose segment was overwritten. None if there is no trusted label, or more than one.
    pub(crate) fn label_of(&self, inode: u64, owner: u32) -> Option<Label> {
        let directory = Directory::open(self.path()).ok()?;
        let is_its = |label: &Label| {
            let stat = look(&directory, &label.file_name());
            label.inode == inode && stat.is_some_and(|stat| stat.st_uid == owner)
        };
        let mut found = labels(&directory).ok()?.into_iter().filter(is_its);
        found.next().filter(|_| found.next().is_none())
    }

    /// Removes a label, if it exists and the caller has the permission.
    pub(crate) fn remove_label(&self, label: Label) {
        if let Ok(directory) = Directory::open(self.path()) {
            remove(&directory, label);
        }
    }

    /// Removes those of `labels` whose queues no longer exist.
    ///
    /// # Errors
    /// Fails if the queues can't be listed.
    pub(crate) fn remove_labels_of_gone(&self, labels: &[Label]) -> Result<(), NamespaceError> {
        if labels.is_empty() {
            return Ok(());
        }
        let inodes = inodes(&self.queues()?)?;
        let gone = labels.iter().filter(|label| !inodes.contains(&label.inode));
        gone.for_each(|label| self.remove_label(*label));
        Ok(())
    }

    /// Returns the user that owns a queue's file. None if there is no such queue.
    ///
    /// # Errors
    /// The errors of the namespace.
    pub(crate) fn owner_of(&self, name: &QueueName) -> Result<Option<u32>, NamespaceError> {
        let file = file_of_queue(&self.queues()?, name.as_os_str());
        Ok(file.map(|stat| stat.st_uid))
    }

    /// Removes the labels of queues that no longer exist. Returns the number of removed labels.
    ///
    /// # Errors
    /// Fails if the namespace can't be listed.
    pub(crate) fn remove_left_labels(&self) -> Result<usize, NamespaceError> {
        let directory = Directory::open(self.path())?;
        let left = self.labels_left(&directory)?.into_iter();
        Ok(left.filter(|label| remove(&directory, *label)).count())
    }

    /// Returns the number of links that [`remove_left_labels`](Self::remove_left_labels) would remove.
    ///
    /// # Errors
    /// The errors of `remove_left_labels`.
    pub(crate) fn left_labels(&self) -> Result<usize, NamespaceError> {
        let directory = Directory::open(self.path())?;
        let is_ours = |label: &Label| {
            let owner = look(&directory, &label.file_name()).map(|stat| stat.st_uid);
            owner.is_some_and(|owner| [0, owner, self.owner()].contains(&caller()))
        };
        let left = self.labels_left(&directory)?;
        Ok(left.iter().filter(|label| is_ours(label)).count())
    }

    fn labels_left(&self, directory: &Directory) -> Result<Vec<Label>, NamespaceError> {
        let old =
            old_labels(directory).map_err(|e| NamespaceError::looking("open", self.path(), e))?;
        if old.is_empty() {
            return Ok(old);
        }
        // The queues are listed after the labels, so that a queue that got its name meanwhile is included.
        let inodes = inodes(&self.queues()?)?;
        let left = old.into_iter();
        Ok(left
            .filter(|label| !inodes.contains(&label.inode))
            .collect())
    }
}

fn remove(directory: &Directory, label: Label) -> bool {
    let (at, path) = directory.locate(label.file_name());
    fs::unlinkat(at, &path, AtFlags::empty()).is_ok()
}

/// Returns the labels that are too old to belong to a queue that is being created.
fn old_labels(directory: &Directory) -> io::Result<Vec<Label>> {
    let now = Duration::from_nanos(clock::realtime()).as_secs();
    let is_old = |stat: Stat| now.saturating_sub(stat.st_mtime as u64) >= YOUNG.as_secs();
    let mut labels = labels(directory)?;
    labels.retain(|label| look(directory, &label.file_name()).is_some_and(is_old));
    Ok(labels)
}

fn labels(directory: &Directory) -> io::Result<Vec<Label>> {
    let (at, here) = directory.locate(".");
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let mut labels = Vec::new();
    for entry in Dir::new(fs::openat(at, &here, flags, Mode::empty())?)? {
        labels.extend(Label::parse(OsStr::from_bytes(
            entry?.file_name().to_bytes(),
        )));
    }
    Ok(labels)
}

/// Returns the result of lstat(2) for a symbolic link.
fn look(directory: &Directory, name: &OsStr) -> Option<Stat> {
    let (at, path) = directory.locate(name);
    let stat = fs::statat(at, &path, AtFlags::SYMLINK_NOFOLLOW).ok()?;
    (FileType::from_raw_mode(stat.st_mode) == FileType::Symlink).then_some(stat)
}

/// Returns the inode numbers of the files of all queues.
fn inodes(queues: &Directory) -> Result<BTreeSet<u64>, NamespaceError> {
    let mut inodes = BTreeSet::new();
    for_each_queue(queues, |queues, name| {
        inodes.extend(file_of_queue(queues, name.as_os_str()).map(|stat| stat.st_ino));
        Ok(())
    })?;
    Ok(inodes)
}
