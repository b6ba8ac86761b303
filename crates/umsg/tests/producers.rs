//! Any end of the last producer closes a queue for sending. The ends of the other producers do not.

mod support;

use rustix::event::PollFlags;
use std::time::Duration;
use support::child::{Child, Exit};
use support::events::is_ready_within;
use support::place::Place;
use support::wait_until;
use umsg::posix::{Queue, ReceiveError, SendError};
use umsg_shm::crash;

const STUCK: Duration = Duration::from_secs(20);

/// Returns a queue that closes with its last producer.
fn queue(place: &Place) -> Queue {
    let mut options = place.options(4, 8);
    options.close_with_last_producer(true).open("/q").unwrap()
}

/// Starts a child that is a producer, reports this by a message, and ends by `end`.
fn child(place: &Place, end: impl FnOnce(&Queue) -> i32) -> Child {
    Child::run(|| {
        let queue = place.open("/q");
        let producer = queue.producer().unwrap();
        producer.send(b"here", 0).unwrap();
        let code = end(&queue);
        std::mem::forget(producer);
        code
    })
}

fn sleep_for_ever(_: &Queue) -> i32 {
    std::thread::sleep(STUCK * 3);
    0
}

#[test]
fn the_end_of_the_last_of_several_producers_ends_the_stream() {
    let place = Place::new();
    let queue = queue(&place);
    assert_eq!(queue.try_receive_vec(), Err(ReceiveError::Empty));
    let first = queue.producer().unwrap();
    let again = queue.producer().unwrap();
    let mut other = child(&place, sleep_for_ever);
    assert_eq!(queue.receive_vec().unwrap().data, b"here");
    let status = queue.status();
    assert!(status.close_with_last_producer);
    assert_eq!((status.producers, status.send_closed), (2, false));
    drop((first, again));
    assert_eq!(queue.status().producers, 1);
    assert_eq!(queue.try_receive_vec(), Err(ReceiveError::Empty));
    queue.try_send(b"last", 0).unwrap();
    other.kill();
    // The remaining messages are received before the end of the stream is reported.
    assert_eq!(queue.receive_vec().unwrap().data, b"last");
    // A receiver that has just checked whether the producer lives does not check again at once.
    assert_eq!(queue.receive_vec_timeout(STUCK), Err(ReceiveError::Closed));
    assert_eq!(queue.try_receive_vec(), Err(ReceiveError::Closed));
    assert_eq!(queue.producer().unwrap_err(), SendError::Closed);
    assert_eq!(queue.try_send(b"no", 0), Err(SendError::Closed));
}

#[test]
fn a_blocked_receiver_learns_that_the_last_producer_was_killed() {
    let place = Place::in_turn();
    let queue = queue(&place);
    let mut producer = child(&place, sleep_for_ever);
    assert_eq!(queue.receive_vec().unwrap().data, b"here");
    std::thread::scope(|scope| {
        let receiver = scope.spawn(|| queue.receive_vec());
        assert!(wait_until(STUCK, || queue.status().blocked_receivers == 1));
        producer.kill();
        assert_eq!(receiver.join().unwrap(), Err(ReceiveError::Closed));
    });
}

#[test]
fn a_forked_child_does_not_end_its_parents_stream() {
    let place = Place::in_turn();
    let queue = queue(&place);
    let producer = queue.producer().unwrap();
    let producer = std::sync::Mutex::new(Some(producer));
    let mut forked = Child::run(|| {
        drop(producer.lock().unwrap().take());
        i32::from(queue.end_producing() != Ok(false))
    });
    forked.expect(Exit::Code(0), "the child");
    assert!(!queue.is_send_closed());
    assert_eq!(queue.status().producers, 1);
    drop(producer);
    assert!(queue.is_send_closed());
}

