//! `umsg redrive`.

use std::io::Write;

use clap::{Args, ValueEnum};
use serde::Serialize;
use umsg::posix::{
    DeadReason, History, OpenError, PeekedLetter, Redrive as Which, RedriveFailure, Redriven,
    SendError,
};

use crate::address::{Address, address, name};
use crate::cli::Cli;
use crate::failure::{Code, Explain, FULL, Failure, Result, closed, say, with_command, with_hint};
use crate::names::Name;
use crate::opened::{Opened, Purpose};
use crate::output::table::{Side, Table};
use crate::output::{self, Format, json, text, time};
use crate::{place, values};

/// The maximum number of characters of a message that the list shows.
const PREVIEW: usize = 40;

/// List dead letters, and send them back to the queues from which they come
///
/// The command sends messages only with --all, --first, --count or --id. Without these, the command lists the dead letters and sends
/// nothing. --reason and --from select among the dead letters, both for the list and for sending.
///
/// A dead letter has a history: the queue from which it comes, its first sender, its deliveries, and the reason why it was moved to the
/// dead-letter queue. The list shows this history and the start of each message. `umsg peek` shows whole messages.
///
/// A message that is sent back takes its place behind the other messages of its priority. Its count of deliveries starts again at 0. The message
/// keeps its history. If the message becomes a dead letter again, its history counts the deliveries before and after it was sent back.
///
/// A process with access to QUEUE can forge the histories of its messages. Therefore, the command sends a message back only to a queue that has the
/// same owner as QUEUE, and has QUEUE as its dead-letter queue. With --to, the command sends the messages to any queue that you name.
///
/// A message stays in QUEUE if the other queue is missing, full or closed, or has a smaller message size. The command then continues with the other
/// messages, prints the reason, and ends with exit code 1. Even if the command is killed, no message is lost, and no message is in two queues: the
/// next `umsg redrive` of QUEUE completes the interrupted move, or returns the message to QUEUE.
///
/// System V queues and rings have no dead letters.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  umsg redrive /jobs.failed                     list the dead letters
  umsg redrive /jobs.failed --reason expired    list those that were too old
  umsg redrive /jobs.failed --first             send the first one back
  umsg redrive /jobs.failed --id 17
  umsg redrive /jobs.failed --count 10 --reason undelivered
  umsg redrive /jobs.failed --all
  umsg redrive /jobs.failed --all --to /jobs.slow")]
pub struct Redrive {
    /// The dead-letter queue: a name, such as /jobs.failed
    #[arg(value_name = "QUEUE", value_parser = address())]
    queue: Address,
    /// Send all dead letters; with --reason or --from, all selected dead letters
    #[arg(long, conflicts_with_all = ["count", "first", "id"])]
    all: bool,
    /// Send at most this many dead letters, the first in order of delivery
    #[arg(long, short, value_name = "N", value_parser = values::size, allow_hyphen_values = true, conflicts_with_all = ["first", "id"])]
    count: Option<u64>,
    /// Send the first dead letter; the same as --count 1
    #[arg(long, conflicts_with = "id")]
    first: bool,
    /// Send the dead letter with this ID, as the list or `umsg peek` shows it
    #[arg(long, value_name = "ID")]
    id: Option<u64>,
    /// List or send only dead letters that were moved for this reason
    #[arg(long, value_enum, value_name = "REASON")]
    reason: Option<Reason>,
    /// List or send only dead letters that come from this queue
    #[arg(long, value_name = "QUEUE", value_parser = name())]
    from: Option<Name>,
    /// Send the messages to this queue instead of the queues from which they come; with --all, --first, --count or --id
    #[arg(long, value_name = "QUEUE", value_parser = name())]
    to: Option<Name>,
    #[command(flatten)]
    format: Format,
}

/// The reasons that --reason accepts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Reason {
    /// Older than the queue's time to live
    Expired,
    /// Never acknowledged, and returned after the last delivery that the queue allows
    Undelivered,
    /// Dropped to make room for a new message, because the queue was full
    Dropped,
}

impl From<Reason> for DeadReason {
    fn from(reason: Reason) -> DeadReason {
        match reason {
            Reason::Expired => DeadReason::Expired,
            Reason::Undelivered => DeadReason::Undelivered,
            Reason::Dropped => DeadReason::Dropped,
        }
    }
}

impl Redrive {
    pub fn perform(&self, cli: &Cli) -> Result {
        let namespace = place::existing(cli)?;
        let name = match &self.queue {
            Address::Posix(name) => name,
            Address::SystemV(label) => {
                return Err(label.has_no("dead letters", "name a POSIX queue"));
            }
        };
        for name in [&self.from, &self.to].into_iter().flatten() {
            name.check()?;
        }
        let sends = self.all || self.first || self.count.is_some() || self.id.is_some();
        if let (Some(to), false) = (&self.to, sends) {
            let line = format!(
                "--to {to} does not say which messages to send: add --all, --first, --count N or --id ID"
            );
            return Err(Failure::new(Code::Usage, line));
        }
        let opened = Opened::open(&namespace, name, Purpose::See)?;
        match sends {
            true => self.send_back(&opened),
            false => self.list(&opened),
        }
    }

    fn which(&self) -> Which {
        let mut which = Which::new();
        if let Some(id) = self.id {
            which = which.id(id);
        }
        if let Some(reason) = self.reason {
            which = which.reason(reason.into());
        }
        if let Some(from) = &self.from {
            which = which.source(from);
        }
        if let Some(to) = &self.to {
            which = which.to(to);
        }
        match (self.first, self.count) {
            (true, _) => which.count(1),
            (_, Some(count)) => which.count(usize::try_from(count).unwrap_or(usize::MAX)),
            _ => which,
        }
    }

