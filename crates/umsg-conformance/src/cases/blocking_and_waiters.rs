//! Callers that wait, the order in which waiters are served, and the events that wake no waiter.

use std::sync::atomic::{AtomicI32, Ordering};
use std::thread;

use crate::children::{Carried, Child, wait_until, wait_until_asleep};
use crate::errno::Errno;
use crate::site::{Queue, Site, message};
use crate::sys;

subject! { $ blocking_and_waiters, blocking_and_waiters_cases:
    a_receive_from_an_empty_queue_waits_for_a_message
    a_send_to_a_full_queue_waits_for_room
    a_message_goes_straight_to_a_blocked_receiver
    a_newcomer_does_not_take_the_message_of_a_blocked_receiver
    blocked_receivers_are_served_in_the_order_they_came
    blocked_receivers_of_higher_thread_priority_are_served_first
    a_realtime_receiver_is_served_before_others
    one_message_serves_one_receiver
    a_blocked_receiver_gets_the_message_whatever_its_priority
    the_receive_that_makes_room_publishes_a_blocked_senders_message
    a_newcomer_does_not_take_the_room_of_a_blocked_sender
    blocked_senders_are_served_in_the_order_they_came
    blocked_senders_of_higher_thread_priority_are_served_first
    a_blocked_senders_message_takes_its_place_by_priority
    a_killed_receiver_takes_nothing
    a_killed_sender_leaves_nothing
    a_killed_receiver_is_skipped
    a_killed_sender_is_skipped
    setting_o_nonblock_does_not_wake_a_blocked_receiver
    closing_the_descriptor_in_another_thread_does_not_wake_a_receiver
    two_processes_play_ping_pong
    many_processes_wait_on_both_sides
}

fn a_receive_from_an_empty_queue_waits_for_a_message(site: &Site) {
    let queue = site.queue(2, 8);
    let receiver = site.child(|| queue.receive());
    receiver.wait_until_blocked();
    receiver.expect_still_blocked();
    assert_eq!(queue.send(b"hello", 3), Ok(()));
    assert_eq!(receiver.result(), Ok(message("hello", 3)));
}

fn a_send_to_a_full_queue_waits_for_room(site: &Site) {
    let queue = full_queue(site);
    let sender = site.child(|| queue.send(b"second", 3));
    sender.wait_until_blocked();
    sender.expect_still_blocked();
    assert_eq!(queue.receive(), Ok(message("first", 0)));
    assert_eq!(sender.result(), Ok(()));
    assert_eq!(queue.receive(), Ok(message("second", 3)));
}

/// Creates a queue that has room for one message, and sends "first" to it.
pub(super) fn full_queue(site: &Site) -> Queue<'_> {
    let queue = site.queue(1, 16);
    assert_eq!(queue.send(b"first", 0), Ok(()));
    queue
}

/// Opens an existing queue with O_NONBLOCK.
fn nonblocking<'a>(site: &'a Site, name: &std::ffi::CStr) -> Queue<'a> {
    site.open(name, libc::O_RDWR | libc::O_NONBLOCK)
        .expect("opening it")
}

fn a_message_goes_straight_to_a_blocked_receiver(site: &Site) {
    let queue = site.queue(2, 8);
    for round in 0..20_u32 {
        let receiver = site.child(|| queue.receive());
        receiver.wait_until_blocked();
        assert_eq!(queue.send(b"direct", round), Ok(()));
        assert_eq!(queue.messages(), 0);
        assert_eq!(receiver.result(), Ok(message("direct", round)));
    }
}

fn a_newcomer_does_not_take_the_message_of_a_blocked_receiver(site: &Site) {
    let name = site.name("newcomer");
    let queue = site.queue_called(&name, 2, 8);
    let newcomer = nonblocking(site, &name);
    for round in 0..20_u32 {
        let receiver = site.child(|| queue.receive());
        receiver.wait_until_blocked();
        assert_eq!(queue.send(b"mine", round), Ok(()));
        assert_eq!(newcomer.receive(), Err(Errno::EAGAIN));
        assert_eq!(receiver.result(), Ok(message("mine", round)));
    }
}

