//! The lock whose word names its owner.
//!
//! | a defect | its effect here |
//! |---|---|
//! | taking or releasing the lock orders nothing | a race on the guarded data |
//! | a sleeper does not set WAITERS; a thread that has slept forgets that other threads may sleep; a loan ends without a wake-up | a deadlock |
//! | a lender marks a word that was free and sleeps on it | a deadlock |
//! | a lock is broken up by one attempt, while a process marks it | a deadlock |
//! | a thread takes a dead owner's lock like a free lock | the thread sees an incomplete change |
//! | an owner that the first in line has not named wakes no thread; an owner that wakes the first in line wakes no thread that sleeps on the word | a deadlock |
//! | the word is not named before the lock is taken, or is no longer named while its sleeper is woken | a deadlock |

use super::stage::{Slices, alive, explore};
use crate::crash::Point;
use crate::lock::{Left, Lock};
use crate::model::thread::{self, Processes, Thread};
use crate::model::world::{self, Death};
use crate::sync::Guarded64;
use crate::sys::clock::Deadline;
use std::sync::Arc;

/// Two words that are equal whenever the lock is free.
#[derive(Default)]
struct Guarded {
    lock: Lock,
    first: Guarded64,
    second: Guarded64,
}

impl Guarded {
    fn in_shared_form() -> Guarded {
        Guarded {
            lock: Lock::shared(),
            ..Guarded::default()
        }
    }

    /// Adds one to both words. If an owner died between the two changes, first repairs the words. Returns the state in which the lock was taken.
    fn add(&self, me: &Thread) -> Left {
        let (held, left) = self
            .lock
            .lock(me, &Processes, Deadline::Never)
            .expect("the lock");
        if left == Left::ByTheDead {
            self.second.set(self.first.get());
        }
        assert_eq!(self.first.get(), self.second.get());
        self.first.set(self.first.get() + 1);
        self.second.set(self.second.get() + 1);
        held.unlock();
        left
    }

    /// Dies after the change of the first word, before the change of the second word.
    fn add_half(&self, me: &Thread) {
        let (_held, left) = self
            .lock
            .lock(me, &Processes, Deadline::Never)
            .expect("the lock");
        if left == Left::ByTheDead {
            self.second.set(self.first.get());
        }
        self.first.set(self.first.get() + 1);
        me.die();
    }
}

/// Three threads take the lock; the threads in `urgent` have a real-time policy.
fn three_owners(name: &str, urgent: &'static [u32]) {
    explore(name, 3, Slices::Endless, || {
        let guarded = Arc::new(Guarded::default());
        urgent.iter().for_each(|&tid| world::hurry(tid));
        let threads = [1, 2].map(|tid| {
            let guarded = Arc::clone(&guarded);
            thread::spawn(tid, move |me| guarded.add(me))
        });
        thread::live(3, |me| guarded.add(me));
        for thread in threads {
            assert_eq!(alive(thread), Left::InOrder);
        }
        assert_eq!(guarded.first.get(), 3);
        assert!(guarded.lock.lends_nothing());
    });
}

#[test]
fn owners_exclude_each_other_and_no_sleeper_is_forgotten() {
    three_owners("lock: three owners", &[]);
}

#[test]
fn a_real_time_thread_and_an_ordinary_one_wait_and_none_is_forgotten() {
    three_owners("lock: one real-time thread", &[1]);
}

#[test]
fn real_time_threads_wait_in_line_and_none_is_forgotten() {
    three_owners("lock: two real-time threads", &[1, 2]);
}

#[test]
fn a_sleeper_gets_a_lock_that_is_broken_up_though_its_owner_is_stopped() {
    explore("lock: broken up", 100, Slices::Endless, || {
        let guarded = Arc::new(Guarded::default());
        thread::live(3, |me| {
            let (held, _) = guarded
                .lock
                .lock(me, &Processes, Deadline::Never)
                .expect("the lock");
            let waiter = {
                let guarded = Arc::clone(&guarded);
                thread::spawn(1, move |me| {
                    let got = guarded.lock.lock(me, &Processes, Deadline::Never);
                    let (held, left) = got.expect("the lock");
                    held.unlock();
                    left
                })
            };
            guarded.lock.break_up();
            assert_eq!(alive(waiter), Left::ByTheDead);
            held.unlock();
        });
    });
}

#[test]
fn two_owners_in_every_interleaving() {
    explore("lock: two owners", 100, Slices::Endless, || {
        let guarded = Arc::new(Guarded::default());
        let other = {
            let guarded = Arc::clone(&guarded);
            thread::spawn(1, move |me| {
                let _ = guarded.add(me);
                let _ = guarded.add(me);
            })
        };
        thread::live(3, |me| guarded.add(me));
        alive(other);
        assert_eq!(guarded.first.get(), 3);
    });
}

