//! The bytes of a snapshot of a System V queue: docs/snapshot.md, version 2.0.

use super::SnapshotInfo;
use crate::posix::snapshot::format::{CHECKSUM, Fields, LONGEST_RECORD_HEAD, MAGIC, START, part};
use std::time::{Duration, SystemTime};
use umsg_shm::sysv_engine::Seen;
use umsg_shm::sysv_engine::segment::LONGEST;

/// The major version of a snapshot of a System V queue; that of a POSIX queue is 1.
pub(super) const MAJOR: u16 = 2;
/// Length of a header.
pub(super) const HEADER: usize = 68;
/// Length of the head of a message's record.
pub(super) const RECORD_HEAD: usize = 28;

const _: () = assert!(HEADER == START + 4 * 4 + 4 * 8 + CHECKSUM);

/// Encodes the header, without the checksum.
pub(super) fn encode(info: &SnapshotInfo) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(HEADER);
    bytes.extend(MAGIC);
    bytes.extend(MAJOR.to_le_bytes());
    bytes.extend(0_u16.to_le_bytes());
    let key = info.key.cast_unsigned();
    let words = [
        HEADER as u32,
        key,
        info.msgmax,
        info.mode,
        RECORD_HEAD as u32,
    ];
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
    bytes
}

/// Decodes the fields of a header, and the length of a record's head.
pub(super) fn decode(bytes: &[u8]) -> Result<(SnapshotInfo, usize), &'static str> {
    let mut fields = Fields(bytes);
    let read = |fields: &mut Fields<'_>| {
        let words = [fields.u32()?, fields.u32()?, fields.u32()?, fields.u32()?];
        let long = [fields.u64()?, fields.u64()?, fields.u64()?, fields.u64()?];
        Some((words, long))
    };
    let (words, long) = read(&mut fields).ok_or("it is too short for its fields")?;
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
    let info = SnapshotInfo {
        key: key.cast_signed(),
        mode,
        msgmax,
        qbytes,
        messages,
        bytes,
        taken: time(taken),
    };
    Ok((info, record_head))
}

/// The bytes before a message's data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Record {
    pub(super) len: u32,
    pub(super) pid: u32,
    pub(super) mtype: i64,
    /// Nanoseconds since 1970.
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
