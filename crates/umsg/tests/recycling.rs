//! Queues that a process makes of the segments of queues that it has removed: they hold nothing of them, no other process has them, and a
//! killed process leaves nothing that the next sweep does not remove.

mod support;

use std::fs::Permissions;
use std::io::Read;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::PathBuf;
use support::child::{Child, Exit};
use support::place::Place;
use support::turn;
use umsg::Limits;
use umsg::posix::{self, OpenError, Queue, ReceiveError};
use umsg_shm::crash;

/// The memory of a segment that waits for its next queue, in bytes.
const SPARE_BYTES: u64 = 36 << 10;

/// Fills the first pages of a queue of 5 messages of 3,000 bytes, and more.
const MESSAGE: &[u8] = &[0xA5; 3_000];

fn create(place: &Place, name: &str) -> Queue {
    place.create(name, 5, 3_000)
}

fn unlink(place: &Place, name: &str) {
    posix::unlink_in(&place.namespace, name).unwrap();
}

/// Creates, uses and removes queues until the process has a segment of one.
fn keep_a_segment(place: &Place) {
    for _ in 0..2 {
        let queue = create(place, "/kept");
        for priority in [0, 9, 40_000 % 32_768] {
            queue.try_send(MESSAGE, priority).unwrap();
            queue.try_send(b"short", priority).unwrap_or(());
        }
        drop(queue);
        unlink(place, "/kept");
    }
}

/// The files with temporary names.
fn spares(place: &Place) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(place.path()).unwrap();
    entries
        .map(|entry| entry.unwrap().path())
        .filter(|path| {
            path.file_name()
                .unwrap()
                .as_encoded_bytes()
                .starts_with(b".tmp-")
        })
        .collect()
}

/// A process of its own: each has its own segments.
fn alone(work: impl FnOnce(&Place)) {
    let _turn = turn();
    let place = Place::new();
    let mut child = Child::run(|| {
        work(&place);
        0
    });
    child.expect(Exit::Code(0), "the process that recycles");
}

#[test]
fn a_segment_is_used_again_and_holds_nothing_of_the_removed_queue() {
    alone(|place| {
        keep_a_segment(place);
        let [spare] = &spares(place)[..] else {
            panic!("{:?}", spares(place));
        };
        let file = std::fs::metadata(spare).unwrap();
        assert_eq!(file.permissions().mode() & 0o7777, 0o600);
        assert!(file.blocks() * 512 <= SPARE_BYTES, "{}", file.blocks());
        let mut bytes = Vec::new();
        std::fs::File::open(spare)
            .unwrap()
            .read_to_end(&mut bytes)
            .unwrap();
        assert!(bytes.iter().all(|byte| *byte == 0));
        let queue = create(place, "/next");
        assert_eq!(queue.identity().1, file.ino(), "the same file");
        assert!(spares(place).is_empty());
        expect_new(place, &queue);
    });
}

/// Uses a queue to its bounds. Another handle, which attaches to the file, sees the same queue.
fn expect_new(place: &Place, queue: &Queue) {
    let again = place.open("/next");
    assert_eq!(again.identity(), queue.identity());
    assert_eq!(again.attributes().max_messages, 5);
    assert_eq!(again.try_receive(&mut [0; 3_000]), Err(ReceiveError::Empty));
    for round in 0..300_u32 {
        for message in 0..5_u32 {
            let len = (round * 97 + message * 613) as usize % 3_001;
            queue.try_send(&MESSAGE[..len], round % 7).unwrap();
        }
        assert!(queue.try_send(b"", 0).is_err());
        for message in 0..5_u32 {
            let received = again.receive_vec().unwrap();
            let len = (round * 97 + message * 613) as usize % 3_001;
            assert_eq!((received.data.len(), received.priority), (len, round % 7));
        }
    }
    assert!(posix::list(&place.namespace).unwrap().len() == 1);
}

#[test]
fn queues_of_other_attributes_get_files_of_their_own() {
    alone(|place| {
        keep_a_segment(place);
        let other = place.create("/other", 6, 3_000);
        assert_eq!(other.attributes().max_messages, 6);
        assert_eq!(spares(place).len(), 1);
        let mut options = place.options(5, 3_000);
        drop(options.mode(0o660).open("/shared").unwrap());
        assert_eq!(spares(place).len(), 1);
        options
            .mode(0o600)
            .time_to_live(std::time::Duration::from_secs(9));
        drop(options.open("/with-rules").unwrap());
        assert_eq!(spares(place).len(), 1);
    });
}

