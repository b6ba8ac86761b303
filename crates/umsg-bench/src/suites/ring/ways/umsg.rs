//! umsg's rings.

use std::sync::Mutex;

use umsg::ring::{self, Options, Post, Until, Waiting};

use super::{BATCH, ENTRIES, PAYLOAD, Receiver, Sender, Way};
use crate::failure::Failure;

/// A ring without a name, inherited by forked processes.
pub struct Umsg {
    ring: Mutex<Option<ring::Ring>>,
    sender: ring::Sender,
    payload: usize,
}

impl Umsg {
    /// `payload`: whether messages have [`PAYLOAD`] bytes beside what io_uring's have.
    pub fn new(waiting: Waiting, payload: bool) -> Result<Self, Failure> {
        let ring = Options::new()
            .entries(ENTRIES as u32)
            .overflow(0)
            .create()
            .map_err(failure)?;
        ring.set_waiting(waiting);
        Ok(Self {
            sender: ring.sender(),
            ring: Mutex::new(Some(ring)),
            payload: if payload { PAYLOAD } else { 0 },
        })
    }
}

impl Way for Umsg {
    type Sender = Posting;
    type Receiver = Taking;

    fn sender(&self) -> Result<Posting, Failure> {
        Ok(Posting {
            sender: self.sender.clone(),
            payload: self.payload,
        })
    }

    fn receiver(&self) -> Result<Taking, Failure> {
        let mut ring = self.ring.lock().map_err(failure)?;
        let ring = ring.take();
        ring.map(Taking)
            .ok_or_else(|| Failure::new("the ring has a receiver"))
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

    fn post_batch(&mut self, value: u64) -> Result<(), Failure> {
        self.sender
            .send_batch(&[self.message(value); BATCH])
            .map_err(failure)
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
            .recv()
            .map(|message| message.user_data)
            .map_err(failure)
    }
}

#[cold]
fn failure(error: impl std::fmt::Display) -> Failure {
    Failure::new(format!("umsg: {error}"))
}
