//! What can be wrong with a name, a file, a directory or a file system: each a specific error, no crash, nothing lost.

mod support;

use std::fs::{self, Permissions};
use std::os::fd::AsFd;
use std::os::unix::fs::{FileExt, PermissionsExt, chown, symlink};
use std::path::{Path, PathBuf};
use support::child::{Child, Exit};
use support::place::Place;
use support::scarce::{NOBODY, become_nobody, in_child, is_root};
use umsg::posix::{OpenError, OpenOptions, Queue, ReceiveError, SendError};
use umsg::{Namespace, NamespaceError};

/// A place with a queue "/q" that holds one message, and the path of its file.
fn place_with_queue() -> (Place, PathBuf) {
    let place = Place::new();
    let queue = place.create("/q", 10, 100);
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

/// Opening fails the same way with and without O_CREAT; with O_EXCL the queue exists, whatever it is.
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

/// Writes `bytes` at `offset` of the queue's file, sees the queue refused, writes back what was there and receives.
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
    assert!(matches!(error, OpenError::NotAQueue(_)), "{error}");
    assert_eq!(error.errno(), libc::EINVAL);
}

#[test]
fn a_queue_of_another_version_is_refused_by_its_number() {
    let error = refused_with_header(8, &99_u32.to_ne_bytes());
    assert!(
        matches!(error, OpenError::OtherVersion { found: 99, .. }),
        "{error}"
    );
    assert_eq!(error.errno(), libc::EINVAL);
}

#[test]
fn a_queue_of_another_layout_is_refused() {
    let error = refused_with_header(12, &0x1234_5678_u32.to_ne_bytes());
    assert!(matches!(error, OpenError::OtherVersion { .. }), "{error}");
    assert_eq!(error.errno(), libc::EINVAL);
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
        // In range, but not what the file was made for.
        (16, 5000),
        (20, 4096),
        (24, 4096),
        (28, 1),
    ];
    for (offset, value) in beyond {
        let error = refused_with_header(offset, &value.to_ne_bytes());
        assert!(
            matches!(error, OpenError::Damaged(_)),
            "{offset}, {value}: {error}"
        );
        assert_eq!(error.errno(), libc::EBADMSG);
    }
}

#[test]
fn a_file_shorter_than_a_header_is_not_a_queue() {
    for length in [0, 1, 31] {
        let (place, path) = place_with_queue();
        fs::File::options()
            .write(true)
            .open(path)
            .unwrap()
            .set_len(length)
            .unwrap();
        let error = refused(&place, "/q");
        assert!(
            matches!(error, OpenError::NotAQueue(_)),
            "{length}: {error}"
        );
        assert_eq!(error.errno(), libc::EINVAL);
    }
}

