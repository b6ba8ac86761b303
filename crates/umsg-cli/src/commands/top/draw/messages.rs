//! Draws the page with the messages of one queue.

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::{Modifier, Style};
use ratatui::text::{Line, Span};

use super::super::app::{App, Messages};
use super::super::style::Tone;
use super::super::work::Message;
use super::{plain, put, row};
use crate::output::{text, time};

/// The number of bytes in a line of hexadecimal numbers.
const HEX: usize = 16;
/// The maximum number of bytes of a message that the page shows.
const LONGEST: usize = 64 << 10;

pub fn draw(app: &App, messages: &Messages, area: Rect, buffer: &mut Buffer) {
    let found = match &messages.found {
        None => return put(&Line::from("Reading the messages..."), row(area, 0), buffer),
        Some(Err(failure)) => {
            let style = app.look.style(Tone::Bad);
            return put(&Line::styled(failure.clone(), style), row(area, 0), buffer);
        }
        Some(Ok(found)) => found,
    };
    if let (Some(line), Some(message)) = (messages.whole, messages.current()) {
        messages.most.set(whole(app, message, line, area, buffer));
        return;
    }
    let shown = messages.shown();
    let name = text::on_one_line(messages.subject.lossy().as_bytes());
    let count = match messages.search.is_empty() {
        true if messages.all > found.len() as u64 => {
            format!("the first {} of {} messages", found.len(), messages.all)
        }
        true => text::counted(found.len() as u64, "message"),
        false => format!(
            "{} of {} with \"{}\"",
            shown.len(),
            found.len(),
            messages.search
        ),
    };
    let at = time::utc(messages.at);
    let at = at.get(11..19).unwrap_or_default();
    let title = format!("{name}  {count}, copied at {at}Z; r reads again");
    put(
        &Line::styled(title, app.look.style(Tone::Heading)),
        row(area, 0),
        buffer,
    );
    let lines = shown.iter().enumerate().skip(messages.offset);
    for ((at, (position, message)), y) in lines.zip(1..area.height) {
        let place = row(area, y);
        put(&entry(app, *position, message, area.width), place, buffer);
        if at == messages.selected {
            buffer.set_style(place, Style::default().add_modifier(Modifier::REVERSED));
        }
    }
}

/// Returns a line with the position, rank, length, sender, age and beginning of a message.
fn entry(app: &App, position: usize, message: &Message, width: u16) -> Line<'static> {
    let begin = format!(
        "{position:>5} {:>6} {:>7}B {:>8} {:>5}  ",
        message.rank,
        message.len,
        message.pid,
        age(message),
    );
    let mut spans = vec![plain(begin)];
    if let Some(dead) = &message.dead {
        let id = message.id.map_or_else(String::new, |id| format!("#{id} "));
        spans.push(Span::styled(
            format!("{id}{dead} "),
            app.look.style(Tone::Notable),
        ));
    }
    spans.push(plain(text::preview(&message.data, width.into())));
    Line::from(spans)
}

fn age(message: &Message) -> String {
    let age = std::time::SystemTime::now().duration_since(message.sent);
    time::rough(age.unwrap_or_default())
}

/// Draws one message: as text if it is UTF-8, else in hexadecimal numbers. Returns the largest useful value of `from`: the value with which the last
/// line of the message is visible.
fn whole(app: &App, message: &Message, from: usize, area: Rect, buffer: &mut Buffer) -> usize {
    let dead = message.dead.as_deref().unwrap_or("no dead letter");
    let title = format!(
        "{} bytes, priority or type {}, sent {} by {}, returned {} times, {dead}",
        message.len,
        message.rank,
        time::ago(Some(message.sent)),
        message.pid,
        message.returns,
    );
    put(
        &Line::styled(title, app.look.style(Tone::Heading)),
        row(area, 0),
        buffer,
    );
    let lines = lines(message, usize::from(area.width).max(1));
    let last = lines
        .len()
        .saturating_sub(usize::from(area.height).max(2) - 1);
    let lines = lines.iter().skip(from.min(last));
    for (line, y) in lines.zip(1..area.height) {
        put(&Line::from(line.as_str()), row(area, y), buffer);
    }
    last
}

fn lines(message: &Message, width: usize) -> Vec<String> {
    let mut data = &message.data[..message.data.len().min(LONGEST)];
    // If only the beginning of a longer text is shown, it may end within a character.
    if let Err(error) = std::str::from_utf8(data)
        && error.error_len().is_none()
        && data.len() < message.len
    {
        data = &data[..error.valid_up_to()];
    }
    let mut lines: Vec<String> = match std::str::from_utf8(data) {
        Ok(_) => text::on_lines(data)
            .lines()
            .flat_map(|line| wrapped(line, width))
            .collect(),
        Err(_) => data.chunks(HEX).enumerate().map(hexadecimal).collect(),
    };
    let hidden = message.len.saturating_sub(data.len());
    if hidden != 0 {
        lines.push(format!("({hidden} more bytes)"));
    }
    lines
}

fn wrapped(line: &str, width: usize) -> Vec<String> {
    let (mut lines, mut part, mut taken) = (Vec::new(), String::new(), 0);
    for char in line.replace('\t', "    ").chars() {
        // A character takes zero, one or two columns.
        let columns = Span::raw(char.to_string()).width();
        if taken + columns > width && !part.is_empty() {
            lines.push(std::mem::take(&mut part));
            taken = 0;
        }
        part.push(char);
        taken += columns;
    }
    lines.push(part);
    lines
}

fn hexadecimal((number, bytes): (usize, &[u8])) -> String {
    let hex: String = bytes.iter().map(|byte| format!("{byte:02x} ")).collect();
    let shown = |byte: &u8| match byte {
        0x20..=0x7e => char::from(*byte),
        _ => '.',
    };
    let text: String = bytes.iter().map(shown).collect();
    format!("{:08x}  {hex:<48} {text}", number * HEX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_wrapped_by_columns_and_not_by_characters() {
        assert_eq!(wrapped("", 4), [""]);
        assert_eq!(wrapped("abcdef", 4), ["abcd", "ef"]);
        assert_eq!(wrapped("日本語", 4), ["日本", "語"]);
        assert_eq!(wrapped("a日本", 4), ["a日", "本"]);
        // A combining mark stays with its letter.
        assert_eq!(wrapped("abcde\u{301}f", 5), ["abcde\u{301}", "f"]);
        // A screen of one column has no room for a wide character.
        assert_eq!(wrapped("日a", 1), ["日", "a"]);
    }
}
