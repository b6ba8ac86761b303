//! `umsg stat`.

use std::ffi::OsString;
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;
use std::time::{Duration, SystemTime};

use clap::Args;
use umsg::Namespace;
use umsg::posix::{NotifyKind, Redrive, Registered, Status};

use super::{stat_ring, stat_sysv};
use crate::address::{Address, Subject, subject};
use crate::cli::Cli;
use crate::failure;
use crate::names::Name;
use crate::opened::{Opened, Purpose};
use crate::output::json::DeadLetters;
use crate::output::owner::Owners;
use crate::output::{self, Format, json, text, time};
use crate::place;

/// Show the state and the counters of a queue or ring
///
/// "blocked now" and "blocked so far" count calls that waited because the queue was full (sending) or empty (receiving). "handed over" counts
/// messages that went directly to a waiting receiver. "waits" has two numbers: waits that succeeded while spinning, and waits that ended by a
/// time-out or a signal; a wait that succeeded after a sleep is in neither. "deaths" counts waiting threads that died, and repairs after a thread
/// died in the middle of a call.
///
/// "held" counts messages that are in the queue's memory but can't be received now. Leased messages were received, and return if they are not
/// acknowledged. Reserved messages are being written. Messages that are set aside wait until a receive moves them to the dead-letter
/// queue; if that queue is full, they wait for room. Delayed messages were sent or returned for a later delivery.
///
/// "from other queues" counts the dead letters that other queues have moved to this queue, by reason.
///
/// "retry delay" is the delay before a message is delivered again if its receiver failed. "sending" shows whether the queue is open or closed for
/// sending. "closes" shows what closes the queue for sending: `umsg close`, or the end of its last producer.
///
/// "notifies" names the process that is registered for a notification of the next message. "too old" counts messages that were dropped or moved
/// because their time to live had ended. "memory" shows the bytes that the queue uses now, and the number of slots in them; a slot holds one message.
/// Times are UTC.
///
/// For a System V queue, "types" shows the lowest types in the queue, each with its number of messages. "bytes" shows the queued bytes and their
/// limit (qbytes). "changed" is the time of the last change of the queue's owner, mode or size.
///
/// For a ring, "receiver" is the process that owns the ring. "waits" counts the waits in which the receiver slept, and the waits that ended while the
/// receiver was spinning. "time waited" shows how long the receiver was spinning, and how long it slept. Spinning uses CPU time; a sleep uses only
/// some microseconds of CPU time.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  umsg stat /orders
  umsg stat key:0x1234              a System V queue
  umsg stat ring:/jobs              a ring
  umsg stat /orders --json | jq .messages")]
pub struct Stat {
    /// The queue: a name, or for System V key:0x1234 or id:32769; a ring as ring:/jobs
    #[arg(value_name = "QUEUE", value_parser = subject())]
    queue: Subject,
    #[command(flatten)]
    format: Format,
}

impl Stat {
    pub fn perform(&self, cli: &Cli) -> failure::Result {
        let namespace = place::existing(cli)?;
        let mut out = output::standard()?;
        match &self.queue {
            Subject::Queue(Address::Posix(name)) => self.print(&namespace, name, &mut out)?,
            Subject::Queue(Address::SystemV(label)) => {
                stat_sysv::print(&namespace, *label, self.format.json, &mut out)?;
            }
            Subject::Ring(name) => {
                stat_ring::print(&namespace, name, self.format.json, &mut out)?;
            }
        }
        Ok(out.flush()?)
    }

    fn print(&self, namespace: &Namespace, name: &Name, out: &mut impl Write) -> failure::Result {
        let opened = Opened::open(namespace, name, Purpose::Look)?;
        let status = opened.queue.status();
        // The histories of dead letters are left out if the caller has no permission to receive.
        let letters = opened.queue.dead_letters(&Redrive::new());
        let letters = letters.ok().and_then(|letters| DeadLetters::of(&letters));
        match self.format.json {
            true => {
                let queue = json::Queue::new(&name.lossy(), &status);
                json::print(
                    out,
                    &json::Queue {
                        dead_letters: letters,
                        ..queue
                    },
                )?;
            }
            false => print(out, &name.to_string(), &status, letters)?,
        }
        Ok(())
    }
}

fn no_process() -> String {
    "no process".to_owned()
}

fn registered_process(registered: Registered) -> String {
    let how = match registered.kind {
        NotifyKind::Signal(signal) => format!("by signal {signal}"),
        NotifyKind::Call => "by a function call".to_owned(),
        _ => "without notification".to_owned(),
    };
    format!("process {}, {how}", registered.pid)
}

/// Formats the delay before a returned message is delivered again.
pub fn retry_delay(delay: Option<(Duration, Duration)>) -> String {
    match delay {
        None => "none".to_owned(),
        Some((first, most)) if first == most => time::length(first),
        Some((first, most)) => {
            let (first, most) = (time::length(first), time::length(most));
            format!("{first}, doubling up to {most}")
        }
    }
}

/// Describes whether a queue is open for sending.
pub fn sending(send_closed: bool) -> &'static str {
    match send_closed {
        true => "closed; `umsg close --reopen` opens it again",
        false => "open",
    }
}

/// Describes the event that closes a queue for sending, with the number of producers if the queue counts producers.
pub fn closes(producers: Option<usize>) -> String {
    match producers {
        None => "by hand: `umsg close`".to_owned(),
        Some(producers) => format!("with its last producer; there are {producers}"),
    }
}

