//! Tests how messages are carried: full queues, messages that are too large, shared consumers, replies, a killed server, and a bridge that ends after
//! SIGTERM.

use std::time::Duration;
use umsg::posix::{Queue, ReceiveError};
use umsg::ring;

use crate::receive;
use crate::support::*;

#[test]
fn a_full_queue_stops_the_pull_and_loses_nothing() {
    let Some(program) = nats_server() else { return };
    let server = Server::start(&program, "");
    let (mut here, mut there) = (Machine::new(), Machine::new());
    let (out, into) = (here.queue("/out", 1000, 16), there.queue("/in", 3, 16));
    here.declare(&server.url(), EXPORT);
    there.declare(&server.url(), IMPORT);
    here.start();
    there.start();
    for n in 0..200_u32 {
        out.send_timeout(&n.to_le_bytes(), 0, LONG).unwrap();
    }
    wait_for(
        "full queue",
        || into.attributes().messages == 3,
        || there.logged(),
    );
    // The bridge logs this line after half of `ack_wait` without room, once it has returned the messages to the stream.
    there.await_log("the local queue is full");
    let mut seen = Vec::new();
    while seen.len() < 200 {
        let message = receive(&into);
        seen.push(u32::from_le_bytes(message.data.try_into().unwrap()));
    }
    std::thread::sleep(Duration::from_millis(1500));
    assert_eq!(into.try_receive_vec().unwrap_err(), ReceiveError::Empty);
    seen.sort_unstable();
    assert_eq!(seen, (0..200).collect::<Vec<_>>());
}

#[test]
fn a_message_that_is_too_large_goes_to_the_dead_letters_or_waits() {
    let Some(program) = nats_server() else { return };
    let server = Server::start(&program, "max_payload: 1024");
    let mut machine = Machine::new();
    let (out, into) = (
        machine.queue("/out", 10, 4096),
        machine.queue("/in", 10, 256),
    );
    let settings = "on_reject = \"dead-letter\"\ndead_letter = \"/failed\"\nname =";
    let both = (EXPORT.to_owned() + IMPORT).replacen("name =", settings, 2);
    machine.declare(&server.url(), &both);
    machine.start();
    out.send(&[1; 2000], 7).unwrap();
    out.send(&[2; 300], 6).unwrap();
    out.send(&[3; 100], 5).unwrap();
    assert_eq!(receive(&into).data, [3; 100]);
    wait_for(
        "dead letters",
        || {
            machine
                .states()
                .iter()
                .all(|state| state.dead_lettered == 1)
        },
        || machine.logged(),
    );
    let failed = machine.queue("/failed", 10, 4096);
    let mut dead = [receive(&failed), receive(&failed)];
    dead.sort_by_key(|message| message.priority);
    assert_eq!((dead[0].priority, &*dead[0].data), (6, &[2; 300][..]));
    assert_eq!((dead[1].priority, &*dead[1].data), (7, &[1; 2000][..]));
    let log = machine.logged();
    assert!(
        log.contains("max_payload") && log.contains("message size"),
        "{log}"
    );

    machine.kill();
    machine.declare(&server.url(), EXPORT);
    machine.start();
    out.send(&[1; 2000], 7).unwrap();
    wait_for(
        "delayed message",
        || out.attributes().delayed == 1,
        || machine.logged(),
    );
}

#[test]
fn machines_share_the_work_of_one_consumer_and_mirrors_get_all() {
    let Some(program) = nats_server() else { return };
    let server = Server::start(&program, "");
    let mut here = Machine::new();
    let out = here.queue("/out", 1000, 16);
    here.declare(&server.url(), EXPORT);
    let mut others: Vec<(Machine, Queue)> = Vec::new();
    for consumer in ["shared", "shared", "mirror"] {
        let mut machine = Machine::new();
        let into = machine.queue("/in", 1000, 16);
        let import = IMPORT.replace(
            "ack_wait = \"1s\"",
            &format!("ack_wait = \"30s\"\nwindow = 4\nconsumer = {consumer:?}"),
        );
        machine.declare(&server.url(), &import);
        machine.start();
        machine.await_log("running");
        others.push((machine, into));
    }
    // Each of the two bridges has asked for messages, so each one gets some of the first messages.
    let requests = || {
        with_client(&server.url(), async |js| {
            let stream = js.get_stream("S").await.unwrap();
            stream.consumer_info("shared").await.unwrap().num_waiting
        })
    };
    wait_for("requests", || requests() >= 2, || requests().to_string());
    here.start();
    for n in 0..300_u32 {
        out.send(&n.to_le_bytes(), 0).unwrap();
    }
    let counts = || {
        others
            .iter()
            .map(|(_, into)| into.attributes().messages)
            .collect::<Vec<_>>()
    };
    wait_for(
        "messages",
        || counts()[0] + counts()[1] == 300 && counts()[2] == 300,
        || format!("{:?}", counts()),
    );
    assert!(counts()[0] > 0 && counts()[1] > 0, "{:?}", counts());
}

