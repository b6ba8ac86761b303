//! A user's own directory: `/dev/shm/umsg-UID`, or a directory next to it if another user has taken that name; see `meeting.rs`. The choice is final
//! once the directory has the sub-directory of POSIX queues.

use std::path::{Path, PathBuf};

use rustix::fs;

use super::contents::{self, Otherwise};
use super::error::NamespaceError;
use super::meeting::{Meeting, user_in};
use super::queues::POSIX;

const PREFIX: &str = "umsg-";

fn meeting(base: &Path, user: u32) -> Meeting<'_> {
    Meeting {
        base,
        prefix: PREFIX,
        user,
        mark: POSIX,
        mode: 0o700,
        check: |directory| contents::check(directory, Otherwise::Make),
    }
}

/// Returns the user's own directory, and creates it if necessary.
pub(super) fn directory(base: &Path, user: u32) -> Result<PathBuf, NamespaceError> {
    meeting(base, user).directory()
}

/// Returns the usual name of a user's directory, and the owner of the entry of that name if that is another user.
pub(super) fn taken(base: &Path, user: u32) -> Option<(PathBuf, u32)> {
    let usual = meeting(base, user).usual();
    let owner = fs::lstat(&usual).ok()?.st_uid;
    (owner != user).then_some((usual, owner))
}

