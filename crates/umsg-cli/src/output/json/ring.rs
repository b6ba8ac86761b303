//! JSON output of rings. A field keeps its name and meaning in later versions.

use serde::Serialize;
use umsg::ring::{FoundRing, Listed};

use super::super::time::utc;
use crate::commands::ls_ring::state;
use crate::failure::Explain;

/// A ring, as `stat` and `ls` print it.
#[derive(Serialize)]
pub struct Ring {
    pub name: String,
    /// open, disabled, closed or dead.
    pub state: &'static str,
    pub enabled: bool,
    pub closed: bool,
    pub owner_pid: u32,
    pub owner_alive: bool,
    pub messages: u64,
    pub entries: u32,
    /// The capacity of the overflow, in messages.
    pub overflow: u32,
    pub overflowing: u64,
    pub longest: usize,
    pub mode: String,
    pub uid: u32,
    pub gid: u32,
    pub created: String,
    pub senders: u32,
    pub blocked_senders: usize,
    pub memory: u64,
    pub damaged: bool,
    pub statistics: Statistics,
}

/// Numbers of events since the ring's creation.
#[derive(Serialize)]
pub struct Statistics {
    pub sends_blocked: u64,
    pub dropped: u64,
    pub slept: u64,
    pub spins_paid: u64,
    pub spun_seconds: f64,
    pub asleep_seconds: f64,
    pub repairs: u32,
}

impl Ring {
    pub fn new(name: String, found: &FoundRing) -> Ring {
        let status = &found.status;
        Ring {
            name,
            state: state(status),
            enabled: status.enabled,
            closed: status.closed,
            owner_pid: status.owner,
            owner_alive: status.owner_alive,
            messages: status.messages,
            entries: status.entries,
            overflow: status.overflow,
            overflowing: status.overflowing,
            longest: status.longest,
            mode: format!("{:04o}", status.mode),
            uid: found.uid,
            gid: found.gid,
            created: utc(status.created),
            senders: status.senders,
            blocked_senders: status.blocked_senders,
            memory: status.memory,
            damaged: status.damaged,
            statistics: Statistics {
                sends_blocked: status.sends_blocked,
                dropped: status.dropped,
                slept: status.slept,
                spins_paid: status.spun,
                spun_seconds: status.time_spun.as_secs_f64(),
                asleep_seconds: status.time_asleep.as_secs_f64(),
                repairs: status.repairs,
            },
        }
    }
}

/// A ring in a list.
#[derive(Serialize)]
#[serde(untagged)]
pub enum Entry {
    Known(Box<Ring>),
    Unknown { name: String, error: String },
}

impl Entry {
    pub fn new(listed: &Listed) -> Entry {
        let name = listed.name.to_string_lossy().into_owned();
        match &listed.found {
            Ok(found) => Entry::Known(Box::new(Ring::new(name, found))),
            Err(error) => Entry::Unknown {
                name,
                error: error.explain(),
            },
        }
    }
}
