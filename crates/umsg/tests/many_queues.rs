//! Queues and rings that are made, used and removed in large numbers: neither the namespace nor the process grows. `UMSG_MANY_QUEUES=1000000` makes
//! a million of each kind.

mod support;

use std::time::{Duration, Instant};
use support::face::Face;
use support::place::Place;
use support::scarce::{InUse, entries, in_child_for};
use umsg::posix::Notify;
use umsg::sysv::raw;

/// Returns the number of queues of each kind that are made.
fn many() -> u64 {
    std::env::var("UMSG_MANY_QUEUES").map_or(1000, |many| many.parse().unwrap())
}

/// The number of rounds before the first measurement. After these rounds, everything that is made only once exists.
const FIRST: u64 = 300;
/// The growth of malloc's memory that the test permits, in bytes. The buffers of the test's own listing of directories, 32 KiB for each of three
/// levels, may not get the same memory as before.
const SLACK: u64 = 160 << 10;
/// The longest time that the library's thread needs to release a file on a busy machine.
const PATIENCE: Duration = Duration::from_secs(20);

/// Repeats an action in a separate process.
#[track_caller]
fn nothing_grows(place: &Place, mut once: impl FnMut(u64)) {
    in_child_for(Duration::from_secs(60 + many() / 100), || {
        (0..FIRST).for_each(&mut once);
        let look = || (entries(place.path()), InUse::now());
        let before = look();
        (FIRST..FIRST + many()).for_each(&mut once);
        let has_grown = |(left, used): &(Vec<String>, InUse)| {
            *left != before.0
                || used.descriptors > before.1.descriptors
                || used.mappings > before.1.mappings + 2
                || used.private > before.1.private + SLACK
        };
        let end = Instant::now() + PATIENCE;
        let mut after = look();
        while has_grown(&after) && Instant::now() < end {
            std::thread::sleep(Duration::from_millis(10));
            after = look();
        }
        assert!(!has_grown(&after), "{before:?} {after:?}");
        assert_eq!(place.namespace.allocated_bytes().unwrap(), 0);
        0
    });
}

fn queues_without_number_are_made_and_removed_and_nothing_grows<F: Face>() {
    let place = Place::new();
    nothing_grows(&place, |number| {
        let mut line = F::make_small(&place.namespace, 100).unwrap();
        line.send(0, &number.to_ne_bytes()).unwrap();
        assert_eq!(line.receive().unwrap(), number.to_ne_bytes());
        line.remove(&place.namespace);
    });
}

#[test]
fn pollers_and_registrations_without_number_come_and_go_and_nothing_grows() {
    let place = Place::new();
    nothing_grows(&place, |number| {
        let queue = place.create("/q", 4, 8);
        let registration = queue.notify(Notify::signal(libc::SIGURG)).unwrap();
        if number % 2 == 0 {
            drop(registration);
        }
        queue.pollable().unwrap();
        queue.send(b"one", 0).unwrap();
        assert!(queue.readiness().readable);
        umsg::posix::unlink_in(&place.namespace, "/q").unwrap();
    });
}

/// Uses queues as C programs do: by their identifiers, and no call ends the use of a queue.
#[test]
fn identifiers_without_number_are_used_by_a_process_and_nothing_grows() {
    let place = Place::new();
    // SAFETY: the test harness may read the environment in other threads, but has done so by now; the child has one thread.
    let name_place = || unsafe { std::env::set_var("UMSG_DIR", place.path()) };
    nothing_grows(&place, |number| {
        if number == 0 {
            name_place();
        }
        let id = raw::msgget(libc::IPC_PRIVATE, libc::IPC_CREAT | 0o600).unwrap();
        raw::msgctl_remove(id).unwrap();
    });
}

for_each_face! {
    queues_without_number_are_made_and_removed_and_nothing_grows
}
