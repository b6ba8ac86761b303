//! `umsg send`.

use std::ffi::OsString;
use std::io::{self, BufRead, Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::time::{Duration, SystemTime};

use clap::Args;
use serde::Serialize;
use umsg::Namespace;

use super::patience::Patience;
use crate::address::{Address, address};
use crate::attached::Attached;
use crate::cli::Cli;
use crate::failure::{Code, Failure, Result};
use crate::inlet::Rank;
use crate::opened::{Opened, Purpose};
use crate::outlet::{Outlet, When};
use crate::output::{self, Format, json};
use crate::{place, streams, values};

/// Send a message, or each line of standard input as a message
///
/// Without --lines, --null and --from-json, all of standard input is one message, byte for byte: the line feed at the end of
/// `echo hello` is a part of the message. --strip-newline removes one line feed at the end.
///
/// While the queue is full, the command waits. --timeout and --nonblocking limit the wait. If the queue was created with --on-full fail, the command
/// does not wait. With --on-full drop-oldest, it waits only if leased, reserved or delayed messages fill the queue: these are not dropped. With
/// --lines, --null and
/// --from-json, the command sends each message as soon as it has read the message. If a message can't be sent, the error gives its line or number;
/// the preceding messages are already sent. Empty messages are sent, too.
#[derive(Args, Debug)]
#[command(mut_arg("nonblocking", |arg| arg.help("Do not wait: exit with code 3 if the queue is full")))]
#[command(after_help = "\
Examples:
  umsg send /orders 'first order'
  umsg send /orders 'urgent one' --priority 9
  umsg send /orders < picture.png         standard input as one message
  echo hello | umsg send /orders --strip-newline
  seq 1000 | umsg send /orders --lines    1000 messages
  find . -print0 | umsg send /files --null
  umsg recv /orders --all --json | umsg send /copies --from-json
  umsg send key:0x1234 'a job' --type 2   to a System V queue
  umsg send /jobs 'try again' --after 5m
  umsg send /jobs report --at $(date -Is -d 'tomorrow 8:00')
  ./lines | umsg send /lines --lines --producer   marks the end of the stream
  umsg send /orders ping --timeout 0.5    exits with 3 if there is no room
                                          within half a second

Exit codes:
  0    sent
  1    failed; one line on standard error gives the reason and what to do
  2    the command line is wrong
  3    no room within the time allowed, or a stopped process holds the
       queue's lock; standard error gives the reason
  4    the queue was removed while the command waited for room")]
pub struct Send {
    /// The queue: a name, or for System V key:0x1234 or id:32769
    #[arg(value_name = "QUEUE", value_parser = address())]
    queue: Address,
    /// The message [default: all of standard input, as for `-`]
    #[arg(value_name = "MESSAGE", allow_negative_numbers = true)]
    message: Option<OsString>,
    /// POSIX: the message's priority, from 0 to 32767; the highest is received first [default: 0]
    #[arg(long, short, value_name = "N", allow_hyphen_values = true, value_parser = values::priority)]
    priority: Option<u32>,
    /// System V: the message's type, a positive integer. Receivers can select messages by type [default: 1]
    #[arg(long = "type", short = 't', value_name = "N", allow_hyphen_values = true, value_parser = values::message_type,
          conflicts_with = "priority")]
    mtype: Option<i64>,
    /// Deliver the message when this time has passed: 500ms, 5s, 1h30m. Until then, the message takes room in the queue, but blocks no other message.
    /// `umsg peek --delayed` shows the message. If the queue has a --ttl, the message's time to live begins at the end of the delay
    #[arg(long, value_name = "TIME", allow_hyphen_values = true, value_parser = values::delay, conflicts_with = "at")]
    after: Option<Duration>,
    /// Deliver the message at this time, not earlier: 2026-01-31T12:00:00Z, 2026-01-31T12:00:00+01:00, or @ and seconds since 1970
    #[arg(long, value_name = "WHEN", value_parser = values::moment)]
    at: Option<SystemTime>,
    /// Register as a producer of the queue until the command ends. A queue that was created with --close-with-last-producer is closed for sending
    /// when its last producer ends. With other queues, this option has no effect
    #[arg(long)]
    producer: bool,
    #[command(flatten)]
    patience: Patience,
    /// Send each line of standard input, without its line feed
    #[arg(long)]
    lines: bool,
    /// Send each part of standard input that ends with a NUL byte, without the NUL byte
    #[arg(long, short = '0', conflicts_with_all = ["lines", "strip_newline", "keep_newline"])]
    null: bool,
    /// Read messages as `umsg recv --json` and `umsg peek --json` print them, one JSON object per line, and send them with their priorities or types.
    /// --priority and --type replace these priorities or types
    #[arg(long, conflicts_with_all = ["lines", "null", "strip_newline", "keep_newline"])]
    from_json: bool,
    /// Remove one line feed at the end of standard input. --lines does not need this option: it removes the line feed of each line anyway
    #[arg(long, overrides_with = "keep_newline")]
    strip_newline: bool,
    /// Keep the line feed at the end of standard input (the default); with --lines, keep the line feed of each line
    #[arg(long, overrides_with = "strip_newline")]
    keep_newline: bool,
    /// Print nothing on standard error if there was no room in time (exit code 3)
    #[arg(long, short)]
    quiet: bool,
    #[command(flatten)]
    format: Format,
}

