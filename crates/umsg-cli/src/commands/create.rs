//! `umsg create`.

use std::io::Write;

use clap::Args;
use rustix::fs::Mode;
use umsg::posix::{Attributes, OpenError, OpenOptions, Queue};

use crate::cli::Cli;
use crate::failure::{Code, Failure, Result};
use crate::names::{Name, name};
use crate::output::{self, Format, json};
use crate::{place, values};

/// Create a queue
///
/// A queue that exists already is left as it is; that is an error if it has other attributes than those asked for, or
/// with --exclusive.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  umsg create /orders              of the namespace's default depth and size
  umsg create /orders --max-messages 64K --message-size 1K
  umsg create /log --mode 0622     others may send, only you receive")]
pub struct Create {
    /// The queue's name, such as /orders
    #[arg(value_parser = name())]
    name: Name,
    /// How many messages it may hold [default: that of the namespace, see `umsg limits`]
    #[arg(long, value_name = "N", value_parser = values::small_size)]
    max_messages: Option<u32>,
    /// How long a message may be [default: that of the namespace, see `umsg limits`]
    #[arg(long, value_name = "BYTES", value_parser = values::small_size)]
    message_size: Option<u32>,
    /// Permission bits, whatever the umask: r may receive, w may send [default: 0600 without those of the umask]
    #[arg(long, value_name = "OCTAL", value_parser = values::mode)]
    mode: Option<u32>,
    /// Fail if the queue exists
    #[arg(long)]
    exclusive: bool,
    #[command(flatten)]
    format: Format,
}

impl Create {
    pub fn perform(&self, cli: &Cli) -> Result {
        self.format.check()?;
        let namespace = place::namespace(cli)?;
        let queue = self
            .open(OpenOptions::new().namespace(&namespace))
            .map_err(|error| Failure::of(&self.name, error))?;
        self.compare(queue.attributes())?;
        if self.format.json {
            let mut out = output::standard()?;
            let name = self.name.to_string();
            json::print(&mut out, &json::Queue::new(&name, &queue.status()))?;
            out.flush()?;
        }
        Ok(())
    }

    fn open(&self, options: &mut OpenOptions) -> std::result::Result<Queue, OpenError> {
        options.read(true).write(true).create(true);
        options.exclusive(self.exclusive);
        if let Some(messages) = self.max_messages {
            options.max_messages(messages);
        }
        if let Some(bytes) = self.message_size {
            options.message_size(bytes);
        }
        if let Some(mode) = self.mode {
            // As mkdir -m: who names a mode wants that one.
            rustix::process::umask(Mode::empty());
            options.mode(mode);
        }
        options.open(&self.name)
    }

    /// A queue that existed keeps its attributes; who asked for others must not believe that he has them.
    fn compare(&self, found: Attributes) -> Result {
        let agrees =
            |wanted: Option<u32>, found| wanted.is_none_or(|wanted| wanted as usize == found);
        if agrees(self.max_messages, found.max_messages)
            && agrees(self.message_size, found.message_size)
        {
            return Ok(());
        }
        let line = format!(
            "{}: exists already, for {} messages of {} bytes; `umsg rm` it first, or leave the options out to use it as it is",
            self.name, found.max_messages, found.message_size
        );
        Err(Failure::new(Code::Failed, line))
    }
}
