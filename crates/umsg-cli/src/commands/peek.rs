//! `umsg peek`.

use std::fmt::Display;
use std::io::{IsTerminal, Write};
use std::time::SystemTime;

use clap::Args;
use umsg::posix::{EventKind, MessageEvent};
use umsg::{Namespace, posix, sysv};

use crate::address::{Address, Label, address};
use crate::attached::Attached;
use crate::cli::Cli;
use crate::failure::{Result, say};
use crate::names::Name;
use crate::opened::{Opened, Purpose};
use crate::output::table::{Side, Table};
use crate::output::{self, Format, json, text, time};
use crate::{place, values};

/// The maximum number of characters of a message that a line on a terminal shows.
const PREVIEW: usize = 60;

/// Show messages in order of delivery, and leave them in the queue
///
/// For a System V queue, the command shows the messages of all types in order of arrival.
///
/// POSITION 0 is the message that is received next. ID identifies the message in this queue, for `umsg redrive --id`. A message that was never
/// delivered may have no ID yet, shown as "-". Messages of System V queues have no ID. SENDER is a process id. SENT is the time since the message was
/// sent; the delay of `umsg send --after` does not change SENT. DELIVERED counts earlier deliveries that failed: the receiver returned the message,
/// or died before it acknowledged the message. The command omits delayed messages, and leased messages (received, but not yet acknowledged); a line
/// on standard error counts the omitted messages.
///
/// With --delayed, the command shows only delayed messages: those that were sent or returned for a later delivery. The message with the earliest
/// delivery comes first. DUE is the time until the delivery.
///
/// With --long, each message has several lines: the values of the columns, the text, and, for a queue that was created with --trace-messages, the
/// events of the message. The events are: the send; the start and the end of each delivery; each move to a dead-letter queue and back. Each event has
/// its time (UTC) and process id. A queue keeps the send and the last 13 other events of a message. Any process that may use the queue can forge
/// events.
///
/// Characters that could control a terminal are escaped, and on a terminal, long messages are truncated.
///
/// For a POSIX queue, the output shows one instant. For a System V queue, the command reads one message after the other, and the queue can change
/// meanwhile. Receivers are blocked only while the command copies messages.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  umsg peek /orders                 the ten messages that are received next
  umsg peek /orders --count 1
  umsg peek key:0x1234              the ten oldest of a System V queue
  umsg peek /orders --long          with the events of each message
  umsg peek /orders --delayed       the next ten messages that are delayed
  umsg peek /orders --json | jq -r .data")]
pub struct Peek {
    /// The queue: a name, or for System V key:0x1234 or id:32769
    #[arg(value_name = "QUEUE", value_parser = address())]
    queue: Address,
    /// Show at most this many messages
    #[arg(long, short, value_name = "N", default_value_t = 10, value_parser = values::size, allow_hyphen_values = true)]
    count: u64,
    /// Show the delayed messages instead of the queued messages
    #[arg(long)]
    delayed: bool,
    /// Show each message in several lines, with its events
    #[arg(long, short)]
    long: bool,
    #[command(flatten)]
    format: Format,
}

impl Peek {
    pub fn perform(&self, cli: &Cli) -> Result {
        let namespace = place::existing(cli)?;
        match &self.queue {
            Address::Posix(name) => self.by_priority(&namespace, name),
            Address::SystemV(label) => self.by_arrival(&namespace, *label),
        }
    }

    fn by_priority(&self, namespace: &Namespace, name: &Name) -> Result {
        let opened = Opened::open(namespace, name, Purpose::See)?;
        let messages = match self.delayed {
            true => opened.queue.delayed_messages(self.most()),
            false => opened.queue.messages(self.most()),
        }
        .map_err(|error| opened.not_seen(&error))?;
        let shown = messages.iter().map(|peeked: &posix::Peeked| Shown {
            id: peeked.id,
            due: peeked.due,
            rank: peeked.priority.to_string(),
            len: peeked.data.len(),
            pid: peeked.pid,
            sent: peeked.sent,
            returns: peeked.returns,
            data: &peeked.data,
            events: &peeked.events,
            forgotten: peeked.forgotten_events,
        });
        match self.format.json {
            true => self.print_json(&messages, |name, n, one| {
                json::Message::peeked(name, n, one)
            }),
            false => {
                self.print_table("PRIORITY", true, shown)?;
                if !self.delayed {
                    let now = opened.queue.attributes();
                    tell_hidden(name, now.leased as u64, now.delayed as u64);
                }
                Ok(())
            }
        }
    }

    fn by_arrival(&self, namespace: &Namespace, label: Label) -> Result {
        let attached = Attached::open(namespace, label)?;
        let messages = match self.delayed {
            true => attached.queue.delayed_messages(self.most()),
            false => attached.queue.messages(self.most()),
        }
        .map_err(|error| attached.not_seen(&error))?;
        let shown = messages.iter().map(|peeked: &sysv::Peeked| Shown {
            id: None,
            due: peeked.due,
            rank: peeked.mtype.to_string(),
            len: peeked.len,
            pid: peeked.pid,
            sent: peeked.sent,
            returns: peeked.returns,
            data: &peeked.data,
            events: &[],
            forgotten: 0,
        });
        match self.format.json {
            true => self.print_json(&messages, |name, n, one| {
                json::Message::peeked_sysv(name, n, one)
            }),
            false => {
                self.print_table("TYPE", false, shown)?;
                if !self.delayed
                    && let Ok(now) = attached.queue.status()
                {
                    tell_hidden(label, now.leased, now.delayed);
                }
                Ok(())
            }
        }
    }

