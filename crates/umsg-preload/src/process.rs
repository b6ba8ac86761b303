//! The process whose descriptors the table describes: the owner of the table. A vfork child, which shares the memory, is not the owner.
//!
//! A program may close descriptors in a child made by vfork (as Python's subprocess does). The child runs on the parent's memory, but the parent's
//! descriptors stay open. So the child must not change the table. The pid of the owner is in a page that a fork fills with zeroes:
//!
//! | pid in the page | getpid() | this process is |
//! |---|---|---|
//! | a pid | the same | the owner |
//! | a pid | another | a vfork child: it passes all calls on |
//! | 0 | any | a forked child (its memory is a copy): the owner, from now on |
//!
//! A child of fork enters its pid at once, in a handler that fork runs, so that its own vfork children are recognised. Only a child of a bare fork
//! system call enters its pid later.

use std::sync::atomic::{AtomicPtr, AtomicU64, Ordering};

use umsg_shm::sys::{parent, process};

use crate::blocking::{note_begin_of_fork, note_fork_in_child, note_fork_in_parent};

/// The word with the pid of the table's owner. Null before [`start`], and if there is no such page.
#[unsafe(link_section = ".data.umsg")]
static OWNER: AtomicPtr<AtomicU64> = AtomicPtr::new(std::ptr::null_mut());

/// Maps the page, enters the pid of this process in it, and registers handlers for forks.
pub(crate) fn start() {
    if let Some(word) = process::word_of_the_drop_in() {
        OWNER.store(std::ptr::from_ref(word).cast_mut(), Ordering::Release);
        owns_table();
    }
    let (prepare, parent) = (before_fork, note_fork_in_parent);
    // SAFETY: the handlers are functions of this library, which is never unloaded (see build.rs).
    unsafe { libc::pthread_atfork(Some(prepare), Some(parent), Some(after_fork_in_child)) };
}

extern "C" fn before_fork() {
    note_begin_of_fork();
    parent::before_fork();
}

extern "C" fn after_fork_in_child() {
    owns_table();
    parent::after_fork();
    note_fork_in_child();
    crate::kept::forget_creations();
    crate::wanted::forget_other_threads();
}

/// Returns whether this process was created by a bare system call (fork or clone), and has not yet used a queue.
#[inline(always)]
pub(crate) fn is_unnoticed_child() -> bool {
    let owner = OWNER.load(Ordering::Acquire);
    // SAFETY: a non-null OWNER points to a word that is never unmapped.
    // Relaxed: no other data depends on the pid.
    !owner.is_null() && unsafe { &*owner }.load(Ordering::Relaxed) == 0
}

/// Returns whether the caller runs in the process that the descriptor table belongs to.
pub(crate) fn owns_table() -> bool {
    let owner = OWNER.load(Ordering::Acquire);
    if owner.is_null() {
        return true;
    }
    // The pid is read by a system call: libc's getpid would cost one more page fault at each start and in each forked child.
    let me = rustix::process::getpid().as_raw_nonzero().get() as u64;
    // SAFETY: a non-null OWNER points to a word that is never unmapped.
    let owner = unsafe { &*owner };
    // Relaxed: the pid publishes no other data.
    match owner.compare_exchange(0, me, Ordering::Relaxed, Ordering::Relaxed) {
        Ok(_) => true,
        Err(owner) => owner == me,
    }
}
