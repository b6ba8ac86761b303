//! JSON output. A field keeps its name and meaning in later versions.

use std::io::{self, Write};
use std::time::SystemTime;

use data_encoding::BASE64;
use serde::{Deserialize, Serialize};
use umsg::posix::{self, DeadReason, EventKind, NotifyKind, OnFull, Peeked, Status};
use umsg::sysv;

use super::time::utc;
use crate::inlet::{Held, Rank};

/// Prints one value on one line.
pub fn print(out: &mut impl Write, value: &impl Serialize) -> io::Result<()> {
    serde_json::to_writer(&mut *out, value)?;
    out.write_all(b"\n")
}

/// Returns one value on one line.
pub fn line(value: &impl Serialize) -> Vec<u8> {
    let mut line = Vec::new();
    // Writing to memory can't fail, and JSON can represent all these values.
    let _ = print(&mut line, value);
    line
}

/// A queue, as `stat`, `ls` and `create` print it.
#[derive(Serialize)]
pub struct Queue {
    pub name: String,
    pub messages: usize,
    pub bytes: u64,
    pub max_messages: usize,
    pub message_size: usize,
    pub mode: String,
    pub uid: u32,
    pub gid: u32,
    pub creator_pid: u32,
    pub created: String,
    pub blocked_senders: usize,
    pub blocked_receivers: usize,
    pub last_send: Option<String>,
    pub last_receive: Option<String>,
    pub last_activity: Option<String>,
    pub registered: Option<Registered>,
    pub slots: usize,
    pub memory: u64,
    pub reserved: usize,
    pub leased: usize,
    pub delayed: usize,
    pub set_aside: usize,
    pub on_full: &'static str,
    pub ttl_seconds: Option<f64>,
    pub max_deliveries: Option<u32>,
    pub priorities: String,
    /// True if the queue notes the events of its messages.
    pub trace_messages: bool,
    pub dead_letter: Option<String>,
    pub undelivered: Option<String>,
    /// `stat` only: the dead letters in the queue, by reason.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dead_letters: Option<DeadLetters>,
    pub retry_delay_seconds: Option<f64>,
    pub retry_delay_limit_seconds: Option<f64>,
    pub remove_on_last_close: bool,
    pub send_closed: bool,
    pub close_with_last_producer: bool,
    pub producers: usize,
    pub damaged: bool,
    pub statistics: Statistics,
}

/// The numbers of messages with a history, by the reason for which they left their source.
#[derive(Clone, Copy, Default, Serialize)]
pub struct DeadLetters {
    pub expired: usize,
    pub undelivered: usize,
    pub dropped: usize,
    pub unknown: usize,
}

impl DeadLetters {
    /// Summarises dead letters. None if there are none.
    pub fn of(letters: &[posix::History]) -> Option<DeadLetters> {
        let mut of = DeadLetters::default();
        for letter in letters {
            *match letter.reason {
                DeadReason::Expired => &mut of.expired,
                DeadReason::Undelivered => &mut of.undelivered,
                DeadReason::Dropped => &mut of.dropped,
                _ => &mut of.unknown,
            } += 1;
        }
        (!letters.is_empty()).then_some(of)
    }
}

/// A process that is registered for a notification.
#[derive(Serialize)]
pub struct Registered {
    pub pid: u32,
    /// The notification: `signal`, `call` or `nothing`.
    pub by: &'static str,
    pub signal: Option<u32>,
}

/// Defines the numbers of events since a queue's creation: of all queues, and of one kind.
macro_rules! statistics {
    ($of:ty { $($own:ident: $type:ty,)* }) => {
        /// Numbers of events since the queue's creation.
        #[derive(serde::Serialize)]
        pub struct Statistics {
            sends_blocked: u64,
            receives_blocked: u64,
            handed_over: u64,
            spins_paid: u64,
            given_up: u64,
            waiters_died: u64,
            returned: u64,
            $($own: $type,)*
        }

        impl Statistics {
            fn new(counted: &$of) -> Statistics {
                Statistics {
                    sends_blocked: counted.sends_blocked,
                    receives_blocked: counted.receives_blocked,
                    handed_over: counted.handed_over,
                    spins_paid: counted.spins_paid,
                    given_up: counted.given_up,
                    waiters_died: counted.waiters_died,
                    returned: counted.returned,
                    $($own: counted.$own,)*
                }
            }
        }
    };
}
pub(super) use statistics;

statistics! {
    umsg::posix::Statistics {
        dropped: u64,
        expired: u64,
        dead_lettered: u64,
        sender_repairs: u32,
        receiver_repairs: u32,
    }
}

