//! The mounts of a sandbox: no /proc, a /proc without other users' processes, a root that is read-only, no /dev/shm.

use super::paths::{self, LONG};
use crate::support::child::{Child, Exit};
use crate::support::place::Place;
use crate::support::scarce::{LEFT_OUT, mount_private};
use crate::support::users::all_users;
use crate::support::wait_until;
use rustix::event::{PollFd, PollFlags, poll};
use std::ffi::CStr;
use std::fs::Permissions;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::ptr::null;
use std::time::Duration;
use umsg::posix::{NotifyError, OpenOptions, Queue};
use umsg::{Namespace, NamespaceError, sysv};
use umsg_testkit::users::{NOBODY, become_user};

/// Mounts `source` at the path `at`, or with other `flags`, changes the mount there. Returns whether the call succeeded. Source: mount(2).
fn mount(
    source: Option<&CStr>,
    at: &CStr,
    kind: Option<&CStr>,
    flags: u64,
    options: &CStr,
) -> bool {
    let pointer = |text: Option<&CStr>| text.map_or(null(), CStr::as_ptr);
    // SAFETY: the pointers are null, or lead to strings that outlive the call. The mount namespace is this process's own.
    unsafe {
        libc::mount(
            pointer(source),
            at.as_ptr(),
            pointer(kind),
            flags,
            options.as_ptr().cast(),
        ) == 0
    }
}

/// Moves this process, which has to be a child, into a mount namespace of its own.
fn unshare_mounts() -> bool {
    let flags = libc::MS_REC | libc::MS_PRIVATE;
    // SAFETY: changes only the files that this process sees.
    unsafe { libc::unshare(libc::CLONE_NEWNS) == 0 && mount(None, c"/", None, flags, c"") }
}

/// Mounts an empty directory over /proc.
fn hide_proc() -> bool {
    let (source, kind) = (Some(c"none"), Some(c"tmpfs"));
    mount(source, c"/proc", kind, libc::MS_RDONLY, c"size=4k,mode=755")
}

fn expect_well(child: &mut Child) {
    match child.wait(LONG) {
        Some(Exit::Code(0)) => {}
        Some(Exit::Code(LEFT_OUT)) => eprintln!("left out: not permitted here"),
        end => panic!("{end:?}"),
    }
}

/// Makes the objects that the paths use.
fn furnish(namespace: &Namespace) {
    let mut options = OpenOptions::new();
    options
        .read(true)
        .write(true)
        .create(true)
        .namespace(namespace);
    options.max_messages(4).message_size(8);
    options.open("/there").unwrap();
    let mut options = sysv::OpenOptions::new();
    options.create(true).namespace(namespace).open(7).unwrap();
}

