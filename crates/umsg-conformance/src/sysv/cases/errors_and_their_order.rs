//! The error that a call returns if several errors apply.

use libc::{IPC_NOWAIT, IPC_RMID, IPC_SET, IPC_STAT, MSG_NOERROR, MSG_STAT};

use crate::errno::Errno;
use crate::sys::User;
use crate::sysv::backend::{MSG_COPY, Place};
use crate::sysv::site::{LONGEST, Queue, Site, message};

subject_of_sysv! { $ errors_and_their_order, sysv_errors_and_their_order_cases:
    identifiers_that_were_never_given_are_einval
    a_send_of_a_type_below_one_is_einval
    a_send_of_a_negative_size_is_einval
    a_send_from_a_null_pointer_is_efault
    a_send_from_a_null_pointer_is_efault_before_all_else
    a_send_from_where_nothing_is_is_efault
    a_send_of_a_text_that_is_not_there_is_efault
    a_receive_to_where_nothing_is_is_efault_and_loses_the_message
    a_receive_of_a_text_to_where_there_is_no_room_loses_the_message
    a_status_to_where_nothing_is_is_efault
    a_wrong_size_and_a_wrong_type_come_before_a_full_queue
    a_missing_queue_comes_before_a_full_one
    a_missing_permission_comes_before_a_full_queue
    a_wrong_type_comes_before_a_missing_permission
    a_receive_of_a_negative_size_is_einval
    a_receive_from_a_missing_queue_is_einval_whatever_else
    a_missing_permission_comes_before_an_empty_queue
    a_missing_permission_comes_before_a_buffer_that_is_too_small
    wrong_flags_of_a_copy_come_before_a_missing_permission
    a_removed_queue_is_einval_and_not_eidrm
    commands_that_there_are_not_are_einval
    negative_commands_and_identifiers_are_einval
    a_status_to_a_null_pointer_is_efault
    a_status_of_a_missing_queue_is_einval_whatever_the_pointer
    a_change_from_a_null_pointer_is_efault_before_all_else
    a_missing_right_to_change_comes_before_what_is_changed
    a_removal_ignores_its_pointer
    a_failed_call_leaves_the_queue_as_it_was
}

/// Makes each call on the queue with this identifier, and returns the results.
fn every_call(queue: Queue) -> [Result<(), Errno>; 6] {
    let change = crate::sysv::backend::Change {
        uid: 0,
        gid: 0,
        mode: 0o600,
        max_bytes: 100,
    };
    [
        queue.send(1, "x"),
        queue.receive(0).map(drop),
        queue.copy(0).map(drop),
        queue.status().map(drop),
        queue.set(&change),
        queue.remove(),
    ]
}

fn identifiers_that_were_never_given_are_einval(site: &Site) {
    site.need_to_be_alone();
    let queue = site.queue();
    for id in [
        -1,
        -32768,
        i32::MIN,
        i32::MAX,
        queue.id() + 1,
        queue.id() + 32768,
    ] {
        assert_eq!(
            every_call(site.at(id)),
            [Err(Errno::EINVAL); 6],
            "identifier {id}"
        );
    }
}

fn a_send_of_a_type_below_one_is_einval(site: &Site) {
    let queue = site.queue();
    for mtype in [0, -1, i64::MIN] {
        assert_eq!(queue.send(mtype, "x"), Err(Errno::EINVAL), "type {mtype}");
        assert_eq!(queue.send_waiting(mtype, ""), Err(Errno::EINVAL));
    }
    assert_eq!(queue.counts(), (0, 0));
}

/// Sizes that are too large for every message.
const WRONG: [usize; 4] = [usize::MAX, 1 << 63, usize::MAX - 8191, LONGEST + 1];

fn a_send_of_a_negative_size_is_einval(site: &Site) {
    let functions = site.functions();
    let queue = site.queue();
    for size in WRONG {
        let sent = functions.send_at(queue.id(), Place::Good, size, 0);
        assert_eq!(site.ask(sent), Err(Errno::EINVAL), "{size} bytes");
    }
    assert_eq!(queue.counts(), (0, 0));
}

