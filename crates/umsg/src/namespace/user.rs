//! The directory of a user's own: `/dev/shm/umsg-UID`, or one beside it if another user has that name.
//!
//! Every user can make names in /dev/shm, so another user can take `umsg-UID`. The programs of the user then meet in
//! `umsg-UID-<16 hexadecimal digits>`, whose name nobody can guess before it is made.
//!
//! A directory counts if it belongs to the user. It is *settled* once it has the sub-directory `mq`, and *offered* before.
//!
//! | the user's directories | a program |
//! |---|---|
//! | one is settled | uses it |
//! | none | offers one: `umsg-UID` if that name is free, else a random name |
//! | some are offered | opens the lowest, removes the others, lists again, and settles the lowest if it is the only one |
//!
//! Two directories are never settled. Both would have been listed alone after they were opened, and an opened directory that is removed
//! can't be settled. So the later of the two listings shows the other directory.
//!
//! A settled directory stays in use until it is removed, also when the name `umsg-UID` becomes free.
//!
//! **If a process dies** after it offered a directory, the next process settles or removes it.

use std::ffi::OsStr;
use std::fs::read_dir;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::{self, FileType, Mode};
use rustix::io::Errno;

use super::contents::{self, Otherwise};
use super::directory::Directory;
use super::error::NamespaceError;
use super::queues::POSIX;
use super::random;

const PREFIX: &str = "umsg-";
/// Hexadecimal digits behind a user's number.
const DIGITS: usize = 16;
/// How often the directories are listed before other processes are said to keep changing them, and the longest sleep between.
const ATTEMPTS: u32 = 500;
const NAP: Duration = Duration::from_millis(10);

/// The directory of the user's own, made if need be.
pub(super) fn directory(base: &Path, user: u32) -> Result<PathBuf, NamespaceError> {
    let usual = usual(base, user);
    if is_settled(&usual, user) || is_an_obstacle_of_ones_own(&usual, user) {
        return Ok(usual);
    }
    for attempt in 0..ATTEMPTS {
        let own = Own::list(base, user)?;
        if let Some(settled) = own.settled {
            return Ok(settled);
        }
        match own.offered.split_first() {
            None => offer(base, user)?,
            Some((lowest, others)) => {
                if settle(base, user, lowest, others)? {
                    return Ok(lowest.clone());
                }
                std::thread::sleep(NAP.min(Duration::from_micros(50) * attempt));
            }
        }
    }
    Err(NamespaceError::system("mkdir", &usual, Errno::AGAIN))
}

/// The directory of a user that another user's name is in the way of, if there is such a name.
pub(super) fn taken(base: &Path, user: u32) -> Option<(PathBuf, u32)> {
    let usual = usual(base, user);
    let owner = fs::lstat(&usual).ok()?.st_uid;
    (owner != user).then_some((usual, owner))
}

fn usual(base: &Path, user: u32) -> PathBuf {
    base.join(format!("{PREFIX}{user}"))
}

/// The user id in the name of a user's own directory.
pub(super) fn owner_in(path: &Path) -> Option<u32> {
    let name = path.file_name().and_then(OsStr::to_str)?;
    let rest = name.strip_prefix(PREFIX)?;
    let (number, suffix) = match rest.split_once('-') {
        Some((number, suffix)) => (number, Some(suffix)),
        None => (rest, None),
    };
    let user = number.parse::<u32>().ok()?;
    let is_suffix = |text: &str| {
        text.len() == DIGITS && text.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'))
    };
    (number == user.to_string() && suffix.is_none_or(is_suffix)).then_some(user)
}

/// The directories of a user, each list in the order of their names.
struct Own {
    settled: Option<PathBuf>,
    offered: Vec<PathBuf>,
}

