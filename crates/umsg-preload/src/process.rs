//! Whose descriptors the table describes: this process's, and not those of a vfork child that shares its memory.
//!
//! Programs close descriptors in a child made by vfork (Python's subprocess does), on the parent's memory: the
//! parent's descriptors stay open, so the table must not be touched. The process that owns the table is known by its
//! pid, kept in a page that a fork wipes:
//!
//! | page says | getpid() | we are |
//! |---|---|---|
//! | a pid | the same | the owner |
//! | a pid | another | a vfork child: pass on |
//! | 0 | any | a forked child (its memory is a copy): the owner, from now on |
//!
//! A child of fork enters its pid at once, by a handler that fork runs, so that its own vfork children are recognised. Only a child of a
//! bare fork system call enters it later.

use std::sync::atomic::{AtomicI32, AtomicPtr, Ordering};

use rustix::mm::{Advice, MapFlags, ProtFlags};

use crate::blocking::note_fork;

const PAGE_BYTES: usize = 4096;

/// Holds the pid of the table's owner. Null until [`start`], or if there is no such page.
#[unsafe(link_section = ".data.umsg")]
static PAGE: AtomicPtr<AtomicI32> = AtomicPtr::new(std::ptr::null_mut());

/// Maps the page, enters this process, and registers handlers for forks.
pub(crate) fn start() {
    if let Some(page) = wiped_page() {
        PAGE.store(page, Ordering::Release);
        owns_table();
    }
    // SAFETY: the handlers are functions of this library, which is never unloaded (see `start`).
    unsafe { libc::pthread_atfork(None, Some(note_fork), Some(after_fork_in_child)) };
}

fn wiped_page() -> Option<*mut AtomicI32> {
    let access = ProtFlags::READ | ProtFlags::WRITE;
    // SAFETY: no address is asked for, so nothing that exists is replaced.
    let page = unsafe {
        rustix::mm::mmap_anonymous(std::ptr::null_mut(), PAGE_BYTES, access, MapFlags::PRIVATE)
            .ok()?
    };
    // SAFETY: the whole page was just mapped for us, private and anonymous as this advice asks.
    let wiped = unsafe { rustix::mm::madvise(page, PAGE_BYTES, Advice::LinuxWipeOnFork) };
    wiped.is_ok().then_some(page.cast())
}

extern "C" fn after_fork_in_child() {
    owns_table();
    note_fork();
    crate::wanted::forget_other_threads();
}

/// Whether the caller runs in the process that the descriptor table belongs to.
pub(crate) fn owns_table() -> bool {
    let page = PAGE.load(Ordering::Acquire);
    if page.is_null() {
        return true;
    }
    let me = rustix::process::getpid().as_raw_nonzero().get();
    // SAFETY: a non-null PAGE points to a page that is never unmapped, aligned for any number.
    let owner = unsafe { &*page };
    // Relaxed: the pid is the whole message.
    match owner.compare_exchange(0, me, Ordering::Relaxed, Ordering::Relaxed) {
        Ok(_) => true,
        Err(owner) => owner == me,
    }
}
