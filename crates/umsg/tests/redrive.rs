//! Dead letters have a history, and return to their source: each exactly once, even if the process that sends them is killed.

mod support;

use std::time::{Duration, SystemTime};
use support::child::{Child, Exit};
use support::place::Place;
use support::wait_until;
use umsg::posix::{
    self, DeadReason, History, LeaseError, OnFull, OpenOptions, Queue, Redrive, RedriveFailure,
    SendError, Snapshot,
};
use umsg_shm::crash;

/// Returns a queue for three messages of up to 8 bytes, whose messages go to /dead when they come back.
fn jobs(place: &Place, more: impl FnOnce(&mut OpenOptions)) -> Queue {
    let mut options = place.options(3, 8);
    options.max_deliveries(1).dead_letter("/dead");
    more(&mut options);
    options.open("/jobs").unwrap()
}

/// Sends a message, leases it, and returns it to the queue once.
fn fail(queue: &Queue, data: &[u8], priority: u32) {
    queue.try_send(data, priority).unwrap();
    queue.try_receive_lease().unwrap().give_back().unwrap();
}

fn letters(queue: &Queue) -> Vec<History> {
    queue.dead_letters(&Redrive::new()).unwrap()
}

fn drain(queue: &Queue) -> Vec<(Vec<u8>, u32)> {
    std::iter::from_fn(|| queue.try_receive_vec().ok())
        .map(|message| (message.data, message.priority))
        .collect()
}

#[test]
fn a_dead_letter_says_where_it_comes_from_and_why() {
    let place = Place::new();
    let queue = jobs(&place, |options| {
        options.max_deliveries(3);
    });
    let begin = SystemTime::now() - Duration::from_millis(50);
    queue.try_send(b"poison", 7).unwrap();
    for _ in 0..3 {
        queue.try_receive_lease().unwrap().give_back().unwrap();
        std::thread::sleep(Duration::from_millis(20));
    }
    let dead = place.open("/dead");
    let peeked = dead.peek(0).unwrap().unwrap();
    assert_eq!((&peeked.data[..], peeked.priority), (&b"poison"[..], 7));
    assert_eq!(peeked.pid, std::process::id());
    let history = peeked.history.unwrap();
    assert_eq!(history.source.as_deref(), Some("/jobs".as_ref()));
    assert_eq!(history.reason, DeadReason::Undelivered);
    assert_eq!((history.deliveries, history.redrives), (3, 0));
    assert_eq!(history.pid, std::process::id());
    // The sender's user is unknown if the message was sent within the first tick of the process.
    let user = rustix::process::getuid().as_raw();
    assert!([None, Some(user)].contains(&history.uid));
    let (first, last) = (
        history.first_delivery.unwrap(),
        history.last_delivery.unwrap(),
    );
    assert!(begin <= history.sent && history.sent <= first + Duration::from_millis(20));
    assert!(first + Duration::from_millis(20) <= last && last <= history.dead);
    assert!(history.dead <= SystemTime::now() + Duration::from_millis(20));
    assert_eq!(letters(&dead), std::slice::from_ref(&history));

    // The bytes are those that were sent.
    let lease = dead.try_receive_lease().unwrap();
    assert_eq!(lease.to_vec(), b"poison");
    assert_eq!(lease.history().unwrap(), Some(history));
    lease.limit(Duration::from_nanos(1)).unwrap();
    std::thread::sleep(Duration::from_millis(20));
    assert_eq!(drain(&dead), [(b"poison".to_vec(), 7)]);
    assert_eq!(lease.history(), Err(LeaseError::Ended));
    drop(lease);
    // The next message in the same slot has no history.
    dead.try_send(b"plain", 0).unwrap();
    assert_eq!(dead.peek(0).unwrap().unwrap().history, None);
    assert_eq!(queue.peek(0).unwrap(), None);
}