fn a_send_from_a_null_pointer_is_efault(site: &Site) {
    let functions = site.functions();
    let queue = site.queue();
    for size in [0, 1, LONGEST] {
        let sent = functions.send_at(queue.id(), Place::Null, size, 0);
        assert_eq!(site.ask(sent), Err(Errno::EFAULT), "{size} bytes");
    }
    assert_eq!(queue.counts(), (0, 0));
}

fn a_send_from_a_null_pointer_is_efault_before_all_else(site: &Site) {
    let functions = site.functions();
    let queue = site.queue();
    let send = |id, size| site.ask(functions.send_at(id, Place::Null, size, IPC_NOWAIT));
    for size in WRONG {
        assert_eq!(send(queue.id(), size), Err(Errno::EFAULT), "{size} bytes");
    }
    assert_eq!(send(-1, 1), Err(Errno::EFAULT));
    assert_eq!(queue.remove(), Ok(()));
    assert_eq!(send(queue.id(), 1), Err(Errno::EFAULT));
}

fn a_send_from_where_nothing_is_is_efault(site: &Site) {
    site.need_checked_memory();
    let functions = site.functions();
    let queue = site.queue();
    for size in [0, 8] {
        let sent = functions.send_at(queue.id(), Place::Nowhere, size, 0);
        assert_eq!(site.ask(sent), Err(Errno::EFAULT), "{size} bytes");
    }
}

fn a_send_of_a_text_that_is_not_there_is_efault(site: &Site) {
    site.need_checked_memory();
    let functions = site.functions();
    let queue = site.queue();
    let send = |id, size| site.ask(functions.send_at(id, Place::TypeOnly, size, 0));
    assert_eq!(send(queue.id(), 8), Err(Errno::EFAULT));
    assert_eq!(send(-1, 8), Err(Errno::EINVAL));
    assert_eq!(send(queue.id(), LONGEST + 1), Err(Errno::EINVAL));
    assert_eq!(send(queue.id(), 0), Ok(()));
    assert_eq!(queue.drain(), [message(1, "")]);
    assert_eq!(queue.remove(), Ok(()));
    // The kernel reads the text before it searches for the queue. Of all invalid identifiers, only negative ones fail before that read.
    assert_eq!(send(queue.id(), 8), Err(Errno::EFAULT));
}

/// Receives the first of two messages to a bad address. Checks that the first message is lost and the second message stays.
fn receive_in_vain(site: &Site, place: Place) {
    site.need_checked_memory();
    let functions = site.functions();
    let queue = site.queue();
    assert_eq!(queue.send(1, "lost"), Ok(()));
    assert_eq!(queue.send(2, "next"), Ok(()));
    let received = functions.receive_at(queue.id(), place, 8, 0, IPC_NOWAIT);
    assert_eq!(site.ask(received), Err(Errno::EFAULT));
    assert_eq!(queue.drain(), [message(2, "next")]);
}

fn a_receive_to_where_nothing_is_is_efault_and_loses_the_message(site: &Site) {
    receive_in_vain(site, Place::Nowhere);
}

fn a_receive_of_a_text_to_where_there_is_no_room_loses_the_message(site: &Site) {
    receive_in_vain(site, Place::TypeOnly);
}

fn a_status_to_where_nothing_is_is_efault(site: &Site) {
    site.need_checked_memory();
    let functions = site.functions();
    let queue = site.queue();
    for command in [IPC_STAT, IPC_SET, libc::MSG_INFO] {
        let answer = functions.control_at(queue.id(), command, Place::Nowhere);
        assert_eq!(site.ask(answer), Err(Errno::EFAULT), "command {command}");
    }
}

fn a_wrong_size_and_a_wrong_type_come_before_a_full_queue(site: &Site) {
    let queue = site.queue_for(0);
    assert_eq!(queue.send(1, ""), Err(Errno::EAGAIN));
    assert_eq!(queue.send(0, ""), Err(Errno::EINVAL));
    assert_eq!(queue.send_waiting(-1, ""), Err(Errno::EINVAL));
    let long = vec![0; LONGEST + 1];
    assert_eq!(queue.send_waiting(1, long), Err(Errno::EINVAL));
}

