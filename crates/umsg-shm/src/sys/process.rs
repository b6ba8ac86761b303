//! The identity of this process without a system call: an epoch that a fork wipes.
//!
//! One private page is marked MADV_WIPEONFORK. Its words, which the drop-in shares, read 0 in a forked child:
//!
//! | word | contents |
//! |---|---|
//! | 0 | the epoch |
//! | 1 | the shift of the clock (`sys/clock.rs`) |
//! | 2 | the process was forked by libc (`sys/parent.rs`) |
//! | 3 | the process id of the owner of the drop-in's table |
//!
//! The epoch of a process is never 0, and differs from the epochs of all its ancestors. In a forked child, the page reads 0 until the child sets
//! its own epoch. A `vfork` child shares the memory of its parent, and therefore its epoch.
//!
//! If the kernel or a sandbox refuses MADV_WIPEONFORK, there is no page. In that case the epoch is stored together with the id of its process. Each
//! read of the epoch, or of the number beside it, compares this id with the id of the calling process, at the price of a system call.

#[cfg(loom)]
pub(crate) use crate::model::thread::{
    birth, is_process_dead as is_dead, is_process_stopped as is_stopped, own_user, real_user,
};
#[cfg(not(loom))]
pub use real::*;

#[cfg(not(loom))]
mod real {
    use crate::sys::exists;
    use crate::sys::stat::Stat;
    use crate::sys::thread;
    use rustix::io::Errno;
    use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
    use std::sync::atomic::{AtomicPtr, AtomicU64, Ordering};

    /// The page that a fork wipes; null until it is mapped.
    #[cfg_attr(target_os = "linux", unsafe(link_section = ".data.umsg"))]
    static PAGE: AtomicPtr<AtomicU64> = AtomicPtr::new(std::ptr::null_mut());

    /// The last epoch in this line of ancestors. A fork copies this number, so the child's epoch is larger.
    #[cfg_attr(target_os = "linux", unsafe(link_section = ".data.umsg"))]
    static LAST_EPOCH: AtomicU64 = AtomicU64::new(0);

    /// Returns the epoch of this process; 0 if the process has not begun an epoch yet, for example after a fork.
    #[inline(always)]
    pub fn epoch() -> u64 {
        // Acquire: pairs with the release in `map_page`. The page is zeroed memory, so no other store has to be visible.
        let page = PAGE.load(Ordering::Acquire);
        if page.is_null() {
            return without_page::epoch();
        }
        // SAFETY: a non-null PAGE points to a page that is never unmapped. The page's address is aligned for a u64.
        unsafe { (*page).load(Ordering::Relaxed) }
    }

