//! `umsg close`.

use clap::Args;
use umsg::posix::SendError;

use crate::address::{Address, address};
use crate::cli::Cli;
use crate::failure::{Explain, Failure, Result};
use crate::opened::{Opened, Purpose};
use crate::place;

/// Close a queue for sending: the end of a stream of messages
///
/// Sends to the queue fail from now on, blocked ones too. Receivers get the messages that are left, and then learn of the end.
/// The queue stays closed until it is reopened with --reopen, or removed. The command also succeeds if the queue is already
/// closed. `umsg stat` shows whether a queue is closed.
///
/// Closing a queue needs permission to send. System V queues and rings can't be closed by this command: a ring is closed by its owner.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  umsg close /orders            receivers get the remaining messages, then the end
  umsg close --reopen /orders   the queue takes messages again")]
pub struct Close {
    /// The queue: a name, such as /orders
    #[arg(value_name = "QUEUE", value_parser = address())]
    queue: Address,
    /// Open the queue for sending again
    #[arg(long)]
    reopen: bool,
}

impl Close {
    pub fn perform(&self, cli: &Cli) -> Result {
        let namespace = place::existing(cli)?;
        let name = match &self.queue {
            Address::Posix(name) => name,
            Address::SystemV(label) => {
                return Err(label.has_no("end of the stream", "remove the queue with `umsg rm`"));
            }
        };
        let opened = Opened::open(&namespace, name, Purpose::Send)?;
        let changed = match self.reopen {
            true => opened.queue.reopen_send(),
            false => opened.queue.close_send(),
        };
        match changed {
            Ok(_) => Ok(()),
            Err(error) => Err(failed(&opened, &error)),
        }
    }
}

fn failed(opened: &Opened<'_>, error: &SendError) -> Failure {
    let line = format!("{}: {}", opened.name, error.explain());
    Failure::new(error.code(), line)
}
