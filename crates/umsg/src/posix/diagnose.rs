//! What is the matter with a queue.

use crate::diagnosis::{self, Diagnosis};
use crate::error::OpenError;
use crate::namespace::{FileAccess, Namespace, QueueName};
use rustix::fd::AsFd;
use std::ffi::OsStr;

/// Looks at a queue: who is blocked, who holds its locks and lives or not, what was repaired, what is wrong with its bytes. Nothing is
/// changed and no lock taken; the queue may be so damaged that it can't be opened.
///
/// # Blocking
/// For some hundred milliseconds at most while the queue is never at rest; for a second where a lock's owner does not move.
///
/// # Errors
/// As [`OpenOptions::open`](super::OpenOptions::open) of a queue to look at, but for [`OpenError::Damaged`], which is what a diagnosis is
/// about.
pub fn diagnose(namespace: &Namespace, name: impl AsRef<OsStr>) -> Result<Diagnosis, OpenError> {
    let name = QueueName::parse(name.as_ref())?;
    let file = namespace.open_queue_file(&name, FileAccess::Read, false)?;
    diagnosis::posix::examine(file.as_fd(), namespace)
}
