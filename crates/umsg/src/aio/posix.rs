//! POSIX queues with tokio.

use super::Polled;
use crate::posix::{self, Message, ReceiveError, Received, SendError};
use std::io;
use tokio::io::Interest;
use tokio::sync::Mutex;
use umsg_shm::posix_engine::segment::OnFull;

/// A [queue](posix::Queue) for tokio. Tasks that share the queue take turns: receiving tasks get messages, and sending tasks get room, in the order
/// in which they began to wait.
#[derive(Debug)]
pub struct Queue {
    polled: Polled,
    /// The task that holds this lock receives next. The lock is granted in the order in which the tasks began to wait.
    receivers: Mutex<()>,
    senders: Mutex<()>,
    queue: posix::Queue,
}

impl Queue {
    /// Registers a queue with the runtime of the calling task.
    ///
    /// ```
    /// # let dir = tempfile::tempdir_in("/dev/shm")?;
    /// # let namespace = umsg::Namespace::at(dir.path())?;
    /// # let queue = umsg::posix::OpenOptions::new().read(true).write(true).create(true).namespace(&namespace).open("/q")?;
    /// # tokio::runtime::Builder::new_current_thread().enable_io().build()?.block_on(async {
    /// let queue = umsg::aio::posix::Queue::new(queue)?;
    /// queue.send(b"job", 0).await?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// # })?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// The errors of [`pollable`](posix::Queue::pollable).
    ///
    /// # Panics
    /// Panics if the caller does not run in a runtime with I/O enabled.
    pub fn new(queue: posix::Queue) -> io::Result<Queue> {
        Ok(Queue {
            polled: Polled::new(queue.pollable()?)?,
            receivers: Mutex::new(()),
            senders: Mutex::new(()),
            queue,
        })
    }

    /// Sends a message; waits while the queue is full.
    ///
    /// ```
    /// # let dir = tempfile::tempdir_in("/dev/shm")?;
    /// # let namespace = umsg::Namespace::at(dir.path())?;
    /// # let queue = umsg::posix::OpenOptions::new().read(true).write(true).create(true).namespace(&namespace).open("/q")?;
    /// # tokio::runtime::Builder::new_current_thread().enable_io().build()?.block_on(async {
    /// let queue = umsg::aio::posix::Queue::new(queue)?;
    /// queue.send(b"job", 5).await?;
    /// assert_eq!(queue.get_ref().attributes().messages, 1);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// # })?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// All errors of [`SendError`] except `TimedOut`; `Full` only for a queue that never lets senders wait, and `Interrupted` if the
    /// runtime shuts down.
    ///
    /// # Cancel safety
    /// A future that is dropped before it is ready has sent nothing.
    ///
    /// # If the process dies
    /// The same as for [`posix::Queue::send`].
    pub async fn send(&self, message: &[u8], priority: u32) -> Result<(), SendError> {
        let _turn = self.senders.lock().await;
        let waits = self.queue.engine.policy().on_full != OnFull::Fail;
        let attempt = || match self.queue.try_send(message, priority) {
            Err(SendError::Full) if waits => None,
            other => Some(other),
        };
        let may = || self.queue.readiness().writable;
        self.polled
            .until(Interest::WRITABLE, may, attempt, SendError::Interrupted)
            .await
    }

    /// Receives the next message; waits while there is none. The buffer must have room for the queue's message size.
    ///
    /// ```
    /// # let dir = tempfile::tempdir_in("/dev/shm")?;
    /// # let namespace = umsg::Namespace::at(dir.path())?;
    /// # let queue = umsg::posix::OpenOptions::new().read(true).write(true).create(true).namespace(&namespace).open("/q")?;
    /// # tokio::runtime::Builder::new_current_thread().enable_io().build()?.block_on(async {
    /// # queue.send(b"job", 5)?;
    /// let queue = umsg::aio::posix::Queue::new(queue)?;
    /// let mut buffer = vec![0; queue.get_ref().attributes().message_size];
    /// assert_eq!(queue.receive(&mut buffer).await?.priority, 5);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// # })?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// All errors of [`ReceiveError`] except `Empty` and `TimedOut`; `Interrupted` if the runtime shuts down.
    ///
    /// # Cancel safety
    /// A future that is dropped before it is ready has received nothing.
    ///
    /// # If the process dies
    /// The same as for [`posix::Queue::receive`].
    pub async fn receive(&self, buffer: &mut [u8]) -> Result<Received, ReceiveError> {
        let _turn = self.receivers.lock().await;
        let attempt = || match self.queue.try_receive(buffer) {
            Err(ReceiveError::Empty) => None,
            other => Some(other),
        };
        let may = || self.queue.readiness().readable;
        self.polled
            .until(Interest::READABLE, may, attempt, ReceiveError::Interrupted)
            .await
    }

    /// Receives a message into a new vector; otherwise behaves as [`receive`](Self::receive).
    ///
    /// ```
    /// # let dir = tempfile::tempdir_in("/dev/shm")?;
    /// # let namespace = umsg::Namespace::at(dir.path())?;
    /// # let queue = umsg::posix::OpenOptions::new().read(true).write(true).create(true).namespace(&namespace).open("/q")?;
    /// # tokio::runtime::Builder::new_current_thread().enable_io().build()?.block_on(async {
    /// # queue.send(b"job", 5)?;
    /// let queue = umsg::aio::posix::Queue::new(queue)?;
    /// assert_eq!(queue.receive_vec().await?.data, b"job");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// # })?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// The errors of [`receive`](Self::receive).
    pub async fn receive_vec(&self) -> Result<Message, ReceiveError> {
        let mut data = vec![0; self.queue.engine.segment().layout().message_size];
        let received = self.receive(&mut data).await?;
        data.truncate(received.len);
        Ok(Message {
            data,
            priority: received.priority,
        })
    }

    /// Returns the queue, for calls that do not wait.
    ///
    /// ```
    /// # let dir = tempfile::tempdir_in("/dev/shm")?;
    /// # let namespace = umsg::Namespace::at(dir.path())?;
    /// # let queue = umsg::posix::OpenOptions::new().read(true).write(true).create(true).namespace(&namespace).open("/q")?;
    /// # tokio::runtime::Builder::new_current_thread().enable_io().build()?.block_on(async {
    /// let queue = umsg::aio::posix::Queue::new(queue)?;
    /// assert_eq!(queue.get_ref().attributes().messages, 0);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// # })?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn get_ref(&self) -> &posix::Queue {
        &self.queue
    }

    /// Returns the queue, and ends its registration with the runtime.
    ///
    /// ```
    /// # let dir = tempfile::tempdir_in("/dev/shm")?;
    /// # let namespace = umsg::Namespace::at(dir.path())?;
    /// # let queue = umsg::posix::OpenOptions::new().read(true).write(true).create(true).namespace(&namespace).open("/q")?;
    /// # tokio::runtime::Builder::new_current_thread().enable_io().build()?.block_on(async {
    /// let queue = umsg::aio::posix::Queue::new(queue)?;
    /// let queue = queue.into_inner();
    /// queue.send(b"without a runtime", 0)?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// # })?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn into_inner(self) -> posix::Queue {
        self.queue
    }
}
