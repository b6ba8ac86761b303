//! Whether calls on a queue block: the O_NONBLOCK of the queue's open file description. As long as no other process can change the flag, the drop-in
//! knows it without a system call.
//!
//! | state | meaning | left by |
//! |---|---|---|
//! | known | the description has the flag, or not; no other process has the description | a change: unknown; a fork: shared |
//! | unknown | each call asks the kernel | the end of a change (fcntl, ioctl, mq_setattr): known; a fork: shared |
//! | shared | another process may have a descriptor: each call asks the kernel | the next opening: known |
//!
//! The flag of a description that mq_open returns is known. The description becomes shared when the program duplicates a descriptor, clears its
//! FD_CLOEXEC, or passes it over a socket. A forked child has all descriptors, so the state also contains the number of forks before the opening.
//! After a further fork, the description is shared, in the parent and in the child. A description that this process did not open is shared from the
//! beginning.
//!
//! The state is one word, so that signal handlers and other threads may change the flag at any time. The word's version shows whether two changes ran
//! at the same time. In that case, only the kernel knows the order of the changes, and the state stays unknown.

use std::ffi::c_int;
use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use rustix::fs::OFlags;
use rustix::io::Errno;

use crate::fd;

const VALUE: u64 = 3;
const UNKNOWN: u64 = 0;
const SHARED: u64 = 1;
const BLOCKS: u64 = 2;
const FAILS: u64 = 3;
/// One change, in the version part of the word. The version has 30 bits, and counts the changes.
const VERSION: u64 = 4;
const VERSIONS: u64 = (1 << 32) - VERSION;

/// The number of forks of this process and its ancestors. The upper half of a [`Blocking`] word contains this number at the time of the opening.
#[unsafe(link_section = ".data.umsg")]
static FORKS: AtomicU32 = AtomicU32::new(0);

/// The number of forks in progress: begun, but not yet counted by the parent.
#[unsafe(link_section = ".data.umsg")]
static FORKING: AtomicU32 = AtomicU32::new(0);

/// Notes the beginning of a fork.
pub(crate) extern "C" fn note_begin_of_fork() {
    // Relaxed, here and in `has_forked_since`: the child gets the descriptors that are open after this point, and the kernel's lock of the
    // descriptor table orders forks and closes.
    FORKING.fetch_add(1, Ordering::Relaxed);
}

/// Notes in the parent that a fork has ended.
pub(crate) extern "C" fn note_fork_in_parent() {
    note_fork();
    // Release: pairs with the acquire in `has_forked_since`.
    FORKING.fetch_sub(1, Ordering::Release);
}

/// Notes a fork in the child, which has one thread.
pub(crate) fn note_fork_in_child() {
    note_fork();
    FORKING.store(0, Ordering::Relaxed);
}

/// Notes a fork, in the parent and in the child.
fn note_fork() {
    // Relaxed: the counter publishes no other data.
    FORKS.fetch_add(1, Ordering::Relaxed);
}

/// The number of forks at a certain time, in the upper half of a [`Blocking`] word.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Forks(u64);

impl Forks {
    pub(crate) fn now() -> Forks {
        // Relaxed: the counter publishes no other data. If a thread reads the old number, its call is ordered before the fork.
        Forks(u64::from(FORKS.load(Ordering::Relaxed)) << 32)
    }

    /// Returns whether a child may have a descriptor that this process opened after the time of `self`, and has meanwhile closed.
    pub(crate) fn has_forked_since(self) -> bool {
        // Acquire: pairs with the release in `note_fork_in_parent`. If a fork is no longer in progress, the number of forks includes it.
        FORKING.load(Ordering::Acquire) != 0 || Forks::now() != self
    }

    /// Returns the number of forks as a word that is not 0. [`of_word`](Self::of_word) converts the word back.
    pub(crate) fn word(self) -> u64 {
        self.0 | 1
    }

    /// Converts a word that [`word`](Self::word) has returned back.
    pub(crate) fn of_word(word: u64) -> Forks {
        Forks(word >> 32 << 32)
    }
}

/// Whether calls on a queue's descriptors block; see the module. Every load and store is Relaxed: the word publishes no other data.
pub(crate) struct Blocking {
    word: AtomicU64,
    /// True once a description was shared other than by a fork.
    was_shared: AtomicBool,
}

impl Blocking {
    pub(crate) fn shared() -> Blocking {
        Blocking {
            word: AtomicU64::new(SHARED),
            was_shared: AtomicBool::new(false),
        }
    }

    /// Stores the flag of a new description. `forks` was read before the opening, because a child of a later fork has the descriptor, too.
    pub(crate) fn open(&self, is_nonblocking: bool, forks: Forks) {
        let now = self.word.load(Ordering::Relaxed);
        let unknown = forks.0 | next_version(now) & VERSIONS;
        self.word
            .store(known(unknown, is_nonblocking), Ordering::Relaxed);
    }

    /// Notes that another process may have a descriptor from this time on.
    pub(crate) fn share(&self) {
        self.was_shared.store(true, Ordering::Relaxed);
        self.word.store(SHARED, Ordering::Relaxed);
    }

