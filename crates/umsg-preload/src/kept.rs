//! Queues that stay mapped after the program has closed them. A program may repeatedly open a queue, send a message and close the queue. With this
//! module, it maps the queue only once.
//!
//! The last close of a queue's descriptors leaves the queue mapped, in this module. A later opening opens the file by its name, and takes the mapped
//! queue of the same device and inode ([`umsg::posix::KnownFile`]). Each time, the kernel decides which file the name refers to, and whether the
//! caller may open the file. A kept queue has no descriptor. So if a queue is open twice at the same time, there are two mappings, and separate
//! registrations in epoll.
//!
//! | bound | reason |
//! |---|---|
//! | [`MOST`] queues, [`BYTES`] bytes of files | the memory of queues that other processes remove meanwhile |
//! | no queue that was polled | the doorbell's descriptor is closed with the last descriptor of the queue |
//! | no queue whose name this process has removed | the memory of the removed queue |
//!
//! If the program removes a queue and creates it again, this module keeps the queue in between, without messages: [`crate::vacated`].
//!
//! A forked child keeps the queues of its parent, in its own mappings. Signal handlers may open and close queues at any time, so an entry is a
//! [`Link`], which changes with one instruction.

use std::ffi::{OsStr, c_int};
use std::os::fd::{AsRawFd, IntoRawFd};
use std::os::unix::ffi::OsStrExt;
use std::sync::atomic::{AtomicUsize, Ordering};

use libc::mqd_t;
use rustix::io::Errno;
use umsg::Namespace;
use umsg::posix::{KnownFile, OpenOptions, UnlinkError};
use umsg_shm::reclaim::Link;

use crate::absent::{self, Known};
use crate::attachments::Attached;
use crate::blocking::Forks;
use crate::table::{self, ACCESS_MODE, Held, Word};
use crate::{debug, process, vacated};

/// The maximum number of kept queues.
const MOST: usize = 8;

/// The maximum sum of the sizes of the kept queues' files, in bytes. The file of a queue of 10 messages has 1.4 MB, but takes only little memory.
const BYTES: u64 = 16 << 20;

static KEPT: [Link<Attached>; MOST] = [const { Link::nowhere() }; MOST];

/// Modulo [`MOST`], the index of the entry that the next kept queue replaces if no entry is empty.
static HAND: AtomicUsize = AtomicUsize::new(0);

/// Opens a kept queue, makes a queue in a vacant segment, or finds that no queue has the name. `name` has no slash. Returns `None` if a full opening
/// is needed. In that case, a kept queue of the name is unmapped.
pub(crate) fn open(
    namespace: &Namespace,
    name: &[u8],
    flags: c_int,
    options: impl FnOnce() -> OpenOptions,
) -> Option<Result<mqd_t, c_int>> {
    let may_create = flags & libc::O_CREAT != 0;
    let must_create = may_create && flags & libc::O_EXCL != 0;
    if must_create && !has_vacant(name) {
        return None;
    }
    let directory = match (!may_create).then(|| absent::known(namespace, name)) {
        // If the user has requested explanations, a full opening must report the error.
        Some(Known::Absent) if !debug::is_on() => return Some(Err(libc::ENOENT)),
        Some(Known::Nothing(directory)) => directory,
        _ => None,
    };
    let access = flags & ACCESS_MODE;
    let (read, write) = (access != libc::O_WRONLY, access != libc::O_RDONLY);
    // A child of vfork has its own descriptors, but shares the table.
    if !process::owns_table() {
        return None;
    }
    let (nonblocking, forks) = (flags & libc::O_NONBLOCK != 0, Forks::now());
    let file = match KnownFile::open(namespace, OsStr::from_bytes(name), read, write, nonblocking) {
        Ok(file) => file,
        // If the user has requested explanations, a full opening must report the error.
        Err(Errno::NOENT) if !may_create && !debug::is_on() => {
            absent::note(name, directory);
            return Some(Err(libc::ENOENT));
        }
        Err(_) => return None,
    };
    let word = take(&file, name, access)?;
    let held = Held::of_word(word);
    let state = held.state?;
    let descriptor = if held.queue.is_vacant() {
        // Only the process that has created the queue may make a new queue in the segment. A child that has inherited the segment may not.
        held.created()?;
        if !may_create {
            keep(held);
            return (!debug::is_on()).then_some(Err(libc::ENOENT));
        }
        let descriptor = options().revive(namespace, file, &held.queue, state)?;
        match vacated::may_be_spawned(descriptor.as_raw_fd()) {
            false => held.note_creation(forks),
            true => held.forget_creation(),
        }
        descriptor
    } else {
        let is_own = held.created().is_some_and(|then| !then.has_forked_since());
        if must_create || !is_own && !held.queue.join() {
            return None;
        }
        file.open_queue(&held.queue, state)?
    };
    held.blocking.open(nonblocking, forks);
    let word = held.into_word()?;
    let number = descriptor.into_raw_fd();
    table::enter(number, word);
    Some(Ok(number))
}

