//! The mark of a queue that is being rebuilt, while other threads read and repair. The rebuild itself has no models: tests kill real processes during
//! a rebuild.
//!
//! | a defect | its effect here |
//! |---|---|
//! | a process that finds no defect removes any mark | a half-built queue seems to be complete |
//! | nothing orders the rebuilding after the mark | the same |
//! | nothing orders the end of the mark after the rebuilding | unfinished data seem to be complete |

use super::stage::{Slices, alive, explore};
use crate::model::thread;
use crate::repair::log::Damage;
use crate::sync::{AtomicU64, Ordering, fence};
use std::sync::Arc;

/// The mark of a queue that is being rebuilt, and a word of the data that the rebuild writes.
#[derive(Default)]
struct Marked {
    damage: Damage,
    word: AtomicU64,
}

#[test]
fn a_repair_that_finds_nothing_wrong_leaves_the_mark_of_another_that_rebuilds() {
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
fn a_process_that_finds_anything_rebuilt_finds_the_mark() {
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
                // This fence has the effect of taking an orphaned lock.
                fence(Ordering::Acquire);
                marked.damage.check_mended().unwrap_err();
            }
        });
        alive(other);
    });
}

#[test]
fn a_process_that_finds_no_mark_finds_all_rebuilt() {
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
