//! Waiting receivers: the receiver that gets a message, and the events that end a wait.

use libc::{MSG_EXCEPT, MSG_NOERROR};

use crate::errno::Errno;
use crate::sys::User;
use crate::sysv::site::{LONGEST, Queue, Site, message};

subject_of_sysv! { $ waiters, waiters_cases:
    a_receive_from_an_empty_queue_waits_for_a_message
    a_message_goes_straight_to_a_waiting_receiver
    a_newcomer_does_not_take_the_message_of_a_waiting_receiver
    a_receiver_waits_for_its_type_only
    a_negative_type_waits_for_types_up_to_it
    msg_except_waits_for_another_type
    receivers_are_served_in_the_order_they_came
    the_first_of_those_that_match_is_served
    one_message_serves_one_receiver
    a_receiver_whose_buffer_is_too_small_ends_with_e2big
    after_e2big_the_next_receiver_gets_the_message
    every_receiver_whose_buffer_is_too_small_ends_with_e2big
    after_e2big_of_all_the_message_stays
    a_receiver_whose_type_does_not_match_learns_of_no_long_message
    a_waiting_receiver_with_msg_noerror_gets_a_cut_message
    a_message_without_a_text_is_handed_over
    the_longest_message_is_handed_over
    removal_ends_waiting_receivers_with_eidrm
    removal_ends_waiting_senders_with_eidrm
    a_removed_queue_is_einval_for_later_calls
    a_change_keeps_receivers_waiting
    a_change_keeps_senders_waiting
    a_receiver_that_loses_the_permission_ends_with_eacces
    a_sender_that_loses_the_permission_learns_of_it_when_there_is_room
    a_change_that_makes_room_and_takes_the_permission_ends_a_sender_with_eacces
    a_killed_receiver_takes_nothing
    a_killed_receiver_is_skipped
    two_processes_play_ping_pong
    many_processes_wait_on_both_sides
    a_hundred_receivers_each_get_the_message_of_their_type
}

fn a_receive_from_an_empty_queue_waits_for_a_message(site: &Site) {
    let queue = site.queue();
    let receiver = site.blocked(|| queue.receive_waiting(0));
    receiver.expect_still_blocked();
    assert_eq!(queue.send(5, "hello"), Ok(()));
    assert_eq!(receiver.result(), Ok(message(5, "hello")));
}

fn a_message_goes_straight_to_a_waiting_receiver(site: &Site) {
    let queue = site.queue();
    for round in 1..20 {
        let receiver = site.blocked(|| queue.receive_waiting(0));
        assert_eq!(queue.send(round, "direct"), Ok(()));
        assert_eq!(queue.counts(), (0, 0));
        assert_eq!(receiver.result(), Ok(message(round, "direct")));
    }
}

fn a_newcomer_does_not_take_the_message_of_a_waiting_receiver(site: &Site) {
    let queue = site.queue();
    for round in 1..20 {
        let receiver = site.blocked(|| queue.receive_waiting(0));
        assert_eq!(queue.send(round, "mine"), Ok(()));
        assert_eq!(queue.receive(0), Err(Errno::ENOMSG));
        assert_eq!(receiver.result(), Ok(message(round, "mine")));
    }
}

fn a_receiver_waits_for_its_type_only(site: &Site) {
    let queue = site.queue();
    let receiver = site.blocked(|| queue.receive_waiting(5));
    assert_eq!(queue.send(4, "four"), Ok(()));
    assert_eq!(queue.send(6, "six"), Ok(()));
    receiver.expect_still_blocked();
    assert_eq!(queue.send(5, "five"), Ok(()));
    assert_eq!(receiver.result(), Ok(message(5, "five")));
    assert_eq!(queue.drain(), [message(4, "four"), message(6, "six")]);
}

fn a_negative_type_waits_for_types_up_to_it(site: &Site) {
    let queue = site.queue();
    let receiver = site.blocked(|| queue.receive_waiting(-5));
    assert_eq!(queue.send(6, "six"), Ok(()));
    receiver.expect_still_blocked();
    assert_eq!(queue.send(5, "five"), Ok(()));
    assert_eq!(receiver.result(), Ok(message(5, "five")));
    let receiver = site.blocked(|| queue.receive_waiting(-5));
    assert_eq!(queue.send(1, "one"), Ok(()));
    assert_eq!(receiver.result(), Ok(message(1, "one")));
    assert_eq!(queue.drain(), [message(6, "six")]);
    let receiver = site.blocked(|| queue.receive_waiting(i64::MIN));
    assert_eq!(queue.send(i64::MAX, "highest"), Ok(()));
    assert_eq!(receiver.result(), Ok(message(i64::MAX, "highest")));
}

