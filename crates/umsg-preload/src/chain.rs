//! The libraries after the drop-in in the loader's list, searched without a lock.
//!
//! dlsym(3) takes the loader's lock, which dlopen holds while constructors run. A constructor may wait for another thread. If that thread's first
//! call of read(2) had to take the lock, the constructor would wait for ever. So the drop-in reads the loader's list itself. The libraries from the
//! drop-in to libc were loaded at the program's start, so their entries of the list never change, and are never removed. The order of the list is the
//! search order of RTLD_NEXT.
//!
//! The search uses the hash table of each library (DT_GNU_HASH), as the loader does. The result is the same as that of dlsym, or unknown. The result
//! is unknown in three cases: a library has no such table, the function is selected at run time (IFUNC), or no library has the name.

use std::ffi::{CStr, c_char, c_void};
use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};

use libc::{Elf64_Sym, Elf64_Word};

/// An entry of the loader's list. Source: `struct link_map` in link.h of glibc.
#[repr(C)]
struct Library {
    /// The difference between a symbol's address in memory and its address in the file.
    base: usize,
    name: *const c_char,
    dynamic: *const Dynamic,
    next: AtomicPtr<Library>,
}

/// An entry of a dynamic section. Source: `Elf64_Dyn` in elf.h of glibc.
#[repr(C)]
struct Dynamic {
    tag: i64,
    value: usize,
}

/// The loader's record for debuggers, which contains the address of its list. Source: `struct r_debug` in link.h of glibc.
#[cfg(target_env = "gnu")]
#[repr(C)]
struct Debug {
    version: i32,
    first: AtomicPtr<Library>,
}

unsafe extern "C" {
    /// The loader's record with its list of the program's libraries.
    #[cfg(target_env = "gnu")]
    static _r_debug: Debug;
    /// The drop-in's own dynamic section: the linker defines it in each library.
    static _DYNAMIC: Dynamic;
}

const DT_NULL: i64 = 0;
const DT_STRTAB: i64 = 5;
const DT_SYMTAB: i64 = 6;
const DT_GNU_HASH: i64 = 0x6fff_fef5;
const DT_VERSYM: i64 = 0x6fff_fff0;

/// The library after the drop-in, and libc. Both are null before [`start`], and if `start` has not found the libraries. In that case, [`find`] knows
/// no names.
#[unsafe(link_section = ".data.umsg")]
static FIRST: AtomicPtr<Library> = AtomicPtr::new(ptr::null_mut());
#[unsafe(link_section = ".data.umsg")]
static LAST: AtomicPtr<Library> = AtomicPtr::new(ptr::null_mut());

/// Finds the drop-in in the loader's list, and libc after it. Returns whether both were found. If the program has loaded the drop-in by dlopen, the
/// result is false. The drop-in calls this function at the program's start.
pub(crate) fn start() -> bool {
    let own = libraries(first()).find(|library| ptr::eq(library.dynamic, &raw const _DYNAMIC));
    let behind = own.map_or(ptr::null_mut(), |own| own.next.load(Ordering::Acquire));
    let hash = hash_of(LIBC.to_bytes());
    let libc = libraries(behind).find(|it| matches!(it.find(LIBC, hash), Found::Function(_)));
    let Some(libc) = libc else {
        return false;
    };
    LAST.store(ptr::from_ref(libc).cast_mut(), Ordering::Relaxed);
    // Release: a thread that sees `FIRST` also sees `LAST`.
    FIRST.store(behind, Ordering::Release);
    true
}

/// Returns the first entry of the loader's list.
#[cfg(target_env = "gnu")]
fn first() -> *mut Library {
    // SAFETY: this is the list of glibc's loader, which fills an entry before it links the entry.
    unsafe { _r_debug.first.load(Ordering::Acquire) }
}

/// Returns null: other loaders do not reveal the addresses of their lists.
#[cfg(not(target_env = "gnu"))]
fn first() -> *mut Library {
    ptr::null_mut()
}

