//! Exhausted memory: a full file system, a file system without free inodes, the limits of a namespace. Each is an error
//! of the call that needs memory. The error names the exhausted resource and a remedy. Nothing is lost, and the memory is
//! free again afterwards.
//!
//! The limits of a process are in `process_limits.rs`.

mod support;

use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::Duration;
use support::face::{Face, Told};
use support::place::Place;
use support::scarce::{Ballast, LEFT_OUT, entries, in_child, lives, mount_private, remount};
use umsg::QueueError;
use umsg::posix::{OpenError, OpenOptions, Queue, ReceiveError, SendError};
use umsg::{Limits, Namespace};

/// The parts of each error text about a full file system.
const FULL: [&str; 2] = ["the file system of the namespace is full", "remove queues"];
/// The parts of each error text about the limit of bytes.
const LIMITED: [&str; 2] = ["limit of bytes", "raise the limit max_bytes"];
/// The size of the file system that becomes full in these tests.
const ROOM: usize = 1 << 20;

/// Runs `work` in a child with a namespace on a private file system, mounted with these options.
#[track_caller]
fn with_own_file_system(options: &str, work: impl FnOnce(&Path, &Namespace)) {
    let place = Place::new();
    in_child(|| {
        if !mount_private(place.path(), options) {
            return LEFT_OUT;
        }
        work(place.path(), &Namespace::at(place.path()).unwrap());
        0
    });
}

/// Returns the numbers of bytes and inodes that a file system has left.
fn left(at: &Path) -> (u64, u64) {
    let stat = rustix::fs::statvfs(at).unwrap();
    (stat.f_bfree * stat.f_frsize, stat.f_ffree)
}

/// Sends numbered messages of `length` bytes until a send is refused. Returns the number of sent messages, and the error.
fn fill(line: &impl Face, groups: u64, length: usize) -> (u64, Told) {
    let mut sent = 0_u64;
    loop {
        let mut message = vec![0x5a; length];
        message[..8].copy_from_slice(&sent.to_le_bytes());
        match line.send(sent % groups, &message) {
            Ok(()) => sent += 1,
            Err(told) => return (sent, told),
        }
    }
}

/// Fails unless all messages of `fill` are in the queue, whole and in order.
fn check_filled<F: Face>(line: &mut F, sent: u64, length: usize) {
    assert_eq!(line.messages(), sent);
    for group in (0..F::GROUPS).rev() {
        for number in (0..sent).filter(|number| number % F::GROUPS == group) {
            let message = line.receive().expect("a message that was sent");
            assert_eq!(message.len(), length);
            assert_eq!(message[..8], number.to_le_bytes());
            assert!(message[8..].iter().all(|&byte| byte == 0x5a));
        }
    }
    assert!(line.receive().is_err());
    assert!(!line.is_damaged());
}

/// Fills a queue until the memory is exhausted, three times with long messages, which need the arena, and three times with messages that fit into the
/// cells. Fails if a message is lost.
fn fill_to_the_end_of_memory<F: Face>(namespace: &Namespace, texts: &[&str]) {
    for length in [4096, 16] {
        let mut line = F::make(namespace).unwrap();
        for _ in 0..3 {
            let (sent, told) = fill(&line, F::GROUPS, length);
            told.says(F::NO_SPACE, texts);
            assert!(sent > 50, "only {sent} messages of {length} bytes fit");
            // A blocking call fails at once, too.
            let waited = line.send_timeout(&vec![0; length], Duration::from_secs(50));
            waited.unwrap_err().says(F::NO_SPACE, texts);
            check_filled(&mut line, sent, length);
        }
        // Memory of long messages is used again for short ones, and memory of short messages for long ones.
        let shorter = if length == 16 { 24 } else { 60 };
        let (sent, _) = fill(&line, F::GROUPS, shorter);
        assert!(sent > 8, "{sent}");
        check_filled(&mut line, sent, shorter);
        line.remove(namespace);
    }
}