fn msg_except_waits_for_another_type(site: &Site) {
    let queue = site.queue();
    let receiver = site.blocked(|| queue.receive_with(9, 5, MSG_EXCEPT));
    assert_eq!(queue.send(5, "five"), Ok(()));
    receiver.expect_still_blocked();
    assert_eq!(queue.send(6, "six"), Ok(()));
    assert_eq!(receiver.result(), Ok(message(6, "six")));
    assert_eq!(queue.drain(), [message(5, "five")]);
}

fn receivers_are_served_in_the_order_they_came(site: &Site) {
    let queue = site.queue();
    for _ in 0..3 {
        let receivers: Vec<_> = (0..5)
            .map(|_| site.blocked(|| queue.receive_waiting(0)))
            .collect();
        for (mtype, receiver) in (1..).zip(receivers) {
            assert_eq!(queue.send(mtype, "x"), Ok(()));
            assert_eq!(receiver.result(), Ok(message(mtype, "x")));
        }
    }
}

fn the_first_of_those_that_match_is_served(site: &Site) {
    let queue = site.queue();
    let wait = |mtype, flags| site.blocked(move || queue.receive_with(9, mtype, flags));
    let [two, up_to_three, not_two, any, two_too] = [
        wait(2, 0),
        wait(-3, 0),
        wait(2, MSG_EXCEPT),
        wait(0, 0),
        wait(2, 0),
    ];
    let send = |mtype, text| assert_eq!(queue.send(mtype, text), Ok(()));
    send(7, "not two");
    assert_eq!(not_two.result(), Ok(message(7, "not two")));
    send(2, "two");
    assert_eq!(two.result(), Ok(message(2, "two")));
    send(3, "three");
    assert_eq!(up_to_three.result(), Ok(message(3, "three")));
    send(2, "any");
    assert_eq!(any.result(), Ok(message(2, "any")));
    send(1, "nobody's");
    send(2, "two too");
    assert_eq!(two_too.result(), Ok(message(2, "two too")));
    assert_eq!(queue.drain(), [message(1, "nobody's")]);
}

fn one_message_serves_one_receiver(site: &Site) {
    let queue = site.queue();
    let [first, second] = [(); 2].map(|()| site.blocked(|| queue.receive_waiting(0)));
    assert_eq!(queue.send(1, "one"), Ok(()));
    assert_eq!(first.result(), Ok(message(1, "one")));
    second.expect_still_blocked();
    assert_eq!(queue.send(2, "two"), Ok(()));
    assert_eq!(second.result(), Ok(message(2, "two")));
}

fn a_receiver_whose_buffer_is_too_small_ends_with_e2big(site: &Site) {
    let queue = site.queue();
    let receiver = site.blocked(|| queue.receive_with(3, 0, 0));
    assert_eq!(queue.send(1, "four"), Ok(()));
    assert_eq!(receiver.result(), Err(Errno::E2BIG));
    assert_eq!(queue.drain(), [message(1, "four")]);
}

fn after_e2big_the_next_receiver_gets_the_message(site: &Site) {
    let queue = site.queue();
    let small = site.blocked(|| queue.receive_with(3, 0, 0));
    let large = site.blocked(|| queue.receive_with(4, 0, 0));
    let third = site.blocked(|| queue.receive_with(4, 0, 0));
    assert_eq!(queue.send(1, "four"), Ok(()));
    assert_eq!(small.result(), Err(Errno::E2BIG));
    assert_eq!(large.result(), Ok(message(1, "four")));
    third.expect_still_blocked();
    assert_eq!(queue.counts(), (0, 0));
    assert_eq!(queue.send(2, "next"), Ok(()));
    assert_eq!(third.result(), Ok(message(2, "next")));
}

fn every_receiver_whose_buffer_is_too_small_ends_with_e2big(site: &Site) {
    let queue = site.queue();
    let small: Vec<_> = (0..4)
        .map(|size| site.blocked(move || queue.receive_with(size, 0, 0)))
        .collect();
    let large = site.blocked(|| queue.receive_with(4, 0, 0));
    assert_eq!(queue.send(1, "four"), Ok(()));
    for receiver in small {
        assert_eq!(receiver.result(), Err(Errno::E2BIG));
    }
    assert_eq!(large.result(), Ok(message(1, "four")));
}

fn after_e2big_of_all_the_message_stays(site: &Site) {
    let queue = site.queue();
    let small = [1, 2].map(|size| site.blocked(move || queue.receive_with(size, 1, 0)));
    let other = site.blocked(|| queue.receive_with(1, 2, 0));
    assert_eq!(queue.send(1, "four"), Ok(()));
    assert_eq!(
        small.map(|receiver| receiver.result()),
        [Err(Errno::E2BIG), Err(Errno::E2BIG)]
    );
    other.expect_still_blocked();
    assert_eq!(queue.counts(), (1, 4));
    assert_eq!(queue.status().expect("its status").last_receiver, 0);
    assert_eq!(queue.receive(1), Ok(message(1, "four")));
}

