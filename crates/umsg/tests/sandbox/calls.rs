//! The system calls of the library by name, in the order of `docs/syscalls.md`.

macro_rules! calls {
    ($list:ident = $($name:ident: $number:ident),* $(,)?) => {
        pub const $list: &[(&str, libc::c_long)] = &[$((stringify!($name), libc::$number)),*];
    };
}

// The list omits the calls that every program needs: mapping memory; opening, reading and closing files; starting threads; asking for ids.
calls! {
    CALLS =
    bind: SYS_bind,
    connect: SYS_connect,
    dup3: SYS_dup3,
    fchmod: SYS_fchmod,
    fchmodat: SYS_fchmodat,
    fcntl: SYS_fcntl,
    fgetxattr: SYS_fgetxattr,
    flock: SYS_flock,
    fstatfs: SYS_fstatfs,
    statx: SYS_statx,
    ftruncate: SYS_ftruncate,
    futex_waitv: SYS_futex_waitv,
    get_robust_list: SYS_get_robust_list,
    getdents64: SYS_getdents64,
    getrandom: SYS_getrandom,
    ioctl: SYS_ioctl,
    linkat: SYS_linkat,
    madvise: SYS_madvise,
    membarrier: SYS_membarrier,
    memfd_create: SYS_memfd_create,
    mkdirat: SYS_mkdirat,
    mknodat: SYS_mknodat,
    pread64: SYS_pread64,
    pidfd_send_signal: SYS_pidfd_send_signal,
    prlimit64: SYS_prlimit64,
    pwrite64: SYS_pwrite64,
    recvmsg: SYS_recvmsg,
    renameat: SYS_renameat,
    renameat2: SYS_renameat2,
    rt_sigqueueinfo: SYS_rt_sigqueueinfo,
    sched_getaffinity: SYS_sched_getaffinity,
    sched_getattr: SYS_sched_getattr,
    sched_yield: SYS_sched_yield,
    sendmsg: SYS_sendmsg,
    sendto: SYS_sendto,
    set_robust_list: SYS_set_robust_list,
    socket: SYS_socket,
    socketpair: SYS_socketpair,
    statx: SYS_statx,
    symlinkat: SYS_symlinkat,
    tgkill: SYS_tgkill,
    tkill: SYS_tkill,
    unlinkat: SYS_unlinkat,
}

// The calls that every program needs. On x86_64, libc makes the older variants of some calls.
#[cfg(target_arch = "x86_64")]
calls! {
    OLDER =
    dup2: SYS_dup2,
    fork: SYS_fork,
    open: SYS_open,
    poll: SYS_poll,
    readlink: SYS_readlink,
}
#[cfg(not(target_arch = "x86_64"))]
pub const OLDER: &[(&str, libc::c_long)] = &[];

calls! {
    NEEDED =
    brk: SYS_brk,
    clock_gettime: SYS_clock_gettime,
    clock_nanosleep: SYS_clock_nanosleep,
    clone: SYS_clone,
    clone3: SYS_clone3,
    close: SYS_close,
    dup: SYS_dup,
    exit: SYS_exit,
    exit_group: SYS_exit_group,
    fstat: SYS_fstat,
    futex: SYS_futex,
    getegid: SYS_getegid,
    geteuid: SYS_geteuid,
    getgid: SYS_getgid,
    getpid: SYS_getpid,
    getppid: SYS_getppid,
    gettid: SYS_gettid,
    getuid: SYS_getuid,
    kill: SYS_kill,
    lseek: SYS_lseek,
    mmap: SYS_mmap,
    mprotect: SYS_mprotect,
    munmap: SYS_munmap,
    newfstatat: SYS_newfstatat,
    openat: SYS_openat,
    pidfd_open: SYS_pidfd_open,
    ppoll: SYS_ppoll,
    prctl: SYS_prctl,
    read: SYS_read,
    readlinkat: SYS_readlinkat,
    restart_syscall: SYS_restart_syscall,
    rseq: SYS_rseq,
    rt_sigaction: SYS_rt_sigaction,
    rt_sigprocmask: SYS_rt_sigprocmask,
    rt_sigreturn: SYS_rt_sigreturn,
    rt_sigtimedwait: SYS_rt_sigtimedwait,
    set_tid_address: SYS_set_tid_address,
    sigaltstack: SYS_sigaltstack,
    write: SYS_write,
    wait4: SYS_wait4,
    waitid: SYS_waitid,
}
