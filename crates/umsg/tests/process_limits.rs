//! The limits of a process (setrlimit(2)): the size of files, descriptors, address space, threads. Each is an error of the
//! call that needs more, and the error names the limit. Nothing is lost, and the failed call frees all memory and descriptors that it had taken.

mod support;

use std::fs::Permissions;
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::time::Duration;
use support::child::{Child, Exit};
use support::face::{Face, Told};
use support::place::Place;
use support::scarce::{InUse, entries, in_child, leave_descriptors, limit};
use umsg::Namespace;
use umsg::posix::{Notify, NotifyError};
use umsg_testkit::users::{NOBODY, become_user};

/// Sends and receives some messages, short and long, and waits until a time-out.
fn use_it<F: Face>(line: &mut F) {
    for number in 0..20_u8 {
        line.send(0, &vec![number; 200 * usize::from(number)])
            .unwrap();
    }
    for number in 0..20_u8 {
        let message = line.receive().unwrap();
        assert_eq!(message, vec![number; 200 * usize::from(number)]);
    }
    let told = line.receive_timeout(Duration::from_millis(1)).unwrap_err();
    assert_eq!(told.errno, libc::ETIMEDOUT, "{told:?}");
}

fn a_limit_on_the_size_of_files_is_an_error_and_no_signal<F: Face>() {
    let (place, elsewhere) = (Place::new(), Place::new());
    in_child(|| {
        let mut line = F::make(&place.namespace).unwrap();
        let before = entries(place.path());
        limit(libc::RLIMIT_FSIZE, 4096);
        let told = F::make(&elsewhere.namespace)
            .err()
            .expect("a limit that is ignored");
        told.says(libc::EFBIG, &["ulimit -f", " bytes"]);
        assert_eq!(entries(elsewhere.path()), [".namespace"]);
        // An existing queue does not grow: its file has its full length from the start.
        use_it(&mut line);
        assert_eq!(entries(place.path()), before);
        line.remove(&place.namespace);
        0
    });
}

/// Makes a queue in a child that may open at most `free` further files. Returns whether this number of files was enough.
fn is_enough<F: Face>(free: usize) -> bool {
    let place = Place::new();
    let mut child = Child::run(|| {
        let before = (InUse::now().descriptors, entries(place.path()));
        let plenty = limit(libc::RLIMIT_NOFILE, 1024);
        leave_descriptors(free);
        let made = F::make(&place.namespace);
        limit(libc::RLIMIT_NOFILE, plenty);
        let Err(told) = made else {
            return 1;
        };
        told.says(libc::EMFILE, &["descriptor", "ulimit -n"]);
        assert_eq!((InUse::now().descriptors, entries(place.path())), before);
        0
    });
    match child.wait(Duration::from_secs(20)) {
        Some(Exit::Code(enough @ 0..=1)) => enough == 1,
        other => panic!("the child ended with {other:?}"),
    }
}

fn making_takes_some_descriptors_whose_lack_is_told<F: Face>() {
    let needed = (0..10).find(|&free| is_enough::<F>(free));
    assert!(needed.is_some_and(|needed| needed > 0), "{needed:?}");
    eprintln!("{}: {needed:?} descriptors", F::NAME);
}

fn what_is_open_is_used_without_any_descriptor<F: Face>() {
    let place = Place::new();
    in_child(|| {
        let mut line = F::make(&place.namespace).unwrap();
        let plenty = limit(libc::RLIMIT_NOFILE, 0);
        use_it(&mut line);
        limit(libc::RLIMIT_NOFILE, plenty);
        line.remove(&place.namespace);
        0
    });
}

#[test]
fn a_process_that_can_not_poll_for_lack_of_descriptors_can_when_there_are_some() {
    let place = Place::new();
    in_child(|| {
        let queue = place.create("/q", 4, 8);
        let sysv_queue = place.create_sysv(1);
        let before = (InUse::now(), entries(place.path()));
        for free in 0..3 {
            let plenty = limit(libc::RLIMIT_NOFILE, 1024);
            leave_descriptors(free);
            let polled = [queue.pollable().map(drop), sysv_queue.pollable().map(drop)];
            limit(libc::RLIMIT_NOFILE, plenty);
            for error in polled.into_iter().filter_map(Result::err) {
                assert_eq!(error.raw_os_error(), Some(libc::EMFILE), "{free}: {error}");
            }
            if free == 0 {
                let after = (InUse::now(), entries(place.path()));
                assert_eq!(after.0.descriptors, before.0.descriptors);
                assert_eq!(after.1, before.1);
            }
        }
        queue.try_send(b"one", 0).unwrap();
        sysv_queue.try_send(1, b"one").unwrap();
        assert!(queue.pollable().is_ok() && queue.readiness().readable);
        assert!(sysv_queue.pollable().is_ok() && sysv_queue.readiness().readable);
        0
    });
}

