//! Formats a message for the terminal.

use std::borrow::Cow;
use std::ffi::{OsStr, OsString};
use std::fmt::Write;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use clap::ValueEnum;

use super::Seen;
use crate::commands::jobs::input;
use crate::failure::{Code, Failure, Result, say};
use crate::inlet::Rank;
use crate::output::{text, time};
use crate::{inherited, program};

#[derive(ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
pub enum Style {
    /// On one line; control characters are escaped
    Text,
    /// A hexadecimal dump, 16 bytes a line
    Hex,
    /// JSON on several lines; a message that is not JSON is shown as text
    Json,
}

pub struct Decoder<'a> {
    style: Style,
    filter: Option<Filter<'a>>,
}

/// The command of --exec, with its arguments.
struct Filter<'a> {
    path: PathBuf,
    name: &'a OsStr,
    arguments: &'a [OsString],
}

impl<'a> Decoder<'a> {
    /// Makes a decoder. Fails if the command of --exec does not exist.
    pub fn new(style: Style, exec: Option<&'a [OsString]>) -> Result<Decoder<'a>> {
        let filter = match exec.and_then(<[OsString]>::split_first) {
            None => None,
            Some((name, arguments)) => {
                let path = program::find(name).map_err(|fault| {
                    let shown = text::on_one_line(name.as_bytes());
                    let line = format_args!("{shown}: the command {}", fault.kind);
                    Failure::new(fault.kind.code(), line)
                })?;
                Some(Filter {
                    path,
                    name,
                    arguments,
                })
            }
        };
        Ok(Decoder { style, filter })
    }

    /// Returns the bytes that are shown for a message: the output of the command, or the message itself.
    pub fn filtered<'m>(&self, data: &'m [u8]) -> Result<Cow<'m, [u8]>> {
        match &self.filter {
            None => Ok(Cow::Borrowed(data)),
            Some(filter) => filter.run(data).map(Cow::Owned),
        }
    }

    /// Returns the lines of a message.
    pub fn render(&self, message: &Seen) -> Result<String> {
        let bytes = self.filtered(&message.data)?;
        let mut lines = head(message);
        let body = match self.style {
            Style::Json => pretty(&bytes),
            Style::Hex => Some(hex(&bytes)),
            Style::Text if self.filter.is_some() => Some(text::on_lines(&bytes)),
            Style::Text => None,
        };
        match body {
            None => {
                lines.push_str("  ");
                lines.push_str(&text::on_one_line(&bytes));
            }
            Some(body) => body.lines().for_each(|line| {
                lines.push_str("\n  ");
                lines.push_str(line);
            }),
        }
        lines.push('\n');
        Ok(lines)
    }
}

/// Returns the properties of a message that are shown above its bytes.
fn head(message: &Seen) -> String {
    let rank = match message.rank {
        Rank::Priority(priority) => format!("priority {priority}"),
        Rank::Type(mtype) => format!("type {mtype}"),
    };
    let bytes = text::counted(message.data.len() as u64, "byte");
    let mut head = format!(
        "{}  {rank}  {bytes}  process {}",
        time::utc(message.sent),
        message.pid
    );
    if message.returns != 0 {
        // Writing to a string can't fail.
        let _ = write!(head, "  delivered {} before", message.returns);
    }
    head
}

impl Filter<'_> {
    /// Returns the output of the command for a message. A failure of the command is reported, and its output is still returned.
    fn run(&self, data: &[u8]) -> Result<Vec<u8>> {
        let shown = || text::on_one_line(self.name.as_bytes());
        let not_run = |error: io::Error| {
            let line = format_args!("{}: the command can't be run: {error}", shown());
            Failure::new(Code::NotExecutable, line)
        };
        let mut command = Command::new(&self.path);
        command.arg0(self.name).args(self.arguments);
        command
            .stdin(input(data).map_err(not_run)?)
            .stdout(Stdio::piped())
            .stderr(Stdio::inherit());
        inherited::restore_on_exec(&mut command);
        inherited::end_with_this_thread(&mut command);
        let child = command.spawn().map_err(not_run)?;
        let output = child.wait_with_output().map_err(not_run)?;
        if !output.status.success() {
            say(format_args!("{}: {}", shown(), output.status));
        }
        Ok(output.stdout)
    }
}