fn a_full_file_system_stops_senders_and_loses_nothing<F: Face>() {
    with_own_file_system("size=1m", |place, namespace| {
        // Makes the file of the next identifier, which stays after the removal of the queue.
        F::make(namespace).unwrap().remove(namespace);
        let (before, room) = (entries(place), left(place));
        fill_to_the_end_of_memory::<F>(namespace, &FULL);
        assert_eq!((entries(place), left(place)), (before, room));
    });
}

fn a_namespaces_limit_of_bytes_stops_senders_and_creators_and_loses_nothing<F: Face>() {
    let place = Place::new();
    let namespace = &place.namespace;
    let limits = |bytes: usize| Limits {
        max_bytes: Some(bytes as u64),
        ..Limits::default()
    };
    namespace.set_limits(&limits(2 * ROOM)).unwrap();
    fill_to_the_end_of_memory::<F>(namespace, &LIMITED);
    assert_eq!(namespace.allocated_bytes().unwrap(), 0);

    let mut line = F::make(namespace).unwrap();
    let (sent, _) = fill(&line, F::GROUPS, 4096);
    namespace.set_limits(&limits(ROOM)).unwrap();
    let before = entries(place.path());
    let create = OpenOptions::new()
        .read(true)
        .create(true)
        .namespace(namespace)
        .open("/new");
    Told::from(create.unwrap_err()).says(libc::ENOSPC, &LIMITED);
    let told = umsg::sysv::OpenOptions::new()
        .namespace(namespace)
        .open(libc::IPC_PRIVATE);
    Told::from(told.unwrap_err()).says(libc::ENOSPC, &LIMITED);
    let told = umsg::ring::Options::new().create_in(namespace, "/new");
    Told::from(told.unwrap_err()).says(libc::ENOSPC, &LIMITED);
    assert_eq!(entries(place.path()), before);
    namespace.set_limits(&Limits::default()).unwrap();
    assert!(deep(namespace, "/new").is_ok());
    check_filled(&mut line, sent, 4096);
}

fn a_full_file_system_is_told_to_creators_and_leaves_nothing_behind<F: Face>() {
    with_own_file_system("size=1m", |place, namespace| {
        let (before, room) = (entries(place), left(place).0);
        // The free room grows by a page each time, so that the creation fails at each of its steps.
        for pages in (0..=ROOM / 4096).rev() {
            let ballast = Ballast::new(place, pages * 4096);
            match F::make(namespace) {
                Ok(mut line) => {
                    let sent = line.send(0, b"fits");
                    let received = sent.and_then(|()| line.receive());
                    line.remove(namespace);
                    match received {
                        Ok(message) => return assert_eq!(message, b"fits"),
                        // A new queue of System V has no memory for a message yet.
                        Err(told) => told.says(F::NO_SPACE, &FULL),
                    }
                }
                Err(told) => told.says(libc::ENOSPC, &FULL),
            }
            drop(ballast);
            // The first created queue of System V stores the next identifier, and the count of changes.
            let all = entries(place)
                .into_iter()
                .filter(|name| !name.starts_with("own/"));
            let before = before.iter().filter(|name| !name.starts_with("own/"));
            assert!(all.eq(before.cloned()));
            assert!(room - left(place).0 <= 2 * 4096, "{pages}");
        }
        panic!("never was there room");
    });
}

fn a_file_system_without_inodes_is_told_to_creators_and_leaves_nothing_behind<F: Face>() {
    // The namespace takes the first inodes. The file of the next identifier takes a further inode.
    for inodes in 6..14 {
        with_own_file_system(
            &format!("size=16m,nr_inodes={inodes}"),
            |place, namespace| {
                let before = entries(place);
                let room = left(place);
                match F::make(namespace) {
                    Ok(line) => line.remove(namespace),
                    Err(told) => told.says(libc::ENOSPC, &FULL),
                }
                // The user's own directory stays: it has the lock and the next identifier. The test removes it.
                let user = rustix::process::geteuid().as_raw();
                let _ = std::fs::remove_dir_all(place.join(format!("own/{user}")));
                assert_eq!(entries(place), before);
                // The file with the count of changes stays.
                let counts = u64::from(place.join(".changes").exists());
                assert_eq!(
                    left(place).1 + lives(place) + counts,
                    room.1,
                    "{inodes} inodes"
                );
            },
        );
    }
}

