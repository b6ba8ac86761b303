//! Senders that are killed while they wait for room, one crowd after the other, in queues from which no process receives: their slots
//! are used again, and the queues do not grow.

mod support;

use std::time::Duration;
use support::child::{Child, Exit};
use support::place::Place;
use support::wait_until;
use umsg::posix;
use umsg::sysv::{Change, Want};

/// Threads of a process that is killed.
const CROWD: usize = 16;
/// Processes that are killed.
const KILLS: usize = 20;
/// After so many, the memory of the slots in the first page is in use.
const SETTLED: usize = 6;
const LONG: Duration = Duration::from_secs(60);

/// A message that lies in a block of the arena.
const SIZE: usize = 200;
const KEPT: [u8; SIZE] = [1; SIZE];
const FIRST: [u8; SIZE] = [2; SIZE];
const OTHER: [u8; SIZE] = [3; SIZE];

/// Has a sender wait, and kills crowds of senders that wait behind it. Returns that sender, and the memory after some kills and after
/// all.
fn kill_crowds(
    send: impl Fn(&[u8; SIZE]) + Sync,
    blocked: impl Fn() -> usize,
    memory: impl Fn() -> u64,
) -> (Child, [u64; 2]) {
    let first = Child::run(|| {
        send(&FIRST);
        0
    });
    assert!(wait_until(LONG, || blocked() == 1));
    let mut settled = 0;
    for kill in 0..KILLS {
        // A thread that is killed while it looks at the queue counts as blocked: the kernel does not mark its node.
        let before = blocked();
        let mut crowd = Child::run(|| {
            std::thread::scope(|scope| {
                (0..CROWD).for_each(|_| _ = scope.spawn(|| send(&OTHER)));
            });
            0
        });
        assert!(wait_until(LONG, || blocked() == before + CROWD));
        crowd.kill();
        if kill == SETTLED {
            settled = memory();
        }
    }
    (first, [settled, memory()])
}

#[test]
fn a_queue_does_not_grow_with_senders_that_are_killed_behind_a_waiting_one() {
    let (place, queue) = Place::new().with_queue("/q", 1, SIZE as u32);
    queue.try_send(&KEPT, 0).unwrap();
    let slots = queue.status().slots;
    let (mut first, memory) = kill_crowds(
        |message| queue.send(message, 0).unwrap(),
        || queue.status().blocked_senders,
        || queue.status().memory,
    );
    assert_eq!(queue.status().slots, slots, "slots beside dead senders");
    assert_eq!(memory[0], memory[1], "memory beside dead senders");
    assert_eq!(queue.receive_vec().unwrap().data, KEPT);
    first.expect(Exit::Code(0), "the first sender");
    assert_eq!(queue.receive_vec().unwrap().data, FIRST);
    while queue.try_receive(&mut [0; SIZE]).is_ok() {}
    let diagnosis = posix::diagnose(&place.namespace, "/q").unwrap();
    assert!(diagnosis.is_healthy(), "{:?}", diagnosis.problems);
}

#[test]
fn a_system_v_queue_does_not_grow_with_senders_that_are_killed() {
    let (_place, queue) = Place::new().with_sysv_queue(1);
    let change = Change {
        qbytes: Some(SIZE as u64),
        ..Change::default()
    };
    queue.set(&change).unwrap();
    queue.try_send(1, &KEPT).unwrap();
    let (mut first, memory) = kill_crowds(
        |message| queue.send(1, message).unwrap(),
        || queue.status().unwrap().blocked_senders,
        || queue.status().unwrap().memory,
    );
    assert_eq!(memory[0], memory[1], "memory beside dead senders");
    let mut room = [0; SIZE];
    queue.receive(Want::Any, &mut room).unwrap();
    assert_eq!(room, KEPT);
    first.expect(Exit::Code(0), "the first sender");
    queue.receive(Want::Any, &mut room).unwrap();
    assert_eq!(room, FIRST);
}
