//! A real SIGKILL at every step of ringing a doorbell. A poller learns at once of calls that have become possible. The next
//! process that uses the queue withdraws calls that have become impossible.

mod support;

use rustix::event::epoll::EventFlags;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::OwnedFd;
use std::os::fd::BorrowedFd;
use std::time::Duration;
use support::child::{Child, Exit};
use support::events::Epoll;
use support::place::Place;
use support::{turn, wait_until};
use umsg::Edges;
use umsg::posix::Queue;
use umsg::sysv::{self, Change, Want};
use umsg_shm::crash;

/// Capacity of the queue.
const DEPTH: u32 = 2;

fn polled(descriptor: BorrowedFd<'_>) -> (bool, bool) {
    let mut entries = [PollFd::from_borrowed_fd(
        descriptor,
        PollFlags::IN | PollFlags::OUT,
    )];
    poll(&mut entries, Some(&Timespec::default())).unwrap();
    let flags = entries[0].revents();
    (
        flags.contains(PollFlags::IN),
        flags.contains(PollFlags::OUT),
    )
}

/// A change of a queue that holds `messages` messages.
struct Work<Q> {
    name: &'static str,
    messages: u32,
    does: fn(&Q),
    /// True if the killed process may hold a message. The message comes back, and pollers see it, when a process checks the holders.
    leases: bool,
}

const fn work<Q>(name: &'static str, messages: u32, does: fn(&Q)) -> Work<Q> {
    Work {
        name,
        messages,
        does,
        leases: false,
    }
}

const fn lease<Q>(name: &'static str, messages: u32, does: fn(&Q)) -> Work<Q> {
    let mut lease = work(name, messages, does);
    lease.leases = true;
    lease
}

const WORKS: &[Work<Queue>] = &[
    work("sends to an empty queue", 0, |queue| {
        queue.try_send(b"m", 0).unwrap()
    }),
    work("fills a queue", 1, |queue| queue.try_send(b"m", 1).unwrap()),
    work("sends two together", 0, |queue| {
        queue.try_send_batch(&[(b"m", 0), (b"m", 1)]).unwrap()
    }),
    work("receives from a full queue", 2, |queue| {
        queue.try_receive(&mut [0; 8]).unwrap();
    }),
    work("receives the last message", 1, |queue| {
        queue.try_receive(&mut [0; 8]).unwrap();
    }),
    lease("leases the last message", 1, |queue| {
        queue.try_receive_lease().unwrap().acknowledge().unwrap();
    }),
    lease("gives a message back", 2, |queue| {
        drop(queue.try_receive_lease().unwrap())
    }),
    work("commits a message", 0, |queue| {
        let mut room = queue.try_reserve(1).unwrap();
        room.write_at(0, b"m");
        room.commit(0).unwrap();
    }),
];

/// Kills a process that rings the doorbell, at each point of each work.
fn kill_ringers<Q>(works: &[Work<Q>], dies: fn(&str, u32, &Work<Q>) -> bool) {
    let _turn = turn();
    for point in ["BELL_BEGUN", "BELL_RUNG", "BELL_FORETOLD", "BELL_SETTLED"] {
        let rings = |work| (1..=3).filter(move |nth| dies(point, *nth, work)).count();
        let kills: usize = works.iter().map(rings).sum();
        println!("{point}: {kills} kills");
        assert!(kills >= 4, "{point}: {kills} kills");
    }
}

#[test]
fn a_killed_ringer_leaves_no_poller_asleep() {
    kill_ringers(WORKS, dies_ringing);
}

/// Runs a child that does the work with the queue that it opens, and may die at the point. Returns how the child ended.
fn exit_of<Q>(open: impl FnOnce() -> Q, point: &str, nth: u32, work: &Work<Q>) -> Exit {
    let mut child = Child::run(|| {
        let queue = open();
        crash::arm(point, nth);
        (work.does)(&queue);
        0
    });
    let exit = child.wait(Duration::from_secs(10));
    exit.expect("no child is stuck")
}

