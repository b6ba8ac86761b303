//! Threads with a real-time policy lend their priority to the owner of the lock for which they wait.
//!
//! The owner is a process that stops while it holds the lock. /proc/PID/stat shows the priority with which it would run.

mod support;

use std::any::Any;
use std::cell::Cell;
use std::time::Duration;
use support::child::{Child, Exit, stop};
use support::place::Place;
use support::seccomp::{Call, refuse};
use support::wait_until;
use umsg::ring::{Options, Post, Sender};
use umsg_shm::crash;
use umsg_testkit::real_time::{become_urgent, is_permitted, priority};

const KEY: i32 = 0x57;

/// The time within which the kernel has to show a priority that was lent.
const SOON: Duration = Duration::from_secs(20);

/// The time-out of each call. The owner continues earlier.
const LONG: Duration = Duration::from_secs(60);

/// The crash points of a thread that waits for the lock.
const STEPS: [&str; 2] = ["INHERIT_FIRST", "INHERIT_NAMED"];

/// The crash point of an owner that unlocks.
const HANDED_ON: &str = "INHERIT_HANDED_ON";

/// A lock, with one call that stops while it holds the lock, and another that waits for the lock.
struct Case {
    name: &'static str,
    point: &'static str,
    /// Makes the queue, and returns an object that keeps it as long as the case runs.
    prepare: fn(&Place) -> Box<dyn Any>,
    hold: fn(&Place),
    wait: fn(&Place),
}

fn posix(place: &Place, messages: u32) -> Box<dyn Any> {
    let queue = place.create("/q", 4, 8);
    for _ in 0..messages {
        queue.try_send(b"m", 0).unwrap();
    }
    Box::new(queue)
}

const CASES: [Case; 5] = [
    Case {
        name: "the sender lock",
        point: "SEND_FILLED",
        prepare: |place| posix(place, 0),
        hold: |place| place.open("/q").try_send(b"held", 0).unwrap(),
        wait: |place| place.open("/q").send_timeout(b"waits", 0, LONG).unwrap(),
    },
    Case {
        name: "the receiver lock",
        point: "RECEIVE_TAKEN",
        prepare: |place| posix(place, 4),
        hold: |place| {
            place.open("/q").try_receive(&mut [0; 8]).unwrap();
        },
        wait: |place| {
            place.open("/q").receive_timeout(&mut [0; 8], LONG).unwrap();
        },
    },
    Case {
        name: "a sender lock that is lent",
        point: "GROW_LENT",
        prepare: |place| posix(place, 4),
        hold: |place| {
            // The time is long enough to reach the point on a busy machine. The queue stays full.
            let time = Duration::from_secs(1);
            place.open("/q").send_timeout(b"held", 0, time).unwrap_err();
        },
        wait: |place| {
            // The queue stays full: the call waits for the lock with its priority. A call that ends before the test has seen the priority is
            // followed by another.
            let queue = place.open("/q");
            let time = Duration::from_secs(2);
            // If the test fails, the calls end nevertheless.
            let _ =
                (0..30).any(|_| queue.send_timeout(b"waits", 0, time).is_ok() || is_over(place));
        },
    },
    Case {
        name: "the lock of a System V queue",
        point: "MSG_FILLED",
        prepare: |place| {
            place.create_sysv(KEY);
            Box::new(())
        },
        hold: |place| place.open_sysv(KEY).try_send(1, b"held").unwrap(),
        wait: |place| place.open_sysv(KEY).send(1, b"waits").unwrap(),
    },
    Case {
        name: "the sender lock of a ring",
        point: "SEND_FILLED",
        prepare: |place| Box::new(Options::new().create_in(&place.namespace, "/r").unwrap()),
        hold: |place| sender(place).try_send(&Post::new(1)).unwrap(),
        wait: |place| sender(place).send_timeout(&Post::new(2), LONG).unwrap(),
    },
];

/// Ends the repeated calls of a case.
fn end_calls(place: &Place) {
    std::fs::write(place.path().join("over"), b"").unwrap();
}

