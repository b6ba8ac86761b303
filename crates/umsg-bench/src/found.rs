//! The results of a suite: rows, and for rings whole distributions.

use serde::{Deserialize, Serialize};

use crate::company::Load;
use crate::row::Row;

/// The results of one suite.
#[derive(Debug, Default)]
pub struct Found {
    pub rows: Vec<Row>,
    pub latencies: Vec<Latencies>,
    pub kill_trials: Vec<KillTrial>,
}

impl Found {
    /// Marks a row's figures as doubtful if its rounds differ too much, or if other programs took much CPU time during the suite.
    pub fn settle(&mut self, load: &Load) {
        let settle = |row: Row| match load.is_loud() && !row.rounds.umsg.is_single() {
            true => row.disbelieve(load.describe().unwrap_or_default()),
            false => row.settle(),
        };
        self.rows = std::mem::take(&mut self.rows)
            .into_iter()
            .map(settle)
            .collect();
        if let (false, Some(first)) = (load.is_loud(), self.rows.first_mut()) {
            first.notes.extend(load.describe());
        }
    }
}

impl From<Vec<Row>> for Found {
    fn from(rows: Vec<Row>) -> Self {
        Self {
            rows,
            ..Self::default()
        }
    }
}

/// The latencies of the messages of one variant over all rounds, measured at one end. They are the duration of the sender's post, or the time from
/// the post until the message is received.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Latencies {
    /// The kind of the sender and the receiver: "threads" or "processes".
    pub place: String,
    /// Microseconds from one message to the next.
    pub cadence_us: u64,
    /// "umsg, adaptive", "io_uring, blocked" and so on.
    pub way: String,
    /// "sender" or "receiver".
    pub end: String,
    /// The number of sent messages.
    pub sent: u64,
    /// The number of messages that the cadence required.
    pub expected: u64,
    /// Pairs of a percentile, and the latency in nanoseconds that this share of the messages did not exceed.
    pub percentiles: Vec<(f64, u64)>,
}

/// The trials in which one of two processes was killed at work, and the number of trials that left another process stuck. The document has the trials
/// under "kill_trials".
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct KillTrial {
    /// The carrier of the messages: "umsg", "Boost.Interprocess" and so on, with ", sender killed" or ", receiver killed".
    pub peer: String,
    /// The number of killed processes.
    pub kills: u32,
    /// The number of kills after which a surviving process could not continue.
    pub stuck: u32,
}
