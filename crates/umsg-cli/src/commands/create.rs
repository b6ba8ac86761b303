//! `umsg create`.

use std::fmt::Display;
use std::io::Write;

use clap::Args;
use rustix::fs::Mode;
use umsg::Namespace;
use umsg::posix::{self, Existing, OpenError, OpenOptions, Queue, Status};
use umsg::sysv::PRIVATE;

use super::create_sysv::{self, Wanted};
use super::policy::Policy;
use crate::address::{Address, Label, address};
use crate::attached::Attached;
use crate::cli::Cli;
use crate::failure::{Code, Failure, Result};
use crate::names::Name;
use crate::opened::{Opened, Purpose};
use crate::output::json::sysv::SysvQueue;
use crate::output::{self, Format, json};
use crate::{place, streams, values};

/// Create a queue
///
/// If the queue exists with the given attributes, the command succeeds, so that a script can run the command again. It then creates only the
/// dead-letter queue, if that is missing; for this, the user has to own the existing queue. If the attributes of an existing queue differ from the
/// options, the command fails and prints these attributes. With --exclusive, the command fails if the queue exists.
///
/// --on-full sets what a send to a full queue does. --ttl limits the age of messages, and --max-deliveries the number of their deliveries. Messages
/// that exceed these limits, and messages that --on-full drop-oldest drops, are moved to the queue of --dead-letter. Without --dead-letter, the queue
/// drops messages that are too old. `umsg stat` counts the moved and dropped messages. If the dead-letter queue is full, the messages wait for room;
/// `umsg stat` shows them as "set aside". If 1,024 messages are set aside, --on-full drop-oldest drops further messages.
///
/// Receivers get the highest priority first. While messages of a high priority keep arriving, messages of lower priorities wait. With --priorities
/// fair:N, the lower priorities together get one of every N + 1 deliveries. Programs under `umsg run` can also use a queue with fair:N.
///
/// A queue stays until a process removes it. With --remove-on-last-close, the queue is removed when the last process closes it. If the last process
/// was killed, the queue is removed by the next `umsg ls`, `umsg gc` or attempt to open it. A new queue that no process has opened yet is not
/// removed. `umsg send` and `umsg recv` open the queue like any program: the queue may be removed when these commands end. Commands that only inspect
/// the queue do not count as users.
///
/// --mode sets which users may receive (r) and send (w). The kernel enforces 0600, 0660 and 0666. A mode with send-only or receive-only access, such
/// as 0622, is enforced only by umsg's library. Such a mode does not stop a program that accesses the queue's file directly. If senders must not see
/// each other's messages, give each sender its own queue.
///
/// --retry-delay delays the next delivery of a message if its receiver returned the message, exceeded the time limit of its lease, or was killed.
/// --close-with-last-producer closes the queue without `umsg close`, so that receivers learn of the end of a stream of messages.
///
/// A System V queue is created by its key. key:0 (IPC_PRIVATE) creates a new queue without a key, and the command prints the queue's identifier.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  umsg create /orders              with the namespace's default depth and size
  umsg create /orders --max-messages 64K --message-size 1K
  umsg create /log --mode 0622     all users may send, only you may receive
  umsg create /log --max-messages 1K --on-full drop-oldest
  umsg create /prices --ttl 500ms  older messages are dropped
  umsg create /jobs --max-deliveries 3 --dead-letter /jobs.failed
  umsg create /jobs --retry-delay 1s..5m   1 s, 2 s, 4 s ... and 5 min at most
  umsg create /lines --close-with-last-producer
  umsg create /tasks --priorities fair:4   low priorities: 1 of 5 deliveries
  umsg create /answers --remove-on-last-close   removed with its last user
  umsg create key:0x1234 --qbytes 1M --mode 0660   a System V queue
  queue=$(umsg create key:0)       a System V queue that has only an identifier")]
