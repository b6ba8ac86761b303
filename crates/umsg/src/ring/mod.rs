//! Message rings: messages posted to a thread or a process that is their one receiver, as io_uring's MSG_RING posts
//! completions to another ring. Nothing has to be built of a queue and a wake-up, and it works where io_uring is switched off.
//!
//! A message is `user_data`, `res`, `flags`, and up to 64 bytes; longer payloads where the ring was made for them. Posting
//! involves the receiver only if it sleeps; one that waits for `n` messages is woken once, when the `n`th is there.
//! More messages than entries keep their order and are all delivered, up to a bound; past it the sender chooses: an error,
//! waiting, or counting a drop.
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
//! What waiting costs is counted, see [`Status`].
//!
//! # If a process dies
//! A sender that is killed leaves a whole message or none, and holds up nobody. If the owner dies, senders are told so
//! ([`SendError::OwnerDead`]): a send within ten milliseconds, a sender that waits for room within a tenth of a second.

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
pub use directory::{Found, Listed, find, list, unlink_anyway_in, unlink_in};
pub use error::{ReceiveError, RingError, SendError};
pub use message::{INLINE, Message, Post, Tag};
pub use options::Options;
pub use receiver::Ring;
pub use sender::Sender;
pub use status::Status;
pub use umsg_shm::waiters::pacing::Waiting;