#[test]
fn a_queue_that_is_reopened_waits_for_new_producers() {
    let place = Place::new();
    let queue = queue(&place);
    drop(queue.producer().unwrap());
    assert_eq!(queue.receive_vec(), Err(ReceiveError::Closed));
    assert_eq!(queue.reopen_send(), Ok(true));
    assert_eq!(queue.try_receive_vec(), Err(ReceiveError::Empty));
    let producer = queue.producer().unwrap();
    queue.close_send().unwrap();
    // The remaining producer belongs to the next stream, too.
    queue.reopen_send().unwrap();
    assert_eq!(queue.try_receive_vec(), Err(ReceiveError::Empty));
    drop(producer);
    assert_eq!(queue.receive_vec(), Err(ReceiveError::Closed));
}

#[test]
fn the_records_of_dead_producers_are_used_again_and_a_producer_too_many_is_refused() {
    let place = Place::in_turn();
    let queue = queue(&place);
    let _ours = queue.producer().unwrap();
    let most = umsg_shm::posix_engine::segment::PRODUCERS;
    for _ in 0..2 {
        let mut others: Vec<Child> = (1..most)
            .map(|_| {
                let other = child(&place, sleep_for_ever);
                assert_eq!(queue.receive_vec().unwrap().data, b"here");
                other
            })
            .collect();
        assert_eq!(queue.status().producers, most);
        let mut refused = Child::run(|| {
            let refused = place.open("/q").producer().map(drop);
            i32::from(refused != Err(SendError::TooManyProducers))
        });
        refused.expect(Exit::Code(0), "one too many");
        others.iter_mut().for_each(Child::kill);
        assert_eq!(queue.status().producers, 1);
    }
    assert!(!queue.is_send_closed());
}

#[test]
fn a_queue_without_the_option_stays_open_without_producers() {
    let (_place, queue) = Place::new().with_queue("/q", 2, 8);
    drop(queue.producer().unwrap());
    assert_eq!(queue.try_receive_vec(), Err(ReceiveError::Empty));
    queue.try_send(b"open", 0).unwrap();
    assert_eq!(queue.status().producers, 0);
}

#[test]
fn a_poller_learns_that_the_last_producer_was_killed() {
    let place = Place::in_turn();
    let queue = queue(&place);
    let descriptor = queue.pollable().unwrap();
    let mut producer = child(&place, sleep_for_ever);
    assert!(is_ready_within(STUCK, descriptor, PollFlags::IN));
    assert_eq!(queue.try_receive_vec().unwrap().data, b"here");
    assert!(!is_ready_within(
        Duration::from_millis(150),
        descriptor,
        PollFlags::IN
    ));
    producer.kill();
    assert!(is_ready_within(STUCK, descriptor, PollFlags::IN));
    assert_eq!(queue.try_receive_vec(), Err(ReceiveError::Closed));
}

/// A queue whose last producer was killed. No process has checked it since.
fn abandoned(place: &Place) -> Queue {
    let queue = queue(place);
    let mut producer = child(place, sleep_for_ever);
    assert_eq!(queue.receive_vec().unwrap().data, b"here");
    producer.kill();
    queue
}

#[test]
fn the_first_send_after_the_last_producer_was_killed_is_refused() {
    type Send = fn(&Queue) -> Result<(), SendError>;
    let sends: [(&str, Send); 9] = [
        ("one", |queue| queue.try_send(b"no", 0)),
        ("one, blocking", |queue| queue.send(b"no", 0)),
        ("several", |queue| {
            queue.try_send_batch(&[(&b"no"[..], 0), (b"no", 0)])
        }),
        ("some", |queue| {
            queue.try_send_some(&[(&b"no"[..], 0)]).map(drop)
        }),
        ("room", |queue| queue.try_reserve(8).map(drop)),
        ("later", |queue| queue.try_send_after(b"no", 0, STUCK)),
        ("a producer", |queue| queue.producer().map(drop)),
        ("watched", |queue| {
            queue.pollable().unwrap();
            queue.try_send(b"no", 0)
        }),
        ("reopened", |queue| {
            queue.reopen_send().unwrap();
            queue.try_send(b"yes", 0).unwrap();
            queue.close_send().unwrap();
            queue.try_send(b"no", 0)
        }),
    ];
    for (name, send) in sends {
        let place = Place::in_turn();
        let queue = abandoned(&place);
        assert_eq!(send(&queue), Err(SendError::Closed), "{name}");
        assert!(queue.is_send_closed(), "{name}");
    }
}