/// Starts a child that makes a call, and waits until the child is blocked in the call.
pub(super) fn blocked<'a, T: Carried>(site: &'a Site, work: impl FnOnce() -> T) -> Child<'a, T> {
    let child = site.child(work);
    child.wait_until_blocked();
    child
}

fn blocked_receivers_are_served_in_the_order_they_came(site: &Site) {
    let queue = site.queue(2, 8);
    for _ in 0..3 {
        let receivers: Vec<_> = (0..4).map(|_| blocked(site, || queue.receive())).collect();
        for (at, receiver) in (0_u8..).zip(receivers) {
            assert_eq!(queue.send([at], 0), Ok(()));
            assert_eq!(receiver.result(), Ok(message([at], 0)));
        }
    }
}

fn blocked_receivers_of_higher_thread_priority_are_served_first(site: &Site) {
    let queue = site.queue(2, 8);
    let at_nice = |nice| {
        blocked(site, || {
            sys::set_nice(nice).expect("a nice value");
            queue.receive()
        })
    };
    let (low, middle, high, high_too) = (at_nice(10), at_nice(5), at_nice(0), at_nice(0));
    for (text, receiver) in [("1", high), ("2", high_too), ("3", middle), ("4", low)] {
        assert_eq!(queue.send(text, 0), Ok(()));
        assert_eq!(receiver.result(), Ok(message(text, 0)));
    }
}

fn a_realtime_receiver_is_served_before_others(site: &Site) {
    let may = site.child(|| sys::set_realtime_priority(1).is_ok());
    if !may.result() {
        site.skip("no right to realtime priorities");
    }
    let queue = site.queue(2, 8);
    let ordinary = blocked(site, || queue.receive());
    let realtime = |priority| {
        blocked(site, || {
            sys::set_realtime_priority(priority).expect("a realtime priority");
            queue.receive()
        })
    };
    let (low, high) = (realtime(1), realtime(2));
    for (text, receiver) in [("1", high), ("2", low), ("3", ordinary)] {
        assert_eq!(queue.send(text, 0), Ok(()));
        assert_eq!(receiver.result(), Ok(message(text, 0)));
    }
}

fn one_message_serves_one_receiver(site: &Site) {
    let queue = site.queue(2, 8);
    let first = blocked(site, || queue.receive());
    let second = blocked(site, || queue.receive());
    assert_eq!(queue.send(b"one", 0), Ok(()));
    assert_eq!(first.result(), Ok(message("one", 0)));
    second.expect_still_blocked();
    assert_eq!(queue.send(b"two", 0), Ok(()));
    assert_eq!(second.result(), Ok(message("two", 0)));
}

fn a_blocked_receiver_gets_the_message_whatever_its_priority(site: &Site) {
    let queue = site.queue(2, 8);
    let receiver = blocked(site, || queue.receive());
    assert_eq!(queue.send(b"lowest", 0), Ok(()));
    assert_eq!(queue.send(b"highest", 32767), Ok(()));
    assert_eq!(receiver.result(), Ok(message("lowest", 0)));
    assert_eq!(queue.receive(), Ok(message("highest", 32767)));
}

fn the_receive_that_makes_room_publishes_a_blocked_senders_message(site: &Site) {
    let name = site.name("publish");
    let queue = site.queue_called(&name, 1, 8);
    let nonblocking = nonblocking(site, &name);
    for _ in 0..20 {
        assert_eq!(queue.send(b"first", 0), Ok(()));
        let sender = blocked(site, || queue.send(b"second", 0));
        assert_eq!(nonblocking.receive(), Ok(message("first", 0)));
        assert_eq!(nonblocking.messages(), 1);
        assert_eq!(nonblocking.receive(), Ok(message("second", 0)));
        assert_eq!(nonblocking.receive(), Err(Errno::EAGAIN));
        assert_eq!(sender.result(), Ok(()));
    }
}

