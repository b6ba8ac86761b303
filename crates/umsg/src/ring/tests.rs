//! Tests of both ends of a ring.

use super::*;
use crate::namespace::testing::without_forks;
use std::time::Duration;

/// Number of messages of each sender.
const ROUNDS: u64 = if cfg!(miri) { 10 } else { 2000 };

fn ring(entries: u32, overflow: u32) -> Ring {
    Options::new()
        .entries(entries)
        .overflow(overflow)
        .create()
        .unwrap()
}

#[test]
fn messages_come_whole_and_in_order() {
    let mut ring = ring(4, 4);
    let sender = ring.sender();
    for n in 0..8_u64 {
        let payload = vec![n as u8; n as usize * 9];
        let post = Post::new(n).res(-(n as i32)).flags(!0);
        sender.try_send(&post.payload(&payload)).unwrap();
    }
    assert!(matches!(
        sender.try_send(&Post::new(9)),
        Err(SendError::Full)
    ));
    assert!(!sender.send_or_drop(&Post::new(9)).unwrap());
    assert_eq!((ring.available(), ring.status().dropped), (8, 1));
    for n in 0..8_u64 {
        let message = ring.try_receive().unwrap();
        assert_eq!(
            (message.user_data, message.res, message.flags),
            (n, -(n as i32), !0)
        );
        assert_eq!(message.payload, vec![n as u8; n as usize * 9]);
        assert_eq!(message.tag, sender.tag());
    }
    assert_eq!(ring.try_receive().unwrap_err(), ReceiveError::Empty);
}

#[test]
fn a_receiver_that_is_to_spin_never_sleeps() {
    let mut ring = ring(4, 0);
    ring.set_waiting(Waiting::Spinning);
    let sender = ring.sender();
    let late = std::thread::spawn(move || {
        // The pause is longer than a slice, the longest sleep of a waiter (100 ms).
        std::thread::sleep(Duration::from_millis(250));
        sender.send(&Post::new(1)).unwrap();
    });
    assert_eq!(ring.receive().unwrap().user_data, 1);
    late.join().unwrap();
    assert_eq!(
        ring.receive_timeout(Duration::from_millis(120))
            .unwrap_err(),
        ReceiveError::TimedOut
    );
    let status = ring.status();
    assert_eq!((status.slept, status.time_asleep), (0, Duration::ZERO));
}

#[test]
fn a_receiver_is_woken_when_the_last_message_that_it_waits_for_is_there() {
    let mut ring = ring(64, 0);
    ring.set_waiting(Waiting::Blocking);
    let sender = ring.sender();
    let late = std::thread::spawn(move || {
        while sender.status().slept == 0 {
            std::thread::sleep(Duration::from_millis(1));
        }
        for n in 0..16 {
            std::thread::sleep(Duration::from_millis(2));
            sender.send(&Post::new(n)).unwrap();
        }
    });
    let begun = std::time::Instant::now();
    assert!(ring.wait(16, Until::Forever).unwrap() >= 16);
    assert_eq!(ring.status().slept, 1);
    // The wake word was armed before the sleep, for the check after the sleep, and after each slice (100 ms) of the sleep.
    let slices = begun.elapsed().as_millis() as u32 / 100;
    let turns = ring.shared.engine.turns();
    assert!(turns <= 2 + slices, "woken in vain: {turns} turns");
    late.join().unwrap();
    let mut seen = Vec::new();
    ring.drain(|message| seen.push(message.user_data)).unwrap();
    assert_eq!(seen, (0..16).collect::<Vec<_>>());
}

