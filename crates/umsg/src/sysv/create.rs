//! Creation of a queue: it is built without a name, and then gets its names and its identifier under the lock of its user.
//!
//! | step | if the process dies after it |
//! |---|---|
//! | the file is built without a name | it vanishes |
//! | the user's lock is taken; no other process created the key's queue meanwhile | the kernel releases the lock |
//! | the identifier that the namespace's owner wants is taken, if there is one | no queue gets it |
//! | the file gets its index, which from then on belongs to its creator alone | there is no queue; a later process of the user, or of root, that needs the index removes the file |
//! | the identifier is noted, larger than all earlier ones | there is no queue, as after the step before; the identifier is skipped |
//! | **the key symlink is made** | the queue exists |
//!
//! A key has one key symlink, see `namespace/msg/mod.rs`. A key symlink that exists already may belong to a queue that another process creates
//! or removes at this moment. Then the creator removes its file, and tries again for [`WAIT`].

use super::error::OpenError;
use super::permission::{Rights, caller};
use super::recycle::OwnFile;
use super::registry::{GetRequest, NewQueue, Obtained, PRIVATE, find, judge};
use super::sweep::Vacant;
use super::{file_rights, recycle, sweep};
use crate::error::QueueError;
use crate::namespace::{
    FileError, Files, INDICES, KeySymlink, Limits, Locked, Namespace, NewFile, Next, PATIENCE,
    indices_from, key_symlink_name,
};
use std::time::{Duration, Instant};
use umsg_shm::crash::crash_point;
use umsg_shm::sys::random::random;
use umsg_shm::sys::stack::nap;
use umsg_shm::sysv_engine::segment::{self, Identity, Layout, Segment};

/// The time for which a creator tries again while the key symlink exists.
const WAIT: Duration = Duration::from_secs(1);
/// The longest sleeps between two attempts: the first value after the first attempt, the second value after each later attempt.
const NAPS: [Duration; 2] = [Duration::from_micros(200), Duration::from_millis(20)];

/// Creates a queue, unless another process has created the key's queue meanwhile.
///
/// # Errors
/// All errors of [`OpenError`] except `NotFound` and `NoSuchId`.
pub(super) fn create(
    namespace: &Namespace,
    key: i32,
    request: GetRequest,
) -> Result<Obtained, OpenError> {
    let limits = namespace.limits_of_creation()?;
    let mode = request.mode & 0o777;
    if !limits.allow_mode(mode) {
        return Err(OpenError::ModeNotEnforced { mode });
    }
    let [mut longest, most] = NAPS;
    let begin = Instant::now();
    loop {
        match attempt(namespace, key, request, &limits) {
            Err(OpenError::KeyTaken { .. }) if begin.elapsed() < WAIT => {}
            done => return done,
        }
        // A random time, so that two creators do not meet again.
        nap(longest.mul_f64(random() as f64 / u64::MAX as f64));
        longest = most.min(longest * 2);
    }
}

/// Makes one attempt of [`create`]. Returns `KeyTaken` if the key already has a key symlink, which may not lead to a queue yet, or may lead to a
/// removed queue.
fn attempt(
    namespace: &Namespace,
    key: i32,
    request: GetRequest,
    limits: &Limits,
) -> Result<Obtained, OpenError> {
    let mut new = NewFile::create(namespace.msg_files()?)?;
    crash_point!(MSGGET_EMPTY);
    let mode = request.mode & 0o777;
    let mut segment = build(&new, key, request, limits)?;
    // Without a limit there is nothing to check.
    if limits.max_bytes.is_some() && !namespace.allows(0) {
        return Err(OpenError::Queue(QueueError::OverLimit));
    }
    segment.count_in(namespace.host());
    crash_point!(MSGGET_FILLED);
    let lock = new.files().lock(PATIENCE)?;
    if key != PRIVATE
        && let Some(found) = find(new.files(), key)?
    {
        return judge(found, request).map(Obtained::Existing);
    }
    let in_use = room(new.files(), limits, &lock)?;
    let number = match limits.next_id {
        Some(_) => namespace
            .take_next_id(new.files(), &lock)?
            .map(Number::Wanted),
        None => None,
    };
    crash_point!(MSGGET_ID_TAKEN);
    let number = match number {
        Some(wanted) => wanted,
        None => Number::Next(new.files().next(in_use)?, in_use),
    };
    // The next identifiers of a segment that is used again follow from the turns of its index, not from an identifier that the owner wants.
    let is_reusable = matches!(number, Number::Next(..))
        && request.reusable
        && recycle::may_be_reusable(namespace, mode, limits);
    let link = name(&mut new, &mut segment, limits, is_reusable, (number, &lock))?;
    let own_file = link.and_then(|link| OwnFile::of(namespace, new.file(), link, limits));
    Ok(Obtained::Created(NewQueue { segment, own_file }))
}