#[test]
fn each_reason_is_told() {
    /// The messages must not expire before the queue has dropped one, even on a busy machine.
    const AGE: Duration = Duration::from_secs(2);
    let place = Place::new();
    let queue = jobs(&place, |options| {
        options.time_to_live(AGE);
        options.on_full(OnFull::DropOldest);
    });
    fail(&queue, b"failed", 0);
    for data in [b"1", b"2", b"3", b"4"] {
        queue.send(data, 5).unwrap();
    }
    assert_eq!(queue.status().statistics.dropped, 1);
    assert_eq!(place.open("/dead").attributes().messages, 2);
    std::thread::sleep(AGE + Duration::from_millis(200));
    assert_eq!(drain(&queue), []);
    let dead = place.open("/dead");
    assert_eq!(queue.status().set_aside, 2, "the queue of three is full");
    let found = |dead: &Queue| {
        let messages = dead.messages(9).unwrap();
        let told = |peeked: posix::Peeked| (peeked.data, peeked.history.unwrap());
        messages.into_iter().map(told).collect::<Vec<_>>()
    };
    let mut all = found(&dead);
    drain(&dead);
    std::thread::sleep(Duration::from_millis(20));
    assert_eq!(drain(&queue), []);
    all.extend(found(&dead));
    let mut all: Vec<_> = all
        .into_iter()
        .map(|(data, history)| (data, history.reason, history.deliveries))
        .collect();
    all.sort_by(|one, other| one.0.cmp(&other.0));
    let expired = |data: &[u8]| (data.to_vec(), DeadReason::Expired, 0);
    assert_eq!(
        all,
        [
            (b"1".to_vec(), DeadReason::Dropped, 0),
            expired(b"2"),
            expired(b"3"),
            expired(b"4"),
            (b"failed".to_vec(), DeadReason::Undelivered, 1),
        ]
    );
}

#[test]
fn what_is_sent_back_is_delivered_anew_and_its_history_adds_up() {
    let place = Place::new();
    let queue = jobs(&place, |options| {
        options.max_deliveries(2);
    });
    let dead = place.open("/dead");
    fail(&queue, b"poison", 7);
    fail(&queue, b"", 0);
    let first = letters(&dead)[0].clone();
    for round in 1..=3 {
        assert_eq!(dead.redrive(&Redrive::new()).unwrap().messages, 1);
        assert_eq!(
            (dead.attributes().messages, dead.attributes().leased),
            (0, 0)
        );
        for deliveries in 1..=2 {
            let lease = queue.try_receive_lease().unwrap();
            assert_eq!((lease.to_vec(), lease.priority()), (b"poison".to_vec(), 7));
            assert_eq!(
                (lease.deliveries(), lease.pid()),
                (deliveries, std::process::id())
            );
            let history = lease.history().unwrap().unwrap();
            assert_eq!((history.redrives, history.deliveries), (round, 2 * round));
            lease.give_back().unwrap();
        }
        let again = letters(&dead)[0].clone();
        assert_eq!((again.redrives, again.deliveries), (round, 2 * (round + 1)));
        assert_eq!(
            (again.sent, again.first_delivery),
            (first.sent, first.first_delivery)
        );
        assert!(again.dead >= first.dead);
    }
    let diagnose = |name: &str| posix::diagnose(&place.namespace, name).unwrap();
    for name in ["/jobs", "/dead"] {
        assert!(
            diagnose(name).is_healthy(),
            "{:#?}",
            diagnose(name).problems
        );
        assert!(diagnose(name).holds.is_empty());
    }
}

#[test]
fn some_are_selected_and_the_others_keep_their_places() {
    let place = Place::new();
    let queue = jobs(&place, |options| {
        options.max_messages(9);
    });
    for data in [b"1", b"2", b"3", b"4", b"5"] {
        fail(&queue, data, 4);
    }
    let dead = place.open("/dead");
    dead.try_send(b"plain", 9).unwrap();
    let third = letters(&dead)[2].id;
    assert_eq!(dead.redrive(&Redrive::new().id(third)).unwrap().messages, 1);
    assert_eq!(drain(&queue), [(b"3".to_vec(), 4)]);
    assert_eq!(dead.redrive(&Redrive::new().id(third)).unwrap().messages, 0);
    let expired = Redrive::new().reason(DeadReason::Expired);
    assert_eq!(dead.redrive(&expired).unwrap().messages, 0);
    assert_eq!(
        dead.redrive(&Redrive::new().source("/other"))
            .unwrap()
            .messages,
        0
    );
    let two = Redrive::new()
        .source("/jobs")
        .reason(DeadReason::Undelivered)
        .count(2);
    assert_eq!(dead.redrive(&two).unwrap().messages, 2);
    assert_eq!(drain(&queue), [(b"1".to_vec(), 4), (b"2".to_vec(), 4)]);
    assert_eq!(dead.redrive(&Redrive::new()).unwrap().messages, 2);
    assert_eq!(drain(&queue), [(b"4".to_vec(), 4), (b"5".to_vec(), 4)]);
    assert_eq!(drain(&dead), [(b"plain".to_vec(), 9)]);
}

