//! Queues that the program removes and creates again under one name. The next queue is made in the segment of the removed queue
//! ([`umsg::posix::Queue`]'s `vacate`, [`umsg::posix::OpenOptions`]'s `revive`).
//!
//! The drop-in keeps no segment until the program has removed a queue of the name once. From then on, the drop-in creates queues of that name as
//! queues that it may vacate. Between two openings, [`crate::kept`] has the queue, whether it is vacant or not.
//!
//! | a queue is not vacated | reason |
//! |---|---|
//! | while a call uses it, or a descriptor is open | such calls continue to use the removed queue |
//! | if the process has forked since its creation | the child has its descriptors |
//! | if a descriptor was duplicated, passed over a socket, or kept open for a new program | another process may have its descriptor |
//! | if another process has opened it | that process continues to use the removed queue |
//!
//! When the process exits, it removes the files of its vacant queues. The files of a killed process stay until a process needs their names, or until
//! `umsg gc`.

use std::ffi::{OsStr, c_int};
use std::os::unix::ffi::OsStrExt;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use umsg::Namespace;
use umsg_shm::sys::stack::roomy;

use crate::attachments::Attached;
use crate::{kept, process};

/// The number of names that are remembered.
const MOST: usize = 8;

/// Hashes of the names of queues that this process has removed; 0 for none. If two names have the same hash, the only effect is that a segment may be
/// kept for a name that the program does not use again.
static NAMES: [AtomicU64; MOST] = [const { AtomicU64::new(0) }; MOST];

/// The number of stores to [`NAMES`]. Modulo [`MOST`], it is the index at which the next name is stored.
static NEXT: AtomicUsize = AtomicUsize::new(0);

/// The numbers of the descriptors that the program passes to new programs. Each number has a bit; high numbers share a bit with lower ones.
static SPAWNED: [AtomicU64; 16] = [const { AtomicU64::new(0) }; 16];

/// Notes that new programs get the descriptor that has this number, now or later.
pub(crate) fn note_spawned(number: c_int) {
    let (word, bit) = spawned(number);
    word.fetch_or(bit, Ordering::Relaxed);
}

/// Returns whether new programs may get the descriptor that has this number.
pub(crate) fn may_be_spawned(number: c_int) -> bool {
    let (word, bit) = spawned(number);
    word.load(Ordering::Relaxed) & bit != 0
}

fn spawned(number: c_int) -> (&'static AtomicU64, u64) {
    let number = number.cast_unsigned() as usize;
    (&SPAWNED[number / 64 % SPAWNED.len()], 1 << (number % 64))
}

/// Notes that the program has removed a queue.
pub(crate) fn note_removal(name: &[u8]) {
    // Relaxed, for all accesses in this file: the words are only hints.
    if !was_removed(name) {
        let place = NEXT.fetch_add(1, Ordering::Relaxed) % MOST;
        NAMES[place].store(hash(name), Ordering::Relaxed);
    }
}

/// Returns whether the program has removed a queue of the name.
pub(crate) fn was_removed(name: &[u8]) -> bool {
    // The name is hashed only if a queue was removed before.
    NEXT.load(Ordering::Relaxed) != 0 && {
        let hash = hash(name);
        NAMES
            .iter()
            .any(|known| known.load(Ordering::Relaxed) == hash)
    }
}

/// Returns the hash FNV-1a of a name.
fn hash(name: &[u8]) -> u64 {
    let add = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3);
    name.iter().fold(0xcbf2_9ce4_8422_2325, add).max(1)
}

/// Removes the file of a vacant queue that will not be used again.
#[inline]
pub(crate) fn give_up(attached: &Attached) {
    if attached.created().is_some() && attached.queue.is_vacant() {
        give_up_vacant(attached);
    }
}

#[cold]
fn give_up_vacant(attached: &Attached) {
    if let Some(namespace) = Namespace::known_of_this_process().filter(|_| process::owns_table()) {
        roomy(|| umsg::posix::give_up(namespace, OsStr::from_bytes(&attached.name)));
    }
}

/// Makes the exit of the process remove the files of vacant queues. The first call also removes the files of dead processes.
pub(crate) fn tidy_at_exit(namespace: &Namespace) {
    static IS_REGISTERED: AtomicBool = AtomicBool::new(false);
    if !IS_REGISTERED.load(Ordering::Relaxed) && !IS_REGISTERED.swap(true, Ordering::Relaxed) {
        // SAFETY: the handler is a function of this library, which is never unloaded.
        unsafe { libc::atexit(tidy) };
        roomy(|| umsg::posix::begin_recycling(namespace));
    }
}

extern "C" fn tidy() {
    kept::for_each(give_up);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_names_are_remembered() {
        let name = |number: usize| format!("/vacated-{number}").into_bytes();
        assert!(!was_removed(&name(0)));
        (0..=MOST).for_each(|number| {
            note_removal(&name(number));
            note_removal(&name(number));
        });
        assert!((1..=MOST).all(|number| was_removed(&name(number))));
        assert!(!was_removed(&name(0)) && !was_removed(&name(MOST + 1)));
    }
}
