//! A diagnosis names dead lock owners, stopped processes, waiters, holders and wrong bytes.
//! It changes nothing, waits for no process, and survives any bytes.

#[path = "diagnosis/dead_waiters.rs"]
mod dead_waiters;
#[path = "diagnosis/patient.rs"]
mod patient;
mod support;
#[path = "diagnosis/wrong_locks.rs"]
mod wrong_locks;

use std::fs;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::time::Duration;
use support::child::{Child, Exit};
use support::place::Place;
use support::{Random, wait_until};
use umsg::diagnosis::{Diagnosis, HoldKind, Life, Owner, ProblemKind, Side, Wait};
use umsg::posix::{self, Notify, NotifyKind, Queue};
use umsg::{ring, sysv};
use umsg_shm::crash;

const PATIENCE: Duration = Duration::from_secs(10);
/// The offsets of the locks of a POSIX queue: docs/format.md.
const SENDER_LOCK: u64 = 512;
const RECEIVER_LOCK: u64 = 768;

fn diagnose(place: &Place) -> Diagnosis {
    posix::diagnose(&place.namespace, "/q").expect("a diagnosis")
}

fn file(place: &Place) -> fs::File {
    let mut options = fs::File::options();
    let path = place.path().join("mq/q");
    options.read(true).write(true).open(path).unwrap()
}

#[track_caller]
fn assert_healthy(place: &Place) {
    let diagnosis = diagnose(place);
    assert!(diagnosis.is_healthy(), "{:#?}", diagnosis.problems);
}

/// Does `work` in a child that is killed at this point. Returns the child's process id.
#[track_caller]
fn dies_at(point: &str, work: impl FnOnce()) -> u32 {
    let mut child = Child::run(|| {
        crash::arm(point, 1);
        work();
        0
    });
    child.expect(Exit::Signal(libc::SIGKILL), point);
    child.pid() as u32
}

fn problem(diagnosis: &Diagnosis, kind: ProblemKind) -> &str {
    let mut of_kind = diagnosis
        .problems
        .iter()
        .filter(|problem| problem.kind == kind);
    let problem = of_kind
        .next()
        .unwrap_or_else(|| panic!("{kind:?}: {diagnosis:#?}"));
    &problem.what
}

/// Uses a queue in a random way.
fn use_somehow(queue: &Queue, random: &mut Random) {
    let priority = if random.below(2) == 0 {
        3
    } else {
        random.below(32_768) as u32
    };
    let message = vec![7; random.below(400) as usize];
    match random.below(6) {
        0..=2 => drop(queue.try_send(&message, priority)),
        3 => drop(queue.try_send_batch(&[(&b"one"[..], priority), (&message[..], 1)])),
        4 => drop(queue.try_receive(&mut [0; 400])),
        _ => {
            if let Ok(lease) = queue.try_receive_lease() {
                match random.below(2) {
                    0 => lease.acknowledge().unwrap(),
                    _ => drop(lease),
                }
            }
        }
    }
}

#[test]
fn a_queue_is_healthy_whatever_it_was_used_for() {
    let (place, queue) = Place::new().with_queue("/q", 200, 400);
    assert_healthy(&place);
    let mut random = Random::new(7);
    for _ in 0..60 {
        for _ in 0..40 {
            use_somehow(&queue, &mut random);
        }
        assert_healthy(&place);
    }
    let contents = diagnose(&place).contents.unwrap();
    let attributes = queue.attributes();
    assert_eq!(contents.messages, attributes.messages as u64);
    assert_eq!((contents.bytes, contents.capacity), (attributes.bytes, 200));
}

