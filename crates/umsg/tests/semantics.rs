//! Threads and stopped receivers: the choice of the process that gets a message.

mod support;

use std::sync::atomic::{AtomicU32, Ordering::SeqCst};
use std::time::{Duration, Instant};
use support::child::{Child, Exit};
use support::place::Place;
use support::{turn, wait_until};
use umsg::diagnosis::{Lock, Owner};
use umsg::posix::{Queue, ReceiveError, Waiting};

const STUCK: Duration = Duration::from_secs(10);

#[track_caller]
fn wait_for_blocked(queue: &Queue, senders: usize, receivers: usize) {
    let blocked = wait_until(STUCK, || {
        let status = queue.status();
        (status.blocked_senders, status.blocked_receivers) == (senders, receivers)
    });
    assert!(blocked, "{:?}", queue.status());
}

#[test]
fn blocked_receivers_get_messages_in_the_order_in_which_they_came() {
    let (_place, queue) = Place::in_turn().with_queue("/q", 8, 8);
    queue.set_waiting(Waiting::Blocking);
    std::thread::scope(|scope| {
        let queue = &queue;
        let receivers: Vec<_> = (0..6)
            .map(|number| {
                let receiver = scope.spawn(move || queue.receive_vec().unwrap().data[0]);
                wait_for_blocked(queue, 0, number + 1);
                receiver
            })
            .collect();
        // The message of the highest priority is sent last. Its priority does not matter, because a waiting process is served at once.
        for message in 0..6_u8 {
            queue.try_send(&[message], message.into()).unwrap();
        }
        let got: Vec<u8> = receivers
            .into_iter()
            .map(|receiver| receiver.join().unwrap())
            .collect();
        assert_eq!(got, [0, 1, 2, 3, 4, 5]);
    });
}

#[test]
fn blocked_senders_get_room_in_the_order_in_which_they_came() {
    let (_place, queue) = Place::in_turn().with_queue("/q", 1, 8);
    queue.set_waiting(Waiting::Blocking);
    queue.try_send(&[100], 0).unwrap();
    std::thread::scope(|scope| {
        let queue = &queue;
        for number in 0..6_u8 {
            scope.spawn(move || queue.send(&[number], 0).unwrap());
            wait_for_blocked(queue, number as usize + 1, 0);
        }
        let got: Vec<u8> = (0..7)
            .map(|_| queue.receive_vec().unwrap().data[0])
            .collect();
        assert_eq!(got, [100, 0, 1, 2, 3, 4, 5]);
    });
}

#[test]
fn a_receive_lets_the_blocked_senders_message_in_before_it_returns() {
    let (_place, queue) = Place::in_turn().with_queue("/q", 1, 8);
    queue.set_waiting(Waiting::Blocking);
    for _ in 0..100 {
        queue.try_send(b"first", 0).unwrap();
        std::thread::scope(|scope| {
            let sender = scope.spawn(|| queue.send(b"second", 0).unwrap());
            wait_for_blocked(&queue, 1, 0);
            let mut buffer = [0; 8];
            assert_eq!(queue.try_receive(&mut buffer).unwrap().len, 5);
            assert_eq!(queue.try_receive(&mut buffer).unwrap().len, 6);
            sender.join().unwrap();
        });
    }
}

#[test]
fn no_newcomer_steals_a_message_that_was_handed_over() {
    let (_place, queue) = Place::in_turn().with_queue("/q", 8, 8);
    queue.set_waiting(Waiting::Blocking);
    for _ in 0..200 {
        std::thread::scope(|scope| {
            let receiver = scope.spawn(|| queue.receive_vec().unwrap().data);
            wait_for_blocked(&queue, 0, 1);
            queue.try_send(b"his", 0).unwrap();
            assert_eq!(queue.try_receive(&mut [0; 8]), Err(ReceiveError::Empty));
            assert_eq!(receiver.join().unwrap(), b"his");
        });
    }
}