fn a_newcomer_does_not_take_the_room_of_a_blocked_sender(site: &Site) {
    let name = site.name("newcomer");
    let queue = site.queue_called(&name, 1, 8);
    let newcomer = nonblocking(site, &name);
    assert_eq!(queue.send(b"first", 0), Ok(()));
    let sender = blocked(site, || queue.send(b"second", 0));
    assert_eq!(newcomer.receive(), Ok(message("first", 0)));
    assert_eq!(newcomer.send(b"third", 9), Err(Errno::EAGAIN));
    assert_eq!(newcomer.drain(), [message("second", 0)]);
    assert_eq!(sender.result(), Ok(()));
}

fn blocked_senders_are_served_in_the_order_they_came(site: &Site) {
    let queue = full_queue(site);
    let senders: Vec<_> = (0_u8..4)
        .map(|at| blocked(site, move || queue.send([at], 0)))
        .collect();
    assert_eq!(queue.receive(), Ok(message("first", 0)));
    for (at, sender) in (0_u8..).zip(senders) {
        assert_eq!(sender.result(), Ok(()));
        assert_eq!(queue.receive(), Ok(message([at], 0)));
    }
    assert_eq!(queue.messages(), 0);
}

fn blocked_senders_of_higher_thread_priority_are_served_first(site: &Site) {
    let queue = full_queue(site);
    let at_nice = |nice, text: &'static str| {
        blocked(site, move || {
            sys::set_nice(nice).expect("a nice value");
            queue.send(text, 0)
        })
    };
    let senders = [
        at_nice(10, "low"),
        at_nice(5, "middle"),
        at_nice(0, "high"),
        at_nice(0, "high too"),
    ];
    for text in ["first", "high", "high too", "middle", "low"] {
        assert_eq!(queue.receive(), Ok(message(text, 0)));
    }
    for sender in senders {
        assert_eq!(sender.result(), Ok(()));
    }
}

fn a_blocked_senders_message_takes_its_place_by_priority(site: &Site) {
    let queue = site.queue(2, 8);
    assert_eq!(queue.send(b"5", 5), Ok(()));
    assert_eq!(queue.send(b"3", 3), Ok(()));
    let senders = [
        blocked(site, || queue.send(b"1", 1)),
        blocked(site, || queue.send(b"9", 9)),
    ];
    let order: Vec<u8> = (0..4)
        .map(|_| queue.receive().expect("a message").data[0])
        .collect();
    // Each receive makes room for the message of one blocked sender: message 1 enters the queue after message 5 is received, and message 9 after
    // message 3.
    assert_eq!(order, b"5391");
    for sender in senders {
        assert_eq!(sender.result(), Ok(()));
    }
}

fn a_killed_receiver_takes_nothing(site: &Site) {
    let queue = site.nonblocking(2, 8);
    queue.set_nonblocking(false);
    blocked(site, || queue.receive()).kill();
    assert_eq!(queue.send(b"safe", 1), Ok(()));
    assert_eq!(queue.messages(), 1);
    queue.set_nonblocking(true);
    assert_eq!(queue.drain(), [message("safe", 1)]);
}

fn a_killed_sender_leaves_nothing(site: &Site) {
    let queue = full_queue(site);
    blocked(site, || queue.send(b"ghost", 9)).kill();
    queue.set_nonblocking(true);
    assert_eq!(queue.drain(), [message("first", 0)]);
    assert_eq!(queue.fill(), 1);
}

fn a_killed_receiver_is_skipped(site: &Site) {
    let queue = site.queue(2, 8);
    let (first, second) = (
        blocked(site, || queue.receive()),
        blocked(site, || queue.receive()),
    );
    first.kill();
    assert_eq!(queue.send(b"next", 0), Ok(()));
    assert_eq!(second.result(), Ok(message("next", 0)));
}

