//! Batches: several messages in one call.

use super::queue::Queue;
use super::receive::Received;
use crate::error::{ReceiveError, SendError};
use crate::until::Until;
use std::time::{Duration, SystemTime};
use umsg_shm::posix_engine::batch::{self, Batch};
use umsg_shm::posix_engine::{Engine, Taken};
use umsg_shm::sys::thread;

/// Messages that lie anywhere in memory, given as their bytes and priorities.
#[doc(hidden)]
pub trait Outgoing {
    /// Returns the number of messages.
    fn count(&self) -> usize;
    /// Returns one of the messages. The engine may call this function several times for a message, and every result must be the same.
    fn at(&self, index: usize) -> (&[u8], u32);
}

impl Outgoing for [(&[u8], u32)] {
    #[inline(always)]
    fn count(&self) -> usize {
        self.len()
    }

    #[inline(always)]
    fn at(&self, index: usize) -> (&[u8], u32) {
        self[index]
    }
}

/// Messages with checked lengths and priorities.
struct Checked<'a, M: ?Sized>(&'a M);

impl<M: Outgoing + ?Sized> Batch for Checked<'_, M> {
    #[inline(always)]
    fn len(&self) -> usize {
        self.0.count()
    }

    #[inline(always)]
    fn message(&self, index: usize) -> (&[u8], usize) {
        let (message, priority) = self.0.at(index);
        (message, priority as usize)
    }
}

/// The destination of received messages.
#[doc(hidden)]
pub trait Incoming {
    /// Returns room for the next message, which has `len` bytes: a slice of at least that length. `None` leaves the message in
    /// the queue and ends the call.
    ///
    /// The engine holds the queue's lock during this call: the implementation must not use a queue, panic or wait. The room for the first message
    /// must have at least the queue's message size. If the destination has less room, the implementation returns `None`, and the caller receives
    /// nothing.
    fn place(&mut self, len: usize) -> Option<&mut [u8]>;

    /// Reports that the message is stored at the beginning of the room that [`place`](Self::place) returned.
    fn taken(&mut self, len: usize, priority: u32);
}

/// The engine's sink for received messages.
struct Into<'a, I: ?Sized>(&'a mut I);

impl<I: Incoming + ?Sized> batch::Sink for Into<'_, I> {
    #[inline(always)]
    fn place(&mut self, len: usize) -> Option<&mut [u8]> {
        self.0.place(len)
    }

    #[inline(always)]
    fn taken(&mut self, taken: Taken) {
        self.0.taken(taken.len, taken.key as u32);
    }
}

/// Packs messages one after another into a buffer.
struct Packed<'a> {
    buffer: &'a mut [u8],
    used: usize,
    received: &'a mut [Received],
    count: usize,
}

impl Incoming for Packed<'_> {
    #[inline(always)]
    fn place(&mut self, len: usize) -> Option<&mut [u8]> {
        let room = self.buffer.get_mut(self.used..)?;
        (len <= room.len()).then_some(room)
    }

    #[inline(always)]
    fn taken(&mut self, len: usize, priority: u32) {
        self.used += len;
        if let Some(place) = self.received.get_mut(self.count) {
            *place = Received { len, priority };
        }
        self.count += 1;
    }
}

