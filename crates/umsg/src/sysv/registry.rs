//! Finding queues by key and by identifier (msgget).
//!
//! ```text
//!   key -- key symlink's text --> identifier -- modulo 32768 --> file -- header --> is it the right queue?
//! ```
//!
//! A search takes no lock. Names may change meanwhile. Then the result was correct at some instant during the call.
//!
//! A queue exists if its key symlink and its file exist, see the table in `namespace/msg/mod.rs`. The header only tells whether the queue
//! was removed meanwhile, or whether the file belongs to another queue. Any other header is corrupted, but its queue exists.

use super::create;
use super::error::OpenError;
use super::permission::Rights;
use super::recycle::OwnFile;
use crate::error::SegmentError;
use crate::namespace::{Entry, FileError, Files, INDICES, KeySymlink, Namespace, key_symlink_name};
use rustix::fd::{AsFd, OwnedFd};
use umsg_shm::sysv_engine::segment::{
    Policy, Segment, Summary, attach, is_marked_removed, summary,
};

/// The key that creates a new queue without a key at each call (IPC_PRIVATE).
pub const PRIVATE: i32 = 0;

/// The arguments of msgget(2).
#[derive(Clone, Copy, Debug)]
pub(super) struct GetRequest {
    /// `create`: true to create a queue if there is none (IPC_CREAT). `exclusive`: true to fail if there is a queue (IPC_EXCL).
    pub(super) create: bool,
    pub(super) exclusive: bool,
    /// Permission bits of a created queue.
    pub(super) mode: u32,
    /// Permissions that the caller asks of an existing queue.
    pub(super) asked: u32,
    /// The delivery policy of a created queue.
    pub(super) policy: Policy,
    /// True if the caller wants to use the segment of a created queue again, see `recycle.rs`.
    pub(super) reusable: bool,
}

impl GetRequest {
    /// Decodes the flags of msgget(2).
    pub(super) fn of_flags(flags: i32) -> GetRequest {
        let bits = flags as u32 & 0o777;
        GetRequest {
            create: flags & libc::IPC_CREAT != 0,
            exclusive: flags & libc::IPC_EXCL != 0,
            mode: bits,
            asked: bits,
            policy: Policy::default(),
            reusable: false,
        }
    }
}

/// An existing queue.
pub(super) struct ExistingQueue {
    pub(super) id: i32,
    /// The file, open for reading and writing, and the summary of its header; None if the caller may not open the file.
    pub(super) file: Option<(OwnedFd, Summary)>,
}

/// The queue that msgget(2) found or created.
pub(super) enum Obtained {
    Existing(ExistingQueue),
    Created(NewQueue),
}

/// A queue that msgget(2) created.
pub(super) struct NewQueue {
    pub(super) segment: Segment,
    /// The file, if the segment may be used again.
    pub(super) own_file: Option<OwnFile>,
}

impl Obtained {
    /// Returns the queue's identifier.
    pub(super) fn id(&self) -> i32 {
        match self {
            Obtained::Existing(found) => found.id,
            Obtained::Created(new) => new.segment.tenure().id,
        }
    }

    /// Maps the queue.
    pub(super) fn attach(self, namespace: &Namespace) -> Result<Segment, OpenError> {
        match self {
            Obtained::Created(new) => Ok(new.segment),
            Obtained::Existing(ExistingQueue {
                file: Some((file, _)),
                ..
            }) => map(&file, namespace),
            Obtained::Existing(_) => Err(OpenError::PermissionDenied),
        }
    }
}

/// Finds the queue of a key, or creates one. Source: `ipcget` in ipc/util.c of the kernel.
///
/// # Errors
/// All errors of [`OpenError`] except `NoSuchId`.
pub(super) fn get(
    namespace: &Namespace,
    key: i32,
    request: GetRequest,
) -> Result<Obtained, OpenError> {
    if key == PRIVATE {
        return create::create(namespace, key, request);
    }
    match find(&mut namespace.msg_files()?, key)? {
        Some(found) => judge(found, request).map(Obtained::Existing),
        None if request.create => create::create(namespace, key, request),
        None => Err(OpenError::NotFound),
    }
}

/// Returns the identifier of a queue, as msgget(2) does with these flags; for the C library and the drop-in.
///
/// # Errors
/// The errors of [`OpenOptions::open`](super::OpenOptions::open); `PermissionDenied` if the queue does not grant all permissions of the flags.
#[doc(hidden)]
pub fn msgget(namespace: &Namespace, key: i32, flags: i32) -> Result<i32, OpenError> {
    get(namespace, key, GetRequest::of_flags(flags)).map(|queue| queue.id())
}

/// Checks whether the caller gets an existing queue.
pub(super) fn judge(found: ExistingQueue, request: GetRequest) -> Result<ExistingQueue, OpenError> {
    if request.create && request.exclusive {
        return Err(OpenError::AlreadyExists);
    }
    let granted = match &found.file {
        Some((_, summary)) => Rights::of_summary(summary).grant(request.asked),
        // A caller that may not open the file gets the identifier only if it asks for no permission.
        None => request.asked & 0o777 == 0,
    };
    match granted {
        true => Ok(found),
        false => Err(OpenError::PermissionDenied),
    }
}

