//! The figures of one POSIX queue, System V queue or ring.

use std::sync::Arc;
use std::time::SystemTime;

use umsg::{posix, ring, sysv};

/// The kinds of queues, in the order of the output.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
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

/// The reason why a queue has no figures.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// The limit of --max-queues was reached before this queue.
    Limit,
    Permission,
    Corrupted,
    /// The name is not UTF-8. A label has to be UTF-8.
    Name,
    /// The file has another format version, is not a queue, or can't be mapped.
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

/// The name of a queue, and the labels of its metrics. A label exists as long as the queue is open.
#[derive(Clone, Debug)]
pub struct Label {
    pub queue: Arc<str>,
    pub labels: Arc<str>,
}

impl Label {
    pub fn new(kind: Kind, queue: &str) -> Label {
        Label {
            queue: Arc::from(queue),
            labels: Arc::from(labels(kind, queue)),
        }
    }
}

/// Returns the labels of a queue, in the form that they have between the braces of a series.
pub fn labels(kind: Kind, queue: &str) -> String {
    let queue = queue.replace('\\', "\\\\").replace('"', "\\\"");
    let queue = queue.replace('\n', "\\n");
    format!("kind=\"{}\",queue=\"{queue}\"", kind.label())
}

/// The figures of a queue. A figure is None if the kind of queue does not have it.
#[derive(Clone, Debug)]
pub struct Figures {
    pub kind: Kind,
    /// The name, as the command line takes it.
    pub queue: Arc<str>,
    /// The labels of the queue's metrics, in the form that they have in a series.
    pub labels: Arc<str>,
    /// The identifier of a System V queue.
    pub id: Option<i32>,
    /// The device and inode number of a POSIX queue's file: another queue of the same name has another file.
    pub file: Option<(u64, u64)>,
    /// The owner's user id.
    pub uid: u32,
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
    /// Returns the figures of a queue of which only the kind is known.
    #[cfg(test)]
    pub fn nothing(kind: Kind) -> Figures {
        Figures {
            kind,
            queue: Arc::from(""),
            labels: Arc::from(""),
            id: None,
            file: None,
            uid: 0,
            messages: 0,
            bytes: None,
            leased: None,
            reserved: None,
            delayed: None,
            set_aside: None,
            capacity: None,
            capacity_bytes: None,
            fill: 0.0,
            oldest: None,
            last_send: None,
            last_receive: None,
            blocked_senders: 0,
            blocked_receivers: None,
            memory: 0,
            closed: false,
            corrupted: false,
            receiver_alive: None,
            sent: 0,
            sent_bytes: None,
            removed: 0,
            removed_bytes: None,
            sends_blocked: 0,
            receives_blocked: 0,
            dropped: None,
            expired: None,
            dead_lettered: None,
            returned: None,
            waiter_deaths: None,
            repairs: 0,
        }
    }

