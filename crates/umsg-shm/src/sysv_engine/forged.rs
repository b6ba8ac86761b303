//! Words that a hostile peer writes: every call with a deadline ends, and no call allocates memory without bound.

use super::tests::{call, engine, now};
use super::{Refused, Why};
use crate::fault::Fault;
use crate::leases::{LeaseStore as _, Leases};
use crate::lock::{LENT, OWNER_DIED, WAITERS};
use crate::repair::salvage::Salvage as _;
use crate::sync::{AtomicU32, Ordering};
use crate::sys::clock::{self, Deadline};
use crate::sys::futex::{self, Slept};
use crate::sys::thread;
use crate::sysv_engine::order::{TypeIndexStore, Want};
use crate::sysv_engine::segment::Choice;
use crate::waiters::List;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

/// The id of a thread that lives longer than each test (init). A hostile peer may write it as a waiter or an owner.
const LIVING_THREAD: u32 = 1;

#[test]
fn a_receive_whose_node_names_another_thread_ends_by_its_deadline() {
    let engine = engine(1000);
    let is_forged = AtomicBool::new(false);
    let received = std::thread::scope(|scope| {
        // If a call ends before the word is forged, the call is repeated. Relaxed: the flag publishes no other data.
        let waiting = scope.spawn(|| {
            loop {
                let soon = call(Deadline::after(Duration::from_millis(300)));
                let received = engine.receive(&soon, Want::Any, &mut [0; 8192], false);
                if is_forged.load(Ordering::Relaxed) {
                    return received;
                }
            }
        });
        let node = loop {
            match engine.waiters().first(List::Receivers).unwrap() {
                Some((_, node)) => break node,
                None => std::thread::yield_now(),
            }
        };
        node.word.store(LIVING_THREAD, Ordering::Relaxed);
        is_forged.store(true, Ordering::Relaxed);
        waiting.join().unwrap()
    });
    assert_eq!(received.err(), Some(Refused::TimedOut));
}

#[test]
fn messages_that_follow_one_another_in_a_circle_are_damage() {
    let engine = engine(1000);
    for _ in 0..3 {
        engine.send(&now(), 1, b"message").unwrap();
    }
    assert_eq!(engine.messages(&now(), 0, 9, 99).unwrap().len(), 3);
    // The list is now circular: the last message leads to the first.
    engine.segment().place(2).unwrap().words().next.set(1);
    let damaged = Refused::Fault(Fault::Damaged);
    // A copy of each of the queue's million slots would need 8 GB and a quarter of a minute.
    let found = engine.messages(&now(), 0, usize::MAX, usize::MAX);
    assert_eq!(found.err(), Some(damaged));
}

#[test]
fn all_types_can_be_listed_for_any_forged_number_of_messages() {
    let engine = engine(1000);
    engine.send(&now(), 7, b"message").unwrap();
    let words = engine.segment().fixed().words();
    words.messages.store(u32::MAX, Ordering::Relaxed);
    let types = engine.types(thread::current(), usize::MAX);
    assert_eq!(types.unwrap(), [(7, 1)]);
}

#[test]
fn a_lock_that_names_an_impossible_thread_is_repaired_by_the_next_call() {
    for word in [LENT, LENT | WAITERS, u32::MAX, 1 << 22] {
        let engine = engine(1000);
        engine.send(&now(), 1, b"kept").unwrap();
        let lock = &engine.segment().fixed().control.lock;
        lock.forge(word);
        engine.send(&now(), 2, b"sent").unwrap();
        assert_eq!(lock.word(), 0, "{word:#x}");
        lock.forge(word);
        let me = thread::current();
        assert_eq!(engine.counts(me).unwrap().messages, 2, "{word:#x}");
        lock.forge(word);
        let removed: Result<Result<(), ()>, _> = engine.remove(me, |_| Ok(()));
        assert!(matches!(removed, Ok(Ok(()))), "{word:#x}: {removed:?}");
    }
}

