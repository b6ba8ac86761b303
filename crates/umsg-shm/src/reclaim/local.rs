//! Two words of each thread, which the fast paths read with two instructions.
//!
//! In a shared library, the compiler calls a function of the dynamic loader for each access to thread-local storage. In contrast, these words lie at
//! a distance from the thread pointer that the loader computes once (the initial-exec model of ELF). The words take 16 bytes of the space that libc
//! reserves for libraries which a program loads later. Both words of a new thread are 0.
//!
//! In Miri, which runs no assembly, and on other processors the words stay 0. The words also stay 0 in shared libraries for musl: musl reserves no
//! space, and refuses to load a library with such words into a running program.

/// The offset of the word with the address of the calling thread's `Thread`.
pub(crate) const THREAD: usize = 0;
/// The offset of the word with the address of the calling thread's hazard pointer.
pub(super) const RECORD: usize = 8;

#[cfg(all(
    any(target_arch = "x86_64", target_arch = "aarch64"),
    not(miri),
    any(not(target_env = "musl"), target_feature = "crt-static"),
))]
mod words;

#[cfg(not(all(
    any(target_arch = "x86_64", target_arch = "aarch64"),
    not(miri),
    any(not(target_env = "musl"), target_feature = "crt-static"),
)))]
mod words {
    /// Returns 0, because this build has no such words.
    #[inline(always)]
    pub fn get<const WORD: usize>() -> usize {
        0
    }

    /// Does nothing, because this build has no such words.
    pub fn set<const WORD: usize>(_: usize) {}
}

pub(crate) use words::{get, set};
