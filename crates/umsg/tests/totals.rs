//! The totals of a queue: each message that comes and leaves is counted once, whichever way it takes, and no total of a queue at rest goes back.

mod support;

use std::fs;
use std::os::unix::fs::FileExt;
use std::time::Duration;
use support::child::{Child, Exit, stop};
use support::place::Place;
use support::wait_until;
use umsg::posix::{self, Queue, ReceiveError};
use umsg::sysv;
use umsg_shm::crash;

const STUCK: Duration = Duration::from_secs(20);
const SHORT: Duration = Duration::from_millis(20);

/// Returns the numbers of messages that came and left, and their bytes.
fn totals(queue: &Queue) -> [u64; 4] {
    let now = queue.glance();
    [now.sent, now.removed, now.sent_bytes, now.removed_bytes]
}

fn until_blocked(queue: &Queue) {
    assert!(
        wait_until(STUCK, || queue.glance().blocked_senders == 1),
        "the sender does not block"
    );
}

#[test]
fn a_message_of_a_blocked_sender_is_counted() {
    let (place, queue) = Place::new().with_queue("/q", 1, 8);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let sender = place.open("/q");
            for _ in 0..50 {
                sender.send_timeout(b"three", 0, STUCK).unwrap();
            }
        });
        let mut last = totals(&queue);
        for received in 1..=50 {
            if received < 50 {
                until_blocked(&queue);
            }
            queue.receive_vec_timeout(STUCK).unwrap();
            let now = totals(&queue);
            assert!(now[1] > last[1], "{last:?}, then {now:?}");
            assert!(now[1] >= received && now[0] >= now[1]);
            last = now;
        }
    });
    assert_eq!(totals(&queue), [50, 50, 250, 250]);
}

#[test]
fn a_blocked_batch_is_counted() {
    let (place, queue) = Place::new().with_queue("/q", 3, 8);
    queue.try_send(b"first", 0).unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let batch: [(&[u8], u32); 3] = [(b"a", 0), (b"bb", 1), (b"c", 0)];
            place
                .open("/q")
                .send_batch_timeout(&batch, STUCK)
                .expect("room for all");
        });
        until_blocked(&queue);
        for _ in 0..4 {
            queue.receive_vec_timeout(STUCK).unwrap();
        }
    });
    assert_eq!(totals(&queue), [4, 4, 9, 9]);
}

/// Starts a process that waits for a message, and stops it there. The process holds no lock.
fn stopped_in(place: &Place, queue: &Queue, wait: fn(&Queue)) -> Child {
    let receiver = Child::run(|| {
        crash::arm_fuse("WAIT_NAMED", stop);
        wait(&place.open("/q"));
        0
    });
    receiver.expect_to_stop("WAIT_NAMED");
    assert_eq!(queue.glance().blocked_receivers, 1);
    receiver
}

#[test]
fn an_offered_message_has_not_left_until_its_receiver_takes_it() {
    let waits: [fn(&Queue); 2] = [
        |queue| drop(queue.receive_vec_timeout(STUCK)),
        |queue| {
            queue
                .receive_lease_timeout(STUCK)
                .unwrap()
                .acknowledge()
                .unwrap();
        },
    ];
    for wait in waits {
        let (place, queue) = Place::new().with_queue("/q", 2, 8);
        let mut receiver = stopped_in(&place, &queue, wait);
        queue.try_send(b"job", 3).unwrap();
        assert_eq!(totals(&queue), [1, 0, 3, 0]);
        receiver.signal(libc::SIGCONT);
        receiver.expect(Exit::Code(0), "the receiver");
        assert_eq!(totals(&queue), [1, 1, 3, 3]);
        // The second receiver never runs, so its offer is withdrawn.
        let mut receiver = stopped_in(&place, &queue, wait);
        queue.try_send(b"again", 3).unwrap();
        assert_eq!(totals(&queue), [2, 1, 8, 3]);
        assert_eq!(queue.receive_vec_timeout(STUCK).unwrap().data, b"again");
        assert_eq!(totals(&queue), [2, 2, 8, 8]);
        receiver.kill();
        assert_eq!(totals(&queue), [2, 2, 8, 8]);
    }
}

#[test]
fn a_message_that_moves_to_another_queue_leaves_one_and_comes_to_the_other() {
    let place = Place::new();
    let dead = place.create("/dead", 5, 8);
    let queue = place
        .options(5, 8)
        .max_deliveries(1)
        .dead_letter("/dead")
        .open("/q")
        .unwrap();
    queue.try_send(b"bad", 0).unwrap();
    queue.try_receive_lease().unwrap().give_back().unwrap();
    assert_eq!(queue.try_receive_vec(), Err(ReceiveError::Empty));
    assert_eq!(totals(&queue), [1, 1, 3, 3]);
    assert_eq!(totals(&dead), [1, 0, 3, 0]);
    assert_eq!(dead.try_receive_vec().unwrap().data, b"bad");
    assert_eq!(totals(&dead), [1, 1, 3, 3]);
}

