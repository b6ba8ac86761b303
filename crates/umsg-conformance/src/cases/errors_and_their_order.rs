//! The error that a call returns if several errors apply. The order of precedence is: timespec, priority, descriptor, size, would block.

use crate::backend::Attributes;
use crate::errno::Errno;
use crate::site::{Queue, Site, message};
use crate::sys::{from_now, time};

subject! { $ errors_and_their_order, errors_and_their_order_cases:
    an_invalid_timespec_comes_before_everything_else
    an_invalid_timespec_is_an_error_even_if_nothing_would_block
    an_invalid_priority_comes_before_a_bad_descriptor
    a_bad_descriptor_comes_before_the_size
    the_wrong_access_comes_before_the_size
    the_size_comes_before_would_block
    a_closed_descriptor_is_bad
    a_number_that_was_never_a_descriptor_is_bad
    a_descriptor_of_something_else_is_bad
    a_descriptor_of_a_file_in_the_way_of_a_queue_is_bad
    the_attributes_of_something_else_can_not_be_had
    invalid_attribute_flags_come_before_a_bad_descriptor
    a_null_pointer_is_a_message_of_no_bytes
    a_null_pointer_for_more_than_that_is_a_fault
    a_null_buffer_for_a_message_of_no_bytes_is_fine
    a_null_buffer_for_a_message_is_a_fault_and_the_message_is_gone
    setting_no_attributes_returns_them
    a_failed_call_leaves_the_queue_as_it_was
}

/// Invalid timespecs.
const INVALID: [libc::timespec; 5] = [
    time(0, -1),
    time(0, 1_000_000_000),
    time(-1, 0),
    time(i64::MIN, 0),
    time(i64::MAX, i64::MAX),
];

const LONG: &[u8] = b"longer than eight bytes";

/// A descriptor number that is never open in a case.
const NEVER: i32 = 200;

fn an_invalid_timespec_comes_before_everything_else(site: &Site) {
    let queue = site.queue(2, 8);
    for deadline in INVALID {
        for queue in [queue, site.at(NEVER), site.at(-1)] {
            assert_eq!(queue.send_by(b"x", 0, deadline), Err(Errno::EINVAL));
            assert_eq!(queue.send_by(b"x", 32768, deadline), Err(Errno::EINVAL));
            assert_eq!(queue.send_by(LONG, 0, deadline), Err(Errno::EINVAL));
            assert_eq!(queue.receive_by(deadline), Err(Errno::EINVAL));
        }
    }
}

fn an_invalid_timespec_is_an_error_even_if_nothing_would_block(site: &Site) {
    let queue = site.queue(2, 8);
    assert_eq!(queue.send(b"there", 0), Ok(()));
    for nonblocking in [false, true] {
        queue.set_nonblocking(nonblocking);
        for deadline in INVALID {
            assert_eq!(queue.send_by(b"x", 0, deadline), Err(Errno::EINVAL));
            assert_eq!(queue.receive_by(deadline), Err(Errno::EINVAL));
        }
    }
    assert_eq!(queue.messages(), 1);
}

fn an_invalid_priority_comes_before_a_bad_descriptor(site: &Site) {
    for queue in [site.at(NEVER), site.at(-1)] {
        assert_eq!(queue.send(b"x", 32768), Err(Errno::EINVAL));
        assert_eq!(queue.send(LONG, 32768), Err(Errno::EINVAL));
        assert_eq!(
            queue.send_by(b"x", 32768, from_now(-1000)),
            Err(Errno::EINVAL)
        );
    }
}

fn a_bad_descriptor_comes_before_the_size(site: &Site) {
    for queue in [site.at(NEVER), site.at(-1)] {
        assert_eq!(queue.send(vec![0; 100_000], 0), Err(Errno::EBADF));
        assert_eq!(queue.receive_into(&mut []), Err(Errno::EBADF));
    }
}

fn the_wrong_access_comes_before_the_size(site: &Site) {
    let name = site.name("access");
    site.queue_called(&name, 2, 8);
    let reader = site.open(&name, libc::O_RDONLY).expect("a reader");
    let writer = site.open(&name, libc::O_WRONLY).expect("a writer");
    assert_eq!(reader.send(LONG, 0), Err(Errno::EBADF));
    assert_eq!(writer.receive_into(&mut []), Err(Errno::EBADF));
}

fn the_size_comes_before_would_block(site: &Site) {
    let queue = site.nonblocking(2, 8);
    assert_eq!(queue.receive_into(&mut [0; 7]), Err(Errno::EMSGSIZE));
    queue.fill();
    assert_eq!(queue.send(LONG, 0), Err(Errno::EMSGSIZE));
    queue.set_nonblocking(false);
    assert_eq!(
        queue.send_by(LONG, 0, from_now(-1000)),
        Err(Errno::EMSGSIZE)
    );
}

/// Expects that every call on the queue fails with EBADF.
#[track_caller]
fn expect_bad(queue: Queue<'_>) {
    assert_eq!(queue.send(b"x", 0), Err(Errno::EBADF));
    assert_eq!(queue.send_by(b"x", 0, from_now(1000)), Err(Errno::EBADF));
    assert_eq!(queue.receive_into(&mut [0; 8192]), Err(Errno::EBADF));
    assert_eq!(queue.receive_by(from_now(1000)), Err(Errno::EBADF));
    assert_eq!(queue.attributes(), Err(Errno::EBADF));
    assert_eq!(queue.set_attributes(&Default::default()), Err(Errno::EBADF));
}

