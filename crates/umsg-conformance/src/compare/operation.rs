//! What a history is made of, and how it reads.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::backend::Attributes;
use crate::sys::{self, User};

/// How many processes take part at most. Number 0 is there from the start; the others are forked.
pub const WORKERS: usize = 4;

/// How many descriptors each of them remembers.
pub const SLOTS: usize = 6;

/// A place where a worker remembers a descriptor: the number stays there after a close, to be used wrongly.
pub type Slot = usize;

/// When a send or receive gives up waiting.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Deadline {
    /// The call without a deadline.
    Never,
    /// The timed call with a null pointer.
    Null,
    /// A second ago.
    Past,
    /// In so many milliseconds.
    Soon(i64),
    /// In an hour.
    Distant,
    /// One of the timespecs that are no point in time.
    Invalid(usize),
}

impl Deadline {
    const INVALID: [libc::timespec; 4] = [
        libc::timespec {
            tv_sec: 0,
            tv_nsec: -1,
        },
        libc::timespec {
            tv_sec: 4_000_000_000,
            tv_nsec: 1_000_000_000,
        },
        libc::timespec {
            tv_sec: -1,
            tv_nsec: 0,
        },
        libc::timespec {
            tv_sec: i64::MIN,
            tv_nsec: i64::MAX,
        },
    ];

    /// How many invalid ones there are.
    pub const INVALIDS: usize = Self::INVALID.len();

    /// For the timed call; the other one has none.
    pub fn timespec(self) -> Option<libc::timespec> {
        match self {
            Deadline::Never | Deadline::Null => None,
            Deadline::Past => Some(sys::from_now(-1000)),
            Deadline::Soon(milliseconds) => Some(sys::from_now(milliseconds)),
            Deadline::Distant => Some(sys::from_now(3_600_000)),
            Deadline::Invalid(which) => Some(Self::INVALID[which]),
        }
    }

    /// Whether a call with this deadline may take until somebody else does something.
    pub fn may_block(self) -> bool {
        matches!(self, Deadline::Never | Deadline::Null | Deadline::Distant)
    }
}

/// A size, relative to the message size of the queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Size {
    /// None at all.
    Zero,
    /// About so many bytes, but not too many.
    Within(usize),
    /// The message size.
    Exact,
    /// So many bytes more.
    More(usize),
    /// One byte less.
    OneLess,
}

impl Size {
    /// In bytes.
    pub fn bytes(self, message_size: usize) -> usize {
        match self {
            Size::Zero => 0,
            Size::Within(wish) => wish % (message_size + 1),
            Size::Exact => message_size,
            Size::More(bytes) => message_size + bytes,
            Size::OneLess => message_size.saturating_sub(1),
        }
    }
}

/// One thing that happens.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[allow(missing_docs)]
pub enum Operation {
    Open {
        slot: Slot,
        name: usize,
        flags: i32,
        mode: u32,
        attributes: Option<Attributes>,
    },
    Close {
        slot: Slot,
    },
    CloseDescriptor {
        slot: Slot,
    },
    Unlink {
        name: usize,
    },
    Send {
        slot: Slot,
        size: Size,
        priority: u32,
        deadline: Deadline,
    },
    Receive {
        slot: Slot,
        size: Size,
        deadline: Deadline,
    },
    GetAttributes {
        slot: Slot,
    },
    SetAttributes {
        slot: Slot,
        flags: i64,
    },
    Dup {
        slot: Slot,
        to: Slot,
    },
    Dup2 {
        slot: Slot,
        onto: Slot,
    },
    Fcntl {
        slot: Slot,
        command: i32,
        argument: i32,
    },
    DupAbove {
        slot: Slot,
        to: Slot,
        close_on_exec: bool,
    },
    Status {
        slot: Slot,
    },
    ChangeMode {
        slot: Slot,
        mode: u32,
    },
    ChangeOwner {
        slot: Slot,
        uid: u32,
        gid: u32,
    },
    Read {
        slot: Slot,
        length: usize,
    },
    Write {
        slot: Slot,
    },
    Seek {
        slot: Slot,
        offset: i64,
        whence: i32,
    },
    Sync {
        slot: Slot,
    },
    Map {
        slot: Slot,
    },
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
    /// A blocked worker gets a signal with a handler.
    Interrupt,
    /// A blocked worker gets a signal with a handler and SA_RESTART.
    Disturb,
    /// A blocked worker is stopped and continued.
    StopAndContinue,
}