/// Returns the queue of a key: the queue to which the key symlink leads.
///
/// # Errors
/// `NotAQueue`, `Damaged`, `OtherVersion` if the queue can't be used.
pub(super) fn find(files: &mut Files, key: i32) -> Result<Option<ExistingQueue>, OpenError> {
    let link = files.key_symlink(&key_symlink_name(key, 0))?;
    let Some(link) = Entry::of(link, key) else {
        return Ok(None);
    };
    let (id, file) = match behind(files, &link)? {
        Behind::Nothing | Behind::Vacant(_) => return Ok(None),
        Behind::Closed => (link.id, None),
        Behind::Queue(file, said) => (said.id, Some((file, said))),
        Behind::Unusable(_, error) => return Err(error),
    };
    Ok(Some(ExistingQueue { id, file }))
}

/// The object to which a key symlink leads.
pub(super) enum Behind {
    /// No queue, another queue, or an unfinished queue.
    Nothing,
    /// A segment that a process keeps for its next queue. That queue may come into existence at any time.
    Vacant(OwnedFd),
    /// A queue whose file the caller may not open.
    Closed,
    /// A queue, and its summary.
    Queue(OwnedFd, Summary),
    /// A queue that can't be used, and the reason: `NotAQueue`, `Damaged`, `OtherVersion`.
    Unusable(OwnedFd, OpenError),
}

impl Behind {
    /// Returns whether the key symlink led to a queue, corrupted or not.
    pub(super) fn is_queue(&self) -> bool {
        !matches!(self, Behind::Nothing | Behind::Vacant(_))
    }
}

/// Follows a key symlink, which was read before.
///
/// # Errors
/// `TooManyFiles`, `Namespace`, `System`.
pub(super) fn behind(files: &mut Files, link: &Entry) -> Result<Behind, OpenError> {
    let file = match files.open(link.index) {
        Ok(file) => file,
        Err(FileError::Denied) if is_marked(files, link.index)? => return Ok(Behind::Nothing),
        Err(FileError::Denied) => return Ok(Behind::Closed),
        Err(error) if is_no_file(&error) => return Ok(Behind::Nothing),
        Err(error) => return Err(error.into()),
    };
    let error = match summary(file.as_fd()).map_err(OpenError::from) {
        Ok(said) if said.is_vacant && link.is_of(said.id, said.key) => {
            return Ok(Behind::Vacant(file));
        }
        Ok(said) if said.is_removed || is_anothers(files, &file, &said, link)? => {
            return Ok(Behind::Nothing);
        }
        Ok(said) if link.is_of(said.id, said.key) => return Ok(Behind::Queue(file, said)),
        Ok(_) => OpenError::Segment(SegmentError::Damaged(
            "its header has another key or identifier than its key symlink",
        )),
        Err(error) if is_unusable(&error) => error,
        Err(error) => return Err(error),
    };
    Ok(Behind::Unusable(file, error))
}

/// Returns whether an intact header belongs to another queue than that of the key symlink.
///
/// There are three cases: the file belongs to an unfinished queue, the file belongs to a queue with another key symlink, or the key symlink was
/// removed. If the file has two names, its key symlink may have another index. Any other header is corrupted.
fn is_anothers(
    files: &Files,
    file: &OwnedFd,
    said: &Summary,
    link: &Entry,
) -> Result<bool, OpenError> {
    if link.is_of(said.id, said.key) {
        return Ok(false);
    }
    let is_here = index_of(said.id) == link.index;
    let is_unfinished = is_here && said.id != link.id && said.key != link.key;
    Ok(is_unfinished
        || has_key_symlink(files, said)? && (is_here || is_at(files, file, index_of(said.id))?)
        || key_symlink_of(files, link.key, link.id)?.is_none())
}

/// Returns whether an open file is the file at an index. A copy of that file is another file, even with the same header.
fn is_at(files: &Files, file: &OwnedFd, index: u32) -> Result<bool, OpenError> {
    let open =
        rustix::fs::fstat(file).map_err(|e| crate::error::OpenError::from_errno("fstat", e))?;
    let there = files.stat(index)?;
    Ok(there.is_some_and(|stat| (stat.st_dev, stat.st_ino) == (open.st_dev, open.st_ino)))
}

/// Returns whether an error says that the queue's file can't be used.
pub(super) fn is_unusable(error: &OpenError) -> bool {
    matches!(
        error,
        OpenError::Segment(SegmentError::NotAQueue(_))
            | OpenError::Segment(SegmentError::Damaged(_))
            | OpenError::Segment(SegmentError::OtherVersion { .. })
    )
}

