//! Escapes untrusted bytes for a terminal. Control characters, characters that reorder text, and bytes that are not UTF-8 appear as `\x1b`,
//! `\u{202e}`, `\xff`.

use std::fmt::Write;

/// Escapes a text for one line. Line feeds are also escaped.
pub fn on_one_line(bytes: &[u8]) -> String {
    escaped(bytes, |_| false)
}

/// Escapes a text for several lines. Line feeds and tabs are not escaped.
pub fn on_lines(bytes: &[u8]) -> String {
    escaped(bytes, |c| matches!(c, '\n' | '\t'))
}

/// Returns the first `most` characters of [`on_one_line`], followed by `…` if the text is longer.
pub fn preview(bytes: &[u8], most: usize) -> String {
    // A character has at most 4 bytes, and its escaped form is not shorter.
    let seen = &bytes[..bytes.len().min(most.saturating_mul(4).saturating_add(4))];
    let line = on_one_line(seen);
    if line.chars().count() <= most && seen.len() == bytes.len() {
        return line;
    }
    let mut cut: String = line.chars().take(most.saturating_sub(1)).collect();
    cut.push('…');
    cut
}

/// Returns a number and its noun. The noun gets an `s` unless the number is 1.
pub fn counted(number: impl Into<u64>, noun: &str) -> String {
    match number.into() {
        1 => format!("1 {noun}"),
        number => format!("{number} {noun}s"),
    }
}

fn escaped(bytes: &[u8], allowed: impl Fn(char) -> bool) -> String {
    let mut shown = String::with_capacity(bytes.len());
    for chunk in bytes.utf8_chunks() {
        for c in chunk.valid().chars() {
            push(&mut shown, c, allowed(c));
        }
        for byte in chunk.invalid() {
            push_byte(&mut shown, *byte);
        }
    }
    shown
}

fn push(shown: &mut String, c: char, allowed: bool) {
    if allowed || !is_harmful(c) {
        shown.push(c);
    } else if c.is_ascii() && !matches!(c, '\n' | '\t' | '\r') {
        push_byte(shown, c as u8);
    } else {
        shown.extend(c.escape_default());
    }
}

fn push_byte(shown: &mut String, byte: u8) {
    // Writing to a string can't fail.
    let _ = write!(shown, "\\x{byte:02x}");
}

/// Returns whether a character is a control character, a line separator, or changes the direction of text.
fn is_harmful(c: char) -> bool {
    c.is_control()
        || matches!(
            c,
            '\u{200e}' | '\u{200f}' | '\u{2028}' | '\u{2029}' | '\u{061c}'
        )
        || matches!(c, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_could_control_a_terminal_is_escaped() {
        assert_eq!(
            on_one_line(b"a\x1b[2Jb\x07\x7f\xff"),
            r"a\x1b[2Jb\x07\x7f\xff"
        );
        assert_eq!(
            on_one_line("\u{9b}x\u{202e}".as_bytes()),
            r"\u{9b}x\u{202e}"
        );
        assert_eq!(on_one_line("Grüße 🦀 \\".as_bytes()), "Grüße 🦀 \\");
    }

    #[test]
    fn line_feeds_stay_where_lines_are_allowed() {
        assert_eq!(on_one_line(b"a\nb\r\t"), r"a\nb\r\t");
        assert_eq!(on_lines(b"a\nb\r\t"), "a\nb\\r\t");
    }

    #[test]
    fn a_preview_is_as_long_as_allowed_and_says_when_it_is_cut() {
        assert_eq!(preview(b"abc", 3), "abc");
        assert_eq!(preview(b"abcd", 3), "ab…");
        assert_eq!(preview(&[b'x'; 1000], 3), "xx…");
        assert_eq!(preview(&[0; 1], 3), r"\x…");
    }
}
