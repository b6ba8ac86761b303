//! Tests queues that are removed and created again while messages come.

use crate::support::*;
use std::process::{Command, Stdio};
use umsg::posix::Queue;
use umsg::{Namespace, ring};

fn publish(server: &Server, subject: &'static str, numbers: std::ops::Range<u8>) {
    with_client(&server.url(), async |js| {
        for n in numbers {
            let sent = js.publish(subject, vec![n].into()).await.unwrap();
            sent.await.unwrap();
        }
    });
}

/// Waits until the queue has had each of these messages once. Messages before them may come again, and late: the bridge may not have acknowledged
/// them when the earlier queue was removed.
fn expect(queue: &Queue, numbers: std::ops::Range<u8>, machine: &Machine) {
    let mut seen = Vec::new();
    wait_for(
        "messages of the new queue",
        || {
            while let Ok(message) = queue.try_receive_vec() {
                match message.data[0] {
                    n if numbers.contains(&n) => seen.push(n),
                    n => assert!(n < numbers.start, "{n}"),
                }
            }
            seen.len() >= numbers.len()
        },
        || machine.logged(),
    );
    seen.sort_unstable();
    assert_eq!(seen, numbers.collect::<Vec<_>>());
}

#[test]
fn messages_that_a_removed_queue_took_come_to_the_new_one() {
    let Some(program) = nats_server() else { return };
    let server = Server::start(&program, "");
    let mut machine = Machine::new();
    let mut into = machine.queue("/in", 100, 16);
    // The removal is found at the acknowledgement, and the messages do not wait for `ack_wait`.
    machine.declare(&server.url(), &IMPORT.replace("\"1s\"", "\"300s\""));
    machine.start();
    machine.await_log("running");
    // The bridge also looks for the removal each two seconds. So some rounds remove the queue between two looks.
    for round in 0..3 {
        let first = round * 40;
        publish(&server, "s", first..first + 1);
        expect(&into, first..first + 1, &machine);
        umsg::posix::unlink_in(&machine.namespace, "/in").unwrap();
        into = machine.queue("/in", 100, 16);
        publish(&server, "s", first + 1..first + 40);
        expect(&into, first + 1..first + 40, &machine);
    }
}

#[test]
fn messages_that_a_removed_queue_of_the_kernel_took_come_to_the_new_one() {
    use nix::mqueue::{MQ_OFlag, MqAttr, MqdT, mq_close, mq_open, mq_receive, mq_unlink};

    let Some(program) = nats_server() else { return };
    let server = Server::start(&program, "");
    let mut machine = Machine::new();
    let name = format!("/umsg-bridge-test-{}-removed", std::process::id());
    struct Unlink(String);
    impl Drop for Unlink {
        fn drop(&mut self) {
            let _ = mq_unlink(&*self.0);
        }
    }
    let _unlink = Unlink(name.clone());
    let open = || {
        let flags = MQ_OFlag::O_RDONLY | MQ_OFlag::O_NONBLOCK | MQ_OFlag::O_CREAT;
        let attributes = MqAttr::new(0, 10, 100, 0);
        mq_open(
            &*name,
            flags,
            nix::sys::stat::Mode::S_IRWXU,
            Some(&attributes),
        )
        .unwrap()
    };
    let import = IMPORT.replace("\"/in\"", &format!("\"kernel:{name}\""));
    let mut into = open();
    machine.declare(&server.url(), &import.replace("\"1s\"", "\"300s\""));
    machine.start();
    machine.await_log("running");
    let expect = |queue: &MqdT, n: u8| {
        let mut buffer = [0; 100];
        // Messages before may come again, as in `expect`.
        let again = |found: u8| {
            assert!(found < n, "{found}");
            false
        };
        wait_for(
            "message of the new queue",
            || {
                mq_receive(queue, &mut buffer, &mut 0) == Ok(1)
                    && (buffer[0] == n || again(buffer[0]))
            },
            || machine.logged(),
        );
    };
    for n in [0, 2, 4] {
        publish(&server, "s", n..n + 1);
        expect(&into, n);
        mq_unlink(&*name).unwrap();
        mq_close(std::mem::replace(&mut into, open())).unwrap();
        publish(&server, "s", n + 1..n + 2);
        expect(&into, n + 1);
    }
    mq_close(into).unwrap();
}

/// The environment variable that starts this program as the receiver of a ring, which takes no message.
const RECEIVER: &str = "UMSG_BRIDGE_TEST_RECEIVER";

fn new_ring(namespace: &Namespace) -> ring::Ring {
    ring::Options::new().create_in(namespace, "/r").unwrap()
}

