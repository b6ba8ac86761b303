//! Receiving with tokio.

use super::error::ReceiveError;
use super::message::Message;
use super::receiver::Ring;
use crate::error::QueueError;
use std::os::fd::OwnedFd;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use umsg_shm::sys::clock::Deadline;

/// The receiver of a ring for tokio. The receiver waits on the ring's [descriptor](Ring::pollable), so that no thread waits. To receive a message
/// that is already in the ring, the receiver makes no system call.
///
/// ```
/// # tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
/// use umsg::ring::{AsyncRing, Options, Post};
/// let ring = Options::new().create()?;
/// let sender = ring.sender();
/// let mut ring = AsyncRing::new(ring)?;
/// std::thread::spawn(move || sender.send(&Post::new(7)).unwrap());
/// assert_eq!(ring.receive().await?.user_data, 7);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct AsyncRing {
    /// A second descriptor of the ring's socket.
    descriptor: AsyncFd<OwnedFd>,
    ring: Ring,
}

impl AsyncRing {
    /// Registers a ring with the runtime of the calling task.
    ///
    /// ```
    /// # let mut ring = umsg::ring::Options::new().create()?;
    /// # let sender = ring.sender();
    /// # tokio::runtime::Builder::new_current_thread().enable_io().build()?.block_on(async {
    /// let mut ring = umsg::ring::AsyncRing::new(ring)?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// # })?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// The errors of duplicating the ring's descriptor (EMFILE), and of epoll_ctl(2).
    ///
    /// # Panics
    /// Panics if the caller does not run in a runtime with I/O enabled.
    pub fn new(mut ring: Ring) -> std::io::Result<AsyncRing> {
        let descriptor = ring.pollable().try_clone_to_owned()?;
        // SAFETY: the registration owns the descriptor, closes it when the registration ends, and always returns the same descriptor.
        let descriptor =
            unsafe { AsyncFd::register_with_interest(descriptor, Interest::READABLE)? };
        Ok(AsyncRing { descriptor, ring })
    }

    /// Receives the next message. If the future is dropped before it is ready, no message is lost.
    ///
    /// ```
    /// # let mut ring = umsg::ring::Options::new().create()?;
    /// # let sender = ring.sender();
    /// # tokio::runtime::Builder::new_current_thread().enable_io().build()?.block_on(async {
    /// let mut ring = umsg::ring::AsyncRing::new(ring)?;
    /// sender.send(&umsg::ring::Post::new(7))?;
    /// assert_eq!(ring.receive().await?.user_data, 7);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// # })?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// `Damaged`, `WouldDeadlock`.
    pub async fn receive(&mut self) -> Result<Message<'_>, ReceiveError> {
        let taken = loop {
            match self.ring.take(Deadline::Passed) {
                Err(ReceiveError::Empty) => {}
                other => break other?,
            }
            // The ring's wake word is armed: the next message makes the descriptor readable.
            let ready = self.descriptor.readable().await;
            ready
                .map_err(|_| ReceiveError::Queue(QueueError::Damaged))?
                .clear_ready();
        };
        self.ring.message(taken)
    }

    /// Returns the ring, for calls that do not wait.
    ///
    /// ```
    /// # let mut ring = umsg::ring::Options::new().create()?;
    /// # let sender = ring.sender();
    /// # tokio::runtime::Builder::new_current_thread().enable_io().build()?.block_on(async {
    /// let mut ring = umsg::ring::AsyncRing::new(ring)?;
    /// assert_eq!(ring.get_mut().available(), 0);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// # })?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn get_mut(&mut self) -> &mut Ring {
        &mut self.ring
    }

    /// Returns the ring, and ends its registration.
    ///
    /// ```
    /// # let mut ring = umsg::ring::Options::new().create()?;
    /// # let sender = ring.sender();
    /// # tokio::runtime::Builder::new_current_thread().enable_io().build()?.block_on(async {
    /// let ring = umsg::ring::AsyncRing::new(ring)?.into_inner();
    /// assert_eq!(ring.available(), 0);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// # })?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn into_inner(self) -> Ring {
        self.ring
    }
}
