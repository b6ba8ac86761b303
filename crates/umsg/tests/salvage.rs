//! Repair of corrupted queues: intact messages are kept in their order, and the queue works again.

mod chaos;
#[path = "salvage/rings.rs"]
mod rings;
#[path = "salvage/room.rs"]
mod room;
#[path = "salvage/senders.rs"]
mod senders;
mod support;
#[path = "salvage/sysv_queues.rs"]
mod sysv_queues;

use chaos::journal::How;
use chaos::poll_readable;
use rustix::fs::{FallocateFlags, fallocate};
use std::fs;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::time::Duration;
use support::child::{Child, Exit};
use support::place::Place;
use support::{Random, wait_until};
use umsg::diagnosis::{Owner, Repaired};
use umsg::posix::{self, Queue, ReceiveError, SendError};
use umsg::{Limits, ring, sysv};
use umsg_shm::crash;

const PATIENCE: Duration = Duration::from_secs(10);
const KEY: i32 = 0x77;
/// The offset of the cells of a queue of 50 messages of 400 bytes, and of the lock of the senders' side: docs/format.md.
const CELLS: u64 = 794_624;
const SENDER_LOCK: u64 = 512;
/// In the file of a queue of 50 messages of 400 bytes: the offset of the links of stored messages, and the number of bytes of these links.
const LINKS: (u64, u64) = (569_344, 20_480);
/// An offset and bytes that make the count of stored messages wrong.
const SCRIBBLE: (u64, &[u8]) = (816, &[99]);

fn path(place: &Place) -> PathBuf {
    place.path().join("mq/q")
}

fn write(path: &PathBuf, offset: u64, bytes: &[u8]) {
    let file = fs::File::options().write(true).open(path).unwrap();
    file.write_all_at(bytes, offset).unwrap();
}

#[track_caller]
fn repair(place: &Place) -> Repaired {
    posix::repair(&place.namespace, "/q").expect("a repair")
}

/// Returns a queue with messages in the store and in the ring, some of them long, and the data of these messages. One earlier message was received.
fn filled(place: &Place) -> (Queue, Vec<Vec<u8>>) {
    let queue = place.create("/q", 50, 400);
    for n in 0..20_u8 {
        let message = vec![n; usize::from(n) * 20];
        queue.try_send(&message, u32::from(n % 4)).unwrap();
    }
    queue.try_receive(&mut [0; 400]).unwrap();
    for n in 20..25 {
        queue.try_send(&[n; 11], 2).unwrap();
    }
    let all = queue.messages(100).unwrap();
    // The call of `messages` has moved the messages of the ring into the store. Only these two messages are in the ring.
    queue.try_send(&[25; 300], 0).unwrap();
    queue.try_send(&[26; 5], 0).unwrap();
    let messages = all.into_iter().map(|message| message.data);
    let held = messages.chain([vec![25; 300], vec![26; 5]]).collect();
    (queue, held)
}

fn drain(queue: &Queue) -> Vec<Vec<u8>> {
    let mut buffer = [0; 400];
    let receive = || match queue.try_receive(&mut buffer) {
        Ok(received) => Some(buffer[..received.len].to_vec()),
        Err(ReceiveError::Empty) => None,
        Err(error) => panic!("{error}"),
    };
    std::iter::from_fn(receive).collect()
}

/// Fails unless the queue takes as many messages as it was made for, and delivers them.
fn works(queue: &Queue, messages: usize, size: usize) {
    for n in 0..messages {
        let message = vec![n as u8; size - n % size.min(30)];
        queue.try_send(&message, (n % 3) as u32).unwrap();
    }
    queue.try_send(b"", 0).unwrap_err();
    assert_eq!(drain(queue).len(), messages);
}

/// Returns the number of waiters of the queue.
fn blocked(place: &Place) -> usize {
    let diagnosis = posix::diagnose(&place.namespace, "/q").unwrap();
    diagnosis.blocked.len()
}

