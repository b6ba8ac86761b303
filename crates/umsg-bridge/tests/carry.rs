//! Messages between two machines: what arrives, and how.

mod support;

use std::collections::BTreeMap;
use std::time::{Duration, SystemTime};
use support::*;
use umsg::posix::{Queue, ReceiveError};
use umsg::{ring, sysv};

fn receive(queue: &Queue) -> umsg::posix::Message {
    queue.receive_vec_timeout(LONG).unwrap()
}

#[test]
fn messages_keep_bytes_priorities_order_and_age() {
    let Some(program) = nats_server() else { return };
    let server = Server::start(&program, "");
    let (mut here, mut there) = (Machine::new(), Machine::new());
    let (out, into) = (
        here.queue("/out", 1000, 4096),
        there.queue("/in", 1000, 4096),
    );
    let sent = SystemTime::now();
    for (n, priority) in [(0, 0), (1, 32_767), (2, 0), (3, 5), (4, 32_767)] {
        out.send(&[n; 4000][..usize::from(n) * 900], priority)
            .unwrap();
    }
    std::thread::sleep(Duration::from_millis(300));
    there.declare(&server.url(), IMPORT);
    here.declare(
        &server.url(),
        &EXPORT.replace("subject =", "subject_by = \"priority\"\nsubject ="),
    );
    here.start();
    wait_for(
        "export",
        || out.attributes().messages == 0 && out.attributes().leased == 0,
        || here.logged(),
    );
    there.start();
    wait_for(
        "import",
        || into.attributes().messages == 5,
        || there.logged(),
    );
    let seen = into.peek(0).unwrap().unwrap();
    let shift = seen
        .sent
        .duration_since(sent)
        .unwrap_or_else(|error| error.duration());
    assert!(
        shift < Duration::from_millis(250),
        "the age travels: {shift:?}"
    );
    for (n, priority) in [(1, 32_767), (4, 32_767), (3, 5), (0, 0), (2, 0)] {
        let message = receive(&into);
        assert_eq!(
            (message.priority, message.data.len()),
            (priority, n as usize * 900)
        );
        assert!(message.data.iter().all(|byte| *byte == n as u8));
    }
    let subjects = with_client(&server.url(), async |js| {
        let stream = js.get_stream("S").await.unwrap();
        let mut subjects = BTreeMap::new();
        for sequence in 1..=5 {
            let message = stream.get_raw_message(sequence).await.unwrap();
            *subjects.entry(message.subject.to_string()).or_insert(0) += 1;
        }
        subjects
    });
    let wanted = [("s.p.0", 2), ("s.p.32767", 2), ("s.p.5", 1)];
    assert_eq!(
        subjects,
        wanted.map(|(name, count)| (name.to_owned(), count)).into()
    );
}

#[test]
fn types_of_system_v_queues_and_fields_of_rings_are_restored() {
    let Some(program) = nats_server() else { return };
    let server = Server::start(&program, "");
    let (mut here, mut there) = (Machine::new(), Machine::new());
    let sysv = |machine: &Machine| {
        sysv::OpenOptions::new()
            .create(true)
            .namespace(&machine.namespace)
            .open(7)
            .unwrap()
    };
    let (out, into) = (sysv(&here), sysv(&there));
    let mut end = ring::Options::new()
        .longest(1000)
        .create_in(&there.namespace, "/r")
        .unwrap();
    let part = |name: &str, direction: &str, queue: &str, stream: &str| {
        let subject = if direction == "export" {
            format!("subject = {stream:?}\n")
        } else {
            String::new()
        };
        format!(
            "[[bridge]]\nname = {name:?}\ndirection = {direction:?}\nqueue = {queue:?}\nstream = {stream:?}\n{subject}create_stream = {{ subjects = [{stream:?}, \"{stream}.>\"], storage = \"memory\" }}\n"
        )
    };
    let typed = part("types", "export", "key:7", "T") + "subject_by = \"type\"\n";
    here.declare(
        &server.url(),
        &(typed + &part("ring", "export", "ring:/r", "R")),
    );
    there.declare(
        &server.url(),
        &(part("types", "import", "key:7", "T") + &part("ring", "import", "ring:/r", "R")),
    );
    here.start();
    there.start();
    for mtype in [i64::MAX, 1, 7] {
        out.send(mtype, &mtype.to_le_bytes()).unwrap();
    }
    let source = || ring::Sender::open_in(&here.namespace, "/r");
    wait_for("ring", || source().is_ok(), || here.logged());
    let source = source().unwrap();
    source
        .send(&ring::Post::new(u64::MAX).res(-5).flags(9).payload(b"short"))
        .unwrap();
    source
        .send_long(&ring::Post::new(1), &[3; 900], ring::Until::Forever)
        .unwrap();
    for mtype in [i64::MAX, 1, 7] {
        let message = into.receive_vec_timeout(sysv::Want::Any, LONG).unwrap();
        assert_eq!(
            (message.mtype, message.data),
            (mtype, mtype.to_le_bytes().to_vec())
        );
    }
    let one = end.receive_vec_timeout(LONG).unwrap();
    assert_eq!(
        (one.user_data, one.res, one.flags, &*one.payload),
        (u64::MAX, -5, 9, &b"short"[..])
    );
    let other = end.receive_vec_timeout(LONG).unwrap();
    assert_eq!((other.user_data, &*other.payload), (1, &[3; 900][..]));
}

