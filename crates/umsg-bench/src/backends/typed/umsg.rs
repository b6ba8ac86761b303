//! umsg's System V queues, through its native interface.

use ::umsg::Namespace;
use ::umsg::sysv::{self, Change, OpenOptions, Queue, ReceiveError, Received};

use super::{DEFAULT_BYTES, SIZE, Totals, TypedQueue, Want};
use crate::backends::{Errno, Waiting};
use crate::failure::Failure;

/// A queue of umsg, in the namespace that the supervisor made.
pub struct UmsgQueue {
    namespace: Namespace,
    queue: Queue,
}

/// Returns the number that is the text of the message that a call receives.
#[inline]
fn number_of(
    receive: impl FnOnce(&mut [u8]) -> Result<Received, ReceiveError>,
) -> Result<u64, Errno> {
    let mut number = [0; SIZE as usize];
    receive(&mut number).map_err(|error| Errno(error.errno()))?;
    Ok(u64::from_ne_bytes(number))
}

impl TypedQueue for UmsgQueue {
    fn make(bytes: u64) -> Result<Self, Failure> {
        let namespace = Namespace::resolve().map_err(failed)?;
        let queue = OpenOptions::new().namespace(&namespace).open(sysv::PRIVATE);
        let queue = Self {
            queue: queue.map_err(failed)?,
            namespace,
        };
        let change = Change {
            qbytes: (bytes != DEFAULT_BYTES).then_some(bytes),
            ..Change::default()
        };
        queue.queue.set(&change).map_err(failed)?;
        Ok(queue)
    }

    fn totals() -> Result<Totals, Failure> {
        let namespace = Namespace::resolve().map_err(failed)?;
        let totals = sysv::totals(&namespace).map_err(failed)?;
        Ok(Totals {
            messages: totals.messages,
            bytes: totals.bytes,
        })
    }

    #[inline]
    fn send(&self, mtype: i64, number: u64) -> Result<(), Errno> {
        let sent = self.queue.send(mtype, &number.to_ne_bytes());
        sent.map_err(|error| Errno(error.errno()))
    }

    #[inline]
    fn try_send(&self, mtype: i64, number: u64) -> Result<(), Errno> {
        let sent = self.queue.try_send(mtype, &number.to_ne_bytes());
        sent.map_err(|error| Errno(error.errno()))
    }

    #[inline]
    fn receive(&self, want: Want) -> Result<u64, Errno> {
        number_of(|number| self.queue.receive(native(want), number))
    }

    #[inline]
    fn try_receive(&self, want: Want) -> Result<u64, Errno> {
        number_of(|number| self.queue.try_receive(native(want), number))
    }

    fn set_waiting(&self, waiting: Waiting) {
        self.queue.set_waiting(match waiting {
            Waiting::Adaptive => sysv::Waiting::Adaptive,
            Waiting::Blocking => sysv::Waiting::Blocking,
        });
    }
}

impl Drop for UmsgQueue {
    fn drop(&mut self) {
        if let Err(error) = sysv::remove(&self.namespace, self.queue.id()) {
            eprintln!("umsg-bench: a System V queue of umsg was not removed: {error}");
        }
    }
}

#[cold]
fn failed(error: impl std::fmt::Display) -> Failure {
    Failure::new(format!("umsg's System V queues: {error}"))
}

#[inline(always)]
fn native(want: Want) -> sysv::Want {
    match want {
        Want::Exactly(mtype) => sysv::Want::Exactly(mtype),
        Want::Lowest(mtype) => sysv::Want::Lowest(mtype),
        Want::Except(mtype) => sysv::Want::Except(mtype),
    }
}

/// A queue of umsg that wakes threads as the kernel did until 2016: a call wakes another thread while the call still holds the queue's lock.
pub struct InsideLock(UmsgQueue);

impl TypedQueue for InsideLock {
    fn make(bytes: u64) -> Result<Self, Failure> {
        let queue = UmsgQueue::make(bytes)?;
        queue.queue.set_wake_inside_lock(true);
        Ok(Self(queue))
    }

    fn totals() -> Result<Totals, Failure> {
        UmsgQueue::totals()
    }

    #[inline]
    fn send(&self, mtype: i64, number: u64) -> Result<(), Errno> {
        self.0.send(mtype, number)
    }

    #[inline]
    fn try_send(&self, mtype: i64, number: u64) -> Result<(), Errno> {
        self.0.try_send(mtype, number)
    }

    #[inline]
    fn receive(&self, want: Want) -> Result<u64, Errno> {
        self.0.receive(want)
    }

    #[inline]
    fn try_receive(&self, want: Want) -> Result<u64, Errno> {
        self.0.try_receive(want)
    }

    fn set_waiting(&self, waiting: Waiting) {
        self.0.set_waiting(waiting);
    }
}
