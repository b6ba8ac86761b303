//! The local ends of bridges.
//!
//! | end | export | import |
//! |---|---|---|
//! | POSIX queue | leases | reserve and commit, with a record of the arrival: exactly once while the window holds |
//! | System V queue | leases | a send; a death between it and the note in the window repeats one message |
//! | ring | the bridge owns the ring; a spool queue keeps messages until they are exported | as System V |
//! | queue of the kernel | received into a spool queue; a death between the two loses one message | as System V |
//!
//! The spool of an export is the POSIX queue `/bridge.NAME.spool` of the namespace.

mod dead_letter;
mod exporter;
mod importer;
mod kernel;
mod opened;
mod polled;
mod spool;
mod waiting;

pub use dead_letter::DeadLetter;
pub use exporter::Exporter;
pub use importer::{Importer, Refusal};
pub use spool::{FIELDS, Spool};
pub use waiting::waiting;

use crate::window;
use bytes::Bytes;
use std::time::{Duration, SystemTime};
use umsg::{Namespace, posix, sysv};

/// The reason why a bridge leaves a queue.
pub const GONE: &str = "the queue was removed or replaced";

/// The value by which a queue sorts or finds a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Key {
    /// The priority of a POSIX queue.
    Priority(u32),
    /// The type of a System V queue.
    Type(i64),
    /// The fields of a message of a ring.
    Ring {
        /// The sender's value.
        user_data: u64,
        /// The sender's result.
        res: i32,
        /// The sender's flags.
        flags: u32,
    },
}

/// A message that was taken by lease and goes to the stream.
#[derive(Debug)]
pub struct Taken {
    /// The message.
    pub data: Bytes,
    /// The priority or the type of the message.
    pub key: Key,
    /// An id that no other message has, on any machine.
    pub id: String,
    /// The time of the send.
    pub sent: SystemTime,
    /// The process id of the sender.
    pub pid: u32,
    held: Held,
}

#[derive(Debug)]
enum Held {
    /// No lease: a test has made the message.
    Nothing,
    Posix(posix::Lease<'static>),
    Sysv(sysv::Lease<'static>),
}

impl Taken {
    /// Makes a message without a lease.
    #[must_use]
    pub fn new(data: Bytes, key: Key, (id, sent, pid): (String, SystemTime, u32)) -> Taken {
        Taken {
            data,
            key,
            id,
            sent,
            pid,
            held: Held::Nothing,
        }
    }

    /// Ends the lease: the message leaves the queue.
    ///
    /// # Errors
    /// The error is the sentence of the library.
    pub fn acknowledge(self) -> Result<(), String> {
        match self.held {
            Held::Nothing => Ok(()),
            Held::Posix(lease) => lease.acknowledge().map_err(|error| error.to_string()),
            Held::Sysv(lease) => lease.acknowledge().map_err(|error| error.to_string()),
        }
    }

    /// Returns the message to the queue, for a delivery after the given time. Meanwhile, the queue delivers the messages after it.
    pub fn return_after(self, delay: Duration) {
        // If `retry_after` fails, the drop of the lease returns the message at once.
        match self.held {
            Held::Nothing => {}
            Held::Posix(lease) => drop(lease.return_after(delay)),
            Held::Sysv(lease) => drop(lease.return_after(delay)),
        }
    }
}

/// A message that came from the stream, for any local end.
#[derive(Clone, Debug)]
pub struct Placing {
    /// The message.
    pub data: Bytes,
    /// The priority for a POSIX queue.
    pub priority: u32,
    /// The type for a System V queue.
    pub mtype: i64,
    /// The fields for a ring.
    pub ring: Option<Key>,
    /// The time of the first send.
    pub sent: Option<SystemTime>,
    /// The time to live in the source queue.
    pub ttl: Option<Duration>,
    /// The subject of the reply.
    pub reply_to: Option<String>,
    /// The unique [`name`] of the message, among the messages of all machines. 0: no bridge has published the message.
    pub name: u128,
}

impl Placing {
    /// Returns whether the time to live has ended since the first send.
    #[must_use]
    pub fn is_expired(&self) -> bool {
        let (Some(sent), Some(ttl)) = (self.sent, self.ttl) else {
            return false;
        };
        sent.elapsed().is_ok_and(|age| age > ttl)
    }
}

/// Returns the id of a message in a stream: the queue's identity, the message's number and the time of its send. The id is unique.
#[must_use]
pub fn id(identity: u64, number: u64, stamp: u64) -> String {
    format!("umsg-{identity:016x}-{number:x}-{stamp:x}")
}

/// Returns the name of the message with this id, as a number. None: the id was made by another program, which may use the id for several messages.
#[must_use]
pub fn name(id: &str) -> Option<u128> {
    let mut words = id.strip_prefix("umsg-")?.split('-');
    let mut word = || u64::from_str_radix(words.next()?, 16).ok();
    let (identity, number, stamp) = (word()?, word()?, word()?);
    // Two messages of one queue differ in the number or the time. The identities of two queues are hashes, so the names differ.
    let name = u128::from(identity ^ stamp.rotate_left(32)) << 64 | u128::from(number);
    Some(name).filter(|name| *name != 0 && words.next().is_none())
}

/// Returns the identity of the machine's present boot.
fn boot() -> Vec<u8> {
    std::fs::read("/proc/sys/kernel/random/boot_id").unwrap_or_default()
}

/// Returns the identity of a POSIX queue, unique among the queues of all machines.
fn posix_identity(queue: &posix::Queue) -> u64 {
    let (device, _) = queue.identity();
    window::key(&[
        &boot(),
        &device.to_le_bytes(),
        &queue.serial().to_le_bytes(),
    ])
}

/// Returns the identity of a ring, unique among the rings of all machines. `file` is the inode number of the ring's file, and the time of the ring's
/// creation.
fn ring_identity(namespace: &Namespace, file: (u64, u64)) -> u64 {
    use std::os::unix::fs::MetadataExt;
    let device = std::fs::metadata(namespace.path()).map_or(0, |place| place.dev());
    let words = [device, file.0, file.1].map(u64::to_le_bytes);
    window::key(&[&boot(), words.as_flattened()])
}

/// Returns the identity of a queue of the kernel, unique among the queues of all machines.
fn kernel_identity(queue: &kernel::Queue) -> u64 {
    let (device, inode) = queue.file().unwrap_or_default();
    window::key(&[&boot(), &device.to_le_bytes(), &inode.to_le_bytes()])
}

/// Returns the identity of a System V queue, unique among the queues of all machines.
fn sysv_identity(queue: &sysv::Queue, namespace: &Namespace) -> u64 {
    use std::os::unix::fs::MetadataExt;
    let place = std::fs::metadata(namespace.path()).map_or([0, 0], |file| [file.dev(), file.ino()]);
    let place = place.map(u64::to_le_bytes).concat();
    window::key(&[&boot(), &place, &queue.id().to_le_bytes()])
}