#[test]
fn many_senders_lose_nothing_and_keep_their_own_order() {
    let mut ring = ring(16, 64);
    let senders: Vec<_> = (0..3)
        .map(|_| {
            let sender = ring.sender();
            std::thread::spawn(move || {
                for n in 0..ROUNDS {
                    sender.send(&Post::new(n)).unwrap();
                }
            })
        })
        .collect();
    let mut next = std::collections::HashMap::new();
    for _ in 0..3 * ROUNDS {
        let message = ring.receive_timeout(Duration::from_secs(20)).unwrap();
        let expected = next.entry(message.tag).or_insert(0);
        assert_eq!(message.user_data, *expected);
        *expected += 1;
    }
    assert_eq!(next.len(), 3);
    senders
        .into_iter()
        .for_each(|sender| sender.join().unwrap());
}

#[test]
fn a_disabled_ring_refuses_until_it_is_enabled_and_a_closed_one_for_ever() {
    let ring = Options::new().disabled(true).create().unwrap();
    let sender = ring.sender();
    assert!(matches!(
        sender.send(&Post::new(1)),
        Err(SendError::Disabled)
    ));
    ring.enable();
    sender.send(&Post::new(1)).unwrap();
    drop(ring);
    assert!(matches!(sender.send(&Post::new(1)), Err(SendError::Closed)));
}

#[test]
fn a_batch_comes_as_a_whole() {
    let mut ring = ring(4, 0);
    let sender = ring.sender();
    let posts = [Post::new(1), Post::new(2).payload(&[7; 64]), Post::new(3)];
    sender.try_send_batch(&posts).unwrap();
    assert!(matches!(
        sender.try_send_batch(&posts),
        Err(SendError::Full)
    ));
    let mut seen = 0;
    assert_eq!(ring.drain(|_| seen += 1).unwrap(), 3);
    assert_eq!(seen, 3);
    sender.try_send_batch(&posts).unwrap();
}

#[test]
fn a_long_payload_goes_through_a_ring_that_was_made_for_it() {
    const LONG: usize = if cfg!(miri) { 1_000 } else { 100_000 };
    let mut ring = Options::new().longest(LONG as u32).create().unwrap();
    let sender = ring.sender();
    sender
        .send_long(&Post::new(5), &[3; LONG], Until::Now)
        .unwrap();
    let error = sender.send_long(&Post::new(5), &[3; LONG + 1], Until::Now);
    assert!(matches!(error, Err(SendError::TooLong { .. })));
    let message = ring.receive().unwrap();
    assert_eq!((message.user_data, message.payload), (5, &[3; LONG][..]));
}

fn is_readable(ring: &mut Ring) -> bool {
    let descriptor = ring.pollable();
    let mut poll = [rustix::event::PollFd::new(
        &descriptor,
        rustix::event::PollFlags::IN,
    )];
    let zero = rustix::time::Timespec::default();
    rustix::event::poll(&mut poll, Some(&zero)).unwrap() == 1
}

#[test]
fn the_descriptor_is_readable_exactly_while_there_are_messages() {
    let mut ring = ring(8, 0);
    let sender = ring.sender();
    sender.send(&Post::new(1)).unwrap();
    assert!(is_readable(&mut ring));
    sender.send(&Post::new(2)).unwrap();
    ring.try_receive().unwrap();
    assert!(is_readable(&mut ring));
    ring.try_receive().unwrap();
    assert_eq!(ring.try_receive().unwrap_err(), ReceiveError::Empty);
    assert!(!is_readable(&mut ring));
    sender.send(&Post::new(3)).unwrap();
    assert!(is_readable(&mut ring));
    ring.drain(|_| {}).unwrap();
    assert!(!is_readable(&mut ring));
}

