//! System V queues with tokio.

use super::Polled;
use crate::Edges;
use crate::sysv::{self, ReceiveError, Received, SendError, Want};
use std::io;
use tokio::io::Interest;
use tokio::task::coop::consume_budget;

/// A [queue](sysv::Queue) for tokio. Tasks that share the queue can wait for messages of different types. When a message or room becomes available,
/// the tasks that wait for this message or for room try in the order in which they began to wait.
///
/// While any process has a queue registered with tokio, each send and each receive on that queue costs a system call. The system call wakes each task
/// whose wanted message or room has just become available.
#[derive(Debug)]
pub struct Queue {
    polled: Polled,
    queue: sysv::Queue,
}

impl Queue {
    /// Registers a queue with the runtime of the calling task.
    ///
    /// ```
    /// # let dir = tempfile::tempdir_in("/dev/shm")?;
    /// # let namespace = umsg::Namespace::at(dir.path())?;
    /// # let queue = umsg::sysv::OpenOptions::new().create(true).namespace(&namespace).open(1)?;
    /// # tokio::runtime::Builder::new_current_thread().enable_io().build()?.block_on(async {
    /// let queue = umsg::aio::sysv::Queue::new(queue)?;
    /// queue.send(1, b"job").await?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// # })?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// The errors of [`pollable`](sysv::Queue::pollable).
    ///
    /// # Panics
    /// Panics if the caller does not run in a runtime with I/O enabled.
    pub fn new(queue: sysv::Queue) -> io::Result<Queue> {
        Ok(Queue {
            polled: Polled::new(queue.pollable_with(Edges::All)?)?,
            queue,
        })
    }

    /// Sends a message of a type, which is 1 or more; waits while there is no room for it.
    ///
    /// ```
    /// # let dir = tempfile::tempdir_in("/dev/shm")?;
    /// # let namespace = umsg::Namespace::at(dir.path())?;
    /// # let queue = umsg::sysv::OpenOptions::new().create(true).namespace(&namespace).open(1)?;
    /// # tokio::runtime::Builder::new_current_thread().enable_io().build()?.block_on(async {
    /// let queue = umsg::aio::sysv::Queue::new(queue)?;
    /// queue.send(5, b"job").await?;
    /// assert_eq!(queue.get_ref().status()?.entry.messages, 1);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// # })?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// All errors of [`SendError`] except `Full` and `TimedOut`; `Interrupted` if the runtime shuts down.
    ///
    /// # Cancel safety
    /// A future that is dropped before it is ready has sent nothing.
    ///
    /// # If the process dies
    /// The same as for [`sysv::Queue::send`].
    pub async fn send(&self, mtype: i64, message: &[u8]) -> Result<(), SendError> {
        consume_budget().await;
        let attempt = || match self.queue.try_send(mtype, message) {
            Err(SendError::Full) => None,
            other => Some(other),
        };
        let never = || false;
        self.polled
            .until(Interest::WRITABLE, never, attempt, SendError::Interrupted)
            .await
    }

    /// Receives the first message that matches `want`; waits while there is none.
    ///
    /// ```
    /// # let dir = tempfile::tempdir_in("/dev/shm")?;
    /// # let namespace = umsg::Namespace::at(dir.path())?;
    /// # let queue = umsg::sysv::OpenOptions::new().create(true).namespace(&namespace).open(1)?;
    /// # tokio::runtime::Builder::new_current_thread().enable_io().build()?.block_on(async {
    /// # queue.send(5, b"job")?;
    /// let queue = umsg::aio::sysv::Queue::new(queue)?;
    /// let mut buffer = [0; 64];
    /// assert_eq!(queue.receive(umsg::sysv::Want::Any, &mut buffer).await?.mtype, 5);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// # })?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// All errors of [`ReceiveError`] except `NoMessage` and `TimedOut`; `Interrupted` if the runtime shuts down.
    ///
    /// # Cancel safety
    /// A future that is dropped before it is ready has received nothing.
    ///
    /// # If the process dies
    /// The same as for [`sysv::Queue::receive`].
    pub async fn receive(&self, want: Want, buffer: &mut [u8]) -> Result<Received, ReceiveError> {
        consume_budget().await;
        let attempt = || match self.queue.try_receive(want, buffer) {
            Err(ReceiveError::NoMessage) => None,
            other => Some(other),
        };
        let never = || false;
        self.polled
            .until(
                Interest::READABLE,
                never,
                attempt,
                ReceiveError::Interrupted,
            )
            .await
    }

    /// Returns the queue, for calls that do not wait.
    ///
    /// ```
    /// # let dir = tempfile::tempdir_in("/dev/shm")?;
    /// # let namespace = umsg::Namespace::at(dir.path())?;
    /// # let queue = umsg::sysv::OpenOptions::new().create(true).namespace(&namespace).open(1)?;
    /// # tokio::runtime::Builder::new_current_thread().enable_io().build()?.block_on(async {
    /// let queue = umsg::aio::sysv::Queue::new(queue)?;
    /// assert_eq!(queue.get_ref().key(), 1);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// # })?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn get_ref(&self) -> &sysv::Queue {
        &self.queue
    }

    /// Returns the queue, and ends its registration with the runtime.
    ///
    /// ```
    /// # let dir = tempfile::tempdir_in("/dev/shm")?;
    /// # let namespace = umsg::Namespace::at(dir.path())?;
    /// # let queue = umsg::sysv::OpenOptions::new().create(true).namespace(&namespace).open(1)?;
    /// # tokio::runtime::Builder::new_current_thread().enable_io().build()?.block_on(async {
    /// let queue = umsg::aio::sysv::Queue::new(queue)?;
    /// let queue = queue.into_inner();
    /// queue.send(1, b"without a runtime")?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// # })?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn into_inner(self) -> sysv::Queue {
        self.queue
    }
}
