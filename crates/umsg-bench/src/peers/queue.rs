//! umsg's and the kernel's POSIX queue, as implementations of the trait `Peer`.

use std::marker::PhantomData;

use super::{Abilities, Link, Peer, Receiver, Sender, Way, whole};
use crate::backends::kernel::{Allowance, KernelQueue};
use crate::backends::umsg::UmsgQueue;
use crate::backends::{Errno, MessageQueue, Spec, Waiting};
use crate::failure::Failure;

/// A peer whose links are POSIX queues of the type `Q`: umsg's queues or the kernel's.
pub struct Queues<Q> {
    name: &'static str,
    about: &'static str,
    allowance: Option<Allowance>,
    kind: PhantomData<Q>,
}

/// Returns the peer that consists of umsg's queues, used through the native interface.
pub const fn umsg() -> Queues<UmsgQueue> {
    Queues {
        name: "umsg",
        about: "a POSIX queue through the native interface, which spins while that pays and then sleeps; asleep: told to sleep at once",
        allowance: None,
        kind: PhantomData,
    }
}

/// Returns the peer that consists of the kernel's queues. A queue is as deep as the kernel allows, up to the requested depth.
pub const fn kernel(allowance: Allowance) -> Queues<KernelQueue> {
    Queues {
        name: "kernel",
        about: "its POSIX queue, as deep as it allows",
        allowance: Some(allowance),
        kind: PhantomData,
    }
}

impl<Q: MessageQueue + Sync> Peer for Queues<Q> {
    type Link = Queue<Q>;

    const ABILITIES: Abilities = Abilities::ALL;

    fn name(&self) -> &'static str {
        self.name
    }

    fn about(&self) -> String {
        self.about.to_owned()
    }

    fn make(&self, spec: &Spec) -> Result<Queue<Q>, Failure> {
        let mut spec = *spec;
        if let Some(allowance) = self.allowance {
            spec.depth = allowance.deepest(spec.depth, spec.message_size)?;
        }
        Q::make(&spec).map(Queue)
    }
}

/// A queue, made by the process that later forks the sender and the receiver.
pub struct Queue<Q>(Q);

impl<Q: MessageQueue + Sync> Link for Queue<Q> {
    type Sender<'a>
        = End<'a, Q>
    where
        Q: 'a;
    type Receiver<'a>
        = End<'a, Q>
    where
        Q: 'a;

    fn sender(&self, way: Way) -> Result<End<'_, Q>, Failure> {
        self.0.set_waiting(match way {
            Way::Asleep => Waiting::Blocking,
            _ => Waiting::Adaptive,
        });
        Ok(End(&self.0))
    }

    fn receiver(&self, way: Way) -> Result<End<'_, Q>, Failure> {
        self.sender(way)
    }
}

/// The sending or the receiving end of a queue.
pub struct End<'a, Q>(&'a Q);

impl<Q: MessageQueue> Sender for End<'_, Q> {
    #[inline]
    fn send(&mut self, message: &[u8]) -> Result<(), Errno> {
        self.0.send(message, 0)
    }

    #[inline]
    fn try_send(&mut self, message: &[u8]) -> Result<(), Errno> {
        self.0.try_send(message, 0)
    }
}

impl<Q: MessageQueue> Receiver for End<'_, Q> {
    #[inline]
    fn receive(&mut self, buffer: &mut [u8]) -> Result<(), Errno> {
        self.0.receive(buffer).and_then(whole)
    }

    #[inline]
    fn try_receive(&mut self, buffer: &mut [u8]) -> Result<(), Errno> {
        self.0.try_receive(buffer).and_then(whole)
    }
}
