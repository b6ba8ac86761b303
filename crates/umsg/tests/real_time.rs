//! Threads with a real-time policy lend their priority to the owner of the lock for which they wait.
//!
//! The owner is a process that stops while it holds the lock. /proc/PID/stat shows the priority with which it would run.

mod support;

use std::cell::Cell;
use std::time::Duration;
use support::child::{Child, Exit, stop};
use support::place::Place;
use support::wait_until;
use umsg::posix::Queue;
use umsg::ring::{Options, Post, Ring, Sender};
use umsg_shm::crash;

const KEY: i32 = 0x57;

/// A priority that the kernel shows within this time was lent.
const SOON: Duration = Duration::from_secs(20);

/// The time-out of each call: the owner continues before.
const LONG: Duration = Duration::from_secs(60);

/// The points of this mechanism.
const STEPS: [&str; 2] = ["INHERIT_FIRST", "INHERIT_NAMED"];

/// A lock, with one call that stops while it holds the lock, and another that waits for the lock.
struct Case {
    name: &'static str,
    point: &'static str,
    prepare: fn(&Place) -> Kept,
    hold: fn(&Place),
    wait: fn(&Place),
}

/// What exists as long as the case runs.
struct Kept {
    _queue: Option<Queue>,
    _ring: Option<Ring>,
}

fn posix(place: &Place, messages: u32) -> Kept {
    let queue = place.create("/q", 4, 8);
    for _ in 0..messages {
        queue.try_send(b"m", 0).unwrap();
    }
    Kept {
        _queue: Some(queue),
        _ring: None,
    }
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
            let time = Duration::from_millis(1);
            place.open("/q").send_timeout(b"held", 0, time).unwrap_err();
        },
        wait: |place| {
            // The queue stays full: the lock is what the call waits for with its priority.
            let time = Duration::from_secs(2);
            let _ = place.open("/q").send_timeout(b"waits", 0, time);
        },
    },
    Case {
        name: "the lock of a System V queue",
        point: "MSG_FILLED",
        prepare: |place| {
            place.create_sysv(KEY);
            Kept {
                _queue: None,
                _ring: None,
            }
        },
        hold: |place| place.open_sysv(KEY).try_send(1, b"held").unwrap(),
        wait: |place| place.open_sysv(KEY).send(1, b"waits").unwrap(),
    },
    Case {
        name: "the sender lock of a ring",
        point: "SEND_FILLED",
        prepare: |place| {
            let ring = Options::new().create_in(&place.namespace, "/r").unwrap();
            Kept {
                _queue: None,
                _ring: Some(ring),
            }
        },
        hold: |place| sender(place).try_send(&Post::new(1)).unwrap(),
        wait: |place| sender(place).send_timeout(&Post::new(2), LONG).unwrap(),
    },
];

fn sender(place: &Place) -> Sender {
    Sender::open_in(&place.namespace, "/r").unwrap()
}

/// Gives the calling thread a real-time policy. Returns false where that is refused.
fn become_urgent(priority: i32) -> bool {
    let parameter = libc::sched_param {
        sched_priority: priority,
    };
    // SAFETY: a setting of this thread; the call reads a local.
    unsafe { libc::sched_setscheduler(0, libc::SCHED_FIFO, &raw const parameter) == 0 }
}

/// Returns whether threads may have a real-time policy here.
fn is_permitted() -> bool {
    let may = std::thread::spawn(|| become_urgent(1)).join().unwrap();
    if !may {
        eprintln!("left out: takes CAP_SYS_NICE");
    }
    may
}

/// Returns the real-time priority with which the main thread of a process would run; 0 for none. Field 18 of proc_pid_stat(5).
fn lent_priority(pid: libc::pid_t) -> i64 {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    let (_, fields) = stat.rsplit_once(") ").unwrap();
    let shown: i64 = fields.split(' ').nth(15).unwrap().parse().unwrap();
    if shown < 0 { -1 - shown } else { 0 }
}

