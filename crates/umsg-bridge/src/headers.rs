//! The NATS headers of a message between queue and stream.
//!
//! | header | meaning |
//! |---|---|
//! | `Nats-Msg-Id` | the queue's identity, the message's number and the time of its send: JetStream recognises a repeat |
//! | `Umsg-Priority` | the priority of a POSIX queue, 0 to 32,767 |
//! | `Umsg-Type` | the type of a System V queue, 1 or more |
//! | `Umsg-Ring` | `user_data`, `res` and `flags` of a message of a ring, with spaces between them |
//! | `Umsg-Sent` | the time of the send, in nanoseconds since 1970: the age travels |
//! | `Umsg-Ttl` | the time to live of the source queue, in nanoseconds |
//! | `Umsg-Sender` | `PID@HOST` of the sender |
//! | `Umsg-Queue` | the source queue |
//! | `Umsg-Reply-To` | the subject of the reply |

use crate::local::{self, Key, Placing, Taken};
use async_nats::{HeaderMap, HeaderValue};
use bytes::Bytes;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

const ID: &str = "Nats-Msg-Id";
const PRIORITY: &str = "Umsg-Priority";
const TYPE: &str = "Umsg-Type";
const RING: &str = "Umsg-Ring";
const SENT: &str = "Umsg-Sent";
const TTL: &str = "Umsg-Ttl";
const SENDER: &str = "Umsg-Sender";
const QUEUE: &str = "Umsg-Queue";
const REPLY_TO: &str = "Umsg-Reply-To";

/// The data that all messages of an export have in common.
#[derive(Debug)]
pub struct Source {
    /// The queue, as written in the configuration.
    pub queue: String,
    /// The host's name.
    pub host: String,
    /// The time to live of the queue's messages.
    pub ttl: Option<Duration>,
    /// The subject of replies.
    pub reply_to: Option<String>,
}

/// Makes the headers of a message.
#[must_use]
pub fn of(taken: &Taken, source: &Source) -> HeaderMap {
    let mut headers = HeaderMap::new();
    headers.insert(ID, &*taken.id);
    match taken.key {
        Key::Priority(priority) => headers.insert(PRIORITY, priority.to_string()),
        Key::Type(mtype) => headers.insert(TYPE, mtype.to_string()),
        Key::Ring {
            user_data,
            res,
            flags,
        } => headers.insert(RING, format!("{user_data} {res} {flags}")),
    }
    let sent = taken.sent.duration_since(UNIX_EPOCH).unwrap_or_default();
    headers.insert(SENT, sent.as_nanos().to_string());
    if let Some(ttl) = source.ttl {
        headers.insert(TTL, ttl.as_nanos().to_string());
    }
    headers.insert(SENDER, format!("{}@{}", taken.pid, source.host));
    headers.insert(QUEUE, &*source.queue);
    if let Some(reply_to) = &source.reply_to {
        headers.insert(REPLY_TO, &**reply_to);
    }
    headers
}

/// Reads the headers that a local queue stores with a message. A message of another program has no headers: its priority is 0, its type 1.
#[must_use]
pub fn placing(headers: Option<&HeaderMap>, data: Bytes) -> Placing {
    // A single pass over the headers: each look-up by text would allocate a header name.
    let names = [PRIORITY, TYPE, RING, SENT, TTL, REPLY_TO, ID];
    let mut found = [None; 7];
    for (name, values) in headers.into_iter().flat_map(HeaderMap::iter) {
        let at = names
            .iter()
            .position(|known| AsRef::<str>::as_ref(name) == *known);
        if let (Some(at), Some(value)) = (at, values.first()) {
            found[at] = Some(HeaderValue::as_str(value));
        }
    }
    let text = |name: &str| {
        let at = names.iter().position(|known| *known == name)?;
        found[at]
    };
    let ring = text(RING).and_then(|text| {
        let mut words = text.split(' ');
        Some(Key::Ring {
            user_data: words.next()?.parse().ok()?,
            res: words.next()?.parse().ok()?,
            flags: words.next()?.parse().ok()?,
        })
    });
    let sent = text(SENT)
        .and_then(|sent| sent.parse().ok())
        .map(Duration::from_nanos);
    let sent = sent
        .and_then(|sent| UNIX_EPOCH.checked_add(sent))
        .filter(|sent| *sent <= SystemTime::now());
    Placing {
        data,
        priority: text(PRIORITY)
            .and_then(|priority| priority.parse().ok())
            .unwrap_or(0),
        mtype: text(TYPE).and_then(|mtype| mtype.parse().ok()).unwrap_or(1),
        ring,
        sent,
        ttl: text(TTL)
            .and_then(|ttl| ttl.parse().ok())
            .map(Duration::from_nanos),
        reply_to: text(REPLY_TO).map(str::to_owned),
        name: text(ID).and_then(local::name).unwrap_or(0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn source() -> Source {
        Source {
            queue: "/q".to_owned(),
            host: "h".to_owned(),
            ttl: Some(Duration::from_secs(9)),
            reply_to: Some("r.a".to_owned()),
        }
    }

    #[test]
    fn a_message_is_restored_exactly() {
        let sent = UNIX_EPOCH + Duration::from_nanos(1_700_000_000_123_456_789);
        for key in [
            Key::Priority(32_767),
            Key::Type(i64::MAX),
            Key::Ring {
                user_data: u64::MAX,
                res: -5,
                flags: 7,
            },
        ] {
            let id = local::id(3, 4, 5);
            let taken = Taken::new(Bytes::from_static(b"m"), key, (id, sent, 5));
            let placing = placing(Some(&of(&taken, &source())), taken.data.clone());
            match key {
                Key::Priority(priority) => assert_eq!(placing.priority, priority),
                Key::Type(mtype) => assert_eq!(placing.mtype, mtype),
                Key::Ring { .. } => assert_eq!(placing.ring, Some(key)),
            }
            assert_eq!(
                (placing.sent, placing.ttl),
                (Some(sent), Some(Duration::from_secs(9)))
            );
            assert_eq!(placing.reply_to.as_deref(), Some("r.a"));
            assert_eq!(Some(placing.name), local::name(&local::id(3, 4, 5)));
        }
    }

    #[test]
    fn bad_headers_count_as_none() {
        let mut headers = HeaderMap::new();
        for name in [PRIORITY, TYPE, RING, SENT, TTL, ID] {
            headers.insert(name, "-x");
        }
        let placing = placing(Some(&headers), Bytes::new());
        assert_eq!(
            (placing.priority, placing.mtype, placing.ring),
            (0, 1, None)
        );
        assert_eq!((placing.sent, placing.ttl, placing.name), (None, None, 0));
    }
}
