//! Making a queue: built without a name, then named and numbered under the lock of its user.
//!
//! | step | if the process dies behind it |
//! |---|---|
//! | the file is built without a name | it vanishes |
//! | the user's lock is taken; nobody else made the key's queue meanwhile | the kernel drops the lock |
//! | the file gets its index, which is its maker's alone from then on | it is no queue; a process of its user, or root, that comes to the index takes it |
//! | the identifier is noted, larger than all that were noted before | the same; an identifier is left out |
//! | **the label is made** | there is a queue |
//! | no other label of the key leads to a queue, or the file and the label are taken away | there is a queue |

use super::error::OpenError;
use super::permission::{Rights, caller};
use super::registry::{Got, PRIVATE, Wanted, find, is_only, judge};
use super::{file_rights, sweep};
use crate::crash::crash_point;
use crate::namespace::{
    FileError, Files, INDICES, Label, Limits, Locked, Namespace, NamespaceError, NewFile, PATIENCE,
    labels, random,
};
use crate::segment::Quota;
use crate::sync::Ordering;
use crate::sys::stack::nap;
use crate::typed::segment::{self, Identity, Layout, Segment};
use std::time::Duration;

/// How often a queue is made anew because another user makes one of the same key.
const ATTEMPTS: u32 = 100;
/// The longest sleep between.
const NAP: Duration = Duration::from_millis(2);

/// Makes a queue, unless another process has made the key's by now.
///
/// # Errors
/// All of [`OpenError`] but `NotFound` and `NoSuchId`.
pub(super) fn create(namespace: &Namespace, key: i32, wanted: Wanted) -> Result<Got, OpenError> {
    let limits = namespace.limits()?;
    let mode = wanted.mode & 0o777;
    if !limits.allow_mode(mode) {
        return Err(OpenError::ModeNotEnforced { mode });
    }
    for _ in 0..ATTEMPTS {
        if let Some(got) = attempt(namespace, key, wanted, &limits)? {
            return Ok(got);
        }
        // Two that are in each other's way do not come back at the same moment.
        nap(NAP.mul_f64(random() as f64 / u64::MAX as f64));
    }
    let path = namespace.path().to_owned();
    Err(NamespaceError::Busy { path, holder: None }.into())
}

/// None if another user made a queue of the key at the same moment, and it may be that one's.
fn attempt(
    namespace: &Namespace,
    key: i32,
    wanted: Wanted,
    limits: &Limits,
) -> Result<Option<Got>, OpenError> {
    let mut new = NewFile::create(namespace.msg_files()?)?;
    crash_point!(MSGGET_EMPTY);
    let mut segment = build(&new, key, wanted.mode & 0o777, limits)?;
    let quota = Quota::of(namespace.clone());
    // Where there is no limit, there is nothing to ask.
    if limits.max_bytes.is_some() && !quota.allows(0) {
        return Err(OpenError::OverLimit);
    }
    segment.set_quota(quota);
    crash_point!(MSGGET_FILLED);
    let lock = new.files().lock(PATIENCE)?;
    if key != PRIVATE
        && let Some(found) = find(new.files(), key)?
    {
        return judge(found, wanted).map(Got::Found).map(Some);
    }
    let is_made = name(&mut new, &segment, limits, &lock)?;
    Ok(is_made.then_some(Got::Made(segment)))
}

/// A whole queue but for its identifier.
fn build(new: &NewFile, key: i32, mode: u32, limits: &Limits) -> Result<Segment, OpenError> {
    let capacity = limits.max_qbytes.max(limits.msgmnb);
    let layout = Layout::new(u64::from(capacity), limits.msgmax as usize);
    let (uid, gid) = caller();
    let identity = Identity {
        id: 0,
        key,
        mode,
        uid: uid.as_raw(),
        gid: gid.as_raw(),
        qbytes: u64::from(limits.msgmnb),
    };
    let segment = segment::create(new.file(), layout, &identity)?;
    file_rights::give(new.file(), &[Rights::of(segment.fixed())])
        .map_err(|e| OpenError::from(crate::error::OpenError::from_errno("fchmod", e)))?;
    Ok(segment)
}

/// Gives a queue its names and its identifier. The label is what makes it. False if another queue of its key was in the way.
fn name(
    new: &mut NewFile,
    segment: &Segment,
    limits: &Limits,
    lock: &Locked,
) -> Result<bool, OpenError> {
    let in_use = room(new.files(), limits, lock)?;
    let last = new.files().next(in_use)?;
    for index in last.indices(in_use) {
        if !sweep::index(new.files(), index, lock) {
            continue;
        }
        // Relaxed: nobody else sees the segment before its file is linked. Who then finds a wrong identifier finds no label of it.
        let id = &segment.fixed().header.id;
        id.store(last.with(index).id() as u32, Ordering::Relaxed);
        match new.link(index) {
            Err(FileError::AlreadyExists) => continue,
            other => other?,
        }
        crash_point!(MSGGET_INDEXED);
        let made = number(new.files(), segment, index, in_use);
        // Nobody else has taken the index since.
        if !matches!(made, Ok(true)) {
            new.files().take_file(index);
        }
        return made;
    }
    Err(OpenError::TooManyQueues(limits.msgmni))
}

/// Gives the queue at an index its identifier and its label.
fn number(
    files: &mut Files,
    segment: &Segment,
    index: u32,
    in_use: u32,
) -> Result<bool, OpenError> {
    // Asked again: whoever had the index before has noted his identifier before he gave it up.
    let next = files.next(in_use)?.with(index);
    let header = &segment.fixed().header;
    header.id.store(next.id() as u32, Ordering::Relaxed);
    files.note_next(next)?;
    crash_point!(MSGGET_NUMBERED);
    let key = header.key.load(Ordering::Relaxed) as i32;
    let Some(label) = label(files, key, next.id())? else {
        return Ok(false);
    };
    crash_point!(MSGGET_LABELLED);
    let is_only = key == PRIVATE || is_only(files, key, &label)?;
    if !is_only {
        files.take_label(&label);
    }
    Ok(is_only)
}

/// How many queues there are, if they are fewer than the limit. What the dead left is swept before anybody is refused for it.
fn room(files: &mut Files, limits: &Limits, lock: &Locked) -> Result<u32, OpenError> {
    let limit = limits.msgmni.min(INDICES);
    let in_use = files.in_use()?;
    if in_use < limit {
        return Ok(in_use);
    }
    let mut in_use = 0;
    for index in files.indices_in_use()? {
        in_use += u32::from(!sweep::index(files, index, lock));
    }
    match in_use < limit {
        true => Ok(in_use),
        false => Err(OpenError::TooManyQueues(limits.msgmni)),
    }
}

/// Makes the label of a queue whose key has none: by the first name that is free, or that only leads to none and is the caller's own.
/// None if another process was faster.
fn label(files: &Files, key: i32, id: i32) -> Result<Option<String>, OpenError> {
    for name in labels(key, id as u32 % INDICES) {
        let is_free = match files.label(&name)? {
            Label::Missing => true,
            _ => files.take_own_label(&name),
        };
        if is_free {
            return match files.put_label(&name, id) {
                Ok(()) => Ok(Some(name)),
                Err(FileError::AlreadyExists) => Ok(None),
                Err(error) => Err(error.into()),
            };
        }
    }
    Err(OpenError::PermissionDenied)
}