    /// Returns whether another process may have got a descriptor of one of the queue's descriptions, other than by a fork.
    pub(crate) fn was_shared(&self) -> bool {
        self.was_shared.load(Ordering::Relaxed)
    }

    /// Returns whether calls must not block; an error if the descriptor is not open.
    #[inline(always)]
    pub(crate) fn is_nonblocking(&self, number: c_int) -> Result<bool, Errno> {
        let word = self.word.load(Ordering::Relaxed);
        match word & VALUE {
            BLOCKS if !is_shared(word) => Ok(false),
            FAILS if !is_shared(word) => Ok(true),
            _ => ask(fd::borrow(number).ok_or(Errno::BADF)?),
        }
    }

    /// Runs a call that may change the flag.
    pub(crate) fn change<T>(&self, descriptor: BorrowedFd<'_>, call: impl FnOnce() -> T) -> T {
        let Some(begun) = self.become_unknown() else {
            return call();
        };
        let outcome = call();
        let Ok(is_nonblocking) = ask(descriptor) else {
            return outcome;
        };
        let (to, order) = (known(begun, is_nonblocking), Ordering::Relaxed);
        if self.word.compare_exchange(begun, to, order, order).is_err() {
            self.become_unknown();
        }
        outcome
    }

    /// Makes the state unknown. Returns the new word; None if the description is shared.
    fn become_unknown(&self) -> Option<u64> {
        let unknown = |word: u64| (!is_shared(word)).then(|| next_version(word));
        let order = Ordering::Relaxed;
        let before = self.word.fetch_update(order, order, unknown).ok()?;
        Some(next_version(before))
    }
}

fn is_shared(word: u64) -> bool {
    word & VALUE == SHARED || word >> 32 << 32 != Forks::now().0
}

/// Returns the word for the unknown state, with the next version.
fn next_version(word: u64) -> u64 {
    word & !VERSIONS & !VALUE | word.wrapping_add(VERSION) & VERSIONS | UNKNOWN
}

fn known(unknown: u64, is_nonblocking: bool) -> u64 {
    unknown | if is_nonblocking { FAILS } else { BLOCKS }
}

#[cold]
fn ask(descriptor: BorrowedFd<'_>) -> Result<bool, Errno> {
    Ok(rustix::fs::fcntl_getfl(descriptor)?.contains(OFlags::NONBLOCK))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;
    use std::os::fd::{AsFd, AsRawFd};

    fn set(file: &File, flags: OFlags) {
        rustix::fs::fcntl_setfl(file, flags).unwrap();
    }

    fn answer(blocking: &Blocking, file: &File) -> bool {
        blocking.is_nonblocking(file.as_raw_fd()).unwrap()
    }

    #[test]
    fn a_known_flag_is_not_asked_for_and_a_shared_one_always_is() {
        let file = File::open("/dev/null").unwrap();
        let blocking = Blocking::shared();
        assert!(!answer(&blocking, &file));
        blocking.open(true, Forks::now());
        assert!(answer(&blocking, &file), "as it was opened");
        blocking.share();
        assert!(!answer(&blocking, &file), "as the kernel says");
        blocking.change(file.as_fd(), || set(&file, OFlags::NONBLOCK));
        assert!(answer(&blocking, &file));
        set(&file, OFlags::empty());
        assert!(!answer(&blocking, &file), "another process has changed it");
    }

    #[test]
    fn a_change_is_known_afterwards() {
        let file = File::open("/dev/null").unwrap();
        let blocking = Blocking::shared();
        blocking.open(false, Forks::now());
        blocking.change(file.as_fd(), || set(&file, OFlags::NONBLOCK));
        assert!(answer(&blocking, &file));
        set(&file, OFlags::empty());
        assert!(answer(&blocking, &file), "the kernel is not asked");
    }

    #[test]
    fn a_description_that_was_opened_before_a_fork_is_shared() {
        let file = File::open("/dev/null").unwrap();
        let (blocking, before) = (Blocking::shared(), Forks::now());
        let later = Forks(before.0.wrapping_add(1 << 32));
        blocking.open(true, later);
        assert!(!answer(&blocking, &file), "as the kernel says");
        blocking.change(file.as_fd(), || set(&file, OFlags::NONBLOCK));
        set(&file, OFlags::empty());
        assert!(!answer(&blocking, &file), "a change leaves it shared");
    }

    #[test]
    fn of_two_changes_at_the_same_time_only_the_kernel_knows_the_order() {
        let file = File::open("/dev/null").unwrap();
        let blocking = Blocking::shared();
        blocking.open(false, Forks::now());
        blocking.change(file.as_fd(), || {
            blocking.change(file.as_fd(), || set(&file, OFlags::NONBLOCK));
            set(&file, OFlags::empty());
        });
        assert!(!answer(&blocking, &file));
        set(&file, OFlags::NONBLOCK);
        assert!(answer(&blocking, &file), "unknown, so the kernel is asked");
    }
}
