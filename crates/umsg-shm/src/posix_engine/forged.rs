//! Tests with forged words. A hostile peer may write anything into a segment. Nevertheless, each call with a deadline ends, and no call crashes.

use super::{Engine, Refused};
use crate::fault::Fault;
use crate::lock::tokens::ReceiverHeld;
use crate::lock::{LENT, WAITERS};
use crate::posix_engine::segment::testing;
use crate::repair::salvage::Salvage as _;
use crate::sync::Ordering;
use crate::sys::clock::Deadline;
use crate::sys::thread;
use crate::waiters::Node;
use crate::waiters::{self, List, NO_SLOT, UNRANKED, Waiters};
use std::sync::atomic::AtomicBool;
use std::time::Duration;

/// A thread that lives longer than each test: init. In the tests, a hostile peer forges this thread as the owner of a lock, or as a waiter.
const OTHER_THREAD: u32 = 1;

fn engine() -> Engine {
    Engine::new(testing::segment(4, 64))
}

fn soon() -> Deadline {
    Deadline::after(Duration::from_millis(300))
}

/// Fills the queue.
fn fill(engine: &Engine) {
    let me = thread::current();
    for _ in 0..4 {
        engine.try_send(me, b"full", 0, Deadline::Passed).unwrap();
    }
}

/// Runs `call`, in which a thread waits in `list`, and meanwhile forges the word of that thread's node. If the call ends before the word is forged,
/// the call is repeated.
fn forge_while_it_waits<T: Send>(
    engine: &Engine,
    list: List,
    word: u32,
    call: impl Fn() -> Result<T, Refused> + Sync,
) -> Result<T, Refused> {
    let is_forged = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| {
            loop {
                let result = call();
                if is_forged.load(Ordering::Relaxed) {
                    return result;
                }
            }
        });
        let waiters = Waiters::of(engine.segment());
        let node: &Node = loop {
            match waiters.first(list).unwrap() {
                Some((_, node)) => break node,
                None => std::thread::yield_now(),
            }
        };
        node.word.store(word, Ordering::Relaxed);
        is_forged.store(true, Ordering::Relaxed);
        waiting.join().unwrap()
    })
}

#[test]
fn a_receive_whose_node_names_another_thread_ends_by_its_deadline() {
    let engine = engine();
    let received = forge_while_it_waits(&engine, List::Receivers, OTHER_THREAD, || {
        engine.receive(thread::current(), &mut [0; 64], soon())
    });
    assert_eq!(received.err(), Some(Refused::TimedOut));
}

#[test]
fn a_send_whose_node_names_another_thread_ends_by_its_deadline() {
    let engine = engine();
    fill(&engine);
    let sent = forge_while_it_waits(&engine, List::Senders, OTHER_THREAD, || {
        engine.send(thread::current(), b"x", 0, soon())
    });
    assert_eq!(sent.err(), Some(Refused::TimedOut));
}

#[test]
fn a_batch_whose_turn_never_comes_though_its_node_says_so_ends_by_its_deadline() {
    let engine = engine();
    fill(&engine);
    // `WAITERS` as the word of a node is the state of an accepted node.
    let sent = forge_while_it_waits(&engine, List::Senders, WAITERS, || {
        let batch: &[(&[u8], u32)] = &[(b"x", 0), (b"y", 0)];
        engine.send_batch(thread::current(), &Pair(batch), soon())
    });
    assert_eq!(sent.err(), Some(Refused::TimedOut));
}

struct Pair<'a>(&'a [(&'a [u8], u32)]);

impl super::batch::Batch for Pair<'_> {
    fn len(&self) -> usize {
        self.0.len()
    }

    fn message(&self, index: usize) -> (&[u8], usize) {
        (self.0[index].0, self.0[index].1 as usize)
    }
}

/// Runs `call` while another thread repeatedly runs `forge`, which overwrites a word of the segment.
fn while_forging<T>(forge: impl Fn() + Sync, call: impl FnOnce() -> T) -> T {
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                forge();
            }
        });
        let result = call();
        is_over.store(true, Ordering::Relaxed);
        result
    })
}

