//! The steps of a history, and their text form.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::compare::Outcome;

/// The maximum number of processes of a side that live at the same time.
pub const PROCESSES: usize = 5;

/// The number of POSIX names and System V keys that a history uses.
pub const NAMES: usize = 3;

/// The message size of the POSIX queues, and the length of each message buffer, in bytes.
pub const MESSAGE_SIZE: usize = 16;

/// The time for which a call waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Waits {
    /// Until another process acts.
    Forever,
    /// Like `Forever`, with a deadline in an hour.
    Long,
    /// A few milliseconds.
    Briefly,
    /// No wait: the deadline has passed.
    Not,
}

/// One act of a process, or one event that happens to the process. The field `fd` is the descriptor number in that process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[allow(missing_docs)]
pub enum Act {
    Open {
        name: usize,
        flags: i32,
        depth: i64,
    },
    Close {
        fd: i32,
    },
    Unlink {
        name: usize,
    },
    Send {
        fd: i32,
        priority: u32,
        waits: Waits,
    },
    Receive {
        fd: i32,
        waits: Waits,
    },
    Attributes {
        fd: i32,
    },
    Nonblock {
        fd: i32,
        on: bool,
    },
    KeepOnExec {
        fd: i32,
        keep: bool,
    },
    Dup {
        fd: i32,
    },
    Dup2 {
        fd: i32,
        onto: i32,
    },
    /// Sends a descriptor to the mailbox that all processes of a side share.
    Pass {
        fd: i32,
    },
    /// Receives the oldest descriptor from the mailbox.
    Take,
    Poll {
        fds: [i32; 2],
        events: i16,
        waits: bool,
    },
    Select {
        fd: i32,
    },
    MakeSet,
    Control {
        set: i32,
        operation: i32,
        fd: i32,
        events: u32,
    },
    WaitSet {
        set: i32,
        waits: bool,
    },
    Notify {
        fd: i32,
        signal: Option<i32>,
    },
    /// Returns the notifications that the process has received.
    Notices,
    /// Reads the status line of a queue, which contains the id of the registered process.
    StatusLine {
        fd: i32,
    },
    Get {
        key: usize,
        flags: i32,
    },
    SendTyped {
        key: usize,
        kind: i64,
        waits: bool,
    },
    ReceiveTyped {
        key: usize,
        kind: i64,
        waits: bool,
    },
    LimitBytes {
        key: usize,
        bytes: u64,
    },
    Count {
        key: usize,
    },
    Remove {
        key: usize,
    },
    Fork {
        child: usize,
    },
    Exec,
    Exit,
    Kill,
    /// The process gets a signal whose handler was installed without SA_RESTART.
    Interrupt,
    /// The process gets a signal whose handler was installed with SA_RESTART.
    Disturb,
    StopAndContinue,
}

impl Act {
    /// Returns whether the act may block until another process acts.
    pub fn may_block(self) -> bool {
        match self {
            Act::Send { waits, .. } | Act::Receive { waits, .. } => {
                matches!(waits, Waits::Forever | Waits::Long)
            }
            Act::Poll { waits, .. }
            | Act::WaitSet { waits, .. }
            | Act::SendTyped { waits, .. }
            | Act::ReceiveTyped { waits, .. } => waits,
            _ => false,
        }
    }

    /// Returns whether the act happens to a blocked process. A process performs all other acts while it is not blocked.
    pub fn is_done_to_the_blocked(self) -> bool {
        matches!(self, Act::Interrupt | Act::Disturb | Act::StopAndContinue)
    }

    /// Returns the name of the call, for the counts of calls.
    pub fn kind(self) -> &'static str {
        match self {
            Act::Open { .. } => "mq_open",
            Act::Close { .. } => "close",
            Act::Unlink { .. } => "mq_unlink",
            Act::Send { .. } => "mq_send",
            Act::Receive { .. } => "mq_receive",
            Act::Attributes { .. } => "mq_getattr",
            Act::Nonblock { .. } => "F_SETFL",
            Act::KeepOnExec { .. } => "F_SETFD",
            Act::Dup { .. } => "dup",
            Act::Dup2 { .. } => "dup2",
            Act::Pass { .. } => "sendmsg",
            Act::Take => "recvmsg",
            Act::Poll { .. } => "poll",
            Act::Select { .. } => "select",
            Act::MakeSet => "epoll_create1",
            Act::Control { operation, .. } => match operation {
                libc::EPOLL_CTL_ADD => "EPOLL_CTL_ADD",
                libc::EPOLL_CTL_MOD => "EPOLL_CTL_MOD",
                _ => "EPOLL_CTL_DEL",
            },
            Act::WaitSet { .. } => "epoll_wait",
            Act::Notify { .. } => "mq_notify",
            Act::Notices => "notices",
            Act::StatusLine { .. } => "pread",
            Act::Get { .. } => "msgget",
            Act::SendTyped { .. } => "msgsnd",
            Act::ReceiveTyped { .. } => "msgrcv",
            Act::LimitBytes { .. } => "IPC_SET",
            Act::Count { .. } => "IPC_STAT",
            Act::Remove { .. } => "IPC_RMID",
            Act::Fork { .. } => "fork",
            Act::Exec => "exec",
            Act::Exit => "exit",
            Act::Kill => "SIGKILL",
            Act::Interrupt => "signal",
            Act::Disturb => "signal with SA_RESTART",
            Act::StopAndContinue => "SIGSTOP and SIGCONT",
        }
    }
}

/// An act, and the process that performs it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Step {
    /// The number of the process.
    pub process: usize,
    /// The act of the process, or the event that happens to it.
    pub act: Act,
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "p{} {:?}", self.process, self.act)
    }
}

/// Returns whether an outcome is a success.
pub fn succeeded(outcome: Outcome) -> bool {
    !matches!(outcome, Outcome::Failed(_) | Outcome::Unsupported)
}
