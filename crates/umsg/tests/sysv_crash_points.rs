//! A real SIGKILL at every named point of the engine of System V queues, and the checks afterwards, as tests/crash_points.rs has them for POSIX
//! queues.
//!
//! A victim works on a queue until it dies at a point. A bystander has the queue open, and may be blocked in it. After the
//! death a newcomer opens the queue and uses it. Then the test checks the longest stall of any process, that every message whose send returned was
//! delivered once, the order of arrival, the counts, and the capacity of the queue: exactly as many messages as before, in the same memory, even
//! after many rounds.

mod chaos;
#[path = "sysv_crash_points/mod.rs"]
mod parts;
mod support;

use chaos::killing::STUCK;
use chaos::stage::{
    expect_kills_at_every_point, kill_and_make_anew, kill_at_every_point, kill_repairers,
};
use parts::acts::status;
use parts::stage::{KEY, Scenario};
use parts::{changing, holding, receiving, sending, waiting};
use support::child::{Child, Exit};
use support::place::Place;
use support::{turn, wait_until};
use umsg::sysv::{OpenError, ReceiveError, SendError, Waiting, Want};
use umsg_shm::crash;

/// Points under the lock, each with its scenario. The deaths at these points leave different states behind.
const DEADLY: &[(&str, &str)] = &[
    (
        "sends mixed messages into a queue that holds some",
        "MSG_FILLED",
    ),
    (
        "sends mixed messages into a queue that holds some",
        "MSG_SENT",
    ),
    (
        "sends batches into a queue that holds messages",
        "MSG_BATCH_FILLED",
    ),
    (
        "sends batches into a queue that holds messages",
        "MSG_BATCH_SENT",
    ),
    ("sends to a waiting receiver", "MSG_NOTED"),
    ("sends to a waiting receiver", "MSG_OFFERED"),
    ("sends where a receiver died with an offer", "MSG_PUT_BACK"),
    ("receives by type and in order of arrival", "MSG_ENDED"),
    (
        "receives from a full queue while a sender is blocked",
        "MSG_ADMITTED",
    ),
    (
        "receives from a full queue while a sender is blocked",
        "MSG_SENT",
    ),
    ("leases", "MSG_LEASED"),
    ("leases", "MSG_ACKNOWLEDGED"),
    ("leases", "MSG_RETURNED"),
    ("is woken with a message", "MSG_REAPED"),
    ("begins to wait for room", "MSG_PARKED"),
    ("begins to wait for room", "MSG_LISTED"),
];

/// Points at which the creator and the remover of a queue die.
const CREATE_POINTS: &[&str] = crate::crash_points![
    MSGGET_EMPTY MSGGET_FILLED MSGGET_ID_TAKEN MSGGET_NUMBERED MSGGET_INDEXED MSGGET_LABELLED
];
const REMOVE_POINTS: &[&str] = crate::crash_points![MSG_REMOVED MSGCTL_UNLABELLED];

/// Other test files whose tests kill at points.
const OTHER_FILES: &[&str] = &[
    "crash_pollable.rs",
    "doorbell_users.rs",
    "sysv_delivery.rs",
    "sysv_delivery/end_of_stream.rs",
    "sysv_recycling.rs",
    "sysv_registry_crash.rs",
    "sysv_scan.rs",
    "sysv_sums.rs",
    "real_time.rs",
    "salvage_killed.rs",
];

/// Blocked threads that die when they are woken: one with an offered message, and one whose message was admitted to the queue.
const WOKEN: &[(&str, &str)] = &[
    ("is woken with a message", "MSG_WOKEN"),
    ("is woken with room", "MSG_WOKEN"),
];

