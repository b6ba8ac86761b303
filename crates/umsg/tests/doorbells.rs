//! The doorbells of polled queues: their lifetime, the processes that may ring them, and the effect of other users and of
//! programs that close foreign descriptors.
//!
//! The tests run one after another, because a child that one test forks also has the doorbells of the other tests open.

mod support;

use rustix::event::PollFlags;
use rustix::event::epoll::EventFlags;
use rustix::fd::{AsFd, OwnedFd};
use std::os::fd::{FromRawFd, IntoRawFd};
use std::time::Duration;
use support::child::{Child, Exit};
use support::events::{Epoll, poll_for, polled, readiness_of};
use support::place::Place;
use support::{Random, limit_descriptors};
use umsg::posix::Queue;
use umsg::{Edges, Readiness};

/// The longest message, in bytes.
const SIZE: usize = 8;

fn send_and_receive(queue: &Queue, times: usize) {
    for _ in 0..times {
        queue.try_send(b"x", 0).unwrap();
        queue.try_receive(&mut [0; SIZE]).unwrap();
    }
}

#[test]
fn a_killed_poller_is_forgotten_after_some_hundred_operations() {
    let (place, queue) = Place::in_turn().with_queue("/q", 4, SIZE as u32);
    let (ready, says_ready) = rustix::pipe::pipe().unwrap();
    let mut child = Child::run(|| {
        let queue = place.open("/q");
        queue.pollable_with(Edges::All).unwrap();
        rustix::io::write(&says_ready, b".").unwrap();
        std::thread::sleep(Duration::from_secs(60));
        0
    });
    rustix::io::read(&ready, &mut [0; 1]).unwrap();
    send_and_receive(&queue, 1000);
    assert_eq!(place.poll_fifos().len(), 1, "it is polled");
    child.kill();
    send_and_receive(&queue, 1000);
    assert_eq!(place.poll_fifos().len(), 0, "no process polls it");
    // The queue can be polled again.
    let descriptor = queue.pollable().unwrap();
    place.open("/q").send(b"m", 0).unwrap();
    assert_eq!(
        polled(descriptor),
        PollFlags::IN | PollFlags::RDNORM | PollFlags::OUT | PollFlags::WRNORM
    );
}

#[test]
fn a_killed_poller_is_forgotten_by_processes_that_send_one_message_each() {
    let (place, queue) = Place::in_turn().with_queue("/q", 4, SIZE as u32);
    let mut poller = Child::run(|| {
        std::mem::forget(place.open("/q").pollable().unwrap().try_clone_to_owned());
        0
    });
    poller.expect(Exit::Code(0), "a poller");
    let mut sender = Child::run(|| {
        place.open("/q").send(b"m", 0).unwrap();
        0
    });
    sender.expect(Exit::Code(0), "a sender");
    assert_eq!(place.poll_fifos().len(), 0, "no process polls it");
    queue.try_receive(&mut [0; SIZE]).unwrap();
}

#[test]
fn a_queue_that_is_closed_takes_its_doorbell_along_unless_others_poll() {
    let place = Place::in_turn();
    let one = place.create("/q", 4, SIZE as u32);
    let two = place.open("/q");
    one.pollable().unwrap();
    let kept = two.pollable().unwrap().try_clone_to_owned().unwrap();
    assert_eq!(place.poll_fifos().len(), 1);
    drop(one);
    drop(two);
    assert_eq!(
        place.poll_fifos().len(),
        1,
        "a process has a copy of the descriptor"
    );
    let queue = place.open("/q");
    queue.send(b"m", 0).unwrap();
    assert!(polled(kept.as_fd()).contains(PollFlags::IN));
    drop(kept);
    send_and_receive(&queue, 1000);
    assert_eq!(place.poll_fifos().len(), 0);
}

