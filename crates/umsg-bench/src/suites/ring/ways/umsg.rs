//! umsg's rings.

use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::Duration;

use umsg::Namespace;
use umsg::ring::{self, Options, Post, RingError, Until, Waiting};

use super::{BATCH, ENTRIES, PAYLOAD, Receiver, Sender, Way};
use crate::failure::Failure;

/// The interval between two attempts of a sender to open the ring.
const LOOK: Duration = Duration::from_micros(200);
/// The maximum number of attempts of a sender to open the ring.
const LOOKS: u32 = 50_000;

/// The name and the settings of a ring. The receiver makes the ring, because a ring belongs to the process that makes it.
pub struct Umsg {
    name: String,
    waiting: Waiting,
    payload: usize,
}

impl Umsg {
    /// Makes a ring. With `payload`, messages have [`PAYLOAD`] bytes in addition to the fields of a message of io_uring.
    pub fn new(waiting: Waiting, payload: bool) -> Self {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        // Relaxed: the value only has to be unique.
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        Self {
            name: format!("/ring-{number}"),
            waiting,
            payload: if payload { PAYLOAD } else { 0 },
        }
    }
}

impl Way for Umsg {
    type Sender = Posting;
    type Receiver = Taking;

    /// Returns a sender. Waits until the receiver has made the ring.
    fn sender(&self) -> Result<Posting, Failure> {
        for _ in 0..LOOKS {
            match ring::Sender::open(&self.name) {
                Ok(sender) => {
                    return Ok(Posting {
                        sender,
                        payload: self.payload,
                    });
                }
                Err(RingError::NotFound) => thread::sleep(LOOK),
                Err(error) => return Err(failure(error)),
            }
        }
        Err(Failure::new("umsg: the receiver has not created the ring"))
    }

    fn receiver(&self) -> Result<Taking, Failure> {
        let namespace = Namespace::resolve().map_err(failure)?;
        let ring = Options::new()
            .entries(ENTRIES as u32)
            .overflow(0)
            .create_in(&namespace, &self.name)
            .map_err(failure)?;
        ring.set_waiting(self.waiting);
        Ok(Taking(ring))
    }
}

pub struct Posting {
    sender: ring::Sender,
    payload: usize,
}

impl Posting {
    #[inline]
    fn message(&self, value: u64) -> Post {
        Post::new(value).payload(&[7; PAYLOAD][..self.payload])
    }
}

impl Sender for Posting {
    #[inline]
    fn post(&mut self, value: u64) -> Result<(), Failure> {
        self.sender.send(&self.message(value)).map_err(failure)
    }

    fn post_many(&mut self, value: u64, count: usize) -> Result<(), Failure> {
        let messages = [self.message(value); BATCH];
        self.sender.send_batch(&messages[..count]).map_err(failure)
    }
}

pub struct Taking(ring::Ring);

impl Receiver for Taking {
    fn wait(&mut self, count: usize) -> Result<(), Failure> {
        self.0
            .wait(count as u64, Until::Forever)
            .map(drop)
            .map_err(failure)
    }

    fn drain(&mut self, mut visit: impl FnMut(u64)) -> Result<(), Failure> {
        self.0
            .drain(|message| visit(message.user_data))
            .map(drop)
            .map_err(failure)
    }

    #[inline]
    fn next(&mut self) -> Result<u64, Failure> {
        self.0
            .receive()
            .map(|message| message.user_data)
            .map_err(failure)
    }
}

#[cold]
fn failure(error: impl std::fmt::Display) -> Failure {
    Failure::new(format!("umsg: {error}"))
}
