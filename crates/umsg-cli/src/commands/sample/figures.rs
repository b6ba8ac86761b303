//! The figures of one queue or ring, of any kind.

use std::sync::Arc;
use std::time::SystemTime;

use umsg::{posix, ring, sysv};

/// The kinds, as the label "kind" has them, in the order of the output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Posix,
    Sysv,
    Ring,
}

impl Kind {
    pub const ALL: [Kind; 3] = [Kind::Posix, Kind::Sysv, Kind::Ring];

    pub fn label(self) -> &'static str {
        match self {
            Kind::Posix => "posix",
            Kind::Sysv => "sysv",
            Kind::Ring => "ring",
        }
    }
}

/// The reason why a queue has no metrics.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// --max-queues.
    Limit,
    Permission,
    Corrupted,
    /// The name is not UTF-8, as labels have to be.
    Name,
    /// The file is of another version, or no queue, or can't be mapped.
    Unusable,
}

impl Reason {
    pub const ALL: [Reason; 5] = [
        Reason::Limit,
        Reason::Permission,
        Reason::Corrupted,
        Reason::Name,
        Reason::Unusable,
    ];

    pub fn label(self) -> &'static str {
        match self {
            Reason::Limit => "limit",
            Reason::Permission => "permission",
            Reason::Corrupted => "corrupted",
            Reason::Name => "name",
            Reason::Unusable => "unusable",
        }
    }
}

/// The figures; None of those that the kind does not have.
#[derive(Debug)]
pub struct Figures {
    pub kind: Kind,
    pub queue: Arc<str>,
    pub messages: u64,
    pub bytes: Option<u64>,
    pub leased: Option<u64>,
    pub reserved: Option<u64>,
    pub delayed: Option<u64>,
    pub set_aside: Option<u64>,
    pub capacity: Option<u64>,
    pub capacity_bytes: Option<u64>,
    pub fill: f64,
    pub oldest: Option<SystemTime>,
    pub last_send: Option<SystemTime>,
    pub last_receive: Option<SystemTime>,
    pub blocked_senders: u64,
    pub blocked_receivers: Option<u64>,
    pub memory: u64,
    pub closed: bool,
    pub corrupted: bool,
    pub receiver_alive: Option<bool>,
    pub sent: u64,
    pub sent_bytes: Option<u64>,
    pub removed: u64,
    pub removed_bytes: Option<u64>,
    pub sends_blocked: u64,
    pub receives_blocked: u64,
    pub dropped: Option<u64>,
    pub expired: Option<u64>,
    pub dead_lettered: Option<u64>,
    pub returned: Option<u64>,
    pub waiter_deaths: Option<u64>,
    pub repairs: u64,
}

impl Figures {
    pub fn posix(queue: Arc<str>, seen: &posix::Glance) -> Figures {
        let (attributes, counted) = (seen.attributes, seen.statistics);
        // Another process may have forged the numbers.
        let taken = [
            attributes.messages,
            attributes.leased,
            attributes.reserved,
            attributes.delayed,
            seen.set_aside,
        ];
        let taken = taken.into_iter().fold(0, usize::saturating_add);
        Figures {
            kind: Kind::Posix,
            queue,
            messages: attributes.messages as u64,
            bytes: Some(attributes.bytes),
            leased: Some(attributes.leased as u64),
            reserved: Some(attributes.reserved as u64),
            delayed: Some(attributes.delayed as u64),
            set_aside: Some(seen.set_aside as u64),
            capacity: Some(attributes.max_messages as u64),
            capacity_bytes: None,
            fill: ratio(taken as u64, attributes.max_messages as u64),
            oldest: seen.oldest,
            last_send: seen.last_send,
            last_receive: seen.last_receive,
            blocked_senders: seen.blocked_senders as u64,
            blocked_receivers: Some(seen.blocked_receivers as u64),
            memory: seen.memory,
            closed: seen.send_closed,
            corrupted: seen.damaged,
            receiver_alive: None,
            sent: seen.sent,
            sent_bytes: Some(seen.sent_bytes),
            removed: seen.removed,
            removed_bytes: Some(seen.removed_bytes),
            sends_blocked: counted.sends_blocked,
            receives_blocked: counted.receives_blocked,
            dropped: Some(counted.dropped),
            expired: Some(counted.expired),
            dead_lettered: Some(counted.dead_lettered),
            returned: Some(counted.returned),
            waiter_deaths: Some(counted.waiters_died),
            repairs: u64::from(counted.sender_repairs) + u64::from(counted.receiver_repairs),
        }
    }

    pub fn sysv(queue: Arc<str>, seen: &sysv::Glance) -> Figures {
        let (entry, counted) = (&seen.entry, seen.statistics);
        let held = seen.leased.saturating_add(seen.delayed);
        let bytes = entry.bytes.saturating_add(seen.leased_bytes);
        // The kernel limits the number of messages by the same number.
        let messages = entry.messages.saturating_add(held);
        Figures {
            kind: Kind::Sysv,
            queue,
            messages: entry.messages,
            bytes: Some(entry.bytes),
            leased: Some(seen.leased),
            reserved: None,
            delayed: Some(seen.delayed),
            set_aside: None,
            capacity: None,
            capacity_bytes: Some(entry.qbytes),
            fill: ratio(bytes.max(messages), entry.qbytes),
            oldest: seen.oldest,
            last_send: entry.last_send,
            last_receive: entry.last_receive,
            blocked_senders: seen.blocked_senders as u64,
            blocked_receivers: Some(seen.blocked_receivers as u64),
            memory: seen.memory,
            closed: seen.send_closed,
            corrupted: seen.damaged,
            receiver_alive: None,
            sent: seen.sent,
            sent_bytes: None,
            removed: seen.removed,
            removed_bytes: None,
            sends_blocked: counted.sends_blocked,
            receives_blocked: counted.receives_blocked,
            dropped: None,
            expired: None,
            dead_lettered: None,
            returned: Some(counted.returned),
            waiter_deaths: Some(counted.waiters_died),
            repairs: u64::from(counted.repairs),
        }
    }

    pub fn ring(queue: Arc<str>, seen: &ring::Status) -> Figures {
        let capacity = u64::from(seen.entries) + u64::from(seen.overflow);
        Figures {
            kind: Kind::Ring,
            queue,
            messages: seen.messages,
            bytes: None,
            leased: None,
            reserved: None,
            delayed: None,
            set_aside: None,
            capacity: Some(capacity),
            capacity_bytes: None,
            fill: ratio(seen.messages, capacity),
            oldest: seen.oldest,
            last_send: None,
            last_receive: None,
            blocked_senders: seen.blocked_senders as u64,
            blocked_receivers: None,
            memory: seen.memory,
            closed: seen.closed,
            corrupted: seen.damaged,
            receiver_alive: Some(seen.owner_alive),
            sent: seen.sent,
            sent_bytes: None,
            removed: seen.received,
            removed_bytes: None,
            sends_blocked: seen.sends_blocked,
            receives_blocked: seen.slept,
            dropped: Some(seen.dropped),
            expired: None,
            dead_lettered: None,
            returned: None,
            waiter_deaths: None,
            repairs: u64::from(seen.repairs),
        }
    }
}

/// Returns 1 for a queue that has no room at all.
fn ratio(taken: u64, room: u64) -> f64 {
    match room {
        0 => 1.0,
        room => taken as f64 / room as f64,
    }
}