#[test]
fn a_namespace_for_which_there_are_no_inodes_is_made_when_there_are() {
    for inodes in 1..8 {
        let place = Place::new();
        in_child(|| {
            if !mount_private(place.path(), &format!("size=1m,nr_inodes={inodes}")) {
                return LEFT_OUT;
            }
            let made = Namespace::at(place.path());
            assert!(made.is_err() || inodes > 2, "{inodes} are enough");
            if let Err(error) = made {
                assert_eq!(error.errno(), libc::ENOSPC, "{error}");
                let text = error.to_string();
                assert!(text.contains(place.path().to_str().unwrap()), "{text}");
                assert!(text.contains("No space left on device"), "{text}");
            }
            remount(place.path(), "nr_inodes=100");
            let namespace = Namespace::at(place.path()).unwrap();
            deep(&namespace, "/q").unwrap().try_send(b"one", 0).unwrap();
            0
        });
    }
}

fn a_blocked_sender_for_whose_message_there_is_no_memory_is_told<F: Face>() {
    with_own_file_system("size=1m", |place, namespace| {
        let mut line = F::make_small(namespace, 2).unwrap();
        line.send(0, b"1").unwrap();
        line.send(0, b"2").unwrap();
        let ballast = Ballast::new(place, ROOM);
        let waited = line.send_timeout(&[0; 4096], Duration::from_secs(5));
        waited.unwrap_err().says(F::NO_SPACE, &FULL);
        assert_eq!(line.messages(), 2);
        assert_eq!(line.receive().unwrap(), b"1");
        line.send(0, b"3").unwrap();
        assert_eq!(line.receive().unwrap(), b"2");
        assert_eq!(line.receive().unwrap(), b"3");
        drop(ballast);
        let told = line.receive_timeout(Duration::from_millis(1)).unwrap_err();
        assert_eq!(told.errno, libc::ETIMEDOUT);
        assert!(!line.is_damaged());
    });
}

/// The number of waiters. It exceeds the number of nodes that have memory from the start.
const CROWD: usize = 80;

/// Makes many threads wait for a message, without memory for further nodes, and sends a message for each of them.
fn serve_a_crowd(
    place: &Path,
    receive: impl Fn() -> Result<(), Told> + Sync,
    mut send: impl FnMut(),
    waiting: impl Fn() -> usize,
) {
    let ballast = Ballast::new(place, ROOM);
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..CROWD).map(|_| scope.spawn(&receive)).collect();
        // Some threads have nodes; the others check repeatedly.
        assert!(support::wait_until(Duration::from_secs(20), || waiting() > 10));
        std::thread::sleep(Duration::from_millis(50));
        assert!(waiting() < CROWD, "there was memory for all");
        drop(ballast);
        (0..CROWD).for_each(|_| send());
        for thread in threads {
            thread.join().unwrap().unwrap();
        }
    });
}

#[test]
fn receivers_without_memory_to_wait_with_wait_all_the_same() {
    let long = Duration::from_secs(50);
    with_own_file_system("size=1m", |place, namespace| {
        let queue = deep(namespace, "/q").unwrap();
        serve_a_crowd(
            place,
            || Ok(queue.receive_timeout(&mut [0; 4096], long).map(|_| ())?),
            || queue.send(b"one", 0).unwrap(),
            || queue.status().blocked_receivers,
        );
        assert_eq!(queue.attributes().messages, 0);
    });
    with_own_file_system("size=1m", |place, namespace| {
        let mut options = umsg::sysv::OpenOptions::new();
        let queue = options.create(true).namespace(namespace).open(1).unwrap();
        let want = umsg::sysv::Want::Any;
        serve_a_crowd(
            place,
            || Ok(queue.receive_timeout(want, &mut [0; 9], long).map(|_| ())?),
            || queue.send(1, b"one").unwrap(),
            || queue.status().unwrap().blocked_receivers,
        );
        assert_eq!(queue.status().unwrap().entry.messages, 0);
    });
}