#[test]
fn a_queue_that_is_being_used_is_never_said_to_be_damaged() {
    let (place, queue) = Place::new().with_queue("/q", 20, 400);
    let sysv_queue = place.create_sysv(0x77);
    let work = |seed| {
        let mut random = Random::new(seed);
        loop {
            use_somehow(&queue, &mut random);
            let mtype = random.below(5) as i64 + 1;
            let _ = sysv_queue.try_send(mtype, &vec![1; random.below(200) as usize]);
            let _ = sysv_queue.try_receive(sysv::Want::Exactly(mtype), &mut [0; 8192]);
        }
    };
    let _users = [Child::run(|| work(1)), Child::run(|| work(2))];
    for _ in 0..20 {
        let sysv_queue = sysv::diagnose(&place.namespace, 0x77).expect("a diagnosis");
        for diagnosis in [diagnose(&place), sysv_queue] {
            let mut problems = diagnosis.problems.iter();
            let damage = problems.find(|problem| problem.kind == ProblemKind::Damaged);
            assert!(damage.is_none(), "{:#?}", diagnosis.problems);
        }
    }
}

#[test]
fn a_diagnosis_names_the_dead_lock_owner_and_the_repairer() {
    for (point, side) in [
        ("SEND_FILLED", Side::Senders),
        ("SEND_PUBLISHED", Side::Senders),
        ("RECEIVE_COPIED", Side::Receivers),
        ("RECEIVE_TAKEN", Side::Receivers),
    ] {
        let (place, queue) = Place::new().with_queue("/q", 10, 100);
        queue.try_send(b"kept", 3).unwrap();
        let died = dies_at(point, || match side {
            Side::Senders => queue.try_send(b"maybe", 3).unwrap(),
            _ => drop(queue.try_receive(&mut [0; 100])),
        });
        let diagnosis = diagnose(&place);
        let lock = diagnosis
            .locks
            .iter()
            .find(|lock| lock.side == side)
            .unwrap();
        match &lock.owner {
            Owner::Died(Some(who)) => assert_eq!((who.pid, who.life), (died, Life::Dead)),
            other => panic!("{point}: {other:?}"),
        }
        assert!(problem(&diagnosis, ProblemKind::Died).contains(&died.to_string()));
        assert_eq!(
            diagnosis.problems.len(),
            1,
            "{point}: {:#?}",
            diagnosis.problems
        );
        // The next call on this side of the queue repairs the queue.
        let _ = queue.try_receive(&mut [0; 100]);
        queue.try_send(b"next", 3).unwrap();
        let diagnosis = diagnose(&place);
        assert!(diagnosis.is_healthy(), "{point}: {:#?}", diagnosis.problems);
        let repairs = diagnosis
            .repairs
            .iter()
            .find(|repairs| repairs.side == side)
            .unwrap();
        assert_eq!((repairs.count, repairs.latest.len()), (1, 1));
        let repair = &repairs.latest[0];
        assert_eq!((repair.died, repair.by), (Some(died), std::process::id()));
    }
}

#[test]
fn a_diagnosis_of_a_system_v_queue_names_the_dead_lock_owner_and_the_repairer() {
    let (place, queue) = Place::new().with_sysv_queue(0x77);
    let look = || sysv::diagnose(&place.namespace, 0x77).expect("a diagnosis");
    assert!(look().is_healthy());
    let died = dies_at("MSG_FILLED", || queue.try_send(5, b"maybe").unwrap());
    let diagnosis = look();
    let lock = &diagnosis.locks[0];
    assert!(
        matches!(&lock.owner, Owner::Died(Some(who)) if (who.pid, lock.side) == (died, Side::Whole)),
        "{lock:?}"
    );
    assert_eq!(diagnosis.problems.len(), 1, "{:#?}", diagnosis.problems);
    queue.try_send(5, b"next").unwrap();
    let diagnosis = look();
    assert!(diagnosis.is_healthy(), "{:#?}", diagnosis.problems);
    let repair = &diagnosis.repairs[0].latest[0];
    let me = std::process::id();
    assert_eq!((repair.died, repair.by), (Some(died), me));
}

