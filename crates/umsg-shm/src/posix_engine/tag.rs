//! The key of a message: its priority, and a mark (the tag) that the sender of a ring sets.
//!
//! The engine orders messages by the priority and passes the mark on. POSIX queues have no marks, rings have no
//! priorities.

/// The number of low bits of a key, below the mark: they hold the priority.
pub(crate) const MARK: u32 = 16;

/// Returns the priority in a key, without a check.
#[inline(always)]
pub(super) fn priority_of(label: u64) -> usize {
    label as usize & ((1 << MARK) - 1)
}

/// Returns the key of a ring's message: a mark of at most 48 bits, and priority 0.
#[inline(always)]
pub fn marked(mark: u64) -> usize {
    (mark << MARK) as usize
}
