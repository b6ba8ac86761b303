//! The default seccomp profiles of container engines.
//!
//! Sources: moby, `profiles/seccomp/default.json`, commit 00f3d189e420; containers-common, `pkg/seccomp/seccomp.json`, commit 08bbb0dfae71; both read
//! in November 2026. The following list has the calls that both profiles allow to a 64-bit program without capabilities, and that libc names.
//! Docker's profile answers EPERM to all other calls, and ENOSYS to clone3. Podman's profile answers ENOSYS, and EPERM to membarrier. Newer versions
//! of Podman's profile allow futex_waitv.

macro_rules! numbers {
    ($($number:ident)*) => { &[$(libc::$number),*] };
}

const ALLOWED: &[libc::c_long] = numbers! {
    SYS_accept SYS_accept4 SYS_bind SYS_brk SYS_capget SYS_capset SYS_chdir SYS_clock_getres SYS_clock_gettime SYS_clock_nanosleep
    SYS_clone SYS_close SYS_close_range SYS_connect SYS_copy_file_range SYS_dup SYS_dup3 SYS_epoll_create1 SYS_epoll_ctl SYS_epoll_pwait
    SYS_eventfd2 SYS_execve SYS_execveat SYS_exit SYS_exit_group SYS_faccessat SYS_faccessat2 SYS_fallocate SYS_fchdir SYS_fchmod
    SYS_fchmodat SYS_fchown SYS_fchownat SYS_fcntl SYS_fdatasync SYS_fgetxattr SYS_flistxattr SYS_flock SYS_fremovexattr SYS_fsetxattr
    SYS_fstat SYS_fstatfs SYS_fsync SYS_ftruncate SYS_futex SYS_getcpu SYS_getcwd SYS_getdents64 SYS_getegid SYS_geteuid
    SYS_getgid SYS_getgroups SYS_getitimer SYS_getpeername SYS_getpgid SYS_getpid SYS_getppid SYS_getpriority SYS_getrandom
    SYS_getresgid SYS_getresuid SYS_get_robust_list SYS_getrusage SYS_getsid SYS_getsockname SYS_getsockopt SYS_gettid
    SYS_gettimeofday SYS_getuid SYS_getxattr SYS_inotify_add_watch SYS_inotify_init1 SYS_ioctl SYS_kill SYS_lgetxattr SYS_linkat
    SYS_listen SYS_listxattr SYS_lseek SYS_lsetxattr SYS_madvise SYS_memfd_create SYS_mincore SYS_mkdirat SYS_mknodat
    SYS_mlock SYS_mmap SYS_mprotect SYS_mremap SYS_msync SYS_munlock SYS_munmap SYS_nanosleep SYS_newfstatat SYS_openat SYS_openat2
    SYS_pidfd_open SYS_pidfd_send_signal SYS_pipe2 SYS_ppoll SYS_prctl SYS_pread64 SYS_preadv SYS_prlimit64 SYS_pselect6 SYS_pwrite64
    SYS_pwritev SYS_read SYS_readlinkat SYS_readv SYS_recvfrom SYS_recvmmsg SYS_recvmsg SYS_removexattr SYS_renameat SYS_renameat2
    SYS_restart_syscall SYS_rseq SYS_rt_sigaction SYS_rt_sigpending SYS_rt_sigprocmask SYS_rt_sigqueueinfo SYS_rt_sigreturn
    SYS_rt_sigsuspend SYS_rt_sigtimedwait SYS_rt_tgsigqueueinfo SYS_sched_getaffinity SYS_sched_getattr SYS_sched_getparam
    SYS_sched_getscheduler SYS_sched_setaffinity SYS_sched_yield SYS_seccomp SYS_sendfile SYS_sendmmsg SYS_sendmsg SYS_sendto
    SYS_setgid SYS_setgroups SYS_setitimer SYS_setpgid SYS_setpriority SYS_setresgid SYS_setresuid SYS_set_robust_list SYS_setsid
    SYS_setsockopt SYS_set_tid_address SYS_setuid SYS_setxattr SYS_shutdown SYS_sigaltstack SYS_signalfd4 SYS_socket SYS_socketpair
    SYS_splice SYS_statfs SYS_statx SYS_symlinkat SYS_sysinfo SYS_tgkill SYS_timer_create SYS_timer_delete SYS_timer_settime
    SYS_timerfd_create SYS_timerfd_settime SYS_tkill SYS_truncate SYS_umask SYS_uname SYS_unlinkat SYS_utimensat SYS_wait4 SYS_waitid
    SYS_write SYS_writev
};

/// Older calls, which only some architectures have.
#[cfg(target_arch = "x86_64")]
const OLDER: &[libc::c_long] = numbers! {
    SYS_access SYS_arch_prctl SYS_chmod SYS_dup2 SYS_epoll_wait SYS_fork SYS_getdents SYS_link SYS_lstat SYS_mkdir SYS_mknod SYS_open
    SYS_pipe SYS_poll SYS_readlink SYS_rename SYS_rmdir SYS_select SYS_stat SYS_symlink SYS_time SYS_unlink SYS_vfork
};
#[cfg(not(target_arch = "x86_64"))]
const OLDER: &[libc::c_long] = &[];

/// The calls that a profile allows beyond the common ones, and its results for other calls.
pub struct Profile {
    pub allows: &'static [libc::c_long],
    pub answers: &'static [(libc::c_long, i32)],
    pub others: i32,
}

pub const DOCKER: Profile = Profile {
    allows: &[libc::SYS_futex_waitv, libc::SYS_membarrier],
    answers: &[(libc::SYS_clone3, libc::ENOSYS)],
    others: libc::EPERM,
};

pub const PODMAN: Profile = Profile {
    allows: &[libc::SYS_clone3],
    answers: &[(libc::SYS_membarrier, libc::EPERM)],
    others: libc::ENOSYS,
};

impl Profile {
    /// Returns the calls that this filter lets pass: the kernel makes them, or a second filter answers them.
    pub fn lets_pass(&self) -> Vec<libc::c_long> {
        let answered: Vec<_> = self.answers.iter().map(|(call, _)| *call).collect();
        [ALLOWED, OLDER, self.allows, &answered].concat()
    }
}
