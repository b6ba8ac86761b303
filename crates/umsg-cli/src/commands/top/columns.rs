//! The columns of the list, and how their figures are formatted.

use std::cmp::Ordering;
use std::time::{Duration, SystemTime};

use clap::ValueEnum;

use super::rates::Row;
use crate::commands::sample::figures::{Kind, Reason};
use crate::commands::sample::gather::Refused;
use crate::output::owner::Owners;
use crate::output::{text, time};

/// The columns of the list, in their order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Column {
    /// The name
    Name,
    /// The messages in the queue
    Messages,
    /// The maximum number of messages; of a System V queue, of bytes
    Capacity,
    /// The used part of the capacity
    Fill,
    /// The fill at the last refreshes, as a curve
    Trend,
    /// Messages per second that came to the queue
    In,
    /// Messages per second that left the queue
    Out,
    /// The age of the oldest message
    Oldest,
    /// Threads that wait for room
    Senders,
    /// Threads that wait for a message
    Receivers,
    /// Leased messages
    Leased,
    /// Messages that were dropped when the queue was full
    Dropped,
    /// Messages whose time to live ended
    Expired,
    /// Messages that were moved to the dead-letter queue
    Dead,
    /// Bytes per second that came to the queue
    BytesIn,
    /// Bytes per second that left the queue
    BytesOut,
    /// The memory that the queue uses
    Memory,
    /// The owner
    Owner,
    /// An unusual state: full, closed, corrupted, no receiver
    State,
}

impl Column {
    pub const ALL: [Column; 19] = [
        Column::Name,
        Column::Messages,
        Column::Capacity,
        Column::Fill,
        Column::Trend,
        Column::In,
        Column::Out,
        Column::Oldest,
        Column::Senders,
        Column::Receivers,
        Column::Leased,
        Column::Dropped,
        Column::Expired,
        Column::Dead,
        Column::BytesIn,
        Column::BytesOut,
        Column::Memory,
        Column::Owner,
        Column::State,
    ];

    pub fn title(self) -> &'static str {
        match self {
            Column::Name => "NAME",
            Column::Messages => "MSGS",
            Column::Capacity => "CAP",
            Column::Fill => "FILL",
            Column::Trend => "TREND",
            Column::In => "IN/s",
            Column::Out => "OUT/s",
            Column::Oldest => "OLDEST",
            Column::Senders => "SND",
            Column::Receivers => "RCV",
            Column::Leased => "LEASED",
            Column::Dropped => "DROPPED",
            Column::Expired => "EXPIRED",
            Column::Dead => "DEAD",
            Column::BytesIn => "B IN/s",
            Column::BytesOut => "B OUT/s",
            Column::Memory => "MEMORY",
            Column::Owner => "OWNER",
            Column::State => "STATE",
        }
    }

    /// Returns the width of the column, in characters. The name takes the remaining width.
    pub fn width(self) -> u16 {
        match self {
            Column::Name => 14,
            Column::Messages | Column::Capacity => 6,
            Column::Fill => 9,
            Column::Trend => 8,
            Column::In | Column::Out | Column::Oldest | Column::Leased => 6,
            Column::Senders | Column::Receivers => 4,
            Column::Dropped | Column::Expired | Column::BytesIn | Column::BytesOut => 7,
            Column::Dead | Column::Memory => 6,
            Column::Owner => 9,
            Column::State => 11,
        }
    }

    pub fn is_left(self) -> bool {
        matches!(
            self,
            Column::Name | Column::Fill | Column::Trend | Column::Owner | Column::State
        )
    }

    /// Returns the text of a cell. The bar of the fill and the curve of the trend are drawn by the module `draw`.
    pub fn text(self, of: &Shown) -> String {
        match self {
            Column::Name => of.name.clone(),
            Column::Owner => of.owner.clone(),
            Column::State => of.state.to_owned(),
            Column::Fill => of.fill.map_or_else(dash, percent),
            Column::Trend => String::new(),
            Column::Oldest => of.oldest.map_or_else(dash, age),
            Column::Capacity if of.is_in_bytes => self.number(of).map_or_else(dash, bytes),
            Column::Memory | Column::BytesIn | Column::BytesOut => {
                self.number(of).map_or_else(dash, bytes)
            }
            _ => self.number(of).map_or_else(dash, count),
        }
    }

    /// Returns the number by which a cell is sorted; None if the cell has no number.
    fn number(self, of: &Shown) -> Option<f64> {
        match self {
            Column::Name | Column::Owner | Column::State => None,
            Column::Messages => of.messages,
            Column::Capacity => of.capacity,
            Column::Fill | Column::Trend => of.fill,
            Column::In => of.sent,
            Column::Out => of.removed,
            Column::Oldest => of.oldest,
            Column::Senders => of.senders,
            Column::Receivers => of.receivers,
            Column::Leased => of.leased,
            Column::Dropped => of.dropped,
            Column::Expired => of.expired,
            Column::Dead => of.dead,
            Column::BytesIn => of.sent_bytes,
            Column::BytesOut => of.removed_bytes,
            Column::Memory => of.memory,
        }
    }

    /// Compares two queues. Texts ascend and numbers descend; queues without a number come last.
    pub fn compare(self, one: &Shown, other: &Shown) -> Ordering {
        let order = match self {
            Column::Owner => one.owner.cmp(&other.owner),
            // Queues in an unusual state come first.
            Column::State => other.state.cmp(one.state),
            Column::Name => Ordering::Equal,
            _ => {
                let of = |shown| self.number(shown).unwrap_or(f64::NEG_INFINITY);
                of(other).total_cmp(&of(one))
            }
        };
        order.then_with(|| one.name.cmp(&other.name))
    }
}

