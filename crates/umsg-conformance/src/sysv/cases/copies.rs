//! `MSG_COPY` copies the message at a position, and leaves the message in the queue.

use libc::{IPC_NOWAIT, MSG_EXCEPT, MSG_NOERROR};

use crate::errno::Errno;
use crate::sysv::backend::{MSG_COPY, Place};
use crate::sysv::site::{LONGEST, Queue, Site, message};

subject_of_sysv! { $ copies, copies_cases:
    a_copy_is_the_message_at_a_place
    a_copy_leaves_the_queue_as_it_is
    a_place_beyond_the_last_is_enomsg
    a_negative_place_is_enomsg
    without_ipc_nowait_it_is_einval
    with_msg_except_it_is_einval
    a_buffer_that_is_too_small_is_e2big
    a_buffer_that_is_too_small_with_msg_noerror_is_einval
    msg_noerror_does_nothing_to_a_message_that_fits
    a_message_without_a_text_can_be_copied
    a_copy_needs_an_identifier
    wrong_flags_come_before_a_wrong_identifier
    a_buffer_for_the_longest_message_copies_every_message
    places_follow_what_is_taken_from_the_middle
    a_null_pointer_is_efault_whether_there_is_a_message_or_not
    a_copy_goes_on_working_on_a_full_queue
}

/// Creates a queue with three messages.
fn queue_of_three(site: &Site) -> Queue<'_> {
    let queue = site.queue();
    for (mtype, text) in [(3, "first"), (1, "second"), (2, "third")] {
        assert_eq!(queue.send(mtype, text), Ok(()));
    }
    queue
}

fn a_copy_is_the_message_at_a_place(site: &Site) {
    let queue = queue_of_three(site);
    assert_eq!(queue.copy(1), Ok(message(1, "second")));
    assert_eq!(queue.copy(0), Ok(message(3, "first")));
    assert_eq!(queue.copy(2), Ok(message(2, "third")));
    assert_eq!(queue.copy(1), Ok(message(1, "second")));
}

fn a_copy_leaves_the_queue_as_it_is(site: &Site) {
    let queue = queue_of_three(site);
    let before = queue.status();
    assert_eq!(queue.messages().len(), 3);
    assert_eq!(queue.status(), before);
    assert_eq!(before.expect("its status").last_receiver, 0);
    let rest = [
        message(3, "first"),
        message(1, "second"),
        message(2, "third"),
    ];
    assert_eq!(queue.drain(), rest);
}

fn a_place_beyond_the_last_is_enomsg(site: &Site) {
    let queue = queue_of_three(site);
    for at in [3, 4, 1000, i64::MAX] {
        assert_eq!(queue.copy(at), Err(Errno::ENOMSG), "place {at}");
    }
    assert_eq!(site.queue().copy(0), Err(Errno::ENOMSG));
}

fn a_negative_place_is_enomsg(site: &Site) {
    let queue = queue_of_three(site);
    for at in [-1, -3, i64::MIN] {
        assert_eq!(queue.copy(at), Err(Errno::ENOMSG), "place {at}");
    }
}

fn without_ipc_nowait_it_is_einval(site: &Site) {
    let queue = queue_of_three(site);
    assert_eq!(queue.receive_with(LONGEST, 0, MSG_COPY), Err(Errno::EINVAL));
    let flags = MSG_COPY | MSG_NOERROR;
    assert_eq!(queue.receive_with(LONGEST, 0, flags), Err(Errno::EINVAL));
    assert_eq!(queue.receive_with(LONGEST, 9, MSG_COPY), Err(Errno::EINVAL));
}

fn with_msg_except_it_is_einval(site: &Site) {
    let queue = queue_of_three(site);
    for flags in [MSG_EXCEPT, MSG_EXCEPT | IPC_NOWAIT] {
        let copied = queue.receive_with(LONGEST, 0, MSG_COPY | flags);
        assert_eq!(copied, Err(Errno::EINVAL));
    }
}

fn a_buffer_that_is_too_small_is_e2big(site: &Site) {
    let queue = queue_of_three(site);
    for size in [0, 1, 4] {
        let copied = queue.receive_with(size, 0, MSG_COPY | IPC_NOWAIT);
        assert_eq!(copied, Err(Errno::E2BIG));
    }
    let copied = queue.receive_with(5, 0, MSG_COPY | IPC_NOWAIT);
    assert_eq!(copied, Ok(message(3, "first")));
}