pub struct Create {
    /// The queue: a name, such as /orders, or a System V key, such as key:0x1234
    #[arg(value_name = "QUEUE", value_parser = address())]
    queue: Address,
    /// Maximum number of messages, from 1 to 1M [default: that of the namespace, 10 unless set with `umsg limits`]
    #[arg(long, value_name = "N", value_parser = values::small_size, allow_hyphen_values = true)]
    max_messages: Option<u32>,
    /// Maximum size of a message, from 1 to 16M bytes [default: that of the namespace, 8K unless set with `umsg limits`]
    #[arg(long, value_name = "BYTES", value_parser = values::small_size, allow_hyphen_values = true)]
    message_size: Option<u32>,
    /// System V: maximum bytes of all messages in the queue [default: that of the namespace, 16K unless set with `umsg limits`]
    #[arg(long, value_name = "BYTES", value_parser = values::small_size, allow_hyphen_values = true,
          conflicts_with_all = ["max_messages", "message_size", "on_full", "ttl", "max_deliveries", "dead_letter", "priorities", "remove_on_last_close", "trace_messages"])]
    qbytes: Option<u32>,
    /// Permission bits: r permits receiving, w permits sending. The umask does not change a mode that is given. Without --mode, the umask applies to
    /// POSIX queues [default: 0600]
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
        match &self.queue {
            Address::Posix(name) => self.create_named(&place::namespace(cli)?, name),
            Address::SystemV(label) => self.create_labelled(cli, *label),
        }
    }

    fn create_named(&self, namespace: &Namespace, name: &Name) -> Result {
        if self.qbytes.is_some() {
            return Err(name.has_no("--qbytes", "use --max-messages and --message-size"));
        }
        let (queue, is_new) = self.open(namespace, name)?;
        let mut status = queue.status();
        self.compare(name, &status)?;
        if !is_new {
            self.policy
                .provide_dead_letter_queue(namespace, name, &status, self.mode)?;
            // The dead-letter queue may have been the only reason why messages are set aside.
            status = queue.status();
        }
        match self.format.json {
            true => tell_named(name, &status).map_err(|failure| match is_new {
                true => taken_back(failure, name, || unlink(namespace, name, &queue)),
                false => failure,
            }),
            false => Ok(()),
        }
    }

    fn create_labelled(&self, cli: &Cli, label: Label) -> Result {
        if self.max_messages.is_some() || self.message_size.is_some() {
            return Err(label.has_no("--max-messages or --message-size", "use --qbytes"));
        }
        if self.policy.is_any() {
            return Err(label.has_no(
                "--on-full, --ttl, --max-deliveries, --dead-letter, --priorities, --remove-on-last-close or --trace-messages",
                "leave them out",
            ));
        }
        let (retry_delay, close_with_last_producer) = self.policy.delivery();
        let wanted = Wanted {
            retry_delay,
            close_with_last_producer,
            qbytes: self.qbytes,
            mode: self.mode,
            exclusive: self.exclusive,
        };
        let is_nameless = label.key() == Some(PRIVATE);
        if is_nameless {
            streams::check_output()?;
        }
        let namespace = place::namespace(cli)?;
        let (created, is_new) = wanted.create(&namespace, label)?;
        let told = match self.format.json || is_nameless {
            true => self.tell(&namespace, &created),
            false => Ok(()),
        };
        // A new queue without a key is removed if its identifier can't be printed: no process could find such a queue.
        told.map_err(|failure| match is_new {
            true => taken_back(failure, label, || created.queue.remove().is_ok()),
            false => failure,
        })
    }

    /// Prints a System V queue: its attributes, or the identifier of a queue without a key.
    fn tell(&self, namespace: &Namespace, created: &Attached) -> Result {
        let mut out = output::standard()?;
        if self.format.json {
            let status = created.queue.status().ok();
            let entry = create_sysv::entry(namespace, created)?;
            json::print(&mut out, &SysvQueue::new(&entry, status.as_ref()))?;
        } else {
            writeln!(out, "{}", Label::Id(created.queue.id()))?;
        }
        Ok(out.flush()?)
    }

    /// Returns the queue, and whether this command created it.
    fn open(&self, namespace: &Namespace, name: &Name) -> Result<(Queue, bool)> {
        name.check()?;
        self.policy.check(namespace, name)?;
        let create = |exclusive| {
            let mut options = OpenOptions::new();
            self.create(options.namespace(namespace).exclusive(exclusive), name)
        };
        match create(true) {
            Ok(queue) => return Ok((queue, true)),
            Err(OpenError::AlreadyExists) if !self.exclusive => {}
            Err(error) => return Err(refused(name, &error)),
        }
        match create(false) {
            // The queue exists, and its mode denies sending or receiving. Either permission is enough to compare the attributes.
            Err(OpenError::PermissionDenied) => {
                Ok((Opened::open(namespace, name, Purpose::Look)?.queue, false))
            }
            Err(error) => Err(refused(name, &error)),
            Ok(queue) => Ok((queue, false)),
        }
    }

    fn create(&self, options: &mut OpenOptions, name: &Name) -> Result<Queue, OpenError> {
        // A new queue with --remove-on-last-close stays until its first user has opened it. This command does not count as a user.
        options.read(true).write(true).create(true).counted(false);
        // The command itself compares an existing queue with the options, so that the error names all differences.
        options.existing(Existing::Any);
        if let Some(messages) = self.max_messages {
            options.max_messages(messages);
        }
        if let Some(bytes) = self.message_size {
            options.message_size(bytes);
        }
        if let Some(mode) = self.mode {
            // --mode ignores the umask, like mkdir -m.
            rustix::process::umask(Mode::empty());
            options.mode(mode);
        }
        self.policy.apply(options);
        options.open(name)
    }

    /// Fails if the attributes of an existing queue differ from the options.
    fn compare(&self, name: &Name, found: &Status) -> Result {
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
            "{name}: the queue exists with {}; remove it first with `umsg rm`, or leave these options out to use it as it is",
            others.join(" and ")
        );
        Err(Failure::new(Code::Failed, line))
    }
}

