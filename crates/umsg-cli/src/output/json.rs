//! What programs get. A field keeps its name and its meaning for good.

use std::io::{self, Write};
use std::time::SystemTime;

use serde::Serialize;
use umsg::posix::{Peeked, Status};

use super::base64;
use super::time::utc;

/// One value on one line.
pub fn print(out: &mut impl Write, value: &impl Serialize) -> io::Result<()> {
    serde_json::to_writer(&mut *out, value)?;
    out.write_all(b"\n")
}

/// One value on one line, in memory.
pub fn line(value: &impl Serialize) -> Vec<u8> {
    let mut line = Vec::new();
    // Writing to memory can't fail, and these values have no form that JSON lacks.
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
    pub slots: usize,
    pub memory: u64,
    pub damaged: bool,
    pub statistics: Statistics,
}

/// How often what happened since the queue was made.
#[derive(Serialize)]
pub struct Statistics {
    pub sends_blocked: u64,
    pub receives_blocked: u64,
    pub handed_over: u64,
    pub spins_paid: u64,
    pub given_up: u64,
    pub waiters_died: u64,
    pub sender_repairs: u32,
    pub receiver_repairs: u32,
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
            slots: status.slots,
            memory: status.memory,
            damaged: status.damaged,
            statistics: Statistics::new(&status.statistics),
        }
    }
}

impl Statistics {
    fn new(counted: &umsg::posix::Statistics) -> Statistics {
        Statistics {
            sends_blocked: counted.sends_blocked,
            receives_blocked: counted.receives_blocked,
            handed_over: counted.handed_over,
            spins_paid: counted.spins_paid,
            given_up: counted.given_up,
            waiters_died: counted.waiters_died,
            sender_repairs: counted.sender_repairs,
            receiver_repairs: counted.receiver_repairs,
        }
    }
}

/// When a message was last sent or received.
pub fn last_activity(status: &Status) -> Option<SystemTime> {
    status.last_send.max(status.last_receive)
}

/// A message, as `recv` and `peek` print it: one a line.
#[derive(Serialize)]
pub struct Message<'a> {
    pub queue: &'a str,
    /// In order of delivery, from 0; of `peek` only.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub position: Option<usize>,
    pub priority: u32,
    pub size: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sender_pid: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sent: Option<String>,
    #[serde(flatten)]
    pub data: Data<'a>,
}

impl<'a> Message<'a> {
    pub fn received(queue: &'a str, priority: u32, bytes: &'a [u8]) -> Message<'a> {
        Message {
            queue,
            position: None,
            priority,
            size: bytes.len(),
            sender_pid: None,
            sent: None,
            data: Data::of(bytes),
        }
    }

    pub fn peeked(queue: &'a str, position: usize, peeked: &'a Peeked) -> Message<'a> {
        Message {
            position: Some(position),
            sender_pid: Some(peeked.pid),
            sent: Some(utc(peeked.sent)),
            ..Message::received(queue, peeked.priority, &peeked.data)
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
    fn of(bytes: &[u8]) -> Data<'_> {
        match std::str::from_utf8(bytes) {
            Ok(text) => Data::Text(text),
            Err(_) => Data::Bytes(base64::encode(bytes)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn printed(bytes: &[u8]) -> String {
        let mut out = Vec::new();
        print(&mut out, &Message::received("/q", 7, bytes)).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn text_stays_text_and_other_bytes_become_base64() {
        assert_eq!(
            printed("grün\n".as_bytes()),
            "{\"queue\":\"/q\",\"priority\":7,\"size\":6,\"encoding\":\"utf-8\",\"data\":\"grün\\n\"}\n"
        );
        assert_eq!(
            printed(&[0xFF]),
            "{\"queue\":\"/q\",\"priority\":7,\"size\":1,\"encoding\":\"base64\",\"data\":\"/w==\"}\n"
        );
    }
}
