//! Diagnosis and repair of a queue.

use super::error::OpenError;
use super::registry::{Behind, behind, entry_of, key_symlink_with, open_id};
use crate::diagnosis::sysv::IdAndKey;
use crate::diagnosis::{self, Diagnosis, Repaired};
use crate::error;
use crate::namespace::{Entry, Files, Namespace, key_symlink_name};
use rustix::fd::{AsFd, BorrowedFd};

/// Examines the queue of a key, as [`posix::diagnose`](crate::posix::diagnose) does. The call takes no lock and changes nothing. The queue may be so
/// corrupted that it can't be opened.
///
/// ```
/// # let dir = tempfile::tempdir_in("/dev/shm")?;
/// # let namespace = umsg::Namespace::at(dir.path())?;
/// # let queue = umsg::sysv::OpenOptions::new().create(true).namespace(&namespace).open(1)?;
/// assert!(umsg::sysv::diagnose(&namespace, 1)?.is_healthy());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Blocking
/// Blocks as [`posix::diagnose`](crate::posix::diagnose) does.
///
/// # Errors
/// The errors of [`OpenOptions::open`](super::OpenOptions::open) for an existing queue, without
/// [`SegmentError::Damaged`](crate::SegmentError::Damaged). `NotAQueue` if too little of the header is left for a diagnosis.
pub fn diagnose(namespace: &Namespace, key: i32) -> Result<Diagnosis, OpenError> {
    of_key(namespace, key, diagnosis::sysv::examine)
}

/// Examines the queue with an identifier, as [`diagnose`] does.
///
/// ```
/// # let dir = tempfile::tempdir_in("/dev/shm")?;
/// # let namespace = umsg::Namespace::at(dir.path())?;
/// # let queue = umsg::sysv::OpenOptions::new().create(true).namespace(&namespace).open(1)?;
/// assert!(umsg::sysv::diagnose_id(&namespace, queue.id())?.is_healthy());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// The errors of [`diagnose`]; [`OpenError::NoSuchId`].
pub fn diagnose_id(namespace: &Namespace, id: i32) -> Result<Diagnosis, OpenError> {
    of_id(namespace, id, diagnosis::sysv::examine)
}

/// Repairs the queue of a key, as [`posix::repair`](crate::posix::repair) does. A blocked sender whose parked message is corrupted sends the
/// message again.
///
/// ```
/// # let dir = tempfile::tempdir_in("/dev/shm")?;
/// # let namespace = umsg::Namespace::at(dir.path())?;
/// # let queue = umsg::sysv::OpenOptions::new().create(true).namespace(&namespace).open(1)?;
/// assert!(umsg::sysv::repair(&namespace, 1)?.after.is_healthy());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Blocking
/// Blocks as [`posix::repair`](crate::posix::repair) does.
///
/// # Errors
/// The errors of [`diagnose`].
///
/// # If the process dies
/// The death of the process has the same effect as for [`posix::repair`](crate::posix::repair).
pub fn repair(namespace: &Namespace, key: i32) -> Result<Repaired, OpenError> {
    of_key(namespace, key, diagnosis::sysv::mend)
}

/// Repairs the queue with an identifier, as [`repair`] does.
///
/// ```
/// # let dir = tempfile::tempdir_in("/dev/shm")?;
/// # let namespace = umsg::Namespace::at(dir.path())?;
/// # let queue = umsg::sysv::OpenOptions::new().create(true).namespace(&namespace).open(1)?;
/// assert!(umsg::sysv::repair_id(&namespace, queue.id())?.after.is_healthy());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// The errors of [`repair`]; [`OpenError::NoSuchId`].
pub fn repair_id(namespace: &Namespace, id: i32) -> Result<Repaired, OpenError> {
    of_id(namespace, id, diagnosis::sysv::mend)
}

/// A function that diagnoses or repairs the queue in a file.
type Treat<T> = fn(BorrowedFd<'_>, &Namespace, IdAndKey) -> Result<T, error::OpenError>;

fn of_key<T>(namespace: &Namespace, key: i32, treat: Treat<T>) -> Result<T, OpenError> {
    let mut files = namespace.msg_files()?;
    let link = files.key_symlink(&key_symlink_name(key, 0))?;
    let link = Entry::of(link, key).ok_or(OpenError::NotFound)?;
    match of_key_symlink(&mut files, namespace, &link, treat) {
        Err(OpenError::NoSuchId) => Err(OpenError::NotFound),
        other => other,
    }
}

fn of_id<T>(namespace: &Namespace, id: i32, treat: Treat<T>) -> Result<T, OpenError> {
    let mut files = namespace.msg_files()?;
    let link = match open_id(&mut files, id) {
        // If several queues have used the segment, the key symlink has the identifier of the first queue. Only the header has the identifier of the
        // present queue.
        Ok((_, said)) => entry_of(&files, &said)?,
        Err(_) => key_symlink_with(&files, id)?,
    };
    let link = link.ok_or(OpenError::NoSuchId)?;
    of_key_symlink(&mut files, namespace, &link, treat)
}

fn of_key_symlink<T>(
    files: &mut Files,
    namespace: &Namespace,
    link: &Entry,
    treat: Treat<T>,
) -> Result<T, OpenError> {
    let (file, id) = match behind(files, link)? {
        Behind::Nothing | Behind::Vacant(_) => return Err(OpenError::NoSuchId),
        Behind::Closed => return Err(OpenError::PermissionDenied),
        Behind::Queue(file, said) => (file, said.id),
        Behind::Unusable(file, _) => (file, link.id),
    };
    let key = link.key;
    match treat(file.as_fd(), namespace, IdAndKey { id, key }) {
        Err(error::OpenError::NotFound) => Err(OpenError::NoSuchId),
        other => Ok(other?),
    }
}