/// Returns whether the process died.
fn dies_ringing(point: &str, nth: u32, work: &Work<Queue>) -> bool {
    let (place, queue) = Place::new().with_queue("/q", DEPTH, 8);
    for _ in 0..work.messages {
        queue.try_send(b"m", 0).unwrap();
    }
    let descriptor = queue.pollable_with(Edges::All).unwrap();
    let exit = exit_of(|| place.open("/q"), point, nth, work);
    let before = polled(descriptor);
    // This query repairs the queue.
    let left = queue.attributes().messages as u32;
    let leased = queue.status().attributes.leased as u32;
    let (readable, writable) = (left != 0, left + leased < DEPTH);
    let says = format!(
        "a process that {} dies at the {nth}th {point}: {left} messages",
        work.name
    );
    assert!(before.0 || !readable || work.leases, "{says}, not shown");
    assert!(before.1 || !writable, "{says}, room is not shown");
    if work.leases && !readable {
        // The first lease of a queue wakes each poller that has no helper thread once, even if there is no message to receive.
        assert!(queue.try_receive(&mut [0; 8]).is_err(), "{says}");
    }
    assert_eq!(
        polled(descriptor),
        (readable, writable || !readable),
        "{says}"
    );
    // The queue still works.
    while queue.try_receive(&mut [0; 8]).is_ok() {}
    assert_eq!(polled(descriptor), (false, true), "{says}");
    while queue.try_send(b"m", 0).is_ok() {}
    assert_eq!(polled(descriptor), (true, false), "{says}");
    exit == Exit::Signal(libc::SIGKILL)
}

/// The first call on a queue whose sender was killed before it rang the doorbell.
type First = fn(&Queue) -> usize;

/// First calls. Each returns the number of messages that are left if the sender has sent its message.
const FIRST: &[First] = &[
    |queue| queue.attributes().messages,
    |queue| usize::from(queue.readiness().readable),
    |queue| usize::from(queue.peek(0).unwrap().is_some()),
    |queue| {
        queue.try_send(b"n", 0).unwrap();
        2
    },
    |queue| {
        queue.try_receive(&mut [0; 8]).unwrap();
        0
    },
];

#[test]
fn the_first_call_after_a_sender_was_killed_before_it_rang_notifies_the_pollers() {
    let _turn = turn();
    for point in ["SEND_PUBLISHED", "BELL_DEFERRED", "BELL_DEFERRED_RUNG"] {
        for (n, first) in FIRST.iter().enumerate() {
            let (place, queue) = Place::new().with_queue("/q", DEPTH + 1, 8);
            let descriptor = queue.pollable().unwrap();
            let set = Epoll::new(descriptor, EventFlags::IN | EventFlags::ET);
            assert!(set.told().is_none());
            dies(&place, point, |queue| queue.try_send(b"m", 0).unwrap());
            let left = first(&place.open("/q"));
            let says = format!("{point}, call {n}");
            assert_eq!(polled(descriptor), (left != 0, true), "{says}");
            assert!(left == 0 || set.told().is_some(), "{says}: no event");
            while queue.try_receive(&mut [0; 8]).is_ok() {}
            assert_eq!(polled(descriptor), (false, true), "{says}");
            // Later senders work as if no sender had died, and may defer the rings of the doorbell again.
            for _ in 0..3 {
                while set.told().is_some() {}
                queue.try_send(b"m", 0).unwrap();
                assert!(set.told().is_some(), "{says}: no event");
                queue.try_receive(&mut [0; 8]).unwrap();
                assert_eq!(polled(descriptor), (false, true), "{says}");
            }
        }
    }
}

/// A channel between two processes, on which each process signals the other process.
struct Signs([(OwnedFd, OwnedFd); 2]);

impl Signs {
    fn new() -> Signs {
        Signs([(); 2].map(|()| rustix::pipe::pipe().unwrap()))
    }

    fn give(&self, way: usize) {
        rustix::io::write(&self.0[way].1, b".").unwrap();
    }

    fn take(&self, way: usize) {
        assert_eq!(rustix::io::read(&self.0[way].0, &mut [0; 1]).unwrap(), 1);
    }
}

/// The process that holds all messages of a full queue is killed while it ends one of its leases. Returns whether it died.
fn dies_making_room(point: &str, nth: u32) -> bool {
    let (place, queue) = Place::new().with_queue("/q", DEPTH, 8);
    while queue.try_send(b"m", 0).is_ok() {}
    let signs = Signs::new();
    let mut holder = Child::run(|| {
        let queue = place.open("/q");
        let [first, _second] = [(); 2].map(|()| queue.try_receive_lease().unwrap());
        signs.give(0);
        signs.take(1);
        crash::arm(point, nth);
        first.acknowledge().unwrap();
        0
    });
    signs.take(0);
    let set = Epoll::new(queue.pollable().unwrap(), EventFlags::OUT | EventFlags::ET);
    while set.told().is_some() {}
    assert!(queue.try_send(b"x", 0).is_err(), "all messages are held");
    signs.give(1);
    let exit = holder.wait(Duration::from_secs(10));
    let is_back = || queue.status().attributes.leased == 0;
    assert!(wait_until(Duration::from_secs(10), is_back), "{point}");
    let has_room = queue.attributes().messages < DEPTH as usize;
    let told = set.told();
    assert!(
        told.is_some() || !has_room,
        "{point}: room without an event"
    );
    exit == Some(Exit::Signal(libc::SIGKILL))
}

