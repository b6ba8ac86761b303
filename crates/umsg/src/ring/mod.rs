//! Message rings. A ring carries messages from many senders to its one receiver, a thread or a process. A sender posts messages as io_uring's
//! MSG_RING posts completions to another ring. A program needs no separate wake-up beside a ring, as it would beside a queue. A ring also works where
//! io_uring is disabled.
//!
//! A message is `user_data`, `res`, `flags`, and up to 64 bytes. A ring can be made for longer payloads. Posting involves the receiver only if the
//! receiver sleeps. A receiver that waits for `n` messages is woken once, when the ring has `n` messages.
//!
//! If there are more messages than entries, the further messages go to the overflow. All messages are delivered, in order. If the overflow is full,
//! too, the sender gets an error, waits, or drops the message, which is counted. The method that the sender calls decides between these three.
//!
//! ```
//! use umsg::ring::{Options, Post, Until};
//!
//! let mut ring = Options::new().entries(1024).create()?; // or create_in(&namespace, "/jobs")
//! let sender = ring.sender(); // or, in another process, Sender::open("/jobs")?
//! std::thread::spawn(move || sender.send(&Post::new(7).payload(b"work")));
//! ring.wait(1, Until::Forever)?; // woken once, when so many are there
//! ring.drain(|message| assert_eq!((message.user_data, message.payload), (7, &b"work"[..])))?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # CPU time
//! [`Status`] counts the CPU time of waiting.
//!
//! # If a process dies
//! A sender that is killed leaves a complete message or none, and holds up no other process. If the owner dies, senders get
//! [`SendError::OwnerDead`]: a send within ten milliseconds, a sender that waits for room within a tenth of a second.

#[cfg(feature = "tokio")]
#[allow(unsafe_code, reason = "a descriptor is registered with tokio")]
mod asynchronous;
mod diagnose;
mod directory;
mod doorbell;
mod error;
mod lock;
mod message;
mod options;
mod place;
mod receive_vec;
mod receiver;
mod sender;
mod shared;
mod status;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod threads;

pub use crate::until::Until;
#[cfg(feature = "tokio")]
pub use asynchronous::AsyncRing;
pub use diagnose::{diagnose, repair};
pub use directory::{FoundRing, Listed, Observer, find, list, names, unlink_anyway_in, unlink_in};
pub use error::{ReceiveError, RingError, SendError};
pub use message::{INLINE, Message, Post, Tag};
pub use options::Options;
pub use receive_vec::OwnedMessage;
pub use receiver::Ring;
pub use sender::Sender;
pub use status::Status;
pub use umsg_shm::waiters::pacing::Waiting;