    fn list(&self, opened: &Opened<'_>) -> Result {
        let bytes = match self.format.json {
            true => usize::MAX,
            // Reads 4 bytes for each character, because a character of UTF-8 has at most 4 bytes.
            false => 4 * PREVIEW,
        };
        let letters = opened
            .queue
            .peek_dead_letters(&self.which(), bytes)
            .map_err(|error| opened.not_seen(&error))?;
        let mut out = output::standard()?;
        if self.format.json {
            for letter in &letters {
                json::print(&mut out, &json::Letter::new(letter))?;
            }
            return Ok(out.flush()?);
        }
        let mut table = Table::new([
            ("ID", Side::Right),
            ("FROM", Side::Left),
            ("REASON", Side::Left),
            ("DELIVERED", Side::Right),
            ("LAST DELIVERY", Side::Left),
            ("DEAD", Side::Left),
            ("REDRIVEN", Side::Right),
            ("SENDER", Side::Right),
            ("MESSAGE", Side::Left),
        ]);
        for PeekedLetter {
            history: letter,
            data,
            ..
        } in &letters
        {
            table.push([
                letter.id.to_string(),
                source(letter),
                json::reason(letter.reason).to_owned(),
                letter.deliveries.to_string(),
                time::ago(letter.last_delivery),
                time::ago(Some(letter.dead)),
                letter.redrives.to_string(),
                letter.pid.to_string(),
                text::preview(data, PREVIEW),
            ]);
        }
        table.print(&mut out)?;
        out.flush()?;
        if letters.is_empty() {
            tell_of_other_queue(opened);
        }
        Ok(())
    }

    /// Explains why messages were not sent back, and what to do.
    fn explain(&self, why: &RedriveFailure, to: &Name, opened: &Opened<'_>) -> String {
        match why {
            RedriveFailure::Open(OpenError::NotFound) => {
                let place = opened.directory().display();
                match self.to {
                    Some(_) => format!(
                        "no queue has this name in {place}; create it, or name another queue with --to"
                    ),
                    None => format!(
                        "no queue has this name in {place}; create it with --dead-letter {}, or name another queue with --to",
                        opened.name
                    ),
                }
            }
            RedriveFailure::Send(SendError::Full) => {
                format!("{FULL}; receive from that queue first, and run the command again")
            }
            RedriveFailure::Send(SendError::Closed) => closed(to),
            RedriveFailure::Open(error) => with_hint(&error.explain(), "--to names another queue"),
            RedriveFailure::Send(error) => error.explain(),
            other => with_command(other, "--to names the queue to send the messages to"),
        }
    }

    fn send_back(&self, opened: &Opened<'_>) -> Result {
        let redriven = opened
            .queue
            .redrive(&self.which())
            .map_err(|error| opened.not_seen(&error))?;
        let mut out = output::standard()?;
        match self.format.json {
            true => json::print(&mut out, &Summary::new(opened.name, &redriven))?,
            false => writeln!(out, "{} sent back", counted(redriven.messages))?,
        }
        out.flush()?;
        if let (Some(id), 0, []) = (self.id, redriven.messages, &redriven.refused[..]) {
            let line = format!(
                "{}: the queue has no dead letter {id}; `umsg redrive {}` lists them",
                opened.name, opened.name
            );
            return Err(Failure::new(Code::Failed, line));
        }
        if redriven.messages == 0 && redriven.refused.is_empty() {
            tell_of_other_queue(opened);
        }
        for refused in &redriven.refused {
            let to = refused.queue.as_deref().map(Name::from);
            let queue = to.as_ref().unwrap_or(opened.name);
            let count = counted(refused.messages);
            say(format_args!(
                "{queue}: {}; {count} stayed in {}",
                self.explain(&refused.why, queue, opened),
                opened.name
            ));
        }
        match redriven.refused.is_empty() {
            true => Ok(()),
            false => Err(Failure::Reported(Code::Failed)),
        }
    }
}

/// If a queue has no dead letters, prints the name of its dead-letter queue: the user may have meant that queue.
fn tell_of_other_queue(opened: &Opened<'_>) {
    if let Some(name) = opened.queue.status().dead_letter {
        say(format_args!(
            "{}: no dead letters to list or send; those of this queue are in {}",
            opened.name,
            Name::from(name)
        ));
    }
}

fn counted(messages: usize) -> String {
    match messages {
        1 => "1 message".to_owned(),
        _ => format!("{messages} messages"),
    }
}

fn source(letter: &History) -> String {
    use std::os::unix::ffi::OsStrExt;
    let name = letter.source.as_ref();
    name.map_or("unknown".to_owned(), |name| {
        text::on_one_line(name.as_bytes())
    })
}

/// The result of `umsg redrive`, as --json prints it.
#[derive(Serialize)]
struct Summary {
    queue: String,
    /// The number of messages that were sent back.
    redriven: usize,
    /// The messages that stay in the dead-letter queue: one entry for each queue to which they could not be sent.
    refused: Vec<Stayed>,
}

#[derive(Serialize)]
struct Stayed {
    queue: Option<String>,
    messages: usize,
    errno: i32,
    why: String,
}

impl Summary {
    fn new(name: &Name, redriven: &Redriven) -> Summary {
        let refused = redriven.refused.iter().map(|refused| Stayed {
            queue: refused
                .queue
                .as_ref()
                .map(|name| name.to_string_lossy().into_owned()),
            messages: refused.messages,
            errno: refused.why.errno(),
            why: refused.why.to_string(),
        });
        Summary {
            queue: name.lossy(),
            redriven: redriven.messages,
            refused: refused.collect(),
        }
    }
}