fn tell_named(name: &Name, status: &Status) -> Result {
    let mut out = output::standard()?;
    json::print(&mut out, &json::Queue::new(&name.lossy(), status))?;
    Ok(out.flush()?)
}

/// Removes a new queue whose attributes could not be printed, so that the command can be repeated after the failure. The queue stays if the reader of
/// the output ended early.
fn taken_back(failure: Failure, subject: impl Display, remove: impl FnOnce() -> bool) -> Failure {
    match failure {
        Failure::Because { code, line } => {
            let fate = match remove() {
                true => "was removed",
                false => "could not be removed",
            };
            Failure::new(code, format_args!("{line}; the new queue {subject} {fate}"))
        }
        other => other,
    }
}

/// Removes a queue, unless the name now leads to another queue.
fn unlink(namespace: &Namespace, name: &Name, queue: &Queue) -> bool {
    let mut options = OpenOptions::new();
    let found = options
        .read(true)
        .counted(false)
        .namespace(namespace)
        .open(name);
    found.is_ok_and(|found| found.identity() == queue.identity())
        && posix::unlink_in(namespace, name).is_ok()
}

fn refused(name: &Name, error: &OpenError) -> Failure {
    match error {
        OpenError::InvalidAttributes { what, value, max } => {
            let line = format!("{name}: {}", out_of_range(what, *value, *max));
            Failure::new(code_out_of_range(what, *value), line)
        }
        error => Failure::of(name, error),
    }
}

/// Returns the largest value that the format of a queue permits.
fn most(what: &str) -> u64 {
    let limits = umsg::Limits::default();
    match what {
        "message_size" => limits.max_message_size.into(),
        _ => limits.max_messages.into(),
    }
}

/// Returns the exit code for a value of an option that is out of range. A value that no namespace permits is an error of the command line.
fn code_out_of_range(what: &str, value: u64) -> Code {
    match (1..=most(what)).contains(&value) {
        true => Code::Failed,
        false => Code::Usage,
    }
}

/// Explains that the value of an option is out of range, and how to raise the limit if the queue's format permits more.
fn out_of_range(what: &str, value: u64, max: u64) -> String {
    let option = what.replace('_', "-");
    let limit = match what {
        "message_size" => "max-message-size",
        _ => "max-messages",
    };
    let most = most(what);
    let hint = match (value, value > most) {
        (0, _) => "",
        (_, true) if max == most => "; no queue can have more",
        (_, true) => {
            &format!("; {max} is the namespace's limit, and no queue can have more than {most}")
        }
        (_, false) => {
            &format!("; {max} is the namespace's limit, and `umsg limits --{limit}` raises it")
        }
    };
    format!("--{option} must be from 1 to {max}, not {value}{hint}")
}
