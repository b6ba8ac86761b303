//! Queues that stay mapped after the program has closed them. So a program that repeatedly opens a queue, sends a message and closes the
//! queue maps it once.
//!
//! The last close of a queue's descriptors leaves the queue here. A later opening opens the file by its name, and takes the queue of the
//! same device and inode ([`umsg::posix::KnownFile`]). The kernel decides each time where the name leads and whether the caller may open the
//! file. A kept queue has no descriptor. So two openings at the same time have separate mappings, and separate registrations in epoll.
//!
//! | bound | reason |
//! |---|---|
//! | [`MOST`] queues, [`BYTES`] bytes of files | the memory of queues that other processes remove meanwhile |
//! | no queue that was polled | a doorbell's descriptor is closed with the last of the queue's |
//! | no queue whose name this process has removed | its memory |
//!
//! A forked child keeps the queues of its parent, in its own mappings. Signal handlers may open and close queues at any time: an entry is a
//! [`Link`], which changes with one instruction.

use std::ffi::{OsStr, c_int};
use std::os::fd::IntoRawFd;
use std::os::unix::ffi::OsStrExt;
use std::sync::atomic::{AtomicUsize, Ordering};

use libc::mqd_t;
use rustix::io::Errno;
use umsg::Namespace;
use umsg::posix::KnownFile;
use umsg_shm::reclaim::Link;

use crate::attachments::Attached;
use crate::blocking::Forks;
use crate::table::{self, Held, Word};
use crate::{debug, process};

/// The number of queues that are kept.
const MOST: usize = 8;

/// The sum of the sizes of their files. A file of a queue of 10 messages has 1.4 MB, most of which is not memory.
const BYTES: u64 = 16 << 20;

static KEPT: [Link<Attached>; MOST] = [const { Link::nowhere() }; MOST];

/// The entry that the next queue takes if none is free.
static HAND: AtomicUsize = AtomicUsize::new(0);

/// Opens a kept queue, or finds that no queue has the name. `name` has no slash. Returns `None` if a full opening is needed. Then a kept
/// queue of the name is unmapped.
pub(crate) fn open(
    namespace: &Namespace,
    name: &[u8],
    flags: c_int,
) -> Option<Result<mqd_t, c_int>> {
    let access = flags & libc::O_ACCMODE;
    let (read, write) = (access != libc::O_WRONLY, access != libc::O_RDONLY);
    // A child of vfork has its own descriptors, but shares the table.
    if !process::owns_table() {
        return None;
    }
    let (nonblocking, forks) = (flags & libc::O_NONBLOCK != 0, Forks::now());
    let file = match KnownFile::open(namespace, OsStr::from_bytes(name), read, write, nonblocking) {
        Ok(file) => file,
        // A program that wants an explanation gets the one of a full opening.
        Err(Errno::NOENT) if flags & libc::O_CREAT == 0 && !debug::is_on() => {
            return Some(Err(libc::ENOENT));
        }
        Err(_) => return None,
    };
    let word = take(&file, name, access)?;
    let held = Held::of_word(word);
    let opened = held
        .state
        .and_then(|state| file.open_queue(&held.queue, state));
    let descriptor = opened?;
    held.blocking.open(nonblocking, forks);
    let word = held.into_word()?;
    let number = descriptor.into_raw_fd();
    table::enter(number, word);
    Some(Ok(number))
}

/// Takes the kept queue in this file. Forgets a queue that had the name before.
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

/// Releases the count of a closed descriptor. Keeps a queue to which no other descriptor leads.
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
    let Some(word) = held.into_word() else {
        return;
    };
    if !KEPT.iter().any(|link| link.put_if_empty(word)) {
        // Relaxed: any entry will do.
        KEPT[HAND.fetch_add(1, Ordering::Relaxed) % MOST].put(word);
    }
}

/// Forgets the queues for which `is_over` holds.
fn forget_if(is_over: impl Fn(&Attached) -> bool) {
    for link in &KEPT {
        if let Some(held) = Held::of(link).filter(|held| is_over(held)) {
            link.forget(held.word());
        }
    }
}

/// Removes the kept queue of a name that this process has removed. If the queue is open, its last close unmaps it.
pub(crate) fn forget_removed(name: &[u8]) {
    forget_if(|kept| &*kept.name == name);
    for number in table::known_between(0, u32::MAX) {
        if let Some(held) = table::hold(number).filter(|held| &*held.name == name) {
            held.unmap_at_last_close();
        }
    }
}
