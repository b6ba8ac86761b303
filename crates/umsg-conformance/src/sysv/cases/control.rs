//! `msgctl` inspects and removes queues: every field, by identifier and by index.

use libc::{IPC_NOWAIT, IPC_STAT, MSG_STAT};

use crate::errno::Errno;
use crate::sys::{self, User};
use crate::sysv::backend::{INDICES, MSG_STAT_ANY, Status};
use crate::sysv::site::{CAPACITY, Queue, Site, message};

subject_of_sysv! { $ control, control_cases:
    a_new_queue_names_its_creator_and_shows_no_activity
    a_queue_of_another_user_says_so
    counts_follow_every_send_and_receive
    the_times_are_those_of_the_last_send_and_receive
    the_last_sender_and_receiver_are_named
    a_message_handed_over_counts_as_sent_and_received
    a_copy_and_a_failed_receive_change_nothing
    a_waiting_sender_is_named_when_its_message_is_in
    ipc_stat_returns_zero
    msg_stat_takes_an_index_and_returns_the_identifier
    msg_stat_takes_an_identifier_for_its_index
    msg_stat_of_a_free_index_is_einval
    msg_stat_any_says_the_same
    the_status_is_the_same_for_every_process
    a_removed_queue_takes_its_messages_along
    removing_twice_is_einval
    removal_of_one_queue_leaves_others_alone
}

fn status(queue: Queue) -> Status {
    queue.status().expect("its status")
}

/// Returns whether a time is close to the present time. The tolerance allows for slow machines.
fn is_now(time: i64) -> bool {
    let now = sys::from_now(0).tv_sec;
    (now - 60..=now + 1).contains(&time)
}

fn a_new_queue_names_its_creator_and_shows_no_activity(site: &Site) {
    let (key, queue) = site.queue_with_key(0o641);
    let Status {
        uid,
        gid,
        creator_uid,
        creator_gid,
        changed,
        ..
    } = status(queue);
    assert_eq!((uid, gid), (creator_uid, creator_gid));
    assert_eq!((uid, gid), (sys::user().uid, sys::user().gid));
    assert!(is_now(changed), "{changed}");
    let expected = Status {
        key,
        uid,
        gid,
        creator_uid,
        creator_gid,
        mode: 0o641,
        sequence: (queue.id() / INDICES) as u32,
        sent: 0,
        received: 0,
        changed,
        bytes: 0,
        messages: 0,
        max_bytes: CAPACITY,
        last_sender: 0,
        last_receiver: 0,
    };
    assert_eq!(status(queue), expected);
}

fn a_queue_of_another_user_says_so(site: &Site) {
    let id = site.as_user(User::NOBODY, || i64::from(site.queue().id()));
    let Status {
        uid,
        gid,
        creator_uid,
        creator_gid,
        ..
    } = status(site.at(id as i32));
    let User {
        uid: user,
        gid: group,
        ..
    } = User::NOBODY;
    assert_eq!(
        [uid, creator_uid, gid, creator_gid],
        [user, user, group, group]
    );
}

fn counts_follow_every_send_and_receive(site: &Site) {
    let queue = site.queue();
    let mut expected = (0, 0);
    for length in [0, 1, 100, 64, 0, 3000] {
        assert_eq!(queue.send(1 + length as i64, vec![1; length]), Ok(()));
        expected = (expected.0 + 1, expected.1 + length as u64);
        assert_eq!(queue.counts(), expected);
    }
    for length in [100, 0, 3000, 1, 0, 64] {
        assert!(queue.receive(1 + i64::from(length)).is_ok());
        expected = (expected.0 - 1, expected.1 - u64::from(length as u32));
        assert_eq!(queue.counts(), expected);
    }
    assert_eq!(expected, (0, 0));
}

fn the_times_are_those_of_the_last_send_and_receive(site: &Site) {
    let queue = site.queue();
    let made = status(queue).changed;
    assert_eq!(queue.send(1, "x"), Ok(()));
    let after = status(queue);
    assert!(is_now(after.sent) && after.sent >= made);
    assert_eq!((after.received, after.changed), (0, made));
    assert!(queue.receive(0).is_ok());
    let after = status(queue);
    assert!(is_now(after.received) && after.received >= after.sent);
    assert_eq!(after.changed, made);
}

fn the_last_sender_and_receiver_are_named(site: &Site) {
    let queue = site.queue();
    let sender = site.child(|| queue.send(1, "x").map(|()| i64::from(sys::pid())));
    let sender = sender.result().expect("sent");
    let after = status(queue);
    assert_eq!(
        (i64::from(after.last_sender), after.last_receiver),
        (sender, 0)
    );
    let receiver = site.child(|| queue.receive(0).map(|_| i64::from(sys::pid())));
    let receiver = receiver.result().expect("received");
    let after = status(queue);
    assert_eq!(i64::from(after.last_sender), sender);
    assert_eq!(i64::from(after.last_receiver), receiver);
    assert_eq!(queue.send(1, "x"), Ok(()));
    assert_eq!(status(queue).last_sender, sys::pid());
}