/// The name of a function that only glibc exports, or a library that replaces glibc.
const LIBC: &CStr = c"gnu_get_libc_version";

/// Returns the entries of the loader's list from the given entry on. Must be called while the program starts.
fn libraries(first: *mut Library) -> impl Iterator<Item = &'static Library> {
    // SAFETY: the pointer points to an entry of the list, or is null. While the program starts, no entry is removed.
    let at = |entry: *mut Library| unsafe { entry.as_ref() };
    std::iter::successors(at(first), move |library| {
        at(library.next.load(Ordering::Acquire))
    })
}

/// Returns the address of a function in the libraries after the drop-in; None if the address is unknown.
pub(crate) fn find(name: &CStr) -> Option<*mut c_void> {
    // Acquire: pairs with the release in `start`.
    let mut at = FIRST.load(Ordering::Acquire);
    let last = LAST.load(Ordering::Relaxed);
    let hash = hash_of(name.to_bytes());
    while !at.is_null() {
        // SAFETY: the entry lies in the list between the drop-in and libc, so it stays.
        let library = unsafe { &*at };
        match library.find(name, hash) {
            Found::Function(address) => return Some(address),
            Found::Unknown => return None,
            Found::Nothing if at == last => return None,
            Found::Nothing => at = library.next.load(Ordering::Acquire),
        }
    }
    None
}

/// Returns the hash of a name. Source: `_dl_new_hash` of glibc.
fn hash_of(name: &[u8]) -> u32 {
    name.iter().fold(5381, |hash: u32, &byte| {
        hash.wrapping_mul(33).wrapping_add(u32::from(byte))
    })
}

/// The result of the search for a name in one library.
#[derive(Debug, PartialEq)]
enum Found {
    Function(*mut c_void),
    Nothing,
    Unknown,
}

/// The tables of a library that the search reads.
struct Tables {
    symbols: *const Elf64_Sym,
    strings: *const c_char,
    hash: *const Elf64_Word,
    /// The version of each symbol; null if the library has no versions.
    versions: *const u16,
}

impl Library {
    fn tables(&self) -> Option<Tables> {
        let [mut symbols, mut strings, mut hash, mut versions] = [0; 4];
        let mut entry = self.dynamic;
        // SAFETY: the dynamic section ends with DT_NULL. The loader has read it, and keeps it mapped.
        while let Some(Dynamic { tag, value }) = unsafe { entry.as_ref() }
            && *tag != DT_NULL
        {
            // The loader replaces offsets by addresses, but can't do so in a read-only section.
            let address = match *value < self.base {
                true => self.base + *value,
                false => *value,
            };
            match *tag {
                DT_SYMTAB => symbols = address,
                DT_STRTAB => strings = address,
                DT_GNU_HASH => hash = address,
                DT_VERSYM => versions = address,
                _ => {}
            }
            // SAFETY: this entry is not the last one of the dynamic section.
            entry = unsafe { entry.add(1) };
        }
        let is_complete = symbols != 0 && strings != 0 && hash != 0;
        is_complete.then(|| Tables {
            symbols: ptr::with_exposed_provenance(symbols),
            strings: ptr::with_exposed_provenance(strings),
            hash: ptr::with_exposed_provenance(hash),
            versions: ptr::with_exposed_provenance(versions),
        })
    }

    fn find(&self, name: &CStr, hash: u32) -> Found {
        let Some(tables) = self.tables() else {
            return Found::Unknown;
        };
        // SAFETY: these are the tables of a loaded library. The loader relies on their contents, too.
        let Some(symbol) = (unsafe { tables.find(name, hash) }) else {
            return Found::Nothing;
        };
        const FUNCTION: u8 = 2;
        match symbol.st_info & 15 {
            FUNCTION => Found::Function(ptr::with_exposed_provenance_mut(
                self.base + symbol.st_value as usize,
            )),
            _ => Found::Unknown,
        }
    }
}

