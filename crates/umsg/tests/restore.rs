//! Queues made of snapshots, and snapshots of queues that are in use.

mod support;

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};
use support::child::{Child, Exit};
use support::place::Place;
use support::scarce::entries;
use support::written::sample;
use support::{Random, turn, wait_until};
use umsg::Limits;
use umsg::posix::{
    Lease, OnFull, OpenError, OpenOptions, Queue, ReceiveError, RestoreError, SendError, Snapshot,
};

/// A delay that is longer than a few calls take on a busy machine, and a time for the clock by which the library delivers delayed messages.
const DELAY: Duration = Duration::from_secs(2);
const SETTLED: Duration = Duration::from_millis(200);

fn sample_snapshot() -> Snapshot {
    Snapshot::read(&mut &sample().bytes()[..]).unwrap()
}

fn options(place: &Place) -> OpenOptions {
    let mut options = OpenOptions::new();
    options.read(true).write(true).namespace(&place.namespace);
    options
}

fn data(queue: &Queue) -> Vec<Vec<u8>> {
    let messages = queue.messages(usize::MAX).unwrap();
    messages.into_iter().map(|message| message.data).collect()
}

fn names(place: &Place) -> usize {
    std::fs::read_dir(place.path().join("mq")).unwrap().count()
}

#[test]
fn a_restored_queue_has_the_saved_mode_whatever_the_umask() {
    let place = Place::new();
    let make = || {
        rustix::process::umask(rustix::fs::Mode::from_raw_mode(0o077));
        let queue = sample_snapshot().restore("/q", &options(&place)).unwrap();
        i32::from(queue.mode() != 0o640)
    };
    Child::run(make).expect(Exit::Code(0), "restoring with a umask");
    assert_eq!(place.open("/q").mode(), 0o640);
    let file = std::fs::metadata(place.path().join("mq/q")).unwrap();
    let mode = std::os::unix::fs::PermissionsExt::mode(&file.permissions());
    assert_eq!(
        mode & 0o7777,
        0o660,
        "a process that may receive may map the file"
    );
}

#[test]
fn messages_keep_their_senders_and_times() {
    let place = Place::new();
    let mut written = sample();
    written.time_to_live = 0;
    let snapshot = Snapshot::read(&mut &written.bytes()[..]).unwrap();
    let queue = snapshot.restore("/q", &options(&place)).unwrap();
    let messages = queue.messages(9).unwrap();
    let senders: Vec<u32> = messages.iter().map(|message| message.pid).collect();
    assert_eq!(senders, [4242, 1, 4_194_303, 77]);
    let returns: Vec<u32> = messages.iter().map(|message| message.returns).collect();
    assert_eq!(returns, [0, 0, 0, 3]);
    let leases: Vec<Lease<'_>> = (0..4).map(|_| queue.receive_lease().unwrap()).collect();
    assert_eq!((leases[0].deliveries(), leases[3].deliveries()), (1, 4));
    // Of these messages, the last one was sent in 1970, and the send time of the first one may be in the future.
    assert!(messages[3].age() > Duration::from_secs(50 * 365 * 86_400));
    let ahead = messages[0].sent > std::time::SystemTime::now();
    assert_eq!(messages[0].age().is_zero(), ahead);
}

#[test]
fn a_restored_queue_treats_messages_as_the_saved_one_did() {
    let place = Place::new();
    let queue = sample_snapshot().restore("/q", &options(&place)).unwrap();
    let status = queue.status();
    assert_eq!(status.on_full, OnFull::DropOldest);
    assert_eq!(status.time_to_live, Some(Duration::from_secs(3600)));
    assert_eq!(status.max_deliveries, Some(5));
    assert_eq!(status.dead_letter.as_deref(), Some("/dead".as_ref()));
    let plain = place.create("/plain", 4, 8);
    let copy = Snapshot::of(&plain).unwrap();
    let copy = copy.restore(
        "/copy",
        options(&place).on_full(OnFull::Fail).dead_letter("/dead"),
    );
    let status = copy.unwrap().status();
    assert_eq!((status.on_full, status.dead_letter), (OnFull::Block, None));
    // The last message of the sample was sent in 1970, so it has expired, and the loop does not receive it.
    let mut data = Vec::new();
    while let Ok(lease) = queue.try_receive_lease() {
        data.push(lease.to_vec());
        lease.acknowledge().unwrap();
    }
    assert!(!data.contains(&b"last".to_vec()), "{data:?}");
}