#[test]
fn the_descriptor_says_what_there_is_after_a_wait_too() {
    let mut ring = ring(8, 0);
    let sender = ring.sender();
    assert!(!is_readable(&mut ring));
    let short = Duration::from_millis(5);
    assert_eq!(
        ring.receive_timeout(short).unwrap_err(),
        ReceiveError::TimedOut
    );
    sender.send(&Post::new(1)).unwrap();
    assert!(is_readable(&mut ring));
    ring.drain(|_| {}).unwrap();
    let waited = ring.wait(2, Until::After(short)).unwrap_err();
    assert_eq!(
        (waited, is_readable(&mut ring)),
        (ReceiveError::TimedOut, false)
    );
    sender.send(&Post::new(2)).unwrap();
    assert!(is_readable(&mut ring));
    let sent = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(20));
        sender.send(&Post::new(3)).unwrap();
    });
    ring.wait(2, Until::Forever).unwrap();
    sent.join().unwrap();
    assert!(is_readable(&mut ring));
    ring.drain(|_| {}).unwrap();
    assert!(!is_readable(&mut ring));
}

#[test]
fn a_descriptor_goes_with_its_message() {
    use std::io::{Read as _, Write as _};
    // A child of another test would keep the stream open.
    let _without_forks = without_forks();
    let mut ring = ring(8, 0);
    let sender = ring.sender();
    let (mut ours, theirs) = std::os::unix::net::UnixStream::pair().unwrap();
    use std::os::fd::{AsFd as _, AsRawFd as _};
    sender.send(&Post::new(1)).unwrap();
    sender
        .send_fd(
            &Post::new(2).payload(b"take it"),
            theirs.as_fd(),
            Until::Now,
        )
        .unwrap();
    drop(theirs);
    assert!(ring.try_receive().unwrap().descriptor.is_none());
    let message = ring.try_receive().unwrap();
    assert_eq!((message.user_data, message.payload), (2, &b"take it"[..]));
    let descriptor = message.descriptor.unwrap();
    assert_eq!(message.res, descriptor.as_raw_fd());
    let mut stream = std::os::unix::net::UnixStream::from(descriptor);
    stream.write_all(b"here").unwrap();
    drop(stream);
    let mut text = String::new();
    ours.read_to_string(&mut text).unwrap();
    assert_eq!(text, "here");
}

#[test]
fn senders_that_wait_for_room_learn_that_the_ring_is_closed() {
    let ring = ring(1, 0);
    let sender = ring.sender();
    sender.send(&Post::new(1)).unwrap();
    let batch = sender.clone();
    let waiting = [
        std::thread::spawn(move || sender.send(&Post::new(2))),
        std::thread::spawn(move || batch.send_batch(&[Post::new(3)])),
    ];
    std::thread::sleep(Duration::from_millis(10));
    drop(ring);
    for sender in waiting {
        assert!(matches!(sender.join().unwrap(), Err(SendError::Closed)));
    }
}

#[test]
fn a_batch_that_has_waited_for_room_makes_the_descriptor_readable() {
    let mut ring = ring(2, 0);
    let sender = ring.sender();
    assert!(!is_readable(&mut ring));
    sender.send(&Post::new(1)).unwrap();
    let batch = std::thread::spawn(move || sender.send_batch(&[Post::new(2), Post::new(3)]));
    std::thread::sleep(Duration::from_millis(10));
    let mut seen = Vec::new();
    while seen.len() < 3 {
        ring.drain(|message| seen.push(message.user_data)).unwrap();
        let descriptor = ring.pollable();
        let flags = rustix::event::PollFlags::IN;
        let mut poll = [rustix::event::PollFd::new(&descriptor, flags)];
        if seen.len() < 3 {
            let long = rustix::time::Timespec {
                tv_sec: 20,
                tv_nsec: 0,
            };
            let readable = rustix::event::poll(&mut poll, Some(&long)).unwrap();
            assert_eq!(readable, 1, "nobody rang: {seen:?}");
        }
    }
    batch.join().unwrap().unwrap();
    assert_eq!(seen, [1, 2, 3]);
}

