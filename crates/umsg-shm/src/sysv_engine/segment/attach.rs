//! Attaching to a System V queue's segment, and marking its file as that of a removed queue.

use super::{Fixed, Rights, Segment, Summary, summary};
use crate::fault::AttachError;
use crate::memory::{View, set_length};
use rustix::fd::BorrowedFd;
use std::mem::offset_of;

/// The offset of the state in the file, in bytes.
const STATE_AT: usize = offset_of!(Fixed, rights) + offset_of!(Rights, state);

/// Maps the segment in a file that is open for reading and writing. The handle belongs to the queue that the file holds at this time.
pub fn attach(file: BorrowedFd<'_>) -> Result<Segment, AttachError> {
    let summary = summary(file)?;
    let mut segment = Segment::map(file, summary.layout)?;
    segment.settle_home();
    segment.set_tenure(summary.tenure());
    Ok(segment)
}

/// Returns the file length that marks a removed queue whose names still exist, for a segment of `len` bytes.
///
/// A segment consists of whole pages. The extra byte shows the removal to a process that may not open the file.
pub(super) const fn removed_len(len: usize) -> usize {
    len + 1
}

/// Returns whether a file of this length is marked as that of a removed queue.
pub fn is_marked_removed(len: u64) -> bool {
    len % 2 == 1
}

/// Marks the file of a removed queue by its length. The file must be open for writing.
pub fn mark_removed(file: BorrowedFd<'_>) -> Result<(), AttachError> {
    let summary = summary(file)?;
    match summary.is_removed {
        true => set_length(file, removed_len(summary.layout.len)),
        false => Ok(()),
    }
}

/// Takes a vacant segment from the process that keeps it. Returns true if the segment will never hold a queue again. The file must be open for
/// reading and writing.
///
/// # Errors
/// The errors of [`summary`], and `System`.
pub fn take(file: BorrowedFd<'_>) -> Result<bool, AttachError> {
    let summary = summary(file)?;
    let view = View::map(file)?;
    Ok(summary.is_removed && view.with_word(STATE_AT, Rights::take_word))
}

/// Removes the queue that a summary of the file describes, as [`write_removed`] does. Returns false if that queue is already removed: the segment may
/// hold another queue by now. The function maps a page. If there is no address space for this page, the function instead calls [`write_removed`],
/// which removes, for ever, whichever queue the segment holds now.
pub fn remove_unmapped(file: BorrowedFd<'_>, summary: &Summary) -> Result<bool, AttachError> {
    let generation = summary.tenure().generation;
    match View::map(file) {
        Ok(view) => Ok(view.with_word(STATE_AT, |word| Rights::remove_word(word, generation))),
        Err(_) => write_removed(file).map(|()| true),
    }
}

/// Marks a queue as removed in its file, for the processes that have the queue mapped. See
/// [`Engine::remove_unlocked`](crate::sysv_engine::Engine::remove_unlocked).
///
/// The file must be open for writing. A file that is too short stays as it is, because no process could read the word.
pub fn write_removed(file: BorrowedFd<'_>) -> Result<(), AttachError> {
    use super::REMOVED;
    let at = STATE_AT;
    let stat = rustix::fs::fstat(file).map_err(|e| AttachError::from_errno("fstat", e))?;
    if (stat.st_size as u64) < (at + size_of_val(&REMOVED)) as u64 {
        return Ok(());
    }
    let written = rustix::io::pwrite(file, &REMOVED.to_ne_bytes(), at as u64);
    written
        .map(drop)
        .map_err(|e| AttachError::from_errno("pwrite", e))
}