#[test]
fn queues_of_the_kernel_take_part() {
    use nix::mqueue::{MQ_OFlag, MqAttr, mq_close, mq_open, mq_receive, mq_send, mq_unlink};
    use nix::sys::stat::Mode;

    let Some(program) = nats_server() else { return };
    let server = Server::start(&program, "");
    let mut machine = Machine::new();
    let [from, to] =
        ["a", "b"].map(|end| format!("/umsg-bridge-test-{}-{end}", std::process::id()));
    let open = |name: &str, flags| {
        let attributes = MqAttr::new(0, 5, 100, 0);
        mq_open(
            name,
            flags | MQ_OFlag::O_CREAT,
            Mode::S_IRWXU,
            Some(&attributes),
        )
        .unwrap()
    };
    let (source, sink) = (
        open(&from, MQ_OFlag::O_WRONLY),
        open(&to, MQ_OFlag::O_RDONLY | MQ_OFlag::O_NONBLOCK),
    );
    struct Unlink([String; 2]);
    impl Drop for Unlink {
        fn drop(&mut self) {
            for name in &self.0 {
                let _ = mq_unlink(&**name);
            }
        }
    }
    let _unlink = Unlink([from.clone(), to.clone()]);
    let export = EXPORT.replace("\"/out\"", &format!("\"kernel:{from}\""));
    let import = IMPORT.replace("\"/in\"", &format!("\"kernel:{to}\""));
    machine.declare(&server.url(), &(export + &import));
    machine.start();
    // More than both queues hold.
    for n in 0..20_u32 {
        mq_send(&source, &n.to_le_bytes(), n % 3).unwrap();
    }
    let mut seen = Vec::new();
    let mut buffer = [0; 100];
    wait_for(
        "messages",
        || {
            let mut priority = 0;
            while let Ok(len) = mq_receive(&sink, &mut buffer, &mut priority) {
                let n = u32::from_le_bytes(buffer[..len].try_into().unwrap());
                assert_eq!(priority, n % 3);
                seen.push(n);
            }
            seen.len() == 20
        },
        || machine.logged(),
    );
    seen.sort_unstable();
    assert_eq!(seen, (0..20).collect::<Vec<_>>());
    mq_close(source).unwrap();
    mq_close(sink).unwrap();
}

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
    // Longer than half of `ack_wait`: the messages in hand go back to the stream.
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
    // Three are consumed, and a fourth is leased.
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
    // Longer than `ack_wait`: redeliveries are recognised, and the lease keeps its message in the stream.
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
    // The machine ends, and with it the memory of its queues.
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
    // The window has 4 + 2 * 4 sequences, and far more messages pass.
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
    // Longer than `ack_wait`: the server delivers both messages again.
    wait_for(
        "redelivery",
        || {
            let states = machine.states();
            states
                .iter()
                .any(|state| state.name == "d.out" && state.duplicates >= 2)
        },
        || format!("{:?}\n{}", machine.states(), machine.logged()),
    );
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
    // The server delivers all of them again after `ack_wait`.
    wait_for(
        "redelivery",
        || {
            let states = machine.states();
            states
                .iter()
                .any(|state| state.name == "d.out" && state.duplicates >= 50)
        },
        || format!("{:?}\n{}", machine.states(), machine.logged()),
    );
    for n in 0..50 {
        assert_eq!(receive(&queue).data, [n]);
    }
    assert_eq!(queue.attributes().messages, 0);
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
    // The id of a bridge, and that of another program.
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
            // The file has the ids.
            machine.kill();
            machine.start();
        }
    }
    assert_eq!(seen, [own, other, other, other]);
    wait_for(
        "count",
        || machine.states()[0].duplicates == 1,
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
        // The bridge finds all messages in its ring, and the signal to end.
        let bridge = machine.bridge.as_mut().unwrap();
        bridge.signal(libc::SIGSTOP);
        for _ in 0..900 {
            let post = ring::Post::new(0).payload(&sent.to_le_bytes());
            ring.try_send(&post).unwrap();
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
