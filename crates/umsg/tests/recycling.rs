//! Queues that a process creates in the segments of queues that it has removed, as the drop-in does. The new queues contain no data of the removed
//! queues. Every other process sees either a removed queue or a whole queue. A killed process leaves nothing that prevents later calls.

mod support;

use std::ffi::OsStr;
use std::io::Read;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::time::{Duration, Instant};
use support::child::{Child, Exit};
use support::place::Place;
use support::scarce::{in_child, leave_descriptors};
use support::shared::Shared;
use umsg::posix::{self, FileState, KnownFile, OpenError, Queue, ReceiveError, UnlinkError};
use umsg::{Limits, Namespace};
use umsg_shm::crash;

/// The limit on every wait: no step of these tests takes as long.
const STUCK: Duration = Duration::from_secs(20);
const MESSAGES: u32 = 5;
const SIZE: u32 = 64;
const NAME: &str = "/q";

/// A place whose record of limits was not changed for some ticks of the clock. The library does not read such a record again.
fn settled() -> Place {
    let place = Place::in_turn();
    settle();
    place
}

fn settle() {
    std::thread::sleep(std::time::Duration::from_millis(40));
}

/// A queue that its creator may vacate.
struct Own {
    queue: Queue,
    state: FileState,
}

fn options(place: &Place) -> posix::OpenOptions {
    let mut options = place.options(MESSAGES, SIZE);
    options.exclusive(true).recyclable(true);
    options
}

impl Own {
    fn create(place: &Place) -> Own {
        let made = options(place).open_with_descriptor(NAME, false);
        let (queue, descriptor) = made.unwrap();
        let state = FileState::of(&queue, &descriptor).unwrap();
        Own { queue, state }
    }

    /// A queue of which only the segment is left.
    fn vacant(place: &Place) -> Own {
        let own = Own::create(place);
        assert!(own.queue.is_sole() && own.vacate(place));
        own
    }

    fn vacate(&self, place: &Place) -> bool {
        self.queue
            .vacate(&place.namespace, OsStr::new("q"), self.state)
    }

    fn revive_as(&self, place: &Place, options: &posix::OpenOptions) -> Option<OwnedFd> {
        let file = KnownFile::open(&place.namespace, OsStr::new("q"), true, true, false).ok()?;
        options.revive(&place.namespace, file, &self.queue, self.state)
    }

    fn revive(&self, place: &Place) -> Option<OwnedFd> {
        self.revive_as(place, &options(place))
    }
}

/// Fails unless a queue is empty and works up to its limits.
fn expect_new(queue: &Queue) {
    assert_eq!(
        queue.try_receive(&mut [0; SIZE as usize]),
        Err(ReceiveError::Empty)
    );
    for round in 0..50 {
        for message in 0..MESSAGES {
            queue.try_send(&[round; 9], message * 100).unwrap();
        }
        assert!(queue.try_send(b"", 0).is_err());
        for message in (0..MESSAGES).rev() {
            let received = queue.receive_vec().unwrap();
            assert_eq!(
                (&received.data[..], received.priority),
                (&[round; 9][..], message * 100)
            );
        }
    }
}

/// Fails if a process finds a queue of the name.
fn expect_none(place: &Place, what: &str) {
    let namespace = &place.namespace;
    assert!(posix::list(namespace).unwrap().is_empty(), "{what}");
    let opened = place.options(MESSAGES, SIZE).create(false).open(NAME);
    assert!(matches!(opened, Err(OpenError::NotFound)), "{what}");
    let unlinked = posix::unlink_in(namespace, NAME);
    assert!(matches!(unlinked, Err(UnlinkError::NotFound)), "{what}");
    let inspected = posix::diagnose(namespace, NAME);
    assert!(matches!(inspected, Err(OpenError::NotFound)), "{what}");
    let repaired = posix::repair(namespace, NAME);
    assert!(matches!(repaired, Err(OpenError::NotFound)), "{what}");
}

#[test]
fn each_queue_of_a_segment_is_new() {
    let place = settled();
    let own = Own::create(&place);
    for _ in 0..20 {
        expect_new(&own.queue);
        own.queue.try_send(b"left in the queue", 7).unwrap();
        assert!(own.vacate(&place));
        expect_none(&place, "vacant");
        drop(own.revive(&place).unwrap());
        assert_eq!(own.queue.attributes().messages, 0);
    }
    // After the open of a second handle, the creator can't keep the segment for another queue.
    let again = place.open(NAME);
    assert_eq!(again.identity(), own.queue.identity());
    expect_new(&again);
    assert!(!own.queue.is_sole() && !own.vacate(&place));
    posix::unlink_in(&place.namespace, NAME).unwrap();
    expect_none(&place, "unlinked");
}

