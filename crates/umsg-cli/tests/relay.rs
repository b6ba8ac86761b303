//! Tests `umsg relay` between POSIX queues of the kernel and of umsg.

mod support;

use std::collections::BTreeMap;
use std::process::Command;
use std::time::Duration;

use rustix::process::Signal;
use support::compiler::Workshop;
use support::relays::{KernelQueue, LONG, Relay, namespace, wait_until};
use support::{Site, finish};
use umsg::posix::{OpenOptions, Queue};
use umsg_testkit::artefacts::drop_in;

fn queue(site: &Site, name: &str, messages: u32, size: u32) -> Queue {
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true);
    options.max_messages(messages).message_size(size);
    options.namespace(&namespace(site)).open(name).unwrap()
}

fn open(site: &Site, name: &str) -> Queue {
    let mut options = OpenOptions::new();
    options.read(true).write(true);
    options.namespace(&namespace(site)).open(name).unwrap()
}

#[track_caller]
fn receive(queue: &Queue) -> (Vec<u8>, u32) {
    let message = queue.receive_vec_timeout(LONG).unwrap();
    (message.data, message.priority)
}

#[test]
fn messages_and_priorities_pass_in_both_directions_and_missing_queues_are_copied() {
    let site = Site::new();
    let requests = KernelQueue::new(8, 100);
    let replies = format!("{}-replies", requests.name);
    queue(&site, &replies, 7, 200);
    let into = format!("{}=/requests", requests.name);
    let options = ["--in", &into, "--out", &replies, "--create"];
    let relay = Relay::start(&site, 2, &options, None);
    let ours = open(&site, "/requests");
    let attributes = ours.attributes();
    assert_eq!((attributes.max_messages, attributes.message_size), (8, 100));
    assert_eq!(ours.mode() & 0o777, 0o640);
    for (text, priority) in [("a", 3), ("", 32_767), ("c", 0)] {
        requests.send(text.as_bytes(), priority);
        assert_eq!(receive(&ours), (text.as_bytes().to_vec(), priority));
    }
    // The existing queue keeps its attributes, although the test names other ones.
    let theirs = KernelQueue::named(&replies, 3, 10);
    for (text, priority) in [("d", 32_767), ("", 0)] {
        open(&site, &replies)
            .send(text.as_bytes(), priority)
            .unwrap();
        assert_eq!(theirs.receive(), (text.as_bytes().to_vec(), priority));
    }
    assert!(open(&site, &replies).send(&[7; 200], 0).is_ok());
    assert_eq!(theirs.receive(), (vec![7; 200], 0), "the copied length");
    let told = String::from_utf8(relay.stop().output).unwrap();
    let sums: Vec<&str> = told
        .lines()
        .map(|line| line.rsplit(": ").next().unwrap())
        .collect();
    assert_eq!(
        sums,
        [
            "ended, 3 messages, 2 bytes, 0 dead letters",
            "ended, 3 messages, 201 bytes, 0 dead letters"
        ]
    );
}

/// A program that answers each request with the request's text twice, and ends at an empty request.
const SERVER: &str = r#"
#include <mqueue.h>
#include <stdio.h>
#include <string.h>
int main(int n, char **a) {
    mqd_t in = mq_open(a[1], O_RDONLY), out = mq_open(a[2], O_WRONLY);
    if (in == -1 || out == -1) return perror("mq_open"), 1;
    char text[64]; unsigned priority; ssize_t len;
    while ((len = mq_receive(in, text, 16, &priority)) > 0) {
        memcpy(text + len, text, len);
        if (mq_send(out, text, 2 * len, priority)) return 2;
    }
    return len != 0;
}
"#;