fn a_receiver_whose_type_does_not_match_learns_of_no_long_message(site: &Site) {
    let queue = site.queue();
    let receiver = site.blocked(|| queue.receive_with(1, 2, 0));
    assert_eq!(queue.send(1, "four"), Ok(()));
    receiver.expect_still_blocked();
    assert_eq!(queue.send(2, "x"), Ok(()));
    assert_eq!(receiver.result(), Ok(message(2, "x")));
}

fn a_waiting_receiver_with_msg_noerror_gets_a_cut_message(site: &Site) {
    let queue = site.queue();
    let receiver = site.blocked(|| queue.receive_with(3, 0, MSG_NOERROR));
    assert_eq!(queue.send(1, "four"), Ok(()));
    assert_eq!(receiver.result(), Ok(message(1, "fou")));
    assert_eq!(queue.counts(), (0, 0));
}

fn a_message_without_a_text_is_handed_over(site: &Site) {
    let queue = site.queue();
    let receiver = site.blocked(|| queue.receive_with(0, 0, 0));
    assert_eq!(queue.send(1, ""), Ok(()));
    assert_eq!(receiver.result(), Ok(message(1, "")));
}

fn the_longest_message_is_handed_over(site: &Site) {
    let queue = site.queue();
    let text: Vec<u8> = (0..LONGEST).map(|at| (at % 253) as u8).collect();
    let receiver = site.blocked(|| queue.receive_waiting(0));
    assert_eq!(queue.send(1, &text), Ok(()));
    assert_eq!(receiver.result(), Ok(message(1, text)));
}

fn removal_ends_waiting_receivers_with_eidrm(site: &Site) {
    let queue = site.queue();
    let wants = [0, 3, -7, i64::MIN];
    let receivers = wants.map(|mtype| site.blocked(move || queue.receive_waiting(mtype)));
    assert_eq!(queue.remove(), Ok(()));
    for receiver in receivers {
        assert_eq!(receiver.result(), Err(Errno::EIDRM));
    }
}

fn removal_ends_waiting_senders_with_eidrm(site: &Site) {
    let queue = site.queue_for(4);
    assert_eq!(queue.send(1, "1234"), Ok(()));
    let senders = [1, 2, 3].map(|mtype| site.blocked(move || queue.send_waiting(mtype, "x")));
    let receiver = site.blocked(|| queue.receive_waiting(9));
    assert_eq!(queue.remove(), Ok(()));
    for sender in senders {
        assert_eq!(sender.result(), Err(Errno::EIDRM));
    }
    assert_eq!(receiver.result(), Err(Errno::EIDRM));
}

fn a_removed_queue_is_einval_for_later_calls(site: &Site) {
    let queue = site.queue();
    let again = site.blocked(|| {
        [queue.receive_waiting(0), queue.receive_waiting(0)].map(|got| got.err())
            == [Some(Errno::EIDRM), Some(Errno::EINVAL)]
    });
    assert_eq!(queue.remove(), Ok(()));
    assert!(again.result());
}

fn a_change_keeps_receivers_waiting(site: &Site) {
    let queue = site.queue();
    let receiver = site.blocked(|| queue.receive_waiting(2));
    for max_bytes in [100, 0, 1000] {
        queue.limit(max_bytes);
        receiver.expect_still_blocked();
    }
    assert_eq!(queue.send(2, "two"), Ok(()));
    assert_eq!(receiver.result(), Ok(message(2, "two")));
}

fn a_change_keeps_senders_waiting(site: &Site) {
    let queue = site.queue_for(4);
    assert_eq!(queue.send(1, "1234"), Ok(()));
    let sender = site.blocked(|| queue.send_waiting(2, "abcd"));
    for max_bytes in [7, 0, 5] {
        queue.limit(max_bytes);
        sender.expect_still_blocked();
    }
    queue.limit(8);
    assert_eq!(sender.result(), Ok(()));
    assert_eq!(queue.drain(), [message(1, "1234"), message(2, "abcd")]);
}

fn a_receiver_that_loses_the_permission_ends_with_eacces(site: &Site) {
    site.need_root();
    let queue = site.queue_of_mode(0o666);
    let stranger = site.blocked_as(User::NOBODY, || queue.receive_waiting(0));
    let owner = site.blocked(|| queue.receive_waiting(0));
    assert_eq!(queue.alter(|change| change.mode = 0o660), Ok(()));
    assert_eq!(stranger.result(), Err(Errno::EACCES));
    owner.expect_still_blocked();
    assert_eq!(queue.send(1, "x"), Ok(()));
    assert_eq!(owner.result(), Ok(message(1, "x")));
}