/// Saves the queue, and restores it under another name.
fn copy_of(queue: &Queue, place: &Place) -> Queue {
    let mut file = Vec::new();
    queue.snapshot(&mut file).unwrap();
    let snapshot = Snapshot::read(&file[..]).unwrap();
    snapshot.restore("/copy", &options(place)).unwrap()
}

#[test]
fn a_restored_queue_is_closed_and_has_the_policies_as_the_saved_one() {
    let place = Place::new();
    let mut asked = place.options(4, 8);
    let [first, most] = [1, 60].map(Duration::from_secs);
    asked.retry_delay(first, most).fair_priorities(1);
    let queue = asked.close_with_last_producer(true).open("/q").unwrap();
    for priority in [9, 9, 1] {
        queue.try_send(b"job", priority).unwrap();
    }
    queue.close_send().unwrap();
    let copy = copy_of(&queue, &place);
    let status = copy.status();
    assert_eq!(status.retry_delay, Some((first, most)));
    assert_eq!(status.fair_priorities, Some(1));
    assert!(status.close_with_last_producer && status.send_closed);
    assert_eq!(copy.try_send(b"more", 0), Err(SendError::Closed));
    let priorities = [(); 3].map(|()| copy.receive_vec().unwrap().priority);
    assert_eq!(priorities, [9, 1, 9]);
    assert_eq!(copy.receive_vec(), Err(ReceiveError::Closed));
}

#[test]
fn delayed_messages_are_delayed_again_after_they_are_restored() {
    let (place, queue) = Place::new().with_queue("/q", 8, 8);
    for job in [b"first", b"other"] {
        queue.try_send(job, 5).unwrap();
    }
    let job = queue.try_receive_lease().unwrap();
    queue.send_after(b"later", 5, DELAY).unwrap();
    queue.send_after(b"never", 9, Duration::MAX).unwrap();
    job.return_after(DELAY).unwrap();
    let copy = copy_of(&queue, &place);
    let now = copy.attributes();
    assert_eq!((now.messages, now.delayed), (1, 3));
    let diagnosis = umsg::posix::diagnose(&place.namespace, "/copy").unwrap();
    assert!(diagnosis.is_healthy(), "{:#?}", diagnosis.problems);
    std::thread::sleep(DELAY + SETTLED);
    // The returned message is the first one of its priority again.
    let again = copy.try_receive_lease().unwrap();
    assert_eq!((again.to_vec(), again.deliveries()), (b"first".to_vec(), 2));
    again.acknowledge().unwrap();
    assert_eq!(data(&copy), [b"other", b"later"]);
    assert_eq!(copy.attributes().delayed, 1);
}

#[test]
fn a_restored_message_has_its_delay_and_its_history() {
    let place = Place::new();
    place.create("/dead", 4, 8);
    let mut asked = place.options(4, 8);
    let jobs = asked
        .max_deliveries(1)
        .dead_letter("/dead")
        .open("/jobs")
        .unwrap();
    for (job, priority) in [(b"poison", 7), (b"failed", 7)] {
        jobs.try_send(job, priority).unwrap();
        drop(jobs.try_receive_lease().unwrap());
    }
    let dead = place.open("/dead");
    let letter = dead.try_receive_lease().unwrap();
    let known = letter.history().unwrap().unwrap();
    assert_eq!(known.source.as_deref(), Some("/jobs".as_ref()));
    letter.return_after(DELAY).unwrap();
    dead.send_after(b"plain", 7, DELAY).unwrap();
    let copy = copy_of(&dead, &place);
    assert_eq!(
        (copy.attributes().messages, copy.attributes().delayed),
        (1, 2)
    );
    std::thread::sleep(DELAY + SETTLED);
    let mut sources = Vec::new();
    for wanted in [b"poison".to_vec(), b"failed".to_vec(), b"plain".to_vec()] {
        let found = copy.try_receive_lease().unwrap();
        assert_eq!(found.to_vec(), wanted);
        let history = found.history().unwrap();
        if wanted == b"poison" {
            let history = history.as_ref().unwrap();
            assert_eq!(
                (history.reason, history.pid, history.deliveries),
                (known.reason, known.pid, known.deliveries)
            );
        }
        sources.push(history.and_then(|history| history.source));
        found.acknowledge().unwrap();
    }
    let jobs = Some("/jobs".into());
    assert_eq!(sources, [jobs.clone(), jobs, None]);
}