/// The figures of a queue, or of a group of queues, as the list shows them. Unknown figures are None.
#[derive(Clone, Debug, Default)]
pub struct Shown {
    pub name: String,
    pub messages: Option<f64>,
    pub capacity: Option<f64>,
    /// True if the capacity is a number of bytes.
    pub is_in_bytes: bool,
    pub fill: Option<f64>,
    pub trend: Vec<f64>,
    pub sent: Option<f64>,
    pub removed: Option<f64>,
    pub sent_bytes: Option<f64>,
    pub removed_bytes: Option<f64>,
    /// The age of the oldest message, in seconds.
    pub oldest: Option<f64>,
    pub senders: Option<f64>,
    pub receivers: Option<f64>,
    pub leased: Option<f64>,
    pub dropped: Option<f64>,
    pub expired: Option<f64>,
    pub dead: Option<f64>,
    pub memory: Option<f64>,
    pub owner: String,
    pub state: &'static str,
}

impl Shown {
    pub fn of(row: &Row, now: SystemTime, owners: &Owners) -> Shown {
        let figures = &row.figures;
        let some = |value: u64| Some(value as f64);
        let known = |value: Option<u64>| value.map(|value| value as f64);
        Shown {
            name: text::on_one_line(figures.queue.as_bytes()),
            messages: some(figures.messages),
            capacity: known(figures.capacity.or(figures.capacity_bytes)),
            is_in_bytes: figures.capacity_bytes.is_some(),
            fill: Some(figures.fill),
            trend: row.past.fill.iter().copied().collect(),
            sent: row.rates.map(|rates| rates.sent),
            removed: row.rates.map(|rates| rates.removed),
            sent_bytes: row.rates.and_then(|rates| rates.sent_bytes),
            removed_bytes: row.rates.and_then(|rates| rates.removed_bytes),
            oldest: seconds_since(figures.oldest, now),
            senders: some(figures.blocked_senders),
            receivers: known(figures.blocked_receivers),
            leased: known(figures.leased),
            dropped: known(figures.dropped),
            expired: known(figures.expired),
            dead: known(figures.dead_lettered),
            memory: some(figures.memory),
            owner: owners.name(figures.uid),
            state: state(row),
        }
    }

    pub fn refused(refused: &Refused) -> Shown {
        Shown {
            name: text::on_one_line(refused.queue.as_bytes()),
            state: why(refused.why),
            ..Shown::default()
        }
    }

    /// Adds the figures of a queue to those of its group.
    pub fn add(&mut self, member: &Shown) {
        let add = |sum: &mut Option<f64>, more: Option<f64>| {
            if let Some(more) = more {
                *sum = Some(sum.unwrap_or_default() + more);
            }
        };
        add(&mut self.messages, member.messages);
        add(&mut self.sent, member.sent);
        add(&mut self.removed, member.removed);
        add(&mut self.sent_bytes, member.sent_bytes);
        add(&mut self.removed_bytes, member.removed_bytes);
        add(&mut self.senders, member.senders);
        add(&mut self.receivers, member.receivers);
        add(&mut self.leased, member.leased);
        add(&mut self.dropped, member.dropped);
        add(&mut self.expired, member.expired);
        add(&mut self.dead, member.dead);
        add(&mut self.memory, member.memory);
        let larger = |sum: &mut Option<f64>, more: Option<f64>| {
            // `None` compares as less than any number.
            if more > *sum {
                *sum = more;
            }
        };
        larger(&mut self.oldest, member.oldest);
        larger(&mut self.fill, member.fill);
    }
}

