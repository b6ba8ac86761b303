//! Options that set the policy of a queue for messages that the queue can't accept, keep or deliver.

use std::time::Duration;

use clap::{Args, ValueEnum};
use umsg::Namespace;
use umsg::posix::{OnFull, OpenError, OpenOptions, Status};

use crate::address::name;
use crate::failure::{Code, Failure, Result};
use crate::names::Name;
use crate::output::{json, time};
use crate::values::{self, RetryDelay};

/// The policy options that the user gave. Without these options, a new queue has no policy.
#[derive(Args, Clone, Debug)]
pub struct Policy {
    /// The behaviour of a send to a full queue [default: block]
    #[arg(long, value_enum, value_name = "WHAT")]
    on_full: Option<Full>,
    /// Time to live of messages, such as 500ms, 5s or 2m. Older messages are dropped, or moved to --dead-letter [default: for ever]
    #[arg(long, value_name = "TIME", value_parser = values::time_to_live, allow_hyphen_values = true)]
    ttl: Option<Duration>,
    /// Maximum number of deliveries of a message. Only leases count: the deliveries by `umsg recv`, and those to programs that acknowledge each
    /// message after its receipt. A message that is returned after its last permitted delivery moves to --dead-letter [default: any number]
    #[arg(long, value_name = "N", value_parser = values::times, allow_hyphen_values = true, requires = "dead_letter")]
    max_deliveries: Option<u32>,
    /// The dead-letter queue. It gets the messages that are too old, were delivered too often, or were dropped because the queue was full, each with
    /// its history (see `umsg redrive`). If the dead-letter queue does not exist, it is created with the queue's
    /// --max-messages, --message-size and mode. The dead-letter queue stays until it is removed, even if this queue is removed first. Both queues
    /// must have the same owner
    #[arg(long, value_name = "NAME", value_parser = name())]
    dead_letter: Option<Name>,
    /// Delay before a returned message is delivered again. A message is returned if its receiver returns it, fails or is killed. Give a time, such as
    /// 5s, or the first delay and a limit, such as 1s..5m. With a limit, the delay doubles with each delivery, up to the limit. Other messages do not
    /// wait [default: no delay]
    #[arg(long, value_name = "TIME[..LIMIT]", value_parser = values::retry_delay, allow_hyphen_values = true)]
    retry_delay: Option<RetryDelay>,
    /// Order of delivery between priorities: strict, or fair:N. With fair:N, after every N deliveries of the highest priority, one message of a lower
    /// priority is delivered, if one waits. The lower priorities take turns [default: strict]
    #[arg(long, value_name = "ORDER", value_parser = values::priorities)]
    priorities: Option<u32>,
    /// Remove the queue and its messages when the last process closes the queue
    #[arg(long)]
    remove_on_last_close: bool,
    /// Close the queue for sending when its last producer ends or is killed. A producer is a process that runs `umsg send --producer`, or a program
    /// that registers as a producer through umsg's library
    #[arg(long)]
    close_with_last_producer: bool,
    /// Record the deliveries and moves of each message, with times and process ids, for `umsg peek --long`. Each recorded delivery takes some
    /// nanoseconds more
    #[arg(long)]
    trace_messages: bool,
}

#[derive(ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
enum Full {
    /// Wait for room
    Block,
    /// Fail the send
    Fail,
    /// Drop the oldest message of the lowest priority, or move it to --dead-letter
    DropOldest,
}

impl From<Full> for OnFull {
    fn from(full: Full) -> OnFull {
        match full {
            Full::Block => OnFull::Block,
            Full::Fail => OnFull::Fail,
            Full::DropOldest => OnFull::DropOldest,
        }
    }
}

impl Policy {
    /// Returns those options that System V queues also have.
    pub fn delivery(&self) -> (Option<RetryDelay>, bool) {
        (self.retry_delay, self.close_with_last_producer)
    }

    /// Returns whether an option is given that only POSIX queues have.
    pub fn is_any(&self) -> bool {
        let what = self.on_full.is_some() || self.dead_letter.is_some();
        let what = what || self.priorities.is_some() || self.trace_messages;
        what || self.ttl.is_some() || self.max_deliveries.is_some() || self.remove_on_last_close
    }

    /// Sets the policy of a new queue.
    pub fn apply(&self, options: &mut OpenOptions) {
        if let Some(full) = self.on_full {
            options.on_full(full.into());
        }
        if let Some(time) = self.ttl {
            options.time_to_live(time);
        }
        if let Some(most) = self.max_deliveries {
            options.max_deliveries(most);
        }
        if let Some(name) = &self.dead_letter {
            options.dead_letter(name);
        }
        if let Some(delay) = self.retry_delay {
            options.retry_delay(delay.first, delay.most);
        }
        if let Some(after) = self.priorities {
            options.fair_priorities(after);
        }
        options.remove_on_last_close(self.remove_on_last_close);
        options.close_with_last_producer(self.close_with_last_producer);
        options.trace_messages(self.trace_messages);
    }

