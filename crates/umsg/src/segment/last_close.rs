//! A queue that goes when nobody has it open any more, as somebody sees it who has. How that is done is in
//! `namespace/transient/`; the word that says whether it is due is here.

use super::fixed::Fixed;
use super::{MAGIC, Rules};
use crate::namespace::{FileError, Namespace, NamespaceError, QueueName, Removal};
use rustix::fd::BorrowedFd;
use std::ffi::OsString;
use std::mem::offset_of;

/// Where [`Rules::removal`] lies in a file.
const AT: usize = offset_of!(Fixed, rules) + Rules::REMOVAL;

/// Dropped by who has let go of a queue: the last one removes it.
#[derive(Debug)]
pub(crate) struct LastClose {
    namespace: Namespace,
    name: QueueName,
}

impl LastClose {
    pub(crate) fn new(namespace: &Namespace, name: &QueueName) -> LastClose {
        LastClose {
            namespace: namespace.clone(),
            name: name.clone(),
        }
    }
}

impl Drop for LastClose {
    fn drop(&mut self) {
        // Whom it fails leaves it to the next who comes by.
        let _ = remove_unused(&self.namespace, &self.name);
    }
}

/// Removes a queue if it is one that goes, and nobody has it open any more.
pub(crate) fn remove_unused(namespace: &Namespace, name: &QueueName) -> Result<Removal, FileError> {
    namespace.remove_unused(name, is_due)
}

/// Removes all queues that go and that nobody has open any more. Answers which, without slashes.
pub(crate) fn remove_all_unused(namespace: &Namespace) -> Result<Vec<OsString>, NamespaceError> {
    namespace.remove_all_unused(is_due)
}

/// Those that [`remove_all_unused`] would remove.
pub(crate) fn all_unused(namespace: &Namespace) -> Result<Vec<OsString>, NamespaceError> {
    namespace.all_unused(is_due)
}

/// Removes some queues that go and that nobody has open any more, if there are any.
pub(crate) fn remove_some_unused(namespace: &Namespace) -> Result<(), NamespaceError> {
    namespace.remove_some_unused(is_due)
}

/// Whether somebody has had a queue open. Read, not mapped: the file may be anything.
fn is_due(file: BorrowedFd<'_>) -> bool {
    let word = |at: usize| {
        let mut bytes = [0; 8];
        let read = rustix::io::pread(file, &mut bytes, at as u64);
        (read == Ok(bytes.len())).then(|| u64::from_le_bytes(bytes))
    };
    word(0) == Some(MAGIC) && word(AT).is_some_and(|word| word as u32 == Rules::DUE)
}