#[test]
fn a_queue_that_another_process_has_open_stays_that_process_queue() {
    alone(|place| {
        keep_a_segment(place);
        let queue = create(place, "/q");
        queue.try_send(b"before", 0).unwrap();
        let theirs = queue.identity();
        let go = place.path().join("mq").join("go");
        let mut other = Child::run(|| {
            // Inherited handles don't count here: this process opens the queue by its name.
            let mine = place.open("/q");
            drop(std::fs::File::create(place.path().join("opened")).unwrap());
            while !go.exists() {
                std::thread::yield_now();
            }
            i32::from(mine.receive_vec().unwrap().data != b"before")
        });
        while !place.path().join("opened").exists() {
            std::thread::yield_now();
        }
        drop(queue);
        unlink(place, "/q");
        let next = create(place, "/q");
        assert_ne!(next.identity(), theirs);
        next.try_send(b"after", 0).unwrap();
        std::fs::File::create(&go).unwrap();
        other.expect(Exit::Code(0), "the other process");
    });
}

#[test]
fn a_queue_that_a_forked_child_inherited_stays_the_childs_queue() {
    alone(|place| {
        keep_a_segment(place);
        let queue = create(place, "/q");
        queue.try_send(b"before", 0).unwrap();
        let theirs = queue.identity();
        let go = place.path().join("go");
        let queue = std::sync::Mutex::new(Some(queue));
        let mut child = Child::run(|| {
            while !go.exists() {
                std::thread::yield_now();
            }
            let queue = queue.lock().unwrap();
            i32::from(queue.as_ref().unwrap().receive_vec().unwrap().data != b"before")
        });
        drop(queue.lock().unwrap().take());
        unlink(place, "/q");
        let next = create(place, "/q");
        assert_ne!(next.identity(), theirs);
        std::fs::File::create(&go).unwrap();
        child.expect(Exit::Code(0), "the child");
    });
}

#[test]
fn a_forked_child_makes_its_own_queues_and_leaves_its_parents_segments_alone() {
    alone(|place| {
        keep_a_segment(place);
        let kept = std::fs::metadata(&spares(place)[0]).unwrap().ino();
        let mut child = Child::run(|| {
            let queue = create(place, "/child");
            i32::from(queue.identity().1 == kept)
        });
        child.expect(Exit::Code(0), "the child");
        assert_eq!(create(place, "/parent").identity().1, kept);
    });
}

#[test]
fn a_queue_that_is_open_while_it_is_removed_goes_on() {
    alone(|place| {
        keep_a_segment(place);
        let queue = create(place, "/q");
        queue.try_send(b"before", 0).unwrap();
        unlink(place, "/q");
        let next = create(place, "/q");
        assert_ne!(next.identity(), queue.identity());
        assert_eq!(queue.receive_vec().unwrap().data, b"before");
        next.try_send(b"after", 0).unwrap();
        assert_eq!(queue.try_receive(&mut [0; 3_000]), Err(ReceiveError::Empty));
    });
}

#[test]
fn a_file_that_got_another_mode_or_another_name_is_not_used_again() {
    alone(|place| {
        for change in ["mode", "name"] {
            keep_a_segment(place);
            let queue = create(place, "/q");
            let file = queue.identity();
            let path = place.path().join("mq").join("q");
            match change {
                "mode" => std::fs::set_permissions(&path, Permissions::from_mode(0o666)).unwrap(),
                _ => std::fs::hard_link(&path, place.path().join("second")).unwrap(),
            }
            drop(queue);
            unlink(place, "/q");
            assert!(spares(place).is_empty(), "{change}");
            assert_ne!(create(place, "/q").identity(), file, "{change}");
            unlink(place, "/q");
        }
    });
}

#[test]
fn a_name_that_is_taken_stays_taken() {
    alone(|place| {
        keep_a_segment(place);
        let first = place.create("/taken", 6, 100);
        let mut options = place.options(5, 3_000);
        let error = options.exclusive(true).open("/taken").unwrap_err();
        assert!(matches!(error, OpenError::AlreadyExists), "{error}");
        assert_eq!(create(place, "/taken").identity(), first.identity());
    });
}