#[test]
fn a_reply_finds_its_way_to_the_machine_that_asked() {
    let Some(program) = nats_server() else { return };
    let server = Server::start(&program, "");
    let asker = |name: &str| {
        let mut machine = Machine::new();
        let queues = (
            machine.queue("/ask", 10, 100),
            machine.queue("/answers", 10, 100),
        );
        let text = format!(
            "[[bridge]]\nname = \"ask\"\ndirection = \"export\"\nqueue = \"/ask\"\nstream = \"ASK\"\nsubject = \"ask\"\nreply_to = \"reply.{name}\"\ncreate_stream = {{ retention = \"work-queue\" }}\n\
             [[bridge]]\nname = \"answers\"\ndirection = \"import\"\nqueue = \"/answers\"\nstream = \"REPLY\"\nsubject = \"reply.{name}\"\nconsumer = \"{name}\"\ncreate_stream = {{ subjects = [\"reply.>\"] }}\n"
        );
        machine.declare(&server.url(), &text);
        machine.start();
        (machine, queues)
    };
    let (one, two) = (asker("one"), asker("two"));
    let mut worker = Machine::new();
    let (ask, answers) = (
        worker.queue("/ask", 10, 100),
        worker.queue("/answers", 10, 100),
    );
    let text = "[[bridge]]\nname = \"ask\"\ndirection = \"import\"\nqueue = \"/ask\"\nstream = \"ASK\"\nenvelope = true\ncreate_stream = { subjects = [\"ask\"], retention = \"work-queue\" }\n\
        [[bridge]]\nname = \"answers\"\ndirection = \"export\"\nqueue = \"/answers\"\nstream = \"REPLY\"\nsubject = \"reply\"\nenvelope = true\ncreate_stream = { subjects = [\"reply.>\"] }\n";
    worker.declare(&server.url(), text);
    worker.start();
    one.1.0.send(b"2", 0).unwrap();
    two.1.0.send(b"3", 0).unwrap();
    for _ in 0..2 {
        let request = String::from_utf8(receive(&ask).data).unwrap();
        let (address, number) = request.split_once('\n').unwrap();
        let number: u32 = number.parse().unwrap();
        answers
            .send(format!("{address}\n{}", number * number).as_bytes(), 0)
            .unwrap();
    }
    assert_eq!(receive(&one.1.1).data, b"4");
    assert_eq!(receive(&two.1.1).data, b"9");
}

#[test]
fn a_message_that_a_killed_server_takes_for_a_new_one_is_placed_once() {
    let Some(program) = nats_server() else { return };
    let mut server = Server::start(&program, "");
    let mut machine = Machine::new();
    let into = machine.queue("/in", 10, 64);
    let import = IMPORT.replace("{ subjects", "{ retention = \"work-queue\", subjects");
    machine.declare(&server.url(), &import);
    let stored = |server: &Server| {
        with_client(&server.url(), async |js| {
            let stream = js.get_stream("S").await.unwrap();
            stream.cached_info().state.messages
        })
    };
    let publish = |server: &Server, id: &'static str| {
        let is_duplicate = with_client(&server.url(), async |js| {
            let message = async_nats::jetstream::message::PublishMessage::build();
            let message = message.payload(id.into()).message_id(id);
            let sent = js.send_publish("s", message).await.unwrap();
            sent.await.unwrap().duplicate
        });
        assert!(!is_duplicate, "the server has forgotten the id");
    };
    machine.start();
    machine.await_log("running");
    // The first id has the form of a bridge's ids; the second one is of another program.
    let [own, other] = ["umsg-0000000000000001-2-3", "order-7"];
    let mut seen = Vec::new();
    for round in 0..3 {
        for id in [own, other] {
            publish(&server, id);
        }
        wait_for(
            "acknowledgements",
            || stored(&server) == 0,
            || format!("{:?}\n{}", machine.states(), machine.logged()),
        );
        while let Ok(message) = into.try_receive_vec() {
            seen.push(String::from_utf8(message.data).unwrap());
        }
        server.restart();
        if round == 1 {
            // The ids are in the window's file, so the next bridge recognises them.
            machine.kill();
            machine.start();
        }
    }
    assert_eq!(seen, [own, other, other, other]);
    wait_for(
        "count",
        || machine.states()[0].duplicates >= 1,
        || format!("{:?}\n{}", machine.states(), machine.logged()),
    );
}

#[test]
fn an_orderly_end_loses_no_message_of_a_ring() {
    let Some(program) = nats_server() else { return };
    let server = Server::start(&program, "");
    let mut machine = Machine::new();
    let export = EXPORT.replace("\"/out\"", "\"ring:/r\"");
    machine.declare(&server.url(), &export);
    let mut sent = 0_u32;
    for _ in 0..2 {
        machine.start();
        let ring = || ring::Sender::open_in(&machine.namespace, "/r");
        wait_for("ring", || ring().is_ok(), || machine.logged());
        let ring = ring().unwrap();
        // The bridge is stopped, so that it then finds all messages in its ring together with the signal to end.
        let bridge = machine.bridge.as_mut().unwrap();
        bridge.stop();
        for _ in 0..900 {
            let post = ring::Post::new(0).payload(&sent.to_le_bytes());
            // The bridge may be stopped inside a call that owns the ring's lock. The send then fails, and the bridge must go on for a moment.
            while let Err(error) = ring.try_send(&post) {
                assert!(matches!(error, ring::SendError::Full), "{error}");
                bridge.signal(libc::SIGCONT);
                std::thread::sleep(Duration::from_millis(20));
                bridge.stop();
            }
            sent += 1;
        }
        bridge.signal(libc::SIGTERM);
        bridge.signal(libc::SIGCONT);
        assert_eq!(bridge.wait().code(), Some(0));
    }
    machine.start();
    let mut seen = Vec::new();
    wait_for(
        "messages",
        || {
            let count = with_client(&server.url(), async |js| {
                let stream = js.get_stream("S").await.unwrap();
                stream.cached_info().state.messages
            });
            count >= u64::from(sent)
        },
        || format!("{sent} {}", machine.logged()),
    );
    with_client(&server.url(), async |js| {
        let stream = js.get_stream("S").await.unwrap();
        for sequence in 1..=stream.cached_info().state.messages {
            let message = stream.get_raw_message(sequence).await.unwrap();
            seen.push(u32::from_le_bytes(message.payload[..].try_into().unwrap()));
        }
    });
    assert_eq!(seen, (0..sent).collect::<Vec<_>>());
}