/// # Sending batches
impl Queue {
    /// Sends all of these messages or none. Each message is given as its bytes and its priority. A receiver finds either the whole batch in the queue
    /// or no message of the batch. The batch takes one lock and at most one round of wake-ups. Messages are delivered by priority; messages of one
    /// priority are delivered in the given order. An empty batch is sent at once.
    ///
    /// # Blocking
    /// Until there is room for all messages. A blocked batch has its place among the blocked senders. While the batch is first, free room is kept for
    /// the batch, and a process that sends later finds the queue full.
    ///
    /// The [overflow policy](super::OnFull) of a full queue applies to a batch, too. The queue drops the oldest messages of the lowest priority until
    /// there is room for the whole batch. The queue drops the batch instead if too many messages have a priority above the highest priority of the
    /// batch.
    ///
    /// # Errors
    /// [`SendError::BatchTooLarge`] (EMSGSIZE) if the batch has more messages than the queue can hold; all other errors of [`SendError`] except
    /// `Full` and `TimedOut`. After an error nothing was sent.
    ///
    /// # If the process dies
    /// Before the call returns: all of the messages were sent, or none.
    ///
    /// ```
    /// # use umsg::{Namespace, posix::OpenOptions};
    /// # let directory = tempfile::tempdir()?;
    /// # let namespace = Namespace::at(directory.path())?;
    /// # let queue = OpenOptions::new().read(true).write(true).create(true).namespace(&namespace)
    /// #     .max_messages(10).message_size(64).open("/orders")?;
    /// queue.send_batch(&[(b"one", 1), (b"two", 1), (b"urgent", 9)])?;
    /// assert_eq!(queue.receive_vec()?.data, b"urgent");
    /// assert_eq!(queue.receive_vec()?.data, b"one");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn send_batch(&self, messages: &[(&[u8], u32)]) -> Result<(), SendError> {
        self.send_all_of(messages, Until::Forever)
    }

    /// Sends all of these messages if there is room for them at once; otherwise behaves as [`send_batch`](Self::send_batch).
    ///
    /// ```
    /// # let dir = tempfile::tempdir_in("/dev/shm")?;
    /// # let namespace = umsg::Namespace::at(dir.path())?;
    /// # let queue = umsg::posix::OpenOptions::new().read(true).write(true).create(true).namespace(&namespace).open("/q")?;
    /// let jobs: [(&[u8], u32); 2] = [(b"one", 0), (b"two", 5)];
    /// queue.try_send_batch(&jobs)?;
    /// assert_eq!(queue.attributes().messages, 2);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Blocking
    /// Does not wait for room. If a process was stopped inside an operation on this queue, the call returns after a second.
    ///
    /// # Errors
    /// [`SendError::Full`] (EAGAIN) and the errors of [`send_batch`](Self::send_batch). After an error nothing was sent.
    pub fn try_send_batch(&self, messages: &[(&[u8], u32)]) -> Result<(), SendError> {
        self.send_all_of(messages, Until::Now)
    }

    /// Sends a batch as [`send_batch`](Self::send_batch) does; waits for room at most `timeout`, on the monotonic clock.
    ///
    /// ```
    /// # let dir = tempfile::tempdir_in("/dev/shm")?;
    /// # let namespace = umsg::Namespace::at(dir.path())?;
    /// # let queue = umsg::posix::OpenOptions::new().read(true).write(true).create(true).namespace(&namespace).open("/q")?;
    /// let jobs: [(&[u8], u32); 2] = [(b"one", 0), (b"two", 5)];
    /// let second = std::time::Duration::from_secs(1);
    /// queue.send_batch_timeout(&jobs, second)?;
    /// assert_eq!(queue.attributes().messages, 2);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`SendError::TimedOut`] (ETIMEDOUT) and the errors of [`send_batch`](Self::send_batch). After an error nothing was sent.
    pub fn send_batch_timeout(
        &self,
        messages: &[(&[u8], u32)],
        timeout: Duration,
    ) -> Result<(), SendError> {
        self.send_all_of(messages, Until::After(timeout))
    }

    /// Sends a batch as [`send_batch`](Self::send_batch) does; waits for room at most until `deadline`, on the system's clock.
    ///
    /// ```
    /// # let dir = tempfile::tempdir_in("/dev/shm")?;
    /// # let namespace = umsg::Namespace::at(dir.path())?;
    /// # let queue = umsg::posix::OpenOptions::new().read(true).write(true).create(true).namespace(&namespace).open("/q")?;
    /// let jobs: [(&[u8], u32); 2] = [(b"one", 0), (b"two", 5)];
    /// let soon = std::time::SystemTime::now() + std::time::Duration::from_secs(1);
    /// queue.send_batch_deadline(&jobs, soon)?;
    /// assert_eq!(queue.attributes().messages, 2);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`SendError::TimedOut`] (ETIMEDOUT) and the errors of [`send_batch`](Self::send_batch). After an error nothing was sent.
    pub fn send_batch_deadline(
        &self,
        messages: &[(&[u8], u32)],
        deadline: SystemTime,
    ) -> Result<(), SendError> {
        self.send_all_of(messages, Until::Time(deadline))
    }

    /// Sends as many of the first messages as the queue has room for, as one batch. Returns the number of sent messages: at least one, or 0 if
    /// `messages` is empty.
    ///
    /// ```
    /// # let dir = tempfile::tempdir_in("/dev/shm")?;
    /// # let namespace = umsg::Namespace::at(dir.path())?;
    /// # let queue = umsg::posix::OpenOptions::new().read(true).write(true).create(true).namespace(&namespace).open("/q")?;
    /// let jobs: [(&[u8], u32); 2] = [(b"one", 0), (b"two", 5)];
    /// assert_eq!(queue.send_some(&jobs)?, 2);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Blocking
    /// Blocks while the queue is full, like a [`send`](Self::send) of the first message. The call then sends the other messages that fit as a second
    /// batch.
    ///
    /// # Errors
    /// All errors of [`SendError`] except `Full`, `TimedOut` and `BatchTooLarge`. After an error nothing was sent. The call checks each message, even
    /// a message for which the queue has no room.
    ///
    /// # If the process dies
    /// Before the call returns: some of the first messages were sent, each of them complete.
    pub fn send_some(&self, messages: &[(&[u8], u32)]) -> Result<usize, SendError> {
        self.send_some_of(messages, Until::Forever)
    }

    /// Sends messages as [`send_some`](Self::send_some) does, if there is room at once.
    ///
    /// ```
    /// # let dir = tempfile::tempdir_in("/dev/shm")?;
    /// # let namespace = umsg::Namespace::at(dir.path())?;
    /// # let queue = umsg::posix::OpenOptions::new().read(true).write(true).create(true).namespace(&namespace).open("/q")?;
    /// let jobs: [(&[u8], u32); 2] = [(b"one", 0), (b"two", 5)];
    /// assert_eq!(queue.try_send_some(&jobs)?, 2);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Blocking
    /// Does not wait for room. If a process was stopped inside an operation on this queue, the call returns after a second.
    ///
    /// # Errors
    /// [`SendError::Full`] (EAGAIN) and the errors of [`send_some`](Self::send_some). After an error nothing was sent.
    pub fn try_send_some(&self, messages: &[(&[u8], u32)]) -> Result<usize, SendError> {
        self.send_some_of(messages, Until::Now)
    }

    /// Sends messages as [`send_some`](Self::send_some) does; waits for room at most `timeout`, on the monotonic clock.
    ///
    /// ```
    /// # let dir = tempfile::tempdir_in("/dev/shm")?;
    /// # let namespace = umsg::Namespace::at(dir.path())?;
    /// # let queue = umsg::posix::OpenOptions::new().read(true).write(true).create(true).namespace(&namespace).open("/q")?;
    /// let jobs: [(&[u8], u32); 2] = [(b"one", 0), (b"two", 5)];
    /// let second = std::time::Duration::from_secs(1);
    /// assert_eq!(queue.send_some_timeout(&jobs, second)?, 2);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`SendError::TimedOut`] (ETIMEDOUT) and the errors of [`send_some`](Self::send_some). After an error nothing was sent.
    pub fn send_some_timeout(
        &self,
        messages: &[(&[u8], u32)],
        timeout: Duration,
    ) -> Result<usize, SendError> {
        self.send_some_of(messages, Until::After(timeout))
    }

    /// Sends messages as [`send_some`](Self::send_some) does; waits for room at most until `deadline`, on the system's clock.
    ///
    /// ```
    /// # let dir = tempfile::tempdir_in("/dev/shm")?;
    /// # let namespace = umsg::Namespace::at(dir.path())?;
    /// # let queue = umsg::posix::OpenOptions::new().read(true).write(true).create(true).namespace(&namespace).open("/q")?;
    /// let jobs: [(&[u8], u32); 2] = [(b"one", 0), (b"two", 5)];
    /// let soon = std::time::SystemTime::now() + std::time::Duration::from_secs(1);
    /// assert_eq!(queue.send_some_deadline(&jobs, soon)?, 2);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`SendError::TimedOut`] (ETIMEDOUT) and the errors of [`send_some`](Self::send_some). After an error nothing was sent.
    pub fn send_some_deadline(
        &self,
        messages: &[(&[u8], u32)],
        deadline: SystemTime,
    ) -> Result<usize, SendError> {
        self.send_some_of(messages, Until::Time(deadline))
    }

    /// Sends a batch as [`send_batch`](Self::send_batch) does, for messages that lie anywhere in memory.
    #[doc(hidden)]
    pub fn send_all_of<M: Outgoing + ?Sized>(
        &self,
        messages: &M,
        until: Until,
    ) -> Result<(), SendError> {
        self.check_all(messages)?;
        let max = self.engine.segment().layout().max_messages;
        let count = messages.count();
        if count > max {
            return Err(SendError::BatchTooLarge {
                messages: count,
                max,
            });
        }
        if count == 0 {
            return Ok(());
        }
        self.engine
            .send_batch(thread::current(), &Checked(messages), until.deadline())
            .map_err(|refused| self.send_error(refused))
    }

    /// Sends messages as [`send_some`](Self::send_some) does, for messages that lie anywhere in memory.
    #[doc(hidden)]
    pub fn send_some_of<M: Outgoing + ?Sized>(
        &self,
        messages: &M,
        until: Until,
    ) -> Result<usize, SendError> {
        self.check_all(messages)?;
        if messages.count() == 0 {
            return Ok(0);
        }
        self.engine
            .send_some(thread::current(), &Checked(messages), until.deadline())
            .map_err(|refused| self.send_error(refused))
    }

    fn check_all<M: Outgoing + ?Sized>(&self, messages: &M) -> Result<(), SendError> {
        if !self.access.write {
            return Err(SendError::NotWritable);
        }
        let max = self.engine.segment().layout().message_size;
        for index in 0..messages.count() {
            let (message, priority) = messages.at(index);
            if !Engine::is_priority(priority) {
                return Err(SendError::PriorityTooHigh);
            }
            if message.len() > max {
                return Err(SendError::TooLong {
                    len: message.len(),
                    max,
                });
            }
        }
        Ok(())
    }
}