impl Own {
    fn list(base: &Path, user: u32) -> Result<Own, NamespaceError> {
        let refuse = |e: std::io::Error| {
            let errno = Errno::from_io_error(&e).unwrap_or(Errno::IO);
            NamespaceError::looking("open", base, errno)
        };
        let mut paths = Vec::new();
        for entry in read_dir(base).map_err(refuse)? {
            let path = entry.map_err(refuse)?.path();
            if owner_in(&path) == Some(user) && is_ones_directory(&path, user) {
                paths.push(path);
            }
        }
        paths.sort_unstable();
        let settled = paths.iter().find(|path| is_settled(path, user)).cloned();
        Ok(Own {
            settled,
            offered: paths,
        })
    }
}

fn is_ones_directory(path: &Path, user: u32) -> bool {
    fs::lstat(path).is_ok_and(|stat| {
        stat.st_uid == user && FileType::from_raw_mode(stat.st_mode) == FileType::Directory
    })
}

/// A file or a link that the user put there: it is not gone round, but told of.
fn is_an_obstacle_of_ones_own(path: &Path, user: u32) -> bool {
    fs::lstat(path).is_ok_and(|stat| {
        stat.st_uid == user && FileType::from_raw_mode(stat.st_mode) != FileType::Directory
    })
}

fn is_settled(path: &Path, user: u32) -> bool {
    is_ones_directory(path, user) && fs::lstat(path.join(POSIX)).is_ok()
}

/// Makes a directory by the usual name, or by a random one.
fn offer(base: &Path, user: u32) -> Result<(), NamespaceError> {
    let make = |path: &Path| match fs::mkdir(path, Mode::RWXU) {
        Ok(()) => Ok(true),
        Err(Errno::EXIST) => Ok(false),
        Err(e) => Err(NamespaceError::changing("mkdir", base, e)),
    };
    let usual = usual(base, user);
    if make(&usual)? || is_ones_directory(&usual, user) {
        return Ok(());
    }
    let name = format!("{PREFIX}{user}-{:0DIGITS$x}", random());
    make(&base.join(name)).map(drop)
}

/// Settles a directory that was offered, unless there are others; whether it is settled.
fn settle(
    base: &Path,
    user: u32,
    lowest: &Path,
    others: &[PathBuf],
) -> Result<bool, NamespaceError> {
    let mut directory = match Directory::open(lowest) {
        Err(NamespaceError::Missing { .. }) => return Ok(false),
        opened => opened?,
    };
    open_up(&mut directory, user)?;
    contents::check(&directory, Otherwise::Make)?;
    for other in others {
        // In vain if it has been settled by now.
        let _ = fs::rmdir(other);
    }
    let own = Own::list(base, user)?;
    if own.settled.is_some() || own.offered.iter().any(|path| path != lowest) {
        return Ok(own.settled.as_deref() == Some(lowest));
    }
    let (at, path) = directory.locate(POSIX);
    match fs::mkdirat(at, &path, Mode::RWXU) {
        Ok(()) | Err(Errno::EXIST) => Ok(true),
        // It was removed meanwhile.
        Err(Errno::NOENT) => Ok(false),
        Err(e) => Err(NamespaceError::changing("mkdir", lowest, e)),
    }
}

/// Gives the owner the rights that a strange umask took away when the directory was made.
fn open_up(directory: &mut Directory, user: u32) -> Result<(), NamespaceError> {
    let mode = directory.mode();
    if directory.owner() == user && mode & 0o700 != 0o700 {
        directory.set_mode(mode | 0o700)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::namespace::testing::{
        OTHER_STRANGER, STRANGER, TestDir, as_user, chmod, chown, is_root, mode, owner,
    };
    use std::collections::HashSet;
    use std::sync::atomic::{AtomicBool, Ordering};

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
        if !is_root() {
            return;
        }
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
        // It stays where it is when the name becomes free.
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
        if !is_root() {
            return;
        }
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
        if !is_root() {
            return;
        }
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
        if !is_root() {
            return;
        }
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
        if !is_root() {
            return;
        }
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
    fn a_directory_of_ones_own_with_other_files_is_told_of_and_left_alone() {
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