#[test]
fn a_removal_without_the_lock_ends_all_waiting_also_for_the_lock() {
    let engine = engine(1000);
    let lock = &engine.segment().fixed().control.lock;
    std::thread::scope(|scope| {
        let waiter = scope.spawn(|| {
            let ever = call(Deadline::Never);
            engine.receive(&ever, Want::Any, &mut [0; 8], false)
        });
        // The loop waits until the receiver has released the lock, because the release would reset the forged word.
        while engine.waiters().len(List::Receivers) == 0 || lock.word() != 0 {
            std::thread::yield_now();
        }
        lock.forge(LIVING_THREAD);
        let outside = scope.spawn(|| engine.send(&call(Deadline::Never), 1, b"message"));
        while lock.word() & WAITERS == 0 {
            std::thread::yield_now();
        }
        let refused = engine.remove_unlocked(|_| Err(()));
        assert_eq!(
            (refused, lock.word() & !WAITERS),
            (Ok(Err(())), LIVING_THREAD)
        );
        let removed = engine.remove_unlocked(|_| Ok::<(), ()>(()));
        assert_eq!(removed, Ok(Ok(())));
        assert_eq!(
            waiter.join().unwrap().err(),
            Some(Refused::Own(Why::Removed))
        );
        assert_eq!(outside.join().unwrap(), Err(Refused::Own(Why::Removed)));
    });
    let again = engine.remove_unlocked(|_| Ok::<(), ()>(()));
    assert_eq!(again, Err(Refused::Own(Why::Removed)));
}

/// In this test, the sleeper waits for its word without slices, so only the remover wakes it.
#[test]
fn a_removal_without_the_lock_wakes_the_waiters_that_sleep() {
    let engine = engine(1000);
    let claimed = engine.with_lock(thread::current(), Deadline::Never, |receiving, _| {
        let (want, longest) = (Want::Any, 8);
        let choice = Choice::Message { want, longest };
        let waiter = engine.claim_record(receiving, &now(), choice)?;
        Ok(waiter.expect("a free record"))
    });
    let waiter = claimed.unwrap();
    waiter.record.fall_asleep();
    let word = &waiter.node().word;
    let value = word.load(Ordering::Relaxed);
    let sleeper = AtomicU32::new(0);
    std::thread::scope(|scope| {
        let sleeping = scope.spawn(|| {
            sleeper.store(thread::current().tid(), Ordering::Relaxed);
            futex::wait(word, value, Deadline::after(Duration::from_secs(20)))
        });
        while !is_asleep(sleeper.load(Ordering::Relaxed)) {
            std::thread::yield_now();
        }
        let removed = engine.remove_unlocked(|_| Ok::<(), ()>(()));
        assert_eq!(removed, Ok(Ok(())));
        assert_eq!(sleeping.join().unwrap(), Slept::Awake);
    });
}

fn is_asleep(tid: u32) -> bool {
    let call = std::fs::read_to_string(format!("/proc/self/task/{tid}/syscall"));
    let number = [libc::SYS_futex, libc::SYS_futex_waitv].map(|number| format!("{number} "));
    call.is_ok_and(|call| number.iter().any(|number| call.starts_with(number)))
}

#[test]
fn an_owner_that_goes_on_after_a_removal_without_its_lock_harms_no_process() {
    let engine = engine(1000);
    let me = thread::current();
    let removed = engine.with_lock(me, Deadline::Passed, |_, _| {
        // In this test, another process may remove the queue while this process is stopped here.
        Ok(engine.remove_unlocked(|_| Ok::<(), ()>(())))
    });
    assert_eq!(removed, Ok(Ok(Ok(()))));
    assert_eq!(
        engine.send(&now(), 1, b"message"),
        Err(Refused::Own(Why::Removed))
    );
    assert_eq!(engine.segment().fixed().control.lock.word() & !WAITERS, 0);
}

#[test]
fn a_thread_that_waits_for_a_stuck_lock_learns_of_a_removal_from_the_file() {
    let engine = engine(1000);
    let fixed = engine.segment().fixed();
    fixed.control.lock.forge(LIVING_THREAD);
    let end = Deadline::after(Duration::from_secs(20));
    let soon = || call(end);
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| engine.send(&soon(), 1, b"message"));
        while fixed.control.lock.word() & WAITERS == 0 {
            std::thread::yield_now();
        }
        // The test stores the word with which a process that can't map the queue marks the queue as removed in the file.
        fixed.rights.remove();
        assert_eq!(waiting.join().unwrap(), Err(Refused::Own(Why::Removed)));
    });
    // A later call fails, too.
    assert_eq!(
        engine.send(&soon(), 1, b"message"),
        Err(Refused::Own(Why::Removed))
    );
    assert!(!end.has_passed(), "they waited for the lock");
    assert_eq!(
        engine.send(&now(), 1, b"message"),
        Err(Refused::Own(Why::Removed))
    );
}

