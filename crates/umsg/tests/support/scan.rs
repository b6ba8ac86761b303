//! Processes that ask for the totals of all System V queues, and may keep what they have learned.

use std::time::Duration;

use umsg::sysv::{self, Totals};

use super::child::{Child, Exit};
use super::place::Place;

/// The time that two changes of a directory lie apart so that their time stamps differ: several ticks of the kernel.
pub const SETTLED: Duration = Duration::from_millis(40);

/// Returns the totals of a namespace.
pub fn totals(place: &Place) -> Totals {
    sysv::totals(&place.namespace).unwrap()
}

/// Returns the numbers of queues, messages and bytes of a namespace.
pub fn sums(place: &Place) -> (u32, u64, u64) {
    let Totals {
        queues,
        messages,
        bytes,
        ..
    } = totals(place);
    (queues, messages, bytes)
}

/// Runs a case in a process of its own, with one thread, because a process keeps the results of only one scan.
pub fn alone(case: impl FnOnce(&Place)) {
    let place = Place::new();
    let mut child = Child::run(|| {
        umsg::signals::catch_truncation().unwrap();
        case(&place);
        0
    });
    child.expect(Exit::Code(0), "the case");
}
