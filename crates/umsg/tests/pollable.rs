//! Queues in event loops: what poll(2) and epoll(7) say of a queue's doorbell is what they say of the kernel's queue after the
//! same calls, whoever made them; and a doorbell that nobody polls any more costs nobody anything.

mod support;

use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use std::ffi::CString;
use std::os::fd::{FromRawFd, IntoRawFd};
use std::path::Path;
use std::time::Duration;
use support::Random;
use support::child::{Child, Exit};
use support::limit_descriptors;
use support::place::Place;
use umsg::posix::Queue;
use umsg::sysv::Want;
use umsg::{Edges, Namespace, Readiness};

/// Messages that the queues of the comparison hold.
const SIZE: usize = 8;

/// A queue of the kernel, without a name.
struct Kernel(OwnedFd);

impl Kernel {
    /// None where the kernel has no queues, or does not allow any more.
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

fn polled(descriptor: BorrowedFd<'_>) -> PollFlags {
    let all =
        PollFlags::IN | PollFlags::OUT | PollFlags::RDNORM | PollFlags::WRNORM | PollFlags::PRI;
    let mut entries = [PollFd::from_borrowed_fd(descriptor, all)];
    poll(&mut entries, Some(&Timespec::default())).unwrap();
    entries[0].revents()
}

/// An epoll set with one descriptor.
struct Epoll(OwnedFd);

impl Epoll {
    fn new(descriptor: BorrowedFd<'_>, events: EventFlags) -> Epoll {
        let set = epoll::create(CreateFlags::CLOEXEC).unwrap();
        epoll::add(&set, descriptor, EventData::new_u64(0), events).unwrap();
        Epoll(set)
    }

