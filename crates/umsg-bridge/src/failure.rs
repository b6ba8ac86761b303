//! The errors that end the program. The exit code tells the service manager whether a restart can help.

use std::process::ExitCode;

/// An error that ends the program, described by a sentence.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Failure {
    /// The command line or the configuration is wrong. A restart would fail in the same way, so the service manager does not restart
    /// `umsg-bridge.service`.
    Configuration(String),
    /// The system refuses a call, or a file that the configuration names can't be used now. A later start may succeed.
    System(String),
}

impl Failure {
    /// Returns the sentence that describes the error.
    #[must_use]
    pub fn why(&self) -> &str {
        match self {
            Failure::Configuration(why) | Failure::System(why) => why,
        }
    }

    /// Returns the exit code of the program. The setting `RestartPreventExitStatus` of the service lists the code of a wrong configuration.
    #[must_use]
    pub fn code(&self) -> ExitCode {
        ExitCode::from(match self {
            Failure::System(_) => 1,
            Failure::Configuration(_) => 2,
        })
    }
}