#[test]
fn a_file_of_another_length_than_its_header_says_is_damage() {
    let (_place, path) = place_with_queue();
    let whole = fs::metadata(path).unwrap().len();
    for length in [32, 4096, whole - 4096, whole - 1, whole + 1, whole + 4096] {
        let (place, path) = place_with_queue();
        fs::File::options()
            .write(true)
            .open(path)
            .unwrap()
            .set_len(length)
            .unwrap();
        let error = refused(&place, "/q");
        assert!(matches!(error, OpenError::Damaged(_)), "{length}: {error}");
        assert_eq!(error.errno(), libc::EBADMSG);
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
        assert!(matches!(error, OpenError::NotAQueue(_)), "{name}: {error}");
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
        assert!(
            matches!(error, OpenError::InvalidAttributes { what: named, .. } if named == what),
            "{error}"
        );
        assert_eq!(error.errno(), libc::EINVAL);
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

fn chmod(path: &Path, mode: u32) {
    fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
}

/// A namespace that everybody may use, with root's queue "/q" of mode `mode`.
fn shared_place(mode: u32) -> Place {
    let place = Place::new();
    chmod(place.path(), 0o1777);
    in_child(|| {
        // SAFETY: the umask of this child, which would take bits from the mode.
        unsafe { libc::umask(0) };
        let queue = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .mode(mode)
            .namespace(&Namespace::at(place.path()).unwrap())
            .open("/q")
            .unwrap();
        queue.try_send(b"kept", 0).unwrap();
        0
    });
    place
}

#[test]
fn a_queue_whose_mode_grants_nothing_is_denied() {
    if !is_root() {
        return;
    }
    for (mode, read, write) in [
        (0o600, false, false),
        (0o604, true, false),
        (0o602, false, true),
    ] {
        let place = shared_place(mode);
        in_child(|| {
            become_nobody();
            let namespace = Namespace::at(place.path()).unwrap();
            for (reads, writes) in [(true, false), (false, true), (true, true)] {
                let result = OpenOptions::new()
                    .read(reads)
                    .write(writes)
                    .namespace(&namespace)
                    .open("/q");
                let granted = (!reads || read) && (!writes || write);
                match result {
                    Ok(_) => assert!(granted, "{mode:o} granted {reads} {writes}"),
                    Err(error) => {
                        assert!(!granted, "{mode:o}: {error}");
                        assert!(matches!(error, OpenError::PermissionDenied), "{error}");
                        assert_eq!(error.errno(), libc::EACCES);
                    }
                }
            }
            let error = umsg::posix::unlink_in(&namespace, "/q").unwrap_err();
            assert_eq!(error.errno(), libc::EACCES, "{error}");
            0
        });
        assert_eq!(place.open("/q").receive_vec().unwrap().data, b"kept");
    }
}

#[test]
fn a_namespace_that_is_missing_is_named() {
    let place = Place::new();
    let missing = place.path().join("missing");
    let error = Namespace::at(&missing).unwrap_err();
    assert!(
        matches!(&error, NamespaceError::Missing { path } if *path == missing),
        "{error}"
    );
    assert_eq!(error.errno(), libc::ENOENT);

    let file = place.path().join("file");
    fs::write(&file, b"").unwrap();
    let error = Namespace::at(&file).unwrap_err();
    assert!(
        matches!(error, NamespaceError::NotADirectory { .. }),
        "{error}"
    );
    assert_eq!(error.errno(), libc::ENOTDIR);

    let link = place.path().join("link");
    symlink(place.path(), &link).unwrap();
    let error = Namespace::at(&link).unwrap_err();
    assert!(matches!(error, NamespaceError::Symlink { .. }), "{error}");
    assert_eq!(error.errno(), libc::ELOOP);
}

#[test]
fn a_namespace_that_vanishes_keeps_its_open_queues() {
    let place = Place::new();
    let queue = place.create("/q", 4, 8);
    queue.try_send(b"kept", 0).unwrap();
    fs::remove_dir_all(place.path()).unwrap();
    for result in [
        open(&place.namespace, "/q"),
        create(&place.namespace, "/new"),
    ] {
        let error = result.unwrap_err();
        assert!(
            matches!(error, OpenError::Namespace(NamespaceError::Missing { .. })),
            "{error}"
        );
        assert_eq!(error.errno(), libc::ENOENT);
    }
    queue.try_send(b"more", 0).unwrap();
    assert_eq!(queue.receive_vec().unwrap().data, b"kept");
    assert_eq!(queue.receive_vec().unwrap().data, b"more");
    fs::create_dir(place.path()).unwrap();
}

#[test]
fn a_namespace_that_others_could_tamper_with_is_refused() {
    let place = Place::new();
    chmod(place.path(), 0o777);
    let error = Namespace::at(place.path()).unwrap_err();
    assert!(
        matches!(error, NamespaceError::Tamperable { mode: 0o777, .. }),
        "{error}"
    );
    assert_eq!(error.errno(), libc::EACCES);
    // The queues' directory is judged again each time.
    chmod(&place.path().join("mq"), 0o777);
    let error = open(&place.namespace, "/q").unwrap_err();
    assert!(
        matches!(
            error,
            OpenError::Namespace(NamespaceError::Tamperable { .. })
        ),
        "{error}"
    );
    assert_eq!(error.errno(), libc::EACCES);
    if is_root() {
        chmod(place.path(), 0o700);
        chown(place.path(), Some(NOBODY), None).unwrap();
        let error = Namespace::at(place.path()).unwrap_err();
        assert!(
            matches!(error, NamespaceError::Stranger { owner: NOBODY, .. }),
            "{error}"
        );
        assert_eq!(error.errno(), libc::EACCES);
    }
}

#[test]
fn a_namespace_that_may_not_be_written_or_searched_says_which() {
    if !is_root() {
        return;
    }
    let place = shared_place(0o666);
    chmod(place.path(), 0o755);
    chmod(&place.path().join("mq"), 0o755);
    in_child(|| {
        become_nobody();
        let namespace = Namespace::at(place.path()).unwrap();
        let error = create(&namespace, "/new").unwrap_err();
        assert!(
            matches!(
                error,
                OpenError::Namespace(NamespaceError::NotWritable { .. })
            ),
            "{error}"
        );
        assert_eq!(error.errno(), libc::EACCES);
        // What is there can be used.
        assert_eq!(
            open(&namespace, "/q").unwrap().receive_vec().unwrap().data,
            b"kept"
        );
        0
    });
    chmod(place.path(), 0o700);
    in_child(|| {
        become_nobody();
        let error = Namespace::at(place.path()).unwrap_err();
        assert!(
            matches!(error, NamespaceError::NotAccessible { .. }),
            "{error}"
        );
        assert_eq!(error.errno(), libc::EACCES);
        0
    });
}

/// Where the records of what is held lie in a queue of 10 messages: section 1 of docs/format.md.
const HOLDING: u64 = 1024;
const HOLDS: u64 = 589_824;
const HOLD: u64 = 48;

/// Uses everything that goes by those records. What the calls answer does not matter, but that they do.
fn use_in_place(queue: &Queue) {
    let soon = std::time::Duration::from_millis(1);
    let mut held = Vec::new();
    let mut rooms = Vec::new();
    for round in 0..4 {
        let _ = queue.send_timeout(&[round; 90], u32::from(round), soon);
        rooms.extend(queue.try_reserve(90));
        rooms.extend(queue.reserve_timeout(1, soon));
        held.extend(queue.try_receive_lease());
        held.extend(queue.receive_lease_timeout(soon));
        for lease in &held {
            let _ = (lease.limit(std::time::Duration::ZERO), lease.to_vec());
        }
        let _ = (queue.attributes(), queue.messages(20));
        if let Some(room) = rooms.pop() {
            let _ = room.commit(3);
        }
        if let Some(lease) = held.pop() {
            let _ = lease.acknowledge();
        }
        let _ = queue.try_receive(&mut [0; 100]);
        let _ = queue.status();
    }
}

#[test]
fn scribbled_records_of_what_is_held_make_errors_and_nothing_worse() {
    let mut random = support::Random::new(7);
    for round in 0..150 {
        let place = Place::new();
        let queue = place.create("/q", 10, 100);
        for number in 0..6 {
            queue.try_send(&[number; 100], 2).unwrap();
        }
        let held: Vec<_> = (0..3).map(|_| queue.try_receive_lease().unwrap()).collect();
        let room = queue.try_reserve(100).unwrap();
        let file = fs::File::options()
            .read(true)
            .write(true)
            .open(place.path().join("mq/q"))
            .unwrap();
        let word = |offset| {
            let mut word = [0; 4];
            file.read_exact_at(&mut word, offset).unwrap();
            u32::from_ne_bytes(word)
        };
        // Three that are leased and one that is reserved, by this process: this is the place.
        let states: Vec<u32> = (0..5).map(|index| word(HOLDS + index * HOLD)).collect();
        assert_eq!(states, [2, 2, 2, 1, 0]);
        assert_eq!(word(HOLDS + 16), std::process::id());

        let mut scribbles = Vec::new();
        for _ in 0..=random.below(3) {
            let offset = match random.below(3) {
                0 => HOLDING + random.below(20) * 4,
                _ => HOLDS + random.below(5 * HOLD / 4) * 4,
            };
            let value = match random.below(4) {
                0 => random.next() as u32,
                1 => u32::MAX >> random.below(32),
                _ => random.below(7) as u32,
            };
            file.write_all_at(&value.to_ne_bytes(), offset).unwrap();
            scribbles.push((offset, value));
        }
        eprintln!("{round}: {scribbles:?}");
        in_child(|| {
            use_in_place(&place.open("/q"));
            0
        });
        // The holder's own calls return too, and a repair.
        drop((held, room));
        use_in_place(&queue);
    }
}

#[test]
fn a_mode_that_only_the_library_enforces_is_refused_where_the_namespace_says_so() {
    let place = Place::new();
    let limits = umsg::Limits {
        enforced_modes: true,
        ..umsg::Limits::default()
    };
    place.namespace.set_limits(&limits).unwrap();
    let make = |mode| {
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).mode(mode);
        options.namespace(&place.namespace).open("/q")
    };
    // Alone in its process: the umask is the process's. It makes 0600 of it.
    let mut child = Child::run(|| {
        // SAFETY: a number of this process, which is a child of its own.
        unsafe { libc::umask(0o077) };
        for mode in [0o400, 0o200] {
            let error = make(mode).unwrap_err();
            assert!(matches!(error, OpenError::ModeNotEnforced { mode: found } if found == mode));
            assert_eq!(error.errno(), libc::EACCES);
        }
        drop(make(0o644).unwrap());
        // SAFETY: as above.
        unsafe { libc::umask(0o022) };
        umsg::posix::unlink_in(&place.namespace, "/q").unwrap();
        let error = make(0o666).unwrap_err();
        assert!(error.to_string().contains("mode 0644"), "{error}");
        0
    });
    child.expect(Exit::Code(0), "the maker");
    let queue = make(0o600).unwrap();
    let file = std::fs::File::options()
        .read(true)
        .write(true)
        .open(place.path().join("mq/q"))
        .unwrap();
    let error = queue.set_mode(file.as_fd(), 0o640).unwrap_err();
    assert!(matches!(error, OpenError::ModeNotEnforced { mode: 0o640 }));
    queue.set_mode(file.as_fd(), 0o660).unwrap();
    assert_eq!(queue.mode(), 0o660);
}