#[test]
fn a_program_outside_and_a_program_under_umsg_run_talk() {
    let (site, workshop) = (Site::new(), Workshop::new());
    let server = workshop.compile("server", SERVER, &[]);
    let (requests, replies) = (KernelQueue::new(8, 16), KernelQueue::new(8, 32));
    let options = ["--in", &requests.name, "--out", &replies.name, "--create"];
    let relay = Relay::start(&site, 2, &options, None);
    let run = site.command(&["run"]);
    let mut served = Command::new(run.get_program());
    served.args(run.get_args()).arg("--").arg(&server);
    served.args([&requests.name, &replies.name]);
    served
        .env("UMSG_DIR", site.path())
        .env("UMSG_PRELOAD", drop_in());
    let server = std::thread::spawn(move || finish(&mut served, b""));
    for n in 0..20_u32 {
        requests.send(format!("<{n}>").as_bytes(), n % 5);
        assert_eq!(
            replies.receive(),
            (format!("<{n}><{n}>").into_bytes(), n % 5)
        );
    }
    requests.send(b"", 0);
    let outcome = server.join().unwrap();
    assert_eq!(outcome.code, Some(0), "{outcome:?}");
    relay.stop();
}

#[test]
fn a_full_queue_holds_messages_back_and_loses_none() {
    let site = Site::new();
    let (into, out) = (KernelQueue::new(4, 8), KernelQueue::new(4, 8));
    let ours = queue(&site, &into.name, 4, 8);
    let source = queue(&site, &out.name, 32, 8);
    let relay = Relay::start(&site, 2, &["--in", &into.name, "--out", &out.name], None);
    for n in 0..8_u8 {
        into.send(&[n], 0);
    }
    wait_until("umsg's queue is not full", || {
        ours.attributes().messages == 4
    });
    wait_until("the kernel's queue is not full", || {
        !into.try_send(&[99], 1)
    });
    for n in 0..32_u8 {
        source.send(&[n], 0).unwrap();
    }
    // The kernel's queue is full with four messages. The relay leases a message only while the kernel's queue has room.
    wait_until("the source is not held back", || {
        let now = source.attributes();
        (now.messages, now.leased) == (28, 0)
    });
    for n in 0..32_u8 {
        assert_eq!(out.receive().0, [n]);
    }
    let mut seen = Vec::new();
    wait_until("messages are missing", || {
        seen.extend(ours.try_receive_vec().map(|message| message.data[0]));
        seen.len() >= 8 && ours.attributes().messages == 0
    });
    seen.retain(|n| *n != 99);
    assert_eq!(seen, [0, 1, 2, 3, 4, 5, 6, 7]);
    relay.stop();
}

#[test]
fn a_message_that_is_too_long_is_named_or_becomes_a_dead_letter() {
    let site = Site::new();
    let (into, out) = (KernelQueue::new(4, 64), KernelQueue::new(4, 8));
    let ours = queue(&site, &into.name, 4, 16);
    let source = queue(&site, &out.name, 4, 64);
    let refused = site.umsg(&["relay", "--in", &into.name]);
    refused.fails(
        1,
        &[
            "takes messages of at most 16 bytes",
            "may have 64",
            "--dead-letter",
        ],
    );
    // Without a dead-letter queue, the refused message waits in its queue.
    let mut relay = Relay::start(&site, 1, &["--out", &out.name, "--json"], None);
    source.send(&[1; 9], 1).unwrap();
    let line: serde_json::Value = serde_json::from_str(&relay.line()).unwrap();
    assert_eq!(line["state"], "waiting");
    let error = line["error"].as_str().unwrap();
    assert!(
        error.contains("9 bytes is too long: the kernel's queue takes 8"),
        "{error}"
    );
    relay.stop();
    wait_until("the lease ends", || source.attributes().messages == 1);
    let options = [
        "--in",
        &into.name,
        "--out",
        &out.name,
        "--dead-letter",
        "/dead",
    ];
    let relay = Relay::start(&site, 2, &options, None);
    into.send(&[2; 17], 2);
    let dead = open(&site, "/dead");
    let mut letters = [receive(&dead), receive(&dead)];
    letters.sort();
    assert_eq!(letters, [(vec![1; 9], 1), (vec![2; 17], 2)]);
    into.send(&[3; 16], 3);
    assert_eq!(receive(&ours), (vec![3; 16], 3));
    relay.stop();
}

