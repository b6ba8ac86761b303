//! The spool of an export: rings and queues of the kernel have no leases, so their messages first move to a POSIX queue, and are exported from it.

use super::kernel;
use super::{Key, opened};
use crate::config::{Bridge, End, MOST_MESSAGES, NewQueue, Size};
use crate::crash::{self, Point};
use crate::log::{self, Level};
use bytes::Bytes;
use rustix::io::Errno;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::Interest;
use umsg::Namespace;
use umsg::posix::{self, Reservation, SendError, Until};
use umsg::ring::{AsyncRing, INLINE, Options, ReceiveError};

/// The default number of entries of a ring.
const ENTRIES: u32 = 1024;
/// The number of messages after which the spool lets other tasks of the thread run.
const TURN: u32 = 32;
/// The length of the fields of a ring's message.
pub const FIELDS: usize = 16;
/// The time without a message after which the bridge checks whether the name of a kernel queue still refers to that queue.
const IDLE: Duration = Duration::from_secs(1);
/// The maximum time for which the last messages of a ring wait for room in the spool.
const LAST: Duration = Duration::from_secs(4);

/// Opens the spool of a bridge.
pub(super) fn queue(namespace: &Namespace, bridge: &Bridge) -> Result<posix::Queue, String> {
    let source = bridge
        .create_queue
        .as_ref()
        .map_or(8192, |new| new.message_size.0);
    // A queue of the kernel that another program made may have longer messages, up to the system's limit.
    let longest = match &bridge.queue {
        End::Kernel(name) => {
            kernel::Queue::open(name, bridge.create_queue.as_ref(), Interest::READABLE)?
                .message_size() as u64
        }
        _ => longest_in_ring(source),
    };
    let ring = match &bridge.queue {
        End::Ring(_) => bridge
            .create_queue
            .as_ref()
            .map_or(ENTRIES, |new| new.max_messages),
        _ => 0,
    };
    let new = NewQueue {
        // The spool has room for all messages of the ring when the ring ends, in addition to the messages that wait for the stream.
        max_messages: ring
            .saturating_add((4 * bridge.window).max(1024) as u32)
            .min(MOST_MESSAGES),
        message_size: Size(longest + FIELDS as u64),
    };
    opened::posix(namespace, (&name(bridge), Some(&new)))
}

/// Returns the name of the spool of a bridge.
pub(super) fn name(bridge: &Bridge) -> String {
    format!("/bridge.{}.spool", bridge.name)
}

/// Returns the longest payload of a ring, in bytes: the setting, but at least [`INLINE`].
fn longest_in_ring(longest: u64) -> u64 {
    longest.max(INLINE as u64)
}

/// Puts the fields of a ring's message before its payload.
fn frame(user_data: u64, res: i32, flags: u32) -> [u8; FIELDS] {
    let mut fields = [0; FIELDS];
    fields[..8].copy_from_slice(&user_data.to_le_bytes());
    fields[8..12].copy_from_slice(&res.to_le_bytes());
    fields[12..].copy_from_slice(&flags.to_le_bytes());
    fields
}

/// Splits a message of the spool into the fields of the ring's message and its payload.
pub(super) fn unframe(data: &Bytes) -> Option<(Key, Bytes)> {
    let (user_data, rest) = data.split_first_chunk()?;
    let (res, rest) = rest.split_first_chunk()?;
    let (flags, _) = rest.split_first_chunk()?;
    let key = Key::Ring {
        user_data: u64::from_le_bytes(*user_data),
        res: i32::from_le_bytes(*res),
        flags: u32::from_le_bytes(*flags),
    };
    Some((key, data.slice(FIELDS..)))
}

/// The part of an export that fills the spool.
#[derive(Debug)]
pub struct Spool {
    queue: Arc<posix::Queue>,
    source: Source,
    longest: usize,
    /// The number of messages at which the spool is full while the ring is open. The rest of the spool is for the ring's last messages.
    fill_to: usize,
}

#[derive(Debug)]
enum Source {
    Ring(Box<AsyncRing>),
    Kernel(kernel::Queue),
}

impl Spool {
    /// Opens the source of a spool. Returns None for a queue with leases.
    ///
    /// # Errors
    /// The error is a sentence that names the setting.
    pub fn open(namespace: &Namespace, bridge: &Bridge) -> Result<Option<Spool>, String> {
        let refuse = |error: &dyn std::fmt::Display| format!("`queue` {}: {error}", bridge.queue);
        let new = bridge.create_queue.as_ref();
        let source = match &bridge.queue {
            End::Ring(name) => {
                let mut options = Options::new();
                // The ring needs no overflow file: the spool takes its messages, and remains after the bridge's end.
                options.entries(ENTRIES).overflow(0);
                if let Some(new) = new {
                    options.entries(new.max_messages);
                    options.longest(u32::try_from(new.message_size.0).unwrap_or(u32::MAX));
                } else {
                    options.longest(8192);
                }
                let ring = options
                    .create_in(namespace, name)
                    .map_err(|error| refuse(&error))?;
                Source::Ring(Box::new(
                    AsyncRing::new(ring).map_err(|error| refuse(&error))?,
                ))
            }
            End::Kernel(name) => {
                Source::Kernel(kernel::Queue::open(name, new, Interest::READABLE)?)
            }
            _ => return Ok(None),
        };
        let queue = queue(namespace, bridge)?;
        let longest = queue.attributes().message_size;
        let needed = match &source {
            Source::Ring(_) => {
                longest_in_ring(new.map_or(8192, |new| new.message_size.0)) + FIELDS as u64
            }
            Source::Kernel(source) => source.message_size() as u64,
        };
        // The spool was made for an earlier configuration, and is too small for the longest message.
        if needed > longest as u64 {
            return Err(refuse(&format!(
                "the spool {} takes messages of at most {longest} bytes, and the bridge needs {needed}. Empty and remove the spool",
                name(bridge)
            )));
        }
        let most = queue.attributes().max_messages;
        let kept_free = match &source {
            Source::Ring(_) => new.map_or(ENTRIES, |new| new.max_messages) as usize,
            Source::Kernel(_) => 0,
        };
        Ok(Some(Spool {
            longest,
            // The reserve is at most half of the spool, because the spool of an earlier configuration may be small.
            fill_to: most - kept_free.min(most / 2),
            queue: Arc::new(queue),
            source,
        }))
    }

