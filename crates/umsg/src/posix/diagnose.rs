//! Diagnosis and repair of a queue.

use super::dead_letter;
use crate::diagnosis::{self, Diagnosis, HoldKind, Repaired};
use crate::error::OpenError;
use crate::namespace::{FileAccess, Namespace, QueueName, presence_of};
use rustix::fd::{AsFd, BorrowedFd};
use std::ffi::OsStr;
use umsg_shm::posix_engine::segment::Seen;

/// Inspects a queue: blocked processes, the owners of its locks and whether the owners live, past repairs, and wrong bytes. The call changes nothing
/// and takes no lock. The call also inspects a queue that is too corrupted to be opened.
///
/// ```
/// # let dir = tempfile::tempdir_in("/dev/shm")?;
/// # let namespace = umsg::Namespace::at(dir.path())?;
/// # let queue = umsg::posix::OpenOptions::new().read(true).write(true).create(true).namespace(&namespace).open("/q")?;
/// let diagnosis = umsg::posix::diagnose(&namespace, "/q")?;
/// assert!(diagnosis.problems.is_empty());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Blocking
/// For some hundred milliseconds at most while the queue is in constant use; for a second while the owner of a lock makes no
/// progress.
///
/// # Errors
/// The errors of [`OpenOptions::open`](super::OpenOptions::open) for inspection, without
/// [`SegmentError::Damaged`](crate::SegmentError::Damaged): the diagnosis reports corruption.
pub fn diagnose(namespace: &Namespace, name: impl AsRef<OsStr>) -> Result<Diagnosis, OpenError> {
    let name = QueueName::parse(name.as_ref())?;
    let file = namespace.open_queue_file(&name, FileAccess::Read, false)?;
    let before = queue_in(file.as_fd())?;
    let mut diagnosis = diagnosis::posix::examine(file.as_fd(), namespace)?;
    if queue_in(file.as_fd())?.number() != before.number() {
        // The segment now holds a later queue: the creator of the inspected queue has used the segment again.
        return Err(OpenError::NotFound);
    }
    note_undelivered(&mut diagnosis, file.as_fd(), namespace);
    Ok(diagnosis)
}

/// Repairs the corruption that [`diagnose`] finds in a queue, as far as possible.
///
/// The repair finishes the work of dead processes, as the next calls would do. It rebuilds a corrupted queue from its intact messages, and keeps
/// their order, leases and waiters. It corrects a wrong word of the header if other words determine that word. It clears the corruption mark once no
/// fault is left. During the repair, another process that uses the queue may briefly find the queue empty or full, or get EBADMSG. A process that
/// keeps overwriting the queue corrupts it again.
///
/// ```
/// # let dir = tempfile::tempdir_in("/dev/shm")?;
/// # let namespace = umsg::Namespace::at(dir.path())?;
/// # let queue = umsg::posix::OpenOptions::new().read(true).write(true).create(true).namespace(&namespace).open("/q")?;
/// let repaired = umsg::posix::repair(&namespace, "/q")?;
/// assert!(repaired.after.is_healthy());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Blocking
/// As long as [`diagnose`], and at most a second more for each lock that a process holds.
///
/// # Errors
/// The errors of [`diagnose`]. The caller must have permission to read and write the queue's file. [`Repaired::failed`] and
/// [`Repaired::after`] name the corruption that remains.
///
/// # If the process dies
/// The queue is as corrupted as before, or less. A repair can be repeated.
pub fn repair(namespace: &Namespace, name: impl AsRef<OsStr>) -> Result<Repaired, OpenError> {
    let name = QueueName::parse(name.as_ref())?;
    let file = namespace.open_queue_file(&name, FileAccess::ReadWrite, false)?;
    queue_in(file.as_fd())?;
    let mut repaired = diagnosis::posix::mend(file.as_fd(), namespace)?;
    if dead_letter::relabel(file.as_fd(), namespace) {
        let done = "restored the number of the dead-letter queue's label; programs that have the queue open must open it again";
        repaired.done.push(done.to_owned());
    }
    for diagnosis in [&mut repaired.before, &mut repaired.after] {
        note_undelivered(diagnosis, file.as_fd(), namespace);
    }
    Ok(repaired)
}

/// Returns the presence of the queue in the file: the queue's state and its number.
///
/// # Errors
/// `NotFound`: the file belongs to a removed queue.
fn queue_in(file: BorrowedFd<'_>) -> Result<Seen, OpenError> {
    Some(presence_of(file))
        .filter(|seen| seen.is_queue())
        .ok_or(OpenError::NotFound)
}

/// If any messages are set aside, adds to the diagnosis the reason why the caller can't move them.
fn note_undelivered(diagnosis: &mut Diagnosis, file: BorrowedFd<'_>, namespace: &Namespace) {
    let aside = diagnosis.holds.iter();
    let count = aside
        .filter(|record| record.kind == HoldKind::SetAside)
        .count();
    if count != 0
        && let Some(why) = dead_letter::undelivered_of(file, namespace)
    {
        diagnosis.note_undelivered(count, &why.to_string());
    }
}