#[test]
fn a_sender_lock_that_is_always_lent_is_busy() {
    let engine = engine();
    let lock = &engine.segment().fixed().sender.lock;
    let sent = while_forging(
        || lock.forge(LENT),
        || engine.try_send(thread::current(), b"x", 0, Deadline::Passed),
    );
    // The send may succeed: the lock is free before the first forged word, and for a moment after a repair.
    assert!(matches!(
        sent,
        Ok(()) | Err(Refused::Fault(Fault::Busy | Fault::Damaged) | Refused::NotNow)
    ));
}

#[test]
fn a_wake_word_that_rings_for_ever_ends_a_timed_wait() {
    let engine = engine();
    let wake_word = engine.segment().fixed().words().wake_word;
    let me = thread::current();
    let waited = while_forging(
        || {
            wake_word.fetch_add(1 << 8, Ordering::Relaxed);
        },
        || engine.wait_for_messages(me, 1, me.interruptions.calm(), soon()),
    );
    assert_eq!(waited, Err(Refused::TimedOut));
}

/// Impossible thread ids, with and without the bits that a lock word has beside the id.
const IMPOSSIBLE_IDS: [u32; 4] = [LENT, LENT | WAITERS, u32::MAX, 1 << 22];

#[test]
#[cfg_attr(miri, ignore = "no process is found dead there")]
fn a_lock_with_an_impossible_owner_is_repaired_by_the_next_call() {
    for word in IMPOSSIBLE_IDS {
        let (engine, me) = (engine(), thread::current());
        engine.try_send(me, b"kept", 3, Deadline::Passed).unwrap();
        let fixed = engine.segment().fixed();
        fixed.receiver.lock.forge(word);
        assert_eq!(engine.receive(me, &mut [0; 64], soon()).unwrap().len, 4);
        fixed.sender.lock.forge(word);
        engine.try_send(me, b"one", 3, Deadline::Passed).unwrap();
        fixed.sender.lock.forge(word);
        fixed.receiver.lock.forge(word);
        engine.send(me, b"two", 3, Deadline::Never).unwrap();
        assert_eq!(engine.counts().messages, 2, "{word:#x}");
        for lock in [&fixed.sender.lock, &fixed.receiver.lock] {
            assert_eq!(lock.word(), 0, "{word:#x}");
        }
        assert!(!fixed.header.damage.is_noted());
    }
}

#[test]
fn a_receiver_lock_that_always_has_an_impossible_owner_is_busy() {
    let engine = engine();
    let lock = &engine.segment().fixed().receiver.lock;
    let received = while_forging(
        || lock.forge(LENT),
        || engine.receive(thread::current(), &mut [0; 64], soon()),
    );
    assert_eq!(received.err(), Some(Refused::TimedOut));
}

/// Leaves the node of a batch in the list of senders, as a hostile peer may.
fn forge_sender(engine: &Engine, forge: impl Fn(&Node)) {
    let waiters = Waiters::of(engine.segment());
    let receiving = ReceiverHeld::in_test();
    let claimed = waiters.claim(receiving, thread::current(), NO_SLOT, UNRANKED);
    let (index, node) = claimed.unwrap().unwrap();
    waiters.insert(receiving, List::Senders, index).unwrap();
    node.wanted.set(1);
    forge(node);
}

#[test]
fn a_turn_that_was_given_in_the_future_keeps_no_room() {
    let (engine, me) = (engine(), thread::current());
    forge_sender(&engine, |node| {
        node.offered_at.set(u64::MAX);
        assert!(waiters::settle(node));
    });
    assert_eq!(engine.try_send(me, b"x", 0, Deadline::Passed), Ok(()));
}

#[test]
#[cfg_attr(miri, ignore = "no file says what is memory there")]
fn a_salvage_keeps_no_room_for_a_thread_that_a_node_does_not_name() {
    let (engine, me) = (engine(), thread::current());
    forge_sender(&engine, |node| {
        node.tid.set(0);
        node.pid.set(0);
    });
    engine.take_up(me, soon(), false).unwrap();
    assert_eq!(engine.try_send(me, b"x", 0, Deadline::Passed), Ok(()));
}
