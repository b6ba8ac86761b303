//! The state of each pair, and the lines that report it.

use std::io::Write;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use serde::Serialize;

use super::pair::Pair;
use crate::output::json;

/// The counts and the state of a pair.
pub struct Board {
    from: String,
    to: String,
    label: String,
    is_json: bool,
    messages: AtomicU64,
    bytes: AtomicU64,
    dead_lettered: AtomicU64,
    /// The error after which the pair waits; empty while the pair works.
    trouble: Mutex<String>,
}

#[derive(Serialize)]
struct Line<'a> {
    from: &'a str,
    to: &'a str,
    state: &'a str,
    error: Option<&'a str>,
    messages: u64,
    bytes: u64,
    dead_lettered: u64,
}

impl Board {
    pub fn new(pair: &Pair, is_json: bool) -> Board {
        Board {
            from: pair.from(),
            to: pair.to(),
            label: pair.to_string(),
            is_json,
            messages: AtomicU64::new(0),
            bytes: AtomicU64::new(0),
            dead_lettered: AtomicU64::new(0),
            trouble: Mutex::new(String::new()),
        }
    }

    /// Counts a message that has arrived in its destination queue.
    pub fn carried(&self, bytes: usize) {
        // Relaxed: the counts publish no other data.
        self.messages.fetch_add(1, Ordering::Relaxed);
        self.bytes.fetch_add(bytes as u64, Ordering::Relaxed);
        self.works();
    }

    /// Counts a message that went to the dead-letter queue.
    pub fn dead_lettered(&self) {
        // Relaxed: the count publishes no other data.
        self.dead_lettered.fetch_add(1, Ordering::Relaxed);
        self.works();
    }

    /// Records an error after which the pair tries again. Prints the error only if it differs from the last recorded error.
    pub fn waits(&self, why: &str) {
        let mut trouble = self.trouble.lock().unwrap_or_else(PoisonError::into_inner);
        if *trouble == why {
            return;
        }
        why.clone_into(&mut trouble);
        drop(trouble);
        eprintln!("umsg: {}: {why}", self.label);
        if self.is_json {
            self.report("waiting");
        }
    }

    /// Clears a recorded error, and prints that the pair works again.
    pub fn works(&self) {
        let mut trouble = self.trouble.lock().unwrap_or_else(PoisonError::into_inner);
        if !trouble.is_empty() {
            trouble.clear();
            drop(trouble);
            self.report("running");
        }
    }

    /// Prints a line with the pair's current state.
    pub fn tell(&self) {
        let is_well = self
            .trouble
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .is_empty();
        self.report(if is_well { "running" } else { "waiting" });
    }

    /// Prints a line with this state and the counts. Ignores a failed write, because the relay needs no output to carry messages.
    pub fn report(&self, state: &str) {
        // The lock is released before the write: a write to a full pipe may block, and the pair needs the lock for each message.
        let trouble = self
            .trouble
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone();
        let load = |count: &AtomicU64| count.load(Ordering::Relaxed);
        let line = Line {
            from: &self.from,
            to: &self.to,
            state,
            error: Some(trouble.as_str()).filter(|error| !error.is_empty()),
            messages: load(&self.messages),
            bytes: load(&self.bytes),
            dead_lettered: load(&self.dead_lettered),
        };
        let mut out = std::io::stdout().lock();
        let _ = match self.is_json {
            true => json::print(&mut out, &line),
            false => {
                let error = line.error.map(|error| format!("; {error}"));
                writeln!(
                    out,
                    "{}: {state}, {} messages, {} bytes, {} dead letters{}",
                    self.label,
                    line.messages,
                    line.bytes,
                    line.dead_lettered,
                    error.unwrap_or_default()
                )
            }
        };
        let _ = out.flush();
    }
}