/// Creates a full queue to which every user may send.
fn full_queue_for_all(site: &Site) -> Queue<'_> {
    site.need_root();
    let queue = site.queue_of_mode(0o666);
    queue.limit(4);
    assert_eq!(queue.send(1, "1234"), Ok(()));
    queue
}

// `IPC_SET` wakes a waiting sender only if the change makes room for its message, so the sender notices its lost permission later.
fn a_sender_that_loses_the_permission_learns_of_it_when_there_is_room(site: &Site) {
    let queue = full_queue_for_all(site);
    let stranger = site.blocked_as(User::NOBODY, || queue.send_waiting(2, "x"));
    assert_eq!(queue.alter(|change| change.mode = 0o664), Ok(()));
    stranger.expect_still_blocked();
    assert_eq!(queue.receive(0), Ok(message(1, "1234")));
    assert_eq!(stranger.result(), Err(Errno::EACCES));
    assert_eq!(queue.counts(), (0, 0));
}

fn a_change_that_makes_room_and_takes_the_permission_ends_a_sender_with_eacces(site: &Site) {
    let queue = full_queue_for_all(site);
    let stranger = site.blocked_as(User::NOBODY, || queue.send_waiting(2, "x"));
    let changed = queue.alter(|change| (change.mode, change.max_bytes) = (0o664, 100));
    assert_eq!(changed, Ok(()));
    assert_eq!(stranger.result(), Err(Errno::EACCES));
    assert_eq!(queue.drain(), [message(1, "1234")]);
}

fn a_killed_receiver_takes_nothing(site: &Site) {
    let queue = site.queue();
    site.blocked(|| queue.receive_waiting(0)).kill();
    assert_eq!(queue.send(1, "kept"), Ok(()));
    assert_eq!(queue.drain(), [message(1, "kept")]);
}

fn a_killed_receiver_is_skipped(site: &Site) {
    let queue = site.queue();
    let killed = site.blocked(|| queue.receive_waiting(0));
    let other = site.blocked(|| queue.receive_waiting(0));
    killed.kill();
    assert_eq!(queue.send(1, "kept"), Ok(()));
    assert_eq!(other.result(), Ok(message(1, "kept")));
}

fn two_processes_play_ping_pong(site: &Site) {
    const ROUNDS: i64 = 2000;
    let queue = site.queue();
    let other = site.child(|| {
        (0..ROUNDS).all(|round| {
            let ball = queue.receive_waiting(1);
            ball == Ok(message(1, round.to_le_bytes()))
                && queue.send_waiting(2, round.to_le_bytes()) == Ok(())
        })
    });
    for round in 0..ROUNDS {
        assert_eq!(queue.send_waiting(1, round.to_le_bytes()), Ok(()));
        assert_eq!(
            queue.receive_waiting(2),
            Ok(message(2, round.to_le_bytes()))
        );
    }
    assert!(other.result());
}

fn many_processes_wait_on_both_sides(site: &Site) {
    const EACH: i64 = 300;
    let queue = site.queue_for(20);
    let receivers: Vec<_> = (1..=4)
        .map(|mtype| {
            site.child(move || {
                (0..EACH).map(|_| queue.receive_waiting(mtype)).all(|got| {
                    got.is_ok_and(|got| got.mtype == mtype && got.text.len() == mtype as usize)
                })
            })
        })
        .collect();
    let senders: Vec<_> = (1..=4)
        .map(|mtype| {
            site.child(move || {
                let text = vec![0; mtype as usize];
                (0..EACH).all(|_| queue.send_waiting(mtype, &text).is_ok())
            })
        })
        .collect();
    assert!(senders.into_iter().all(|sender| sender.result()));
    assert!(receivers.into_iter().all(|receiver| receiver.result()));
    assert_eq!(queue.counts(), (0, 0));
}

fn a_hundred_receivers_each_get_the_message_of_their_type(site: &Site) {
    let queue = site.queue();
    let receivers: Vec<_> = (1..=100)
        .map(|mtype| (mtype, site.blocked(move || queue.receive_waiting(mtype))))
        .collect();
    for &(mtype, _) in receivers.iter().rev() {
        assert_eq!(queue.send(mtype, mtype.to_string()), Ok(()));
    }
    for (mtype, receiver) in receivers {
        assert_eq!(receiver.result(), Ok(message(mtype, mtype.to_string())));
    }
}
