//! The user under which a process runs.

use super::check;
use crate::errno::Errno;

/// Returns whether this process runs as root.
pub fn is_root() -> bool {
    // SAFETY: the call has no preconditions.
    unsafe { libc::geteuid() == 0 }
}

/// Another user, under which a child can run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct User {
    /// The user id.
    pub uid: u32,
    /// The primary group.
    pub gid: u32,
    /// A supplementary group, if the user has one.
    pub supplementary: Option<u32>,
}

impl User {
    /// The user nobody, with only the permissions of the class "others".
    pub const NOBODY: User = User::of(65534, 65534, None);
    /// Another unprivileged user with another group.
    pub const SOMEBODY: User = User::of(65533, 65533, None);
    /// An unprivileged user whose primary group is root's group.
    pub const OF_ROOTS_GROUP: User = User::of(65532, 0, None);
    /// An unprivileged user with root's group as a supplementary group.
    pub const WITH_ROOTS_GROUP: User = User::of(65531, 65531, Some(0));

    const fn of(uid: u32, gid: u32, supplementary: Option<u32>) -> User {
        User {
            uid,
            gid,
            supplementary,
        }
    }

    /// Makes this process run permanently as this user. Needs root.
    ///
    /// # Errors
    /// The errors of `setgroups`, `setresgid` and `setresuid`.
    pub fn assume(self, by: &Credentials) -> Result<(), Errno> {
        let groups: Vec<u32> = self.supplementary.into_iter().collect();
        // SAFETY: the pointer and the length are those of a live slice.
        check(unsafe { (by.setgroups)(groups.len(), groups.as_ptr()) })?;
        // SAFETY: the call has no preconditions.
        check(unsafe { (by.setresgid)(self.gid, self.gid, self.gid) })?;
        // SAFETY: the call has no preconditions.
        check(unsafe { (by.setresuid)(self.uid, self.uid, self.uid) })?;
        Ok(())
    }

    /// Makes this user and its group the effective user and group of this process. The real and the saved ids stay unchanged.
    ///
    /// # Errors
    /// The errors of `setresgid` and `setresuid`.
    pub fn assume_effective(self, by: &Credentials) -> Result<(), Errno> {
        const SAME: u32 = u32::MAX;
        // SAFETY: the call has no preconditions.
        check(unsafe { (by.setresgid)(SAME, self.gid, SAME) })?;
        // SAFETY: the call has no preconditions.
        check(unsafe { (by.setresuid)(SAME, self.uid, SAME) })?;
        Ok(())
    }
}

/// The functions by which a process changes its user: libc's functions or their replacements.
#[allow(missing_docs)]
#[derive(Clone, Copy)]
pub struct Credentials {
    pub setgroups: unsafe extern "C" fn(libc::size_t, *const libc::gid_t) -> i32,
    pub setresgid: unsafe extern "C" fn(libc::gid_t, libc::gid_t, libc::gid_t) -> i32,
    pub setresuid: unsafe extern "C" fn(libc::uid_t, libc::uid_t, libc::uid_t) -> i32,
}

impl Credentials {
    /// The functions that this program is linked to.
    pub const OF_LIBC: Credentials = Credentials {
        setgroups: libc::setgroups,
        setresgid: libc::setresgid,
        setresuid: libc::setresuid,
    };
}

/// Returns the effective user and group of this process.
pub fn user() -> User {
    // SAFETY: the call has no preconditions.
    let (uid, gid) = unsafe { (libc::geteuid(), libc::getegid()) };
    User {
        uid,
        gid,
        supplementary: None,
    }
}