#[test]
fn a_reservation_is_refused_after_the_last_producer_was_killed() {
    let place = Place::in_turn();
    let queue = queue(&place);
    let room = queue.try_reserve(8).unwrap();
    let mut producer = child(&place, sleep_for_ever);
    assert_eq!(queue.receive_vec().unwrap().data, b"here");
    producer.kill();
    assert!(room.commit(0).is_err());
    assert!(queue.is_send_closed());
}

#[test]
fn the_status_shows_the_end_of_the_last_producer_and_does_not_close_the_queue() {
    let place = Place::in_turn();
    let queue = abandoned(&place);
    let status = queue.status();
    assert_eq!((status.producers, status.send_closed), (0, true));
    assert!(!queue.is_send_closed());
    assert_eq!(queue.reopen_send(), Ok(false));
    assert!(!queue.status().send_closed);
}

#[test]
fn a_blocked_sender_learns_that_the_last_producer_was_killed() {
    let place = Place::in_turn();
    let queue = queue(&place);
    let mut producer = child(&place, sleep_for_ever);
    assert_eq!(queue.receive_vec().unwrap().data, b"here");
    while queue.try_send(b"full", 0).is_ok() {}
    std::thread::scope(|scope| {
        let sender = scope.spawn(|| queue.send_timeout(b"more", 0, STUCK));
        assert!(wait_until(STUCK, || queue.status().blocked_senders == 1));
        producer.kill();
        assert_eq!(sender.join().unwrap(), Err(SendError::Closed));
    });
}

#[test]
fn a_receiver_that_tries_again_and_again_asks_rarely_whether_producers_live() {
    const TRIES: u32 = 20_000;
    let place = Place::in_turn();
    let queue = queue(&place);
    let mut producer = child(&place, sleep_for_ever);
    assert_eq!(queue.receive_vec().unwrap().data, b"here");
    let read = || {
        let usage = std::fs::read_to_string("/proc/self/io").unwrap();
        let calls = usage.lines().find_map(|line| line.strip_prefix("syscr: "));
        calls.unwrap().parse::<u64>().unwrap()
    };
    let before = read();
    for _ in 0..TRIES {
        assert_eq!(queue.try_receive_vec(), Err(ReceiveError::Empty));
    }
    // A check reads a file of /proc. The loop takes some milliseconds, as long as the pause between two checks.
    assert!(read() - before < u64::from(TRIES) / 10);
    producer.kill();
}

/// Kills a producer at a point of `work`. Fails unless other producers keep the stream open, and the death of the last producer ends the stream.
fn kill(point: &str, work: fn(&Queue)) {
    for is_last in [true, false] {
        let place = Place::in_turn();
        let queue = queue(&place);
        let other = queue.producer().unwrap();
        let mut victim = Child::run(|| {
            let queue = place.open("/q");
            crash::arm(point, 1);
            work(&queue);
            0
        });
        victim.expect(Exit::Signal(libc::SIGKILL), point);
        let other = (!is_last).then_some(other);
        match &other {
            Some(_) => assert_eq!(queue.try_receive_vec(), Err(ReceiveError::Empty), "{point}"),
            None => assert_eq!(queue.receive_vec(), Err(ReceiveError::Closed), "{point}"),
        }
        assert!(!queue.status().damaged, "{point}");
    }
}

#[test]
fn a_process_killed_while_it_begins_or_ends_to_produce_counts_no_more() {
    let begin: fn(&Queue) = |queue| {
        let _ = queue.begin_to_produce();
    };
    kill("PRODUCER_NAMED", begin);
    kill("PRODUCER_COUNTED", begin);
    kill("PRODUCER_ENDED", |queue| {
        queue.begin_to_produce().unwrap();
        let _ = queue.end_producing();
    });
}
