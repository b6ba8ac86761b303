//! A real SIGKILL at every named point of the code, and the checks afterwards.
//!
//! A scenario is the work of a victim until its death. Meanwhile a bystander has the queue open, and may be blocked in it. After the death a
//! newcomer opens the queue and uses it. Then the test checks the longest stall of any process, that every message whose send returned was
//! delivered once, the order of messages, and the capacity of the queue: exactly as many messages as before, in the same memory, even after many
//! rounds.

mod chaos;
#[path = "crash_points/mod.rs"]
mod parts;
mod support;

use chaos::killing::{Figures, Repairer, STUCK};
use chaos::stage::{
    expect_kills_at_every_point, kill_and_make_anew, kill_at_every_point, kill_repairers,
};
use parts::stage::{Scenario, Stage};
use parts::{holding, receiving, sending, waiting};
use std::time::Duration;
use support::child::{Child, Exit};
use support::place::Place;
use support::{turn, wait_until};
use umsg::posix::{Queue, ReceiveError, SendError, Waiting};
use umsg_shm::crash;

/// Points at which the creator of a queue dies.
const CREATE_POINTS: &[&str] =
    crate::crash_points![CREATE_EMPTY CREATE_LABELLED CREATE_UNNAMED CREATE_NAMED];

/// Points under a lock, each with its scenario. The deaths at these points leave different states behind.
const DEADLY: &[(&str, &str)] = &[
    ("sends short messages of one priority", "SEND_PUBLISHED"),
    ("sends messages for which the arena grows", "ARENA_SPLIT"),
    ("sends batches", "BATCH_STAMPED"),
    ("sends batches", "BATCH_PUBLISHED"),
    ("receives from the ring", "RECEIVE_TAKEN"),
    ("receives from the store", "DRAIN_LINKED"),
    ("receives from the store", "RECEIVE_UNSTORED"),
    (
        "receives from a full queue while a sender is blocked",
        "ADMIT_ACCEPTED",
    ),
    ("sends to a waiting receiver", "SERVE_OFFERED"),
    ("sends to a waiting receiver", "SERVE_TAKEN"),
    ("begins to wait for room", "PARK_FILLED"),
    ("fills a deep queue", "GROW_COUNTED"),
    ("leases from the ring", "LEASE_HELD"),
    ("leases from the store", "LEASE_TAKEN"),
    ("leases from the store", "RETURN_MARKED"),
    ("is woken with a message to lease", "LEASE_HELD"),
    (
        "sends in place into a queue that holds some",
        "RESERVE_HELD",
    ),
    (
        "sends in place into a queue that holds some",
        "COMMIT_MARKED",
    ),
    ("sends in place to a waiting receiver", "COMMIT_MARKED"),
    ("receives what the dead held", "RETURN_MARKED"),
];

/// Other test files whose tests kill at points.
const OTHER_FILES: &[&str] = &[
    "crash_notification.rs",
    "crash_policies.rs",
    "crash_pollable.rs",
    "delays.rs",
    "fair_priorities.rs",
    "doorbell_users.rs",
    "end_of_stream.rs",
    "producers.rs",
    "salvage_killed.rs",
    "last_close/races.rs",
    "message_events.rs",
    "real_time.rs",
    "ipc_namespaces_crash.rs",
    "recycling.rs",
    "redrive.rs",
];

/// Blocked threads that die when they are woken: one with an offered message, and one whose message was admitted to the queue.
const WOKEN: &[(&str, &str)] = &[
    ("is woken with a message", "WAIT_WOKEN"),
    ("is woken with room", "WAIT_WOKEN"),
];

