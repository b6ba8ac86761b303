//! Permissions: the mode bits of each class, and the rights of the owner, the creator and root.

use libc::{IPC_CREAT, IPC_EXCL, MSG_STAT};

use crate::errno::Errno;
use crate::sys::User;
use crate::sysv::backend::{INDICES, MSG_STAT_ANY};
use crate::sysv::site::{Queue, Site, message};

subject_of_sysv! { $ permissions, permissions_cases:
    the_mode_of_others_holds_for_a_stranger
    the_mode_of_the_group_holds_for_its_members
    a_supplementary_group_counts
    the_mode_of_the_owner_holds_for_the_owner
    the_owner_is_judged_by_the_owners_mode_only
    the_group_is_judged_by_the_groups_mode_only
    the_creator_stays_an_owner_after_the_queue_was_given_away
    the_creators_group_stays_a_group_after_the_queue_was_given_away
    root_passes_every_mode
    real_and_saved_ids_do_not_count
    msgget_asks_for_the_bits_that_it_is_given
    bits_of_any_class_are_asked_for_in_ones_own
    msgget_without_bits_asks_for_nothing
    eexist_comes_before_eacces
    looking_needs_read_permission
    msg_stat_any_needs_no_read_permission
    msg_stat_any_needs_no_permission_at_all
    msg_stat_any_of_a_closed_queue_says_its_identifier_owner_and_mode
    setting_needs_an_owner_and_no_mode
    removing_needs_an_owner_and_no_mode
    the_new_owner_may_set_and_remove
    a_permission_that_is_taken_away_is_gone_for_processes_that_have_used_it
    a_permission_that_is_given_counts_for_processes_that_were_refused
    a_process_that_changes_its_user_is_checked_again
}

/// Returns the errors that a user gets from a send, a receive and IPC_STAT on a queue with two messages.
fn rights(site: &Site, user: User, queue: Queue) -> [Option<Errno>; 3] {
    site.need_root();
    for at in 0..2 {
        assert_eq!(queue.send(9, [at]), Ok(()));
    }
    let rights = site.as_user(user, || {
        [
            queue.send(1, "x").err(),
            queue.receive(0).err(),
            queue.status().err(),
        ]
        .map(|errno| errno.map_or(0, |errno| i64::from(errno.0)))
        .into_iter()
        .fold(0, |packed, errno| packed << 16 | errno)
    });
    queue.drain();
    [rights >> 32, rights >> 16 & 0xffff, rights & 0xffff]
        .map(|errno| (errno != 0).then_some(Errno(errno as i32)))
}

const ALL: [Option<Errno>; 3] = [None, None, None];
const NOTHING: [Option<Errno>; 3] = [Some(Errno::EACCES); 3];
const WRITE: [Option<Errno>; 3] = [None, Some(Errno::EACCES), Some(Errno::EACCES)];
const READ: [Option<Errno>; 3] = [Some(Errno::EACCES), None, None];

fn the_mode_of_others_holds_for_a_stranger(site: &Site) {
    for (mode, expected) in [
        (0o666, ALL),
        (0o660, NOTHING),
        (0o662, WRITE),
        (0o664, READ),
    ] {
        let queue = site.queue_of_mode(mode);
        assert_eq!(rights(site, User::NOBODY, queue), expected, "{mode:#o}");
    }
}

/// Checks that this user has exactly the rights that the mode of a queue grants its group, which is root's group.
fn expect_rights_of_the_group(site: &Site, user: User) {
    for (mode, expected) in [
        (0o660, ALL),
        (0o600, NOTHING),
        (0o620, WRITE),
        (0o640, READ),
    ] {
        let queue = site.queue_of_mode(mode);
        assert_eq!(rights(site, user, queue), expected, "{mode:#o}");
    }
}

fn the_mode_of_the_group_holds_for_its_members(site: &Site) {
    expect_rights_of_the_group(site, User::OF_ROOTS_GROUP);
}

fn a_supplementary_group_counts(site: &Site) {
    expect_rights_of_the_group(site, User::WITH_ROOTS_GROUP);
}

