//! The key of a message: its priority, and the tag (or mark) that the sender of a ring sets.
//!
//! The engine orders messages by the priority and delivers the tag unchanged. POSIX queues have no tags, rings have no priorities.

/// The number of low bits of a key that contain the priority. The tag is in the higher bits.
pub(crate) const MARK: u32 = 16;

/// Returns the priority in a key, without a check.
#[inline(always)]
pub(super) fn priority_of(label: u64) -> usize {
    label as usize & ((1 << MARK) - 1)
}

/// Returns the key of a ring's message: a tag of at most 48 bits, and priority 0.
#[inline(always)]
pub fn marked(mark: u64) -> usize {
    (mark << MARK) as usize
}
