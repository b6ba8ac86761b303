//! A queue that goes when no process has it open any more, as a process that has it open sees it. How that is done is in
//! `namespace/transient/`; the word that says whether it is due is here.

use crate::namespace::{DeadLetterLabel, FileError, Namespace, NamespaceError, QueueName, Removal};
use rustix::fd::BorrowedFd;
use std::cell::{Cell, RefCell};
use std::ffi::OsString;
use std::mem::offset_of;
use umsg_shm::posix_engine::segment::{Fixed, MAGIC, Rules};
use umsg_shm::sys::stack::roomy;

/// Where these words of [`Rules`] lie in a file.
const REMOVAL: usize = offset_of!(Fixed, rules) + Rules::REMOVAL;
const LABEL: usize = offset_of!(Fixed, rules) + Rules::LABEL;

/// Dropped by the process that has let go of a queue: the last one removes it.
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
        // If this fails, a later process that opens the name or makes a queue removes it.
        let _ = roomy(|| remove_unused(&self.namespace, &self.name));
    }
}

/// Removes a queue if it is one that goes, and no process has it open any more.
pub(crate) fn remove_unused(namespace: &Namespace, name: &QueueName) -> Result<Removal, FileError> {
    let label = Cell::new(None);
    let removal = namespace.remove_unused(name, |file| {
        label.set(dead_letter_label(file));
        is_due(file)
    })?;
    if let (Removal::Gone, Some(label)) = (removal, label.take()) {
        namespace.remove_label(label);
    }
    Ok(removal)
}

/// Removes all queues that go and that no process has open any more. Answers which, without slashes.
pub(crate) fn remove_all_unused(namespace: &Namespace) -> Result<Vec<OsString>, NamespaceError> {
    let labels = RefCell::new(Vec::new());
    let gone = namespace.remove_all_unused(|file| {
        let is_due = is_due(file);
        labels
            .borrow_mut()
            .extend(dead_letter_label(file).filter(|_| is_due));
        is_due
    })?;
    namespace.remove_labels_of_gone(&labels.into_inner())?;
    Ok(gone)
}

/// Those that [`remove_all_unused`] would remove.
pub(crate) fn all_unused(namespace: &Namespace) -> Result<Vec<OsString>, NamespaceError> {
    namespace.all_unused(is_due)
}

/// Removes some queues that go and that no process has open any more, if there are any.
pub(crate) fn remove_some_unused(namespace: &Namespace) -> Result<(), NamespaceError> {
    match namespace.should_look_for_unused()? {
        true => remove_all_unused(namespace).map(drop),
        false => Ok(()),
    }
}

/// Whether a process has had a queue open.
fn is_due(file: BorrowedFd<'_>) -> bool {
    word(file, REMOVAL).is_some_and(|word| word as u32 == Rules::DUE)
}

/// Which label a queue has that names its dead-letter queue.
pub(crate) fn dead_letter_label(file: BorrowedFd<'_>) -> Option<DeadLetterLabel> {
    let number = word(file, LABEL).filter(|number| *number != 0)?;
    let inode = rustix::fs::fstat(file).ok()?.st_ino;
    Some(DeadLetterLabel { inode, number })
}

/// Writes the number of a label where it was scribbled over.
pub(crate) fn set_dead_letter_label(file: BorrowedFd<'_>, label: DeadLetterLabel) -> bool {
    let bytes = label.number.to_le_bytes();
    rustix::io::pwrite(file, &bytes, LABEL as u64) == Ok(bytes.len())
}

/// A word of a queue's rules. Read, not mapped: the file may be anything.
fn word(file: BorrowedFd<'_>, at: usize) -> Option<u64> {
    let word = |at: usize| {
        let mut bytes = [0; 8];
        let read = rustix::io::pread(file, &mut bytes, at as u64);
        (read == Ok(bytes.len())).then(|| u64::from_le_bytes(bytes))
    };
    word(0).filter(|magic| *magic == MAGIC)?;
    word(at)
}
