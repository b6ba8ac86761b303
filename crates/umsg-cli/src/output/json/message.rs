//! JSON output of a message.

use std::time::SystemTime;

use data_encoding::BASE64;
use serde::Serialize;
use umsg::posix::Peeked;
use umsg::sysv;

use super::super::time::utc;
use super::{History, kind};
use crate::inlet::{Held, Rank};

/// A message, as `recv` and `peek` print it: one per line.
#[derive(Serialize)]
pub struct Message<'a> {
    pub queue: &'a str,
    /// `peek` without `--delayed`: the position in the order of delivery, from 0. For a System V queue, the position in the order of arrival.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub position: Option<usize>,
    /// POSIX only: a number that identifies the message in its queue. A message gets the number at its first delivery at the latest, so `peek` may
    /// show no number before.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub id: Option<u64>,
    #[serde(flatten)]
    rank: Picked,
    /// The length of the whole message, even if `recv --truncate` prints less.
    pub size: usize,
    pub sender_pid: u32,
    pub sent: String,
    /// `peek` only: the delivery time of a message that was sent or returned for a later delivery, whether the time has passed or not.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub due: Option<String>,
    /// The number of deliveries.
    pub deliveries: u32,
    /// The history of a dead letter, or of a message that was one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub history: Option<History>,
    /// `peek` only, for a queue that traces messages: the recorded events, the oldest first.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub events: Option<Vec<Event>>,
    /// The number of events, after the first one, that the queue no longer stores.
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
    /// The number of the delivery to which the event belongs. The first delivery in this queue has the number 1.
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

    /// Returns a message that `watch` has seen: its number and rank, its size, and its sender, time and earlier deliveries.
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

#[cfg(test)]
mod tests {
    use super::super::print;
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
}
