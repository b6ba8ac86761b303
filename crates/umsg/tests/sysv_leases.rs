//! Messages in place, of System V queues.

mod support;

use std::time::{Duration, SystemTime};
use support::place::Place;
use support::wait_until;
use umsg::sysv::{ReceiveError, Want};

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
            // It goes back.
            drop(lease);
            leased
        });
        let waits = wait_until(Duration::from_secs(10), || {
            queue.status().unwrap().blocked_receivers == 1
        });
        // In any case: a thread that is joined must not wait until tomorrow.
        queue.try_send(2, b"wanted").unwrap();
        assert!(waits);
        assert_eq!(receiver.join().unwrap(), (b"wanted".to_vec(), 2, 1));
    });
    // Where there is one, no time is too late.
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
