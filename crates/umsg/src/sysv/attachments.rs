//! The System V queues to which this process is attached, by their ids.
//!
//! C programs pass a queue's id to each call, and never detach from a queue. So a process attaches to a queue at the first call
//! with its id, and stays attached until the queue is removed:
//!
//! ```text
//!   id = sequence * 32768 + index
//!                             |
//!   entries:  [ .. .. .. | link .. ]  ->  slot: id, queue
//! ```
//!
//! A look-up reads the link, notes the slot in a hazard pointer, and compares the id. A look-up takes no lock and uses no locked instruction. If the
//! index has a new queue with another id, the caller attaches to the new queue.
//!
//! A call that finds a queue that other processes have removed detaches the process from the queue. Each attachment also checks a few other queues
//! ([`Attachments::sweep`]). So a process does not keep the memory of removed queues.
//!
//! Signal handlers may call all functions. A forked child keeps its parent's attachments, on mappings of its own.

use std::ops::Deref;
use std::sync::atomic::{AtomicUsize, Ordering};
use umsg_shm::reclaim::{Chunks, Held, Link, Slots, Word};

/// The number of queues that a namespace can have at once.
const INDICES: usize = 32_768;
const CHUNK: usize = 512;
/// The number of entries that a sweep checks.
const SWEEP: usize = 64;

/// An attached queue, which lies in a slot to which an entry leads.
pub(crate) struct Attached<T: Send + Sync + 'static> {
    id: i32,
    queue: T,
    /// The table of attachments, of which an entry leads to this slot.
    all: &'static Attachments<T>,
}

impl<T: Send + Sync> Deref for Attached<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.queue
    }
}

/// A process's attachments.
pub(crate) struct Attachments<T: Send + Sync + 'static> {
    entries: Chunks<Link<Attached<T>>, CHUNK, { INDICES / CHUNK }>,
    slots: Slots<Attached<T>>,
    /// The entry at which the next sweep begins.
    hand: AtomicUsize,
}

/// An attached queue that a call is using.
pub(crate) struct InUse<T: Send + Sync + 'static>(Held<Attached<T>>);

impl<T: Send + Sync> InUse<T> {
    /// Detaches from a removed queue. The memory of the queue is unmapped as soon as no call uses the queue.
    #[cold]
    pub(crate) fn forget(&self) {
        self.0.all.forget(self);
    }
}

impl<T: Send + Sync> Deref for InUse<T> {
    type Target = T;

    #[inline(always)]
    fn deref(&self) -> &T {
        &self.0.queue
    }
}

fn index_of(id: i32) -> usize {
    id as u32 as usize % INDICES
}

impl<T: Send + Sync> Attachments<T> {
    pub(crate) const fn new() -> Self {
        Attachments {
            entries: Chunks::new(),
            slots: Slots::new(),
            hand: AtomicUsize::new(0),
        }
    }

    /// Returns the queue of this id, if the process is attached to it.
    #[inline(always)]
    pub(crate) fn get(&'static self, id: i32) -> Option<InUse<T>> {
        let held = self.entries.get(index_of(id))?.hold()?;
        (held.id == id).then_some(InUse(held))
    }

    /// Returns the queue like [`get`](Self::get), for use after the call and in other threads.
    pub(crate) fn keep(&'static self, id: i32) -> Option<InUse<T>> {
        let held = self.entries.get(index_of(id))?.hold_counted()?;
        (held.id == id).then_some(InUse(held))
    }

    /// Attaches to a queue, and returns it as in use. The caller has found that a queue has this id. Detaches from an older queue of
    /// the same index. Returns None if there is no memory.
    pub(crate) fn attach(&'static self, id: i32, queue: T) -> Option<InUse<T>> {
        let entry = self.entries.get_or_grow(index_of(id))?;
        let slot = self.slots.fill(Attached {
            id,
            queue,
            all: self,
        })?;
        let held = Held::counted(slot, 0);
        if let Some(word) = held.another() {
            entry.put(word);
        }
        Some(InUse(held))
    }

    /// Detaches from a removed queue. The memory of the queue is unmapped as soon as no call uses the queue.
    #[cold]
    pub(crate) fn forget(&'static self, used: &InUse<T>) {
        if let Some(entry) = self.entries.get(index_of(used.0.id)) {
            entry.forget(used.0.word());
        }
    }

    /// Detaches from a queue that the caller has removed, and returns the slot of the queue, for the caller's own [`Link`]s.
    pub(crate) fn retire(&'static self, used: &InUse<T>) -> Option<Word<Attached<T>>> {
        let word = used.0.another();
        self.forget(used);
        word
    }

    /// Checks the next entries in turn, and detaches from the queues for which `is_over` holds.
    pub(crate) fn sweep(&'static self, is_over: impl Fn(&T) -> bool) {
        // Relaxed: the position need not be exact.
        let first = self.hand.fetch_add(SWEEP, Ordering::Relaxed) % INDICES;
        for (_, entry) in self.entries.range(first, first + SWEEP - 1) {
            if let Some(held) = entry.hold_counted().filter(|held| is_over(&held.queue)) {
                entry.forget(held.word());
            }
        }
        self.slots.reap();
    }

    /// Detaches from all queues.
    pub(crate) fn forget_all(&'static self) {
        for (_, entry) in self.entries.range(0, INDICES - 1) {
            if let Some(held) = entry.hold_counted() {
                entry.forget(held.word());
            }
        }
        self.slots.reap();
    }

    /// Unmaps detached queues that no call uses any more. The call is cheap if no queue is detached, so callers make it after each call that has
    /// blocked.
    pub(crate) fn reap(&'static self) {
        self.slots.reap();
    }
}

