//! `umsg watch`.
//!
//! | what | where |
//! |---|---|
//! | which messages of a look are new | [`memory`] |
//! | how many messages a second are shown | [`budget`] |
//! | the forms of a message | [`decode`] |

mod budget;
mod decode;
mod memory;

use std::ffi::OsString;
use std::fmt::Display;
use std::io::Write;
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use clap::Args;
use umsg::sysv::ControlError;
use umsg::{Namespace, posix, sysv};

use crate::address::{Address, Label, address};
use crate::attached::Attached;
use crate::cli::Cli;
use crate::failure::{Code, Failure, Result, say};
use crate::inlet::Rank;
use crate::names::Name;
use crate::opened::{GLANCE, Opened, Purpose};
use crate::output::{self, Format, json};
use crate::{place, values};
use budget::Budget;
use decode::{Decoder, Style};
use memory::Memory;

/// The time between two looks. In a look, the command copies messages at the head of the queue.
const PAUSE: Duration = Duration::from_millis(20);

/// The time between two looks at an unchanged queue with held messages.
const HELD: Duration = Duration::from_millis(200);
/// The maximum number of messages that a look copies. Receivers wait during the copy.
const MOST: usize = 256;
/// The approximate maximum number of bytes that a look copies.
const MOST_BYTES: usize = 256 << 10;

/// Show messages as they pass through a queue, and leave them in the queue
///
/// The command shows a copy of each message once: first the messages in the queue, then new ones. 50 times a second, the command looks at up to 256
/// messages at the head of the queue. If the queue has not changed since the last look, the command takes no lock. Otherwise, receivers wait while
/// the command copies the messages.
///
/// The command misses messages that are received between two looks, and messages that go directly to a waiting receiver. If messages were
/// missed, a line on standard error counts them, at most once a second and once more at the end. To see every message, let a program receive each
/// message and send it to another queue.
///
/// --rate limits the messages that are shown per second; a line on standard error counts the messages that are not shown. Leased messages (received,
/// but not yet acknowledged) are shown only if they return, and delayed messages only after their delay.
///
/// With --exec, the command runs COMMAND for each message, with the message as its standard input, and shows the output of COMMAND instead of the
/// message. The command waits for the end of COMMAND before it looks at the queue again.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  umsg watch /orders
  umsg watch /orders --as json          pretty-printed
  umsg watch key:0x1234 --as hex --rate 5
  umsg watch /orders --json | jq -r .data
  umsg watch /events --exec protoc --decode_raw

Exit codes:
  0    --count messages were shown, or the program that reads the output ended
  1    failed; one line on standard error gives the reason and what to do
  2    the command line is wrong
  4    the queue was removed
  126  the command of --exec can't be executed
  127  the command of --exec was not found")]
pub struct Watch {
    /// The queue: a name, or for System V key:0x1234 or id:32769
    #[arg(value_name = "QUEUE", value_parser = address())]
    queue: Address,
    /// Show at most this many messages per second, at least 1
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    rate: u32,
    /// End after this many messages
    #[arg(long, short, value_name = "N", value_parser = values::size)]
    count: Option<u64>,
    /// The form in which a message is shown
    #[arg(long = "as", value_enum, value_name = "FORM", default_value_t = Style::Text, conflicts_with = "json")]
    style: Style,
    /// Print nothing on standard error about messages that are not shown
    #[arg(long, short)]
    quiet: bool,
    #[command(flatten)]
    format: Format,
    /// Run this command for each message, and show its output
    #[arg(long, value_name = "COMMAND", num_args = 1.., allow_hyphen_values = true)]
    exec: Option<Vec<OsString>>,
}

/// A copy of a message.
pub struct Seen {
    rank: Rank,
    pid: u32,
    sent: SystemTime,
    returns: u32,
    id: Option<u64>,
    data: Vec<u8>,
}

/// The watched POSIX or System V queue.
#[allow(clippy::large_enum_variant, reason = "a command has one, on its stack")]
enum Watched<'a> {
    Posix(Opened<'a>),
    SystemV(Attached),
}

/// The numbers of messages that have come to the queue and that have left it, since its creation.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Passed {
    sent: u64,
    removed: u64,
    /// The leased and the delayed messages, which may come back without a call of another process.
    held: u64,
}

