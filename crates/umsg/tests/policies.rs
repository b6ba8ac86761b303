//! Policies of a queue for messages that it can't accept, keep or deliver.

mod support;

use std::time::Duration;
use support::child::{Child, Exit};
use support::place::Place;
use support::wait_until;
use umsg::posix::{OnFull, OpenError, OpenOptions, Queue, ReceiveError, SendError};

const STUCK: Duration = Duration::from_secs(10);

/// A time to live that is longer than a few calls take on a busy machine.
const AGE: Duration = Duration::from_secs(2);

/// Returns a queue for three messages of up to 100 bytes, with a policy.
fn queue(place: &Place, policy: impl FnOnce(&mut OpenOptions)) -> Queue {
    try_queue(place, policy).unwrap()
}

fn try_queue(place: &Place, policy: impl FnOnce(&mut OpenOptions)) -> Result<Queue, OpenError> {
    let mut options = place.options(3, 100);
    policy(&mut options);
    options.open("/q")
}

/// Returns a queue that drops its oldest message for a new one.
fn dropping_queue(place: &Place) -> Queue {
    queue(place, |options| {
        options.on_full(OnFull::DropOldest);
    })
}

/// Returns a queue that moves messages older than `age` to another queue.
fn aging_queue(place: &Place, age: Duration) -> Queue {
    queue(place, |options| {
        options.time_to_live(age).dead_letter("/dead");
    })
}

/// Returns a queue that moves a message that came back twice to another queue.
fn strict_queue(place: &Place) -> Queue {
    queue(place, |options| {
        options.max_deliveries(2).dead_letter("/dead");
    })
}

fn drain(queue: &Queue) -> Vec<(Vec<u8>, u32)> {
    let mut buffer = [0; 100];
    std::iter::from_fn(|| {
        let received = queue.try_receive(&mut buffer).ok()?;
        Some((buffer[..received.len].to_vec(), received.priority))
    })
    .collect()
}

#[test]
fn a_full_queue_drops_the_oldest_of_the_lowest_priority() {
    let place = Place::new();
    let queue = dropping_queue(&place);
    for (data, priority) in [(b"a", 1), (b"b", 1), (b"c", 5), (b"d", 1), (b"e", 2)] {
        queue.send(data, priority).unwrap();
    }
    // The new message has the lowest priority of all, so it is the one that is dropped.
    queue.try_send(b"f", 0).unwrap();
    let left: Vec<_> = [(b"c", 5), (b"e", 2), (b"d", 1)]
        .map(|(data, priority)| (data.to_vec(), priority))
        .into();
    assert_eq!(drain(&queue), left);
    let status = queue.status();
    assert_eq!(
        (status.statistics.dropped, status.on_full),
        (3, OnFull::DropOldest)
    );
    // Leased messages can't be dropped.
    let rooms = [(); 3].map(|()| queue.reserve(1).unwrap());
    assert_eq!(queue.try_send(b"g", 0), Err(SendError::Full));
    drop(rooms);
    // Another handle has the policy, too.
    let again = place.open("/q");
    for _ in 0..5 {
        again.send(b"h", 0).unwrap();
    }
    assert_eq!(again.attributes().messages, 3);
}

#[test]
fn a_full_queue_fails_where_others_wait() {
    let place = Place::new();
    let queue = queue(&place, |options| {
        options.on_full(OnFull::Fail);
    });
    for _ in 0..3 {
        queue.send(b"", 0).unwrap();
    }
    assert_eq!(queue.send(b"", 0), Err(SendError::Full));
    assert_eq!(queue.send_timeout(b"", 0, STUCK), Err(SendError::Full));
    assert_eq!(queue.reserve(1).unwrap_err(), SendError::Full);
}

