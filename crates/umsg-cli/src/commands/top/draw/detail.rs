//! Draws the page with the details of one queue.

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::Style;
use ratatui::text::{Line, Span};
use umsg::diagnosis::{Blocked, Diagnosis, Hold, HoldKind, Life, Process, Wait};

use super::super::app::{App, Detail};
use super::super::columns::{Column, Shown, bytes, count, why};
use super::super::rates::{PAST, Row};
use super::super::rows::Key;
use super::super::style::Tone;
use super::{bold, plain, put, row};
use crate::commands::sample::figures::Kind;
use crate::output::{text, time};

/// The minimum width for two columns.
const WIDE: u16 = 120;
/// The maximum number of lines of a list.
const MOST: usize = 12;
/// The width of a title.
const TITLE: usize = 12;

/// Draws all parts of the page one below the other, or in two columns.
pub fn draw(app: &App, detail: &Detail, area: Rect, buffer: &mut Buffer) {
    let heading = heading(app, detail);
    put(&heading, row(area, 0), buffer);
    let body = Rect {
        y: area.y + 1.min(area.height),
        height: area.height.saturating_sub(1),
        ..area
    };
    let width = match body.width {
        WIDE.. => body.width / 2 - 1,
        narrow => narrow,
    };
    let mut first = figures(app, detail, width);
    first.extend(ranks(app, detail, width));
    let mut second = match &detail.diagnosis {
        None => vec![Line::from("Looking at the processes...")],
        Some(Ok(diagnosis)) => processes(app, diagnosis),
        Some(Err(failure)) => vec![Line::styled(failure.clone(), app.look.style(Tone::Bad))],
    };
    if body.width < WIDE {
        first.append(&mut second);
    }
    let left = column(&first, detail.scroll, Rect { width, ..body }, buffer);
    let right = Rect {
        x: body.x + width + 2,
        width: body.width.saturating_sub(width + 2),
        ..body
    };
    let right = column(&second, detail.scroll, right, buffer);
    detail.most.set(left.max(right));
}

/// Draws the lines from number `scroll` on. The scroll is limited so that the last line stays visible. Returns the largest useful scroll.
fn column(lines: &[Line<'_>], scroll: usize, area: Rect, buffer: &mut Buffer) -> usize {
    let last = lines.len().saturating_sub(usize::from(area.height).max(1));
    let lines = lines.iter().skip(scroll.min(last));
    for (line, y) in lines.zip(0..area.height) {
        put(line, row(area, y), buffer);
    }
    last
}

fn heading(app: &App, detail: &Detail) -> Line<'static> {
    let (kind, name) = match &detail.key {
        Key::Queue(kind, name) | Key::Refused(kind, name) => (*kind, name),
        Key::Group(name) => (Kind::Posix, name),
    };
    let kind = match kind {
        Kind::Posix => "POSIX queue",
        Kind::Sysv => "System V queue",
        Kind::Ring => "ring",
    };
    let name = text::on_one_line(name.as_bytes());
    let state = match (&detail.key, app.row(&detail.key)) {
        (Key::Queue(..), None) => "gone",
        _ => "",
    };
    Line::from(vec![
        Span::styled(name, app.look.style(Tone::Heading)),
        plain(format!("  {kind}  ")),
        Span::styled(state, app.look.style(Tone::Bad)),
    ])
}

/// Returns a line with a title and a text.
fn line(title: &str, text: impl Into<String>) -> Line<'static> {
    Line::from(vec![bold(format!("{title:<TITLE$}")), plain(text)])
}

