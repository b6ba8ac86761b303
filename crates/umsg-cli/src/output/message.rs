//! How received messages are printed.

use std::fmt::Write as _;
use std::io::{self, IsTerminal, Write};

use clap::ValueEnum;

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

/// Prints messages of one queue.
pub struct Printer<W> {
    out: W,
    queue: String,
    style: Style,
    json: bool,
    on_terminal: bool,
}

impl<W: Write> Printer<W> {
    pub fn new(out: W, queue: String, style: Style, json: bool) -> Printer<W> {
        let on_terminal = io::stdout().is_terminal();
        Printer {
            out,
            queue,
            style,
            json,
            on_terminal,
        }
    }

    /// Prints a message and writes it out: a message that was received exists nowhere else.
    pub fn print(&mut self, priority: u32, bytes: &[u8]) -> io::Result<()> {
        if self.json {
            let message = json::Message::received(&self.queue, priority, bytes);
            json::print(&mut self.out, &message)?;
        } else {
            self.print_bytes(bytes)?;
        }
        self.out.flush()
    }

    fn print_bytes(&mut self, bytes: &[u8]) -> io::Result<()> {
        match self.style {
            Style::Raw => self.out.write_all(bytes),
            Style::Hex => writeln!(self.out, "{}", hex(bytes)),
            Style::Text if self.on_terminal => writeln!(self.out, "{}", text::on_lines(bytes)),
            Style::Text => {
                self.out.write_all(bytes)?;
                self.out.write_all(b"\n")
            }
        }
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut digits, byte| {
        // Writing to a string can't fail.
        let _ = write!(digits, "{byte:02x}");
        digits
    })
}
