//! The System V queue that a command works with.

use umsg::Namespace;
use umsg::sysv::{self, OpenOptions, Queue};

use crate::address::Label;
use crate::failure::{Code, Failure, Result};

/// A queue, and how it was named.
pub struct Attached {
    pub queue: Queue,
    pub label: Label,
}

impl Attached {
    pub fn open(namespace: &Namespace, label: Label) -> Result<Attached> {
        let mut options = OpenOptions::new();
        let options = options.namespace(namespace);
        let queue = match label {
            Label::Key(sysv::PRIVATE) => return Err(keyless(label)),
            Label::Key(key) => options.open(key),
            Label::Id(id) => options.open_id(id),
        };
        let queue = queue.map_err(|error| Failure::of(label, error))?;
        Ok(Attached { queue, label })
    }
}

/// IPC_PRIVATE makes queues, and finds none.
fn keyless(label: Label) -> Failure {
    let line = format!(
        "{label}: queues that were made with key 0 have none to be found by; `umsg ls` shows their identifiers, such as id:32769"
    );
    Failure::new(Code::Failed, line)
}
