//! Rebuilt System V queues.

use super::*;

const LONG: Duration = Duration::from_secs(60);

#[test]
fn a_repair_of_a_system_v_queue_needs_no_room_that_the_queue_has_already() {
    let place = Place::new();
    let queue = sysv_queue(&place);
    limit(&place, Some(place.namespace.allocated_bytes().unwrap()));
    write(&place.path().join("msg/0"), 256 + 20, &[0xff; 4]);
    let repaired = sysv::repair(&place.namespace, KEY).unwrap();
    assert!(repaired.after.is_healthy(), "{repaired:#?}");
    assert_eq!(drain_sysv(&queue), (5..=24).collect::<Vec<_>>());
}

/// Returns a System V queue whose last messages have the slots of messages that were received. The queue holds the messages from 5 to 24, in this
/// order.
fn sysv_queue(place: &Place) -> sysv::Queue {
    let queue = place.create_sysv(KEY);
    let send = |n: u8| {
        let message = vec![n; usize::from(n) * 20];
        queue.try_send(i64::from(n % 4) + 1, &message).unwrap();
    };
    (1..=20).for_each(send);
    for _ in 1..=4 {
        let mut buffer = [0; 400];
        queue.try_receive(sysv::Want::Any, &mut buffer).unwrap();
    }
    (21..=24).for_each(send);
    queue
}

/// Receives all messages. Returns the first byte of each.
fn drain_sysv(queue: &sysv::Queue) -> Vec<u8> {
    let (mut buffer, mut found) = ([0; 8192], Vec::new());
    loop {
        match queue.try_receive(sysv::Want::Any, &mut buffer) {
            Ok(received) => found.push(buffer[..received.len].first().map_or(0, |first| *first)),
            Err(sysv::ReceiveError::NoMessage) => return found,
            Err(error) => panic!("{error}"),
        }
    }
}

fn sysv_works(queue: &sysv::Queue) {
    for n in 0..40_usize {
        queue.try_send(n as i64 % 5 + 1, &vec![1; n * 7]).unwrap();
    }
    let by_type = (1..=5).map(|mtype| {
        let mut count = 0;
        let want = sysv::Want::Exactly(mtype);
        while queue.try_receive(want, &mut [0; 8192]).is_ok() {
            count += 1;
        }
        count
    });
    assert_eq!(by_type.collect::<Vec<_>>(), [8; 5]);
}

#[test]
fn a_corrupted_system_v_queue_keeps_its_intact_messages_in_order() {
    for (what, offset, bytes) in [
        ("free slots", 256 + 16, &[0xff; 4][..]),
        ("messages", 256 + 20, &[0xff; 4]),
        ("number of the last message", 256 + 24, &[0xff; 8]),
        ("a smaller number", 256 + 24, &[7, 0, 0, 0, 0, 0, 0, 0]),
        ("bytes", 256 + 32, &[0xff; 8]),
        ("blocked receivers", 256 + 80, &[0xff; 4]),
        ("used slots", 256 + 136, &[0xff; 4]),
        ("length of the arena", 256 + 144, &[0xff; 4]),
        ("roots of the order", 512, &[0xff; 64]),
        ("length of the file", 24, &[1]),
    ] {
        let place = Place::new();
        drop(sysv_queue(&place));
        let path = place.path().join("msg/0");
        write(&path, offset, bytes);
        let repaired = sysv::repair(&place.namespace, KEY).unwrap();
        assert!(
            !repaired.before.is_healthy() && repaired.after.is_healthy(),
            "{what}: {repaired:#?}"
        );
        let queue = place.open_sysv(KEY);
        let found = drain_sysv(&queue);
        assert_eq!(found.len(), 20, "{what}: {:?}", repaired.done);
        assert!(found.is_sorted(), "{what}: in another order: {found:?}");
        sysv_works(&queue);
        assert!(
            sysv::diagnose(&place.namespace, KEY).unwrap().is_healthy(),
            "{what}"
        );
    }
}

#[test]
fn messages_that_were_sent_after_the_last_number_was_corrupted_are_kept_with_the_others() {
    let place = Place::new();
    let queue = sysv_queue(&place);
    write(&place.path().join("msg/0"), 256 + 24, &[0; 8]);
    queue.try_send(1, &[25]).unwrap();
    let repaired = sysv::repair(&place.namespace, KEY).unwrap();
    assert!(repaired.after.is_healthy(), "{repaired:#?}");
    let mut found = drain_sysv(&queue);
    found.sort_unstable();
    assert_eq!(found, (5..=25).collect::<Vec<_>>());
}

