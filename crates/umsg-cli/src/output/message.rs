//! How received messages are printed.

use std::fmt::Write as _;
use std::io::{self, IsTerminal};

use clap::ValueEnum;
use umsg::posix::Lease;

use super::{json, text};

/// Forms of a message on standard output.
#[derive(ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
pub enum Style {
    /// The bytes and a line feed after each message; on a terminal, what could control it is escaped
    Text,
    /// The bytes and nothing else
    Raw,
    /// Hexadecimal digits, one message a line
    Hex,
}

/// How messages of one queue look.
pub struct Form {
    queue: String,
    style: Style,
    json: bool,
    on_terminal: bool,
}

impl Form {
    pub fn new(queue: String, style: Style, json: bool) -> Form {
        let on_terminal = io::stdout().is_terminal();
        Form {
            queue,
            style,
            json,
            on_terminal,
        }
    }

    /// What is to be printed for a message.
    pub fn render(&self, message: &Lease<'_>) -> Vec<u8> {
        let bytes = message.to_vec();
        if self.json {
            return json::line(&json::Message::received(&self.queue, message, &bytes));
        }
        let mut shown = match self.style {
            Style::Raw => return bytes,
            Style::Hex => hex(&bytes).into_bytes(),
            Style::Text if self.on_terminal => text::on_lines(&bytes).into_bytes(),
            Style::Text => bytes,
        };
        shown.push(b'\n');
        shown
    }
}

/// Two digits a byte.
fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut digits, byte| {
        // Writing to a string can't fail.
        let _ = write!(digits, "{byte:02x}");
        digits
    })
}
