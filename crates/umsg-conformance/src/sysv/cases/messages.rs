//! Messages: sizes, buffers, order and contents.

use libc::{IPC_NOWAIT, MSG_EXCEPT, MSG_NOERROR};

use crate::errno::Errno;
use crate::sysv::backend::{MSG_COPY, Place};
use crate::sysv::site::{LONGEST, Site, message};

subject_of_sysv! { $ messages, messages_cases:
    a_message_comes_back_with_its_type_and_bytes
    messages_come_in_the_order_in_which_they_were_sent
    messages_of_every_length_come_back_whole
    a_message_without_a_text_is_a_message
    the_longest_message_is_msgmax
    one_byte_more_than_msgmax_is_einval
    a_receive_buffer_may_be_longer_than_msgmax
    the_rest_of_the_buffer_is_left_alone
    a_message_too_long_for_the_buffer_is_e2big_and_stays
    e2big_is_for_the_first_message_that_matches_only
    msg_noerror_cuts_the_message_and_drops_the_rest
    msg_noerror_leaves_a_short_message_as_it_is
    a_buffer_of_no_bytes_takes_a_message_without_a_text
    msg_noerror_and_no_bytes_take_the_type_of_any_message
    an_empty_queue_is_enomsg
    flags_that_mean_nothing_are_ignored
    every_type_from_one_to_the_highest_can_be_sent
    messages_of_many_processes_all_arrive
    thousands_of_messages_come_back_in_order
    a_message_to_a_null_pointer_is_lost
}

fn a_message_comes_back_with_its_type_and_bytes(site: &Site) {
    let queue = site.queue();
    assert_eq!(queue.send(42, "hello"), Ok(()));
    assert_eq!(queue.receive(0), Ok(message(42, "hello")));
    assert_eq!(queue.counts(), (0, 0));
}

fn messages_come_in_the_order_in_which_they_were_sent(site: &Site) {
    let queue = site.queue();
    for (at, mtype) in (0_u8..).zip([5, 3, 9, 3, 1, 5]) {
        assert_eq!(queue.send(mtype, [at]), Ok(()));
    }
    let order: Vec<u8> = queue
        .drain()
        .iter()
        .map(|message| message.text[0])
        .collect();
    assert_eq!(order, [0, 1, 2, 3, 4, 5]);
}

/// Returns bytes that differ for each length.
fn text(length: usize) -> Vec<u8> {
    (0..length)
        .map(|at| (at * 7 + length + at / 251) as u8)
        .collect()
}

fn messages_of_every_length_come_back_whole(site: &Site) {
    let queue = site.queue();
    for length in (0..600).chain((600..=LONGEST).step_by(97)).chain([LONGEST]) {
        assert_eq!(queue.send(1, text(length)), Ok(()), "{length} bytes");
        assert_eq!(queue.receive(0), Ok(message(1, text(length))));
    }
}

fn a_message_without_a_text_is_a_message(site: &Site) {
    let queue = site.queue();
    assert_eq!(queue.send(3, ""), Ok(()));
    assert_eq!(queue.counts(), (1, 0));
    assert_eq!(queue.receive(3), Ok(message(3, "")));
    assert_eq!(queue.receive(3), Err(Errno::ENOMSG));
}

fn the_longest_message_is_msgmax(site: &Site) {
    let queue = site.queue();
    assert_eq!(queue.send(1, text(LONGEST)), Ok(()));
    assert_eq!(queue.send(2, text(LONGEST)), Ok(()));
    assert_eq!(queue.counts(), (2, 2 * LONGEST as u64));
    assert_eq!(queue.receive(2), Ok(message(2, text(LONGEST))));
    assert_eq!(queue.receive(1), Ok(message(1, text(LONGEST))));
}

fn one_byte_more_than_msgmax_is_einval(site: &Site) {
    let queue = site.queue();
    for length in [LONGEST + 1, 10 * LONGEST] {
        assert_eq!(queue.send(1, text(length)), Err(Errno::EINVAL));
        assert_eq!(queue.send_waiting(1, text(length)), Err(Errno::EINVAL));
    }
    assert_eq!(queue.counts(), (0, 0));
}