#[test]
fn a_ring_whose_receiver_died_is_not_healthy_and_names_the_receiver() {
    let place = Place::new();
    let make = || ring::Options::new().create_in(&place.namespace, "/r");
    let mut owner = Child::run(|| {
        let ring = make().unwrap();
        std::thread::sleep(PATIENCE);
        drop(ring);
        0
    });
    let look = || ring::diagnose(&place.namespace, "/r");
    assert!(wait_until(PATIENCE, || look().is_ok()));
    let diagnosis = look().unwrap();
    let pid = owner.pid() as u32;
    assert!(diagnosis.is_healthy(), "{:#?}", diagnosis.problems);
    assert_eq!(diagnosis.receiver.map(|who| who.pid), Some(pid));
    owner.kill();
    let text = problem(&look().unwrap(), ProblemKind::Died).to_owned();
    assert!(
        text.contains(&format!("process {pid}, the receiver")),
        "{text}"
    );
}

#[test]
fn a_ring_whose_receiver_is_stopped_is_not_healthy_until_the_receiver_continues() {
    let place = Place::new();
    let receiver = Child::run(|| {
        let ring = ring::Options::new().create_in(&place.namespace, "/r");
        std::thread::sleep(PATIENCE);
        drop(ring);
        0
    });
    let look = || ring::diagnose(&place.namespace, "/r");
    let is_healthy = || look().is_ok_and(|found| found.is_healthy());
    assert!(wait_until(PATIENCE, is_healthy));
    receiver.signal(libc::SIGSTOP);
    assert!(wait_until(PATIENCE, || !is_healthy()));
    let diagnosis = look().unwrap();
    let pid = receiver.pid();
    assert_eq!(diagnosis.receiver.as_ref().unwrap().life, Life::Stopped);
    let text = problem(&diagnosis, ProblemKind::Stopped);
    assert!(
        text.starts_with(&format!("process {pid} (")) && text.contains("receiver of this ring"),
        "{text}"
    );
    let advice = &diagnosis.problems[0].advice;
    assert!(advice.contains(&format!("kill -CONT {pid}")), "{advice}");
    // A repair has nothing to repair, and does not wait for the receiver.
    let repaired = ring::repair(&place.namespace, "/r").unwrap();
    assert_eq!((repaired.failed, repaired.done.len()), (None, 0));
    receiver.signal(libc::SIGCONT);
    assert!(wait_until(PATIENCE, is_healthy));
}

#[test]
fn a_process_that_died_with_both_locks_left_one_of_them_lent() {
    let (place, queue) = Place::new().with_queue("/q", 1000, 100);
    let died = dies_at("GROW_LENT", || while queue.try_send(b"fills", 1).is_ok() {});
    let diagnosis = diagnose(&place);
    let owners: Vec<_> = diagnosis.locks.iter().map(|lock| &lock.owner).collect();
    assert!(
        matches!(owners[..], [Owner::Receiver, Owner::Died(Some(who))] if who.pid == died),
        "{owners:?}"
    );
}

#[test]
fn a_stopped_owner_is_named_with_its_program_and_distinguished_from_none() {
    let place = Place::new();
    let _queue = place.create("/q", 10, 100);
    let mut child = Child::run(|| {
        std::thread::sleep(PATIENCE);
        0
    });
    child.signal(libc::SIGSTOP);
    let pid = child.pid() as u32;
    for (lock, index) in [(SENDER_LOCK, 0), (RECEIVER_LOCK, 1)] {
        file(&place).write_all_at(&pid.to_le_bytes(), lock).unwrap();
        let is_stopped = |diagnosis: &Diagnosis| match &diagnosis.locks[index].owner {
            Owner::Thread(who) => {
                who.pid == pid && who.life == Life::Stopped && who.program.is_some()
            }
            _ => false,
        };
        assert!(
            wait_until(PATIENCE, || is_stopped(&diagnose(&place))),
            "{:?}",
            diagnose(&place)
        );
        let diagnosis = diagnose(&place);
        assert!(problem(&diagnosis, ProblemKind::Stuck).contains("is stopped"));
        assert!(
            diagnosis.problems[0]
                .advice
                .contains(&format!("kill -CONT {pid}"))
        );
        file(&place).write_all_at(&[0; 4], lock).unwrap();
    }
    file(&place)
        .write_all_at(&pid.to_le_bytes(), SENDER_LOCK)
        .unwrap();
    child.kill();
    let text = problem(&diagnose(&place), ProblemKind::Stuck).to_owned();
    assert!(text.contains("does not exist"), "{text}");
}

