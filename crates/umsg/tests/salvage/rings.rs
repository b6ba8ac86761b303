//! Rebuilt rings.

use super::*;

#[test]
fn a_corrupted_ring_keeps_its_intact_messages_and_its_receiver() {
    let place = Place::new();
    let mut receiver = ring::Options::new()
        .entries(8)
        .create_in(&place.namespace, "/r")
        .unwrap();
    let sender = ring::Sender::open_in(&place.namespace, "/r").unwrap();
    for n in 0..5 {
        sender.send(&ring::Post::new(n)).unwrap();
    }
    write(&place.path().join("ring/r"), 640, &[0; 8]);
    let repaired = ring::repair(&place.namespace, "/r").unwrap();
    assert!(
        !repaired.before.is_healthy() && repaired.after.is_healthy(),
        "{repaired:#?}"
    );
    for n in 0..5 {
        assert_eq!(receiver.receive_timeout(PATIENCE).unwrap().user_data, n);
    }
    for n in 5..30 {
        sender.send(&ring::Post::new(n)).unwrap();
        assert_eq!(receiver.receive_timeout(PATIENCE).unwrap().user_data, n);
    }
}

#[test]
fn a_repair_wakes_a_poller_of_a_ring_for_the_messages_of_a_dead_sender() {
    for is_damaged in [false, true] {
        let place = Place::new();
        let options = ring::Options::new();
        let mut receiver = options.create_in(&place.namespace, "/r").unwrap();
        let is_told = |receiver: &mut ring::Ring| poll_readable(receiver.pollable(), How::Try);
        assert!(!is_told(&mut receiver));
        let sender = || ring::Sender::open_in(&place.namespace, "/r").unwrap();
        let mut child = Child::run(|| {
            crash::arm("SEND_COUNTED", 1);
            sender().try_send(&ring::Post::new(7)).map_or(1, |()| 0)
        });
        child.expect(Exit::Signal(libc::SIGKILL), "SEND_COUNTED");
        if is_damaged {
            write(&place.path().join("ring/r"), 48, &[1]);
        }
        let repaired = ring::repair(&place.namespace, "/r").unwrap();
        assert!(repaired.after.is_healthy(), "{repaired:#?}");
        assert_eq!(repaired.kept.is_some(), is_damaged);
        assert!(is_told(&mut receiver), "damaged: {is_damaged}");
        assert_eq!(receiver.try_receive().unwrap().user_data, 7);
        assert!(receiver.try_receive().is_err() && !is_told(&mut receiver));
        sender().try_send(&ring::Post::new(8)).unwrap();
        assert!(is_told(&mut receiver), "damaged: {is_damaged}");
    }
}