#[test]
fn what_is_too_old_is_not_delivered_and_makes_room() {
    let place = Place::new();
    let queue = queue(&place, |options| {
        options.time_to_live(AGE);
    });
    for priority in 0..3 {
        queue.send(b"old", priority).unwrap();
    }
    assert_eq!(queue.try_send(b"", 0), Err(SendError::Full));
    std::thread::sleep(AGE * 2);
    // There is room for all three new messages, also for one in the middle of the order.
    for priority in [1, 7, 0] {
        queue.try_send(b"new", priority).unwrap();
    }
    assert_eq!(drain(&queue).len(), 3);
    assert_eq!(queue.status().statistics.expired, 3);
    queue.send(b"old", 0).unwrap();
    std::thread::sleep(AGE * 2);
    let received = queue.try_receive(&mut [0; 100]);
    assert_eq!(received, Err(ReceiveError::Empty), "it is too old");
    assert_eq!(queue.attributes().messages, 0);
}

#[test]
fn a_blocked_sender_gets_the_room_of_what_is_too_old() {
    let place = Place::new();
    let queue = queue(&place, |options| {
        options.time_to_live(AGE);
    });
    for _ in 0..3 {
        queue.send(b"old", 0).unwrap();
    }
    queue.send_timeout(b"new", 0, STUCK).unwrap();
    // The first message may have expired a tick before the others.
    let mut left = drain(&queue);
    left.retain(|(message, _)| message != b"old");
    assert_eq!(left, [(b"new".to_vec(), 0)]);
    assert!(queue.status().statistics.expired != 0);
}

#[test]
fn what_is_too_old_goes_to_the_dead_letter_queue() {
    let place = Place::new();
    let queue = aging_queue(&place, Duration::from_millis(30));
    queue.send(b"milk", 9).unwrap();
    std::thread::sleep(Duration::from_millis(60));
    assert_eq!(queue.try_receive(&mut [0; 100]), Err(ReceiveError::Empty));
    assert_eq!(drain(&place.open("/dead")), [(b"milk".to_vec(), 9)]);
    let status = queue.status();
    assert_eq!((status.statistics.dead_lettered, status.set_aside), (1, 0));
}

#[test]
fn what_came_back_too_often_is_set_aside() {
    let place = Place::new();
    let queue = strict_queue(&place);
    queue.send(b"poison", 3).unwrap();
    queue.send(b"fine", 3).unwrap();
    for delivery in 1..=2 {
        let lease = queue.try_receive_lease().unwrap();
        assert_eq!(
            (lease.to_vec(), lease.deliveries()),
            (b"poison".to_vec(), delivery)
        );
    }
    assert_eq!(queue.try_receive_lease().unwrap().to_vec(), b"fine");
    assert_eq!(drain(&place.open("/dead")), [(b"poison".to_vec(), 3)]);
    assert_eq!(drain(&queue), [(b"fine".to_vec(), 3)]);
}

#[test]
fn a_message_that_kills_its_receivers_is_set_aside() {
    let place = Place::new();
    let queue = strict_queue(&place);
    queue.send(b"poison", 0).unwrap();
    for _ in 0..2 {
        let mut victim = Child::run(|| {
            let queue = place.open("/q");
            let _lease = queue.receive_lease_timeout(STUCK).unwrap();
            // SAFETY: ends this very process.
            unsafe { libc::raise(libc::SIGKILL) }
        });
        victim.expect(Exit::Signal(libc::SIGKILL), "the victim");
    }
    assert_eq!(
        queue.receive_timeout(&mut [0; 100], Duration::from_millis(50)),
        Err(ReceiveError::TimedOut)
    );
    assert_eq!(drain(&place.open("/dead")), [(b"poison".to_vec(), 0)]);
}

#[test]
fn nothing_is_lost_while_the_dead_letter_queue_is_full() {
    let place = Place::new();
    let dead = place.create("/dead", 1, 100);
    let queue = queue(&place, |options| {
        options.max_deliveries(1).dead_letter("/dead");
    });
    for data in [b"1", b"2", b"3"] {
        queue.send(data, 0).unwrap();
        drop(queue.receive_lease().unwrap());
    }
    assert_eq!(
        (queue.status().set_aside, queue.attributes().messages),
        (2, 0)
    );
    let mut moved = drain(&dead);
    let all = wait_until(STUCK, || {
        assert_eq!(queue.try_receive(&mut [0; 100]), Err(ReceiveError::Empty));
        moved.extend(drain(&dead));
        moved.len() == 3
    });
    assert!(all, "{moved:?}");
    assert_eq!(queue.status().set_aside, 0);
}