#[test]
fn delayed_messages_are_sent_for_later_to_a_queue_that_exists() {
    let (place, queue) = Place::new().with_queue("/q", 2, 8);
    queue.try_send(b"now", 5).unwrap();
    queue.send_after(b"later", 9, DELAY).unwrap();
    let snapshot = Snapshot::of(&queue).unwrap();
    let target = place.create("/target", 3, 8);
    snapshot.send_all(&target).unwrap();
    let error = snapshot.send_all(&target).unwrap_err();
    expect_error!(
        error,
        RestoreError::NoRoom {
            messages: 2,
            room: 1
        },
        libc::EAGAIN
    );
    assert_eq!(data(&target), [b"now"]);
    std::thread::sleep(DELAY + SETTLED);
    assert_eq!(target.try_receive_vec().unwrap().data, b"later");
}

#[test]
fn a_queue_that_exists_is_left_alone() {
    let (place, queue) = Place::new().with_queue("/q", 4, 8);
    queue.try_send(b"mine", 0).unwrap();
    let error = sample_snapshot()
        .restore("/q", &options(&place))
        .unwrap_err();
    expect_error!(
        error,
        RestoreError::Open(OpenError::AlreadyExists),
        libc::EEXIST
    );
    assert_eq!(data(&queue), [b"mine"]);
}

#[test]
fn messages_for_an_existing_queue_come_behind_its_own_of_the_same_priority() {
    let (_place, queue) = Place::new().with_queue("/q", 8, 64);
    queue.try_send(b"mine", 7).unwrap();
    sample_snapshot().send_all(&queue).unwrap();
    let wanted: [&[u8]; 5] = [b"urgent", b"mine", b"", &[0xff; 64], b"last"];
    assert_eq!(data(&queue), wanted);
    let sent = queue.peek(0).unwrap().unwrap();
    assert_eq!(sent.pid, std::process::id());
}

#[test]
fn if_not_all_messages_fit_an_existing_queue_none_is_sent() {
    let place = Place::new();
    let full = place.create("/full", 4, 64);
    full.try_send(b"mine", 0).unwrap();
    let error = sample_snapshot().send_all(&full).unwrap_err();
    assert!(
        matches!(
            error,
            RestoreError::NoRoom {
                messages: 4,
                room: 3
            }
        ),
        "{error}"
    );
    assert_eq!((error.errno(), data(&full).len()), (libc::EAGAIN, 1));

    let narrow = place.create("/narrow", 4, 63);
    let error = sample_snapshot().send_all(&narrow).unwrap_err();
    let too_long = matches!(
        error,
        RestoreError::TooLong {
            position: 2,
            len: 64,
            max: 63
        }
    );
    assert!(too_long, "{error}");
    assert_eq!((error.errno(), data(&narrow).len()), (libc::EMSGSIZE, 0));

    let receiver = OpenOptions::new()
        .read(true)
        .namespace(&place.namespace)
        .open("/narrow")
        .unwrap();
    let mut short = sample();
    short.messages.truncate(1);
    let snapshot = Snapshot::read(&mut &short.bytes()[..]).unwrap();
    let error = snapshot.send_all(&receiver).unwrap_err();
    assert_eq!(error.errno(), libc::EBADF);
}

