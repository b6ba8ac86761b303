//! The events of messages: which events a queue records, how they stay with a message that moves to another queue, and which of them remain after a
//! death.

mod support;

use EventKind::{DeadUndelivered, Delivered, HolderDied, Redriven, Returned, Sent, TimedOut};
use std::time::Duration;
use support::child::{Child, Exit};
use support::place::Place;
use umsg::posix::{EventKind, Queue, Redrive};
use umsg_shm::crash;

/// A queue that traces messages, which it delivers three times at most.
fn queue(place: &Place) -> Queue {
    let mut options = place.options(4, 8);
    options.max_deliveries(3).dead_letter("/dead");
    options.trace_messages(true).open("/q").unwrap()
}

/// The events of the first message: kind, delivery, process.
fn events(queue: &Queue) -> Vec<(EventKind, u32, u32)> {
    let message = queue.peek(0).unwrap().expect("a message");
    let in_order = message.events.is_sorted_by_key(|event| event.at);
    assert!(in_order, "{:?}", message.events);
    let events = message.events.iter();
    events
        .map(|event| (event.kind, event.delivery.unwrap_or(0), event.pid))
        .collect()
}

/// Leases the first message in a child, which is killed while it holds the lease. Returns the child's process id.
fn die_with_it(place: &Place) -> u32 {
    let mut victim = Child::run(|| {
        let queue = place.open("/q");
        std::mem::forget(queue.receive_lease().unwrap());
        // SAFETY: the call sends a signal to this process.
        unsafe { libc::raise(libc::SIGKILL) };
        0
    });
    victim.expect(Exit::Signal(libc::SIGKILL), "a holder");
    victim.pid().cast_unsigned()
}

#[test]
fn a_message_tells_its_deliveries_their_ends_and_its_moves() {
    let place = Place::in_turn();
    let queue = queue(&place);
    let me = std::process::id();
    queue.send(b"job", 5).unwrap();
    assert_eq!(events(&queue), [(Sent, 0, me)]);
    let victim = die_with_it(&place);
    let lease = queue.receive_lease().unwrap();
    lease.limit(Duration::from_millis(1)).unwrap();
    queue.receive_lease().unwrap().give_back().unwrap();
    drop(lease);
    // The message is moved by the next call at the latest.
    let _ = queue.receive_timeout(&mut [0; 8], Duration::from_millis(1));
    let dead = place.open("/dead");
    let mut all = vec![
        (Sent, 0, me),
        (Delivered, 1, victim),
        (HolderDied, 1, victim),
        (Delivered, 2, me),
        (TimedOut, 2, me),
        (Delivered, 3, me),
        (Returned, 3, me),
        (DeadUndelivered, 3, me),
    ];
    assert_eq!(events(&dead), all);
    // A queue without the option records further events of a message that already has events.
    assert!(!dead.status().trace_messages);
    dead.receive_lease().unwrap().give_back().unwrap();
    all.extend([(Delivered, 1, me), (Returned, 1, me)]);
    assert_eq!(events(&dead), all);
    assert_eq!(dead.redrive(&Redrive::new()).unwrap().messages, 1);
    all.push((Redriven, 1, me));
    assert_eq!(events(&queue), all);
    queue.receive_lease().unwrap().give_back().unwrap();
    all.extend([(Delivered, 1, me), (Returned, 1, me)]);
    assert_eq!(events(&queue), all);
    // The oldest events are forgotten, apart from the send.
    queue.receive_lease().unwrap().give_back().unwrap();
    queue.receive_lease().unwrap().give_back().unwrap();
    let _ = queue.receive_timeout(&mut [0; 8], Duration::from_millis(1));
    let kept = events(&dead);
    assert_eq!((kept.len(), kept[0]), (14, (Sent, 0, me)));
    let forgotten = dead.peek(0).unwrap().unwrap().forgotten_events;
    assert_eq!(forgotten as usize, all.len() + 5 - kept.len());
    assert_eq!(kept[1..7], all[1 + forgotten as usize..][..6]);
}