    pub fn posix(
        Label { queue, labels }: Label,
        file: (u64, u64),
        seen: &posix::Glance,
    ) -> Figures {
        let (attributes, counted) = (seen.attributes, seen.statistics);
        Figures {
            kind: Kind::Posix,
            queue,
            labels,
            id: None,
            file: Some(file),
            uid: seen.uid,
            messages: attributes.messages as u64,
            bytes: Some(attributes.bytes),
            leased: Some(attributes.leased as u64),
            reserved: Some(attributes.reserved as u64),
            delayed: Some(attributes.delayed as u64),
            set_aside: Some(seen.set_aside as u64),
            capacity: Some(attributes.max_messages as u64),
            capacity_bytes: None,
            fill: ratio(seen.occupied as u64, attributes.max_messages as u64),
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

    pub fn sysv(Label { queue, labels }: Label, seen: &sysv::Glance) -> Figures {
        let (entry, counted) = (&seen.entry, seen.statistics);
        let held = seen.leased.saturating_add(seen.delayed);
        let bytes = entry.bytes.saturating_add(seen.leased_bytes);
        // The limit of bytes (msg_qbytes) also limits the number of messages, as in the kernel.
        let messages = entry.messages.saturating_add(held);
        Figures {
            kind: Kind::Sysv,
            queue,
            labels,
            id: Some(entry.id),
            file: None,
            uid: entry.uid,
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

    pub fn ring(Label { queue, labels }: Label, found: &ring::FoundRing) -> Figures {
        let seen = &found.status;
        let capacity = u64::from(seen.entries) + u64::from(seen.overflow);
        Figures {
            kind: Kind::Ring,
            queue,
            labels,
            id: None,
            file: None,
            uid: found.uid,
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

/// The counters of the previous sample of a queue. 0 before the first sample.
#[derive(Debug, Default)]
pub struct Counted {
    sent: u64,
    sent_bytes: Option<u64>,
    removed: u64,
    removed_bytes: Option<u64>,
    delayed: Option<u64>,
}

impl Counted {
    /// Keeps counters from falling because messages are moving: a reader without a lock may count a moving message as removed too early, or a message
    /// whose delay ends twice. A fallen counter would look to Prometheus like a restart, and all earlier messages would count again.
    ///
    /// The counters of a queue that was repaired may fall: then the number of the sent messages falls by more than the delayed ones, or their bytes
    /// fall.
    pub fn steady(&mut self, figures: &mut Figures) {
        let fallen = self.sent.saturating_sub(figures.sent);
        let is_repaired =
            fallen > self.delayed.unwrap_or(0) || figures.sent_bytes < self.sent_bytes;
        if !is_repaired {
            figures.sent = figures.sent.max(self.sent);
            figures.removed = figures.removed.max(self.removed);
            figures.removed_bytes = figures.removed_bytes.max(self.removed_bytes);
        }
        *self = Counted {
            sent: figures.sent,
            sent_bytes: figures.sent_bytes,
            removed: figures.removed,
            removed_bytes: figures.removed_bytes,
            delayed: figures.delayed,
        };
    }
}

/// Returns the used part of the capacity; 1 for a queue without capacity.
fn ratio(taken: u64, room: u64) -> f64 {
    match room {
        0 => 1.0,
        room => taken as f64 / room as f64,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn steady(counted: &mut Counted, of: &Figures) -> (u64, u64, u64, u64) {
        let mut figures = of.clone();
        counted.steady(&mut figures);
        let bytes = |bytes: Option<u64>| bytes.unwrap();
        let (sent, removed) = (figures.sent, figures.removed);
        (
            sent,
            bytes(figures.sent_bytes),
            removed,
            bytes(figures.removed_bytes),
        )
    }

    fn of(sent: u64, removed: u64, delayed: u64) -> Figures {
        Figures {
            sent,
            sent_bytes: Some(sent * 10),
            removed,
            removed_bytes: Some(removed * 10),
            delayed: Some(delayed),
            ..Figures::nothing(Kind::Posix)
        }
    }

    #[test]
    fn counters_do_not_fall_by_moving_messages() {
        let mut counted = Counted::default();
        assert_eq!(steady(&mut counted, &of(100, 90, 0)), (100, 1000, 90, 900));
        assert_eq!(steady(&mut counted, &of(100, 88, 2)), (100, 1000, 90, 900));
        assert_eq!(steady(&mut counted, &of(103, 91, 0)), (103, 1030, 91, 910));
    }

    #[test]
    fn delayed_messages_that_are_moving_count_as_sent() {
        let sysv = |sent: u64, removed: u64, delayed: u64| Figures {
            sent,
            removed,
            delayed: Some(delayed),
            ..Figures::nothing(Kind::Sysv)
        };
        let mut counted = Counted::default();
        counted.steady(&mut sysv(100, 90, 2));
        let mut behind = sysv(98, 89, 0);
        counted.steady(&mut behind);
        assert_eq!((behind.sent, behind.removed), (100, 90));
    }

    #[test]
    fn counters_of_a_repaired_queue_begin_again() {
        let mut counted = Counted::default();
        let overwritten = of(1 << 40, 1 << 40, 0);
        steady(&mut counted, &overwritten);
        assert_eq!(steady(&mut counted, &of(7, 3, 0)), (7, 70, 3, 30));
        let bytes_restart = Figures {
            sent_bytes: Some(20),
            removed_bytes: Some(0),
            ..of(8, 3, 0)
        };
        assert_eq!(steady(&mut counted, &bytes_restart), (8, 20, 3, 0));
    }
}
