//! The kernel's own System V queues, through the libc names.

use std::fs;

use super::identifier::{IdentifierQueue, Names, Source};
use super::register::Entry;
use super::{DEFAULT_BYTES, SIZE, TypedQueue as _};
use crate::failure::Failure;

/// A queue of the kernel.
pub type KernelQueue = IdentifierQueue<Kernel>;

pub struct Kernel;

impl Source for Kernel {
    const WHOSE: &'static str = "the kernel's";

    fn names() -> Result<Names, Failure> {
        Ok(Names {
            get: libc::msgget,
            send: libc::msgsnd,
            receive: libc::msgrcv,
            control: libc::msgctl,
        })
    }

    fn register() -> Result<Option<Entry>, Failure> {
        Entry::new().map(Some)
    }
}

/// Returns the number of messages, at most `wanted`, that fit into one kernel queue.
///
/// # Errors
/// Fails if the kernel creates no queue.
pub fn deepest(wanted: u64) -> Result<u64, Failure> {
    if KernelQueue::make(wanted * SIZE).is_ok() {
        return Ok(wanted);
    }
    let bytes = limit("msgmnb").parse().unwrap_or(DEFAULT_BYTES);
    KernelQueue::make(bytes)?;
    Ok(wanted.min(bytes / SIZE))
}

/// Returns a note on this depth and its reason.
pub fn describe(depth: u64, wanted: u64) -> String {
    let why = if depth < wanted {
        format!(
            "all that it lets us put into one queue (msgmnb {})",
            limit("msgmnb")
        )
    } else if wanted * SIZE <= DEFAULT_BYTES {
        format!("within the {DEFAULT_BYTES} bytes that it gives everybody")
    } else {
        "for which root raised the limit of a queue's bytes, in an IPC namespace of our own or with IPC_SET".to_owned()
    };
    format!("kernel at {depth} messages, {why}")
}

/// Returns the kernel's limit of this name, for the present IPC namespace.
fn limit(name: &str) -> String {
    let text = fs::read_to_string(format!("/proc/sys/kernel/{name}"));
    text.map_or_else(|_| "?".to_owned(), |text| text.trim().to_owned())
}
