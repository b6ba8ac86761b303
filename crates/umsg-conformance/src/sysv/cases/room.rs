//! Room in a queue: limits on bytes and messages, and the order in which waiting senders get room.

use crate::errno::Errno;
use crate::sysv::site::{CAPACITY, LONGEST, Queue, Site, message};

subject_of_sysv! { $ room, room_cases:
    a_new_queue_has_room_for_msgmnb_bytes
    a_message_that_would_exceed_the_bytes_is_eagain
    a_shorter_message_fits_where_a_longer_one_does_not
    a_message_of_exactly_the_room_fits
    a_queue_of_n_bytes_holds_n_messages_without_a_text
    messages_of_one_byte_fill_bytes_and_count_alike
    a_queue_for_no_bytes_takes_nothing
    a_receive_makes_room
    a_longer_limit_makes_room
    a_shorter_limit_keeps_what_is_there
    a_send_waits_for_room
    a_send_waits_until_there_is_room_for_its_length
    a_send_without_a_text_waits_for_a_place
    a_message_that_fits_passes_a_sender_that_waits
    a_waiting_sender_that_fits_does_not_wait_for_one_that_does_not
    a_waiting_senders_message_comes_after_what_was_sent_before_it_fitted
    a_cut_message_makes_room_for_its_whole_length
    a_higher_limit_lets_waiting_senders_go
    a_full_queue_makes_a_sender_wait_though_a_receiver_waits_for_its_type
    a_waiting_senders_message_goes_to_a_receiver_that_waits_for_its_type
    every_waiting_sender_gets_its_room
    a_killed_sender_leaves_nothing
    a_killed_sender_does_not_keep_others_waiting
}

fn a_new_queue_has_room_for_msgmnb_bytes(site: &Site) {
    let queue = site.queue();
    assert_eq!(queue.status().expect("its status").max_bytes, CAPACITY);
    assert_eq!(queue.send(1, vec![1; LONGEST]), Ok(()));
    assert_eq!(queue.send(1, vec![2; LONGEST]), Ok(()));
    assert_eq!(queue.send(1, "x"), Err(Errno::EAGAIN));
    // The queue has no room for another byte, but it still has room for an empty message.
    assert_eq!(queue.send(1, ""), Ok(()));
    assert_eq!(queue.counts(), (3, CAPACITY));
}

fn a_message_that_would_exceed_the_bytes_is_eagain(site: &Site) {
    let queue = site.queue_for(10);
    assert_eq!(queue.send(1, "12345678"), Ok(()));
    assert_eq!(queue.send(1, "abc"), Err(Errno::EAGAIN));
    assert_eq!(queue.counts(), (1, 8));
}

fn a_shorter_message_fits_where_a_longer_one_does_not(site: &Site) {
    let queue = site.queue_for(10);
    assert_eq!(queue.send(1, "1234567"), Ok(()));
    assert_eq!(queue.send(1, "1234"), Err(Errno::EAGAIN));
    assert_eq!(queue.send(1, "123"), Ok(()));
    assert_eq!(queue.send(1, "1"), Err(Errno::EAGAIN));
}

fn a_message_of_exactly_the_room_fits(site: &Site) {
    let queue = site.queue_for(100);
    assert_eq!(queue.send(1, [7; 101]), Err(Errno::EAGAIN));
    assert_eq!(queue.send(1, [7; 100]), Ok(()));
    assert_eq!(queue.send(1, [7; 1]), Err(Errno::EAGAIN));
}

fn a_queue_of_n_bytes_holds_n_messages_without_a_text(site: &Site) {
    for places in [1, 2, 7, 1000] {
        let queue = site.queue_for(places);
        for _ in 0..places {
            assert_eq!(queue.send(1, ""), Ok(()));
        }
        assert_eq!(queue.send(1, ""), Err(Errno::EAGAIN));
        assert_eq!(queue.counts(), (places, 0));
        assert_eq!(queue.receive(0), Ok(message(1, "")));
        assert_eq!(queue.send(2, ""), Ok(()));
        assert_eq!(queue.send(2, ""), Err(Errno::EAGAIN));
    }
}

fn messages_of_one_byte_fill_bytes_and_count_alike(site: &Site) {
    let queue = site.queue_for(5);
    for _ in 0..5 {
        assert_eq!(queue.send(1, "x"), Ok(()));
    }
    assert_eq!(queue.send(1, "x"), Err(Errno::EAGAIN));
    assert_eq!(queue.send(1, ""), Err(Errno::EAGAIN));
}

fn a_queue_for_no_bytes_takes_nothing(site: &Site) {
    let queue = site.queue_for(0);
    assert_eq!(queue.send(1, ""), Err(Errno::EAGAIN));
    assert_eq!(queue.send(1, "x"), Err(Errno::EAGAIN));
}

