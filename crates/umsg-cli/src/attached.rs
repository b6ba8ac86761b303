//! The System V queue that a command works with.

use umsg::Namespace;
use umsg::sysv::{self, ControlError, OpenOptions, Queue, ReceiveError, SendError};

use crate::address::Label;
use crate::failure::{Code, Explain, Failure, NO_MATCH, Result, closed, without_advice};
use crate::held_up;
use crate::lookout::Lookout;
use crate::rights;

/// An open queue, its name on the command line, and its namespace.
pub struct Attached {
    pub queue: Queue,
    pub label: Label,
    /// The thread that interrupts waits. It is not needed for the removal of the queue: the removal itself ends the waits.
    pub lookout: Lookout,
    namespace: Namespace,
}

impl Attached {
    pub fn open(namespace: &Namespace, label: Label) -> Result<Attached> {
        let mut options = OpenOptions::new();
        let options = options.namespace(namespace);
        let queue = match label {
            Label::Key(sysv::PRIVATE, _) => return Err(keyless(label)),
            Label::Key(key, _) => options.open(key),
            Label::Id(id) => options.open_id(id),
        };
        let queue = queue.map_err(|error| rights::refused_labelled(namespace, label, error))?;
        Ok(Attached::new(namespace, queue, label))
    }

    pub fn new(namespace: &Namespace, queue: Queue, label: Label) -> Attached {
        let namespace = namespace.clone();
        Attached {
            queue,
            label,
            lookout: Lookout::default(),
            namespace,
        }
    }

    /// Explains why a message was not sent, and what to do.
    pub fn explain_send(&self, error: &SendError) -> String {
        let why = match error {
            SendError::Full | SendError::TimedOut => self.held_up(),
            SendError::PermissionDenied => self.denied(),
            SendError::Closed => Some(closed(self.label)),
            _ => None,
        };
        why.unwrap_or_else(|| error.explain())
    }

    /// Explains that no receive makes room for a message of `len` bytes, because it is larger than the whole queue. As in the kernel, its send waits.
    pub fn explain_never_fits(&self, error: &SendError, len: usize) -> Option<String> {
        let qbytes = match error {
            SendError::Full | SendError::TimedOut => self.queue.entry().ok()?.qbytes,
            _ => return None,
        };
        (len as u64 > qbytes).then(|| {
            format!(
                "the message has {len} bytes, and the queue has room for at most {qbytes} bytes; create the queue again with a larger --qbytes"
            )
        })
    }

    /// Explains why no message was received, and what to do.
    pub fn not_received(&self, error: &ReceiveError) -> Failure {
        let why = match error {
            ReceiveError::NoMessage | ReceiveError::TimedOut => self.held_up(),
            ReceiveError::PermissionDenied => self.denied(),
            _ => None,
        };
        let why = why.or_else(|| self.others(error));
        let why = why.unwrap_or_else(|| error.explain());
        Failure::new(error.code(), format_args!("{}: {why}", self.label))
    }

    /// Explains that the queue has messages that can't be received now.
    fn others(&self, error: &ReceiveError) -> Option<String> {
        let now = match error {
            ReceiveError::NoMessage | ReceiveError::TimedOut => self.queue.glance().ok()?,
            _ => return None,
        };
        let others = match (now.leased, now.delayed) {
            (0, 0) => return None,
            (0, delayed) => format!("delayed messages ({delayed}) are delivered when they are due"),
            (leased, _) => format!("leased messages ({leased}) return if their receivers fail"),
        };
        let failure = match error {
            ReceiveError::NoMessage => NO_MATCH.to_owned(),
            error => without_advice(error),
        };
        Some(format!("{failure}; {others}"))
    }

    /// Explains why messages were not shown, and what to do. The caller has excluded the error "no message".
    pub fn not_seen(&self, error: &ReceiveError) -> Failure {
        self.not_received(error).coded(Code::Failed)
    }

    /// Explains why the queue's state can't be read, and what to do.
    pub fn not_told(&self, error: ControlError) -> Failure {
        let why = match error {
            ControlError::Busy => Some(self.lock()),
            ControlError::PermissionDenied => self.denied(),
            _ => None,
        };
        let why = why.unwrap_or_else(|| error.explain());
        Failure::new(error.code(), format_args!("{}: {why}", self.label))
    }

    /// Names the mode and the owner of a queue that denies an access.
    fn denied(&self) -> Option<String> {
        rights::denied(&self.namespace, self.label)
    }

    /// Names the stopped process that holds the queue's lock.
    pub fn held_up(&self) -> Option<String> {
        match self.queue.status() {
            Err(ControlError::Busy) => Some(self.lock()),
            _ => None,
        }
    }

    /// Explains why the queue's lock can't be taken.
    fn lock(&self) -> String {
        held_up::labelled(&self.namespace, self.queue.id(), self.label)
    }
}

/// Returns the failure for the key 0 (IPC_PRIVATE), which creates queues and finds none.
fn keyless(label: Label) -> Failure {
    let line = format!(
        "{label}: key 0 (IPC_PRIVATE) finds no queue; `umsg ls` shows the identifiers of queues, such as id:32769"
    );
    Failure::new(Code::Failed, line)
}
