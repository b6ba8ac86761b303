//! The errors that end the program. The exit code tells a service manager whether another start can help.

use std::process::ExitCode;

/// An error that ends the program; each is a sentence.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Failure {
    /// The command line or the configuration is wrong. Another start would end in the same way: `umsg-bridge.service` is not started again.
    Configuration(String),
    /// The system refuses a call, or a file that the configuration names can't be used now. A later start may succeed.
    System(String),
}

impl Failure {
    /// Returns the sentence.
    #[must_use]
    pub fn why(&self) -> &str {
        match self {
            Failure::Configuration(why) | Failure::System(why) => why,
        }
    }

    /// Returns the exit code of the program. `RestartPreventExitStatus` of the service has the code of a wrong configuration.
    #[must_use]
    pub fn code(&self) -> ExitCode {
        ExitCode::from(match self {
            Failure::System(_) => 1,
            Failure::Configuration(_) => 2,
        })
    }
}