fn a_receive_makes_room(site: &Site) {
    let queue = site.queue_for(10);
    for _ in 0..50 {
        assert_eq!(queue.send(1, "12345"), Ok(()));
        assert_eq!(queue.send(2, "67890"), Ok(()));
        assert_eq!(queue.send(3, "x"), Err(Errno::EAGAIN));
        assert_eq!(queue.receive(2), Ok(message(2, "67890")));
        assert_eq!(queue.send(3, "123456"), Err(Errno::EAGAIN));
        assert_eq!(queue.send(3, "abcde"), Ok(()));
        assert_eq!(queue.drain().len(), 2);
    }
}

fn a_longer_limit_makes_room(site: &Site) {
    let queue = site.queue_for(4);
    assert_eq!(queue.send(1, "12345"), Err(Errno::EAGAIN));
    queue.limit(5);
    assert_eq!(queue.send(1, "12345"), Ok(()));
}

fn a_shorter_limit_keeps_what_is_there(site: &Site) {
    let queue = site.queue_for(20);
    assert_eq!(queue.send(1, "1234567890"), Ok(()));
    assert_eq!(queue.send(2, "abc"), Ok(()));
    queue.limit(5);
    assert_eq!(queue.counts(), (2, 13));
    assert_eq!(queue.send(3, "x"), Err(Errno::EAGAIN));
    assert_eq!(queue.receive(1), Ok(message(1, "1234567890")));
    assert_eq!(queue.send(3, "xyz"), Err(Errno::EAGAIN));
    assert_eq!(queue.send(3, "xy"), Ok(()));
    assert_eq!(queue.drain(), [message(2, "abc"), message(3, "xy")]);
}

fn a_send_waits_for_room(site: &Site) {
    let queue = site.queue_for(5);
    assert_eq!(queue.send(1, "first"), Ok(()));
    let sender = site.blocked(|| queue.send_waiting(2, "later"));
    sender.expect_still_blocked();
    assert_eq!(queue.counts(), (1, 5));
    assert_eq!(queue.receive(0), Ok(message(1, "first")));
    assert_eq!(sender.result(), Ok(()));
    assert_eq!(queue.drain(), [message(2, "later")]);
}

fn a_send_waits_until_there_is_room_for_its_length(site: &Site) {
    let queue = site.queue_for(9);
    for mtype in 1..=3 {
        assert_eq!(queue.send(mtype, "abc"), Ok(()));
    }
    let sender = site.blocked(|| queue.send_waiting(9, "123456"));
    assert_eq!(queue.receive(2), Ok(message(2, "abc")));
    sender.expect_still_blocked();
    assert_eq!(queue.receive(1), Ok(message(1, "abc")));
    assert_eq!(sender.result(), Ok(()));
    assert_eq!(queue.drain(), [message(3, "abc"), message(9, "123456")]);
}

fn a_send_without_a_text_waits_for_a_place(site: &Site) {
    let queue = site.queue_for(2);
    assert_eq!(queue.send(1, ""), Ok(()));
    assert_eq!(queue.send(2, ""), Ok(()));
    let sender = site.blocked(|| queue.send_waiting(3, ""));
    sender.expect_still_blocked();
    assert_eq!(queue.receive(2), Ok(message(2, "")));
    assert_eq!(sender.result(), Ok(()));
    assert_eq!(queue.drain(), [message(1, ""), message(3, "")]);
}

fn a_message_that_fits_passes_a_sender_that_waits(site: &Site) {
    let queue = site.queue_for(10);
    assert_eq!(queue.send(1, "123456"), Ok(()));
    let sender = site.blocked(|| queue.send_waiting(2, "abcdef"));
    assert_eq!(queue.send(3, "four"), Ok(()));
    sender.expect_still_blocked();
    assert_eq!(queue.receive(3), Ok(message(3, "four")));
    sender.expect_still_blocked();
    assert_eq!(queue.receive(1), Ok(message(1, "123456")));
    assert_eq!(sender.result(), Ok(()));
    assert_eq!(queue.drain(), [message(2, "abcdef")]);
}

fn a_waiting_sender_that_fits_does_not_wait_for_one_that_does_not(site: &Site) {
    let queue = site.queue_for(10);
    assert_eq!(queue.send(1, "123"), Ok(()));
    assert_eq!(queue.send(2, "4567890"), Ok(()));
    let long = site.blocked(|| queue.send_waiting(3, "ABCDEFGH"));
    let short = site.blocked(|| queue.send_waiting(4, "abc"));
    assert_eq!(queue.receive(1), Ok(message(1, "123")));
    assert_eq!(short.result(), Ok(()));
    long.expect_still_blocked();
    assert_eq!(queue.messages(), [message(2, "4567890"), message(4, "abc")]);
    assert_eq!(queue.receive(4), Ok(message(4, "abc")));
    assert_eq!(queue.receive(2), Ok(message(2, "4567890")));
    assert_eq!(long.result(), Ok(()));
    assert_eq!(queue.drain(), [message(3, "ABCDEFGH")]);
}

