//! Limits of the process. If a sandbox refuses the query of a limit, the functions assume no limit, and a call that exceeds the limit fails.

/// Returns the limit on the length of files, in bytes; None if there is no limit.
pub(crate) fn of_file_size() -> Option<u64> {
    // SAFETY: getrlimit(2) fills in the structure.
    soft(|limit| unsafe { libc::getrlimit(libc::RLIMIT_FSIZE, limit) })
}

/// Returns the limit on the number of descriptors; None if there is no limit.
pub fn of_descriptors() -> Option<u64> {
    // SAFETY: getrlimit(2) fills in the structure.
    soft(|limit| unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, limit) })
}

fn soft(ask: impl FnOnce(*mut libc::rlimit) -> libc::c_int) -> Option<u64> {
    let mut limit = libc::rlimit {
        rlim_cur: libc::RLIM_INFINITY,
        rlim_max: libc::RLIM_INFINITY,
    };
    let is_told = ask(&raw mut limit) == 0;
    (is_told && limit.rlim_cur != libc::RLIM_INFINITY).then_some(limit.rlim_cur)
}