/// Maps the queue with an identifier.
///
/// # Errors
/// `NoSuchId`, `PermissionDenied`, `OtherVersion`, `Damaged`, `NoMemory`, `TooManyFiles`, `Namespace`, `System`.
pub(super) fn attach_id(namespace: &Namespace, id: i32) -> Result<Segment, OpenError> {
    let (file, _) = open_id(&mut namespace.msg_files()?, id)?;
    let segment = map(&file, namespace)?;
    match segment.tenure().id == id {
        true => Ok(segment),
        // Since the file was opened, the segment has been used again for another queue.
        false => Err(OpenError::NoSuchId),
    }
}

/// Opens the file of the queue with an identifier.
///
/// # Errors
/// The errors of [`attach_id`].
pub(super) fn open_id(files: &mut Files, id: i32) -> Result<(OwnedFd, Summary), OpenError> {
    if id < 0 {
        return Err(OpenError::NoSuchId);
    }
    let file = match files.open(index_of(id)) {
        Ok(file) => file,
        Err(FileError::Denied) => return Err(denied(files, id)?),
        Err(error) if is_no_file(&error) => return Err(OpenError::NoSuchId),
        Err(error) => return Err(error.into()),
    };
    if let Ok(said) = summary(file.as_fd()) {
        let is_found = index_of(said.id) == index_of(id) && has_key_symlink(files, &said)?;
        if said.is_removed || is_found {
            return match said.id == id && !said.is_removed {
                true => Ok((file, said)),
                false => Err(OpenError::NoSuchId),
            };
        }
    }
    // The header may be forged: the key symlinks show the queue of the file.
    let link = key_symlink_with(files, id)?.ok_or(OpenError::NoSuchId)?;
    match behind(files, &link)? {
        Behind::Nothing | Behind::Vacant(_) => Err(OpenError::NoSuchId),
        Behind::Closed => Err(OpenError::PermissionDenied),
        Behind::Queue(file, said) => Ok((file, said)),
        Behind::Unusable(_, error) => Err(error),
    }
}

/// Returns the key symlink of the queue with an identifier.
pub(super) fn key_symlink_with(files: &Files, id: i32) -> Result<Option<Entry>, OpenError> {
    let entries = files.entries()?;
    Ok(entries.into_iter().find(|entry| entry.id == id))
}

/// Returns the error for an identifier whose file the caller may not open, or whose queue was removed.
fn denied(files: &Files, id: i32) -> Result<OpenError, OpenError> {
    let is = !is_marked(files, index_of(id))? && key_symlink_with(files, id)?.is_some();
    Ok(match is {
        true => OpenError::PermissionDenied,
        false => OpenError::NoSuchId,
    })
}

/// Returns whether a file that the caller may not open is marked as that of a removed queue.
pub(super) fn is_marked(files: &Files, index: u32) -> Result<bool, OpenError> {
    let stat = files.stat(index)?;
    Ok(stat.is_some_and(|stat| is_marked_removed(stat.st_size as u64)))
}

/// Returns whether a queue has its key symlink. A queue without a key symlink is unfinished.
pub(super) fn has_key_symlink(files: &Files, said: &Summary) -> Result<bool, OpenError> {
    key_symlink_of(files, said.key, said.id).map(|link| link.is_some())
}

/// Returns the entry of a queue's key symlink, if the key symlink exists.
pub(super) fn entry_of(files: &Files, said: &Summary) -> Result<Option<Entry>, OpenError> {
    let link = files.key_symlink(&key_symlink_name(said.key, index_of(said.id)))?;
    Ok(Entry::of(link, said.key).filter(|entry| entry.is_of(said.id, said.key)))
}

/// Returns the name of a queue's key symlink, if the key symlink exists.
pub(super) fn key_symlink_of(
    files: &Files,
    key: i32,
    id: i32,
) -> Result<Option<String>, OpenError> {
    let name = key_symlink_name(key, index_of(id));
    let is_its = match files.key_symlink(&name)? {
        KeySymlink::Of(its) => its == id,
        KeySymlink::OfSegment(first) => index_of(first) == index_of(id),
        KeySymlink::Missing | KeySymlink::Foreign => false,
    };
    Ok(is_its.then_some(name))
}

/// Returns the summary of the header of a queue's file; None if the file is unusable.
///
/// # Errors
/// `System`.
pub(super) fn said(file: &OwnedFd) -> Result<Option<Summary>, OpenError> {
    match summary(file.as_fd()).map_err(OpenError::from) {
        Ok(said) => Ok(Some(said)),
        Err(error) if is_unusable(&error) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Returns whether an error says that the index has no file that can be a queue.
pub(super) fn is_no_file(error: &FileError) -> bool {
    matches!(
        error,
        FileError::NotFound | FileError::Directory | FileError::Symlink | FileError::Special
    )
}

/// Returns the index of an identifier's file.
pub(super) fn index_of(id: i32) -> u32 {
    id as u32 % INDICES
}

fn map(file: &OwnedFd, namespace: &Namespace) -> Result<Segment, OpenError> {
    let mut segment = attach(file.as_fd())?;
    segment.join(namespace.host())?;
    Ok(segment)
}