impl Watch {
    pub fn perform(&self, cli: &Cli) -> Result {
        let namespace = place::existing(cli)?;
        let decoder = Decoder::new(self.style, self.exec.as_deref())?;
        let watched = Watched::open(&namespace, &self.queue)?;
        if self.count == Some(0) {
            return Ok(());
        }
        Watching {
            options: self,
            name: self.queue.lossy(),
            memory: Memory::default(),
            budget: Budget::new(self.rate),
            shown: 0,
            seen: 0,
            tally: Tally::new(),
        }
        .run(&watched, &decoder)
    }
}

/// Counts the messages that were not shown.
struct Tally {
    /// Messages that --rate suppressed.
    over_rate: u64,
    /// Messages that were received between two looks.
    unseen: u64,
    told: (u64, u64),
    at: Instant,
}

impl Tally {
    fn new() -> Tally {
        Tally {
            over_rate: 0,
            unseen: 0,
            told: (0, 0),
            at: Instant::now(),
        }
    }

    /// Reports the messages that were not shown: at most once a second, and once more at the end.
    fn tell(&mut self, queue: impl Display, is_end: bool) {
        let now = (self.over_rate, self.unseen);
        if now == self.told || !is_end && self.at.elapsed() < Duration::from_secs(1) {
            return;
        }
        let counts = [
            (now.0 - self.told.0, "not shown because of --rate"),
            (
                now.1 - self.told.1,
                "missed, because they were received between two looks",
            ),
        ];
        let counts = counts.iter().filter(|(count, _)| *count != 0);
        let counts: Vec<String> = counts
            .map(|(count, why)| format!("{count} {why}"))
            .collect();
        say(format_args!("{queue}: {}", counts.join("; ")));
        (self.told, self.at) = (now, Instant::now());
    }
}

struct Watching<'a> {
    options: &'a Watch,
    name: String,
    memory: Memory,
    budget: Budget,
    shown: u64,
    /// The number of distinct messages that the looks have found.
    seen: u64,
    tally: Tally,
}

impl Watching<'_> {
    fn run(mut self, watched: &Watched<'_>, decoder: &Decoder<'_>) -> Result {
        let begin = watched.passed()?;
        let mut last = None;
        let mut checked = Instant::now();
        let mut looked = checked;
        loop {
            let passed = watched.passed()?;
            // A look delivers the messages whose delay or holder has ended.
            let may_return = passed.held != 0 && looked.elapsed() >= HELD;
            if last != Some(passed) || may_return {
                let messages = watched.look()?;
                looked = Instant::now();
                let waiting = messages.len() as u64;
                if self.show(messages, decoder)? {
                    break;
                }
                // The result is a lower bound of the missed messages: it assumes that all messages found by earlier looks, except those still in the
                // queue, have left.
                let left = passed.removed.saturating_sub(begin.removed);
                let known = self.seen.saturating_sub(waiting);
                self.tally.unseen = self.tally.unseen.max(left.saturating_sub(known));
                last = Some(passed);
            }
            if !self.options.quiet {
                self.tally.tell(&self.options.queue, false);
            }
            if checked.elapsed() >= GLANCE {
                watched.check_name()?;
                output::direct::Direct::open()?
                    .is_abandoned()
                    .then_some(())
                    .map_or(Ok(()), |()| Err(Failure::ReaderGone))?;
                checked = Instant::now();
            }
            thread::sleep(PAUSE);
        }
        if !self.options.quiet {
            self.tally.tell(&self.options.queue, true);
        }
        Ok(())
    }

    /// Shows the messages of a look that no earlier look has found. Returns whether --count is reached.
    fn show(&mut self, messages: Vec<Seen>, decoder: &Decoder<'_>) -> Result<bool> {
        let new = self.memory.new_ones(messages);
        let mut out = output::standard()?;
        for message in &new {
            self.seen += 1;
            if !self.budget.spend() {
                self.tally.over_rate += 1;
                continue;
            }
            if self.options.format.json {
                let bytes = decoder.filtered(&message.data)?;
                json::print(&mut out, &self.json(message, &bytes))?;
            } else {
                out.write_all(decoder.render(message)?.as_bytes())?;
            }
            self.shown += 1;
            if self.options.count.is_some_and(|most| self.shown >= most) {
                out.flush()?;
                return Ok(true);
            }
        }
        out.flush()?;
        // With `--count 0`, the count is reached at once.
        Ok(self.options.count == Some(0))
    }

    fn json<'m>(&'m self, message: &Seen, bytes: &'m [u8]) -> json::Message<'m> {
        json::Message::watched(
            &self.name,
            (message.id, message.rank),
            message.data.len(),
            (message.pid, message.sent, message.returns),
            bytes,
        )
    }
}

