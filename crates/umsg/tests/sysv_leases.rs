//! Leases of System V queues: receivers read messages in place.

mod support;

use std::time::{Duration, SystemTime};
use support::child::{Child, Exit};
use support::place::Place;
use support::wait_until;
use umsg::sysv::{ReceiveError, Want};

const STUCK: Duration = Duration::from_secs(20);

#[test]
fn a_lease_of_a_system_v_queue_waits_until_a_time_of_the_clock_and_no_longer() {
    let (_place, queue) = Place::new().with_sysv_queue(7);
    let two = Want::Exactly(2);
    queue.try_send(1, b"another").unwrap();
    for deadline in [
        SystemTime::UNIX_EPOCH,
        SystemTime::now() + Duration::from_millis(20),
    ] {
        let leased = queue.receive_lease_deadline(two, deadline);
        assert_eq!(leased.unwrap_err(), ReceiveError::TimedOut);
        assert!(SystemTime::now() >= deadline);
    }
    assert_eq!(queue.status().unwrap().blocked_receivers, 0);
    let tomorrow = SystemTime::now() + Duration::from_secs(24 * 3600);
    std::thread::scope(|scope| {
        let receiver = scope.spawn(|| {
            let lease = queue.receive_lease_deadline(two, tomorrow).unwrap();
            let leased = (lease.to_vec(), lease.mtype(), lease.deliveries());
            // The drop of the lease returns the message to the queue.
            drop(lease);
            leased
        });
        let waits = wait_until(Duration::from_secs(10), || {
            queue.status().unwrap().blocked_receivers == 1
        });
        // Sends before the assertion: if it failed first, the join would wait for the receiver until tomorrow.
        queue.try_send(2, b"wanted").unwrap();
        assert!(waits);
        assert_eq!(receiver.join().unwrap(), (b"wanted".to_vec(), 2, 1));
    });
    // If there is a message, a deadline in the past is no error.
    let again = queue
        .receive_lease_deadline(two, SystemTime::UNIX_EPOCH)
        .unwrap();
    assert_eq!(
        (again.to_vec(), again.deliveries()),
        (b"wanted".to_vec(), 2)
    );
    again.acknowledge().unwrap();
    assert_eq!(queue.status().unwrap().entry.messages, 1);
}

/// Delays a process at a crash point.
fn linger() {
    std::thread::sleep(Duration::from_millis(50));
}

#[test]
fn a_message_that_is_handed_to_a_waiting_lease_counts_as_leased() {
    let (place, queue) = Place::in_turn().with_sysv_queue(7);
    let mut holder = Child::run(|| {
        let queue = place.open_sysv(7);
        // At this point, the receiver is awake, and does not have its message yet.
        umsg_shm::crash::arm_fuse("MSG_WOKEN", linger);
        let lease = queue.receive_lease_timeout(Want::Any, STUCK).unwrap();
        queue.receive_vec_timeout(Want::Exactly(2), STUCK).unwrap();
        lease.acknowledge().unwrap();
        0
    });
    let is_blocked = || queue.status().unwrap().blocked_receivers == 1;
    assert!(wait_until(STUCK, is_blocked));
    queue.try_send(1, b"job").unwrap();
    for _ in 0..300 {
        let now = queue.status().unwrap();
        // If the holder gets no CPU time, the message that was offered to it goes back to the queue after a slice.
        assert_eq!(now.entry.messages + now.leased, 1);
        std::thread::sleep(Duration::from_millis(1));
    }
    queue.try_send(2, b"end").unwrap();
    holder.expect(Exit::Code(0), "the holder");
    let now = queue.status().unwrap();
    assert_eq!((now.entry.messages, now.leased), (0, 0));
}