fn a_killed_sender_is_skipped(site: &Site) {
    let queue = full_queue(site);
    let killed = blocked(site, || queue.send(b"ghost", 0));
    let next = blocked(site, || queue.send(b"next", 0));
    killed.kill();
    assert_eq!(queue.receive(), Ok(message("first", 0)));
    assert_eq!(next.result(), Ok(()));
    assert_eq!(queue.receive(), Ok(message("next", 0)));
}

fn setting_o_nonblock_does_not_wake_a_blocked_receiver(site: &Site) {
    let queue = site.queue(1, 8);
    let receiver = blocked(site, || queue.receive());
    queue.set_nonblocking(true);
    receiver.expect_still_blocked();
    assert_eq!(queue.send(b"late", 0), Ok(()));
    assert_eq!(receiver.result(), Ok(message("late", 0)));
}

fn closing_the_descriptor_in_another_thread_does_not_wake_a_receiver(site: &Site) {
    let name = site.name("threads");
    let queue = site.queue_called(&name, 1, 8);
    let other = site.open(&name, libc::O_RDWR).expect("opening it");
    let (id, done) = (AtomicI32::new(0), AtomicI32::new(0));
    thread::scope(|scope| {
        let receiver = scope.spawn(|| {
            id.store(sys::tid(), Ordering::Release);
            let received = queue.receive();
            done.store(1, Ordering::Release);
            received
        });
        wait_until(|| id.load(Ordering::Acquire) != 0);
        let is_done = || done.load(Ordering::Acquire) == 1;
        wait_until_asleep(id.load(Ordering::Acquire), is_done);
        assert_eq!(queue.close(), Ok(()));
        thread::sleep(crate::children::A_WHILE);
        assert!(!is_done());
        assert_eq!(other.send(b"late", 0), Ok(()));
        assert_eq!(receiver.join().expect("no panic"), Ok(message("late", 0)));
    });
}

fn two_processes_play_ping_pong(site: &Site) {
    const ROUNDS: u32 = 2000;
    let (ping, pong) = (site.queue(1, 8), site.queue(1, 8));
    let other = site.child(|| {
        for _ in 0..ROUNDS {
            let got = ping.receive()?;
            pong.send(&got.data, got.priority + 1)?;
        }
        Ok(())
    });
    for round in 0..ROUNDS {
        assert_eq!(ping.send(round.to_le_bytes(), round), Ok(()));
        assert_eq!(pong.receive(), Ok(message(round.to_le_bytes(), round + 1)));
    }
    assert_eq!(other.result(), Ok(()));
}

fn many_processes_wait_on_both_sides(site: &Site) {
    const EACH: i64 = 1000;
    let queue = site.queue(2, 8);
    let sum_of = |first: i64| (first..first + EACH).sum::<i64>();
    let senders: Vec<_> = (0..3)
        .map(|sender| {
            site.child(move || {
                for number in sender * EACH..(sender + 1) * EACH {
                    queue.send(number.to_le_bytes(), number as u32 % 3)?;
                }
                Ok(())
            })
        })
        .collect();
    let receivers: Vec<_> = (0..3)
        .map(|_| {
            site.child(|| {
                let mut sum = 0;
                for _ in 0..EACH {
                    sum += i64::decode(&queue.receive()?.data);
                }
                Ok::<i64, Errno>(sum)
            })
        })
        .collect();
    for sender in senders {
        assert_eq!(sender.result(), Ok(()));
    }
    let received: i64 = receivers
        .into_iter()
        .map(|receiver| receiver.result().expect("a sum"))
        .sum();
    assert_eq!(
        received,
        (0..3).map(|sender| sum_of(sender * EACH)).sum::<i64>()
    );
    assert_eq!(queue.messages(), 0);
}
