//! The words in initial-exec storage.

use super::RECORD;

/// The symbol of the words. Its name contains the version, because a program may contain two versions of the library. The symbol is weak, because a
/// program may contain one version twice: as a crate and as an archive.
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
#[cfg(target_arch = "x86_64")]
#[inline(always)]
pub fn get<const WORD: usize>() -> usize {
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
#[cfg(target_arch = "x86_64")]
pub fn set<const WORD: usize>(value: usize) {
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
#[cfg(target_arch = "aarch64")]
#[inline(always)]
pub fn get<const WORD: usize>() -> usize {
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
#[cfg(target_arch = "aarch64")]
pub fn set<const WORD: usize>(value: usize) {
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

#[cfg(test)]
mod tests {
    use super::{get, set};
    use crate::reclaim::local::{RECORD, THREAD};

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
