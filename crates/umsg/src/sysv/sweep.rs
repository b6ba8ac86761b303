//! Taking away the names of queues that are none: removed ones, and what the dead left half made or half removed.
//!
//! In a sticky directory only a file's owner and root may do so. What others meet they go round: an index is left out, and a
//! label has further names.

use super::error::{ControlError, OpenError};
use super::permission::Rights;
use super::registry::{Behind, behind, index_of, is_labelled, label_with, said};
use crate::crash::crash_point;
use crate::namespace::{Files, Label, Locked, Namespace, PATIENCE, labels};
use crate::typed::segment::{Summary, mark_removed, write_removed};
use std::os::fd::{AsFd, OwnedFd};

/// Takes the names of a removed queue away, as far as the caller may and nobody stopped holds the lock: who needs one of them later
/// does what is left.
pub(super) fn removed(namespace: &Namespace, id: i32) {
    if let Ok(mut files) = namespace.msg_files()
        && let Ok(lock) = files.lock(PATIENCE / 20)
    {
        let swept = index(&mut files, index_of(id), &lock);
        drop(lock);
        if !swept && let Ok(file) = files.open(index_of(id)) {
            // In vain where files may not be so long: then strangers take the key for taken until somebody comes who may.
            let _ = mark_removed(file.as_fd());
        }
    }
}

/// Takes the names of a queue away that can't be removed as others are, whatever is in its file. If that is of this version and has no other
/// name, who has it mapped finds it removed.
///
/// # Errors
/// `NotOwner` unless the caller is the owner of the file, or has CAP_SYS_ADMIN; `Open` (EINVAL) if there is none.
pub(super) fn unusable(namespace: &Namespace, id: i32, is_ours: bool) -> Result<(), ControlError> {
    let mut files = namespace.msg_files()?;
    let lock = files.lock(PATIENCE)?;
    // An identifier is that of one queue only: its label says which file was meant.
    let named = label_with(&files, id)?.ok_or(OpenError::NoSuchId)?;
    let stat = files.stat(named.index)?.ok_or(OpenError::NoSuchId)?;
    if !Rights::of_file(&stat).are_the_callers() {
        return Err(ControlError::NotOwner);
    }
    if is_ours
        && let Ok(file) = files.open(named.index)
        && has_one_name(&file)
    {
        // In vain if it is read-only: then it goes on in memory, without a name.
        let _ = write_removed(file.as_fd());
    }
    take_label(&files, id, named.key);
    let taken = files.take_file(named.index);
    drop(lock);
    match taken {
        true => Ok(()),
        false => Err(ControlError::NotOwner),
    }
}

/// Whether a file has no name elsewhere, where it could be anything else: whoever may write in the directory can give it one here.
fn has_one_name(file: &OwnedFd) -> bool {
    rustix::fs::fstat(file).is_ok_and(|stat| stat.st_nlink == 1)
}

/// Whether an index is free: takes the file there away if it is no queue's, but was to be or has been one's.
pub(super) fn index(files: &mut Files, index: u32, _lock: &Locked) -> bool {
    if matches!(files.stat(index), Ok(None)) {
        return true;
    }
    let Ok(file) = files.open(index) else {
        return false;
    };
    match said(&file) {
        Ok(Some(said)) if index_of(said.id) == index && is_none(files, index, &said) => {
            take_label(files, said.id, said.key);
            crash_point!(MSGCTL_UNLABELLED);
            files.take_file(index)
        }
        _ => false,
    }
}

/// Without its label it was not finished: its maker would hold the lock.
fn is_none(files: &mut Files, index: u32, said: &Summary) -> bool {
    said.is_removed || matches!(is_labelled(files, said), Ok(false)) && !is_anybodys(files, index)
}

/// Whether a label leads to a queue at this index, which may be damaged.
fn is_anybodys(files: &mut Files, index: u32) -> bool {
    let Ok(mut labels) = files.entries() else {
        return true;
    };
    labels.retain(|label| label.index == index);
    let mut labels = labels.iter();
    labels.any(|label| !matches!(behind(files, label), Ok(Behind::Nothing)))
}

/// Takes a label away, unless there are labels behind it: those would not be found any more.
fn take_label(files: &Files, id: i32, key: i32) {
    let mut names = labels(key, index_of(id)).peekable();
    while let Some(name) = names.next() {
        match files.label(&name) {
            Ok(Label::Of(other)) if other == id => {
                let is_last = names
                    .peek()
                    .is_none_or(|next| files.label(next) == Ok(Label::Missing));
                if is_last {
                    files.take_label(&name);
                }
                return;
            }
            Ok(Label::Missing) | Err(_) => return,
            Ok(_) => {}
        }
    }
}
