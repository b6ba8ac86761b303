//! What is the matter with a queue.

use super::error::OpenError;
use super::registry::{index_of, is_no_file};
use crate::diagnosis::{self, Diagnosis, Repaired};
use crate::error;
use crate::namespace::{Files, Label, Namespace, labels};
use rustix::fd::{AsFd, BorrowedFd};

/// Looks at the queue of a key, as [`posix::diagnose`](crate::posix::diagnose) does: it takes no lock and changes nothing, and the
/// queue may be so damaged that it can't be opened.
///
/// # Blocking
/// As [`posix::diagnose`](crate::posix::diagnose).
///
/// # Errors
/// As [`OpenOptions::open`](super::OpenOptions::open) of a queue that exists, but for [`OpenError::Damaged`].
pub fn diagnose(namespace: &Namespace, key: i32) -> Result<Diagnosis, OpenError> {
    of_key(namespace, key, diagnosis::sysv::examine)
}

/// As [`diagnose`], for the queue with an identifier.
///
/// # Errors
/// As [`diagnose`]; [`OpenError::NoSuchId`].
pub fn diagnose_id(namespace: &Namespace, id: i32) -> Result<Diagnosis, OpenError> {
    of_id(
        &mut namespace.msg_files()?,
        namespace,
        id,
        diagnosis::sysv::examine,
    )
}

/// Repairs the queue of a key, as [`posix::repair`](crate::posix::repair) does. A blocked sender whose message made no sense any more
/// sends it again.
///
/// # Blocking
/// As [`posix::repair`](crate::posix::repair).
///
/// # Errors
/// As [`diagnose`].
///
/// # If the process dies
/// As [`posix::repair`](crate::posix::repair).
pub fn repair(namespace: &Namespace, key: i32) -> Result<Repaired, OpenError> {
    of_key(namespace, key, diagnosis::sysv::mend)
}

/// As [`repair`], for the queue with an identifier.
///
/// # Errors
/// As [`repair`]; [`OpenError::NoSuchId`].
pub fn repair_id(namespace: &Namespace, id: i32) -> Result<Repaired, OpenError> {
    of_id(
        &mut namespace.msg_files()?,
        namespace,
        id,
        diagnosis::sysv::mend,
    )
}

/// What is done to a queue's file.
type Treat<T> = fn(BorrowedFd<'_>, &Namespace, i32) -> Result<T, error::OpenError>;

fn of_key<T>(namespace: &Namespace, key: i32, treat: Treat<T>) -> Result<T, OpenError> {
    let mut files = namespace.msg_files()?;
    for name in labels(key, 0) {
        match files.label(&name)? {
            Label::Missing => break,
            Label::Foreign => {}
            Label::Of(id) => match of_id(&mut files, namespace, id, treat) {
                Err(OpenError::NoSuchId) => {}
                other => return other,
            },
        }
    }
    Err(OpenError::NotFound)
}

fn of_id<T>(
    files: &mut Files,
    namespace: &Namespace,
    id: i32,
    treat: Treat<T>,
) -> Result<T, OpenError> {
    if id < 0 {
        return Err(OpenError::NoSuchId);
    }
    let file = match files.open(index_of(id)) {
        Ok(file) => file,
        Err(error) if is_no_file(&error) => return Err(OpenError::NoSuchId),
        Err(error) => return Err(error.into()),
    };
    match treat(file.as_fd(), namespace, id) {
        Err(error::OpenError::NotAQueue(_)) => Err(OpenError::NoSuchId),
        other => Ok(other?),
    }
}
