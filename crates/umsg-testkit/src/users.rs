//! Other users, which a test that runs as root can act as.

/// The user id of a user that owns no files.
pub const NOBODY: u32 = 65534;

/// Returns whether the test runs as root. If not, prints that the test is skipped.
pub fn is_root() -> bool {
    // SAFETY: the system call takes no arguments.
    let is_root = unsafe { libc::geteuid() } == 0;
    if !is_root {
        eprintln!("left out: needs root, to act as several users");
    }
    is_root
}

/// Ends a test that does not run as root, after printing that the test is skipped.
#[macro_export]
macro_rules! needs_root {
    () => {
        if !$crate::users::is_root() {
            return;
        }
    };
}

/// Makes this process a process of another user, without supplementary groups. The process must have only one thread, and must run as root.
pub fn become_user(user: u32) {
    // SAFETY: the calls change the ids of this process.
    let is_done = unsafe {
        libc::setgroups(0, std::ptr::null()) == 0
            && libc::setresgid(user, user, user) == 0
            && libc::setresuid(user, user, user) == 0
    };
    assert!(is_done, "user {user}: {}", std::io::Error::last_os_error());
}
