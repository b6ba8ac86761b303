//! Tests `umsg relay` between System V queues of the kernel and of umsg.

mod support;

use std::collections::BTreeMap;

use support::Site;
use support::relays::{LONG, Relay, SysvQueue, namespace, wait_until};
use umsg::sysv::{OpenOptions, Queue, Want as Ours};
use umsg_carry::kernel::sysv::{Queue as Kernel, Want};

fn queue(site: &Site, key: i32) -> Queue {
    let mut options = OpenOptions::new();
    options.create(true).namespace(&namespace(site));
    options.open(key).unwrap()
}

fn receive(queue: &Queue, want: Ours) -> (i64, Vec<u8>) {
    let message = queue.receive_vec_timeout(want, LONG).unwrap();
    (message.mtype, message.data)
}

#[test]
fn one_queue_serves_both_directions_by_types() {
    let site = Site::new();
    let kernel = SysvQueue::new();
    let both = format!("{},type=1", kernel.name());
    let relay = Relay::start(&site, 2, &["--both", &both, "--create"], None);
    let ours = queue(&site, kernel.key);
    let (here, there) = (ours.status().unwrap().entry, kernel.queue.status().unwrap());
    assert_eq!((here.qbytes, here.mode), (there.qbytes, there.mode));
    for text in ["ask", "", "again"] {
        kernel.send(1, text.as_bytes());
        assert_eq!(
            receive(&ours, Ours::Exactly(1)),
            (1, text.as_bytes().to_vec())
        );
        ours.send(77, text.as_bytes()).unwrap();
        assert_eq!(
            kernel.receive(Want::Type(77)),
            (77, text.as_bytes().to_vec())
        );
    }
    // Type 5 belongs to the other direction: the relay leaves this message in the kernel's queue.
    kernel.send(5, b"theirs");
    kernel.send(1, b"mine");
    assert_eq!(receive(&ours, Ours::Any), (1, b"mine".to_vec()));
    assert_eq!(kernel.receive(Want::Any), (5, b"theirs".to_vec()));
    relay.stop();
}

#[test]
fn a_missing_queue_of_the_kernel_is_copied() {
    let site = Site::new();
    let theirs = SysvQueue::new();
    let key = theirs.key ^ 0x4000_0000;
    let ours = queue(&site, key);
    let out = format!("key:{key:#x}");
    let relay = Relay::start(&site, 1, &["--out", &out, "--create"], None);
    let made = SysvQueue {
        key,
        queue: Kernel::open(key, None).unwrap(),
    };
    ours.send(i64::MAX, b"last").unwrap();
    assert_eq!(made.receive(Want::Any), (i64::MAX, b"last".to_vec()));
    relay.stop();
}

#[test]
fn a_full_queue_holds_messages_back_and_loses_none() {
    let site = Site::new();
    let (into, out) = (SysvQueue::new(), SysvQueue::new());
    let (ours, source) = (queue(&site, into.key), queue(&site, out.key));
    for (queue, limit) in [(into.queue, 400), (out.queue, 400)] {
        queue.set_qbytes(limit).unwrap();
    }
    let limit = umsg::sysv::Change {
        qbytes: Some(400),
        ..Default::default()
    };
    ours.set(&limit).unwrap();
    let options = ["--in", &into.name(), "--out", &out.name()];
    let relay = Relay::start(&site, 2, &options, None);
    for n in 0..8_u8 {
        into.send(1, &[n; 100]);
    }
    for n in 0..16_u8 {
        source.send(i64::from(n) + 1, &[n; 100]).unwrap();
    }
    wait_until("umsg's queue is not full", || {
        ours.status().unwrap().entry.messages == 4
    });
    wait_until("the source is not held back", || {
        let now = source.status().unwrap();
        (now.entry.messages, now.leased) == (11, 1)
    });
    for n in 0..16_u8 {
        assert_eq!(out.receive(Want::Any), (i64::from(n) + 1, vec![n; 100]));
    }
    for n in 0..8_u8 {
        assert_eq!(receive(&ours, Ours::Any), (1, vec![n; 100]));
    }
    relay.stop();
}

#[test]
fn a_message_that_is_too_long_is_named_or_becomes_a_dead_letter() {
    let site = Site::new();
    let (into, out) = (SysvQueue::new(), SysvQueue::new());
    let (ours, source) = (queue(&site, into.key), queue(&site, out.key));
    out.queue.set_qbytes(50).unwrap();
    let limit = umsg::sysv::Change {
        qbytes: Some(50),
        ..Default::default()
    };
    ours.set(&limit).unwrap();
    source.send(3, &[3; 60]).unwrap();
    let (into_name, out_name) = (into.name(), out.name());
    let mut relay = Relay::start(&site, 1, &["--out", &out_name, "--json"], None);
    assert!(relay.line().contains("60 bytes is too long"));
    relay.stop();
    let options = [
        "--in",
        &into_name,
        "--out",
        &out_name,
        "--dead-letter",
        "key:0x77",
    ];
    let relay = Relay::start(&site, 2, &options, None);
    into.send(4, &[4; 60]);
    let dead = queue(&site, 0x77);
    assert_eq!(receive(&dead, Ours::Exactly(3)), (3, vec![3; 60]));
    assert_eq!(receive(&dead, Ours::Exactly(4)), (4, vec![4; 60]));
    into.send(5, &[5; 50]);
    assert_eq!(receive(&ours, Ours::Any), (5, vec![5; 50]));
    relay.stop();
}

