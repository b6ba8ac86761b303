//! Diagnosis and repair of a ring.

use super::directory::button;
use super::error::RingError;
use super::message::HEAD;
use crate::diagnosis::{self, Diagnosis, Repaired, Wait};
use crate::error::OpenError;
use crate::namespace::{FileAccess, Namespace, QueueName, RINGS};
use rustix::fd::AsFd;
use std::ffi::OsStr;

/// Inspects a named ring, as [`posix::diagnose`](crate::posix::diagnose) does for a queue. The ring's receiver holds no lock while
/// it waits.
///
/// ```
/// # let dir = tempfile::tempdir_in("/dev/shm")?;
/// # let namespace = umsg::Namespace::at(dir.path())?;
/// # let mut ring = umsg::ring::Options::new().create_in(&namespace, "/r")?;
/// # let sender = ring.sender();
/// assert!(umsg::ring::diagnose(&namespace, "/r")?.is_healthy());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Blocking
/// Blocks as [`posix::diagnose`](crate::posix::diagnose) does.
///
/// # Errors
/// The errors of [`find`](super::find), without corruption.
pub fn diagnose(namespace: &Namespace, name: impl AsRef<OsStr>) -> Result<Diagnosis, RingError> {
    let name = QueueName::parse(name.as_ref()).map_err(OpenError::from)?;
    let file = namespace.open_file_in(RINGS, &name, FileAccess::Read, false);
    let file = file.map_err(super::directory::file_error)?;
    let diagnosis = diagnosis::posix::examine(file.as_fd(), namespace)?;
    Ok(of_payload(diagnosis))
}

/// Repairs a named ring, as [`posix::repair`](crate::posix::repair) does for a queue. The ring of a dead receiver can only be
/// removed.
///
/// ```
/// # let dir = tempfile::tempdir_in("/dev/shm")?;
/// # let namespace = umsg::Namespace::at(dir.path())?;
/// # let mut ring = umsg::ring::Options::new().create_in(&namespace, "/r")?;
/// # let sender = ring.sender();
/// assert!(umsg::ring::repair(&namespace, "/r")?.after.is_healthy());
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
pub fn repair(namespace: &Namespace, name: impl AsRef<OsStr>) -> Result<Repaired, RingError> {
    let name = QueueName::parse(name.as_ref()).map_err(OpenError::from)?;
    let file = namespace.open_file_in(RINGS, &name, FileAccess::ReadWrite, false);
    let file = file.map_err(super::directory::file_error)?;
    let repaired = diagnosis::posix::mend(file.as_fd(), namespace)?;
    // A sender may have died before it rang the doorbell for a poller. An additional ring of the doorbell has no effect but a wake-up.
    if !repaired.done.is_empty() {
        button(namespace, file.as_fd())?.press();
    }
    Ok(Repaired {
        before: of_payload(repaired.before),
        after: of_payload(repaired.after),
        ..repaired
    })
}

/// Counts the bytes of payloads, as senders and receivers do: without the `user_data`, `res` and `flags` before each payload.
fn of_payload(mut diagnosis: Diagnosis) -> Diagnosis {
    let head = HEAD as u64;
    if let Some(contents) = &mut diagnosis.contents {
        let heads = contents.messages.saturating_mul(head);
        contents.bytes = contents.bytes.saturating_sub(heads);
    }
    for blocked in &mut diagnosis.blocked {
        if let Wait::Room {
            bytes: Some(bytes), ..
        } = &mut blocked.wait
        {
            *bytes = bytes.saturating_sub(head);
        }
    }
    diagnosis
}
