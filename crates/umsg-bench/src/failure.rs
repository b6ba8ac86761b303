//! The failures of a measurement, as sentences for its user.

use std::fmt;

use crate::backends::Errno;

/// A sentence that describes the failure. Failures are only printed: no code distinguishes their kinds.
#[derive(Debug, Clone)]
pub struct Failure(String);

impl Failure {
    pub fn new(sentence: impl Into<String>) -> Self {
        Self(sentence.into())
    }

    /// Makes the failure of a system call that has set `errno`. `what` names the subject of the call.
    pub fn system(what: impl fmt::Display) -> Self {
        Self(format!("{what}: {}", std::io::Error::last_os_error()))
    }

    /// Makes the failure of a queue operation that returned an error number.
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
