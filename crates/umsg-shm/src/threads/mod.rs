//! Threads of one process on one engine, for tools that check memory accesses: Miri and ThreadSanitizer.
//!
//! Messages are written and read as plain bytes. The tools don't distinguish the words of a segment by their meaning. Each tool finds out whether an
//! access to the bytes of a message is ordered after the earlier accesses of other threads. In the models for loom, a message has only eight bytes;
//! these models explore more interleavings of fewer steps.

#[cfg(test)]
mod engines;
pub mod traffic;
