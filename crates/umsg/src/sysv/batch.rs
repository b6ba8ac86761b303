//! Sending and receiving several messages in one call.

use super::error::{ReceiveError, SendError};
use super::permission::Access;
use super::queue::Queue;
use super::receive::{Heeds, Received};
use crate::until::Until;
use std::time::Duration;
use umsg_shm::sys::thread;
use umsg_shm::sysv_engine::order::Want;
use umsg_shm::sysv_engine::{Batch, Call, Refused, Sink, Taken, Why};

/// Messages to send: their types and their bytes.
#[doc(hidden)]
pub trait Outgoing {
    /// Returns the number of messages.
    fn count(&self) -> usize;
    /// Returns the type and the bytes of one message. All calls with the same index must return the same result.
    fn at(&self, index: usize) -> (i64, &[u8]);
}

impl Outgoing for [(i64, &[u8])] {
    fn count(&self) -> usize {
        self.len()
    }

    fn at(&self, index: usize) -> (i64, &[u8]) {
        self[index]
    }
}

/// Passes outgoing messages to the engine as a batch.
struct OutOf<'a, O: ?Sized>(&'a O);

impl<O: Outgoing + ?Sized> Batch for OutOf<'_, O> {
    #[inline(always)]
    fn count(&self) -> usize {
        self.0.count()
    }

    #[inline(always)]
    fn at(&self, index: usize) -> (i64, &[u8]) {
        self.0.at(index)
    }
}

/// The destination of received messages.
#[doc(hidden)]
pub trait Incoming {
    /// Returns room for the next message: at least `len` bytes. If it returns None, the message stays in the queue and the call ends.
    ///
    /// The caller holds the queue's lock: the function must not use a queue, panic or wait.
    fn place(&mut self, len: usize) -> Option<&mut [u8]>;

    /// Notes a message that was written to the beginning of the room from the last [`place`](Self::place).
    fn taken(&mut self, received: Received);
}

/// The sink of the engine for received messages.
struct Into<'a, I: ?Sized>(&'a mut I);

impl<I: Incoming + ?Sized> Sink for Into<'_, I> {
    #[inline(always)]
    fn place(&mut self, len: usize) -> Option<&mut [u8]> {
        self.0.place(len)
    }

    #[inline(always)]
    fn taken(&mut self, taken: Taken) {
        self.0.taken(taken.into());
    }
}

/// A buffer that takes all messages back to back.
struct Packed<'a> {
    buffer: &'a mut [u8],
    received: &'a mut [Received],
    count: usize,
    filled: usize,
}

impl Incoming for Packed<'_> {
    fn place(&mut self, len: usize) -> Option<&mut [u8]> {
        self.buffer.get_mut(self.filled..)?.get_mut(..len)
    }

    fn taken(&mut self, taken: Received) {
        if let Some(received) = self.received.get_mut(self.count) {
            *received = taken;
        }
        self.filled += taken.len;
        self.count += 1;
    }
}

impl Queue {
    /// Sends all of these messages or none, each given as its type and its bytes. A receiver finds either all of them or none in the queue.
    ///
    /// ```
    /// # let dir = tempfile::tempdir_in("/dev/shm")?;
    /// # let namespace = umsg::Namespace::at(dir.path())?;
    /// # let queue = umsg::sysv::OpenOptions::new().create(true).namespace(&namespace).open(1)?;
    /// let jobs: [(i64, &[u8]); 2] = [(1, b"one"), (2, b"two")];
    /// queue.send_batch(&jobs)?;
    /// assert_eq!(queue.status()?.entry.messages, 2);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Blocking
    /// Blocks until there is room for all messages.
    ///
    /// # Errors
    /// The errors of [`send`](Queue::send); [`SendError::BatchTooLarge`] if even an empty queue would have no room for the messages.
    ///
    /// # If the process dies
    /// If the process dies before the call returns, all messages were sent, or none.
    pub fn send_batch(&self, messages: &[(i64, &[u8])]) -> Result<(), SendError> {
        self.send_all_of(messages, Until::Forever)
    }

    /// Sends all messages as [`send_batch`](Queue::send_batch) does, if the queue has room for all of them now; does not wait for room.
    ///
    /// ```
    /// # let dir = tempfile::tempdir_in("/dev/shm")?;
    /// # let namespace = umsg::Namespace::at(dir.path())?;
    /// # let queue = umsg::sysv::OpenOptions::new().create(true).namespace(&namespace).open(1)?;
    /// let jobs: [(i64, &[u8]); 2] = [(1, b"one"), (2, b"two")];
    /// queue.try_send_batch(&jobs)?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`SendError::Full`] and the errors of [`send_batch`](Queue::send_batch).
    pub fn try_send_batch(&self, messages: &[(i64, &[u8])]) -> Result<(), SendError> {
        self.send_all_of(messages, Until::Now)
    }

