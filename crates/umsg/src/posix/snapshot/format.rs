//! The bytes of a snapshot's file; docs/snapshot.md draws them. All numbers are little-endian.

use umsg_shm::posix_engine::segment::history::LONGEST_SOURCE;
use umsg_shm::posix_engine::segment::{
    History, LARGEST_MESSAGE, MOST_MESSAGES, MOST_PASSED, OnFull, Policy, Reason,
};

/// The magic number: a byte outside ASCII, the name "umsg", and bytes that a transfer in text mode would change.
pub(crate) const MAGIC: [u8; 8] = *b"\x89umsg\r\n\x1a";
/// The first bytes of the trailer.
pub(super) const END: [u8; 8] = *b"umsg-end";
/// The major version. A reader refuses another major version, and skips the additions of a later minor version.
pub(super) const MAJOR: u16 = 1;
/// The major version for a queue with states that a reader of version 1 would ignore. Version 2 is for System V queues.
pub(super) const MAJOR_WITH_STATES: u16 = 3;
/// The highest minor version of a snapshot without histories. A writer uses minor version 0 if no field needs a higher one.
pub(super) const MINOR: u16 = 1;
/// The minor version of version 1 that a writer uses if a message has a history.
const WITH_HISTORIES: u16 = 2;
/// A bit of the flags. In versions 1.1 and 3, the flags follow the names.
const REMOVE_ON_LAST_CLOSE: u32 = 1;
/// A bit of the flags in versions 1.1 and 3. A reader that does not know this bit restores a queue without traces.
const TRACE_MESSAGES: u32 = 8;
/// Bits of the flags of version 3.
const CLOSE_WITH_LAST_PRODUCER: u32 = 2;
const SEND_CLOSED: u32 = 4;
/// The length of the fields with which every file begins: magic number, version, length of the header.
pub(crate) const START: usize = 16;
/// The length of a header without names.
pub(super) const LEAST_HEADER: usize = 80;
/// The length of the fields that follow the names in version 3: flags, fair_priorities, and both retry delays.
const STATES: usize = 24;
/// The length of the longest header that is read.
pub(super) const LONGEST_HEADER: usize = 65_536;
/// The length of the head of a message's record.
pub(super) const RECORD_HEAD: usize = 24;
/// The length of the head in version 3, which has the delay of a message.
const RECORD_HEAD_WITH_DELAY: usize = RECORD_HEAD + 8;
/// The length of the longest head that is read.
pub(crate) const LONGEST_RECORD_HEAD: usize = 4096;
/// Length of a history, the last field of the head. If one message has a history, every record of the snapshot has this field.
const HISTORY: usize = 64 + LONGEST_SOURCE;
/// Length of a CRC-32. The sum covers all earlier bytes of the file, except other checksums.
pub(crate) const CHECKSUM: usize = 4;
/// Length of the longest name with its slash.
pub(super) const LONGEST_NAME: usize = 256;

/// The contents of a header.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Header {
    /// [`MAJOR`] or [`MAJOR_WITH_STATES`].
    pub(super) major: u16,
    pub(super) max_messages: u32,
    pub(super) message_size: u32,
    pub(super) mode: u32,
    /// Length of the head of each message's record, in bytes.
    pub(super) record_head: u32,
    pub(super) messages: u64,
    pub(super) bytes: u64,
    /// The time at which the snapshot was taken, in nanoseconds since 1970.
    pub(super) taken: u64,
    pub(super) policy: Policy,
    pub(super) send_closed: bool,
    /// The queue's name; empty if the caller gave no name.
    pub(super) name: Vec<u8>,
}

