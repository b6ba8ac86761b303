//! What is the matter with a queue.

use super::error::OpenError;
use super::registry::{index_of, is_no_file};
use crate::diagnosis::{self, Diagnosis};
use crate::error;
use crate::namespace::{Files, Label, Namespace, labels};
use rustix::fd::AsFd;

/// Looks at the queue of a key, as [`posix::diagnose`](crate::posix::diagnose) does: it takes no lock and changes nothing, and the
/// queue may be so damaged that it can't be opened.
///
/// # Blocking
/// As [`posix::diagnose`](crate::posix::diagnose).
///
/// # Errors
/// As [`OpenOptions::open`](super::OpenOptions::open) of a queue that exists, but for [`OpenError::Damaged`].
pub fn diagnose(namespace: &Namespace, key: i32) -> Result<Diagnosis, OpenError> {
    let mut files = namespace.msg_files()?;
    for name in labels(key, 0) {
        match files.label(&name)? {
            Label::Missing => break,
            Label::Foreign => {}
            Label::Of(id) => match examine(&mut files, namespace, id) {
                Err(OpenError::NoSuchId) => {}
                other => return other,
            },
        }
    }
    Err(OpenError::NotFound)
}

/// As [`diagnose`], for the queue with an identifier.
///
/// # Errors
/// As [`diagnose`]; [`OpenError::NoSuchId`].
pub fn diagnose_id(namespace: &Namespace, id: i32) -> Result<Diagnosis, OpenError> {
    examine(&mut namespace.msg_files()?, namespace, id)
}

fn examine(files: &mut Files, namespace: &Namespace, id: i32) -> Result<Diagnosis, OpenError> {
    if id < 0 {
        return Err(OpenError::NoSuchId);
    }
    let file = match files.open(index_of(id)) {
        Ok(file) => file,
        Err(error) if is_no_file(&error) => return Err(OpenError::NoSuchId),
        Err(error) => return Err(error.into()),
    };
    match diagnosis::sysv::examine(file.as_fd(), namespace, id) {
        Err(error::OpenError::NotAQueue(_)) => Err(OpenError::NoSuchId),
        other => Ok(other?),
    }
}