/// Lets an owner die while two threads use the lock. Thread 2 has a real-time policy if `is_urgent`.
fn an_owner_dies(name: &str, is_urgent: bool) {
    explore(name, 3, Slices::Endless, move || {
        let guarded = Arc::new(Guarded::default());
        if is_urgent {
            world::hurry(2);
        }
        let victim = {
            let guarded = Arc::clone(&guarded);
            thread::spawn(1, move |me| guarded.add_half(me))
        };
        let bystander = {
            let guarded = Arc::clone(&guarded);
            thread::spawn(2, move |me| guarded.add(me))
        };
        let mine = thread::live(3, |me| guarded.add(me));
        assert!(thread::join(victim).is_none());
        let theirs = alive(bystander);
        let found = [mine, Some(theirs)]
            .iter()
            .filter(|left| **left == Some(Left::ByTheDead))
            .count();
        let last = thread::live(4, |me| guarded.add(me)).unwrap();
        assert_eq!(found + usize::from(last == Left::ByTheDead), 1);
        assert_eq!((guarded.first.get(), guarded.second.get()), (4, 4));
    });
}

#[test]
fn the_next_owner_learns_of_a_death_and_its_sleepers_are_woken() {
    an_owner_dies("lock: an owner dies", false);
}

#[test]
fn a_real_time_thread_learns_of_the_death_of_the_owner() {
    an_owner_dies("lock: an owner dies before a real-time thread", true);
}

#[test]
fn a_thread_that_dies_with_the_lock_of_a_dead_owner_is_followed_by_another() {
    explore("lock: two owners die", 2, Slices::Endless, || {
        let guarded = Arc::new(Guarded::default());
        let victims = [1, 2].map(|tid| {
            let guarded = Arc::clone(&guarded);
            thread::spawn(tid, move |me| guarded.add_half(me))
        });
        let mine = thread::live(3, |me| guarded.add(me)).expect("nobody killed this one");
        for victim in victims {
            assert!(thread::join(victim).is_none());
        }
        let last = thread::live(4, |me| guarded.add(me)).expect("nobody killed this one");
        assert!([mine, last].contains(&Left::ByTheDead));
        assert_eq!((guarded.first.get(), guarded.second.get()), (4, 4));
    });
}

#[test]
fn the_kernel_wakes_a_sleeper_for_an_owner_that_dies_before_it_does() {
    explore("lock: the waker dies", 3, Slices::Endless, || {
        let guarded = Arc::new(Guarded::default());
        world::doom(1, Death::Waking, 1);
        let victim = {
            let guarded = Arc::clone(&guarded);
            thread::spawn(1, move |me| guarded.add(me))
        };
        let bystander = {
            let guarded = Arc::clone(&guarded);
            thread::spawn(2, move |me| guarded.add(me))
        };
        thread::live(3, |me| guarded.add(me));
        let _ = thread::join(victim);
        let _ = alive(bystander);
        assert_eq!(guarded.first.get(), 3);
    });
}

#[test]
fn a_loan_excludes_owners_and_ends() {
    explore("lock: a loan", 3, Slices::Endless, || {
        let guarded = Arc::new(Guarded::default());
        let owner = {
            let guarded = Arc::clone(&guarded);
            thread::spawn(1, move |me| {
                let _ = guarded.add(me);
                let _ = guarded.add(me);
            })
        };
        thread::live(3, |me| {
            let left = guarded
                .lock
                .borrow(me, &Processes, Deadline::Never)
                .expect("the loan");
            assert_eq!(left, Left::InOrder);
            assert_eq!(guarded.first.get(), guarded.second.get());
            guarded.first.set(guarded.first.get() + 1);
            guarded.second.set(guarded.second.get() + 1);
            guarded.lock.give_back();
        });
        alive(owner);
        assert_eq!(guarded.first.get(), 3);
    });
}

#[test]
fn a_real_time_thread_that_dies_in_line_stops_no_other() {
    for point in [Point::INHERIT_FIRST, Point::INHERIT_NAMED] {
        let name = format!("lock: a death at {point:?}");
        explore(&name, 2, Slices::End, move || {
            let guarded = Arc::new(Guarded::default());
            world::hurry(1);
            world::hurry(2);
            world::doom(1, Death::At(point), 1);
            let threads = [1, 2].map(|tid| {
                let guarded = Arc::clone(&guarded);
                thread::spawn(tid, move |me| guarded.add(me))
            });
            thread::live(3, |me| guarded.add(me));
            let [victim, other] = threads;
            let added = thread::join(victim).map_or(0, |_| 1);
            let _ = alive(other);
            assert_eq!(guarded.first.get(), 2 + added);
        });
    }
}