/// Returns the size of this process's address space, in bytes.
fn address_space() -> u64 {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap();
    statm.split(' ').next().unwrap().parse::<u64>().unwrap() * 4096
}

fn a_limit_on_address_space_is_told_and_no_file_is_left<F: Face>() {
    let place = Place::new();
    in_child(|| {
        let before = (InUse::now().descriptors, entries(place.path()));
        let plenty = limit(libc::RLIMIT_AS, address_space() + (8 << 20));
        let made = F::make(&place.namespace);
        limit(libc::RLIMIT_AS, plenty);
        let told = made.err().expect("a limit that is ignored");
        told.says(libc::ENOMEM, &["address space", "ulimit -v", " bytes"]);
        assert_eq!((InUse::now().descriptors, entries(place.path())), before);
        let mut line = F::make(&place.namespace).unwrap();
        limit(libc::RLIMIT_AS, address_space() + (1 << 20));
        use_it(&mut line);
        line.remove(&place.namespace);
        0
    });
}

/// The word of the receivers' lock after the death of its owner: sections 2 and 11 of docs/format.md.
const ORPHANED: [u8; 4] = (1_u32 << 30).to_le_bytes();

#[test]
fn a_repair_without_address_space_is_put_off_and_loses_nothing() {
    for (directory, lock) in [("mq", 768), ("msg", 256), ("ring", 768)] {
        let place = Place::new();
        in_child(|| match directory {
            "mq" => repair_later::<support::face::Posix>(&place, directory, lock),
            "msg" => repair_later::<support::face::SystemV>(&place, directory, lock),
            _ => repair_later::<support::face::Named>(&place, directory, lock),
        });
    }
}

fn repair_later<F: Face>(place: &Place, directory: &str, lock: u64) -> i32 {
    let mut line = F::make(&place.namespace).unwrap();
    line.send(0, b"kept").unwrap();
    let files = std::fs::read_dir(place.path().join(directory)).unwrap();
    let mut files = files.map(|file| file.unwrap().path());
    let path = files.find(|path| path.metadata().is_ok_and(|file| file.len() > 4096));
    let file = std::fs::File::options()
        .write(true)
        .open(path.unwrap())
        .unwrap();
    file.write_all_at(&ORPHANED, lock).unwrap();
    let plenty = limit(libc::RLIMIT_AS, address_space());
    let received = line.receive();
    limit(libc::RLIMIT_AS, plenty);
    received
        .unwrap_err()
        .says(libc::ENOMEM, &["no memory left"]);
    assert_eq!(line.receive().unwrap(), b"kept");
    assert!(!line.is_damaged());
    line.remove(&place.namespace);
    0
}

#[test]
fn a_limit_on_threads_is_reported_by_a_registration_and_by_no_other_call() {
    umsg_testkit::needs_root!();
    let place = Place::new();
    let all = Permissions::from_mode(0o1777);
    std::fs::set_permissions(place.path(), all).unwrap();
    Namespace::at(place.path()).unwrap();
    in_child(|| {
        become_user(NOBODY);
        let namespace = Namespace::at(place.path()).unwrap();
        let queue = umsg::posix::OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .namespace(&namespace)
            .open("/q")
            .unwrap();
        let plenty = limit(libc::RLIMIT_NPROC, 0);
        for _ in 0..10 {
            for how in [Notify::signal(libc::SIGUSR1), Notify::call(|_| {})] {
                let error = queue.notify(how).unwrap_err();
                assert_eq!(error, NotifyError::NoThread);
                Told::from(error).says(
                    libc::ENOMEM,
                    &["started. Raise the limit on processes", "ulimit -u"],
                );
            }
        }
        assert!(queue.registered().is_none());
        // A send and a receive need no thread.
        queue.send(b"one", 0).unwrap();
        assert_eq!(queue.receive_vec().unwrap().data, b"one");
        let mut waiter = queue.notify_waiter().unwrap();
        queue.send(b"two", 0).unwrap();
        assert_eq!(waiter.try_wait().unwrap().pid, std::process::id());
        drop(waiter);
        assert_eq!(queue.receive_vec().unwrap().data, b"two");

        limit(libc::RLIMIT_NPROC, plenty);
        let (tell, told) = std::sync::mpsc::channel();
        let tell = Notify::call(move |by| tell.send(by).unwrap());
        let _registered = queue.notify(tell).unwrap();
        queue.send(b"three", 0).unwrap();
        told.recv_timeout(Duration::from_secs(20)).unwrap();
        umsg::posix::unlink_in(&namespace, "/q").unwrap();
        0
    });
    assert_eq!(entries(place.path()), [".namespace"]);
}

for_each_face! {
    a_limit_on_the_size_of_files_is_an_error_and_no_signal
    making_takes_some_descriptors_whose_lack_is_told
    what_is_open_is_used_without_any_descriptor
    a_limit_on_address_space_is_told_and_no_file_is_left
}
