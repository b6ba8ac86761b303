//! Tests the number of waiting messages in the states of bridges, while messages can't go on.

mod support;

use support::*;
use umsg::posix::Queue;

/// Waits until the bridge shows this number of waiting messages, and this number of messages in flight.
fn await_counts(machine: &Machine, name: &str, counts: (u64, u64)) {
    let shown = || {
        let states = machine.states();
        let state = states.iter().find(|state| state.name == name);
        state.map(|state| (state.backlog, state.in_flight))
    };
    wait_for(
        &format!("{counts:?} messages that wait or are in flight"),
        || shown() == Some(counts),
        || format!("{:?}\n{}", machine.states(), machine.logged()),
    );
}

fn send(queue: &Queue, count: u32) {
    for n in 0..count {
        queue.send_timeout(&n.to_le_bytes(), 0, LONG).unwrap();
    }
}

#[test]
fn messages_of_an_export_wait_before_the_first_connection() {
    let mut machine = Machine::new();
    let out = machine.queue("/out", 100, 16);
    // No server listens at this address.
    machine.declare("nats://127.0.0.1:1", EXPORT);
    send(&out, 7);
    machine.start();
    await_counts(&machine, "out", (7, 0));
    send(&out, 5);
    await_counts(&machine, "out", (12, 0));
    let (text, _) = output(machine.command().arg("status"));
    let numbers: Vec<&str> = text.split_whitespace().collect();
    let at = numbers.iter().position(|word| *word == "out").unwrap();
    assert_eq!(numbers[at + 3..at + 7], ["0", "0", "0", "12"], "{text}");
}

#[test]
fn messages_of_an_export_wait_while_the_stream_is_missing() {
    let Some(program) = nats_server() else { return };
    let server = Server::start(&program, "");
    let mut machine = Machine::new();
    let out = machine.queue("/out", 100, 16);
    let export = EXPORT.replace("create_stream = { storage = \"file\" }", "");
    machine.declare(&server.url(), &export);
    machine.start();
    machine.await_error(&["the server has no stream S"]);
    send(&out, 7);
    await_counts(&machine, "out", (7, 0));
}

#[test]
fn messages_of_an_export_wait_behind_a_full_window_and_while_the_server_is_away() {
    let Some(program) = nats_server() else { return };
    let mut server = Server::start(&program, "");
    let mut machine = Machine::new();
    let out = machine.queue("/out", 100, 16);
    machine.declare(
        &server.url(),
        &EXPORT.replace("subject =", "window = 4\nsubject ="),
    );
    machine.start();
    machine.await_log("running");
    // The stopped server acknowledges nothing.
    server.stop(true);
    send(&out, 20);
    await_counts(&machine, "out", (16, 4));
    // The publishes have failed, and the bridge waits before it repeats them.
    machine.await_error(&["not acknowledged"]);
    server.kill();
    wait_for(
        "loss of the server",
        || machine.states()[0].state == "waiting for the server",
        || format!("{:?}\n{}", machine.states(), machine.logged()),
    );
    send(&out, 10);
    await_counts(&machine, "out", (26, 4));
    server.restart();
    await_counts(&machine, "out", (0, 0));
}

#[test]
fn a_rejected_message_of_an_export_waits() {
    let Some(program) = nats_server() else { return };
    let server = Server::start(&program, "max_payload: 1024");
    let mut machine = Machine::new();
    let out = machine.queue("/out", 10, 4096);
    machine.declare(&server.url(), EXPORT);
    machine.start();
    out.send(&[1; 2000], 0).unwrap();
    wait_for(
        "delayed message",
        || out.attributes().delayed == 1,
        || machine.logged(),
    );
    await_counts(&machine, "out", (1, 0));
}

#[test]
fn messages_of_an_import_wait_in_the_stream_while_the_queue_is_full() {
    let Some(program) = nats_server() else { return };
    let server = Server::start(&program, "");
    let mut machine = Machine::new();
    let (out, into) = (machine.queue("/out", 100, 16), machine.queue("/in", 3, 16));
    machine.declare(&server.url(), &(EXPORT.to_owned() + IMPORT));
    machine.start();
    send(&out, 50);
    machine.await_log("the local queue is full");
    await_counts(&machine, "in", (47, 0));
    // The next message comes by a second delivery, which does not tell how many messages wait.
    into.receive_vec_timeout(LONG).unwrap();
    await_counts(&machine, "in", (46, 0));
    // The number is also known after a start with a full queue.
    machine.kill();
    machine.start();
    await_counts(&machine, "in", (46, 0));
    for _ in 0..49 {
        into.receive_vec_timeout(LONG).unwrap();
    }
    await_counts(&machine, "in", (0, 0));
}

#[test]
fn messages_in_a_durable_queue_are_in_flight_and_those_without_room_wait() {
    let Some(program) = nats_server() else { return };
    let server = Server::start(&program, "");
    let durable = "[[bridge]]\nname = \"d\"\ndirection = \"durable\"\ninbox = \"/d.in\"\nqueue = \"/d\"\nstream = \"D\"\nsubject = \"d\"\nack_wait = \"1s\"\ncreate_stream = {}\n";
    let mut machine = Machine::new();
    let (inbox, queue) = (machine.queue("/d.in", 100, 16), machine.queue("/d", 5, 16));
    machine.declare(&server.url(), durable);
    machine.start();
    send(&inbox, 20);
    await_counts(&machine, "d.out", (15, 5));
    queue.receive_vec_timeout(LONG).unwrap();
    await_counts(&machine, "d.out", (14, 5));
    // After a restart, the server delivers the messages that are in the queue again.
    machine.kill();
    machine.start();
    await_counts(&machine, "d.out", (14, 5));
    // The server is away, so the inbox has the messages.
    drop(server);
    send(&inbox, 8);
    let of_inbox = || machine.states().into_iter().find(|one| one.name == "d.in");
    wait_for(
        "messages of the inbox",
        || of_inbox().is_some_and(|state| state.backlog + state.in_flight == 8),
        || format!("{:?}\n{}", machine.states(), machine.logged()),
    );
}
