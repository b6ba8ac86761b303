//! `mq_getattr`, `mq_setattr`, and the flag `O_NONBLOCK`, which `fcntl` also sets and clears.

use crate::backend::Attributes;
use crate::errno::Errno;
use crate::site::Site;

subject! { $ getattr_setattr, getattr_setattr_cases:
    the_attributes_are_those_of_creation
    the_number_of_messages_follows_sends_and_receives
    setting_returns_the_attributes_before
    only_the_flag_is_set_the_rest_is_ignored
    other_flags_are_invalid
    the_old_attributes_need_not_be_asked_for
    setting_the_flag_makes_calls_non_blocking
    clearing_the_flag_makes_calls_block
    another_open_of_the_queue_has_a_flag_of_its_own
    a_duplicate_shares_the_flag
    the_flag_is_the_one_of_fcntl
    any_access_mode_may_get_and_set
    an_unlinked_queue_still_has_its_attributes
}

const NONBLOCK: i64 = libc::O_NONBLOCK as i64;

fn flags(flags: i64) -> Attributes {
    Attributes {
        flags,
        ..Attributes::default()
    }
}

fn the_attributes_are_those_of_creation(site: &Site) {
    for (messages, size) in [(1, 1), (10, 8192), (3, 100), (7, 8191)] {
        let queue = site.queue(messages, size);
        assert_eq!(queue.attributes(), Ok(Attributes::new(messages, size)));
        queue.close().expect("closing");
    }
}

fn the_number_of_messages_follows_sends_and_receives(site: &Site) {
    let queue = site.queue(5, 8);
    for count in 1..=5 {
        queue.send(b"x", count as u32 % 2).expect("room");
        assert_eq!(queue.messages(), count);
    }
    for count in (0..5).rev() {
        queue.receive().expect("a message");
        assert_eq!(queue.messages(), count);
    }
}

fn setting_returns_the_attributes_before(site: &Site) {
    let queue = site.queue(2, 8);
    queue.send(b"x", 0).expect("room");
    let before = Attributes {
        messages: 1,
        ..Attributes::new(2, 8)
    };
    assert_eq!(queue.set_attributes(&flags(NONBLOCK)), Ok(before));
    let before = Attributes {
        flags: NONBLOCK,
        ..before
    };
    assert_eq!(queue.attributes(), Ok(before));
    assert_eq!(queue.set_attributes(&flags(0)), Ok(before));
    assert!(!queue.is_nonblocking());
}

fn only_the_flag_is_set_the_rest_is_ignored(site: &Site) {
    let queue = site.queue(2, 8);
    let given = Attributes {
        flags: NONBLOCK,
        max_messages: 5,
        message_size: 50,
        messages: 2,
    };
    assert_eq!(queue.set_attributes(&given), Ok(Attributes::new(2, 8)));
    assert_eq!(
        queue.attributes(),
        Ok(Attributes {
            flags: NONBLOCK,
            ..Attributes::new(2, 8)
        })
    );
    let given = Attributes {
        flags: 0,
        max_messages: -5,
        message_size: i64::MIN,
        messages: -1,
    };
    assert!(queue.set_attributes(&given).is_ok());
    assert_eq!(queue.attributes(), Ok(Attributes::new(2, 8)));
}

fn other_flags_are_invalid(site: &Site) {
    let queue = site.queue(2, 8);
    let others = [
        libc::O_RDWR,
        libc::O_APPEND,
        libc::O_CREAT,
        libc::O_NONBLOCK | libc::O_RDWR,
        -1,
        1 << 30,
    ];
    for other in others
        .map(i64::from)
        .into_iter()
        .chain([1 << 40, NONBLOCK | 1 << 63])
    {
        assert_eq!(
            queue.set_attributes(&flags(other)),
            Err(Errno::EINVAL),
            "{other:#x}"
        );
    }
    assert!(!queue.is_nonblocking());
}

fn the_old_attributes_need_not_be_asked_for(site: &Site) {
    let queue = site.queue(2, 8);
    let set = site.ask(
        site.backend()
            .set_attributes_only(queue.fd(), &flags(NONBLOCK)),
    );
    assert_eq!(set, Ok(()));
    assert!(queue.is_nonblocking());
}

fn setting_the_flag_makes_calls_non_blocking(site: &Site) {
    let queue = site.queue(1, 8);
    queue.set_nonblocking(true);
    assert_eq!(queue.receive(), Err(Errno::EAGAIN));
    queue.send(b"x", 0).expect("room");
    assert_eq!(queue.send(b"x", 0), Err(Errno::EAGAIN));
}

fn clearing_the_flag_makes_calls_block(site: &Site) {
    let queue = site.nonblocking(1, 8);
    queue.set_nonblocking(false);
    let receiver = site.child(|| queue.receive());
    receiver.wait_until_blocked();
    receiver.kill();
}

fn another_open_of_the_queue_has_a_flag_of_its_own(site: &Site) {
    let name = site.name("two");
    let first = site.queue_called(&name, 1, 8);
    let second = site.open(&name, libc::O_RDWR).expect("opening it");
    first.set_nonblocking(true);
    assert!(first.is_nonblocking());
    assert!(!second.is_nonblocking());
}

fn a_duplicate_shares_the_flag(site: &Site) {
    let first = site.queue(1, 8);
    let second = first.dup().expect("a duplicate");
    first.set_nonblocking(true);
    assert!(second.is_nonblocking());
    assert_eq!(second.receive(), Err(Errno::EAGAIN));
    second.set_nonblocking(false);
    assert!(!first.is_nonblocking());
}

fn the_flag_is_the_one_of_fcntl(site: &Site) {
    let queue = site.queue(1, 8);
    queue.set_nonblocking(true);
    assert_eq!(
        queue.fcntl(libc::F_GETFL, 0),
        Ok(libc::O_RDWR | libc::O_NONBLOCK)
    );
    assert_eq!(queue.fcntl(libc::F_SETFL, 0), Ok(0));
    assert!(!queue.is_nonblocking());
    assert_eq!(queue.fcntl(libc::F_SETFL, libc::O_NONBLOCK), Ok(0));
    assert!(queue.is_nonblocking());
    assert_eq!(queue.receive(), Err(Errno::EAGAIN));
    queue.set_nonblocking(false);
    assert_eq!(queue.fcntl(libc::F_GETFL, 0), Ok(libc::O_RDWR));
}

fn any_access_mode_may_get_and_set(site: &Site) {
    let name = site.name("access");
    site.queue_called(&name, 1, 8);
    for access in [libc::O_RDONLY, libc::O_WRONLY, libc::O_RDWR] {
        let queue = site.open(&name, access).expect("opening it");
        assert_eq!(queue.attributes(), Ok(Attributes::new(1, 8)));
        queue.set_nonblocking(true);
        assert!(queue.is_nonblocking());
    }
}

fn an_unlinked_queue_still_has_its_attributes(site: &Site) {
    let name = site.name("unlinked");
    let queue = site.queue_called(&name, 3, 8);
    site.unlink(&name).expect("unlinking");
    queue.send(b"x", 0).expect("room");
    assert_eq!(
        queue.attributes(),
        Ok(Attributes {
            messages: 1,
            ..Attributes::new(3, 8)
        })
    );
}
