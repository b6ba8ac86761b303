//! The message that a receive takes: a message of any type, of one type, of the lowest type up to a limit, or of all types except one.

use libc::{IPC_NOWAIT, MSG_EXCEPT, MSG_NOERROR};

use crate::errno::Errno;
use crate::sysv::site::{LONGEST, Message, Queue, Site, message};

subject_of_sysv! { $ types, types_cases:
    zero_takes_the_first_message
    a_type_takes_the_first_message_of_that_type
    a_type_that_is_not_there_is_enomsg
    a_negative_type_takes_the_lowest_up_to_it
    among_the_lowest_the_first_comes_first
    a_negative_type_below_all_is_enomsg
    the_lowest_number_of_all_takes_the_lowest_type
    minus_one_takes_type_one_only
    msg_except_takes_the_first_of_another_type
    msg_except_without_another_type_is_enomsg
    msg_except_of_zero_takes_the_first_message
    msg_except_of_a_negative_type_takes_the_lowest
    the_highest_type_is_a_type_like_others
    taking_from_the_middle_keeps_the_order_of_the_rest
    many_types_come_by_type_and_in_order
    negative_types_sort_many_types
}

/// Creates a queue with messages of these types. The text of each message is its position.
fn queue_of<'a>(site: &'a Site, types: &[i64]) -> Queue<'a> {
    let queue = site.queue();
    for (at, &mtype) in types.iter().enumerate() {
        assert_eq!(queue.send(mtype, at.to_string()), Ok(()));
    }
    queue
}

fn except(queue: Queue, mtype: i64) -> Result<Message, Errno> {
    queue.receive_with(LONGEST, mtype, MSG_EXCEPT | IPC_NOWAIT)
}

fn zero_takes_the_first_message(site: &Site) {
    let queue = queue_of(site, &[9, 1, 5]);
    for expected in [message(9, "0"), message(1, "1"), message(5, "2")] {
        assert_eq!(queue.receive(0), Ok(expected));
    }
}

fn a_type_takes_the_first_message_of_that_type(site: &Site) {
    let queue = queue_of(site, &[9, 1, 5, 1, 9]);
    assert_eq!(queue.receive(1), Ok(message(1, "1")));
    assert_eq!(queue.receive(1), Ok(message(1, "3")));
    assert_eq!(queue.receive(9), Ok(message(9, "0")));
    assert_eq!(queue.receive(5), Ok(message(5, "2")));
    assert_eq!(queue.receive(9), Ok(message(9, "4")));
}

fn a_type_that_is_not_there_is_enomsg(site: &Site) {
    let queue = queue_of(site, &[9, 1]);
    for mtype in [2, 8, 10, i64::MAX] {
        assert_eq!(queue.receive(mtype), Err(Errno::ENOMSG));
    }
    assert_eq!(queue.counts().0, 2);
}

fn a_negative_type_takes_the_lowest_up_to_it(site: &Site) {
    let queue = queue_of(site, &[9, 4, 7, 2]);
    assert_eq!(queue.receive(-7), Ok(message(2, "3")));
    assert_eq!(queue.receive(-7), Ok(message(4, "1")));
    assert_eq!(queue.receive(-7), Ok(message(7, "2")));
    assert_eq!(queue.receive(-7), Err(Errno::ENOMSG));
    assert_eq!(queue.receive(-9), Ok(message(9, "0")));
}

fn among_the_lowest_the_first_comes_first(site: &Site) {
    let queue = queue_of(site, &[3, 2, 2, 3, 2]);
    let texts: Vec<Vec<u8>> = (0..5)
        .map(|_| queue.receive(-3).expect("a message").text)
        .collect();
    assert_eq!(texts, [b"1", b"2", b"4", b"0", b"3"]);
}

fn a_negative_type_below_all_is_enomsg(site: &Site) {
    let queue = queue_of(site, &[5, 4]);
    assert_eq!(queue.receive(-3), Err(Errno::ENOMSG));
    assert_eq!(queue.receive(-4), Ok(message(4, "1")));
}

