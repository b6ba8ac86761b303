//! The source of messages for a command: a POSIX or System V queue, with the selection of messages. A received message is leased until the command
//! acknowledges it.

use std::time::{Duration, SystemTime};

use umsg::posix::{self, History, LeaseError};
use umsg::sysv::{self, Want};

use crate::attached::Attached;
use crate::commands::patience::Patience;
use crate::failure::{Failure, Result};
use crate::lookout::Lookout;
use crate::names::Name;
use crate::opened::Opened;
use crate::output::time;
use crate::values::RetryDelay;

#[allow(clippy::large_enum_variant, reason = "a command has one, on its stack")]
pub enum Inlet<'a> {
    Posix(Opened<'a>),
    SystemV { from: Attached, want: Want },
}

/// A leased message.
pub enum Held<'a> {
    Posix(posix::Lease<'a>),
    SystemV(sysv::Lease<'a>),
}

/// The priority of a POSIX message, or the type of a System V message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rank {
    Priority(u32),
    Type(i64),
}

impl Inlet<'_> {
    /// Receives a message, and waits for it up to the allowed time. Calls `meanwhile` before the wait and after each interruption; an error of
    /// `meanwhile` ends the wait. Returns None at the end of the stream: the queue is closed for sending, and is empty.
    pub fn receive(
        &self,
        patience: &Patience,
        meanwhile: impl Fn() -> Result,
    ) -> Result<Option<Held<'_>>> {
        match self {
            Inlet::Posix(from) => Ok(receive(from, patience, meanwhile)?.map(Held::Posix)),
            Inlet::SystemV { from, want } => {
                meanwhile()?;
                patience
                    .spend(
                        &from.lookout,
                        |time| match time {
                            None => from.queue.try_receive_lease(*want),
                            Some(time) => from.queue.receive_lease_timeout(*want, time),
                        },
                        &meanwhile,
                    )?
                    .map(|message| Some(Held::SystemV(message)))
                    .or_else(|error| match error {
                        sysv::ReceiveError::Closed => Ok(None),
                        error => Err(from.not_received(&error)),
                    })
            }
        }
    }

    /// Returns the thread that interrupts the waits.
    pub fn lookout(&self) -> &Lookout {
        match self {
            Inlet::Posix(from) => &from.lookout,
            Inlet::SystemV { from, .. } => &from.lookout,
        }
    }

    /// Receives a message without waiting. Returns None if the queue has no matching message.
    pub fn take(&self) -> Result<Option<Held<'_>>> {
        match self {
            Inlet::Posix(from) => match from.queue.try_receive_lease() {
                Ok(message) => Ok(Some(Held::Posix(message))),
                Err(posix::ReceiveError::Closed) => Ok(None),
                Err(posix::ReceiveError::Empty) if from.held_up().is_none() => Ok(None),
                Err(error) => Err(from.not_received(&error)),
            },
            Inlet::SystemV { from, want } => match from.queue.try_receive_lease(*want) {
                Ok(message) => Ok(Some(Held::SystemV(message))),
                Err(sysv::ReceiveError::Closed) => Ok(None),
                Err(sysv::ReceiveError::NoMessage) if from.held_up().is_none() => Ok(None),
                Err(error) => Err(from.not_received(&error)),
            },
        }
    }

    /// Returns the failure for a stream that ended before the requested number of messages came.
    pub fn ended(&self) -> Failure {
        match self {
            Inlet::Posix(from) => from.not_received(&posix::ReceiveError::Closed),
            Inlet::SystemV { from, .. } => from.not_received(&sysv::ReceiveError::Closed),
        }
    }

    /// Returns whether the queue itself delays messages that return.
    pub fn delays_retries(&self) -> bool {
        self.queues_delay(1).is_some()
    }

    /// Returns the delay that the queue itself sets after this number of deliveries.
    fn queues_delay(&self, deliveries: u32) -> Option<Duration> {
        let own = match self {
            Inlet::Posix(from) => from.queue.status().retry_delay,
            Inlet::SystemV { from, .. } => from.queue.status().ok().and_then(|now| now.retry_delay),
        };
        own.map(|delay| RetryDelay::from(delay).after(deliveries))
    }

    /// Returns a message to the queue, after `delay` or else after the delay that the queue sets. Returns a text that says where the message is now.
    pub fn give_back(&self, message: Held<'_>, delay: Option<RetryDelay>) -> String {
        let (rank, deliveries) = (message.rank(), message.deliveries());
        let given = delay.map(|delay| delay.after(deliveries));
        let delay = given.or_else(|| self.queues_delay(deliveries));
        let exhausted = self.is_exhausted(&message);
        let returned = match given {
            Some(delay) => message.return_after(delay),
            None => message.give_back(),
        };
        match (returned, exhausted) {
            (Ok(()), false) => {
                if let Some(delay) = delay {
                    return format!(
                        "the message is delivered again after {}",
                        time::length(delay)
                    );
                }
                let first = match rank {
                    Rank::Priority(priority) => format!("priority ({priority})"),
                    Rank::Type(mtype) => format!("type ({mtype})"),
                };
                format!("the message is back in the queue, the first of its {first}")
            }
            (Ok(()), true) => format!(
                "the message was delivered as often as the queue allows, and goes to the dead-letter queue{}",
                self.dead_letter_queue()
            ),
            (Err(error), _) => format!("the message could not be returned: {error}"),
        }
    }

    /// Returns the name of the dead-letter queue with a blank before it, or an empty text.
    fn dead_letter_queue(&self) -> String {
        let name = match self {
            Inlet::Posix(from) => from.queue.status().dead_letter,
            Inlet::SystemV { .. } => None,
        };
        name.map_or_else(String::new, |name| format!(" {}", Name::from(name)))
    }

    /// Returns the maximum number of deliveries, after which a message moves to the dead-letter queue.
    /// Returns whether the queue allows no further delivery of the message: a message that is given back goes to the dead-letter queue.
    pub fn is_exhausted(&self, message: &Held<'_>) -> bool {
        let most = match self {
            Inlet::Posix(from) => from.queue.status().max_deliveries,
            Inlet::SystemV { .. } => None,
        };
        most.is_some_and(|most| message.deliveries() >= most)
    }
}

