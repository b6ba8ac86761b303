//! Tests of taking a lock without waiting.

use super::*;
use crate::sys::liveness::all_live;
use crate::sys::thread;

/// The answers about processes for tests in which all threads belong to this process.
pub(super) struct Here;

all_live!(Here, home: true);

/// The answers about processes for a process that has other namespaces than the queue.
struct Elsewhere;

all_live!(Elsewhere, home: false);

#[test]
fn a_lock_is_named_to_the_kernel_while_it_is_held() {
    let (lock, me) = (Lock::default(), thread::current());
    let before = me.named();
    let held = lock.lock_if_free(me, &Here).unwrap();
    assert_ne!(me.named(), before);
    assert!(me.critical.is_open());
    held.unlock();
    assert_eq!(me.named(), before);
    assert!(!me.critical.is_open());
}

#[test]
fn a_thread_that_finds_a_lock_held_names_it_no_more() {
    let (lock, me) = (Lock::default(), thread::current());
    let before = me.named();
    // 1 is the id of a thread that lives as long as any process.
    lock.forge(1);
    assert!(lock.lock_if_free(me, &Here).is_none());
    assert_eq!(me.named(), before);
    assert!(!me.critical.is_open());
}

#[test]
fn an_orphaned_lock_is_taken_only_with_the_news_of_the_death() {
    let (lock, me) = (Lock::default(), thread::current());
    lock.forge(OWNER_DIED);
    assert!(lock.lock_if_free(me, &Here).is_none());
    let (held, left) = lock.lock(me, &Here, Deadline::Passed).unwrap();
    assert_eq!(left, Left::ByTheDead);
    held.unlock();
}

#[test]
fn a_process_of_other_namespaces_never_takes_the_plain_form() {
    let (lock, me) = (Lock::default(), thread::current());
    assert!(lock.lock_if_free(me, &Elsewhere).is_none());
    let (held, left) = lock.lock(me, &Elsewhere, Deadline::Passed).unwrap();
    assert_eq!(left, Left::InOrder);
    assert!(lock.is_shared());
    held.unlock();
}
