//! The calls that are permitted in a signal handler touch no memory of malloc. The handler may have interrupted malloc, and then its own thread holds
//! malloc's lock. A thread that waits for itself while it holds a queue's lock stops all users of the queue.

mod chaos;
#[path = "support/counting.rs"]
mod counting;
mod support;

use chaos::journal::How;
use chaos::poll_readable;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicPtr, AtomicU64, Ordering::SeqCst};
use std::time::{Duration, Instant};
use support::child::{Child, Exit};
use support::due::in_time;
use support::place::Place;
use support::shared::Shared;
use support::wait_until;
use umsg::posix::Queue;
use umsg::ring::{Options, Post, Ring, SendError, Sender};
use umsg::sysv::Want;

/// Makes a call, and fails if the call allocates or frees memory of malloc.
#[track_caller]
fn without_malloc<T>(call: impl FnOnce() -> T) -> T {
    let before = counting::calls();
    let result = call();
    assert_eq!(counting::calls() - before, 0, "blocks of malloc's");
    result
}

/// Runs `work` in a process that then kills itself.
fn by_the_dead(work: impl FnOnce()) {
    let kill = || {
        work();
        // SAFETY: the call sends a signal to this process.
        unsafe { libc::raise(libc::SIGKILL) }
    };
    Child::run(kill).expect(Exit::Signal(libc::SIGKILL), "one that is killed");
}

#[test]
fn a_receive_that_finds_the_dead_holder_of_a_message_takes_no_memory() {
    let (_place, queue) = Place::new().with_queue("/q", 4, 8);
    queue.send(b"x", 0).unwrap();
    by_the_dead(|| std::mem::forget(queue.try_receive_lease().unwrap()));
    let mut room = [0; 8];
    without_malloc(|| queue.try_receive(&mut room)).unwrap();
}

#[test]
fn a_receive_of_a_system_v_queue_that_finds_the_dead_holder_of_a_message_takes_no_memory() {
    let (_place, queue) = Place::new().with_sysv_queue(7);
    queue.try_send(1, b"x").unwrap();
    by_the_dead(|| std::mem::forget(queue.try_receive_lease(Want::Any).unwrap()));
    let mut room = [0; 8];
    without_malloc(|| queue.try_receive(Want::Any, &mut room)).unwrap();
}

#[test]
fn a_send_to_a_ring_whose_owner_is_dead_takes_no_memory() {
    let place = Place::new();
    let make = || {
        let mut options = Options::new();
        options.entries(4).overflow(0);
        let ring = options.create_in(&place.namespace, "/ring").unwrap();
        let sender = Sender::open_in(&place.namespace, "/ring").unwrap();
        while sender.try_send(&Post::new(1)).is_ok() {}
        ring
    };
    let opened = Shared::<AtomicU64>::new();
    let mut owner = Child::run(|| {
        let _ring = make();
        opened.store(1, SeqCst);
        std::thread::sleep(Duration::from_secs(600));
        0
    });
    let is_made = || opened.load(SeqCst) == 1;
    assert!(wait_until(Duration::from_secs(60), is_made));
    let sender = Sender::open_in(&place.namespace, "/ring").unwrap();
    owner.kill();
    let post = Post::new(2);
    let sent = without_malloc(|| sender.send_timeout(&post, Duration::from_secs(60)));
    assert!(matches!(sent, Err(SendError::OwnerDead)), "{sent:?}");
}

#[test]
fn a_send_that_makes_a_rings_descriptor_readable_takes_no_memory() {
    let place = Place::new();
    let mut ring = Options::new().create_in(&place.namespace, "/r").unwrap();
    let sender = Sender::open_in(&place.namespace, "/r").unwrap();
    let is_readable = |ring: &mut Ring| poll_readable(ring.pollable(), How::Within(Duration::ZERO));
    assert!(!is_readable(&mut ring));
    without_malloc(|| sender.try_send(&Post::new(1))).unwrap();
    assert!(is_readable(&mut ring));
}

