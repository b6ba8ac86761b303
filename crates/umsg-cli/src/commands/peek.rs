//! `umsg peek`.

use std::io::{IsTerminal, Write};

use clap::Args;
use umsg::posix::Peeked;

use crate::cli::Cli;
use crate::failure::{Failure, Result};
use crate::names::{Name, name};
use crate::opened::{Opened, Purpose};
use crate::output::table::{Side, Table};
use crate::output::{self, Format, json, text, time};
use crate::{place, values};

/// How much of a message a line shows, on a terminal.
const PREVIEW: usize = 60;

/// Show messages in order of delivery, and leave them in the queue
///
/// POSITION counts from 0, the message that would be received next. SENDER is a process id, SENT how long ago the message was
/// sent, DELIVERED how often somebody received it who gave it back or died. Messages that somebody has received and not yet
/// acknowledged are not shown. What could control a terminal is escaped, and on a terminal long messages are cut.
///
/// All are shown as they were at one instant; those who receive wait for no longer than copying takes.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  umsg peek /orders                 the ten that would be received next
  umsg peek /orders --count 1
  umsg peek /orders --json | jq -r .data")]
pub struct Peek {
    /// The queue's name
    #[arg(value_parser = name())]
    name: Name,
    /// Show at most so many messages
    #[arg(long, short, value_name = "N", default_value_t = 10, value_parser = values::size, allow_negative_numbers = true)]
    count: u64,
    #[command(flatten)]
    format: Format,
}

impl Peek {
    pub fn perform(&self, cli: &Cli) -> Result {
        let namespace = place::existing(cli)?;
        let opened = Opened::open(&namespace, &self.name, Purpose::Receive)?;
        let messages = opened
            .queue
            .messages(usize::try_from(self.count).unwrap_or(usize::MAX))
            .map_err(|error| Failure::of(&self.name, error))?;
        match self.format.json {
            true => self.print_json(&messages),
            false => print_table(&messages),
        }
    }

    fn print_json(&self, messages: &[Peeked]) -> Result {
        let name = self.name.lossy();
        let mut out = output::standard()?;
        for (position, peeked) in messages.iter().enumerate() {
            json::print(&mut out, &json::Message::peeked(&name, position, peeked))?;
        }
        Ok(out.flush()?)
    }
}

fn print_table(messages: &[Peeked]) -> Result {
    let most = match std::io::stdout().is_terminal() {
        true => PREVIEW,
        false => usize::MAX,
    };
    let mut table = Table::new([
        ("POSITION", Side::Right),
        ("PRIORITY", Side::Right),
        ("BYTES", Side::Right),
        ("SENDER", Side::Right),
        ("SENT", Side::Left),
        ("DELIVERED", Side::Right),
        ("MESSAGE", Side::Left),
    ]);
    for (position, peeked) in messages.iter().enumerate() {
        table.push([
            position.to_string(),
            peeked.priority.to_string(),
            peeked.data.len().to_string(),
            peeked.pid.to_string(),
            time::ago(Some(peeked.sent)),
            peeked.returns.to_string(),
            text::preview(&peeked.data, most),
        ]);
    }
    let mut out = output::standard()?;
    table.print(&mut out)?;
    Ok(out.flush()?)
}