fn a_missing_queue_comes_before_a_full_one(site: &Site) {
    let queue = site.queue_for(0);
    assert_eq!(queue.remove(), Ok(()));
    assert_eq!(queue.send(1, ""), Err(Errno::EINVAL));
    assert_eq!(queue.send_waiting(1, ""), Err(Errno::EINVAL));
}

fn a_missing_permission_comes_before_a_full_queue(site: &Site) {
    site.need_root();
    let queue = site.queue_for(0);
    for flags in [IPC_NOWAIT, 0] {
        let sent = site.as_user(User::NOBODY, || queue.send_with(1, "x", flags));
        assert_eq!(sent, Err(Errno::EACCES));
    }
}

fn a_wrong_type_comes_before_a_missing_permission(site: &Site) {
    site.need_root();
    let queue = site.queue();
    let long = vec![0; LONGEST + 1];
    let answers = site.as_user(User::NOBODY, || {
        queue.send(0, "x") == Err(Errno::EINVAL) && queue.send(1, &long) == Err(Errno::EINVAL)
    });
    assert!(answers);
}

fn a_receive_of_a_negative_size_is_einval(site: &Site) {
    let functions = site.functions();
    let queue = site.queue();
    assert_eq!(queue.send(1, "kept"), Ok(()));
    for size in [usize::MAX, 1 << 63, usize::MAX - 8191] {
        for flags in [0, IPC_NOWAIT, MSG_NOERROR, MSG_COPY | IPC_NOWAIT] {
            let received = functions.receive_at(queue.id(), Place::Good, size, 0, flags);
            assert_eq!(site.ask(received), Err(Errno::EINVAL), "{size} bytes");
        }
    }
    assert_eq!(queue.drain(), [message(1, "kept")]);
}

fn a_receive_from_a_missing_queue_is_einval_whatever_else(site: &Site) {
    let queue = site.queue();
    assert_eq!(queue.remove(), Ok(()));
    for flags in [0, IPC_NOWAIT, MSG_NOERROR, libc::MSG_EXCEPT] {
        assert_eq!(queue.receive_with(0, 5, flags), Err(Errno::EINVAL));
        assert_eq!(site.at(-1).receive_with(0, 5, flags), Err(Errno::EINVAL));
    }
}

fn a_missing_permission_comes_before_an_empty_queue(site: &Site) {
    site.need_root();
    let queue = site.queue_of_mode(0o622);
    for flags in [IPC_NOWAIT, 0] {
        let received = site.as_user(User::NOBODY, || queue.receive_with(9, 0, flags));
        assert_eq!(received, Err(Errno::EACCES));
    }
}

fn a_missing_permission_comes_before_a_buffer_that_is_too_small(site: &Site) {
    site.need_root();
    let queue = site.queue_of_mode(0o622);
    assert_eq!(queue.send(1, "long"), Ok(()));
    let received = site.as_user(User::NOBODY, || queue.receive_with(1, 0, 0));
    assert_eq!(received, Err(Errno::EACCES));
}

fn wrong_flags_of_a_copy_come_before_a_missing_permission(site: &Site) {
    site.need_root();
    let queue = site.queue();
    let copy = |flags| site.as_user(User::NOBODY, || queue.receive_with(1, 0, flags));
    assert_eq!(copy(MSG_COPY), Err(Errno::EINVAL));
    assert_eq!(copy(MSG_COPY | IPC_NOWAIT), Err(Errno::EACCES));
}

fn a_removed_queue_is_einval_and_not_eidrm(site: &Site) {
    let queue = site.queue();
    assert_eq!(queue.send(1, "x"), Ok(()));
    assert_eq!(queue.remove(), Ok(()));
    assert_eq!(every_call(queue), [Err(Errno::EINVAL); 6]);
    let elsewhere = site.child(|| every_call(queue) == [Err(Errno::EINVAL); 6]);
    assert!(elsewhere.result());
}

