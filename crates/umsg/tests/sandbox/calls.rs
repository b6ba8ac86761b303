//! The system calls of the library by name, in the order of `docs/syscalls.md`.

macro_rules! calls {
    ($($name:ident: $number:ident),* $(,)?) => {
        pub const CALLS: &[(&str, libc::c_long)] = &[$((stringify!($name), libc::$number)),*];
    };
}

// Without those that no program does without: to map memory, to open, read and close files, to start threads, to ask for ids.
calls! {
    bind: SYS_bind,
    fchmod: SYS_fchmod,
    fchmodat: SYS_fchmodat,
    fcntl: SYS_fcntl,
    flock: SYS_flock,
    ftruncate: SYS_ftruncate,
    futex_waitv: SYS_futex_waitv,
    get_robust_list: SYS_get_robust_list,
    getdents64: SYS_getdents64,
    getrandom: SYS_getrandom,
    linkat: SYS_linkat,
    madvise: SYS_madvise,
    membarrier: SYS_membarrier,
    memfd_create: SYS_memfd_create,
    mkdirat: SYS_mkdirat,
    mknodat: SYS_mknodat,
    pread64: SYS_pread64,
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