fn figures(app: &App, detail: &Detail, width: u16) -> Vec<Line<'static>> {
    let Some(row) = app.row(&detail.key) else {
        let refused = app
            .view
            .refused
            .iter()
            .find(|refused| Key::Refused(refused.kind, refused.queue.clone()) == detail.key);
        let text = refused.map_or("The queue was removed.", |refused| why(refused.why));
        return vec![Line::from(text)];
    };
    let (of, shown) = (&row.figures, Shown::of(row, app.view.at, &app.owners));
    let or_dash =
        |value: Option<u64>| value.map_or_else(|| "-".to_owned(), |value| value.to_string());
    let of_bytes =
        |rate: Option<f64>| rate.map_or_else(String::new, |rate| format!(", {}B/s", bytes(rate)));
    let rate = |rate: Option<f64>| rate.map_or_else(|| "-".to_owned(), count);
    let capacity = match (of.capacity, of.capacity_bytes) {
        (Some(most), _) => format!("{} of {most}", of.messages),
        (None, Some(most)) => format!("{}, {} of {most} bytes", of.messages, or_dash(of.bytes)),
        (None, None) => of.messages.to_string(),
    };
    let mut lines = curves(app, row, width);
    lines.extend([
        line(
            "messages",
            format!("{capacity} ({})", Column::Fill.text(&shown)),
        ),
        line(
            "rates",
            format!(
                "in {}/s{}  out {}/s{}",
                rate(shown.sent),
                of_bytes(shown.sent_bytes),
                rate(shown.removed),
                of_bytes(shown.removed_bytes),
            ),
        ),
        line(
            "so far",
            format!("{} sent, {} removed", of.sent, of.removed),
        ),
        line("oldest", Column::Oldest.text(&shown)),
        line(
            "blocked",
            format!(
                "{} to send, {} to receive",
                of.blocked_senders,
                or_dash(of.blocked_receivers)
            ),
        ),
        line(
            "held",
            format!(
                "{} leased, {} reserved, {} delayed, {} set aside",
                or_dash(of.leased),
                or_dash(of.reserved),
                or_dash(of.delayed),
                or_dash(of.set_aside),
            ),
        ),
        line(
            "lost",
            format!(
                "{} dropped, {} expired, {} dead-lettered",
                or_dash(of.dropped),
                or_dash(of.expired),
                or_dash(of.dead_lettered),
            ),
        ),
        line("memory", format!("{} bytes", of.memory)),
        line("owner", shown.owner.clone()),
    ]);
    if !shown.state.is_empty() {
        let state = Span::styled(shown.state, app.look.style(Tone::Bad));
        lines.push(Line::from(vec![
            bold(format!("{:<TITLE$}", "state")),
            state,
        ]));
    }
    lines
}

/// Returns the curves of the messages and rates over time.
fn curves(app: &App, row: &Row, width: u16) -> Vec<Line<'static>> {
    let room = usize::from(width).saturating_sub(TITLE + 9).clamp(1, PAST);
    let past = &row.past;
    let parts = [
        ("messages", &past.messages, ""),
        ("in", &past.sent, "/s"),
        ("out", &past.removed, "/s"),
    ];
    let lines = parts.map(|(title, values, unit)| {
        let most = values.iter().rev().take(room).copied().fold(0.0, f64::max);
        let curve = app.look.curve(values.iter().copied(), most, room);
        let style = match unit {
            "" => app.look.of_fill(row.figures.fill),
            _ => app.look.style(Tone::Good),
        };
        Line::from(vec![
            bold(format!("{title:<TITLE$}")),
            Span::styled(curve, style),
            plain(format!(" {}{unit}", count(most))),
        ])
    });
    lines.into()
}

/// Returns the histogram of the messages by priority or type.
fn ranks(app: &App, detail: &Detail, width: u16) -> Vec<Line<'static>> {
    let Some(ranks) = detail.ranks.as_ref().filter(|ranks| !ranks.is_empty()) else {
        return Vec::new();
    };
    let title = match detail.key {
        Key::Queue(Kind::Sysv, _) => "type",
        _ => "priority",
    };
    let most = ranks.iter().map(|(_, count)| *count).max().unwrap_or(1);
    let room = usize::from(width).saturating_sub(TITLE + 9).clamp(1, 60);
    let mut lines = vec![
        Line::default(),
        section(app, &format!("Messages by {title}")),
    ];
    for (rank, number) in ranks.iter().take(MOST) {
        let bar = app.look.bar(*number as f64 / most as f64, room);
        lines.push(Line::from(vec![
            plain(format!("{rank:>11} ")),
            Span::styled(bar, app.look.style(Tone::Good)),
            plain(format!(" {}", count(*number as f64))),
        ]));
    }
    lines.extend(more(ranks.len()));
    lines
}