#[test]
fn a_message_that_was_sent_for_later_counts_once_after_a_repair() {
    let place = Place::new();
    let queue = sysv_queue(&place);
    let counts = || {
        let seen = queue.glance().unwrap();
        (seen.sent, seen.removed)
    };
    // The slots of received messages have numbers, which are not those of the delayed messages.
    for n in [30, 31] {
        queue.try_send_after(1, &[n], LONG).unwrap();
    }
    assert_eq!(counts(), (26, 4));
    write(&place.path().join("msg/0"), 256 + 20, &[0xff; 4]);
    let repaired = sysv::repair(&place.namespace, KEY).unwrap();
    assert!(repaired.after.is_healthy(), "{repaired:#?}");
    assert_eq!(counts(), (22, 0));
    assert_eq!(drain_sysv(&queue), (5..=24).collect::<Vec<_>>());
    assert_eq!(counts(), (22, 20));
    assert_eq!(queue.glance().unwrap().delayed, 2);
}

#[test]
fn delayed_messages_of_a_repaired_queue_are_delivered_and_count_once() {
    let place = Place::new();
    let queue = sysv_queue(&place);
    drain_sysv(&queue);
    let soon = Duration::from_millis(300);
    for n in [30, 31] {
        queue.try_send_after(1, &[n], soon).unwrap();
    }
    // The head of the list of the delayed messages: docs/format.md, LeaseRoots.
    write(&place.path().join("msg/0"), 640, &[0xff; 4]);
    write(&place.path().join("msg/0"), 256 + 20, &[0xff; 4]);
    let repaired = sysv::repair(&place.namespace, KEY).unwrap();
    assert!(repaired.after.is_healthy(), "{repaired:#?}");
    let mut buffer = [0; 8];
    for n in [30, 31] {
        let want = sysv::Want::Any;
        queue.receive_timeout(want, &mut buffer, LONG).unwrap();
        assert_eq!(buffer[0], n);
    }
    let seen = queue.glance().unwrap();
    assert_eq!((seen.sent, seen.removed, seen.delayed), (2, 2, 0));
}

#[test]
fn a_queue_with_a_corrupted_capacity_is_not_cut_to_it() {
    let place = Place::new();
    drop(sysv_queue(&place));
    let path = place.path().join("msg/0");
    let mut capacity = [0; 8];
    let file = fs::File::open(&path).unwrap();
    file.read_exact_at(&mut capacity, 16).unwrap();
    write(&path, 16, &[0; 8]);
    let repaired = sysv::repair(&place.namespace, KEY).unwrap();
    let why = repaired.failed.unwrap();
    assert!(why.contains("no repair is possible"), "{why}");
    // Once the capacity is restored in the file, the queue has all messages again.
    write(&path, 16, &capacity);
    assert_eq!(drain_sysv(&place.open_sysv(KEY)).len(), 20);
}

/// Returns the parts of a file that are not holes.
fn extents(file: &fs::File) -> Vec<(u64, u64)> {
    use rustix::fs::{SeekFrom, seek};
    let (mut at, mut found) = (0, Vec::new());
    while let Ok(begin) = seek(file, SeekFrom::Data(at)) {
        at = seek(file, SeekFrom::Hole(begin)).unwrap();
        found.push((begin, at));
    }
    found
}

#[test]
fn a_corrupted_system_v_queue_that_is_reported_healthy_works() {
    let mut random = Random::new(9);
    for round in 0..40 {
        let place = Place::new();
        drop(sysv_queue(&place));
        let path = place.path().join("msg/0");
        let extents = extents(&fs::File::open(&path).unwrap());
        for _ in 0..1 + random.below(30) {
            let (begin, end) = extents[random.below(extents.len() as u64) as usize];
            // The test does not overwrite the header and the rights.
            let begin = begin.max(256);
            write(
                &path,
                begin + random.below(end - begin - 8),
                &random.next().to_le_bytes(),
            );
        }
        let repaired = sysv::repair(&place.namespace, KEY).unwrap();
        if repaired.failed.is_none() {
            assert!(
                repaired.after.is_healthy(),
                "{round}: {:#?}",
                repaired.after.problems
            );
            let queue = place.open_sysv(KEY);
            drain_sysv(&queue);
            sysv_works(&queue);
        }
    }
}
