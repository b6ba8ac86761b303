//! Removes files of other users from a directory with write access for all users.

use super::mask::Masked;
use rustix::io::Errno;
use rustix::process::geteuid;

/// Removes a name that the caller found for a file of `owner`. The call fails with EPERM if by now the name leads to a file of another user.
///
/// Root may remove any name, so the kernel would not notice if the name leads to another file than at the check. Therefore root removes the name with
/// the file system rights of `owner` (setfsuid(2), only in this thread). The sticky bit of the directory then protects the files of other users. In
/// two cases the call removes the name without that protection: the caller owns the directory, or is root without CAP_SETUID.
pub fn unlink_of(owner: u32, unlink: impl Fn() -> Result<(), Errno>) -> Result<(), Errno> {
    match with_rights_of(owner, &unlink) {
        // `ACCESS`: the owner may not write to the directory, so the owner can't have replaced the file by another file.
        None | Some(Err(Errno::ACCESS)) => unlink(),
        Some(done) => done,
    }
}

/// Runs `work` with the file system rights of a user. Returns `None` if this process can't take these rights, or does not need them.
fn with_rights_of<T>(user: u32, work: impl FnOnce() -> T) -> Option<T> {
    if !geteuid().is_root() || user == 0 {
        return None;
    }
    // Without the mask, a signal handler could run with these rights, too.
    let _masked = Masked::all();
    let before = set(user);
    // No user has the id -1: this call changes nothing, and returns the current user id.
    let done = (set(u32::MAX) == user).then(work);
    set(before);
    done
}

/// Sets the user id for access to files. Returns the previous id.
fn set(user: u32) -> u32 {
    // SAFETY: the argument is a number. In contrast to libc's setuid functions, the system call affects only the calling thread.
    unsafe { libc::syscall(libc::SYS_setfsuid, user) as u32 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::{self, Permissions};
    use std::os::unix::fs::{PermissionsExt, chown};
    use std::path::Path;

    const ONE: u32 = 30_001;
    const OTHER: u32 = 30_002;

    fn make(path: &Path, owner: u32) {
        fs::write(path, b"").unwrap();
        chown(path, Some(owner), None).unwrap();
    }

    #[test]
    #[cfg_attr(miri, ignore = "it has no users")]
    fn root_removes_no_name_that_another_users_file_has_by_now() {
        if !geteuid().is_root() {
            return;
        }
        let dir = tempfile::tempdir_in("/dev/shm").unwrap();
        let name = dir.path().join("name");
        let remove = |owner| unlink_of(owner, || rustix::fs::unlink(&name));
        fs::set_permissions(dir.path(), Permissions::from_mode(0o1777)).unwrap();
        make(&name, OTHER);
        assert_eq!(remove(ONE), Err(Errno::PERM));
        assert_eq!(remove(OTHER), Ok(()));
        assert_eq!(remove(OTHER), Err(Errno::NOENT));
        make(&name, 0);
        assert_eq!(remove(ONE), Err(Errno::PERM));
        assert_eq!(remove(0), Ok(()));
        // Only root can put another file into this directory.
        fs::set_permissions(dir.path(), Permissions::from_mode(0o755)).unwrap();
        make(&name, OTHER);
        assert_eq!(remove(OTHER), Ok(()));
        assert_eq!(set(u32::MAX), 0);
    }
}