/// The short form of --null.
const NULL: &str = "-0";

/// The result of `umsg send`, as --json prints it.
#[derive(Serialize)]
struct Sent {
    queue: String,
    messages: u64,
    bytes: u64,
}

impl Send {
    pub fn perform(&self, cli: &Cli) -> Result {
        self.send_all(cli)
            .map_err(|failure| failure.hushed(self.quiet))
    }

    fn send_all(&self, cli: &Cli) -> Result {
        let given = self.message.as_ref();
        let given = given.filter(|message| *message != "-" && *message != NULL);
        let of_input = [
            ("--lines", self.lines),
            ("--null", self.is_null()),
            ("--from-json", self.from_json),
            ("--strip-newline", self.strip_newline),
        ];
        if let Some((option, _)) = of_input
            .iter()
            .find(|(_, is_given)| *is_given && given.is_some())
        {
            let line = format!("{option} reads standard input; leave the message out");
            return Err(Failure::new(Code::Usage, line));
        }
        self.format.check()?;
        if given.is_none() {
            streams::check_input().map_err(|error| self.no_input(&error))?;
        }
        let namespace = place::existing(cli)?;
        let to = self.open(&namespace)?;
        let _producer = match self.producer {
            true => Some(to.produce().map_err(|refusal| {
                Failure::new(
                    refusal.code,
                    format_args!("{}: {}", self.queue, refusal.why),
                )
            })?),
            false => None,
        };
        let mut sent = Sent {
            queue: self.queue.lossy(),
            messages: 0,
            bytes: 0,
        };
        let outcome = match given {
            Some(message) => self.send(&to, message.as_bytes(), None, &mut sent),
            None if self.is_many() => self.send_parts(&to, &mut sent),
            None => self.send_input(&to, &mut sent),
        };
        if self.format.json {
            let mut out = output::standard()?;
            json::print(&mut out, &sent)?;
            out.flush()?;
        }
        outcome
    }

    fn open<'a>(&'a self, namespace: &'a Namespace) -> Result<Outlet<'a>> {
        match (&self.queue, self.priority, self.mtype) {
            (Address::Posix(name), priority, None) => Ok(Outlet::Posix {
                to: Opened::open(namespace, name, Purpose::Send)?,
                priority: priority.unwrap_or(0),
            }),
            (Address::SystemV(label), None, mtype) => Ok(Outlet::SystemV {
                to: Attached::open(namespace, *label)?,
                mtype: mtype.unwrap_or(1),
            }),
            (Address::Posix(name), ..) => Err(name.has_no("--type", "use --priority")),
            (Address::SystemV(label), ..) => Err(label.has_no("--priority", "use --type")),
        }
    }

    fn send(&self, to: &Outlet<'_>, message: &[u8], rank: Option<Rank>, sent: &mut Sent) -> Result {
        to.send(&self.patience, message, rank, self.when())?
            .map_err(|refusal| self.failure(refusal.code, &refusal.why, sent))?;
        sent.messages += 1;
        sent.bytes += message.len() as u64;
        Ok(())
    }