/// With MSG_COPY, the kernel refuses a message that is longer than msgmax.
#[test]
fn a_message_that_is_longer_than_a_lowered_limit_of_the_kernel_is_carried() {
    umsg_testkit::needs_root!();
    const LIMIT: &str = "/proc/sys/kernel/msgmax";
    let site = Site::new();
    // The lowered limit is the limit of this thread's IPC namespace, which `SysvQueue::new` makes.
    let from = SysvQueue::new();
    let to = queue(&site, from.key);
    from.send(7, &[1; 2000]);
    std::fs::write(LIMIT, "1000").unwrap();
    let name = from.name();
    let relay = Relay::start(&site, 1, &["--in", &name], None);
    assert_eq!(receive(&to, Ours::Any), (7, vec![1; 2000]));
    from.send(8, b"short");
    assert_eq!(receive(&to, Ours::Any), (8, b"short".to_vec()));
    relay.stop();
}

/// Sends eight messages of different types through a relay that reaches the crash point with the third message, and dies there. Returns how often
/// each type arrived.
#[cfg(feature = "crash-points")]
fn deaths(point: &str, message: impl Fn(u8) -> Vec<u8>) -> BTreeMap<i64, u32> {
    let site = Site::new();
    let kernel = SysvQueue::new();
    let ours = queue(&site, kernel.key);
    let is_in = point.starts_with("IN");
    let options = [if is_in { "--in" } else { "--out" }, &kernel.name()];
    let mut relay = Relay::start(&site, 1, &options, Some(&format!("{point}:3")));
    for n in 0..8_u8 {
        let mtype = i64::from(n) + 1;
        match is_in {
            true => kernel.send(mtype, &message(n)),
            false => ours.send(mtype, &message(n)).unwrap(),
        }
    }
    assert_eq!(relay.finish().code, None, "{point}: the relay is killed");
    let relay = Relay::start(&site, 1, &options, None);
    let mut counts = BTreeMap::new();
    wait_until(point, || {
        let mtype = match is_in {
            true => ours
                .try_receive_vec(Ours::Any)
                .ok()
                .map(|message| message.mtype),
            false => kernel.try_receive(Want::Any).map(|(mtype, _)| mtype),
        };
        if let Some(mtype) = mtype {
            *counts.entry(mtype).or_insert(0) += 1;
        }
        counts.contains_key(&8)
    });
    relay.stop();
    let now = ours.status().unwrap();
    assert_eq!(now.entry.messages + now.leased, 0, "{point}");
    assert_eq!(kernel.try_receive(Want::Any), None, "{point}");
    counts
}

#[cfg(feature = "crash-points")]
#[test]
fn a_death_at_each_step_has_the_stated_effect() {
    for (point, wanted) in [
        ("IN_COPIED", Some(1)),
        ("IN_PLACED", Some(2)),
        ("IN_REMOVED", Some(1)),
        ("OUT_LEASED", Some(1)),
        ("OUT_SENT", Some(2)),
        ("OUT_ENDED", Some(1)),
        // Only messages without bytes reach this crash point.
        ("IN_TAKEN", None),
    ] {
        let mut counts = deaths(point, |n| match point {
            "IN_TAKEN" => Vec::new(),
            _ => vec![n],
        });
        assert_eq!(counts.remove(&3), wanted, "{point}: the third message");
        let others: Vec<(i64, u32)> = counts.into_iter().collect();
        let once = [1, 2, 4, 5, 6, 7, 8].map(|n| (n, 1));
        assert_eq!(others, once, "{point}: the others");
    }
}

/// `UMSG_RELAY_KILLS` sets how many relays the test kills.
#[test]
fn kills_at_random_lose_nothing() {
    let site = Site::new();
    let (into, out) = (SysvQueue::new(), SysvQueue::new());
    let (ours, source) = (queue(&site, into.key), queue(&site, out.key));
    let options = ["--in", &into.name(), "--out", &out.name()];
    let (mut sent, mut placed, mut kills) = (0_u32, 0_u32, 0_usize);
    let (mut arrived, mut left) = (BTreeMap::new(), BTreeMap::new());
    let number = |data: Vec<u8>| u32::from_le_bytes(data.try_into().unwrap());
    let mut relay = Relay::start(&site, 2, &options, None);
    let mut traffic = |is_sending: bool| {
        if is_sending && into.queue.send(1, &sent.to_le_bytes(), false).is_ok() {
            sent += 1;
        }
        if is_sending && source.try_send(2, &placed.to_le_bytes()).is_ok() {
            placed += 1;
        }
        if let Ok(message) = ours.try_receive_vec(Ours::Any) {
            *arrived.entry(number(message.data)).or_insert(0_usize) += 1;
        }
        if let Some((_, data)) = out.try_receive(Want::Any) {
            *left.entry(number(data)).or_insert(0_usize) += 1;
        }
        (sent as usize, placed as usize, arrived.len(), left.len())
    };
    let most = std::env::var("UMSG_RELAY_KILLS").map_or(6, |text| text.parse().unwrap());
    while kills < most {
        for _ in 0..100 + 37 * (kills % 19) {
            traffic(true);
        }
        relay.kill();
        kills += 1;
        relay = Relay::start(&site, 2, &options, None);
    }
    wait_until("messages are missing", || {
        let (sent, placed, arrived, left) = traffic(false);
        (sent, placed) == (arrived, left)
    });
    relay.stop();
    let again =
        |counts: &BTreeMap<u32, usize>| counts.values().map(|count| count - 1).sum::<usize>();
    println!(
        "{kills} kills, {sent} in, {} again; {placed} out, {} again",
        again(&arrived),
        again(&left)
    );
    assert!(again(&arrived) <= kills && again(&left) <= kills);
}