#[cfg(test)]
mod tests {
    use super::{Attachments, INDICES, SWEEP};
    use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};

    /// A stand-in for a queue, which counts the live stand-ins of its test.
    struct Fake {
        id: i32,
        removed: AtomicBool,
        count: &'static AtomicUsize,
    }

    impl Drop for Fake {
        fn drop(&mut self) {
            self.count.fetch_sub(1, Relaxed);
        }
    }

    macro_rules! table {
        ($table:ident, $count:ident) => {
            static $table: Attachments<Fake> = Attachments::new();
            static $count: AtomicUsize = AtomicUsize::new(0);
        };
    }

    fn fake(id: i32, count: &'static AtomicUsize) -> Fake {
        count.fetch_add(1, Relaxed);
        Fake {
            id,
            removed: AtomicBool::new(false),
            count,
        }
    }

    /// Waits until `expected` queues are left. Another thread may still use a detached queue.
    fn are_left(table: &'static Attachments<Fake>, count: &AtomicUsize, expected: usize) -> bool {
        (0..1000).any(|_| {
            table.reap();
            std::thread::sleep(std::time::Duration::from_micros(100));
            count.load(Relaxed) == expected
        })
    }

    #[test]
    fn an_attached_queue_is_found_by_its_id_and_by_no_other_of_its_index() {
        table!(TABLE, COUNT);
        let id = 5 * INDICES as i32 + 77;
        assert!(TABLE.get(id).is_none());
        assert_eq!(TABLE.attach(id, fake(id, &COUNT)).unwrap().id, id);
        assert_eq!(TABLE.get(id).unwrap().id, id);
        for other in [77, id + INDICES as i32, id + 1, -id, -1, i32::MIN, i32::MAX] {
            assert!(TABLE.get(other).is_none(), "{other}");
        }
        assert_eq!(COUNT.load(Relaxed), 1);
    }

    #[test]
    fn a_queue_of_a_reused_index_replaces_the_attached_queue() {
        table!(TABLE, COUNT);
        for sequence in 0..100 {
            let id = sequence * INDICES as i32 + 9;
            drop(TABLE.attach(id, fake(id, &COUNT)));
            assert!(TABLE.get(id).is_some());
        }
        assert!(are_left(&TABLE, &COUNT, 1));
    }

    #[test]
    fn a_queue_in_use_stays_mapped_after_a_detachment() {
        table!(TABLE, COUNT);
        let first = TABLE.attach(3, fake(3, &COUNT)).unwrap();
        let second = TABLE.get(3).unwrap();
        TABLE.forget(&first);
        drop(first);
        assert!(TABLE.get(3).is_none() && are_left(&TABLE, &COUNT, 1));
        assert_eq!(second.id, 3);
        drop(second);
        assert!(are_left(&TABLE, &COUNT, 0));
    }

    #[test]
    fn another_thread_may_detach_from_a_queue_that_is_kept() {
        table!(TABLE, COUNT);
        assert!(TABLE.keep(3).is_none());
        drop(TABLE.attach(3, fake(3, &COUNT)));
        let kept = TABLE.keep(3).unwrap();
        assert!(TABLE.keep(3 + INDICES as i32).is_none());
        TABLE.forget(&kept);
        assert!(TABLE.get(3).is_none() && COUNT.load(Relaxed) == 1);
        std::thread::spawn(move || assert_eq!(kept.id, 3))
            .join()
            .unwrap();
        assert!(are_left(&TABLE, &COUNT, 0));
    }

    #[test]
    fn detaching_from_an_old_queue_leaves_the_queue_that_took_its_place() {
        table!(TABLE, COUNT);
        let old = TABLE.attach(3, fake(3, &COUNT)).unwrap();
        let new = 3 + INDICES as i32;
        drop(TABLE.attach(new, fake(new, &COUNT)));
        TABLE.forget(&old);
        drop(old);
        assert!(TABLE.get(new).is_some() && are_left(&TABLE, &COUNT, 1));
    }

    #[test]
    fn removed_queues_are_detached_within_one_round_of_sweeps() {
        table!(TABLE, COUNT);
        for id in 0..100 {
            let queue = TABLE.attach(id * 300, fake(id * 300, &COUNT)).unwrap();
            queue.removed.store(id % 2 == 0, Relaxed);
        }
        for _ in 0..INDICES.div_ceil(SWEEP) {
            TABLE.sweep(|queue| queue.removed.load(Relaxed));
        }
        assert!(are_left(&TABLE, &COUNT, 50));
        assert!(TABLE.get(0).is_none() && TABLE.get(300).is_some());
    }

    #[test]
    fn threads_that_attach_use_and_detach_at_once_find_the_right_queue() {
        table!(TABLE, COUNT);
        let rounds = if cfg!(miri) { 30 } else { 20_000 };
        std::thread::scope(|scope| {
            for seed in 0..4 {
                scope.spawn(move || {
                    for round in 0..rounds {
                        let id = (round * 7 + seed) % 5 * INDICES as i32 + round % 3;
                        let queue = TABLE.get(id);
                        let queue =
                            queue.unwrap_or_else(|| TABLE.attach(id, fake(id, &COUNT)).unwrap());
                        assert_eq!(queue.id, id);
                        if round % 11 == 0 {
                            TABLE.forget(&queue);
                        }
                    }
                });
            }
        });
        for index in 0..3 {
            for sequence in 0..5 {
                TABLE
                    .get(sequence * INDICES as i32 + index)
                    .iter()
                    .for_each(|queue| TABLE.forget(queue));
            }
        }
        assert!(are_left(&TABLE, &COUNT, 0));
    }
}