/// Creates a queue of this mode as root, and gives it to an ordinary user.
fn given_to(site: &Site, user: User, mode: u32) -> Queue<'_> {
    site.need_root();
    let queue = site.queue();
    let given = queue.alter(|change| {
        (change.uid, change.gid, change.mode) = (user.uid, user.gid, mode);
    });
    assert_eq!(given, Ok(()));
    queue
}

fn the_mode_of_the_owner_holds_for_the_owner(site: &Site) {
    for (mode, expected) in [
        (0o600, ALL),
        (0o000, NOTHING),
        (0o200, WRITE),
        (0o400, READ),
    ] {
        let queue = given_to(site, User::NOBODY, mode);
        assert_eq!(rights(site, User::NOBODY, queue), expected, "{mode:#o}");
    }
}

fn the_owner_is_judged_by_the_owners_mode_only(site: &Site) {
    let queue = given_to(site, User::NOBODY, 0o066);
    assert_eq!(rights(site, User::NOBODY, queue), NOTHING);
    assert_eq!(rights(site, User::SOMEBODY, queue), ALL);
}

fn the_group_is_judged_by_the_groups_mode_only(site: &Site) {
    let queue = site.queue_of_mode(0o606);
    assert_eq!(rights(site, User::OF_ROOTS_GROUP, queue), NOTHING);
    assert_eq!(rights(site, User::WITH_ROOTS_GROUP, queue), NOTHING);
    assert_eq!(rights(site, User::NOBODY, queue), ALL);
}

/// Creates a queue of this mode as an ordinary user, and gives it to another user.
fn made_by(site: &Site, maker: User, owner: User, mode: u32) -> Queue<'_> {
    let id = site.as_user(maker, || i64::from(site.queue().id()));
    let queue = site.at(id as i32);
    let given = queue.alter(|change| {
        (change.uid, change.gid, change.mode) = (owner.uid, owner.gid, mode);
    });
    assert_eq!(given, Ok(()));
    queue
}

fn the_creator_stays_an_owner_after_the_queue_was_given_away(site: &Site) {
    let queue = made_by(site, User::NOBODY, User::SOMEBODY, 0o600);
    assert_eq!(rights(site, User::NOBODY, queue), ALL);
    assert_eq!(rights(site, User::SOMEBODY, queue), ALL);
    assert_eq!(rights(site, User::OF_ROOTS_GROUP, queue), NOTHING);
    assert_eq!(site.as_user(User::NOBODY, || queue.remove()), Ok(()));
}

fn the_creators_group_stays_a_group_after_the_queue_was_given_away(site: &Site) {
    let of_an_unused_group = User {
        uid: 65530,
        ..User::NOBODY
    };
    let queue = made_by(site, User::NOBODY, User::SOMEBODY, 0o640);
    assert_eq!(rights(site, of_an_unused_group, queue), READ);
}

fn root_passes_every_mode(site: &Site) {
    site.need_root();
    let queue = site.queue_of_mode(0);
    assert_eq!(queue.send(1, "x"), Ok(()));
    assert_eq!(queue.receive(0), Ok(message(1, "x")));
    assert_eq!(queue.status().map(|status| status.mode), Ok(0));
}

fn real_and_saved_ids_do_not_count(site: &Site) {
    site.need_root();
    let queue = site.queue();
    let refused = site.child(|| {
        site.backend()
            .assume_effective(User::NOBODY)
            .expect("another user");
        [queue.send(1, "x"), queue.receive(0).map(drop)] == [Err(Errno::EACCES); 2]
    });
    assert!(refused.result());
}

fn msgget_asks_for_the_bits_that_it_is_given(site: &Site) {
    site.need_root();
    let (key, queue) = site.queue_with_key(0o604);
    let allowed = |flags| site.as_user(User::NOBODY, || site.get(key, flags).is_ok());
    assert!(allowed(0o004) && !allowed(0o002) && !allowed(0o006));
    assert_eq!(
        site.as_user(User::NOBODY, || site.get(key, 0o002).map(|_| ())),
        Err(Errno::EACCES)
    );
    assert_eq!(queue.alter(|change| change.mode = 0o606), Ok(()));
    assert!(allowed(0o006));
}

