//! A queue lives as long as it has a name or an open descriptor.

use super::open_and_modes::use_up_descriptors;
use crate::backend::Attributes;
use crate::errno::Errno;
use crate::site::{Site, message};
use crate::sys::User;

subject! { $ unlink_and_lifetime, unlink_and_lifetime_cases:
    unlinking_a_missing_queue_is_no_entry
    a_queue_is_unlinked_without_a_free_descriptor
    the_name_is_free_at_once
    an_unlinked_queue_lives_until_its_last_close
    a_new_queue_of_the_same_name_is_another_one
    unlinking_the_new_one_leaves_the_old_one_alone
    messages_stay_while_no_process_has_the_queue_open
    the_last_close_of_an_unlinked_queue_ends_it
    messages_survive_the_kill_of_the_creator
    a_queue_survives_the_kill_of_all_that_have_it_open
    a_stranger_can_not_unlink
    not_even_the_group_can_unlink
    permission_to_write_is_no_permission_to_unlink
    the_owner_can_unlink_what_he_may_not_open
    root_can_unlink_what_is_not_his
    a_blocked_receiver_is_not_disturbed_by_unlink
    many_queues_come_and_go
}

const EXCLUSIVE: i32 = libc::O_CREAT | libc::O_EXCL | libc::O_RDWR;
const SMALL: Attributes = Attributes {
    flags: 0,
    max_messages: 1,
    message_size: 8,
    messages: 0,
};

fn unlinking_a_missing_queue_is_no_entry(site: &Site) {
    let name = site.name("missing");
    assert_eq!(site.unlink(&name), Err(Errno::ENOENT));
    site.queue_called(&name, 1, 8);
    assert_eq!(site.unlink(&name), Ok(()));
    assert_eq!(site.unlink(&name), Err(Errno::ENOENT));
}

fn a_queue_is_unlinked_without_a_free_descriptor(site: &Site) {
    site.need_lasting_namespace();
    let name = site.name("unlinked");
    site.queue_called(&name, 1, 8);
    let unlinked = site.child(|| {
        use_up_descriptors();
        site.unlink(&name)
    });
    assert_eq!(unlinked.result(), Ok(()));
    assert_eq!(site.open(&name, libc::O_RDWR), Err(Errno::ENOENT));
}

fn the_name_is_free_at_once(site: &Site) {
    let name = site.name("free");
    site.queue_called(&name, 1, 8);
    assert_eq!(site.unlink(&name), Ok(()));
    assert_eq!(site.open(&name, libc::O_RDWR), Err(Errno::ENOENT));
}

fn an_unlinked_queue_lives_until_its_last_close(site: &Site) {
    let name = site.name("unlinked");
    let first = site.queue_called(&name, 2, 8);
    let second = site.open(&name, libc::O_RDWR).expect("opening it");
    assert_eq!(first.send(b"before", 0), Ok(()));
    assert_eq!(site.unlink(&name), Ok(()));
    assert_eq!(first.send(b"after", 0), Ok(()));
    assert_eq!(first.close(), Ok(()));
    assert_eq!(second.receive(), Ok(message("before", 0)));
    assert_eq!(second.receive(), Ok(message("after", 0)));
    assert_eq!(second.send(b"alone", 0), Ok(()));
    assert_eq!(second.messages(), 1);
}

fn a_new_queue_of_the_same_name_is_another_one(site: &Site) {
    let name = site.name("again");
    let old = site.queue_called(&name, 2, 8);
    assert_eq!(old.send(b"old", 0), Ok(()));
    assert_eq!(site.unlink(&name), Ok(()));
    let new = site.queue_called(&name, 3, 16);
    assert_eq!(new.messages(), 0);
    assert_eq!(new.send(b"new", 0), Ok(()));
    assert_eq!(old.receive(), Ok(message("old", 0)));
    assert_eq!(new.receive(), Ok(message("new", 0)));
    assert_eq!(
        old.attributes().map(|attributes| attributes.max_messages),
        Ok(2)
    );
    assert_eq!(
        new.attributes().map(|attributes| attributes.max_messages),
        Ok(3)
    );
}

fn unlinking_the_new_one_leaves_the_old_one_alone(site: &Site) {
    let name = site.name("again");
    let old = site.queue_called(&name, 2, 8);
    assert_eq!(site.unlink(&name), Ok(()));
    let new = site.queue_called(&name, 2, 8);
    assert_eq!(site.unlink(&name), Ok(()));
    assert_eq!(site.unlink(&name), Err(Errno::ENOENT));
    assert_eq!(old.send(b"old", 0), Ok(()));
    assert_eq!(new.messages(), 0);
}

fn messages_stay_while_no_process_has_the_queue_open(site: &Site) {
    let name = site.name("kept");
    let queue = site.queue_called(&name, 3, 8);
    for (text, priority) in [("low", 1), ("high", 2), ("low too", 1)] {
        assert_eq!(queue.send(text, priority), Ok(()));
    }
    assert_eq!(queue.close(), Ok(()));
    let queue = site
        .open(&name, libc::O_RDWR | libc::O_NONBLOCK)
        .expect("opening it");
    assert_eq!(
        queue.drain(),
        [message("high", 2), message("low", 1), message("low too", 1)]
    );
}

