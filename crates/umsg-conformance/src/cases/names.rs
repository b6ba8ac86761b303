//! Valid names, and the errors for invalid names.

use std::ffi::CStr;

use crate::errno::Errno;
use crate::site::{Site, message};

subject! { $ names, names_cases:
    a_name_without_a_leading_slash_is_invalid
    the_slash_alone_is_no_entry
    a_second_slash_is_denied
    the_directory_names_dot_and_dot_dot_are_denied
    a_name_of_255_bytes_is_fine
    a_name_of_256_bytes_is_too_long
    any_other_byte_may_be_in_a_name
    a_leading_dot_is_nothing_special
    names_that_differ_in_case_are_different_queues
    opening_one_name_twice_leads_to_one_queue
}

const CREATE: i32 = libc::O_CREAT | libc::O_RDWR;

/// Expects that opening, creating and unlinking this name fail with this errno.
#[track_caller]
fn expect_everywhere(site: &Site, name: &CStr, errno: Errno) {
    assert_eq!(site.open(name, libc::O_RDWR), Err(errno), "open {name:?}");
    assert_eq!(
        site.open_with(name, CREATE, 0o600, None),
        Err(errno),
        "create {name:?}"
    );
    assert_eq!(site.unlink(name), Err(errno), "unlink {name:?}");
}

fn a_name_without_a_leading_slash_is_invalid(site: &Site) {
    for name in [c"", c"queue", c".", c"a/b", c" /queue"] {
        expect_everywhere(site, name, Errno::EINVAL);
    }
}

fn the_slash_alone_is_no_entry(site: &Site) {
    expect_everywhere(site, c"/", Errno::ENOENT);
}

fn a_second_slash_is_denied(site: &Site) {
    for name in [c"//", c"//queue", c"/queue/", c"/a/b", c"/../etc"] {
        expect_everywhere(site, name, Errno::EACCES);
    }
}

fn the_directory_names_dot_and_dot_dot_are_denied(site: &Site) {
    for name in [c"/.", c"/.."] {
        expect_everywhere(site, name, Errno::EACCES);
    }
}

fn a_name_of_255_bytes_is_fine(site: &Site) {
    let name = site.name_of_length(255);
    let queue = site.queue_called(&name, 1, 8);
    assert_eq!(queue.send(b"long", 0), Ok(()));
    let again = site.open(&name, libc::O_RDONLY).expect("opening it again");
    assert_eq!(again.receive(), Ok(message("long", 0)));
    assert_eq!(site.unlink(&name), Ok(()));
}

fn a_name_of_256_bytes_is_too_long(site: &Site) {
    expect_everywhere(site, &site.name_of_length(256), Errno::ENAMETOOLONG);
    expect_everywhere(site, &site.name_of_length(4000), Errno::ENAMETOOLONG);
}

fn any_other_byte_may_be_in_a_name(site: &Site) {
    for odd in [
        &b"with space"[..],
        b"new\nline",
        b"\xff\xfe",
        b"back\\slash",
        b"\x01\x7f",
        b"*?[a]",
        b"-rf",
        b"~",
    ] {
        let mut bytes = odd.to_vec();
        bytes.splice(0..0, b"/".iter().copied());
        bytes.extend(format!("-umsg-{}", crate::sys::pid()).into_bytes());
        let name = site.announced(bytes);
        let queue = site.queue_called(&name, 1, 8);
        assert_eq!(
            site.open(&name, libc::O_RDWR).map(|again| again.close()),
            Ok(Ok(())),
            "{name:?}"
        );
        assert_eq!(queue.close(), Ok(()));
        assert_eq!(site.unlink(&name), Ok(()), "{name:?}");
        assert_eq!(
            site.open(&name, libc::O_RDWR),
            Err(Errno::ENOENT),
            "{name:?}"
        );
    }
}

fn a_leading_dot_is_nothing_special(site: &Site) {
    for start in ["/.", "/..", "/...", "/.tmp-", "/.namespace-"] {
        let name = site.announced(format!("{start}umsg-{}", crate::sys::pid()));
        site.queue_called(&name, 1, 8);
        assert_eq!(site.unlink(&name), Ok(()), "{name:?}");
    }
}

fn names_that_differ_in_case_are_different_queues(site: &Site) {
    let lower = site.name("case");
    let upper = site.announced(lower.to_str().expect("ASCII").to_uppercase());
    let lower = site.queue_called(&lower, 1, 8);
    let upper = site.queue_called(&upper, 1, 8);
    assert_eq!(lower.send(b"lower", 0), Ok(()));
    assert_eq!((lower.messages(), upper.messages()), (1, 0));
}

fn opening_one_name_twice_leads_to_one_queue(site: &Site) {
    let name = site.name("twice");
    let first = site.queue_called(&name, 2, 8);
    let second = site.open(&name, libc::O_RDWR).expect("opening it again");
    assert_ne!(first.fd(), second.fd());
    assert_eq!(first.send(b"through", 5), Ok(()));
    assert_eq!(second.receive(), Ok(message("through", 5)));
}