impl Header {
    /// Encodes the header, without the checksum.
    pub(super) fn encode(&self) -> Vec<u8> {
        let policy = &self.policy;
        let dead_letter = policy.dead_letter.as_deref().unwrap_or_default();
        let states = self.states();
        let minor = match self.major {
            MAJOR if self.has_histories() => WITH_HISTORIES,
            MAJOR if !states.is_empty() => MINOR,
            MAJOR_WITH_STATES if policy.trace_messages => MINOR,
            _ => 0,
        };
        let names = self.name.len() + dead_letter.len();
        let len = LEAST_HEADER + names + states.len();
        let mut bytes = Vec::with_capacity(len);
        bytes.extend(MAGIC);
        bytes.extend(self.major.to_le_bytes());
        bytes.extend(u16::to_le_bytes(minor));
        bytes.extend((len as u32).to_le_bytes());
        let words = [
            self.max_messages,
            self.message_size,
            self.mode,
            self.record_head,
        ];
        bytes.extend(words.into_iter().flat_map(u32::to_le_bytes));
        let long = [self.messages, self.bytes, self.taken, policy.time_to_live];
        bytes.extend(long.into_iter().flat_map(u64::to_le_bytes));
        let words = [policy.on_full.number(), policy.max_deliveries];
        bytes.extend(words.into_iter().flat_map(u32::to_le_bytes));
        bytes.extend((self.name.len() as u16).to_le_bytes());
        bytes.extend((dead_letter.len() as u16).to_le_bytes());
        bytes.extend(&self.name);
        bytes.extend(dead_letter);
        bytes.extend(states);
        bytes
    }

    /// Returns whether a queue has states that version 1 can't express.
    pub(super) fn has_states(policy: &Policy, send_closed: bool) -> bool {
        let delays = policy.retry_delay[0] != 0;
        send_closed || delays || policy.close_with_producers || policy.fair_priorities != 0
    }

    /// Encodes the fields after the names.
    fn states(&self) -> Vec<u8> {
        let policy = &self.policy;
        let flags = [
            (policy.remove_on_last_close, REMOVE_ON_LAST_CLOSE),
            (policy.close_with_producers, CLOSE_WITH_LAST_PRODUCER),
            (self.send_closed, SEND_CLOSED),
            (policy.trace_messages, TRACE_MESSAGES),
        ];
        let set = flags.into_iter().filter(|(is_set, _)| *is_set);
        let flags: u32 = set.map(|(_, flag)| flag).sum();
        let mut bytes = Vec::new();
        if self.major == MAJOR_WITH_STATES {
            bytes.extend(flags.to_le_bytes());
            bytes.extend(policy.fair_priorities.to_le_bytes());
            bytes.extend(policy.retry_delay.into_iter().flat_map(u64::to_le_bytes));
        } else if flags != 0 {
            bytes.extend(flags.to_le_bytes());
        }
        bytes
    }

    /// Returns the length of the shortest header of a major version.
    pub(super) fn least(major: u16) -> usize {
        match major {
            MAJOR_WITH_STATES => LEAST_HEADER + STATES,
            _ => LEAST_HEADER,
        }
    }

    /// Returns the length of the head of a record that a major version specifies, with or without a history.
    pub(super) fn known_record_head(major: u16, has_histories: bool) -> usize {
        let before = match major {
            MAJOR_WITH_STATES => RECORD_HEAD_WITH_DELAY,
            _ => RECORD_HEAD,
        };
        before + if has_histories { HISTORY } else { 0 }
    }

    /// Returns whether the head of a record has room for a history.
    pub(super) fn has_histories(&self) -> bool {
        self.record_head as usize >= Header::known_record_head(self.major, true)
    }