#[test]
fn a_message_stays_if_the_other_queue_does_not_take_it() {
    let place = Place::new();
    let queue = jobs(&place, |_| ());
    fail(&queue, b"1", 0);
    fail(&queue, b"22222", 0);
    fail(&queue, b"3", 0);
    let dead = place.open("/dead");
    let refused = |which: &Redrive| {
        let done = dead.redrive(which).unwrap();
        let why = done.refused.into_iter();
        let why: Vec<_> = why.map(|stayed| (stayed.messages, stayed.why)).collect();
        (done.messages, why)
    };
    let to = |name: &str| Redrive::new().to(name);
    // The smaller message size refuses only the long message, which stays in the dead-letter queue.
    place.create("/short", 3, 4);
    let (sent, why) = refused(&to("/short"));
    assert_eq!(sent, 2);
    assert!(
        matches!(
            why[..],
            [(
                1,
                RedriveFailure::Send(SendError::TooLong { len: 5, max: 4 })
            )]
        ),
        "{why:?}"
    );
    assert_eq!(drain(&place.open("/short")).len(), 2);
    // The four reasons to refuse a message: the target is full, closed, missing, or the dead-letter queue itself.
    fail(&queue, b"4", 0);
    fail(&queue, b"5", 0);
    for data in [b"a", b"b"] {
        queue.try_send(data, 0).unwrap();
    }
    let (sent, why) = refused(&Redrive::new());
    assert_eq!(sent, 1);
    assert!(
        matches!(why[..], [(2, RedriveFailure::Send(SendError::Full))]),
        "{why:?}"
    );
    queue.close_send().unwrap();
    drain(&queue);
    let (sent, why) = refused(&Redrive::new());
    assert_eq!(sent, 0);
    assert!(
        matches!(why[..], [(2, RedriveFailure::Send(SendError::Closed))]),
        "{why:?}"
    );
    let (_, why) = refused(&to("/none"));
    assert!(matches!(why[..], [(2, RedriveFailure::Open(_))]), "{why:?}");
    let (_, why) = refused(&to("/dead"));
    assert!(
        matches!(why[..], [(2, RedriveFailure::SameQueue)]),
        "{why:?}"
    );
    posix::unlink_in(&place.namespace, "/jobs").unwrap();
    let (_, why) = refused(&Redrive::new());
    assert!(matches!(why[..], [(2, RedriveFailure::Open(_))]), "{why:?}");
    // Another queue has the name of the source.
    place.create("/jobs", 3, 8);
    let (_, why) = refused(&Redrive::new());
    assert!(
        matches!(why[..], [(2, RedriveFailure::NotItsSource)]),
        "{why:?}"
    );
    assert_eq!(dead.attributes().messages, 2);
    assert_eq!(refused(&to("/jobs")).0, 2);
    assert_eq!(drain(&place.open("/jobs")).len(), 2);
    assert_eq!(dead.attributes().messages, 0);
}

#[test]
fn a_snapshot_keeps_the_history() {
    let place = Place::new();
    let queue = jobs(&place, |_| ());
    fail(&queue, b"poison", 7);
    let dead = place.open("/dead");
    dead.try_send(b"plain", 0).unwrap();
    let mut file = Vec::new();
    dead.snapshot(&mut file).unwrap();
    let snapshot = Snapshot::read(&file[..]).unwrap();
    let saved: Vec<_> = snapshot.messages().map(|saved| saved.history()).collect();
    let known = letters(&dead)[0].clone();
    let told = saved[0].clone().unwrap();
    assert_eq!(
        (told.source, told.reason, told.deliveries),
        (known.source.clone(), known.reason, 1)
    );
    assert_eq!(saved[1], None);
    let copy = snapshot.restore("/copy", &place.options(1, 1)).unwrap();
    let restored = letters(&copy);
    assert_eq!(restored.len(), 1);
    let close = |one: SystemTime, other: SystemTime| {
        one.duration_since(other)
            .or(other.duration_since(one))
            .unwrap()
            < Duration::from_secs(1)
    };
    assert!(close(restored[0].dead, known.dead) && close(restored[0].sent, known.sent));
    assert_eq!(
        (&restored[0].source, restored[0].deliveries),
        (&known.source, 1)
    );
    // The copy is no dead-letter queue of /jobs.
    let refused = copy.redrive(&Redrive::new()).unwrap().refused;
    assert!(matches!(refused[0].why, RedriveFailure::NotItsSource));
    let done = copy.redrive(&Redrive::new().to("/jobs")).unwrap();
    assert_eq!(
        (done.messages, drain(&queue)),
        (1, vec![(b"poison".to_vec(), 7)])
    );
    // A snapshot without histories has a version that earlier readers accept.
    drain(&dead);
    let mut plain = Vec::new();
    dead.snapshot(&mut plain).unwrap();
    assert_eq!((file[10], plain[10]), (2, 0));
}

