//! `umsg close`.

use std::fmt::Display;

use clap::Args;

use crate::address::{Address, address};
use crate::attached::Attached;
use crate::cli::Cli;
use crate::failure::{Code, Explain, Failure, Result};
use crate::opened::{Opened, Purpose};
use crate::place;

/// Close a queue for sending, to mark the end of a stream of messages
///
/// All later sends to the queue fail, and so do sends that already wait; msgsnd is an exception (see below). Receivers get the remaining messages,
/// and then an end-of-stream result. The queue stays closed until it is reopened with --reopen, or removed. The command also succeeds if the queue is
/// already closed. `umsg stat` shows whether a queue is closed.
///
/// A queue that was created with --close-with-last-producer is also closed when its last producer ends or is killed. A producer is a process that
/// runs `umsg send --producer`, or a program that registers as a producer through umsg's library.
///
/// Closing a queue needs permission to send. For a System V queue, msgsnd and msgrcv ignore the close, because the kernel's queues can't be closed.
/// The command can't close a ring: the ring's owner, its receiver, closes it.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  umsg close /orders            receivers get the rest, then the end
  umsg close --reopen /orders   the queue takes messages again")]
pub struct Close {
    /// The queue: a name, or for System V key:0x1234 or id:32769
    #[arg(value_name = "QUEUE", value_parser = address())]
    queue: Address,
    /// Open the queue for sending again
    #[arg(long)]
    reopen: bool,
}

impl Close {
    pub fn perform(&self, cli: &Cli) -> Result {
        let namespace = place::existing(cli)?;
        match &self.queue {
            Address::Posix(name) => {
                let opened = Opened::open(&namespace, name, Purpose::Send)?;
                let changed = match self.reopen {
                    true => opened.queue.reopen_send(),
                    false => opened.queue.close_send(),
                };
                let changed = changed.map_err(|error| (error.code(), error.explain()));
                told(name, changed)
            }
            Address::SystemV(label) => {
                let attached = Attached::open(&namespace, *label)?;
                let changed = match self.reopen {
                    true => attached.queue.reopen_send(),
                    false => attached.queue.close_send(),
                };
                let changed =
                    changed.map_err(|error| (error.code(), attached.explain_send(&error)));
                told(label, changed)
            }
        }
    }
}

/// Fails if the state of the queue could not be changed. Succeeds if the queue already had the wanted state.
fn told(subject: impl Display, changed: Result<bool, (Code, String)>) -> Result {
    let failure = |(code, why)| Failure::new(code, format_args!("{subject}: {why}"));
    changed.map(drop).map_err(failure)
}