#[test]
fn a_corrupted_queue_keeps_its_intact_messages_in_order() {
    let fifo = 12_288;
    for (what, offset, bytes, lost) in [
        ("sent", 536, &[0xff; 4][..], 0),
        ("freed", 640, &[0; 8], 0),
        ("drained", 792, &[99], 0),
        ("drained, not by a few", 792, &[0xff; 8], 0),
        ("slots", 388, &[0; 4], 0),
        ("ring mask", 384, &[6], 0),
        ("messages in the store", 816, &[99], 0),
        ("bitmap", 832, &[2], 0),
        ("the list of a priority", fifo, &[0xff; 8], 0),
        ("entries of the ring", 536_576, &[0xff; 256], 0),
        ("blocked receivers", 848, &[0xff; 4], 0),
        ("records of holds", 1044, &[0xff; 2], 0),
        ("counts", 648, &[77], 0),
        ("heads of free blocks", 1160, &[0xff; 700], 0),
        ("length of the arena", 576, &[0xff; 4], 0),
        ("policy", 6528, &[7], 0),
        ("length of the file", 24, &[1], 0),
        ("length of a message", CELLS + 5 * 128 + 16, &[0xff; 4], 1),
        ("block of a message", CELLS + 9 * 128 + 20, &[0xff; 4], 1),
    ] {
        let place = Place::new();
        let (queue, held) = filled(&place);
        drop(queue);
        write(&path(&place), offset, bytes);
        let repaired = repair(&place);
        assert!(!repaired.before.is_healthy(), "{what}");
        assert!(repaired.after.is_healthy(), "{what}: {repaired:#?}");
        let queue = place.open("/q");
        let found = drain(&queue);
        assert_eq!(
            found.len(),
            held.len() - lost,
            "{what}: {:?}",
            repaired.done
        );
        let mut rest = held.iter();
        assert!(
            found.iter().all(|message| rest.any(|held| held == message)),
            "{what}: in another order: {:?}",
            found
                .iter()
                .map(|message| message.first())
                .collect::<Vec<_>>()
        );
        works(&queue, 50, 400);
        assert!(
            posix::diagnose(&place.namespace, "/q")
                .unwrap()
                .is_healthy(),
            "{what}"
        );
    }
}

#[test]
fn a_cut_file_gets_its_length_back_and_the_mark_of_damage_is_taken_away() {
    let place = Place::new();
    let (queue, _) = filled(&place);
    drop(queue);
    let file = fs::File::options().write(true).open(path(&place)).unwrap();
    file.set_len(file.metadata().unwrap().len() - 4096).unwrap();
    // The mark says that a process found the corruption.
    write(&path(&place), 48, &[1]);
    let repaired = repair(&place);
    assert!(repaired.after.is_healthy(), "{repaired:#?}");
    assert!(
        repaired
            .done
            .iter()
            .any(|done| done.contains("the corruption mark"))
    );
    works_after_draining(&place.open("/q"));
}

fn works_after_draining(queue: &Queue) {
    drain(queue);
    works(queue, 50, 400);
}

#[test]
fn a_corrupted_queue_that_is_reported_healthy_works() {
    let place = Place::new();
    drop(filled(&place));
    let whole = fs::read(path(&place)).unwrap();
    let mut random = Random::new(5);
    for round in 0..60 {
        for _ in 0..1 + random.below(30) {
            let ends = [8192, 16_384, 280_000, 600_000, 800_000, whole.len() as u64];
            let end = ends[random.below(6) as usize];
            let offset = 128 + random.below(end - 136);
            // The file has no copy of the creator's settings, so the test does not overwrite the bytes of these settings.
            if !(6520..6784).contains(&offset) {
                write(&path(&place), offset, &random.next().to_le_bytes());
            }
        }
        let Ok(repaired) = posix::repair(&place.namespace, "/q") else {
            panic!("the header is as it was");
        };
        // By chance, a random value in a lock may be the id of a living thread. Then the repair fails.
        if repaired.failed.is_none() {
            assert!(
                repaired.after.is_healthy(),
                "{round}: {:#?}",
                repaired.after.problems
            );
            works_after_draining(&place.open("/q"));
        }
        fs::write(path(&place), &whole).unwrap();
    }
}

#[test]
fn waiters_go_on_waiting_and_leases_last_while_a_queue_is_rebuilt() {
    let (place, queue) = Place::new().with_queue("/q", 3, 400);
    queue.try_send(&[1; 300], 0).unwrap();
    let lease = queue.try_receive_lease().unwrap();
    let mut receiver = Child::run(|| {
        let message = place.open("/q").receive_vec().unwrap();
        i32::from(message.data != [2; 200])
    });
    assert!(wait_until(PATIENCE, || blocked(&place) == 1));
    write(&path(&place), 816, &[99]);
    let repaired = repair(&place);
    let left = &repaired.after.problems;
    assert!(left.is_empty(), "{left:?}");
    assert_eq!((repaired.kept, repaired.after.blocked.len()), (Some(1), 1));
    assert_eq!(lease.to_vec(), [1; 300]);
    lease.acknowledge().unwrap();
    queue.try_send(&[2; 200], 9).unwrap();
    receiver.expect(Exit::Code(0), "the receiver");
    drain(&queue);
    works(&queue, 3, 400);
}