fn bits_of_any_class_are_asked_for_in_ones_own(site: &Site) {
    site.need_root();
    let (key, _) = site.queue_with_key(0o664);
    let allowed = |flags| site.as_user(User::NOBODY, || site.get(key, flags).is_ok());
    assert!(allowed(0o400) && allowed(0o040) && allowed(0o444));
    assert!(!allowed(0o200) && !allowed(0o020) && !allowed(0o600));
    // Queues have no execute permission, so a request for it fails.
    assert!(!allowed(0o100) && !allowed(0o010) && !allowed(0o001));
}

fn msgget_without_bits_asks_for_nothing(site: &Site) {
    site.need_root();
    let (key, queue) = site.queue_with_key(0);
    let found = site.as_user(User::NOBODY, || {
        site.get(key, 0).map(|queue| i64::from(queue.id()))
    });
    assert_eq!(found, Ok(i64::from(queue.id())));
    let found = site.as_user(User::NOBODY, || site.get(key, IPC_CREAT).is_ok());
    assert!(found);
    assert_eq!(rights(site, User::NOBODY, queue), NOTHING);
}

fn eexist_comes_before_eacces(site: &Site) {
    site.need_root();
    let (key, _) = site.queue_with_key(0o600);
    let answers = site.as_user(User::NOBODY, || {
        site.get(key, IPC_CREAT | IPC_EXCL | 0o666) == Err(Errno::EEXIST)
            && site.get(key, IPC_CREAT | 0o666) == Err(Errno::EACCES)
    });
    assert!(answers);
}

fn looking_needs_read_permission(site: &Site) {
    site.need_root();
    let queue = site.queue_of_mode(0o622);
    let refused = site.as_user(User::NOBODY, || {
        queue.status() == Err(Errno::EACCES)
            && site.at(queue.id() % INDICES).stat(MSG_STAT) == Err(Errno::EACCES)
            && queue.copy(0) == Err(Errno::EACCES)
    });
    assert!(refused);
}

/// Returns whether `MSG_STAT_ANY` shows a stranger all fields of a queue of this mode.
fn stranger_sees(site: &Site, mode: i32) -> bool {
    site.need_root();
    let queue = site.queue_of_mode(mode);
    assert_eq!(queue.send(1, "four"), Ok(()));
    let expected = queue.status().expect("its status");
    let seen = site.as_user(User::NOBODY, || {
        let (id, status) = site.at(queue.id() % INDICES).stat(MSG_STAT_ANY)?;
        Ok::<bool, Errno>(id == queue.id() && status == expected)
    });
    seen == Ok(true)
}

fn msg_stat_any_needs_no_read_permission(site: &Site) {
    assert!(stranger_sees(site, 0o622));
}

fn msg_stat_any_needs_no_permission_at_all(site: &Site) {
    site.need_sight_of_closed_queues();
    assert!(stranger_sees(site, 0o600));
}

fn msg_stat_any_of_a_closed_queue_says_its_identifier_owner_and_mode(site: &Site) {
    site.need_root();
    let queue = site.queue_of_mode(0o660);
    let seen = site.as_user(User::NOBODY, || {
        let (id, status) = site.at(queue.id() % INDICES).stat(MSG_STAT_ANY)?;
        let said = (status.uid, status.gid, status.mode);
        Ok::<bool, Errno>(id == queue.id() && said == (0, 0, 0o660))
    });
    assert_eq!(seen, Ok(true));
}

