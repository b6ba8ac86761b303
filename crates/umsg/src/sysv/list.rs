//! Listing the queues of a namespace.

use super::entry::Entry;
use super::error::{ControlError, OpenError};
use super::permission::Rights;
use super::registry::{has_key_symlink, index_of, is_marked, is_no_file, said};
use super::scan::{Counted, Scan, entry_behind};
use super::status::TO_LOOK;
use crate::namespace::{FileError, Files, INDICES, Namespace};
use umsg_shm::sysv_engine::segment::Summary;

/// Returns the queues of a namespace, in the order of their indices. The list includes queues that the caller may not read, and queues with corrupted
/// files; see [`Entry::readable`].
///
/// ```
/// # let dir = tempfile::tempdir_in("/dev/shm")?;
/// # let namespace = umsg::Namespace::at(dir.path())?;
/// # let queue = umsg::sysv::OpenOptions::new().create(true).namespace(&namespace).open(1)?;
/// assert_eq!(umsg::sysv::list(&namespace)?[0].key, 1);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// Fails if the namespace can't be read.
pub fn list(namespace: &Namespace) -> Result<Vec<Entry>, OpenError> {
    let mut files = namespace.msg_files()?;
    let mut scan = Scan::of(&mut files)?;
    let entries = scan.entries(&mut files)?;
    scan.keep();
    Ok(entries)
}

/// Returns the identifiers and keys of the queues of a namespace, in the order of their indices, without opening a queue. For programs that keep
/// queues open and look for new ones. If a queue has no key, its key is 0.
///
/// There is one exception: if the creator of a queue removes and creates queues repeatedly, the call opens the queue's file, because only the file
/// has the identifier.
///
/// ```
/// # let dir = tempfile::tempdir_in("/dev/shm")?;
/// # let namespace = umsg::Namespace::at(dir.path())?;
/// # let queue = umsg::sysv::OpenOptions::new().create(true).namespace(&namespace).open(1)?;
/// assert_eq!(umsg::sysv::ids(&namespace)?, [(queue.id(), 1)]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// The errors of [`list`].
pub fn ids(namespace: &Namespace) -> Result<Vec<(i32, i32)>, OpenError> {
    let mut files = namespace.msg_files()?;
    let mut ids = Vec::new();
    for link in files.entries()? {
        match link.varies {
            false => ids.push((link.id, link.key)),
            true => {
                let entry = entry_behind(&mut files, &link)?;
                ids.extend(entry.map(|entry| (entry.id, entry.key)));
            }
        }
    }
    // If two key symlinks have the same identifier, they are neighbours, and the last of them is valid.
    ids.reverse();
    ids.dedup_by_key(|(id, _)| *id);
    ids.reverse();
    Ok(ids)
}

/// Returns the queue with an index, as MSG_STAT does. With `any`, does the same as MSG_STAT_ANY, which needs no permission. The argument may be an
/// identifier instead of an index. Source: `msgctl_stat` in ipc/msg.c of the kernel.
pub(super) fn entry_at(
    namespace: &Namespace,
    index: i32,
    any: bool,
) -> Result<Entry, ControlError> {
    let index = u32::try_from(index).map_err(|_| OpenError::NoSuchId)? % INDICES;
    let entry = find(&mut namespace.msg_files()?, index)?.ok_or(OpenError::NoSuchId)?;
    match any || may_look(&entry) {
        true => Ok(entry),
        false => Err(ControlError::PermissionDenied),
    }
}

fn find(files: &mut Files, index: u32) -> Result<Option<Entry>, OpenError> {
    match files.open(index) {
        Ok(file) => match said(&file)? {
            Some(said) if said.is_removed => Ok(None),
            Some(said) if is_its_own(files, index, &said)? => Ok(Some(Entry::of_summary(&said))),
            _ => by_key_symlink(files, index),
        },
        Err(FileError::Denied) if is_marked(files, index)? => Ok(None),
        Err(FileError::Denied) => by_key_symlink(files, index),
        Err(error) if is_no_file(&error) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

fn is_its_own(files: &Files, index: u32, said: &Summary) -> Result<bool, OpenError> {
    Ok(index_of(said.id) == index && has_key_symlink(files, said)?)
}

/// Finds the queue of an index by its key symlink. The names of key symlinks do not contain the index, so all key symlinks are read.
fn by_key_symlink(files: &mut Files, index: u32) -> Result<Option<Entry>, OpenError> {
    let links = files.entries()?;
    let link = links.iter().rfind(|link| link.index == index);
    link.map_or(Ok(None), |link| entry_behind(files, link))
}

fn may_look(entry: &Entry) -> bool {
    let rights = Rights {
        uid: entry.uid,
        gid: entry.gid,
        cuid: entry.cuid,
        cgid: entry.cgid,
        mode: entry.mode,
    };
    entry.readable && rights.grant(TO_LOOK)
}

/// Sums over all queues, as MSG_INFO gives them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Totals {
    /// The number of queues.
    pub queues: u32,
    /// The number of messages in the queues that the caller may read.
    pub messages: u64,
    /// The bytes of these messages together.
    pub bytes: u64,
    /// The highest index of a queue; 0 without a queue.
    pub highest_index: u32,
}

/// Returns the sums over the queues of a namespace. The call reads the counts from each queue's header, so no operation on a queue has to keep sums.
/// The sums are exact if no process uses the queues meanwhile.
///
/// ```
/// # let dir = tempfile::tempdir_in("/dev/shm")?;
/// # let namespace = umsg::Namespace::at(dir.path())?;
/// # let queue = umsg::sysv::OpenOptions::new().create(true).namespace(&namespace).open(1)?;
/// queue.send(1, b"job")?;
/// assert_eq!(umsg::sysv::totals(&namespace)?.messages, 1);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// The errors of [`list`].
pub fn totals(namespace: &Namespace) -> Result<Totals, OpenError> {
    if let Some(totals) = Scan::kept(namespace, mapped_totals) {
        return Ok(totals);
    }
    let mut files = namespace.msg_files()?;
    let mut scan = Scan::of(&mut files)?;
    let all = scan.counts(&mut files)?;
    scan.keep();
    Ok(sum(&all))
}

/// Returns the sums of a scan, if all headers are mapped.
pub(super) fn mapped_totals(scan: &Scan) -> Option<Totals> {
    scan.sum_mapped(Totals::default(), add)
}

fn sum(all: &[Counted]) -> Totals {
    all.iter().fold(Totals::default(), add)
}

pub(super) fn add(sum: Totals, queue: &Counted) -> Totals {
    Totals {
        queues: sum.queues + 1,
        messages: sum.messages.saturating_add(queue.counts.messages),
        bytes: sum.bytes.saturating_add(queue.counts.bytes),
        highest_index: sum.highest_index.max(queue.id as u32 % INDICES),
    }
}