impl Operation {
    /// Whether it may take until another worker does something.
    pub fn may_block(self) -> bool {
        match self {
            Operation::Send { deadline, .. } | Operation::Receive { deadline, .. } => {
                deadline.may_block()
            }
            _ => false,
        }
    }

    /// The C function, or what else happens, in a word.
    pub fn kind(self) -> &'static str {
        use Operation::*;
        match self {
            Open { .. } => "mq_open",
            Close { .. } => "mq_close",
            CloseDescriptor { .. } => "close",
            Unlink { .. } => "mq_unlink",
            Send {
                deadline: Deadline::Never,
                ..
            } => "mq_send",
            Send { .. } => "mq_timedsend",
            Receive {
                deadline: Deadline::Never,
                ..
            } => "mq_receive",
            Receive { .. } => "mq_timedreceive",
            GetAttributes { .. } => "mq_getattr",
            SetAttributes { .. } => "mq_setattr",
            Dup { .. } => "dup",
            Dup2 { .. } => "dup2",
            Fcntl { .. } | DupAbove { .. } => "fcntl",
            Status { .. } => "fstat",
            ChangeMode { .. } => "fchmod",
            ChangeOwner { .. } => "fchown",
            Read { .. } => "read",
            Write { .. } => "write",
            Seek { .. } => "lseek",
            Sync { .. } => "fsync",
            Map { .. } => "mmap",
            Umask { .. } => "umask",
            Nice { .. } => "setpriority",
            Fork { .. } => "fork",
            Exit => "exit",
            Kill => "SIGKILL",
            Interrupt => "signal",
            Disturb => "signal with SA_RESTART",
            StopAndContinue => "SIGSTOP and SIGCONT",
        }
    }

    /// Whether it may set or clear `O_NONBLOCK` for others.
    pub fn may_change_flag(self) -> bool {
        match self {
            Operation::SetAttributes { .. } => true,
            Operation::Fcntl { command, .. } => command == libc::F_SETFL,
            _ => false,
        }
    }

    /// Whether it is done to a worker that is blocked, and not by one that is free.
    pub fn is_done_to_the_blocked(self) -> bool {
        matches!(
            self,
            Operation::Interrupt | Operation::Disturb | Operation::StopAndContinue
        )
    }
}

/// Who does what.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Step {
    /// The worker that does it, or that it is done to.
    pub worker: usize,
    /// What it does.
    pub operation: Operation,
}

fn open_flags(flags: i32) -> String {
    let mut text = match flags & libc::O_ACCMODE {
        libc::O_RDONLY => "O_RDONLY",
        libc::O_WRONLY => "O_WRONLY",
        libc::O_RDWR => "O_RDWR",
        _ => "3",
    }
    .to_string();
    let named = [
        (libc::O_CREAT, "O_CREAT"),
        (libc::O_EXCL, "O_EXCL"),
        (libc::O_NONBLOCK, "O_NONBLOCK"),
        (libc::O_CLOEXEC, "O_CLOEXEC"),
    ];
    for (_, name) in named.iter().filter(|(flag, _)| flags & flag != 0) {
        text = format!("{text}|{name}");
    }
    text
}