/// Each lease is a delivery. After two deliveries, the queue would move a message to the dead-letter queue.
#[test]
fn a_message_that_waits_is_not_delivered_more_often() {
    let site = Site::new();
    let make = |name: &str| {
        let policies = ["--max-deliveries", "2", "--dead-letter", "/dead"];
        site.umsg(&[&["create", name], &policies[..]].concat())
            .text();
    };
    let full = KernelQueue::new(1, 100);
    assert!(full.try_send(b"before", 0));
    let name = full.name.as_str();
    make(name);
    open(&site, name).send(b"waits", 0).unwrap();
    for _ in 0..3 {
        let relay = Relay::start(&site, 1, &["--out", name], None);
        std::thread::sleep(Duration::from_millis(50));
        relay.stop();
    }
    let long = KernelQueue::new(1, 4);
    let name = long.name.as_str();
    make(name);
    let queue = open(&site, name);
    queue.send(b"too long", 0).unwrap();
    let mut relay = Relay::start(&site, 1, &["--out", name, "--json"], None);
    let line = relay.line();
    assert!(line.contains("a message of 8 bytes is too long"), "{line}");
    // The relay tries again each second, so it makes several attempts during this sleep.
    std::thread::sleep(Duration::from_millis(3500));
    assert_eq!(queue.attributes().messages, 1);
    assert_eq!(receive(&queue).0, b"too long");
    queue.send(b"fits", 0).unwrap();
    assert_eq!(long.receive().0, b"fits");
    relay.stop();
    let relay = Relay::start(&site, 1, &["--out", &full.name], None);
    assert_eq!(full.receive().0, b"before");
    assert_eq!(full.receive().0, b"waits");
    relay.stop();
}

#[test]
fn what_would_go_wrong_is_refused_before_the_first_message() {
    let site = Site::new();
    let kernel = KernelQueue::new(1, 8);
    site.umsg(&["relay"]).fails(2, &["--in", "--out"]);
    let both = ["relay", "--in", &kernel.name, "--out", &kernel.name];
    site.umsg(&both).fails(2, &["circulate"]);
    queue(&site, "/there", 1, 8);
    let missing = ["relay", "--in", &kernel.name];
    site.umsg(&missing)
        .fails(1, &["no queue of this name", "--create"]);
    let missing = ["relay", "--out", "/umsg-relay-none=/there"];
    site.umsg(&missing)
        .fails(1, &["the kernel has no queue", "--create"]);
}

#[test]
fn a_queue_that_is_removed_is_followed_by_the_next_one_of_its_name() {
    let site = Site::new();
    let kernel = KernelQueue::new(4, 8);
    let options = ["--in", &kernel.name, "--create"];
    let mut relay = Relay::start(&site, 1, &options, None);
    let name = kernel.name.clone();
    site.umsg(&["rm", &name]).text();
    wait_until("umsg's queue is not made again", || {
        site.umsg(&["stat", &name]).code == Some(0)
    });
    kernel.send(b"one", 1);
    assert_eq!(receive(&open(&site, &name)), (b"one".to_vec(), 1));
    // The messages of the kernel's removed queue arrive before the messages of the kernel's queue that has replaced it.
    let ours = open(&site, &name);
    relay.signal(Signal::STOP);
    kernel.send(b"two", 2);
    drop(kernel);
    let next = KernelQueue::named(&name, 4, 8);
    next.send(b"three", 2);
    relay.signal(Signal::CONT);
    // Both messages have the same priority, so they arrive in the order in which the relay sent them.
    assert_eq!(receive(&ours), (b"two".to_vec(), 2));
    assert_eq!(receive(&ours), (b"three".to_vec(), 2));
    // The relay counts a message only after the message is in the queue.
    wait_until("three messages are counted", || {
        relay.signal(Signal::USR1);
        relay.line().contains("3 messages")
    });
    relay.stop();
}

#[test]
fn an_idle_relay_sleeps() {
    let site = Site::new();
    let kernel = KernelQueue::new(4, 8);
    let relay = Relay::start(&site, 1, &["--in", &kernel.name, "--create"], None);
    let switches = || {
        let tasks = std::fs::read_dir(format!("/proc/{}/task", relay.pid())).unwrap();
        let of = |task: std::fs::DirEntry| {
            let status = std::fs::read_to_string(task.path().join("status")).unwrap();
            let of_kind = |kind: &str| -> u64 {
                let line = status.lines().find(|line| line.starts_with(kind)).unwrap();
                line.split_whitespace().nth(1).unwrap().parse().unwrap()
            };
            of_kind("voluntary_ctxt_switches")
        };
        tasks.map(|task| of(task.unwrap())).sum::<u64>()
    };
    // At the start, each thread goes to sleep once.
    let mut before = switches();
    wait_until("the relay does not fall asleep", || {
        std::thread::sleep(Duration::from_millis(400));
        before == std::mem::replace(&mut before, switches())
    });
    relay.stop();
}