#[test]
fn threads_that_share_a_handle_lose_and_double_nothing() {
    let _turn = turn();
    const MESSAGES: u32 = 20_000;
    let (_place, queue) = Place::new().with_queue("/q", 16, 8);
    let seen: Vec<AtomicU32> = (0..MESSAGES).map(|_| AtomicU32::new(0)).collect();
    let next = AtomicU32::new(0);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                loop {
                    let number = next.fetch_add(1, SeqCst);
                    if number >= MESSAGES {
                        return;
                    }
                    queue.send(&number.to_le_bytes(), number % 3).unwrap();
                }
            });
            scope.spawn(|| {
                let mut buffer = [0; 8];
                for _ in 0..MESSAGES / 4 {
                    queue.receive(&mut buffer).unwrap();
                    let number = u32::from_le_bytes(*buffer.first_chunk().unwrap());
                    seen[number as usize].fetch_add(1, SeqCst);
                }
            });
        }
    });
    assert!(seen.iter().all(|times| times.load(SeqCst) == 1));
    assert_eq!(queue.attributes().messages, 0);
}

/// Returns whether this process owns a lock of the queue /q.
fn owns_a_lock(place: &Place, child: &Child) -> bool {
    let found = umsg::posix::diagnose(&place.namespace, "/q").unwrap();
    let pid = child.pid().cast_unsigned();
    let is_its = |lock: &Lock| matches!(&lock.owner, Owner::Thread(who) if who.pid == pid);
    found.locks.iter().any(is_its)
}

#[test]
fn a_stopped_receiver_does_not_keep_the_message_that_it_was_offered() {
    let (place, queue) = Place::in_turn().with_queue("/q", 8, 8);
    for _ in 0..5 {
        let mut stopped = Child::run(|| {
            let queue = place.open("/q");
            queue.set_waiting(Waiting::Blocking);
            let mut buffer = [0; 8];
            match queue.receive(&mut buffer) {
                Ok(received) if &buffer[..received.len] == b"later" => 0,
                other => panic!("{other:?}"),
            }
        });
        wait_for_blocked(&queue, 0, 1);
        // The receiver is in the list of waiters before it releases the lock. Half a slice later it usually sleeps. A receiver that is stopped with
        // the lock would block this process, so it continues until it has released the lock.
        let is_stopped_without_lock = || {
            std::thread::sleep(Duration::from_millis(50));
            stopped.signal(libc::SIGSTOP);
            stopped.expect_to_stop("the receiver");
            let has_lock = owns_a_lock(&place, &stopped);
            if has_lock {
                stopped.signal(libc::SIGCONT);
            }
            !has_lock
        };
        assert!(wait_until(STUCK, is_stopped_without_lock));
        queue.try_send(b"now", 3).unwrap();
        let begun = Instant::now();
        let mut buffer = [0; 8];
        let received = queue.receive_timeout(&mut buffer, STUCK).unwrap();
        let took = begun.elapsed();
        assert_eq!(&buffer[..received.len], b"now");
        eprintln!(
            "a message offered to a stopped receiver was back after {:.0} ms",
            took.as_secs_f64() * 1e3
        );
        // Once it continues, the stopped receiver gets a message.
        stopped.signal(libc::SIGCONT);
        queue.try_send(b"later", 3).unwrap();
        stopped.expect(Exit::Code(0), "the receiver that was stopped");
        assert!(!queue.status().damaged);
    }
}

#[test]
fn a_forked_child_goes_on_with_its_parents_handle() {
    let (_place, queue) = Place::in_turn().with_queue("/q", 2, 8);
    queue.try_send(b"before", 0).unwrap();
    let mut child = Child::run(|| {
        assert_eq!(queue.receive_vec().unwrap().data, b"before");
        queue.send(b"answer", 1).unwrap();
        // The library distinguishes the child from its parent: the child blocks under its own identity.
        i32::from(
            queue
                .receive_timeout(&mut [0; 8], Duration::from_millis(1))
                .is_err(),
        )
    });
    child.wait(STUCK).expect("the child ends");
    let mut buffer = [0; 8];
    let left = queue.try_receive(&mut buffer);
    assert!(left.is_err(), "the child received its own answer: {left:?}");
}
