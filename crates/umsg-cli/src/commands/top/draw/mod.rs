//! Draws the state of the screen.
//!
//! | what | where |
//! |---|---|
//! | the list of queues | [`list`] |
//! | one queue | [`detail`] |
//! | its messages | [`messages`] |
//! | the keys, a question, the last line | [`over`] |

mod detail;
mod list;
mod messages;
mod over;

use ratatui::Frame;
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::{Modifier, Style};
use ratatui::text::{Line, Span};

use super::app::{App, BELOW, Page};
use super::columns::count;
use super::report;
use super::style::Tone;
use crate::output::{text, time};

pub use list::{column_at, most_shifted};

/// Draws the whole screen.
pub fn screen(app: &App, frame: &mut Frame<'_>) {
    let area = frame.area();
    if area.width == 0 || area.height == 0 {
        return;
    }
    let buffer = frame.buffer_mut();
    head(app, row(area, 0), row(area, 1), buffer);
    let body = Rect {
        y: area.y.saturating_add(2).min(area.bottom()),
        height: area.height.saturating_sub(2 + BELOW),
        ..area
    };
    match &app.page {
        Page::List => list::draw(app, body, buffer),
        Page::Detail(detail) => detail::draw(app, detail, body, buffer),
        Page::Messages(messages) => messages::draw(app, messages, body, buffer),
    }
    over::draw(app, area, buffer);
}

/// Returns a line of an area. Returns an empty line if the area has fewer lines.
fn row(area: Rect, line: u16) -> Rect {
    let is_there = line < area.height;
    Rect {
        y: area.y + if is_there { line } else { 0 },
        height: u16::from(is_there),
        ..area
    }
}

/// Writes a line, and cuts it at the end of the area.
fn put(line: &Line<'_>, place: Rect, buffer: &mut Buffer) {
    if place.height != 0 {
        buffer.set_line(place.x, place.y, line, place.width);
    }
}

fn plain(text: impl Into<String>) -> Span<'static> {
    Span::raw(text.into())
}

fn bold(text: impl Into<String>) -> Span<'static> {
    Span::styled(text.into(), Style::default().add_modifier(Modifier::BOLD))
}

/// Draws the two lines at the top: the namespace and the time, and the totals.
fn head(app: &App, first: Rect, second: Rect, buffer: &mut Buffer) {
    let rows = app.view.rows.iter();
    let counts = report::counts(rows.map(|row| row.figures.kind));
    let now = time::utc(app.view.at);
    let clock = now.get(11..19).unwrap_or_default();
    let pace = match app.is_paused {
        true => "paused".to_owned(),
        false => format!("every {}", time::length(app.interval)),
    };
    let right = format!("{clock}Z  {pace}");
    let directory = text::on_one_line(app.directory.as_bytes());
    let left = Line::from(vec![
        Span::styled("umsg top", app.look.style(Tone::Heading)),
        plain(format!("  {directory}  {counts}")),
    ]);
    put(&left, first, buffer);
    let width = right.chars().count() as u16;
    if first.width > width {
        let x = first.right() - width;
        let place = Rect {
            x: x.saturating_sub(1),
            width: width + 1,
            ..first
        };
        put(&Line::from(format!(" {right}")), place, buffer);
    }
    put(&sums(app), second, buffer);
}

fn sums(app: &App) -> Line<'static> {
    let rows = || app.view.rows.iter();
    let sum = |of: &dyn Fn(&super::rates::Row) -> Option<f64>| -> f64 {
        rows().filter_map(of).fold(0.0, |sum, more| sum + more)
    };
    let known = |value: Option<u64>| value.map(|value| value as f64);
    let messages = sum(&|row| Some(row.figures.messages as f64));
    let sent = sum(&|row| row.rates.map(|rates| rates.sent));
    let removed = sum(&|row| row.rates.map(|rates| rates.removed));
    let senders = sum(&|row| Some(row.figures.blocked_senders as f64));
    let receivers = sum(&|row| known(row.figures.blocked_receivers));
    let leased = sum(&|row| known(row.figures.leased));
    let memory = sum(&|row| Some(row.figures.memory as f64));
    Line::from(vec![
        plain("messages "),
        bold(count(messages)),
        plain("  in "),
        bold(count(sent)),
        plain("/s  out "),
        bold(count(removed)),
        plain("/s  blocked "),
        bold(count(senders)),
        plain(" snd "),
        bold(count(receivers)),
        plain(" rcv  leased "),
        bold(count(leased)),
        plain("  memory "),
        bold(super::columns::bytes(memory)),
    ])
}
