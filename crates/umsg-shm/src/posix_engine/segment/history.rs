//! The history of a dead letter, in a region outside of the slot's cell.
//!
//! ```text
//! deliveries   one for each slot: when its message was leased first and last
//! histories    one for each slot: where its message comes from, and why it went to a dead-letter queue
//! ```
//!
//! A bit of the cell shows whether the message has a history ([`Cell::has_history`](super::Cell::has_history)). The bytes of the message are not
//! changed. The regions `deliveries` and `histories` get memory page by page, when a message first needs a page. So a queue without dead letters has
//! no such pages.
//!
//! Every process that may use the queue can write the words of a history. A reader limits the length of the name and interprets unknown codes as
//! [`Reason::Unknown`]. The name of a queue in a history is not sufficient reason to send a message to that queue: `posix/redrive.rs` in `umsg` lists
//! the other conditions.

use crate::sync::{Guarded32, Guarded64};

/// The maximum length of a source's name in bytes, with its slash.
pub const LONGEST_SOURCE: usize = 256;
/// The number of words for a name. In a model, queues have no names, and one word suffices.
const WORDS: usize = if cfg!(loom) { 1 } else { LONGEST_SOURCE / 8 };

/// The reason why a message went to a dead-letter queue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Reason {
    /// The code in the segment is unknown.
    #[default]
    Unknown,
    /// The message was older than the queue's time to live.
    Expired,
    /// The message was leased and returned as often as the queue allows.
    Undelivered,
    /// The queue was full, and dropped the message to make room for another message.
    Dropped,
}

impl Reason {
    /// Returns the code of this reason, as stored in segments and snapshots.
    pub fn number(self) -> u32 {
        match self {
            Reason::Unknown => 0,
            Reason::Expired => 1,
            Reason::Undelivered => 2,
            Reason::Dropped => 3,
        }
    }

    /// Returns the reason with this code.
    pub fn of_number(number: u32) -> Reason {
        match number {
            1 => Reason::Expired,
            2 => Reason::Undelivered,
            3 => Reason::Dropped,
            _ => Reason::Unknown,
        }
    }
}

/// The times of the first and the last lease of a slot's message, on the machine's clock. 0 means never. The times are valid while the message is
/// leased, and after its return.
#[repr(C)]
#[derive(Default)]
pub struct Deliveries {
    first: Guarded64,
    last: Guarded64,
}

impl Deliveries {
    /// Notes a lease at `now`.
    pub(crate) fn note(&self, is_first: bool, now: u64) {
        if is_first {
            self.first.set(now);
        }
        self.last.set(now);
    }

    /// Returns the times of the first and of the last lease.
    pub(crate) fn times(&self) -> [u64; 2] {
        [self.first.get(), self.last.get()]
    }
}

/// A history, in the form that a segment contains.
#[repr(C)]
#[derive(Default)]
pub struct HistoryRecord {
    reason: Guarded32,
    source_len: Guarded32,
    pid: Guarded32,
    redrives: Guarded32,
    deliveries: Guarded32,
    /// 1 if `uid` is known, otherwise 0.
    has_uid: Guarded32,
    uid: Guarded32,
    _spare: Guarded32,
    sent_at: Guarded64,
    first_delivery: Guarded64,
    last_delivery: Guarded64,
    dead_at: Guarded64,
    source: [Guarded64; WORDS],
}

#[cfg(not(loom))]
const _: () = assert!(size_of::<HistoryRecord>() == 320 && size_of::<Deliveries>() == 16);

/// A history in the memory of a process, with times in nanoseconds of the machine's clock. In a snapshot, the times are of CLOCK_REALTIME.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct History {
    pub reason: Reason,
    /// The first sender's process id and user. The user is `None` if it is unknown.
    pub pid: u32,
    pub uid: Option<u32>,
    /// The number of times that the message was sent back to its source.
    pub redrives: u32,
    /// The number of times that the message was leased, in all queues.
    pub deliveries: u32,
    /// The time of the first send.
    pub sent_at: u64,
    /// The time of the first lease. 0 if there was none, or the time is unknown.
    pub first_delivery: u64,
    /// The time of the last lease. 0 if there was none, or the time is unknown.
    pub last_delivery: u64,
    /// The time at which the message went to the dead-letter queue.
    pub dead_at: u64,
    source_len: usize,
    source: [u8; LONGEST_SOURCE],
}

impl Default for History {
    fn default() -> Self {
        History {
            reason: Reason::Unknown,
            pid: 0,
            uid: None,
            redrives: 0,
            deliveries: 0,
            sent_at: 0,
            first_delivery: 0,
            last_delivery: 0,
            dead_at: 0,
            source_len: 0,
            source: [0; LONGEST_SOURCE],
        }
    }
}

