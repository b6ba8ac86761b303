//! Draws the list of queues.

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::{Modifier, Style};

use super::super::app::App;
use super::super::columns::Column;
use super::super::rows::{Key, Line};
use super::super::style::Tone;
use super::row;

/// The gap between two columns.
const GAP: u16 = 1;
/// The maximum width of the trend.
const LONGEST_TREND: u16 = 30;
/// The width to which the name grows on a wide screen before the trend grows.
const LONGEST_NAME: u16 = 40;

/// A visible column: its first character on the line, and its width.
struct Placed {
    column: Column,
    x: u16,
    width: u16,
}

/// Places the columns: first the name, then as many of the other columns as fit. The first `shifted` of the other columns are left out.
fn placed(width: u16, shifted: usize) -> Vec<Placed> {
    let others = &Column::ALL[1..];
    let others = &others[shifted.min(others.len())..];
    let mut left = width.saturating_sub(Column::Name.width());
    let fitting = others.iter().take_while(|column| {
        let needed = column.width() + GAP;
        let fits = left >= needed;
        left = left.saturating_sub(if fits { needed } else { left });
        fits
    });
    let fitting: Vec<Column> = fitting.copied().collect();
    let taken: u16 = fitting.iter().map(|column| column.width() + GAP).sum();
    let mut spare = width.saturating_sub(Column::Name.width() + taken);
    let name = Column::Name.width() + spare.min(LONGEST_NAME - Column::Name.width());
    spare -= name - Column::Name.width();
    let has_trend = fitting.contains(&Column::Trend);
    let trend = match has_trend {
        true => spare.min(LONGEST_TREND - Column::Trend.width()),
        false => 0,
    };
    let mut x = 0;
    let all = std::iter::once(Column::Name).chain(fitting);
    all.map(|column| {
        let width = match column {
            Column::Name => name + spare - trend,
            Column::Trend => column.width() + trend,
            column => column.width(),
        };
        let placed = Placed { column, x, width };
        x += width + GAP;
        placed
    })
    .collect()
}

/// Returns the column whose heading has this character position.
pub fn column_at(x: u16, size: (u16, u16), shifted: usize) -> Option<Column> {
    let mut columns = placed(size.0, shifted).into_iter();
    let found = columns.find(|placed| x >= placed.x && x < placed.x + placed.width);
    found.map(|placed| placed.column)
}

/// Returns the largest useful value of `App::shifted`: the smallest value with which the last column is visible.
pub fn most_shifted(size: (u16, u16)) -> usize {
    let others = Column::ALL.len() - 1;
    let shows_last = |shifted: &usize| {
        let columns = placed(size.0, *shifted);
        columns.len() == others - shifted + 1
    };
    (0..others).find(shows_last).unwrap_or(others - 1)
}

/// Draws the headings and the lines.
pub fn draw(app: &App, area: Rect, buffer: &mut Buffer) {
    let columns = placed(area.width, app.shifted);
    headings(app, &columns, row(area, 0), buffer);
    let lines = app.lines.iter().enumerate().skip(app.offset);
    for ((at, line), y) in lines.zip(1..area.height) {
        let place = row(area, y);
        for column in &columns {
            cell(app, line, column, place, buffer);
        }
        if at == app.selected {
            buffer.set_style(place, Style::default().add_modifier(Modifier::REVERSED));
        }
    }
    if app.lines.is_empty() {
        let text = match (app.view.rows.is_empty(), app.order.filter.is_empty()) {
            (_, false) => "No name contains this text.",
            (true, true) => "There are no queues and rings.",
            (false, true) => "",
        };
        super::put(&ratatui::text::Line::from(text), row(area, 1), buffer);
    }
}

fn headings(app: &App, columns: &[Placed], place: Rect, buffer: &mut Buffer) {
    if place.height == 0 {
        return;
    }
    let style = app
        .look
        .style(Tone::Heading)
        .add_modifier(Modifier::UNDERLINED);
    let blank = " ".repeat(place.width.into());
    buffer.set_stringn(place.x, place.y, blank, place.width.into(), style);
    for placed in columns {
        let mut title = placed.column.title().to_owned();
        let mut style = style;
        if placed.column == app.order.sort {
            style = style.add_modifier(Modifier::REVERSED);
            if title.len() < usize::from(placed.width) {
                title.push(match (app.order.reverse, app.look.is_unicode) {
                    (false, true) => '▾',
                    (true, true) => '▴',
                    (false, false) => 'v',
                    (true, false) => '^',
                });
            }
        }
        write(placed, &title, place, style, buffer);
    }
}

