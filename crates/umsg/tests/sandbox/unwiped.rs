//! Systems without pages that are wiped on fork. There, the library keeps the process's id beside a cached value, so that a forked child does not use
//! its parent's value.

use crate::support::child::{Child, Exit};
use crate::support::place::Place;
use crate::support::seccomp::{Call, act_on, refuse};
use std::time::Duration;
use umsg::posix::{OpenOptions, Queue};

const WIPE_ON_FORK: Call = Call {
    number: libc::SYS_madvise,
    argument: Some((2, libc::MADV_WIPEONFORK as u32)),
};

/// Sends and receives a message. The library reads the machine's clock to stamp the message.
fn exchange(queue: &Queue) {
    queue.send(b"m", 0).unwrap();
    assert_eq!(queue.receive(&mut [0; 8192]).unwrap().len, 1);
}

/// Makes the kernel kill this process at its next look-up of a file, such as the file with the clock's offset in a time namespace.
fn die_at_a_look() {
    let looks = [
        libc::SYS_newfstatat,
        libc::SYS_statx,
        libc::SYS_openat,
        libc::SYS_readlinkat,
    ];
    act_on(&looks, libc::SECCOMP_RET_KILL_PROCESS);
}

#[test]
fn the_clocks_offset_is_looked_up_once_a_process_where_no_page_is_wiped_on_fork() {
    let place = Place::new();
    let mut child = Child::run(|| {
        refuse(&[WIPE_ON_FORK], libc::EINVAL);
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true);
        options.time_to_live(Duration::from_secs(1000));
        let queue = options.namespace(&place.namespace).open("/q").unwrap();
        exchange(&queue);
        let mut other = Child::run(|| {
            die_at_a_look();
            exchange(&queue);
            0
        });
        other.expect(Exit::Signal(libc::SIGSYS), "a child with a look of its own");
        die_at_a_look();
        (0..10).for_each(|_| exchange(&queue));
        0
    });
    child.expect(Exit::Code(0), "a process that has looked");
}
