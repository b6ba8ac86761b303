//! How long a command waits for a message or for room.

use std::time::Duration;

use clap::Args;
use umsg::posix::{Queue, ReceiveError, Received, SendError};

use crate::values;

#[derive(Args, Clone, Debug)]
pub struct Patience {
    /// Wait at most so long for each message, then exit with 3 [default: for ever]
    #[arg(long, value_name = "SECONDS", value_parser = values::seconds)]
    pub timeout: Option<Duration>,
    /// Do not wait: exit with 3 if the queue is not ready
    #[arg(long, conflicts_with = "timeout")]
    pub nonblocking: bool,
}

impl Patience {
    pub fn send(&self, queue: &Queue, message: &[u8], priority: u32) -> Result<(), SendError> {
        match self.timeout {
            Some(timeout) => queue.send_timeout(message, priority, timeout),
            None if self.nonblocking => queue.try_send(message, priority),
            None => queue.send(message, priority),
        }
    }

    pub fn receive(&self, queue: &Queue, buffer: &mut [u8]) -> Result<Received, ReceiveError> {
        match self.timeout {
            Some(timeout) => queue.receive_timeout(buffer, timeout),
            None if self.nonblocking => queue.try_receive(buffer),
            None => queue.receive(buffer),
        }
    }
}
