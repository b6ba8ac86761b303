//! Which PID namespace a namespace belongs to.
//!
//! Locks and waiters are named by thread id, and those of two PID namespaces collide: the death of one thread
//! would be taken for another's. So a namespace belongs to one PID namespace of one boot, its *home*.
//!
//! | the record says | the directory is | a caller is let in |
//! |---|---|---|
//! | other PID namespaces are welcome | any | always |
//! | a home of this boot | any | if that is his home |
//! | no home, or one of an earlier boot | private, and the caller's (or the caller is root) | and his home is recorded first |
//! | no home, or one of an earlier boot | open to others, or not the caller's | if he lives in the host's PID namespace |
//!
//! The last line is for a shared directory that an administrator or tmpfiles.d made at boot: only root can write its record, and
//! whichever user came first would not settle it for those to come. The host's PID namespace is the one place that all agree on
//! without a record. For any other, root runs `umsg setup` there, which records it.
//!
//! An earlier boot's PID namespaces are all gone, and their numbers may return: only the limits of such a record hold.

use super::directory::Directory;
use super::error::NamespaceError;
use super::home::Home;
use super::limits::Limits;
use super::record::{self, Record};

/// Attempts at a record that others keep replacing.
const ATTEMPTS: usize = 8;

/// Lets the caller in, or says why not; records his home where he may and none stands.
///
/// # Errors
/// `ForeignPidNamespace`, `UnclaimedPidNamespace`, and those of reading and writing the record.
pub(super) fn admit(directory: &mut Directory, caller: u32) -> Result<(), NamespaceError> {
    let private = !directory.open_to_others() && directory.may_be_mended_by(caller);
    settle(directory, |directory, here| {
        if private || here.is_hosts() {
            return Ok(private);
        }
        Err(NamespaceError::UnclaimedPidNamespace {
            path: directory.path().to_owned(),
        })
    })
    .map(drop)
}

/// Records the caller's home unless one stands, in place of a record that a stranger planted; returns whether it
/// did. For root's `umsg setup`.
pub(super) fn claim(directory: &mut Directory) -> Result<bool, NamespaceError> {
    settle(directory, |_, _| Ok(true))
}

/// Compares the home that stands in the record with the caller's. If none stands, `may_record` says whether to record the
/// caller's, and then the record is read again: of two writers, one stands.
fn settle(
    directory: &mut Directory,
    may_record: impl Fn(&Directory, &Home) -> Result<bool, NamespaceError>,
) -> Result<bool, NamespaceError> {
    let mut recorded = false;
    for _ in 0..ATTEMPTS {
        let record = record::read(directory)?;
        if record
            .as_ref()
            .is_some_and(|r| r.limits.foreign_pid_namespaces)
        {
            break;
        }
        let here = Home::of_caller()?;
        if stands(directory, record.as_ref(), &here)? || !may_record(directory, &here)? {
            break;
        }
        recorded = write(directory, record, here)?;
    }
    Ok(recorded)
}

/// A home of this boot stands in the record, and it is the caller's.
fn stands(
    directory: &Directory,
    record: Option<&Record>,
    here: &Home,
) -> Result<bool, NamespaceError> {
    match record {
        Some(record) if record.home == *here => Ok(true),
        Some(record) if record.home.boot == here.boot => Err(NamespaceError::ForeignPidNamespace {
            path: directory.path().to_owned(),
        }),
        _ => Ok(false),
    }
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
            // What has the name may be a stranger's, which counts for nothing.
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
    use crate::namespace::testing::{Alone, STRANGER, TestDir, as_user, chown, is_root, owner};

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

    fn put(dir: &TestDir, home: Home, foreign: bool) {
        let limits = Limits {
            foreign_pid_namespaces: foreign,
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
    fn a_process_of_another_pid_namespace_is_refused_unless_the_namespace_allows_it() {
        for dir in [TestDir::new(), TestDir::shared()] {
            put(&dir, elsewhere(), false);
            let error = admit(&mut open(&dir), caller()).unwrap_err();
            assert!(matches!(error, NamespaceError::ForeignPidNamespace { .. }));
            assert_eq!(claim(&mut open(&dir)), Err(error));
            put(&dir, elsewhere(), true);
            assert_eq!(admit(&mut open(&dir), caller()), Ok(()));
            assert_eq!(recorded(&dir).unwrap().home, elsewhere());
        }
    }

    #[test]
    fn a_home_of_an_earlier_boot_is_replaced_and_the_limits_stay() {
        let dir = TestDir::new();
        put(&dir, earlier_boot(), false);
        admit(&mut open(&dir), caller()).unwrap();
        let record = recorded(&dir).unwrap();
        assert_eq!(record.home, Home::of_caller().unwrap());
        assert_eq!(record.limits.max_queues, 5);
    }

    #[test]
    fn a_shared_directory_without_a_home_is_the_hosts_and_nobody_records_it_by_using_it() {
        let dir = TestDir::shared();
        let outcome = admit(&mut open(&dir), caller());
        if Home::of_caller().unwrap().is_hosts() {
            assert_eq!(outcome, Ok(()));
        } else {
            assert!(matches!(
                outcome,
                Err(NamespaceError::UnclaimedPidNamespace { .. })
            ));
        }
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
        if !is_root() {
            return;
        }
        let dir = TestDir::shared();
        put(&dir, elsewhere(), true);
        let path = dir.path().join(".namespace");
        chown(&path, STRANGER);
        assert_eq!(claim(&mut open(&dir)), Ok(true));
        assert_eq!(
            (owner(&path), recorded(&dir).unwrap().home),
            (0, Home::of_caller().unwrap())
        );
    }

    #[test]
    fn processes_in_a_pid_namespace_of_their_own_are_refused() {
        const TEST: Alone = Alone::new("processes_in_a_pid_namespace_of_their_own_are_refused");
        if let Some(base) = TEST.directory() {
            let refused = |name: &str| Namespace::at(base.join(name)).unwrap_err();
            assert!(matches!(
                refused("mine"),
                NamespaceError::ForeignPidNamespace { .. }
            ));
            assert!(matches!(
                refused("all"),
                NamespaceError::UnclaimedPidNamespace { .. }
            ));
            return;
        }
        if !is_root() {
            return;
        }
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
        if !is_root() {
            return;
        }
        let dir = TestDir::new();
        chown(dir.path(), STRANGER);
        as_user(STRANGER, || {
            assert_eq!(admit(&mut open(&dir), STRANGER), Ok(()))
        });
        assert!(recorded(&dir).is_some());
    }
}
