//! The keys that msgget has found recently. With them, a program that calls msgget before each message finds its queue without a system call.
//!
//! An answer of the directory, the identifier of a key's queue, is used again for [`TRUST`] under two conditions. The process is attached to the
//! queue, and the queue's header still has the key and no mark of a removal. So a removal takes effect at once. After [`TRUST`], the directory
//! decides again. So a process that overwrites the header can mislead others only for that time.

use super::super::permission::Access;
use super::super::queue::Queue;
use std::sync::atomic::{AtomicU64, Ordering};
use umsg_shm::sys::clock;

/// The time for which an answer of the directory is used again, in nanoseconds.
const TRUST: u64 = 100_000_000;

/// The number of entries. Each key has one possible entry, and a later key may replace an earlier key in the entry.
const ENTRIES: usize = 64;

/// A key, with the identifier that it had in the directory.
struct Entry {
    /// The key in the upper half and the identifier in the lower half; 0 for an empty entry, because no queue has key 0.
    answer: AtomicU64,
    /// The time of the answer (CLOCK_MONOTONIC_COARSE).
    time: AtomicU64,
}

static ENTRIES_BY_KEY: [Entry; ENTRIES] = [const {
    Entry {
        answer: AtomicU64::new(0),
        time: AtomicU64::new(0),
    }
}; ENTRIES];

fn entry(key: i32) -> &'static Entry {
    // The keys of ftok(3) differ in all bytes, other keys mostly in the lowest byte.
    let hash = key.cast_unsigned().wrapping_mul(0x9e37_79b1) >> 26;
    &ENTRIES_BY_KEY[hash as usize % ENTRIES]
}

/// Notes the answer of the directory.
pub(super) fn note(key: i32, id: i32) {
    let entry = entry(key);
    // Release, Acquire: if a reader finds the same answer before and after it reads the time, the time belongs to an answer for this key.
    entry.answer.store(0, Ordering::Release);
    entry
        .time
        .store(clock::monotonic_coarse(), Ordering::Release);
    let answer = u64::from(key.cast_unsigned()) << 32 | u64::from(id.cast_unsigned());
    entry.answer.store(answer, Ordering::Release);
}

/// Returns the identifier that the directory had for a key a moment ago.
pub(super) fn id_of(key: i32) -> Option<i32> {
    let entry = entry(key);
    let answer = entry.answer.load(Ordering::Acquire);
    let time = entry.time.load(Ordering::Acquire);
    let is_fresh = clock::monotonic_coarse().wrapping_sub(time) < TRUST;
    let is_same = entry.answer.load(Ordering::Acquire) == answer;
    let is_keys = answer >> 32 == u64::from(key.cast_unsigned()) && answer != 0;
    (is_keys && is_same && is_fresh).then_some(answer as u32 as i32)
}

/// Returns whether an attached queue is still the queue of a key, and whether it grants the permissions `asked`: bits of any class, as in
/// the flags of msgget(2).
pub(super) fn answers(queue: &Queue, key: i32, id: i32, asked: u32) -> bool {
    let fixed = queue.engine.segment().fixed();
    let wanted = (asked >> 6 | asked >> 3 | asked) & 0o7;
    let may =
        |access: Access| wanted & access as u32 == 0 || queue.judged.may(fixed, access).is_ok();
    // Programs hardly ever ask for the lowest bit of a class (execute), so the full search answers a request with that bit.
    let grants = wanted & 0o1 == 0 && may(Access::Read) && may(Access::Write);
    grants && queue.key() == key && queue.id() == id && !queue.is_removed()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_found_by_its_key_alone_and_for_a_while() {
        assert_eq!(id_of(0), None);
        assert_eq!(id_of(77), None);
        assert_eq!(id_after_note(77, 32_845), Some(32_845));
        let others = (78..100_000).filter(|&key| id_of(key).is_some());
        assert_eq!(others.count(), 0);
        entry(77).time.store(
            clock::monotonic_coarse().wrapping_sub(TRUST),
            Ordering::Relaxed,
        );
        assert_eq!(id_of(77), None);
        assert_eq!(id_after_note(-1, 0), Some(0));
    }

    /// Notes an answer and finds it. If the thread loses its processor for so long that the answer may be too old, repeats both.
    fn id_after_note(key: i32, id: i32) -> Option<i32> {
        loop {
            let began = clock::monotonic_coarse();
            note(key, id);
            let found = id_of(key);
            if clock::monotonic_coarse() - began < TRUST {
                return found;
            }
        }
    }
}
