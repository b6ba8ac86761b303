//! The death of a process loses no message that is set aside or on its way to the dead-letter queue.

mod support;

use std::time::Duration;
use support::child::{Child, Exit};
use support::place::Place;
use umsg::posix::{OpenOptions, Queue, ReceiveError, SendError};
use umsg_shm::crash;

const TIME_TO_LIVE: Duration = Duration::from_millis(20);

/// Returns a queue for three messages, with this time to live; each message may be leased once.
fn queue(place: &Place, time_to_live: Duration) -> Queue {
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true);
    options.max_messages(3).message_size(8);
    options.time_to_live(time_to_live).max_deliveries(1);
    options.dead_letter("/dead").namespace(&place.namespace);
    options.open("/q").unwrap()
}

/// Kills a process at the point, in `work`, while the queue has expired messages of these priorities; then another process continues.
fn kill(point: &str, priorities: &[u32], work: impl Fn(&Queue)) {
    let place = Place::in_turn();
    let queue = queue(&place, TIME_TO_LIVE);
    for round in 0..5 {
        for &priority in priorities {
            queue.try_send(b"dead", priority).unwrap();
        }
        std::thread::sleep(TIME_TO_LIVE * 2);
        let mut victim = Child::run(|| {
            let queue = place.open("/q");
            crash::arm(point, 1);
            work(&queue);
            0
        });
        victim.expect(Exit::Signal(libc::SIGKILL), point);

        // The next process moves all expired messages.
        let received = queue.receive_timeout(&mut [0; 8], Duration::from_millis(50));
        assert_eq!(
            received,
            Err(ReceiveError::TimedOut),
            "{point}, round {round}"
        );
        let dead = place.open("/dead");
        for &priority in priorities {
            let letter = dead.try_receive_lease().unwrap();
            assert_eq!(
                (letter.to_vec(), letter.priority()),
                (b"dead".to_vec(), priority)
            );
            letter.acknowledge().unwrap();
        }
        assert_eq!(dead.attributes().messages, 0, "{point}: twice");

        // The queue has room for exactly three messages.
        let status = queue.status();
        assert_eq!(
            (status.attributes.messages, status.set_aside),
            (0, 0),
            "{point}"
        );
        let rooms = [(); 3].map(|()| queue.try_reserve(8).unwrap());
        assert_eq!(queue.try_send(b"", 0), Err(SendError::Full), "{point}");
        drop(rooms);
        assert!(!queue.status().damaged, "{point}");
    }
}

/// Makes a receive that meets the expired messages. The process has to die in this call.
fn meet(queue: &Queue) {
    let received = queue.try_receive(&mut [0; 8]);
    panic!("a dead process received {received:?}");
}

#[test]
fn while_it_sets_aside_what_grew_too_old_in_the_ring() {
    kill("ASIDE_HELD", &[3], meet);
}

#[test]
fn while_it_sets_aside_what_grew_too_old_in_the_store() {
    kill("ASIDE_HELD", &[9, 3, 1], meet);
}

#[test]
fn while_it_moves_a_message_to_the_dead_letter_queue() {
    kill("MOVE_BEGUN", &[9, 3], meet);
}

#[test]
fn while_a_moved_message_arrives_or_its_source_forgets_it() {
    let points = [
        "RESERVE_HELD",
        "ARRIVE_WRITTEN",
        "ARRIVE_NOTED",
        "ARRIVE_MARKED",
        "ARRIVE_ENDED",
        "DEPART_ENDED",
        "MOVE_ENDED",
    ];
    for point in points {
        kill(point, &[9, 3], meet);
    }
}

#[test]
fn while_it_returns_a_message_for_the_last_time() {
    let place = Place::in_turn();
    let queue = queue(&place, Duration::ZERO);
    queue.try_send(b"dead", 5).unwrap();
    let mut victim = Child::run(|| {
        let queue = place.open("/q");
        let lease = queue.try_receive_lease().unwrap();
        crash::arm("ASIDE_HELD", 1);
        drop(lease);
        0
    });
    victim.expect(Exit::Signal(libc::SIGKILL), "ASIDE_HELD");
    let received = queue.receive_timeout(&mut [0; 8], Duration::from_millis(50));
    assert_eq!(received, Err(ReceiveError::TimedOut));
    assert_eq!(place.open("/dead").receive_vec().unwrap().data, b"dead");
    assert_eq!(
        (queue.attributes().leased, queue.status().set_aside),
        (0, 0)
    );
}
