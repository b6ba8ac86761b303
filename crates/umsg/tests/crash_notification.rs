//! A process that dies while it registers or notifies leaves no process registered for ever, and no process without its notification.

mod support;

use std::time::Duration;
use support::child::{Child, Exit, stop};
use support::place::Place;
use support::{turn, wait_until};
use umsg::posix::{Notify, NotifyError, Queue};
use umsg_shm::crash;
use umsg_testkit::signals::{block, comes};

/// The limit on every wait: no step of these tests takes as long.
const LONG: Duration = Duration::from_secs(20);
const ROUNDS: u32 = 10;

/// Runs `work` in a process until it is killed at a point.
fn die_at(place: &Place, point: &str, work: impl FnOnce(&Queue)) {
    let mut victim = Child::run(|| {
        let queue = place.open("/q");
        crash::arm(point, 1);
        work(&queue);
        0
    });
    victim.expect(Exit::Signal(libc::SIGKILL), point);
}

/// Receives all messages. Fails unless the next message then causes exactly one notification.
fn expect_to_work(queue: &Queue, point: &str) {
    while queue.try_receive(&mut [0; 8]).is_ok() {}
    let mut awaited = queue.notify_waiter().expect(point);
    assert_eq!(awaited.try_wait(), Err(NotifyError::TimedOut), "{point}");
    queue.send(b"x", 0).unwrap();
    awaited.try_wait().expect(point);
    queue.try_receive(&mut [0; 8]).unwrap();
    assert_eq!(queue.registered(), None, "{point}");
    assert!(!queue.status().damaged, "{point}");
}

/// Repeats `round` at each point, and fails unless the queue works after each round.
fn in_rounds(points: &[&str], round: impl Fn(&Place, &Queue, &str)) {
    let _turn = turn();
    for point in points {
        let (place, queue) = Place::new().with_queue("/q", 4, 8);
        for _ in 0..ROUNDS {
            round(&place, &queue, point);
            expect_to_work(&queue, point);
        }
    }
}

#[test]
fn a_sender_that_dies_after_its_message_was_sent_has_notified() {
    in_rounds(
        &[
            "SEND_PUBLISHED",
            "SEND_COUNTED",
            "SEND_UNSERVED",
            "NOTICE_NOTED",
            "NOTICE_FIRED",
            "NOTICE_UNTOLD",
        ],
        |place, queue, point| {
            let mut awaited = queue.notify_waiter().unwrap();
            die_at(place, point, |queue| queue.send(b"dead", 0).unwrap());
            awaited.wait_timeout(LONG).expect(point);
        },
    );
}

#[test]
fn a_sender_that_dies_has_called_the_function_of_another_process() {
    in_rounds(
        &["SEND_UNSERVED", "NOTICE_FIRED", "NOTICE_UNTOLD"],
        |place, queue, point| {
            let (tell, told) = std::sync::mpsc::channel();
            let how = Notify::call(move |by| tell.send(by).unwrap());
            let registration = queue.notify(how).unwrap();
            die_at(place, point, |queue| queue.send(b"dead", 0).unwrap());
            told.recv_timeout(LONG).expect(point);
            drop(registration);
        },
    );
}

/// Makes a sender that knows the consents of another process raise that process's signal. At a point of this work, `meanwhile` acts on the sender.
/// Returns the number of signals.
fn signals_of_a_sender_at(point: &str, fuse: fn(), meanwhile: fn(&mut Child)) -> u32 {
    const AGAIN: Duration = Duration::from_millis(20);
    let place = Place::new();
    let mut owner = Child::lead(|| {
        let set = block(libc::SIGUSR1);
        let queue = place.create("/q", 4, 8);
        let register = || std::mem::forget(queue.notify(Notify::signal(libc::SIGUSR1)).unwrap());
        let take_message = || queue.try_receive(&mut [0; 8]).map(|_| ()).unwrap();
        register();
        let mut sender = Child::run(|| {
            let queue = place.open("/q");
            for _ in 0..3 {
                assert!(wait_until(LONG, || queue.registered().is_some()));
                std::thread::sleep(AGAIN);
                queue.send(b"x", 0).unwrap();
            }
            assert!(wait_until(LONG, || queue.registered().is_some()));
            crash::arm_fuse(point, fuse);
            queue.send(b"last", 0).unwrap();
            0
        });
        for _ in 0..3 {
            assert!(comes(&set, LONG), "{point}");
            take_message();
            register();
        }
        meanwhile(&mut sender);
        let mut signals = 0;
        while comes(
            &set,
            Duration::from_millis(if signals == 0 { 20_000 } else { 250 }),
        ) {
            signals += 1;
        }
        assert!(wait_until(LONG, || queue.registered().is_none()), "{point}");
        take_message();
        expect_to_work(&queue, point);
        signals
    });
    match owner.wait(LONG) {
        Some(Exit::Code(signals)) if signals < 100 => signals as u32,
        other => panic!("{point}: {other:?}"),
    }
}