fn commands_that_there_are_not_are_einval(site: &Site) {
    let functions = site.functions();
    let queue = site.queue();
    for command in [4, 10, 14, 99, 0x100, 0x102, i32::MAX] {
        let answer = functions.control_at(queue.id(), command, Place::Good);
        assert_eq!(site.ask(answer), Err(Errno::EINVAL), "command {command}");
    }
}

fn negative_commands_and_identifiers_are_einval(site: &Site) {
    let functions = site.functions();
    let queue = site.queue();
    for command in [-1, i32::MIN] {
        let answer = functions.control_at(queue.id(), command, Place::Good);
        assert_eq!(site.ask(answer), Err(Errno::EINVAL), "command {command}");
    }
    let commands = [IPC_STAT, IPC_SET, IPC_RMID, MSG_STAT, libc::MSG_INFO, 3];
    for command in commands {
        let answer = functions.control_at(-1, command, Place::Good);
        assert_eq!(site.ask(answer), Err(Errno::EINVAL), "command {command}");
    }
}

fn a_status_to_a_null_pointer_is_efault(site: &Site) {
    let functions = site.functions();
    let queue = site.queue();
    let control = |id, command| site.ask(functions.control_at(id, command, Place::Null));
    assert_eq!(control(queue.id(), IPC_STAT), Err(Errno::EFAULT));
    let index = queue.id() % crate::sysv::backend::INDICES;
    assert_eq!(control(index, MSG_STAT), Err(Errno::EFAULT));
    assert_eq!(control(0, libc::MSG_INFO), Err(Errno::EFAULT));
    assert_eq!(
        control(0, crate::sysv::backend::IPC_INFO),
        Err(Errno::EFAULT)
    );
}

fn a_status_of_a_missing_queue_is_einval_whatever_the_pointer(site: &Site) {
    let functions = site.functions();
    let queue = site.queue();
    assert_eq!(queue.remove(), Ok(()));
    let answer = functions.control_at(queue.id(), IPC_STAT, Place::Null);
    assert_eq!(site.ask(answer), Err(Errno::EINVAL));
}

fn a_change_from_a_null_pointer_is_efault_before_all_else(site: &Site) {
    let functions = site.functions();
    let queue = site.queue();
    let set = |id| site.ask(functions.control_at(id, IPC_SET, Place::Null));
    assert_eq!(set(queue.id()), Err(Errno::EFAULT));
    assert_eq!(queue.remove(), Ok(()));
    assert_eq!(set(queue.id()), Err(Errno::EFAULT));
}

fn a_missing_right_to_change_comes_before_what_is_changed(site: &Site) {
    site.need_root();
    let queue = site.queue_of_mode(0o666);
    let set = site.as_user(User::NOBODY, || {
        queue.alter(|change| {
            change.uid = u32::MAX;
            change.max_bytes = u64::MAX;
        })
    });
    assert_eq!(set, Err(Errno::EPERM));
}

fn a_removal_ignores_its_pointer(site: &Site) {
    let functions = site.functions();
    let queue = site.queue();
    let removed = functions.control_at(queue.id(), IPC_RMID, Place::Nowhere);
    assert_eq!(site.ask(removed), Ok(0));
    assert_eq!(queue.status(), Err(Errno::EINVAL));
}

fn a_failed_call_leaves_the_queue_as_it_was(site: &Site) {
    let queue = site.queue_for(10);
    assert_eq!(queue.send(4, "12345678"), Ok(()));
    let before = queue.status();
    assert_eq!(queue.send(1, "too long"), Err(Errno::EAGAIN));
    assert_eq!(queue.send(0, "x"), Err(Errno::EINVAL));
    assert_eq!(queue.receive(5), Err(Errno::ENOMSG));
    assert_eq!(queue.receive_with(2, 0, IPC_NOWAIT), Err(Errno::E2BIG));
    assert_eq!(queue.copy(1), Err(Errno::ENOMSG));
    let set = queue.alter(|change| change.uid = u32::MAX);
    assert_eq!(set, Err(Errno::EINVAL));
    assert_eq!(queue.status(), before);
    assert_eq!(queue.drain(), [message(4, "12345678")]);
}
