//! Doorbells between users: pollers learn of calls by other users, and strangers interfere with FIFOs. The tests need root.

mod support;

use rustix::event::PollFlags;
use rustix::event::epoll::EventFlags;
use rustix::fs::{CWD, Mode, inotify, mkfifoat};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::PathBuf;
use std::time::Duration;
use support::child::Exit;
use support::events::{Epoll, poll_for, polled, readiness_of};
use support::users::{self, start_as};
use umsg::posix::Queue;
use umsg::{Edges, Namespace};

const OWNER: u32 = 4242;
const POLLER: u32 = 4243;
const STRANGER: u32 = 4244;

/// The offsets of words of a POSIX queue's segment, such as `attention`: docs/format.md, section 2.
const ATTENTION: u64 = 128;
const WATCHED: u64 = 884;
const NUMBER: u64 = 1000;

/// A namespace of all users, removed when dropped.
struct Everybodys(users::Everybodys);

impl Everybodys {
    /// Returns None if the test does not run as root.
    fn new() -> Option<Everybodys> {
        users::Everybodys::new().map(Everybodys)
    }

    fn namespace(&self) -> Namespace {
        self.0.namespace.clone()
    }

    /// Opens the queue, or makes it, with this mode and room for two messages.
    fn open(&self, name: &str, mode: u32) -> Queue {
        let mut options = umsg::posix::OpenOptions::new();
        options.read(true).write(true).create(true).mode(mode);
        options.max_messages(2).message_size(8);
        options.namespace(&self.namespace()).open(name).unwrap()
    }

    fn make(&self, user: u32, name: &str, mode: u32) {
        let mut maker = start_as(user, || {
            self.open(name, mode);
            0
        });
        maker.expect(Exit::Code(0), "the owner");
    }

    fn file(&self, name: &str) -> PathBuf {
        self.0.file(&format!("/{name}"))
    }

    fn bell(&self, name: &str, number: u64) -> PathBuf {
        let inode = std::fs::metadata(self.file(name)).unwrap().ino();
        let bells = self.0.path().join("bell");
        bells.join(format!("{inode:016x}-{number:016x}"))
    }

    /// Writes into a queue's segment that processes poll the queue by the doorbell of this number.
    fn forge(&self, name: &str, number: u64) {
        let file = std::fs::File::options()
            .write(true)
            .open(self.file(name))
            .unwrap();
        file.write_all_at(&number.to_ne_bytes(), NUMBER).unwrap();
        file.write_all_at(&1_u32.to_ne_bytes(), WATCHED).unwrap();
        file.write_all_at(&4_u32.to_ne_bytes(), ATTENTION).unwrap();
    }
}

/// A pipe, by which one process signals another.
struct Signs(rustix::fd::OwnedFd, rustix::fd::OwnedFd);

impl Signs {
    fn new() -> Signs {
        let (read, write) = rustix::pipe::pipe().unwrap();
        Signs(read, write)
    }

    fn give(&self) {
        rustix::io::write(&self.1, b".").unwrap();
    }

    fn await_one(&self) {
        use std::os::fd::AsFd;
        assert_eq!(poll_for(self.0.as_fd(), PollFlags::IN), PollFlags::IN);
        rustix::io::read(&self.0, &mut [0; 1]).unwrap();
    }
}

/// Sends a message each time that the other process is ready.
fn send_in_steps(queue: &Queue, times: u32, ready: &Signs, sent: &Signs) -> i32 {
    for _ in 0..times {
        ready.await_one();
        queue.try_send(b"m", 0).unwrap();
        sent.give();
    }
    0
}

#[test]
fn a_poller_is_notified_of_what_another_user_sends() {
    let users = [(0o600, 0, OWNER), (0o660, 0, OWNER), (0o666, POLLER, OWNER)];
    let more = [
        (0o606, POLLER, OWNER),
        (0o666, OWNER, POLLER),
        (0o666, OWNER, 0),
    ];
    for (mode, poller, sender) in users.into_iter().chain(more) {
        let Some(place) = Everybodys::new() else {
            return;
        };
        place.make(OWNER, "/q", mode);
        let (ready, again) = (Signs::new(), Signs::new());
        let mut poller = start_as(poller, || {
            let queue = place.open("/q", mode);
            let descriptor = queue.pollable().unwrap();
            for _ in 0..3 {
                ready.give();
                assert_eq!(poll_for(descriptor, PollFlags::IN), PollFlags::IN);
                again.await_one();
                queue.try_receive(&mut [0; 8]).unwrap();
                assert!(queue.try_receive(&mut [0; 8]).is_err());
            }
            0
        });
        let mut sender = start_as(sender, || {
            send_in_steps(&place.open("/q", mode), 3, &ready, &again)
        });
        sender.expect(Exit::Code(0), "the sender");
        poller.expect(Exit::Code(0), "the poller");
    }
}

