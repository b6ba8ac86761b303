//! Faults of a name, a file, a directory or a file system: each gives a specific error, no crash, and no loss.

#[path = "bad_input/leases.rs"]
mod leases;
#[path = "bad_input/namespaces.rs"]
mod namespaces;
mod support;

use std::fs::{self, Permissions};
use std::os::fd::AsFd;
use std::os::unix::fs::{FileExt, PermissionsExt, chown, symlink};
use std::path::{Path, PathBuf};
use support::child::{Child, Exit};
use support::place::Place;
use support::scarce::in_child;
use umsg::SegmentError;
use umsg::posix::{OpenError, OpenOptions, Queue, ReceiveError, SendError};
use umsg::{Namespace, NamespaceError};

/// Returns a place with a queue "/q" that holds one message, and the path of its file.
fn place_with_queue() -> (Place, PathBuf) {
    let (place, queue) = Place::new().with_queue("/q", 10, 100);
    queue.try_send(b"kept", 3).unwrap();
    let file = place.path().join("mq/q");
    (place, file)
}

fn open(namespace: &Namespace, name: &str) -> Result<Queue, OpenError> {
    OpenOptions::new()
        .read(true)
        .write(true)
        .namespace(namespace)
        .open(name)
}

fn create(namespace: &Namespace, name: &str) -> Result<Queue, OpenError> {
    OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .namespace(namespace)
        .open(name)
}

/// Opening fails the same way with and without O_CREAT. With O_EXCL, an entry of any kind means that the queue exists.
#[track_caller]
fn refused(place: &Place, name: &str) -> OpenError {
    let error = create(&place.namespace, name).expect_err("a bad queue was opened with O_CREAT");
    let exclusive = OpenOptions::new()
        .read(true)
        .create(true)
        .exclusive(true)
        .namespace(&place.namespace)
        .open(name)
        .expect_err("a bad queue was made anew");
    assert!(matches!(exclusive, OpenError::AlreadyExists), "{exclusive}");
    let again = open(&place.namespace, name).expect_err("a bad queue was opened");
    assert_eq!(error.to_string(), again.to_string());
    again
}

/// Writes `bytes` at `offset` of the queue's file, checks that the queue is refused, restores the old bytes and receives.
#[track_caller]
fn refused_with_header(offset: u64, bytes: &[u8]) -> OpenError {
    let (place, path) = place_with_queue();
    let file = fs::File::options()
        .read(true)
        .write(true)
        .open(path)
        .unwrap();
    let mut before = vec![0; bytes.len()];
    file.read_exact_at(&mut before, offset).unwrap();
    file.write_all_at(bytes, offset).unwrap();
    let error = refused(&place, "/q");
    file.write_all_at(&before, offset).unwrap();
    assert_eq!(place.open("/q").receive_vec().unwrap().data, b"kept");
    error
}

#[test]
fn a_file_without_the_magic_number_is_not_a_queue() {
    let error = refused_with_header(0, b"#!/bin/s");
    expect_error!(
        error,
        OpenError::Segment(SegmentError::NotAQueue(_)),
        libc::EINVAL
    );
}

#[test]
fn a_queue_of_another_version_is_refused_by_its_number() {
    let error = refused_with_header(8, &99_u32.to_ne_bytes());
    expect_error!(
        error,
        OpenError::Segment(SegmentError::OtherVersion { found: 99, .. }),
        libc::EINVAL
    );
}

#[test]
fn a_queue_of_another_layout_is_refused() {
    let error = refused_with_header(12, &0x1234_5678_u32.to_ne_bytes());
    expect_error!(
        error,
        OpenError::Segment(SegmentError::OtherVersion { .. }),
        libc::EINVAL
    );
}

#[test]
fn header_attributes_out_of_range_are_damage() {
    let beyond = [
        (16, 0_u32),
        (16, 1_048_577),
        (16, u32::MAX),
        (20, 0),
        (20, (16 << 20) + 1),
        (20, u32::MAX),
        // A value in the valid range, but not the one for which the file was created.
        (16, 5000),
        (20, 4096),
        (24, 4096),
        (28, 1),
    ];
    for (offset, value) in beyond {
        let error = refused_with_header(offset, &value.to_ne_bytes());
        expect_damage(&error, &format!("{offset}, {value}"));
    }
}

#[track_caller]
fn expect_damage(error: &OpenError, what: &str) {
    expect_error!(
        error,
        OpenError::Segment(SegmentError::Damaged(_)),
        libc::EBADMSG,
        "{what}"
    );
}

/// Returns the error of opening a queue's file of this length.
fn refused_with_length(length: u64) -> OpenError {
    let (place, path) = place_with_queue();
    let file = fs::File::options().write(true).open(path).unwrap();
    file.set_len(length).unwrap();
    refused(&place, "/q")
}

#[test]
fn a_file_shorter_than_a_header_is_not_a_queue() {
    for length in [0, 1, 31] {
        let error = refused_with_length(length);
        expect_error!(
            error,
            OpenError::Segment(SegmentError::NotAQueue(_)),
            libc::EINVAL,
            "{length}"
        );
    }
}

