//! Threads of one process on one engine, for tools that watch memory: Miri and ThreadSanitizer.
//!
//! Messages are written and read as plain bytes. Neither tool knows the meaning of a segment's words. Each finds out for itself whether an
//! access to the bytes of a message is ordered after the earlier accesses of other threads. The models of loom have eight bytes in place of
//! that memory, and explore more interleavings of fewer steps.

#[cfg(test)]
mod engines;
pub mod traffic;
