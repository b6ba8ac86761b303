//! Senders that wait for room while their queue is rebuilt.

use super::*;
use std::thread;
use std::time::Instant;

/// The offsets in a cell of the message's length in bytes, and of its block (docs/format.md).
const LEN: u64 = 16;
const BLOCK: u64 = 20;
/// The capacity of the queue, in messages.
const MESSAGES: u8 = 50;

/// Returns the offset of the first cell whose message has this length.
fn cell(path: &PathBuf, len: u32) -> u64 {
    let file = fs::read(path).unwrap();
    let mut cells = (CELLS..).step_by(128);
    let found = cells.find(|at| word(&file, at + LEN) == len);
    found.expect("a message")
}

fn word(file: &[u8], at: u64) -> u32 {
    let bytes = &file[at as usize..][..4];
    u32::from_ne_bytes(bytes.try_into().unwrap())
}

/// Returns a full queue: all messages have one priority, and each has its own block.
fn full(place: &Place) -> Queue {
    let queue = place.create("/q", MESSAGES.into(), 400);
    (0..MESSAGES).for_each(|n| queue.try_send(&[n; 200], 0).unwrap());
    // This call of `messages` moves the messages into the store.
    assert_eq!(queue.messages(100).unwrap().len(), usize::from(MESSAGES));
    queue
}

/// Returns a full queue, and a process that waits for room for a message of 300 bytes.
fn full_with_sender() -> (Place, Queue, Child) {
    let place = Place::new();
    let queue = full(&place);
    let sender = Child::run(|| place.open("/q").send(&[99; 300], 0).map_or(1, |()| 0));
    assert!(wait_until(PATIENCE, || blocked(&place) == 1));
    (place, queue, sender)
}

/// The faults of a blocked sender's message of 300 bytes.
const WRONG: [&str; 3] = ["its length", "its block is another's", "its block is none"];

fn scribble(place: &Place, what: &str) {
    let path = path(place);
    let (at, other) = (cell(&path, 300), cell(&path, 200));
    let block = word(&fs::read(&path).unwrap(), other + BLOCK);
    match what {
        "its length" => write(&path, at + LEN, &[0xff; 4]),
        "its block is another's" => write(&path, at + BLOCK, &block.to_ne_bytes()),
        _ => write(&path, at + BLOCK, &[0; 4]),
    }
    // The corruption of a further word makes the repair rebuild the whole queue.
    write(&path, SCRIBBLE.0, SCRIBBLE.1);
}

#[test]
fn a_sender_whose_waiting_message_makes_no_sense_sends_it_again_when_there_is_room() {
    for what in WRONG {
        let (place, queue, mut sender) = full_with_sender();
        // A second sender waits after the first one, and keeps its place in the line.
        let mut second = Child::run(|| place.open("/q").send(&[100; 7], 0).map_or(1, |()| 0));
        assert!(wait_until(PATIENCE, || blocked(&place) == 2));
        scribble(&place, what);
        let repaired = repair(&place);
        assert!(repaired.after.is_healthy(), "{what}: {repaired:#?}");
        assert_eq!(repaired.kept, Some(u64::from(MESSAGES) + 1), "{what}");
        assert!(
            repaired.done.concat().contains(" 0 corrupted and dropped"),
            "{what}: {:?}",
            repaired.done
        );
        assert_eq!(
            blocked(&place),
            2,
            "{what}: no sender is told that it has sent"
        );
        for n in 0..MESSAGES {
            assert_eq!(queue.receive_vec().unwrap().data, [n; 200], "{what}");
        }
        assert_eq!(queue.receive_vec().unwrap().data, [99; 300], "{what}");
        assert_eq!(queue.receive_vec().unwrap().data, [100; 7], "{what}");
        sender.expect(Exit::Code(0), what);
        second.expect(Exit::Code(0), what);
        works(&queue, MESSAGES.into(), 400);
        assert!(repair(&place).before.is_healthy(), "{what}");
    }
}

