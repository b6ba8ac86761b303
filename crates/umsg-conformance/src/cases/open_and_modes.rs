//! `mq_open`: flags, attributes, permission bits, and the users to which the bits apply.

use std::ffi::CStr;

use crate::backend::{Attributes, Ownership};
use crate::errno::Errno;
use crate::site::{Site, message};
use crate::sys::{self, Credentials, User};

subject! { $ open_and_modes, open_and_modes_cases:
    opening_a_missing_queue_is_no_entry
    exclusive_creation_makes_a_queue
    exclusive_creation_of_an_existing_queue_is_refused
    exclusive_without_create_means_nothing
    access_mode_three_is_invalid_for_an_existing_queue
    access_mode_three_creates_a_queue_but_can_not_use_it
    access_mode_three_goes_with_o_nonblock
    close_on_exec_may_be_asked_for
    creating_an_existing_queue_ignores_the_attributes
    creating_an_existing_queue_ignores_even_negative_and_huge_attributes
    creating_an_existing_queue_leaves_its_mode_alone
    without_attributes_it_holds_10_messages_of_8192_bytes
    attributes_of_zero_are_invalid
    negative_attributes_are_invalid
    attributes_beyond_any_limit_are_invalid
    attributes_of_more_than_32_bits_are_invalid
    invalid_attributes_leave_no_queue_behind
    flags_and_messages_in_the_attributes_are_ignored
    o_nonblock_at_open_belongs_to_that_descriptor
    one_queue_too_many_is_no_space
    without_a_free_descriptor_nothing_is_opened_or_made
    without_a_free_descriptor_a_missing_queue_is_not_looked_for
    the_umask_is_taken_from_the_mode
    all_twelve_mode_bits_are_kept_and_no_more
    the_owner_is_the_effective_user_and_group
    the_creator_may_open_with_more_access_than_the_mode_grants
    the_owner_has_no_more_access_later_than_the_mode_grants
    root_opens_whatever_the_mode
    others_have_the_access_that_the_mode_grants_them
    the_group_has_the_access_that_the_mode_grants_it
    a_supplementary_group_counts_as_the_group
    group_members_are_not_others
    the_owner_is_not_a_member_of_the_group
    no_access_is_denied_even_with_create
    exclusive_creation_fails_as_existing_even_without_access
    a_stranger_finds_a_missing_queue_missing
}

const CREATE: i32 = libc::O_CREAT | libc::O_RDWR;
const EXCLUSIVE: i32 = CREATE | libc::O_EXCL;
const SMALL: Attributes = Attributes {
    flags: 0,
    max_messages: 2,
    message_size: 8,
    messages: 0,
};

fn opening_a_missing_queue_is_no_entry(site: &Site) {
    let name = site.name("missing");
    for access in [libc::O_RDONLY, libc::O_WRONLY, libc::O_RDWR] {
        assert_eq!(site.open(&name, access), Err(Errno::ENOENT));
    }
}

fn exclusive_creation_makes_a_queue(site: &Site) {
    let name = site.name("new");
    let queue = site
        .open_with(&name, EXCLUSIVE, 0o600, Some(&SMALL))
        .expect("a new queue");
    assert_eq!(queue.attributes(), Ok(SMALL));
}

fn exclusive_creation_of_an_existing_queue_is_refused(site: &Site) {
    let name = site.name("there");
    site.queue_called(&name, 2, 8);
    assert_eq!(
        site.open_with(&name, EXCLUSIVE, 0o600, Some(&SMALL)),
        Err(Errno::EEXIST)
    );
    assert_eq!(
        site.open_with(&name, EXCLUSIVE, 0o600, None),
        Err(Errno::EEXIST)
    );
}

fn exclusive_without_create_means_nothing(site: &Site) {
    let name = site.name("there");
    assert_eq!(
        site.open(&name, libc::O_RDWR | libc::O_EXCL),
        Err(Errno::ENOENT)
    );
    site.queue_called(&name, 2, 8);
    assert!(site.open(&name, libc::O_RDWR | libc::O_EXCL).is_ok());
}