#[test]
fn a_system_v_message_that_is_leased_or_delayed_has_come_and_not_left() {
    let (_place, queue) = Place::new().with_sysv_queue(7);
    let seen = || {
        let now = queue.glance().unwrap();
        (now.sent, now.removed)
    };
    queue.try_send_after(1, b"later", SHORT).unwrap();
    assert_eq!(seen(), (1, 0));
    let job = queue.receive_lease_timeout(sysv::Want::Any, STUCK).unwrap();
    assert_eq!(seen(), (1, 0));
    job.return_after(SHORT).unwrap();
    assert_eq!(seen(), (1, 0));
    let job = queue.receive_lease_timeout(sysv::Want::Any, STUCK).unwrap();
    assert_eq!((seen(), job.deliveries()), ((1, 0), 2));
    job.acknowledge().unwrap();
    assert_eq!(seen(), (1, 1));
}

#[test]
fn an_offered_system_v_message_has_not_left_until_its_receiver_takes_it() {
    let (place, queue) = Place::new().with_sysv_queue(7);
    let mut receiver = Child::run(|| {
        crash::arm_fuse("MSG_NAMED", stop);
        let queue = place.open_sysv(7);
        let job = queue.receive_lease_timeout(sysv::Want::Any, STUCK);
        job.unwrap().acknowledge().unwrap();
        0
    });
    receiver.expect_to_stop("MSG_NAMED");
    queue.try_send(1, b"job").unwrap();
    let seen = || {
        let now = queue.glance().unwrap();
        (now.sent, now.removed)
    };
    assert_eq!(seen(), (1, 0));
    receiver.signal(libc::SIGCONT);
    receiver.expect(Exit::Code(0), "the receiver");
    assert_eq!(seen(), (1, 1));
}

/// Kills a process that waits. At the point, its thread has named its node to the kernel.
fn kill_waiting(point: &str, wait: &dyn Fn()) {
    let mut waiter = Child::run(|| {
        crash::arm_fuse(point, stop);
        wait();
        0
    });
    waiter.expect_to_stop(point);
    waiter.kill();
}

#[test]
fn a_killed_waiter_is_counted_once() {
    let place = Place::new();
    let (queue, typed) = (place.create("/q", 1, 8), place.create_sysv(7));
    kill_waiting("WAIT_NAMED", &|| drop(place.open("/q").receive_vec()));
    queue.try_send(b"job", 0).unwrap();
    assert_eq!(queue.status().statistics.waiters_died, 1);
    let send = || place.open("/q").send(b"more", 0).unwrap();
    kill_waiting("WAIT_NAMED", &send);
    queue.try_receive_vec().unwrap();
    assert_eq!(queue.status().statistics.waiters_died, 2);
    queue.try_send(b"job", 0).unwrap();
    kill_waiting("WAIT_NAMED", &send);
    posix::repair(&place.namespace, "/q").expect("a repair");
    assert_eq!(queue.status().statistics.waiters_died, 3);
    kill_waiting("MSG_NAMED", &|| {
        drop(place.open_sysv(7).receive_vec(sysv::Want::Any))
    });
    typed.try_send(1, b"job").unwrap();
    assert_eq!(typed.glance().unwrap().statistics.waiters_died, 1);
}

/// Kills a process at a point of `work`, then checks that no total goes back, and that the totals agree with the messages in the queue.
fn kill(point: &str, before: fn(&Queue), work: fn(&Queue)) {
    let (place, queue) = Place::in_turn().with_queue("/q", 2, 8);
    before(&queue);
    let begin = totals(&queue);
    let mut victim = Child::run(|| {
        crash::arm(point, 1);
        work(&place.open("/q"));
        0
    });
    victim.expect(Exit::Signal(libc::SIGKILL), point);
    let mut last = begin;
    let mut check = || {
        let now = totals(&queue);
        let grows = last.iter().zip(&now).all(|(before, after)| after >= before);
        assert!(grows, "{point}: {last:?}, then {now:?}");
        last = now;
        now
    };
    // The status repairs the queue.
    let status = queue.status();
    assert!(!status.damaged, "{point}");
    let [sent, removed, ..] = check();
    let now = queue.attributes();
    let present = now.messages + now.delayed + now.leased;
    assert_eq!(sent - removed, present as u64, "{point}");
    for _ in 0..present {
        queue.receive_vec_timeout(STUCK).expect(point);
        check();
    }
    let [sent, removed, sent_bytes, removed_bytes] = check();
    assert_eq!((sent, sent_bytes), (removed, removed_bytes), "{point}");
}

