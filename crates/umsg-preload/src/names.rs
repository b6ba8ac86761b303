//! The rules for names of queues, as libc and the kernel check them.
//!
//! | name | error |
//! |---|---|
//! | without a leading slash, or empty | EINVAL (glibc); musl passes it to the kernel |
//! | longer than a path may be (4095 bytes without the slash) | ENAMETOOLONG |
//! | nothing after the slash | ENOENT |
//! | a further slash, `/.`, `/..` | EACCES |
//! | more than 255 bytes after the slash | ENAMETOOLONG |
//!
//! To musl, `jobs` and `/jobs` are the same queue. The library uses only the name with the slash.

use std::ffi::{CStr, c_char, c_int};

use crate::pointer;

/// The longest path that the kernel accepts, without its NUL.
const PATH_MAX: usize = 4095;
/// The longest name of a queue, without its slash.
const NAME_MAX: usize = 255;

/// True if mq_open and mq_unlink accept a name without its slash. Source: mq_open.c of musl 1.2.3, sysdeps/unix/sysv/linux/mq_open.c of glibc 2.36.
const SLASH_IS_OPTIONAL: bool = cfg!(target_env = "musl");

/// Returns the name that libc passes to the kernel, without its slash. glibc's own check precedes all other checks.
pub(crate) fn passed_on(name: &[u8]) -> Result<&[u8], c_int> {
    match name.strip_prefix(b"/") {
        Some(rest) => Ok(rest),
        None if SLASH_IS_OPTIONAL => Ok(name),
        None => Err(libc::EINVAL),
    }
}

/// Memory for a name that the program passed without its slash.
pub(crate) struct Room([u8; 1 + NAME_MAX]);

impl Room {
    pub(crate) fn new() -> Self {
        Self([b'/'; 1 + NAME_MAX])
    }

    /// Returns the name with its slash. `rest` is the name without the slash, which [`check`] has accepted.
    pub(crate) fn with_slash<'a>(&'a mut self, name: &'a [u8], rest: &[u8]) -> &'a [u8] {
        if !SLASH_IS_OPTIONAL || name.len() > rest.len() {
            return name;
        }
        self.0[1..=rest.len()].copy_from_slice(rest);
        &self.0[..=rest.len()]
    }
}

/// Checks the part of a name after the slash. The errors are those of the kernel.
pub(crate) fn check(rest: &[u8]) -> Result<(), c_int> {
    match rest.len() > PATH_MAX {
        true => Err(libc::ENAMETOOLONG),
        false => umsg::kernel_files::place::check(rest),
    }
}

/// A name with its slash, as libc's functions take it. It is made from a name without the slash, as the system calls take it.
pub(crate) struct Slashed {
    bytes: [u8; 1 + NAME_MAX],
    len: usize,
}

impl Slashed {
    /// Adds the slash to a name that has none, and checks the name.
    pub(crate) fn new(bare: &[u8]) -> Result<Slashed, c_int> {
        check(bare)?;
        let mut bytes = [b'/'; 1 + NAME_MAX];
        let len = 1 + bare.len();
        bytes[1..len].copy_from_slice(bare);
        Ok(Slashed { bytes, len })
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }
}

/// Returns the bytes of a C string that is passed to a system call.
///
/// # Safety
/// `name` points to a NUL-terminated string that outlives the call, or is an address that a pointer check refuses.
pub(crate) unsafe fn bytes_or_fault<'a>(name: *const c_char) -> Result<&'a [u8], c_int> {
    if pointer::is_bad(name) {
        return Err(libc::EFAULT);
    }
    // SAFETY: by this function's contract.
    Ok(unsafe { bytes(name) })
}

/// Returns the bytes of a C string.
///
/// # Safety
/// `name` points to a NUL-terminated string that outlives the call. glibc, too, reads the string without a check.
pub(crate) unsafe fn bytes<'a>(name: *const c_char) -> &'a [u8] {
    // SAFETY: by this function's contract.
    unsafe { CStr::from_ptr(name) }.to_bytes()
}

#[cfg(test)]
mod tests {
    use super::{Room, SLASH_IS_OPTIONAL, Slashed, check, passed_on};

    fn judge(name: &[u8]) -> Result<(), i32> {
        check(passed_on(name)?)
    }

    #[test]
    fn names_are_judged_as_by_the_kernel() {
        let (bare, empty) = match SLASH_IS_OPTIONAL {
            true => (Ok(()), Err(libc::ENOENT)),
            false => (Err(libc::EINVAL), Err(libc::EINVAL)),
        };
        assert_eq!(judge(b"x"), bare);
        assert_eq!(judge(b""), empty);
        assert_eq!(judge(b"/"), Err(libc::ENOENT));
        assert_eq!(judge(b"//"), Err(libc::EACCES));
        assert_eq!(judge(b"/a/"), Err(libc::EACCES));
        assert_eq!(judge(b"/."), Err(libc::EACCES));
        assert_eq!(judge(b"/.."), Err(libc::EACCES));
        assert_eq!(judge(b"/..."), Ok(()));
    }

    #[test]
    fn a_name_of_any_length_gets_its_slash_if_it_may_lack_it() {
        for length in [1, 7, 255] {
            let whole = [b"/".as_slice(), &vec![b'a'; length]].concat();
            let bare = &whole[1..];
            assert_eq!(Room::new().with_slash(&whole, bare), whole);
            if SLASH_IS_OPTIONAL {
                assert_eq!(Room::new().with_slash(bare, bare), whole);
            }
        }
    }

    #[test]
    fn a_component_of_255_bytes_is_the_longest() {
        let name = |len: usize| [b"/".as_slice(), &vec![b'a'; len]].concat();
        assert_eq!(judge(&name(255)), Ok(()));
        assert_eq!(judge(&name(256)), Err(libc::ENAMETOOLONG));
        assert_eq!(judge(&name(4096)), Err(libc::ENAMETOOLONG));
    }

    #[test]
    fn a_bare_name_gets_its_slash() {
        let longest = [b'a'; 255];
        for name in [b"x".as_slice(), &longest] {
            let slashed = Slashed::new(name).unwrap();
            assert_eq!(slashed.bytes(), [b"/", name].concat());
        }
        assert_eq!(Slashed::new(&[b'a'; 256]).err(), Some(libc::ENAMETOOLONG));
        assert_eq!(Slashed::new(b"/x").err(), Some(libc::EACCES));
    }

    #[test]
    fn a_further_slash_counts_more_than_the_length_of_a_component() {
        let mut name = vec![b'a'; 400];
        name[0] = b'/';
        name[300] = b'/';
        assert_eq!(judge(&name), Err(libc::EACCES));
    }
}
