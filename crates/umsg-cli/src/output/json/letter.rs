//! JSON output of a dead letter.

use serde::Serialize;
use umsg::posix;

use super::super::time::utc;
use super::message::Data;
use super::reason;

/// The history of a dead letter.
#[derive(Serialize)]
pub struct History {
    /// The ID of the message in its queue, for `redrive --id`.
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
