//! Messages of System V queues that are sent or returned for a later delivery, the end of a stream, and its producers. Programs that call msgsnd
//! and msgrcv get what the kernel gives.

mod support;

use rustix::event::PollFlags;
use rustix::fd::BorrowedFd;
use std::time::{Duration, Instant, SystemTime};
use support::child::{Child, Exit};
use support::events::is_ready_within;
use support::place::Place;
use support::wait_until;
use umsg::sysv::{OpenOptions, Peeked, Queue, ReceiveError, SendError, Want};
use umsg_shm::crash;

const KEY: i32 = 7;
const STUCK: Duration = Duration::from_secs(20);
const DELAY: Duration = Duration::from_millis(60);
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
    job.return_after(DELAY).unwrap();
    assert_eq!(counts(&queue), (2, 0, 1));
    let diagnosis = umsg::sysv::diagnose(&place.namespace, KEY).unwrap();
    assert!(diagnosis.is_healthy(), "{:#?}", diagnosis.problems);
    assert_eq!(received(&queue), b"second");
    std::thread::sleep(DELAY.saturating_sub(begin.elapsed()) + Duration::from_millis(10));
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
    let queue = options.retry_delay(DELAY / 2, DELAY).open(KEY).unwrap();
    assert_eq!(queue.delivery().retry_delay, Some((DELAY / 2, DELAY)));
    queue.try_send(1, b"job").unwrap();
    let lease = || queue.receive_lease_timeout(Want::Any, STUCK).unwrap();
    let mut job = lease();
    for (deliveries, delay) in [(1, DELAY / 2), (2, DELAY), (3, DELAY)] {
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
    let queue = options.retry_delay(DELAY, DELAY).open(KEY).unwrap();
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
    assert!(begin.elapsed() >= DELAY);
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
    queue.send_after(5, b"later", DELAY).unwrap();
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
    // A blocked receiver wakes up for it.
    assert_eq!(received(&queue), b"later");
    assert!(begin.elapsed() >= DELAY);
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

#[test]
fn receivers_get_the_messages_that_are_left_and_then_the_end() {
    let (place, queue) = Place::new().with_sysv_queue(KEY);
    queue.try_send(1, b"one").unwrap();
    queue.try_send(2, b"two").unwrap();
    assert_eq!(queue.close_send(), Ok(true));
    assert_eq!(place.open_sysv(KEY).close_send(), Ok(false));
    assert!(queue.status().unwrap().send_closed);
    for refused in [
        queue.try_send(1, b"x"),
        queue.send(1, b"x"),
        queue.send_timeout(1, b"x", STUCK),
        queue.send_after(1, b"x", DELAY),
        queue.send_batch(&[(1, b"x")]),
    ] {
        assert_eq!(refused, Err(SendError::Closed));
    }
    // No message of this type can come.
    assert_eq!(
        queue.receive_vec(Want::Exactly(3)),
        Err(ReceiveError::Closed)
    );
    assert_eq!(queue.receive_vec(Want::Exactly(2)).unwrap().data, b"two");
    let job = queue.receive_lease(Want::Any).unwrap();
    // A leased message can come back.
    nothing(&queue);
    job.return_after(DELAY).unwrap();
    nothing(&queue);
    assert_eq!(received(&queue), b"one");
    assert_eq!(queue.try_receive_vec(Want::Any), Err(ReceiveError::Closed));
    assert_eq!(queue.receive_vec(Want::Any), Err(ReceiveError::Closed));
    assert!(matches!(
        queue.receive_lease(Want::Any),
        Err(ReceiveError::Closed)
    ));
    assert_eq!(queue.reopen_send(), Ok(true));
    assert_eq!(queue.reopen_send(), Ok(false));
    queue.try_send(1, b"again").unwrap();
    assert_eq!(received(&queue), b"again");
    nothing(&queue);
}

#[test]
fn blocked_calls_learn_of_the_end_at_once() {
    let (_place, queue) = Place::new().with_sysv_queue(KEY);
    std::thread::scope(|scope| {
        let receivers = [Want::Any, Want::Exactly(2)];
        let receivers = receivers.map(|want| {
            let queue = &queue;
            scope.spawn(move || queue.receive_vec_timeout(want, STUCK))
        });
        blocked_receivers(&queue, 2);
        queue.close_send().unwrap();
        for receiver in receivers {
            assert_eq!(receiver.join().unwrap(), Err(ReceiveError::Closed));
        }
        queue.reopen_send().unwrap();
        while queue.try_send(1, &[0; 4000]).is_ok() {}
        let sender = scope.spawn(|| queue.send_timeout(1, &[0; 4000], STUCK));
        let is_blocked = || queue.status().unwrap().blocked_senders == 1;
        assert!(wait_until(STUCK, is_blocked));
        queue.close_send().unwrap();
        assert_eq!(sender.join().unwrap(), Err(SendError::Closed));
        // The end comes with the last lease.
        let mut job = queue.receive_lease(Want::Any).unwrap();
        while let Ok(next) = queue.try_receive_lease(Want::Any) {
            std::mem::replace(&mut job, next).acknowledge().unwrap();
        }
        let receiver = scope.spawn(|| queue.receive_vec_timeout(Want::Any, STUCK));
        blocked_receivers(&queue, 1);
        job.acknowledge().unwrap();
        assert_eq!(receiver.join().unwrap(), Err(ReceiveError::Closed));
    });
}

#[test]
fn msgsnd_and_msgrcv_do_not_heed_the_end() {
    use umsg::sysv::{Until, raw};
    let place = Place::in_turn();
    let mut program = Child::run(|| {
        // SAFETY: the child has one thread.
        unsafe { std::env::set_var("UMSG_DIR", place.path()) };
        let id = raw::msgget(KEY, libc::IPC_CREAT | 0o600).unwrap();
        let queue = place.open_sysv(KEY);
        let (nowait, mut buffer) = (libc::IPC_NOWAIT, [0; 16]);
        queue.close_send().unwrap();
        raw::msgsnd(id, 1, b"sent", nowait, Until::Forever).unwrap();
        assert_eq!(received(&queue), b"sent");
        assert_eq!(queue.try_receive_vec(Want::Any), Err(ReceiveError::Closed));
        let received = raw::msgrcv(id, &mut buffer, 0, nowait, Until::Forever);
        assert_eq!(received, Err(libc::ENOMSG));
        // A receiver that waits goes on waiting after a close.
        queue.reopen_send().unwrap();
        std::thread::scope(|scope| {
            let receiver = scope.spawn(|| raw::msgrcv(id, &mut [0; 16], 0, 0, Until::After(STUCK)));
            blocked_receivers(&queue, 1);
            queue.close_send().unwrap();
            std::thread::sleep(Duration::from_millis(250));
            assert_eq!(queue.status().unwrap().blocked_receivers, 1);
            raw::msgsnd(id, 1, b"for it", nowait, Until::Forever).unwrap();
            assert_eq!(receiver.join().unwrap().unwrap().len, 6);
        });
        0
    });
    program.expect(Exit::Code(0), "the program");
}

/// A queue that closes with its last producer.
fn counting(place: &Place) -> Queue {
    let mut options = OpenOptions::new();
    options.create(true).namespace(&place.namespace);
    options.close_with_last_producer(true).open(KEY).unwrap()
}

/// A child that counts as a producer, says so by a message, and waits to be killed.
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
fn the_end_of_the_last_of_several_producers_ends_the_stream() {
    let place = Place::in_turn();
    let queue = counting(&place);
    nothing(&queue);
    let (first, again) = (queue.producer().unwrap(), queue.producer().unwrap());
    let mut other = producer(&place);
    assert_eq!(received(&queue), b"here");
    assert_eq!(queue.status().unwrap().producers, 2);
    drop((first, again));
    assert_eq!(queue.status().unwrap().producers, 1);
    nothing(&queue);
    std::thread::scope(|scope| {
        let receiver = scope.spawn(|| queue.receive_vec_timeout(Want::Exactly(9), STUCK));
        blocked_receivers(&queue, 1);
        other.kill();
        assert_eq!(receiver.join().unwrap(), Err(ReceiveError::Closed));
    });
    assert_eq!(queue.producer().unwrap_err(), SendError::Closed);
    assert_eq!(queue.reopen_send(), Ok(true));
    nothing(&queue);
    drop(queue.producer().unwrap());
    assert!(queue.is_send_closed());
}

#[test]
fn a_poller_is_told_of_delayed_messages_and_of_the_end() {
    let place = Place::in_turn();
    let queue = counting(&place);
    let descriptor = queue.pollable().unwrap();
    queue.send_after(1, b"later", DELAY).unwrap();
    let begin = Instant::now();
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

/// Waits for a message as a program with an event loop does: a wake-up may be in vain.
fn polled(queue: &Queue, descriptor: BorrowedFd<'_>) -> Vec<u8> {
    loop {
        assert!(is_ready_within(STUCK, descriptor, PollFlags::IN), "asleep");
        match queue.try_receive_vec(Want::Any) {
            Ok(message) => return message.data,
            Err(error) => assert_eq!(error, ReceiveError::NoMessage),
        }
    }
}

#[test]
fn the_first_send_after_the_last_producer_was_killed_is_refused() {
    type Send = fn(&Queue) -> Result<(), SendError>;
    let sends: [(&str, Send); 5] = [
        ("one", |queue| queue.try_send(1, b"no")),
        ("one, blocking", |queue| queue.send(1, b"no")),
        ("several", |queue| queue.try_send_batch(&[(1, &b"no"[..])])),
        ("later", |queue| queue.try_send_after(1, b"no", STUCK)),
        ("a producer", |queue| queue.producer().map(drop)),
    ];
    for (name, send) in sends {
        let place = Place::in_turn();
        let queue = counting(&place);
        let mut producer = producer(&place);
        assert_eq!(received(&queue), b"here");
        producer.kill();
        let status = queue.status().unwrap();
        assert_eq!((status.producers, status.send_closed), (0, true), "{name}");
        assert!(!queue.is_send_closed(), "{name}: the status closed it");
        assert_eq!(send(&queue), Err(SendError::Closed), "{name}");
        assert!(queue.is_send_closed(), "{name}");
    }
}

#[test]
fn a_blocked_sender_learns_that_the_last_producer_was_killed() {
    let place = Place::in_turn();
    let queue = counting(&place);
    let mut producer = producer(&place);
    assert_eq!(received(&queue), b"here");
    while queue.try_send(1, &[0; 1024]).is_ok() {}
    std::thread::scope(|scope| {
        let sender = scope.spawn(|| queue.send_timeout(1, &[0; 1024], STUCK));
        let is_blocked = || queue.status().unwrap().blocked_senders == 1;
        assert!(wait_until(STUCK, is_blocked));
        producer.kill();
        assert_eq!(sender.join().unwrap(), Err(SendError::Closed));
    });
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

#[test]
fn a_process_killed_while_it_closes_a_queue_leaves_no_waiter_behind() {
    let place = Place::in_turn();
    for (point, is_reopened) in [("MSG_CLOSED", false), ("MSG_REOPENED", true)] {
        let queue = counting(&place);
        std::thread::scope(|scope| {
            if is_reopened {
                queue.close_send().unwrap();
            }
            let receiver = (!is_reopened).then(|| {
                let receiver = scope.spawn(|| queue.receive_vec_timeout(Want::Any, STUCK));
                blocked_receivers(&queue, 1);
                receiver
            });
            let mut victim = Child::run(|| {
                let queue = place.open_sysv(KEY);
                crash::arm(point, 1);
                let _ = match is_reopened {
                    true => queue.reopen_send(),
                    false => queue.close_send(),
                };
                0
            });
            victim.expect(Exit::Signal(libc::SIGKILL), point);
            if let Some(receiver) = receiver {
                assert_eq!(receiver.join().unwrap(), Err(ReceiveError::Closed));
            }
        });
        assert_eq!(queue.is_send_closed(), !is_reopened);
        queue.reopen_send().unwrap();
        queue.try_send(1, b"usable").unwrap();
        assert_eq!(received(&queue), b"usable");
    }
}

#[test]
fn a_blocked_sender_learns_of_the_close_of_a_process_that_was_killed() {
    let (place, queue) = Place::in_turn().with_sysv_queue(KEY);
    while queue.try_send(1, &[0; 4000]).is_ok() {}
    std::thread::scope(|scope| {
        let sender = scope.spawn(|| queue.send_timeout(1, &[0; 4000], STUCK));
        let is_blocked = || queue.status().unwrap().blocked_senders == 1;
        assert!(wait_until(STUCK, is_blocked));
        let mut victim = Child::run(|| {
            crash::arm("MSG_CLOSED", 1);
            let _ = place.open_sysv(KEY).close_send();
            0
        });
        victim.expect(Exit::Signal(libc::SIGKILL), "MSG_CLOSED");
        assert_eq!(sender.join().unwrap(), Err(SendError::Closed));
    });
}

#[test]
fn a_process_killed_while_it_begins_or_ends_to_produce_counts_no_more() {
    let begin: fn(&Queue) = |queue| {
        let _ = queue.begin_to_produce();
    };
    let end: fn(&Queue) = |queue| {
        queue.begin_to_produce().unwrap();
        let _ = queue.end_producing();
    };
    for (point, work) in [
        ("PRODUCER_NAMED", begin),
        ("PRODUCER_COUNTED", begin),
        ("PRODUCER_ENDED", end),
    ] {
        let before: fn(&Queue) = |queue| queue.begin_to_produce().unwrap();
        kill(point, before, work, |queue| {
            nothing(queue);
            assert_eq!(queue.end_producing(), Ok(true));
            let end = queue.receive_vec_timeout(Want::Any, STUCK);
            assert_eq!(end, Err(ReceiveError::Closed), "{point}");
        });
    }
}