#[test]
fn no_total_goes_back_when_a_process_is_killed() {
    let none: fn(&Queue) = |_| {};
    let fill: fn(&Queue) = |queue| {
        queue.try_send(b"one", 0).unwrap();
        queue.try_send(b"two", 1).unwrap();
    };
    for point in ["RESERVE_HELD", "COMMIT_MARKED", "COMMIT_ENDED"] {
        let work = |queue: &Queue| {
            let mut room = queue.try_reserve(3).unwrap();
            room.write_at(0, b"job");
            room.commit(0).unwrap();
        };
        kill(point, none, work);
    }
    let delay = |queue: &Queue| queue.try_send_after(b"job", 0, SHORT).unwrap();
    kill("DELAY_HELD", none, delay);
    for point in ["LEASE_HELD", "RETURN_MARKED", "LEASE_ENDED"] {
        let work = |queue: &Queue| {
            queue.try_receive_lease().unwrap().give_back().unwrap();
            let _ = queue.try_receive_lease().unwrap().acknowledge();
        };
        kill(point, fill, work);
    }
    let receive = |queue: &Queue| {
        queue.try_receive_vec().unwrap();
    };
    // A message of the only priority is taken from the ring, and others from the store.
    let one = |queue: &Queue| queue.try_send(b"one", 0).unwrap();
    kill("RECEIVE_TAKEN", one, receive);
    for point in ["RECEIVE_UNSTORED", "RECEIVE_RETURNED"] {
        kill(point, fill, receive);
    }
}

#[test]
fn no_total_goes_back_when_the_process_that_admits_a_blocked_sender_is_killed() {
    for point in ["ADMIT_ACCEPTED", "DRAIN_MARKED"] {
        let (place, queue) = Place::in_turn().with_queue("/q", 1, 8);
        queue.try_send(b"one", 0).unwrap();
        let mut sender = Child::run(|| {
            let sent = place.open("/q").send_timeout(b"second", 0, STUCK);
            i32::from(sent.is_err())
        });
        until_blocked(&queue);
        let mut victim = Child::run(|| {
            let queue = place.open("/q");
            crash::arm(point, 1);
            let _ = queue.try_receive_vec();
            0
        });
        victim.expect(Exit::Signal(libc::SIGKILL), point);
        sender.expect(Exit::Code(0), point);
        let [sent, removed, ..] = totals(&queue);
        assert!(sent >= 2 && removed >= 1, "{point}: {sent}, {removed}");
        assert_eq!(queue.receive_vec_timeout(STUCK).unwrap().data, b"second");
        assert_eq!(totals(&queue), [2, 2, 9, 9], "{point}");
    }
}

#[test]
fn a_repair_of_a_corrupted_queue_keeps_the_messages_count_and_restarts_the_bytes() {
    let (place, queue) = Place::new().with_queue("/q", 4, 8);
    for message in [b"one", b"two", b"six"] {
        queue.try_send(message, 0).unwrap();
    }
    queue.try_receive_vec().unwrap();
    let job = queue.try_receive_lease().unwrap();
    assert_eq!(totals(&queue), [3, 1, 9, 3]);
    // A wrong count of stored messages: docs/format.md.
    let file = fs::File::options()
        .write(true)
        .open(place.path().join("mq/q"))
        .unwrap();
    file.write_all_at(&[99], 816).unwrap();
    posix::repair(&place.namespace, "/q").expect("a repair");
    assert_eq!(totals(&queue), [3, 1, 6, 0]);
    job.acknowledge().unwrap();
    assert_eq!(queue.try_receive_vec().unwrap().data, b"six");
    assert_eq!(totals(&queue), [3, 3, 6, 6]);
}

#[test]
fn a_repair_restarts_totals_that_were_overwritten() {
    let (place, queue) = Place::new().with_queue("/q", 4, 8);
    for message in [b"one", b"two"] {
        queue.try_send(message, 0).unwrap();
    }
    let file = fs::File::options()
        .write(true)
        .open(place.path().join("mq/q"))
        .unwrap();
    // `entered` and `entered_bytes`, and a wrong count of stored messages: docs/format.md.
    file.write_all_at(&[0xff; 16], 672).unwrap();
    file.write_all_at(&[99], 816).unwrap();
    posix::repair(&place.namespace, "/q").expect("a repair");
    assert_eq!(totals(&queue), [2, 0, 6, 0]);
    for _ in 0..2 {
        queue.try_receive_vec().unwrap();
    }
    assert_eq!(totals(&queue), [2, 2, 6, 6]);
}

#[test]
fn a_glance_at_a_queue_with_impossible_counts_calls_it_damaged() {
    let (place, queue) = Place::new().with_queue("/q", 4, 8);
    queue.try_send(b"one", 0).unwrap();
    assert!(!queue.glance().damaged);
    let file = fs::File::options()
        .write(true)
        .open(place.path().join("mq/q"))
        .unwrap();
    // The position of the next message: docs/format.md.
    file.write_all_at(&[0xee; 5], 537).unwrap();
    assert!(queue.glance().damaged, "{:?}", queue.glance());
}
