//! JSON output of System V queues. A field keeps its name and meaning in later versions.

use serde::Serialize;
use umsg::sysv::{Entry, Status};

use super::super::time::utc;
use super::queue::statistics;

/// A queue, as `stat`, `ls` and `create` print it. A field is null if the caller has no permission to receive, or if `ls` does not read the field.
#[derive(Serialize)]
pub struct SysvQueue {
    pub id: i32,
    /// The key, as ipcs(1) prints it; null for a queue without a key.
    pub key: Option<String>,
    pub messages: u64,
    pub bytes: u64,
    pub qbytes: u64,
    pub mode: String,
    pub uid: u32,
    pub gid: u32,
    pub creator_uid: u32,
    pub creator_gid: u32,
    pub last_send: Option<String>,
    pub last_sender_pid: Option<u32>,
    pub last_receive: Option<String>,
    pub last_receiver_pid: Option<u32>,
    pub changed: Option<String>,
    /// False if the counts and times are unknown.
    pub readable: bool,
    #[serde(flatten)]
    pub inside: Option<Inside>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub types: Option<Vec<OfType>>,
}

/// Fields that the caller sees only with permission to receive.
#[derive(Serialize)]
pub struct Inside {
    pub msgmax: usize,
    pub created: String,
    pub creator_pid: u32,
    pub blocked_senders: usize,
    pub blocked_receivers: usize,
    pub leased: u64,
    pub leased_bytes: u64,
    pub delayed: u64,
    pub retry_delay_seconds: Option<f64>,
    pub retry_delay_limit_seconds: Option<f64>,
    pub send_closed: bool,
    pub close_with_last_producer: bool,
    pub producers: usize,
    pub memory: u64,
    pub damaged: bool,
    pub statistics: Statistics,
}

statistics! {
    umsg::sysv::Statistics {
        repairs: u32,
    }
}

/// The number of messages of a type.
#[derive(Serialize)]
pub struct OfType {
    #[serde(rename = "type")]
    pub mtype: i64,
    pub messages: u32,
}

impl SysvQueue {
    pub fn new(entry: &Entry, status: Option<&Status>) -> SysvQueue {
        let pid = |pid: u32| (pid != 0).then_some(pid);
        SysvQueue {
            id: entry.id,
            key: (entry.key != 0).then(|| format!("{:#010x}", entry.key)),
            messages: entry.messages,
            bytes: entry.bytes,
            qbytes: entry.qbytes,
            mode: format!("{:04o}", entry.mode),
            uid: entry.uid,
            gid: entry.gid,
            creator_uid: entry.cuid,
            creator_gid: entry.cgid,
            last_send: entry.last_send.map(utc),
            last_sender_pid: pid(entry.last_sender),
            last_receive: entry.last_receive.map(utc),
            last_receiver_pid: pid(entry.last_receiver),
            changed: entry.changed.map(utc),
            readable: entry.readable,
            inside: status.map(Inside::new),
            types: None,
        }
    }

    pub fn with_types(mut self, types: &[(i64, u32)]) -> SysvQueue {
        let of_type = |&(mtype, messages): &(i64, u32)| OfType { mtype, messages };
        self.types = Some(types.iter().map(of_type).collect());
        self
    }
}

impl Inside {
    fn new(status: &Status) -> Inside {
        Inside {
            msgmax: status.msgmax,
            created: utc(status.created),
            creator_pid: status.creator,
            blocked_senders: status.blocked_senders,
            blocked_receivers: status.blocked_receivers,
            leased: status.leased,
            leased_bytes: status.leased_bytes,
            delayed: status.delayed,
            retry_delay_seconds: status.retry_delay.map(|(first, _)| first.as_secs_f64()),
            retry_delay_limit_seconds: status.retry_delay.map(|(_, most)| most.as_secs_f64()),
            send_closed: status.send_closed,
            close_with_last_producer: status.close_with_last_producer,
            producers: status.producers,
            memory: status.memory,
            damaged: status.damaged,
            statistics: Statistics::new(&status.statistics),
        }
    }
}
