//! Tests queues that are removed and created again while messages come.

use crate::support::*;
use umsg::posix::Queue;

fn publish(server: &Server, subject: &'static str, numbers: std::ops::Range<u8>) {
    with_client(&server.url(), async |js| {
        for n in numbers {
            let sent = js.publish(subject, vec![n].into()).await.unwrap();
            sent.await.unwrap();
        }
    });
}

/// Waits until the queue has had each of these messages once. The message before them may come again: the bridge may not have acknowledged it when the
/// earlier queue was removed.
fn expect(queue: &Queue, numbers: std::ops::Range<u8>, machine: &Machine) {
    let mut seen = Vec::new();
    wait_for(
        "messages of the new queue",
        || {
            while let Ok(message) = queue.try_receive_vec() {
                match message.data[0] {
                    n if numbers.contains(&n) => seen.push(n),
                    n => assert_eq!(n + 1, numbers.start),
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
        // The message before may come again, as in `expect`.
        let again = |found: u8| {
            assert_eq!(found + 1, n);
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