#[test]
fn a_named_ring_is_found_until_its_owner_drops_it() {
    use std::os::fd::AsFd as _;
    let home = tempfile::tempdir_in("/dev/shm").unwrap();
    let namespace = crate::Namespace::at(home.path()).unwrap();
    let mut ring = Options::new().create_in(&namespace, "/jobs").unwrap();
    let error = Options::new().create_in(&namespace, "/jobs").unwrap_err();
    assert!(matches!(error, RingError::Owned(pid) if pid == std::process::id()));
    let sender = Sender::open_in(&namespace, "/jobs").unwrap();
    assert!(!is_readable(&mut ring));
    let file = std::fs::File::open("/dev/null").unwrap();
    sender
        .send_fd(&Post::new(9), file.as_fd(), Until::Now)
        .unwrap();
    assert!(is_readable(&mut ring));
    assert!(ring.try_receive().unwrap().descriptor.is_some());
    drop(ring);
    assert!(matches!(sender.send(&Post::new(1)), Err(SendError::Closed)));
    let error = Sender::open_in(&namespace, "/jobs").unwrap_err();
    assert_eq!(error.errno(), libc::ENOENT);
    assert_eq!(
        std::fs::read_dir(home.path().join("ring")).unwrap().count(),
        0
    );
}

#[test]
fn messages_of_senders_that_are_not_wanted_are_dropped_and_counted() {
    let mut ring = ring(8, 0);
    let (wanted, other) = (ring.sender(), ring.sender());
    let tag = wanted.tag();
    ring.accept_only(move |sender| sender == tag);
    other.send(&Post::new(1)).unwrap();
    wanted.send(&Post::new(2)).unwrap();
    other.send(&Post::new(3)).unwrap();
    assert_eq!(ring.receive().unwrap().user_data, 2);
    assert_eq!(ring.drain(|_| panic!("not wanted")).unwrap(), 1);
    assert_eq!(ring.refused(), 2);
}

#[test]
#[cfg_attr(miri, ignore = "it polls")]
fn a_flood_of_messages_that_are_not_wanted_keeps_no_call_beyond_its_time() {
    let mut ring = ring(4, 0);
    let sender = ring.sender();
    let send = move || sender.try_send(&Post::new(1));
    send().unwrap();
    // Each time the filter drops a message, the sender sends another message.
    let mut dropped = 0;
    ring.accept_only(move |_| {
        dropped += 1;
        assert!(dropped < 1_000_000, "goes on and on");
        send().unwrap();
        false
    });
    assert_eq!(ring.try_receive().unwrap_err(), ReceiveError::Empty);
    let waited = ring.receive_timeout(Duration::from_millis(1));
    assert_eq!(waited.unwrap_err(), ReceiveError::TimedOut);
    assert!(ring.available() > 0 && ring.refused() > 4);
    // The descriptor shows the remaining messages to a poller.
    assert!(is_readable(&mut ring));
    assert_eq!(ring.try_receive().unwrap_err(), ReceiveError::Empty);
    assert!(is_readable(&mut ring));
}

#[test]
fn a_poller_that_takes_one_message_at_a_time_misses_none_with_a_descriptor() {
    use std::os::fd::AsFd as _;
    let mut ring = ring(64, 0);
    let sender = ring.sender();
    let file = std::fs::File::open("/dev/null").unwrap();
    assert!(!is_readable(&mut ring));
    for n in 0..4 {
        let post = Post::new(n);
        sender.send_fd(&post, file.as_fd(), Until::Now).unwrap();
    }
    for n in 0..4 {
        assert!(is_readable(&mut ring), "{n} were taken");
        let message = ring.try_receive().unwrap();
        assert!(message.user_data == n && message.descriptor.is_some());
    }
    assert_eq!(ring.try_receive().unwrap_err(), ReceiveError::Empty);
    assert!(!is_readable(&mut ring));
}