#[test]
fn sigterm_in_the_middle_of_a_stream_loses_nothing() {
    let site = Site::new();
    let (into, out) = (KernelQueue::new(8, 8), KernelQueue::new(8, 8));
    let ours = queue(&site, &into.name, 4, 8);
    let source = queue(&site, &out.name, 1000, 8);
    for n in 0..600_u32 {
        source.send(&n.to_le_bytes(), 0).unwrap();
    }
    let number = |data: Vec<u8>| u32::from_le_bytes(data.try_into().unwrap());
    let (mut sent, mut arrived, mut left) = (0_u32, Vec::new(), Vec::new());
    for round in 0.. {
        let relay = Relay::start(&site, 2, &["--in", &into.name, "--out", &out.name], None);
        for _ in 0..10 + round {
            if sent < 600 && into.try_send(&sent.to_le_bytes(), 0) {
                sent += 1;
            }
            arrived.extend(ours.try_receive_vec().map(|message| number(message.data)));
            left.extend(out.try_receive().map(|(data, _)| number(data)));
        }
        relay.stop();
        if arrived.len() == 600 && left.len() == 600 || round == 40 {
            break;
        }
    }
    let relay = Relay::start(&site, 2, &["--in", &into.name, "--out", &out.name], None);
    wait_until("messages are missing", || {
        if sent < 600 && into.try_send(&sent.to_le_bytes(), 0) {
            sent += 1;
        }
        arrived.extend(ours.try_receive_vec().map(|message| number(message.data)));
        left.extend(out.try_receive().map(|(data, _)| number(data)));
        arrived.len() >= 600 && left.len() >= 600
    });
    relay.stop();
    let all: Vec<u32> = (0..600).collect();
    assert_eq!(left, all, "from umsg to the kernel, in order");
    assert_eq!(arrived, all, "from the kernel to umsg, in order");
}

/// Sends eight messages through a relay that reaches the crash point with the third message, and dies there. Returns how often each message arrived.
#[cfg(feature = "crash-points")]
fn deaths(point: &str) -> BTreeMap<u8, u32> {
    let site = Site::new();
    let kernel = KernelQueue::new(8, 8);
    let ours = queue(&site, &kernel.name, 8, 8);
    let is_in = point.starts_with("IN");
    let options = [if is_in { "--in" } else { "--out" }, &kernel.name];
    let mut relay = Relay::start(&site, 1, &options, Some(&format!("{point}:3")));
    for n in 0..8_u8 {
        match is_in {
            true => kernel.send(&[n], 0),
            false => ours.send(&[n], 0).unwrap(),
        }
    }
    assert_eq!(relay.finish().code, None, "{point}: the relay is killed");
    let relay = Relay::start(&site, 1, &options, None);
    let mut counts = BTreeMap::new();
    wait_until(point, || {
        let message = match is_in {
            true => ours.try_receive_vec().ok().map(|message| message.data),
            false => kernel.try_receive().map(|(data, _)| data),
        };
        if let Some(message) = message {
            *counts.entry(message[0]).or_insert(0) += 1;
        }
        counts.contains_key(&7)
    });
    relay.stop();
    let now = ours.attributes();
    assert_eq!(now.messages + now.leased + now.reserved, 0, "{point}");
    assert_eq!(kernel.try_receive(), None, "{point}");
    counts
}

#[cfg(feature = "crash-points")]
#[test]
fn a_death_at_each_step_has_the_stated_effect() {
    for (point, wanted) in [
        ("IN_RESERVED", Some(1)),
        ("IN_TAKEN", None),
        ("IN_PLACED", Some(1)),
        ("OUT_LEASED", Some(1)),
        ("OUT_SENT", Some(2)),
        ("OUT_ENDED", Some(1)),
    ] {
        let mut counts = deaths(point);
        assert_eq!(counts.remove(&2), wanted, "{point}: the third message");
        let others: Vec<(u8, u32)> = counts.into_iter().collect();
        let once = [0, 1, 3, 4, 5, 6, 7].map(|n| (n, 1));
        assert_eq!(others, once, "{point}: the others");
    }
}

