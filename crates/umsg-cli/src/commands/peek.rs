//! `umsg peek`.

use std::io::{IsTerminal, Write};
use std::time::SystemTime;

use clap::Args;
use umsg::{Namespace, posix, sysv};

use crate::address::{Address, Label, address};
use crate::attached::Attached;
use crate::cli::Cli;
use crate::failure::Result;
use crate::names::Name;
use crate::opened::{Opened, Purpose};
use crate::output::table::{Side, Table};
use crate::output::{self, Format, json, text, time};
use crate::{place, values};

/// The number of characters of a message in a line on a terminal.
const PREVIEW: usize = 60;

/// Show messages in order of delivery, and leave them in the queue
///
/// For a System V queue, the command shows the messages of all types in order of arrival.
///
/// POSITION counts from 0, the message that is received next. SENDER is a process id. SENT is the time since the message was
/// sent. DELIVERED counts earlier deliveries that failed: the receiver returned the message, or died while it held the lease.
/// Leased messages that are not yet acknowledged are not shown. Characters that could control a terminal are escaped, and on a
/// terminal long messages are cut.
///
/// For a POSIX queue, the output shows one instant. For a System V queue, the command reads one message after the other, and
/// the queue can change meanwhile. The command blocks receivers only while it copies.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  umsg peek /orders                 the ten messages that are received next
  umsg peek /orders --count 1
  umsg peek key:0x1234              the ten oldest of a System V queue
  umsg peek /orders --json | jq -r .data")]
pub struct Peek {
    /// The queue: a name, or for System V key:0x1234 or id:32769
    #[arg(value_name = "QUEUE", value_parser = address())]
    queue: Address,
    /// Show at most this many messages
    #[arg(long, short, value_name = "N", default_value_t = 10, value_parser = values::size, allow_negative_numbers = true)]
    count: u64,
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
        let messages = opened
            .queue
            .messages(self.most())
            .map_err(|error| opened.not_seen(&error))?;
        let shown = messages.iter().map(|peeked: &posix::Peeked| Shown {
            rank: peeked.priority.to_string(),
            len: peeked.data.len(),
            pid: peeked.pid,
            sent: peeked.sent,
            returns: peeked.returns,
            data: &peeked.data,
        });
        match self.format.json {
            true => self.print_json(&messages, |name, n, one| {
                json::Message::peeked(name, n, one)
            }),
            false => print_table("PRIORITY", shown),
        }
    }

    fn by_arrival(&self, namespace: &Namespace, label: Label) -> Result {
        let attached = Attached::open(namespace, label)?;
        let messages = attached
            .queue
            .messages(self.most())
            .map_err(|error| attached.not_seen(&error))?;
        let shown = messages.iter().map(|peeked: &sysv::Peeked| Shown {
            rank: peeked.mtype.to_string(),
            len: peeked.len,
            pid: peeked.pid,
            sent: peeked.sent,
            returns: peeked.returns,
            data: &peeked.data,
        });
        match self.format.json {
            true => self.print_json(&messages, |name, n, one| {
                json::Message::peeked_sysv(name, n, one)
            }),
            false => print_table("TYPE", shown),
        }
    }

    fn most(&self) -> usize {
        usize::try_from(self.count).unwrap_or(usize::MAX)
    }

    fn print_json<T>(
        &self,
        messages: &[T],
        message: impl for<'m> Fn(&'m str, usize, &'m T) -> json::Message<'m>,
    ) -> Result {
        let name = self.queue.lossy();
        let mut out = output::standard()?;
        for (position, peeked) in messages.iter().enumerate() {
            json::print(&mut out, &message(&name, position, peeked))?;
        }
        Ok(out.flush()?)
    }
}

/// A row of the table.
struct Shown<'a> {
    rank: String,
    len: usize,
    pid: u32,
    sent: SystemTime,
    returns: u32,
    data: &'a [u8],
}

fn print_table<'a>(rank: &str, messages: impl Iterator<Item = Shown<'a>>) -> Result {
    let most = match std::io::stdout().is_terminal() {
        true => PREVIEW,
        false => usize::MAX,
    };
    let mut table = Table::new([
        ("POSITION", Side::Right),
        (rank, Side::Right),
        ("BYTES", Side::Right),
        ("SENDER", Side::Right),
        ("SENT", Side::Left),
        ("DELIVERED", Side::Right),
        ("MESSAGE", Side::Left),
    ]);
    for (position, message) in messages.enumerate() {
        table.push([
            position.to_string(),
            message.rank,
            message.len.to_string(),
            message.pid.to_string(),
            time::ago(Some(message.sent)),
            message.returns.to_string(),
            text::preview(message.data, most),
        ]);
    }
    let mut out = output::standard()?;
    table.print(&mut out)?;
    Ok(out.flush()?)
}
