//! Modes and namespaces that deny a process access, and namespaces that a process must refuse.

use super::*;
use umsg_testkit::users::{NOBODY, become_user, is_root};

fn chmod(path: &Path, mode: u32) {
    fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
}

/// A namespace that all processes may use, with root's queue "/q" of mode `mode`.
fn shared_place(mode: u32) -> Place {
    let place = Place::new();
    chmod(place.path(), 0o1777);
    in_child(|| {
        // SAFETY: the call changes a setting of this child, whose umask would clear bits of the mode.
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
    umsg_testkit::needs_root!();
    for (mode, read, write) in [
        (0o600, false, false),
        (0o604, true, false),
        (0o602, false, true),
    ] {
        let place = shared_place(mode);
        in_child(|| {
            become_user(NOBODY);
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
                        expect_error!(error, OpenError::PermissionDenied, libc::EACCES);
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
    expect_error!(error, NamespaceError::NotADirectory { .. }, libc::ENOTDIR);

    let link = place.path().join("link");
    symlink(place.path(), &link).unwrap();
    let error = Namespace::at(&link).unwrap_err();
    expect_error!(error, NamespaceError::Symlink { .. }, libc::ELOOP);
}

#[test]
fn a_namespace_that_vanishes_keeps_its_open_queues() {
    let (place, queue) = Place::new().with_queue("/q", 4, 8);
    queue.try_send(b"kept", 0).unwrap();
    fs::remove_dir_all(place.path()).unwrap();
    for result in [
        open(&place.namespace, "/q"),
        create(&place.namespace, "/new"),
    ] {
        let error = result.unwrap_err();
        expect_error!(
            error,
            OpenError::Namespace(NamespaceError::Missing { .. }),
            libc::ENOENT
        );
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
    expect_error!(
        error,
        NamespaceError::Tamperable { mode: 0o777, .. },
        libc::EACCES
    );
    // Each use of the namespace checks the queues' directory again.
    chmod(&place.path().join("mq"), 0o777);
    let error = open(&place.namespace, "/q").unwrap_err();
    expect_error!(
        error,
        OpenError::Namespace(NamespaceError::Tamperable { .. }),
        libc::EACCES
    );
    if is_root() {
        chmod(place.path(), 0o700);
        chown(place.path(), Some(NOBODY), None).unwrap();
        let error = Namespace::at(place.path()).unwrap_err();
        expect_error!(
            error,
            NamespaceError::Stranger { owner: NOBODY, .. },
            libc::EACCES
        );
    }
}

#[test]
fn a_namespace_that_may_not_be_written_or_searched_says_which() {
    umsg_testkit::needs_root!();
    let place = shared_place(0o666);
    chmod(place.path(), 0o755);
    chmod(&place.path().join("mq"), 0o755);
    in_child(|| {
        become_user(NOBODY);
        let namespace = Namespace::at(place.path()).unwrap();
        let error = create(&namespace, "/new").unwrap_err();
        expect_error!(
            error,
            OpenError::Namespace(NamespaceError::NotWritable { .. }),
            libc::EACCES
        );
        // The existing queue can be used.
        assert_eq!(
            open(&namespace, "/q").unwrap().receive_vec().unwrap().data,
            b"kept"
        );
        0
    });
    chmod(place.path(), 0o700);
    in_child(|| {
        become_user(NOBODY);
        let error = Namespace::at(place.path()).unwrap_err();
        expect_error!(error, NamespaceError::NotAccessible { .. }, libc::EACCES);
        0
    });
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
    // The test needs a process of its own, because a umask belongs to a process. The umask makes the mode 0600.
    let mut child = Child::run(|| {
        // SAFETY: the call changes a setting of this process, which runs only this test.
        unsafe { libc::umask(0o077) };
        for mode in [0o400, 0o200] {
            let error = make(mode).unwrap_err();
            assert!(matches!(error, OpenError::ModeNotEnforced { mode: found } if found == mode));
            assert_eq!(error.errno(), libc::EACCES);
        }
        drop(make(0o644).unwrap());
        // SAFETY: the call changes a setting of this process, which runs only this test.
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
