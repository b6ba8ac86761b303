//! Removal of stale names: the names of removed queues, and of queues whose creation or removal was interrupted by a death.
//!
//! In a sticky directory, only a file's owner and root may remove its names, and they do so under the owner's lock. Other users give their queue
//! another index. But if the stale name is a key symlink, they can't create a queue of its key.

use super::error::{ControlError, OpenError};
use super::permission::Rights;
use super::registry::{
    PRIVATE, behind, has_key_symlink, index_of, key_symlink_of, key_symlink_with, said,
};
use crate::namespace::{Entry, FileError, Files, Locked, Namespace, PATIENCE, caller};
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;
use umsg_shm::crash::crash_point;
use umsg_shm::sysv_engine::segment::{self, Summary, mark_removed, write_removed};

/// The time for which a process waits for the lock of another user. If that user keeps the lock, the names stay.
const SHORT: Duration = Duration::from_millis(100);

/// The vacant segments that a sweep removes. They belong to removed queues, and processes keep them for their next queues.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Vacant {
    /// The vacant files of processes that have ended.
    OfTheDead,
    /// All vacant files, because the caller needs their names, an index or room.
    Any,
}

/// Removes the names of a removed queue, if the caller has the permission and gets the lock. Otherwise a later process that needs one of the names
/// removes all of them.
pub(super) fn removed(namespace: &Namespace, id: i32) {
    if let Ok(mut files) = namespace.msg_files() {
        let swept = take(&mut files, index_of(id), Vacant::Any, SHORT);
        let is_its = |file: &OwnedFd| matches!(said(file), Ok(Some(said)) if said.id == id && said.is_removed);
        if !swept
            && let Ok(file) = files.open(index_of(id))
            && is_its(&file)
        {
            // The write fails if a limit forbids files of this length. Then other users find the key in use until a process with the permission
            // removes the name.
            let _ = mark_removed(file.as_fd());
        }
    }
}

/// Removes the names of an unusable queue.
///
/// If the file is of this version and has no other name, the removal is also written into the file, for processes that have the queue mapped.
///
/// # Errors
/// `NotOwner` unless the caller is the owner of the file, or has CAP_SYS_ADMIN; `Open` (EINVAL) if no queue has the identifier.
pub(super) fn unusable(namespace: &Namespace, id: i32, is_ours: bool) -> Result<(), ControlError> {
    let mut files = namespace.msg_files()?;
    // The key symlink shows the file of the identifier.
    let named = key_symlink_with(&files, id)?.ok_or(OpenError::NoSuchId)?;
    let stat = files.stat(named.index)?.ok_or(OpenError::NoSuchId)?;
    if !Rights::of_file(&stat).are_the_callers() {
        return Err(ControlError::NotOwner);
    }
    // Root continues even if the owner keeps the lock. If the owner creates a queue with these names meanwhile, that queue is lost.
    let lock = match files.lock_of(stat.st_uid, PATIENCE) {
        Err(error) if stat.st_uid == caller() => return Err(OpenError::from(error).into()),
        lock => lock.ok(),
    };
    if key_symlink_with(&files, id)? != Some(named) {
        return Err(OpenError::NoSuchId.into());
    }
    if is_ours
        && let Ok(file) = files.open(named.index)
        && has_one_name(&file)
    {
        // The write fails for a read-only file. Then the queue continues to exist in memory, without a name.
        let _ = write_removed(file.as_fd());
    }
    take_key_symlink(&files, id, named.key);
    let taken = files.take_file(named.index, stat.st_uid);
    drop(lock);
    match taken {
        true => Ok(()),
        false => Err(ControlError::NotOwner),
    }
}

/// Returns whether a file has only one name. A process with write access to the directory can give any file a second name in the directory.
fn has_one_name(file: &OwnedFd) -> bool {
    rustix::fs::fstat(file).is_ok_and(|stat| stat.st_nlink == 1)
}

/// Returns whether an index is free. Removes a stale file of the index. The caller holds its own user's lock.
pub(super) fn index(files: &mut Files, index: u32, vacant: Vacant, _lock: &Locked) -> bool {
    match files.stat(index) {
        Ok(None) => true,
        Ok(Some(stat)) if stat.st_uid == caller() => take_left(files, index, stat.st_uid, vacant),
        Ok(Some(_)) => {
            files.may_take_others() && is_left(files, index) && take(files, index, vacant, SHORT)
        }
        Err(_) => false,
    }
}

/// Returns whether the name of a key symlink is free. Removes a key symlink that leads to no queue. The caller holds its own
/// user's lock.
///
/// # Errors
/// `TooManyFiles`, `Namespace`, `System`.
pub(super) fn key_symlink(
    files: &mut Files,
    name: &str,
    key: i32,
    index: u32,
    _lock: &Locked,
) -> Result<bool, OpenError> {
    let Some(owner) = files.key_symlink_owner(name)? else {
        return Ok(true);
    };
    let lock = match owner == caller() {
        true => None,
        false if !files.may_take_others() => return Ok(false),
        false => match files.lock_of(owner, SHORT) {
            // The owner of the key symlink has created no queue, so the key symlink was planted.
            Err(FileError::NotFound) => None,
            Err(_) => return Ok(false),
            Ok(lock) => Some(lock),
        },
    };
    // Whether the key symlink is stale is checked again under the lock of its owner.
    let is_stale =
        files.key_symlink_owner(name)? == Some(owner) && is_stale(files, name, key, index)?;
    let is_free = is_stale && files.take_key_symlink(name, owner);
    drop(lock);
    Ok(is_free)
}

