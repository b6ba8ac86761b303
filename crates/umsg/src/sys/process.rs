//! Which process this is, known without a system call: an epoch that a fork wipes.
//!
//! One private page is marked MADV_WIPEONFORK. It holds the process's epoch, a number that is never 0 and never used
//! twice along a line of ancestors; in a forked child the page reads 0 until the child sets an epoch of its own.
//! A `vfork` child shares its parent's memory and so its parent's epoch.

#[cfg(loom)]
pub(crate) use crate::model::thread::{birth, is_process_dead as is_dead};
#[cfg(not(loom))]
pub(crate) use real::*;

#[cfg(not(loom))]
mod real {
    use crate::sys::stat::Stat;
    use std::sync::atomic::{AtomicPtr, AtomicU64, Ordering};

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
        let page = crate::sys::map::wiped_on_fork().cast::<AtomicU64>();
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

    /// When this process began, in clock ticks since boot; 0 if /proc does not say.
    pub(crate) fn birth(pid: u32) -> u64 {
        /// The process id that was asked about last, and the answer: after a fork it is another one.
        static KNOWN: [AtomicU64; 2] = [AtomicU64::new(0), AtomicU64::new(0)];
        let [of, birth] = &KNOWN;
        // Acquire: the answer belongs to the id. Two threads may find it out at once, and find the same.
        if of.load(Ordering::Acquire) != u64::from(pid) {
            birth.store(
                Stat::of_process(pid).map_or(0, |stat| stat.birth),
                Ordering::Relaxed,
            );
            of.store(u64::from(pid), Ordering::Release);
        }
        birth.load(Ordering::Relaxed)
    }

    /// Whether a process is proved dead: there is none of that id any more, all that is left of it waits for its parent to take
    /// note, or the id belongs to one that began at another time. Unknown means alive.
    pub(crate) fn is_dead(pid: u32, birth: u64) -> bool {
        // SAFETY: signal 0 only asks whether the process exists.
        let result = unsafe { libc::kill(pid as libc::pid_t, 0) };
        if result != 0 && crate::sys::errno() == libc::ESRCH {
            return true;
        }
        Stat::of_process(pid).is_some_and(|stat| {
            let is_over = matches!(stat.state, b'Z' | b'X') && stat.threads <= 1;
            is_over || (birth != 0 && stat.birth != birth)
        })
    }
}
