//! What is said of a queue as a whole: the fields of msqid_ds.

use super::permission::Rights;
use rustix::fs::Stat;
use std::time::{Duration, SystemTime};
use umsg_shm::sysv_engine::Counts;
use umsg_shm::sysv_engine::segment::{Fixed, Summary};

/// A queue as msgctl(2) describes it (`struct msqid_ds`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Entry {
    /// Its identifier: sequence number times 32,768 and index.
    pub id: i32,
    /// Its key; 0 if it has none.
    pub key: i32,
    /// User id of its owner.
    pub uid: u32,
    /// Group id of its owner.
    pub gid: u32,
    /// User id of its creator.
    pub cuid: u32,
    /// Group id of its creator.
    pub cgid: u32,
    /// Permission bits.
    pub mode: u32,
    /// How many messages are queued.
    pub messages: u64,
    /// How many bytes these have together.
    pub bytes: u64,
    /// How many bytes may be queued.
    pub qbytes: u64,
    /// Process id of the last sender; 0 if there was none.
    pub last_sender: u32,
    /// Process id of the last receiver; 0 if there was none.
    pub last_receiver: u32,
    /// When the last message was sent, in whole seconds; None if never.
    pub last_send: Option<SystemTime>,
    /// When the last message was received, in whole seconds; None if never.
    pub last_receive: Option<SystemTime>,
    /// When the queue was made, or its owner, mode or size changed last, in whole seconds; None if that can't be read.
    pub changed: Option<SystemTime>,
    /// False if the system does not let the caller read the queue's memory, because its mode grants nothing, or if the queue is
    /// damaged or of another version. Then the identifier and the
    /// key are right, owner and mode are those of the file (read and write permission alike, where the mode has one of
    /// them), and the rest is 0 or None.
    pub readable: bool,
}

impl Entry {
    /// Of a queue that is mapped.
    pub(super) fn of(fixed: &Fixed, counts: &Counts) -> Entry {
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
            ..Entry::with(fixed.header.id(), fixed.header.key(), Rights::of(fixed))
        }
    }

    /// Of a queue whose header was read.
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

    /// Of a queue whose file may not be opened, or is damaged.
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

/// Seconds since 1970 as a time; 0 is never, and so is what no clock can say.
fn time(seconds: u64) -> Option<SystemTime> {
    if seconds == 0 {
        return None;
    }
    SystemTime::UNIX_EPOCH.checked_add(Duration::from_secs(seconds))
}
