//! The local end of an export, which takes messages by lease.

use super::{Held, Key, Taken, opened, polled, posix_identity, spool, sysv_identity};
use crate::config::{Bridge, End};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use umsg::posix::{self, Until};
use umsg::sysv::{self, Want};
use umsg::{Namespace, sysv::ReceiveError as SysvReceiveError};

/// A queue whose messages are exported.
#[derive(Debug)]
pub struct Exporter {
    queue: Queue,
    polled: AsyncFd<OwnedFd>,
    identity: u64,
    /// True if each message begins with the fields of a ring's message.
    is_framed: bool,
}

#[derive(Debug)]
enum Queue {
    Posix(Arc<posix::Queue>),
    Sysv(Arc<sysv::Queue>),
}

impl Exporter {
    /// Opens the queue of an export, or its spool.
    ///
    /// # Errors
    /// The error is a sentence that names the setting.
    pub fn open(namespace: &Namespace, bridge: &Bridge) -> Result<Exporter, String> {
        let new = bridge.create_queue.as_ref();
        let (queue, identity) = match &bridge.queue {
            End::Key(_) | End::Id(_) => {
                let queue = opened::sysv(namespace, bridge)?;
                let identity = sysv_identity(&queue, namespace);
                (Queue::Sysv(Arc::new(queue)), identity)
            }
            end => {
                let queue = match end {
                    End::Posix(name) => opened::posix(namespace, (name, new))?,
                    _ => spool::queue(namespace, bridge)?,
                };
                let identity = posix_identity(&queue);
                (Queue::Posix(Arc::new(queue)), identity)
            }
        };
        let descriptor = match &queue {
            Queue::Posix(queue) => queue.pollable(),
            Queue::Sysv(queue) => queue.pollable(),
        };
        let descriptor = descriptor.and_then(|descriptor| descriptor.try_clone_to_owned());
        let polled = descriptor
            .and_then(|descriptor| polled::register(descriptor, Interest::READABLE))
            .map_err(|error| {
                format!(
                    "`queue` {}: the queue can't be polled: {error}",
                    bridge.queue
                )
            })?;
        Ok(Exporter {
            queue,
            polled,
            identity,
            is_framed: matches!(bridge.queue, End::Ring(_)),
        })
    }

    /// Takes the next message, if there is one.
    ///
    /// # Errors
    /// The error is the sentence of the library: the queue is removed or corrupted.
    pub fn try_take(&self) -> Result<Option<Taken>, String> {
        match &self.queue {
            Queue::Posix(queue) => match queue.receive_lease_owned(Until::Now) {
                Ok(lease) => self.taken_posix(lease).map(Some),
                // A queue that is closed for sending is no error for the bridge: the queue may be opened for sending again.
                Err(posix::ReceiveError::Empty | posix::ReceiveError::Closed) => Ok(None),
                Err(error) => Err(error.to_string()),
            },
            Queue::Sysv(queue) => match queue.receive_lease_owned(Want::Any, Until::Now) {
                Ok(lease) => self.taken_sysv(lease).map(Some),
                Err(SysvReceiveError::NoMessage | SysvReceiveError::Closed) => Ok(None),
                Err(error) => Err(error.to_string()),
            },
        }
    }

    fn name(&self, number: u64, stamp: u64) -> String {
        super::id(self.identity, number, stamp)
    }

    fn taken_posix(&self, lease: posix::Lease<'static>) -> Result<Taken, String> {
        let number = lease.message_id().map_err(|error| error.to_string())?;
        let data = bytes::Bytes::from(lease.to_vec());
        let (key, data) = match self.is_framed {
            true => spool::unframe(&data).ok_or("the spool has a message without its fields")?,
            false => (Key::Priority(lease.priority()), data),
        };
        Ok(Taken {
            data,
            key,
            id: self.name(number, lease.stamp()),
            sent: lease.sent(),
            pid: lease.pid(),
            held: Held::Posix(lease),
        })
    }

    fn taken_sysv(&self, lease: sysv::Lease<'static>) -> Result<Taken, String> {
        let number = lease.message_id().map_err(|error| error.to_string())?;
        Ok(Taken {
            data: lease.to_vec().into(),
            key: Key::Type(lease.mtype()),
            id: self.name(number, lease.stamp()),
            sent: lease.sent(),
            pid: lease.pid(),
            held: Held::Sysv(lease),
        })
    }

    /// Waits until there may be a message.
    pub async fn readable(&self) {
        // An error of the registration means that the runtime ends.
        let Ok(mut ready) = self.polled.readable().await else {
            return std::future::pending().await;
        };
        let readiness = match &self.queue {
            Queue::Posix(queue) => queue.readiness(),
            Queue::Sysv(queue) => queue.readiness(),
        };
        if !readiness.readable {
            ready.clear_ready();
        }
    }

    /// Returns whether the queue has no message that could be taken now.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        match &self.queue {
            Queue::Posix(queue) => queue.attributes().messages == 0,
            Queue::Sysv(queue) => queue
                .glance()
                .map_or(true, |glance| glance.entry.messages == 0),
        }
    }

    /// Returns the time to live of the queue's messages.
    #[must_use]
    pub fn ttl(&self) -> Option<Duration> {
        match &self.queue {
            Queue::Posix(queue) => queue.status().time_to_live,
            Queue::Sysv(_) => None,
        }
    }

    /// Returns whether the name still refers to this queue. A process may have removed the queue and made another one.
    #[must_use]
    pub fn is_current(&self, namespace: &Namespace, bridge: &Bridge) -> bool {
        match (&self.queue, &bridge.queue) {
            (Queue::Sysv(queue), _) => !queue.is_removed(),
            (Queue::Posix(queue), End::Posix(name)) => opened::is_named(namespace, name, queue),
            _ => true,
        }
    }
}