    /// Moves messages to the spool until an error occurs.
    ///
    /// # Errors
    /// The error is the sentence of the library or the system: the source or the spool is lost.
    pub async fn fill(&mut self) -> Result<(), String> {
        for turn in 1_u32.. {
            if turn.is_multiple_of(TURN) {
                tokio::task::yield_now().await;
            }
            // The wait for room is first: a message that has left its source must have a place in the spool.
            self.await_level().await;
            let room = self.room().await?;
            match &mut self.source {
                Source::Ring(ring) => {
                    let message = ring.receive().await.map_err(|error| error.to_string())?;
                    crash::reached(Point::SPOOL_TAKEN);
                    let fields = frame(message.user_data, message.res, message.flags);
                    store(room, &[&fields, message.payload], 0)?;
                }
                Source::Kernel(source) => {
                    let mut buffer = vec![0; source.message_size()];
                    let (len, priority) = loop {
                        match source.try_receive(&mut buffer) {
                            Ok(received) => break received,
                            Err(Errno::AGAIN | Errno::INTR) => {
                                let ready = source.ready(Interest::READABLE);
                                let is_idle = tokio::time::timeout(IDLE, ready).await.is_err();
                                if is_idle && !source.is_current() {
                                    return Err(super::GONE.to_owned());
                                }
                            }
                            Err(error) => return Err(error.to_string()),
                        }
                    };
                    crash::reached(Point::SPOOL_TAKEN);
                    store(room, &[&buffer[..len]], priority)?;
                }
            }
            crash::reached(Point::SPOOL_STORED);
        }
        Ok(())
    }

    /// Waits until the free places of the spool suffice for all messages of the ring.
    async fn await_level(&self) {
        let mut pause = Duration::from_millis(1);
        loop {
            let now = self.queue.attributes();
            if now.messages + now.leased + now.delayed < self.fill_to {
                return;
            }
            tokio::time::sleep(pause).await;
            pause = (2 * pause).min(Duration::from_millis(64));
        }
    }

    /// Closes a ring, and moves its last messages to the spool, because they are lost with the ring. Waits for room for a limited time.
    pub async fn finish(&mut self, bridge: &str) {
        // Only a ring needs this function, because a queue of the kernel keeps its messages.
        let Source::Ring(ring) = &mut self.source else {
            return;
        };
        ring.get_mut().close();
        let rest = async {
            loop {
                let room = self.room().await?;
                let Source::Ring(ring) = &mut self.source else {
                    return Ok(());
                };
                let message = match ring.get_mut().try_receive() {
                    Ok(message) => message,
                    Err(ReceiveError::Empty) => return Ok(()),
                    Err(error) => return Err(error.to_string()),
                };
                let fields = frame(message.user_data, message.res, message.flags);
                store(room, &[&fields, message.payload], 0)?;
            }
        };
        let why = match tokio::time::timeout(LAST, rest).await {
            Ok(Ok(())) => return,
            Ok(Err(why)) => why,
            Err(_) => "the spool is full".to_owned(),
        };
        let lost = match &mut self.source {
            Source::Ring(ring) => ring.get_mut().available(),
            Source::Kernel(_) => 0,
        };
        let fields: [(&str, &dyn std::fmt::Display); 2] = [("messages", &lost), ("error", &why)];
        log::event(
            Level::Error,
            bridge,
            "messages of the ring are lost",
            &fields,
        );
    }

    async fn room(&self) -> Result<Reservation<'static>, String> {
        let mut pause = Duration::from_millis(1);
        loop {
            match self.queue.reserve_owned(self.longest, Until::Now) {
                Ok(room) => return Ok(room),
                // Only the exporter of this process makes room, at each acknowledgement. Without a server, no room may come for a long time, so the
                // pauses grow.
                Err(SendError::Full) => {
                    tokio::time::sleep(pause).await;
                    pause = (2 * pause).min(Duration::from_millis(64));
                }
                Err(error) => return Err(error.to_string()),
            }
        }
    }
}

fn store(mut room: Reservation<'_>, parts: &[&[u8]], priority: u32) -> Result<(), String> {
    let mut at = 0;
    for part in parts {
        room.write_at(at, part);
        at += part.len();
    }
    room.truncate(at);
    room.commit(priority).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_fields_of_a_ring_come_back() {
        let mut data = frame(u64::MAX, -1, 3).to_vec();
        data.extend_from_slice(b"payload");
        let (key, rest) = unframe(&data.into()).unwrap();
        let fields = Key::Ring {
            user_data: u64::MAX,
            res: -1,
            flags: 3,
        };
        assert_eq!((key, &rest[..]), (fields, &b"payload"[..]));
        assert_eq!(unframe(&Bytes::from_static(b"short")), None);
    }
}