#[test]
fn descriptors_of_senders_that_are_not_wanted_are_closed() {
    use std::io::Read as _;
    use std::os::fd::AsFd as _;
    // A child of another test would keep the stream open.
    let _without_forks = without_forks();
    let mut ring = ring(8, 0);
    let (wanted, other) = (ring.sender(), ring.sender());
    let tag = wanted.tag();
    ring.accept_only(move |sender| sender == tag);
    for n in 0..40_u64 {
        let (mut ours, theirs) = std::os::unix::net::UnixStream::pair().unwrap();
        let post = Post::new(n);
        other.send_fd(&post, theirs.as_fd(), Until::Now).unwrap();
        drop(theirs);
        match n % 2 {
            0 => assert_eq!(ring.try_receive().unwrap_err(), ReceiveError::Empty),
            _ => assert_eq!(ring.drain(|_| panic!("not wanted")).unwrap(), 1),
        }
        ours.set_nonblocking(true).unwrap();
        assert_eq!(ours.read(&mut [0]).unwrap(), 0, "it is closed");
    }
    let file = std::fs::File::open("/dev/null").unwrap();
    let post = Post::new(1);
    wanted.send_fd(&post, file.as_fd(), Until::Now).unwrap();
    assert!(ring.try_receive().unwrap().descriptor.is_some());
}

#[test]
fn descriptors_whose_messages_found_no_room_keep_no_others_out() {
    use std::os::fd::AsFd as _;
    let mut ring = ring(1, 0);
    let sender = ring.sender();
    let file = std::fs::File::open("/dev/null").unwrap();
    let send = |n| sender.send_fd(&Post::new(n), file.as_fd(), Until::Now);
    sender.send(&Post::new(1)).unwrap();
    // Sends until the socket is full, or until the largest possible number of descriptors waits in the socket.
    let refused = (0..1000).find_map(|_| match send(2) {
        Err(SendError::Full) => None,
        other => Some(other),
    });
    assert!(matches!(
        refused,
        None | Some(Err(SendError::TooManyDescriptors))
    ));
    assert_eq!(ring.receive().unwrap().user_data, 1);
    assert_eq!(ring.try_receive().unwrap_err(), ReceiveError::Empty);
    send(3).unwrap();
    assert!(ring.try_receive().unwrap().descriptor.is_some());
}

#[test]
fn a_sender_learns_from_its_own_ring_what_became_of_a_message() {
    let (mut own, other) = (ring(8, 0), ring(1, 0));
    let (to_own, to_other) = (own.sender(), other.sender());
    for _ in 0..2 {
        to_other
            .send_completing(&Post::new(1), Until::Now, &to_own, &Post::new(9))
            .unwrap();
    }
    let answers = [(); 2].map(|()| own.receive().unwrap().res);
    assert_eq!(answers, [0, -libc::EAGAIN]);
}

#[test]
fn a_descriptor_can_come_without_a_message() {
    use std::os::fd::AsFd as _;
    let mut ring = ring(8, 0);
    let file = std::fs::File::open("/dev/null").unwrap();
    let ticket = ring.sender().pass_fd(file.as_fd()).unwrap();
    assert_eq!(ring.try_receive().unwrap_err(), ReceiveError::Empty);
    assert!(ring.take_fd(ticket).is_some());
    assert!(ring.take_fd(ticket).is_none());
}

#[cfg(feature = "tokio")]
#[test]
fn tokio_is_woken_for_each_of_many_messages() {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(async {
        let ring = ring(64, 1000);
        let sender = ring.sender();
        let mut ring = AsyncRing::new(ring).unwrap();
        let poster = std::thread::spawn(move || {
            for n in 0..500 {
                sender.send(&Post::new(n)).unwrap();
                if n % 7 == 0 {
                    std::thread::sleep(Duration::from_micros(50));
                }
            }
        });
        for n in 0..500 {
            let message = tokio::time::timeout(Duration::from_secs(20), ring.receive()).await;
            assert_eq!(message.unwrap().unwrap().user_data, n);
        }
        let none = tokio::time::timeout(Duration::from_millis(20), ring.receive()).await;
        assert!(none.is_err());
        poster.join().unwrap();
    });
}