#[test]
fn another_user_that_fills_or_empties_the_fifo_stops_no_process() {
    let (place, queue) = Place::in_turn().with_queue("/q", 2, SIZE as u32);
    let descriptor = queue.pollable_with(Edges::All).unwrap();
    let stranger = descriptor.try_clone_to_owned().unwrap();
    let mut random = Random::new(7);
    for _ in 0..2000 {
        match random.below(4) {
            0 => while rustix::io::write(&stranger, &[0; 100]).is_ok() {},
            1 => while rustix::io::read(&stranger, &mut [0; 100]).is_ok() {},
            2 => drop(queue.try_send(b"x", 0)),
            _ => drop(queue.try_receive(&mut [0; SIZE])),
        }
    }
    // After the following changes, the doorbell shows the right level again.
    while queue.try_receive(&mut [0; SIZE]).is_ok() {}
    queue.try_send(b"x", 0).unwrap();
    queue.try_send(b"x", 0).unwrap();
    queue.try_receive(&mut [0; SIZE]).unwrap();
    queue.try_receive(&mut [0; SIZE]).unwrap();
    let again = place.open("/q");
    let level = readiness_of(polled(again.pollable().unwrap()));
    assert_eq!(
        level,
        Readiness {
            readable: false,
            writable: true
        }
    );
}

#[test]
fn a_doorbell_that_the_program_closed_is_not_rung_in_another_file() {
    let (place, queue) = Place::in_turn().with_queue("/q", 4, SIZE as u32);
    let poller = place.open("/q");
    let descriptor = poller.pollable().unwrap();
    let before = descriptors(&place);
    send_and_receive(&queue, 1);
    let ours: Vec<i32> = descriptors(&place)
        .into_iter()
        .filter(|fd| !before.contains(fd))
        .collect();
    assert_eq!(ours.len(), 1, "the sender's end");
    let file = tempfile::tempfile().unwrap();
    // SAFETY: the call does what a program does that closes unknown descriptors, and then opens files.
    unsafe { libc::dup2(std::os::fd::AsRawFd::as_raw_fd(&file), ours[0]) };
    std::thread::sleep(Duration::from_millis(20));
    send_and_receive(&queue, 10);
    queue.send(b"m", 0).unwrap();
    assert!(polled(descriptor).contains(PollFlags::IN));
    assert_eq!(file.metadata().unwrap().len(), 0);
    // SAFETY: the descriptor is a duplicate of this test, and the queue no longer uses it.
    drop(unsafe { OwnedFd::from_raw_fd(ours[0]) });
    let _ = file.into_raw_fd();
}

#[test]
fn what_a_sender_without_a_descriptor_could_not_show_the_next_one_does() {
    let (place, queue) = Place::in_turn().with_queue("/q", 4, 8);
    let bell = queue.pollable().unwrap();
    let mut blind = Child::run(|| {
        let queue = place.open("/q");
        limit_descriptors(0);
        queue.send(b"1", 0).unwrap();
        0
    });
    blind.expect(Exit::Code(0), "the process that can't open the doorbell");
    assert!(queue.readiness().readable);
    assert!(!polled(bell).contains(PollFlags::IN), "it was not shown");
    place.open("/q").send(b"2", 0).unwrap();
    assert!(polled(bell).contains(PollFlags::IN | PollFlags::OUT));
}

#[test]
fn what_the_program_closed_that_it_polled_is_not_rung_in_another_file() {
    let (_place, queue) = Place::in_turn().with_queue("/q", 4, SIZE as u32);
    let number = std::os::fd::AsRawFd::as_raw_fd(&queue.pollable().unwrap());
    send_and_receive(&queue, 1);
    let file = tempfile::tempfile().unwrap();
    // SAFETY: the call does what a program does that closes unknown descriptors, and then opens files.
    unsafe { libc::dup2(std::os::fd::AsRawFd::as_raw_fd(&file), number) };
    std::thread::sleep(Duration::from_millis(20));
    send_and_receive(&queue, 10);
    assert_eq!(file.metadata().unwrap().len(), 0);
    // A second call of `pollable` returns another descriptor.
    let descriptor = queue.pollable().unwrap();
    assert_ne!(std::os::fd::AsRawFd::as_raw_fd(&descriptor), number);
    queue.send(b"m", 0).unwrap();
    assert!(polled(descriptor).contains(PollFlags::IN));
    drop(queue);
    // SAFETY: the descriptor is a duplicate of this test, and the queue no longer uses it.
    let duplicate = unsafe { OwnedFd::from_raw_fd(number) };
    rustix::io::fcntl_getfd(&duplicate).expect("the program's, and still open");
}

