//! Queues in event loops. After the same calls, poll(2) and epoll(7) give the same events for the doorbell of umsg's queue as for a queue of the
//! kernel.

mod support;

use rustix::event::PollFlags;
use rustix::event::epoll::EventFlags;
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use std::ffi::CString;
use std::os::fd::FromRawFd;
use std::time::Duration;
use support::Random;
use support::child::{Child, Exit};
use support::events::{Epoll, poll_for, polled, readiness_of};
use support::place::Place;
use umsg::{Edges, Readiness};

/// The longest message, in bytes.
const SIZE: usize = 8;

/// A queue of the kernel, without a name.
struct Kernel(OwnedFd);

impl Kernel {
    /// Returns None if the kernel has no queues, or permits no further queue.
    fn new(max_messages: i64) -> Option<Kernel> {
        let name = CString::new(format!(
            "/umsg-pollable-{}-{max_messages}",
            std::process::id()
        ))
        .unwrap();
        // SAFETY: the structure is plain, and zeroed as mq_open(3) allows; the name ends with a zero; the descriptor is new.
        unsafe {
            let mut attributes: libc::mq_attr = std::mem::zeroed();
            attributes.mq_maxmsg = max_messages;
            attributes.mq_msgsize = SIZE as i64;
            let flags = libc::O_RDWR | libc::O_CREAT | libc::O_EXCL | libc::O_NONBLOCK;
            let queue = libc::mq_open(name.as_ptr(), flags, 0o600, &raw mut attributes);
            libc::mq_unlink(name.as_ptr());
            (queue >= 0).then(|| Kernel(OwnedFd::from_raw_fd(queue)))
        }
    }

    fn send(&self, priority: u32) -> bool {
        let queue = std::os::fd::AsRawFd::as_raw_fd(&self.0);
        // SAFETY: the bytes of a live array.
        unsafe { libc::mq_send(queue, [0; SIZE].as_ptr(), SIZE, priority) == 0 }
    }

    fn receive(&self) -> bool {
        let queue = std::os::fd::AsRawFd::as_raw_fd(&self.0);
        let mut buffer = [0; SIZE];
        // SAFETY: room for a message in a live array.
        unsafe { libc::mq_receive(queue, buffer.as_mut_ptr(), SIZE, std::ptr::null_mut()) >= 0 }
    }
}

/// Returns epoll instances that report the descriptor by level and by edge: for messages, for room, and for both.
fn sets(descriptor: BorrowedFd<'_>) -> Vec<Epoll> {
    let (levels, edges) = (EventFlags::empty(), EventFlags::ET);
    [
        EventFlags::IN,
        EventFlags::OUT,
        EventFlags::IN | EventFlags::OUT,
    ]
    .into_iter()
    .flat_map(|events| [levels, edges].map(|how| Epoll::new(descriptor, events | how)))
    .collect()
}

fn told(sets: &[Epoll]) -> Vec<Option<EventFlags>> {
    sets.iter().map(Epoll::told).collect()
}

#[test]
fn levels_and_edges_are_those_of_the_kernels_queue() {
    for max_messages in [1, 2, 3, 10] {
        let Some(kernel) = Kernel::new(max_messages) else {
            return eprintln!("left out: no queue of the kernel");
        };
        let place = Place::new();
        let ours = place.create("/q", max_messages as u32, SIZE as u32);
        let other = place.open("/q");
        let polled_by_us = ours.pollable_with(Edges::All).unwrap();
        let theirs = (polled(kernel.0.as_fd()), sets(kernel.0.as_fd()));
        let sets = sets(polled_by_us);
        assert_eq!(polled(polled_by_us), theirs.0);
        assert_eq!(told(&sets), told(&theirs.1));
        let mut random = Random::new(max_messages as u64);
        for step in 0..4000 {
            // Runs of sends and of receives, by two handles, so that all levels are passed.
            let sends = random.below(100) < 50 + 30 * u64::from(step / 40 % 2 == 0) - 10;
            let queue = if random.below(2) == 0 { &ours } else { &other };
            let mut buffer = [0; SIZE];
            match sends {
                true => assert_eq!(queue.try_send(&[0; SIZE], 0).is_ok(), kernel.send(0)),
                false => assert_eq!(queue.try_receive(&mut buffer).is_ok(), kernel.receive()),
            }
            let level = polled(polled_by_us);
            assert_eq!(
                level,
                polled(kernel.0.as_fd()),
                "at step {step} of {max_messages}"
            );
            assert_eq!(other.readiness(), readiness_of(level));
            if random.below(3) != 0 {
                assert_eq!(
                    told(&sets),
                    told(&theirs.1),
                    "at step {step} of {max_messages}"
                );
            }
        }
    }
}