fn seconds_since(time: Option<SystemTime>, now: SystemTime) -> Option<f64> {
    // If the system clock was set back, the age is 0.
    let age = now.duration_since(time?).unwrap_or_default();
    Some(age.as_secs_f64())
}

/// Returns the age of the oldest message, in seconds.
pub fn oldest(row: &Row, now: SystemTime) -> Option<f64> {
    seconds_since(row.figures.oldest, now)
}

/// Returns the name of a queue's unusual state; an empty text if the state is usual.
fn state(row: &Row) -> &'static str {
    let figures = &row.figures;
    if figures.corrupted {
        return "corrupted";
    }
    if figures.kind == Kind::Ring && figures.receiver_alive == Some(false) {
        return "no receiver";
    }
    match (figures.closed, figures.fill >= 1.0) {
        (true, _) => "closed",
        (false, true) => "full",
        (false, false) => "",
    }
}

/// Describes the reason why a queue can't be read.
pub fn why(reason: Reason) -> &'static str {
    match reason {
        Reason::Permission => "denied",
        Reason::Corrupted => "corrupted",
        Reason::Name => "not UTF-8",
        Reason::Unusable | Reason::Limit => "unusable",
    }
}

fn dash() -> String {
    "-".to_owned()
}

fn percent(part: f64) -> String {
    // Rounds down, so that only a full queue shows "100%". The small addend is needed because 0.29 * 100.0 is slightly less than 29. The clamp limits
    // the arbitrary figures of a corrupted queue.
    format!("{:.0}%", (part * 100.0 + 1e-9).floor().clamp(0.0, 999.0))
}

fn age(seconds: f64) -> String {
    let age = Duration::try_from_secs_f64(seconds).unwrap_or_default();
    time::rough(age)
}

/// Returns a number in at most 5 characters: `0.5`, `9999`, `12.3K`, `123K`, `1.2M`.
pub fn count(number: f64) -> String {
    short(number, 1000.0)
}

/// Formats a number of bytes, in powers of 1024.
pub fn bytes(number: f64) -> String {
    short(number, 1024.0)
}

fn short(number: f64, step: f64) -> String {
    if number < 10.0 && number.fract() >= 0.05 {
        return format!("{number:.1}");
    }
    if number < 9999.5 {
        return format!("{number:.0}");
    }
    let mut scaled = number;
    for unit in ["K", "M", "G", "T", "P"] {
        scaled /= step;
        if scaled < 99.95 {
            return format!("{scaled:.1}{unit}");
        }
        if scaled < 999.5 {
            return format!("{scaled:.0}{unit}");
        }
    }
    format!("{scaled:.0}E").chars().take(6).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_short_and_small_ones_exact() {
        for (number, shown) in [
            (0.0, "0"),
            (0.5, "0.5"),
            (9.96, "10.0"),
            (42.4, "42"),
            (9999.0, "9999"),
            (10_000.0, "10.0K"),
            (123_456.0, "123K"),
            (999_600.0, "1.0M"),
            (3e9, "3.0G"),
        ] {
            assert_eq!(count(number), shown);
        }
        assert_eq!(bytes(10_240.0), "10.0K");
        for number in [1e5, 1e9, 1e12, 1e15, u64::MAX as f64] {
            assert!(count(number).len() <= 6 && bytes(number).len() <= 6);
        }
    }

    #[test]
    fn missing_numbers_come_last_and_names_decide_between_equal_ones() {
        let shown = |name: &str, sent| Shown {
            name: name.to_owned(),
            sent,
            ..Shown::default()
        };
        let mut all = [
            shown("/none", None),
            shown("/b", Some(1.0)),
            shown("/a", Some(1.0)),
            shown("/c", Some(2.0)),
        ];
        all.sort_by(|one, other| Column::In.compare(one, other));
        let names = all.each_ref().map(|shown| &*shown.name);
        assert_eq!(names, ["/c", "/a", "/b", "/none"]);
    }

    #[test]
    fn a_full_queue_alone_is_at_100_percent() {
        assert_eq!(percent(0.9999), "99%");
        assert_eq!(percent(1.0), "100%");
        for part in 0..=100 {
            assert_eq!(percent(f64::from(part) / 100.0), format!("{part}%"));
        }
        assert_eq!(percent(1e20), "999%");
    }
}
