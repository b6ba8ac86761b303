//! Messages in place: leases and reservations.

mod support;

use std::time::Duration;
use support::child::{Child, Exit};
use support::place::Place;
use support::wait_until;
use umsg::posix::{LeaseError, Queue, ReceiveError, SendError, Waiting};

const STUCK: Duration = Duration::from_secs(10);

fn counts(queue: &Queue) -> (usize, usize, usize) {
    let attributes = queue.attributes();
    (attributes.messages, attributes.reserved, attributes.leased)
}

#[test]
fn a_lease_counts_until_it_is_acknowledged_and_comes_back_if_it_is_not() {
    let place = Place::new();
    let queue = place.create("/q", 3, 100);
    for (data, priority) in [(b"one", 1), (b"two", 1), (b"top", 7)] {
        queue.try_send(data, priority).unwrap();
    }
    let top = queue.try_receive_lease().unwrap();
    let one = queue.try_receive_lease().unwrap();
    assert_eq!(
        (top.to_vec(), top.priority(), top.deliveries()),
        (b"top".to_vec(), 7, 1)
    );
    assert_eq!(one.to_vec(), b"one");
    assert_eq!(counts(&queue), (1, 0, 2));
    assert_eq!(queue.try_send(b"no", 0), Err(SendError::Full));
    drop(one);
    assert_eq!(counts(&queue), (2, 0, 1));
    let one = queue.try_receive_lease().unwrap();
    assert_eq!((one.to_vec(), one.deliveries()), (b"one".to_vec(), 2));
    top.acknowledge().unwrap();
    queue.try_send(b"yes", 0).unwrap();
    one.acknowledge().unwrap();
    assert_eq!(queue.receive_vec().unwrap().data, b"two");
    assert_eq!(queue.receive_vec().unwrap().data, b"yes");
    assert_eq!(counts(&queue), (0, 0, 0));
    assert_eq!(queue.try_receive_lease().unwrap_err(), ReceiveError::Empty);
}

#[test]
fn a_reservation_counts_and_is_sent_when_it_is_committed() {
    let place = Place::new();
    let queue = place.create("/q", 2, 5000);
    let mut long = queue.try_reserve(5000).unwrap();
    let short = queue.try_reserve(0).unwrap();
    assert_eq!(counts(&queue), (0, 2, 0));
    assert_eq!(queue.try_send(b"", 0), Err(SendError::Full));
    drop(short);
    queue.try_send(b"first", 3).unwrap();
    assert_eq!(long.write_at(0, &[7; 6000]), 5000);
    long.commit(3).unwrap();
    assert_eq!(counts(&queue), (2, 0, 0));
    assert_eq!(queue.receive_vec().unwrap().data, b"first");
    assert_eq!(queue.receive_vec().unwrap().data, [7; 5000]);
    let mut cut = queue.reserve(5000).unwrap();
    cut.write_at(0, b"short after all");
    cut.truncate(5);
    cut.commit(0).unwrap();
    assert_eq!(queue.receive_lease().unwrap().to_vec(), b"short");
}

#[test]
fn a_limited_lease_ends_by_itself() {
    let place = Place::new();
    let queue = place.create("/q", 2, 100);
    queue.try_send(b"job", 0).unwrap();
    let lease = queue.receive_lease().unwrap();
    lease.limit(Duration::from_millis(30)).unwrap();
    let again = queue.receive_lease_timeout(STUCK).unwrap();
    assert_eq!(again.deliveries(), 2);
    assert_eq!(lease.acknowledge(), Err(LeaseError::Ended));
    again.acknowledge().unwrap();
    assert_eq!(counts(&queue), (0, 0, 0));
}

#[test]
fn what_the_dead_held_comes_back() {
    let place = Place::new();
    let queue = place.create("/q", 3, 100);
    for data in [b"a", b"b"] {
        queue.try_send(data, 4).unwrap();
    }
    let mut holder = Child::run(|| {
        let queue = place.open("/q");
        let _leases = [
            queue.receive_lease().unwrap(),
            queue.receive_lease().unwrap(),
        ];
        let _room = queue.reserve(10).unwrap();
        std::thread::sleep(STUCK);
        0
    });
    assert!(wait_until(STUCK, || counts(&queue) == (0, 1, 2)));
    assert_eq!(queue.try_receive_lease().unwrap_err(), ReceiveError::Empty);
    holder.signal(libc::SIGKILL);
    // Its parent has not taken note of it yet.
    let first = queue.receive_lease_timeout(STUCK).unwrap();
    assert_eq!((first.to_vec(), first.deliveries()), (b"a".to_vec(), 2));
    assert_eq!(counts(&queue), (1, 0, 1));
    holder.expect(Exit::Signal(libc::SIGKILL), "the holder");
    first.acknowledge().unwrap();
}

#[test]
fn a_forked_child_does_not_own_its_parents_leases() {
    let place = Place::new();
    let queue = place.create("/q", 2, 100);
    queue.try_send(b"job", 0).unwrap();
    let lease = queue.receive_lease().unwrap();
    let mut child = Child::run(|| {
        let refused = lease.limit(Duration::from_secs(1)) == Err(LeaseError::Ended);
        i32::from(!refused)
    });
    child.expect(Exit::Code(0), "the child");
    lease.acknowledge().unwrap();
}

#[test]
fn a_blocked_reservation_gets_its_turn_among_blocked_senders() {
    let place = Place::new();
    let queue = place.create("/q", 1, 100);
    queue.set_waiting(Waiting::Blocking);
    queue.send(b"first", 0).unwrap();
    let blocked = |senders| wait_until(STUCK, || queue.status().blocked_senders == senders);
    std::thread::scope(|scope| {
        scope.spawn(|| queue.send(b"second", 0).unwrap());
        assert!(blocked(1));
        scope.spawn(|| {
            let mut room = queue.reserve(5).unwrap();
            room.write_at(0, b"third");
            room.commit(0).unwrap();
        });
        assert!(blocked(2));
        scope.spawn(|| queue.send(b"fourth", 0).unwrap());
        assert!(blocked(3));
        for expected in ["first", "second", "third", "fourth"] {
            let received = queue.receive_vec().unwrap();
            assert_eq!(String::from_utf8(received.data).unwrap(), expected);
        }
    });
    let late = queue.reserve(1).unwrap();
    assert_eq!(
        queue
            .reserve_timeout(1, Duration::from_millis(20))
            .unwrap_err(),
        SendError::TimedOut
    );
    drop(late);
    assert_eq!(queue.status().blocked_senders, 0);
}
