//! The interface that the backends share: one trait at the level of the C calls, and its implementations.

mod calls;
mod flawed;
mod native;

pub use calls::{Called, Functions, Place};
pub use flawed::{Flaw, Flawed};
pub use native::Native;

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::backend::{Answer, Basics, Failure};
use crate::sys::Pid;

/// The identifier of a queue.
pub type Id = i32;

/// The number of possible indexes. An identifier is a sequence number times this constant, plus the index.
pub const INDICES: i32 = 32768;

/// `MSG_COPY`: copies the message at a position, which replaces the type. The message stays in the queue.
pub const MSG_COPY: i32 = 0o40000;

/// `IPC_INFO`: the limits.
pub const IPC_INFO: i32 = 3;

/// `MSG_STAT_ANY`: like `MSG_STAT`, without a check of the read permission.
pub const MSG_STAT_ANY: i32 = 13;

/// The fields of `struct msqid_ds`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Status {
    /// `msg_perm.__key`: 0 for a private queue.
    pub key: i32,
    /// `msg_perm.uid`: the owner.
    pub uid: u32,
    /// `msg_perm.gid`: the owner's group.
    pub gid: u32,
    /// `msg_perm.cuid`: the creator.
    pub creator_uid: u32,
    /// `msg_perm.cgid`: the creator's group.
    pub creator_gid: u32,
    /// `msg_perm.mode`: the permission bits.
    pub mode: u32,
    /// `msg_perm.__seq`: the sequence number in the identifier.
    pub sequence: u32,
    /// `msg_stime`: the time of the last send, in seconds since 1970; 0 before the first send.
    pub sent: i64,
    /// `msg_rtime`: the time of the last receive; 0 before the first receive.
    pub received: i64,
    /// `msg_ctime`: the time of the creation or of the last change.
    pub changed: i64,
    /// `msg_cbytes`: the number of bytes in the queued messages.
    pub bytes: u64,
    /// `msg_qnum`: the number of queued messages.
    pub messages: u64,
    /// `msg_qbytes`: the maximum number of queued bytes.
    pub max_bytes: u64,
    /// `msg_lspid`: the process of the last send; 0 before the first send.
    pub last_sender: Pid,
    /// `msg_lrpid`: the process of the last receive; 0 before the first receive.
    pub last_receiver: Pid,
}

/// The fields that `IPC_SET` sets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Change {
    /// The owner.
    pub uid: u32,
    /// The owner's group.
    pub gid: u32,
    /// The permission bits.
    pub mode: u32,
    /// `msg_qbytes`: the maximum number of queued bytes.
    pub max_bytes: u64,
}

impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Change {
            uid,
            gid,
            mode,
            max_bytes,
        } = self;
        write!(
            f,
            "uid {uid}, gid {gid}, mode {mode:#o}, qbytes {max_bytes}"
        )
    }
}

impl Status {
    /// Returns a change that sets all fields to their present values.
    pub fn unchanged(&self) -> Change {
        Change {
            uid: self.uid,
            gid: self.gid,
            mode: self.mode,
            max_bytes: self.max_bytes,
        }
    }
}

/// The fields of `struct msginfo`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Info {
    /// `msgpool`. For `MSG_INFO`, it is the number of queues.
    pub pool: i32,
    /// `msgmap`. For `MSG_INFO`, it is the number of messages in all queues.
    pub map: i32,
    /// `msgmax`: the maximum length of a message, in bytes.
    pub max: i32,
    /// `msgmnb`: the maximum number of bytes in a new queue.
    pub mnb: i32,
    /// `msgmni`: the maximum number of queues.
    pub mni: i32,
    /// `msgssz`: unused by the kernel.
    pub ssz: i32,
    /// `msgtql`. For `MSG_INFO`, it is the number of bytes in all queued messages.
    pub tql: i32,
    /// `msgseg`: unused by the kernel.
    pub seg: i32,
}

/// An implementation of the System V calls of C.
#[allow(unused_variables)]
pub trait Backend: Basics {
    /// `msgget`.
    ///
    /// # Errors
    /// The errors of `msgget`. The errors of each following method are those of its call.
    fn get(&self, key: i32, flags: i32) -> Answer<Id>;

    /// `msgsnd`.
    fn send(&self, id: Id, mtype: i64, text: &[u8], flags: i32) -> Answer<()>;

    /// `msgrcv`. Returns the number of bytes, and the message's type.
    fn receive(&self, id: Id, text: &mut [u8], mtype: i64, flags: i32) -> Answer<(usize, i64)>;

    /// `msgctl` with `IPC_STAT`, `MSG_STAT` or `MSG_STAT_ANY`. Returns the return value and the structure.
    fn stat(&self, id: Id, command: i32) -> Answer<(i32, Status)>;

    /// `msgctl` with `IPC_SET`.
    fn set(&self, id: Id, change: &Change) -> Answer<()>;

    /// `msgctl` with `IPC_RMID`.
    fn remove(&self, id: Id) -> Answer<()>;

    /// `msgctl` with `IPC_INFO` or `MSG_INFO`. Returns the return value and the structure.
    fn info(&self, command: i32) -> Answer<(i32, Info)>;

    /// Returns whether the backend is a library in the process. A library accesses memory itself, so a bad address causes a signal instead of EFAULT.
    /// A library maps queues with the rights of its process, so a user without access to a queue can't see the queue's counts.
    fn is_library(&self) -> bool {
        false
    }

    /// Returns the backend's C functions, for calls with sizes and addresses that a slice can't have.
    fn functions(&self) -> Answer<&Functions> {
        Err(Failure::Unsupported(
            "it has slices, not sizes and pointers",
        ))
    }

    /// Sets the maximum number of queues. Fails if the backend has only a limit that other processes share.
    fn limit_queues(&self, max_queues: u32) -> Answer<()> {
        Err(Failure::Unsupported("its limits can't be set for one test"))
    }

    /// Chooses the identifier of the next queue, like `msg_next_id` of the kernel. Fails if the choice would also apply to other processes.
    fn want_id(&self, id: u32) -> Answer<()> {
        Err(Failure::Unsupported("its identifiers can't be chosen"))
    }
}