impl Queue {
    pub fn new(name: &str, status: &Status) -> Queue {
        let attributes = status.attributes;
        Queue {
            name: name.to_owned(),
            messages: attributes.messages,
            bytes: attributes.bytes,
            max_messages: attributes.max_messages,
            message_size: attributes.message_size,
            mode: format!("{:04o}", status.mode),
            uid: status.uid,
            gid: status.gid,
            creator_pid: status.creator,
            created: utc(status.created),
            blocked_senders: status.blocked_senders,
            blocked_receivers: status.blocked_receivers,
            last_send: status.last_send.map(utc),
            last_receive: status.last_receive.map(utc),
            last_activity: last_activity(status).map(utc),
            registered: status.registered.map(Registered::new),
            slots: status.slots,
            memory: status.memory,
            reserved: attributes.reserved,
            leased: attributes.leased,
            delayed: attributes.delayed,
            set_aside: status.set_aside,
            on_full: on_full(status.on_full),
            ttl_seconds: status.time_to_live.map(|time| time.as_secs_f64()),
            max_deliveries: status.max_deliveries,
            priorities: priorities(status.fair_priorities),
            trace_messages: status.trace_messages,
            dead_letter: status
                .dead_letter
                .as_ref()
                .map(|name| name.to_string_lossy().into_owned()),
            undelivered: status.undelivered.map(|why| why.to_string()),
            dead_letters: None,
            retry_delay_seconds: status.retry_delay.map(|(first, _)| first.as_secs_f64()),
            retry_delay_limit_seconds: status.retry_delay.map(|(_, most)| most.as_secs_f64()),
            remove_on_last_close: status.remove_on_last_close,
            send_closed: status.send_closed,
            close_with_last_producer: status.close_with_last_producer,
            producers: status.producers,
            damaged: status.damaged,
            statistics: Statistics::new(&status.statistics),
        }
    }
}

impl Registered {
    fn new(registered: umsg::posix::Registered) -> Registered {
        let (by, signal) = match registered.kind {
            NotifyKind::Signal(signal) => ("signal", Some(signal)),
            NotifyKind::Call => ("call", None),
            _ => ("nothing", None),
        };
        Registered {
            pid: registered.pid,
            by,
            signal,
        }
    }
}

/// Returns the order of priorities, as in `create --priorities`.
pub fn priorities(fair: Option<u32>) -> String {
    fair.map_or_else(|| "strict".to_owned(), |after| format!("fair:{after}"))
}

/// Returns the overflow policy, as in `create --on-full`.
pub fn on_full(on_full: OnFull) -> &'static str {
    match on_full {
        OnFull::Fail => "fail",
        OnFull::DropOldest => "drop-oldest",
        _ => "block",
    }
}

/// Returns the time of the last send or receive.
pub fn last_activity(status: &Status) -> Option<SystemTime> {
    status.last_send.max(status.last_receive)
}

/// A message, as `recv` and `peek` print it: one per line.
#[derive(Serialize)]
pub struct Message<'a> {
    pub queue: &'a str,
    /// `peek` without `--delayed`: the position in the order of delivery, from 0. For System V queues, the order is that of arrival.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub position: Option<usize>,
    /// POSIX only: a number that no other message of the queue has. A message has it from its first delivery on; `peek` may show none before.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub id: Option<u64>,
    #[serde(flatten)]
    rank: Picked,
    /// The length of the whole message, even if `recv --truncate` prints less.
    pub size: usize,
    pub sender_pid: u32,
    pub sent: String,
    /// `peek` only: the time at which a delayed message is due, or at which a queued message that was sent for a later time became due.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub due: Option<String>,
    /// The number of deliveries.
    pub deliveries: u32,
    /// The history of a dead letter, or of a message that was one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub history: Option<History>,
    /// `peek` only, in a queue that traces messages: the known events, the oldest first.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub events: Option<Vec<Event>>,
    /// The number of events behind the first one that are no longer known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub forgotten_events: Option<u32>,
    #[serde(flatten)]
    pub data: Data<'a>,
}

/// An event of a message.
#[derive(Serialize)]
pub struct Event {
    pub event: &'static str,
    pub at: String,
    pub pid: u32,
    /// The number of the delivery in the queue.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub delivery: Option<u32>,
}

impl Event {
    fn all_of(peeked: &Peeked) -> Option<Vec<Event>> {
        let events = peeked.events.iter().map(|event| Event {
            event: kind(event.kind),
            at: utc(event.at),
            pid: event.pid,
            delivery: event.delivery,
        });
        (!peeked.events.is_empty()).then(|| events.collect())
    }
}

