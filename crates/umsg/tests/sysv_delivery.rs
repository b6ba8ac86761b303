//! Messages of System V queues that are sent or returned for a later delivery. Programs that call msgsnd and msgrcv get the same results as from the
//! kernel.

#[path = "sysv_delivery/end_of_stream.rs"]
mod end_of_stream;
mod support;

use rustix::event::PollFlags;
use rustix::fd::BorrowedFd;
use std::time::{Duration, Instant, SystemTime};
use support::child::{Child, Exit};
use support::due::{TIMES, by_time, until_all_are_due};
use support::events::is_ready_within;
use support::place::Place;
use support::wait_until;
use umsg::sysv::{OpenOptions, Peeked, Queue, ReceiveError, SendError, Want};
use umsg_shm::crash;

const KEY: i32 = 7;
const STUCK: Duration = Duration::from_secs(20);
const DELAY: Duration = Duration::from_millis(60);
/// A delay that is longer than a few calls take on a busy machine.
const AWHILE: Duration = Duration::from_secs(2);
const LONG: Duration = Duration::from_secs(1000);

fn counts(queue: &Queue) -> (u64, u64, u64) {
    let now = queue.status().unwrap();
    (now.entry.messages, now.leased, now.delayed)
}

fn received(queue: &Queue) -> Vec<u8> {
    let message = queue.receive_vec_timeout(Want::Any, STUCK);
    message.unwrap().data
}

fn nothing(queue: &Queue) {
    let found = queue.try_receive_vec(Want::Any);
    assert_eq!(found, Err(ReceiveError::NoMessage));
}

fn blocked_receivers(queue: &Queue, count: usize) {
    let are_blocked = || queue.status().unwrap().blocked_receivers == count;
    assert!(wait_until(STUCK, are_blocked));
}

#[test]
fn a_due_message_comes_before_those_that_are_sent_after_that_time() {
    let (_place, queue) = Place::new().with_sysv_queue(KEY);
    let order = |send: fn(&Queue), what: &str| {
        queue
            .send_after(5, b"due", Duration::from_millis(1))
            .unwrap();
        std::thread::sleep(DELAY);
        send(&queue);
        assert_eq!(received(&queue), b"due", "{what}");
        assert_eq!(received(&queue), b"young", "{what}");
        assert_eq!(counts(&queue), (0, 0, 0), "{what}");
    };
    order(|queue| queue.try_send(5, b"young").unwrap(), "a send");
    order(|queue| queue.send(5, b"young").unwrap(), "a blocking send");
    order(
        |queue| queue.send_batch(&[(5, b"young")]).unwrap(),
        "a batch",
    );
}

#[test]
fn messages_that_became_due_together_come_in_the_order_of_their_times_and_sends() {
    let (_place, queue) = Place::new().with_sysv_queue(KEY);
    until_all_are_due(
        |position, time| {
            let mtype = i64::from(position % 3 + 1);
            queue.try_send_at(mtype, &[position], time).unwrap();
        },
        || while queue.receive_vec_timeout(Want::Any, DELAY).is_ok() {},
    );
    let order: Vec<u8> = TIMES.iter().map(|_| received(&queue)[0]).collect();
    assert_eq!(order, by_time());
    assert_eq!(counts(&queue), (0, 0, 0));
}

#[test]
fn a_process_killed_while_it_puts_due_messages_in_order_loses_none() {
    let (_place, queue) = Place::in_turn().with_sysv_queue(KEY);
    until_all_are_due(
        |position, time| queue.try_send_at(1, &[position], time).unwrap(),
        || while queue.receive_vec_timeout(Want::Any, DELAY).is_ok() {},
    );
    let mut victim = Child::run(|| {
        crash::arm("DUE_SORTED", 1);
        let _ = queue.receive_vec_timeout(Want::Any, STUCK);
        0
    });
    victim.expect(Exit::Signal(libc::SIGKILL), "DUE_SORTED");
    let order: Vec<u8> = TIMES.iter().map(|_| received(&queue)[0]).collect();
    assert_eq!(order, by_time());
    assert_eq!(counts(&queue), (0, 0, 0));
    assert!(!queue.status().unwrap().damaged);
}

