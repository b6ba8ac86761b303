//! POSIX message queues: messages with priorities, the highest first, first come first served within one.
//!
//! The semantics are those of Linux, mq_overview(7), down to the error numbers; where POSIX and Linux differ, Linux
//! wins. What differs from the kernel's queues: no system call unless a process has to wait; limits that belong to the
//! [namespace](crate::Namespace) and need no root; memory in proportion to what is queued, not to what was declared;
//! relative time-outs; [`Queue::peek`] and [`Queue::messages`].
//!
//! Messages can be written and read in place: [`Queue::reserve`], [`Queue::receive_lease`].
//!
//! Several messages in one call: [`Queue::send_batch`], [`Queue::receive_batch`].
//!
//! A process can be told of a message without waiting for it: [`Queue::notify`], [`Queue::notify_waiter`]; and a queue can be polled
//! along with sockets: [`Queue::pollable`].
//!
//! A queue can be told what to do with messages that it can't take, keep or deliver: [`OpenOptions::on_full`],
//! [`OpenOptions::time_to_live`], [`OpenOptions::max_deliveries`], [`OpenOptions::dead_letter`].
//!
//! A queue's contents in a file, and back: [`Queue::snapshot`], [`Snapshot::restore`]. What is the matter with a queue: [`diagnose`], [`repair`].
//!
//! # If a process dies
//! A message whose send returned is in the queue, whole; one whose send did not return is there whole or not at all.
//! A receiver that is killed takes with it at most the message that it was copying out. No thread waits for the dead.
//!
//! # Permissions
//! A queue's mode has read permission for receiving and write permission for sending, as in the kernel. To do either,
//! a process must map the queue's memory for writing; so the system enforces that those that may do neither have no
//! access at all, while which of the two a process may do binds only programs that go through this library.

mod access;
mod batch;
mod create;
mod dead_letter;
mod diagnose;
mod directory;
mod lease;
mod notify;
mod open;
mod options;
mod peek;
mod pollable;
mod queue;
mod reservation;
#[doc(hidden)]
#[allow(unsafe_code, reason = "C's structures, and threads with attributes")]
pub mod sigevent;
mod snapshot;
mod status;

pub use crate::error::{LeaseError, NotifyError, OpenError, ReceiveError, SendError, UnlinkError};
pub use crate::notification::{Notified, NotifyKind};
pub use crate::until::Until;
#[doc(hidden)]
pub use batch::{Incoming, Outgoing};
pub use dead_letter::Undelivered;
pub use diagnose::{diagnose, repair};
pub use directory::{Listed, list, list_untouched, unlink, unlink_in};
pub use lease::Lease;
pub use notify::{Awaited, Notify, Registered, Registration};
#[doc(hidden)]
pub use notify::{has_notifications, withdraw_notification};
pub use options::OpenOptions;
pub use peek::Peeked;
#[doc(hidden)]
pub use queue::name_of_file;
pub use queue::{Message, Queue, Received};
pub use reservation::Reservation;
pub use snapshot::{
    RestoreError, SavedMessage, Snapshot, SnapshotError, SnapshotInfo, SnapshotPart,
};
pub use status::{Attributes, Statistics, Status};
pub use umsg_shm::posix_engine::segment::OnFull;
pub use umsg_shm::waiters::pacing::Waiting;
