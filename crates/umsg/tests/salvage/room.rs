//! The memory that a repair needs. A repair needs no memory for the parts of a queue that already have memory. A repair fails if the memory is
//! exhausted.

use super::*;
use umsg::QueueError;

#[test]
fn a_repair_that_fails_for_want_of_room_leaves_what_the_dead_left_to_the_next_call() {
    // The process that dies is a receiver that has taken a slot, a sender that has not counted its message, or a sender that holds both locks and has
    // taken a slot.
    for (point, died) in [
        ("RECEIVE_UNSTORED", [false, true]),
        ("SEND_PUBLISHED", [true, false]),
        ("RESERVE_SLOT_TAKEN", [true, true]),
    ] {
        let (place, queue) = Place::new().with_queue("/q", 50, 400);
        for n in 0..3 {
            queue.try_send(&[n; 11], n.into()).unwrap();
        }
        let mut child = Child::run(|| {
            crash::arm(point, 1);
            match point {
                "RECEIVE_UNSTORED" => drop(queue.try_receive(&mut [0; 400])),
                "SEND_PUBLISHED" => queue.try_send(b"sent", 9).unwrap(),
                _ => drop(queue.try_reserve(100)),
            }
            0
        });
        child.expect(Exit::Signal(libc::SIGKILL), point);
        // The mark says that a process has found damage. A page that the rebuilding needs has lost its memory.
        write(&path(&place), 48, &[1]);
        let file = fs::File::options().write(true).open(path(&place)).unwrap();
        let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        fallocate(&file, flags, LINKS.0, LINKS.1).unwrap();
        limit(&place, Some(place.namespace.allocated_bytes().unwrap()));
        let repaired = repair(&place);
        let failed = repaired.failed.expect("no room");
        assert!(failed.contains("needs more memory"), "{point}: {failed}");
        let pid = child.pid() as u32;
        let is_dead = |owner: &Owner| matches!(owner, Owner::Died(Some(who)) if who.pid == pid);
        let owners = repaired.after.locks.iter().map(|lock| &lock.owner);
        let found: Vec<bool> = owners.clone().map(is_dead).collect();
        assert_eq!(found, died, "{point}: {:?}", owners.collect::<Vec<_>>());
        limit(&place, None);
        // The next calls repair the queue.
        let count = drain(&queue).len();
        let sent = usize::from(point == "SEND_PUBLISHED");
        let received = usize::from(point == "RECEIVE_UNSTORED");
        assert_eq!(count, 3 + sent - received, "{point}");
        works(&queue, 50, 400);
        let diagnosis = posix::diagnose(&place.namespace, "/q").unwrap();
        assert!(
            diagnosis.problems.len() == 1 && diagnosis.damage.is_some(),
            "{point}: {:#?}",
            diagnosis.problems
        );
        let repaired = repair(&place);
        assert!(repaired.after.is_healthy(), "{point}: {repaired:#?}");
    }
}

#[test]
fn a_priority_that_there_is_no_room_for_leaves_the_queue_as_it_was() {
    let (place, queue) = Place::new().with_queue("/q", 50, 400);
    (0..3).for_each(|n| queue.try_send(&[n; 11], 0).unwrap());
    // The limit is the memory that the queue has already. A message gets another priority, whose list has no memory.
    limit(&place, Some(place.namespace.allocated_bytes().unwrap()));
    write(&path(&place), CELLS + 128 + 8, &20_000_u32.to_le_bytes());
    write(&path(&place), 48, &[1]);
    let failed = repair(&place).failed.expect("no room");
    assert!(failed.contains("needs more memory"), "{failed}");
    queue.try_send(&[3; 11], 0).unwrap();
    assert_eq!(queue.try_receive(&mut [0; 400]).unwrap().len, 11);
    limit(&place, None);
    let repaired = repair(&place);
    assert!(repaired.after.is_healthy(), "{repaired:#?}");
    assert_eq!(repaired.kept, Some(3));
    assert_eq!(drain(&queue).len(), 3);
    works(&queue, 50, 400);
}

/// Sends messages of several priorities until there is no more room. Returns their number.
fn send_all_there_is_room_for(queue: &Queue) -> usize {
    let mut sent = 0;
    loop {
        match queue.try_send(&[7; 60], sent as u32 % 4 * 8_000) {
            Ok(()) => sent += 1,
            Err(SendError::Queue(QueueError::OverLimit)) => return sent,
            Err(error) => panic!("{error}"),
        }
    }
}

#[test]
fn a_repair_needs_no_room_that_the_queue_has_already() {
    // In each round, the limit leaves another amount of memory to the queue. So the queue runs out of memory for its cells, its links, or a longer
    // ring.
    for pages in 0..48 {
        let place = Place::new();
        // Without a limit at the queue's creation, the library would ignore a later limit for a while.
        limit(&place, Some(u64::MAX));
        let queue = place.create("/q", 20_000, 60);
        for priority in 0..4 {
            queue.try_send(&[7; 60], priority * 8_000).unwrap();
        }
        let used = place.namespace.allocated_bytes().unwrap();
        limit(&place, Some(used + 100_000 + pages * 4096));
        let sent = 4 + send_all_there_is_room_for(&queue);
        // The queue's present memory reaches the limit.
        limit(&place, Some(place.namespace.allocated_bytes().unwrap()));
        write(&path(&place), SCRIBBLE.0, SCRIBBLE.1);
        let repaired = repair(&place);
        assert!(
            repaired.after.is_healthy() && repaired.kept == Some(sent as u64),
            "{pages}: {repaired:#?}"
        );
        assert_eq!(drain(&queue).len(), sent, "{pages}");
        // The queue takes as many messages again as before the repair.
        for n in 0..sent {
            let sent_again = queue.try_send(&[7; 60], n as u32 % 4 * 8_000);
            assert!(sent_again.is_ok(), "{pages}: {n} of {sent}");
        }
        assert_eq!(drain(&queue).len(), sent, "{pages}");
    }
}