#[test]
fn what_becomes_possible_is_an_edge_and_nothing_else_is_reported_unasked() {
    let (_place, queue) = Place::new().with_queue("/q", 2, SIZE as u32);
    let set = Epoll::new(
        queue.pollable().unwrap(),
        EventFlags::IN | EventFlags::OUT | EventFlags::ET,
    );
    assert_eq!(set.told(), Some(EventFlags::OUT));
    let mut buffer = [0; SIZE];
    let send = || queue.try_send(b"x", 0).unwrap();
    send();
    assert_eq!(set.told(), Some(EventFlags::IN | EventFlags::OUT));
    send();
    assert_eq!(set.told(), Some(EventFlags::IN));
    queue.try_receive(&mut buffer).unwrap();
    assert_eq!(set.told(), Some(EventFlags::IN | EventFlags::OUT));
    queue.try_receive(&mut buffer).unwrap();
    assert_eq!(
        set.told(),
        None,
        "only what can't be done any more has changed"
    );
}

/// Returns a process that holds a reservation until it is killed.
fn hold_room(place: &Place) -> Child {
    let (ready, is_ready) = rustix::pipe::pipe().unwrap();
    let holder = Child::run(|| {
        let queue = place.open("/q");
        let _room = queue.try_reserve(1).unwrap();
        rustix::io::write(&is_ready, b".").unwrap();
        loop {
            std::thread::park();
        }
    });
    rustix::io::read(&ready, &mut [0; 1]).unwrap();
    holder
}

#[test]
fn room_that_comes_to_a_queue_whose_messages_are_all_held_is_an_edge() {
    let (place, queue) = Place::new().with_queue("/q", 2, SIZE as u32);
    // Only the first lease of a queue makes pollers check the queue. The following leases do not.
    queue.try_send(b"m", 0).unwrap();
    let early = queue.try_receive_lease().unwrap();
    let set = Epoll::new(queue.pollable().unwrap(), EventFlags::OUT | EventFlags::ET);
    early.acknowledge().unwrap();
    let expect_none = |what: &str| {
        // At first, the descriptor reports room that does not exist.
        while set.told().is_some() {}
        assert!(queue.try_send(b"x", 0).is_err(), "{what}");
    };
    let expect_room = |what: &str| {
        let told = set.told_within(Duration::from_secs(10));
        assert_eq!(told, Some(EventFlags::OUT), "{what}");
        queue.try_send(b"x", 0).expect(what);
    };
    let other = place.open("/q");
    let lease = || other.try_receive_lease().unwrap();
    while other.try_send(b"m", 0).is_ok() {}
    let [first, second] = [lease(), lease()];
    expect_none("two leases");
    first.acknowledge().unwrap();
    expect_room("an acknowledgement");
    let third = lease();
    expect_none("two leases again");
    drop((second, third));
    while queue.try_receive(&mut [0; SIZE]).is_ok() {}
    let [first, _second] = [(); 2].map(|()| other.try_reserve(1).unwrap());
    expect_none("two reservations");
    drop(first);
    expect_room("a reservation that is dropped");
    queue.try_receive(&mut [0; SIZE]).unwrap();
    let mut holder = hold_room(&place);
    expect_none("a reservation of another process");
    holder.signal(libc::SIGKILL);
    holder.expect(Exit::Signal(libc::SIGKILL), "the holder");
    expect_room("the death of a holder");
}

