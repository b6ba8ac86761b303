//! Queues and the processes that inherit them.

use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};
use std::thread;

use crate::children::{wait_until, wait_until_asleep};
use crate::errno::Errno;
use crate::site::{Site, message};
use crate::sys;

subject! { $ fork, fork_cases:
    a_child_uses_what_it_inherits
    a_close_in_the_child_leaves_the_parents_descriptor_open
    a_close_in_the_parent_leaves_the_childs_descriptor_open
    parent_and_child_share_o_nonblock
    the_parent_opens_what_the_child_created
    a_grandchild_uses_what_it_inherits
    an_unlinked_queue_lives_on_in_the_child
    a_child_that_exits_changes_nothing_for_the_parent
    a_child_that_is_killed_changes_nothing_for_the_parent
    a_child_keeps_its_access_mode
    a_child_that_became_another_user_keeps_what_it_inherited
    a_fork_does_not_disturb_a_thread_that_is_blocked
    a_fork_amid_sends_of_another_thread_leaves_a_usable_child
    running_a_program_leaves_the_descriptors_alone
}

fn a_child_uses_what_it_inherits(site: &Site) {
    let queue = site.queue(2, 16);
    assert_eq!(queue.send(b"to the child", 1), Ok(()));
    let child = site.child(|| {
        let got = queue.receive()?;
        queue.send(b"to the parent", 2)?;
        Ok(got)
    });
    assert_eq!(child.result(), Ok(message("to the child", 1)));
    assert_eq!(queue.receive(), Ok(message("to the parent", 2)));
}

fn a_close_in_the_child_leaves_the_parents_descriptor_open(site: &Site) {
    let queue = site.queue(1, 8);
    assert_eq!(site.child(|| queue.close()).result(), Ok(()));
    assert_eq!(queue.send(b"open", 0), Ok(()));
    assert_eq!(
        site.child(|| queue.receive()).result(),
        Ok(message("open", 0))
    );
}

fn a_close_in_the_parent_leaves_the_childs_descriptor_open(site: &Site) {
    let name = site.name("closed");
    let queue = site.queue_called(&name, 1, 8);
    let child = site.child(|| queue.receive());
    child.wait_until_blocked();
    assert_eq!(queue.close(), Ok(()));
    child.expect_still_blocked();
    let again = site.open(&name, libc::O_WRONLY).expect("opening it");
    assert_eq!(again.send(b"open", 0), Ok(()));
    assert_eq!(child.result(), Ok(message("open", 0)));
}

fn parent_and_child_share_o_nonblock(site: &Site) {
    site.need_descriptors();
    let queue = site.queue(1, 8);
    site.child(|| queue.set_nonblocking(true)).result();
    assert!(queue.is_nonblocking());
    assert_eq!(queue.receive(), Err(Errno::EAGAIN));
    let child = site.child(|| {
        wait_until(|| !queue.is_nonblocking());
    });
    queue.set_nonblocking(false);
    child.result();
}

fn the_parent_opens_what_the_child_created(site: &Site) {
    let name = site.name("child");
    let child = site.child(|| site.queue_called(&name, 2, 8).send(b"hello", 4));
    assert_eq!(child.result(), Ok(()));
    let queue = site.open(&name, libc::O_RDONLY).expect("opening it");
    assert_eq!(queue.receive(), Ok(message("hello", 4)));
}

fn a_grandchild_uses_what_it_inherits(site: &Site) {
    let queue = site.queue(2, 8);
    let child = site.child(|| {
        queue.send(b"child", 0)?;
        site.child(|| queue.send(b"grand", 1)).result()
    });
    assert_eq!(child.result(), Ok(()));
    assert_eq!(queue.receive(), Ok(message("grand", 1)));
    assert_eq!(queue.receive(), Ok(message("child", 0)));
}

fn an_unlinked_queue_lives_on_in_the_child(site: &Site) {
    let name = site.name("unlinked");
    let queue = site.queue_called(&name, 2, 8);
    assert_eq!(queue.send(b"kept", 0), Ok(()));
    assert_eq!(site.unlink(&name), Ok(()));
    let (reading, writing) = sys::pipe().expect("a pipe");
    let child = site.child(|| {
        use std::os::fd::AsRawFd;
        sys::read_record(reading.as_raw_fd(), &mut [0]).expect("a word from the parent");
        queue.receive()
    });
    assert_eq!(queue.close(), Ok(()));
    use std::os::fd::AsRawFd;
    sys::write_record(writing.as_raw_fd(), b"x").expect("a word to the child");
    assert_eq!(child.result(), Ok(message("kept", 0)));
}

