//! The *home* of a namespace: the boot and the PID namespace that the namespace's record names.
//!
//! | the record names | the directory is | then the record |
//! |---|---|---|
//! | a home of this boot | any | stays |
//! | a home | in a tmpfs, which does not outlive the boot | stays; the number of the boot is not read |
//! | no home, or one of an earlier boot | private, and belongs to the caller (or the caller is root) | names the caller's home |
//! | no home, or one of an earlier boot | open to others, or does not belong to the caller | stays: only root can write it, by `umsg setup` |
//!
//! Processes of all PID namespaces may use a namespace. Each queue has its own home in its file, and identifies processes by their lives
//! ([`umsg_shm::sys::liveness`]).

use super::directory::Directory;
use super::error::NamespaceError;
use super::home::{self, Home};
use super::limits::Limits;
use super::record::{self, Record};
use umsg_shm::sys::extent::is_in_tmpfs;

/// The number of attempts to read a record that other processes keep replacing.
const ATTEMPTS: usize = 8;

/// Admits the caller. Records the caller's home if no home is recorded and the caller may record one.
///
/// # Errors
/// The errors of reading and writing the record.
pub(super) fn admit(directory: &mut Directory, caller: u32) -> Result<(), NamespaceError> {
    let private = !directory.open_to_others() && directory.may_be_mended_by(caller);
    settle(directory, private, outlives_boot(directory)).map(drop)
}

/// Returns whether a record in this directory may be one of an earlier boot.
fn outlives_boot(directory: &Directory) -> bool {
    let (at, _) = directory.locate("");
    !directory.is_open() || is_in_tmpfs(at) != Ok(true)
}

/// Records the caller's home unless a home is recorded already. Replaces a record that a stranger planted. Returns whether it recorded the
/// home. For root's `umsg setup`.
pub(super) fn claim(directory: &mut Directory) -> Result<bool, NamespaceError> {
    settle(directory, true, true)
}

/// Reads the record. If the record has no home of this boot and the caller has the permission, records the caller's home. Then reads the record
/// again, because another process may have written the record at the same time. In a directory that does not outlive the boot, every record comes
/// from this boot, so the function does not compare the boot that the record names.
fn settle(
    directory: &mut Directory,
    may_record: bool,
    outlives_boot: bool,
) -> Result<bool, NamespaceError> {
    let mut recorded = false;
    for _ in 0..ATTEMPTS {
        let record = record::read(directory)?;
        if !may_record || record.is_some() && !outlives_boot {
            break;
        }
        let boot = home::boot_id()?;
        if record
            .as_ref()
            .is_some_and(|record| record.home.boot == boot)
        {
            break;
        }
        recorded = write(directory, record, Home::of_caller()?)?;
    }
    Ok(recorded)
}

