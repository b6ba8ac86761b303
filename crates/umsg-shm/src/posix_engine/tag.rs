//! What stands beside a message: its priority, and a mark that its sender makes there.
//!
//! The engine orders by the priority and hands on the mark. POSIX queues have no marks, rings no priorities.

/// Bits of a label below the mark: the priority.
pub(crate) const MARK: u32 = 16;

/// The priority in a label, not checked.
#[inline(always)]
pub(super) fn priority_of(label: u64) -> usize {
    label as usize & ((1 << MARK) - 1)
}

/// The label of a message without a priority. The mark has 48 bits.
#[inline(always)]
pub fn marked(mark: u64) -> usize {
    (mark << MARK) as usize
}
