//! The end of a stream of messages, and its producers.

use super::*;

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
    // No further message of this type can come, so the receive does not wait.
    assert_eq!(
        queue.receive_vec(Want::Exactly(3)),
        Err(ReceiveError::Closed)
    );
    assert_eq!(queue.receive_vec(Want::Exactly(2)).unwrap().data, b"two");
    let job = queue.receive_lease(Want::Any).unwrap();
    // A leased message can return to the queue, so the stream has not ended.
    nothing(&queue);
    job.return_after(AWHILE).unwrap();
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
        // The end of the stream is reported when the last lease ends.
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
        // A waiting msgrcv continues to wait after a close.
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
fn no_process_becomes_a_producer_of_a_closed_or_removed_queue() {
    let counts: fn(&Place) -> Queue = counting;
    let plain: fn(&Place) -> Queue = |place| place.create_sysv(KEY);
    for create in [counts, plain] {
        let place = Place::new();
        let queue = create(&place);
        assert_eq!(queue.close_send(), Ok(true));
        assert_eq!(queue.producer().unwrap_err(), SendError::Closed);
        assert_eq!(queue.reopen_send(), Ok(true));
        drop(queue.producer().unwrap());
        umsg::sysv::remove(&place.namespace, queue.id()).unwrap();
        assert_eq!(queue.producer().unwrap_err(), SendError::Removed);
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
