//! Making a queue: built without a name, then numbered and named under the directory's lock.
//!
//! | step | if the process dies behind it |
//! |---|---|
//! | the file is built without a name | it vanishes |
//! | the lock is taken; nobody else made the key's queue meanwhile | the kernel drops the lock |
//! | `.next` is written | an identifier is left out |
//! | the file gets its index | it is no queue; who comes to the index next takes it |
//! | **the label is made** | there is a queue |

use super::error::OpenError;
use super::permission::{Rights, caller};
use super::registry::{Got, PRIVATE, Wanted, find, judge};
use super::{file_rights, sweep};
use crate::crash::crash_point;
use crate::namespace::labels;
use crate::namespace::{
    FileError, Files, INDICES, Label, Limits, Locked, Namespace, NewFile, PATIENCE,
};
use crate::segment::Quota;
use crate::sync::Ordering;
use crate::typed::segment::{self, Identity, Layout, Segment};

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
    let mut new = NewFile::create(namespace.msg_files()?)?;
    crash_point!(MSGGET_EMPTY);
    let mut segment = build(&new, key, mode, &limits)?;
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
        return judge(found, wanted).map(Got::Found);
    }
    name(&mut new, &segment, &limits, &lock)?;
    Ok(Got::Made(segment))
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

/// Gives a queue its identifier and its names. The last is what makes it.
fn name(
    new: &mut NewFile,
    segment: &Segment,
    limits: &Limits,
    lock: &Locked,
) -> Result<(), OpenError> {
    let in_use = room(new.files(), limits, lock)?;
    let last = new.files().next(in_use)?;
    for index in last.indices(in_use) {
        if !sweep::index(new.files(), index, lock) {
            continue;
        }
        let next = last.with(index);
        let header = &segment.fixed().header;
        // Relaxed: nobody else sees the segment before its file is linked.
        header.id.store(next.id() as u32, Ordering::Relaxed);
        new.files().note_next(next)?;
        crash_point!(MSGGET_NUMBERED);
        match new.link(index) {
            Err(FileError::AlreadyExists) => continue,
            other => other?,
        }
        crash_point!(MSGGET_INDEXED);
        let key = header.key.load(Ordering::Relaxed) as i32;
        if let Err(error) = label(new.files(), key, next.id()) {
            new.files().take_file(index);
            return Err(error);
        }
        crash_point!(MSGGET_LABELLED);
        return Ok(());
    }
    Err(OpenError::TooManyQueues(limits.msgmni))
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

/// Makes the label of a queue behind those that lead to none and can't be taken away: the last one is the one that counts.
fn label(files: &Files, key: i32, id: i32) -> Result<(), OpenError> {
    let names: Vec<String> = labels(key, id as u32 % INDICES).collect();
    let mut free = 0;
    while free < names.len() && files.label(&names[free])? != Label::Missing {
        free += 1;
    }
    while free > 0 && files.take_label(&names[free - 1]) {
        free -= 1;
    }
    for name in &names[free..] {
        match files.put_label(name, id) {
            Err(FileError::AlreadyExists) => {}
            other => return Ok(other?),
        }
    }
    Err(OpenError::PermissionDenied)
}