impl std::fmt::Debug for History {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("History")
            .field("reason", &self.reason)
            .field("source", &self.source().escape_ascii().to_string())
            .field("pid", &self.pid)
            .field("uid", &self.uid)
            .field("redrives", &self.redrives)
            .field("deliveries", &self.deliveries)
            .field("sent_at", &self.sent_at)
            .field("first_delivery", &self.first_delivery)
            .field("last_delivery", &self.last_delivery)
            .field("dead_at", &self.dead_at)
            .finish()
    }
}

impl History {
    /// Returns the history of a message that the process `pid` sent at `sent_at`.
    pub fn of_sender(pid: u32, sent_at: u64) -> History {
        History {
            pid,
            sent_at,
            ..History::default()
        }
    }

    /// Returns the name of the message's source queue, with its slash. The name is empty if the source is unknown.
    pub fn source(&self) -> &[u8] {
        &self.source[..self.source_len]
    }

    /// Returns the history with its times converted to another clock. Unknown times stay unknown.
    #[must_use]
    pub fn with_times(mut self, convert: impl Fn(u64) -> u64) -> History {
        let times = [
            &mut self.sent_at,
            &mut self.first_delivery,
            &mut self.last_delivery,
            &mut self.dead_at,
        ];
        for time in times.into_iter().filter(|time| **time != 0) {
            *time = convert(*time);
        }
        self
    }

    /// Sets the name of the source. If the name is too long, the source is unknown.
    pub fn set_source(&mut self, name: &[u8]) {
        self.source = [0; LONGEST_SOURCE];
        self.source_len = 0;
        if name.len() <= LONGEST_SOURCE {
            self.source[..name.len()].copy_from_slice(name);
            self.source_len = name.len();
        }
    }
}

impl HistoryRecord {
    /// Writes a history.
    pub(crate) fn write(&self, history: &History) {
        self.reason.set(history.reason.number());
        self.pid.set(history.pid);
        self.redrives.set(history.redrives);
        self.deliveries.set(history.deliveries);
        self.has_uid.set(history.uid.is_some().into());
        self.uid.set(history.uid.unwrap_or(0));
        self.sent_at.set(history.sent_at);
        self.first_delivery.set(history.first_delivery);
        self.last_delivery.set(history.last_delivery);
        self.dead_at.set(history.dead_at);
        let len = history.source_len.min(WORDS * 8);
        self.source_len.set(len as u32);
        let (words, _) = history.source.as_chunks();
        for (word, bytes) in self.source.iter().zip(words).take(len.div_ceil(8)) {
            word.set(u64::from_le_bytes(*bytes));
        }
    }

    /// Reads a history. Every combination of values is a valid history.
    pub(crate) fn read(&self) -> History {
        let mut history = History {
            reason: Reason::of_number(self.reason.get()),
            pid: self.pid.get(),
            uid: (self.has_uid.get() == 1).then(|| self.uid.get()),
            redrives: self.redrives.get(),
            deliveries: self.deliveries.get(),
            sent_at: self.sent_at.get(),
            first_delivery: self.first_delivery.get(),
            last_delivery: self.last_delivery.get(),
            dead_at: self.dead_at.get(),
            ..History::default()
        };
        let len = self.source_len.get() as usize;
        if len <= WORDS * 8 {
            history.source_len = len;
            let (words, _) = history.source.as_chunks_mut();
            for (word, bytes) in self.source.iter().zip(words) {
                *bytes = word.get().to_le_bytes();
            }
            history.source[len..].fill(0);
        }
        history
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_history_is_read_as_it_was_written() {
        let record = HistoryRecord::default();
        for name in [&b""[..], b"/q", &[b'x'; LONGEST_SOURCE]] {
            for uid in [None, Some(0), Some(u32::MAX)] {
                let mut history = History {
                    reason: Reason::Dropped,
                    pid: 1,
                    uid,
                    redrives: 2,
                    deliveries: 3,
                    sent_at: 4,
                    first_delivery: 5,
                    last_delivery: 6,
                    dead_at: u64::MAX,
                    ..History::default()
                };
                history.set_source(name);
                record.write(&history);
                assert_eq!(record.read(), history);
                assert_eq!(record.read().source(), name);
            }
        }
    }

    #[test]
    fn forged_words_are_a_history_within_bounds() {
        let record = HistoryRecord::default();
        for forged in [257, u32::MAX] {
            record.source_len.set(forged);
            record.reason.set(forged);
            record.has_uid.set(forged);
            let history = record.read();
            assert_eq!(history.source(), b"");
            assert_eq!((history.reason, history.uid), (Reason::Unknown, None));
        }
        let mut long = History::default();
        long.set_source(&[b'x'; LONGEST_SOURCE + 1]);
        assert_eq!(long.source(), b"");
    }
}