fn a_child_that_exits_changes_nothing_for_the_parent(site: &Site) {
    let queue = site.queue(1, 8);
    for round in 0..50 {
        assert_eq!(site.child(|| queue.send(b"x", round)).result(), Ok(()));
        assert_eq!(queue.receive(), Ok(message("x", round)));
    }
}

fn a_child_that_is_killed_changes_nothing_for_the_parent(site: &Site) {
    let queue = site.queue(1, 8);
    for round in 0..20 {
        let child = site.child(|| queue.receive().map(drop));
        child.wait_until_blocked();
        child.kill();
        assert_eq!(queue.send(b"x", round), Ok(()));
        assert_eq!(queue.receive(), Ok(message("x", round)));
    }
}

fn a_child_keeps_its_access_mode(site: &Site) {
    let name = site.name("access");
    site.queue_called(&name, 2, 8);
    let reader = site.open(&name, libc::O_RDONLY).expect("a reader");
    let writer = site.open(&name, libc::O_WRONLY).expect("a writer");
    let child = site.child(|| {
        assert_eq!(reader.send(b"x", 0), Err(Errno::EBADF));
        assert_eq!(writer.receive(), Err(Errno::EBADF));
        writer.send(b"x", 5)?;
        reader.receive()
    });
    assert_eq!(child.result(), Ok(message("x", 5)));
}

fn a_child_that_became_another_user_keeps_what_it_inherited(site: &Site) {
    let name = site.name("inherited");
    let queue = site.queue_called(&name, 2, 8);
    let reader = site.open(&name, libc::O_RDONLY).expect("a reader");
    let got = site.as_user(sys::User::NOBODY, || {
        assert_eq!(site.open(&name, libc::O_RDWR), Err(Errno::EACCES));
        queue.send(b"x", 5)?;
        reader.receive()
    });
    assert_eq!(got, Ok(message("x", 5)));
}

fn a_fork_does_not_disturb_a_thread_that_is_blocked(site: &Site) {
    let queue = site.queue(2, 16);
    let (id, done) = (AtomicI32::new(0), AtomicBool::new(false));
    thread::scope(|scope| {
        let receiver = scope.spawn(|| {
            id.store(sys::tid(), Ordering::Release);
            let received = queue.receive();
            done.store(true, Ordering::Release);
            received
        });
        wait_until(|| id.load(Ordering::Acquire) != 0);
        wait_until_asleep(id.load(Ordering::Acquire), || done.load(Ordering::Acquire));
        let idle = site.child(|| queue.attributes().map(|attributes| attributes.messages));
        assert_eq!(idle.result(), Ok(0));
        assert!(!done.load(Ordering::Acquire));
        assert_eq!(
            site.child(|| queue.send(b"from the child", 0)).result(),
            Ok(())
        );
        assert_eq!(
            receiver.join().expect("no panic"),
            Ok(message("from the child", 0))
        );
    });
}

fn a_fork_amid_sends_of_another_thread_leaves_a_usable_child(site: &Site) {
    let busy = site.nonblocking(10, 64);
    let other = site.nonblocking(10, 64);
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        let sender = scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                let _ = busy.send([7; 64], 1);
                let _ = busy.receive();
            }
        });
        for _ in 0..100 {
            let child = site.child(|| {
                other.send(b"child", 0)?;
                other.receive()?;
                // A thread of the parent fills and empties this queue at the same time, so any result is accepted.
                let _ = busy.send(b"child", 0);
                let _ = busy.receive();
                let mine = site.nonblocking(1, 8);
                mine.send(b"mine", 2)?;
                mine.receive()
            });
            assert_eq!(child.result(), Ok(message("mine", 2)));
        }
        stop.store(true, Ordering::Relaxed);
        sender.join().expect("no panic");
    });
    assert_eq!(other.messages(), 0);
}

fn running_a_program_leaves_the_descriptors_alone(site: &Site) {
    let queue = site.queue(1, 8);
    for round in 0..5 {
        assert!(
            Command::new("/bin/true")
                .status()
                .expect("running true")
                .success()
        );
        assert_eq!(queue.send(b"x", round), Ok(()));
        assert_eq!(queue.receive(), Ok(message("x", round)));
    }
}