fn the_lowest_number_of_all_takes_the_lowest_type(site: &Site) {
    let queue = queue_of(site, &[i64::MAX, 6, i64::MAX]);
    for lowest in [i64::MIN, i64::MIN + 1] {
        assert_eq!(queue.send(5, "five"), Ok(()));
        assert_eq!(queue.receive(lowest), Ok(message(5, "five")));
    }
    assert_eq!(queue.receive(i64::MIN), Ok(message(6, "1")));
    assert_eq!(queue.receive(i64::MIN + 2), Err(Errno::ENOMSG));
    assert_eq!(queue.receive(i64::MIN + 1), Ok(message(i64::MAX, "0")));
    assert_eq!(queue.receive(i64::MIN), Ok(message(i64::MAX, "2")));
}

fn minus_one_takes_type_one_only(site: &Site) {
    let queue = queue_of(site, &[2, 1, 2]);
    assert_eq!(queue.receive(-1), Ok(message(1, "1")));
    assert_eq!(queue.receive(-1), Err(Errno::ENOMSG));
}

fn msg_except_takes_the_first_of_another_type(site: &Site) {
    let queue = queue_of(site, &[1, 1, 3, 2, 1]);
    assert_eq!(except(queue, 1), Ok(message(3, "2")));
    assert_eq!(except(queue, 1), Ok(message(2, "3")));
    assert_eq!(except(queue, 1), Err(Errno::ENOMSG));
    assert_eq!(except(queue, 9), Ok(message(1, "0")));
}

fn msg_except_without_another_type_is_enomsg(site: &Site) {
    let queue = queue_of(site, &[4, 4]);
    assert_eq!(except(queue, 4), Err(Errno::ENOMSG));
    assert_eq!(except(queue, 5), Ok(message(4, "0")));
}

fn msg_except_of_zero_takes_the_first_message(site: &Site) {
    let queue = queue_of(site, &[4, 2]);
    assert_eq!(except(queue, 0), Ok(message(4, "0")));
    assert_eq!(except(queue, 0), Ok(message(2, "1")));
}

fn msg_except_of_a_negative_type_takes_the_lowest(site: &Site) {
    let queue = queue_of(site, &[4, 2]);
    assert_eq!(except(queue, -4), Ok(message(2, "1")));
    assert_eq!(except(queue, -4), Ok(message(4, "0")));
    assert_eq!(except(queue, -4), Err(Errno::ENOMSG));
}

fn the_highest_type_is_a_type_like_others(site: &Site) {
    let queue = queue_of(site, &[i64::MAX, 1]);
    assert_eq!(except(queue, i64::MAX), Ok(message(1, "1")));
    assert_eq!(except(queue, i64::MAX), Err(Errno::ENOMSG));
    assert_eq!(queue.receive(-i64::MAX), Ok(message(i64::MAX, "0")));
}

fn taking_from_the_middle_keeps_the_order_of_the_rest(site: &Site) {
    let queue = queue_of(site, &[1, 2, 3, 2, 1, 3]);
    assert_eq!(queue.receive(2), Ok(message(2, "1")));
    assert_eq!(queue.receive(-2), Ok(message(1, "0")));
    assert_eq!(except(queue, 3), Ok(message(2, "3")));
    assert_eq!(queue.send(1, "new"), Ok(()));
    let rest = [
        message(3, "2"),
        message(1, "4"),
        message(3, "5"),
        message(1, "new"),
    ];
    assert_eq!(queue.messages(), rest);
    assert_eq!(queue.drain(), rest);
}

fn many_types_come_by_type_and_in_order(site: &Site) {
    let types: Vec<i64> = (0..1000).map(|at| 1 + (at * 37) % 250).collect();
    let queue = queue_of(site, &types);
    for mtype in (1..=250).rev() {
        let expected: Vec<usize> = (0..types.len()).filter(|&at| types[at] == mtype).collect();
        for at in expected {
            assert_eq!(queue.receive(mtype), Ok(message(mtype, at.to_string())));
        }
        assert_eq!(queue.receive(mtype), Err(Errno::ENOMSG));
    }
    assert_eq!(queue.counts(), (0, 0));
}

fn negative_types_sort_many_types(site: &Site) {
    let types: Vec<i64> = (0..700).map(|at| 1 + (at * 611) % 300).collect();
    let queue = queue_of(site, &types);
    let mut sorted: Vec<(i64, usize)> = types.iter().copied().zip(0..).collect();
    sorted.sort_unstable();
    for (mtype, at) in sorted {
        let received = queue.receive_with(9, -300, IPC_NOWAIT | MSG_NOERROR);
        assert_eq!(received, Ok(message(mtype, at.to_string())));
    }
}