#[test]
fn an_owner_that_dies_when_it_has_woken_the_first_in_line_stops_no_other() {
    explore(
        "lock: a death of one that handed on",
        2,
        Slices::End,
        || {
            let guarded = Arc::new(Guarded::default());
            world::hurry(2);
            world::doom(1, Death::At(Point::INHERIT_HANDED_ON), 1);
            let threads = [1, 2].map(|tid| {
                let guarded = Arc::clone(&guarded);
                thread::spawn(tid, move |me| guarded.add(me))
            });
            thread::live(3, |me| guarded.add(me));
            let [victim, other] = threads;
            let _ = thread::join(victim);
            assert_eq!(alive(other), Left::InOrder);
            assert_eq!(guarded.first.get(), 3);
        },
    );
}

/// In each model below, threads of several PID namespaces have this thread id. Each process has one thread.
const SAME: u32 = 7;

fn elsewhere<T: 'static>(
    pid: u32,
    stray: bool,
    life: impl FnOnce(&Thread) -> T + 'static,
) -> loom::thread::JoinHandle<Option<T>> {
    thread::spawn_in(SAME, pid, stray, life)
}

#[test]
fn a_lock_that_is_put_into_shared_form_has_one_owner_at_a_time() {
    explore("lock: shared meanwhile", 3, Slices::Endless, || {
        let guarded = Arc::new(Guarded::default());
        let at_home = {
            let guarded = Arc::clone(&guarded);
            elsewhere(1, false, move |me| {
                let _ = guarded.add(me);
                let _ = guarded.add(me);
            })
        };
        thread::live_in(SAME, 2, true, |me| {
            assert_eq!(guarded.add(me), Left::InOrder);
        });
        alive(at_home);
        assert_eq!(guarded.first.get(), 3);
        assert!(guarded.lock.is_shared());
    });
}

#[test]
fn a_stray_and_a_thread_at_home_with_its_id_exclude_each_other() {
    explore("lock: a stray", 3, Slices::Endless, || {
        let guarded = Arc::new(Guarded::default());
        let stray = {
            let guarded = Arc::clone(&guarded);
            elsewhere(1, true, move |me| guarded.add(me))
        };
        let at_home = {
            let guarded = Arc::clone(&guarded);
            elsewhere(2, false, move |me| guarded.add(me))
        };
        thread::live(3, |me| guarded.add(me));
        for thread in [stray, at_home] {
            assert_eq!(alive(thread), Left::InOrder);
        }
        assert_eq!(guarded.first.get(), 3);
    });
}

/// Dies while it waits for the lock: the thread has named the lock's word to the kernel, and another thread owns the lock.
fn die_with_another_word_named(guarded: &Guarded, me: &Thread) {
    me.rename(guarded.lock.futex());
    me.die();
}

#[test]
fn a_false_mark_takes_the_lock_from_no_living_owner() {
    explore("lock: a false mark", 3, Slices::Endless, || {
        let guarded = Arc::new(Guarded::in_shared_form());
        let marker = {
            let guarded = Arc::clone(&guarded);
            elsewhere(1, false, move |me| {
                die_with_another_word_named(&guarded, me)
            })
        };
        let owner = {
            let guarded = Arc::clone(&guarded);
            elsewhere(2, true, move |me| guarded.add(me))
        };
        assert_eq!(thread::live(3, |me| guarded.add(me)), Some(Left::InOrder));
        assert!(thread::join(marker).is_none());
        assert_eq!(alive(owner), Left::InOrder);
        assert_eq!((guarded.first.get(), guarded.second.get()), (2, 2));
    });
}

#[test]
fn the_death_of_an_owner_in_shared_form_is_found_beside_a_false_mark() {
    explore("lock: a true and a false mark", 2, Slices::End, || {
        let guarded = Arc::new(Guarded::in_shared_form());
        let marker = {
            let guarded = Arc::clone(&guarded);
            elsewhere(1, false, move |me| {
                die_with_another_word_named(&guarded, me)
            })
        };
        let victim = {
            let guarded = Arc::clone(&guarded);
            elsewhere(2, true, move |me| guarded.add_half(me))
        };
        let mine = thread::live(3, |me| guarded.add(me)).expect("it lives");
        assert!(thread::join(marker).is_none());
        assert!(thread::join(victim).is_none());
        let last = thread::live(4, |me| guarded.add(me)).expect("it lives");
        assert_eq!(
            [mine, last]
                .iter()
                .filter(|left| **left == Left::ByTheDead)
                .count(),
            1
        );
        assert_eq!((guarded.first.get(), guarded.second.get()), (3, 3));
    });
}
