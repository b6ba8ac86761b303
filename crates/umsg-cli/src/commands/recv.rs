//! `umsg recv`.

use clap::Args;
use umsg::posix::{OpenOptions, Queue, ReceiveError};

use super::patience::Patience;
use crate::cli::Cli;
use crate::failure::{Failure, Result};
use crate::names::{Name, name};
use crate::output::message::{Printer, Style};
use crate::output::{self, Format};
use crate::place;

/// Receive messages: each is printed and is then gone from the queue
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  umsg recv /orders                one message, waiting for it if need be
  umsg recv /orders --timeout 5    exits with 3 after 5 s without a message
  umsg recv /orders --all          all that are there, waiting for none
  umsg recv /orders --follow --json | jq .data
  umsg recv /pictures --output raw > picture.png")]
pub struct Recv {
    /// The queue's name
    #[arg(value_parser = name())]
    name: Name,
    /// Receive so many messages
    #[arg(long, short, value_name = "N", default_value_t = 1, conflicts_with_all = ["all", "follow"])]
    count: u64,
    /// Receive until the queue is empty, without waiting
    #[arg(long, conflicts_with_all = ["follow", "timeout", "nonblocking"])]
    all: bool,
    /// Receive for ever
    #[arg(long, short)]
    follow: bool,
    #[command(flatten)]
    patience: Patience,
    /// How a message is printed
    #[arg(long, short, value_enum, default_value_t = Style::Text, value_name = "STYLE", conflicts_with = "json")]
    output: Style,
    #[command(flatten)]
    format: Format,
}

impl Recv {
    pub fn perform(&self, cli: &Cli) -> Result {
        let namespace = place::namespace(cli)?;
        let queue = OpenOptions::new()
            .read(true)
            .namespace(&namespace)
            .open(&self.name)
            .map_err(|error| Failure::of(&self.name, error))?;
        let mut buffer = vec![0; queue.attributes().message_size];
        let name = self.name.to_string();
        let mut printer = Printer::new(output::standard(), name, self.output, self.format.json);
        let mut left = self.how_many();
        while left != Some(0) {
            let Some((len, priority)) = self.next(&queue, &mut buffer)? else {
                break;
            };
            printer.print(priority, &buffer[..len])?;
            left = left.map(|left| left - 1);
        }
        Ok(())
    }

    fn how_many(&self) -> Option<u64> {
        (!self.all && !self.follow).then_some(self.count)
    }

    /// Length and priority of the next message; None if `--all` has them all.
    fn next(&self, queue: &Queue, buffer: &mut [u8]) -> Result<Option<(usize, u32)>> {
        let received = match self.all {
            true => queue.try_receive(buffer),
            false => self.patience.receive(queue, buffer),
        };
        match received {
            Ok(received) => Ok(Some((received.len, received.priority))),
            Err(ReceiveError::Empty) if self.all => Ok(None),
            Err(error) => Err(Failure::of(&self.name, error)),
        }
    }
}