/// A sender of another user dies between calling the poller's helper and waking it, before its message is sent. The poller still learns of
/// the next message: the helper checks at the end of its slice.
#[cfg(feature = "crash-points")]
fn dies_calling(poll: impl FnOnce(&dyn Fn()) -> i32, send: impl Fn()) {
    let ready = Signs::new();
    let mut poller = start_as(OWNER, || poll(&|| ready.give()));
    let mut sender = start_as(STRANGER, || {
        ready.await_one();
        send();
        // The helper is running, because the poller was woken.
        ready.await_one();
        umsg_shm::crash::arm("BELL_CALLED", 1);
        send();
        1
    });
    sender.expect(Exit::Signal(libc::SIGKILL), "the sender");
    send();
    poller.expect(Exit::Code(0), "the poller");
}

#[cfg(feature = "crash-points")]
#[test]
fn a_poller_is_notified_though_a_sender_of_another_user_died_before_it_woke_the_helper() {
    let Some(place) = Everybodys::new() else {
        return;
    };
    place.make(OWNER, "/q", 0o666);
    let poll = |ready: &dyn Fn()| {
        let queue = place.open("/q", 0o666);
        let descriptor = queue.pollable().unwrap();
        for _ in 0..2 {
            ready();
            assert_eq!(poll_for(descriptor, PollFlags::IN), PollFlags::IN);
            queue.receive(&mut [0; 8]).unwrap();
        }
        0
    };
    dies_calling(poll, || {
        place.open("/q", 0o666).try_send(b"m", 0).unwrap();
    });
}

#[cfg(feature = "crash-points")]
#[test]
fn a_poller_of_a_system_v_queue_is_notified_though_a_sender_died_before_it_woke_the_helper() {
    let Some(place) = Everybodys::new() else {
        return;
    };
    let open = || {
        let mut options = umsg::sysv::OpenOptions::new();
        options.create(true).mode(0o666);
        options.namespace(&place.namespace()).open(7).unwrap()
    };
    let poll = |ready: &dyn Fn()| {
        let queue = open();
        let descriptor = queue.pollable().unwrap();
        for _ in 0..2 {
            ready();
            assert_eq!(poll_for(descriptor, PollFlags::IN), PollFlags::IN);
            queue.receive(umsg::sysv::Want::Any, &mut [0; 8]).unwrap();
        }
        0
    };
    dies_calling(poll, || {
        open().try_send(1, b"m").unwrap();
    });
}

#[test]
fn a_poller_is_shown_at_once_what_it_does_itself_though_the_doorbell_is_another_users() {
    let Some(place) = Everybodys::new() else {
        return;
    };
    place.make(OWNER, "/q", 0o666);
    let (ready, done) = (Signs::new(), Signs::new());
    let mut first = start_as(OWNER, || {
        let queue = place.open("/q", 0o666);
        queue.pollable().unwrap();
        ready.give();
        done.await_one();
        0
    });
    ready.await_one();
    let mut second = start_as(POLLER, || {
        let queue = place.open("/q", 0o666);
        let descriptor = queue.pollable().unwrap();
        for _ in 0..100 {
            assert_eq!(readiness_of(polled(descriptor)), queue.readiness());
            queue.try_send(b"1", 0).unwrap();
            assert_eq!(readiness_of(polled(descriptor)), queue.readiness());
            queue.try_send(b"2", 0).unwrap();
            assert!(!readiness_of(polled(descriptor)).writable);
            queue.try_receive(&mut [0; 8]).unwrap();
            queue.try_receive(&mut [0; 8]).unwrap();
            assert!(!readiness_of(polled(descriptor)).readable);
        }
        0
    });
    second.expect(Exit::Code(0), "the second poller");
    done.give();
    first.expect(Exit::Code(0), "the first poller");
}