/// Takes the kept queue that has this name and this file. Forgets a kept queue that has the name and another file.
fn take(file: &KnownFile, name: &[u8], access: c_int) -> Option<Word> {
    KEPT.iter().find_map(|link| {
        let held = Held::of(link).filter(|held| held.name.get(1..) == Some(name))?;
        let word = held.word();
        if held.identity != file.identity() {
            link.forget(word);
            return None;
        }
        (held.has_access(access) && link.take_if(word)).then_some(word)
    })
}

/// Releases the count of a closed descriptor. The release for the queue's last descriptor keeps the queue mapped, if possible.
pub(crate) fn release(word: Word) {
    let Some(last) = word.release_unless_last() else {
        return;
    };
    let held = Held::of_word(last);
    let Some(state) = held.kept_state().filter(|state| state.size() <= BYTES) else {
        return;
    };
    let mut others = 0;
    for kept in KEPT.iter().filter_map(Held::of) {
        if kept.identity == held.identity && kept.has_access_of(&held) {
            return;
        }
        others += kept.state.map_or(0, |state| state.size());
    }
    if others + state.size() > BYTES {
        forget_if(|_| true);
    }
    keep(held);
}

/// Adds a queue that has no descriptor to the kept queues. If no entry is empty, the queue replaces another kept queue.
fn keep(held: Held) {
    let Some(word) = held.into_word() else {
        return;
    };
    if !KEPT.iter().any(|link| link.put_if_empty(word)) {
        // Relaxed: any entry can be replaced.
        KEPT[HAND.fetch_add(1, Ordering::Relaxed) % MOST].put(word);
    }
}

/// Returns whether this module keeps a vacant queue of the name, which has no slash.
fn has_vacant(name: &[u8]) -> bool {
    KEPT.iter()
        .filter(|link| link.leads())
        .filter_map(Held::of)
        .any(|kept| kept.name.get(1..) == Some(name) && kept.queue.is_vacant())
}

/// Removes a queue that this process has created and closed, and keeps its segment. Returns false if the queue has to be removed in full.
pub(crate) fn vacate(namespace: &Namespace, name: &[u8]) -> bool {
    let closed = KEPT.iter().filter(|link| link.leads()).find_map(|link| {
        let held = Held::of(link).filter(|held| &*held.name == name && held.may_be_vacated())?;
        let word = held.word();
        drop(held);
        link.take_if(word).then_some(word)
    });
    let Some(word) = closed else {
        return false;
    };
    let held = Held::of_word(word);
    // The conditions are checked again, because before this point, a thread may have opened the queue, forked or duplicated the descriptor, and
    // closed it. From this point on, no other thread and no child of a later fork can find the queue in this table.
    let vacated = word.is_sole_user()
        && held.may_be_vacated()
        && process::owns_table()
        && held.state.is_some_and(|created| {
            let rest = OsStr::from_bytes(&name[1..]);
            held.queue.vacate(namespace, rest, created)
        });
    if vacated {
        vacated::tidy_at_exit(namespace);
        keep(held);
    }
    vacated
}

/// Removes the name of a kept queue. Returns None if no queue of the name is kept, or if the queue's file has to be opened.
pub(crate) fn unlink(namespace: &Namespace, name: &[u8]) -> Option<Result<(), UnlinkError>> {
    let mut kept = KEPT.iter().filter_map(Held::of);
    let kept = kept.find(|kept| &*kept.name == name)?;
    umsg::posix::unlink_mapped(namespace, OsStr::from_bytes(name), &kept.queue)
}

/// Calls `visit` with each kept queue.
pub(crate) fn for_each(visit: impl Fn(&Attached)) {
    KEPT.iter()
        .filter_map(Held::of)
        .for_each(|kept| visit(&kept));
}

/// In a forked child, forgets which segments the child may use again: they belong to the parent. The parent may be about to vacate a queue that is
/// not vacant yet.
pub(crate) fn forget_creations() {
    for_each(Attached::forget_creation);
}

/// Forgets all kept queues.
pub(crate) fn forget_all() {
    forget_if(|_| true);
}

/// Forgets the kept queues for which `is_over` returns true.
fn forget_if(is_over: impl Fn(&Attached) -> bool) {
    for link in &KEPT {
        if let Some(held) = Held::of(link).filter(|held| is_over(held)) {
            link.forget(held.word());
        }
    }
}

/// Forgets the kept queue of a name that this process has removed. If the queue is open, its last close unmaps it.
pub(crate) fn forget_removed(name: &[u8]) {
    forget_if(|kept| &*kept.name == name);
    for number in table::known_between(0, u32::MAX) {
        if let Some(held) = table::hold(number).filter(|held| &*held.name == name) {
            held.unmap_at_last_close();
        }
    }
}
