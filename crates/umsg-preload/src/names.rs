//! Names of queues, judged as glibc and the kernel do.
//!
//! | name | error |
//! |---|---|
//! | without a leading slash, or empty | EINVAL (glibc) |
//! | longer than a path may be (4095 bytes without the slash) | ENAMETOOLONG |
//! | `/` | ENOENT |
//! | a further slash, `/.`, `/..` | EACCES |
//! | more than 255 bytes after the slash | ENAMETOOLONG |

use std::ffi::{CStr, c_char, c_int};

/// Longest path that the kernel copies in, without its NUL.
const PATH_MAX: usize = 4095;
const NAME_MAX: usize = 255;

/// Returns whether glibc would pass the name to the kernel. This check precedes all others.
pub(crate) fn leading_slash(name: &[u8]) -> Result<&[u8], c_int> {
    name.strip_prefix(b"/").ok_or(libc::EINVAL)
}

/// The kernel's answer to the rest of a name, after the slash.
pub(crate) fn check(rest: &[u8]) -> Result<(), c_int> {
    match rest {
        _ if rest.len() > PATH_MAX => Err(libc::ENAMETOOLONG),
        b"" => Err(libc::ENOENT),
        b"." | b".." => Err(libc::EACCES),
        _ if rest.contains(&b'/') => Err(libc::EACCES),
        _ if rest.len() > NAME_MAX => Err(libc::ENAMETOOLONG),
        _ => Ok(()),
    }
}

/// The bytes of a C string.
///
/// # Safety
/// `name` points to a NUL-terminated string that outlives the call. glibc reads it without a check, too.
pub(crate) unsafe fn bytes<'a>(name: *const c_char) -> &'a [u8] {
    // SAFETY: by the caller's promise.
    unsafe { CStr::from_ptr(name) }.to_bytes()
}

#[cfg(test)]
mod tests {
    use super::{check, leading_slash};

    fn judge(name: &[u8]) -> Result<(), i32> {
        check(leading_slash(name)?)
    }

    #[test]
    fn names_are_judged_as_by_the_kernel() {
        assert_eq!(judge(b"x"), Err(libc::EINVAL));
        assert_eq!(judge(b""), Err(libc::EINVAL));
        assert_eq!(judge(b"/"), Err(libc::ENOENT));
        assert_eq!(judge(b"//"), Err(libc::EACCES));
        assert_eq!(judge(b"/a/"), Err(libc::EACCES));
        assert_eq!(judge(b"/."), Err(libc::EACCES));
        assert_eq!(judge(b"/.."), Err(libc::EACCES));
        assert_eq!(judge(b"/..."), Ok(()));
    }

    #[test]
    fn a_component_of_255_bytes_is_the_longest() {
        let name = |len: usize| [b"/".as_slice(), &vec![b'a'; len]].concat();
        assert_eq!(judge(&name(255)), Ok(()));
        assert_eq!(judge(&name(256)), Err(libc::ENAMETOOLONG));
        assert_eq!(judge(&name(4096)), Err(libc::ENAMETOOLONG));
    }

    #[test]
    fn a_further_slash_counts_more_than_the_length_of_a_component() {
        let mut name = vec![b'a'; 400];
        name[0] = b'/';
        name[300] = b'/';
        assert_eq!(judge(&name), Err(libc::EACCES));
    }
}