#[test]
fn a_poller_learns_of_room_that_another_user_makes_while_all_messages_are_leased() {
    for (mode, poller, other) in [
        (0o600, 0, OWNER),
        (0o666, POLLER, OWNER),
        (0o666, OWNER, POLLER),
    ] {
        let Some(place) = Everybodys::new() else {
            return;
        };
        place.make(OWNER, "/q", mode);
        let (polls, held, in_vain) = (Signs::new(), Signs::new(), Signs::new());
        // The doorbell belongs to the owner.
        let owners = start_as(OWNER, || {
            let queue = place.open("/q", mode);
            queue.pollable().unwrap();
            polls.give();
            loop {
                std::thread::park();
            }
        });
        polls.await_one();
        let mut poller = start_as(poller, || {
            let queue = place.open("/q", mode);
            let set = Epoll::new(queue.pollable().unwrap(), EventFlags::OUT | EventFlags::ET);
            polls.give();
            for _ in 0..3 {
                held.await_one();
                // The helper may report late: the loop waits until no further event comes.
                while set.told_within(Duration::from_millis(50)).is_some() {}
                assert!(queue.try_send(b"x", 0).is_err());
                in_vain.give();
                while queue.try_send(b"x", 0).is_err() {
                    let told = set.told_within(Duration::from_secs(10));
                    assert_eq!(told, Some(EventFlags::OUT));
                }
            }
            0
        });
        polls.await_one();
        let mut other = start_as(other, || {
            let queue = place.open("/q", mode);
            queue.try_send(b"m", 0).unwrap();
            let _first = queue.try_receive_lease().unwrap();
            for step in 0..3 {
                if step == 0 {
                    queue.try_send(b"m", 0).unwrap();
                }
                let lease = queue.receive_lease().unwrap();
                held.give();
                in_vain.await_one();
                lease.acknowledge().unwrap();
            }
            0
        });
        other.expect(Exit::Code(0), "the other user");
        poller.expect(Exit::Code(0), "the poller");
        drop(owners);
    }
}

#[test]
fn pollers_of_several_users_are_all_notified_of_messages_and_of_room() {
    let Some(place) = Everybodys::new() else {
        return;
    };
    place.make(OWNER, "/q", 0o666);
    let (ready, told, room) = (Signs::new(), Signs::new(), Signs::new());
    let mut pollers = [OWNER, POLLER, POLLER, 0].map(|user| {
        let (place, ready, told, room) = (&place, &ready, &told, &room);
        start_as(user, move || {
            let queue = place.open("/q", 0o666);
            let descriptor = queue.pollable().unwrap();
            ready.give();
            assert_eq!(poll_for(descriptor, PollFlags::IN), PollFlags::IN);
            told.give();
            // Polls until the queue is full, and then until it has room.
            while poll_for(descriptor, PollFlags::OUT | PollFlags::IN) != PollFlags::IN {
                std::thread::sleep(Duration::from_millis(1));
            }
            told.give();
            assert_eq!(poll_for(descriptor, PollFlags::OUT), PollFlags::OUT);
            room.give();
            0
        })
    });
    (0..4).for_each(|_| ready.await_one());
    let mut user = start_as(STRANGER, || {
        let queue = place.open("/q", 0o666);
        queue.try_send(b"1", 0).unwrap();
        (0..4).for_each(|_| told.await_one());
        queue.try_send(b"2", 0).unwrap();
        (0..4).for_each(|_| told.await_one());
        queue.try_receive(&mut [0; 8]).unwrap();
        (0..4).for_each(|_| room.await_one());
        0
    });
    user.expect(Exit::Code(0), "the user of the queue");
    for poller in &mut pollers {
        poller.expect(Exit::Code(0), "the poller");
    }
}

#[test]
fn a_poller_of_every_edge_gets_each_message_of_another_user() {
    let Some(place) = Everybodys::new() else {
        return;
    };
    place.make(OWNER, "/q", 0o666);
    for poller in [OWNER, POLLER] {
        let (ready, sent) = (Signs::new(), Signs::new());
        let mut poller = start_as(poller, || {
            let queue = place.open("/q", 0o666);
            let descriptor = queue.pollable_with(Edges::Messages).unwrap();
            let set = Epoll::new(descriptor, EventFlags::IN | EventFlags::ET);
            for _ in 0..2 {
                ready.give();
                sent.await_one();
                let mut tries = 0;
                while set.told() != Some(EventFlags::IN) {
                    tries += 1;
                    assert!(tries < 10_000, "it is not told");
                    std::thread::sleep(Duration::from_millis(1));
                }
            }
            0
        });
        let mut sender = start_as(STRANGER, || {
            send_in_steps(&place.open("/q", 0o666), 2, &ready, &sent)
        });
        poller.expect(Exit::Code(0), "the poller");
        sender.expect(Exit::Code(0), "the sender");
        let queue = place.open("/q", 0o666);
        while queue.try_receive(&mut [0; 8]).is_ok() {}
    }
}

