//! crossbeam-channel, which works between threads.

use crossbeam_channel as channel;

use super::{ENTRIES, PAYLOAD, Receiver, Sender, Way};
use crate::failure::Failure;

/// A message of the same size as a message of umsg's ring.
type Message = (u64, u64, [u8; PAYLOAD]);

/// A bounded channel.
pub struct Channel {
    sender: channel::Sender<Message>,
    receiver: channel::Receiver<Message>,
}

impl Channel {
    pub fn new() -> Self {
        let (sender, receiver) = channel::bounded(ENTRIES);
        Self { sender, receiver }
    }
}

impl Way for Channel {
    type Sender = channel::Sender<Message>;
    type Receiver = Taking;

    fn sender(&self) -> Result<Self::Sender, Failure> {
        Ok(self.sender.clone())
    }

    fn receiver(&self) -> Result<Taking, Failure> {
        Ok(Taking {
            receiver: self.receiver.clone(),
            first: None,
        })
    }
}

impl Sender for channel::Sender<Message> {
    #[inline]
    fn post_many(&mut self, value: u64, count: usize) -> Result<(), Failure> {
        let message = (value, 0, [7; PAYLOAD]);
        (0..count).try_for_each(|_| self.send(message).map_err(failure))
    }
}

pub struct Taking {
    receiver: channel::Receiver<Message>,
    /// The message that a wait has received, because a channel's receiver can't wait without receiving.
    first: Option<u64>,
}

impl Receiver for Taking {
    fn wait(&mut self, _count: usize) -> Result<(), Failure> {
        self.first = Some(self.next()?);
        Ok(())
    }

    fn drain(&mut self, mut visit: impl FnMut(u64)) -> Result<(), Failure> {
        self.first.take().into_iter().for_each(&mut visit);
        self.receiver
            .try_iter()
            .for_each(|message| visit(message.0));
        Ok(())
    }

    #[inline]
    fn next(&mut self) -> Result<u64, Failure> {
        self.receiver
            .recv()
            .map(|message| message.0)
            .map_err(failure)
    }
}

#[cold]
fn failure(error: impl std::fmt::Display) -> Failure {
    Failure::new(format!("crossbeam-channel: {error}"))
}