impl Tables {
    /// Finds the defined symbol of a name, in its default version.
    ///
    /// The hash table has a header of four words, a bloom filter, the first symbol of each bucket, and a word for each symbol. This word is the hash
    /// of the symbol's name, in which bit 0 marks the last symbol of a bucket.
    ///
    /// # Safety
    /// The tables are those of a loaded library.
    unsafe fn find(&self, name: &CStr, hash: u32) -> Option<&Elf64_Sym> {
        // SAFETY: by this function's contract, the header says how long the parts are.
        unsafe {
            let [buckets, offset, filters, shift] = [0, 1, 2, 3].map(|word| *self.hash.add(word));
            if buckets == 0 || filters == 0 {
                // The table is empty: the library exports nothing.
                return None;
            }
            let filter = self.hash.add(4).cast::<u64>();
            let word = *filter.add((hash / u64::BITS % filters) as usize);
            let bits = 1 << (hash % u64::BITS) | 1 << ((hash >> shift) % u64::BITS);
            if word & bits != bits {
                return None;
            }
            let bucket = filter.add(filters as usize).cast::<u32>();
            let hashes = bucket.add(buckets as usize);
            let mut index = *bucket.add((hash % buckets) as usize);
            while index >= offset {
                let theirs = *hashes.add((index - offset) as usize);
                if theirs | 1 == hash | 1 && self.is_default(name, index as usize) {
                    return self.symbols.add(index as usize).as_ref();
                }
                if theirs & 1 != 0 {
                    break;
                }
                index += 1;
            }
            None
        }
    }

    /// Returns whether a symbol has the name, is defined, and is not an old version.
    ///
    /// # Safety
    /// The conditions of [`Tables::find`]; the library has a symbol of this index.
    unsafe fn is_default(&self, name: &CStr, index: usize) -> bool {
        const HIDDEN: u16 = 1 << 15;
        // SAFETY: by this function's contract.
        unsafe {
            let symbol = &*self.symbols.add(index);
            let theirs = CStr::from_ptr(self.strings.add(symbol.st_name as usize));
            let is_hidden = !self.versions.is_null() && *self.versions.add(index) & HIDDEN != 0;
            theirs == name && symbol.st_shndx != 0 && symbol.st_value != 0 && !is_hidden
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// For each name, the search finds the address that dlsym finds, or finds nothing.
    #[test]
    fn the_answers_are_those_of_dlsym() {
        assert!(start());
        let names = [
            c"close",
            c"read",
            c"pthread_cancel",
            c"pthread_setcanceltype",
            c"fopen",
            c"sendmmsg",
            c"setresuid",
            c"fstat",
            c"memcpy",
            c"environ",
            c"umsg_no_such_function",
        ];
        let mut found = 0;
        for name in names {
            // SAFETY: the argument is a C string.
            let known = unsafe { libc::dlsym(libc::RTLD_NEXT, name.as_ptr()) };
            if let Some(address) = find(name) {
                assert_eq!(address, known, "{name:?}");
                found += 1;
            }
        }
        assert!(found >= 8, "only {found} of the functions are found");
        assert_eq!(find(c"umsg_no_such_function"), None);
    }

    #[test]
    fn an_empty_table_has_no_name() {
        for words in [[0; 4], [1, 1, 0, 6], [0, 1, 1, 6]] {
            let tables = Tables {
                symbols: ptr::null(),
                strings: ptr::null(),
                hash: words.as_ptr(),
                versions: ptr::null(),
            };
            // SAFETY: the header says that the table has no buckets or no filter, and neither is read.
            assert!(unsafe { tables.find(c"read", hash_of(b"read")) }.is_none());
        }
    }

    #[test]
    fn a_function_that_is_chosen_at_run_time_is_unknown() {
        assert!(start());
        assert_eq!(find(c"memcpy"), None);
    }
}