#[test]
fn an_owner_that_lives_and_does_not_continue_is_reported_after_a_second() {
    let place = Place::new();
    let _queue = place.create("/q", 10, 100);
    let child = Child::run(|| {
        std::thread::sleep(PATIENCE);
        0
    });
    let pid = child.pid() as u32;
    for lock in [SENDER_LOCK, RECEIVER_LOCK] {
        file(&place).write_all_at(&pid.to_le_bytes(), lock).unwrap();
    }
    let problems = diagnose(&place).problems;
    let stuck = |side| {
        problems.iter().any(|problem| {
            problem.kind == ProblemKind::Stuck
                && problem.what.contains(side)
                && problem.what.contains("without progress")
        })
    };
    assert!(stuck("senders'") && stuck("receivers'"), "{problems:?}");
}

#[test]
fn a_diagnosis_names_each_waiter_its_reason_and_its_time() {
    let (place, queue) = Place::new().with_queue("/q", 2, 100);
    let receiver = Child::run(|| queue.receive(&mut [0; 100]).map_or(1, |_| 0));
    assert!(wait_until(PATIENCE, || diagnose(&place).blocked.len() == 1));
    let first = diagnose(&place).blocked.remove(0);
    assert_eq!(
        (first.who.pid, first.who.life),
        (receiver.pid() as u32, Life::Alive)
    );
    assert_eq!(first.who.thread, Some(first.who.pid));
    assert!(matches!(first.wait, Wait::Message { longest: None, .. }) && !first.served);
    assert!(wait_until(PATIENCE, || diagnose(&place).blocked[0].time
        >= Duration::from_millis(100)));
    assert!(diagnose(&place).blocked[0].time < PATIENCE);
    drop(receiver);
    while queue.try_send(b"fills", 0).is_ok() {}
    let _sender = Child::run(|| queue.send(b"waits", 0).map_or(1, |()| 0));
    let _batch = Child::run(|| {
        queue
            .send_batch(&[(&b"one"[..], 0), (b"two", 0)])
            .map_or(1, |()| 0)
    });
    let rooms = || {
        let blocked = diagnose(&place).blocked;
        let mut rooms: Vec<_> = blocked
            .into_iter()
            .filter_map(|blocked| match blocked.wait {
                Wait::Room { messages, .. } => Some(messages),
                _ => None,
            })
            .collect();
        rooms.sort_unstable();
        rooms
    };
    assert!(
        wait_until(PATIENCE, || rooms() == [1, 2]),
        "{:?}",
        diagnose(&place).blocked
    );
    assert_healthy(&place);
}

