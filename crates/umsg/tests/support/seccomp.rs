//! Filters of system calls (seccomp): a test's own processes and threads, of which some calls fail or kill.

/// Judges all later system calls of this thread by a filter.
#[track_caller]
pub fn filter_calls(filter: &mut [libc::sock_filter]) {
    let program = libc::sock_fprog {
        len: filter.len() as u16,
        filter: filter.as_mut_ptr(),
    };
    // SAFETY: settings of this thread; the program, and the filter that it names, are read during the call.
    let is_set = unsafe {
        libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0
            && libc::prctl(
                libc::PR_SET_SECCOMP,
                libc::SECCOMP_MODE_FILTER,
                &raw const program,
            ) == 0
    };
    assert!(is_set, "{}", std::io::Error::last_os_error());
}
