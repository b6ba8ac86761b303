//! Receiving all messages that are in a ring.

use super::{Ring, drop_descriptor, error, lets_in, message, passed};
use crate::error::QueueError;
use crate::ring::error::ReceiveError;
use crate::ring::message::Message;
use std::sync::Arc;
use umsg_shm::posix_engine::batch::Sink;
use umsg_shm::posix_engine::{Refused, Taken};
use umsg_shm::sys::clock::Deadline;
use umsg_shm::sys::thread;

impl Ring {
    /// Receives all messages in the ring, and calls `visit` with each message. Returns the number of received messages. The call may also receive
    /// messages that come during the call, but it ends even if senders continue. Only a result of 0 means that the ring was empty.
    ///
    /// ```
    /// # let mut ring = umsg::ring::Options::new().create()?;
    /// # let sender = ring.sender();
    /// sender.send(&umsg::ring::Post::new(7))?;
    /// sender.send(&umsg::ring::Post::new(7))?;
    /// let mut sum = 0;
    /// assert_eq!(ring.drain(|message| sum += message.user_data)?, 2);
    /// assert_eq!(sum, 14);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// `Damaged`, `WouldDeadlock`.
    pub fn drain(&mut self, visit: impl FnMut(Message<'_>)) -> Result<u64, ReceiveError> {
        self.drain_some(u64::MAX, visit)
    }

    /// Receives at most `most` messages as [`drain`](Ring::drain) does.
    ///
    /// ```
    /// # let mut ring = umsg::ring::Options::new().create()?;
    /// # let sender = ring.sender();
    /// sender.send(&umsg::ring::Post::new(7))?;
    /// sender.send(&umsg::ring::Post::new(7))?;
    /// assert_eq!(ring.drain_some(1, |message| println!("{message:?}"))?, 1);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// The errors of [`drain`](Ring::drain).
    pub fn drain_some(
        &mut self,
        most: u64,
        mut visit: impl FnMut(Message<'_>),
    ) -> Result<u64, ReceiveError> {
        self.check_owner()?;
        // The call receives at most as many messages as the ring can hold, so that it ends even if senders continue.
        let bound = most.min(self.shared.engine.segment().layout().max_messages as u64);
        let together = self.buffer.len() / self.stride;
        let button = self.polled.then(|| Arc::clone(&self.shared.button));
        let button = button.as_deref();
        let (mut count, mut is_empty) = (0, false);
        while !is_empty && count < bound {
            let most = together.min((bound - count) as usize);
            let taken = match self.take_together(most) {
                Ok(taken) => taken,
                Err(Refused::NotNow) => break,
                Err(refused) => return Err(error(&self.shared, refused)),
            };
            for (index, &taken) in self.taken.iter().enumerate() {
                let bytes = &self.buffer[index * self.stride..];
                if !lets_in(&mut self.filter, &mut self.refused, taken) {
                    drop_descriptor(bytes, taken, &mut self.doorbell, button);
                    continue;
                }
                let message = message(bytes, taken, &mut self.doorbell, button);
                visit(message.ok_or(ReceiveError::Queue(QueueError::Damaged))?);
            }
            count += taken as u64;
            is_empty = taken < most;
        }
        self.note_pace(count);
        if self.polled && self.available() == 0 {
            self.update_descriptor();
        }
        if !self.polled {
            self.doorbell.take_in(passed(&self.shared));
        }
        Ok(count)
    }

    /// Tells the next wait whether this call found several messages, as in a stream.
    #[inline]
    fn note_pace(&self, count: u64) {
        let pacing = &self.shared.engine.pacing;
        if count > 1 {
            pacing.received();
        }
        pacing.found_nothing();
    }

    /// Takes up to `most` messages under one lock.
    fn take_together(&mut self, most: usize) -> Result<usize, Refused> {
        self.taken.clear();
        let mut rows = Rows {
            buffer: &mut self.buffer,
            stride: self.stride,
            taken: &mut self.taken,
        };
        self.shared
            .engine
            .receive_batch(thread::current(), most, &mut rows, Deadline::Passed)
    }
}

/// The buffer, with one row for each message.
struct Rows<'a> {
    buffer: &'a mut [u8],
    stride: usize,
    taken: &'a mut Vec<Taken>,
}

impl Sink for Rows<'_> {
    #[inline(always)]
    fn place(&mut self, len: usize) -> Option<&mut [u8]> {
        let row = self.taken.len() * self.stride;
        let row = self.buffer.get_mut(row..)?.get_mut(..self.stride)?;
        (len <= row.len()).then_some(row)
    }

    #[inline(always)]
    fn taken(&mut self, taken: Taken) {
        self.taken.push(taken);
    }
}