/// Returns the descriptors of doorbells of this place: other tests have doorbells at the same time.
fn descriptors(place: &Place) -> Vec<i32> {
    let files = std::fs::read_dir("/proc/self/fd").unwrap();
    let mut numbers: Vec<i32> = files
        .filter_map(|file| {
            let file = file.unwrap();
            let leads_to = std::fs::read_link(file.path()).ok()?;
            let is_bell = leads_to.starts_with(place.path());
            is_bell.then(|| file.file_name().to_str().unwrap().parse().unwrap())
        })
        .collect();
    numbers.sort_unstable();
    numbers
}

/// Returns the library's reserved descriptors that lead to /dev/null or to a pipe.
fn spares() -> Vec<i32> {
    let files = std::fs::read_dir("/proc/self/fd").unwrap();
    let numbers = files.filter_map(|file| {
        let file = file.unwrap();
        let leads_to = std::fs::read_link(file.path()).ok()?;
        let leads_to = leads_to.to_string_lossy();
        let is_spare = leads_to == "/dev/null" || leads_to.starts_with("pipe:");
        let number = file.file_name().to_str().unwrap().parse().unwrap();
        (is_spare && umsg_shm::sys::reserved_descriptors::is(number)).then_some(number)
    });
    numbers.collect()
}

#[test]
fn a_program_that_closed_the_ends_of_the_packet_pipes_is_notified_all_the_same() {
    let place = Place::in_turn();
    let mut child = Child::run(|| {
        let queue = place.create("/q", 4, SIZE as u32);
        let descriptor = queue.pollable_with(Edges::All).unwrap();
        let set = Epoll::new(descriptor, EventFlags::OUT | EventFlags::ET);
        assert_eq!(set.told(), Some(EventFlags::OUT));
        let told_of_each = || {
            for _ in 0..3 {
                queue.try_send(b"x", 0).unwrap();
                assert_eq!(set.told(), Some(EventFlags::OUT));
            }
            assert!(readiness_of(polled(descriptor)).readable);
            for _ in 0..3 {
                queue.try_receive(&mut [0; SIZE]).unwrap();
                assert_eq!(set.told(), Some(EventFlags::OUT));
            }
            assert!(!readiness_of(polled(descriptor)).readable);
        };
        told_of_each();
        let spares = spares();
        assert_eq!(spares.len(), 2);
        let file = tempfile::tempfile().unwrap();
        for number in &spares {
            // SAFETY: the call does what a program does that closes unknown descriptors, and then opens files.
            unsafe { libc::dup2(std::os::fd::AsRawFd::as_raw_fd(&file), *number) };
        }
        std::thread::sleep(Duration::from_millis(20));
        told_of_each();
        assert_eq!(file.metadata().unwrap().len(), 0);
        0
    });
    child.expect(Exit::Code(0), "the poller");
}

/// A child begins to poll the queue, and ends without closing it. Then the poller of another queue sweeps the doorbell away.
fn leave_a_doorbell_that_is_swept(place: &Place) {
    let mut poller = Child::run(|| {
        std::mem::forget(place.open("/q").pollable().unwrap().try_clone_to_owned());
        0
    });
    poller.expect(Exit::Code(0), "a poller");
    place.create("/other", 4, SIZE as u32).pollable().unwrap();
    place.expect_no_poll_fifos("the sweep");
}

/// Returns the word of the segment that names a process that polls the queue: docs/format.md, section 2.
fn watched(place: &Place) -> u32 {
    const OFFSET: usize = 884;
    let bytes = std::fs::read(place.path().join("mq/q")).unwrap();
    u32::from_ne_bytes(bytes[OFFSET..OFFSET + 4].try_into().unwrap())
}

