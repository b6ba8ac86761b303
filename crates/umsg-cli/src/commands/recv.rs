//! `umsg recv`.

use std::io;
use std::time::Duration;

use clap::Args;
use umsg::posix::{ReceiveError, Received};

use super::patience::Patience;
use crate::cli::Cli;
use crate::failure::{Code, Explain, Failure, Result};
use crate::names::{Name, name};
use crate::opened::{Opened, Purpose};
use crate::output::Format;
use crate::output::direct::Direct;
use crate::output::message::{Form, Style, hex};
use crate::{place, values};

/// How long a message that could not be printed may wait for room in its queue.
const PUT_BACK: Duration = Duration::from_secs(1);

/// Receive messages: each is printed and is then gone from the queue
///
/// A message that can't be printed, because the disk is full or a pipe's reader has gone, is put back behind the others of
/// its priority. If that fails, too, it is printed on standard error in hexadecimal digits.
///
/// A queue that is removed while this waits for its next message ends it with exit code 4.
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
        let namespace = place::namespace(cli)?;
        let mut from = Opened::open(&namespace, &self.name, Purpose::Receive)?;
        let mut buffer = vec![0; from.queue.attributes().message_size];
        let form = Form::new(self.name.lossy(), self.output, self.format.json);
        let mut left = self.how_many();
        while left != Some(0) && self.hand_over(&mut from, &mut buffer, &form, out)? {
            left = left.map(|left| left - 1);
        }
        Ok(())
    }

    fn how_many(&self) -> Option<u64> {
        (!self.all && !self.follow).then_some(self.count)
    }

    /// One message from the queue to standard output. What can't be printed goes back. False if `--all` has them all.
    fn hand_over(
        &self,
        from: &mut Opened<'_>,
        buffer: &mut [u8],
        form: &Form,
        out: Direct,
    ) -> Result<bool> {
        let Some(received) = self.next(from, buffer, out)? else {
            return Ok(false);
        };
        let message = &buffer[..received.len];
        out.write_all(&form.render(received.priority, message))
            .map_err(|error| put_back(from, message, received.priority, &error))?;
        Ok(true)
    }

    /// The next message; None if `--all` has them all.
    fn next(
        &self,
        from: &mut Opened<'_>,
        buffer: &mut [u8],
        out: Direct,
    ) -> Result<Option<Received>> {
        let read = || match out.is_abandoned() {
            true => Err(self.abandoned()),
            false => Ok(()),
        };
        if !self.all {
            return self.patience.receive(from, buffer, read).map(Some);
        }
        read()?;
        match from.queue.try_receive(buffer) {
            Ok(received) => Ok(Some(received)),
            Err(ReceiveError::Empty) => Ok(None),
            Err(error) => Err(Failure::of(&self.name, error)),
        }
    }

    fn abandoned(&self) -> Failure {
        let line = format!(
            "{}: nobody reads standard output any more; messages not yet printed are left in the queue",
            self.name
        );
        Failure::new(Code::Failed, line)
    }
}

/// Gives the queue a message back that was not printed, or not all of it; if that fails, whoever reads standard error has it.
fn put_back(from: &Opened<'_>, message: &[u8], priority: u32, error: &io::Error) -> Failure {
    let name = from.name;
    let line = match from.queue.send_timeout(message, priority, PUT_BACK) {
        Ok(()) => format!(
            "{name}: standard output: {error}; the message is back in the queue, behind others of its priority ({priority})"
        ),
        Err(refusal) => format!(
            "{name}: standard output: {error}; the message could not be put back ({}), here it is: priority {priority}, {} bytes, in hexadecimal {}",
            refusal.explain(),
            message.len(),
            hex(message)
        ),
    };
    Failure::new(Code::Failed, line)
}