/// The name of a kind of event.
pub fn kind(kind: EventKind) -> &'static str {
    match kind {
        EventKind::Sent => "sent",
        EventKind::Delivered => "delivered",
        EventKind::Returned => "returned",
        EventKind::TimedOut => "timed-out",
        EventKind::HolderDied => "holder-died",
        EventKind::DeadExpired => "dead-expired",
        EventKind::DeadUndelivered => "dead-undelivered",
        EventKind::DeadDropped => "dead-dropped",
        EventKind::Redriven => "redriven",
        _ => "unknown",
    }
}

impl<'a> Message<'a> {
    pub fn received(
        queue: &'a str,
        message: &Held<'_>,
        size: usize,
        bytes: &'a [u8],
    ) -> Message<'a> {
        Message {
            queue,
            position: None,
            id: message.id(),
            rank: message.rank().into(),
            size,
            sender_pid: message.pid(),
            sent: utc(message.sent()),
            due: None,
            deliveries: message.deliveries(),
            history: message.history().as_ref().map(History::new),
            events: None,
            forgotten_events: None,
            data: Data::of(bytes),
        }
    }

    pub fn peeked(queue: &'a str, position: Option<usize>, peeked: &'a Peeked) -> Message<'a> {
        Message {
            queue,
            position,
            id: peeked.id,
            rank: Rank::Priority(peeked.priority).into(),
            size: peeked.data.len(),
            sender_pid: peeked.pid,
            sent: utc(peeked.sent),
            due: peeked.due.map(utc),
            deliveries: peeked.returns,
            history: peeked.history.as_ref().map(History::new),
            events: Event::all_of(peeked),
            forgotten_events: Some(peeked.forgotten_events).filter(|count| *count != 0),
            data: Data::of(&peeked.data),
        }
    }

    /// Returns a message that passed: its number and rank, its size, and its sender, time and earlier deliveries.
    pub fn watched(
        queue: &'a str,
        (id, rank): (Option<u64>, Rank),
        size: usize,
        (pid, sent, returns): (u32, SystemTime, u32),
        bytes: &'a [u8],
    ) -> Message<'a> {
        Message {
            queue,
            position: None,
            id,
            rank: rank.into(),
            size,
            sender_pid: pid,
            sent: utc(sent),
            due: None,
            deliveries: returns,
            history: None,
            events: None,
            forgotten_events: None,
            data: Data::of(bytes),
        }
    }

    pub fn peeked_sysv(
        queue: &'a str,
        position: Option<usize>,
        peeked: &'a sysv::Peeked,
    ) -> Message<'a> {
        Message {
            queue,
            position,
            id: None,
            rank: Rank::Type(peeked.mtype).into(),
            size: peeked.len,
            sender_pid: peeked.pid,
            sent: utc(peeked.sent),
            due: peeked.due.map(utc),
            deliveries: peeked.returns,
            history: None,
            events: None,
            forgotten_events: None,
            data: Data::of(&peeked.data),
        }
    }
}

/// The history of a dead letter.
#[derive(Serialize)]
pub struct History {
    /// The number of the message in its queue, for `redrive --id`.
    pub id: u64,
    pub source: Option<String>,
    pub reason: &'static str,
    pub sender_pid: u32,
    pub sender_uid: Option<u32>,
    pub sent: String,
    pub first_delivery: Option<String>,
    pub last_delivery: Option<String>,
    pub deliveries: u32,
    pub dead: String,
    pub redrives: u32,
}

impl History {
    pub fn new(history: &posix::History) -> History {
        History {
            id: history.id,
            source: history
                .source
                .as_ref()
                .map(|name| name.to_string_lossy().into_owned()),
            reason: reason(history.reason),
            sender_pid: history.pid,
            sender_uid: history.uid,
            sent: utc(history.sent),
            first_delivery: history.first_delivery.map(utc),
            last_delivery: history.last_delivery.map(utc),
            deliveries: history.deliveries,
            dead: utc(history.dead),
            redrives: history.redrives,
        }
    }
}

/// A dead letter, as `redrive` prints it: its history, and its message.
#[derive(Serialize)]
pub struct Letter<'a> {
    #[serde(flatten)]
    history: History,
    size: usize,
    #[serde(flatten)]
    data: Data<'a>,
}

impl<'a> Letter<'a> {
    pub fn new(letter: &'a posix::PeekedLetter) -> Letter<'a> {
        Letter {
            history: History::new(&letter.history),
            size: letter.len,
            data: Data::of(&letter.data),
        }
    }
}

/// Returns the reason, as in `redrive --reason`.
pub fn reason(reason: DeadReason) -> &'static str {
    match reason {
        DeadReason::Expired => "expired",
        DeadReason::Undelivered => "undelivered",
        DeadReason::Dropped => "dropped",
        _ => "unknown",
    }
}