/// Returns the name of the dead-letter queue, and, if messages can't be moved to it, the reason.
fn dead_letters(status: &Status) -> String {
    let shown = |name: &OsString| text::on_one_line(name.as_bytes());
    let name = status.dead_letter.as_ref().map_or("none".to_owned(), shown);
    match status.undelivered {
        Some(why) => format!("{name}; messages stay set aside, because {why}"),
        None => name,
    }
}

fn print(
    out: &mut impl Write,
    name: &str,
    status: &Status,
    letters: Option<DeadLetters>,
) -> io::Result<()> {
    let (attributes, counted) = (status.attributes, status.statistics);
    let owner = Owners::new().name(status.uid);
    let mut line = |title: &str, text: String| writeln!(out, "{title:<18}{text}");
    line("name", name.to_owned())?;
    let (messages, depth) = (attributes.messages, attributes.max_messages);
    line("messages", format!("{messages} of {depth}"))?;
    let (leased, reserved, aside) = (attributes.leased, attributes.reserved, status.set_aside);
    let delayed = attributes.delayed;
    line(
        "held",
        format!("{leased} leased, {reserved} reserved, {aside} set aside, {delayed} delayed"),
    )?;
    line("bytes", attributes.bytes.to_string())?;
    line("message size", format!("{} bytes", attributes.message_size))?;
    line("on full", json::on_full(status.on_full).to_owned())?;
    let forever = || "for ever".to_owned();
    line(
        "kept",
        status.time_to_live.map_or_else(forever, time::length),
    )?;
    let most = |most| format!("at most {most}");
    let any = || "any number".to_owned();
    line("deliveries", status.max_deliveries.map_or_else(any, most))?;
    line("retry delay", retry_delay(status.retry_delay))?;
    line("priorities", json::priorities(status.fair_priorities))?;
    if status.trace_messages {
        line(
            "traces",
            format!("events of messages; see `umsg peek --long {name}`"),
        )?;
    }
    line("dead letters", dead_letters(status))?;
    if let Some(of) = letters {
        let text = format!(
            "{} too old, {} not delivered, {} dropped when full; see `umsg redrive {name}`",
            of.expired, of.undelivered, of.dropped
        );
        line("from other queues", text)?;
    }
    let end = match status.remove_on_last_close {
        true => "when no process has the queue open",
        false => "by hand: `umsg rm`",
    };
    line("removed", end.to_owned())?;
    line("sending", sending(status.send_closed).to_owned())?;
    let producers = status.close_with_last_producer.then_some(status.producers);
    line("closes", closes(producers))?;
    line("mode", format!("{:04o}", status.mode))?;
    line(
        "owner",
        format!("{owner} (uid {}, gid {})", status.uid, status.gid),
    )?;
    creation(&mut line, status.created, status.creator)?;
    line("last send", moment(status.last_send))?;
    line("last receive", moment(status.last_receive))?;
    let (senders, receivers) = (status.blocked_senders, status.blocked_receivers);
    blocked(&mut line, "blocked now", senders as u64, receivers as u64)?;
    line(
        "notifies",
        status
            .registered
            .map_or_else(no_process, registered_process),
    )?;
    let (sends, receives) = (counted.sends_blocked, counted.receives_blocked);
    blocked(&mut line, "blocked so far", sends, receives)?;
    line("handed over", format!("{} messages", counted.handed_over))?;
    line("came back", text::counted(counted.returned, "lease"))?;
    let (dropped, expired, moved) = (counted.dropped, counted.expired, counted.dead_lettered);
    line(
        "not delivered",
        format!("{dropped} dropped when full, {expired} too old, {moved} moved to dead letters"),
    )?;
    let (spins, given_up) = (counted.spins_paid, counted.given_up);
    waits(&mut line, spins, given_up)?;
    let repairs = u64::from(counted.sender_repairs) + u64::from(counted.receiver_repairs);
    line(
        "deaths",
        format!("{} waiting, {repairs} repaired", counted.waiters_died),
    )?;
    line(
        "memory",
        format!("{} bytes in {} slots", status.memory, status.slots),
    )?;
    damage(&mut line, status.damaged)
}

/// A function that prints a title and a text.
type Line<'a> = dyn FnMut(&str, String) -> io::Result<()> + 'a;

pub fn blocked(line: &mut Line<'_>, when: &str, senders: u64, receivers: u64) -> io::Result<()> {
    line(when, format!("{senders} sending, {receivers} receiving"))
}

pub fn creation(line: &mut Line<'_>, created: SystemTime, creator: u32) -> io::Result<()> {
    let created = moment(Some(created));
    line("created", format!("{created} by process {creator}"))
}

pub fn waits(line: &mut Line<'_>, spins: u64, given_up: u64) -> io::Result<()> {
    let text = format!("{spins} ended spinning, {given_up} given up");
    line("waits", text)
}

pub fn damage(line: &mut Line<'_>, is_damaged: bool) -> io::Result<()> {
    let what = "yes; see `umsg doctor`, which can repair it";
    match is_damaged {
        true => line("corrupted", what.to_owned()),
        false => Ok(()),
    }
}

pub fn moment(moment: Option<SystemTime>) -> String {
    match moment {
        Some(at) => format!("{} ({})", time::utc(at), time::ago(moment)),
        None => "never".to_owned(),
    }
}
