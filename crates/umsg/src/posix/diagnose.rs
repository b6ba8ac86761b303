//! What is the matter with a queue.

use super::dead_letter;
use crate::diagnosis::{self, Diagnosis, HoldKind, Repaired};
use crate::error::OpenError;
use crate::namespace::{FileAccess, Namespace, QueueName};
use rustix::fd::{AsFd, BorrowedFd};
use std::ffi::OsStr;

/// Inspects a queue: blocked processes, the owners of its locks and whether they live, past repairs, what is wrong with its bytes. Nothing is
/// changed and no lock taken; the queue may be so damaged that it can't be opened.
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
/// For some hundred milliseconds at most while the queue is never at rest; for a second where a lock's owner does not move.
///
/// # Errors
/// As [`OpenOptions::open`](super::OpenOptions::open) of a queue to look at, but for [`SegmentError::Damaged`](crate::SegmentError::Damaged), which is what a diagnosis is
/// about.
pub fn diagnose(namespace: &Namespace, name: impl AsRef<OsStr>) -> Result<Diagnosis, OpenError> {
    let name = QueueName::parse(name.as_ref())?;
    let file = namespace.open_queue_file(&name, FileAccess::Read, false)?;
    let mut diagnosis = diagnosis::posix::examine(file.as_fd(), namespace)?;
    note_undelivered(&mut diagnosis, file.as_fd(), namespace);
    Ok(diagnosis)
}

/// Repairs what [`diagnose`] finds wrong with a queue, as far as that can be done.
///
/// What the dead have left is taken up, as the next calls would. A queue whose bytes make no sense is made anew of the messages that are whole:
/// their order is kept, and so are leases and waiters. Where its header is wrong in a word that follows from others, that is written. A
/// mark of damage is taken away once nothing wrong is found any more. A process that goes on using the queue meanwhile may find it empty or full
/// for a moment, or get EBADMSG; and one that scribbles on it goes on spoiling it.
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
/// As [`diagnose`], and a second for each lock that a process holds.
///
/// # Errors
/// As [`diagnose`]; the caller has to be allowed to read and write the queue's file. What could not be repaired is said in
/// [`Repaired::failed`] and [`Repaired::after`].
///
/// # If the process dies
/// The queue is as wrong as before, or less; a repair can be done again.
pub fn repair(namespace: &Namespace, name: impl AsRef<OsStr>) -> Result<Repaired, OpenError> {
    let name = QueueName::parse(name.as_ref())?;
    let file = namespace.open_queue_file(&name, FileAccess::ReadWrite, false)?;
    let mut repaired = diagnosis::posix::mend(file.as_fd(), namespace)?;
    if dead_letter::relabel(file.as_fd(), namespace) {
        let done = "wrote which label names the dead-letter queue; programs that have the queue open have to open it again";
        repaired.done.push(done.to_owned());
    }
    for diagnosis in [&mut repaired.before, &mut repaired.after] {
        note_undelivered(diagnosis, file.as_fd(), namespace);
    }
    Ok(repaired)
}

/// Adds why messages stay set aside, if there are any.
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
