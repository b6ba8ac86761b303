//! The destination of messages for a command: a POSIX or System V queue, with the priority or type for each message.

use std::time::{Duration, SystemTime};

use umsg::posix;
use umsg::sysv;

use crate::attached::Attached;
use crate::commands::patience::Patience;
use crate::failure::{self, Code, Explain, Result};
use crate::inlet::Rank;
use crate::opened::Opened;

#[allow(clippy::large_enum_variant, reason = "a command has one, on its stack")]
pub enum Outlet<'a> {
    Posix { to: Opened<'a>, priority: u32 },
    SystemV { to: Attached, mtype: i64 },
}

/// The time of a message's delivery.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum When {
    Now,
    After(Duration),
    At(SystemTime),
}

/// The registration of this process as a producer. In a queue that is closed with its last producer, the end of the last registration closes the
/// queue for sending.
pub enum Producer<'q> {
    Posix(#[allow(dead_code, reason = "its drop ends it")] posix::Producer<'q>),
    SystemV(#[allow(dead_code, reason = "its drop ends it")] sysv::Producer<'q>),
}

fn refusal<T>(code: Code, why: String) -> Result<T, Refusal> {
    Err(Refusal { code, why })
}

/// The reason why a message was not sent.
pub struct Refusal {
    pub code: Code,
    pub why: String,
}

impl Outlet<'_> {
    /// Returns the maximum size of a message, in bytes.
    pub fn longest(&self) -> usize {
        match self {
            Outlet::Posix { to, .. } => to.queue.attributes().message_size,
            Outlet::SystemV { to, .. } => to.queue.msgmax(),
        }
    }

    /// Registers this process as a producer of the queue.
    pub fn produce(&self) -> Result<Producer<'_>, Refusal> {
        match self {
            Outlet::Posix { to, .. } => to.queue.producer().map_or_else(
                |error| refusal(error.code(), to.explain_send(&error)),
                |producer| Ok(Producer::Posix(producer)),
            ),
            Outlet::SystemV { to, .. } => to.queue.producer().map_or_else(
                |error| refusal(error.code(), to.explain_send(&error)),
                |producer| Ok(Producer::SystemV(producer)),
            ),
        }
    }

    /// Returns the name of the limit of [`Self::longest`], and a hint for longer messages.
    pub fn about_longest(&self) -> (&'static str, &'static str) {
        match self {
            Outlet::Posix { .. } => ("message size", failure::longer_messages(self.longest())),
            Outlet::SystemV { .. } => ("msgmax", failure::longer_sysv_messages(self.longest())),
        }
    }

    /// Sends a message, and waits for room up to the allowed time. `rank` replaces the priority or type that the option gives for all messages.
    pub fn send(
        &self,
        patience: &Patience,
        message: &[u8],
        rank: Option<Rank>,
        when: When,
    ) -> Result<Result<(), Refusal>> {
        match (self, rank) {
            (Outlet::Posix { .. }, Some(Rank::Type(_))) => Ok(Err(Refusal {
                code: Code::Failed,
                why: "a POSIX queue has no types; give the messages a priority with --priority"
                    .to_owned(),
            })),
            (Outlet::SystemV { .. }, Some(Rank::Priority(_))) => Ok(Err(Refusal {
                code: Code::Failed,
                why: "a System V queue has no priorities; give the messages a type with --type"
                    .to_owned(),
            })),
            (Outlet::Posix { to, priority }, rank) => {
                let priority = match rank {
                    Some(Rank::Priority(priority)) => priority,
                    _ => *priority,
                };
                let sent = patience.spend(
                    &to.lookout,
                    |time| match (when, time) {
                        (When::Now, None) => to.queue.try_send(message, priority),
                        (When::Now, Some(time)) => to.queue.send_timeout(message, priority, time),
                        (When::After(delay), None) => {
                            to.queue.try_send_after(message, priority, delay)
                        }
                        (When::After(delay), Some(time)) => {
                            to.queue.send_after_timeout(message, priority, delay, time)
                        }
                        (When::At(at), None) => to.queue.try_send_at(message, priority, at),
                        (When::At(at), Some(time)) => {
                            to.queue.send_at_timeout(message, priority, at, time)
                        }
                    },
                    || to.check_name_now(),
                )?;
                Ok(sent.map_err(|error| Refusal {
                    code: error.code(),
                    why: to.explain_send(&error),
                }))
            }
            (Outlet::SystemV { to, mtype }, rank) => {
                let mtype = match rank {
                    Some(Rank::Type(mtype)) => mtype,
                    _ => *mtype,
                };
                let sent = patience.spend(
                    &to.lookout,
                    |time| match (when, time) {
                        (When::Now, None) => to.queue.try_send(mtype, message),
                        (When::Now, Some(time)) => to.queue.send_timeout(mtype, message, time),
                        (When::After(delay), None) => {
                            to.queue.try_send_after(mtype, message, delay)
                        }
                        (When::After(delay), Some(time)) => {
                            to.queue.send_after_timeout(mtype, message, delay, time)
                        }
                        (When::At(at), None) => to.queue.try_send_at(mtype, message, at),
                        (When::At(at), Some(time)) => {
                            to.queue.send_at_timeout(mtype, message, at, time)
                        }
                    },
                    || Ok(()),
                )?;
                Ok(sent.map_err(|error| Refusal {
                    code: error.code(),
                    why: to
                        .explain_never_fits(&error, message.len())
                        .unwrap_or_else(|| to.explain_send(&error)),
                }))
            }
        }
    }
}
