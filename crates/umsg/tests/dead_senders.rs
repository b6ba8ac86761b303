//! Senders that are killed while they wait for room, one crowd after the other, in queues from which no process receives: their slots
//! are used again, and the queues do not grow.

mod support;

use std::time::Duration;
use support::child::{Child, Exit};
use support::place::Place;
use support::wait_until;
use umsg::diagnosis::{Diagnosis, Life};
use umsg::posix;
use umsg::sysv::{self, Change, Want};
use umsg_shm::crash;

/// The number of threads of each killed process.
const CROWD: usize = 16;
/// The number of killed processes.
const KILLS: usize = 20;
/// The number of kills after which the memory of all slots in the first page is in use.
const SETTLED: usize = 6;
const KEY: i32 = 1;
const LONG: Duration = Duration::from_secs(60);

/// The length of a message, in bytes: it needs a block of the arena.
const SIZE: usize = 200;
const KEPT: [u8; SIZE] = [1; SIZE];
const FIRST: [u8; SIZE] = [2; SIZE];
const OTHER: [u8; SIZE] = [3; SIZE];

/// Returns how many threads of living processes are blocked. Nodes of dead threads that the kernel did not mark may still be in the list.
fn living<E: std::fmt::Debug>(diagnosis: Result<Diagnosis, E>) -> usize {
    let blocked = diagnosis.unwrap().blocked.into_iter();
    blocked.filter(|one| one.who.life == Life::Alive).count()
}

/// Makes a sender wait.
fn wait_first(send: impl Fn(&[u8; SIZE]), blocked: impl Fn() -> usize) -> Child {
    let first = Child::run(|| {
        send(&FIRST);
        0
    });
    assert!(wait_until(LONG, || blocked() == 1));
    first
}

/// Kills crowds of senders that wait after another sender. Returns the memory after some kills and after all kills.
fn kill_crowds(
    send: impl Fn(&[u8; SIZE]) + Sync,
    blocked: impl Fn() -> usize,
    memory: impl Fn() -> u64,
) -> [u64; 2] {
    let mut settled = 0;
    for kill in 0..KILLS {
        let mut crowd = Child::run(|| {
            std::thread::scope(|scope| {
                (0..CROWD).for_each(|_| _ = scope.spawn(|| send(&OTHER)));
            });
            0
        });
        assert!(wait_until(LONG, || blocked() == 1 + CROWD));
        crowd.kill();
        if kill == SETTLED {
            settled = memory();
        }
    }
    [settled, memory()]
}

/// Kills senders, one after the other, after they are in the list and before their nodes are registered with the kernel. Returns the memory after
/// some deaths and after all deaths.
fn die_unmarked(send: impl Fn(&[u8; SIZE]), memory: impl Fn() -> u64) -> [u64; 2] {
    let mut settled = 0;
    for death in 0..KILLS * CROWD {
        let mut sender = Child::run(|| {
            crash::arm("WAIT_UNNAMED", 1);
            send(&OTHER);
            0
        });
        sender.expect(Exit::Signal(libc::SIGKILL), "a sender that waits");
        if death == SETTLED * CROWD {
            settled = memory();
        }
    }
    [settled, memory()]
}

/// Returns a full POSIX queue, which contains one message.
fn full_queue() -> (Place, posix::Queue) {
    let (place, queue) = Place::new().with_queue("/q", 1, SIZE as u32);
    queue.try_send(&KEPT, 0).unwrap();
    (place, queue)
}

/// Returns a full System V queue, which contains one message.
fn full_sysv_queue() -> (Place, sysv::Queue) {
    let (place, queue) = Place::new().with_sysv_queue(KEY);
    let change = Change {
        qbytes: Some(SIZE as u64),
        ..Change::default()
    };
    queue.set(&change).unwrap();
    queue.try_send(1, &KEPT).unwrap();
    (place, queue)
}

/// Receives the messages of the living senders, and checks the queue.
fn empty(place: &Place, queue: &posix::Queue, mut first: Child) {
    assert_eq!(queue.receive_vec().unwrap().data, KEPT);
    first.expect(Exit::Code(0), "the first sender");
    assert_eq!(queue.receive_vec().unwrap().data, FIRST);
    while queue.try_receive(&mut [0; SIZE]).is_ok() {}
    let diagnosis = posix::diagnose(&place.namespace, "/q").unwrap();
    assert!(diagnosis.is_healthy(), "{:?}", diagnosis.problems);
}

fn empty_sysv(queue: &sysv::Queue, mut first: Child) {
    let mut room = [0; SIZE];
    queue.receive(Want::Any, &mut room).unwrap();
    assert_eq!(room, KEPT);
    first.expect(Exit::Code(0), "the first sender");
    queue.receive(Want::Any, &mut room).unwrap();
    assert_eq!(room, FIRST);
}

#[test]
fn a_queue_does_not_grow_with_senders_that_are_killed_behind_a_waiting_one() {
    let (place, queue) = full_queue();
    let slots = queue.status().slots;
    let send = |message: &[u8; SIZE]| queue.send(message, 0).unwrap();
    let blocked = || living(posix::diagnose(&place.namespace, "/q"));
    let first = wait_first(send, blocked);
    let memory = kill_crowds(send, blocked, || queue.status().memory);
    assert_eq!(queue.status().slots, slots, "slots beside dead senders");
    assert_eq!(memory[0], memory[1], "memory beside dead senders");
    empty(&place, &queue, first);
}

#[test]
fn a_queue_does_not_grow_with_senders_that_die_unmarked() {
    let (place, queue) = full_queue();
    let slots = queue.status().slots;
    let send = |message: &[u8; SIZE]| queue.send(message, 0).unwrap();
    let first = wait_first(send, || living(posix::diagnose(&place.namespace, "/q")));
    let memory = die_unmarked(send, || queue.status().memory);
    assert_eq!(queue.status().slots, slots, "slots beside dead senders");
    assert_eq!(memory[0], memory[1], "memory beside dead senders");
    empty(&place, &queue, first);
}

#[test]
fn a_system_v_queue_does_not_grow_with_senders_that_are_killed() {
    let (place, queue) = full_sysv_queue();
    let send = |message: &[u8; SIZE]| queue.send(1, message).unwrap();
    let blocked = || living(sysv::diagnose(&place.namespace, KEY));
    let first = wait_first(send, blocked);
    let memory = kill_crowds(send, blocked, || queue.status().unwrap().memory);
    assert_eq!(memory[0], memory[1], "memory beside dead senders");
    empty_sysv(&queue, first);
}

#[test]
fn a_system_v_queue_does_not_grow_with_senders_that_die_unmarked() {
    let (place, queue) = full_sysv_queue();
    let send = |message: &[u8; SIZE]| queue.send(1, message).unwrap();
    let first = wait_first(send, || living(sysv::diagnose(&place.namespace, KEY)));
    let memory = die_unmarked(send, || queue.status().unwrap().memory);
    assert_eq!(memory[0], memory[1], "memory beside dead senders");
    empty_sysv(&queue, first);
}
