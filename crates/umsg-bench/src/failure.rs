//! What can go wrong in a measurement, as a sentence for the person who runs it.

use std::fmt;

use crate::backends::Errno;

/// A sentence that says what failed. Nobody branches on it: a failed measurement is reported.
#[derive(Debug, Clone)]
pub struct Failure(String);

impl Failure {
    pub fn new(sentence: impl Into<String>) -> Self {
        Self(sentence.into())
    }

    /// A system call that set `errno`, with what it was about.
    pub fn system(what: impl fmt::Display) -> Self {
        Self(format!("{what}: {}", std::io::Error::last_os_error()))
    }

    /// A queue operation that answered with an error number.
    pub fn queue(what: impl fmt::Display, errno: Errno) -> Self {
        Self(format!("{what}: {errno}"))
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Failure {}

impl From<std::io::Error> for Failure {
    fn from(error: std::io::Error) -> Self {
        Self(error.to_string())
    }
}
