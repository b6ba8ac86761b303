//! System V message queues: messages with types. A receiver selects messages by type.
//!
//! The semantics are those of Linux, sysvipc(7), down to the error numbers. The differences from the kernel's queues:
//!
//! - A call makes a system call only if its thread has to wait.
//! - The limits belong to the [namespace](crate::Namespace), and need no root.
//! - Receiving by type costs the same for any number of other messages.
//! - There are time-outs, batches, [leases](Queue::receive_lease), [peeking](Queue::peek) and [polling](Queue::pollable).
//! - Messages can be [sent](Queue::send_after) or [returned](Lease::return_after) for a later delivery, and a stream of messages can
//!   [end](Queue::close_send), also when its last [producer](Queue::producer) ends. Programs that call msgsnd and msgrcv are not affected: they get
//!   delayed messages when these are due, and ignore the end of a stream.
//! - [`diagnose`] and [`repair`] examine and repair a queue.
//!
//! ```
//! # let dir = std::env::temp_dir().join(format!("umsg-sysv-{}", std::process::id()));
//! # std::os::unix::fs::DirBuilderExt::mode(&mut std::fs::DirBuilder::new(), 0o700).create(&dir)?;
//! # let namespace = umsg::Namespace::at(&dir)?;
//! use umsg::sysv::{OpenOptions, Want};
//!
//! let queue = OpenOptions::new()
//!     .create(true)
//! #   .namespace(&namespace)
//!     .open(0x7507)?;
//! queue.send(2, b"for a process that wants type 2")?;
//! queue.send(1, b"for a process that wants type 1")?;
//!
//! let mut buffer = [0; 64];
//! let received = queue.receive(Want::Exactly(1), &mut buffer)?;
//! assert_eq!(&buffer[..received.len], b"for a process that wants type 1");
//! let received = queue.receive(Want::Any, &mut buffer)?;
//! assert_eq!(received.mtype, 2);
//! queue.remove()?;
//! # std::fs::remove_dir_all(&dir)?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # If a process dies
//! If a send has returned, its message is in the queue. If the sender dies during the send, the complete message is in the queue, or no part of it.
//! If a receiver dies, at most the message that it was copying is lost. No thread waits for a dead process.
//!
//! # Permissions
//! A queue's mode says which users may send (write) and receive (read), as in the kernel. For both, a process must map the queue's memory
//! for writing. So the kernel denies all access to a user with neither permission. The library, not the kernel, enforces send-only and
//! receive-only access.

#[cfg(feature = "crash-points")]
mod account;
mod attachments;
mod batch;
mod close;
mod control;
mod create;
mod delay;
mod diagnose;
mod entry;
mod error;
mod file_rights;
mod glance;
mod info;
mod lease;
mod list;
mod options;
mod peek;
mod permission;
mod pollable;
mod producer;
mod queue;
pub mod raw;
mod receive;
mod receive_vec;
mod recycle;
mod registry;
mod scan;
mod send;
mod snapshot;
mod status;
mod sweep;

pub use crate::until::Until;
#[doc(hidden)]
pub use batch::{Incoming, Outgoing};
pub use control::{Change, remove_id as remove, set_id as set};
pub use diagnose::{diagnose, diagnose_id, repair, repair_id};
pub use entry::Entry;
pub use error::{ControlError, LeaseError, OpenError, ReceiveError, SendError};
pub use glance::Glance;
#[doc(hidden)]
pub use info::{MsgInfo, ipc_info, msg_info, msg_stat};
pub use lease::Lease;
pub use list::{Totals, ids, list, totals};
pub use options::{Delivery, OpenOptions};
pub use peek::Peeked;
pub use permission::forget_caller;
pub use producer::Producer;
pub use queue::Queue;
pub use receive::Received;
pub use receive_vec::Message;
pub use registry::PRIVATE;
#[doc(hidden)]
pub use registry::msgget;
pub use snapshot::{SavedMessage, Snapshot, SnapshotInfo};
pub use status::{Statistics, Status};
pub use umsg_shm::sysv_engine::order::Want;
pub use umsg_shm::waiters::pacing::Waiting;
