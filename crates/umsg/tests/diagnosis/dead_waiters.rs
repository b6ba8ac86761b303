//! Threads that were killed while they waited: a diagnosis reports them, does not count them as waiting, and a repair removes them.

use crate::patient::{KEY, Kind, Patient};
use crate::support::child::Child;
use crate::support::wait_until;
use std::time::Duration;
use umsg::diagnosis::{Life, ProblemKind};
use umsg::ring::{self, Post};
use umsg::sysv::Want;

const PATIENCE: Duration = Duration::from_secs(10);

/// The call in which a thread waits.
#[derive(Clone, Copy, Debug)]
enum Call {
    Receive,
    Send,
    SendBoth,
}

/// Makes the call, in a queue that is empty or full.
fn wait_in(patient: &Patient, call: Call) {
    let (mut buffer, both) = ([0; 8192], [&b"one"[..], b"two"]);
    match (patient.kind, call) {
        (Kind::Posix, Call::Receive) => {
            let _ = patient.place.open("/q").receive(&mut buffer);
        }
        (Kind::Posix, Call::Send) => {
            let _ = patient.place.open("/q").send(b"waits", 1);
        }
        (Kind::Posix, Call::SendBoth) => {
            let _ = patient
                .place
                .open("/q")
                .send_batch(&both.map(|text| (text, 1)));
        }
        (Kind::SystemV, Call::Receive) => {
            let queue = patient.place.open_sysv(KEY);
            let _ = queue.receive(Want::Exactly(99), &mut buffer);
        }
        (Kind::SystemV, _) => {
            let _ = patient.place.open_sysv(KEY).send(5, &[0; 8192]);
        }
        (Kind::Ring, _) => {
            let sender = ring::Sender::open_in(&patient.place.namespace, "/r").unwrap();
            let _ = sender.send(&Post::new(7));
        }
    }
}

/// Empties a queue for receivers, or fills it for senders.
fn prepare(patient: &mut Patient, call: Call) {
    if let Call::Receive = call {
        patient.receive_all();
        return;
    }
    match patient.kind {
        Kind::Posix => while patient.queue.as_ref().unwrap().try_send(b"", 1).is_ok() {},
        Kind::SystemV => {
            while patient
                .sysv_queue
                .as_ref()
                .unwrap()
                .try_send(5, &[0; 4000])
                .is_ok()
            {}
        }
        Kind::Ring => {
            let sender = ring::Sender::open_in(&patient.place.namespace, "/r").unwrap();
            while sender.try_send(&Post::new(7)).is_ok() {}
        }
    }
}

/// Returns the reported number of waiters.
fn blocked(patient: &Patient) -> usize {
    match (&patient.queue, &patient.sysv_queue, &patient.ring) {
        (Some(queue), _, _) => {
            let status = queue.status();
            status.blocked_receivers + status.blocked_senders
        }
        (_, Some(queue), _) => {
            let status = queue.status().unwrap();
            status.blocked_receivers + status.blocked_senders
        }
        (_, _, Some(ring)) => ring.status().blocked_senders,
        _ => 0,
    }
}

fn is_asleep(pid: i32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    stat.rsplit(") ").next().unwrap().starts_with('S')
}

#[test]
fn a_waiter_that_died_is_reported_not_counted_and_removed() {
    for (kind, call) in [
        (Kind::Posix, Call::Receive),
        (Kind::Posix, Call::Send),
        (Kind::Posix, Call::SendBoth),
        (Kind::SystemV, Call::Receive),
        (Kind::SystemV, Call::Send),
        (Kind::Ring, Call::Send),
    ] {
        let (mut patient, what) = (Patient::new(kind), format!("{kind:?}, {call:?}"));
        prepare(&mut patient, call);
        let wait = || {
            wait_in(&patient, call);
            1
        };
        // A living waiter at the front of the list does not check the waiters after it.
        let lives = Child::run(wait);
        assert!(wait_until(PATIENCE, || blocked(&patient) == 1), "{what}");
        let mut dies = Child::run(wait);
        assert!(wait_until(PATIENCE, || blocked(&patient) == 2), "{what}");
        assert!(patient.diagnose().is_healthy(), "{what}");
        // The kernel does not mark the node of a thread that dies while it is awake. Such a node is counted until a process checks its owner.
        assert!(wait_until(PATIENCE, || is_asleep(dies.pid())), "{what}");
        dies.kill();
        assert_eq!(blocked(&patient), 1, "{what}");
        let diagnosis = patient.diagnose();
        let is_dead = |pid: i32, life| {
            let mut blocked = diagnosis.blocked.iter();
            blocked.any(|one| one.who.pid == pid as u32 && one.who.life == life)
        };
        assert!(
            is_dead(dies.pid(), Life::Dead) && is_dead(lives.pid(), Life::Alive),
            "{what}: {diagnosis:#?}"
        );
        assert_eq!(diagnosis.problems.len(), 1, "{what}: {diagnosis:#?}");
        assert_eq!(diagnosis.problems[0].kind, ProblemKind::Died, "{what}");
        let repaired = patient.repair();
        assert!(repaired.after.is_healthy(), "{what}: {repaired:#?}");
        let left: Vec<_> = repaired
            .after
            .blocked
            .iter()
            .map(|one| one.who.pid)
            .collect();
        assert_eq!(left, [lives.pid() as u32], "{what}");
    }
}