#[test]
fn a_vacant_segment_has_the_memory_of_a_new_one_and_nothing_of_the_removed_queue() {
    let place = settled();
    let path = place.path().join("mq/q");
    let own = Own::create(&place);
    for _ in 0..MESSAGES {
        own.queue.try_send(&[0xA5; SIZE as usize], 9).unwrap();
    }
    own.queue.receive_vec().unwrap();
    assert!(own.vacate(&place));
    let mut bytes = Vec::new();
    let mut file = std::fs::File::open(&path).unwrap();
    file.read_to_end(&mut bytes).unwrap();
    // Only the header keeps its contents.
    assert!(bytes[128..].iter().all(|byte| *byte == 0));
    assert_eq!(file.metadata().unwrap().blocks() * 512, 36 << 10);
    drop(own.revive(&place).unwrap());
    for priority in [0, 9, 5000, 32_767] {
        own.queue.try_send(b"", priority).unwrap();
    }
    own.queue.receive_vec().unwrap();
    assert!(!own.vacate(&place), "more memory than a new queue has");
}

#[test]
fn a_queue_that_another_handle_has_opened_is_removed_by_its_name() {
    let place = settled();
    let own = Own::create(&place);
    let other = place.open(NAME);
    assert!(!own.queue.is_sole() && !own.vacate(&place));
    posix::unlink_in(&place.namespace, NAME).unwrap();
    own.queue.try_send(b"old", 0).unwrap();
    let next = Own::create(&place);
    assert_ne!(next.queue.identity(), own.queue.identity());
    assert_eq!(other.receive_vec().unwrap().data, b"old");
    expect_new(&next.queue);
}

#[test]
fn the_removal_by_another_process_is_the_only_one() {
    let place = settled();
    let own = Own::create(&place);
    posix::unlink_in(&place.namespace, NAME).unwrap();
    assert!(!own.vacate(&place));
    expect_none(&place, "unlinked");
    assert!(own.revive(&place).is_none());
}

#[test]
fn a_process_that_wants_the_name_of_a_vacant_segment_takes_it() {
    let place = settled();
    for transient in [false, true] {
        let own = Own::vacant(&place);
        let mut theirs = place.options(MESSAGES + 1, SIZE);
        let theirs = theirs
            .exclusive(true)
            .remove_on_last_close(transient)
            .open(NAME)
            .unwrap();
        assert_ne!(theirs.identity(), own.queue.identity());
        assert!(own.revive(&place).is_none());
        theirs.try_send(b"theirs", 0).unwrap();
        assert_eq!(
            place.open(NAME).receive_vec().unwrap().data,
            b"theirs",
            "{transient}"
        );
        posix::unlink_in(&place.namespace, NAME).unwrap();
        drop(theirs);
        let files = std::fs::read_dir(place.path().join("mq")).unwrap();
        assert_eq!(files.count(), 0);
    }
}

#[test]
fn a_queue_of_other_attributes_gets_a_file_of_its_own() {
    let place = settled();
    let own = Own::vacant(&place);
    let refused = |change: &dyn Fn(&mut posix::OpenOptions)| {
        let mut options = options(&place);
        change(&mut options);
        assert!(own.revive_as(&place, &options).is_none());
    };
    refused(&|options| {
        options.max_messages(MESSAGES + 1);
    });
    refused(&|options| {
        options.message_size(SIZE + 1);
    });
    refused(&|options| {
        options.mode(0o640);
    });
    refused(&|options| {
        options.time_to_live(std::time::Duration::from_secs(9));
    });
    let change_limits = |change: &dyn Fn(&mut Limits)| {
        let mut limits = Limits::default();
        change(&mut limits);
        place.namespace.set_limits(&limits).unwrap();
        settle();
        // The creation of another queue makes this process read the changed limits.
        drop(place.create("/other", 1, 1));
        posix::unlink_in(&place.namespace, "/other").unwrap();
    };
    change_limits(&|_| {});
    refused(&|_| {});
    change_limits(&|limits| {
        (limits.max_messages, limits.default_messages) = (MESSAGES - 1, 1);
    });
    refused(&|_| {});
    change_limits(&|limits| limits.max_bytes = Some(1 << 20));
    refused(&|_| {});
    change_limits(&|_| {});
    refused(&|_| {});
    posix::give_up(&place.namespace, OsStr::new(NAME));
    let own = Own::vacant(&place);
    drop(own.revive(&place).unwrap());
    expect_new(&own.queue);
}