fn a_closed_descriptor_is_bad(site: &Site) {
    let queue = site.queue(2, 8);
    assert_eq!(queue.close(), Ok(()));
    expect_bad(queue);
    assert_eq!(queue.close(), Err(Errno::EBADF));
}

fn a_number_that_was_never_a_descriptor_is_bad(site: &Site) {
    for fd in [-1, NEVER, 1 << 20, i32::MAX, i32::MIN] {
        expect_bad(site.at(fd));
        assert_eq!(site.at(fd).close(), Err(Errno::EBADF));
    }
}

fn a_descriptor_of_something_else_is_bad(site: &Site) {
    site.need_descriptors();
    let (reading, writing) = crate::sys::pipe().expect("a pipe");
    let file = tempfile::tempfile().expect("a file");
    let directory = std::fs::File::open("/").expect("a directory");
    use std::os::fd::AsRawFd;
    for fd in [
        reading.as_raw_fd(),
        writing.as_raw_fd(),
        file.as_raw_fd(),
        directory.as_raw_fd(),
        2,
    ] {
        expect_bad(site.at(fd));
    }
}

fn a_descriptor_of_a_file_in_the_way_of_a_queue_is_bad(site: &Site) {
    site.need_descriptors();
    let queue = site.queue(2, 8);
    let file = tempfile::tempfile().expect("a file");
    use std::os::fd::AsRawFd;
    let onto = site
        .ask(site.backend().dup2(file.as_raw_fd(), queue.fd()))
        .expect("dup2");
    assert_eq!(onto, queue.fd());
    expect_bad(queue);
}

fn the_attributes_of_something_else_can_not_be_had(site: &Site) {
    site.need_descriptors();
    for fd in [0, 1, 2] {
        assert_eq!(site.at(fd).attributes(), Err(Errno::EBADF));
    }
}

fn invalid_attribute_flags_come_before_a_bad_descriptor(site: &Site) {
    let attributes = Attributes {
        flags: i64::from(libc::O_APPEND),
        ..Attributes::default()
    };
    assert_eq!(
        site.at(NEVER).set_attributes(&attributes),
        Err(Errno::EINVAL)
    );
}

fn a_null_pointer_is_a_message_of_no_bytes(site: &Site) {
    let queue = site.queue(1, 8);
    assert_eq!(site.ask(site.backend().send_null(queue.fd(), 0, 3)), Ok(()));
    assert_eq!(queue.receive(), Ok(message("", 3)));
}

fn a_null_pointer_for_more_than_that_is_a_fault(site: &Site) {
    let queue = site.nonblocking(1, 8);
    assert_eq!(
        site.ask(site.backend().send_null(queue.fd(), 8, 3)),
        Err(Errno::EFAULT)
    );
    assert_eq!(
        site.ask(site.backend().send_null(queue.fd(), 9, 3)),
        Err(Errno::EMSGSIZE)
    );
    assert_eq!(queue.receive(), Err(Errno::EAGAIN));
}

fn a_null_buffer_for_a_message_of_no_bytes_is_fine(site: &Site) {
    let queue = site.nonblocking(1, 8);
    assert_eq!(queue.send(b"", 1), Ok(()));
    assert_eq!(site.ask(site.backend().receive_null(queue.fd(), 8)), Ok(0));
    assert_eq!(queue.receive(), Err(Errno::EAGAIN));
}

fn a_null_buffer_for_a_message_is_a_fault_and_the_message_is_gone(site: &Site) {
    let queue = site.nonblocking(2, 8);
    assert_eq!(queue.send(b"lost", 1), Ok(()));
    assert_eq!(queue.send(b"kept", 0), Ok(()));
    assert_eq!(
        site.ask(site.backend().receive_null(queue.fd(), 7)),
        Err(Errno::EMSGSIZE)
    );
    assert_eq!(
        site.ask(site.backend().receive_null(queue.fd(), 8)),
        Err(Errno::EFAULT)
    );
    assert_eq!(queue.drain(), [message("kept", 0)]);
}

fn setting_no_attributes_returns_them(site: &Site) {
    let queue = site.nonblocking(3, 8);
    let got = site.ask(site.backend().set_no_attributes(queue.fd()));
    assert_eq!(got, queue.attributes());
    assert_eq!(
        site.ask(site.backend().set_no_attributes(NEVER)),
        Err(Errno::EBADF)
    );
}

fn a_failed_call_leaves_the_queue_as_it_was(site: &Site) {
    let queue = site.nonblocking(1, 8);
    assert_eq!(queue.send(b"kept", 3), Ok(()));
    let before = queue.attributes();
    assert_eq!(queue.send(b"x", 32768), Err(Errno::EINVAL));
    assert_eq!(queue.send(LONG, 0), Err(Errno::EMSGSIZE));
    assert_eq!(queue.send(b"x", 0), Err(Errno::EAGAIN));
    assert_eq!(queue.receive_into(&mut [0; 7]), Err(Errno::EMSGSIZE));
    assert_eq!(queue.attributes(), before);
    assert_eq!(queue.receive(), Ok(message("kept", 3)));
}