fn access_mode_three_is_invalid_for_an_existing_queue(site: &Site) {
    let name = site.name("three");
    assert_eq!(site.open(&name, 3), Err(Errno::ENOENT));
    site.queue_called(&name, 2, 8);
    assert_eq!(site.open(&name, 3), Err(Errno::EINVAL));
    assert_eq!(
        site.open_with(&name, libc::O_CREAT | 3, 0o600, Some(&SMALL)),
        Err(Errno::EINVAL)
    );
    assert_eq!(
        site.open_with(&name, libc::O_CREAT | libc::O_EXCL | 3, 0o600, None),
        Err(Errno::EEXIST)
    );
}

fn access_mode_three_creates_a_queue_but_can_not_use_it(site: &Site) {
    let name = site.name("three");
    let queue = site
        .open_with(&name, libc::O_CREAT | 3, 0o600, Some(&SMALL))
        .expect("a new queue");
    assert_eq!(queue.send(b"x", 0), Err(Errno::EBADF));
    assert_eq!(queue.receive(), Err(Errno::EBADF));
    assert_eq!(queue.attributes(), Ok(SMALL));
    assert!(site.open(&name, libc::O_RDWR).is_ok());
}

fn access_mode_three_goes_with_o_nonblock(site: &Site) {
    let flags = libc::O_CREAT | libc::O_NONBLOCK | 3;
    let queue = site
        .open_with(&site.name("three"), flags, 0o600, Some(&SMALL))
        .expect("a new queue");
    assert!(queue.is_nonblocking());
    assert!(queue.dup().expect("a duplicate").is_nonblocking());
}

fn close_on_exec_may_be_asked_for(site: &Site) {
    let name = site.name("exec");
    let created = site
        .open_with(&name, CREATE | libc::O_CLOEXEC, 0o600, Some(&SMALL))
        .expect("a new queue");
    let opened = site
        .open(&name, libc::O_RDWR | libc::O_CLOEXEC)
        .expect("opening it");
    assert_eq!(created.send(b"x", 1), Ok(()));
    assert_eq!(opened.receive(), Ok(message("x", 1)));
}

/// Expects that the creation of an existing queue with any of these attributes opens the queue unchanged.
#[track_caller]
fn expect_ignored(site: &Site, ignored: &[(i64, i64)]) {
    let name = site.name("there");
    site.queue_called(&name, 2, 8);
    for &(messages, size) in ignored {
        let queue = site.open_with(&name, CREATE, 0o600, Some(&Attributes::new(messages, size)));
        assert_eq!(queue.expect("the existing queue").attributes(), Ok(SMALL));
    }
}

fn creating_an_existing_queue_ignores_the_attributes(site: &Site) {
    expect_ignored(
        site,
        &[(7, 70), (0, 0), (i64::from(i32::MAX), i64::from(i32::MAX))],
    );
}

fn creating_an_existing_queue_ignores_even_negative_and_huge_attributes(site: &Site) {
    expect_ignored(site, &[(-1, -1), (i64::MIN, 8), (i64::MAX, i64::MAX)]);
}

fn creating_an_existing_queue_leaves_its_mode_alone(site: &Site) {
    let name = site.name("there");
    let queue = site.queue_called(&name, 2, 8);
    site.open_with(&name, CREATE, 0o666, None)
        .expect("the existing queue");
    assert_eq!(queue.ownership().map(|owner| owner.mode), Ok(0o600));
}

fn without_attributes_it_holds_10_messages_of_8192_bytes(site: &Site) {
    let queue = site
        .open_with(&site.name("default"), CREATE, 0o600, None)
        .expect("a new queue");
    assert_eq!(queue.attributes(), Ok(Attributes::new(10, 8192)));
}

/// Expects that no queue is created with these attributes.
#[track_caller]
fn expect_invalid(site: &Site, messages: i64, size: i64) {
    let name = site.name("invalid");
    let made = site.open_with(&name, CREATE, 0o600, Some(&Attributes::new(messages, size)));
    assert_eq!(
        made,
        Err(Errno::EINVAL),
        "{messages} messages of {size} bytes"
    );
    assert_eq!(
        site.open(&name, libc::O_RDWR),
        Err(Errno::ENOENT),
        "{messages} messages of {size} bytes"
    );
}

