//! Queues that are removed when the last process closes them. `namespace/transient/` removes the queue; this module reads the word in the queue
//! that requests the removal.

use crate::namespace::{DeadLetterLabel, FileError, Namespace, NamespaceError, QueueName, Removal};
use rustix::fd::BorrowedFd;
use std::cell::{Cell, RefCell};
use std::ffi::OsString;
use std::mem::offset_of;
use umsg_shm::posix_engine::segment::{Fixed, MAGIC, Rules};
use umsg_shm::sys::stack::roomy;

/// The offsets of two words of [`Rules`] in a file: the removal word, and the number of the label that names the dead-letter queue.
const REMOVAL: usize = offset_of!(Fixed, rules) + Rules::REMOVAL;
const LABEL: usize = offset_of!(Fixed, rules) + Rules::LABEL;

/// Removes the queue on drop if this process was the last one that had the queue open.
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
        // If the removal fails, the next process that opens the name or creates a queue removes the queue.
        let _ = roomy(|| remove_unused(&self.namespace, &self.name));
    }
}

/// Removes a queue if its options ask for that and no process has it open any more.
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

/// Removes all queues that are due for removal and that no process has open. Returns their names, without slashes.
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

/// Returns the names of the queues that [`remove_all_unused`] would remove.
pub(crate) fn all_unused(namespace: &Namespace) -> Result<Vec<OsString>, NamespaceError> {
    namespace.all_unused(is_due)
}

/// Removes some of the queues that are due for removal and that no process has open.
pub(crate) fn remove_some_unused(namespace: &Namespace) -> Result<(), NamespaceError> {
    match namespace.should_look_for_unused()? {
        true => remove_all_unused(namespace).map(drop),
        false => Ok(()),
    }
}

/// Returns whether the queue is due for removal: its options ask for removal, and a process has had the queue open.
fn is_due(file: BorrowedFd<'_>) -> bool {
    word(file, REMOVAL).is_some_and(|word| word as u32 == Rules::DUE)
}

/// Returns the label that names the dead-letter queue of a queue.
pub(crate) fn dead_letter_label(file: BorrowedFd<'_>) -> Option<DeadLetterLabel> {
    let number = word(file, LABEL).filter(|number| *number != 0)?;
    let inode = rustix::fs::fstat(file).ok()?.st_ino;
    Some(DeadLetterLabel { inode, number })
}

/// Writes the number of a label back into the file after another process has overwritten it.
pub(crate) fn set_dead_letter_label(file: BorrowedFd<'_>, label: DeadLetterLabel) -> bool {
    let bytes = label.number.to_le_bytes();
    rustix::io::pwrite(file, &bytes, LABEL as u64) == Ok(bytes.len())
}

/// Reads a word of a queue's rules. The word is read, not mapped, because the file may be no queue, or be too short.
fn word(file: BorrowedFd<'_>, at: usize) -> Option<u64> {
    let word = |at: usize| {
        let mut bytes = [0; 8];
        let read = rustix::io::pread(file, &mut bytes, at as u64);
        (read == Ok(bytes.len())).then(|| u64::from_le_bytes(bytes))
    };
    word(0).filter(|magic| *magic == MAGIC)?;
    word(at)
}