crash_tests! {
    tables: [sending::ALL, sending::GROWING, receiving::ALL, holding::ALL, waiting::ALL];
    every_named_point_is_killed_at_in_some_scenario
        => expect_kills_at_every_point(scenarios(), CREATE_POINTS, OTHER_FILES);
    a_killed_sender_leaves_a_whole_message_or_none_and_stops_no_process
        => kill_at_every_point("killed senders", sending::ALL);
    a_killed_receiver_takes_at_most_its_own_message_along_and_stops_no_process
        => kill_at_every_point("killed receivers", receiving::ALL);
    what_a_killed_holder_leased_is_delivered_again_and_what_it_reserved_is_free
        => kill_at_every_point("killed holders", holding::ALL);
    a_process_killed_while_it_waits_stops_no_process
        => kill_at_every_point("killed waiters", waiting::ALL);
    a_process_killed_while_a_queue_grows_loses_no_slot
        => kill_at_every_point("killed growers", sending::GROWING);
    a_repairer_that_is_killed_is_itself_repaired
        => kill_repairers(DEADLY, named);
    what_the_dead_left_is_kept_when_the_queue_is_made_anew
        => kill_and_make_anew(&[DEADLY, WOKEN].concat(), named);
}

#[test]
fn a_process_killed_while_taking_back_a_batch_is_itself_repaired() {
    let _turn = turn();
    let mut figures = Figures::default();
    let scenario = named("sends batches").unwrap();
    let second = Repairer::DiesAt("BATCH_TAKEN_BACK");
    for point in ["BATCH_NOTED", "BATCH_STAMPED"] {
        let mut stage = Stage::new(scenario);
        for round in 0..5 {
            stage.round(point, 1 + round, second, &mut figures);
        }
    }
    assert!(figures.kills_at("BATCH_TAKEN_BACK") > 0);
    figures.print("killed while taking back");
}

#[test]
fn a_queue_whose_creator_is_killed_exists_whole_or_not_at_all() {
    let _turn = turn();
    for point in CREATE_POINTS {
        for _ in 0..5 {
            let place = Place::new();
            let mut creator = Child::run(|| {
                crash::arm(point, 1);
                drop(place.create("/new", 5, 100));
                0
            });
            creator.expect(Exit::Signal(libc::SIGKILL), point);
            let names: Vec<String> = umsg::posix::list(&place.namespace)
                .unwrap()
                .into_iter()
                .map(|listed| listed.name.into_string().unwrap())
                .collect();
            let exists = *point == "CREATE_NAMED";
            assert_eq!(names, if exists { vec!["/new"] } else { vec![] }, "{point}");
            let files = std::fs::read_dir(place.path().join("mq")).unwrap().count();
            assert_eq!(
                files,
                usize::from(exists),
                "{point}: something was left behind"
            );

            let mut newcomer = Child::run(|| {
                let queue = place.create("/new", 5, 100);
                queue.try_send(b"hello", 1).unwrap();
                0
            });
            newcomer.expect(Exit::Code(0), point);
            let queue = place.open("/new");
            assert_eq!(queue.receive_vec().unwrap().data, b"hello", "{point}");
            assert_eq!(queue.attributes().max_messages, 5, "{point}");
        }
    }
}

#[test]
fn a_sender_that_does_not_block_gets_the_room_that_a_killed_receiver_made() {
    let (place, queue) = Place::in_turn().with_queue("/q", 4, 64);
    for message in 0..4_u8 {
        queue.try_send(&[message], 0).unwrap();
    }
    let mut victim = Child::run(|| {
        crash::arm("RECEIVE_FREED", 1);
        let _ = place.open("/q").receive(&mut [0; 64]);
        0
    });
    victim.expect(Exit::Signal(libc::SIGKILL), "RECEIVE_FREED");
    assert_eq!(queue.try_send(b"fits", 0), Ok(()));
    assert_eq!(queue.try_send(b"does not", 0), Err(SendError::Full));
}

#[test]
fn a_reservation_gets_the_room_that_a_killed_receiver_made() {
    let (place, queue) = Place::in_turn().with_queue("/q", 1, 64);
    queue.try_send(b"", 0).unwrap();
    let mut victim = Child::run(|| {
        crash::arm("RECEIVE_FREED", 1);
        let _ = place.open("/q").receive(&mut [0; 64]);
        0
    });
    victim.expect(Exit::Signal(libc::SIGKILL), "RECEIVE_FREED");
    assert!(queue.try_reserve(64).is_ok());
}