#[test]
fn leased_messages_are_in_a_snapshot_once_they_came_back() {
    let (_place, queue) = Place::new().with_queue("/q", 4, 8);
    for message in [b"one", b"two"] {
        queue.try_send(message, 0).unwrap();
    }
    let mut child = Child::run(|| {
        let lease = queue.receive_lease().unwrap();
        assert_eq!(lease.to_vec(), b"one");
        std::thread::sleep(Duration::from_secs(60));
        drop(lease);
        0
    });
    assert!(wait_until(Duration::from_secs(10), || {
        queue.attributes().leased == 1
    }));
    assert_eq!(data(&queue), [b"two"]);
    assert_eq!(Snapshot::of(&queue).unwrap().info().messages, 1);
    child.kill();
    // The owners of leases are checked again when the coarse clock has moved on.
    assert!(wait_until(Duration::from_secs(10), || {
        data(&queue) == [b"one", b"two"]
    }));
    let returns: Vec<u32> = Snapshot::of(&queue)
        .unwrap()
        .messages()
        .map(|message| message.returns)
        .collect();
    assert_eq!(returns, [1, 0]);
}

#[test]
fn a_snapshot_of_more_messages_than_its_queue_may_hold_makes_one_that_holds_them() {
    let place = Place::new();
    let mut written = sample();
    // One of the snapshot's messages was sent in 1970, so a time to live would make it expire.
    written.time_to_live = 0;
    written.max_messages = 2;
    let snapshot = Snapshot::read(&mut &written.bytes()[..]).unwrap();
    let queue = snapshot.restore("/q", &options(&place)).unwrap();
    assert_eq!(queue.attributes().max_messages, 4);
    assert_eq!(data(&queue).len(), 4);
}

#[test]
fn a_name_that_can_be_none_and_limits_that_are_too_low_are_refused_and_leave_nothing() {
    let place = Place::new();
    let restore = |name: &str| sample_snapshot().restore(name, &options(&place));
    assert_eq!(restore("/a/b").unwrap_err().errno(), libc::EACCES);
    assert_eq!(restore("").unwrap_err().errno(), libc::EINVAL);
    let limits = Limits {
        max_messages: 99,
        ..Limits::default()
    };
    place.namespace.set_limits(&limits).unwrap();
    let error = restore("/q").unwrap_err();
    assert!(error.to_string().contains("max_messages"), "{error}");
    assert_eq!(names(&place), 0);
}

/// Returns a snapshot of `messages` messages of 4,000 bytes.
fn large(place: &Place, messages: u32) -> Snapshot {
    let queue = place.create("/large", messages, 4000);
    for number in 0..messages {
        queue.try_send(&[number as u8; 4000], number % 3).unwrap();
    }
    let snapshot = Snapshot::of(&queue).unwrap();
    umsg::posix::unlink_in(&place.namespace, "/large").unwrap();
    snapshot
}

#[test]
fn a_namespaces_limit_of_bytes_counts_what_is_restored() {
    let place = Place::new();
    let snapshot = large(&place, 500);
    let limits = |bytes| Limits {
        max_bytes: Some(bytes),
        ..Limits::default()
    };
    place.namespace.set_limits(&limits(1 << 20)).unwrap();
    let error = snapshot.restore("/q", &options(&place)).unwrap_err();
    assert_eq!(error.errno(), libc::ENOSPC, "{error}");
    assert_eq!(names(&place), 0);
    place.namespace.set_limits(&limits(8 << 20)).unwrap();
    let queue = snapshot.restore("/q", &options(&place)).unwrap();
    assert_eq!(queue.attributes().messages, 500);
    let error = queue.try_send(&[0; 4000], 0).unwrap_err();
    assert_eq!(error, SendError::Full);
}

#[test]
fn a_process_killed_while_it_restores_leaves_a_whole_queue_or_none() {
    let place = Place::in_turn();
    let snapshot = large(&place, 400);
    let mut random = Random::new(7);
    let mut outcomes = [0, 0];
    for _ in 0..60 {
        let mut child = Child::run(|| {
            let restored = snapshot.restore("/q", &options(&place));
            i32::from(restored.is_err())
        });
        std::thread::sleep(Duration::from_micros(random.below(8000)));
        child.kill();
        let whole = names(&place);
        outcomes[whole] += 1;
        if whole == 1 {
            let queue = place.open("/q");
            assert_eq!(queue.attributes().messages, 400);
            assert_eq!(queue.messages(usize::MAX).unwrap().len(), 400);
            umsg::posix::unlink_in(&place.namespace, "/q").unwrap();
        }
    }
    println!("none, whole: {outcomes:?}");
    assert_eq!(entries(place.path()), [".namespace"]);
}

