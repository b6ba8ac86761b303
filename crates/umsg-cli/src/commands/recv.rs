//! `umsg recv`.

use std::io;

use clap::Args;
use umsg::Namespace;
use umsg::sysv::Want;

use super::patience::Patience;
use crate::address::{Address, address};
use crate::attached::Attached;
use crate::cli::Cli;
use crate::failure::{Code, Failure, Result};
use crate::inlet::{Held, Inlet, Rank};
use crate::opened::{Opened, Purpose};
use crate::output::Format;
use crate::output::direct::Direct;
use crate::output::message::{Form, Style};
use crate::{place, values};

/// Receive messages: print each message and remove it from the queue
///
/// A message leaves the queue when it is printed completely. If printing fails, the message returns to the queue as the first
/// of its priority or type. Printing fails, for example, on a full disk. If the command is killed, the message returns when a
/// process next finds the queue empty or full. With --json, "deliveries" is the number of deliveries of the message, including
/// this one.
///
/// From a System V queue the command receives the oldest message, or the oldest that matches --type, --except or --lowest.
///
/// If the queue is removed while the command waits, the command ends with exit code 4 within ten seconds.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  umsg recv /orders                one message; waits for it
  umsg recv /orders --timeout 5    exits with 3 after 5 s without a message
  umsg recv /orders --all          all messages in the queue; does not wait
  umsg recv /orders --follow --json | jq .data
  umsg recv /pictures --output raw > picture.png
  umsg recv key:0x1234 --type 2    the oldest of type 2 of a System V queue

Exit codes:
  0    received all requested messages
  1    failed; one line on standard error says why and what to do
  2    the command line is wrong
  3    no message within the time allowed, or a stopped process holds the queue's lock; standard error gives the reason
  4    the queue was removed")]
pub struct Recv {
    /// The queue: a name, or for System V key:0x1234 or id:32769
    #[arg(value_name = "QUEUE", value_parser = address())]
    queue: Address,
    #[command(flatten)]
    types: Types,
    /// Receive this many messages, and wait for each
    #[arg(long, short, value_name = "N", default_value_t = 1, value_parser = values::size,
          allow_negative_numbers = true, conflicts_with_all = ["all", "follow"])]
    count: u64,
    /// Receive until the queue is empty, without waiting
    #[arg(long, conflicts_with_all = ["follow", "timeout", "nonblocking"])]
    all: bool,
    /// Receive until the time-out, until the queue is removed, or until the program that reads the output ends
    #[arg(long, short)]
    follow: bool,
    #[command(flatten)]
    patience: Patience,
    /// Print at most this many bytes of each message; the rest is lost
    #[arg(long, value_name = "BYTES", value_parser = values::size, allow_negative_numbers = true)]
    truncate: Option<u64>,
    /// The form in which a message is printed
    #[arg(long, short, value_enum, default_value_t = Style::Text, value_name = "STYLE", conflicts_with = "json")]
    output: Style,
    #[command(flatten)]
    format: Format,
}

/// The selection of System V messages.
#[derive(Args, Debug)]
pub struct Types {
    /// System V: the oldest message of this type
    #[arg(long = "type", short = 't', value_name = "N", value_parser = values::message_type, allow_negative_numbers = true,
          conflicts_with_all = ["except", "lowest"])]
    exactly: Option<i64>,
    /// System V: the oldest message of any other type
    #[arg(long, value_name = "N", value_parser = values::message_type, allow_negative_numbers = true, conflicts_with = "lowest")]
    except: Option<i64>,
    /// System V: the oldest message of the lowest type in the queue, up to N
    #[arg(long, value_name = "N", value_parser = values::message_type, allow_negative_numbers = true)]
    lowest: Option<i64>,
}

impl Types {
    fn want(&self) -> Want {
        let (exactly, except) = (
            self.exactly.map(Want::Exactly),
            self.except.map(Want::Except),
        );
        let lowest = self.lowest.map(Want::Lowest);
        exactly.or(except).or(lowest).unwrap_or(Want::Any)
    }
}

impl Recv {
    pub fn perform(&self, cli: &Cli) -> Result {
        let out = Direct::open()?;
        let namespace = place::existing(cli)?;
        let from = self.open(&namespace)?;
        let most = self.truncate.and_then(|most| usize::try_from(most).ok());
        let form = Form::new(self.queue.lossy(), self.output, self.format.json, most);
        let mut left = self.how_many();
        while left != Some(0) && self.hand_over(&from, &form, out)? {
            left = left.map(|left| left - 1);
        }
        Ok(())
    }

    fn open<'a>(&'a self, namespace: &'a Namespace) -> Result<Inlet<'a>> {
        match (&self.queue, self.types.want()) {
            (Address::Posix(name), Want::Any) => {
                Opened::open(namespace, name, Purpose::Receive).map(Inlet::Posix)
            }
            (Address::Posix(name), _) => {
                Err(name.has_no("types", "leave --type, --except and --lowest out"))
            }
            (Address::SystemV(label), want) => {
                let from = Attached::open(namespace, *label)?;
                Ok(Inlet::SystemV { from, want })
            }
        }
    }

    fn how_many(&self) -> Option<u64> {
        (!self.all && !self.follow).then_some(self.count)
    }

    /// Receives and prints one message. The message is leased until it is printed: if the command fails or dies before, the message returns to the
    /// queue. Returns false if `--all` has received all messages.
    fn hand_over(&self, from: &Inlet<'_>, form: &Form, out: Direct) -> Result<bool> {
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
                    "{}: {error}; the last printed message may be received again",
                    self.queue
                ),
            )),
        }
    }

    /// Receives the next message. None if `--all` has received all messages.
    fn next<'a>(&self, from: &'a Inlet<'_>, out: Direct) -> Result<Option<Held<'a>>> {
        let read = || match out.is_abandoned() {
            true => Err(self.abandoned()),
            false => Ok(()),
        };
        if !self.all {
            return from.receive(&self.patience, read).map(Some);
        }
        read()?;
        from.take()
    }

    fn abandoned(&self) -> Failure {
        let line = format!(
            "{}: the reader of standard output has ended; messages not yet printed stay in the queue",
            self.queue
        );
        Failure::new(Code::Failed, line)
    }

    /// Returns a message that was not printed completely.
    fn returned(&self, from: &Inlet<'_>, message: Held<'_>, error: &io::Error) -> Failure {
        let (name, rank) = (&self.queue, message.rank());
        let most = from.most_deliveries();
        let exhausted = most.is_some_and(|most| message.deliveries() >= most);
        let what = match (message.give_back(), exhausted) {
            (Ok(()), false) => {
                let first = match rank {
                    Rank::Priority(priority) => format!("priority ({priority})"),
                    Rank::Type(mtype) => format!("type ({mtype})"),
                };
                format!("the message is back in the queue, the first of its {first}")
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