#[test]
fn a_file_of_another_length_than_its_header_says_is_damage() {
    let (_place, path) = place_with_queue();
    let whole = fs::metadata(path).unwrap().len();
    for length in [32, 4096, whole - 4096, whole - 1, whole + 1, whole + 4096] {
        let error = refused_with_length(length);
        expect_damage(&error, &length.to_string());
    }
}

#[test]
fn what_is_no_regular_file_is_not_a_queue() {
    let (place, _) = place_with_queue();
    let at = |name: &str| place.path().join("mq").join(name);
    fs::create_dir_all(at("directory").join("with-another")).unwrap();
    symlink(at("q"), at("link")).unwrap();
    symlink("nowhere", at("broken")).unwrap();
    let fifo = rustix::fs::Mode::from_raw_mode(0o600);
    rustix::fs::mknodat(
        rustix::fs::CWD,
        at("fifo"),
        rustix::fs::FileType::Fifo,
        fifo,
        0,
    )
    .unwrap();
    for name in ["/directory", "/link", "/broken", "/fifo"] {
        let error = refused(&place, name);
        assert!(
            matches!(error, OpenError::Segment(SegmentError::NotAQueue(_))),
            "{name}: {error}"
        );
        assert_eq!(error.errno(), libc::EINVAL, "{name}");
    }
    assert_eq!(place.open("/q").receive_vec().unwrap().data, b"kept");
    let names: Vec<String> = umsg::posix::list(&place.namespace)
        .unwrap()
        .into_iter()
        .map(|listed| listed.name.into_string().unwrap())
        .collect();
    assert_eq!(names, ["/q"]);
}

#[test]
fn a_name_that_can_be_none_is_refused_by_its_fault() {
    let place = Place::new();
    let long = format!("/{}", "x".repeat(256));
    let longest = format!("/{}", "x".repeat(255));
    let cases: [(&str, i32); 8] = [
        ("", libc::EINVAL),
        ("q", libc::EINVAL),
        ("/", libc::ENOENT),
        ("//q", libc::EACCES),
        ("/a/b", libc::EACCES),
        ("/.", libc::EACCES),
        ("/..", libc::EACCES),
        (&long, libc::ENAMETOOLONG),
    ];
    for (name, errno) in cases {
        for error in [
            create(&place.namespace, name).unwrap_err(),
            open(&place.namespace, name).unwrap_err(),
        ] {
            assert_eq!(error.errno(), errno, "{name:?}: {error}");
        }
        let error = umsg::posix::unlink_in(&place.namespace, name).unwrap_err();
        assert_eq!(error.errno(), errno, "{name:?}: {error}");
    }
    assert!(matches!(
        create(&place.namespace, ""),
        Err(OpenError::InvalidName)
    ));
    assert!(matches!(
        create(&place.namespace, "/a/b"),
        Err(OpenError::DeniedName)
    ));
    assert!(matches!(
        create(&place.namespace, &long),
        Err(OpenError::NameTooLong)
    ));
    assert!(create(&place.namespace, &longest).is_ok());
}

#[test]
fn attributes_out_of_range_are_refused_by_name() {
    let place = Place::new();
    for (messages, size, what) in [
        (0, 1, "max_messages"),
        (1_048_577, 1, "max_messages"),
        (1, 0, "message_size"),
        (1, (16 << 20) + 1, "message_size"),
    ] {
        let error = OpenOptions::new()
            .read(true)
            .create(true)
            .max_messages(messages)
            .message_size(size)
            .namespace(&place.namespace)
            .open("/new")
            .unwrap_err();
        expect_error!(error, OpenError::InvalidAttributes { what: named, .. } if named == what, libc::EINVAL);
    }
}

#[test]
fn messages_and_buffers_of_wrong_size_are_refused_and_change_nothing() {
    let (place, _) = place_with_queue();
    let queue = place.open("/q");
    let error = queue.try_send(&[0; 101], 0).unwrap_err();
    assert_eq!(
        (error, error.errno()),
        (SendError::TooLong { len: 101, max: 100 }, libc::EMSGSIZE)
    );
    let error = queue.try_send(b"", 32_768).unwrap_err();
    assert_eq!(
        (error, error.errno()),
        (SendError::PriorityTooHigh, libc::EINVAL)
    );
    let error = queue.try_receive(&mut [0; 99]).unwrap_err();
    let expected = ReceiveError::BufferTooSmall {
        len: 99,
        needed: 100,
    };
    assert_eq!((error, error.errno()), (expected, libc::EMSGSIZE));
    assert_eq!(queue.receive_vec().unwrap().data, b"kept");
    assert_eq!(queue.attributes().messages, 0);
}

#[test]
fn a_handle_does_only_what_it_was_opened_for() {
    let (place, _) = place_with_queue();
    let mut options = OpenOptions::new();
    options.namespace(&place.namespace);
    let reader = options.read(true).open("/q").unwrap();
    assert_eq!(reader.try_send(b"", 0).unwrap_err().errno(), libc::EBADF);
    let writer = options.read(false).write(true).open("/q").unwrap();
    assert_eq!(
        writer.try_receive(&mut [0; 100]).unwrap_err().errno(),
        libc::EBADF
    );
    assert_eq!(reader.receive_vec().unwrap().data, b"kept");
}