#[test]
fn holders_and_registered_processes_are_named_and_dead_ones_are_reported() {
    let (place, queue) = Place::new().with_queue("/q", 10, 100);
    let registered = queue.notify(Notify::signal(libc::SIGURG)).unwrap();
    let diagnosis = diagnose(&place);
    let found = &diagnosis.registrations[0];
    assert_eq!((found.who.pid, found.told), (std::process::id(), false));
    assert_eq!(found.kind, NotifyKind::Signal(libc::SIGURG as u32));
    drop(registered);
    for text in [b"one", b"two"] {
        queue.try_send(text, 0).unwrap();
    }
    let mut child = Child::run(|| {
        let lease = queue.try_receive_lease().unwrap();
        let room = queue.try_reserve(100).unwrap();
        std::thread::sleep(PATIENCE);
        drop((lease, room));
        0
    });
    let held = wait_until(PATIENCE, || diagnose(&place).holds.len() == 2);
    assert!(held, "{:#?}", diagnose(&place));
    let diagnosis = diagnose(&place);
    let kinds: Vec<_> = diagnosis
        .holds
        .iter()
        .map(|record| (record.kind, record.deliveries))
        .collect();
    assert!(kinds.contains(&(HoldKind::Leased, 1)), "{kinds:?}");
    let whose = diagnosis
        .holds
        .iter()
        .map(|record| record.who.as_ref().unwrap().pid);
    assert!(whose.into_iter().all(|pid| pid == child.pid() as u32));
    assert!(diagnosis.is_healthy(), "{:#?}", diagnosis.problems);
    child.kill();
    let text = problem(&diagnose(&place), ProblemKind::Died).to_owned();
    assert!(text.contains("hold 1 lease and 1 reservation"), "{text}");
}

#[test]
fn a_diagnosis_names_each_poller() {
    let (place, queue) = Place::new().with_queue("/q", 10, 100);
    let _descriptor = queue.pollable().unwrap();
    let pids: Vec<_> = diagnose(&place).pollers.iter().map(|who| who.pid).collect();
    assert_eq!(pids, [std::process::id()]);
}

/// Returns a queue with messages in the ring and in the store, some of them long.
fn queue_with_all_kinds_of_messages(place: &Place) -> Queue {
    let queue = place.create("/q", 50, 400);
    for n in 0..20 {
        queue
            .try_send(&vec![n; usize::from(n) * 20], u32::from(n % 4))
            .unwrap();
    }
    queue.try_receive(&mut [0; 400]).unwrap();
    (0..5).for_each(|_| queue.try_send(b"in the ring", 9).unwrap());
    queue
}

#[test]
fn bytes_that_no_operation_could_have_left_are_found_where_they_are() {
    let place = Place::new();
    let _queue = queue_with_all_kinds_of_messages(&place);
    assert_healthy(&place);
    let cells = 794_624;
    for (what, offset, bytes) in [
        ("magic", 0, &b"x"[..]),
        ("length of the file", 24, &[1]),
        ("sent", 536, &[0xff; 4]),
        ("freed", 640, &[0; 8]),
        ("drained", 792, &[0xff; 4]),
        ("slots", 388, &[0; 4]),
        ("ring mask", 384, &[6]),
        ("an entry of the ring", 536_576 + 24 * 4, &[0xff; 4]),
        ("messages in the store", 816, &[99]),
        ("second level of the bitmap", 832, &[2]),
        ("receivers that wait", 848, &[0xff; 4]),
        ("used records of holds", 1044, &[99]),
        ("removed", 648, &[77]),
        ("length of a message", cells + 5 * 128 + 16, &[0xff; 4]),
        ("length of the arena", 576, &[0xff; 4]),
        ("on_full", 6528, &[7]),
    ] {
        let file = file(&place);
        let mut before = vec![0; bytes.len()];
        file.read_exact_at(&mut before, offset).unwrap();
        assert_ne!(before, bytes, "{what}");
        file.write_all_at(bytes, offset).unwrap();
        let diagnosis = diagnose(&place);
        let found = &diagnosis.problems;
        let mut offsets = diagnosis
            .problems
            .iter()
            .filter_map(|problem| Some(problem.finding.as_ref()?.offset));
        assert!(offsets.any(|at| at == offset), "{what}: {found:#?}");
        file.write_all_at(&before, offset).unwrap();
        assert_healthy(&place);
    }
}