/// The priority of a POSIX message, or the type of a System V message.
#[derive(Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Picked {
    Priority(u32),
    Type(i64),
}

impl From<Rank> for Picked {
    fn from(rank: Rank) -> Picked {
        match rank {
            Rank::Priority(priority) => Picked::Priority(priority),
            Rank::Type(mtype) => Picked::Type(mtype),
        }
    }
}

/// A message's bytes.
#[derive(Serialize)]
#[serde(tag = "encoding", content = "data")]
pub enum Data<'a> {
    #[serde(rename = "utf-8")]
    Text(&'a str),
    #[serde(rename = "base64")]
    Bytes(String),
}

impl Data<'_> {
    pub fn of(bytes: &[u8]) -> Data<'_> {
        match std::str::from_utf8(bytes) {
            Ok(text) => Data::Text(text),
            Err(_) => Data::Bytes(BASE64.encode(bytes)),
        }
    }
}

/// A message that was read from a line of JSON, as [`Message`] is printed.
#[derive(Debug, PartialEq, Eq)]
pub struct Read {
    pub rank: Option<Rank>,
    pub data: Vec<u8>,
}

/// The fields of a message that are sent. Other fields are ignored.
#[derive(Deserialize)]
struct Fields {
    priority: Option<u32>,
    #[serde(rename = "type")]
    mtype: Option<i64>,
    size: Option<usize>,
    #[serde(default)]
    encoding: Encoding,
    data: String,
}

#[derive(Deserialize, Default)]
enum Encoding {
    #[default]
    #[serde(rename = "utf-8")]
    Text,
    #[serde(rename = "base64")]
    Base64,
}

impl Read {
    /// Fails with the reason.
    pub fn of(line: &[u8]) -> Result<Read, String> {
        let fields: Fields = serde_json::from_slice(line)
            .map_err(|error| format!("not a message of `umsg recv --json`: {error}"))?;
        let data = match fields.encoding {
            Encoding::Text => fields.data.into_bytes(),
            Encoding::Base64 => BASE64
                .decode(fields.data.as_bytes())
                .map_err(|error| format!("\"data\" is not base64: {error}"))?,
        };
        if let Some(size) = fields.size.filter(|&size| size != data.len()) {
            let there = data.len();
            return Err(format!(
                "\"size\" is {size}, but there are {there} bytes; receive the message without --truncate"
            ));
        }
        let rank = match (fields.priority, fields.mtype) {
            (Some(priority), _) if priority > 32_767 => {
                return Err("\"priority\" must be from 0 to 32767".to_owned());
            }
            (_, Some(mtype)) if mtype < 1 => return Err("\"type\" must be from 1 up".to_owned()),
            (Some(_), Some(_)) => {
                return Err("a message can't have both \"priority\" and \"type\"".to_owned());
            }
            (priority, mtype) => priority.map(Rank::Priority).or(mtype.map(Rank::Type)),
        };
        Ok(Read { rank, data })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn printed(bytes: &[u8]) -> String {
        let mut out = Vec::new();
        print(&mut out, &Data::of(bytes)).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn text_stays_text_and_other_bytes_become_base64() {
        assert_eq!(
            printed("grün\n".as_bytes()),
            "{\"encoding\":\"utf-8\",\"data\":\"grün\\n\"}\n"
        );
        assert_eq!(
            printed(&[0xFF]),
            "{\"encoding\":\"base64\",\"data\":\"/w==\"}\n"
        );
        assert_eq!(
            printed(&[0xFB, 0xFF]),
            "{\"encoding\":\"base64\",\"data\":\"+/8=\"}\n"
        );
    }

    #[test]
    fn a_printed_message_is_read_as_it_was() {
        for bytes in [&b"text\n"[..], b"\xff\0", b""] {
            let printed = serde_json::to_string(&Data::of(bytes)).unwrap();
            let line = printed.replacen('{', "{\"priority\":3,\"queue\":\"/q\",", 1);
            let read = Read::of(line.as_bytes()).unwrap();
            let rank = Some(Rank::Priority(3));
            assert_eq!(
                read,
                Read {
                    rank,
                    data: bytes.to_owned()
                }
            );
        }
        for wrong in [
            "",
            "{}",
            "[]",
            r#"{"data":"x","encoding":"base64"}"#,
            r#"{"data":"x","encoding":"latin-1"}"#,
            r#"{"data":"x","size":2}"#,
            r#"{"data":"x","priority":32768}"#,
            r#"{"data":"x","type":0}"#,
            r#"{"data":"x","type":1,"priority":1}"#,
            r#"{"data":"x"} y"#,
        ] {
            assert!(Read::of(wrong.as_bytes()).is_err(), "{wrong}");
        }
    }
}