fn is_over(place: &Place) -> bool {
    place.path().join("over").exists()
}

fn sender(place: &Place) -> Sender {
    Sender::open_in(&place.namespace, "/r").unwrap()
}

fn priority_of(owner: &Child) -> i64 {
    priority(&format!("/proc/{}/stat", owner.pid()))
}

#[track_caller]
fn expect_priority(owner: &Child, priority: i64, what: &str) {
    let seen = Cell::new(0);
    let is_so = wait_until(SOON, || {
        seen.set(priority_of(owner));
        seen.get() == priority
    });
    assert!(
        is_so,
        "{what}: {} instead of {priority}{}",
        seen.get(),
        owner.portrait()
    );
}

/// Returns a process that stopped with the lock of a case.
fn stopped_owner(case: &Case, place: &Place) -> Child {
    let owner = Child::run(|| {
        crash::arm_fuse(case.point, stop);
        (case.hold)(place);
        0
    });
    owner.expect_to_stop(case.name);
    owner
}

/// Runs `judge` while a process is stopped with the lock of a case. `judge` lets the process continue.
fn beside_an_owner(case: &Case, judge: impl FnOnce(&Place, &mut Child)) {
    let place = Place::new();
    let _made = (case.prepare)(&place);
    let mut owner = stopped_owner(case, &place);
    judge(&place, &mut owner);
    owner.expect(Exit::Code(0), case.name);
}

/// A thread of each priority calls, and the owner gets the priority. Then `end` lets the owner continue, or kills the owner.
fn lends(case: &Case, place: &Place, owner: &mut Child, priorities: &[i32], end: fn(&mut Child)) {
    std::thread::scope(|scope| {
        for &priority in priorities {
            scope.spawn(move || {
                assert!(become_urgent(priority));
                (case.wait)(place);
            });
            expect_priority(owner, priority.into(), case.name);
        }
        end(owner);
        end_calls(place);
    });
}

fn continues(owner: &mut Child) {
    owner.signal(libc::SIGCONT);
}

/// A waiting thread does not lend its priority if it is ordinary, or if other users may write to its queue. The owner keeps its priority, and
/// continues.
fn lends_none(place: &Place, owner: &mut Child, wait: impl FnOnce() + Send) {
    std::thread::scope(|scope| {
        let waits = scope.spawn(wait);
        std::thread::sleep(Duration::from_millis(300));
        assert!(!waits.is_finished());
        assert_eq!(priority_of(owner), 0);
        continues(owner);
        end_calls(place);
    });
}

#[test]
fn the_owner_of_a_lock_has_the_priority_of_the_most_urgent_thread_that_waits() {
    if !is_permitted() {
        return;
    }
    for case in &CASES {
        beside_an_owner(case, |place, owner| {
            assert_eq!(priority_of(owner), 0, "{}", case.name);
            lends(case, place, owner, &[10, 20], continues);
        });
    }
}

#[test]
fn an_ordinary_thread_lends_no_priority() {
    if !is_permitted() {
        return;
    }
    let case = &CASES[0];
    beside_an_owner(case, |place, owner| {
        lends_none(place, owner, || (case.wait)(place))
    });
}

#[test]
fn a_thread_whose_sandbox_refuses_inheritance_waits_as_an_ordinary_one() {
    if !is_permitted() {
        return;
    }
    // Source: linux/futex.h.
    let [lock_pi2, unlock_pi] = [13, 7].map(|operation| Call {
        number: libc::SYS_futex,
        argument: Some((1, operation)),
    });
    for case in &CASES {
        for errno in [libc::ENOSYS, libc::EPERM] {
            beside_an_owner(case, |place, owner| {
                lends_none(place, owner, || {
                    assert!(become_urgent(10));
                    refuse(&[lock_pi2, unlock_pi], errno);
                    (case.wait)(place);
                });
            });
        }
    }
}

