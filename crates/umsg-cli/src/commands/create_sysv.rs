//! `umsg create` of a System V queue.

use umsg::Namespace;
use umsg::SegmentError;
use umsg::sysv::{self, Change, ControlError, Entry, OpenError, OpenOptions};

use crate::address::Label;
use crate::attached::Attached;
use crate::failure::{Code, Failure, Result};
use crate::values::RetryDelay;

/// The given options. For an option that is None, a new queue gets the default, and an existing queue may have any value.
#[derive(Clone, Copy, Debug)]
pub struct Wanted {
    pub qbytes: Option<u32>,
    pub mode: Option<u32>,
    pub exclusive: bool,
    pub retry_delay: Option<RetryDelay>,
    pub close_with_last_producer: bool,
}

impl Wanted {
    /// Opens or creates the queue of a key, and returns whether it was created. Fails if the attributes of an existing queue differ from the options.
    pub fn create(&self, namespace: &Namespace, label: Label) -> Result<(Attached, bool)> {
        let Label::Key(key, _) = label else {
            let line = format!(
                "{label}: umsg assigns the identifiers; create the queue with a key, such as key:0x1234, or with key:0 for a queue without a key"
            );
            return Err(Failure::new(Code::Usage, line));
        };
        self.check(namespace)?;
        match self.make(namespace, key) {
            Ok(queue) => Ok((Attached::new(namespace, queue, label), true)),
            Err(OpenError::AlreadyExists) if !self.exclusive => {
                let found = Attached::open(namespace, label)?;
                self.compare(label, &entry(namespace, &found)?, &found)?;
                Ok((found, false))
            }
            Err(error) => Err(Failure::of(label, error)),
        }
    }

    fn make(&self, namespace: &Namespace, key: i32) -> Result<sysv::Queue, OpenError> {
        let mut options = OpenOptions::new();
        options.namespace(namespace).create(true).exclusive(true);
        if let Some(delay) = self.retry_delay {
            options.retry_delay(delay.first, delay.most);
        }
        options.close_with_last_producer(self.close_with_last_producer);
        let queue = options.mode(self.mode.unwrap_or(0o600)).open(key)?;
        let change = Change {
            qbytes: self.qbytes.map(u64::from),
            ..Change::default()
        };
        if self.qbytes.is_none() {
            return Ok(queue);
        }
        // `check` has accepted the values. So the call fails only if another process has changed the limits or removed the queue since then.
        match queue.set(&change) {
            Ok(()) => Ok(queue),
            Err(ControlError::Open(error)) => Err(error),
            Err(error) => Err(OpenError::Segment(SegmentError::System {
                call: "IPC_SET",
                error: std::io::Error::from_raw_os_error(error.errno()),
            })),
        }
    }

    /// Checks the options against the namespace's limits. In the kernel, root may exceed the limit. In umsg, no user may: the queue's file has no
    /// room for more.
    fn check(&self, namespace: &Namespace) -> Result {
        let limits = namespace.limits()?;
        let most = limits.max_qbytes.max(limits.msgmnb);
        match self.qbytes {
            Some(bytes) if bytes > most => Err(Failure::new(
                Code::Failed,
                format_args!(
                    "--qbytes is {bytes}, and must be at most {most}, the namespace's limit; `umsg limits --max-qbytes` raises the limit"
                ),
            )),
            _ => Ok(()),
        }
    }

    /// Fails if the attributes of an existing queue differ from the options.
    fn compare(&self, label: Label, found: &Entry, queue: &Attached) -> Result {
        let qbytes = self
            .qbytes
            .filter(|wanted| u64::from(*wanted) != found.qbytes)
            .map(|_| format!("--qbytes {}", found.qbytes));
        let mode = self
            .mode
            .filter(|wanted| *wanted != found.mode)
            .map(|_| format!("--mode {:04o}", found.mode));
        let policy = queue.queue.delivery();
        let found_delay = policy.retry_delay.map(RetryDelay::from);
        let delay = self
            .retry_delay
            .filter(|wanted| Some(*wanted) != found_delay)
            .map(|_| match found_delay {
                Some(found) => format!("--retry-delay {found}"),
                None => "no --retry-delay".to_owned(),
            });
        let closes = (self.close_with_last_producer && !policy.close_with_last_producer)
            .then(|| "no --close-with-last-producer".to_owned());
        let others = [qbytes, mode, delay, closes];
        let others: Vec<String> = others.into_iter().flatten().collect();
        if others.is_empty() {
            return Ok(());
        }
        let line = format!(
            "{label}: the queue exists with {}; remove it first with `umsg rm`, or leave these options out to use it as it is",
            others.join(" and ")
        );
        Err(Failure::new(Code::Failed, line))
    }
}

/// Returns the attributes of a queue. Every user may read these attributes, whatever the queue's mode.
pub fn entry(namespace: &Namespace, of: &Attached) -> Result<Entry> {
    let id = of.queue.id();
    let all = sysv::list(namespace).map_err(|error| Failure::of(of.label, error))?;
    let entry = all.into_iter().find(|entry| entry.id == id);
    entry.ok_or_else(|| {
        Failure::new(
            Code::Removed,
            format_args!("{}: the queue was removed", of.label),
        )
    })
}
