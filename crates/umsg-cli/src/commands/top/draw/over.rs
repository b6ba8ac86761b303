//! Draws the windows in front of a page (the keys, a question), and the last line of the screen.

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::text::{Line, Span};
use ratatui::widgets::{Block, Clear, Widget};

use super::super::app::{App, Page, Question, What};
use super::super::style::Tone;
use super::{bold, plain, put, row};

/// The keys and their descriptions, which the key "?" shows.
const KEYS: [(&str, &str); 19] = [
    ("up down", "select; also j k, Page, Home, End, wheel, click"),
    ("left right", "show other columns"),
    ("Enter", "show more of a queue, or a whole message"),
    ("< >", "sort by another column; or click its heading"),
    ("r", "reverse the order; with messages: read them again"),
    ("/", "list only names or messages with a text; Esc: all"),
    ("t", "tree of names"),
    ("Space", "fold a group of the tree"),
    ("m", "show messages; receivers wait during the copy"),
    ("P", "purge: receive and drop the messages"),
    ("X", "remove the queue"),
    ("R", "send dead letters back to their queues"),
    ("", "   P, X and R ask before they change anything"),
    ("p", "pause"),
    ("c", "colours: dark, light, none"),
    ("^Z", "suspend"),
    ("q Esc", "back; from the list: quit"),
    ("^C", "quit"),
    ("", "Any key closes this window."),
];

pub fn draw(app: &App, area: Rect, buffer: &mut Buffer) {
    let last = row(area, area.height - 1);
    let blank = " ".repeat(last.width.into());
    put(&Line::from(blank), last, buffer);
    put(&last_line(app), last, buffer);
    if app.has_help {
        keys(app, area, buffer);
    }
    if let Some(question) = &app.question {
        ask(app, question, area, buffer);
    }
}

/// Returns the last line of the screen: the text that the user types, the result of the last action, or the most important keys.
fn last_line(app: &App) -> Line<'static> {
    if let Some(input) = &app.input {
        let what = match input.what {
            What::Filter => "Names with: ",
            What::Search => "Messages with: ",
        };
        return Line::from(vec![bold(what), plain(format!("{}_", input.text))]);
    }
    if let Some(failure) = &app.failure {
        return Line::styled(failure.clone(), app.look.style(Tone::Bad));
    }
    match &app.told {
        Some(Ok(done)) => return Line::styled(done.clone(), app.look.style(Tone::Good)),
        Some(Err(failure)) => return Line::styled(failure.clone(), app.look.style(Tone::Bad)),
        None => {}
    }
    let keys: &[(&str, &str)] = match &app.page {
        Page::List => &[
            ("?", "keys"),
            ("Enter", "details"),
            ("m", "messages"),
            ("/", "filter"),
            ("<>", "sort"),
            ("t", "tree"),
            ("p", "pause"),
            ("q", "quit"),
        ],
        Page::Detail(_) => &[
            ("?", "keys"),
            ("m", "messages"),
            ("P", "purge"),
            ("X", "remove"),
            ("R", "requeue"),
            ("q", "back"),
        ],
        Page::Messages(_) => &[
            ("?", "keys"),
            ("Enter", "whole message"),
            ("/", "search"),
            ("r", "read again"),
            ("R", "requeue"),
            ("q", "back"),
        ],
    };
    let mut spans: Vec<Span<'static>> = Vec::new();
    if !app.order.filter.is_empty() && matches!(app.page, Page::List) {
        let filter = format!("[names with \"{}\"] ", app.order.filter);
        spans.push(Span::styled(filter, app.look.style(Tone::Notable)));
    }
    for (key, what) in keys {
        spans.push(Span::styled(*key, app.look.style(Tone::Heading)));
        spans.push(plain(format!(" {what}  ")));
    }
    Line::from(spans)
}

/// Draws an empty window of this size in the middle, or a smaller window if the area is smaller. Returns the area inside the border.
fn window(title: &str, (width, height): (u16, u16), area: Rect, buffer: &mut Buffer) -> Rect {
    let (width, height) = (width.min(area.width), height.min(area.height));
    let place = Rect {
        x: area.x + (area.width - width) / 2,
        y: area.y + (area.height - height) / 2,
        width,
        height,
    };
    Clear.render(place, buffer);
    let block = Block::bordered().title(format!(" {title} "));
    let inside = block.inner(place);
    block.render(place, buffer);
    inside
}

fn keys(app: &App, area: Rect, buffer: &mut Buffer) {
    let inside = window("Keys", (68, KEYS.len() as u16 + 2), area, buffer);
    for ((key, what), y) in KEYS.iter().zip(0..inside.height) {
        let line = Line::from(vec![
            Span::styled(format!("{key:>11} "), app.look.style(Tone::Heading)),
            plain(*what),
        ]);
        put(&line, row(inside, y), buffer);
    }
}

fn ask(app: &App, question: &Question, area: Rect, buffer: &mut Buffer) {
    let width = Span::raw(&question.text).width() as u16 + 4;
    let inside = window("Confirm", (width.max(40), 5), area, buffer);
    put(&Line::from(question.text.clone()), row(inside, 0), buffer);
    let answer = Line::from(vec![
        Span::styled("y", app.look.style(Tone::Bad)),
        plain(" yes    "),
        Span::styled("any other key", app.look.style(Tone::Heading)),
        plain(" no"),
    ]);
    put(&answer, row(inside, 2), buffer);
}
