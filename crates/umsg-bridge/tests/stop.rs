//! Tests bridges that end after SIGTERM, and bridges that are stopped for a while: where their messages are afterwards.

mod support;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::Duration;
use support::*;
use umsg::posix::Queue;

fn take(queue: &Queue, seen: &mut Vec<u32>) {
    while let Ok(message) = queue.try_receive_vec() {
        seen.push(u32::from_le_bytes(message.data.try_into().unwrap()));
    }
}

/// Publishes numbered messages to the stream that the bridges make.
fn publish(server: &Server, numbers: std::ops::Range<u32>) {
    with_client(&server.url(), async |js| {
        let mut last = None;
        for n in numbers {
            last = Some(
                js.publish("s", n.to_le_bytes().to_vec().into())
                    .await
                    .unwrap(),
            );
        }
        last.unwrap().await.unwrap();
    });
}

#[test]
fn an_orderly_end_of_an_import_gives_its_messages_to_other_machines_at_once() {
    let Some(program) = nats_server() else { return };
    let server = Server::start(&program, "");
    let (mut one, mut other) = (Machine::new(), Machine::new());
    let queues = [one.queue("/in", 3, 16), other.queue("/in", 500, 16)];
    // With an `ack_wait` of 10 minutes, the server redelivers nothing by itself during this test.
    let import = IMPORT.replace("\"1s\"", "\"10m\"\nconsumer = \"shared\"");
    for machine in [&mut one, &mut other] {
        machine.declare(&server.url(), &import);
    }
    one.start();
    one.await_log("running");
    publish(&server, 0..200);
    let unacknowledged = || {
        with_client(&server.url(), async |js| {
            let stream = js.get_stream("S").await.unwrap();
            stream.consumer_info("shared").await.unwrap()
        })
    };
    // The queue has three messages, and the bridge has pulled all others.
    wait_for(
        "pull",
        || unacknowledged().num_ack_pending == 197 && queues[0].attributes().messages == 3,
        || format!("{:?}\n{}", unacknowledged(), one.logged()),
    );
    let bridge = one.bridge.as_mut().unwrap();
    bridge.signal(libc::SIGTERM);
    assert_eq!(bridge.wait().code(), Some(0));
    other.start();
    let mut seen = Vec::new();
    wait_for(
        "messages",
        || {
            take(&queues[1], &mut seen);
            seen.len() >= 197
        },
        || other.logged(),
    );
    take(&queues[0], &mut seen);
    seen.sort_unstable();
    assert_eq!(seen, (0..200).collect::<Vec<_>>());
}

#[test]
fn an_import_that_ends_places_what_has_room() {
    let Some(program) = nats_server() else { return };
    let server = Server::start(&program, "");
    let mut machine = Machine::new();
    let into = machine.queue("/in", 500, 16);
    machine.declare(&server.url(), &IMPORT.replace("\"1s\"", "\"10m\""));
    machine.start();
    machine.await_log("running");
    // The messages arrive while the bridge is stopped. The signal to end comes after the messages.
    let bridge = machine.bridge.as_mut().unwrap();
    bridge.signal(libc::SIGSTOP);
    publish(&server, 0..200);
    bridge.signal(libc::SIGTERM);
    bridge.signal(libc::SIGCONT);
    assert_eq!(bridge.wait().code(), Some(0));
    let mut seen = Vec::new();
    take(&into, &mut seen);
    // The stream has the rest of the messages: the bridge's request may have ended while the bridge was stopped.
    machine.start();
    wait_for(
        "messages",
        || {
            take(&into, &mut seen);
            seen.len() >= 200
        },
        || machine.logged(),
    );
    assert_eq!(seen, (0..200).collect::<Vec<_>>());
}

#[test]
fn bridges_that_are_stopped_for_longer_than_ack_wait_lose_nothing() {
    let Some(program) = nats_server() else { return };
    let server = Server::start(&program, "");
    let (mut here, mut one, mut other) = (Machine::new(), Machine::new(), Machine::new());
    let out = here.queue("/out", 1000, 16);
    let queues = [&one, &other].map(|machine| machine.queue("/in", 2000, 16));
    here.declare(&server.url(), EXPORT);
    // With short windows, each machine has some of the messages at any time.
    let import = IMPORT.replace("\"1s\"", "\"1s\"\nwindow = 16\nconsumer = \"shared\"");
    for machine in [&mut one, &mut other] {
        machine.declare(&server.url(), &import);
        machine.start();
        machine.await_log("running");
    }
    here.start();
    let stops_are_over = AtomicBool::new(false);
    // A bridge can be stopped inside a call, and then a send waits for it. So the thread that sends is not the thread that continues the bridge.
    let next = std::thread::scope(|scope| {
        let sender = scope.spawn(|| {
            let mut next = 0_u32;
            while !stops_are_over.load(SeqCst) {
                for _ in 0..20 {
                    out.send_timeout(&next.to_le_bytes(), 0, LONG).unwrap();
                    next += 1;
                }
                std::thread::sleep(Duration::from_millis(100));
            }
            next
        });
        // The pauses exceed `ack_wait`, 1 s, and for the export the timeout of a publish, 2 s.
        for (machine, time) in [(&one, 1500), (&here, 2500), (&other, 1500)] {
            std::thread::sleep(Duration::from_millis(300));
            let bridge = machine.bridge.as_ref().unwrap();
            bridge.signal(libc::SIGSTOP);
            std::thread::sleep(Duration::from_millis(time));
            bridge.signal(libc::SIGCONT);
        }
        stops_are_over.store(true, SeqCst);
        sender.join().unwrap()
    });
    let mut seen = [Vec::new(), Vec::new()];
    let all: BTreeSet<u32> = (0..next).collect();
    let found = |seen: &[Vec<u32>; 2]| seen.iter().flatten().copied().collect::<BTreeSet<_>>();
    wait_for(
        "messages",
        || {
            for (queue, seen) in queues.iter().zip(&mut seen) {
                take(queue, seen);
            }
            found(&seen) == all
        },
        || format!("{}\n{}\n{}", here.logged(), one.logged(), other.logged()),
    );
    // The pause is longer than `ack_wait`, after which redeliveries come.
    std::thread::sleep(Duration::from_millis(2500));
    for (queue, seen) in queues.iter().zip(&mut seen) {
        take(queue, seen);
        // A machine may get a message that another machine has got, but never its own message a second time.
        let mut counts = BTreeMap::new();
        for n in seen.iter() {
            *counts.entry(*n).or_insert(0) += 1;
        }
        assert!(counts.values().all(|count| *count == 1), "{counts:?}");
    }
    // The export repeats publishes under the same ids, which the stream recognises.
    let stored = with_client(&server.url(), async |js| {
        let stream = js.get_stream("S").await.unwrap();
        stream.cached_info().state.messages
    });
    assert_eq!(stored, u64::from(next));
}