#[test]
fn a_lease_that_was_being_returned_when_its_returner_died_leaves_no_count_behind() {
    let (place, queue) = Place::in_turn().with_queue("/q", 1, 64);
    queue.try_send(b"job", 0).unwrap();
    let lease = queue.receive_lease().unwrap();
    lease.limit(Duration::ZERO).unwrap();
    let mut victim = Child::run(|| {
        crash::arm("RETURN_MARKED", 1);
        let queue = place.open("/q");
        let _ = wait_until(STUCK, || queue.try_receive(&mut [0; 64]).is_ok());
        0
    });
    victim.expect(Exit::Signal(libc::SIGKILL), "RETURN_MARKED");
    lease.acknowledge().unwrap();
    // Uses each slot once.
    for _ in 0..64 {
        queue.try_send(b"next", 0).unwrap();
        let lease = queue.try_receive_lease().unwrap();
        assert_eq!(lease.deliveries(), 1);
        lease.acknowledge().unwrap();
    }
}

#[test]
fn what_a_killed_sender_published_is_counted() {
    let (place, queue) = Place::in_turn().with_queue("/q", 4, 64);
    let mut victim = Child::run(|| {
        crash::arm("SEND_PUBLISHED", 1);
        let _ = place.open("/q").try_send(b"four", 0);
        0
    });
    victim.expect(Exit::Signal(libc::SIGKILL), "SEND_PUBLISHED");
    let attributes = queue.attributes();
    assert_eq!((attributes.messages, attributes.bytes), (1, 4));
    assert_eq!(queue.receive_vec().unwrap().data, b"four");
    assert_eq!(queue.attributes().messages, 0);
}

/// Returns a victim that dies at `point` in `work`. The victim uses the queue "/q", and all of its waits go through a node.
fn die_waiting(place: &Place, point: &str, work: impl FnOnce(&Queue)) -> Child {
    Child::run(|| {
        let queue = place.open("/q");
        queue.set_waiting(Waiting::Blocking);
        crash::arm(point, 1);
        work(&queue);
        0
    })
}

/// Receives a message, and returns its length.
fn len_of_next(queue: &Queue) -> Result<usize, ReceiveError> {
    queue.try_receive(&mut [0; 64]).map(|received| received.len)
}

#[test]
fn nothing_is_offered_to_a_receiver_that_the_kernel_has_marked_as_dead() {
    let (place, queue) = Place::in_turn().with_queue("/q", 1, 64);
    for _ in 0..10 {
        let mut victim = die_waiting(&place, "WAIT_NAMED", |queue| drop(queue.receive_vec()));
        victim.expect(Exit::Signal(libc::SIGKILL), "WAIT_NAMED");
        queue.try_send(b"for the living", 0).unwrap();
        assert_eq!(len_of_next(&queue), Ok(14));
        assert_eq!(queue.status().blocked_receivers, 0);
    }
}

#[test]
fn a_message_whose_receiver_was_woken_and_died_is_back_at_once() {
    let (place, queue) = Place::in_turn().with_queue("/q", 1, 64);
    for _ in 0..10 {
        let mut victim = die_waiting(&place, "WAIT_WOKEN", |queue| drop(queue.receive_vec()));
        assert!(wait_until(STUCK, || queue.status().blocked_receivers == 1));
        queue.try_send(b"back", 0).unwrap();
        victim.expect(Exit::Signal(libc::SIGKILL), "WAIT_WOKEN");
        assert_eq!(len_of_next(&queue), Ok(4));
        assert_eq!(queue.status().blocked_receivers, 0);
    }
}

#[test]
fn the_message_of_a_blocked_sender_that_died_is_never_sent() {
    let (place, queue) = Place::in_turn().with_queue("/q", 1, 64);
    for _ in 0..10 {
        queue.try_send(b"sent", 0).unwrap();
        let mut victim = die_waiting(&place, "WAIT_NAMED", |queue| {
            queue.send(b"never", 0).unwrap()
        });
        victim.expect(Exit::Signal(libc::SIGKILL), "WAIT_NAMED");
        assert_eq!(len_of_next(&queue), Ok(4));
        assert_eq!(queue.try_receive(&mut [0; 64]), Err(ReceiveError::Empty));
        assert_eq!(queue.status().blocked_senders, 0);
    }
}