/// Writes a text into a column, aligned to the left or to the right as the column requires. A text that is too long is cut.
fn write(placed: &Placed, text: &str, place: Rect, style: Style, buffer: &mut Buffer) {
    let width = ratatui::text::Span::raw(text).width() as u16;
    let x = match placed.column.is_left() {
        true => placed.x,
        false => placed.x + placed.width.saturating_sub(width),
    };
    if x < place.width {
        let room = placed.width.min(place.width - x);
        buffer.set_stringn(place.x + x, place.y, text, room.into(), style);
    }
}

fn cell(app: &App, line: &Line, placed: &Placed, place: Rect, buffer: &mut Buffer) {
    let (look, shown) = (app.look, &line.shown);
    let width = usize::from(placed.width);
    let (text, style) = match placed.column {
        Column::Name => (name(line, look.is_unicode, width), name_style(app, line)),
        Column::Fill => match shown.fill {
            Some(fill) => (fill_text(app, line, fill, width), look.of_fill(fill)),
            None => (String::new(), Style::default()),
        },
        Column::Trend => {
            let trend = match shown.trend.is_empty() {
                true => String::new(),
                false => look.curve(shown.trend.iter().copied(), 1.0, width),
            };
            (trend, look.style(Tone::Faint))
        }
        column => (column.text(shown), style(app, column, line)),
    };
    write(placed, &text, place, style, buffer);
}

/// Returns a bar, followed by the percentage.
fn fill_text(app: &App, line: &Line, fill: f64, width: usize) -> String {
    let percent = Column::Fill.text(&line.shown);
    let bar = width.saturating_sub(4);
    format!("{}{percent:>4}", app.look.bar(fill, bar))
}

/// Returns the name, indented by its depth in the tree. If the name is too long, its middle is left out.
fn name(line: &Line, is_unicode: bool, width: usize) -> String {
    let mark = match (line.folded, is_unicode) {
        (None, _) if line.depth == 0 => "",
        (None, _) => "  ",
        (Some(true), true) => "▸ ",
        (Some(false), true) => "▾ ",
        (Some(true), false) => "+ ",
        (Some(false), false) => "- ",
    };
    let begin = format!("{}{mark}", "  ".repeat(line.depth.into()));
    let room = width.saturating_sub(begin.chars().count());
    let chars: Vec<char> = line.shown.name.chars().collect();
    if chars.len() <= room {
        return format!("{begin}{}", line.shown.name);
    }
    let ellipsis = if is_unicode { "…" } else { "~" };
    let first = room.saturating_sub(1) / 2;
    let last = room.saturating_sub(1) - first;
    let first: String = chars[..first].iter().collect();
    let last: String = chars[chars.len() - last..].iter().collect();
    format!("{begin}{first}{ellipsis}{last}")
}

fn name_style(app: &App, line: &Line) -> Style {
    match &line.key {
        Key::Group(_) => app.look.style(Tone::Heading),
        Key::Refused(..) => app.look.style(Tone::Faint),
        Key::Queue(..) => Style::default(),
    }
}

/// Returns the style of a cell. A figure that shows a problem is highlighted.
fn style(app: &App, column: Column, line: &Line) -> Style {
    let shown = &line.shown;
    let is_some = |value: Option<f64>| value.is_some_and(|value| value > 0.0);
    match column {
        Column::Senders if is_some(shown.senders) => app.look.style(Tone::Notable),
        Column::Dropped if is_some(shown.dropped) => app.look.style(Tone::Notable),
        Column::Expired if is_some(shown.expired) => app.look.style(Tone::Notable),
        Column::Dead if is_some(shown.dead) => app.look.style(Tone::Notable),
        Column::State => app.look.style(Tone::Bad),
        _ => Style::default(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_fit_any_width_and_each_can_be_seen() {
        for width in 0..300 {
            let most = most_shifted((width, 24));
            for shifted in 0..=most {
                let columns = placed(width, shifted);
                let end = columns.last().map_or(0, |last| last.x + last.width);
                assert!(end <= width.max(Column::Name.width()), "{width} {shifted}");
            }
            if width >= 40 {
                let last = placed(width, most);
                assert_eq!(last.last().unwrap().column, Column::State, "{width}");
            }
        }
        assert_eq!(most_shifted((200, 50)), 0, "all at once");
    }

    #[test]
    fn a_long_name_keeps_its_beginning_and_its_end() {
        let line = |name: &str, depth, folded| Line {
            key: Key::Group(String::new()),
            shown: super::super::super::columns::Shown {
                name: name.to_owned(),
                ..Default::default()
            },
            depth,
            folded,
        };
        assert_eq!(name(&line("/orders.north", 0, None), true, 9), "/ord…orth");
        assert_eq!(name(&line("/a", 1, None), true, 9), "    /a");
        assert_eq!(name(&line("/a*", 1, Some(true)), true, 9), "  ▸ /a*");
        for width in 0..9 {
            name(&line("/orders.north", 2, Some(false)), true, width);
        }
    }
}