fn a_buffer_that_is_too_small_with_msg_noerror_is_einval(site: &Site) {
    let queue = queue_of_three(site);
    let flags = MSG_COPY | IPC_NOWAIT | MSG_NOERROR;
    for size in [0, 1, 4] {
        assert_eq!(queue.receive_with(size, 0, flags), Err(Errno::EINVAL));
    }
    assert_eq!(queue.receive_with(4, 3, flags), Err(Errno::ENOMSG));
    assert_eq!(queue.counts().0, 3);
}

fn msg_noerror_does_nothing_to_a_message_that_fits(site: &Site) {
    let queue = queue_of_three(site);
    let flags = MSG_COPY | IPC_NOWAIT | MSG_NOERROR;
    assert_eq!(queue.receive_with(5, 0, flags), Ok(message(3, "first")));
}

fn a_message_without_a_text_can_be_copied(site: &Site) {
    let queue = site.queue();
    assert_eq!(queue.send(8, ""), Ok(()));
    let copied = queue.receive_with(0, 0, MSG_COPY | IPC_NOWAIT);
    assert_eq!(copied, Ok(message(8, "")));
    assert_eq!(queue.counts(), (1, 0));
}

fn a_copy_needs_an_identifier(site: &Site) {
    let queue = site.queue();
    assert_eq!(queue.remove(), Ok(()));
    assert_eq!(queue.copy(0), Err(Errno::EINVAL));
    assert_eq!(site.at(-1).copy(0), Err(Errno::EINVAL));
}

fn wrong_flags_come_before_a_wrong_identifier(site: &Site) {
    // Wrong flags and a wrong identifier have the same errno. So the test shows only that calls with wrong flags fail without waiting.
    let queue = site.queue();
    assert_eq!(queue.receive_with(1, 0, MSG_COPY), Err(Errno::EINVAL));
    let flags = MSG_COPY | MSG_EXCEPT;
    assert_eq!(queue.receive_with(1, 5, flags), Err(Errno::EINVAL));
}

fn a_buffer_for_the_longest_message_copies_every_message(site: &Site) {
    let queue = site.queue();
    let text: Vec<u8> = (0..LONGEST).map(|at| (at / 3) as u8).collect();
    assert_eq!(queue.send(1, &text), Ok(()));
    assert_eq!(queue.copy(0), Ok(message(1, &text)));
    let copied = queue.receive_with(50_000, 0, MSG_COPY | IPC_NOWAIT);
    assert_eq!(copied, Ok(message(1, &text)));
}

fn places_follow_what_is_taken_from_the_middle(site: &Site) {
    let queue = queue_of_three(site);
    assert_eq!(queue.receive(1), Ok(message(1, "second")));
    assert_eq!(queue.copy(1), Ok(message(2, "third")));
    assert_eq!(queue.send(1, "fourth"), Ok(()));
    assert_eq!(queue.copy(2), Ok(message(1, "fourth")));
    assert_eq!(queue.receive(0), Ok(message(3, "first")));
    assert_eq!(queue.copy(0), Ok(message(2, "third")));
    assert_eq!(queue.copy(2), Err(Errno::ENOMSG));
}

fn a_null_pointer_is_efault_whether_there_is_a_message_or_not(site: &Site) {
    let functions = site.functions();
    let queue = site.queue();
    let flags = MSG_COPY | IPC_NOWAIT;
    let copy = || site.ask(functions.receive_at(queue.id(), Place::Null, 10, 0, flags));
    assert_eq!(copy(), Err(Errno::EFAULT));
    assert_eq!(queue.send(1, "kept"), Ok(()));
    assert_eq!(copy(), Err(Errno::EFAULT));
    assert_eq!(queue.drain(), [message(1, "kept")]);
}

fn a_copy_goes_on_working_on_a_full_queue(site: &Site) {
    let queue = site.queue_for(8);
    assert_eq!(queue.send(1, "12345678"), Ok(()));
    assert_eq!(queue.send(1, "9"), Err(Errno::EAGAIN));
    assert_eq!(queue.copy(0), Ok(message(1, "12345678")));
    assert_eq!(queue.send(1, "9"), Err(Errno::EAGAIN));
}
