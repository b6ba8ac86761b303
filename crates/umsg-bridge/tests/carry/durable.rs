//! Durable queues: the loss of a machine, and repeated messages.

use crate::receive;
use crate::support::*;
use std::time::Duration;

/// Waits until the server has redelivered this number of messages.
fn wait_for_redelivery(machine: &Machine, messages: u64) {
    let have_come = || {
        let states = machine.states();
        states
            .iter()
            .any(|state| state.name == "d.out" && state.duplicates >= messages)
    };
    let progress = || format!("{:?}\n{}", machine.states(), machine.logged());
    wait_for("redelivery", have_come, progress);
}

#[test]
fn a_durable_queue_is_refilled_after_the_loss_of_the_machine() {
    let Some(program) = nats_server() else { return };
    let server = Server::start(&program, "");
    let durable = "[[bridge]]\nname = \"d\"\ndirection = \"durable\"\ninbox = \"/d.in\"\nqueue = \"/d\"\nstream = \"D\"\nsubject = \"d\"\nack_wait = \"1s\"\ncreate_stream = {}\ncreate_queue = { max_messages = 100, message_size = 64 }\n";
    let mut machine = Machine::new();
    let inbox = machine.queue("/d.in", 100, 64);
    machine.declare(&server.url(), durable);
    machine.start();
    for n in 0..10_u32 {
        inbox.send(&n.to_le_bytes(), n % 2).unwrap();
    }
    let queue = machine.queue("/d", 100, 64);
    wait_for(
        "messages",
        || queue.attributes().messages == 10,
        || machine.logged(),
    );
    // The test consumes three messages, and leases a fourth.
    for _ in 0..3 {
        queue
            .receive_lease_timeout(LONG)
            .unwrap()
            .acknowledge()
            .unwrap();
    }
    let lease = queue.receive_lease_timeout(LONG).unwrap();
    let left = || {
        with_client(&server.url(), async |js| {
            js.get_stream("D")
                .await
                .unwrap()
                .cached_info()
                .state
                .messages
        })
    };
    wait_for(
        "acknowledgements",
        || left() == 7,
        || format!("{} {}", left(), machine.logged()),
    );
    // The pause is longer than `ack_wait`: the bridge recognises the redeliveries, and the leased message stays in the stream.
    std::thread::sleep(Duration::from_millis(1500));
    assert_eq!(
        (
            left(),
            queue.attributes().messages,
            queue.attributes().leased
        ),
        (7, 6, 1)
    );
    drop(lease);
    // The machine ends, and its queues end with it.
    drop((queue, inbox));
    drop(machine);
    let mut machine = Machine::new();
    machine.queue("/d.in", 100, 64);
    machine.declare(&server.url(), durable);
    machine.start();
    let queue = machine.queue("/d", 100, 64);
    wait_for(
        "refill",
        || queue.attributes().messages == 7,
        || machine.logged(),
    );
    let mut seen: Vec<_> = (0..7)
        .map(|_| receive(&queue))
        .map(|m| (m.priority, m.data[0]))
        .collect();
    seen.sort_unstable();
    assert_eq!(
        seen,
        [(0, 0), (0, 2), (0, 4), (0, 6), (0, 8), (1, 7), (1, 9)]
    );
    wait_for("end", || left() == 0, || machine.logged());
}

#[test]
fn a_durable_queue_repeats_no_message_that_others_have_passed_for_long() {
    let Some(program) = nats_server() else { return };
    let server = Server::start(&program, "");
    // The window has 4 + 2 * 4 sequences, and the test sends far more messages.
    let durable = "[[bridge]]\nname = \"d\"\ndirection = \"durable\"\ninbox = \"/d.in\"\nqueue = \"/d\"\nstream = \"D\"\nsubject = \"d\"\nack_wait = \"1s\"\nwindow = 4\ndedupe = 12\ncreate_stream = {}\n";
    let mut machine = Machine::new();
    let (inbox, queue) = (machine.queue("/d.in", 100, 64), machine.queue("/d", 4, 64));
    machine.declare(&server.url(), durable);
    machine.start();
    for n in [100, 101] {
        inbox.send(&[n], 0).unwrap();
    }
    wait_for(
        "messages",
        || queue.attributes().messages == 2,
        || machine.logged(),
    );
    for n in 0..60 {
        inbox.send(&[n], 9).unwrap();
        wait_for(
            "message",
            || queue.attributes().messages == 3,
            || machine.logged(),
        );
        assert_eq!(receive(&queue).data, [n]);
    }
    machine.kill();
    machine.start();
    // Waits longer than `ack_wait`, until the server has redelivered both messages.
    wait_for_redelivery(&machine, 2);
    assert_eq!([receive(&queue).data, receive(&queue).data], [[100], [101]]);
    assert_eq!(queue.attributes().messages, 0);
}

#[test]
fn another_dedupe_repeats_no_message_of_a_durable_queue() {
    let Some(program) = nats_server() else { return };
    let server = Server::start(&program, "");
    let durable = "[[bridge]]\nname = \"d\"\ndirection = \"durable\"\ninbox = \"/d.in\"\nqueue = \"/d\"\nstream = \"D\"\nsubject = \"d\"\nack_wait = \"1s\"\nwindow = 4\ndedupe = 100\ncreate_stream = {}\n";
    let mut machine = Machine::new();
    let (inbox, queue) = (
        machine.queue("/d.in", 100, 64),
        machine.queue("/d", 100, 64),
    );
    machine.declare(&server.url(), durable);
    machine.start();
    for n in 0..50 {
        inbox.send(&[n], 0).unwrap();
    }
    wait_for(
        "messages",
        || queue.attributes().messages == 50,
        || machine.logged(),
    );
    machine.kill();
    machine.declare(&server.url(), &durable.replace("= 100", "= 1000"));
    machine.start();
    // After `ack_wait`, the server redelivers all messages.
    wait_for_redelivery(&machine, 50);
    for n in 0..50 {
        assert_eq!(receive(&queue).data, [n]);
    }
    assert_eq!(queue.attributes().messages, 0);
}
