//! Receiving messages that own their payload.

use super::error::ReceiveError;
use super::message::{Message, Tag};
use super::receiver::Ring;
use crate::until::Until;
use std::os::fd::OwnedFd;
use std::time::{Duration, SystemTime};

/// A received message that owns its payload, and outlives the next receive.
#[derive(Debug)]
#[non_exhaustive]
pub struct OwnedMessage {
    /// The `user_data` that the sender has set.
    pub user_data: u64,
    /// The `res` that the sender has set. If the message has a descriptor, the number of that descriptor in this process.
    pub res: i32,
    /// The `flags` that the sender has set.
    pub flags: u32,
    /// The payload.
    pub payload: Vec<u8>,
    /// The sender.
    pub tag: Tag,
    /// The descriptor that came with the message.
    pub descriptor: Option<OwnedFd>,
}

impl From<Message<'_>> for OwnedMessage {
    fn from(message: Message<'_>) -> OwnedMessage {
        OwnedMessage {
            user_data: message.user_data,
            res: message.res,
            flags: message.flags,
            payload: message.payload.to_vec(),
            tag: message.tag,
            descriptor: message.descriptor,
        }
    }
}

impl Ring {
    /// Receives a message with a payload of its own; otherwise behaves as [`receive`](Self::receive).
    ///
    /// ```
    /// # let mut ring = umsg::ring::Options::new().create()?;
    /// # let sender = ring.sender();
    /// use umsg::ring::Post;
    ///
    /// sender.send(&Post::new(7).payload(b"first"))?;
    /// sender.send(&Post::new(8).payload(b"second"))?;
    /// let (first, second) = (ring.receive_vec()?, ring.receive_vec()?);
    /// assert_eq!((&first.payload[..], &second.payload[..]), (&b"first"[..], &b"second"[..]));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// The errors of [`receive`](Self::receive).
    pub fn receive_vec(&mut self) -> Result<OwnedMessage, ReceiveError> {
        self.receive().map(OwnedMessage::from)
    }

    /// Receives a message with a payload of its own; otherwise behaves as [`try_receive`](Self::try_receive).
    ///
    /// ```
    /// # let mut ring = umsg::ring::Options::new().create()?;
    /// # let sender = ring.sender();
    /// assert!(ring.try_receive_vec().is_err());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// The errors of [`try_receive`](Self::try_receive).
    pub fn try_receive_vec(&mut self) -> Result<OwnedMessage, ReceiveError> {
        self.try_receive().map(OwnedMessage::from)
    }

    /// Receives a message with a payload of its own; otherwise behaves as [`receive_timeout`](Self::receive_timeout).
    ///
    /// ```
    /// # let mut ring = umsg::ring::Options::new().create()?;
    /// # let sender = ring.sender();
    /// let moment = std::time::Duration::from_millis(1);
    /// assert!(ring.receive_vec_timeout(moment).is_err());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// The errors of [`receive_timeout`](Self::receive_timeout).
    pub fn receive_vec_timeout(&mut self, timeout: Duration) -> Result<OwnedMessage, ReceiveError> {
        self.receive_timeout(timeout).map(OwnedMessage::from)
    }

    /// Receives a message with a payload of its own; waits for the message at most until `deadline`, on the system's clock (CLOCK_REALTIME).
    ///
    /// ```
    /// # let mut ring = umsg::ring::Options::new().create()?;
    /// # let sender = ring.sender();
    /// sender.send(&umsg::ring::Post::new(7))?;
    /// let soon = std::time::SystemTime::now() + std::time::Duration::from_secs(1);
    /// assert_eq!(ring.receive_vec_deadline(soon)?.user_data, 7);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// The errors of [`receive_timeout`](Self::receive_timeout).
    pub fn receive_vec_deadline(
        &mut self,
        deadline: SystemTime,
    ) -> Result<OwnedMessage, ReceiveError> {
        self.receive_until(Until::Time(deadline))
            .map(OwnedMessage::from)
    }
}
