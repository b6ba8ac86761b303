//! Two words of each thread, which the fast paths read with two instructions.
//!
//! In a shared library, the compiler calls a function of the dynamic loader for each access to thread-local storage. These words lie at a
//! distance from the thread pointer that the loader computes once (the initial-exec model of the ELF specification for thread-local storage).
//! They take 16 bytes of the space that libc reserves for libraries which a program loads later. The words of a new thread are 0.
//!
//! In Miri, which runs no assembly, and on other processors the words stay 0.

/// The word with the address of the calling thread's `Thread`.
pub(crate) const THREAD: usize = 0;
/// The word with the address of the calling thread's hazard pointer.
pub(super) const RECORD: usize = 8;

/// The symbol of the words. Its name contains the version, because a program may contain two versions of the library. The symbol is weak, because a
/// program may contain one version twice: as a crate and as an archive.
#[cfg(all(any(target_arch = "x86_64", target_arch = "aarch64"), not(miri)))]
macro_rules! symbol {
    ($before:literal, $after:literal) => {
        concat!(
            $before,
            "umsg_shm_local_",
            env!("CARGO_PKG_VERSION_MAJOR"),
            "_",
            env!("CARGO_PKG_VERSION_MINOR"),
            "_",
            env!("CARGO_PKG_VERSION_PATCH"),
            $after
        )
    };
}

#[cfg(all(any(target_arch = "x86_64", target_arch = "aarch64"), not(miri)))]
std::arch::global_asm!(
    ".pushsection .tbss.umsg_shm_local, \"awT\", %nobits",
    ".balign 8",
    symbol!(".hidden ", ""),
    symbol!(".weak ", ""),
    symbol!("", ":"),
    ".zero 16",
    ".popsection",
);

/// Returns a word of the calling thread; 0 before the first [`set`].
#[cfg(all(target_arch = "x86_64", not(miri)))]
#[inline(always)]
pub(crate) fn get<const WORD: usize>() -> usize {
    const { assert!(WORD <= RECORD) };
    let value: usize;
    // SAFETY: the instructions only read one of the two words (16 bytes at a multiple of 8), which belong to the calling thread alone.
    unsafe {
        std::arch::asm!(
            symbol!("mov {value}, qword ptr [rip + ", "@GOTTPOFF]"),
            "mov {value}, qword ptr fs:[{value} + {word}]",
            value = out(reg) value,
            word = const WORD,
            options(pure, readonly, nostack, preserves_flags),
        );
    }
    value
}

/// Sets a word of the calling thread.
#[cfg(all(target_arch = "x86_64", not(miri)))]
pub(crate) fn set<const WORD: usize>(value: usize) {
    const { assert!(WORD <= RECORD) };
    // SAFETY: the instructions only write one of the two words (16 bytes at a multiple of 8), which belong to the calling thread alone.
    unsafe {
        std::arch::asm!(
            symbol!("mov {place}, qword ptr [rip + ", "@GOTTPOFF]"),
            "mov qword ptr fs:[{place} + {word}], {value}",
            place = out(reg) _,
            value = in(reg) value,
            word = const WORD,
            options(nostack, preserves_flags),
        );
    }
}

/// Returns a word of the calling thread; 0 before the first [`set`].
#[cfg(all(target_arch = "aarch64", not(miri)))]
#[inline(always)]
pub(crate) fn get<const WORD: usize>() -> usize {
    const { assert!(WORD <= RECORD) };
    let value: usize;
    // SAFETY: the instructions only read one of the two words (16 bytes at a multiple of 8), which belong to the calling thread alone.
    unsafe {
        std::arch::asm!(
            symbol!("adrp {value}, :gottprel:", ""),
            symbol!("ldr {value}, [{value}, :gottprel_lo12:", "]"),
            "mrs {thread}, tpidr_el0",
            "add {value}, {value}, {thread}",
            "ldr {value}, [{value}, {word}]",
            value = out(reg) value,
            thread = out(reg) _,
            word = const WORD,
            options(pure, readonly, nostack, preserves_flags),
        );
    }
    value
}

/// Sets a word of the calling thread.
#[cfg(all(target_arch = "aarch64", not(miri)))]
pub(crate) fn set<const WORD: usize>(value: usize) {
    const { assert!(WORD <= RECORD) };
    // SAFETY: the instructions only write one of the two words (16 bytes at a multiple of 8), which belong to the calling thread alone.
    unsafe {
        std::arch::asm!(
            symbol!("adrp {place}, :gottprel:", ""),
            symbol!("ldr {place}, [{place}, :gottprel_lo12:", "]"),
            "mrs {thread}, tpidr_el0",
            "add {place}, {place}, {thread}",
            "str {value}, [{place}, {word}]",
            place = out(reg) _,
            thread = out(reg) _,
            value = in(reg) value,
            word = const WORD,
            options(nostack, preserves_flags),
        );
    }
}

/// Returns 0.
#[cfg(any(miri, not(any(target_arch = "x86_64", target_arch = "aarch64"))))]
pub(crate) fn get<const WORD: usize>() -> usize {
    0
}

/// Does nothing.
#[cfg(any(miri, not(any(target_arch = "x86_64", target_arch = "aarch64"))))]
pub(crate) fn set<const WORD: usize>(_: usize) {}

#[cfg(all(test, any(target_arch = "x86_64", target_arch = "aarch64"), not(miri)))]
mod tests {
    use super::{RECORD, THREAD, get, set};

    #[test]
    fn each_thread_has_words_of_its_own() {
        let before = (get::<THREAD>(), get::<RECORD>());
        let in_another = std::thread::spawn(|| {
            let first = (get::<THREAD>(), get::<RECORD>());
            set::<RECORD>(7);
            (first, get::<RECORD>())
        });
        assert_eq!(in_another.join().unwrap(), ((0, 0), 7));
        assert_eq!((get::<THREAD>(), get::<RECORD>()), before);
    }
}
