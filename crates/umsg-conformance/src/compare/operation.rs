//! The parts of a history, and their text form.

use std::fmt;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::sys::User;

/// The maximum number of processes. Process 0 exists from the start; the others are forked.
pub const WORKERS: usize = 4;

/// A call of a family, with its arguments.
pub trait Call:
    Copy + PartialEq + fmt::Debug + fmt::Display + Serialize + DeserializeOwned
{
    /// Returns whether the call may block until another worker acts.
    fn may_block(self) -> bool;

    /// Returns the name of the C function.
    fn kind(self) -> &'static str;

    /// Returns whether the call may change the events for which other processes wait. After such a call, a restarted call and a continued call may
    /// have different results.
    fn changes_the_waiting(self) -> bool {
        false
    }
}

/// One event of a history.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[allow(missing_docs)]
pub enum Operation<C> {
    Call(C),
    Umask {
        mask: u32,
    },
    Nice {
        nice: i32,
    },
    Fork {
        child: usize,
        user: Option<User>,
    },
    Exit,
    /// The worker is killed by SIGKILL.
    Kill,
    /// A blocked worker gets a signal whose handler was installed without SA_RESTART.
    Interrupt,
    /// A blocked worker gets a signal whose handler was installed with SA_RESTART.
    Disturb,
    /// A blocked worker is stopped and continued.
    StopAndContinue,
}

impl<C: Call> Operation<C> {
    /// Returns whether the operation may block until another worker acts.
    pub fn may_block(self) -> bool {
        matches!(self, Operation::Call(call) if call.may_block())
    }

    /// Returns the name of the C function or of the other operation.
    pub fn kind(self) -> &'static str {
        match self {
            Operation::Call(call) => call.kind(),
            Operation::Umask { .. } => "umask",
            Operation::Nice { .. } => "setpriority",
            Operation::Fork { .. } => "fork",
            Operation::Exit => "exit",
            Operation::Kill => "SIGKILL",
            Operation::Interrupt => "signal",
            Operation::Disturb => "signal with SA_RESTART",
            Operation::StopAndContinue => "SIGSTOP and SIGCONT",
        }
    }

    /// Returns whether the operation acts on a blocked worker. A worker performs all other operations itself, while it is not blocked.
    pub fn is_done_to_the_blocked(self) -> bool {
        matches!(
            self,
            Operation::Interrupt | Operation::Disturb | Operation::StopAndContinue
        )
    }
}

/// An operation and its worker.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Step<C> {
    /// The worker that performs the operation, or to which a signal is sent.
    pub worker: usize,
    /// The operation.
    pub operation: Operation<C>,
}

impl<C: Call> fmt::Display for Operation<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Operation::Call(call) => fmt::Display::fmt(&call, f),
            Operation::Umask { mask } => write!(f, "umask({mask:#o})"),
            Operation::Nice { nice } => write!(f, "setpriority({nice})"),
            Operation::Fork { child, user: None } => write!(f, "fork() makes w{child}"),
            Operation::Fork {
                child,
                user:
                    Some(User {
                        uid,
                        gid,
                        supplementary,
                    }),
            } => {
                write!(f, "fork() makes w{child}, of user {uid}, group {gid}")?;
                supplementary.map_or(Ok(()), |group| write!(f, " and group {group}"))
            }
            Operation::Exit => write!(f, "exit"),
            Operation::Kill => write!(f, "is killed"),
            Operation::Interrupt => write!(f, "gets a signal with a handler"),
            Operation::Disturb => write!(f, "gets a signal with a handler and SA_RESTART"),
            Operation::StopAndContinue => write!(f, "is stopped and continued"),
        }
    }
}

impl<C: Call> fmt::Display for Step<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "w{} {}", self.worker, self.operation)
    }
}
