//! The POSIX queue that a command works with. While the command waits, it checks that the name still leads to this queue.

use std::path::Path;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};
use umsg::QueueError;

use umsg::posix::{Attributes, OpenError, OpenOptions, Queue, ReceiveError, SendError};
use umsg::{Namespace, NamespaceError};

use crate::elsewhere;
use crate::failure::{Code, EMPTY, Explain, FULL, Failure, Result, closed, without_advice};
use crate::held_up;
use crate::lookout::Lookout;
use crate::names::Name;
use crate::rights;

/// The interval at which a waiting command checks that its queue still exists.
pub const GLANCE: Duration = Duration::from_secs(1);

/// The access that a command needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// Receive messages.
    Receive,
    /// Read messages without receiving them.
    See,
    Send,
    /// Read the state without messages: the permission to send or to receive suffices.
    Look,
}

/// An open queue, its namespace and its name.
pub struct Opened<'a> {
    pub queue: Queue,
    pub name: &'a Name,
    /// The thread that interrupts a wait when the name no longer leads to the queue.
    pub lookout: Lookout,
    namespace: &'a Namespace,
    looked: Mutex<Instant>,
}

impl<'a> Opened<'a> {
    pub fn open(namespace: &'a Namespace, name: &'a Name, purpose: Purpose) -> Result<Opened<'a>> {
        name.check()?;
        let queue = open(namespace, name, purpose).map_err(|error| match error {
            OpenError::PermissionDenied => denied(namespace, name),
            OpenError::NotFound if is_ring(namespace, name) => name.is_a_ring(),
            OpenError::NotFound => elsewhere::no_name(namespace, name),
            error => Failure::of(name, error),
        })?;
        let lookout = Lookout::default();
        let (place, wanted, identity) = (namespace.clone(), name.clone(), queue.identity());
        lookout.interrupt_if(move || found(&place, &wanted, identity).is_err());
        Ok(Opened {
            queue,
            name,
            lookout,
            namespace,
            looked: Mutex::new(Instant::now()),
        })
    }

    /// Returns the directory of the namespace.
    pub fn directory(&self) -> &Path {
        self.namespace.path()
    }

    /// Explains why a message was not sent, and what to do.
    pub fn explain_send(&self, error: &SendError) -> String {
        let status = self.queue.status();
        let attributes = status.attributes;
        if is_nonsense(&attributes) {
            return SendError::Queue(QueueError::Damaged).explain();
        }
        let held = attributes.leased + attributes.reserved + attributes.delayed;
        let taken = attributes.messages + held;
        if matches!(error, SendError::Full | SendError::TimedOut)
            && taken < attributes.max_messages
            && let Some(why) = held_up::named(self.namespace, self.name)
        {
            return why;
        }
        let failure = match error {
            SendError::Closed => return closed(self.name),
            SendError::Full => FULL.to_owned(),
            SendError::TimedOut => without_advice(error),
            _ => return error.explain(),
        };
        let aside = status.set_aside;
        match &status.dead_letter {
            Some(name) if aside != 0 => {
                let name = Name::from(name.as_os_str());
                format!(
                    "{failure}; the dead-letter queue {name} does not take the messages that are set aside for it ({aside}); see `umsg stat {name}`"
                )
            }
            _ if held != 0 => {
                format!("{failure}; leased, reserved and delayed messages ({held}) take room, too")
            }
            _ => error.explain(),
        }
    }

    /// Explains why no message was received, and what to do.
    pub fn not_received(&self, error: &ReceiveError) -> Failure {
        let attributes = self.queue.attributes();
        let (leased, delayed) = (attributes.leased, attributes.delayed);
        if is_nonsense(&attributes) {
            return Failure::of(self.name, ReceiveError::Queue(QueueError::Damaged));
        }
        let empty = matches!(error, ReceiveError::Empty | ReceiveError::TimedOut);
        if empty && let Some(why) = self.held_up() {
            return Failure::new(error.code(), format_args!("{}: {why}", self.name));
        }
        let failure = match error {
            ReceiveError::Empty if leased + delayed != 0 => EMPTY.to_owned(),
            ReceiveError::TimedOut if leased + delayed != 0 => without_advice(error),
            _ => return Failure::of(self.name, error),
        };
        let others = match leased {
            0 => format!("delayed messages ({delayed}) are delivered when they are due"),
            _ => format!("leased messages ({leased}) return if their receivers fail"),
        };
        let line = format_args!("{}: {failure}; {others}", self.name);
        Failure::new(error.code(), line)
    }

    /// Names the stopped process that blocks the receivers, and says what to do.
    pub fn held_up(&self) -> Option<String> {
        match self.queue.attributes().messages {
            0 => None,
            _ => held_up::named(self.namespace, self.name),
        }
    }

    /// Explains why messages were not shown, and what to do. A time-out means that a stopped process holds the lock.
    pub fn not_seen(&self, error: &ReceiveError) -> Failure {
        let held_up = match error {
            ReceiveError::TimedOut => held_up::named(self.namespace, self.name),
            _ => None,
        };
        let why = held_up.unwrap_or_else(|| error.explain());
        Failure::new(Code::Failed, format_args!("{}: {why}", self.name))
    }

    /// Checks the name as [`Self::check_name_now`] does, at most once a second.
    pub fn check_name(&self) -> Result {
        let mut looked = self.looked.lock().unwrap_or_else(PoisonError::into_inner);
        if looked.elapsed() < GLANCE {
            return Ok(());
        }
        *looked = Instant::now();
        drop(looked);
        self.check_name_now()
    }

    /// Fails if the name leads to no queue or to another queue, because the queue was removed.
    pub fn check_name_now(&self) -> Result {
        found(self.namespace, self.name, self.queue.identity())
            .map_err(|how| Failure::new(Code::Removed, format_args!("{}: {how}", self.name)))
    }
}

