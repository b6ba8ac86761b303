//! Producers: when the last producer ends, the stream of messages ends.

use super::queue::Queue;
use crate::error::SendError;
use crate::lease::Holder;
use std::ops::Deref;
use std::sync::Arc;
use umsg_shm::sys::thread;

/// A share in the stream of messages of a queue that was created with
/// [`close_with_last_producer`](super::OpenOptions::close_with_last_producer). While a living process has a producer, the queue stays open for
/// sending. When the last producer is dropped, or its process dies, the stream ends: receivers get the remaining messages, then
/// [`ReceiveError::Closed`](super::ReceiveError::Closed).
///
/// A producer dereferences to the queue, and so sends like the queue. Other handles of the queue can send, too, but do not count as producers. For a
/// queue without that option, a producer has no effect.
///
/// A forked child is not counted through its parent's producer, and needs its own producer. A leaked producer counts until its process ends.
///
/// # If the process dies
/// A receiver that finds the queue empty notices the death of the last producer within some milliseconds. A blocked receiver or a poller notices the
/// death within a tenth of a second.
#[derive(Debug)]
#[must_use = "a producer that is dropped may end the stream"]
pub struct Producer<'q> {
    queue: Holder<'q, Queue>,
    /// The id of the process that counts as a producer.
    pid: u32,
}

impl Queue {
    /// Counts this process as a producer of the queue. See [`Producer`].
    ///
    /// ```
    /// # let dir = tempfile::tempdir_in("/dev/shm")?;
    /// # let namespace = umsg::Namespace::at(dir.path())?;
    /// use umsg::posix::{OpenOptions, SendError};
    ///
    /// let mut options = OpenOptions::new();
    /// options.read(true).write(true).create(true).namespace(&namespace);
    /// let queue = options.close_with_last_producer(true).open("/q")?;
    /// let (first, second) = (queue.producer()?, queue.producer()?);
    /// drop(first);
    /// second.send(b"still open", 0)?;
    /// drop(second);
    /// assert_eq!(queue.send(b"too late", 0), Err(SendError::Closed));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Blocking
    /// Blocks only while a process is stopped inside an operation on this queue.
    ///
    /// # Errors
    /// [`SendError::Closed`] (EPIPE), [`SendError::TooManyProducers`] (EUSERS), [`SendError::NotWritable`] (EBADF),
    /// [`QueueError::Damaged`](crate::QueueError::Damaged), [`QueueError::WouldDeadlock`](crate::QueueError::WouldDeadlock).
    pub fn producer(&self) -> Result<Producer<'_>, SendError> {
        self.begin_to_produce()?;
        Ok(Producer::of(Holder::Borrowed(self)))
    }

    /// Counts this process as [`producer`](Self::producer) does, with a producer that keeps the queue open. The producer can be kept in a struct,
    /// sent to another thread, and outlive the caller's handle.
    ///
    /// ```
    /// # let dir = tempfile::tempdir_in("/dev/shm")?;
    /// # let namespace = umsg::Namespace::at(dir.path())?;
    /// use umsg::posix::OpenOptions;
    ///
    /// let mut options = OpenOptions::new();
    /// options.read(true).write(true).create(true).namespace(&namespace);
    /// let queue = std::sync::Arc::new(options.close_with_last_producer(true).open("/q")?);
    /// let producer = queue.producer_owned()?;
    /// std::thread::spawn(move || producer.send(b"from a thread", 0)).join().unwrap()?;
    /// assert!(queue.is_send_closed());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// The errors of [`producer`](Self::producer).
    pub fn producer_owned(self: &Arc<Self>) -> Result<Producer<'static>, SendError> {
        self.begin_to_produce()?;
        Ok(Producer::of(Holder::Shared(Arc::clone(self))))
    }

    /// Counts one more producer for this process, until a call of [`end_producing`](Self::end_producing).
    #[doc(hidden)]
    pub fn begin_to_produce(&self) -> Result<(), SendError> {
        self.check_to_send(0)?;
        if !self.engine.policy().close_with_producers {
            return match self.is_send_closed() {
                true => Err(SendError::Closed),
                false => Ok(()),
            };
        }
        match self.engine.begin_to_produce(thread::current()) {
            Ok(true) => Ok(()),
            Ok(false) => Err(SendError::TooManyProducers),
            Err(refused) => Err(self.send_error(refused)),
        }
    }

    /// Counts one producer less for this process. Returns false if the process had no producer.
    #[doc(hidden)]
    pub fn end_producing(&self) -> Result<bool, SendError> {
        self.check_to_send(0)?;
        if !self.engine.policy().close_with_producers {
            return Ok(false);
        }
        let ended = self.engine.end_producing(thread::current());
        ended.map_err(|refused| self.send_error(refused))
    }
}

impl<'q> Producer<'q> {
    fn of(queue: Holder<'q, Queue>) -> Producer<'q> {
        let pid = thread::current().pid();
        Producer { queue, pid }
    }
}

impl Deref for Producer<'_> {
    type Target = Queue;

    fn deref(&self) -> &Queue {
        &self.queue
    }
}

impl Drop for Producer<'_> {
    fn drop(&mut self) {
        if self.pid == thread::current().pid() {
            // The call fails in a signal handler that has interrupted a call on the queue. The process then counts as a producer until it ends.
            let _ = self.queue.end_producing();
        }
    }
}