/// Overwrites the name of the source in each history of a queue's file: docs/format.md.
fn forge_source(place: &Place, queue: &str, name: &[u8]) {
    use std::os::unix::fs::FileExt;
    const SLOTS: u64 = 3 + 4096 + 64;
    let path = place.path().join("mq").join(&queue[1..]);
    let file = std::fs::OpenOptions::new().write(true).open(path).unwrap();
    let traces = file.metadata().unwrap().len() - (SLOTS * 256).next_multiple_of(4096);
    let histories = traces - (SLOTS * 320).next_multiple_of(4096);
    for slot in 0..64 {
        let at = histories + slot * 320;
        file.write_all_at(&(name.len() as u32).to_le_bytes(), at + 4)
            .unwrap();
        file.write_all_at(name, at + 64).unwrap();
    }
}

#[test]
fn a_forged_history_leads_to_no_other_queue() {
    let place = Place::new();
    let queue = jobs(&place, |_| ());
    place.create("/other", 3, 8);
    let mut options = place.options(3, 8);
    options.dead_letter("/another").open("/labelled").unwrap();
    let dead = place.open("/dead");
    fail(&queue, b"rm -rf", 0);
    for name in [
        &b"/other"[..],
        b"/labelled",
        b"/dead",
        b"/none",
        b"/../x",
        b"",
        &[0xff; 200],
    ] {
        forge_source(&place, "/dead", name);
        let done = dead.redrive(&Redrive::new()).unwrap();
        assert_eq!(done.messages, 0, "{name:?}");
        // A message that comes from this queue itself is no dead letter of it.
        let refused = usize::from(name != b"/dead");
        assert_eq!(done.refused.len(), refused, "{name:?}");
        assert_eq!(dead.attributes().messages, 1);
    }
    for name in ["/other", "/labelled", "/another", "/jobs"] {
        assert_eq!(place.open(name).attributes().messages, 0);
    }
    forge_source(&place, "/dead", b"/jobs");
    assert_eq!(dead.redrive(&Redrive::new()).unwrap().messages, 1);
    assert_eq!(drain(&queue), [(b"rm -rf".to_vec(), 0)]);
}

/// The steps of a redrive at which a process is killed.
const POINTS: [&str; 9] = [
    "REDRIVE_HELD",
    "REDRIVE_BEGUN",
    "RESERVE_HELD",
    "ARRIVE_WRITTEN",
    "ARRIVE_NOTED",
    "ARRIVE_MARKED",
    "ARRIVE_ENDED",
    "DEPART_ENDED",
    "MOVE_ENDED",
];

#[test]
fn a_killed_process_that_sends_back_loses_no_message_and_doubles_none() {
    for point in POINTS {
        let place = Place::in_turn();
        let queue = jobs(&place, |_| ());
        place.create("/other", 3, 8);
        let dead = place.open("/dead");
        for (round, to) in [Redrive::new(), Redrive::new().to("/other")]
            .iter()
            .enumerate()
        {
            fail(&queue, b"1", 7);
            fail(&queue, b"2", 3);
            let mut victim = Child::run(|| {
                let dead = place.open("/dead");
                crash::arm(point, 1);
                let _ = dead.redrive(to);
                0
            });
            victim.expect(Exit::Signal(libc::SIGKILL), point);
            // The next call completes the move that the dead process began, even if the call sends nothing or sends to another queue.
            let none = dead.redrive(&Redrive::new().id(u64::MAX)).unwrap();
            assert_eq!(none.messages, 0);
            let target = place.open(if round == 0 { "/jobs" } else { "/other" });
            let mut all = drain(&target);
            all.extend(drain(&dead));
            all.sort();
            assert_eq!(
                all,
                [(b"1".to_vec(), 7), (b"2".to_vec(), 3)],
                "{point}, {round}"
            );
            for name in ["/jobs", "/dead", "/other"] {
                let now = place.open(name).attributes();
                assert_eq!(
                    (now.messages, now.leased, now.reserved),
                    (0, 0, 0),
                    "{point}"
                );
                assert_eq!(now.delayed, 0, "{point}");
            }
        }
        // After the move of a further message, no queue has a record of an arrival any more.
        fail(&queue, b"3", 0);
        for which in [Redrive::new().to("/other"), Redrive::new()] {
            dead.redrive(&which).unwrap();
            fail(&queue, b"4", 0);
        }
        for name in ["/jobs", "/dead", "/other"] {
            let found = posix::diagnose(&place.namespace, name).unwrap();
            assert!(found.is_healthy(), "{point} {name}: {:#?}", found.problems);
            assert!(found.holds.is_empty(), "{point} {name}: {:?}", found.holds);
        }
    }
}

