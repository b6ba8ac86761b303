//! Reads the answers on standard input for `umsg recv --ack`.

use std::fmt::Display;

use rustix::io::Errno;

use crate::failure::{Code, Failure, Result};
use crate::output::direct::Direct;
use crate::output::text;
use crate::streams;

/// The longest line that can be an answer, in bytes.
const LONGEST: usize = 64;

/// The meaning of a line of standard input, which answers the message that was printed last.
#[derive(Debug, PartialEq, Eq)]
pub enum Answer {
    Done,
    Retry,
}

/// The lines of standard input.
pub struct Answers(());

impl Answers {
    pub fn open(queue: impl Display) -> Result<Answers> {
        streams::check_input().map_err(|error| {
            Failure::new(
                Code::Failed,
                format_args!(
                    "{queue}: --ack needs answers on standard input, which can't be read: {error}"
                ),
            )
        })?;
        Ok(Answers(()))
    }

    /// Waits for the next answer. Fails with the reason if no answer can come: the reader of the output has ended, or standard input has ended.
    pub fn next(&mut self, out: Direct) -> Result<Answer, String> {
        let mut line = Vec::new();
        let mut byte = [0];
        loop {
            if !out.wait_for_input() {
                return Err("the reader of standard output ended before it answered".to_owned());
            }
            // The read is unbuffered: the wait before this read polls the descriptor, and would miss bytes in a buffer.
            match rustix::io::read(rustix::stdio::stdin(), &mut byte) {
                Ok(0) => return Err("standard input ended before an answer".to_owned()),
                Ok(_) if byte[0] == b'\n' => return parse(&line),
                Ok(_) if line.len() < LONGEST => line.push(byte[0]),
                Ok(_) => return parse(&line),
                Err(Errno::INTR | Errno::AGAIN) => {}
                Err(error) => {
                    return Err(format!("standard input: {}", std::io::Error::from(error)));
                }
            }
        }
    }
}

fn parse(line: &[u8]) -> Result<Answer, String> {
    match line.trim_ascii() {
        b"" | b"ok" => Ok(Answer::Done),
        b"retry" => Ok(Answer::Retry),
        other => Err(format!(
            "the answer {:?} is neither ok, retry nor an empty line",
            text::preview(other, LONGEST)
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_ok_retry_or_an_empty_line() {
        for done in [&b""[..], b"ok", b"ok\r", b" "] {
            assert_eq!(parse(done), Ok(Answer::Done));
        }
        assert_eq!(parse(b"retry"), Ok(Answer::Retry));
        assert!(parse(b"no\x1b").unwrap_err().contains("\"no"));
    }
}