#[test]
fn a_message_for_a_blocked_receiver_is_never_shown() {
    let (_place, queue) = Place::new().with_queue("/q", 4, SIZE as u32);
    let set = Epoll::new(
        queue.pollable_with(Edges::All).unwrap(),
        EventFlags::IN | EventFlags::OUT | EventFlags::ET,
    );
    assert_eq!(set.told(), Some(EventFlags::OUT));
    std::thread::scope(|scope| {
        for _ in 0..50 {
            let receiver = scope.spawn(|| queue.receive(&mut [0; SIZE]).unwrap());
            while queue.status().blocked_receivers == 0 {
                std::thread::yield_now();
            }
            queue.send(b"m", 0).unwrap();
            assert_eq!(set.told(), None);
            receiver.join().unwrap();
            assert_eq!(set.told(), None);
        }
    });
}

#[test]
fn every_way_to_change_a_queue_shows_in_its_doorbell() {
    let (_place, queue) = Place::new().with_queue("/q", 4, SIZE as u32);
    let descriptor = queue.pollable().unwrap();
    let shows = |readable, writable| {
        let expected = Readiness { readable, writable };
        assert_eq!(readiness_of(polled(descriptor)), expected);
    };
    shows(false, true);
    let messages: Vec<(&[u8], u32)> = (0..4).map(|n| (&b"m"[..], n)).collect();
    queue.try_send_batch(&messages).unwrap();
    shows(true, false);
    let lease = queue.try_receive_lease().unwrap();
    shows(true, false);
    lease.acknowledge().unwrap();
    shows(true, true);
    let leases: Vec<_> = (0..3).map(|_| queue.try_receive_lease().unwrap()).collect();
    shows(false, true);
    drop(leases);
    shows(true, true);
    while queue.try_receive(&mut [0; SIZE]).is_ok() {}
    shows(false, true);
    let mut room = queue.try_reserve(1).unwrap();
    shows(false, true);
    room.write_at(0, b"x");
    room.commit(0).unwrap();
    shows(true, true);
}

#[test]
fn a_sleeping_poller_is_woken_by_another_process() {
    let (place, queue) = Place::new().with_queue("/q", 1, SIZE as u32);
    let descriptor = queue.pollable().unwrap();
    let mut buffer = [0; SIZE];
    for _ in 0..20 {
        let mut child = Child::run(|| {
            std::thread::sleep(Duration::from_millis(5));
            place.open("/q").send(b"m", 0).unwrap();
            0
        });
        assert_eq!(poll_for(descriptor, PollFlags::IN), PollFlags::IN);
        queue.try_receive(&mut buffer).unwrap();
        child.expect(Exit::Code(0), "a sender");
        queue.send(b"full", 0).unwrap();
        let mut child = Child::run(|| {
            std::thread::sleep(Duration::from_millis(5));
            place.open("/q").receive(&mut [0; SIZE]).unwrap();
            0
        });
        assert_eq!(poll_for(descriptor, PollFlags::OUT), PollFlags::OUT);
        child.expect(Exit::Code(0), "a receiver");
    }
}

#[test]
fn a_parent_polls_a_queue_without_a_name_that_its_child_sends_to() {
    let (place, queue) = Place::new().with_queue("/q", 4, SIZE as u32);
    umsg::posix::unlink_in(&place.namespace, "/q").unwrap();
    let is_told_by_child = || {
        let mut child = Child::run(|| {
            std::thread::sleep(Duration::from_millis(20));
            queue.send(b"m", 0).unwrap();
            0
        });
        let descriptor = queue.pollable().unwrap();
        assert_eq!(poll_for(descriptor, PollFlags::IN), PollFlags::IN);
        child.expect(Exit::Code(0), "a sender");
    };
    // The parent has no doorbell yet, so the first child has none.
    is_told_by_child();
    queue.try_receive(&mut [0; SIZE]).unwrap();
    // This child inherits the doorbell.
    is_told_by_child();
}