#[test]
fn a_sender_that_found_no_doorbell_notifies_the_next_poller() {
    let place = Place::in_turn();
    place.create("/q", 4, SIZE as u32);
    leave_a_doorbell_that_is_swept(&place);
    let sender = place.open("/q");
    sender.send(b"1", 0).unwrap();
    let poller = place.open("/q");
    let descriptor = poller.pollable().unwrap();
    let set = Epoll::new(descriptor, EventFlags::IN);
    poller.try_receive(&mut [0; SIZE]).unwrap();
    assert_eq!(set.told(), None);
    sender.send(b"2", 0).unwrap();
    assert_eq!(set.told(), Some(EventFlags::IN));
    assert_eq!(poll_for(descriptor, PollFlags::IN), PollFlags::IN);
}

#[test]
fn a_receiver_that_found_no_doorbell_notifies_the_next_poller_of_room() {
    let (place, queue) = Place::in_turn().with_queue("/q", 1, SIZE as u32);
    leave_a_doorbell_that_is_swept(&place);
    queue.send(b"1", 0).unwrap();
    let poller = place.open("/q");
    let descriptor = poller.pollable().unwrap();
    let set = Epoll::new(descriptor, EventFlags::OUT);
    assert_eq!(set.told(), None);
    queue.try_receive(&mut [0; SIZE]).unwrap();
    assert_eq!(set.told(), Some(EventFlags::OUT));
    queue.send(b"2", 0).unwrap();
    assert_eq!(set.told(), None);
}

#[test]
fn what_is_shown_is_right_after_a_doorbell_was_swept() {
    let (place, queue) = Place::in_turn().with_queue("/q", 2, SIZE as u32);
    queue.send(b"1", 0).unwrap();
    leave_a_doorbell_that_is_swept(&place);
    // Each change is made by a process that used the removed doorbell.
    queue.send(b"2", 0).unwrap();
    let poller = place.open("/q");
    let descriptor = poller.pollable().unwrap();
    let shown = || readiness_of(polled(descriptor));
    let level = |readable, writable| {
        let mut level = Readiness::default();
        (level.readable, level.writable) = (readable, writable);
        level
    };
    assert_eq!(shown(), level(true, false));
    queue.try_receive(&mut [0; SIZE]).unwrap();
    assert_eq!(shown(), level(true, true));
    queue.try_receive(&mut [0; SIZE]).unwrap();
    assert_eq!(shown(), level(false, true));
}

/// Returns a process that polls the queue until it is killed.
fn lasting_poller(place: &Place) -> Child {
    let (ready, says_ready) = rustix::pipe::pipe().unwrap();
    let poller = Child::run(|| {
        let _kept = place.open("/q").pollable().unwrap().try_clone_to_owned();
        rustix::io::write(&says_ready, b".").unwrap();
        std::thread::sleep(Duration::from_secs(60));
        0
    });
    rustix::io::read(&ready, &mut [0; 1]).unwrap();
    poller
}

#[test]
fn a_queue_whose_doorbell_is_gone_is_watched_no_more() {
    let (place, queue) = Place::in_turn().with_queue("/q", 4, SIZE as u32);
    // `known` already has the doorbell open. Another handle has to search for the doorbell.
    let known = place.open("/q");
    for knows in [true, false] {
        let mut poller = lasting_poller(&place);
        send_and_receive(&known, 1);
        assert_ne!(watched(&place), 0);
        poller.kill();
        place.create("/other", 4, SIZE as u32).pollable().unwrap();
        place.expect_no_poll_fifos("the sweep");
        let sender = if knows { &known } else { &queue };
        send_and_receive(sender, 300);
        assert_eq!(watched(&place), 0);
    }
}

#[test]
fn a_process_that_rings_rarely_finds_out_that_no_process_polls() {
    let (place, queue) = Place::in_turn().with_queue("/q", 4, SIZE as u32);
    let mut poller = lasting_poller(&place);
    send_and_receive(&queue, 1);
    poller.kill();
    std::thread::sleep(Duration::from_millis(1100));
    send_and_receive(&queue, 1);
    assert_eq!(watched(&place), 0);
    place.expect_no_poll_fifos("the sender");
}

