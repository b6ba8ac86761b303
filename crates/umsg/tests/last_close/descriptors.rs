//! Queues that are removed with their last user: the descriptors that they use, the use of a descriptor as a handle, and the calls that they make.

use super::*;
use support::seccomp::act_on;
use umsg_testkit::users::{NOBODY, become_user};

#[test]
fn a_queue_is_held_without_a_descriptor_and_by_the_descriptor_of_none() {
    let place = Place::in_turn();
    let mut child = Child::run(|| {
        // The lowest free descriptor number. A descriptor that the library keeps would change this number.
        let lowest = || {
            use std::os::fd::AsRawFd;
            File::open("/dev/null").unwrap().as_raw_fd()
        };
        let before = lowest();
        let queue = create(&place);
        assert_eq!(lowest(), before);
        // SAFETY: no code of this child uses these descriptors, and the test checks this.
        unsafe { libc::close_range(3, u32::MAX, 0) };
        assert!(place.namespace.sweep().unwrap().is_empty());
        assert_eq!(look(&place).unwrap().identity(), queue.identity());
        drop(queue);
        let mut options = options(&place);
        options.create(true).remove_on_last_close(true);
        for _ in 0..2 {
            // The first call creates the queue, the second one finds it. An open descriptor alone does not keep the queue.
            let (queue, descriptor) = options.open_with_descriptor("/q", false).unwrap();
            let (other, _) = options.open_with_descriptor("/q", true).unwrap();
            drop(queue);
            let third = Queue::from_fd(descriptor.as_fd()).unwrap();
            drop(other);
            assert!(place.namespace.sweep().unwrap().is_empty());
            drop(third);
            assert!(matches!(look(&place), Err(OpenError::NotFound)));
            assert!(Queue::from_fd(descriptor.as_fd()).is_ok(), "unlinked");
        }
        0
    });
    child.expect(Exit::Code(0), "the child");
    expect_gone(&place);
}

#[test]
fn a_queue_is_found_by_its_descriptor_whatever_it_is_called() {
    let place = Place::in_turn();
    for name in ["/mq", "/queue", "/.namespace"] {
        let mut options = options(&place);
        options.create(true).remove_on_last_close(true);
        let first = options.open(name).unwrap();
        // Uses the descriptor of an existing queue, because the creator's descriptor is that of a file without a name.
        let (queue, descriptor) = options.open_with_descriptor(name, false).unwrap();
        drop((first, Queue::from_fd(descriptor.as_fd()).unwrap()));
        let second = Queue::from_fd(descriptor.as_fd()).unwrap();
        drop(queue);
        let found = options.create(false).counted(false).open(name);
        let found = found.unwrap_or_else(|error| panic!("{name}: {error}"));
        assert_eq!(found.identity(), second.identity(), "{name}");
        drop(second);
        expect_gone(&place);
    }
    expect_nothing_else(&place, "at the end");
}

#[test]
fn a_process_that_can_not_open_the_file_again_has_the_queue_by_its_descriptor() {
    let place = Place::in_turn();
    let _first = create(&place);
    let (queue, descriptor) = options(&place).open_with_descriptor("/q", false).unwrap();
    let use_it = || {
        let same = Queue::from_fd(descriptor.as_fd()).unwrap();
        same.try_send(b"m", 0).unwrap();
        assert_eq!(queue.receive_vec().unwrap().data, b"m");
        drop(same);
        0
    };
    in_child(|| {
        leave_descriptors(0);
        use_it()
    });
    umsg_testkit::needs_root!();
    allow_all(&place);
    in_child(|| {
        become_user(NOBODY);
        use_it()
    });
    assert_eq!(look(&place).unwrap().identity(), queue.identity());
}

#[test]
fn one_descriptor_is_enough_to_open_a_queue() {
    let place = Place::in_turn();
    let queue = create(&place);
    in_child(|| {
        leave_descriptors(1);
        let other = open(&place).unwrap();
        assert_eq!(other.identity(), queue.identity());
        0
    });
}

/// Lets all processes make and see queues in the namespace.
fn allow_all(place: &Place) {
    use std::os::unix::fs::PermissionsExt;
    let parts = ["", "mq", "bell"].map(|part| place.path().join(part));
    for path in parts {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o1777)).unwrap();
    }
}

#[test]
fn a_process_that_may_not_remove_a_queue_never_locks_it() {
    let place = Place::in_turn();
    umsg_testkit::needs_root!();
    allow_all(&place);
    let told = Shared::<Told>::new();
    let mut user = user(&place, &told);
    let file = place.path().join("mq/q/queue");
    rustix::fs::chmod(&file, rustix::fs::Mode::from_raw_mode(0o666)).unwrap();
    user.kill();
    in_child(|| {
        become_user(NOBODY);
        // A process that takes the queue's lock dies at this point: the sweep must not take the lock.
        crash::arm("TRANSIENT_LOCKED", 1);
        assert!(place.namespace.sweep().unwrap().is_empty());
        assert!(place.namespace.stale_files().unwrap().is_empty());
        assert_eq!(posix::list(&place.namespace).unwrap().len(), 1);
        0
    });
    assert_eq!(place.namespace.sweep().unwrap().queues, ["/q"]);
}

/// From now on, the calls by which queues are removed with their last users kill this process.
fn forbid_the_calls() {
    act_on(
        &[libc::SYS_flock, libc::SYS_mkdirat],
        libc::SECCOMP_RET_KILL_PROCESS,
    );
}

#[test]
fn a_queue_that_stays_makes_none_of_the_calls_of_one_that_goes() {
    let place = Place::in_turn();
    let _other = create(&place);
    for goes in [false, true] {
        let mut child = Child::run(|| {
            forbid_the_calls();
            let mut options = options(&place);
            options.create(true).remove_on_last_close(goes);
            let queue = options.open("/other").unwrap();
            queue.try_send(b"m", 0).unwrap();
            drop(queue);
            let again = options.open("/other").unwrap();
            assert_eq!(again.receive_vec().unwrap().data, b"m");
            drop(again);
            posix::unlink_in(&place.namespace, "/other").unwrap();
            0
        });
        let end = match goes {
            false => Exit::Code(0),
            true => Exit::Signal(libc::SIGSYS),
        };
        child.expect(end, "a child that may not lock");
    }
}