fn a_message_handed_over_counts_as_sent_and_received(site: &Site) {
    let queue = site.queue();
    let receiver = site.blocked(|| queue.receive_waiting(0));
    let pid = receiver.pid();
    assert_eq!(queue.send(1, "x"), Ok(()));
    let after = status(queue);
    assert!(is_now(after.sent) && is_now(after.received));
    assert_eq!((after.last_sender, after.last_receiver), (sys::pid(), pid));
    assert_eq!((after.messages, after.bytes), (0, 0));
    assert_eq!(receiver.result(), Ok(message(1, "x")));
    assert_eq!(status(queue), after);
}

fn a_copy_and_a_failed_receive_change_nothing(site: &Site) {
    let queue = site.queue();
    assert_eq!(queue.send(1, "long"), Ok(()));
    let before = status(queue);
    assert!(queue.copy(0).is_ok());
    assert_eq!(queue.receive_with(1, 0, IPC_NOWAIT), Err(Errno::E2BIG));
    assert_eq!(queue.receive(2), Err(Errno::ENOMSG));
    assert_eq!(queue.send(0, "x"), Err(Errno::EINVAL));
    assert_eq!(status(queue), before);
}

fn a_waiting_sender_is_named_when_its_message_is_in(site: &Site) {
    let queue = site.queue_for(4);
    assert_eq!(queue.send(1, "1234"), Ok(()));
    let sender = site.blocked(|| queue.send_waiting(2, "abcd"));
    assert_eq!(status(queue).last_sender, sys::pid());
    let pid = sender.pid();
    assert!(queue.receive(0).is_ok());
    assert_eq!(sender.result(), Ok(()));
    assert_eq!(status(queue).last_sender, pid);
}

fn ipc_stat_returns_zero(site: &Site) {
    let queue = site.queue();
    site.queue();
    assert_eq!(queue.stat(IPC_STAT).map(|(returned, _)| returned), Ok(0));
}

fn msg_stat_takes_an_index_and_returns_the_identifier(site: &Site) {
    for _ in 0..70 {
        let queue = site.queue();
        let (id, seen) = site
            .at(queue.id() % INDICES)
            .stat(MSG_STAT)
            .expect("its status");
        assert_eq!(id, queue.id());
        assert_eq!(seen, status(queue));
        assert_eq!(queue.remove(), Ok(()));
    }
}

fn msg_stat_takes_an_identifier_for_its_index(site: &Site) {
    let queue = site.queue();
    for id in [queue.id(), queue.id() + INDICES, queue.id() + 5 * INDICES] {
        let (found, _) = site.at(id).stat(MSG_STAT).expect("its status");
        assert_eq!(found, queue.id());
    }
}

fn msg_stat_of_a_free_index_is_einval(site: &Site) {
    site.need_to_be_alone();
    for command in [MSG_STAT, MSG_STAT_ANY] {
        for index in [0, 1, 5, INDICES - 1, INDICES, -1] {
            assert_eq!(
                site.at(index).stat(command),
                Err(Errno::EINVAL),
                "index {index}"
            );
        }
    }
    let queue = site.queue();
    assert_eq!(queue.remove(), Ok(()));
    assert_eq!(queue.stat(MSG_STAT), Err(Errno::EINVAL));
}

fn msg_stat_any_says_the_same(site: &Site) {
    let queue = site.queue();
    assert_eq!(queue.send(1, "four"), Ok(()));
    let index = site.at(queue.id() % INDICES);
    assert_eq!(index.stat(MSG_STAT_ANY), index.stat(MSG_STAT));
    assert_eq!(index.stat(MSG_STAT_ANY), Ok((queue.id(), status(queue))));
}

fn the_status_is_the_same_for_every_process(site: &Site) {
    let queue = site.queue();
    assert_eq!(queue.send(1, "four"), Ok(()));
    let here = status(queue);
    let there = site.child(|| status(site.at(queue.id())) == here);
    assert!(there.result());
}

fn a_removed_queue_takes_its_messages_along(site: &Site) {
    let (key, queue) = site.queue_with_key(0o600);
    assert_eq!(queue.send(1, "lost"), Ok(()));
    assert_eq!(queue.remove(), Ok(()));
    let new = site.get(key, libc::IPC_CREAT | 0o600).expect("a new queue");
    assert_eq!(new.counts(), (0, 0));
    assert_eq!(status(new).sent, 0);
}

fn removing_twice_is_einval(site: &Site) {
    let queue = site.queue();
    assert_eq!(queue.remove(), Ok(()));
    assert_eq!(queue.remove(), Err(Errno::EINVAL));
}

fn removal_of_one_queue_leaves_others_alone(site: &Site) {
    let [one, other] = [site.queue(), site.queue()];
    assert_eq!(other.send(1, "kept"), Ok(()));
    let receiver = site.blocked(|| other.receive_waiting(2));
    assert_eq!(one.remove(), Ok(()));
    receiver.expect_still_blocked();
    assert_eq!(other.send(2, "too"), Ok(()));
    assert_eq!(receiver.result(), Ok(message(2, "too")));
    assert_eq!(other.drain(), [message(1, "kept")]);
}