    fn most(&self) -> usize {
        usize::try_from(self.count).unwrap_or(usize::MAX)
    }

    fn print_json<T>(
        &self,
        messages: &[T],
        message: impl for<'m> Fn(&'m str, Option<usize>, &'m T) -> json::Message<'m>,
    ) -> Result {
        let name = self.queue.lossy();
        let mut out = output::standard()?;
        for (position, peeked) in messages.iter().enumerate() {
            let position = (!self.delayed).then_some(position);
            json::print(&mut out, &message(&name, position, peeked))?;
        }
        Ok(out.flush()?)
    }

    fn print_table<'a>(
        &self,
        rank: &str,
        has_ids: bool,
        messages: impl Iterator<Item = Shown<'a>>,
    ) -> Result {
        let most = match std::io::stdout().is_terminal() {
            true => PREVIEW,
            false => usize::MAX,
        };
        if self.long {
            return self.print_long(rank, messages);
        }
        let mut table = Table::new([
            match self.delayed {
                true => ("DUE", Side::Left),
                false => ("POSITION", Side::Right),
            },
            ("ID", Side::Right),
            (rank, Side::Right),
            ("BYTES", Side::Right),
            ("SENDER", Side::Right),
            ("SENT", Side::Left),
            ("DELIVERED", Side::Right),
            ("MESSAGE", Side::Left),
        ]);
        for (position, message) in messages.enumerate() {
            table.push([
                match self.delayed {
                    true => time::ahead(message.due),
                    false => position.to_string(),
                },
                message
                    .id
                    .map_or_else(|| "-".to_owned(), |id| id.to_string()),
                message.rank,
                message.len.to_string(),
                message.pid.to_string(),
                time::ago(Some(message.sent)),
                message.returns.to_string(),
                text::preview(message.data, most),
            ]);
        }
        if !has_ids {
            table.leave_out(1);
        }
        let mut out = output::standard()?;
        table.print(&mut out)?;
        Ok(out.flush()?)
    }
}

impl Peek {
    fn print_long<'a>(&self, rank: &str, messages: impl Iterator<Item = Shown<'a>>) -> Result {
        let mut out = output::standard()?;
        for (position, message) in messages.enumerate() {
            let place = match self.delayed {
                true => format!("due {}", time::ahead(message.due)),
                false => format!("position {position}"),
            };
            let id = message
                .id
                .map_or_else(String::new, |id| format!(", ID {id}"));
            writeln!(
                out,
                "{place}{id}, {} {}, {} bytes, delivered {} times",
                rank.to_lowercase(),
                message.rank,
                message.len,
                message.returns
            )?;
            writeln!(out, "  {}", text::preview(message.data, usize::MAX))?;
            if message.events.is_empty() {
                let (sent, pid) = (time::utc(message.sent), message.pid);
                writeln!(out, "  {sent}  sent by process {pid}")?;
            }
            for (n, event) in message.events.iter().enumerate() {
                if n == 1 && message.forgotten != 0 {
                    writeln!(
                        out,
                        "  {:24}  {} events are no longer known",
                        "", message.forgotten
                    )?;
                }
                writeln!(out, "  {}  {}", time::utc(event.at), sentence(event))?;
            }
        }
        Ok(out.flush()?)
    }
}

/// Describes an event of a message in words.
fn sentence(event: &MessageEvent) -> String {
    let pid = event.pid;
    let delivery = event
        .delivery
        .map_or_else(String::new, |number| format!("delivery {number}: "));
    let what = match event.kind {
        EventKind::Sent => format!("sent by process {pid}"),
        EventKind::Delivered => format!("leased by process {pid}"),
        EventKind::Returned => format!("returned by process {pid}"),
        EventKind::TimedOut => format!("the lease of process {pid} timed out"),
        EventKind::HolderDied => format!("process {pid} died during the lease"),
        EventKind::DeadExpired => {
            return format!("too old, moved to the dead-letter queue by process {pid}");
        }
        EventKind::DeadUndelivered => {
            return format!("delivered too often, moved to the dead-letter queue by process {pid}");
        }
        EventKind::DeadDropped => {
            return format!(
                "dropped from the full queue, moved to the dead-letter queue by process {pid}"
            );
        }
        EventKind::Redriven => return format!("sent back by process {pid}"),
        _ => format!("unknown event of process {pid}"),
    };
    delivery + &what
}

/// Prints on standard error how many messages of the queue are not shown.
fn tell_hidden(queue: impl Display, leased: u64, delayed: u64) {
    let leased = (leased, "leased, and not yet acknowledged");
    let delayed = (delayed, "delayed, and not yet due");
    let kinds = [leased, delayed]
        .into_iter()
        .filter(|(count, _)| *count != 0);
    let kinds: Vec<String> = kinds
        .map(|(count, what)| format!("{count} {what}"))
        .collect();
    if !kinds.is_empty() {
        say(format_args!("{queue}: not shown: {}", kinds.join("; ")));
    }
}

/// A row of the table.
struct Shown<'a> {
    id: Option<u64>,
    due: Option<SystemTime>,
    rank: String,
    len: usize,
    pid: u32,
    sent: SystemTime,
    returns: u32,
    data: &'a [u8],
    /// The events of the message; None if the queue traces no messages.
    events: &'a [MessageEvent],
    forgotten: u32,
}
