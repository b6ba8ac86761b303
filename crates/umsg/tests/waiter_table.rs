//! More blocked threads than the 4,096 nodes of a queue: a thread without a node checks the queue every millisecond, and no thread is
//! refused or forgotten.
//!
//! With thousands of threads, these tests take long beside other builds and tests, so the soak step runs them, in a release build.

mod support;

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use support::child::{Child, Exit};
use support::place::Place;
use support::scarce::{LEFT_OUT, in_child_for};
use support::{turn, wait_until};
use umsg::sysv::Want;

/// The number of nodes: section 1 of docs/format.md.
const NODES: usize = 4096;
/// The number of threads without a node.
const BEYOND: usize = 20;
/// The maximum time of a wait in these tests. Thousands of threads that wake up ten times a second are a load for two processors.
const LONG: Duration = Duration::from_secs(300);

/// Lets so many threads wait that all nodes are taken, and then ends their waits. Returns false if this number of threads is not possible.
fn wait_in_a_crowd(
    wait: impl Fn() + Sync,
    waiting: impl Fn() -> usize,
    end_all: impl FnOnce(usize),
    is_left_alone: impl FnOnce(),
) -> bool {
    let done = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        let body = || {
            wait();
            done.fetch_add(1, Ordering::Relaxed);
        };
        let spawn = |_| {
            let thread = std::thread::Builder::new().stack_size(64 << 10);
            thread.spawn_scoped(scope, body)
        };
        let threads = (0..NODES + BEYOND).map(spawn).take_while(Result::is_ok);
        let count = threads.count();
        if count == NODES + BEYOND {
            assert!(wait_until(LONG, || waiting() == NODES), "{}", waiting());
            // Non-blocking calls still succeed while all nodes are taken.
            is_left_alone();
            assert_eq!((waiting(), done.load(Ordering::Relaxed)), (NODES, 0));
        }
        end_all(count);
        assert!(wait_until(LONG, || done.load(Ordering::Relaxed) == count));
        count == NODES + BEYOND
    })
}

#[test]
fn receivers_beyond_the_nodes_of_a_queue_get_their_messages() {
    let _turn = turn();
    if cfg!(debug_assertions) {
        return eprintln!("left out of debug builds: `cargo xtask soak` has it");
    }
    let place = Place::new();
    in_child_for(LONG, || {
        let queue = place.create("/q", 100, 8);
        let is_full = wait_in_a_crowd(
            || _ = queue.receive_timeout(&mut [0; 8], LONG).unwrap(),
            || queue.status().blocked_receivers,
            |count| (0..count).for_each(|_| queue.send_timeout(b"one", 0, LONG).unwrap()),
            || {
                let error = queue.try_receive(&mut [0; 8]).unwrap_err();
                assert_eq!(error.errno(), libc::EAGAIN);
                let soon = Duration::from_millis(20);
                let error = queue.receive_timeout(&mut [0; 8], soon).unwrap_err();
                assert_eq!(error.errno(), libc::ETIMEDOUT);
            },
        );
        assert_eq!(queue.attributes().messages, 0);
        assert!(!queue.status().damaged);
        if is_full { 0 } else { LEFT_OUT }
    });
}

#[test]
fn receivers_beyond_the_seats_of_a_system_v_queue_get_their_messages() {
    let _turn = turn();
    if cfg!(debug_assertions) {
        return eprintln!("left out of debug builds: `cargo xtask soak` has it");
    }
    let place = Place::new();
    in_child_for(LONG, || {
        let queue = place.create_sysv(1);
        let is_full = wait_in_a_crowd(
            || {
                _ = queue
                    .receive_timeout(Want::Exactly(1), &mut [0; 8], LONG)
                    .unwrap()
            },
            || queue.status().unwrap().blocked_receivers,
            |count| (0..count).for_each(|_| queue.send_timeout(1, b"one", LONG).unwrap()),
            || {
                queue.send(2, b"other").unwrap();
                assert_eq!(
                    queue
                        .try_receive(Want::Exactly(2), &mut [0; 8])
                        .unwrap()
                        .mtype,
                    2
                );
                let soon = Duration::from_millis(20);
                let received = queue.receive_timeout(Want::Exactly(2), &mut [0; 8], soon);
                assert_eq!(received.unwrap_err().errno(), libc::ETIMEDOUT);
            },
        );
        assert_eq!(queue.entry().unwrap().messages, 0);
        assert!(!queue.status().unwrap().damaged);
        if is_full { 0 } else { LEFT_OUT }
    });
}

#[test]
fn senders_beyond_the_nodes_of_a_ring_are_let_in() {
    let _turn = turn();
    if cfg!(debug_assertions) {
        return eprintln!("left out of debug builds: `cargo xtask soak` has it");
    }
    let place = Place::new();
    let mut options = umsg::ring::Options::new();
    options.entries(1).overflow(0);
    let mut ring = options.create_in(&place.namespace, "/r").unwrap();
    let (sender, post) = (ring.sender(), umsg::ring::Post::new(1));
    sender.send(&post).unwrap();
    // Each thread checks at times whether the ring's owner lives. This takes long, because the owner's process has many threads.
    let mut child = Child::run(|| {
        let send = || sender.send_timeout(&post, LONG).unwrap();
        let is_full = wait_in_a_crowd(send, || NODES, |_| {}, || {});
        if is_full { 0 } else { LEFT_OUT }
    });
    let blocked = || sender.status().blocked_senders;
    let is_full = wait_until(LONG, || blocked() == NODES);
    if is_full || child.wait(LONG) != Some(Exit::Code(LEFT_OUT)) {
        assert!(is_full, "{} blocked", blocked());
        assert_eq!(sender.try_send(&post).unwrap_err().errno(), libc::EAGAIN);
        let told = sender.send_timeout(&post, Duration::from_millis(20));
        assert_eq!(told.unwrap_err().errno(), libc::ETIMEDOUT);
        for _ in 0..=NODES + BEYOND {
            ring.receive_timeout(LONG).unwrap();
        }
        child.expect(Exit::Code(0), "the crowd");
        assert_eq!((ring.available(), blocked()), (0, 0));
    }
}
