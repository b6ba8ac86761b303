//! The bytes of a snapshot of a System V queue: docs/snapshot.md, versions 2.0 and 4.0.

use super::SnapshotInfo;
use crate::posix::snapshot::format::{CHECKSUM, Fields, LONGEST_RECORD_HEAD, MAGIC, START, part};
use std::time::{Duration, SystemTime};
use umsg_shm::sysv_engine::Seen;
use umsg_shm::sysv_engine::segment::LONGEST;

/// The major version of a snapshot of a System V queue; that of a POSIX queue is 1 or 3.
pub(super) const MAJOR: u16 = 2;
/// The major version for a queue with states that a reader of version 2 would lose.
pub(super) const MAJOR_WITH_STATES: u16 = 4;
/// Length of a header.
const HEADER: usize = 68;
/// Length of the states in the header of version 4.
const STATES: usize = 4 + 2 * 8;
/// Bits of the flags of version 4.
const CLOSE_WITH_LAST_PRODUCER: u32 = 2;
const SEND_CLOSED: u32 = 4;
/// Length of the head of a message's record.
pub(super) const RECORD_HEAD: usize = 28;

const _: () = assert!(HEADER == START + 4 * 4 + 4 * 8 + CHECKSUM);

/// Returns the length of the shortest header of a major version.
pub(super) fn least_header(major: u16) -> usize {
    match major {
        MAJOR_WITH_STATES => HEADER + STATES,
        _ => HEADER,
    }
}

fn major(info: &SnapshotInfo) -> u16 {
    match info.send_closed || info.close_with_last_producer || info.retry_delay.is_some() {
        true => MAJOR_WITH_STATES,
        false => MAJOR,
    }
}

/// Encodes the header, without the checksum.
pub(super) fn encode(info: &SnapshotInfo) -> Vec<u8> {
    let major = major(info);
    let len = least_header(major);
    let mut bytes = Vec::with_capacity(len);
    bytes.extend(MAGIC);
    bytes.extend(major.to_le_bytes());
    bytes.extend(0_u16.to_le_bytes());
    let key = info.key.cast_unsigned();
    let words = [len as u32, key, info.msgmax, info.mode, RECORD_HEAD as u32];
    bytes.extend(words.into_iter().flat_map(u32::to_le_bytes));
    let taken = info
        .taken
        .duration_since(SystemTime::UNIX_EPOCH)
        .unwrap_or_default();
    let long = [
        info.messages,
        info.bytes,
        taken.as_nanos() as u64,
        info.qbytes,
    ];
    bytes.extend(long.into_iter().flat_map(u64::to_le_bytes));
    if major == MAJOR_WITH_STATES {
        bytes.extend(states(info));
    }
    bytes
}

/// Encodes the fields that version 4 has after those of version 2.
fn states(info: &SnapshotInfo) -> Vec<u8> {
    let flags = [
        (info.close_with_last_producer, CLOSE_WITH_LAST_PRODUCER),
        (info.send_closed, SEND_CLOSED),
    ];
    let set = flags.into_iter().filter(|(is_set, _)| *is_set);
    let flags: u32 = set.map(|(_, flag)| flag).sum();
    let (first, most) = info.retry_delay.unwrap_or_default();
    let delays = [first, most].map(|delay| delay.as_nanos() as u64);
    let mut bytes = flags.to_le_bytes().to_vec();
    bytes.extend(delays.into_iter().flat_map(u64::to_le_bytes));
    bytes
}

/// Decodes the fields that version 4 has after those of version 2.
fn take_states(fields: &mut Fields<'_>, info: &mut SnapshotInfo) -> Option<()> {
    let flags = fields.u32()?;
    info.close_with_last_producer = flags & CLOSE_WITH_LAST_PRODUCER != 0;
    info.send_closed = flags & SEND_CLOSED != 0;
    let [first, most] = [fields.u64()?, fields.u64()?].map(Duration::from_nanos);
    info.retry_delay = (!first.is_zero()).then(|| (first, most.max(first)));
    Some(())
}

/// Decodes the fields of a header, and the length of a record's head.
pub(super) fn decode(major: u16, bytes: &[u8]) -> Result<(SnapshotInfo, usize), &'static str> {
    const TOO_SHORT: &str = "the header is too short for its fields";
    let mut fields = Fields(bytes);
    let read = |fields: &mut Fields<'_>| {
        let words = [fields.u32()?, fields.u32()?, fields.u32()?, fields.u32()?];
        let long = [fields.u64()?, fields.u64()?, fields.u64()?, fields.u64()?];
        Some((words, long))
    };
    let (words, long) = read(&mut fields).ok_or(TOO_SHORT)?;
    let ([key, msgmax, mode, record_head], [messages, bytes, taken, qbytes]) = (words, long);
    let record_head = record_head as usize;
    if msgmax > LONGEST {
        return Err("msgmax is out of range");
    }
    if mode > 0o7777 {
        return Err("the mode has other bits than permissions");
    }
    if !(RECORD_HEAD..=LONGEST_RECORD_HEAD).contains(&record_head) {
        return Err("the length of a record's head is out of range");
    }
    let mut info = SnapshotInfo {
        key: key.cast_signed(),
        mode,
        msgmax,
        qbytes,
        messages,
        bytes,
        taken: time(taken),
        send_closed: false,
        close_with_last_producer: false,
        retry_delay: None,
    };
    if major == MAJOR_WITH_STATES {
        take_states(&mut fields, &mut info).ok_or(TOO_SHORT)?;
    }
    Ok((info, record_head))
}

/// The fields of a message's record, which lie before the message's data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Record {
    pub(super) len: u32,
    pub(super) pid: u32,
    pub(super) mtype: i64,
    /// The time of the send, in nanoseconds since 1970.
    pub(super) sent: u64,
    pub(super) returns: u32,
}

impl Record {
    pub(super) fn of(seen: &Seen) -> Record {
        Record {
            len: seen.len as u32,
            pid: seen.pid,
            mtype: seen.mtype,
            sent: seen.sent_at,
            returns: seen.returns,
        }
    }

    pub(super) fn encode(&self) -> [u8; RECORD_HEAD] {
        let mut bytes = [0; RECORD_HEAD];
        bytes[0..4].copy_from_slice(&self.len.to_le_bytes());
        bytes[4..8].copy_from_slice(&self.pid.to_le_bytes());
        bytes[8..16].copy_from_slice(&self.mtype.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.sent.to_le_bytes());
        bytes[24..28].copy_from_slice(&self.returns.to_le_bytes());
        bytes
    }

    pub(super) fn decode(bytes: &[u8; RECORD_HEAD]) -> Record {
        Record {
            len: u32::from_le_bytes(part(bytes, 0)),
            pid: u32::from_le_bytes(part(bytes, 4)),
            mtype: i64::from_le_bytes(part(bytes, 8)),
            sent: u64::from_le_bytes(part(bytes, 16)),
            returns: u32::from_le_bytes(part(bytes, 24)),
        }
    }
}

pub(super) fn time(nanoseconds: u64) -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_nanos(nanoseconds)
}
