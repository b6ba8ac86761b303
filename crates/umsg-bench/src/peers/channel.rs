//! crossbeam-channel, between two threads of a process.

use crossbeam_channel::{self as channel, TryRecvError, TrySendError};

use super::{Abilities, Link, Peer, Receiver, SIZE, Sender, Way};
use crate::backends::{Errno, Spec};
use crate::failure::Failure;

/// The peer that sends through channels of the crate crossbeam-channel.
pub struct Crossbeam;

impl Peer for Crossbeam {
    type Link = Channel;

    const ABILITIES: Abilities = Abilities {
        crosses: false,
        ..Abilities::ALL
    };

    fn name(&self) -> &'static str {
        "crossbeam (threads)"
    }

    fn about(&self) -> String {
        "crossbeam-channel 0.5, bounded, between two threads of one process, so that there is no kill trial; its calls that wait look a \
         few times and give way before they sleep, also where others are asleep at once"
            .to_owned()
    }

    fn make(&self, spec: &Spec) -> Result<Channel, Failure> {
        let (sender, receiver) = channel::bounded(spec.depth as usize);
        Ok(Channel { sender, receiver })
    }
}

type Message = [u8; SIZE];

/// The two ends; each thread takes a copy of its end.
pub struct Channel {
    sender: channel::Sender<Message>,
    receiver: channel::Receiver<Message>,
}

impl Link for Channel {
    type Sender<'a> = channel::Sender<Message>;
    type Receiver<'a> = channel::Receiver<Message>;

    fn sender(&self, _way: Way) -> Result<channel::Sender<Message>, Failure> {
        Ok(self.sender.clone())
    }

    fn receiver(&self, _way: Way) -> Result<channel::Receiver<Message>, Failure> {
        Ok(self.receiver.clone())
    }
}

/// The error if the other end is closed.
const GONE: Errno = Errno(libc::EPIPE);

/// Returns a copy of a message, as the channel carries it.
#[inline]
fn copied(message: &[u8]) -> Result<Message, Errno> {
    message.try_into().map_err(|_| Errno(libc::EMSGSIZE))
}

impl Sender for channel::Sender<Message> {
    #[inline]
    fn send(&mut self, message: &[u8]) -> Result<(), Errno> {
        channel::Sender::send(self, copied(message)?).map_err(|_| GONE)
    }

    #[inline]
    fn try_send(&mut self, message: &[u8]) -> Result<(), Errno> {
        channel::Sender::try_send(self, copied(message)?).map_err(|error| match error {
            TrySendError::Full(_) => Errno::AGAIN,
            TrySendError::Disconnected(_) => GONE,
        })
    }
}

impl Receiver for channel::Receiver<Message> {
    #[inline]
    fn receive(&mut self, buffer: &mut [u8]) -> Result<(), Errno> {
        buffer.copy_from_slice(&self.recv().map_err(|_| GONE)?);
        Ok(())
    }

    #[inline]
    fn try_receive(&mut self, buffer: &mut [u8]) -> Result<(), Errno> {
        let message = self.try_recv().map_err(|error| match error {
            TryRecvError::Empty => Errno::AGAIN,
            TryRecvError::Disconnected => GONE,
        })?;
        buffer.copy_from_slice(&message);
        Ok(())
    }
}