#[test]
fn receiver_of_a_ring() {
    if std::env::var_os(RECEIVER).is_none() {
        return;
    }
    let _ring = new_ring(&Namespace::resolve().unwrap());
    std::thread::sleep(2 * LONG);
}

/// Starts a bridge that imports messages into the ring `/r`.
fn import_into_ring(machine: &mut Machine, server: &Server) {
    let import = IMPORT.replace("\"/in\"", "\"ring:/r\"");
    machine.declare(&server.url(), &import.replace("\"1s\"", "\"300s\""));
    machine.start();
    machine.await_log("running");
}

/// Waits until the ring has this message. Messages before it may come again, as in `expect`.
fn expect_in_ring(ring: &mut ring::Ring, n: u8, machine: &Machine) {
    wait_for(
        "message of the new ring",
        || match ring.try_receive_vec() {
            Ok(message) => {
                assert!(message.payload[0] <= n);
                message.payload[0] == n
            }
            Err(_) => false,
        },
        || machine.logged(),
    );
}

#[test]
fn messages_that_a_removed_ring_took_come_to_the_new_one() {
    let Some(program) = nats_server() else { return };
    let server = Server::start(&program, "");
    let mut machine = Machine::new();
    let mut into = new_ring(&machine.namespace);
    import_into_ring(&mut machine, &server);
    for n in [1, 3, 5] {
        publish(&server, "s", n..n + 1);
        expect_in_ring(&mut into, n, &machine);
        // The old ring still takes messages, but has lost its name.
        ring::unlink_anyway_in(&machine.namespace, "/r").unwrap();
        let new = new_ring(&machine.namespace);
        let old = std::mem::replace(&mut into, new);
        publish(&server, "s", n + 1..n + 2);
        expect_in_ring(&mut into, n + 1, &machine);
        drop(old);
    }
}

#[test]
fn messages_that_a_ring_took_after_the_death_of_its_receiver_come_to_the_next_ring() {
    let Some(program) = nats_server() else { return };
    let server = Server::start(&program, "");
    let mut machine = Machine::new();
    let start_receiver = |machine: &Machine| {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", "removed::receiver_of_a_ring"]);
        command
            .env("UMSG_DIR", machine.home.path())
            .env(RECEIVER, "1")
            .stdout(Stdio::null());
        let receiver = Process::start(&mut command);
        let is_there = || ring::find(&machine.namespace, "/r").is_ok();
        wait_for("ring", is_there, String::new);
        receiver
    };
    let mut receiver = start_receiver(&machine);
    import_into_ring(&mut machine, &server);
    // A send to a ring succeeds up to 10 ms after the receiver's death. A round proves something only if its second message comes in this time.
    for n in [1, 3, 5] {
        with_client(&server.url(), async |js| {
            let publish = async |n: u8| {
                let sent = js.publish("s", vec![n].into()).await.unwrap();
                sent.await.unwrap();
            };
            publish(n).await;
            let in_ring = || {
                ring::find(&machine.namespace, "/r")
                    .unwrap()
                    .status
                    .messages
            };
            let begin = std::time::Instant::now();
            while in_ring() == 0 {
                assert!(begin.elapsed() < LONG, "{}", machine.logged());
            }
            receiver.kill();
            publish(n + 1).await;
        });
        let mut into = new_ring(&machine.namespace);
        expect_in_ring(&mut into, n + 1, &machine);
        drop(into);
        receiver = start_receiver(&machine);
    }
}

#[test]
fn messages_of_a_removed_durable_queue_come_to_the_new_one() {
    let Some(program) = nats_server() else { return };
    let server = Server::start(&program, "");
    let durable = "[[bridge]]\nname = \"d\"\ndirection = \"durable\"\ninbox = \"/d.in\"\nqueue = \"/d\"\nstream = \"D\"\nsubject = \"d\"\nack_wait = \"1s\"\ncreate_stream = {}\n";
    let mut machine = Machine::new();
    let (inbox, queue) = (
        machine.queue("/d.in", 100, 16),
        machine.queue("/d", 100, 16),
    );
    machine.declare(&server.url(), durable);
    machine.start();
    for n in 0..10 {
        inbox.send(&[n], 0).unwrap();
    }
    wait_for(
        "messages",
        || queue.attributes().messages == 10,
        || machine.logged(),
    );
    umsg::posix::unlink_in(&machine.namespace, "/d").unwrap();
    let queue = machine.queue("/d", 100, 16);
    for n in 10..20 {
        inbox.send(&[n], 0).unwrap();
    }
    expect(&queue, 0..20, &machine);
}