/// Returns whether a key symlink, or another file of its name, leads to no queue.
fn is_stale(files: &mut Files, name: &str, key: i32, index: u32) -> Result<bool, OpenError> {
    match Entry::of(files.key_symlink(name)?, key) {
        // The key symlink of a queue without a key belongs to its own index only.
        Some(link) if key != PRIVATE || link.index == index => {
            let is_queue = behind(files, &link)?.is_queue();
            Ok(!is_queue && (!link.varies || has_no_next(files, &link)))
        }
        _ => Ok(true),
    }
}

/// Takes the segment to which a key symlink leads from the process that keeps the segment. Returns false if the segment holds a queue again.
fn has_no_next(files: &mut Files, link: &Entry) -> bool {
    let Ok(file) = files.open(link.index) else {
        return true;
    };
    match said(&file) {
        Ok(Some(said)) if link.is_of(said.id, said.key) => take_vacant(&file, &said),
        // The symlink leads to another file.
        _ => true,
    }
}

/// Takes the segment of a removed queue from the process that keeps the segment. Returns false if the segment holds a queue again.
fn take_vacant(file: &OwnedFd, said: &Summary) -> bool {
    let taken = !said.is_vacant || segment::take(file.as_fd()).unwrap_or(false);
    crash_point!(MSG_TAKEN);
    taken
}

/// Frees an index as [`index`] does, under the lock of the file's owner.
fn take(files: &mut Files, index: u32, vacant: Vacant, patience: Duration) -> bool {
    let owner = match files.stat(index) {
        Ok(None) => return true,
        Ok(Some(stat)) => stat.st_uid,
        Err(_) => return false,
    };
    let lock = match files.lock_of(owner, patience) {
        // The file's owner has created no queue and creates none: another user gave the file to this owner.
        Err(FileError::NotFound) => None,
        Err(_) => return false,
        Ok(lock) => Some(lock),
    };
    // The owner is checked again under the lock.
    let is_owners = matches!(files.stat(index), Ok(Some(stat)) if stat.st_uid == owner);
    let taken = is_owners && take_left(files, index, owner, vacant);
    drop(lock);
    taken
}

/// Returns whether the file at an index is stale: it belongs to an unfinished or a removed queue.
fn is_left(files: &mut Files, index: u32) -> bool {
    left(files, index).is_some()
}

/// Returns the file at an index with its summary, if the file is stale.
fn left(files: &mut Files, index: u32) -> Option<(OwnedFd, Summary)> {
    let file = files.open(index).ok()?;
    let said = said(&file).ok()??;
    (index_of(said.id) == index && is_none(files, index, &said)).then_some((file, said))
}

/// Removes the file at an index, and its key symlink, if the file is stale and belongs to `owner`. Returns false otherwise. The caller holds the
/// owner's lock.
fn take_left(files: &mut Files, index: u32, owner: u32, vacant: Vacant) -> bool {
    let Some((file, said)) = left(files, index) else {
        return false;
    };
    let is_kept = said.is_vacant && vacant == Vacant::OfTheDead && !said.is_creator_dead();
    if is_kept || !take_vacant(&file, &said) {
        return false;
    }
    take_key_symlink(files, said.id, said.key);
    crash_point!(MSGCTL_UNLABELLED);
    files.take_file(index, owner)
}

/// Returns whether a file belongs to no queue. A file without a key symlink belongs to an unfinished queue, and a living creator of that queue would
/// hold the owner's lock.
fn is_none(files: &mut Files, index: u32, said: &Summary) -> bool {
    said.is_removed
        || matches!(has_key_symlink(files, said), Ok(false)) && !is_anybodys(files, index)
}

/// Returns whether a key symlink leads to a queue at this index, corrupted or not.
fn is_anybodys(files: &mut Files, index: u32) -> bool {
    let Ok(mut links) = files.entries() else {
        return true;
    };
    links.retain(|link| link.index == index);
    let mut links = links.iter();
    links.any(|link| behind(files, link).map_or(true, |found| found.is_queue()))
}

/// Removes the key symlink of a queue.
fn take_key_symlink(files: &Files, id: i32, key: i32) {
    // The owner is read before the second look-up of the name. So a key symlink that another owner makes meanwhile stays.
    if let Ok(Some(name)) = key_symlink_of(files, key, id)
        && let Ok(Some(owner)) = files.key_symlink_owner(&name)
        && let Ok(Some(_)) = key_symlink_of(files, key, id)
    {
        files.take_key_symlink(&name, owner);
    }
}
