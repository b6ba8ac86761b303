//! umsg itself, through its native interface.

use std::path::PathBuf;

use ::umsg::Namespace;
use ::umsg::posix::{self, Queue, ReceiveError, Received};

use super::{Errno, MessageQueue, Spec, Waiting, fresh_name};
use crate::failure::Failure;

/// A queue of umsg, in the namespace that the supervisor made.
pub struct UmsgQueue {
    queue: Queue,
}

/// Makes a queue whose name is not removed after the creation. Returns the queue and the path of its file.
pub fn make_with_file(spec: &Spec) -> Result<(UmsgQueue, PathBuf), Failure> {
    let (queue, name) = make_named(spec)?;
    let namespace = Namespace::resolve()
        .map_err(|error| Failure::new(format!("umsg can't open the namespace: {error}")))?;
    let file = namespace
        .path()
        .join("mq")
        .join(name.trim_start_matches('/'));
    Ok((queue, file))
}

fn make_named(spec: &Spec) -> Result<(UmsgQueue, String), Failure> {
    let name = fresh_name();
    let queue = Queue::create(&name, spec.depth, spec.message_size)
        .map_err(|error| Failure::new(format!("umsg can't create a queue: {error}")))?;
    Ok((UmsgQueue { queue }, name))
}

#[inline]
fn len(received: Result<Received, ReceiveError>) -> Result<usize, Errno> {
    match received {
        Ok(received) => Ok(received.len),
        Err(error) => Err(Errno(error.errno())),
    }
}

impl UmsgQueue {
    /// Returns the queue itself, for operations that the kernel's queues don't have.
    pub fn queue(&self) -> &Queue {
        &self.queue
    }
}

impl MessageQueue for UmsgQueue {
    fn make(spec: &Spec) -> Result<Self, Failure> {
        let (queue, name) = make_named(spec)?;
        posix::unlink(&name)
            .map_err(|error| Failure::new(format!("umsg can't unlink {name}: {error}")))?;
        Ok(queue)
    }

    #[inline]
    fn send(&self, message: &[u8], priority: u32) -> Result<(), Errno> {
        self.queue
            .send(message, priority)
            .map_err(|error| Errno(error.errno()))
    }

    #[inline]
    fn try_send(&self, message: &[u8], priority: u32) -> Result<(), Errno> {
        self.queue
            .try_send(message, priority)
            .map_err(|error| Errno(error.errno()))
    }

    #[inline]
    fn receive(&self, buffer: &mut [u8]) -> Result<usize, Errno> {
        len(self.queue.receive(buffer))
    }

    #[inline]
    fn try_receive(&self, buffer: &mut [u8]) -> Result<usize, Errno> {
        len(self.queue.try_receive(buffer))
    }

    fn set_waiting(&self, waiting: Waiting) {
        self.queue.set_waiting(match waiting {
            Waiting::Adaptive => posix::Waiting::Adaptive,
            Waiting::Blocking => posix::Waiting::Blocking,
        });
    }
}