/// The first lease of a process registers its life.
#[test]
fn the_first_lease_of_a_process_takes_no_memory() {
    let place = Place::new();
    let (queue, sysv_queue) = (place.create("/q", 4, 8), place.create_sysv(7));
    queue.send(b"x", 0).unwrap();
    sysv_queue.try_send(1, b"x").unwrap();
    // A dead process holds a message. The tested call also takes this message back.
    by_the_dead(|| std::mem::forget(queue.try_receive_lease().unwrap()));
    for is_sysv in [false, true] {
        let mut child = Child::run(|| {
            match is_sysv {
                true => drop(without_malloc(|| sysv_queue.try_receive_lease(Want::Any)).unwrap()),
                false => drop(without_malloc(|| queue.try_receive_lease()).unwrap()),
            }
            0
        });
        child.expect(Exit::Code(0), "one that leases");
    }
}

/// A send asks for the namespace's limit of bytes when memory comes into use.
#[test]
fn a_send_that_brings_memory_into_use_takes_none_of_mallocs() {
    let place = Place::new();
    let (queue, sysv_queue) = (place.create("/q", 1000, 8192), place.create_sysv(7));
    // The library caches the absence of a limit for less than this time.
    std::thread::sleep(Duration::from_millis(150));
    let message = [7; 8192];
    without_malloc(|| {
        for _ in 0..1000 {
            queue.try_send(&message, 0).unwrap();
        }
        sysv_queue.try_send(1, &message).unwrap();
    });
}

/// The queue of the handler, and the number of blocks that the handler has allocated or freed.
static POLLED: AtomicPtr<Queue> = AtomicPtr::new(std::ptr::null_mut());
static BLOCKS: AtomicU64 = AtomicU64::new(u64::MAX);

extern "C" fn receive(_: libc::c_int) {
    let before = counting::calls();
    // SAFETY: the queue lives until the test is over.
    let _ = unsafe { &*POLLED.load(SeqCst) }.try_receive(&mut [0; 8]);
    BLOCKS.store((counting::calls() - before).into(), SeqCst);
}

#[test]
fn a_call_of_a_handler_starts_no_helper_and_the_next_call_does() {
    // The handler must not receive the message, so the handler has to run before the delivery time.
    let (_place, queue, descriptor) = in_time(Duration::from_millis(100), |delay| {
        let (place, queue) = Place::new().with_queue("/q", 4, 8);
        let mut queue = Box::new(queue);
        POLLED.store(&raw mut *queue, SeqCst);
        let descriptor = queue.pollable().unwrap().as_raw_fd();
        let begin = Instant::now();
        place.open("/q").send_after(b"later", 0, delay).unwrap();
        // SAFETY: the handler makes only calls that are permitted in handlers, and the signal goes to this thread.
        unsafe {
            let handler = receive as extern "C" fn(libc::c_int);
            libc::signal(libc::SIGUSR1, handler as libc::sighandler_t);
            libc::raise(libc::SIGUSR1);
        }
        (begin, (place, queue, descriptor))
    });
    // SAFETY: the queue has the descriptor open.
    let descriptor = unsafe { BorrowedFd::borrow_raw(descriptor) };
    assert_eq!(BLOCKS.load(SeqCst), 0, "blocks of malloc's");
    let mut room = [0; 8];
    // If the delivery time has passed already, the receive succeeds without a poll.
    if queue.try_receive(&mut room).is_err() {
        let how = How::Within(Duration::from_secs(60));
        assert!(poll_readable(descriptor, how));
        queue.try_receive(&mut room).unwrap();
    }
}

#[test]
fn a_send_that_announces_a_change_of_kept_sums_takes_no_memory() {
    let place = Place::new();
    let queue = place.create_sysv(7);
    let mut asker = Child::run(|| {
        umsg::signals::catch_truncation().unwrap();
        // SAFETY: the process has one thread.
        unsafe { std::env::set_var("UMSG_DIR", place.namespace.path()) };
        let file = std::fs::File::open(place.namespace.path().join("msg/0")).unwrap();
        let is_marked = || {
            umsg::sysv::raw::msgctl_info(libc::MSG_INFO).unwrap();
            let mut word = [0; 8];
            file.read_exact_at(&mut word, 256).unwrap();
            u64::from_ne_bytes(word) == 1 << 62
        };
        wait_until(Duration::from_secs(60), is_marked).into()
    });
    asker.expect(Exit::Code(1), "a process that adds up");
    let mut sender = Child::run(|| {
        without_malloc(|| queue.try_send(1, b"x")).unwrap();
        0
    });
    sender.expect(Exit::Code(0), "a sender");
}
