//! POSIX message queues: messages with priorities. The highest priority comes first; within one priority, the first message sent
//! comes first.
//!
//! The semantics are those of Linux, mq_overview(7), down to the error numbers. Where POSIX and Linux differ, Linux wins. The queues differ from the
//! kernel's queues in these points. A call makes a system call only if a process has to wait. The limits belong to the [namespace](crate::Namespace),
//! and raising them needs no root. The memory is in proportion to the queued messages, not to the declared capacity. Time-outs may be relative, and
//! [`Queue::peek`] and [`Queue::messages`] copy messages that stay in the queue.
//!
//! Messages can be written and read in place: [`Queue::reserve`], [`Queue::receive_lease`].
//!
//! Several messages in one call: [`Queue::send_batch`], [`Queue::receive_batch`].
//!
//! Notification of a message without waiting for it: [`Queue::notify`], [`Queue::notify_waiter`]. Polling of a queue together with sockets:
//! [`Queue::pollable`].
//!
//! Messages for a later delivery: [`Queue::send_after`], [`Lease::return_after`], [`OpenOptions::retry_delay`].
//!
//! The end of a stream of messages: [`Queue::close_send`], [`OpenOptions::close_with_last_producer`].
//!
//! A queue's policy for messages that it can't accept, keep or deliver: [`OpenOptions::on_full`], [`OpenOptions::time_to_live`],
//! [`OpenOptions::max_deliveries`], [`OpenOptions::dead_letter`]. The history of dead letters, and their return to the source:
//! [`Queue::dead_letters`], [`Queue::redrive`].
//!
//! Fair delivery: lower priorities get turns, so that their messages do not wait for ever: [`OpenOptions::fair_priorities`].
//!
//! The events of each message, with their times and processes: [`OpenOptions::trace_messages`].
//!
//! Saving a queue's contents to a file and restoring them: [`Queue::snapshot`], [`Snapshot::restore`]. Inspection and repair of
//! a queue: [`diagnose`], [`repair`].
//!
//! # If a process dies
//! A message is complete in the queue if its send returned. If the send did not return, the message is complete in the queue or
//! absent. A receiver that is killed loses at most the message that it was copying. No thread waits for a dead process.
//!
//! # Permissions
//! Read permission in a queue's mode allows receiving, and write permission allows sending, as in the kernel. To receive or send, a process must map
//! the queue's memory for writing. So the system denies all access to a user with neither permission. The library, not the system, enforces the
//! difference between sending and receiving.

mod absence;
mod access;
#[cfg(feature = "crash-points")]
mod account;
mod batch;
mod close;
mod create;
mod dead_letter;
mod delay;
mod diagnose;
mod directory;
mod existing;
mod from_fd;
mod glance;
mod history;
mod known_file;
mod lease;
mod message_event;
mod notify;
mod open;
mod options;
mod origin;
mod peek;
mod pollable;
mod producer;
mod queue;
mod receive;
mod receive_vec;
mod recycle;
mod redrive;
mod reservation;
mod send;
#[allow(unsafe_code, reason = "C's structures, and threads with attributes")]
pub mod sigevent;
pub(crate) mod snapshot;
mod status;
mod transfer;

pub use crate::error::{LeaseError, NotifyError, OpenError, ReceiveError, SendError, UnlinkError};
pub use crate::notification::{Notified, NotifyKind};
pub use crate::until::Until;
#[doc(hidden)]
pub use absence::Directory;
#[doc(hidden)]
pub use batch::{Incoming, Outgoing};
pub use dead_letter::Undelivered;
pub use diagnose::{diagnose, repair};
#[doc(hidden)]
pub use directory::unlink_mapped;
pub use directory::{Listed, list, list_untouched, names, unlink, unlink_in};
pub use existing::Existing;
#[doc(hidden)]
pub use from_fd::name_of_file;
pub use glance::Glance;
pub use history::{DeadReason, History};
#[doc(hidden)]
pub use known_file::{FileState, KnownFile};
pub use lease::Lease;
pub use message_event::{EventKind, MessageEvent};
pub use notify::{Awaited, Notify, Registered, Registration};
#[doc(hidden)]
pub use notify::{has_notifications, withdraw_notification, withdraw_notification_at_close};
pub use options::OpenOptions;
pub use origin::Origin;
pub use peek::Peeked;
pub use producer::Producer;
pub use queue::Queue;
pub use receive::Received;
pub use receive_vec::Message;
#[doc(hidden)]
pub use recycle::{begin_recycling, give_up};
pub use redrive::{PeekedLetter, Redrive, RedriveFailure, Redriven, Refused};
pub use reservation::Reservation;
pub use snapshot::{
    RestoreError, SavedMessage, Snapshot, SnapshotError, SnapshotInfo, SnapshotPart,
};
pub use status::{Attributes, Statistics, Status};
pub use umsg_shm::posix_engine::segment::OnFull;
pub use umsg_shm::waiters::pacing::Waiting;