fn a_receive_buffer_may_be_longer_than_msgmax(site: &Site) {
    let queue = site.queue();
    for size in [LONGEST + 1, 100_000] {
        assert_eq!(queue.receive_with(size, 0, IPC_NOWAIT), Err(Errno::ENOMSG));
        assert_eq!(queue.send(1, "short"), Ok(()));
        let copied = queue.receive_with(size, 0, IPC_NOWAIT | MSG_COPY);
        assert_eq!(copied, Ok(message(1, "short")));
        let received = queue.receive_with(size, 0, IPC_NOWAIT);
        assert_eq!(received, Ok(message(1, "short")));
    }
}

fn the_rest_of_the_buffer_is_left_alone(site: &Site) {
    let queue = site.queue();
    let receive = |flags| {
        let mut buffer = *b"..........";
        let received = site.backend().receive(queue.id(), &mut buffer, 0, flags);
        (site.ask(received), buffer)
    };
    assert_eq!(queue.send(1, "four"), Ok(()));
    let copied = receive(IPC_NOWAIT | MSG_COPY);
    assert_eq!(copied, (Ok((4, 1)), *b"four......"));
    assert_eq!(receive(IPC_NOWAIT), (Ok((4, 1)), *b"four......"));
    assert_eq!(receive(IPC_NOWAIT), (Err(Errno::ENOMSG), *b".........."));
    assert_eq!(queue.send(1, "twelve bytes"), Ok(()));
    assert_eq!(receive(IPC_NOWAIT), (Err(Errno::E2BIG), *b".........."));
    let cut = receive(IPC_NOWAIT | MSG_NOERROR);
    assert_eq!(cut, (Ok((10, 1)), *b"twelve byt"));
}

fn a_message_too_long_for_the_buffer_is_e2big_and_stays(site: &Site) {
    let queue = site.queue();
    assert_eq!(queue.send(1, "four"), Ok(()));
    for _ in 0..3 {
        assert_eq!(queue.receive_with(3, 0, IPC_NOWAIT), Err(Errno::E2BIG));
        assert_eq!(queue.receive_with(3, 0, 0), Err(Errno::E2BIG));
        assert_eq!(queue.receive_with(0, 1, IPC_NOWAIT), Err(Errno::E2BIG));
    }
    assert_eq!(queue.counts(), (1, 4));
    assert_eq!(queue.status().expect("its status").received, 0);
    let received = queue.receive_with(4, 0, IPC_NOWAIT);
    assert_eq!(received, Ok(message(1, "four")));
}

fn e2big_is_for_the_first_message_that_matches_only(site: &Site) {
    let queue = site.queue();
    assert_eq!(queue.send(1, "long"), Ok(()));
    assert_eq!(queue.send(2, "ab"), Ok(()));
    let receive = |mtype, flags| queue.receive_with(2, mtype, flags | IPC_NOWAIT);
    assert_eq!(receive(0, 0), Err(Errno::E2BIG));
    assert_eq!(receive(-2, 0), Err(Errno::E2BIG));
    assert_eq!(receive(2, MSG_EXCEPT), Err(Errno::E2BIG));
    assert_eq!(receive(2, 0), Ok(message(2, "ab")));
    assert_eq!(queue.receive(0), Ok(message(1, "long")));
}

fn msg_noerror_cuts_the_message_and_drops_the_rest(site: &Site) {
    let queue = site.queue();
    for length in [100, 5000] {
        assert_eq!(queue.send(1, text(length)), Ok(()));
        assert_eq!(queue.send(2, "next"), Ok(()));
        let cut = queue.receive_with(10, 0, IPC_NOWAIT | MSG_NOERROR);
        assert_eq!(cut, Ok(message(1, &text(length)[..10])));
        assert_eq!(queue.counts(), (1, 4));
        assert_eq!(queue.drain(), [message(2, "next")]);
    }
}

fn msg_noerror_leaves_a_short_message_as_it_is(site: &Site) {
    let queue = site.queue();
    assert_eq!(queue.send(1, "four"), Ok(()));
    let received = queue.receive_with(4, 0, IPC_NOWAIT | MSG_NOERROR);
    assert_eq!(received, Ok(message(1, "four")));
}

fn a_buffer_of_no_bytes_takes_a_message_without_a_text(site: &Site) {
    let queue = site.queue();
    assert_eq!(queue.send(1, ""), Ok(()));
    assert_eq!(queue.receive_with(0, 0, IPC_NOWAIT), Ok(message(1, "")));
}

