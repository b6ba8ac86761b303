//! The sums of MSG_INFO that a process keeps until a queue announces a change of its counts.

mod support;

use std::fs::{self, File};
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::time::Duration;
use support::child::{Child, Exit};
use support::place::Place;
use support::scan::{SETTLED, alone, sums, totals};
use support::{Random, wait_until};
use umsg::sysv::{Want, raw};
use umsg_shm::crash;

/// The word of a lock that is marked as counted.
const COUNTED: u64 = 1 << 62;

/// Returns the number of queues whose locks are marked as counted.
fn marked(place: &Place) -> usize {
    let is_marked = |index: &u32| {
        let path = place.namespace.path().join(format!("msg/{index}"));
        let mut word = [0; 8];
        let read = File::open(path).and_then(|file| file.read_exact_at(&mut word, LOCK));
        read.is_ok() && u64::from_ne_bytes(word) == COUNTED
    };
    (0..8).filter(is_marked).count()
}

/// The offset of the lock in a queue's file, in bytes.
const LOCK: u64 = 256;

/// Runs a case in a process that keeps the sums over queues of the keys 1 to 3. `ask` returns the messages and the bytes; a process without
/// kept sums confirms them.
fn keeping(case: impl FnOnce(&Place, &dyn Fn() -> (i32, i32))) {
    alone(|place| {
        // SAFETY: the process has one thread.
        unsafe { std::env::set_var("UMSG_DIR", place.namespace.path()) };
        for key in 1..=3 {
            place.create_sysv(key);
        }
        std::thread::sleep(SETTLED);
        let ask = || {
            let info = raw::msgctl_info(libc::MSG_INFO).unwrap();
            assert_eq!(info.msgpool, 3);
            let known = (info.msgmap, info.msgtql);
            let mut other = Child::run(|| {
                let totals = totals(place);
                assert_eq!((totals.messages as i32, totals.bytes as i32), known);
                0
            });
            other.expect(Exit::Code(0), "a process without kept sums");
            known
        };
        mark_all(place);
        case(place, &ask);
    });
}

/// Asks for the sums until all three queues are marked, which shows that the process keeps the sums.
fn mark_all(place: &Place) {
    let are_marked = || {
        raw::msgctl_info(libc::MSG_INFO).unwrap();
        marked(place) == 3
    };
    assert!(wait_until(Duration::from_secs(60), are_marked));
}

fn send(place: &Place, key: i32) {
    place.open_sysv(key).try_send(1, b"four").unwrap();
}

#[test]
fn sums_are_kept_until_the_counts_of_a_queue_change() {
    keeping(|place, ask| {
        let queues = [1, 2, 3].map(|key| place.open_sysv(key));
        let (mut random, mut count) = (Random::new(11), 0);
        for step in 0..200 {
            let queue = &queues[random.below(3) as usize];
            let by_other = random.below(2) == 0;
            let change = || match queue.try_receive(Want::Any, &mut [0; 8]) {
                Ok(_) => -1,
                Err(_) => queue.try_send(1, b"four").map_or(0, |()| 1),
            };
            if by_other {
                let mut other = Child::run(|| change() + 5);
                count += match other.wait(Duration::from_secs(60)) {
                    Some(Exit::Code(code)) => code - 5,
                    end => panic!("{end:?}"),
                };
            } else {
                count += change();
            }
            let left = marked(place);
            let info = raw::msgctl_info(libc::MSG_INFO).unwrap();
            assert_eq!((info.msgmap, info.msgtql), (count, 4 * count), "{step}");
            assert_eq!(left, 2, "{step}: a change removes one mark");
            mark_all(place);
        }
        ask();
    });
}

#[test]
fn the_sums_are_right_after_a_process_is_killed_that_was_about_to_change_a_queue() {
    let points = [
        ("MSG_UNCOUNTED", 0),
        ("MSG_NUMBERED", 0),
        ("MSG_ANNOUNCED", 0),
        ("MSG_FILLED", 0),
        ("MSG_SENT", 1),
        ("MSG_LINKED", 1),
    ];
    for (point, left) in points {
        keeping(|place, ask| {
            let mut victim = Child::run(|| {
                crash::arm(point, 1);
                send(place, 2);
                0
            });
            victim.expect(Exit::Signal(libc::SIGKILL), point);
            // Nothing was changed yet, or the dead process has not counted its message.
            assert_eq!(ask(), (0, 0), "{point}");
            let mut next = Child::run(|| {
                send(place, 2);
                0
            });
            next.expect(Exit::Code(0), point);
            assert_eq!(ask(), (left + 1, 4 * (left + 1)), "{point}");
        });
    }
}

#[test]
fn a_process_that_is_killed_while_it_adds_up_stops_no_sender() {
    alone(|place| {
        // SAFETY: the process has one thread.
        unsafe { std::env::set_var("UMSG_DIR", place.namespace.path()) };
        place.create_sysv(1);
        std::thread::sleep(SETTLED);
        let mut victim = Child::run(|| {
            umsg::signals::catch_truncation().unwrap();
            crash::arm("MSG_COUNTING", 1);
            let ask = || raw::msgctl_info(libc::MSG_INFO).is_err();
            wait_until(Duration::from_secs(60), ask).into()
        });
        victim.expect(Exit::Signal(libc::SIGKILL), "a process that adds up");
        let queue = place.open_sysv(1);
        queue.try_send(1, b"four").unwrap();
        assert_eq!(sums(place), (1, 1, 4));
        assert_eq!(queue.status().unwrap().statistics.repairs, 1);
    });
}

#[test]
fn no_sums_are_kept_of_a_namespace_that_others_may_reach() {
    alone(|place| {
        // SAFETY: the process has one thread.
        unsafe { std::env::set_var("UMSG_DIR", place.namespace.path()) };
        place.create_sysv(1);
        // The first use of a namespace gives its directories their mode.
        raw::msgctl_info(libc::MSG_INFO).unwrap();
        let queues = place.namespace.path().join("msg");
        let ask_with_mode = |mode| {
            fs::set_permissions(&queues, PermissionsExt::from_mode(mode)).unwrap();
            for _ in 0..2 {
                std::thread::sleep(SETTLED);
                for _ in 0..100 {
                    raw::msgctl_info(libc::MSG_INFO).unwrap();
                }
            }
        };
        ask_with_mode(0o755);
        assert_eq!(marked(place), 0);
        let mode = fs::metadata(&queues).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o755, "the mode that others may use");
        // If only the owner may use the directory, the process keeps the sums.
        ask_with_mode(0o700);
        assert_eq!(marked(place), 1);
    });
}