#[test]
fn a_salvage_that_gets_the_lock_of_a_removed_queue_changes_nothing_beside_its_owner() {
    let engine = engine(1000);
    engine.send(&now(), 1, b"message").unwrap();
    // The forged type 0 is invalid, so a salvage would remove this message.
    let cell = engine.segment().cell(0).unwrap();
    cell.words().mtype.set(0);
    let lock = &engine.segment().fixed().control.lock;
    lock.forge(LIVING_THREAD);
    let removed = engine.remove_unlocked(|_| Ok::<(), ()>(()));
    assert_eq!(removed, Ok(Ok(())));
    let nothing = "nothing is to be changed";
    let salvaged = engine.salvage(
        thread::current(),
        Deadline::Passed,
        || panic!("{nothing}"),
        |_| panic!("{nothing}"),
    );
    assert_eq!(salvaged, Err(Fault::Busy));
    assert!(cell.is_queued() && !engine.damage().is_noted());
    assert_eq!(lock.word() & !WAITERS, 0);
}

#[test]
fn an_overwritten_state_is_damage_and_no_removal() {
    let engine = engine(1000);
    let state = engine.segment().fixed().words().state;
    for scribbled in [0, 3, u32::MAX] {
        state.store(scribbled, Ordering::Relaxed);
        let damaged = Err(Refused::Fault(Fault::Damaged));
        assert_eq!(engine.send(&now(), 1, b"message"), damaged);
        assert!(!engine.is_removed());
    }
}

#[test]
fn a_repair_visits_only_slots_that_were_ever_filled() {
    let engine = engine(1 << 20);
    for n in 0..6000 {
        engine.send(&now(), n % 7 + 1, b"message").unwrap();
    }
    let (fixed, me) = (engine.segment().fixed(), thread::current());
    let used = fixed.words().used.get();
    for forged in [used, 1 << 20] {
        fixed.words().used.set(forged);
        let usable = fixed.words().usable;
        usable.set(usable.get().max(forged));
        fixed.leases.used.set(forged);
        fixed.control.lock.forge(OWNER_DIED);
        assert_eq!(engine.counts(me).unwrap().messages, 6000);
        assert_eq!(fixed.words().used.get(), used);
        assert!(Leases::of(engine.segment()).all().count() < 5000);
    }
    engine.send(&now(), 1, b"message").unwrap();
}

#[test]
fn all_messages_are_copied_for_any_forged_counts() {
    let engine = engine(1000);
    let due = || clock::monotonic() + 60_000_000_000;
    for _ in 0..20 {
        engine.send(&now(), 1, b"message").unwrap();
        engine.send_later(&now(), 1, b"later", &due).unwrap();
    }
    let fixed = engine.segment().fixed();
    for word in [fixed.words().messages, &fixed.leases.delayed] {
        word.store(0, Ordering::Relaxed);
    }
    let (seen, bytes) = engine.all_messages(&now()).unwrap();
    assert_eq!((seen.len(), bytes.len()), (20, 140));
    let (seen, bytes) = engine.delayed_messages(&now(), 99).unwrap();
    assert_eq!((seen.len(), bytes.len()), (20, 100));
}

#[test]
fn a_lease_that_names_a_queued_message_makes_no_list_without_an_end() {
    let engine = engine(1000);
    for _ in 0..40 {
        engine.send(&now(), 1, b"message").unwrap();
    }
    let me = thread::current();
    let handle = engine.lease(&now(), Want::Any).unwrap();
    // The message comes back to the list, which has it already.
    engine.segment().lease_record(0).unwrap().slot.set(31);
    assert_eq!(engine.give_back(me, &handle), Ok(true));
    let found = engine.messages(&now(), 0, usize::MAX, usize::MAX);
    assert_eq!(found.err(), Some(Refused::Fault(Fault::Damaged)));
}