#[test]
fn a_policy_that_would_lose_messages_is_refused() {
    let place = Place::new();
    let refused = try_queue(&place, |options| {
        options.max_deliveries(3);
    });
    assert!(matches!(refused, Err(OpenError::NoDeadLetterQueue)));
    let refused = try_queue(&place, |options| {
        options.dead_letter("no slash");
    });
    assert!(matches!(refused, Err(OpenError::InvalidName)));
    let refused = try_queue(&place, |options| {
        options.dead_letter("/q");
    });
    assert!(matches!(refused, Err(OpenError::OwnDeadLetterQueue)));
}

#[test]
fn a_blocked_sender_gets_the_room_of_what_is_set_aside() {
    let place = Place::new();
    let queue = aging_queue(&place, AGE);
    for data in [b"1", b"2", b"3"] {
        queue.send(data, 0).unwrap();
    }
    queue.send_timeout(b"4", 0, STUCK).unwrap();
    // The first message may have expired a tick before the others, which are then still in the queue.
    let left = drain(&queue);
    let set_aside = drain(&place.open("/dead"));
    let all: Vec<_> = set_aside.iter().chain(&left).cloned().collect();
    let sent = [b"1", b"2", b"3", b"4"].map(|data| (data.to_vec(), 0));
    assert_eq!(all, sent);
    assert!(!set_aside.is_empty() && !left.is_empty(), "{left:?}");
}

#[test]
fn queues_may_be_each_others_dead_letter_queues() {
    let place = Place::new();
    place.create("/other", 3, 100);
    let queue = queue(&place, |options| {
        options.max_deliveries(1).dead_letter("/other");
    });
    umsg::posix::unlink_in(&place.namespace, "/other").unwrap();
    let mut options = OpenOptions::new();
    options
        .read(true)
        .write(true)
        .create(true)
        .message_size(100)
        .max_messages(1);
    options
        .max_deliveries(1)
        .dead_letter("/q")
        .namespace(&place.namespace);
    let other = options.open("/other").unwrap();
    for data in [b"1", b"2", b"3"] {
        queue.send(data, 0).unwrap();
        drop(queue.receive_lease().unwrap());
    }
    drop(other.receive_lease().unwrap());
    let left = queue.status().set_aside + queue.attributes().messages;
    assert_eq!(
        left + other.status().set_aside + other.attributes().messages,
        3
    );
}

#[test]
fn a_dead_letter_queue_is_made_along_and_takes_every_message() {
    let place = Place::new();
    place.create("/narrow", 3, 50);
    let refused = try_queue(&place, |options| {
        options.dead_letter("/narrow");
    });
    assert!(matches!(refused, Err(OpenError::DeadLetterQueueTooSmall)));
    let _queue = queue(&place, |options| {
        options.dead_letter("/dead");
    });
    assert_eq!(place.open("/dead").attributes().message_size, 100);
}

#[test]
fn a_poisonous_message_is_moved_while_workers_wait() {
    let place = Place::new();
    let queue = queue(&place, |options| {
        options.max_deliveries(1).dead_letter("/dead");
    });
    queue.send(b"poison", 0).unwrap();
    let mut victim = Child::run(|| {
        let queue = place.open("/q");
        let _lease = queue.receive_lease_timeout(STUCK).unwrap();
        std::thread::sleep(STUCK);
        0
    });
    assert!(wait_until(STUCK, || queue.attributes().leased == 1));
    std::thread::scope(|scope| {
        let worker = scope.spawn(|| {
            let queue = place.open("/q");
            queue
                .receive_lease_timeout(STUCK)
                .map(|lease| lease.to_vec())
        });
        assert!(wait_until(STUCK, || queue.status().blocked_receivers == 1));
        victim.signal(libc::SIGKILL);
        victim.expect(Exit::Signal(libc::SIGKILL), "the victim");
        let dead = place.open("/dead");
        assert!(wait_until(STUCK, || dead.attributes().messages == 1));
        queue.send(b"fine", 0).unwrap();
        assert_eq!(worker.join().unwrap().unwrap(), b"fine");
    });
}

