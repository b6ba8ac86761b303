//! Listings of directories that any user can fill: no queue is locked meanwhile.

use super::trace::watch_child;
use crate::support::place::Place;

#[test]
fn a_first_poll_lists_the_doorbells_without_the_queues_lock() {
    let (place, queue) = Place::new().with_queue("/q", 100, 8);
    let poll = || {
        place.open("/q").pollable().expect("a descriptor");
    };
    let mut listings = 0;
    watch_child("a first poll", poll, &mut |number| {
        if number == libc::SYS_getdents64 {
            listings += 1;
            queue.try_send(b"m", 0).expect("a queue that is not locked");
        }
    });
    assert!(listings > 0);
}