#[test]
fn only_queues_that_no_other_user_can_open_are_vacated() {
    let place = settled();
    let begins_sole = |mode| {
        let queue = options(&place).mode(mode).open(NAME).unwrap();
        posix::unlink_in(&place.namespace, NAME).unwrap();
        queue.is_sole()
    };
    // The unlink by name has made the queue an ordinary queue.
    assert!(!begins_sole(0o600) && !begins_sole(0o660) && !begins_sole(0o604));
    let own = Own::create(&place);
    let path = place.path().join("mq/q");
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o666)).unwrap();
    assert!(!own.vacate(&place), "the mode has changed");
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
    assert!(!own.vacate(&place), "the file has changed");
    posix::unlink_in(&place.namespace, NAME).unwrap();
    let own = Own::create(&place);
    std::fs::hard_link(&path, place.path().join("mq/second")).unwrap();
    assert!(!own.vacate(&place), "the file has a second name");
    std::fs::remove_file(place.path().join("mq/second")).unwrap();
    posix::unlink_in(&place.namespace, NAME).unwrap();
    let open = std::fs::Permissions::from_mode(0o1777);
    std::fs::set_permissions(place.path(), open).unwrap();
    assert!(!Own::create(&place).queue.is_sole(), "a namespace of all");
}

#[test]
fn the_word_of_a_file_that_other_users_may_write_means_nothing() {
    let place = settled();
    let own = Own::vacant(&place);
    let path = place.path().join("mq/q");
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o666)).unwrap();
    assert_eq!(place.namespace.sweep().unwrap().incomplete, 0);
    let made = place.options(MESSAGES, SIZE).exclusive(true).open(NAME);
    assert!(made.is_err(), "the file keeps the name");
    drop(own);
}

#[test]
fn a_vacant_segment_whose_mode_was_changed_is_no_missing_queue() {
    let place = settled();
    let own = Own::vacant(&place);
    let path = place.path().join("mq/q");
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o400)).unwrap();
    // If the open reported a missing queue, a creator would try again without end, because the file keeps the name.
    let opened = place.options(MESSAGES, SIZE).open(NAME);
    let errno = opened.unwrap_err().errno();
    assert!([libc::EBADMSG, libc::EACCES].contains(&errno), "{errno}");
    drop(own);
}

#[test]
fn a_process_without_descriptors_for_a_vacant_segment_learns_of_it() {
    let place = settled();
    let mut refused = 0;
    for free in 0..6 {
        let own = Own::vacant(&place);
        in_child(|| {
            leave_descriptors(free);
            let opened = place.options(MESSAGES, SIZE).open(NAME);
            match opened.map_err(|error| error.errno()) {
                Ok(_) => 0,
                Err(errno) => {
                    assert_eq!(errno, libc::EMFILE);
                    0
                }
            }
        });
        refused += u32::from(!place.namespace.stale_files().unwrap().is_empty());
        place.namespace.sweep().unwrap();
        let _ = posix::unlink_in(&place.namespace, NAME);
        drop(own);
    }
    assert!(refused > 0);
}

#[test]
fn vacant_segments_make_room_for_queues_where_there_are_too_many() {
    let place = settled();
    let limits = Limits {
        max_queues: 1,
        ..Limits::default()
    };
    place.namespace.set_limits(&limits).unwrap();
    let own = Own::vacant(&place);
    let other = place.create("/other", MESSAGES, SIZE);
    assert!(own.revive(&place).is_none());
    drop(other);
}

#[test]
fn a_sweep_removes_vacant_segments() {
    let place = settled();
    let own = Own::vacant(&place);
    assert_eq!(place.namespace.stale_files().unwrap().incomplete, 1);
    assert_eq!(place.namespace.sweep().unwrap().incomplete, 1);
    assert!(place.namespace.stale_files().unwrap().is_empty());
    assert!(own.revive(&place).is_none());
    let own = Own::vacant(&place);
    posix::give_up(&place.namespace, OsStr::new(NAME));
    assert!(own.revive(&place).is_none());
    let names = std::fs::read_dir(place.path().join("mq")).unwrap();
    assert_eq!(names.count(), 0);
}

#[test]
fn a_process_killed_while_it_recycles_leaves_a_whole_queue_or_none() {
    let place = settled();
    for point in ["VACATE_REMOVED", "VACATE_CLEARED", "REVIVE_FILLED"] {
        let mut victim = Child::run(|| {
            let own = Own::create(&place);
            own.queue.try_send(b"old", 3).unwrap();
            crash::arm(point, 1);
            let _ = own.vacate(&place);
            drop(own.revive(&place));
            0
        });
        victim.expect(Exit::Signal(libc::SIGKILL), point);
        expect_none(&place, point);
        let own = Own::create(&place);
        expect_new(&own.queue);
        posix::unlink_in(&place.namespace, NAME).unwrap();
    }
    // A process is killed while it takes the name.
    let own = Own::vacant(&place);
    let mut taker = Child::run(|| {
        crash::arm("TAKE_GONE", 1);
        drop(place.create(NAME, MESSAGES, SIZE));
        0
    });
    taker.expect(Exit::Signal(libc::SIGKILL), "TAKE_GONE");
    expect_none(&place, "TAKE_GONE");
    assert!(own.revive(&place).is_none());
    expect_new(&place.create(NAME, MESSAGES, SIZE));
}