fn attributes_of_zero_are_invalid(site: &Site) {
    for (messages, size) in [(0, 8), (2, 0), (0, 0)] {
        expect_invalid(site, messages, size);
    }
}

fn negative_attributes_are_invalid(site: &Site) {
    for (messages, size) in [(-1, 8), (2, -1), (i64::MIN, 8), (2, i64::MIN), (-1, -1)] {
        expect_invalid(site, messages, size);
    }
}

fn attributes_beyond_any_limit_are_invalid(site: &Site) {
    let huge = i64::from(i32::MAX);
    for (messages, size) in [(huge, 8), (2, huge), (huge, huge)] {
        expect_invalid(site, messages, size);
    }
}

fn attributes_of_more_than_32_bits_are_invalid(site: &Site) {
    for (messages, size) in [
        (i64::MAX, 8),
        (2, i64::MAX),
        ((1 << 32) + 2, 8),
        (2, (1 << 32) + 8),
    ] {
        expect_invalid(site, messages, size);
    }
}

fn invalid_attributes_leave_no_queue_behind(site: &Site) {
    let name = site.name("invalid");
    let none = Attributes::new(0, 0);
    assert_eq!(
        site.open_with(&name, EXCLUSIVE, 0o600, Some(&none)),
        Err(Errno::EINVAL)
    );
    assert!(
        site.open_with(&name, EXCLUSIVE, 0o600, Some(&SMALL))
            .is_ok()
    );
}

fn flags_and_messages_in_the_attributes_are_ignored(site: &Site) {
    let given = Attributes {
        flags: i64::from(libc::O_NONBLOCK) | 0xff,
        messages: 77,
        ..SMALL
    };
    let queue = site
        .open_with(&site.name("flags"), CREATE, 0o600, Some(&given))
        .expect("a new queue");
    assert_eq!(queue.attributes(), Ok(SMALL));
}

fn o_nonblock_at_open_belongs_to_that_descriptor(site: &Site) {
    let name = site.name("two");
    let blocking = site.queue_called(&name, 2, 8);
    let nonblocking = site
        .open(&name, libc::O_RDWR | libc::O_NONBLOCK)
        .expect("opening it again");
    assert!(!blocking.is_nonblocking());
    assert!(nonblocking.is_nonblocking());
    assert_eq!(nonblocking.receive(), Err(Errno::EAGAIN));
}

fn one_queue_too_many_is_no_space(site: &Site) {
    site.ask(site.backend().limit_queues(3)).expect("a limit");
    // An unprivileged user runs the case, because the limit does not apply to root.
    if sys::is_root() {
        User::NOBODY
            .assume(&Credentials::OF_LIBC)
            .expect("becoming nobody");
    }
    let names: Vec<_> = (0..4).map(|_| site.name("many")).collect();
    for name in &names[..3] {
        site.queue_called(name, 1, 8).close().expect("closing");
    }
    assert_eq!(
        site.open_with(&names[3], CREATE, 0o600, Some(&SMALL)),
        Err(Errno::ENOSPC)
    );
    assert_eq!(site.open(&names[3], libc::O_RDWR), Err(Errno::ENOENT));
    assert_eq!(site.unlink(&names[0]), Ok(()));
    assert!(
        site.open_with(&names[3], CREATE, 0o600, Some(&SMALL))
            .is_ok()
    );
}

/// Leaves this process without a free descriptor.
pub(super) fn use_up_descriptors() {
    sys::limit_descriptors(64).expect("a limit");
    // SAFETY: the loop makes duplicates of the standard input, which are never used.
    while unsafe { libc::dup(0) } >= 0 {}
}

