//! Messages of a ring.

use std::os::fd::OwnedFd;
use zerocopy::{Immutable, IntoBytes};

/// The longest payload of a [`Post`], in bytes.
pub const INLINE: usize = 64;

/// Length of the fields before the payload, in bytes.
pub(super) const HEAD: usize = 16;

/// A message to be sent: the fields of a completion of io_uring, and up to [`INLINE`] bytes.
///
/// ```
/// use umsg::ring::Post;
/// let post = Post::new(7).res(-5).flags(1).payload(b"payload");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, IntoBytes, Immutable)]
#[repr(C)]
pub struct Post {
    user_data: u64,
    res: i32,
    flags: u32,
    payload: [u8; INLINE],
    len: u64,
}

impl Post {
    /// Returns a message with this `user_data`, a `res` and `flags` of 0, and no payload.
    ///
    /// ```
    /// # let mut ring = umsg::ring::Options::new().create()?;
    /// # let sender = ring.sender();
    /// use umsg::ring::Post;
    ///
    /// sender.send(&Post::new(7))?;
    /// assert_eq!(ring.receive()?.user_data, 7);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[inline]
    #[must_use]
    pub fn new(user_data: u64) -> Post {
        Post {
            user_data,
            res: 0,
            flags: 0,
            payload: [0; INLINE],
            len: 0,
        }
    }

    /// Sets `res`.
    ///
    /// ```
    /// # let mut ring = umsg::ring::Options::new().create()?;
    /// # let sender = ring.sender();
    /// use umsg::ring::Post;
    ///
    /// sender.send(&Post::new(7).res(-5))?;
    /// assert_eq!(ring.receive()?.res, -5);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[inline]
    #[must_use]
    pub fn res(mut self, res: i32) -> Post {
        self.res = res;
        self
    }

    /// Sets `flags`. All bits are free for the sender's use.
    ///
    /// ```
    /// # let mut ring = umsg::ring::Options::new().create()?;
    /// # let sender = ring.sender();
    /// use umsg::ring::Post;
    ///
    /// sender.send(&Post::new(7).flags(1 << 16))?;
    /// assert_eq!(ring.receive()?.flags, 1 << 16);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[inline]
    #[must_use]
    pub fn flags(mut self, flags: u32) -> Post {
        self.flags = flags;
        self
    }

    /// Sets the payload.
    ///
    /// ```
    /// # let mut ring = umsg::ring::Options::new().create()?;
    /// # let sender = ring.sender();
    /// use umsg::ring::Post;
    ///
    /// sender.send(&Post::new(7).payload(b"news"))?;
    /// assert_eq!(ring.receive()?.payload, b"news");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Panics
    /// Panics if the payload is longer than [`INLINE`] bytes: see [`Sender::send_long`](super::Sender::send_long).
    #[inline]
    #[must_use]
    pub fn payload(mut self, payload: &[u8]) -> Post {
        self.payload[..payload.len()].copy_from_slice(payload);
        self.len = payload.len() as u64;
        self
    }

    /// Returns the bytes that represent the message in the ring.
    #[inline]
    pub(super) fn wire(&self) -> &[u8] {
        &self.as_bytes()[..HEAD + self.len as usize]
    }

    /// Returns the bytes of a message in the ring: the head of this message, followed by `payload`.
    pub(super) fn wire_with(&self, payload: &[u8]) -> Vec<u8> {
        let mut wire = self.as_bytes()[..HEAD].to_vec();
        wire.extend_from_slice(payload);
        wire
    }
}

/// The identity of a message's sender: its process, and the number of its [`Sender`](super::Sender), which tells senders of one
/// process apart.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Tag {
    /// Process id.
    pub pid: u32,
    /// The sender's number, which no other sender of the ring has.
    pub index: u32,
}

/// A message that was received. Its payload lies in the ring's buffer until the next receive.
#[derive(Debug)]
#[non_exhaustive]
pub struct Message<'a> {
    /// The `user_data` that the sender has set.
    pub user_data: u64,
    /// The `res` that the sender has set. If the message has a descriptor, the number of that descriptor in this process.
    pub res: i32,
    /// The `flags` that the sender has set.
    pub flags: u32,
    /// The payload.
    pub payload: &'a [u8],
    /// The sender.
    pub tag: Tag,
    /// The descriptor that came with the message.
    pub descriptor: Option<OwnedFd>,
}

/// The sender's part of a message's record: 48 bits, which the engine stores with the message and calls its mark.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Mark {
    pub(super) index: u32,
    pub(super) control: u16,
}

/// A value of [`Mark::control`]: the message has a descriptor.
pub(super) const WITH_DESCRIPTOR: u16 = 1;

impl Mark {
    pub(super) fn to_bits(self) -> u64 {
        u64::from(self.control) << 32 | u64::from(self.index)
    }

    pub(super) fn of_bits(bits: u64) -> Mark {
        Mark {
            index: bits as u32,
            control: (bits >> 32) as u16,
        }
    }
}

/// Reads user_data, res and flags, which precede the payload. Returns `None` if the message is too short for these fields.
pub(super) fn head(wire: &[u8]) -> Option<(u64, i32, u32)> {
    let user_data = u64::from_ne_bytes(wire.get(..8)?.try_into().ok()?);
    let res = i32::from_ne_bytes(wire.get(8..12)?.try_into().ok()?);
    let flags = u32::from_ne_bytes(wire.get(12..HEAD)?.try_into().ok()?);
    Some((user_data, res, flags))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_post_lies_in_the_ring_as_a_completion_and_its_payload() {
        let post = Post::new(0x0102).res(-1).flags(3).payload(b"abc");
        let wire = post.wire();
        assert_eq!((wire.len(), &wire[HEAD..]), (HEAD + 3, &b"abc"[..]));
        assert_eq!(head(wire), Some((0x0102, -1, 3)));
        assert_eq!(head(&wire[..15]), None);
    }

    #[test]
    fn a_mark_keeps_senders_number_and_control_apart() {
        let mark = Mark {
            index: u32::MAX,
            control: WITH_DESCRIPTOR,
        };
        assert_eq!(Mark::of_bits(mark.to_bits()), mark);
        assert!(mark.to_bits() < 1 << 48);
    }
}