#[test]
fn a_delayed_message_shows_its_send_and_its_due_time() {
    let (_place, queue) = Place::new().with_sysv_queue(KEY);
    let lag = Duration::from_millis(20);
    let begin = SystemTime::now() - lag;
    queue.send_after(5, b"later", LONG).unwrap();
    queue.send_after(6, b"soon", LONG / 2).unwrap();
    let end = SystemTime::now() + lag;
    queue.try_send(7, b"returned").unwrap();
    let job = queue.try_receive_lease(Want::Any).unwrap();
    job.return_after(LONG / 4).unwrap();
    let delayed = queue.delayed_messages(9).unwrap();
    let seen = |peeked: &Peeked| (peeked.mtype, peeked.data.clone(), peeked.returns);
    assert_eq!(
        delayed.iter().map(seen).collect::<Vec<_>>(),
        [
            (7, b"returned".to_vec(), 1),
            (6, b"soon".to_vec(), 0),
            (5, b"later".to_vec(), 0)
        ]
    );
    for (peeked, delay) in [(&delayed[1], LONG / 2), (&delayed[2], LONG)] {
        assert!(begin <= peeked.sent && peeked.sent <= end);
        let due = peeked.due.unwrap();
        assert!(begin + delay <= due && due <= end + delay);
    }
    assert_eq!(queue.delayed_messages(1).unwrap().len(), 1);
    assert_eq!(queue.messages(9).unwrap(), []);
}

#[test]
fn a_returned_message_waits_alone_and_has_its_old_place() {
    let (place, queue) = Place::new().with_sysv_queue(KEY);
    for message in [&b"first"[..], b"second", b"third"] {
        queue.try_send(5, message).unwrap();
    }
    let job = queue.try_receive_lease(Want::Any).unwrap();
    let begin = Instant::now();
    job.return_after(AWHILE).unwrap();
    assert_eq!(counts(&queue), (2, 0, 1));
    let diagnosis = umsg::sysv::diagnose(&place.namespace, KEY).unwrap();
    assert!(diagnosis.is_healthy(), "{:#?}", diagnosis.problems);
    assert_eq!(received(&queue), b"second");
    std::thread::sleep(AWHILE.saturating_sub(begin.elapsed()) + Duration::from_millis(10));
    let job = queue.try_receive_lease(Want::Any).unwrap();
    assert_eq!((job.to_vec(), job.deliveries()), (b"first".to_vec(), 2));
    job.acknowledge().unwrap();
    assert_eq!(received(&queue), b"third");
    assert_eq!(counts(&queue), (0, 0, 0));
    assert_eq!(queue.status().unwrap().statistics.returned, 1);
}

#[test]
fn the_delay_of_a_queue_doubles_up_to_its_limit() {
    let place = Place::new();
    let mut options = OpenOptions::new();
    options.create(true).namespace(&place.namespace);
    let (first, most) = (AWHILE / 2, AWHILE);
    let queue = options.retry_delay(first, most).open(KEY).unwrap();
    assert_eq!(queue.delivery().retry_delay, Some((first, most)));
    queue.try_send(1, b"job").unwrap();
    let lease = || queue.receive_lease_timeout(Want::Any, STUCK).unwrap();
    let mut job = lease();
    for (deliveries, delay) in [(1, first), (2, most), (3, most)] {
        assert_eq!(job.deliveries(), deliveries);
        let begin = Instant::now();
        drop(job);
        nothing(&queue);
        job = lease();
        assert!(begin.elapsed() >= delay, "{deliveries}");
    }
}

#[test]
fn the_lease_of_a_dead_process_is_delivered_after_the_queues_delay() {
    let place = Place::in_turn();
    let mut options = OpenOptions::new();
    options.create(true).namespace(&place.namespace);
    let queue = options.retry_delay(AWHILE, AWHILE).open(KEY).unwrap();
    queue.try_send(1, b"job").unwrap();
    let mut holder = Child::run(|| {
        std::mem::forget(place.open_sysv(KEY).try_receive_lease(Want::Any).unwrap());
        0
    });
    holder.expect(Exit::Code(0), "the holder");
    let begin = Instant::now();
    nothing(&queue);
    assert_eq!(counts(&queue), (0, 0, 1));
    assert_eq!(received(&queue), b"job");
    assert!(begin.elapsed() >= AWHILE);
}

#[test]
fn an_existing_queue_that_differs_from_the_options_is_refused() {
    let (place, _queue) = Place::new().with_sysv_queue(KEY);
    let mut options = OpenOptions::new();
    options.create(true).namespace(&place.namespace);
    let refused = |options: &OpenOptions| options.open(KEY).unwrap_err().to_string();
    let delay = refused(options.clone().retry_delay(DELAY, DELAY));
    assert!(
        delay.contains("its retry_delay is [0ns, 0ns], not [60ms, 60ms]"),
        "{delay}"
    );
    let closes = refused(options.close_with_last_producer(true));
    assert!(
        closes.contains("close_with_last_producer is false, not true"),
        "{closes}"
    );
}