    /// Fails if the name of the dead-letter queue can't be a queue's name, or is the name of the queue itself.
    pub fn check(&self, namespace: &Namespace, queue: &Name) -> Result {
        let Some(dead_letter) = &self.dead_letter else {
            return Ok(());
        };
        let subject = format!("--dead-letter {dead_letter}");
        if dead_letter == queue {
            let line = format_args!("{subject} is the queue itself; name another queue");
            return Err(Failure::new(Code::Failed, line));
        }
        dead_letter.check()?;
        let found = OpenOptions::new()
            .write(true)
            .counted(false)
            .namespace(namespace)
            .open(dead_letter);
        match found {
            Err(
                error @ (OpenError::InvalidName | OpenError::DeniedName | OpenError::NameTooLong),
            ) => Err(Failure::of(subject, error)),
            // A missing dead-letter queue is created together with the queue. The library checks an existing dead-letter queue when it creates the
            // queue.
            _ => Ok(()),
        }
    }

    /// Creates the dead-letter queue of an existing queue if it is missing, with the capacity of the queue, and with `mode` as for a new queue.
    pub fn provide_dead_letter_queue(
        &self,
        namespace: &Namespace,
        queue: &Name,
        found: &Status,
        mode: Option<u32>,
    ) -> Result {
        let Some(dead_letter) = &self.dead_letter else {
            return Ok(());
        };
        let open = |options: &mut OpenOptions| {
            options.write(true).counted(false).namespace(namespace);
            options.open(dead_letter)
        };
        if !matches!(open(&mut OpenOptions::new()), Err(OpenError::NotFound)) {
            return Ok(());
        }
        if rustix::process::geteuid().as_raw() != found.uid {
            // A dead-letter queue of another user would get no message.
            let line = format_args!(
                "{queue}: the dead-letter queue {dead_letter} does not exist, and must belong to the owner of {queue}; run the command as that user"
            );
            return Err(Failure::new(Code::Failed, line));
        }
        let attributes = found.attributes;
        let mut options = OpenOptions::new();
        options
            .create(true)
            .max_messages(attributes.max_messages as u32)
            .message_size(attributes.message_size as u32);
        if let Some(mode) = mode {
            // The umask is already 0, as for a new queue.
            options.mode(mode);
        }
        match open(&mut options) {
            Ok(_) => Ok(()),
            Err(error) => Err(Failure::of(dead_letter, error)),
        }
    }

    /// Returns the policy of an existing queue where it differs from the given options.
    pub fn differences(&self, found: &Status) -> impl Iterator<Item = String> {
        let others = [
            self.on_full
                .is_some_and(|full| OnFull::from(full) != found.on_full)
                .then(|| format!("--on-full {}", json::on_full(found.on_full))),
            (self.remove_on_last_close && !found.remove_on_last_close)
                .then(|| "no --remove-on-last-close".to_owned()),
            (self.close_with_last_producer && !found.close_with_last_producer)
                .then(|| "no --close-with-last-producer".to_owned()),
            (self.trace_messages && !found.trace_messages)
                .then(|| "no --trace-messages".to_owned()),
            differs(
                "--retry-delay",
                self.retry_delay,
                found.retry_delay.map(RetryDelay::from),
                RetryDelay::to_string,
            ),
            differs("--ttl", self.ttl, found.time_to_live, |time| {
                time::length(*time)
            }),
            differs(
                "--max-deliveries",
                self.max_deliveries,
                found.max_deliveries,
                u32::to_string,
            ),
            self.priorities
                .is_some_and(|after| after != found.fair_priorities.unwrap_or(0))
                .then(|| format!("--priorities {}", json::priorities(found.fair_priorities))),
            differs(
                "--dead-letter",
                self.dead_letter.clone(),
                found.dead_letter.clone().map(Name::from),
                Name::to_string,
            ),
        ];
        others.into_iter().flatten()
    }
}

/// Returns the queue's value of an option if the option was given with another value.
fn differs<T: PartialEq>(
    option: &str,
    wanted: Option<T>,
    found: Option<T>,
    shown: impl Fn(&T) -> String,
) -> Option<String> {
    if wanted.is_none() || wanted == found {
        return None;
    }
    Some(match found {
        Some(found) => format!("{option} {}", shown(&found)),
        None => format!("no {option}"),
    })
}
