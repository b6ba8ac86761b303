//! `umsg create`.

use std::io::Write;

use clap::Args;
use rustix::fs::Mode;
use umsg::Namespace;
use umsg::posix::{OpenError, OpenOptions, Queue, Status};

use super::policy::Policy;
use crate::cli::Cli;
use crate::failure::{Code, Failure, Result};
use crate::names::{Name, name};
use crate::opened::{Opened, Purpose};
use crate::output::{self, Format, json};
use crate::{place, values};

/// Create a queue
///
/// A queue that exists already is left as it is, messages and all. That is fine, so that a script can be run again, unless it has
/// other attributes than those asked for, or with --exclusive: then this fails and says which it has. Attributes that
/// are not asked for may be any.
///
/// --on-full, --ttl, --max-deliveries and --dead-letter say what becomes of messages that the queue can't take, keep or deliver.
/// `umsg stat` counts them, and shows under "set aside" those that the queue for dead letters has no room for.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  umsg create /orders              of the namespace's default depth and size
  umsg create /orders --max-messages 64K --message-size 1K
  umsg create /log --mode 0622     others may send, only you receive
  umsg create /log --max-messages 1K --on-full drop-oldest
  umsg create /prices --ttl 500ms  what is older is dropped
  umsg create /jobs --max-deliveries 3 --dead-letter /jobs.failed")]
pub struct Create {
    /// The queue's name, such as /orders
    #[arg(value_parser = name())]
    name: Name,
    /// How many messages it may hold, from 1 to 1M [default: that of the namespace, 10 unless set with `umsg limits`]
    #[arg(long, value_name = "N", value_parser = values::small_size, allow_negative_numbers = true)]
    max_messages: Option<u32>,
    /// How long a message may be, from 1 to 16M bytes [default: that of the namespace, 8K unless set with `umsg limits`]
    #[arg(long, value_name = "BYTES", value_parser = values::small_size, allow_negative_numbers = true)]
    message_size: Option<u32>,
    /// Permission bits, whatever the umask: r may receive, w may send [default: 0600 without those of the umask]
    #[arg(long, value_name = "OCTAL", value_parser = values::mode)]
    mode: Option<u32>,
    /// Fail if the queue exists
    #[arg(long)]
    exclusive: bool,
    #[command(flatten)]
    policy: Policy,
    #[command(flatten)]
    format: Format,
}

impl Create {
    pub fn perform(&self, cli: &Cli) -> Result {
        self.format.check()?;
        let namespace = place::namespace(cli)?;
        let queue = self.open(&namespace)?;
        let status = queue.status();
        self.compare(&status)?;
        if self.format.json {
            let mut out = output::standard()?;
            json::print(&mut out, &json::Queue::new(&self.name.lossy(), &status))?;
            out.flush()?;
        }
        Ok(())
    }

    fn open(&self, namespace: &Namespace) -> Result<Queue> {
        self.name.check()?;
        self.policy.check(namespace, &self.name)?;
        match self.create(OpenOptions::new().namespace(namespace)) {
            // There is one, whose mode does not let us do both; to compare it, either will do.
            Err(OpenError::PermissionDenied) if !self.exclusive => {
                Ok(Opened::open(namespace, &self.name, Purpose::Look)?.queue)
            }
            Err(error) => Err(self.refused(&error)),
            Ok(queue) => Ok(queue),
        }
    }

    fn create(&self, options: &mut OpenOptions) -> Result<Queue, OpenError> {
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
        self.policy.apply(options);
        options.open(&self.name)
    }

    fn refused(&self, error: &OpenError) -> Failure {
        match error {
            OpenError::InvalidAttributes { what, value, max } => {
                let line = format!("{}: {}", self.name, out_of_range(what, *value, *max));
                Failure::new(Code::Failed, line)
            }
            error => Failure::of(&self.name, error),
        }
    }

    /// A queue that existed keeps its attributes; who asked for others must not believe that he has them.
    fn compare(&self, found: &Status) -> Result {
        let attributes = found.attributes;
        let number = |wanted: Option<u32>, found: usize, what| {
            let differs = wanted.is_some_and(|wanted| wanted as usize != found);
            differs.then(|| format!("{what} {found}"))
        };
        let mode = self.mode.is_some_and(|mode| mode != found.mode);
        let others: Vec<String> = [
            number(self.max_messages, attributes.max_messages, "--max-messages"),
            number(self.message_size, attributes.message_size, "--message-size"),
            mode.then(|| format!("--mode {:04o}", found.mode)),
        ]
        .into_iter()
        .flatten()
        .chain(self.policy.differences(found))
        .collect();
        if others.is_empty() {
            return Ok(());
        }
        let line = format!(
            "{}: exists already, with {}; `umsg rm` it first, or leave the options out to use it as it is",
            self.name,
            others.join(" and ")
        );
        Err(Failure::new(Code::Failed, line))
    }
}

/// Which option, and whether the limit can be raised: not beyond what the format of a queue has room for.
fn out_of_range(what: &str, value: u64, max: u64) -> String {
    let option = what.replace('_', "-");
    let (limit, most) = match what {
        "message_size" => ("max-message-size", umsg::Limits::default().max_message_size),
        _ => ("max-messages", umsg::Limits::default().max_messages),
    };
    let hint = match (value, max < u64::from(most)) {
        (0, _) => "",
        (_, true) => {
            &format!("; that is this namespace's limit, which `umsg limits --{limit}` raises")
        }
        (_, false) => "; no queue can have more",
    };
    format!("--{option} is {value}: choose between 1 and {max}{hint}")
}
