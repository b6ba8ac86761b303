//! A send that raises a signal in its own process touches no memory of malloc. The send may run in a handler that has interrupted malloc.

#[path = "support/counting.rs"]
mod counting;
mod support;

use std::time::Duration;
use support::place::Place;
use support::wait_until;
use umsg::posix::Notify;

#[test]
fn a_send_that_raises_its_own_processs_signal_takes_and_frees_no_memory() {
    let (place, queue) = Place::new().with_queue("/q", 4, 8);
    for _ in 0..3 {
        // A signal that is ignored as long as it has no handler.
        let registration = queue.notify(Notify::signal(libc::SIGWINCH)).unwrap();
        let before = counting::calls();
        queue.send(b"x", 0).unwrap();
        assert_eq!(counting::calls() - before, 0);
        assert!(!registration.is_armed());
        queue.try_receive(&mut [0; 8]).unwrap();
        drop(registration);
    }
    // The sends must not free memory. A thread of the library frees it later, and unmaps the queue.
    let path = place.path().join("mq/q");
    drop(queue);
    let is_unmapped = || {
        let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
        !maps.contains(path.to_str().unwrap())
    };
    assert!(wait_until(Duration::from_secs(20), is_unmapped));
}