/// Sends numbered messages. Each sender has its own priority, or all senders have the same one.
fn send_numbers(queue: &Queue, sender: u8, priority: u32, end: &AtomicBool) {
    for number in 0_u32.. {
        let message = [&[sender][..], &number.to_le_bytes()].concat();
        while queue.try_send(&message, priority).is_err() {
            if end.load(Relaxed) {
                return;
            }
            std::thread::yield_now();
        }
        if end.load(Relaxed) {
            return;
        }
    }
}

/// Fails if a sender's messages have a duplicate or a gap. Returns for each sender the number of its first message, and the number after that of its
/// last message.
#[track_caller]
fn assert_runs(messages: impl Iterator<Item = (Vec<u8>, u32)>) -> HashMap<u8, (u32, u32)> {
    let mut runs: HashMap<u8, (u32, u32)> = HashMap::new();
    let mut last = u32::MAX;
    for (data, priority) in messages {
        assert!(priority <= last, "{priority} after {last}");
        last = priority;
        let number = u32::from_le_bytes(data[1..].try_into().unwrap());
        let run = runs.entry(data[0]).or_insert((number, number));
        assert_eq!(run.1, number, "of sender {}", data[0]);
        run.1 += 1;
    }
    runs
}

#[test]
fn a_snapshot_while_others_send_and_receive_is_of_one_instant() {
    let _turn = turn();
    for priorities in [[5, 5, 5], [1, 2, 3], [9, 0, 9]] {
        let (_place, queue) = Place::new().with_queue("/q", 500, 8);
        let end = AtomicBool::new(false);
        let mut seen = 0;
        std::thread::scope(|scope| {
            for (sender, priority) in priorities.into_iter().enumerate() {
                let (queue, end) = (&queue, &end);
                scope.spawn(move || send_numbers(queue, sender as u8, priority, end));
            }
            scope.spawn(|| {
                let mut random = Random::new(3);
                while !end.load(Relaxed) {
                    // At times the queue fills, at times it empties.
                    for _ in 0..random.below(700) {
                        let _ = queue.try_receive(&mut [0; 8]);
                    }
                    std::thread::sleep(Duration::from_micros(random.below(200)));
                }
            });
            let mut before: HashMap<u8, (u32, u32)> = HashMap::new();
            let checked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
                let patience = Instant::now() + Duration::from_secs(60);
                for snapshots in 0.. {
                    if snapshots >= 300 && seen >= 20_000 || Instant::now() > patience {
                        break;
                    }
                    let mut file = Vec::new();
                    let info = queue.snapshot(&mut file).unwrap();
                    let snapshot = Snapshot::read(&mut &file[..]).unwrap();
                    seen += snapshot.messages().len();
                    assert_eq!(snapshot.info(), info);
                    assert!(info.messages <= 500);
                    let runs =
                        assert_runs(snapshot.messages().map(|m| (m.data.to_vec(), m.priority)));
                    for (sender, (first, end)) in runs {
                        let (first_before, end_before) =
                            before.insert(sender, (first, end)).unwrap_or_default();
                        assert!(first_before <= first && end_before <= end);
                    }
                }
            }));
            end.store(true, Relaxed);
            checked.unwrap();
        });
        assert!(seen >= 20_000, "the snapshots had {seen} messages");
    }
}

#[test]
fn how_often_a_restored_message_came_back_is_not_said_of_the_next_in_its_slot() {
    let (place, queue) = Place::new().with_queue("/q", 10, 100);
    queue.try_send(b"x", 0).unwrap();
    for _ in 0..3 {
        drop(queue.try_receive_lease().unwrap());
    }
    let mut saved = Vec::new();
    queue.snapshot(&mut saved).unwrap();
    let mut options = OpenOptions::new();
    options.read(true).write(true).namespace(&place.namespace);
    let snapshot = Snapshot::read(&mut &saved[..]).unwrap();
    let copy = snapshot.restore("/copy", &options).unwrap();
    copy.try_receive(&mut [0; 100]).unwrap();
    // Uses each slot at least once.
    for _ in 0..200 {
        copy.try_send(b"new", 0).unwrap();
        let lease = copy.try_receive_lease().unwrap();
        assert_eq!(lease.deliveries(), 1);
        lease.acknowledge().unwrap();
    }
}