#[test]
fn a_holder_of_all_messages_that_is_killed_leaves_no_room_without_an_event() {
    let _turn = turn();
    let points = [
        "BELL_BEGUN",
        "BELL_RUNG",
        "BELL_FORETOLD",
        "BELL_SETTLED",
        "LEASE_ENDED",
    ];
    for point in points {
        let kills = (1..=2).filter(|nth| dies_making_room(point, *nth)).count();
        assert!(kills > 0, "{point}");
    }
}

#[test]
fn a_repairer_without_descriptors_leaves_it_to_the_next_to_show_what_there_is() {
    let (place, queue) = Place::in_turn().with_queue("/q", DEPTH, 8);
    let descriptor = queue.pollable().unwrap();
    // The dead process has rung the doorbell for messages that it did not send.
    dies(&place, "BELL_RUNG", |queue| {
        let _ = queue.try_send_batch(&[(b"m", 0), (b"m", 0)]);
    });
    let mut repairer = Child::run(|| {
        let queue = place.open("/q");
        support::limit_descriptors(0);
        queue.try_send(b"m", 0).unwrap();
        0
    });
    repairer.expect(Exit::Code(0), "a repairer");
    let other = place.open("/q");
    other.try_receive(&mut [0; 8]).unwrap();
    assert_eq!(polled(descriptor), (false, true));
    other.try_send(b"m", 0).unwrap();
    assert_eq!(polled(descriptor), (true, true));
    queue.try_receive(&mut [0; 8]).unwrap();
    assert_eq!(polled(descriptor), (false, true));
}

fn send_and_receive(queue: &Queue, times: usize) {
    for _ in 0..times {
        queue.try_send(b"x", 0).unwrap();
        queue.try_receive(&mut [0; 8]).unwrap();
    }
}

/// Does `work` with the queue in a child, which dies at a point.
fn dies(place: &Place, point: &str, work: fn(&Queue)) {
    let mut child = Child::run(|| {
        let queue = place.open("/q");
        crash::arm(point, 1);
        work(&queue);
        0
    });
    child.expect(Exit::Signal(libc::SIGKILL), point);
}

#[test]
fn a_process_that_dies_when_it_begins_to_poll_leaves_nothing_watched() {
    let _turn = turn();
    for point in ["BELL_MADE", "BELL_NAMED", "BELL_WATCHED"] {
        let (place, queue) = Place::new().with_queue("/q", DEPTH, 8);
        dies(&place, point, |queue| {
            let _ = queue.pollable();
        });
        send_and_receive(&queue, 1000);
        let descriptor = queue.pollable().unwrap();
        assert_eq!(place.poll_fifos().len(), 1, "{point}");
        place.open("/q").try_send(b"x", 0).unwrap();
        assert_eq!(polled(descriptor), (true, true), "{point}");
    }
}

#[test]
fn a_process_that_dies_when_it_finds_no_poller_leaves_a_queue_that_can_be_polled() {
    let _turn = turn();
    for point in ["BELL_FORGOTTEN", "BELL_UNNAMED"] {
        let (place, queue) = Place::new().with_queue("/q", DEPTH, 8);
        let mut poller = Child::run(|| {
            let queue = place.open("/q");
            queue.pollable().unwrap();
            queue.try_send(b"m", 0).unwrap();
            queue.try_receive(&mut [0; 8]).unwrap();
            std::mem::forget(queue);
            0
        });
        poller.expect(Exit::Code(0), "a poller");
        dies(&place, point, |queue| send_and_receive(queue, 1000));
        while queue.try_receive(&mut [0; 8]).is_ok() {}
        send_and_receive(&queue, 1000);
        let descriptor = queue.pollable().unwrap();
        assert_eq!(
            (place.poll_fifos().len(), polled(descriptor)),
            (1, (false, true)),
            "{point}"
        );
        place.open("/q").try_send(b"x", 0).unwrap();
        assert_eq!(polled(descriptor), (true, true), "{point}");
    }
}

/// The changes of a System V queue that holds two bytes.
const SYSV_WORKS: &[Work<sysv::Queue>] = &[
    work("sends to an empty queue", 0, |queue| {
        queue.try_send(1, b"m").unwrap()
    }),
    work("fills a queue", 1, |queue| queue.try_send(2, b"m").unwrap()),
    work("sends two together", 0, |queue| {
        queue.try_send_batch(&[(1, b"m"), (2, b"m")]).unwrap();
    }),
    work("receives from a full queue", 2, |queue| {
        queue.try_receive(Want::Any, &mut [0; 8]).unwrap();
    }),
    work("receives the last message", 1, |queue| {
        queue.try_receive(Want::Any, &mut [0; 8]).unwrap();
    }),
    lease("leases the last message", 1, |queue| {
        queue
            .try_receive_lease(Want::Any)
            .unwrap()
            .acknowledge()
            .unwrap();
    }),
    lease("gives a message back", 2, |queue| {
        drop(queue.try_receive_lease(Want::Any).unwrap())
    }),
];

