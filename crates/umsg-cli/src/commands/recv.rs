//! `umsg recv`.

use std::io;

use clap::Args;
use umsg::posix::{Lease, ReceiveError};

use super::patience::Patience;
use crate::cli::Cli;
use crate::failure::{Code, Failure, Result};
use crate::names::{Name, name};
use crate::opened::{Opened, Purpose};
use crate::output::Format;
use crate::output::direct::Direct;
use crate::output::message::{Form, Style};
use crate::{place, values};

/// Receive messages: each is printed and is then gone from the queue
///
/// A message leaves the queue once it is printed whole. If that fails, because the disk is full or a pipe's reader has gone,
/// the message is the first of its priority again. If this command is killed it is that, too, as soon as somebody finds the
/// queue empty or full. With --json, "deliveries" says how often a message was delivered, this time included.
///
/// A queue that is removed while this waits for its next message ends it with exit code 4, within ten seconds.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  umsg recv /orders                one message, waiting for it if need be
  umsg recv /orders --timeout 5    exits with 3 after 5 s without a message
  umsg recv /orders --all          all that are there, waiting for none
  umsg recv /orders --follow --json | jq .data
  umsg recv /pictures --output raw > picture.png

Exit codes:
  0    received what was asked for
  1    failed; one line on standard error says why and what to do
  2    the command line makes no sense
  3    no message within the time allowed
  4    the queue was removed")]
pub struct Recv {
    /// The queue's name
    #[arg(value_parser = name())]
    name: Name,
    /// Receive so many messages, waiting for each
    #[arg(long, short, value_name = "N", default_value_t = 1, value_parser = values::size,
          allow_negative_numbers = true, conflicts_with_all = ["all", "follow"])]
    count: u64,
    /// Receive until the queue is empty, without waiting
    #[arg(long, conflicts_with_all = ["follow", "timeout", "nonblocking"])]
    all: bool,
    /// Receive for ever: until the time is over, the queue is removed or nobody reads the output
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
        let out = Direct::open()?;
        let namespace = place::existing(cli)?;
        let from = Opened::open(&namespace, &self.name, Purpose::Receive)?;
        let form = Form::new(self.name.lossy(), self.output, self.format.json);
        let mut left = self.how_many();
        while left != Some(0) && self.hand_over(&from, &form, out)? {
            left = left.map(|left| left - 1);
        }
        Ok(())
    }

    fn how_many(&self) -> Option<u64> {
        (!self.all && !self.follow).then_some(self.count)
    }

    /// One message from the queue to standard output, and out of the queue when it is printed: a lease that is dropped
    /// before, by us or by our death, returns it. False if `--all` has them all.
    fn hand_over(&self, from: &Opened<'_>, form: &Form, out: Direct) -> Result<bool> {
        let Some(message) = self.next(from, out)? else {
            return Ok(false);
        };
        if let Err(error) = out.write_all(&form.render(&message)) {
            return Err(self.returned(from, message, &error));
        }
        match message.acknowledge() {
            Ok(()) => Ok(true),
            Err(error) => Err(Failure::new(
                Code::Failed,
                format_args!(
                    "{}: {error}; the message printed last may be received once more",
                    self.name
                ),
            )),
        }
    }

    /// The next message; None if `--all` has them all.
    fn next<'a>(&self, from: &'a Opened<'_>, out: Direct) -> Result<Option<Lease<'a>>> {
        let read = || match out.is_abandoned() {
            true => Err(self.abandoned()),
            false => Ok(()),
        };
        if !self.all {
            return self.patience.receive(from, read).map(Some);
        }
        read()?;
        match from.queue.try_receive_lease() {
            Ok(message) => Ok(Some(message)),
            Err(ReceiveError::Empty) => Ok(None),
            Err(error) => Err(from.not_received(&error)),
        }
    }

    fn abandoned(&self) -> Failure {
        let line = format!(
            "{}: nobody reads standard output any more; messages not yet printed are left in the queue",
            self.name
        );
        Failure::new(Code::Failed, line)
    }

    /// Returns a message that was not printed, or not all of it.
    fn returned(&self, from: &Opened<'_>, message: Lease<'_>, error: &io::Error) -> Failure {
        let (name, priority) = (&self.name, message.priority());
        let most = from.queue.status().max_deliveries;
        let exhausted = most.is_some_and(|most| message.deliveries() >= most);
        let what = match (message.give_back(), exhausted) {
            (Ok(()), false) => {
                format!("the message is back in the queue, the first of its priority ({priority})")
            }
            (Ok(()), true) => {
                "the message was delivered as often as the queue allows, and goes to the dead-letter queue"
                    .to_owned()
            }
            (Err(error), _) => format!("the message could not be returned: {error}"),
        };
        Failure::new(
            Code::Failed,
            format_args!("{name}: standard output: {error}; {what}"),
        )
    }
}