#[test]
fn the_limit_of_queues_holds_and_a_limit_of_bytes_keeps_no_segments() {
    alone(|place| {
        keep_a_segment(place);
        let mut limits = Limits {
            max_queues: 1,
            ..Limits::default()
        };
        place.namespace.set_limits(&limits).unwrap();
        let one = create(place, "/one");
        let error = place.options(5, 3_000).open("/two").unwrap_err();
        assert!(matches!(error, OpenError::TooManyQueues(1)), "{error}");
        drop(one);
        unlink(place, "/one");
        limits.max_bytes = Some(1 << 30);
        place.namespace.set_limits(&limits).unwrap();
        let before = spares(place).len();
        for _ in 0..3 {
            drop(create(place, "/one"));
            unlink(place, "/one");
        }
        assert_eq!(spares(place).len(), before);
    });
}

#[test]
fn no_more_than_eight_segments_are_kept() {
    alone(|place| {
        keep_a_segment(place);
        for _ in 0..2 {
            let names: Vec<String> = (0..30).map(|n| format!("/q{n}")).collect();
            names.iter().for_each(|name| drop(create(place, name)));
            names.iter().for_each(|name| unlink(place, name));
            assert!(spares(place).len() <= 8);
        }
        assert_eq!(spares(place).len(), 8);
    });
}

#[test]
fn threads_that_create_and_remove_queues_at_once_do_not_meet() {
    alone(|place| {
        std::thread::scope(|scope| {
            for thread in 0..4_u8 {
                scope.spawn(move || {
                    let name = format!("/q{thread}");
                    for round in 0..100_u8 {
                        let queue = create(place, &name);
                        queue.try_send(&[thread, round], 3).unwrap();
                        assert_eq!(queue.receive_vec().unwrap().data, [thread, round]);
                        assert!(queue.try_receive(&mut [0; 3_000]).is_err());
                        drop(queue);
                        unlink(place, &name);
                    }
                });
            }
        });
        assert!(posix::list(&place.namespace).unwrap().is_empty());
    });
}

#[test]
fn a_process_that_exits_removes_its_segments_and_a_sweep_those_of_a_killed_one() {
    let _turn = turn();
    let place = Place::new();
    let mut exits = Child::run(|| {
        keep_a_segment(&place);
        assert_eq!(spares(&place).len(), 1);
        // SAFETY: ends this process, as the C library's exit does for any program.
        unsafe { libc::exit(7) }
    });
    exits.expect(Exit::Code(7), "a process that exits");
    assert!(spares(&place).is_empty());
    let mut killed = Child::run(|| {
        keep_a_segment(&place);
        crash::arm("RECYCLE_FILLED", 1);
        drop(create(&place, "/next"));
        0
    });
    killed.expect(Exit::Signal(libc::SIGKILL), "a process that is killed");
    assert_eq!(place.namespace.stale_files().unwrap().incomplete, 1);
    place.namespace.sweep().unwrap();
    assert!(spares(&place).is_empty());
}

#[test]
fn a_process_killed_while_it_recycles_leaves_a_whole_queue_or_none() {
    let _turn = turn();
    for point in [
        "RECYCLE_ASIDE",
        "RECYCLE_CLEARED",
        "RECYCLE_FILLED",
        "CREATE_NAMED",
    ] {
        let place = Place::new();
        let mut victim = Child::run(|| {
            keep_a_segment(&place);
            crash::arm(point, 1);
            let queue = create(&place, "/q");
            queue.try_send(b"x", 0).unwrap();
            drop(queue);
            unlink(&place, "/q");
            0
        });
        victim.expect(Exit::Signal(libc::SIGKILL), point);
        let exists = point == "CREATE_NAMED";
        let listed = posix::list(&place.namespace).unwrap();
        assert_eq!(listed.len(), usize::from(exists), "{point}");
        assert_eq!(spares(&place).len(), usize::from(!exists), "{point}");
        let mut next = Child::run(|| {
            let queue = create(&place, "/q");
            queue.try_send(b"y", 0).unwrap();
            i32::from(queue.receive_vec().unwrap().data != b"y")
        });
        next.expect(Exit::Code(0), point);
        place.namespace.sweep().unwrap();
        assert!(spares(&place).is_empty(), "{point}");
    }
}
