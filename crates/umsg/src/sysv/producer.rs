//! Producers: the end of the last producer ends the stream.

use super::error::SendError;
use super::permission::Access;
use super::queue::Queue;
use crate::lease::Holder;
use std::ops::Deref;
use std::sync::Arc;
use umsg_shm::sys::thread;

/// A share in the stream of messages of a queue that was created with
/// [`close_with_last_producer`](super::OpenOptions::close_with_last_producer). While a living process has a producer, the queue stays open for
/// sending. When the last producer is dropped, or its process dies, the stream ends as by [`Queue::close_send`].
///
/// A producer dereferences to the queue, and so sends like the queue. Other handles of the queue can send, too, but do not count as producers. For a
/// queue without that option, a producer has no effect.
///
/// A forked child is not counted through its parent's producer, and needs a producer of its own. A leaked producer counts until its process ends.
///
/// # If the process dies
/// A receiver that finds no message notices the death of the last producer within some milliseconds. A blocked receiver or a poller notices the death
/// within a tenth of a second.
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
    /// use umsg::sysv::{OpenOptions, ReceiveError, SendError, Want};
    ///
    /// let mut options = OpenOptions::new();
    /// options.create(true).namespace(&namespace);
    /// let queue = options.close_with_last_producer(true).open(7)?;
    /// let (first, second) = (queue.producer()?, queue.producer()?);
    /// drop(first);
    /// second.send(1, b"still open")?;
    /// drop(second);
    /// assert_eq!(queue.send(1, b"too late"), Err(SendError::Closed));
    /// assert_eq!(queue.receive_vec(Want::Any)?.data, b"still open");
    /// assert_eq!(queue.receive_vec(Want::Any), Err(ReceiveError::Closed));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Blocking
    /// Blocks only while a process is stopped inside an operation on this queue.
    ///
    /// # Errors
    /// [`SendError::Closed`] (EPIPE), [`SendError::TooManyProducers`] (EUSERS), and the errors of [`close_send`](Self::close_send).
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
    /// use umsg::sysv::OpenOptions;
    ///
    /// let mut options = OpenOptions::new();
    /// options.create(true).namespace(&namespace);
    /// let queue = std::sync::Arc::new(options.close_with_last_producer(true).open(7)?);
    /// let producer = queue.producer_owned()?;
    /// std::thread::spawn(move || producer.send(1, b"from a thread")).join().unwrap()?;
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

    /// Counts this process once more as a producer, until a call of [`end_producing`](Self::end_producing).
    #[doc(hidden)]
    pub fn begin_to_produce(&self) -> Result<(), SendError> {
        self.may_send(Access::Send)?;
        if !self.engine.policy().close_with_producers {
            return match (self.is_removed(), self.is_send_closed()) {
                (true, _) => Err(SendError::Removed),
                (_, true) => Err(SendError::Closed),
                _ => Ok(()),
            };
        }
        match self.engine.begin_to_produce(thread::current()) {
            Ok(true) => Ok(()),
            Ok(false) => Err(SendError::TooManyProducers),
            Err(refused) => Err(self.send_error(refused)),
        }
    }

    /// Counts this process once less. Returns false if the process was not counted.
    #[doc(hidden)]
    pub fn end_producing(&self) -> Result<bool, SendError> {
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
            // The call fails in a signal handler that has interrupted a call on the queue. Then the process stays a producer until the process ends.
            let _ = self.queue.end_producing();
        }
    }
}