/// Writes words to a file, calls `look` to check the consequences, and restores the old words.
fn with_words<const N: usize>(file: &Path, words: [(u64, u32); N], look: impl FnOnce()) {
    let file = std::fs::File::options().read(true).write(true).open(file);
    let file = file.unwrap();
    let before = words.map(|(offset, value)| {
        let mut before = [0; 4];
        file.read_exact_at(&mut before, offset).unwrap();
        file.write_all_at(&value.to_ne_bytes(), offset).unwrap();
        (offset, before)
    });
    look();
    for (offset, before) in before {
        file.write_all_at(&before, offset).unwrap();
    }
}

/// The offset of the arena of a queue for 10 messages of 8,192 bytes, in granules: sections 1 and 2 of docs/format.md.
const ARENA: u32 = 43_036_624 / 16;
const ARENA_LEN: u64 = 576;
/// The number of slots of a System V queue that is made with the default limits: section 11.
const SLOTS: u32 = (1 << 22) + 4096 + 64;
const USED_SLOTS: u64 = 256 + 136;

#[test]
fn a_file_that_holds_no_more_says_so_and_not_that_the_file_system_is_full() {
    let place = Place::new();
    let says = ["has no room for this message"];
    let queue = place.create("/q", 10, 8192);
    let words = [(ARENA_LEN, ARENA)];
    with_words(&place.path().join("mq/q"), words, || {
        let error = queue.try_send(&[1; 8192], 0).unwrap_err();
        assert_eq!(error, SendError::Queue(QueueError::UsedUp));
        Told::from(error).says(libc::ENOSPC, &says);
        queue.try_send(b"short", 0).unwrap();
    });
    assert_eq!(queue.receive_vec().unwrap().data, b"short");

    let sysv_queue = place.create_sysv(1);
    let words = [(USED_SLOTS, SLOTS), (USED_SLOTS + 4, SLOTS)];
    with_words(&place.path().join("msg/0"), words, || {
        let error = sysv_queue.try_send(1, b"one").unwrap_err();
        assert_eq!(error, umsg::sysv::SendError::Queue(QueueError::UsedUp));
        Told::from(error).says(libc::ENOMEM, &says);
    });
    sysv_queue.try_send(1, b"one").unwrap();
    assert!(!queue.status().damaged && !sysv_queue.status().unwrap().damaged);
}

fn deep(namespace: &Namespace, name: &str) -> Result<Queue, OpenError> {
    OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .max_messages(100_000)
        .message_size(4096)
        .namespace(namespace)
        .open(name)
}

#[test]
fn a_namespaces_limit_of_queues_is_an_error_of_its_own() {
    let place = Place::new();
    let limits = Limits {
        max_queues: 1,
        ..Limits::default()
    };
    place.namespace.set_limits(&limits).unwrap();
    let first = deep(&place.namespace, "/first").unwrap();
    let error = deep(&place.namespace, "/second").unwrap_err();
    assert!(matches!(error, OpenError::TooManyQueues(1)), "{error}");
    Told::from(error).says(
        libc::ENOSPC,
        &[
            "its limit of 1 queues",
            "remove some",
            "raise the limit max_queues",
        ],
    );
    assert!(deep(&place.namespace, "/first").is_ok());
    drop(first);
    umsg::posix::unlink_in(&place.namespace, "/first").unwrap();
    assert!(deep(&place.namespace, "/second").is_ok());
}