/// Receives from a queue that may be removed during the wait.
fn receive<'a>(
    from: &'a Opened<'_>,
    patience: &Patience,
    meanwhile: impl Fn() -> Result,
) -> Result<Option<posix::Lease<'a>>> {
    if let Err(removed) = from.check_name() {
        // The queue was removed, but it still delivers its remaining messages.
        return from
            .queue
            .try_receive_lease()
            .map(Some)
            .map_err(|_| removed);
    }
    meanwhile()?;
    let received = patience.spend(
        &from.lookout,
        |time| match time {
            None => from.queue.try_receive_lease(),
            Some(time) => from.queue.receive_lease_timeout(time),
        },
        || from.check_name_now().and_then(|()| meanwhile()),
    )?;
    match received {
        Ok(message) => Ok(Some(message)),
        Err(posix::ReceiveError::Closed) => Ok(None),
        Err(error) => Err(from.not_received(&error)),
    }
}

/// Performs an expression on a lease of a POSIX or System V queue.
macro_rules! either {
    ($held:expr, $lease:ident => $answer:expr) => {
        match $held {
            Held::Posix($lease) => $answer,
            Held::SystemV($lease) => $answer,
        }
    };
}

impl Held<'_> {
    pub fn to_vec(&self) -> Vec<u8> {
        either!(self, lease => lease.to_vec())
    }

    pub fn rank(&self) -> Rank {
        match self {
            Held::Posix(lease) => Rank::Priority(lease.priority()),
            Held::SystemV(lease) => Rank::Type(lease.mtype()),
        }
    }

    /// Returns the ID of a POSIX message, as `umsg peek` shows it.
    pub fn id(&self) -> Option<u64> {
        match self {
            // If the lease has ended, the later acknowledgement reports it.
            Held::Posix(lease) => lease.message_id().ok(),
            Held::SystemV(_) => None,
        }
    }

    pub fn pid(&self) -> u32 {
        either!(self, lease => lease.pid())
    }

    pub fn sent(&self) -> SystemTime {
        either!(self, lease => lease.sent())
    }

    pub fn deliveries(&self) -> u32 {
        either!(self, lease => lease.deliveries())
    }

    /// Returns the history of a dead letter, or of a message that was one.
    pub fn history(&self) -> Option<History> {
        match self {
            // If the lease has ended, the later acknowledgement reports it.
            Held::Posix(lease) => lease.history().ok().flatten(),
            Held::SystemV(_) => None,
        }
    }

    pub fn acknowledge(self) -> Result<(), LeaseError> {
        either!(self, lease => lease.acknowledge())
    }

    pub fn give_back(self) -> Result<(), LeaseError> {
        either!(self, lease => lease.give_back())
    }

    pub fn return_after(self, delay: Duration) -> Result<(), LeaseError> {
        either!(self, lease => lease.return_after(delay))
    }
}
