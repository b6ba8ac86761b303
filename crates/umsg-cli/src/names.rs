//! Names of POSIX queues on the command line. The first slash is optional.

use std::ffi::{OsStr, OsString};
use std::fmt;
use std::os::unix::ffi::{OsStrExt, OsStringExt};

use umsg::posix::OpenError;

use crate::failure::{Failure, Result};
use crate::output::text;

/// A queue's name, with its slash. If the name is printed, control characters are escaped.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Name(OsString);

impl Name {
    /// Refuses the name `/`. For this name, the library only reports a missing queue, as the kernel does. But a queue of this name can't be created.
    pub fn check(&self) -> Result {
        match self.0 == "/" {
            true => Err(Failure::of(self, OpenError::InvalidName)),
            false => Ok(()),
        }
    }

    /// Returns the name of the queue's file. Returns None if a file can't have this name.
    pub fn file(&self) -> Option<&OsStr> {
        let file = self.0.as_bytes().strip_prefix(b"/")?;
        let is_file = !file.contains(&b'/') && !matches!(file, b"" | b"." | b"..");
        is_file.then(|| OsStr::from_bytes(file))
    }

    /// Returns the name for JSON: bytes that are not UTF-8 are replaced.
    pub fn lossy(&self) -> String {
        self.0.to_string_lossy().into_owned()
    }
}

impl From<&OsStr> for Name {
    fn from(argument: &OsStr) -> Name {
        let bytes = argument.as_bytes();
        // An empty name gets no slash, so that the error quotes the argument as it was given.
        if bytes.is_empty() || bytes.starts_with(b"/") {
            return Name(argument.to_owned());
        }
        Name(OsString::from_vec([b"/", bytes].concat()))
    }
}

impl From<OsString> for Name {
    fn from(argument: OsString) -> Name {
        Name::from(argument.as_os_str())
    }
}

impl AsRef<OsStr> for Name {
    fn as_ref(&self) -> &OsStr {
        &self.0
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.is_empty() {
            true => f.write_str("\"\""),
            false => f.write_str(&text::on_one_line(self.0.as_bytes())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_slash_may_be_left_out() {
        assert_eq!(
            Name::from(OsStr::new("orders")),
            Name::from(OsStr::new("/orders"))
        );
        assert_eq!(Name::from(OsStr::new("a/b")).as_ref(), "/a/b");
        assert_eq!(Name::from(OsStr::new("")).as_ref(), "");
    }
}
