//! The ways to wait for a queue.

use clap::ValueEnum;
use umsg::posix::Waiting;

/// The ways to wait, named as in UMSG_WAIT.
#[derive(ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wait {
    /// Spin briefly, then sleep; sleep at once if recent spins ended without a message or room
    Adaptive,
    /// Sleep at once: the least CPU time
    Blocking,
    /// Spin: the least delay, at the cost of a whole CPU; signal handlers do not interrupt the wait
    Spinning,
}

impl Wait {
    pub fn name(self) -> &'static str {
        match self {
            Wait::Adaptive => "adaptive",
            Wait::Blocking => "blocking",
            Wait::Spinning => "spinning",
        }
    }
}

impl From<Wait> for Waiting {
    fn from(wait: Wait) -> Waiting {
        match wait {
            Wait::Adaptive => Waiting::Adaptive,
            Wait::Blocking => Waiting::Blocking,
            Wait::Spinning => Waiting::Spinning,
        }
    }
}