/// The maximum numbers of bytes and of messages that [`Queue::receive_each`] takes at a time. If the queue's message size is larger than this number
/// of bytes, the message size is the maximum.
const PIECE: (usize, usize) = (64 << 10, 256);

/// # Receiving batches
impl Queue {
    /// Receives up to `received.len()` messages that are in the queue, in order of delivery and under one lock. Returns the number of received
    /// messages: at least one, or 0 if `received` is empty.
    ///
    /// The call stores the messages in `buffer` without gaps, and the length and priority of each message in `received`. Messages that do not fit
    /// stay in the queue. The buffer must have room for the queue's message size, even for short messages.
    ///
    /// # Blocking
    /// Blocks while the queue is empty, as [`receive`](Self::receive) does. If the queue has a message, the call does not wait for more.
    /// Other receivers wait while the call copies the messages.
    ///
    /// # Errors
    /// All errors of [`ReceiveError`] except `Empty` and `TimedOut`. After an error nothing was received.
    ///
    /// # If the process dies
    /// Before the call returns: the messages that the call has copied are lost. The other messages are in the queue.
    ///
    /// ```
    /// # use umsg::{Namespace, posix::{OpenOptions, Received}};
    /// # let directory = tempfile::tempdir()?;
    /// # let namespace = Namespace::at(directory.path())?;
    /// # let queue = OpenOptions::new().read(true).write(true).create(true).namespace(&namespace)
    /// #     .max_messages(10).message_size(64).open("/orders")?;
    /// queue.send_batch(&[(b"one", 1), (b"three", 3), (b"two", 2)])?;
    /// let (mut buffer, mut received) = ([0; 1024], [Received::default(); 16]);
    /// let count = queue.receive_batch(&mut buffer, &mut received)?;
    /// let mut rest = &buffer[..];
    /// let mut words = Vec::new();
    /// for message in &received[..count] {
    ///     let (bytes, behind) = rest.split_at(message.len);
    ///     words.push(bytes);
    ///     rest = behind;
    /// }
    /// assert_eq!(words, [&b"three"[..], b"two", b"one"]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn receive_batch(
        &self,
        buffer: &mut [u8],
        received: &mut [Received],
    ) -> Result<usize, ReceiveError> {
        self.receive_packed(buffer, received, Until::Forever)
    }

    /// Receives a batch as [`receive_batch`](Self::receive_batch) does, if there is a message at once.
    ///
    /// ```
    /// # let dir = tempfile::tempdir_in("/dev/shm")?;
    /// # let namespace = umsg::Namespace::at(dir.path())?;
    /// # let queue = umsg::posix::OpenOptions::new().read(true).write(true).create(true).namespace(&namespace).open("/q")?;
    /// # queue.send_batch(&[(b"one".as_slice(), 0), (b"two", 0)])?;
    /// let (mut buffer, mut received) = ([0; 2 * 8192], [umsg::posix::Received::default(); 2]);
    /// assert_eq!(queue.try_receive_batch(&mut buffer, &mut received)?, 2);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Blocking
    /// Does not wait for a message. If a process was stopped inside an operation on this queue, the call returns after a second.
    ///
    /// # Errors
    /// [`ReceiveError::Empty`] (EAGAIN) and the errors of [`receive_batch`](Self::receive_batch).
    pub fn try_receive_batch(
        &self,
        buffer: &mut [u8],
        received: &mut [Received],
    ) -> Result<usize, ReceiveError> {
        self.receive_packed(buffer, received, Until::Now)
    }

    /// Receives a batch as [`receive_batch`](Self::receive_batch) does; waits for a message at most `timeout`, on the monotonic
    /// clock.
    ///
    /// ```
    /// # let dir = tempfile::tempdir_in("/dev/shm")?;
    /// # let namespace = umsg::Namespace::at(dir.path())?;
    /// # let queue = umsg::posix::OpenOptions::new().read(true).write(true).create(true).namespace(&namespace).open("/q")?;
    /// # queue.send_batch(&[(b"one".as_slice(), 0), (b"two", 0)])?;
    /// let (mut buffer, mut received) = ([0; 2 * 8192], [umsg::posix::Received::default(); 2]);
    /// let second = std::time::Duration::from_secs(1);
    /// assert_eq!(queue.receive_batch_timeout(&mut buffer, &mut received, second)?, 2);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`ReceiveError::TimedOut`] (ETIMEDOUT) and the errors of [`receive_batch`](Self::receive_batch).
    pub fn receive_batch_timeout(
        &self,
        buffer: &mut [u8],
        received: &mut [Received],
        timeout: Duration,
    ) -> Result<usize, ReceiveError> {
        self.receive_packed(buffer, received, Until::After(timeout))
    }

    /// Receives a batch as [`receive_batch`](Self::receive_batch) does; waits for a message at most until `deadline`, on the
    /// system's clock.
    ///
    /// ```
    /// # let dir = tempfile::tempdir_in("/dev/shm")?;
    /// # let namespace = umsg::Namespace::at(dir.path())?;
    /// # let queue = umsg::posix::OpenOptions::new().read(true).write(true).create(true).namespace(&namespace).open("/q")?;
    /// # queue.send_batch(&[(b"one".as_slice(), 0), (b"two", 0)])?;
    /// let (mut buffer, mut received) = ([0; 2 * 8192], [umsg::posix::Received::default(); 2]);
    /// let soon = std::time::SystemTime::now() + std::time::Duration::from_secs(1);
    /// assert_eq!(queue.receive_batch_deadline(&mut buffer, &mut received, soon)?, 2);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`ReceiveError::TimedOut`] (ETIMEDOUT) and the errors of [`receive_batch`](Self::receive_batch).
    pub fn receive_batch_deadline(
        &self,
        buffer: &mut [u8],
        received: &mut [Received],
        deadline: SystemTime,
    ) -> Result<usize, ReceiveError> {
        self.receive_packed(buffer, received, Until::Time(deadline))
    }

    /// Receives up to `most` messages that are in the queue, and calls `visit` with the bytes and the priority of each message. Returns the number of
    /// received messages: at least one, or 0 if `most` is 0.
    ///
    /// The messages are taken in pieces of up to 256. `visit` runs after the call has released the queue's lock, and may use the queue.
    ///
    /// ```
    /// # let dir = tempfile::tempdir_in("/dev/shm")?;
    /// # let namespace = umsg::Namespace::at(dir.path())?;
    /// # let queue = umsg::posix::OpenOptions::new().read(true).write(true).create(true).namespace(&namespace).open("/q")?;
    /// # queue.send_batch(&[(b"one".as_slice(), 0), (b"two", 0)])?;
    /// let mut bytes = 0;
    /// queue.receive_each(10, |message, _priority| bytes += message.len())?;
    /// assert_eq!(bytes, 6);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Blocking
    /// Blocks while the queue is empty, as [`receive`](Self::receive) does.
    ///
    /// # Errors
    /// The errors of [`receive_batch`](Self::receive_batch).
    ///
    /// # Panics
    /// If `visit` panics. The messages that the call has taken from the queue and `visit` has not seen yet are then lost.
    ///
    /// # If the process dies
    /// The same as for [`receive_batch`](Self::receive_batch). Messages that were not visited yet are lost, too.
    pub fn receive_each(
        &self,
        most: usize,
        mut visit: impl FnMut(&[u8], u32),
    ) -> Result<usize, ReceiveError> {
        let size = self.engine.segment().layout().message_size;
        let mut buffer = vec![0; size.max(PIECE.0.min(size.saturating_mul(most)))];
        let mut received = vec![Received::default(); most.min(PIECE.1)];
        let mut until = Until::Forever;
        let mut total = 0;
        while total < most {
            let piece = received.len().min(most - total);
            let count = match self.receive_packed(&mut buffer, &mut received[..piece], until) {
                Ok(count) => count,
                // The call returns the number of visited messages, which are received even if the next piece fails.
                Err(_) if total != 0 => break,
                Err(error) => return Err(error),
            };
            let mut rest = &buffer[..];
            for message in &received[..count] {
                let (bytes, behind) = rest.split_at(message.len);
                visit(bytes, message.priority);
                rest = behind;
            }
            total += count;
            until = Until::Now;
        }
        Ok(total)
    }

    fn receive_packed(
        &self,
        buffer: &mut [u8],
        received: &mut [Received],
        until: Until,
    ) -> Result<usize, ReceiveError> {
        let needed = self.engine.segment().layout().message_size;
        if self.access.read && buffer.len() < needed {
            return Err(ReceiveError::BufferTooSmall {
                len: buffer.len(),
                needed,
            });
        }
        let most = received.len();
        let mut packed = Packed {
            buffer,
            used: 0,
            received,
            count: 0,
        };
        self.receive_into(&mut packed, most, until)
    }

    /// Receives a batch as [`receive_batch`](Self::receive_batch) does, to any destination. Returns 0 if there is no room for
    /// the first message.
    #[doc(hidden)]
    pub fn receive_into<I: Incoming + ?Sized>(
        &self,
        sink: &mut I,
        most: usize,
        until: Until,
    ) -> Result<usize, ReceiveError> {
        if !self.access.read {
            return Err(ReceiveError::NotReadable);
        }
        if most == 0 {
            return Ok(0);
        }
        let me = thread::current();
        let deadline = until.deadline();
        let result = self
            .engine
            .receive_batch(me, most, &mut Into(sink), deadline);
        self.engine.do_chore();
        self.raise_fired(me, &result);
        result.map_err(|refused| self.receive_error(refused))
    }
}