fn die() {
    // SAFETY: the call sends a signal to this process.
    unsafe { libc::kill(libc::getpid(), libc::SIGKILL) };
    loop {
        std::thread::park();
    }
}

#[test]
fn a_sender_that_dies_while_it_raises_another_processs_signal_leaves_it_raised() {
    let _turn = turn();
    let dies = |sender: &mut Child| sender.expect(Exit::Signal(libc::SIGKILL), "the sender");
    assert_eq!(signals_of_a_sender_at("NOTICE_RAISING", die, dies), 1);
    // The sender dies before it can note that it raised the signal.
    let signals = signals_of_a_sender_at("NOTICE_SIGNALLED", die, dies);
    assert!((1..=2).contains(&signals), "{signals}");
}

#[test]
fn a_sender_that_is_stopped_while_it_raises_another_processs_signal_raises_it_once() {
    let _turn = turn();
    let stops = |sender: &mut Child| {
        sender.expect_to_stop("the sender");
        std::thread::sleep(Duration::from_millis(300));
        sender.signal(libc::SIGCONT);
        sender.expect(Exit::Code(0), "the sender");
    };
    for point in ["NOTICE_RAISING", "NOTICE_SIGNALLED"] {
        assert_eq!(signals_of_a_sender_at(point, stop, stops), 1, "{point}");
    }
}

#[test]
fn a_sender_that_is_killed_while_it_is_stopped_leaves_the_signal_raised() {
    let _turn = turn();
    let stops = |sender: &mut Child| {
        sender.expect_to_stop("the sender");
        sender.kill();
    };
    assert_eq!(signals_of_a_sender_at("NOTICE_RAISING", stop, stops), 1);
}

#[test]
fn a_process_that_dies_while_it_registers_or_withdraws_is_registered_no_more() {
    in_rounds(
        &[
            "NOTICE_FILLED",
            "NOTICE_DECIDED",
            "NOTICE_ARMED",
            "NOTICE_WITHDRAWN",
        ],
        |place, queue, point| {
            die_at(place, point, |queue| {
                drop(queue.notify(Notify::signal(libc::SIGUSR1)).unwrap());
            });
            assert_eq!(queue.registered(), None, "{point}");
            queue.send(b"x", 0).unwrap();
        },
    );
}

#[test]
fn a_sender_is_not_held_up_by_a_process_that_dies_after_raising_its_signal() {
    let (place, queue) = Place::in_turn().with_queue("/q", 4, 8);
    for _ in 0..ROUNDS {
        let mut owner = Child::run(|| {
            // SAFETY: SIG_IGN is no handler of this process.
            unsafe { libc::signal(libc::SIGUSR1, libc::SIG_IGN) };
            let queue = place.open("/q");
            // The process dies before any other process sees the registration.
            crash::arm("NOTICE_RAISED", 1);
            let _registration = queue.notify(Notify::signal(libc::SIGUSR1)).unwrap();
            std::thread::sleep(LONG);
            0
        });
        assert!(wait_until(LONG, || queue.registered().is_some()));
        queue.send(b"x", 0).unwrap();
        owner.expect(Exit::Signal(libc::SIGKILL), "NOTICE_RAISED");
        expect_to_work(&queue, "NOTICE_RAISED");
    }
}

#[test]
fn a_receiver_that_dies_after_emptying_the_queue_leaves_no_process_without_notification() {
    in_rounds(
        &["RECEIVE_TAKEN", "RECEIVE_FREED"],
        |place, queue, point| {
            queue.send(b"first", 0).unwrap();
            let mut awaited = queue.notify_waiter().unwrap();
            die_at(place, point, |queue| {
                queue.try_receive(&mut [0; 8]).unwrap();
            });
            queue.send(b"second", 0).unwrap();
            awaited.wait_timeout(LONG).expect(point);
        },
    );
}
