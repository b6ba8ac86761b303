//! Which process this is, known without a system call: an epoch that a fork wipes.
//!
//! One private page is marked MADV_WIPEONFORK. It holds the process's epoch, a number that is never 0 and never used
//! twice along a line of ancestors; in a forked child the page reads 0 until the child sets an epoch of its own.
//! A `vfork` child shares its parent's memory and so its parent's epoch.

use crate::sync::Ordering;
use std::sync::atomic::{AtomicPtr, AtomicU64};

/// The wiped page, once mapped.
static PAGE: AtomicPtr<AtomicU64> = AtomicPtr::new(std::ptr::null_mut());

/// The last epoch handed out in this line of ancestors; a fork copies it, so the child's is larger.
static LAST_EPOCH: AtomicU64 = AtomicU64::new(0);

/// The epoch of this process, or 0 if it has none yet (first call, or first call after a fork).
#[inline(always)]
pub(crate) fn epoch() -> u64 {
    // Acquire: pairs with the release in `map_page`; the page is zeroed memory, there is nothing else to see.
    let page = PAGE.load(Ordering::Acquire);
    if page.is_null() {
        return 0;
    }
    // SAFETY: a non-null PAGE points to a page that is never unmapped; page-aligned, so aligned for a u64.
    unsafe { (*page).load(Ordering::Relaxed) }
}

/// The epoch of this process; begins one where there is none.
#[cold]
pub(crate) fn begin_epoch() -> u64 {
    let mut page = PAGE.load(Ordering::Acquire);
    if page.is_null() {
        page = map_page();
    }
    // SAFETY: as in `epoch`.
    let word = unsafe { &*page };
    let fresh = LAST_EPOCH.fetch_add(1, Ordering::Relaxed) + 1;
    // Two threads may begin at once: the first wins and both use its epoch.
    match word.compare_exchange(0, fresh, Ordering::AcqRel, Ordering::Acquire) {
        Ok(_) => fresh,
        Err(theirs) => theirs,
    }
}

fn map_page() -> *mut AtomicU64 {
    let page = super::map::wiped_on_fork().cast::<AtomicU64>();
    match PAGE.compare_exchange(
        std::ptr::null_mut(),
        page,
        Ordering::AcqRel,
        Ordering::Acquire,
    ) {
        Ok(_) => page,
        // Another thread was first; ours stays mapped, once a process at most.
        Err(theirs) => theirs,
    }
}

/// Whether the kernel started this program with more privilege than its caller had: a set-user-ID program, or one with
/// file capabilities. Source: getauxval(3), AT_SECURE.
pub(crate) fn was_started_with_privilege() -> bool {
    // SAFETY: reads a number that the kernel put beside the program's arguments.
    unsafe { libc::getauxval(libc::AT_SECURE) != 0 }
}