#[test]
fn a_thread_that_may_not_unlock_its_loan_delays_no_other_for_longer_than_a_slice() {
    if !is_permitted() {
        return;
    }
    let unlock_pi = Call {
        number: libc::SYS_futex,
        argument: Some((1, 7)),
    };
    for case in &CASES {
        beside_an_owner(case, |place, owner| {
            std::thread::scope(|scope| {
                scope.spawn(|| {
                    assert!(become_urgent(10));
                    refuse(&[unlock_pi], libc::EPERM);
                    (case.wait)(place);
                });
                expect_priority(owner, 10, case.name);
                scope.spawn(|| {
                    assert!(become_urgent(20));
                    (case.wait)(place);
                });
                expect_priority(owner, 20, case.name);
                continues(owner);
                end_calls(place);
            });
        });
    }
}

#[test]
fn no_priority_is_lent_in_a_queue_that_other_users_may_write() {
    if !is_permitted() {
        return;
    }
    let case = &CASES[0];
    let place = Place::new();
    let mut options = place.options(4, 8);
    // SAFETY: the call changes a setting of this process. No other test of this file creates a file that depends on the setting.
    let umask = unsafe { libc::umask(0) };
    let created = options.mode(0o666).open("/q").unwrap();
    // SAFETY: the call changes a setting of this process. No other test of this file creates a file that depends on the setting.
    unsafe { libc::umask(umask) };
    let opened = place.open("/q");
    for queue in [&created, &opened] {
        let mut owner = stopped_owner(case, &place);
        lends_none(&place, &mut owner, || {
            assert!(become_urgent(10));
            queue.send_timeout(b"waits", 0, LONG).unwrap();
        });
        owner.expect(Exit::Code(0), case.name);
    }
}

#[test]
fn a_thread_that_dies_while_it_lends_its_priority_stops_no_other() {
    if !is_permitted() {
        return;
    }
    for case in &CASES {
        for step in STEPS {
            beside_an_owner(case, |place, owner| {
                let mut victim = Child::run(|| {
                    assert!(become_urgent(5));
                    crash::arm(step, 1);
                    (case.wait)(place);
                    0
                });
                victim.expect(Exit::Signal(libc::SIGKILL), step);
                lends(case, place, owner, &[10, 20], continues);
            });
        }
        // The first waiter in the line dies while it sleeps, and so does the second one.
        beside_an_owner(case, |place, owner| {
            let mut victims = [5, 6].map(|priority| {
                let victim = Child::run(|| {
                    assert!(become_urgent(priority));
                    (case.wait)(place);
                    0
                });
                expect_priority(owner, priority.into(), case.name);
                victim
            });
            for victim in &mut victims {
                victim.kill();
            }
            expect_priority(owner, 0, "after the death of the threads that waited");
            lends(case, place, owner, &[10], continues);
        });
    }
}

#[test]
fn the_death_of_an_owner_wakes_the_real_time_threads_that_wait() {
    if !is_permitted() {
        return;
    }
    for case in &CASES {
        let place = Place::new();
        let _made = (case.prepare)(&place);
        let mut owner = stopped_owner(case, &place);
        lends(case, &place, &mut owner, &[10, 20], Child::kill);
    }
}

#[test]
fn an_owner_that_dies_after_it_has_handed_its_lock_on_stops_no_other() {
    fn stop_and_die_later() {
        stop();
        crash::arm(HANDED_ON, 1);
    }
    if !is_permitted() {
        return;
    }
    for case in &CASES {
        let place = Place::new();
        let _made = (case.prepare)(&place);
        let mut owner = Child::run(|| {
            crash::arm_fuse(case.point, stop_and_die_later);
            (case.hold)(&place);
            0
        });
        owner.expect_to_stop(case.name);
        std::thread::scope(|scope| {
            let place = &place;
            let ordinary = scope.spawn(move || (case.wait)(place));
            lends(case, place, &mut owner, &[10], |owner| {
                continues(owner);
                owner.expect(Exit::Signal(libc::SIGKILL), HANDED_ON);
            });
            ordinary.join().unwrap();
        });
    }
}