fn the_last_close_of_an_unlinked_queue_ends_it(site: &Site) {
    let name = site.name("ended");
    let queue = site.queue_called(&name, 2, 8);
    assert_eq!(queue.send(b"lost", 0), Ok(()));
    assert_eq!(site.unlink(&name), Ok(()));
    assert_eq!(queue.close(), Ok(()));
    let new = site.queue_called(&name, 2, 8);
    assert_eq!(new.messages(), 0);
}

fn messages_survive_the_kill_of_the_creator(site: &Site) {
    let name = site.name("killed");
    let creator = site.child(|| {
        let queue = site.queue_called(&name, 3, 16);
        queue.send(b"one", 1).expect("room");
        queue.send(b"two", 2).expect("room");
        crate::sys::kill(crate::sys::pid(), libc::SIGKILL);
    });
    creator.expect_killed();
    let queue = site
        .open(&name, libc::O_RDWR | libc::O_NONBLOCK)
        .expect("opening it");
    assert_eq!(queue.drain(), [message("two", 2), message("one", 1)]);
    assert_eq!(queue.fill(), 3);
}

fn a_queue_survives_the_kill_of_all_that_have_it_open(site: &Site) {
    let name = site.name("killed");
    site.queue_called(&name, 1, 8).close().expect("closing");
    let receivers: Vec<_> = (0..3)
        .map(|_| {
            site.child(|| {
                site.open(&name, libc::O_RDWR)
                    .and_then(|queue| queue.receive())
            })
        })
        .collect();
    for receiver in &receivers {
        receiver.wait_until_blocked();
    }
    for receiver in receivers {
        receiver.kill();
    }
    let queue = site
        .open(&name, libc::O_RDWR | libc::O_NONBLOCK)
        .expect("opening it");
    assert_eq!(queue.send(b"still", 0), Ok(()));
    assert_eq!(queue.send(b"full", 0), Err(Errno::EAGAIN));
    assert_eq!(queue.drain(), [message("still", 0)]);
}

fn a_stranger_can_not_unlink(site: &Site) {
    let name = site.name("stranger");
    site.queue_called(&name, 1, 8);
    assert_eq!(
        site.as_user(User::NOBODY, || site.unlink(&name)),
        Err(Errno::EACCES)
    );
    assert!(site.open(&name, libc::O_RDWR).is_ok());
}

fn not_even_the_group_can_unlink(site: &Site) {
    let name = site.name("group");
    site.open_with(&name, EXCLUSIVE, 0o660, Some(&SMALL))
        .expect("a new queue")
        .close()
        .expect("closing");
    assert_eq!(
        site.as_user(User::OF_ROOTS_GROUP, || site.unlink(&name)),
        Err(Errno::EACCES)
    );
}

fn permission_to_write_is_no_permission_to_unlink(site: &Site) {
    let name = site.name("writable");
    crate::sys::umask(0);
    site.open_with(&name, EXCLUSIVE, 0o666, Some(&SMALL))
        .expect("a new queue")
        .close()
        .expect("closing");
    let stranger = site.as_user(User::NOBODY, || {
        site.open(&name, libc::O_RDWR).expect("it may be opened");
        site.unlink(&name)
    });
    assert_eq!(stranger, Err(Errno::EACCES));
}

fn the_owner_can_unlink_what_he_may_not_open(site: &Site) {
    let name = site.name("closed");
    let unlinked = site.as_user(User::NOBODY, || {
        site.open_with(&name, EXCLUSIVE, 0, Some(&SMALL))?.close()?;
        assert_eq!(site.open(&name, libc::O_RDONLY), Err(Errno::EACCES));
        site.unlink(&name)
    });
    assert_eq!(unlinked, Ok(()));
}

fn root_can_unlink_what_is_not_his(site: &Site) {
    let name = site.name("nobodys");
    let made = site.as_user(User::NOBODY, || {
        site.open_with(&name, EXCLUSIVE, 0o600, Some(&SMALL))
            .map(drop)
    });
    assert_eq!(made, Ok(()));
    assert_eq!(site.unlink(&name), Ok(()));
}

fn a_blocked_receiver_is_not_disturbed_by_unlink(site: &Site) {
    let name = site.name("blocked");
    let queue = site.queue_called(&name, 1, 8);
    let receiver = site.child(|| queue.receive());
    receiver.wait_until_blocked();
    assert_eq!(site.unlink(&name), Ok(()));
    receiver.expect_still_blocked();
    assert_eq!(queue.send(b"for you", 0), Ok(()));
    assert_eq!(receiver.result(), Ok(message("for you", 0)));
}

fn many_queues_come_and_go(site: &Site) {
    let name = site.name("often");
    for round in 0..300_u32 {
        let queue = site.queue_called(&name, 1 + i64::from(round % 7), 64);
        assert_eq!(queue.send(round.to_le_bytes(), round), Ok(()));
        assert_eq!(queue.receive(), Ok(message(round.to_le_bytes(), round)));
        assert_eq!(queue.close(), Ok(()));
        assert_eq!(site.unlink(&name), Ok(()));
    }
}