#[test]
fn the_next_process_sweeps_what_killed_processes_left() {
    let place = settled();
    let mut victim = Child::run(|| {
        // The child exits without running exit handlers.
        std::mem::forget(Own::vacant(&place));
        0
    });
    victim.expect(Exit::Code(0), "a dead process");
    assert_eq!(place.namespace.stale_files().unwrap().incomplete, 1);
    posix::begin_recycling(&place.namespace);
    assert!(place.namespace.stale_files().unwrap().is_empty());
    let own = Own::vacant(&place);
    posix::begin_recycling(&place.namespace);
    drop(own.revive(&place).expect("a living process keeps it"));
}

/// Other processes open queues, take names and remove queues, while this process recycles queues.
#[test]
fn openers_takers_and_removers_beside_a_creator_meet_whole_queues() {
    const ROUNDS: u32 = 1500;
    let place = settled();
    let stop = place.path().join("stop");
    let opened: [Shared<AtomicU64>; 3] = [(); 3].map(|()| Shared::new());
    let others: Vec<Child> = (0..3)
        .map(|which| {
            let opened = &opened[which as usize];
            Child::run(|| {
                while !stop.exists() {
                    opened.fetch_add(disturb(&place.namespace, which).into(), SeqCst);
                }
                0
            })
        })
        .collect();
    let (mut own, mut recycled) = (None, 0);
    // A process that gets no CPU time meets a queue only in a later round.
    let have_opened = || opened.iter().all(|count| count.load(SeqCst) != 0);
    let begun = Instant::now();
    for round in 0.. {
        if round >= ROUNDS && (have_opened() || begun.elapsed() > STUCK) {
            break;
        }
        let vacant = own.take().filter(|own: &Own| own.revive(&place).is_some());
        recycled += u32::from(vacant.is_some());
        let Some(queue) = vacant.or_else(|| created(&place)) else {
            continue;
        };
        let _ = queue.queue.try_send(&[7; 7], 7);
        match queue.queue.try_receive(&mut [0; SIZE as usize]) {
            Ok(received) => assert_eq!((received.len, received.priority), (7, 7)),
            Err(error) => assert_eq!(error, ReceiveError::Empty),
        }
        // Leaves time for the other processes.
        (0..round % 400).for_each(|_| std::hint::spin_loop());
        match queue.vacate(&place) {
            true => own = Some(queue),
            false => drop(posix::unlink_in(&place.namespace, NAME)),
        }
    }
    std::fs::write(&stop, b"").unwrap();
    for mut other in others {
        other.expect(Exit::Code(0), "another process");
    }
    println!("{recycled} queues were made of a removed one's segment");
    assert!(have_opened());
    assert!(recycled > 0);
}

fn created(place: &Place) -> Option<Own> {
    let made = options(place).open_with_descriptor(NAME, false);
    match made {
        Ok((queue, descriptor)) => {
            let state = FileState::of(&queue, &descriptor)?;
            Some(Own { queue, state })
        }
        Err(OpenError::AlreadyExists) => None,
        Err(error) => panic!("{error}"),
    }
}

/// Opens the queue and uses it, creates one, or removes one. Returns whether there was a queue.
fn disturb(namespace: &Namespace, which: u32) -> bool {
    let mut options = posix::OpenOptions::new();
    options.read(true).write(true).namespace(namespace);
    options.max_messages(MESSAGES).message_size(SIZE);
    let opened = match which {
        0 => options.open(NAME),
        1 => options.create(true).open(NAME),
        _ => {
            std::thread::sleep(std::time::Duration::from_micros(200));
            return match posix::unlink_in(namespace, NAME) {
                Ok(()) => true,
                Err(error) => {
                    assert!(matches!(error, UnlinkError::NotFound), "{error}");
                    false
                }
            };
        }
    };
    let queue = match opened {
        Ok(queue) => queue,
        Err(OpenError::NotFound) => return false,
        Err(error) => panic!("{error}"),
    };
    assert!(queue.attributes().messages <= 2);
    let _ = queue.try_send(&[7; 7], 7);
    if let Ok(received) = queue.try_receive(&mut [0; SIZE as usize]) {
        assert_eq!((received.len, received.priority), (7, 7));
    }
    assert_eq!(queue.attributes().max_messages, MESSAGES as usize);
    true
}