fn msg_noerror_and_no_bytes_take_the_type_of_any_message(site: &Site) {
    let queue = site.queue();
    assert_eq!(queue.send(77, "dropped"), Ok(()));
    let received = queue.receive_with(0, 0, IPC_NOWAIT | MSG_NOERROR);
    assert_eq!(received, Ok(message(77, "")));
    assert_eq!(queue.counts(), (0, 0));
}

fn an_empty_queue_is_enomsg(site: &Site) {
    let queue = site.queue();
    for mtype in [0, 1, -1, i64::MAX, i64::MIN] {
        assert_eq!(queue.receive(mtype), Err(Errno::ENOMSG), "type {mtype}");
        let cut = queue.receive_with(0, mtype, IPC_NOWAIT | MSG_NOERROR | MSG_EXCEPT);
        assert_eq!(cut, Err(Errno::ENOMSG), "type {mtype}");
    }
}

fn flags_that_mean_nothing_are_ignored(site: &Site) {
    let queue = site.queue();
    let odd = !(MSG_NOERROR | MSG_EXCEPT | MSG_COPY);
    assert_eq!(queue.send_with(1, "one", -1), Ok(()));
    assert_eq!(queue.send_with(2, "two", odd), Ok(()));
    assert_eq!(queue.receive_with(10, 0, odd), Ok(message(1, "one")));
    assert_eq!(queue.receive_with(10, 0, odd), Ok(message(2, "two")));
    assert_eq!(queue.receive_with(10, 0, odd), Err(Errno::ENOMSG));
}

fn every_type_from_one_to_the_highest_can_be_sent(site: &Site) {
    let queue = site.queue();
    for mtype in [1, 2, 1 << 31, 1 << 32, i64::MAX - 1, i64::MAX] {
        assert_eq!(queue.send(mtype, "x"), Ok(()));
        assert_eq!(queue.receive(mtype), Ok(message(mtype, "x")));
    }
}

fn messages_of_many_processes_all_arrive(site: &Site) {
    const EACH: u32 = 500;
    let queue = site.queue_for(400);
    let senders: Vec<_> = (1..=4)
        .map(|sender| {
            site.child(move || {
                (0..EACH).all(|number| queue.send_waiting(sender, number.to_le_bytes()).is_ok())
            })
        })
        .collect();
    let mut next = [0; 4];
    for _ in 0..4 * EACH {
        let got = queue.receive_waiting(0).expect("a message");
        let of_sender = &mut next[got.mtype as usize - 1];
        assert_eq!(got.text, u32::to_le_bytes(*of_sender));
        *of_sender += 1;
    }
    assert_eq!(next, [EACH; 4]);
    assert!(senders.into_iter().all(|sender| sender.result()));
    assert_eq!(queue.counts(), (0, 0));
}

fn thousands_of_messages_come_back_in_order(site: &Site) {
    const COUNT: u32 = 4000;
    let queue = site.queue();
    for round in 0..2 {
        for number in 0..COUNT {
            let mtype = 1 + i64::from((number + round) % 7);
            assert_eq!(queue.send(mtype, number.to_le_bytes()), Ok(()));
        }
        assert_eq!(queue.counts(), (COUNT.into(), (4 * COUNT).into()));
        for number in 0..COUNT {
            let mtype = 1 + i64::from((number + round) % 7);
            assert_eq!(queue.receive(0), Ok(message(mtype, number.to_le_bytes())));
        }
    }
}

fn a_message_to_a_null_pointer_is_lost(site: &Site) {
    let functions = site.functions();
    let queue = site.queue();
    assert_eq!(queue.send(1, "lost"), Ok(()));
    assert_eq!(queue.send(2, "next"), Ok(()));
    let received = functions.receive_at(queue.id(), Place::Null, 10, 0, IPC_NOWAIT);
    assert_eq!(site.ask(received), Err(Errno::EFAULT));
    assert_eq!(queue.drain(), [message(2, "next")]);
    let received = functions.receive_at(queue.id(), Place::Null, 10, 0, IPC_NOWAIT);
    assert_eq!(site.ask(received), Err(Errno::ENOMSG));
}