#[test]
fn a_poller_that_is_notified_of_a_false_level_repairs_the_doorbell() {
    let (_place, queue) = Place::in_turn().with_queue("/q", 2, SIZE as u32);
    let descriptor = queue.pollable().unwrap();
    let other = descriptor.try_clone_to_owned().unwrap();
    // Fills the FIFO with packets of several lengths: the FIFO reports messages that do not exist.
    for (packets, len) in [(1, 1), (1, 4), (3, 100), (4, 1), (1, 4096)] {
        for _ in 0..packets {
            let _ = rustix::io::write(&other, &vec![0; len]);
        }
        assert!(readiness_of(polled(descriptor)).readable);
        for _ in 0..2 {
            queue.try_receive(&mut [0; SIZE]).unwrap_err();
        }
        let shown = readiness_of(polled(descriptor));
        assert!(!shown.readable && shown.writable, "{packets} of {len}");
    }
    // The FIFO reports room that does not exist.
    queue.try_send(b"1", 0).unwrap();
    queue.try_send(b"2", 0).unwrap();
    rustix::io::read(&other, &mut [0; 8]).unwrap();
    assert!(readiness_of(polled(descriptor)).writable);
    for _ in 0..2 {
        queue.try_send(b"3", 0).unwrap_err();
    }
    let shown = readiness_of(polled(descriptor));
    assert!(shown.readable && !shown.writable);
}

#[test]
fn processes_that_begin_to_poll_at_the_same_time_hinder_one_another_in_nothing() {
    const ROUNDS: usize = 2000;
    let place = Place::in_turn();
    let pollers: Vec<Child> = (0..4)
        .map(|number| {
            let place = &place;
            Child::run(move || {
                let name = format!("/q{number}");
                for _ in 0..ROUNDS {
                    let queue = place.create(&name, 3, SIZE as u32);
                    let descriptor = queue.pollable().unwrap();
                    queue.send(b"x", 0).unwrap();
                    assert!(readiness_of(polled(descriptor)).readable);
                    queue.try_receive(&mut [0; SIZE]).unwrap();
                }
                0
            })
        })
        .collect();
    for mut poller in pollers {
        poller.expect(Exit::Code(0), "a poller");
    }
}

/// Polls a queue, takes some messages, and ends: by closing the queue, by exit, or killed.
fn poll_some(place: &Place, messages: u64, end: u64, acknowledge: &OwnedFd) -> i32 {
    let queue = place.open("/q");
    let descriptor = queue.pollable().unwrap();
    for _ in 0..messages {
        if poll_for(descriptor, PollFlags::IN) != PollFlags::IN {
            return 1;
        }
        queue.receive(&mut [0; SIZE]).unwrap();
        rustix::io::write(acknowledge, b".").unwrap();
    }
    match end {
        0 => drop(queue),
        1 => std::mem::forget(queue),
        // SAFETY: the call sends a signal to this process.
        _ => drop(unsafe { libc::kill(libc::getpid(), libc::SIGKILL) }),
    }
    0
}

#[test]
fn every_message_is_notified_though_pollers_come_and_go() {
    let place = Place::in_turn();
    let mut queue = place.create("/q", 4, SIZE as u32);
    let (acknowledged, acknowledge) = rustix::pipe::pipe().unwrap();
    let mut random = Random::new(11);
    for _ in 0..150 {
        let (messages, end) = (1 + random.below(3), random.below(3));
        let mut poller = Child::run(|| poll_some(&place, messages, end, &acknowledge));
        if random.below(3) == 0 {
            // The poller of another queue removes stale doorbells.
            place.create("/other", 4, SIZE as u32).pollable().unwrap();
        }
        if random.below(3) == 0 {
            queue = place.open("/q");
        }
        for _ in 0..messages {
            std::thread::sleep(Duration::from_micros(random.below(1500)));
            queue.send(b"x", 0).unwrap();
            assert_eq!(poll_for(acknowledged.as_fd(), PollFlags::IN), PollFlags::IN);
            rustix::io::read(&acknowledged, &mut [0; 1]).unwrap();
        }
        let expected = if end == 2 {
            Exit::Signal(libc::SIGKILL)
        } else {
            Exit::Code(0)
        };
        poller.expect(expected, "a poller");
    }
}