    /// Sends all messages as [`send_batch`](Queue::send_batch) does. Waits for room for at most `timeout`, on the monotonic clock.
    ///
    /// ```
    /// # let dir = tempfile::tempdir_in("/dev/shm")?;
    /// # let namespace = umsg::Namespace::at(dir.path())?;
    /// # let queue = umsg::sysv::OpenOptions::new().create(true).namespace(&namespace).open(1)?;
    /// let jobs: [(i64, &[u8]); 2] = [(1, b"one"), (2, b"two")];
    /// let second = std::time::Duration::from_secs(1);
    /// queue.send_batch_timeout(&jobs, second)?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`SendError::TimedOut`] and the errors of [`send_batch`](Queue::send_batch).
    pub fn send_batch_timeout(
        &self,
        messages: &[(i64, &[u8])],
        timeout: Duration,
    ) -> Result<(), SendError> {
        self.send_all_of(messages, Until::After(timeout))
    }

    /// Sends all messages as [`send_batch`](Queue::send_batch) does. Waits as long as `until` says.
    ///
    /// ```
    /// # let dir = tempfile::tempdir_in("/dev/shm")?;
    /// # let namespace = umsg::Namespace::at(dir.path())?;
    /// # let queue = umsg::sysv::OpenOptions::new().create(true).namespace(&namespace).open(1)?;
    /// let jobs: [(i64, &[u8]); 2] = [(1, b"one"), (2, b"two")];
    /// queue.send_batch_until(&jobs, umsg::sysv::Until::Now)?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// The errors of [`send_batch_timeout`](Queue::send_batch_timeout); `Full` with [`Until::Now`].
    pub fn send_batch_until(
        &self,
        messages: &[(i64, &[u8])],
        until: Until,
    ) -> Result<(), SendError> {
        self.send_all_of(messages, until)
    }

    /// Sends all messages as [`send_batch`](Queue::send_batch) does, for messages that lie anywhere in memory. For the C library.
    #[doc(hidden)]
    pub fn send_all_of<O: Outgoing + ?Sized>(
        &self,
        messages: &O,
        until: Until,
    ) -> Result<(), SendError> {
        for index in 0..messages.count() {
            let (mtype, message) = messages.at(index);
            self.check_to_send(mtype, message.len())?;
        }
        let batch = OutOf(messages);
        let mut call = Call::new(thread::current(), until.deadline());
        loop {
            call.set_rights(self.may_send(Access::Send)?);
            let (count, bytes) = (batch.count(), batch.bytes());
            if !self.engine.can_hold(count as u64, bytes) {
                return Err(SendError::BatchTooLarge {
                    messages: count,
                    bytes,
                });
            }
            match self.engine.send_batch(&call, &batch) {
                Ok(()) => return Ok(()),
                Err(Refused::Own(Why::Rejudge)) => {}
                Err(refused) => return Err(self.send_error(refused)),
            }
        }
    }

    /// Receives up to `received.len()` wanted messages, one after the other into `buffer`, without gaps. Returns their number.
    ///
    /// If the call may have to wait, `buffer` needs room for the queue's [`msgmax`](Queue::msgmax).
    ///
    /// ```
    /// # let dir = tempfile::tempdir_in("/dev/shm")?;
    /// # let namespace = umsg::Namespace::at(dir.path())?;
    /// # let queue = umsg::sysv::OpenOptions::new().create(true).namespace(&namespace).open(1)?;
    /// # queue.send_batch(&[(1, b"one".as_slice()), (2, b"two")])?;
    /// use umsg::sysv::{Received, Want};
    ///
    /// let (mut buffer, mut received) = ([0; 64], [Received::default(); 2]);
    /// assert_eq!(queue.receive_batch(Want::Any, &mut buffer, &mut received)?, 2);
    /// assert_eq!(received[1].mtype, 2);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Blocking
    /// Blocks until there is a wanted message.
    ///
    /// # Errors
    /// The errors of [`receive`](Queue::receive), with [`ReceiveError::TooSmall`] if `buffer` has no room for the first message.
    ///
    /// # If the process dies
    /// If the process dies before the call returns, the messages that were copied out are lost.
    pub fn receive_batch(
        &self,
        want: Want,
        buffer: &mut [u8],
        received: &mut [Received],
    ) -> Result<usize, ReceiveError> {
        self.receive_batch_until(want, buffer, received, Until::Forever)
    }

