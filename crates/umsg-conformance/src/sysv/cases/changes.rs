//! `msgctl` with `IPC_SET`: the fields that can be set, and the users that may set them.

use crate::errno::Errno;
use crate::sys::{self, User};
use crate::sysv::backend::{Change, Status};
use crate::sysv::site::{CAPACITY, Queue, Site, message};

subject_of_sysv! { $ changes, changes_cases:
    owner_group_mode_and_bytes_are_set
    nothing_else_is_changed
    the_creator_stays
    the_time_of_the_change_is_noted
    only_nine_bits_of_the_mode_are_set
    a_change_to_what_is_there_already_is_one
    the_bytes_may_be_lowered_to_nothing
    the_bytes_may_be_set_to_msgmnb
    more_bytes_than_msgmnb_are_eperm_without_privilege
    only_thirty_two_bits_of_the_bytes_count
    bytes_that_were_refused_change_nothing
    there_is_no_user_minus_one
    an_owner_that_was_refused_changes_nothing
    the_owner_may_give_the_queue_away
    a_user_that_has_given_a_queue_away_may_take_it_back
    another_owner_may_not_be_named_by_a_stranger
    a_change_is_seen_by_every_process
}

fn status(queue: Queue) -> Status {
    queue.status().expect("its status")
}

fn owner_group_mode_and_bytes_are_set(site: &Site) {
    site.need_root();
    let queue = site.queue();
    let change = Change {
        uid: 1234,
        gid: 5678,
        mode: 0o421,
        max_bytes: 777,
    };
    assert_eq!(queue.set(&change), Ok(()));
    assert_eq!(status(queue).unchanged(), change);
}

fn nothing_else_is_changed(site: &Site) {
    let (_, queue) = site.queue_with_key(0o600);
    assert_eq!(queue.send(1, "four"), Ok(()));
    assert_eq!(queue.send(2, "gone"), Ok(()));
    assert_eq!(queue.receive(2), Ok(message(2, "gone")));
    let before = status(queue);
    queue.limit(50);
    let expected = Status {
        max_bytes: 50,
        changed: status(queue).changed,
        ..before
    };
    assert_eq!(status(queue), expected);
    assert_eq!(queue.drain(), [message(1, "four")]);
}

fn the_creator_stays(site: &Site) {
    site.need_root();
    let queue = site.queue();
    let given = queue.alter(|change| (change.uid, change.gid) = (7, 8));
    assert_eq!(given, Ok(()));
    let after = status(queue);
    assert_eq!((after.creator_uid, after.creator_gid), (0, 0));
    assert_eq!((after.uid, after.gid), (7, 8));
}

fn the_time_of_the_change_is_noted(site: &Site) {
    let queue = site.queue();
    let made = status(queue).changed;
    // The times have a resolution of one second, so the test waits longer than one second.
    std::thread::sleep(std::time::Duration::from_millis(1100));
    assert_eq!(queue.send(1, "x"), Ok(()));
    assert_eq!(status(queue).changed, made);
    queue.limit(100);
    let after = status(queue);
    assert!(after.changed > made && after.changed <= sys::from_now(0).tv_sec);
}

fn only_nine_bits_of_the_mode_are_set(site: &Site) {
    let queue = site.queue();
    assert_eq!(queue.alter(|change| change.mode = 0o107_644), Ok(()));
    assert_eq!(status(queue).mode, 0o644);
}

fn a_change_to_what_is_there_already_is_one(site: &Site) {
    let queue = site.queue();
    let before = status(queue);
    assert_eq!(queue.set(&before.unchanged()), Ok(()));
    assert_eq!(status(queue).unchanged(), before.unchanged());
}

fn the_bytes_may_be_lowered_to_nothing(site: &Site) {
    let queue = site.queue_for(0);
    assert_eq!(status(queue).max_bytes, 0);
    assert_eq!(queue.send(1, ""), Err(Errno::EAGAIN));
}

fn the_bytes_may_be_set_to_msgmnb(site: &Site) {
    let queue = site.queue_for(10);
    sys::give_up_raised_limits();
    queue.limit(CAPACITY);
    assert_eq!(status(queue).max_bytes, CAPACITY);
}