fn without_a_free_descriptor_nothing_is_opened_or_made(site: &Site) {
    let (existing, new) = (site.name("existing"), site.name("new"));
    site.queue_called(&existing, 2, 8);
    let opened = site.child(|| {
        use_up_descriptors();
        site.open(&existing, libc::O_RDWR).map(drop)
    });
    assert_eq!(opened.result(), Err(Errno::EMFILE));
    let made = site.child(|| {
        use_up_descriptors();
        site.open_with(&new, CREATE, 0o600, Some(&SMALL)).map(drop)
    });
    assert_eq!(made.result(), Err(Errno::EMFILE));
    assert_eq!(site.open(&new, libc::O_RDWR), Err(Errno::ENOENT));
}

fn without_a_free_descriptor_a_missing_queue_is_not_looked_for(site: &Site) {
    let name = site.name("missing");
    let opened = site.child(|| {
        use_up_descriptors();
        site.open(&name, libc::O_RDWR).map(drop)
    });
    assert_eq!(opened.result(), Err(Errno::EMFILE));
}

/// Returns the mode of a queue that is created with `mode` under `umask`.
fn mode_of(site: &Site, mode: u32, umask: u32) -> u32 {
    let before = sys::umask(umask);
    let queue = site
        .open_with(&site.name("mode"), CREATE, mode, Some(&SMALL))
        .expect("a new queue");
    sys::umask(before);
    queue.ownership().expect("an owner").mode
}

fn the_umask_is_taken_from_the_mode(site: &Site) {
    assert_eq!(mode_of(site, 0o666, 0), 0o666);
    assert_eq!(mode_of(site, 0o666, 0o022), 0o644);
    assert_eq!(mode_of(site, 0o777, 0o077), 0o700);
    assert_eq!(mode_of(site, 0o640, 0o777), 0);
}

fn all_twelve_mode_bits_are_kept_and_no_more(site: &Site) {
    assert_eq!(mode_of(site, 0o7777, 0), 0o7777);
    assert_eq!(mode_of(site, 0o100_644, 0), 0o644);
    assert_eq!(mode_of(site, 0, 0), 0);
    assert_eq!(mode_of(site, 0o111, 0), 0o111);
}

fn the_owner_is_the_effective_user_and_group(site: &Site) {
    site.need_root();
    let name = site.name("owner");
    // A backend that is a library determines the directory of its queues at the first call. So this process makes a call before the child changes its
    // user.
    site.queue(1, 8);
    let child = site.child(|| {
        User::NOBODY
            .assume_effective(&Credentials::OF_LIBC)
            .expect("becoming nobody");
        site.open_with(&name, CREATE, 0o600, Some(&SMALL)).map(drop)
    });
    assert_eq!(child.result(), Ok(()));
    let queue = site.open(&name, libc::O_RDWR).expect("opening it");
    let User { uid, gid, .. } = User::NOBODY;
    assert_eq!(
        queue.ownership(),
        Ok(Ownership {
            mode: 0o600,
            uid,
            gid
        })
    );
}

fn the_creator_may_open_with_more_access_than_the_mode_grants(site: &Site) {
    let create = || {
        for mode in [0, 0o400, 0o200] {
            let name = site.name("creator");
            let queue = site.open_with(&name, EXCLUSIVE, mode, Some(&SMALL))?;
            queue.send(b"both", 0)?;
            queue.receive()?;
            site.unlink(&name)?;
        }
        Ok(())
    };
    assert_eq!(create(), Ok(()));
    if sys::is_root() {
        assert_eq!(site.as_user(User::NOBODY, create), Ok(()));
    }
}

/// The user that opens a queue: its owner, a user with the queue's group (as primary or supplementary group), or another user.
#[derive(Debug, Clone, Copy)]
enum Opener {
    Owner,
    OfTheGroup,
    WithTheGroup,
    Other,
}

