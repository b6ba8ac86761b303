//! Decides which directories may hold queues.
//!
//! A directory's owner can replace every file in it. If the directory is not sticky, every process with write access can replace them, too. So the
//! directory must belong to root or to the user, and must be sticky if other users may write to it. Other modules check the contents of the files:
//! every byte of a queue is an input.
//!
//! Only the directory itself is checked, not its parents. The owner of a parent can only choose among directories that belong to root or to the
//! caller.

use super::directory::{Directory, permissions};
use super::error::NamespaceError;
use rustix::fs::Stat;
use std::fs;

const STICKY: u32 = 0o1000;
/// The user ids of this process's user namespace.
const UID_MAP: &str = "/proc/self/uid_map";

/// Refuses a directory if users other than root and `trusted` could change its queues.
///
/// # Errors
/// `Stranger`, `OwnerNotMapped`, `Tamperable`.
pub(super) fn check(directory: &Directory, trusted: u32) -> Result<(), NamespaceError> {
    check_owner(directory, trusted)?;
    let mode = directory.mode();
    if directory.open_to_others() && mode & STICKY == 0 {
        return Err(NamespaceError::Tamperable {
            path: directory.path().to_owned(),
            mode,
        });
    }
    Ok(())
}

/// Refuses a directory that belongs to neither root nor `trusted` (`Stranger`, `OwnerNotMapped`).
pub(super) fn check_owner(directory: &Directory, trusted: u32) -> Result<(), NamespaceError> {
    let owner = directory.owner();
    if owner == 0 || owner == trusted {
        return Ok(());
    }
    let path = directory.path().to_owned();
    match fs::read_to_string(UID_MAP) {
        Ok(map) if !is_mapped(owner, &map) => Err(NamespaceError::OwnerNotMapped { path, trusted }),
        _ => Err(NamespaceError::Stranger {
            path,
            owner,
            trusted,
        }),
    }
}

/// Returns whether a map of user_namespaces(7) has this user id. If the map has no id for a user, the kernel shows user 65534 as the owner of the
/// user's files.
fn is_mapped(user: u32, map: &str) -> bool {
    map.lines().any(|line| {
        let numbers = line.split_whitespace().map(str::parse::<u64>);
        match numbers.collect::<Result<Vec<_>, _>>().as_deref() {
            Ok([first, _, count]) => (*first..first + count).contains(&u64::from(user)),
            _ => true,
        }
    })
}

/// Returns the owner of a directory that passes [`check`].
pub(super) fn owner_of_trusted(directory: &Stat, trusted: u32) -> Option<u32> {
    let (owner, mode) = (directory.st_uid, permissions(directory));
    let is_sticky = mode & 0o022 == 0 || mode & STICKY != 0;
    (is_sticky && [0, trusted].contains(&owner)).then_some(owner)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::namespace::testing::{STRANGER, TestDir, chmod, chown};

    fn verdict(dir: &TestDir, mode: u32, owner: u32, trusted: u32) -> Result<(), NamespaceError> {
        chmod(dir.path(), mode);
        chown(dir.path(), owner);
        check(&Directory::open(dir.path()).unwrap(), trusted)
    }

    #[test]
    fn a_private_or_a_sticky_directory_of_root_or_oneself_is_trusted() {
        umsg_testkit::needs_root!();
        let dir = TestDir::new();
        for mode in [0o700, 0o755, 0o1777, 0o1770] {
            assert_eq!(verdict(&dir, mode, 0, 0), Ok(()));
            assert_eq!(verdict(&dir, mode, 0, STRANGER), Ok(()));
            assert_eq!(verdict(&dir, mode, STRANGER, STRANGER), Ok(()));
        }
    }

    #[test]
    fn a_user_has_an_id_if_a_range_of_the_map_has_it() {
        let map = "         0       1001          1\n         1     100000      65536\n";
        for (user, expected) in [(0, true), (1, true), (65_536, true), (65_537, false)] {
            assert_eq!(is_mapped(user, map), expected, "{user}");
        }
        assert!(is_mapped(65_534, "         0          0 4294967295\n"));
        assert!(!is_mapped(65_534, "         0       1001          1\n"));
    }

    #[test]
    fn a_directory_that_others_may_write_without_the_sticky_bit_is_refused_with_advice() {
        umsg_testkit::needs_root!();
        let dir = TestDir::new();
        for mode in [0o777, 0o770, 0o702] {
            let error = verdict(&dir, mode, 0, 0).unwrap_err();
            assert!(matches!(error, NamespaceError::Tamperable { mode: m, .. } if m == mode));
            assert!(error.to_string().contains("chmod +t /dev/shm/"), "{error}");
        }
    }

    #[test]
    fn a_strangers_directory_is_refused_by_root_too() {
        umsg_testkit::needs_root!();
        let dir = TestDir::new();
        for trusted in [0, 1000] {
            let error = verdict(&dir, 0o1777, STRANGER, trusted).unwrap_err();
            assert!(matches!(
                error,
                NamespaceError::Stranger {
                    owner: STRANGER,
                    ..
                }
            ));
            assert!(error.to_string().contains("set UMSG_DIR"), "{error}");
        }
    }
}