#[test]
fn a_mark_of_damage_names_its_maker() {
    let (place, queue) = Place::new().with_queue("/q", 10, 100);
    queue.try_send(b"", 0).unwrap();
    // Writes a length that no message can have.
    file(&place).write_all_at(&[0xff; 4], 790_528 + 16).unwrap();
    queue.try_receive(&mut [0; 100]).unwrap_err();
    let damage = diagnose(&place).damage.unwrap();
    assert_eq!(damage.by.pid, std::process::id());
    assert!(damage.at.is_some());
}

#[test]
fn a_look_changes_nothing_and_takes_no_memory() {
    let place = Place::new();
    let queue = queue_with_all_kinds_of_messages(&place);
    dies_at("SEND_PUBLISHED", || queue.try_send(b"maybe", 3).unwrap());
    let path = place.path().join("mq/q");
    let before = (
        fs::read(&path).unwrap(),
        fs::metadata(&path).unwrap().blocks(),
    );
    diagnose(&place);
    assert!(
        (
            fs::read(&path).unwrap(),
            fs::metadata(&path).unwrap().blocks()
        ) == before
    );
}

#[test]
fn a_look_survives_any_bytes_and_a_file_that_was_cut_short() {
    let place = Place::new();
    let _queue = queue_with_all_kinds_of_messages(&place);
    let whole = fs::read(place.path().join("mq/q")).unwrap();
    let file = file(&place);
    let mut random = Random::new(11);
    for round in 0..100_u64 {
        for _ in 0..1 + random.below(20) {
            // The overwritten bytes are mostly in the parts that are in use.
            let end = [8192, 16_384, 800_000, whole.len() as u64][random.below(4) as usize];
            let bytes = random.next().to_le_bytes();
            let offset = random.below(end - 8);
            file.write_all_at(&bytes[..1 + random.below(8) as usize], offset)
                .unwrap();
        }
        if round % 5 == 0 {
            file.set_len(random.below(whole.len() as u64)).unwrap();
        }
        // The call only has to return. It may find that the file is no queue.
        let _ = posix::diagnose(&place.namespace, "/q");
        if round % 10 == 0 {
            file.set_len(0).unwrap();
            file.write_all_at(&whole, 0).unwrap();
            assert_healthy(&place);
        }
    }
}

#[test]
fn a_queue_beyond_its_capacity_after_a_withdrawn_offer_is_healthy() {
    let place = Place::in_turn();
    let queue = place.create("/q", 2, 8);
    let mut receiver = Child::run(|| {
        let queue = place.open("/q");
        queue.set_waiting(posix::Waiting::Blocking);
        queue.receive_vec().map_or(1, |_| 0)
    });
    let is_blocked = || queue.status().blocked_receivers == 1;
    assert!(wait_until(PATIENCE, is_blocked));
    // A receiver has a lock for a moment at the end of each slice, and a stopped one would keep it.
    let is_stopped_without_lock = || {
        receiver.signal(libc::SIGSTOP);
        receiver.expect_to_stop("the receiver");
        let locks = diagnose(&place).locks;
        let is_free = locks.iter().all(|lock| lock.owner == Owner::Nobody);
        if !is_free {
            receiver.signal(libc::SIGCONT);
        }
        is_free
    };
    assert!(wait_until(PATIENCE, is_stopped_without_lock));
    // The first message is offered to the stopped receiver, and so leaves room for two more.
    for message in [b"1", b"2", b"3"] {
        queue.try_send(message, 0).unwrap();
    }
    assert_eq!(queue.try_send(b"4", 0), Err(posix::SendError::Full));
    receiver.kill();
    // A sender that waits withdraws the offer.
    let is_withdrawn = || {
        let sent = queue.send_timeout(b"4", 0, Duration::from_millis(200));
        assert_eq!(sent, Err(posix::SendError::TimedOut));
        queue.attributes().messages == 3
    };
    assert!(wait_until(PATIENCE, is_withdrawn));
    assert_healthy(&place);
    for message in [b"1", b"2", b"3"] {
        assert_eq!(queue.try_receive_vec().unwrap().data, message);
    }
    assert_healthy(&place);
}