/// Returns a dump with offset, bytes and characters, in the form of `hexdump -C`.
fn hex(bytes: &[u8]) -> String {
    let mut dump = String::new();
    for (line, bytes) in bytes.chunks(16).enumerate() {
        let digits = bytes.iter().fold(String::new(), |mut digits, byte| {
            // Writing to a string can't fail.
            let _ = write!(digits, "{byte:02x} ");
            digits
        });
        let characters = bytes.iter().map(|&byte| match byte {
            b' '..=b'~' => byte as char,
            _ => '.',
        });
        let characters: String = characters.collect();
        let _ = writeln!(dump, "{:08x}  {digits:<48} |{characters}|", line * 16);
    }
    dump
}

/// Formats JSON on several lines. Numbers keep all their digits, and keys keep their order. Returns None if the bytes are not JSON.
fn pretty(bytes: &[u8]) -> Option<String> {
    serde_json::from_slice::<serde::de::IgnoredAny>(bytes).ok()?;
    let json = std::str::from_utf8(bytes).ok()?.trim();
    let mut lines = String::new();
    let (mut depth, mut is_text, mut is_escaped) = (0_usize, false, false);
    let mut rest = json.chars().peekable();
    let indent = |lines: &mut String, depth: usize| {
        lines.push('\n');
        lines.extend(std::iter::repeat_n("  ", depth));
    };
    while let Some(c) = rest.next() {
        if is_text {
            lines.push_str(&text::on_one_line(c.encode_utf8(&mut [0; 4]).as_bytes()));
            is_text = c != '"' || is_escaped;
            is_escaped = c == '\\' && !is_escaped;
            continue;
        }
        match c {
            '"' => {
                is_text = true;
                lines.push(c);
            }
            '{' | '[' => {
                lines.push(c);
                while rest.next_if(|next| next.is_ascii_whitespace()).is_some() {}
                // An empty object or array stays on its line.
                match rest.next_if(|next| matches!(next, '}' | ']')) {
                    Some(end) => lines.push(end),
                    None => {
                        depth += 1;
                        indent(&mut lines, depth);
                    }
                }
            }
            '}' | ']' => {
                depth = depth.saturating_sub(1);
                indent(&mut lines, depth);
                lines.push(c);
            }
            ',' => {
                lines.push(c);
                indent(&mut lines, depth);
            }
            ':' => lines.push_str(": "),
            c if c.is_ascii_whitespace() => {}
            c => lines.push(c),
        }
    }
    Some(lines)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_keeps_its_numbers_keys_and_texts() {
        let json = br#" {"b":12345678901234567890.10, "a" : [ ] ,"t":"x: {\"y\\\": 1}, ","l":[1,{"n":null}]}"#;
        let lines = r#"{
  "b": 12345678901234567890.10,
  "a": [],
  "t": "x: {\"y\\\": 1}, ",
  "l": [
    1,
    {
      "n": null
    }
  ]
}"#;
        assert_eq!(pretty(json).unwrap(), lines);
        // The formatted text is also JSON, with the same values.
        let values = |text: &[u8]| serde_json::from_slice::<serde_json::Value>(text).unwrap();
        assert_eq!(values(json), values(lines.as_bytes()));
        assert_eq!(pretty(b"7").unwrap(), "7");
        for other in [&b"{\"a\":}"[..], b"", b"{} {}", b"\"\xff\""] {
            assert_eq!(pretty(other), None);
        }
    }

    #[test]
    fn a_text_in_json_can_not_control_the_terminal() {
        assert_eq!(
            pretty("[\"\u{9b}\"]".as_bytes()).unwrap(),
            "[\n  \"\\u{9b}\"\n]"
        );
    }

    #[test]
    fn a_dump_has_offsets_digits_and_characters() {
        let dump = hex(b"0123456789abcdef\x00~");
        assert_eq!(
            dump,
            "00000000  30 31 32 33 34 35 36 37 38 39 61 62 63 64 65 66  |0123456789abcdef|\n\
             00000010  00 7e                                            |.~|\n"
        );
    }
}
