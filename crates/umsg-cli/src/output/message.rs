//! The forms in which received messages are printed.

use std::fmt::Write as _;
use std::io::{self, IsTerminal};

use super::{json, text};
use crate::inlet::Held;
use clap::ValueEnum;

/// The form of a message on standard output.
#[derive(ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
pub enum Style {
    /// The bytes, and a line feed if the message does not end with one; on a terminal, control characters are escaped
    Text,
    /// The bytes and nothing else; with --null, a NUL byte after each message
    Raw,
    /// Hexadecimal digits, one message a line
    Hex,
}

/// The form of the messages of one queue.
pub struct Form {
    queue: String,
    style: Style,
    json: bool,
    /// The maximum number of bytes of a message that are printed; None without a limit.
    most: Option<usize>,
    on_terminal: bool,
    /// The byte after each message.
    end: u8,
}

impl Form {
    pub fn new(queue: String, style: Style, json: bool, most: Option<usize>) -> Form {
        let on_terminal = io::stdout().is_terminal();
        Form {
            queue,
            style,
            json,
            most,
            on_terminal,
            end: b'\n',
        }
    }

    /// Returns this form with another byte than a line feed after each message.
    pub fn ended_by(self, end: u8) -> Form {
        Form { end, ..self }
    }

    /// Returns the bytes to print for a message.
    pub fn render(&self, message: &Held<'_>) -> Vec<u8> {
        let mut bytes = message.to_vec();
        let size = bytes.len();
        bytes.truncate(self.most.unwrap_or(usize::MAX));
        if self.json {
            let message = json::Message::received(&self.queue, message, size, &bytes);
            return json::line(&message);
        }
        let mut shown = match self.style {
            Style::Raw if self.end == b'\n' => return bytes,
            Style::Raw => bytes,
            Style::Hex => hex(&bytes).into_bytes(),
            Style::Text if self.on_terminal => text::on_lines(&bytes).into_bytes(),
            Style::Text => bytes,
        };
        // If a message already ends with a line feed, no second line feed follows.
        if self.end != b'\n' || shown.last() != Some(&b'\n') {
            shown.push(self.end);
        }
        shown
    }
}

/// Returns two hexadecimal digits for each byte.
fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut digits, byte| {
        // Writing to a string can't fail.
        let _ = write!(digits, "{byte:02x}");
        digits
    })
}
