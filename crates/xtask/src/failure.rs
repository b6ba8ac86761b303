//! The errors of a task, as sentences for its user.

use std::fmt;
use std::process::ExitCode;

/// The result of a task.
pub type Result<T> = std::result::Result<T, Failure>;

/// The reason why a task stopped.
#[derive(Debug)]
pub enum Failure {
    /// A step failed; the sentence describes the failure.
    Failed(String),
    /// A signal with this number arrived.
    Interrupted(i32),
}

impl Failure {
    pub fn new(sentence: impl Into<String>) -> Self {
        Self::Failed(sentence.into())
    }

    /// Returns the exit code of the process, as a shell would report it.
    pub fn exit_code(&self) -> ExitCode {
        match self {
            Failure::Failed(_) => ExitCode::FAILURE,
            Failure::Interrupted(signal) => ExitCode::from(128 + (signal & 0x7f) as u8),
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Failure::Failed(sentence) => f.write_str(sentence),
            Failure::Interrupted(signal) => write!(f, "stopped by signal {signal}"),
        }
    }
}

/// Adds the failed step to an error of the standard library.
pub trait Context<T> {
    fn context(self, what: impl fmt::Display) -> Result<T>;
}

impl<T, E: fmt::Display> Context<T> for std::result::Result<T, E> {
    fn context(self, what: impl fmt::Display) -> Result<T> {
        self.map_err(|error| Failure::Failed(format!("{what}: {error}")))
    }
}