fn more_bytes_than_msgmnb_are_eperm_without_privilege(site: &Site) {
    let queue = site.queue();
    sys::give_up_raised_limits();
    for max_bytes in [
        CAPACITY + 1,
        1 << 20,
        1 << 31,
        u64::from(u32::MAX),
        u64::MAX,
    ] {
        let set = queue.alter(|change| change.max_bytes = max_bytes);
        assert_eq!(set, Err(Errno::EPERM), "{max_bytes} bytes");
    }
}

fn only_thirty_two_bits_of_the_bytes_count(site: &Site) {
    let queue = site.queue();
    sys::give_up_raised_limits();
    for (max_bytes, expected) in [(1 << 40, 0), ((7 << 32) + 100, 100), (1 << 63, 0)] {
        queue.limit(max_bytes);
        assert_eq!(status(queue).max_bytes, expected, "{max_bytes} bytes");
    }
    let set = queue.alter(|change| change.max_bytes = (1 << 32) + CAPACITY + 1);
    assert_eq!(set, Err(Errno::EPERM));
}

fn bytes_that_were_refused_change_nothing(site: &Site) {
    let queue = site.queue();
    sys::give_up_raised_limits();
    let before = status(queue);
    let set = queue.alter(|change| {
        change.mode = 0o666;
        change.max_bytes = CAPACITY + 1;
    });
    assert_eq!(set, Err(Errno::EPERM));
    assert_eq!(status(queue), before);
}

fn there_is_no_user_minus_one(site: &Site) {
    let queue = site.queue();
    let set = queue.alter(|change| change.uid = u32::MAX);
    assert_eq!(set, Err(Errno::EINVAL));
    let set = queue.alter(|change| change.gid = u32::MAX);
    assert_eq!(set, Err(Errno::EINVAL));
}

fn an_owner_that_was_refused_changes_nothing(site: &Site) {
    let queue = site.queue();
    let before = status(queue);
    let set = queue.alter(|change| {
        change.gid = u32::MAX;
        change.mode = 0o666;
        change.max_bytes = 5;
    });
    assert_eq!(set, Err(Errno::EINVAL));
    assert_eq!(status(queue), before);
}

/// Gives the queue another owner.
fn give(queue: Queue, user: User) -> Result<(), Errno> {
    queue.alter(|change| (change.uid, change.gid) = (user.uid, user.gid))
}

/// Creates a queue of this mode as an ordinary user.
fn queue_of(site: &Site, user: User, mode: i32) -> Queue<'_> {
    let id = site.as_user(user, || i64::from(site.queue_of_mode(mode).id()));
    site.at(id as i32)
}

fn the_owner_may_give_the_queue_away(site: &Site) {
    let queue = queue_of(site, User::NOBODY, 0o600);
    let given = site.as_user(User::NOBODY, || give(queue, User::SOMEBODY));
    assert_eq!(given, Ok(()));
    assert_eq!(status(queue).uid, User::SOMEBODY.uid);
    let sent = site.as_user(User::SOMEBODY, || queue.send(1, "x"));
    assert_eq!(sent, Ok(()));
}

fn a_user_that_has_given_a_queue_away_may_take_it_back(site: &Site) {
    let queue = queue_of(site, User::NOBODY, 0o600);
    let back = site.as_user(User::NOBODY, || {
        give(queue, User::SOMEBODY)?;
        give(queue, User::NOBODY)
    });
    assert_eq!(back, Ok(()));
    assert_eq!(status(queue).uid, User::NOBODY.uid);
    let sent = site.as_user(User::SOMEBODY, || queue.send(1, "x"));
    assert_eq!(sent, Err(Errno::EACCES));
}

fn another_owner_may_not_be_named_by_a_stranger(site: &Site) {
    let queue = queue_of(site, User::NOBODY, 0o666);
    let taken = site.as_user(User::SOMEBODY, || give(queue, User::SOMEBODY));
    assert_eq!(taken, Err(Errno::EPERM));
    assert_eq!(status(queue).uid, User::NOBODY.uid);
}

fn a_change_is_seen_by_every_process(site: &Site) {
    let [queue, go] = [site.queue(), site.queue()];
    let other = site.blocked(|| {
        go.receive_waiting(0)?;
        queue.send(1, "12345").map_or_else(
            |errno| Ok(errno == Errno::EAGAIN && status(queue).max_bytes == 4),
            |()| Ok(false),
        )
    });
    queue.limit(4);
    assert_eq!(go.send(1, ""), Ok(()));
    assert_eq!(other.result(), Ok::<bool, Errno>(true));
}
