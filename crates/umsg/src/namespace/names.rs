//! The rules for names of POSIX queues, and the errors for names that break them.
//!
//! The rules are those of Linux 6.18 with glibc 2.36. `mq_open` (with and without `O_CREAT`) and `mq_unlink` agree on every name. The first
//! broken rule in this order decides:
//!
//! | rule | errno | examples |
//! |---|---|---|
//! | does not begin with `/` | `EINVAL` | ``, `a`, `a/b`, 5,000 bytes without a slash |
//! | 4,096 bytes or more after the first slash | `ENAMETOOLONG` | `/a/` and 5,000 bytes |
//! | nothing after the slash | `ENOENT` | `/` |
//! | a further slash anywhere | `EACCES` | `//`, `//a`, `/a/`, `/a/b`, `/./`, `/` 256 bytes `/a` |
//! | the component `.` or `..` | `EACCES` | `/.`, `/..` |
//! | a component of 256 bytes or more | `ENAMETOOLONG` | `/` and 256 bytes, `/.` and 255 bytes |
//!
//! So an over-long component with a second slash gives `EACCES`, except if the whole name is longer than the longest path. All other strings are
//! names: `/...`, `/.a`, `/ `, a line feed, bytes that are not UTF-8, 255 bytes. These rules come before all other checks: if both the name and the
//! access mode or the attributes are bad, the error is that of the name.
//!
//! A name from Rust may hold a NUL byte, which C cannot pass: `EINVAL`.

use std::ffi::{CStr, CString, OsStr, OsString};
use std::fmt;
use std::os::unix::ffi::OsStrExt;

/// Longest component of a file name, in bytes (Linux `NAME_MAX`).
const COMPONENT_MAX: usize = 255;
/// Longest path in bytes, its NUL included (Linux `PATH_MAX`).
const PATH_MAX: usize = 4096;

/// The reason why a name is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum NameError {
    /// `EINVAL`
    #[error("a queue's name must begin with a slash")]
    Invalid,
    /// `ENOENT`
    #[error("a queue's name must have at least one byte after the slash")]
    NotFound,
    /// `EACCES`
    #[error("a queue's name must not have a second slash, and must not be /. or /..")]
    Denied,
    /// `ENAMETOOLONG`
    #[error("a queue's name must have at most 255 bytes after the slash")]
    TooLong,
}

/// A name that passed the rules: one component, without its slash, fit to be a file in `mq/`.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct QueueName(CString);

impl QueueName {
    /// Checks a name with its slash, as programs pass it.
    ///
    /// # Errors
    /// The error of the first broken rule in the table of this module's documentation.
    pub(crate) fn parse(name: &OsStr) -> Result<QueueName, NameError> {
        let component = name
            .as_bytes()
            .strip_prefix(b"/")
            .ok_or(NameError::Invalid)?;
        let name = CString::new(component).map_err(|_| NameError::Invalid)?;
        match component {
            _ if component.len() >= PATH_MAX => Err(NameError::TooLong),
            b"" => Err(NameError::NotFound),
            b"." | b".." => Err(NameError::Denied),
            _ if component.contains(&b'/') => Err(NameError::Denied),
            _ if component.len() > COMPONENT_MAX => Err(NameError::TooLong),
            _ => Ok(QueueName(name)),
        }
    }

    /// Returns the name with its slash, as programs pass it.
    pub(crate) fn with_slash(&self) -> OsString {
        let mut whole = OsString::from("/");
        whole.push(self.as_os_str());
        whole
    }

    /// Converts a name from a directory listing. The kernel guarantees that such a name is one component.
    pub(super) fn of_entry(entry: &CStr) -> QueueName {
        QueueName(entry.to_owned())
    }

    /// Returns the component without its slash.
    pub(crate) fn as_os_str(&self) -> &OsStr {
        OsStr::from_bytes(self.0.as_bytes())
    }
}

/// Prints the name with its slash. Bytes that are not UTF-8 become U+FFFD.
impl fmt::Display for QueueName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "/{}", self.0.to_string_lossy())
    }
}

impl fmt::Debug for QueueName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "QueueName({:?})", self.as_os_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn verdict(name: impl AsRef<[u8]>) -> Result<(), NameError> {
        QueueName::parse(OsStr::from_bytes(name.as_ref())).map(drop)
    }

    fn long(prefix: &str, x: usize, suffix: &str) -> String {
        format!("{prefix}{}{suffix}", "x".repeat(x))
    }

    #[test]
    fn names_without_a_leading_slash_are_invalid_however_long() {
        for name in ["", "a", "a/b", ".", &long("", 300, ""), &long("", 5000, "")] {
            assert_eq!(verdict(name), Err(NameError::Invalid), "{name:?}");
        }
    }

    #[test]
    fn a_lone_slash_is_not_found() {
        assert_eq!(verdict("/"), Err(NameError::NotFound));
    }

    #[test]
    fn a_second_slash_or_a_dot_component_is_denied_even_when_too_long() {
        let names = [
            "//", "//a", "///", "/a/", "/a//", "/a/b", "/.", "/..", "/./",
        ];
        let long_names = [
            long("/", 255, "/"),
            long("/", 256, "/a"),
            long("/a/", 256, ""),
            long("//", 4094, ""),
        ];
        for name in names
            .into_iter()
            .chain(long_names.iter().map(String::as_str))
        {
            assert_eq!(verdict(name), Err(NameError::Denied), "{name:?}");
        }
    }

    #[test]
    fn a_component_of_255_bytes_is_a_name_and_256_are_too_long() {
        assert_eq!(verdict(long("/", 255, "")), Ok(()));
        assert_eq!(verdict(long("/.", 254, "")), Ok(()));
        assert_eq!(verdict(long("/", 256, "")), Err(NameError::TooLong));
        assert_eq!(verdict(long("/.", 255, "")), Err(NameError::TooLong));
    }

    #[test]
    fn more_than_a_path_is_too_long_even_with_a_second_slash() {
        assert_eq!(verdict(long("//", 4095, "")), Err(NameError::TooLong));
        assert_eq!(verdict(long("/a/", 5000, "")), Err(NameError::TooLong));
    }

    #[test]
    fn odd_bytes_and_dots_are_names_and_a_nul_is_not() {
        for name in [&b"/..."[..], b"/.a", b"/ ", b"/a\n", b"/\xff", b"/.tmp-1"] {
            assert_eq!(verdict(name), Ok(()), "{name:?}");
        }
        assert_eq!(verdict(b"/a\0b"), Err(NameError::Invalid));
    }

    #[test]
    fn a_name_is_shown_with_its_slash() {
        let name = QueueName::parse(OsStr::new("/work")).unwrap();
        assert_eq!(name.to_string(), "/work");
        assert_eq!(name.as_os_str(), "work");
    }
}