/// Returns the results of opening a queue with this mode for reading, for writing, and for both. The queue belongs to the user nobody and to root's
/// group.
fn accesses(site: &Site, mode: u32, opener: Opener, more: i32) -> [Result<(), Errno>; 3] {
    site.need_root();
    let name = site.name("access");
    let before = sys::umask(0);
    let owner = User {
        gid: 0,
        ..User::NOBODY
    };
    let made = site.as_user(owner, || {
        site.open_with(&name, EXCLUSIVE, mode, Some(&SMALL))
            .map(drop)
    });
    assert_eq!(made, Ok(()));
    sys::umask(before);
    let user = match opener {
        Opener::Owner => User::NOBODY,
        Opener::OfTheGroup => User::OF_ROOTS_GROUP,
        Opener::WithTheGroup => User::WITH_ROOTS_GROUP,
        Opener::Other => User::SOMEBODY,
    };
    [libc::O_RDONLY, libc::O_WRONLY, libc::O_RDWR].map(|access| {
        site.as_user(user, || {
            site.open_with(&name, access | more, 0o600, Some(&SMALL))
                .map(drop)
        })
    })
}

const GRANTED: Result<(), Errno> = Ok(());
const DENIED: Result<(), Errno> = Err(Errno::EACCES);

/// Tries several combinations of three permission bits, whose lowest is bit `shift` of the mode. Expects that each combination grants the opener
/// exactly the access that it means.
#[track_caller]
fn expect_granted_by(site: &Site, shift: u32, others: u32, opener: Opener) {
    let with = |bits: u32| accesses(site, bits << shift | others, opener, 0);
    assert_eq!(with(0o0), [DENIED, DENIED, DENIED], "{opener:?}");
    assert_eq!(with(0o4), [GRANTED, DENIED, DENIED], "{opener:?}");
    assert_eq!(with(0o2), [DENIED, GRANTED, DENIED], "{opener:?}");
    assert_eq!(with(0o6), [GRANTED, GRANTED, GRANTED], "{opener:?}");
    assert_eq!(with(0o1), [DENIED, DENIED, DENIED], "{opener:?}");
}

fn the_owner_has_no_more_access_later_than_the_mode_grants(site: &Site) {
    expect_granted_by(site, 6, 0, Opener::Owner);
}

fn root_opens_whatever_the_mode(site: &Site) {
    site.need_root();
    for mode in [0, 0o400, 0o200, 0o111] {
        let name = site.name("root");
        let made = site.as_user(User::NOBODY, || {
            site.open_with(&name, EXCLUSIVE, mode, Some(&SMALL))
                .map(drop)
        });
        assert_eq!(made, Ok(()));
        let queue = site.open(&name, libc::O_RDWR).expect("root opens anything");
        assert_eq!(queue.send(b"root", 0), Ok(()));
        assert_eq!(queue.receive(), Ok(message("root", 0)));
    }
}

fn others_have_the_access_that_the_mode_grants_them(site: &Site) {
    expect_granted_by(site, 0, 0, Opener::Other);
}

fn the_group_has_the_access_that_the_mode_grants_it(site: &Site) {
    expect_granted_by(site, 3, 0, Opener::OfTheGroup);
}

fn a_supplementary_group_counts_as_the_group(site: &Site) {
    expect_granted_by(site, 3, 0, Opener::WithTheGroup);
}

fn group_members_are_not_others(site: &Site) {
    expect_granted_by(site, 3, 0o606, Opener::OfTheGroup);
}

fn the_owner_is_not_a_member_of_the_group(site: &Site) {
    expect_granted_by(site, 6, 0o066, Opener::Owner);
}

fn no_access_is_denied_even_with_create(site: &Site) {
    assert_eq!(
        accesses(site, 0o600, Opener::Other, libc::O_CREAT),
        [DENIED, DENIED, DENIED]
    );
    assert_eq!(
        accesses(site, 0o604, Opener::Other, libc::O_CREAT),
        [GRANTED, DENIED, DENIED]
    );
}

fn exclusive_creation_fails_as_existing_even_without_access(site: &Site) {
    let existing = Err(Errno::EEXIST);
    let answers = accesses(site, 0, Opener::Other, libc::O_CREAT | libc::O_EXCL);
    assert_eq!(answers, [existing, existing, existing]);
}

fn a_stranger_finds_a_missing_queue_missing(site: &Site) {
    let name: &CStr = &site.name("missing");
    let opened = site.as_user(User::NOBODY, || site.open(name, libc::O_RDWR).map(drop));
    assert_eq!(opened, Err(Errno::ENOENT));
}