#[cfg(feature = "crash-points")]
#[test]
fn a_death_beside_a_dead_letter_keeps_the_message() {
    let site = Site::new();
    let kernel = KernelQueue::new(4, 8);
    let source = queue(&site, &kernel.name, 4, 64);
    let options = ["--out", &kernel.name, "--dead-letter", "/dead"];
    let mut relay = Relay::start(&site, 1, &options, Some("DEAD_STORED"));
    source.send(&[1; 9], 1).unwrap();
    assert_eq!(relay.finish().code, None, "the relay is killed");
    let relay = Relay::start(&site, 1, &options, None);
    let dead = open(&site, "/dead");
    for _ in 0..2 {
        assert_eq!(receive(&dead), (vec![1; 9], 1));
    }
    wait_until("the source has the message", || {
        let now = source.attributes();
        now.messages + now.leased == 0
    });
    relay.stop();
}

/// `UMSG_RELAY_KILLS` sets how many relays the test kills.
#[test]
fn kills_at_random_have_no_more_than_the_stated_effect() {
    let site = Site::new();
    let (into, out) = (KernelQueue::new(8, 8), KernelQueue::new(8, 8));
    let ours = queue(&site, &into.name, 16, 8);
    let source = queue(&site, &out.name, 64, 8);
    let most = std::env::var("UMSG_RELAY_KILLS").map_or(12, |text| text.parse().unwrap());
    let (mut kills, mut sent, mut placed) = (0_usize, 0_u32, 0_u32);
    let (mut left, mut arrived) = (BTreeMap::new(), BTreeMap::new());
    let number = |data: Vec<u8>| u32::from_le_bytes(data.try_into().unwrap());
    let options = ["--in", &into.name, "--out", &out.name];
    let mut relay = Relay::start(&site, 2, &options, None);
    let mut traffic = |is_sending: bool| {
        if is_sending && into.try_send(&sent.to_le_bytes(), 0) {
            sent += 1;
        }
        if is_sending && source.try_send(&placed.to_le_bytes(), 0).is_ok() {
            placed += 1;
        }
        if let Ok(message) = ours.try_receive_vec() {
            *arrived.entry(number(message.data)).or_insert(0_usize) += 1;
        }
        if let Some((data, _)) = out.try_receive() {
            *left.entry(number(data)).or_insert(0_usize) += 1;
        }
        (sent, placed, arrived.len(), left.len())
    };
    while kills < most {
        for _ in 0..100 + 37 * (kills % 19) {
            traffic(true);
        }
        relay.kill();
        kills += 1;
        relay = Relay::start(&site, 2, &options, None);
    }
    let mut wait_for_all = || {
        let (_, placed, _, left) = traffic(false);
        left == placed as usize
    };
    wait_until("messages to the kernel are missing", &mut wait_for_all);
    // This message follows all other messages of the kernel's queue, so it arrives last.
    into.send(&u32::MAX.to_le_bytes(), 0);
    wait_until("messages from the kernel are missing", || {
        wait_for_all();
        source.attributes().messages == 0 && ours.attributes().messages == 0 && into.is_empty()
    });
    relay.stop();
    while ours.attributes().messages > 0 {
        traffic(false);
    }
    let (sent, placed, got, _) = traffic(false);
    assert_eq!(arrived.remove(&u32::MAX), Some(1));
    let got = got - 1;
    let again =
        |counts: &BTreeMap<u32, usize>| counts.values().map(|count| count - 1).sum::<usize>();
    println!(
        "{kills} kills, {sent} in, {} lost; {placed} out, {} again",
        sent as usize - got,
        again(&left)
    );
    assert!(
        sent as usize - got <= kills,
        "lost {}, killed {kills}",
        sent as usize - got
    );
    assert_eq!(again(&arrived), 0, "no message from the kernel comes twice");
    assert!(again(&left) <= kills, "{left:?}");
}