#[test]
fn a_watch_of_dead_pollers_ends_when_another_user_comes_by() {
    let Some(place) = Everybodys::new() else {
        return;
    };
    place.make(OWNER, "/q", 0o666);
    for poller in [OWNER, POLLER] {
        let ready = Signs::new();
        let mut poller = start_as(poller, || {
            let queue = place.open("/q", 0o666);
            queue.pollable_with(Edges::All).unwrap();
            ready.give();
            std::thread::sleep(Duration::from_secs(60));
            0
        });
        ready.await_one();
        poller.kill();
        let mut user = start_as(STRANGER, || {
            let queue = place.open("/q", 0o666);
            for _ in 0..3 {
                queue.try_send(b"m", 0).unwrap();
                queue.try_receive(&mut [0; 8]).unwrap();
            }
            0
        });
        user.expect(Exit::Code(0), "the user of the queue");
        let bytes = std::fs::read(place.file("q")).unwrap();
        let at = WATCHED as usize;
        assert_eq!(bytes[at..at + 4], [0; 4]);
    }
}

#[test]
fn no_process_opens_a_fifo_of_another_user() {
    let Some(place) = Everybodys::new() else {
        return;
    };
    place.make(OWNER, "/q", 0o666);
    let planted = place.bell("q", 1);
    let mut stranger = start_as(STRANGER, || {
        mkfifoat(CWD, &planted, Mode::from_raw_mode(0o666)).unwrap();
        place.forge("q", 1);
        0
    });
    stranger.expect(Exit::Code(0), "the stranger");
    let watch = inotify::init(inotify::CreateFlags::NONBLOCK).unwrap();
    let opened = inotify::WatchFlags::OPEN;
    inotify::add_watch(&watch, &planted, opened).unwrap();
    for user in [OWNER, POLLER, 0] {
        let mut user = start_as(user, || {
            let queue = place.open("/q", 0o666);
            let other = place.open("/q", 0o666);
            other.try_send(b"1", 0).unwrap();
            other.try_receive(&mut [0; 8]).unwrap();
            let descriptor = queue.pollable().unwrap();
            other.try_send(b"2", 0).unwrap();
            assert_eq!(poll_for(descriptor, PollFlags::IN), PollFlags::IN);
            queue.try_receive(&mut [0; 8]).unwrap();
            place.namespace().stale_files().unwrap();
            place.namespace().sweep().unwrap();
            0
        });
        user.expect(Exit::Code(0), "a user");
        place.forge("q", 1);
    }
    let events = rustix::io::read(&watch, &mut [0; 256]);
    assert_eq!(events, Err(rustix::io::Errno::AGAIN), "a process opened it");
    assert!(planted.exists());
}

#[test]
fn a_segment_that_names_the_doorbell_of_another_queue_rings_no_poller() {
    let Some(place) = Everybodys::new() else {
        return;
    };
    place.make(OWNER, "/private", 0o600);
    place.make(OWNER, "/public", 0o666);
    let mut owner = start_as(OWNER, || {
        let private = place.open("/private", 0o600);
        let descriptor = private.pollable_with(Edges::All).unwrap();
        let set = Epoll::new(
            descriptor,
            EventFlags::IN | EventFlags::OUT | EventFlags::ET,
        );
        set.told().unwrap();
        let bytes = std::fs::read(place.file("private")).unwrap();
        let at = NUMBER as usize;
        let number = u64::from_ne_bytes(bytes[at..at + 8].try_into().unwrap());
        assert!(place.bell("private", number).exists());
        let public = place.open("/public", 0o666);
        for _ in 0..100 {
            place.forge("public", number);
            public.try_send(b"m", 0).unwrap();
            place.forge("public", number);
            public.try_receive(&mut [0; 8]).unwrap();
            assert_eq!(set.told(), None);
        }
        let bell = place.bell("private", number);
        assert_eq!(std::fs::metadata(bell).unwrap().mode() & 0o777, 0o600);
        0
    });
    owner.expect(Exit::Code(0), "the owner");
}