fn a_waiting_senders_message_comes_after_what_was_sent_before_it_fitted(site: &Site) {
    let queue = site.queue_for(10);
    assert_eq!(queue.send(1, "12345678"), Ok(()));
    let sender = site.blocked(|| queue.send_waiting(2, "waits"));
    assert_eq!(queue.send(3, "a"), Ok(()));
    assert_eq!(queue.receive(1), Ok(message(1, "12345678")));
    assert_eq!(sender.result(), Ok(()));
    assert_eq!(queue.send(4, "b"), Ok(()));
    let expected = [message(3, "a"), message(2, "waits"), message(4, "b")];
    assert_eq!(queue.drain(), expected);
}

fn a_cut_message_makes_room_for_its_whole_length(site: &Site) {
    let queue = site.queue_for(10);
    assert_eq!(queue.send(1, "1234567890"), Ok(()));
    let flags = libc::IPC_NOWAIT | libc::MSG_NOERROR;
    assert_eq!(queue.receive_with(2, 0, flags), Ok(message(1, "12")));
    assert_eq!(queue.send(1, "abcdefghij"), Ok(()));
}

fn a_higher_limit_lets_waiting_senders_go(site: &Site) {
    let queue = site.queue_for(4);
    assert_eq!(queue.send(1, "1234"), Ok(()));
    let senders = [2, 3].map(|mtype| site.blocked(move || queue.send_waiting(mtype, "abcd")));
    queue.limit(12);
    assert_eq!(senders.map(|sender| sender.result()), [Ok(()); 2]);
    let mut types: Vec<i64> = queue.drain().iter().map(|message| message.mtype).collect();
    types.sort_unstable();
    assert_eq!(types, [1, 2, 3]);
}

fn a_full_queue_makes_a_sender_wait_though_a_receiver_waits_for_its_type(site: &Site) {
    let queue = site.queue_for(4);
    assert_eq!(queue.send(1, "1234"), Ok(()));
    let receiver = site.blocked(|| queue.receive_waiting(5));
    assert_eq!(queue.send(5, "five"), Err(Errno::EAGAIN));
    let sender = site.blocked(|| queue.send_waiting(5, "five"));
    sender.expect_still_blocked();
    receiver.expect_still_blocked();
    assert_eq!(queue.receive(1), Ok(message(1, "1234")));
    assert_eq!(receiver.result(), Ok(message(5, "five")));
    assert_eq!(sender.result(), Ok(()));
}

fn a_waiting_senders_message_goes_to_a_receiver_that_waits_for_its_type(site: &Site) {
    let queue = site.queue_for(4);
    assert_eq!(queue.send(1, "1234"), Ok(()));
    let sender = site.blocked(|| queue.send_waiting(5, "five"));
    // The blocked sender's message is not in the queue yet: the sender still waits for room.
    assert_eq!(queue.receive(5), Err(Errno::ENOMSG));
    let receiver = site.blocked(|| queue.receive_waiting(5));
    receiver.expect_still_blocked();
    assert_eq!(queue.receive(1), Ok(message(1, "1234")));
    assert_eq!(receiver.result(), Ok(message(5, "five")));
    assert_eq!(sender.result(), Ok(()));
    assert_eq!(queue.counts(), (0, 0));
}

/// Receives this number of messages, and returns their types in ascending order.
fn types(queue: Queue, count: usize) -> Vec<i64> {
    let mut types: Vec<i64> = (0..count)
        .map(|_| queue.receive_waiting(0).expect("a message").mtype)
        .collect();
    types.sort_unstable();
    types
}

fn every_waiting_sender_gets_its_room(site: &Site) {
    let queue = site.queue_for(6);
    assert_eq!(queue.send(1, "123456"), Ok(()));
    let senders: Vec<_> = (2..8)
        .map(|mtype| site.blocked(move || queue.send_waiting(mtype, vec![7; mtype as usize - 1])))
        .collect();
    assert_eq!(types(queue, 7), [1, 2, 3, 4, 5, 6, 7]);
    for sender in senders {
        assert_eq!(sender.result(), Ok(()));
    }
    assert_eq!(queue.counts(), (0, 0));
}

fn a_killed_sender_leaves_nothing(site: &Site) {
    let queue = site.queue_for(5);
    assert_eq!(queue.send(1, "first"), Ok(()));
    site.blocked(|| queue.send_waiting(2, "never")).kill();
    assert_eq!(queue.drain(), [message(1, "first")]);
    assert_eq!(queue.counts(), (0, 0));
    assert_eq!(queue.send(3, "five!"), Ok(()));
}

fn a_killed_sender_does_not_keep_others_waiting(site: &Site) {
    let queue = site.queue_for(5);
    assert_eq!(queue.send(1, "first"), Ok(()));
    let killed = site.blocked(|| queue.send_waiting(2, "never"));
    let other = site.blocked(|| queue.send_waiting(3, "later"));
    killed.kill();
    assert_eq!(queue.receive(0), Ok(message(1, "first")));
    assert_eq!(other.result(), Ok(()));
    assert_eq!(queue.drain(), [message(3, "later")]);
}