    /// What is told now; None if nothing is.
    fn told(&self) -> Option<EventFlags> {
        let mut events = Vec::with_capacity(4);
        epoll::wait(
            &self.0,
            rustix::buffer::spare_capacity(&mut events),
            Some(&Timespec::default()),
        )
        .unwrap();
        assert!(events.len() <= 1);
        events.first().map(|event| event.flags)
    }
}

/// By level and by edge, for messages, for room and for both.
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

fn readiness_of(flags: PollFlags) -> Readiness {
    Readiness {
        readable: flags.contains(PollFlags::IN),
        writable: flags.contains(PollFlags::OUT),
    }
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
fn what_becomes_possible_is_an_edge_and_nothing_else_is_told_unasked() {
    let place = Place::new();
    let queue = place.create("/q", 2, SIZE as u32);
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

/// What a poll of at most ten seconds says.
fn poll_for(descriptor: BorrowedFd<'_>, what: PollFlags) -> PollFlags {
    let mut entries = [PollFd::from_borrowed_fd(descriptor, what)];
    let patience = Timespec {
        tv_sec: 10,
        tv_nsec: 0,
    };
    poll(&mut entries, Some(&patience)).unwrap();
    entries[0].revents()
}

#[test]
fn a_sleeping_poller_is_woken_by_another_process() {
    let place = Place::new();
    let queue = place.create("/q", 1, SIZE as u32);
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
    let place = Place::new();
    let queue = place.create("/q", 4, SIZE as u32);
    umsg::posix::unlink_in(&place.namespace, "/q").unwrap();
    // The child has no doorbell yet.
    let mut child = Child::run(|| {
        std::thread::sleep(Duration::from_millis(20));
        queue.send(b"m", 0).unwrap();
        0
    });
    assert_eq!(
        poll_for(queue.pollable().unwrap(), PollFlags::IN),
        PollFlags::IN
    );
    child.expect(Exit::Code(0), "a sender");
    queue.try_receive(&mut [0; SIZE]).unwrap();
    // This one inherits it.
    let mut child = Child::run(|| {
        std::thread::sleep(Duration::from_millis(20));
        queue.send(b"m", 0).unwrap();
        0
    });
    assert_eq!(
        poll_for(queue.pollable().unwrap(), PollFlags::IN),
        PollFlags::IN
    );
    child.expect(Exit::Code(0), "a sender");
}

/// The doorbells in a namespace.
fn bells(place: &Path) -> usize {
    let files = std::fs::read_dir(place).unwrap();
    let names = files.map(|file| file.unwrap().file_name().into_string().unwrap());
    names.filter(|name| name.starts_with(".bell-")).count()
}

fn send_and_receive(queue: &Queue, times: usize) {
    for _ in 0..times {
        queue.try_send(b"x", 0).unwrap();
        queue.try_receive(&mut [0; SIZE]).unwrap();
    }
}

#[test]
fn a_killed_poller_is_forgotten_after_some_hundred_operations() {
    let place = Place::new();
    let queue = place.create("/q", 4, SIZE as u32);
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
    assert_eq!(bells(place.path()), 1, "it is polled");
    child.kill();
    send_and_receive(&queue, 1000);
    assert_eq!(bells(place.path()), 0, "nobody polls it");
    // It can be polled anew.
    let descriptor = queue.pollable().unwrap();
    place.open("/q").send(b"m", 0).unwrap();
    assert_eq!(
        polled(descriptor),
        PollFlags::IN | PollFlags::RDNORM | PollFlags::OUT | PollFlags::WRNORM
    );
}

#[test]
fn a_killed_poller_is_forgotten_by_processes_that_send_one_message_each() {
    let place = Place::new();
    let queue = place.create("/q", 4, SIZE as u32);
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
    assert_eq!(bells(place.path()), 0, "nobody polls it");
    queue.try_receive(&mut [0; SIZE]).unwrap();
}

#[test]
fn a_queue_that_is_closed_takes_its_doorbell_along_unless_others_poll() {
    let place = Place::new();
    let one = place.create("/q", 4, SIZE as u32);
    let two = place.open("/q");
    one.pollable().unwrap();
    let kept = two.pollable().unwrap().try_clone_to_owned().unwrap();
    assert_eq!(bells(place.path()), 1);
    drop(one);
    drop(two);
    assert_eq!(
        bells(place.path()),
        1,
        "somebody has a copy of the descriptor"
    );
    let queue = place.open("/q");
    queue.send(b"m", 0).unwrap();
    assert!(polled(kept.as_fd()).contains(PollFlags::IN));
    drop(kept);
    send_and_receive(&queue, 1000);
    assert_eq!(bells(place.path()), 0);
}

#[test]
fn a_message_for_a_blocked_receiver_is_never_shown() {
    let place = Place::new();
    let queue = place.create("/q", 4, SIZE as u32);
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
    let place = Place::new();
    let queue = place.create("/q", 4, SIZE as u32);
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
fn a_stranger_who_fills_or_empties_the_fifo_stops_nobody() {
    let place = Place::new();
    let queue = place.create("/q", 2, SIZE as u32);
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
    // From the next change on it is right again.
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
    let place = Place::new();
    let queue = place.create("/q", 4, SIZE as u32);
    let poller = place.open("/q");
    let descriptor = poller.pollable().unwrap();
    let before = descriptors();
    send_and_receive(&queue, 1);
    let ours: Vec<i32> = descriptors()
        .into_iter()
        .filter(|fd| !before.contains(fd))
        .collect();
    assert_eq!(ours.len(), 1, "the sender's end");
    let file = tempfile::tempfile().unwrap();
    // SAFETY: what a program does that closes what it does not know, and then opens files.
    unsafe { libc::dup2(std::os::fd::AsRawFd::as_raw_fd(&file), ours[0]) };
    std::thread::sleep(Duration::from_millis(20));
    send_and_receive(&queue, 10);
    queue.send(b"m", 0).unwrap();
    assert!(polled(descriptor).contains(PollFlags::IN));
    assert_eq!(file.metadata().unwrap().len(), 0);
    // SAFETY: our own duplicate, which the queue has let go.
    drop(unsafe { OwnedFd::from_raw_fd(ours[0]) });
    let _ = file.into_raw_fd();
}

#[test]
fn what_a_sender_without_a_descriptor_could_not_show_the_next_one_does() {
    let place = Place::new();
    let queue = place.create("/q", 4, 8);
    let bell = queue.pollable().unwrap();
    let mut blind = Child::run(|| {
        let queue = place.open("/q");
        limit_descriptors(0);
        queue.send(b"1", 0).unwrap();
        0
    });
    blind.expect(Exit::Code(0), "who can't open the doorbell");
    assert!(queue.readiness().readable);
    assert!(!polled(bell).contains(PollFlags::IN), "it was not shown");
    place.open("/q").send(b"2", 0).unwrap();
    assert!(polled(bell).contains(PollFlags::IN | PollFlags::OUT));
}

#[test]
fn what_the_program_closed_that_it_polled_is_not_rung_in_another_file() {
    let place = Place::new();
    let queue = place.create("/q", 4, SIZE as u32);
    let number = std::os::fd::AsRawFd::as_raw_fd(&queue.pollable().unwrap());
    send_and_receive(&queue, 1);
    let file = tempfile::tempfile().unwrap();
    // SAFETY: what a program does that closes what it does not know, and then opens files.
    unsafe { libc::dup2(std::os::fd::AsRawFd::as_raw_fd(&file), number) };
    std::thread::sleep(Duration::from_millis(20));
    send_and_receive(&queue, 10);
    assert_eq!(file.metadata().unwrap().len(), 0);
    // Who asks again gets another.
    let descriptor = queue.pollable().unwrap();
    assert_ne!(std::os::fd::AsRawFd::as_raw_fd(&descriptor), number);
    queue.send(b"m", 0).unwrap();
    assert!(polled(descriptor).contains(PollFlags::IN));
    drop(queue);
    // SAFETY: our own duplicate, which the queue has let go.
    let duplicate = unsafe { OwnedFd::from_raw_fd(number) };
    rustix::io::fcntl_getfd(&duplicate).expect("the program's, and still open");
}

fn descriptors() -> Vec<i32> {
    let files = std::fs::read_dir("/proc/self/fd").unwrap();
    let mut numbers: Vec<i32> = files
        .filter_map(|file| {
            let file = file.unwrap();
            let leads_to = std::fs::read_link(file.path()).ok()?;
            let is_bell = leads_to.to_string_lossy().contains(".bell-");
            is_bell.then(|| file.file_name().to_str().unwrap().parse().unwrap())
        })
        .collect();
    numbers.sort_unstable();
    numbers
}

/// Descriptors of high numbers that lead there, and are the library's.
fn spares() -> Vec<i32> {
    let files = std::fs::read_dir("/proc/self/fd").unwrap();
    let numbers = files.filter_map(|file| {
        let file = file.unwrap();
        let leads_to = std::fs::read_link(file.path()).ok()?;
        let leads_to = leads_to.to_string_lossy();
        let is_spare = leads_to == "/dev/null" || leads_to.starts_with("pipe:");
        let number = file.file_name().to_str().unwrap().parse().unwrap();
        (is_spare && umsg::own::is(number)).then_some(number)
    });
    numbers.collect()
}

#[test]
fn a_program_that_closed_what_packets_come_from_and_go_to_is_told_all_the_same() {
    let place = Place::new();
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
            // SAFETY: what a program does that closes what it does not know, and then opens files.
            unsafe { libc::dup2(std::os::fd::AsRawFd::as_raw_fd(&file), *number) };
        }
        std::thread::sleep(Duration::from_millis(20));
        told_of_each();
        assert_eq!(file.metadata().unwrap().len(), 0);
        0
    });
    child.expect(Exit::Code(0), "who polls");
}

#[test]
fn a_system_v_queue_shows_messages_and_bytes_of_room() {
    let place = Place::new();
    let queue = place.create_typed(0x7507);
    let other = place.open_typed(0x7507);
    let descriptor = queue.pollable_with(Edges::All).unwrap();
    let both = EventFlags::IN | EventFlags::OUT;
    let set = Epoll::new(descriptor, both | EventFlags::ET);
    let shows = |readable, writable, told| {
        let expected = Readiness { readable, writable };
        assert_eq!(readiness_of(polled(descriptor)), expected);
        assert_eq!((other.readiness(), set.told()), (expected, told));
    };
    shows(false, true, Some(EventFlags::OUT));
    other.send(1, &[0; 100]).unwrap();
    shows(true, true, Some(both));
    let room = other.status().unwrap().entry.qbytes as usize - 100;
    let long = vec![0; room / 2];
    other.send(2, &long).unwrap();
    shows(true, true, Some(both));
    other.send(2, &long).unwrap();
    shows(true, false, Some(EventFlags::IN));
    let lease = queue.lease(Want::Exactly(2)).unwrap();
    shows(true, false, Some(EventFlags::IN));
    lease.acknowledge().unwrap();
    shows(true, true, Some(both));
    let mut buffer = vec![0; room];
    queue.receive(Want::Any, &mut buffer).unwrap();
    shows(true, true, Some(both));
    queue.receive(Want::Any, &mut buffer).unwrap();
    shows(false, true, Some(EventFlags::OUT));
}

#[test]
fn who_polls_a_system_v_queue_learns_that_it_was_removed() {
    let place = Place::new();
    let queue = place.create_typed(0x7507);
    let set = Epoll::new(
        queue.pollable().unwrap(),
        EventFlags::IN | EventFlags::OUT | EventFlags::ET,
    );
    assert_eq!(set.told(), Some(EventFlags::OUT));
    place.open_typed(0x7507).remove().unwrap();
    assert_eq!(set.told(), Some(EventFlags::IN | EventFlags::OUT));
    let error = queue.try_receive(Want::Any, &mut []).unwrap_err();
    assert_eq!(error, umsg::sysv::ReceiveError::Removed);
    assert_eq!(bells(place.path()), 1);
    drop(queue);
    assert_eq!(bells(place.path()), 0);
}

#[test]
fn a_killed_poller_of_a_system_v_queue_is_forgotten() {
    let place = Place::new();
    let queue = place.create_typed(0x7507);
    let mut child = Child::run(|| {
        std::mem::forget(
            place
                .open_typed(0x7507)
                .pollable()
                .unwrap()
                .try_clone_to_owned(),
        );
        0
    });
    child.expect(Exit::Code(0), "a poller");
    assert!(bells(place.path()) <= 1);
    for _ in 0..1000 {
        queue.send(1, b"m").unwrap();
        queue.receive(Want::Any, &mut [0; 8]).unwrap();
    }
    assert_eq!(bells(place.path()), 0);
}

#[test]
fn a_sleeping_poller_of_a_system_v_queue_is_woken_by_another_process() {
    let place = Place::new();
    let queue = place.create_typed(0x7507);
    let descriptor = queue.pollable().unwrap();
    for _ in 0..20 {
        let mut child = Child::run(|| {
            std::thread::sleep(Duration::from_millis(5));
            place.open_typed(0x7507).send(3, b"m").unwrap();
            0
        });
        assert_eq!(poll_for(descriptor, PollFlags::IN), PollFlags::IN);
        queue.try_receive(Want::Exactly(3), &mut [0; 8]).unwrap();
        child.expect(Exit::Code(0), "a sender");
    }
}

/// A namespace of all users, gone when dropped.
struct Everybodys(tempfile::TempDir);

impl Everybodys {
    fn new() -> Everybodys {
        use std::os::unix::fs::PermissionsExt as _;
        let dir = tempfile::tempdir_in("/dev/shm").unwrap();
        let everybody = std::fs::Permissions::from_mode(0o1777);
        std::fs::set_permissions(dir.path(), everybody).unwrap();
        Namespace::at(dir.path()).unwrap();
        Everybodys(dir)
    }