impl<'a> Watched<'a> {
    fn open(namespace: &'a Namespace, queue: &'a Address) -> Result<Watched<'a>> {
        match queue {
            Address::Posix(name) => Watched::posix(namespace, name),
            Address::SystemV(label) => Watched::sysv(namespace, *label),
        }
    }

    fn posix(namespace: &'a Namespace, name: &'a Name) -> Result<Watched<'a>> {
        Opened::open(namespace, name, Purpose::See).map(Watched::Posix)
    }

    fn sysv(namespace: &Namespace, label: Label) -> Result<Watched<'a>> {
        Attached::open(namespace, label).map(Watched::SystemV)
    }

    /// Returns the numbers of messages that came and left, without a lock.
    fn passed(&self) -> Result<Passed> {
        match self {
            Watched::Posix(opened) => {
                let seen = opened.queue.glance();
                Ok(Passed {
                    sent: seen.sent,
                    removed: seen.removed,
                    held: (seen.attributes.leased as u64)
                        .saturating_add(seen.attributes.delayed as u64),
                })
            }
            Watched::SystemV(attached) => {
                let seen = attached.queue.glance();
                let seen = seen.map_err(|error| gone(attached, error))?;
                Ok(Passed {
                    sent: seen.sent,
                    removed: seen.removed,
                    held: seen.leased.saturating_add(seen.delayed),
                })
            }
        }
    }

    /// Copies the messages that are received next.
    fn look(&self) -> Result<Vec<Seen>> {
        match self {
            Watched::Posix(opened) => {
                let longest = opened.queue.attributes().message_size;
                let messages = opened.queue.messages(most(longest));
                let messages = messages.map_err(|error| opened.not_seen(&error))?;
                Ok(messages.into_iter().map(Seen::posix).collect())
            }
            Watched::SystemV(attached) => {
                // The call delivers the messages whose delay or holder has ended. Its errors are also those of the next call.
                let _ = attached.queue.status();
                let messages = attached.queue.messages(most(attached.queue.msgmax()));
                let messages = messages.map_err(|error| match error {
                    sysv::ReceiveError::Removed => gone(attached, ControlError::Removed),
                    error => attached.not_seen(&error),
                })?;
                Ok(messages.into_iter().map(Seen::sysv).collect())
            }
        }
    }

    fn check_name(&self) -> Result {
        match self {
            Watched::Posix(opened) => opened.check_name(),
            // For a System V queue, this check is not needed: the next look fails if the queue was removed.
            Watched::SystemV(_) => Ok(()),
        }
    }
}

/// Returns the maximum number of messages of a look, for a queue whose longest message has `longest` bytes.
fn most(longest: usize) -> usize {
    (MOST_BYTES / longest.max(1)).clamp(1, MOST)
}

fn gone(attached: &Attached, error: ControlError) -> Failure {
    match error {
        ControlError::Removed => {
            let line = format_args!("{}: the queue was removed", attached.label);
            Failure::new(Code::Removed, line)
        }
        error => attached.not_told(error),
    }
}

impl Seen {
    fn posix(peeked: posix::Peeked) -> Seen {
        Seen {
            rank: Rank::Priority(peeked.priority),
            pid: peeked.pid,
            sent: peeked.sent,
            returns: peeked.returns,
            id: peeked.id,
            data: peeked.data,
        }
    }

    fn sysv(peeked: sysv::Peeked) -> Seen {
        Seen {
            rank: Rank::Type(peeked.mtype),
            pid: peeked.pid,
            sent: peeked.sent,
            returns: peeked.returns,
            id: None,
            data: peeked.data,
        }
    }
}
