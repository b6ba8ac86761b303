//! Opens local queues, and makes missing queues if the configuration says so.

use crate::config::{Bridge, End, NewQueue};
use umsg::posix::{self, OpenError};
use umsg::{Namespace, sysv};

/// Returns the error of a queue that does not exist.
fn missing(end: &End, why: &dyn std::fmt::Display) -> String {
    format!("`queue` {end}: {why}. Create the queue, or set `create_queue`")
}

/// Opens a POSIX queue for sending and receiving.
///
/// # Errors
/// The error is a sentence that names the setting.
pub fn posix(
    namespace: &Namespace,
    (name, new): (&str, Option<&NewQueue>),
) -> Result<posix::Queue, String> {
    let mut options = posix::OpenOptions::new();
    options.read(true).write(true).namespace(namespace);
    if let Some(new) = new {
        options.create(true).max_messages(new.max_messages);
        options.message_size(u32::try_from(new.message_size.0).unwrap_or(u32::MAX));
    }
    options.open(name).map_err(|error| match error {
        OpenError::NotFound => missing(&End::Posix(name.to_owned()), &error),
        error => format!("`queue` {name}: {error}"),
    })
}

/// Opens a System V queue.
///
/// # Errors
/// The error is a sentence that names the setting.
pub fn sysv(namespace: &Namespace, bridge: &Bridge) -> Result<sysv::Queue, String> {
    let mut options = sysv::OpenOptions::new();
    options.namespace(namespace);
    options.create(bridge.create_queue.is_some()).mode(0o600);
    let opened = match bridge.queue {
        End::Id(id) => options.open_id(id),
        End::Key(key) => options.open(key),
        _ => {
            return Err(format!(
                "`queue` {}: this is not a System V queue",
                bridge.queue
            ));
        }
    };
    opened.map_err(|error| missing(&bridge.queue, &error))
}

/// Opens the queue for messages that can't be placed. Makes the queue if it is missing: each message must have a place.
///
/// # Errors
/// The error is a sentence that names the setting.
pub fn dead_letter(namespace: &Namespace, name: &str) -> Result<posix::Queue, String> {
    let mut options = posix::OpenOptions::new();
    options
        .read(true)
        .write(true)
        .create(true)
        .namespace(namespace);
    options.max_messages(65_536).message_size(16 << 20);
    let opened = options.open(name);
    opened.map_err(|error| format!("`dead_letter` {name}: {error}"))
}
