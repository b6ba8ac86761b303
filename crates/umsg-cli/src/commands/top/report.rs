//! Prints the figures of a refresh, as a JSON object or as a table.

use std::io::{self, Write};

use serde::Serialize;

use super::columns::{Column, Shown, oldest, why};
use super::rates::{Row, View};
use crate::commands::sample::figures::Kind;
use crate::commands::sample::gather::Refused;
use crate::output::owner::Owners;
use crate::output::table::{Side, Table};
use crate::output::{json as lines, text, time};

/// A refresh, as --json prints it.
#[derive(Serialize)]
struct Refresh<'a> {
    time: String,
    directory: &'a str,
    /// The time since the previous refresh.
    interval_seconds: Option<f64>,
    queues: Vec<Queue<'a>>,
    /// The queues without figures.
    left_out: Vec<LeftOut<'a>>,
}

/// A queue or ring. Figures that its kind does not have are null.
#[derive(Serialize)]
struct Queue<'a> {
    kind: &'static str,
    queue: &'a str,
    id: Option<i32>,
    uid: u32,
    owner: String,
    messages: u64,
    bytes: Option<u64>,
    capacity: Option<u64>,
    capacity_bytes: Option<u64>,
    fill: f64,
    sent_per_second: Option<f64>,
    removed_per_second: Option<f64>,
    sent_bytes_per_second: Option<f64>,
    removed_bytes_per_second: Option<f64>,
    oldest_seconds: Option<f64>,
    blocked_senders: u64,
    blocked_receivers: Option<u64>,
    leased: Option<u64>,
    reserved: Option<u64>,
    delayed: Option<u64>,
    set_aside: Option<u64>,
    sent: u64,
    sent_bytes: Option<u64>,
    removed: u64,
    removed_bytes: Option<u64>,
    dropped: Option<u64>,
    expired: Option<u64>,
    dead_lettered: Option<u64>,
    returned: Option<u64>,
    waiter_deaths: Option<u64>,
    repairs: u64,
    memory: u64,
    closed: bool,
    corrupted: bool,
    receiver_alive: Option<bool>,
}

#[derive(Serialize)]
struct LeftOut<'a> {
    kind: &'static str,
    queue: &'a str,
    why: &'static str,
}

/// Prints the object on one line.
pub fn json(view: &View, directory: &str, owners: &Owners, out: &mut impl Write) -> io::Result<()> {
    let queues = view.rows.iter().map(|row| queue(row, view, owners));
    let left_out = view.refused.iter().map(|refused| LeftOut {
        kind: refused.kind.label(),
        queue: &refused.queue,
        why: refused.why.label(),
    });
    let refresh = Refresh {
        time: time::utc(view.at),
        directory,
        interval_seconds: view.seconds,
        queues: queues.collect(),
        left_out: left_out.collect(),
    };
    lines::print(out, &refresh)
}

fn queue<'a>(row: &'a Row, view: &View, owners: &Owners) -> Queue<'a> {
    let (of, rates) = (&row.figures, row.rates);
    Queue {
        kind: of.kind.label(),
        queue: &of.queue,
        id: of.id,
        uid: of.uid,
        owner: owners.name(of.uid),
        messages: of.messages,
        bytes: of.bytes,
        capacity: of.capacity,
        capacity_bytes: of.capacity_bytes,
        fill: of.fill,
        sent_per_second: rates.map(|rates| rates.sent),
        removed_per_second: rates.map(|rates| rates.removed),
        sent_bytes_per_second: rates.and_then(|rates| rates.sent_bytes),
        removed_bytes_per_second: rates.and_then(|rates| rates.removed_bytes),
        oldest_seconds: oldest(row, view.at),
        blocked_senders: of.blocked_senders,
        blocked_receivers: of.blocked_receivers,
        leased: of.leased,
        reserved: of.reserved,
        delayed: of.delayed,
        set_aside: of.set_aside,
        sent: of.sent,
        sent_bytes: of.sent_bytes,
        removed: of.removed,
        removed_bytes: of.removed_bytes,
        dropped: of.dropped,
        expired: of.expired,
        dead_lettered: of.dead_lettered,
        returned: of.returned,
        waiter_deaths: of.waiter_deaths,
        repairs: of.repairs,
        memory: of.memory,
        closed: of.closed,
        corrupted: of.corrupted,
        receiver_alive: of.receiver_alive,
    }
}

/// The number of columns of the table. The table has all columns except the trend, which is a drawing.
const COLUMNS: usize = Column::ALL.len() - 1;

fn columns() -> [Column; COLUMNS] {
    let mut columns = Column::ALL
        .into_iter()
        .filter(|column| *column != Column::Trend);
    std::array::from_fn(|_| columns.next().unwrap_or(Column::Name))
}

/// Prints a heading, a table and an empty line.
pub fn table(
    view: &View,
    directory: &str,
    owners: &Owners,
    out: &mut impl Write,
) -> io::Result<()> {
    let counts = counts(view.rows.iter().map(|row| row.figures.kind));
    let directory = text::on_one_line(directory.as_bytes());
    let now = time::utc(view.at);
    writeln!(out, "umsg top  {directory}  {now}  {counts}")?;
    let columns = columns();
    let mut table = Table::new(columns.map(|column| {
        let side = match column.is_left() {
            true => Side::Left,
            false => Side::Right,
        };
        (column.title(), side)
    }));
    for row in &view.rows {
        let shown = Shown::of(row, view.at, owners);
        table.push(columns.map(|column| column.text(&shown)));
    }
    table.print(out)?;
    for line in view.refused.iter().map(left_out) {
        writeln!(out, "{line}")?;
    }
    writeln!(out)
}

fn left_out(refused: &Refused) -> String {
    let name = text::on_one_line(refused.queue.as_bytes());
    format!("{name}: {}", why(refused.why))
}

/// Returns a text with the number of queues and the number of rings.
pub fn counts(kinds: impl Iterator<Item = Kind>) -> String {
    let mut counts = [0_u64; 2];
    kinds.for_each(|kind| counts[usize::from(kind == Kind::Ring)] += 1);
    let [queues, rings] = counts;
    let queues = text::counted(queues, "queue");
    format!("{queues}, {}", text::counted(rings, "ring"))
}