fn write(
    directory: &mut Directory,
    stale: Option<Record>,
    home: Home,
) -> Result<bool, NamespaceError> {
    match stale {
        Some(stale) => record::replace(directory, &Record { home, ..stale }).map(|()| true),
        None => {
            let limits = Limits::default();
            let record = Record { limits, home };
            if record::create(directory, &record)? {
                return Ok(true);
            }
            // A record of this name can belong to another user; such a record is ignored.
            match record::read(directory)? {
                Some(_) => Ok(false),
                None => record::replace(directory, &record).map(|()| true),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::namespace::Namespace;
    use crate::namespace::caller;
    use crate::namespace::testing::{Alone, STRANGER, TestDir, as_user, chown, owner};

    fn open(dir: &TestDir) -> Directory {
        Directory::open(dir.path()).unwrap()
    }

    fn home(change: impl FnOnce(&mut Home)) -> Home {
        let mut home = Home::of_caller().unwrap();
        change(&mut home);
        home
    }

    fn elsewhere() -> Home {
        home(|h| h.pid_namespace.inode += 1)
    }

    fn earlier_boot() -> Home {
        home(|h| {
            h.boot[0] ^= 1;
            h.pid_namespace.inode += 1;
        })
    }

    fn put(dir: &TestDir, home: Home) {
        let limits = Limits {
            max_queues: 5,
            ..Limits::default()
        };
        record::replace(&mut open(dir), &Record { limits, home }).unwrap();
    }

    fn recorded(dir: &TestDir) -> Option<Record> {
        record::read(&open(dir)).unwrap()
    }

    #[test]
    fn the_first_user_of_a_private_directory_records_his_home() {
        let dir = TestDir::new();
        admit(&mut open(&dir), caller()).unwrap();
        assert_eq!(recorded(&dir).unwrap().home, Home::of_caller().unwrap());
    }

    #[test]
    fn a_process_of_another_pid_namespace_is_let_in_and_the_record_stays() {
        for dir in [TestDir::new(), TestDir::shared()] {
            put(&dir, elsewhere());
            assert_eq!(admit(&mut open(&dir), caller()), Ok(()));
            assert_eq!(claim(&mut open(&dir)), Ok(false));
            assert_eq!(recorded(&dir).unwrap().home, elsewhere());
        }
    }

    #[test]
    fn a_home_of_an_earlier_boot_is_replaced_and_the_limits_stay() {
        let dir = TestDir::new();
        put(&dir, earlier_boot());
        // `true`: as if the directory were in a file system on a disk, which outlives the boot.
        settle(&mut open(&dir), true, true).unwrap();
        let record = recorded(&dir).unwrap();
        assert_eq!(record.home, Home::of_caller().unwrap());
        assert_eq!(record.limits.max_queues, 5);
    }

    #[test]
    fn a_shared_directory_without_a_home_is_open_to_all_and_using_it_records_none() {
        let dir = TestDir::shared();
        assert_eq!(admit(&mut open(&dir), caller()), Ok(()));
        assert_eq!(recorded(&dir), None);
    }

    #[test]
    fn a_claim_records_the_home_of_a_shared_directory_once() {
        let dir = TestDir::shared();
        assert_eq!(claim(&mut open(&dir)), Ok(true));
        assert_eq!(claim(&mut open(&dir)), Ok(false));
        assert_eq!(recorded(&dir).unwrap().home, Home::of_caller().unwrap());
    }

    #[test]
    fn a_claim_replaces_a_record_that_a_stranger_planted() {
        umsg_testkit::needs_root!();
        let dir = TestDir::shared();
        put(&dir, elsewhere());
        let path = dir.path().join(".namespace");
        chown(&path, STRANGER);
        assert_eq!(claim(&mut open(&dir)), Ok(true));
        assert_eq!(
            (owner(&path), recorded(&dir).unwrap().home),
            (0, Home::of_caller().unwrap())
        );
    }

    #[test]
    fn processes_in_a_pid_namespace_of_their_own_are_let_in() {
        const TEST: Alone = Alone::new("processes_in_a_pid_namespace_of_their_own_are_let_in");
        if let Some(base) = TEST.directory() {
            for name in ["mine", "all"] {
                Namespace::at(base.join(name)).unwrap();
            }
            return;
        }
        umsg_testkit::needs_root!();
        let dir = TestDir::new();
        for (name, mode) in [("mine", 0o700), ("all", 0o1777)] {
            std::fs::create_dir(dir.path().join(name)).unwrap();
            crate::namespace::testing::chmod(&dir.path().join(name), mode);
        }
        Namespace::at(dir.path().join("mine")).unwrap();
        TEST.passes(dir.path(), &["unshare", "--pid", "--fork", "--mount-proc"]);
    }

    #[test]
    fn a_user_is_let_into_his_own_directory_and_its_record_is_his() {
        umsg_testkit::needs_root!();
        let dir = TestDir::new();
        chown(dir.path(), STRANGER);
        as_user(STRANGER, || {
            assert_eq!(admit(&mut open(&dir), STRANGER), Ok(()))
        });
        assert!(recorded(&dir).is_some());
    }
}
