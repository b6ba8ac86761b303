//! The description of a queue: the fields of msqid_ds.

use super::permission::Rights;
use rustix::fs::Stat;
use std::time::{Duration, SystemTime};
use umsg_shm::sysv_engine::Counts;
use umsg_shm::sysv_engine::segment::{Fixed, Summary};

/// A queue as msgctl(2) describes it (`struct msqid_ds`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Entry {
    /// The identifier: sequence number times 32,768, plus index.
    pub id: i32,
    /// The key; 0 without a key.
    pub key: i32,
    /// User id of the owner.
    pub uid: u32,
    /// Group id of the owner.
    pub gid: u32,
    /// User id of the creator.
    pub cuid: u32,
    /// Group id of the creator.
    pub cgid: u32,
    /// Permission bits.
    pub mode: u32,
    /// The number of queued messages.
    pub messages: u64,
    /// The bytes of the queued messages together.
    pub bytes: u64,
    /// The bytes that may be queued.
    pub qbytes: u64,
    /// Process id of the last sender; 0 if there was none.
    pub last_sender: u32,
    /// Process id of the last receiver; 0 if there was none.
    pub last_receiver: u32,
    /// The time of the last send, in whole seconds; None if no message was sent.
    pub last_send: Option<SystemTime>,
    /// The time of the last receive, in whole seconds; None if no message was received.
    pub last_receive: Option<SystemTime>,
    /// The time of the last change of owner, mode or size, or of the creation, in whole seconds; None if it can't be read.
    pub changed: Option<SystemTime>,
    /// True if the queue's memory could be read. It is false if the queue's mode gives the caller no access, or if the queue is
    /// corrupted or of another version. In these cases, the identifier and the key are correct, and owner and mode are those of the file. For each
    /// class of users, the file's mode has read and write permission if the queue's mode has one of them. All other fields are 0 or None.
    pub readable: bool,
}

impl Entry {
    /// Describes a mapped queue, which has this identifier.
    pub(super) fn of(id: i32, fixed: &Fixed, counts: &Counts) -> Entry {
        Entry {
            messages: counts.messages,
            bytes: counts.bytes,
            qbytes: counts.qbytes,
            last_sender: counts.sender,
            last_receiver: counts.receiver,
            last_send: time(counts.sent_at),
            last_receive: time(counts.received_at),
            changed: time(fixed.rights.changed_at()),
            readable: true,
            ..Entry::with(id, fixed.header.key(), Rights::of(fixed))
        }
    }

    /// Describes a queue from its header.
    pub(super) fn of_summary(said: &Summary) -> Entry {
        Entry {
            messages: said.messages,
            bytes: said.bytes,
            qbytes: said.qbytes,
            last_sender: said.sender,
            last_receiver: said.receiver,
            last_send: time(said.sent_at),
            last_receive: time(said.received_at),
            changed: time(said.changed_at),
            readable: true,
            ..Entry::with(said.id, said.key, Rights::of_summary(said))
        }
    }

    /// Describes a queue whose file can't be opened or is corrupted.
    pub(super) fn of_file(id: i32, key: i32, stat: &Stat) -> Entry {
        Entry::with(id, key, Rights::of_file(stat))
    }

    fn with(id: i32, key: i32, rights: Rights) -> Entry {
        Entry {
            id,
            key,
            uid: rights.uid,
            gid: rights.gid,
            cuid: rights.cuid,
            cgid: rights.cgid,
            mode: rights.mode,
            messages: 0,
            bytes: 0,
            qbytes: 0,
            last_sender: 0,
            last_receiver: 0,
            last_send: None,
            last_receive: None,
            changed: None,
            readable: false,
        }
    }
}

/// Converts seconds since 1970 to a time. None for 0, and for a time that can't be represented.
fn time(seconds: u64) -> Option<SystemTime> {
    if seconds == 0 {
        return None;
    }
    SystemTime::UNIX_EPOCH.checked_add(Duration::from_secs(seconds))
}
