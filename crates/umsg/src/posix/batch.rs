//! Several messages in one call.

use super::queue::{Queue, realtime};
use crate::error::SendError;
use crate::queue::Engine;
use crate::queue::batch::Batch;
use crate::sys::clock::Deadline;
use crate::sys::thread;
use std::time::{Duration, SystemTime};

/// Until when a call waits: what the names of the methods say, for those who implement another interface.
#[doc(hidden)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Until {
    /// It does not wait.
    Now,
    Forever,
    /// So long, on the monotonic clock.
    After(Duration),
    /// Until then, on the system's clock.
    Time(SystemTime),
}

impl Until {
    fn deadline(self) -> Deadline {
        match self {
            Until::Now => Deadline::Passed,
            Until::Forever => Deadline::Never,
            Until::After(timeout) => Deadline::after(timeout),
            Until::Time(time) => realtime(time),
        }
    }
}

/// Messages that are somewhere: their bytes and their priority.
#[doc(hidden)]
pub trait Outgoing {
    /// How many.
    fn count(&self) -> usize;
    /// One of them. It may be asked for several times, and has to be the same each time.
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

/// Messages whose lengths and priorities were checked.
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

/// # Sending batches
impl Queue {
    /// Sends all of these messages, each given as its bytes and its priority, or none: no receiver finds one of them while
    /// another is not there yet. They take one lock and at most one round of wake-ups, and are delivered by
    /// priority, those of one priority in the order given. No messages are sent at once.
    ///
    /// # Blocking
    /// Until there is room for all of them. A blocked batch has its place among the blocked senders; while it is first, the
    /// room that there is is kept for it: whoever sends later finds the queue full.
    ///
    /// # Errors
    /// [`SendError::BatchTooLarge`] (EMSGSIZE) if the queue never holds so many; all others of [`SendError`] but `Full` and
    /// `TimedOut`. Nothing was sent then.
    ///
    /// # If the process dies
    /// Before the call returns: all of them were sent, or none.
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

    /// Sends all of these messages if there is room for them at once; otherwise as [`send_batch`](Self::send_batch).
    ///
    /// # Blocking
    /// Never; if a process was stopped inside of an operation on this queue, the call returns after a second.
    ///
    /// # Errors
    /// [`SendError::Full`] (EAGAIN) and those of [`send_batch`](Self::send_batch). Nothing was sent then.
    pub fn try_send_batch(&self, messages: &[(&[u8], u32)]) -> Result<(), SendError> {
        self.send_all_of(messages, Until::Now)
    }

    /// As [`send_batch`](Self::send_batch); waits for room at most `timeout`, on the monotonic clock.
    ///
    /// # Errors
    /// [`SendError::TimedOut`] (ETIMEDOUT) and those of [`send_batch`](Self::send_batch). Nothing was sent then.
    pub fn send_batch_timeout(
        &self,
        messages: &[(&[u8], u32)],
        timeout: Duration,
    ) -> Result<(), SendError> {
        self.send_all_of(messages, Until::After(timeout))
    }

    /// As [`send_batch`](Self::send_batch); waits for room at most until `deadline`, on the system's clock.
    ///
    /// # Errors
    /// [`SendError::TimedOut`] (ETIMEDOUT) and those of [`send_batch`](Self::send_batch). Nothing was sent then.
    pub fn send_batch_deadline(
        &self,
        messages: &[(&[u8], u32)],
        deadline: SystemTime,
    ) -> Result<(), SendError> {
        self.send_all_of(messages, Until::Time(deadline))
    }

    /// Sends as many of these messages as there is room for, the first of them, as one batch. Answers how many: at
    /// least one, unless none were given.
    ///
    /// # Blocking
    /// While the queue is full: as [`send`](Self::send) of the first message. What else fits then follows as a second batch.
    ///
    /// # Errors
    /// All of [`SendError`] but `Full`, `TimedOut` and `BatchTooLarge`. Nothing was sent then. Each message is checked, also
    /// one for which there is no room.
    ///
    /// # If the process dies
    /// Before the call returns: some of the first messages were sent, each whole.
    pub fn send_some(&self, messages: &[(&[u8], u32)]) -> Result<usize, SendError> {
        self.send_some_of(messages, Until::Forever)
    }

    /// As [`send_some`](Self::send_some), if there is room at once.
    ///
    /// # Blocking
    /// Never; if a process was stopped inside of an operation on this queue, the call returns after a second.
    ///
    /// # Errors
    /// [`SendError::Full`] (EAGAIN) and those of [`send_some`](Self::send_some). Nothing was sent then.
    pub fn try_send_some(&self, messages: &[(&[u8], u32)]) -> Result<usize, SendError> {
        self.send_some_of(messages, Until::Now)
    }

    /// As [`send_some`](Self::send_some); waits for room at most `timeout`, on the monotonic clock.
    ///
    /// # Errors
    /// [`SendError::TimedOut`] (ETIMEDOUT) and those of [`send_some`](Self::send_some). Nothing was sent then.
    pub fn send_some_timeout(
        &self,
        messages: &[(&[u8], u32)],
        timeout: Duration,
    ) -> Result<usize, SendError> {
        self.send_some_of(messages, Until::After(timeout))
    }

    /// As [`send_some`](Self::send_some); waits for room at most until `deadline`, on the system's clock.
    ///
    /// # Errors
    /// [`SendError::TimedOut`] (ETIMEDOUT) and those of [`send_some`](Self::send_some). Nothing was sent then.
    pub fn send_some_deadline(
        &self,
        messages: &[(&[u8], u32)],
        deadline: SystemTime,
    ) -> Result<usize, SendError> {
        self.send_some_of(messages, Until::Time(deadline))
    }

    /// [`send_batch`](Self::send_batch), of messages that lie anywhere.
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

    /// [`send_some`](Self::send_some), of messages that lie anywhere.
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