/// Builds a complete queue, apart from its identifier.
fn build(
    new: &NewFile,
    key: i32,
    request: GetRequest,
    limits: &Limits,
) -> Result<Segment, OpenError> {
    let capacity = limits.max_qbytes.max(limits.msgmnb);
    let layout = Layout::new(u64::from(capacity), limits.msgmax as usize);
    let (uid, gid) = caller();
    let identity = Identity {
        id: 0,
        key,
        mode: request.mode & 0o777,
        uid: uid.as_raw(),
        gid: gid.as_raw(),
        qbytes: u64::from(limits.msgmnb),
        policy: request.policy,
    };
    let mut segment = segment::create(new.file(), layout, &identity)?;
    file_rights::give(new.file(), &[Rights::of(segment.fixed())])
        .map_err(|e| OpenError::from(crate::error::OpenError::from_errno("fchmod", e)))?;
    let stat = rustix::fs::fstat(new.file())
        .map_err(|e| OpenError::from(crate::error::OpenError::from_errno("fstat", e)))?;
    segment.set_file_mode(stat.st_mode);
    Ok(segment)
}

/// Gives a queue its names and its identifier. The queue exists from the creation of its key symlink on. Returns the key symlink of a segment that
/// may be used again.
fn name(
    new: &mut NewFile,
    segment: &mut Segment,
    limits: &Limits,
    is_reusable: bool,
    (number, lock): (Number, &Locked),
) -> Result<Option<(String, KeySymlink)>, OpenError> {
    let key = segment.fixed().header.key();
    for index in number.indices() {
        if !sweep::index(new.files(), index, Vacant::OfTheDead, lock) {
            continue;
        }
        let link = key_symlink_name(key, index);
        match sweep::key_symlink(new.files(), &link, key, index, lock)? {
            true => {}
            // For a queue without a key, each index has its own key symlink.
            false if key == PRIVATE => continue,
            false => return Err(OpenError::KeyTaken { link }),
        }
        // No key symlink has this identifier. So a process that finds the linked file before `number.give` has set the final identifier finds no
        // queue.
        segment.set_id(number.id(index));
        match new.link(index) {
            Err(FileError::AlreadyExists) => continue,
            other => other?,
        }
        crash_point!(MSGGET_INDEXED);
        let made = number.give(new.files(), segment, index);
        let linked = made.and_then(|id| {
            let to = match is_reusable {
                true => KeySymlink::OfSegment(id),
                false => KeySymlink::Of(id),
            };
            put_key_symlink(new.files(), link, to)
        });
        // The file at the index still belongs to this creation, because this process holds its user's lock.
        if linked.is_err() {
            new.files().take_file(index, caller().0.as_raw());
        }
        return linked.map(|link| is_reusable.then_some(link));
    }
    Err(OpenError::TooManyQueues(limits.msgmni))
}

/// The source of a queue's identifier.
#[derive(Clone, Copy)]
enum Number {
    /// The usual identifier, which follows from the last identifier and the number of queues.
    Next(Next, u32),
    /// The identifier that the namespace's owner wants.
    Wanted(u32),
}

impl Number {
    /// Returns the indices to try, in order.
    fn indices(self) -> impl Iterator<Item = u32> {
        let ranges = match self {
            Number::Next(last, in_use) => last.indices(in_use),
            Number::Wanted(id) => indices_from(id),
        };
        ranges.into_iter().flatten()
    }

    /// Returns the identifier of a queue with this index.
    fn id(self, index: u32) -> i32 {
        match self {
            Number::Next(last, _) => last.with(index).id(),
            Number::Wanted(id) => Next::id_of(u64::from(id / INDICES), index),
        }
    }

    /// Gives the queue at an index its identifier.
    fn give(self, files: &mut Files, segment: &mut Segment, index: u32) -> Result<i32, OpenError> {
        let id = match self {
            Number::Next(last, in_use) => {
                // The note of the index's last identifier is read again, because the previous user of the index wrote the note before it gave the
                // index up.
                let next = files.next_again(last, in_use)?.with(index);
                segment.set_id(next.id());
                segment.fixed().header.set_turn(next.turn());
                files.note_next(next)?;
                next.id()
            }
            Number::Wanted(wanted) => {
                segment.set_id(self.id(index));
                segment.fixed().header.set_turn(u64::from(wanted / INDICES));
                self.id(index)
            }
        };
        crash_point!(MSGGET_NUMBERED);
        Ok(id)
    }
}

/// Makes the key symlink of a queue that has its index and its identifier.
fn put_key_symlink(
    files: &mut Files,
    link: String,
    to: KeySymlink,
) -> Result<(String, KeySymlink), OpenError> {
    match files.put_key_symlink(&link, to) {
        Ok(()) => {}
        Err(FileError::AlreadyExists) => return Err(OpenError::KeyTaken { link }),
        Err(error) => return Err(error.into()),
    }
    crash_point!(MSGGET_LABELLED);
    Ok((link, to))
}

/// Returns the number of queues if that number is below the limit. Before the function refuses a queue, it removes stale files, because these files
/// are counted as queues.
fn room(files: &mut Files, limits: &Limits, lock: &Locked) -> Result<u32, OpenError> {
    let limit = limits.msgmni.min(INDICES);
    let in_use = files.in_use()?;
    if in_use < limit {
        return Ok(in_use);
    }
    let mut in_use = 0;
    for index in files.indices_in_use()? {
        in_use += u32::from(!sweep::index(files, index, Vacant::Any, lock));
    }
    match in_use < limit {
        true => Ok(in_use),
        false => Err(OpenError::TooManyQueues(limits.msgmni)),
    }
}
