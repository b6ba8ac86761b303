//! JSON output. A field keeps its name and meaning in later versions.

pub mod doctor;
mod letter;
mod message;
mod queue;
mod read;
pub mod ring;
pub mod sysv;

use std::io::{self, Write};

use serde::Serialize;
use umsg::posix::{DeadReason, EventKind, OnFull};

pub use letter::{History, Letter};
pub use message::{Message, Picked};
pub use queue::{DeadLetters, Queue, last_activity};
pub use read::Read;

/// Prints a value on one line.
pub fn print(out: &mut impl Write, value: &impl Serialize) -> io::Result<()> {
    serde_json::to_writer(&mut *out, value)?;
    out.write_all(b"\n")
}

/// Returns a value on one line.
pub fn line(value: &impl Serialize) -> Vec<u8> {
    let mut line = Vec::new();
    // Writing to memory can't fail, and JSON can represent all these values.
    let _ = print(&mut line, value);
    line
}

/// Formats the order of priorities as for `create --priorities`.
pub fn priorities(fair: Option<u32>) -> String {
    fair.map_or_else(|| "strict".to_owned(), |after| format!("fair:{after}"))
}

/// Formats the overflow policy as for `create --on-full`.
pub fn on_full(on_full: OnFull) -> &'static str {
    match on_full {
        OnFull::Fail => "fail",
        OnFull::DropOldest => "drop-oldest",
        _ => "block",
    }
}

/// Returns the name of a kind of event.
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

/// Formats the reason as for `redrive --reason`.
pub fn reason(reason: DeadReason) -> &'static str {
    match reason {
        DeadReason::Expired => "expired",
        DeadReason::Undelivered => "undelivered",
        DeadReason::Dropped => "dropped",
        _ => "unknown",
    }
}