/// Walks each path in a child of its own, in an environment that `surround` makes. `surround` returns false if the machine does not permit this
/// environment. Each path has to work.
fn walk_all_in(surround: impl Fn() -> bool) {
    umsg_testkit::needs_root!();
    let mut wrong = Vec::new();
    for path in paths::all() {
        let place = Place::new();
        let own = place.path().join("own namespace");
        std::fs::set_permissions(place.path(), Permissions::from_mode(0o777)).unwrap();
        let mut child = Child::run(|| {
            if !surround() {
                return LEFT_OUT;
            }
            std::fs::create_dir(&own).unwrap();
            let namespace = Namespace::at(&own).unwrap();
            furnish(&namespace);
            (path.walk)(&namespace).unwrap();
            0
        });
        match child.wait(LONG + LONG) {
            Some(Exit::Code(0)) => {}
            Some(Exit::Code(LEFT_OUT)) => return eprintln!("left out: not permitted here"),
            end => wrong.push(format!("{}: {end:?}{}", path.name, child.portrait())),
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn without_proc_the_first_call_says_so() {
    let Some(shared) = all_users() else { return };
    let cover = |path, flags| {
        let options = c"size=64k,mode=1777";
        mount(Some(c"none"), path, Some(c"tmpfs"), flags, options)
    };
    for (user, is_named) in [(0, true), (0, false), (NOBODY, true), (NOBODY, false)] {
        let mut child = Child::run(|| {
            // Covers /dev/shm: otherwise the test would leave a user's own namespace in the machine's /dev/shm.
            let is_hidden = unshare_mounts()
                && cover(c"/proc", libc::MS_RDONLY)
                && (is_named || cover(c"/dev/shm", 0));
            if !is_hidden {
                return LEFT_OUT;
            }
            if user == NOBODY {
                become_user(NOBODY);
            }
            let outcome = match is_named {
                true => Namespace::at(shared.path()),
                false => Namespace::resolve(),
            };
            let error = outcome.unwrap_err();
            assert_eq!(
                (&error, error.errno()),
                (&NamespaceError::NoProc, libc::ENOSYS)
            );
            assert!(error.to_string().contains("/proc is not mounted"));
            0
        });
        expect_well(&mut child);
    }
}

/// Returns a namespace with queues.
fn furnished() -> (Place, Namespace) {
    let place = Place::new();
    let namespace = Namespace::at(place.path()).unwrap();
    furnish(&namespace);
    (place, namespace)
}

#[test]
fn where_proc_goes_later_another_users_queue_is_refused_at_once() {
    let Some(shared) = all_users() else { return };
    let namespace = Namespace::at(shared.path()).unwrap();
    furnish(&namespace);
    rustix::fs::chown(
        shared.path().join("mq/there"),
        Some(rustix::fs::Uid::from_raw(NOBODY)),
        None,
    )
    .unwrap();
    let mut child = Child::run(|| {
        if !unshare_mounts() || !hide_proc() {
            return LEFT_OUT;
        }
        for write in [false, true] {
            let mut options = OpenOptions::new();
            options.read(true).write(write).create(true);
            let error = options.namespace(&namespace).open("/there").unwrap_err();
            assert_eq!(error.errno(), libc::ENOSYS, "{error}");
        }
        0
    });
    expect_well(&mut child);
}

/// Returns a living process that is registered for a notification.
fn registrant(namespace: &Namespace) -> Child {
    let child = Child::run(|| {
        let queue = open(namespace, "/there");
        std::mem::forget(queue.notify_waiter().unwrap());
        loop {
            std::thread::sleep(LONG);
        }
    });
    let queue = open(namespace, "/there");
    assert!(wait_until(LONG, || queue.registered().is_some()));
    child
}

fn open(namespace: &Namespace, name: &str) -> Queue {
    let mut options = OpenOptions::new();
    options.read(true).write(true).namespace(namespace);
    options.open(name).unwrap()
}

#[test]
fn where_proc_goes_later_the_living_are_not_taken_for_dead() {
    umsg_testkit::needs_root!();
    let (_place, namespace) = furnished();
    let mut living = registrant(&namespace);
    let mut child = Child::run(|| {
        let queue = open(&namespace, "/there");
        if !unshare_mounts() || !hide_proc() {
            return LEFT_OUT;
        }
        assert_eq!(queue.notify_waiter().unwrap_err(), NotifyError::Busy);
        0
    });
    expect_well(&mut child);
    living.kill();
}

#[test]
fn a_sender_that_sees_no_namespace_any_more_ends_no_watch() {
    umsg_testkit::needs_root!();
    let (_place, namespace) = furnished();
    let queue = open(&namespace, "/there");
    let pollable = queue.pollable().unwrap();
    let mut child = Child::run(|| {
        let queue = open(&namespace, "/there");
        if !unshare_mounts() || !mount_private(Path::new("/dev/shm"), "size=4k") {
            return LEFT_OUT;
        }
        queue.send(b"1", 0).unwrap();
        0
    });
    expect_well(&mut child);
    // A sender that sees the namespace notifies the poller, which then learns of the first message as well.
    let mut child = Child::run(|| {
        open(&namespace, "/there").send(b"2", 0).unwrap();
        0
    });
    expect_well(&mut child);
    assert!(is_readable(pollable.as_fd(), LONG));
}

/// Returns whether a descriptor becomes readable within this time.
fn is_readable(descriptor: BorrowedFd<'_>, within: Duration) -> bool {
    let mut polled = [PollFd::new(&descriptor, PollFlags::IN)];
    let within = within.try_into().unwrap();
    poll(&mut polled, Some(&within)).unwrap() == 1
}

#[test]
fn all_paths_work_where_proc_hides_the_processes_of_others() {
    walk_all_in(|| {
        let is_mounted =
            unshare_mounts() && mount(Some(c"proc"), c"/proc", Some(c"proc"), 0, c"hidepid=2");
        if is_mounted {
            become_user(NOBODY);
        }
        is_mounted
    });
}

#[test]
fn all_paths_work_where_the_root_is_read_only() {
    let read_only = libc::MS_REMOUNT | libc::MS_BIND | libc::MS_RDONLY;
    walk_all_in(|| unshare_mounts() && mount(None, c"/", None, read_only, c""));
}

/// Fails unless `Namespace::resolve` gives a child the expected error while another mount covers /dev/shm, or /dev.
fn expect_error(surround: impl Fn() -> bool, is_expected: impl Fn(&NamespaceError) -> bool) {
    umsg_testkit::needs_root!();
    let mut child = Child::run(|| {
        if !surround() {
            return LEFT_OUT;
        }
        // SAFETY: the process is a child with one thread.
        unsafe { std::env::remove_var("UMSG_DIR") };
        let error = Namespace::resolve().unwrap_err();
        assert!(is_expected(&error), "{error:?}");
        let text = error.to_string();
        assert!(text.contains("/dev/shm"), "{text}");
        // A namespace in another directory works.
        let place = tempfile::tempdir_in("/tmp").unwrap();
        furnish(&Namespace::at(place.path()).unwrap());
        0
    });
    expect_well(&mut child);
}

#[test]
fn without_dev_shm_the_first_call_says_so() {
    let is_missing = |error: &NamespaceError| matches!(error, NamespaceError::Missing { .. });
    expect_error(|| mount_private(Path::new("/dev"), "size=4k"), is_missing);
}

#[test]
fn where_dev_shm_is_read_only_the_first_call_says_so() {
    expect_error(
        || mount_private(Path::new("/dev/shm"), "size=4k,ro"),
        |error| error.to_string().contains("ead-only"),
    );
}