#[test]
fn a_sender_whose_waiting_message_makes_no_sense_sends_it_at_once_where_a_repair_finds_room() {
    for what in WRONG {
        let (place, queue, mut sender) = full_with_sender();
        // One of the queued messages is corrupted, too, and so is lost.
        let path = path(&place);
        scribble(&place, what);
        write(&path, cell(&path, 200) + 128 + LEN, &[0xff; 4]);
        let repaired = repair(&place);
        assert!(repaired.failed.is_none(), "{what}: {repaired:#?}");
        sender.expect(Exit::Code(0), what);
        let found = drain(&queue);
        assert_eq!(found.len(), usize::from(MESSAGES), "{what}");
        assert_eq!(found.last(), Some(&vec![99; 300]), "{what}");
        works(&queue, MESSAGES.into(), 400);
        assert!(repair(&place).before.is_healthy(), "{what}");
    }
}

/// Repairs a full queue while a sender waits for `time` and then gives up. Returns None if `time` was over before the repair.
fn repair_beside_a_timed_sender(time: Duration, what: &str) -> Option<(Place, Queue)> {
    let place = Place::new();
    let queue = full(&place);
    let begun = Instant::now();
    let mut sender = Child::run(|| {
        let sent = place.open("/q").send_timeout(&[99; 300], 0, time);
        i32::from(!matches!(sent, Err(SendError::TimedOut)))
    });
    let is_blocked = wait_until(time, || blocked(&place) == 1);
    // The sender began to wait after `begun`: half of its time is left for the following calls.
    let repaired = (is_blocked && begun.elapsed() < time / 2).then(|| {
        scribble(&place, what);
        repair(&place)
    });
    sender.expect(Exit::Code(0), what);
    let repaired = repaired?;
    assert!(repaired.failed.is_none(), "{what}: {repaired:#?}");
    Some((place, queue))
}

#[test]
fn a_sender_whose_waiting_message_makes_no_sense_gives_up_in_time_and_leaves_no_slot_twice() {
    let what = WRONG[1];
    // On a busy machine, the sender's time may be over before the repair. Then the test repeats the repair with a longer time.
    let mut times = [3, 12, 48].map(Duration::from_secs).into_iter();
    let repaired_in_time = |time| repair_beside_a_timed_sender(time, what);
    let (place, queue) = times.find_map(repaired_in_time).expect("a repair in time");
    let now = posix::diagnose(&place.namespace, "/q").unwrap();
    assert!(
        now.is_healthy() && now.blocked.is_empty(),
        "{what}: {now:#?}"
    );
    assert_eq!(drain(&queue).len(), usize::from(MESSAGES), "{what}");
    works(&queue, MESSAGES.into(), 400);
    // Each of the two waiters has its own slot.
    (0..MESSAGES).for_each(|n| queue.try_send(&[n; 200], 0).unwrap());
    let found = thread::scope(|scope| {
        for n in [101, 102] {
            let queue = place.open("/q");
            scope.spawn(move || queue.send(&[n; 300], 0).unwrap());
        }
        assert!(wait_until(PATIENCE, || blocked(&place) == 2));
        let receive = |_| queue.receive_vec().unwrap().data[0];
        (0..MESSAGES + 2).map(receive).collect::<Vec<_>>()
    });
    assert!(
        found.contains(&101) && found.contains(&102),
        "{what}: {found:?}"
    );
}

#[test]
fn a_waiting_message_that_is_longer_than_any_can_be_is_damage_by_itself() {
    for len in [401, u32::MAX] {
        let (place, queue, mut sender) = full_with_sender();
        let path = path(&place);
        let at = cell(&path, 300) + LEN;
        write(&path, at, &len.to_ne_bytes());
        let found = posix::diagnose(&place.namespace, "/q").unwrap();
        let mut findings = found.problems.iter().filter_map(|one| one.finding.as_ref());
        assert!(findings.any(|finding| finding.offset == at), "{found:#?}");
        assert!(repair(&place).after.is_healthy(), "{len}");
        assert_eq!(queue.receive_vec().unwrap().data, [0; 200]);
        sender.expect(Exit::Code(0), "a sender");
    }
}
