//! The calls of POSIX queues, and their text form.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::backend::Attributes;
use crate::compare::operation;
use crate::sys::{self, time};

/// The number of descriptors that each worker remembers.
pub const SLOTS: usize = 6;

/// The number of epoll sets that each worker remembers.
pub const SETS: usize = 3;

/// The index of an entry in which a worker remembers a descriptor. The entry keeps the number of a closed descriptor, so that later calls use a
/// closed descriptor.
pub type Slot = usize;

/// The time at which a send or receive gives up waiting.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Deadline {
    /// Never: the call is the one without a deadline, such as `mq_send`.
    Never,
    /// Never: the timed call gets a null pointer.
    Null,
    /// The time one second ago.
    Past,
    /// After this number of milliseconds.
    Soon(i64),
    /// The time in one hour.
    Distant,
    /// An invalid timespec.
    Invalid(usize),
}

impl Deadline {
    const INVALID: [libc::timespec; 4] = [
        time(0, -1),
        time(4_000_000_000, 1_000_000_000),
        time(-1, 0),
        time(i64::MIN, i64::MAX),
    ];

    /// The number of invalid timespecs.
    pub const INVALIDS: usize = Self::INVALID.len();

    /// Returns the `abs_timeout` of the timed call. Returns `None` if the call has no deadline, or gets a null pointer.
    pub fn timespec(self) -> Option<libc::timespec> {
        match self {
            Deadline::Never | Deadline::Null => None,
            Deadline::Past => Some(sys::from_now(-1000)),
            Deadline::Soon(milliseconds) => Some(sys::from_now(milliseconds)),
            Deadline::Distant => Some(sys::from_now(3_600_000)),
            Deadline::Invalid(which) => Some(Self::INVALID[which]),
        }
    }

    /// Returns whether a call with this deadline may block until another process acts.
    pub fn may_block(self) -> bool {
        matches!(self, Deadline::Never | Deadline::Null | Deadline::Distant)
    }
}

/// The size of a message or buffer, relative to the message size of the queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Size {
    /// No bytes.
    Zero,
    /// About this number of bytes, at most the message size.
    Within(usize),
    /// The message size.
    Exact,
    /// This number of bytes more than the message size.
    More(usize),
    /// One byte less than the message size.
    OneLess,
}

impl Size {
    /// Returns the size in bytes.
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

/// The form of the notification.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Event {
    /// A null pointer: `mq_notify` ends the registration.
    Withdraw,
    /// `SIGEV_NONE`.
    Nothing,
    /// `SIGEV_SIGNAL`.
    Signal {
        /// `sigev_signo`.
        signal: i32,
        /// `sigev_value`.
        value: i64,
    },
    /// An invalid kind of notification.
    Unknown {
        /// `sigev_notify`.
        how: i32,
    },
}

impl Event {
    /// Returns the argument of `mq_notify`.
    pub fn sigevent(self) -> Option<libc::sigevent> {
        let (how, signal, value) = match self {
            Event::Withdraw => return None,
            Event::Nothing => (libc::SIGEV_NONE, 0, 0),
            Event::Signal { signal, value } => (libc::SIGEV_SIGNAL, signal, value),
            Event::Unknown { how } => (how, 0, 0),
        };
        // SAFETY: the structure consists of numbers and a pointer, for which zero is valid.
        let mut event: libc::sigevent = unsafe { std::mem::zeroed() };
        event.sigev_notify = how;
        event.sigev_signo = signal;
        event.sigev_value.sival_ptr = std::ptr::without_provenance_mut(value as usize);
        Some(event)
    }
}

/// A call on a POSIX queue, or on a set or notification that belongs to a queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[allow(missing_docs)]
pub enum Call {
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
    Poll {
        slot: Slot,
        with: Option<Slot>,
        events: i16,
        /// True for a poll without time limit, false for a poll that does not wait.
        waits: bool,
    },
    Select {
        slot: Slot,
        with: Option<Slot>,
        events: i16,
    },
    MakeSet {
        set: Slot,
        watched: bool,
    },
    CloseSet {
        set: Slot,
    },
    Register {
        set: Slot,
        slot: Slot,
        operation: i32,
        events: u32,
    },
    Wait {
        set: Slot,
    },
    Notify {
        slot: Slot,
        event: Event,
    },
    /// Collects the notifications that have arrived.
    Notices,
    StatusLine {
        slot: Slot,
    },
}

impl operation::Call for Call {
    fn may_block(self) -> bool {
        match self {
            Call::Send { deadline, .. } | Call::Receive { deadline, .. } => deadline.may_block(),
            Call::Poll { waits, .. } => waits,
            _ => false,
        }
    }

    fn kind(self) -> &'static str {
        use Call::*;
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
            Poll { waits: true, .. } => "poll that waits",
            Poll { .. } => "poll",
            Select { .. } => "select",
            MakeSet { .. } => "epoll_create1",
            CloseSet { .. } => "close of a set",
            Register { operation, .. } => match operation {
                libc::EPOLL_CTL_ADD => "EPOLL_CTL_ADD",
                libc::EPOLL_CTL_MOD => "EPOLL_CTL_MOD",
                _ => "EPOLL_CTL_DEL",
            },
            Wait { .. } => "epoll_wait",
            Notify {
                event: Event::Withdraw,
                ..
            } => "mq_notify(NULL)",
            Notify { .. } => "mq_notify",
            Notices => "notifications",
            StatusLine { .. } => "pread",
        }
    }

    // The call may set or clear `O_NONBLOCK`, which a restarted call reads again.
    fn changes_the_waiting(self) -> bool {
        match self {
            Call::SetAttributes { .. } => true,
            Call::Fcntl { command, .. } => command == libc::F_SETFL,
            _ => false,
        }
    }
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

impl fmt::Display for Call {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        use Call::*;
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
            Poll {
                slot, with, events, ..
            }
            | Select { slot, with, events } => {
                write!(f, "{}(d{slot}", operation::Call::kind(*self))?;
                with.map_or(Ok(()), |with| write!(f, " and d{with}"))?;
                write!(f, ", events {events:#x})")
            }
            MakeSet { set, watched } => {
                let watched = if watched { ", watched" } else { "" };
                write!(f, "s{set} = epoll_create1(){watched}")
            }
            CloseSet { set } => write!(f, "close(s{set})"),
            Register {
                set, slot, events, ..
            } => {
                let operation = operation::Call::kind(*self);
                write!(f, "epoll_ctl(s{set}, {operation}, d{slot}, {events:#x})")
            }
            Wait { set } => write!(f, "epoll_wait(s{set})"),
            Notify { slot, event } => write!(f, "mq_notify(d{slot}, {event:?})"),
            Notices => write!(f, "tells of its notifications"),
            StatusLine { slot } => write!(f, "pread(d{slot}, 100, 0)"),
        }
    }
}
