//! Threads of one process on one engine, for those that watch memory: Miri and ThreadSanitizer.
//!
//! Messages are written and read as plain bytes. Neither watcher knows what the words of a segment mean: each sees by itself
//! whether a process that reads a message, or writes where one was, comes after who wrote or read there before. The models of loom
//! have eight bytes in place of that memory, and explore more interleavings of less.

#[cfg(test)]
mod engines;
pub mod traffic;