#[test]
fn a_sender_that_has_no_memory_to_wait_with_leaves_no_slot_behind() {
    with_own_file_system("size=1m", |place, namespace| {
        let queue = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .namespace(namespace)
            .open("/q")
            .unwrap();
        while queue.try_send(b"kept", 0).is_ok() {}
        let ballast = Ballast::new(place, ROOM);
        let (slots, time) = (queue.status().slots, Duration::from_millis(1));
        for _ in 0..2 * slots {
            let waited = queue.send_timeout(b"too many", 0, time);
            assert!(
                matches!(
                    waited,
                    Err(SendError::TimedOut | SendError::Queue(QueueError::NoSpace))
                ),
                "{waited:?}"
            );
        }
        drop(ballast);
        for _ in 0..2 * slots {
            let waited = queue.send_timeout(b"too many", 0, time);
            assert_eq!(waited, Err(SendError::TimedOut));
        }
        assert_eq!(queue.status().slots, slots);
    });
}

#[test]
fn a_receiver_waits_or_fails_for_want_of_memory_to_wait_with() {
    with_own_file_system("size=1m", |place, namespace| {
        let queue = deep(namespace, "/q").unwrap();
        let ballast = Ballast::new(place, ROOM);
        let (mut buffer, time) = (vec![0; 8192], Duration::from_millis(20));
        let waited = queue.receive_timeout(&mut buffer, time);
        assert!(
            matches!(
                waited,
                Err(ReceiveError::TimedOut | ReceiveError::Queue(QueueError::NoSpace))
            ),
            "{waited:?}"
        );
        queue.try_send(b"kept", 0).unwrap();
        assert_eq!(queue.receive_vec().unwrap().data, b"kept");
        drop(ballast);
        let waited = queue.receive_timeout(&mut buffer, time);
        assert_eq!(waited, Err(ReceiveError::TimedOut));
    });
}

#[test]
fn a_queue_on_a_full_file_system_is_emptied_by_leases() {
    with_own_file_system("size=1m", |place, namespace| {
        let queue = deep(namespace, "/q").unwrap();
        queue.try_send(b"first", 0).unwrap();
        queue.try_send(b"second", 0).unwrap();
        let _ballast = Ballast::new(place, ROOM);
        for expected in [&b"first"[..], b"second"] {
            let lease = queue.try_receive_lease().unwrap();
            assert_eq!(lease.to_vec(), expected);
            lease.acknowledge().unwrap();
        }
        assert_eq!(queue.attributes().messages, 0);
    });
}

#[test]
fn a_lease_for_which_there_is_no_memory_leaves_its_message_in_the_queue() {
    with_own_file_system("size=1m", |place, namespace| {
        let queue = deep(namespace, "/q").unwrap();
        let sent = 100_u32;
        for number in 0..sent {
            queue.try_send(&number.to_le_bytes(), 0).unwrap();
        }
        let ballast = Ballast::new(place, ROOM);
        // The lease records of the first page exist from the start.
        let mut leases = Vec::new();
        let error = loop {
            match queue.try_receive_lease() {
                Ok(lease) => leases.push(lease),
                Err(error) => break error,
            }
        };
        assert_eq!(error, ReceiveError::Queue(QueueError::NoSpace));
        Told::from(error).says(libc::ENOSPC, &FULL);
        let taken = leases.len() as u32;
        assert!((50..sent).contains(&taken), "{taken}");
        assert_eq!(queue.attributes().messages, (sent - taken) as usize);
        drop(ballast);
        for number in taken..sent {
            let lease = queue.try_receive_lease().unwrap();
            assert_eq!(lease.to_vec(), number.to_le_bytes());
            lease.acknowledge().unwrap();
        }
        drop(leases);
        assert_eq!(queue.attributes().messages, taken as usize);
    });
}

for_each_face! {
    a_full_file_system_stops_senders_and_loses_nothing
    a_namespaces_limit_of_bytes_stops_senders_and_creators_and_loses_nothing
    a_full_file_system_is_told_to_creators_and_leaves_nothing_behind
    a_file_system_without_inodes_is_told_to_creators_and_leaves_nothing_behind
    a_blocked_sender_for_whose_message_there_is_no_memory_is_told
}