/// Checks that the name leads to the queue with this identity. Otherwise the error says whether the name now belongs to another queue.
fn found(namespace: &Namespace, name: &Name, identity: (u64, u64)) -> Result<(), &'static str> {
    match open(namespace, name, Purpose::Look) {
        Ok(found) if found.identity() == identity => Ok(()),
        Ok(_) => Err(
            "the queue was removed, and a new queue has its name; run the command again for the new queue",
        ),
        Err(error) if is_missing(&error) => {
            Err("the queue was removed; `umsg create` makes a new one")
        }
        // The name can't be opened, but the queue may still exist, for example with another mode.
        Err(_) => Ok(()),
    }
}

/// Returns whether a count exceeds the queue's depth, which means corruption. The counts are read one by one without the lock, so only each single
/// count can be checked.
fn is_nonsense(attributes: &Attributes) -> bool {
    let figures = [attributes.messages, attributes.leased, attributes.reserved];
    figures.iter().any(|count| *count > attributes.max_messages)
}

/// Opens the queue with the first access mode that is enough for the purpose and that the queue's mode permits.
fn open(namespace: &Namespace, name: &Name, purpose: Purpose) -> Result<Queue, OpenError> {
    let attempt = |read, write| {
        let mut options = OpenOptions::new();
        options
            .read(read)
            .write(write)
            .counted(matches!(purpose, Purpose::Receive | Purpose::Send))
            .namespace(namespace)
            .open(name)
    };
    let or = |first, second: (bool, bool)| match first {
        Err(OpenError::PermissionDenied) => attempt(second.0, second.1),
        other => other,
    };
    match purpose {
        Purpose::Receive | Purpose::See => attempt(true, false),
        Purpose::Send => attempt(false, true),
        Purpose::Look => or(attempt(true, false), (false, true)),
    }
}

/// Returns whether the namespace has a ring of this name.
pub fn is_ring(namespace: &Namespace, name: &Name) -> bool {
    umsg::ring::find(namespace, name).is_ok()
}

fn is_missing(error: &OpenError) -> bool {
    matches!(
        error,
        OpenError::NotFound
            | OpenError::Namespace(
                NamespaceError::Missing { .. } | NamespaceError::NoQueuesDirectory { .. }
            )
    )
}

/// Returns the failure for a queue whose mode denies the access. If the mode permits the caller only to send or only to receive, the text says so.
fn denied(namespace: &Namespace, name: &Name) -> Failure {
    let Ok(queue) = open(namespace, name, Purpose::Look) else {
        return rights::refused(namespace, name, OpenError::PermissionDenied);
    };
    let (mode, other) = (
        queue.mode(),
        OpenOptions::new()
            .read(true)
            .counted(false)
            .namespace(namespace)
            .open(name),
    );
    let only = if other.is_ok() {
        "receive from"
    } else {
        "send to"
    };
    let line = format!(
        "{name}: permission denied: mode {mode:04o} lets you only {only} the queue; run the command as the queue's owner or root"
    );
    Failure::new(Code::Failed, line)
}