#[test]
fn the_next_message_of_a_slot_begins_without_events_and_a_delayed_one_keeps_them() {
    let place = Place::in_turn();
    let queue = queue(&place);
    let me = std::process::id();
    queue.send(b"job", 0).unwrap();
    let lease = queue.receive_lease().unwrap();
    lease.return_after(Duration::from_secs(3600)).unwrap();
    let delayed = &queue.delayed_messages(1).unwrap()[0];
    let kinds: Vec<EventKind> = delayed.events.iter().map(|event| event.kind).collect();
    assert_eq!(kinds, [Sent, Delivered, Returned]);
    // More rounds than the queue has slots.
    for _ in 0..100 {
        queue.send(b"next", 0).unwrap();
        assert_eq!(events(&queue), [(Sent, 0, me)]);
        queue.receive_lease().unwrap().give_back().unwrap();
        assert_eq!(events(&queue).len(), 3);
        queue.receive_lease().unwrap().acknowledge().unwrap();
    }
}

#[test]
fn a_queue_without_the_option_notes_nothing_and_has_no_memory_for_it() {
    let place = Place::in_turn();
    let mut memory = Vec::new();
    for trace in [false, true] {
        let name = format!("/{trace}");
        let mut options = place.options(4, 8);
        let queue = options.trace_messages(trace).open(name).unwrap();
        assert_eq!(queue.status().trace_messages, trace);
        queue.send(b"job", 0).unwrap();
        queue.receive_lease().unwrap().give_back().unwrap();
        let message = queue.peek(0).unwrap().unwrap();
        assert_eq!(message.events.len(), if trace { 3 } else { 0 });
        memory.push(queue.status().memory);
    }
    assert_eq!(memory[1] - memory[0], 4096);
}

#[test]
fn a_process_killed_while_it_notes_an_event_leaves_the_events_that_took_effect() {
    let place = Place::in_turn();
    let queue = queue(&place);
    let me = std::process::id();
    for point in ["TRACE_WRITTEN", "TRACE_NOTED"] {
        for dies_at_return in [false, true] {
            queue.send(b"job", 0).unwrap();
            queue.receive_lease().unwrap().give_back().unwrap();
            let mut victim = Child::run(|| {
                let queue = place.open("/q");
                crash::arm(point, if dies_at_return { 2 } else { 1 });
                drop(queue.receive_lease().unwrap());
                0
            });
            victim.expect(Exit::Signal(libc::SIGKILL), point);
            let victim = victim.pid().cast_unsigned();
            // This call repairs the queue, and ends the dead holder's lease.
            let lease = queue.receive_lease().unwrap();
            assert_eq!(lease.deliveries(), if dies_at_return { 3 } else { 2 });
            assert_eq!(lease.to_vec(), b"job");
            let deliveries = lease.deliveries();
            if deliveries == 3 {
                // A third return would move the message.
                lease.acknowledge().unwrap();
                continue;
            }
            lease.give_back().unwrap();
            let mut wanted = vec![(Sent, 0, me), (Delivered, 1, me), (Returned, 1, me)];
            wanted.extend([(Delivered, 2, me), (Returned, 2, me)]);
            assert_eq!(events(&queue), wanted, "{point}: {victim}");
            queue.receive_lease().unwrap().acknowledge().unwrap();
        }
    }
    // The same deaths in a queue that delivers a message more often.
    for point in ["TRACE_WRITTEN", "TRACE_NOTED"] {
        let mut options = place.options(4, 8);
        let queue = options.trace_messages(true).open("/q2").unwrap();
        queue.send(b"job", 0).unwrap();
        let mut victim = Child::run(|| {
            let queue = place.open("/q2");
            crash::arm(point, 2);
            drop(queue.receive_lease().unwrap());
            0
        });
        victim.expect(Exit::Signal(libc::SIGKILL), point);
        let victim = victim.pid().cast_unsigned();
        // Before the repair, the message still belongs to the dead holder.
        queue.receive_lease().unwrap().give_back().unwrap();
        let ended = (HolderDied, 1, victim);
        let wanted = [(Sent, 0, me), (Delivered, 1, victim), ended];
        let found = events(&queue);
        assert_eq!(found[..3], wanted, "{point}");
        assert_eq!(
            found[3..],
            [(Delivered, 2, me), (Returned, 2, me)],
            "{point}"
        );
        queue.receive_lease().unwrap().acknowledge().unwrap();
    }
}

#[test]
fn a_killed_delivery_that_took_no_effect_is_not_shown() {
    let place = Place::in_turn();
    let queue = queue(&place);
    queue.send(b"job", 0).unwrap();
    let mut victim = Child::run(|| {
        let queue = place.open("/q");
        crash::arm("TRACE_NOTED", 1);
        drop(queue.receive_lease().unwrap());
        0
    });
    victim.expect(Exit::Signal(libc::SIGKILL), "TRACE_NOTED");
    assert_eq!(events(&queue), [(Sent, 0, std::process::id())]);
}