#[test]
fn a_dead_letter_queue_that_was_removed_takes_nothing_along() {
    let place = Place::new();
    let queue = queue(&place, |options| {
        options.max_deliveries(1).dead_letter("/dead");
    });
    for data in [b"1", b"2"] {
        queue.send(data, 0).unwrap();
        drop(queue.receive_lease().unwrap());
        let _ = umsg::posix::unlink_in(&place.namespace, "/dead");
    }
    assert_eq!(queue.status().set_aside, 1);
    let again = place.create("/dead", 3, 100);
    assert!(wait_until(STUCK, || {
        assert_eq!(queue.try_receive(&mut [0; 100]), Err(ReceiveError::Empty));
        again.attributes().messages == 1
    }));
    assert_eq!(drain(&again), [(b"2".to_vec(), 0)]);
}

#[test]
fn messages_set_aside_are_bounded_and_never_lost() {
    let place = Place::new();
    let dead = place.create("/dead", 1, 100);
    let queue = queue(&place, |options| {
        options.max_deliveries(1).dead_letter("/dead");
    });
    let mut sent = 0;
    while queue.try_send(b"x", 0).is_ok() {
        sent += 1;
        drop(queue.try_receive_lease().unwrap());
        assert!(sent < 5000, "nothing bounds what is set aside");
    }
    assert!(sent > 1000);
    assert_eq!(
        queue
            .reserve_timeout(1, Duration::from_millis(5))
            .unwrap_err(),
        SendError::TimedOut
    );
    let mut moved = 0;
    let all = wait_until(STUCK * 3, || {
        moved += drain(&dead).len();
        assert_eq!(queue.try_receive(&mut [0; 100]), Err(ReceiveError::Empty));
        moved == sent
    });
    assert!(all, "{moved} of {sent}");
    queue.try_send(b"there is room again", 0).unwrap();
}

#[test]
fn a_queue_that_drops_makes_room_beside_what_is_held_and_for_what_waits_for_it() {
    let place = Place::new();
    let queue = dropping_queue(&place);
    for data in [b"1", b"2", b"3"] {
        queue.send(data, 0).unwrap();
    }
    let lease = queue.receive_lease().unwrap();
    queue.try_reserve(1).unwrap().commit(0).unwrap();
    queue.reserve(1).unwrap().commit(0).unwrap();
    drop(lease);
    // A process that drops old messages does not take the room that is kept for a batch.
    drain(&queue);
    let leases = [(); 2].map(|()| {
        queue.send(b"", 0).unwrap();
        queue.receive_lease().unwrap()
    });
    std::thread::scope(|scope| {
        let both: [(&[u8], u32); 2] = [(b"a", 0), (b"b", 0)];
        let place = &place;
        let waiting = scope.spawn(move || place.open("/q").send_batch_timeout(&both, STUCK));
        assert!(wait_until(STUCK, || queue.status().blocked_senders == 1));
        assert_eq!(queue.try_send(b"c", 0), Err(SendError::Full));
        assert!(!waiting.is_finished());
        for lease in leases {
            lease.acknowledge().unwrap();
        }
        assert_eq!(waiting.join().unwrap(), Ok(()));
    });
}

#[test]
fn what_is_too_old_is_expired_before_anything_is_dropped() {
    let place = Place::new();
    let queue = queue(&place, |options| {
        options.on_full(OnFull::DropOldest).dead_letter("/dead");
        options.time_to_live(AGE);
    });
    for data in [b"1", b"2", b"3"] {
        queue.send(data, 0).unwrap();
    }
    std::thread::sleep(AGE + Duration::from_millis(500));
    queue.send(b"4", 0).unwrap();
    let statistics = queue.status().statistics;
    assert_eq!((statistics.dropped, statistics.expired), (0, 3));
    assert_eq!(drain(&queue).len(), 1);
    assert_eq!(drain(&place.open("/dead")).len(), 3);
}