    fn open(&self, mode: u32) -> Queue {
        let namespace = Namespace::at(self.0.path()).unwrap();
        let mut options = umsg::posix::OpenOptions::new();
        options.read(true).write(true).create(true).mode(mode);
        options.max_messages(4).message_size(8);
        options.namespace(&namespace).open("/q").unwrap()
    }
}

/// A child that is another user, without groups.
fn as_user(user: u32, work: impl FnOnce() -> i32) -> Child {
    Child::run(|| {
        // SAFETY: settings of this process, which has one thread that counts.
        unsafe {
            assert_eq!(libc::setgroups(0, std::ptr::null()), 0);
            assert_eq!(libc::setgid(user), 0);
            assert_eq!(libc::setuid(user), 0);
            libc::umask(0);
        }
        work()
    })
}

#[test]
fn the_owner_of_a_queue_that_another_user_polls_can_ring() {
    const OWNER: u32 = 4242;
    const POLLER: u32 = 4243;
    if !rustix::process::geteuid().is_root() {
        return eprintln!("left out: takes root");
    }
    for (mode, poller) in [(0o600, 0), (0o660, 0), (0o666, POLLER), (0o606, POLLER)] {
        let place = Everybodys::new();
        let mut maker = as_user(OWNER, || {
            place.open(mode);
            0
        });
        maker.expect(Exit::Code(0), "the owner");
        let (ready, says_ready) = rustix::pipe::pipe().unwrap();
        let mut poller = as_user(poller, || {
            let queue = place.open(mode);
            let descriptor = match queue.pollable() {
                Ok(descriptor) => descriptor,
                // No access control lists here.
                Err(error) if error.raw_os_error() == Some(libc::EOPNOTSUPP) => return 1,
                Err(error) => panic!("{error}"),
            };
            rustix::io::write(&says_ready, b".").unwrap();
            assert_eq!(poll_for(descriptor, PollFlags::IN), PollFlags::IN);
            0
        });
        drop(says_ready);
        if rustix::io::read(&ready, &mut [0; 1]) != Ok(1) {
            poller.expect(Exit::Code(1), "a poller");
            eprintln!("left out: no access control lists");
            continue;
        }
        let mut owner = as_user(OWNER, || {
            place.open(mode).try_send(b"m", 0).unwrap();
            0
        });
        owner.expect(Exit::Code(0), "the owner");
        poller.expect(Exit::Code(0), "who polls");
    }
}
