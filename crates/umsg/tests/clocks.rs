//! Clocks that are set while queues are in use, and processes of other time namespaces.
//!
//! A test can't set the machine's clock. So a test makes the library read CLOCK_REALTIME with a step, in a separate process.

mod support;

use std::time::{Duration, Instant, SystemTime};
use support::child::{Child, Exit};
use support::due::in_time;
use support::place::Place;
use umsg::posix::{Queue, ReceiveError};
use umsg_shm::crash::step_realtime;

const DAY: i64 = 86_400_000_000_000;
const SHORT: Duration = Duration::from_millis(100);
const HOUR: Duration = Duration::from_secs(3600);
const DONE: Exit = Exit::Code(0);

fn queue(time_to_live: Option<Duration>) -> (Place, Queue) {
    let place = Place::new();
    let mut options = place.options(4, 64);
    if let Some(time) = time_to_live {
        options.time_to_live(time);
    }
    let queue = options.open("/q").unwrap();
    (place, queue)
}

fn received(queue: &Queue) -> bool {
    match queue.try_receive(&mut [0; 64]) {
        Ok(_) => true,
        Err(ReceiveError::Empty) => false,
        Err(error) => panic!("{error}"),
    }
}

/// Runs `work` in a child whose clock may be set.
fn in_child(what: &str, work: impl FnOnce()) {
    let mut child = Child::run(|| {
        work();
        0
    });
    child.expect(DONE, what);
}

/// Runs `work` in a process whose CLOCK_MONOTONIC is a day ahead. Needs root.
fn a_day_ahead(what: &str, work: impl FnOnce()) {
    let mut child = Child::lead(|| {
        // SAFETY: the system call takes a number. It changes the namespace of later children of this process.
        if unsafe { libc::unshare(libc::CLONE_NEWTIME) } != 0 {
            assert!(std::env::var_os("CI").is_none(), "no time namespaces");
            return 0;
        }
        std::fs::write("/proc/self/timens_offsets", "monotonic 86400 0").unwrap();
        let mut inner = Child::run(|| {
            work();
            0
        });
        inner.expect(DONE, what);
        0
    });
    child.expect(DONE, what);
}

#[test]
fn no_message_expires_because_the_clock_is_set_forth() {
    let (_place, queue) = queue(Some(HOUR));
    in_child("a message that is young", || {
        queue.send(b"young", 0).unwrap();
        step_realtime(DAY);
        assert!(received(&queue));
    });
}

#[test]
fn messages_expire_though_the_clock_is_set_back() {
    let (_place, queue) = queue(Some(SHORT));
    in_child("a message that is old", || {
        queue.send(b"old", 0).unwrap();
        step_realtime(-DAY);
        std::thread::sleep(2 * SHORT);
        assert!(!received(&queue));
    });
}

#[test]
fn the_time_of_a_send_is_shown_by_the_clock_as_it_is_set_now() {
    let (_place, queue) = queue(None);
    in_child("a message that is looked at", || {
        let before = SystemTime::now() - SHORT;
        queue.send(b"seen", 0).unwrap();
        let seen = || queue.peek(0).unwrap().unwrap().sent;
        let then = seen();
        assert!(before < then && then <= SystemTime::now());
        assert_eq!(seen(), then, "the same at each look");
        assert_eq!(queue.status().last_send, Some(then));
        step_realtime(DAY);
        assert_eq!(seen(), then + Duration::from_nanos(DAY.unsigned_abs()));
    });
}

#[test]
fn a_timed_receive_ends_when_the_clock_is_set_past_its_deadline() {
    let (_place, queue) = queue(None);
    in_child("a receive that waits", || {
        std::thread::scope(|scope| {
            let waiting =
                scope.spawn(|| queue.receive_deadline(&mut [0; 64], SystemTime::now() + HOUR));
            std::thread::sleep(SHORT);
            assert!(!waiting.is_finished());
            step_realtime(DAY);
            let ended = waiting.join().unwrap();
            assert!(matches!(ended, Err(ReceiveError::TimedOut)), "{ended:?}");
        });
    });
}

#[test]
fn a_timed_receive_goes_on_when_the_clock_is_set_back() {
    let (_place, queue) = queue(None);
    in_child("a receive that waits", || {
        std::thread::scope(|scope| {
            let queue = &queue;
            let (waiting, time) = in_time(10 * SHORT, |time| {
                step_realtime(DAY);
                let begin = Instant::now();
                let deadline = SystemTime::now() + Duration::from_nanos(DAY as u64) + time;
                let waiting = scope.spawn(move || queue.receive_deadline(&mut [0; 64], deadline));
                std::thread::sleep(SHORT);
                // If this step comes too late, the receive times out now or at the first step of the next attempt.
                step_realtime(0);
                (begin, (waiting, time))
            });
            std::thread::sleep(time + time / 2);
            assert!(!waiting.is_finished());
            step_realtime(2 * DAY);
            let ended = waiting.join().unwrap();
            assert!(matches!(ended, Err(ReceiveError::TimedOut)), "{ended:?}");
        });
    });
}

#[test]
fn no_message_expires_in_another_time_namespace() {
    umsg_testkit::needs_root!();
    let (_place, queue) = queue(Some(HOUR));
    queue.send(b"young", 0).unwrap();
    a_day_ahead("a message that is young", || {
        let sent = queue.peek(0).unwrap().unwrap().sent;
        assert!(sent <= SystemTime::now() && sent + HOUR > SystemTime::now());
        assert!(received(&queue));
        queue.send(b"from ahead", 0).unwrap();
    });
    assert!(received(&queue));
}

#[test]
fn waits_and_limits_of_leases_are_as_long_in_another_time_namespace() {
    umsg_testkit::needs_root!();
    let (_place, queue) = queue(None);
    a_day_ahead("a lease with a limit", || {
        queue.send(b"leased", 0).unwrap();
        let lease = queue.receive_lease().unwrap();
        lease.limit(HOUR).unwrap();
        let ended = queue.receive_timeout(&mut [0; 64], 3 * SHORT);
        assert!(matches!(ended, Err(ReceiveError::TimedOut)), "{ended:?}");
        lease.limit(SHORT).unwrap();
        // A sleep on the wrong one of the two clocks would end at once, or in a day.
        queue.receive(&mut [0; 64]).unwrap();
        assert!(lease.acknowledge().is_err());
    });
}