#[test]
fn a_delayed_message_takes_room_and_its_place_when_it_is_due() {
    let (_place, queue) = Place::new().with_sysv_queue(KEY);
    let begin = Instant::now();
    queue.send_after(5, b"later", AWHILE).unwrap();
    queue.try_send(5, b"now").unwrap();
    assert_eq!(counts(&queue), (1, 0, 1));
    let (entry, leased_bytes) = (
        queue.status().unwrap().entry,
        queue.status().unwrap().leased_bytes,
    );
    assert_eq!((entry.bytes, leased_bytes), (3, 5));
    let long = vec![0; 4000];
    while queue.try_send_after(5, &long, LONG).is_ok() {}
    assert_eq!(queue.try_send(5, &long), Err(SendError::Full));
    assert_eq!(
        queue.send_after(0, b"x", DELAY),
        Err(SendError::InvalidType)
    );
    assert_eq!(received(&queue), b"now");
    nothing(&queue);
    // A blocked receiver wakes up for the delayed message.
    assert_eq!(received(&queue), b"later");
    assert!(begin.elapsed() >= AWHILE);
}

#[test]
fn a_receiver_that_sleeps_already_gets_a_message_of_its_type_that_is_sent_for_later() {
    let (_place, queue) = Place::new().with_sysv_queue(KEY);
    std::thread::scope(|scope| {
        let receiver = scope.spawn(|| {
            let message = queue.receive_vec_timeout(Want::Exactly(2), STUCK).unwrap();
            (message.data, Instant::now())
        });
        blocked_receivers(&queue, 1);
        let begin = Instant::now();
        queue.send_after(1, b"another", DELAY).unwrap();
        queue
            .send_at(2, b"later", SystemTime::now() + DELAY)
            .unwrap();
        let (data, end) = receiver.join().unwrap();
        assert_eq!(data, b"later");
        assert!(end - begin >= DELAY);
    });
    assert_eq!(received(&queue), b"another");
}

#[test]
fn a_delayed_send_waits_for_room_as_long_as_it_is_told() {
    let (_place, queue) = Place::new().with_sysv_queue(KEY);
    let (soon, past) = (Duration::from_millis(30), SystemTime::UNIX_EPOCH);
    let long = vec![0; 8000];
    queue.try_send_after(1, &long, LONG).unwrap();
    queue.try_send(1, &long).unwrap();
    assert_eq!(queue.try_send_after(1, &long, LONG), Err(SendError::Full));
    assert_eq!(queue.try_send_at(1, &long, past), Err(SendError::Full));
    let timed_out = Err(SendError::TimedOut);
    assert_eq!(queue.send_after_timeout(1, &long, LONG, soon), timed_out);
    assert_eq!(queue.send_at_timeout(1, &long, past, soon), timed_out);
    assert_eq!(queue.send_after_deadline(1, &long, LONG, past), timed_out);
    assert_eq!(queue.send_at_deadline(1, &long, past, past), timed_out);
    std::thread::scope(|scope| {
        let sender = scope.spawn(|| queue.send_after_timeout(1, b"second", DELAY, STUCK));
        assert_eq!(received(&queue), long);
        sender.join().unwrap().unwrap();
    });
    assert_eq!(received(&queue), b"second");
}

/// Returns a queue that closes with its last producer.
fn counting(place: &Place) -> Queue {
    let mut options = OpenOptions::new();
    options.create(true).namespace(&place.namespace);
    options.close_with_last_producer(true).open(KEY).unwrap()
}

/// Starts a child that is a producer, reports this by a message, and waits to be killed.
fn producer(place: &Place) -> Child {
    Child::run(|| {
        let queue = place.open_sysv(KEY);
        let producer = queue.producer().unwrap();
        producer.send(1, b"here").unwrap();
        std::thread::sleep(STUCK * 3);
        0
    })
}

