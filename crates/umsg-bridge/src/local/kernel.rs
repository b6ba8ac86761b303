//! Queues of the kernel: mq_overview(7).

use super::polled;
use crate::config::NewQueue;
use nix::errno::Errno;
use nix::mqueue::{MQ_OFlag, MqAttr, MqdT, mq_close, mq_getattr, mq_open, mq_receive, mq_send};
use nix::sys::stat::Mode;
use std::os::fd::{AsFd, OwnedFd};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// An open queue of the kernel.
#[derive(Debug)]
pub struct Queue {
    /// None only during the drop.
    descriptor: Option<MqdT>,
    polled: AsyncFd<OwnedFd>,
    message_size: usize,
    name: String,
    access: MQ_OFlag,
}

impl Queue {
    /// Opens a queue.
    ///
    /// # Errors
    /// The error is a sentence that names the setting.
    pub fn open(name: &str, new: Option<&NewQueue>, interest: Interest) -> Result<Queue, String> {
        let refuse = |what: &str, error: Errno| format!("`queue` kernel:{name}: {what}: {error}");
        let access = match interest.is_readable() {
            true => MQ_OFlag::O_RDONLY,
            false => MQ_OFlag::O_WRONLY,
        };
        let flags = access | MQ_OFlag::O_NONBLOCK | MQ_OFlag::O_CLOEXEC;
        let opened = match new {
            None => mq_open(name, flags, Mode::empty(), None),
            Some(new) => {
                let (most, size) = (i64::from(new.max_messages), new.message_size.0 as i64);
                let attributes = MqAttr::new(0, most, size, 0);
                mq_open(
                    name,
                    flags | MQ_OFlag::O_CREAT,
                    Mode::from_bits_truncate(0o600),
                    Some(&attributes),
                )
            }
        };
        let descriptor =
            opened.map_err(|error| refuse("the kernel's queue can't be opened", error))?;
        let attributes = mq_getattr(&descriptor).map_err(|error| refuse("mq_getattr", error))?;
        let polled = descriptor.as_fd().try_clone_to_owned();
        let polled = polled.and_then(|copy| polled::register(copy, interest));
        Ok(Queue {
            polled: polled.map_err(|error| format!("`queue` kernel:{name}: {error}"))?,
            descriptor: Some(descriptor),
            message_size: attributes.msgsize() as usize,
            name: name.to_owned(),
            access,
        })
    }

    /// Returns the longest message, in bytes.
    pub fn message_size(&self) -> usize {
        self.message_size
    }

    /// Returns whether the name still leads to this queue.
    pub fn is_current(&self) -> bool {
        let number = |descriptor: &MqdT| {
            let file = rustix::fs::fstat(descriptor.as_fd());
            file.map(|file| (file.st_dev, file.st_ino)).ok()
        };
        let flags = self.access | MQ_OFlag::O_CLOEXEC;
        let Ok(now) = mq_open(&*self.name, flags, Mode::empty(), None) else {
            return false;
        };
        let is_same = self.descriptor.as_ref().and_then(number) == number(&now);
        let _ = mq_close(now);
        is_same
    }

    fn descriptor(&self) -> Result<&MqdT, Errno> {
        self.descriptor.as_ref().ok_or(Errno::EBADF)
    }

    /// Receives a message and its priority. The buffer must have room for the longest message.
    pub fn try_receive(&self, buffer: &mut [u8]) -> Result<(usize, u32), Errno> {
        let mut priority = 0;
        let len = mq_receive(self.descriptor()?, buffer, &mut priority)?;
        Ok((len, priority))
    }

    /// Sends a message.
    pub fn try_send(&self, message: &[u8], priority: u32) -> Result<(), Errno> {
        mq_send(self.descriptor()?, message, priority)
    }

    /// Waits until the next call may succeed.
    pub async fn ready(&self, interest: Interest) {
        // The kernel reports each change, so that a stale readiness costs one attempt.
        if let Ok(mut ready) = self.polled.ready(interest).await {
            ready.clear_ready();
        }
    }
}

impl Drop for Queue {
    fn drop(&mut self) {
        if let Some(descriptor) = self.descriptor.take() {
            let _ = mq_close(descriptor);
        }
    }
}