#[test]
fn a_killed_ringer_of_a_system_v_queue_leaves_no_poller_asleep() {
    kill_ringers(SYSV_WORKS, dies_ringing_sysv);
}

/// Returns whether the process died.
fn dies_ringing_sysv(point: &str, nth: u32, work: &Work<sysv::Queue>) -> bool {
    let (place, queue) = Place::new().with_sysv_queue(7);
    let small = Change {
        qbytes: Some(DEPTH.into()),
        ..Change::default()
    };
    queue.set(&small).unwrap();
    for _ in 0..work.messages {
        queue.try_send(1, b"m").unwrap();
    }
    let descriptor = queue.pollable_with(Edges::All).unwrap();
    let exit = exit_of(|| place.open_sysv(7), point, nth, work);
    let before = polled(descriptor);
    // This call repairs the queue.
    queue.set(&small).unwrap();
    let after = polled(descriptor);
    let says = format!("a process that {} dies at the {nth}th {point}", work.name);
    let readiness = queue.readiness();
    assert!(
        before.0 || !readiness.readable || work.leases,
        "{says}: not shown"
    );
    assert!(before.1 || !readiness.writable, "{says}: room is not shown");
    let all_is_leased = !readiness.readable && !readiness.writable;
    assert_eq!(
        after,
        (readiness.readable, readiness.writable || all_is_leased),
        "{says}"
    );
    // The queue still works.
    std::thread::sleep(Duration::from_millis(5));
    while queue.try_receive(Want::Any, &mut [0; 8]).is_ok() {}
    assert_eq!(polled(descriptor), (false, true), "{says}");
    while queue.try_send(1, b"m").is_ok() {}
    assert_eq!(polled(descriptor), (true, false), "{says}");
    exit == Exit::Signal(libc::SIGKILL)
}

fn send_and_receive_sysv(queue: &sysv::Queue, times: usize) {
    for _ in 0..times {
        queue.try_send(1, b"x").unwrap();
        queue.try_receive(Want::Any, &mut [0; 8]).unwrap();
    }
}

/// Does the same as [`dies`], with a System V queue.
fn dies_sysv(place: &Place, point: &str, work: fn(&sysv::Queue)) {
    let mut child = Child::run(|| {
        let queue = place.open_sysv(7);
        crash::arm(point, 1);
        work(&queue);
        0
    });
    child.expect(Exit::Signal(libc::SIGKILL), point);
}

/// Fails unless there is one doorbell, and it shows the messages of other processes.
fn expect_to_be_polled(place: &Place, queue: &sysv::Queue, point: &str) {
    let descriptor = queue.pollable().unwrap();
    assert_eq!(place.poll_fifos().len(), 1, "{point}");
    assert_eq!(polled(descriptor), (false, true), "{point}");
    place.open_sysv(7).try_send(1, b"x").unwrap();
    assert_eq!(polled(descriptor), (true, true), "{point}");
}

#[test]
fn a_process_that_dies_when_it_begins_to_poll_a_system_v_queue_leaves_nothing_watched() {
    let _turn = turn();
    for point in ["BELL_MADE", "BELL_NAMED", "BELL_WATCHED"] {
        let (place, queue) = Place::new().with_sysv_queue(7);
        dies_sysv(&place, point, |queue| {
            let _ = queue.pollable();
        });
        send_and_receive_sysv(&queue, 1000);
        expect_to_be_polled(&place, &queue, point);
    }
}

#[test]
fn a_process_that_dies_when_it_finds_no_poller_leaves_a_system_v_queue_that_can_be_polled() {
    let _turn = turn();
    for point in ["BELL_FORGOTTEN", "BELL_UNNAMED"] {
        let (place, queue) = Place::new().with_sysv_queue(7);
        let mut poller = Child::run(|| {
            let queue = place.open_sysv(7);
            queue.pollable().unwrap();
            queue.try_send(1, b"m").unwrap();
            queue.try_receive(Want::Any, &mut [0; 8]).unwrap();
            std::mem::forget(queue);
            0
        });
        poller.expect(Exit::Code(0), "a poller");
        dies_sysv(&place, point, |queue| send_and_receive_sysv(queue, 1000));
        while queue.try_receive(Want::Any, &mut [0; 8]).is_ok() {}
        send_and_receive_sysv(&queue, 1000);
        expect_to_be_polled(&place, &queue, point);
    }
}
