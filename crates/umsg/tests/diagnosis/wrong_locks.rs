//! Locks with impossible owners: a diagnosis reports them and checks the state that they guard, and a repair resets them. No thread
//! loses a lock that it may hold.

use crate::patient::{KINDS, Kind, Patient};
use crate::support::child::Child;
use std::process::Command;
use std::time::Duration;
use umsg::diagnosis::{Diagnosis, Life, Owner, ProblemKind};

const LONG: Duration = Duration::from_secs(60);
/// Words of locks with an impossible owner: an impossible thread id, with and without other bits of the word; and the smallest impossible thread
/// id.
const NOBODY: [u32; 4] = [0x3fff_ffff, 0xbfff_ffff, 0xffff_ffff, 0x0040_0000];

/// Fails unless the diagnosis reports one problem: a wrong lock, with `says` in its description, and without the advice to kill a process.
#[track_caller]
fn assert_one_is_stuck(diagnosis: &Diagnosis, says: &str) {
    let problems = &diagnosis.problems;
    assert_eq!(problems.len(), 1, "{problems:#?}");
    assert_eq!(problems[0].kind, ProblemKind::Stuck);
    assert!(problems[0].what.contains(says), "{problems:#?}");
    assert!(!problems[0].advice.contains("kill"), "{problems:#?}");
}

#[track_caller]
fn assert_is_repaired(patient: &mut Patient, what: &str) {
    let repaired = patient.repair();
    assert!(repaired.after.is_healthy(), "{what}: {repaired:#?}");
    assert!(repaired.failed.is_none(), "{what}: {repaired:#?}");
    let mut done = repaired.done.iter();
    assert!(
        done.any(|done| done.contains("lock")),
        "{what}: {repaired:#?}"
    );
    assert_eq!(patient.receive_all(), 2, "{what}");
}

#[test]
fn a_lock_with_an_impossible_thread_id_is_reported_and_reset() {
    for (kind, word) in KINDS
        .iter()
        .flat_map(|&kind| NOBODY.map(|word| (kind, word)))
    {
        for &lock in Patient::new(kind).locks() {
            let (mut patient, what) = (Patient::new(kind), format!("{kind:?}, {lock}, {word:#x}"));
            patient.write(lock, word);
            let found = patient.lock(lock);
            assert_eq!(
                (found.owner, found.word),
                (Owner::Impossible, word),
                "{what}"
            );
            assert_one_is_stuck(&patient.diagnose(), "a process has overwritten it");
            assert_is_repaired(&mut patient, &what);
        }
    }
}

#[test]
fn the_state_under_a_lock_with_an_impossible_thread_id_is_checked() {
    for kind in KINDS {
        let patient = Patient::new(kind);
        for &lock in patient.locks() {
            patient.write(lock, NOBODY[0]);
        }
        let locks_only = patient.diagnose().problems.len();
        patient.write(patient.guarded(), 0xffff);
        let damaged = patient.diagnose().problems;
        assert!(damaged.len() > locks_only, "{kind:?}: {damaged:#?}");
        assert_eq!(damaged[0].kind, ProblemKind::Damaged);
        let repaired = patient.repair();
        assert!(repaired.after.is_healthy(), "{kind:?}: {repaired:#?}");
    }
}

#[test]
fn a_lock_is_taken_from_a_process_that_does_not_use_the_queue() {
    let mut stranger = Command::new("sleep").arg("60").spawn().unwrap();
    for kind in KINDS {
        for &lock in Patient::new(kind).locks() {
            let (mut patient, what) = (Patient::new(kind), format!("{kind:?}, {lock}"));
            patient.write(lock, stranger.id());
            match patient.lock(lock).owner {
                Owner::Stranger(who) => {
                    assert_eq!((who.pid, who.life), (stranger.id(), Life::Alive))
                }
                other => panic!("{what}: {other:?}"),
            }
            assert_one_is_stuck(&patient.diagnose(), "which does not use the queue");
            assert_is_repaired(&mut patient, &what);
        }
    }
    assert!(stranger.try_wait().unwrap().is_none(), "it was ended");
    stranger.kill().unwrap();
    stranger.wait().unwrap();
}

/// Returns the id of a thread of the process other than its first thread.
fn other_thread(pid: u32) -> Option<u32> {
    let threads = std::fs::read_dir(format!("/proc/{pid}/task")).ok()?;
    let names = threads.filter_map(|thread| thread.ok()?.file_name().into_string().ok());
    let mut tids = names.filter_map(|name| name.parse().ok());
    tids.find(|&tid| tid != pid)
}

#[test]
fn a_lock_is_left_to_a_thread_whose_process_has_the_queue_open() {
    for kind in KINDS {
        let patient = Patient::new(kind);
        // The child has inherited the open descriptors of its parent.
        let user = Child::run(|| {
            std::thread::spawn(|| std::thread::sleep(LONG));
            std::thread::sleep(LONG);
            0
        });
        let pid = user.pid() as u32;
        let has_begun = || other_thread(pid).is_some();
        assert!(crate::support::wait_until(LONG, has_begun));
        let tids = [other_thread(pid).unwrap(), pid];
        // The diagnosis needs a second to see that a queue is at rest.
        user.signal(libc::SIGSTOP);
        for (&lock, tid) in patient.locks().iter().zip(tids) {
            patient.write(lock, tid);
            let found = patient.lock(lock);
            assert_eq!(found.mapped, Some(true), "{kind:?}: {found:?}");
            let repaired = patient.repair();
            assert!(repaired.failed.is_some(), "{kind:?}: {repaired:#?}");
            assert_eq!(patient.lock(lock).word, tid);
            patient.write(lock, 0);
        }
    }
}

/// The offset of the inode number of the creator's PID namespace in a POSIX queue: docs/format.md, section 2.
const HOME: u64 = 64;

#[test]
fn where_numbers_of_threads_are_those_of_another_pid_namespace_no_lock_is_taken_from_any() {
    let patient = Patient::new(Kind::Posix);
    // The queue was created in a PID namespace with another inode number.
    patient.write(HOME, 1);
    let mut stranger = Command::new("sleep").arg("60").spawn().unwrap();
    // The id of a living thread, and an id that is too high for any thread of this machine.
    for tid in [stranger.id(), (1 << 22) - 1] {
        patient.write(patient.locks()[0], tid);
        let repaired = patient.repair();
        assert!(repaired.failed.is_some(), "{repaired:#?}");
        let lock = patient.lock(patient.locks()[0]);
        assert_eq!((lock.word, lock.mapped), (tid, None));
    }
    stranger.kill().unwrap();
    stranger.wait().unwrap();
}