crash_tests! {
    tables: [sending::ALL, receiving::ALL, holding::ALL, waiting::ALL, changing::ALL];
    every_named_point_is_killed_at_in_some_scenario
        => expect_kills_at_every_point(scenarios(), &[CREATE_POINTS, REMOVE_POINTS].concat(), OTHER_FILES);
    a_killed_sender_leaves_a_whole_message_or_none_and_stops_no_process
        => kill_at_every_point("killed senders", sending::ALL);
    a_killed_receiver_takes_at_most_its_own_message_along_and_stops_no_process
        => kill_at_every_point("killed receivers", receiving::ALL);
    what_a_killed_holder_leased_is_delivered_again
        => kill_at_every_point("killed holders", holding::ALL);
    a_process_killed_while_it_waits_stops_no_process
        => kill_at_every_point("killed waiters", waiting::ALL);
    a_process_killed_while_it_changes_a_queue_stops_no_process
        => kill_at_every_point("killed administrators", changing::ALL);
    a_repairer_that_is_killed_is_itself_repaired
        => kill_repairers(DEADLY, named);
    what_the_dead_left_is_kept_when_the_queue_is_made_anew
        => kill_and_make_anew(&[DEADLY, WOKEN].concat(), named);
}

#[test]
fn a_queue_whose_creator_is_killed_exists_whole_or_not_at_all() {
    let _turn = turn();
    for point in CREATE_POINTS {
        let place = Place::new();
        // The first System V queue of a namespace makes the directory of these queues.
        let other = place.create_sysv(1);
        for round in 0..10 {
            let key = KEY + round;
            let mut victim = Child::run(|| {
                crash::arm(point, 1);
                place.create_sysv(key);
                0
            });
            victim.expect(Exit::Signal(libc::SIGKILL), point);
            let queue = place.create_sysv(key);
            queue.try_send(1, b"there").unwrap();
            let received = place.open_sysv(key).try_receive(Want::Any, &mut [0; 64]);
            assert_eq!(received.map(|received| received.len), Ok(5), "{point}");
            // The list has exactly one queue of the key: that of this process.
            let listed = umsg::sysv::list(&place.namespace).unwrap();
            let of_key: Vec<i32> = listed
                .iter()
                .filter(|entry| entry.key == key)
                .map(|entry| entry.id)
                .collect();
            assert_eq!(of_key, [queue.id()], "{point}");
            assert_eq!(listed.len(), round as usize + 2, "{point}");
        }
        other.try_send(1, b"").unwrap();
    }
}

#[test]
fn a_queue_whose_remover_is_killed_is_gone_for_all_waiters() {
    let _turn = turn();
    for point in REMOVE_POINTS {
        for full in [false, true] {
            let (place, queue) = Place::new().with_sysv_queue(KEY);
            while full && queue.try_send(1, &[0; 1000]).is_ok() {}
            let mut waiter = Child::run(|| {
                let queue = place.open_sysv(KEY);
                queue.set_waiting(Waiting::Blocking);
                let is_removed = match full {
                    true => queue.send(1, &[0; 1000]) == Err(SendError::Removed),
                    false => queue.receive(Want::Any, &mut [0; 64]) == Err(ReceiveError::Removed),
                };
                i32::from(!is_removed)
            });
            let waits = wait_until(STUCK, || {
                let status = status(&queue);
                status.blocked_receivers + status.blocked_senders == 1
            });
            assert!(waits, "{point}: no process waits");
            let mut victim = Child::run(|| {
                let queue = place.open_sysv(KEY);
                crash::arm(point, 1);
                let _ = queue.remove();
                0
            });
            victim.expect(Exit::Signal(libc::SIGKILL), point);
            waiter.expect(Exit::Code(0), &format!("{point}: the waiter"));
            assert_eq!(queue.try_send(1, b""), Err(SendError::Removed), "{point}");
            let gone = umsg::sysv::OpenOptions::new()
                .namespace(&place.namespace)
                .open(KEY);
            assert!(
                matches!(gone, Err(OpenError::NotFound)),
                "{point}: {gone:?}"
            );
            assert_eq!(umsg::sysv::list(&place.namespace).unwrap(), [], "{point}");
            let next = place.create_sysv(KEY);
            assert_ne!(next.id(), queue.id(), "{point}");
            next.try_send(1, b"next").unwrap();
        }
    }
}
