//! Queues of the kernel, for use in the asynchronous runtime.

use super::polled;
use crate::config::NewQueue;
use rustix::io::Errno;
use std::os::fd::{AsFd, OwnedFd};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use umsg_carry::kernel::posix::{self, Access, New};

/// An open queue of the kernel.
#[derive(Debug)]
pub struct Queue {
    queue: posix::Queue,
    polled: AsyncFd<OwnedFd>,
}

impl Queue {
    /// Opens a queue.
    ///
    /// # Errors
    /// The error is a sentence that names the setting.
    pub fn open(name: &str, new: Option<&NewQueue>, interest: Interest) -> Result<Queue, String> {
        let access = match interest.is_readable() {
            true => Access::Receive,
            false => Access::Send,
        };
        let new = new.map(|new| New {
            limits: Some((u64::from(new.max_messages), new.message_size.0)),
            mode: 0o600,
            must_be_new: false,
        });
        let queue = posix::Queue::open(name.as_bytes(), (access, false), new).map_err(|error| {
            format!("`queue` kernel:{name}: the kernel's queue can't be opened: {error}")
        })?;
        let copy = queue.as_fd().try_clone_to_owned();
        let polled = copy.and_then(|copy| polled::register(copy, interest));
        Ok(Queue {
            polled: polled.map_err(|error| format!("`queue` kernel:{name}: {error}"))?,
            queue,
        })
    }

    /// Returns the device and the inode number of the queue. A queue that is removed and created again has another inode number.
    pub fn file(&self) -> Result<(u64, u64), Errno> {
        let file = rustix::fs::fstat(&self.queue)?;
        Ok((file.st_dev, file.st_ino))
    }

    /// Returns the maximum length of a message, in bytes.
    pub fn message_size(&self) -> usize {
        self.queue.message_size()
    }

    /// Returns whether the name still refers to this queue.
    pub fn is_current(&self) -> bool {
        self.queue.is_current()
    }

    /// Receives a message and its priority. The buffer must have room for the longest message.
    pub fn try_receive(&self, buffer: &mut [u8]) -> Result<(usize, u32), Errno> {
        self.queue.receive(buffer)
    }

    /// Sends a message.
    pub fn try_send(&self, message: &[u8], priority: u32) -> Result<(), Errno> {
        self.queue.send(message, priority)
    }

    /// Waits until the next call may succeed.
    pub async fn ready(&self, interest: Interest) {
        // The kernel reports each change, so an outdated readiness costs only one attempt.
        if let Ok(mut ready) = self.polled.ready(interest).await {
            ready.clear_ready();
        }
    }
}
