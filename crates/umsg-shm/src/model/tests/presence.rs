//! A segment that its creator uses for one queue after the other. Meanwhile other processes open its file by its name, or want to create a queue of
//! that name.
//!
//! If a process uses a queue while the creator clears or fills the segment, loom reports a race on the word of data.

use super::stage::{Slices, alive, explore};
use crate::model::thread;
use crate::posix_engine::segment::{Presence, Taken};
use crate::sync::Guarded64;
use std::sync::Arc;

/// The presence word, and a word of the queue's data, which is the number of the queue.
#[derive(Default)]
struct Segment {
    presence: Presence,
    number: Guarded64,
}

impl Segment {
    fn new() -> Arc<Segment> {
        let segment = Arc::new(Segment::default());
        segment.number.set(1);
        segment.presence.begin_sole();
        segment
    }

    /// Removes the queue and, if no other process has it open, makes the next queue. Returns whether the queue was removed, and whether the next
    /// queue exists.
    fn recycle(&self, next: u64) -> (bool, bool) {
        if !self.presence.remove() {
            return (false, false);
        }
        self.number.set(0);
        self.number.set(next);
        (true, self.presence.revive())
    }

    /// Opens the queue and uses it. Returns the number of the queue, or None if there is no queue.
    fn open(&self) -> Option<u64> {
        self.presence.join().then(|| self.number.get())
    }
}

#[test]
fn an_opener_has_the_queue_of_before_or_the_next_one_or_none() {
    explore("presence: an opener", 3, Slices::Endless, || {
        let segment = Segment::new();
        let other = {
            let segment = Arc::clone(&segment);
            thread::spawn(1, move |_| {
                let Some(number) = segment.open() else {
                    return;
                };
                assert!((1..=3).contains(&number), "{number}");
                // While this thread has the queue open, the creator does not use the segment for another queue.
                assert_eq!(segment.number.get(), number);
            })
        };
        thread::live(2, |_| {
            segment.recycle(2);
            segment.recycle(3);
        });
        alive(other);
    });
}

#[test]
fn a_name_is_taken_from_a_removed_queue_or_the_next_queue_has_it() {
    explore("presence: a taker", 3, Slices::Endless, || {
        let segment = Segment::new();
        let taker = {
            let segment = Arc::clone(&segment);
            thread::spawn(1, move |_| segment.presence.take())
        };
        let (is_removed, is_next) = thread::live(2, |_| segment.recycle(2)).unwrap();
        assert!(is_removed);
        assert_eq!(alive(taker) == Taken::Queue, is_next);
        assert_eq!(segment.open().is_some(), is_next);
    });
}