fn fcntl_command(command: i32) -> &'static str {
    match command {
        libc::F_GETFL => "F_GETFL",
        libc::F_SETFL => "F_SETFL",
        libc::F_GETFD => "F_GETFD",
        libc::F_SETFD => "F_SETFD",
        _ => "?",
    }
}

impl fmt::Display for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        use Operation::*;
        match *self {
            Open {
                slot,
                name,
                flags,
                mode,
                attributes,
            } => {
                write!(
                    f,
                    "d{slot} = mq_open(name {name}, {}, {mode:#o}, ",
                    open_flags(flags)
                )?;
                match attributes {
                    None => write!(f, "NULL)"),
                    Some(Attributes {
                        max_messages,
                        message_size,
                        flags,
                        ..
                    }) => {
                        write!(
                            f,
                            "{{maxmsg {max_messages}, msgsize {message_size}, flags {flags:#o}}})"
                        )
                    }
                }
            }
            Close { slot } => write!(f, "mq_close(d{slot})"),
            CloseDescriptor { slot } => write!(f, "close(d{slot})"),
            Unlink { name } => write!(f, "mq_unlink(name {name})"),
            Send {
                slot,
                size,
                priority,
                deadline: Deadline::Never,
            } => {
                write!(f, "mq_send(d{slot}, {size:?}, priority {priority})")
            }
            Send {
                slot,
                size,
                priority,
                deadline,
            } => {
                write!(
                    f,
                    "mq_timedsend(d{slot}, {size:?}, priority {priority}, {deadline:?})"
                )
            }
            Receive {
                slot,
                size,
                deadline: Deadline::Never,
            } => write!(f, "mq_receive(d{slot}, {size:?})"),
            Receive {
                slot,
                size,
                deadline,
            } => write!(f, "mq_timedreceive(d{slot}, {size:?}, {deadline:?})"),
            GetAttributes { slot } => write!(f, "mq_getattr(d{slot})"),
            SetAttributes { slot, flags } => write!(f, "mq_setattr(d{slot}, flags {flags:#o})"),
            Dup { slot, to } => write!(f, "d{to} = dup(d{slot})"),
            Dup2 { slot, onto } => write!(f, "dup2(d{slot}, d{onto})"),
            Fcntl {
                slot,
                command,
                argument,
            } => {
                write!(
                    f,
                    "fcntl(d{slot}, {}, {argument:#o})",
                    fcntl_command(command)
                )
            }
            DupAbove {
                slot,
                to,
                close_on_exec,
            } => {
                let command = if close_on_exec {
                    "F_DUPFD_CLOEXEC"
                } else {
                    "F_DUPFD"
                };
                write!(f, "d{to} = fcntl(d{slot}, {command}, 50)")
            }
            Status { slot } => write!(f, "fstat(d{slot})"),
            ChangeMode { slot, mode } => write!(f, "fchmod(d{slot}, {mode:#o})"),
            ChangeOwner { slot, uid, gid } => write!(f, "fchown(d{slot}, {uid}, {gid})"),
            Read { slot, length } => write!(f, "read(d{slot}, {length})"),
            Write { slot } => write!(f, "write(d{slot}, ...)"),
            Seek {
                slot,
                offset,
                whence,
            } => write!(f, "lseek(d{slot}, {offset}, {whence})"),
            Sync { slot } => write!(f, "fsync(d{slot})"),
            Map { slot } => write!(f, "mmap(d{slot})"),
            Umask { mask } => write!(f, "umask({mask:#o})"),
            Nice { nice } => write!(f, "setpriority({nice})"),
            Fork { child, user: None } => write!(f, "fork() makes w{child}"),
            Fork {
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
            Exit => write!(f, "exit"),
            Kill => write!(f, "is killed"),
            Interrupt => write!(f, "gets a signal with a handler"),
            Disturb => write!(f, "gets a signal with a handler and SA_RESTART"),
            StopAndContinue => write!(f, "is stopped and continued"),
        }
    }
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "w{} {}", self.worker, self.operation)
    }
}