#[test]
fn one_call_sends_back_all_that_a_killed_one_has_left() {
    for point in POINTS {
        let place = Place::in_turn();
        let queue = jobs(&place, |_| ());
        let dead = place.open("/dead");
        fail(&queue, b"1", 7);
        fail(&queue, b"2", 3);
        let mut victim = Child::run(|| {
            let dead = place.open("/dead");
            crash::arm(point, 1);
            let _ = dead.redrive(&Redrive::new());
            0
        });
        victim.expect(Exit::Signal(libc::SIGKILL), point);
        dead.redrive(&Redrive::new()).unwrap();
        let left = dead.attributes();
        assert_eq!((left.messages, left.leased), (0, 0), "{point}");
        let mut all = drain(&queue);
        all.sort();
        assert_eq!(all, [(b"1".to_vec(), 7), (b"2".to_vec(), 3)], "{point}");
    }
}

#[test]
fn a_killed_process_whose_message_was_refused_loses_none() {
    let place = Place::in_turn();
    let queue = jobs(&place, |_| ());
    let dead = place.open("/dead");
    fail(&queue, b"1", 7);
    for data in [b"a", b"b", b"c"] {
        queue.try_send(data, 0).unwrap();
    }
    let mut victim = Child::run(|| {
        let dead = place.open("/dead");
        crash::arm("REDRIVE_RETURNED", 1);
        let _ = dead.redrive(&Redrive::new());
        0
    });
    victim.expect(Exit::Signal(libc::SIGKILL), "REDRIVE_RETURNED");
    let diagnosis = posix::diagnose(&place.namespace, "/dead").unwrap();
    assert!(!diagnosis.is_healthy());
    assert_eq!(dead.redrive(&Redrive::new()).unwrap().messages, 0);
    assert_eq!(drain(&dead), [(b"1".to_vec(), 7)]);
}

/// Processes that are killed while others redrive lose no message and duplicate none.
#[test]
fn processes_killed_at_random_while_they_send_back_lose_nothing() {
    let place = Place::in_turn();
    let mut options = place.options(100, 8);
    options.max_deliveries(1).dead_letter("/dead");
    let queue = options.open("/jobs").unwrap();
    let dead = place.open("/dead");
    for number in 0..40_u64 {
        fail(&queue, &number.to_le_bytes(), 0);
    }
    let mut seed = 88_172_645_463_325_252_u64;
    for round in 0..40 {
        let churn = || {
            let (queue, dead) = (place.open("/jobs"), place.open("/dead"));
            loop {
                let _ = dead.redrive(&Redrive::new().count(3));
                for _ in 0..3 {
                    if let Ok(lease) = queue.try_receive_lease() {
                        let _ = lease.give_back();
                    }
                }
            }
        };
        let mut victims = [Child::run(churn), Child::run(churn)];
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        std::thread::sleep(Duration::from_micros(3000 + seed % 20_000));
        for victim in &mut victims {
            victim.signal(libc::SIGKILL);
            victim.expect(Exit::Signal(libc::SIGKILL), "killed");
        }
        // The next processes take the messages that the dead ones held.
        dead.redrive(&Redrive::new().id(u64::MAX)).unwrap();
        let is_settled = || {
            if let Ok(lease) = queue.try_receive_lease() {
                let _ = lease.give_back();
            }
            let (left, held) = (queue.status(), dead.attributes());
            left.set_aside + left.attributes.leased + held.leased + held.reserved == 0
        };
        assert!(wait_until(Duration::from_secs(20), is_settled));
        let numbers = |queue: &Queue| {
            let messages = queue.messages(99).unwrap().into_iter();
            messages
                .map(|peeked| u64::from_le_bytes(peeked.data.try_into().unwrap()))
                .collect::<Vec<_>>()
        };
        let mut all = numbers(&queue);
        all.extend(numbers(&dead));
        all.sort_unstable();
        assert_eq!(all, (0..40).collect::<Vec<_>>(), "round {round}");
    }
}