#[test]
fn a_poller_is_told_of_delayed_messages_and_of_the_end() {
    let place = Place::in_turn();
    let queue = counting(&place);
    let descriptor = queue.pollable().unwrap();
    let begin = Instant::now();
    queue.send_after(1, b"later", DELAY).unwrap();
    assert!(is_ready_within(STUCK, descriptor, PollFlags::IN));
    assert!(begin.elapsed() + Duration::from_millis(5) >= DELAY);
    assert_eq!(queue.try_receive_vec(Want::Any).unwrap().data, b"later");
    let mut producer = producer(&place);
    assert!(is_ready_within(STUCK, descriptor, PollFlags::IN));
    assert_eq!(queue.try_receive_vec(Want::Any).unwrap().data, b"here");
    assert!(!is_ready_within(
        Duration::from_millis(150),
        descriptor,
        PollFlags::IN
    ));
    producer.kill();
    assert!(is_ready_within(STUCK, descriptor, PollFlags::IN));
    assert_eq!(queue.try_receive_vec(Want::Any), Err(ReceiveError::Closed));
}

#[test]
fn a_poller_learns_of_messages_that_are_delayed_after_its_poll_began() {
    let (place, queue) = Place::in_turn().with_sysv_queue(KEY);
    let descriptor = queue.pollable().unwrap();
    let other = place.open_sysv(KEY);
    for _ in 0..2 {
        other.send_after(1, b"later", DELAY).unwrap();
        assert_eq!(polled(&queue, descriptor), b"later");
    }
}

#[test]
fn a_poller_learns_that_the_holder_of_a_lease_was_killed() {
    let (place, queue) = Place::in_turn().with_sysv_queue(KEY);
    let descriptor = queue.pollable().unwrap();
    let said = place.create_sysv(KEY + 1);
    for is_asleep in [false, true] {
        queue.try_send(1, b"job").unwrap();
        let mut holder = Child::run(|| {
            let queue = place.open_sysv(KEY);
            std::mem::forget(queue.try_receive_lease(Want::Any).unwrap());
            said.try_send(1, b"").unwrap();
            std::thread::sleep(STUCK * 3);
            0
        });
        said.receive_vec(Want::Any).unwrap();
        if is_asleep {
            nothing(&queue);
            let soon = Duration::from_millis(250);
            assert!(!is_ready_within(soon, descriptor, PollFlags::IN));
        }
        holder.kill();
        assert_eq!(polled(&queue, descriptor), b"job");
    }
}

/// Waits for a message as a program with an event loop does: a wake-up may bring no message.
fn polled(queue: &Queue, descriptor: BorrowedFd<'_>) -> Vec<u8> {
    loop {
        assert!(is_ready_within(STUCK, descriptor, PollFlags::IN), "asleep");
        match queue.try_receive_vec(Want::Any) {
            Ok(message) => return message.data,
            Err(error) => assert_eq!(error, ReceiveError::NoMessage),
        }
    }
}

/// Kills a process at a point of `work`, and checks the queue afterwards.
fn kill(point: &str, before: fn(&Queue), work: fn(&Queue), after: impl Fn(&Queue)) {
    let place = Place::in_turn();
    let queue = counting(&place);
    before(&queue);
    let mut victim = Child::run(|| {
        let queue = place.open_sysv(KEY);
        crash::arm(point, 1);
        work(&queue);
        0
    });
    victim.expect(Exit::Signal(libc::SIGKILL), point);
    after(&queue);
    assert_eq!(counts(&queue), (0, 0, 0), "{point}");
    queue.reopen_send().unwrap();
    let mut sent = 0;
    while queue.try_send(1, &[0; 1024]).is_ok() {
        sent += 1;
    }
    assert_eq!(sent, 16, "{point}: room");
    assert!(!queue.status().unwrap().damaged, "{point}");
}

#[test]
fn a_process_killed_while_it_delays_a_message_or_delivers_it_loses_none() {
    let send: fn(&Queue) = |queue| queue.try_send(3, b"job").unwrap();
    let return_later: fn(&Queue) = |queue| {
        let job = queue.try_receive_lease(Want::Any).unwrap();
        job.return_after(DELAY).unwrap();
    };
    let send_later: fn(&Queue) = |queue| queue.send_after(3, b"job", DELAY).unwrap();
    let receive: fn(&Queue) = |queue| {
        let _ = queue.receive_vec_timeout(Want::Any, STUCK);
    };
    let once = |queue: &Queue| {
        assert_eq!(received(queue), b"job");
        nothing(queue);
    };
    kill("MSG_DELAY_NOTED", |_| {}, send_later, nothing);
    kill("MSG_DELAYED", |_| {}, send_later, once);
    kill("MSG_DELAYED", send, return_later, once);
    kill("MSG_DUE", send_later, receive, once);
    kill(
        "MSG_DUE",
        |queue| {
            queue.try_send(3, b"job").unwrap();
            let job = queue.try_receive_lease(Want::Any).unwrap();
            job.return_after(DELAY).unwrap();
        },
        receive,
        once,
    );
}