    /// Decodes the fields of a header after its first [`START`] bytes. The bytes after the names are the flags of version 1.1, or belong to a later
    /// version.
    pub(super) fn decode(major: u16, bytes: &[u8]) -> Result<Header, &'static str> {
        let mut fields = Fields(bytes);
        let (mut header, on_full) =
            Header::fields(major, &mut fields).ok_or("the header is too short for its fields")?;
        header.policy.on_full =
            OnFull::of_number(on_full).ok_or("the overflow policy is unknown")?;
        header.check().map(|()| header)
    }

    fn fields(major: u16, fields: &mut Fields<'_>) -> Option<(Header, u32)> {
        let mut header = Header {
            major,
            max_messages: fields.u32()?,
            message_size: fields.u32()?,
            mode: fields.u32()?,
            record_head: fields.u32()?,
            messages: fields.u64()?,
            bytes: fields.u64()?,
            taken: fields.u64()?,
            policy: Policy {
                time_to_live: fields.u64()?,
                ..Policy::default()
            },
            send_closed: false,
            name: Vec::new(),
        };
        let on_full = fields.u32()?;
        header.policy.max_deliveries = fields.u32()?;
        let (name, dead_letter) = (fields.u16()?, fields.u16()?);
        header.name = fields.bytes(name.into())?.to_vec();
        let dead_letter = fields.bytes(dead_letter.into())?;
        header.policy.dead_letter = (!dead_letter.is_empty()).then(|| dead_letter.to_vec());
        if major == MAJOR_WITH_STATES {
            header.take_states(fields)?;
        } else {
            header.take_flags(fields.u32().unwrap_or(0));
        }
        Some((header, on_full))
    }

    fn take_states(&mut self, fields: &mut Fields<'_>) -> Option<()> {
        let flags = fields.u32()?;
        self.take_flags(flags);
        self.policy.close_with_producers = flags & CLOSE_WITH_LAST_PRODUCER != 0;
        self.send_closed = flags & SEND_CLOSED != 0;
        self.policy.fair_priorities = fields.u32()?;
        self.policy.retry_delay = [fields.u64()?, fields.u64()?];
        Some(())
    }

    fn take_flags(&mut self, flags: u32) {
        self.policy.remove_on_last_close = flags & REMOVE_ON_LAST_CLOSE != 0;
        self.policy.trace_messages = flags & TRACE_MESSAGES != 0;
    }

    fn check(&self) -> Result<(), &'static str> {
        let right = [
            (
                (1..=MOST_MESSAGES).contains(&self.max_messages),
                "max_messages is out of range",
            ),
            (
                (1..=LARGEST_MESSAGE).contains(&self.message_size),
                "message_size is out of range",
            ),
            (
                self.mode <= 0o7777,
                "the mode has other bits than permissions",
            ),
            (
                (Header::known_record_head(self.major, false)..=LONGEST_RECORD_HEAD)
                    .contains(&(self.record_head as usize)),
                "the length of a record's head is out of range",
            ),
            (self.name.len() <= LONGEST_NAME, "the name is too long"),
            (
                self.policy.fair_priorities <= MOST_PASSED,
                "fair_priorities is out of range",
            ),
            (
                self.policy.dead_letter.as_ref().map_or(0, Vec::len) <= LONGEST_NAME,
                "the name of the dead-letter queue is too long",
            ),
        ];
        right
            .into_iter()
            .find(|(right, _)| !right)
            .map_or(Ok(()), |(_, what)| Err(what))
    }
}

/// The fields of a message's record, which lie before the message's data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Record {
    pub(super) len: u32,
    pub(super) priority: u32,
    pub(super) pid: u32,
    /// The time of the send, in nanoseconds since 1970.
    pub(super) sent: u64,
    pub(super) returns: u32,
    /// Nanoseconds until the delivery time of the message; 0 for a queued message. In version 3 only.
    pub(super) delay: u64,
}

impl Record {
    /// Encodes the head of version 1. The head of version 3 begins with the same bytes.
    pub(super) fn encode(&self) -> [u8; RECORD_HEAD] {
        let mut bytes = [0; RECORD_HEAD];
        bytes[0..4].copy_from_slice(&self.len.to_le_bytes());
        bytes[4..8].copy_from_slice(&self.priority.to_le_bytes());
        bytes[8..12].copy_from_slice(&self.pid.to_le_bytes());
        bytes[12..20].copy_from_slice(&self.sent.to_le_bytes());
        bytes[20..24].copy_from_slice(&self.returns.to_le_bytes());
        bytes
    }