/// Returns the user id in the name of a user's own directory.
pub(super) fn owner_in(path: &Path) -> Option<u32> {
    user_in(PREFIX, path)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::namespace::testing::{
        OTHER_STRANGER, STRANGER, TestDir, as_user, chmod, chown, mode, owner,
    };
    use rustix::fs::Mode;
    use std::collections::HashSet;
    use std::sync::atomic::{AtomicBool, Ordering};

    fn usual(base: &Path, user: u32) -> PathBuf {
        meeting(base, user).usual()
    }

    fn squat(dir: &TestDir, user: u32) -> PathBuf {
        let path = usual(dir.path(), user);
        std::fs::create_dir(&path).unwrap();
        chown(&path, OTHER_STRANGER);
        path
    }

    #[test]
    fn the_user_in_a_name_is_read_and_nothing_else_is_taken_for_one() {
        let of = |name: &str| owner_in(Path::new(name));
        assert_eq!(of("/dev/shm/umsg-1000"), Some(1000));
        assert_eq!(of("/dev/shm/umsg-1000-0123456789abcdef"), Some(1000));
        for name in [
            "umsg-",
            "umsg-01",
            "umsg-+1",
            "umsg-1000-",
            "umsg-1000-0123456789abcdeF",
            "umsg-1000-0123456789abcde",
            "umsg-1000-0123456789abcdef-",
            "umsg-test-1-2",
            "umsg",
        ] {
            assert_eq!(of(name), None, "{name}");
        }
    }

    #[test]
    fn a_user_whose_name_a_stranger_took_meets_himself_in_another_directory() {
        umsg_testkit::needs_root!();
        let dir = TestDir::shared();
        let squatted = squat(&dir, STRANGER);
        as_user(STRANGER, || {
            let own = directory(dir.path(), STRANGER).unwrap();
            assert_ne!(own, squatted);
            assert_eq!((mode(&own), owner(&own)), (0o700, STRANGER));
            assert_eq!(owner_in(&own), Some(STRANGER));
            assert_eq!(directory(dir.path(), STRANGER).unwrap(), own);
        });
        assert_eq!(
            taken(dir.path(), STRANGER),
            Some((squatted.clone(), OTHER_STRANGER))
        );
        // The directory keeps its name when the usual name becomes free.
        std::fs::remove_dir(&squatted).unwrap();
        as_user(STRANGER, || {
            let own = directory(dir.path(), STRANGER).unwrap();
            assert_ne!(own, squatted);
            std::fs::remove_dir_all(own).unwrap();
            assert_eq!(directory(dir.path(), STRANGER).unwrap(), squatted);
        });
    }

    #[test]
    fn a_file_a_link_or_a_fifo_of_a_stranger_in_the_users_name_is_gone_round() {
        umsg_testkit::needs_root!();
        type Make = fn(&Path);
        let makes: [Make; 3] = [
            |path| std::fs::write(path, b"").unwrap(),
            |path| std::os::unix::fs::symlink("/nonexistent", path).unwrap(),
            |path| fs::mkfifoat(fs::CWD, path, Mode::RWXU).unwrap(),
        ];
        for make in makes {
            let dir = TestDir::shared();
            as_user(OTHER_STRANGER, || make(&usual(dir.path(), STRANGER)));
            as_user(STRANGER, || {
                let own = directory(dir.path(), STRANGER).unwrap();
                assert_ne!(own, usual(dir.path(), STRANGER));
                assert_eq!(directory(dir.path(), STRANGER).unwrap(), own);
            });
        }
    }

    #[test]
    fn strangers_directories_with_names_of_the_users_are_not_used() {
        umsg_testkit::needs_root!();
        let dir = TestDir::shared();
        squat(&dir, STRANGER);
        let planted = dir.path().join("umsg-65534-0000000000000000");
        std::fs::create_dir_all(planted.join(POSIX)).unwrap();
        chown(&planted, OTHER_STRANGER);
        as_user(STRANGER, || {
            assert_ne!(directory(dir.path(), STRANGER).unwrap(), planted);
        });
    }

    #[test]
    fn what_a_dead_process_offered_is_settled_or_removed_by_the_next() {
        umsg_testkit::needs_root!();
        let dir = TestDir::shared();
        squat(&dir, STRANGER);
        as_user(STRANGER, || {
            let offered = ["umsg-65534-000000000000000a", "umsg-65534-000000000000000b"];
            for name in offered {
                std::fs::create_dir(dir.path().join(name)).unwrap();
            }
            let own = directory(dir.path(), STRANGER).unwrap();
            assert_eq!(own, dir.path().join(offered[0]));
            assert!(!dir.path().join(offered[1]).exists());
        });
    }

    #[test]
    fn threads_that_begin_while_a_stranger_takes_and_leaves_the_name_all_meet() {
        umsg_testkit::needs_root!();
        for _ in 0..20 {
            let (dir, is_over) = (TestDir::shared(), AtomicBool::new(false));
            let found = std::sync::Mutex::new(HashSet::new());
            std::thread::scope(|scope| {
                scope.spawn(|| {
                    as_user(OTHER_STRANGER, || {
                        let name = usual(dir.path(), STRANGER);
                        while !is_over.load(Ordering::SeqCst) {
                            let _ = fs::mkdir(&name, Mode::RWXU);
                            let _ = fs::rmdir(&name);
                        }
                    });
                });
                let users: Vec<_> = (0..6)
                    .map(|_| {
                        scope.spawn(|| {
                            as_user(STRANGER, || {
                                let own = directory(dir.path(), STRANGER).unwrap();
                                found.lock().unwrap().insert(own);
                            });
                        })
                    })
                    .collect();
                for user in users {
                    let _ = user.join();
                }
                is_over.store(true, Ordering::SeqCst);
            });
            assert_eq!(found.into_inner().unwrap().len(), 1);
        }
    }

    #[test]
    fn a_directory_of_the_user_with_other_files_is_reported_and_left_alone() {
        let dir = TestDir::new();
        let user = crate::namespace::caller();
        let own = usual(dir.path(), user);
        std::fs::create_dir(&own).unwrap();
        chmod(&own, 0o700);
        std::fs::write(own.join("letter"), b"").unwrap();
        let error = directory(dir.path(), user).unwrap_err();
        assert!(matches!(error, NamespaceError::HoldsOtherFiles { .. }));
        assert!(!own.join(POSIX).exists());
    }
}