    /// Returns the number that this process keeps beside its epoch. The number is 0 at first and in a forked child. Returns None before the first
    /// epoch.
    #[inline(always)]
    pub(crate) fn until_fork() -> Option<&'static AtomicU64> {
        // Acquire: as in `epoch`.
        let page = PAGE.load(Ordering::Acquire);
        if page.is_null() {
            return without_page::until_fork();
        }
        // SAFETY: as in `epoch`; the page has room for more than one number.
        Some(unsafe { &*page.add(1) })
    }

    /// Returns the word that is 1 in a child that libc has forked. None without a page.
    pub(crate) fn forked() -> Option<&'static AtomicU64> {
        // Acquire: as in `epoch`.
        word(PAGE.load(Ordering::Acquire), 2)
    }

    /// Returns the drop-in's word of the page. None if no page can be mapped.
    pub fn word_of_the_drop_in() -> Option<&'static AtomicU64> {
        // Acquire: as in `epoch`.
        match PAGE.load(Ordering::Acquire) {
            page if page.is_null() => word(map_page()?, 3),
            page => word(page, 3),
        }
    }

    fn word(page: *mut AtomicU64, index: usize) -> Option<&'static AtomicU64> {
        // SAFETY: as in `epoch`; the page has room for more than the words of the table above.
        (!page.is_null()).then(|| unsafe { &*page.add(index) })
    }

    /// Returns the epoch of this process, and begins an epoch if there is none.
    #[cold]
    pub fn begin_epoch() -> u64 {
        let mut page = PAGE.load(Ordering::Acquire);
        if page.is_null() {
            match map_page() {
                Some(mapped) => page = mapped,
                None => return without_page::begin_epoch(),
            }
        }
        // SAFETY: as in `epoch`.
        let word = unsafe { &*page };
        let fresh = LAST_EPOCH.fetch_add(1, Ordering::Relaxed) + 1;
        // Two threads may begin an epoch at once: the first one wins, and both use its epoch.
        match word.compare_exchange(0, fresh, Ordering::AcqRel, Ordering::Acquire) {
            Ok(_) => fresh,
            Err(theirs) => theirs,
        }
    }

    fn map_page() -> Option<*mut AtomicU64> {
        if without_page::is_chosen() {
            return None;
        }
        let page = crate::sys::map::wiped_on_fork()?.cast::<AtomicU64>();
        match PAGE.compare_exchange(
            std::ptr::null_mut(),
            page,
            Ordering::AcqRel,
            Ordering::Acquire,
        ) {
            Ok(_) => Some(page),
            // Another thread has mapped its page first. This thread's page stays mapped, unused.
            Err(theirs) => Some(theirs),
        }
    }

    /// Epochs for a process without a page that a fork wipes.
    mod without_page {
        use std::sync::atomic::{AtomicU64, Ordering};

        /// The last epoch in the lower half, and the id of its process in the upper half. 0 if the process has a page for the epoch.
        #[cfg_attr(target_os = "linux", unsafe(link_section = ".data.umsg"))]
        static EPOCH: AtomicU64 = AtomicU64::new(0);

        /// The number that a process keeps beside its epoch.
        static KEPT: AtomicU64 = AtomicU64::new(0);

        const LOWER: u64 = u32::MAX as u64;

        pub(super) fn is_chosen() -> bool {
            // Relaxed: once a process has stored its epoch here, all its descendants do so, too.
            EPOCH.load(Ordering::Relaxed) != 0
        }

        /// Returns the epoch in a word if this process began it, 0 otherwise.
        fn of_this_process(word: u64) -> u64 {
            match word >> 32 == u64::from(std::process::id()) {
                true => word & LOWER,
                false => 0,
            }
        }

        #[cold]
        pub fn epoch() -> u64 {
            // Relaxed: the number publishes no other data.
            match EPOCH.load(Ordering::Relaxed) {
                0 => 0,
                word => of_this_process(word),
            }
        }

        #[cold]
        pub(super) fn until_fork() -> Option<&'static AtomicU64> {
            // Acquire: pairs with the release in `begin_epoch`, so the number of the previous process is not visible.
            let word = EPOCH.load(Ordering::Acquire);
            (of_this_process(word) != 0).then_some(&KEPT)
        }

        pub fn begin_epoch() -> u64 {
            loop {
                // Relaxed: as in `epoch`. The first of two threads wins, and both use its epoch.
                let word = EPOCH.load(Ordering::Relaxed);
                let known = of_this_process(word);
                if known != 0 {
                    return known;
                }
                let fresh = (word & LOWER) + 1;
                let begun = u64::from(std::process::id()) << 32 | fresh;
                // Relaxed: the compare-and-swap of the epoch publishes this store. The slower of two threads may erase the number beside the faster
                // thread's epoch. The number is then computed again.
                KEPT.store(0, Ordering::Relaxed);
                let outcome =
                    EPOCH.compare_exchange(word, begun, Ordering::Release, Ordering::Relaxed);
                if outcome.is_ok() {
                    return fresh;
                }
            }
        }
    }

    /// Returns whether the kernel started this program with more privileges than its caller has: a set-user-ID program, or a program with file
    /// capabilities. Source: getauxval(3), AT_SECURE.
    pub fn was_started_with_privilege() -> bool {
        // SAFETY: the call reads a number that the kernel put beside the program's arguments.
        unsafe { libc::getauxval(libc::AT_SECURE) != 0 }
    }

    /// Returns the birth of a process: a number that distinguishes the process and its program from other processes with the same process id. The
    /// number has three fields. A field is 0 if /proc does not show it:
    ///
    /// - 32 bits of the start time, in clock ticks since boot;
    /// - 16 bits of the random start address of the stack, which changes with exec;
    /// - 16 bits of the inode number of the PID namespace, in which the process id is valid.
    pub fn birth(pid: u32) -> u64 {
        /// The epoch of the last answer, and the answer, which changes after a fork.
        static KNOWN: [AtomicU64; 2] = [AtomicU64::new(0), AtomicU64::new(0)];
        let ([of, birth], epoch) = (&KNOWN, epoch());
        // Acquire: the answer belongs to the epoch. Two threads may compute the answer at once, with the same result.
        if epoch == 0 || of.load(Ordering::Acquire) != epoch {
            birth.store(find_birth(pid), Ordering::Relaxed);
            of.store(epoch, Ordering::Release);
        }
        birth.load(Ordering::Relaxed)
    }

    fn find_birth(pid: u32) -> u64 {
        let Some(stat) = Stat::of_process(pid) else {
            return 0;
        };
        let home = rustix::fs::stat("/proc/self/ns/pid").map_or(0, |stat| stat.st_ino as u16);
        u64::from(stat.birth as u32) | program(&stat) << 32 | u64::from(home) << 48
    }

    /// Returns the number that identifies a process's program: 0 if it is unknown, for example for processes of other users.
    fn program(stat: &Stat) -> u64 {
        match stat.stack {
            0 => 0,
            stack => u64::from((stack >> 4 ^ stack >> 20) as u16).max(1),
        }
    }

    /// Returns the real user of a process. If the process has no free descriptor for the query, returns the effective user. If the process is gone,
    /// returns the kernel's overflow user id.
    pub(crate) fn real_user(pid: u32) -> u32 {
        /// Source: /proc/sys/kernel/overflowuid.
        const NOBODY: u32 = 65_534;
        let known = own_user(pid).or_else(|| Stat::real_user(pid));
        known
            .or_else(|| Stat::effective_user(pid))
            .unwrap_or(NOBODY)
    }

    /// Returns the real user of the process `pid`, if that is the calling process.
    pub(crate) fn own_user(pid: u32) -> Option<u32> {
        (pid == thread::current().pid()).then(|| rustix::process::getuid().as_raw())
    }

    /// Returns whether a process is known to be stopped.
    pub(crate) fn is_stopped(pid: u32) -> bool {
        Stat::of_process(pid).is_some_and(|stat| matches!(stat.state, b'T' | b't'))
    }

    /// The information in a signal about a message, in the kernel's layout: `siginfo_t` with its member `_rt`.
    #[repr(C)]
    struct MessageInfo {
        /// The number of the signal, the errno, the code, and a gap.
        head: [i32; 4],
        pid: u32,
        uid: u32,
        value: usize,
        rest: [u64; 12],
    }

    #[cfg(target_pointer_width = "64")]
    const _: () =
        assert!(size_of::<MessageInfo>() == 128 && std::mem::offset_of!(MessageInfo, pid) == 16);

    impl MessageInfo {
        fn new(signal: i32, value: usize, sender: u32, uid: u32) -> MessageInfo {
            const SI_MESGQ: i32 = -3;
            MessageInfo {
                head: [signal, 0, SI_MESGQ, 0],
                pid: sender,
                uid,
                value,
                rest: [0; 12],
            }
        }
    }

    /// Returns an error if rt_sigqueueinfo(2) is refused. To find out, the function sends signal 0, which has no effect.
    pub(crate) fn can_raise_for_message() -> Result<(), Errno> {
        match queue_to_self(0, 0, 0, 0) {
            0 => Ok(()),
            _ => Err(Errno::from_raw_os_error(crate::sys::errno())),
        }
    }

    /// Sends this process a signal, as the kernel does for a message: with the code SI_MESGQ, a value, and the process and user of the sender. If a
    /// sandbox that the process entered later refuses this call, kill(2) sends the signal without these data.
    pub fn raise_for_message(signal: i32, value: usize, sender: u32, uid: u32) {
        // EAGAIN: the limit of pending signals is reached. The kernel's own queues also drop the notification at this limit.
        if queue_to_self(signal, value, sender, uid) != 0 && crate::sys::errno() != libc::EAGAIN {
            // SAFETY: the call sends a signal to this process, and touches no memory.
            unsafe { libc::kill(thread::current().pid().cast_signed(), signal) };
        }
    }

    /// Opens a descriptor of a thread of any process. The descriptor never refers to another thread. Needs Linux 6.9.
    ///
    /// # Errors
    /// The errors of pidfd_open(2): EINVAL before Linux 6.9.
    pub(crate) fn open_thread(tid: u32) -> Result<OwnedFd, Errno> {
        /// Source: linux/pidfd.h.
        const PIDFD_THREAD: i32 = libc::O_EXCL;
        // SAFETY: the call takes two numbers.
        let number = unsafe { libc::syscall(libc::SYS_pidfd_open, tid, PIDFD_THREAD) };
        match i32::try_from(number) {
            // SAFETY: the descriptor is new, and has no other owner.
            Ok(number) if number >= 0 => Ok(unsafe { OwnedFd::from_raw_fd(number) }),
            _ => Err(Errno::from_raw_os_error(crate::sys::errno())),
        }
    }

    /// Sends the process of a thread a signal, in the same way as [`raise_for_message`].
    ///
    /// # Errors
    /// The errors of pidfd_send_signal(2): EPERM if the caller may not signal the process, ESRCH if the thread has ended.
    pub(crate) fn raise_in_process_of(
        thread: BorrowedFd<'_>,
        (signal, value): (i32, usize),
        (sender, uid): (u32, u32),
    ) -> Result<(), Errno> {
        /// Source: linux/pidfd.h.
        const PIDFD_SIGNAL_THREAD_GROUP: u32 = 1 << 1;
        let info = MessageInfo::new(signal, value, sender, uid);
        // SAFETY: the kernel reads 128 bytes of siginfo, the length of the structure.
        let result = unsafe {
            libc::syscall(
                libc::SYS_pidfd_send_signal,
                thread.as_raw_fd(),
                signal,
                &raw const info,
                PIDFD_SIGNAL_THREAD_GROUP,
            )
        };
        match result {
            0 => Ok(()),
            _ => Err(Errno::from_raw_os_error(crate::sys::errno())),
        }
    }

    fn queue_to_self(signal: i32, value: usize, sender: u32, uid: u32) -> libc::c_long {
        let info = MessageInfo::new(signal, value, sender, uid);
        // SAFETY: the kernel reads 128 bytes of siginfo, the length of the structure; the process is the caller's own.
        unsafe {
            libc::syscall(
                libc::SYS_rt_sigqueueinfo,
                thread::current().pid(),
                signal,
                &raw const info,
            )
        }
    }

    /// Makes the kernel deliver pending signals to the calling thread, as it does at the end of each system call.
    pub fn take_signals() {
        // SAFETY: the call has no preconditions; libc's function might answer without a system call.
        unsafe { libc::syscall(libc::SYS_getpid) };
    }

    /// Returns the real user of the process that had this id at a time of the machine's clock, in nanoseconds. None if /proc does not show the
    /// process, or if a process got the id later.
    pub fn user_at(pid: u32, at: u64) -> Option<u32> {
        let stat = Stat::of_process(pid)?;
        let tick = 1_000_000_000 / rustix::param::clock_ticks_per_second().max(1);
        let started = stat.birth.saturating_add(1).saturating_mul(tick);
        let user = Stat::real_user(pid)?;
        let is_same = Stat::of_process(pid)?.birth == stat.birth;
        (started <= at && is_same).then_some(user)
    }

    /// Returns whether a process is proved dead. There are four proofs. No process has the id. The process is ending and runs no code of its program.
    /// The process is a zombie. The id belongs to a process with another start time or program. Unknown processes, and processes of other PID
    /// namespaces, are treated as alive.
    pub fn is_dead(pid: u32, birth: u64) -> bool {
        if cfg!(miri) {
            return false;
        }
        let (home, own) = (birth >> 48, self::birth(std::process::id()) >> 48);
        if home != 0 && own != 0 && home != own {
            return false;
        }
        if !exists::process(pid) {
            return true;
        }
        let Some(stat) = Stat::of_process(pid) else {
            // The parent may have waited for the process meanwhile, so that its id is free.
            return !exists::process(pid);
        };
        let is_over = (matches!(stat.state, b'Z' | b'X') || stat.exiting) && stat.threads <= 1;
        let (then, now) = (birth >> 32 & 0xffff, program(&stat));
        is_over
            || (birth != 0 && stat.birth as u32 != birth as u32)
            || (then != 0 && now != 0 && then != now)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::sys::stat::Stat;
    use std::process::{Child, Command};
    use std::time::Duration;

    /// Returns a process that has just started, and its birth. The birth does not contain the program, because the process has executed another
    /// program.
    fn sleeper() -> (Child, u64) {
        let child = Command::new("sleep").arg("1000").spawn().unwrap();
        let stat = Stat::of_process(child.id()).unwrap();
        (child, stat.birth & u64::from(u32::MAX))
    }

    /// In this test, the parent may wait for the process at any time during the check, also between two steps.
    #[test]
    fn the_dead_stay_dead() {
        for wait in 0..100 {
            let (mut child, birth) = sleeper();
            let pid = child.id();
            assert!(!is_dead(pid, birth));
            child.kill().unwrap();
            let parent = std::thread::spawn(move || {
                std::thread::sleep(Duration::from_micros(wait));
                child.wait().unwrap()
            });
            while !is_dead(pid, birth) {}
            while !parent.is_finished() {
                assert!(is_dead(pid, birth), "it was dead before");
            }
            parent.join().unwrap();
            assert!(is_dead(pid, birth));
        }
    }
}