    pub(super) fn decode(bytes: &[u8; RECORD_HEAD]) -> Record {
        Record {
            len: u32::from_le_bytes(part(bytes, 0)),
            priority: u32::from_le_bytes(part(bytes, 4)),
            pid: u32::from_le_bytes(part(bytes, 8)),
            sent: u64::from_le_bytes(part(bytes, 12)),
            returns: u32::from_le_bytes(part(bytes, 20)),
            delay: 0,
        }
    }
}

/// A bit of a history's flags: the message has a history.
const HAS_HISTORY: u32 = 1;
/// A bit of a history's flags: the sender's user is known.
const HAS_UID: u32 = 2;

/// Encodes the history of a message, or the absence of a history.
pub(super) fn encode_history(history: Option<&History>) -> [u8; HISTORY] {
    let mut bytes = [0; HISTORY];
    let Some(history) = history else {
        return bytes;
    };
    let source = history.source();
    let flags = HAS_HISTORY | history.uid.map_or(0, |_| HAS_UID);
    let words = [
        flags,
        history.reason.number(),
        history.pid,
        history.uid.unwrap_or(0),
        history.deliveries,
        history.redrives,
        source.len() as u32,
        0,
    ];
    let times = [
        history.sent_at,
        history.first_delivery,
        history.last_delivery,
        history.dead_at,
    ];
    for (n, word) in words.iter().enumerate() {
        bytes[n * 4..][..4].copy_from_slice(&word.to_le_bytes());
    }
    for (n, time) in times.iter().enumerate() {
        bytes[32 + n * 8..][..8].copy_from_slice(&time.to_le_bytes());
    }
    bytes[64..][..source.len()].copy_from_slice(source);
    bytes
}

/// Decodes the history of a message. The outer None means that the bytes are invalid; the inner None means that the message has no history.
pub(super) fn decode_history(bytes: &[u8; HISTORY]) -> Option<Option<History>> {
    let mut fields = Fields(bytes);
    let flags = fields.u32()?;
    if flags & HAS_HISTORY == 0 {
        return Some(None);
    }
    let reason = Reason::of_number(fields.u32()?);
    let mut history = History::of_sender(fields.u32()?, 0);
    history.reason = reason;
    history.uid = fields.u32().filter(|_| flags & HAS_UID != 0);
    history.deliveries = fields.u32()?;
    history.redrives = fields.u32()?;
    let (source, _) = (fields.u32()?, fields.u32()?);
    history.sent_at = fields.u64()?;
    history.first_delivery = fields.u64()?;
    history.last_delivery = fields.u64()?;
    history.dead_at = fields.u64()?;
    history.set_source(bytes.get(64..)?.get(..source as usize)?);
    Some(Some(history))
}

/// Returns `N` of the bytes, from `at` on. The slice must have at least `at + N` bytes.
pub(crate) fn part<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    let mut part = [0; N];
    part.copy_from_slice(&bytes[at..at + N]);
    part
}

/// Takes numbers from the beginning of a byte slice.
pub(crate) struct Fields<'a>(pub(crate) &'a [u8]);

impl<'a> Fields<'a> {
    fn chunk<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (chunk, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(*chunk)
    }

    fn u16(&mut self) -> Option<u16> {
        self.chunk().map(u16::from_le_bytes)
    }

    pub(crate) fn u32(&mut self) -> Option<u32> {
        self.chunk().map(u32::from_le_bytes)
    }

    pub(crate) fn u64(&mut self) -> Option<u64> {
        self.chunk().map(u64::from_le_bytes)
    }

    fn bytes(&mut self, len: usize) -> Option<&'a [u8]> {
        let (bytes, rest) = self.0.split_at_checked(len)?;
        self.0 = rest;
        Some(bytes)
    }
}
