//! The mark of a queue that is being made anew, beside others that look and repair. What a salvage makes anew has no models: real
//! processes die there.
//!
//! | a defect | what it leads to here |
//! |---|---|
//! | who finds nothing wrong takes away whatever mark there is | a half-made queue is taken for whole |
//! | nothing keeps what is made anew behind the mark | the same |
//! | nothing keeps the end of the mark behind what is made anew | what was not made yet is taken for made |

use super::stage::{Slices, alive, explore};
use crate::model::thread;
use crate::repair::log::Damage;
use crate::sync::{AtomicU64, Ordering, fence};
use std::sync::Arc;

/// A mark, and a word of those that are made anew.
#[derive(Default)]
struct Marked {
    damage: Damage,
    word: AtomicU64,
}

#[test]
fn who_finds_nothing_wrong_leaves_the_mark_of_another_that_makes_the_queue_anew() {
    explore("repair_log: two doctors", 3, Slices::Endless, || {
        let marked = Arc::new(Marked::default());
        marked.damage.note();
        let other = {
            let marked = Arc::clone(&marked);
            thread::spawn(1, move |_| marked.damage.begin_to_mend())
        };
        thread::live(2, |_| {
            let _ = marked.damage.forget();
        });
        alive(other);
        marked.damage.check_mended().unwrap_err();
    });
}

#[test]
fn who_finds_anything_made_anew_finds_the_mark() {
    explore("repair_log: MENDING", 3, Slices::Endless, || {
        let marked = Arc::new(Marked::default());
        let other = {
            let marked = Arc::clone(&marked);
            thread::spawn(1, move |_| {
                marked.damage.begin_to_mend();
                marked.word.store(1, Ordering::Relaxed);
            })
        };
        thread::live(2, |_| {
            if marked.word.load(Ordering::Relaxed) == 1 {
                // As who takes the lock of the dead.
                fence(Ordering::Acquire);
                marked.damage.check_mended().unwrap_err();
            }
        });
        alive(other);
    });
}

#[test]
fn who_finds_the_mark_gone_finds_all_made_anew() {
    explore("repair_log: the end", 3, Slices::Endless, || {
        let marked = Arc::new(Marked::default());
        marked.damage.begin_to_mend();
        let other = {
            let marked = Arc::clone(&marked);
            thread::spawn(1, move |_| {
                marked.word.store(1, Ordering::Relaxed);
                marked.damage.end_mending();
            })
        };
        thread::live(2, |_| {
            if marked.damage.check_mended().is_ok() {
                fence(Ordering::Acquire);
                assert_eq!(marked.word.load(Ordering::Relaxed), 1);
            }
        });
        alive(other);
    });
}