    /// Receives messages as [`receive_batch`](Queue::receive_batch) does, if the queue contains a wanted message now; does not wait for a message.
    ///
    /// ```
    /// # let dir = tempfile::tempdir_in("/dev/shm")?;
    /// # let namespace = umsg::Namespace::at(dir.path())?;
    /// # let queue = umsg::sysv::OpenOptions::new().create(true).namespace(&namespace).open(1)?;
    /// # queue.send_batch(&[(1, b"one".as_slice()), (2, b"two")])?;
    /// use umsg::sysv::{Received, Want};
    ///
    /// let (mut buffer, mut received) = ([0; 64], [Received::default(); 2]);
    /// assert_eq!(queue.try_receive_batch(Want::Exactly(2), &mut buffer, &mut received)?, 1);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`ReceiveError::NoMessage`] and the errors of [`receive_batch`](Queue::receive_batch).
    pub fn try_receive_batch(
        &self,
        want: Want,
        buffer: &mut [u8],
        received: &mut [Received],
    ) -> Result<usize, ReceiveError> {
        self.receive_batch_until(want, buffer, received, Until::Now)
    }

    /// Receives messages as [`receive_batch`](Queue::receive_batch) does. Waits for the first message at most `timeout`, on the monotonic clock.
    ///
    /// ```
    /// # let dir = tempfile::tempdir_in("/dev/shm")?;
    /// # let namespace = umsg::Namespace::at(dir.path())?;
    /// # let queue = umsg::sysv::OpenOptions::new().create(true).namespace(&namespace).open(1)?;
    /// # queue.send_batch(&[(1, b"one".as_slice()), (2, b"two")])?;
    /// use umsg::sysv::{Received, Want};
    ///
    /// let (mut buffer, mut received) = ([0; 64], [Received::default(); 2]);
    /// let second = std::time::Duration::from_secs(1);
    /// let count = queue.receive_batch_timeout(Want::Any, &mut buffer, &mut received, second)?;
    /// assert_eq!(count, 2);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`ReceiveError::TimedOut`] and the errors of [`receive_batch`](Queue::receive_batch).
    pub fn receive_batch_timeout(
        &self,
        want: Want,
        buffer: &mut [u8],
        received: &mut [Received],
        timeout: Duration,
    ) -> Result<usize, ReceiveError> {
        self.receive_batch_until(want, buffer, received, Until::After(timeout))
    }

    /// Receives messages as [`receive_batch`](Queue::receive_batch) does. Waits as long as `until` says.
    ///
    /// ```
    /// # let dir = tempfile::tempdir_in("/dev/shm")?;
    /// # let namespace = umsg::Namespace::at(dir.path())?;
    /// # let queue = umsg::sysv::OpenOptions::new().create(true).namespace(&namespace).open(1)?;
    /// # queue.send_batch(&[(1, b"one".as_slice()), (2, b"two")])?;
    /// use umsg::sysv::{Received, Want};
    ///
    /// let (mut buffer, mut received) = ([0; 64], [Received::default(); 2]);
    /// let now = umsg::sysv::Until::Now;
    /// assert_eq!(queue.receive_batch_until(Want::Any, &mut buffer, &mut received, now)?, 2);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// The errors of [`receive_batch_timeout`](Queue::receive_batch_timeout); `NoMessage` with [`Until::Now`].
    pub fn receive_batch_until(
        &self,
        want: Want,
        buffer: &mut [u8],
        received: &mut [Received],
        until: Until,
    ) -> Result<usize, ReceiveError> {
        let most = received.len();
        let mut packed = Packed {
            buffer,
            received,
            count: 0,
            filled: 0,
        };
        self.receive_into(want, &mut packed, most, until)
    }

    /// Receives up to `most` messages to any place in memory; for the C library.
    #[doc(hidden)]
    pub fn receive_into<I: Incoming + ?Sized>(
        &self,
        want: Want,
        places: &mut I,
        most: usize,
        until: Until,
    ) -> Result<usize, ReceiveError> {
        self.judged_receive((until.deadline(), Heeds::End), |call| {
            let mut sink = Into(&mut *places);
            self.engine.receive_batch(call, want, most, &mut sink)
        })
    }
}