fn section(app: &App, title: &str) -> Line<'static> {
    Line::styled(title.to_owned(), app.look.style(Tone::Heading))
}

/// Returns a line with the number of entries that a list does not show.
fn more(count: usize) -> Option<Line<'static>> {
    let hidden = count.checked_sub(MOST).filter(|hidden| *hidden != 0)?;
    Some(Line::from(format!("            and {hidden} more")))
}

/// Returns the lines about processes that wait or hold messages, and about repairs and problems.
fn processes(app: &App, diagnosis: &Diagnosis) -> Vec<Line<'static>> {
    let mut lines = Vec::new();
    let mut list = |title: &str, entries: Vec<String>, style: Style| {
        if entries.is_empty() {
            return;
        }
        lines.extend([Line::default(), section(app, title)]);
        let count = entries.len();
        let shown = entries.into_iter().take(MOST);
        lines.extend(shown.map(|entry| Line::styled(format!("  {entry}"), style)));
        lines.extend(more(count));
    };
    let plain = Style::default();
    let problems = diagnosis
        .problems
        .iter()
        .map(|problem| text::on_one_line(problem.what.as_bytes()));
    list("Problems", problems.collect(), app.look.style(Tone::Bad));
    let receiver = diagnosis.receiver.iter().map(process);
    list("Receiver", receiver.collect(), plain);
    let blocked = diagnosis.blocked.iter().filter(|blocked| !blocked.served);
    list("Waiting", blocked.map(waiter).collect(), plain);
    let holds = diagnosis.holds.iter();
    list("Held messages", holds.map(holder).collect(), plain);
    let producers = diagnosis.producers.iter().map(process);
    list("Producers", producers.collect(), plain);
    list("Latest repairs", repairs(diagnosis), plain);
    if lines.is_empty() {
        lines = vec![
            Line::default(),
            Line::from("No process waits or holds messages; no repairs."),
        ];
    }
    lines
}

fn process(process: &Process) -> String {
    let program = process.program.as_deref().unwrap_or("?");
    let program = text::on_one_line(program.as_bytes());
    let life = match (process.life, process.elsewhere) {
        (_, true) => ", in another PID namespace",
        (Life::Dead, _) => ", dead",
        (Life::Stopped, _) => ", stopped",
        _ => "",
    };
    format!("{} ({program}{life})", process.pid)
}

fn waiter(blocked: &Blocked) -> String {
    let wait = match &blocked.wait {
        Wait::Room { .. } => "to send",
        _ => "to receive",
    };
    let since = time::rough(blocked.time);
    format!("{} {wait} for {since}", process(&blocked.who))
}

fn holder(hold: &Hold) -> String {
    let who = hold
        .who
        .as_ref()
        .map_or_else(|| "no process".to_owned(), process);
    let what = match hold.kind {
        HoldKind::Leased => "leased",
        HoldKind::Reserved => "reserved",
        HoldKind::SetAside => "set aside for the dead-letter queue",
        HoldKind::Delayed => "delayed",
        HoldKind::Redriven => "being sent back",
        _ => "held",
    };
    let ends = hold.ends_in.map_or_else(String::new, |left| {
        format!(", ends in {}", time::rough(left))
    });
    format!("{who} {what}, {} bytes{ends}", hold.bytes)
}

fn repairs(diagnosis: &Diagnosis) -> Vec<String> {
    let mut all: Vec<_> = diagnosis
        .repairs
        .iter()
        .flat_map(|repairs| &repairs.latest)
        .collect();
    all.sort_by_key(|repair| std::cmp::Reverse(repair.at));
    let texts = all.into_iter().map(|repair| {
        let died = match repair.died {
            Some(pid) => format!("after the death of {pid}"),
            None => "after a death".to_owned(),
        };
        format!("{} {died}, by {}", time::ago(Some(repair.at)), repair.by)
    });
    texts.collect()
}