#[test]
fn the_message_of_a_blocked_sender_is_kept() {
    let (place, queue) = Place::new().with_queue("/q", 1, 400);
    queue.try_send(&[1; 300], 0).unwrap();
    let mut sender = Child::run(|| place.open("/q").send(&[2; 200], 0).map_or(1, |()| 0));
    assert!(wait_until(PATIENCE, || blocked(&place) == 1));
    write(&path(&place), 536, &[0xff; 4]);
    let repaired = repair(&place);
    assert!(
        repaired.after.is_healthy() && repaired.kept == Some(2),
        "{repaired:#?}"
    );
    assert_eq!(queue.receive_vec().unwrap().data, [1; 300]);
    assert_eq!(queue.receive_vec().unwrap().data, [2; 200]);
    sender.expect(Exit::Code(0), "the sender");
    works(&queue, 1, 400);
}

#[test]
fn a_repair_takes_up_what_the_dead_have_left_and_leaves_the_rest_alone() {
    let place = Place::new();
    let (queue, held) = filled(&place);
    for point in ["SEND_PUBLISHED", "RECEIVE_COPIED", "LEASE_HELD"] {
        let mut child = Child::run(|| {
            crash::arm(point, 1);
            let queue = place.open("/q");
            let _ = queue.try_send(b"sent", 0);
            drop(queue.try_receive_lease());
            let _ = queue.try_receive(&mut [0; 400]);
            0
        });
        child.expect(Exit::Signal(libc::SIGKILL), point);
        let repaired = repair(&place);
        assert!(
            !repaired.before.is_healthy() && repaired.after.is_healthy(),
            "{point}: {repaired:#?}"
        );
        assert_eq!(repaired.kept, None, "{point}: it need not be made anew");
    }
    let found = drain(&queue);
    // Each killed process has sent a message, and the message that the last process leased came back.
    assert!(found.len() >= held.len() && found.contains(&b"sent".to_vec()));
    works(&queue, 50, 400);
    assert!(repair(&place).done.is_empty());
}

#[test]
fn nothing_is_repaired_beside_a_stopped_owner_and_a_lock_without_an_owner_is_freed() {
    let place = Place::new();
    let (queue, held) = filled(&place);
    let mut child = Child::run(|| {
        std::thread::sleep(PATIENCE);
        0
    });
    child.signal(libc::SIGSTOP);
    write(&path(&place), SENDER_LOCK, &child.pid().to_le_bytes());
    let is_refused = || {
        let failed = repair(&place).failed;
        failed.is_some_and(|failed| failed.contains(&format!("process {}", child.pid())))
    };
    assert!(wait_until(PATIENCE, is_refused));
    child.kill();
    let repaired = repair(&place);
    assert!(repaired.after.is_healthy(), "{repaired:#?}");
    assert_eq!(drain(&queue).len(), held.len());
}

/// Sets the limit of bytes of a namespace.
fn limit(place: &Place, max_bytes: Option<u64>) {
    let limits = Limits {
        max_bytes,
        ..Limits::default()
    };
    place.namespace.set_limits(&limits).unwrap();
}

#[test]
fn what_was_sent_while_the_last_message_before_it_was_being_stored_is_kept() {
    let (place, queue) = Place::new().with_queue("/q", 50, 400);
    let sent = |count: u8| (0..count).for_each(|n| queue.try_send(&[n; 11], n.into()).unwrap());
    sent(3);
    for (point, nth) in [("DRAIN_MARKED", 3), ("SEND_PUBLISHED", 1)] {
        let mut child = Child::run(|| {
            crash::arm(point, nth);
            match point {
                "DRAIN_MARKED" => drop(queue.try_receive(&mut [0; 400])),
                _ => queue.try_send(&[3; 11], 3).unwrap(),
            }
            0
        });
        child.expect(Exit::Signal(libc::SIGKILL), point);
    }
    // The number of slots. Without this number, a dead process's operation can be completed only by rebuilding the queue.
    write(&path(&place), 388, &[0; 4]);
    let repaired = repair(&place);
    assert!(repaired.after.is_healthy(), "{repaired:#?}");
    assert_eq!(repaired.kept, Some(4));
    let found = drain(&queue);
    assert_eq!(found, [3, 2, 1, 0].map(|n| vec![n; 11]));
    works(&queue, 50, 400);
}

#[test]
fn several_repairs_at_once_lose_nothing() {
    for _ in 0..10 {
        let place = Place::new();
        let (queue, held) = filled(&place);
        write(&path(&place), SCRIBBLE.0, SCRIBBLE.1);
        let repairs = || {
            std::thread::scope(|scope| {
                let threads = [(); 3].map(|()| scope.spawn(|| repair(&place)));
                threads.map(|thread| thread.join().unwrap())
            })
        };
        let repairs = repairs();
        assert!(repairs.iter().any(|repaired| repaired.kept.is_some()));
        let failed = repairs
            .iter()
            .filter_map(|repaired| repaired.failed.as_ref());
        assert!(
            failed.clone().count() < 3,
            "{:?}",
            failed.collect::<Vec<_>>()
        );
        assert!(repair(&place).after.is_healthy());
        assert_eq!(drain(&queue), held);
        works(&queue, 50, 400);
    }
}