    fn when(&self) -> When {
        match (self.after, self.at) {
            (Some(delay), _) => When::After(delay),
            (None, Some(time)) => When::At(time),
            (None, None) => When::Now,
        }
    }

    /// Returns whether --null or -0 is given. clap parses -0 as a message, because a message may be a negative number.
    fn is_null(&self) -> bool {
        self.null || self.message.as_ref().is_some_and(|message| message == NULL)
    }

    fn is_many(&self) -> bool {
        self.lines || self.is_null() || self.from_json
    }

    /// Reads standard input, up to two bytes more than the longest message has. So there is room for a final line feed, and one more byte shows that
    /// the message is too long.
    fn send_input(&self, to: &Outlet<'_>, sent: &mut Sent) -> Result {
        let most = to.longest();
        let mut message = Vec::new();
        io::stdin()
            .lock()
            .take(most as u64 + 2)
            .read_to_end(&mut message)
            .map_err(|error| self.unreadable(&error, sent))?;
        if self.strip_newline {
            strip(&mut message, b'\n');
        }
        self.check(to, &message, sent)?;
        self.send(to, &message, None, sent)
    }

    fn send_parts(&self, to: &Outlet<'_>, sent: &mut Sent) -> Result {
        let end = if self.is_null() { 0 } else { b'\n' };
        let most = to.longest() as u64;
        // In JSON, each byte of the message takes at most 6 characters, and all other fields together take fewer than 65,536 characters.
        let most = match self.from_json {
            true => 6 * most + 65_536,
            false => most + 1,
        };
        let mut input = io::stdin().lock();
        let mut part = Vec::new();
        loop {
            part.clear();
            let read = (&mut input)
                .take(most)
                .read_until(end, &mut part)
                .map_err(|error| self.unreadable(&error, sent))?;
            if read == 0 {
                return Ok(());
            }
            if !self.keep_newline {
                strip(&mut part, end);
            }
            if self.from_json {
                self.send_json(to, &part, sent)?;
                continue;
            }
            self.check(to, &part, sent)?;
            self.send(to, &part, None, sent)?;
        }
    }

    fn send_json(&self, to: &Outlet<'_>, line: &[u8], sent: &mut Sent) -> Result {
        let read = json::Read::of(line).map_err(|why| self.failure(Code::Failed, &why, sent))?;
        let rank = match (self.priority, self.mtype) {
            (None, None) => read.rank,
            _ => None,
        };
        self.check(to, &read.data, sent)?;
        self.send(to, &read.data, rank, sent)
    }

    fn check(&self, to: &Outlet<'_>, message: &[u8], sent: &Sent) -> Result {
        let most = to.longest();
        if message.len() <= most {
            return Ok(());
        }
        let (what, hint) = to.about_longest();
        let why = format!("the message is too long: the queue's {what} is {most} bytes; {hint}");
        Err(self.failure(Code::Failed, &why, sent))
    }

    fn unreadable(&self, error: &io::Error, sent: &Sent) -> Failure {
        self.failure(Code::Failed, &format!("standard input: {error}"), sent)
    }

    /// Returns the failure for standard input that can't be read. In place of unreadable input, the command would otherwise send an empty message.
    fn no_input(&self, error: &io::Error) -> Failure {
        let line = format!(
            "{}: no message is given, and standard input can't be read: {error}",
            self.queue
        );
        Failure::new(Code::Failed, line)
    }

    /// Returns the failure with the number of the line that was not sent. All lines before this line were sent.
    fn failure(&self, code: Code, why: &str, sent: &Sent) -> Failure {
        let name = &self.queue;
        let part = if self.is_null() { "message" } else { "line" };
        match self.is_many() {
            true => Failure::new(
                code,
                format_args!("{name}: {part} {}: {why}", sent.messages + 1),
            ),
            false => Failure::new(code, format_args!("{name}: {why}")),
        }
    }
}

fn strip(bytes: &mut Vec<u8>, end: u8) {
    if bytes.last() == Some(&end) {
        bytes.pop();
    }
}
