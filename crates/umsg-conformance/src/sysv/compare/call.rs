//! The calls of System V queues, and their text form.

use std::fmt;

use libc::{IPC_CREAT, IPC_EXCL, IPC_NOWAIT, IPC_STAT, MSG_EXCEPT, MSG_NOERROR, MSG_STAT};
use serde::{Deserialize, Serialize};

use crate::compare;
use crate::sysv::backend::{Change, IPC_INFO, MSG_COPY, MSG_STAT_ANY};

/// The number of entries in which the workers of a side remember identifiers. All workers share the entries.
pub const SLOTS: usize = 6;

/// The identifier, or the index, that a call gets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Target {
    /// The identifier in a slot. After a removal, the slot keeps the stale identifier, so that later calls use a stale identifier.
    Slot(usize),
    /// The index of the queue in a slot, for `MSG_STAT`.
    IndexOf(usize),
    /// The identifier in a slot, with the next sequence number.
    NextSequence(usize),
    /// This value.
    Number(i32),
}

/// The size that a call gets, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Size {
    /// This size. The buffer has the same length.
    Of(usize),
    /// This size, which is larger than every buffer.
    Wrong(i64),
}

/// The processes that make a call. Other processes omit the call, because they may have no access to the queues that the call inspects.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Whose {
    /// All processes.
    Everybodys,
    /// Only root's processes.
    Roots,
}

/// A call on System V queues.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[allow(missing_docs)]
pub enum Call {
    /// The key `None` means `IPC_PRIVATE`.
    Get {
        slot: usize,
        key: Option<usize>,
        flags: i32,
    },
    Send {
        target: Target,
        mtype: i64,
        size: Size,
        flags: i32,
    },
    Receive {
        target: Target,
        size: Size,
        mtype: i64,
        flags: i32,
    },
    Stat {
        target: Target,
        command: i32,
        whose: Whose,
    },
    Set {
        target: Target,
        change: Change,
    },
    Remove {
        target: Target,
    },
    Info {
        command: i32,
        whose: Whose,
    },
    /// `msgctl` with an unknown command.
    Control {
        target: Target,
        command: i32,
    },
}

impl Call {
    /// Returns the identifier or index that the call gets. Returns None for a call without one.
    pub fn target(self) -> Option<Target> {
        match self {
            Call::Get { .. } | Call::Info { .. } => None,
            Call::Send { target, .. }
            | Call::Receive { target, .. }
            | Call::Stat { target, .. }
            | Call::Set { target, .. }
            | Call::Remove { target }
            | Call::Control { target, .. } => Some(target),
        }
    }
}

impl compare::Call for Call {
    fn may_block(self) -> bool {
        match self {
            Call::Send { flags, .. } | Call::Receive { flags, .. } => flags & IPC_NOWAIT == 0,
            _ => false,
        }
    }

    // `IPC_SET` may remove the permission to send, but does not wake a sender that waits for room. Only a restarted call notices the change.
    fn changes_the_waiting(self) -> bool {
        matches!(self, Call::Set { .. })
    }

    fn kind(self) -> &'static str {
        match self {
            Call::Get { .. } => "msgget",
            Call::Send { .. } => "msgsnd",
            Call::Receive { flags, .. } if flags & MSG_COPY != 0 => "msgrcv with MSG_COPY",
            Call::Receive { .. } => "msgrcv",
            Call::Stat { command, .. } | Call::Info { command, .. } => command_name(command),
            Call::Set { .. } => "IPC_SET",
            Call::Remove { .. } => "IPC_RMID",
            Call::Control { .. } => "msgctl",
        }
    }
}

fn command_name(command: i32) -> &'static str {
    match command {
        IPC_STAT => "IPC_STAT",
        MSG_STAT => "MSG_STAT",
        MSG_STAT_ANY => "MSG_STAT_ANY",
        IPC_INFO => "IPC_INFO",
        libc::MSG_INFO => "MSG_INFO",
        _ => "?",
    }
}

/// Returns the names of the flags that are set, each after a bar.
fn flag_names(flags: i32, of_get: bool) -> String {
    let named: &[(i32, &str)] = if of_get {
        &[(IPC_CREAT, "IPC_CREAT"), (IPC_EXCL, "IPC_EXCL")]
    } else {
        &[
            (IPC_NOWAIT, "IPC_NOWAIT"),
            (MSG_NOERROR, "MSG_NOERROR"),
            (MSG_EXCEPT, "MSG_EXCEPT"),
            (MSG_COPY, "MSG_COPY"),
        ]
    };
    let set = named.iter().filter(|(flag, _)| flags & flag != 0);
    set.map(|(_, name)| format!("|{name}")).collect()
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Target::Slot(slot) => write!(f, "q{slot}"),
            Target::IndexOf(slot) => write!(f, "q{slot} % 32768"),
            Target::NextSequence(slot) => write!(f, "q{slot} + 32768"),
            Target::Number(number) => write!(f, "{number}"),
        }
    }
}

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Size::Of(bytes) => write!(f, "{bytes} bytes"),
            Size::Wrong(number) => write!(f, "{number} bytes"),
        }
    }
}

impl fmt::Display for Call {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Call::Get { slot, key, flags } => {
                let key = key.map_or("IPC_PRIVATE".to_string(), |key| format!("key {key}"));
                let names = flag_names(flags, true);
                write!(f, "q{slot} = msgget({key}, {:#o}{names})", flags & 0o777)
            }
            Call::Send {
                target,
                mtype,
                size,
                flags,
            } => {
                let names = flag_names(flags, false);
                write!(f, "msgsnd({target}, type {mtype}, {size}, 0{names})")
            }
            Call::Receive {
                target,
                size,
                mtype,
                flags,
            } => {
                let names = flag_names(flags, false);
                write!(f, "msgrcv({target}, {size}, type {mtype}, 0{names})")
            }
            Call::Stat {
                target, command, ..
            } => {
                write!(f, "msgctl({target}, {})", command_name(command))
            }
            Call::Set { target, change } => write!(f, "msgctl({target}, IPC_SET, {change})"),
            Call::Remove { target } => write!(f, "msgctl({target}, IPC_RMID)"),
            Call::Info { command, .. } => write!(f, "msgctl({})", command_name(command)),
            Call::Control { target, command } => write!(f, "msgctl({target}, {command})"),
        }
    }
}