#[track_caller]
fn expect_priority(owner: &Child, priority: i64, what: &str) {
    let seen = Cell::new(0);
    let is_so = wait_until(SOON, || {
        seen.set(lent_priority(owner.pid()));
        seen.get() == priority
    });
    assert!(
        is_so,
        "{what}: {} instead of {priority}{}",
        seen.get(),
        owner.portrait()
    );
}

/// Runs `judge` beside a process that stopped with the lock of a case.
fn beside_an_owner(case: &Case, judge: impl FnOnce(&Place, &mut Child)) {
    let place = Place::new();
    let _kept = (case.prepare)(&place);
    let mut owner = Child::run(|| {
        crash::arm_fuse(case.point, stop);
        (case.hold)(&place);
        0
    });
    owner.expect_to_stop(case.name);
    judge(&place, &mut owner);
    owner.expect(Exit::Code(0), case.name);
}

/// A thread of each priority calls, and the owner gets the priority. Then the owner continues.
fn lends(case: &Case, place: &Place, owner: &mut Child, priorities: &[i32]) {
    std::thread::scope(|scope| {
        for &priority in priorities {
            scope.spawn(move || {
                assert!(become_urgent(priority));
                (case.wait)(place);
            });
            expect_priority(owner, priority.into(), case.name);
        }
        owner.signal(libc::SIGCONT);
    });
}

#[test]
fn the_owner_of_a_lock_has_the_priority_of_the_most_urgent_thread_that_waits() {
    if !is_permitted() {
        return;
    }
    for case in &CASES {
        beside_an_owner(case, |place, owner| {
            assert_eq!(lent_priority(owner.pid()), 0, "{}", case.name);
            lends(case, place, owner, &[10, 20]);
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
        std::thread::scope(|scope| {
            let waits = scope.spawn(|| (case.wait)(place));
            std::thread::sleep(Duration::from_millis(300));
            assert!(!waits.is_finished());
            assert_eq!(lent_priority(owner.pid()), 0);
            owner.signal(libc::SIGCONT);
        });
    });
}

#[test]
fn no_priority_is_lent_in_a_queue_that_other_users_may_write() {
    if !is_permitted() {
        return;
    }
    let place = Place::new();
    let mut options = place.options(4, 8);
    let created = options.mode(0o666).open("/q").unwrap();
    // The umask leaves others a permission, and each permission needs a writable mapping.
    assert_ne!(created.mode() & 0o077, 0);
    let opened = place.open("/q");
    for queue in [&created, &opened] {
        let mut owner = Child::run(|| {
            crash::arm_fuse("SEND_FILLED", stop);
            place.open("/q").try_send(b"held", 0).unwrap();
            0
        });
        owner.expect_to_stop("the sender lock");
        std::thread::scope(|scope| {
            let waits = scope.spawn(|| {
                assert!(become_urgent(10));
                queue.send_timeout(b"waits", 0, LONG).unwrap();
            });
            std::thread::sleep(Duration::from_millis(300));
            assert!(!waits.is_finished());
            assert_eq!(lent_priority(owner.pid()), 0);
            owner.signal(libc::SIGCONT);
        });
        owner.expect(Exit::Code(0), "the sender lock");
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
                lends(case, place, owner, &[10, 20]);
            });
        }
        // The first in line dies in its sleep, and so does the second one behind it.
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
            lends(case, place, owner, &[10]);
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
        let _kept = (case.prepare)(&place);
        let mut owner = Child::run(|| {
            crash::arm_fuse(case.point, stop);
            (case.hold)(&place);
            0
        });
        owner.expect_to_stop(case.name);
        std::thread::scope(|scope| {
            for priority in [10, 20] {
                let place = &place;
                scope.spawn(move || {
                    assert!(become_urgent(priority));
                    (case.wait)(place);
                });
                expect_priority(&owner, priority.into(), case.name);
            }
            owner.kill();
        });
    }
}