fn setting_needs_an_owner_and_no_mode(site: &Site) {
    site.need_root();
    let queue = site.queue_of_mode(0o666);
    let unchanged = queue.status().expect("its status").unchanged();
    for user in [User::NOBODY, User::OF_ROOTS_GROUP, User::WITH_ROOTS_GROUP] {
        let set = site.as_user(user, || queue.set(&unchanged));
        assert_eq!(set, Err(Errno::EPERM));
    }
    let queue = given_to(site, User::NOBODY, 0);
    let set = site.as_user(User::NOBODY, || {
        queue.set(&crate::sysv::backend::Change {
            mode: 0o600,
            uid: User::NOBODY.uid,
            gid: User::NOBODY.gid,
            max_bytes: 100,
        })
    });
    assert_eq!(set, Ok(()));
    let status = queue.status().expect("its status");
    assert_eq!((status.mode, status.max_bytes), (0o600, 100));
}

fn removing_needs_an_owner_and_no_mode(site: &Site) {
    site.need_root();
    let queue = site.queue_of_mode(0o666);
    for user in [User::NOBODY, User::OF_ROOTS_GROUP, User::WITH_ROOTS_GROUP] {
        assert_eq!(site.as_user(user, || queue.remove()), Err(Errno::EPERM));
    }
    let queue = given_to(site, User::NOBODY, 0);
    assert_eq!(site.as_user(User::NOBODY, || queue.remove()), Ok(()));
    assert_eq!(queue.status(), Err(Errno::EINVAL));
}

fn the_new_owner_may_set_and_remove(site: &Site) {
    let queue = given_to(site, User::NOBODY, 0o600);
    let limited = site.as_user(User::NOBODY, || {
        queue.alter(|change| change.max_bytes = 50)?;
        queue.status().map(|status| status.max_bytes == 50)
    });
    assert_eq!(limited, Ok(true));
    assert_eq!(site.as_user(User::NOBODY, || queue.remove()), Ok(()));
}

fn a_permission_that_is_taken_away_is_gone_for_processes_that_have_used_it(site: &Site) {
    site.need_root();
    let [queue, go, done] = [(); 3].map(|()| site.queue_of_mode(0o666));
    let user = site.child(|| {
        site.backend().assume(User::NOBODY).expect("another user");
        let before = [queue.send(1, "x"), queue.receive(0).map(drop)];
        let told = [
            done.send(1, ""),
            go.receive_waiting(0).map(drop),
            queue.send(1, "x"),
            queue.receive(0).map(drop),
            queue.status().map(drop),
        ];
        let refused = Err(Errno::EACCES);
        before == [Ok(()); 2] && told == [Ok(()), Ok(()), refused, refused, refused]
    });
    assert_eq!(done.receive_waiting(0), Ok(message(1, "")));
    assert_eq!(queue.alter(|change| change.mode = 0o600), Ok(()));
    assert_eq!(go.send(1, ""), Ok(()));
    assert!(user.result());
}

fn a_permission_that_is_given_counts_for_processes_that_were_refused(site: &Site) {
    site.need_root();
    let queue = site.queue_of_mode(0o600);
    let [go, done] = [(); 2].map(|()| site.queue_of_mode(0o666));
    let user = site.child(|| {
        site.backend().assume(User::NOBODY).expect("another user");
        let refused = [queue.send(1, "x"), queue.receive(0).map(drop)];
        let told = [
            done.send(1, ""),
            go.receive_waiting(0).map(drop),
            queue.send(1, "x"),
            queue.receive(0).map(drop),
        ];
        refused == [Err(Errno::EACCES); 2] && told == [Ok(()); 4]
    });
    assert_eq!(done.receive_waiting(0), Ok(message(1, "")));
    assert_eq!(queue.alter(|change| change.mode = 0o606), Ok(()));
    assert_eq!(go.send(1, ""), Ok(()));
    assert!(user.result());
}

fn a_process_that_changes_its_user_is_checked_again(site: &Site) {
    site.need_root();
    let queue = site.queue();
    let refused = site.child(|| {
        let before = [queue.send(1, "x"), queue.receive(0).map(drop)];
        site.backend().assume(User::NOBODY).expect("another user");
        let after = [queue.send(1, "x"), queue.receive(0).map(drop)];
        before == [Ok(()); 2] && after == [Err(Errno::EACCES); 2]
    });
    assert!(refused.result());
}
