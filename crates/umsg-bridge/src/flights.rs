//! The publishes of an export that JetStream has not acknowledged yet. JetStream sends each acknowledgement to the inbox of the export.
//!
//! ```text
//!   publish, reply = INBOX.7  ---->  the stream  ---->  INBOX.7: {"stream": "S", "seq": 90}
//! ```
//!
//! The number of a publish gives its place in the queue of unacknowledged publishes. So an acknowledgement finds its publish in one step, and a
//! publish that is never acknowledged leaks no memory.

use crate::local::Taken;
use crate::stream;
use async_nats::client::{PublishError, PublishErrorKind};
use async_nats::{Client, HeaderMap, Message, StatusCode, Subject, Subscriber};
use bytes::Bytes;
use futures_util::{FutureExt, StreamExt};
use serde::Deserialize;
use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// The result of a publish.
#[derive(Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The stream has the message.
    Stored {
        /// True if the stream had the message already.
        duplicate: bool,
    },
    /// The stream will never take this message.
    Message(String),
    /// The stream takes no message now.
    Stream(String),
}

/// The result of a publish, with its message and the message's place in the order of leases.
#[derive(Debug)]
pub struct Landed {
    /// The place in the order of leases.
    pub place: u64,
    /// The message.
    pub taken: Taken,
    /// The result.
    pub outcome: Outcome,
}

#[derive(Debug)]
struct Flight {
    place: u64,
    taken: Taken,
    began: Instant,
}

/// The publishes of an export that are not acknowledged.
#[derive(Debug)]
pub struct Flights {
    client: Client,
    inbox: String,
    acknowledgements: Subscriber,
    timeout: Duration,
    /// The number of the publish in the first entry.
    first: u64,
    entries: VecDeque<Option<Flight>>,
    count: usize,
}

impl Flights {
    /// Opens the inbox of acknowledgements.
    ///
    /// # Errors
    /// The error is a sentence: the client has ended.
    pub async fn open(client: &Client, timeout: Duration) -> Result<Flights, String> {
        let inbox = client.new_inbox();
        let subscribed = client.subscribe(format!("{inbox}.*")).await;
        Ok(Flights {
            client: client.clone(),
            acknowledgements: subscribed.map_err(|error| format!("server: {error}"))?,
            inbox,
            timeout,
            first: 0,
            entries: VecDeque::new(),
            count: 0,
        })
    }

    /// Returns the number of publishes without an answer yet.
    #[must_use]
    pub fn len(&self) -> usize {
        self.count
    }

    /// Returns whether all publishes have an answer.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Publishes a message. If the publish fails at once, returns the failed publish.
    pub async fn publish(
        &mut self,
        (place, taken): (u64, Taken),
        (subject, headers, data): (String, HeaderMap, Bytes),
    ) -> Option<Landed> {
        let number = self.first + self.entries.len() as u64;
        let reply = format!("{}.{number}", self.inbox);
        let mut publish = Box::pin(
            self.client
                .publish_with_reply_and_headers(subject, reply, headers, data),
        );
        // Without a connection, the client accepts commands only while its channel has room. A publish without room waits until the time-out.
        let sent = match publish.as_mut().now_or_never() {
            Some(sent) => Ok(sent),
            None => tokio::time::timeout(self.timeout, publish).await,
        };
        let outcome = match sent {
            Ok(Ok(())) => {
                let began = Instant::now();
                self.entries.push_back(Some(Flight {
                    place,
                    taken,
                    began,
                }));
                self.count += 1;
                return None;
            }
            Ok(Err(error)) => refused(&error),
            Err(_) => late(),
        };
        Some(Landed {
            place,
            taken,
            outcome,
        })
    }

    /// Returns the next publish with a result, if there is one.
    pub fn try_next(&mut self) -> Option<Landed> {
        self.next().now_or_never()
    }

    /// Waits for the next publish with a result. Never returns if the client has ended: all publishes are then [late](Self::take_late).
    pub async fn next(&mut self) -> Landed {
        loop {
            let Some(message) = self.acknowledgements.next().await else {
                return std::future::pending().await;
            };
            let Some(number) = self.number(&message.subject) else {
                continue;
            };
            if let Some(flight) = self.take(number) {
                return Landed {
                    place: flight.place,
                    taken: flight.taken,
                    outcome: outcome(&message),
                };
            }
        }
    }

    /// Removes and returns the publishes whose time-out has passed. Acknowledgements that come later are ignored.
    pub fn take_late(&mut self) -> Vec<Landed> {
        let mut landed = Vec::new();
        while let Some(Some(flight)) = self.entries.front() {
            if flight.began.elapsed() < self.timeout {
                break;
            }
            let first = self.first;
            landed.extend(self.take(first).map(|flight| Landed {
                place: flight.place,
                taken: flight.taken,
                outcome: late(),
            }));
        }
        landed
    }

    fn number(&self, subject: &Subject) -> Option<u64> {
        let rest = subject.as_str().strip_prefix(&*self.inbox)?;
        rest.strip_prefix('.')?.parse().ok()
    }

    fn take(&mut self, number: u64) -> Option<Flight> {
        let at = usize::try_from(number.checked_sub(self.first)?).ok()?;
        let flight = self.entries.get_mut(at)?.take()?;
        self.count -= 1;
        while let Some(None) = self.entries.front() {
            self.entries.pop_front();
            self.first += 1;
        }
        Some(flight)
    }
}

fn late() -> Outcome {
    Outcome::Stream("the server has not acknowledged a publish in time".to_owned())
}

/// JetStream's error code for a message that is too large for the stream.
const TOO_LARGE: u64 = 10054;

/// JetStream's error code for a subject that belongs to another stream than the expected one.
const OTHER_STREAM: u64 = 10060;

/// Decides whether the client refuses only this message, or every message at present.
fn refused(error: &PublishError) -> Outcome {
    let why = stream::in_full(error);
    match error.kind() {
        PublishErrorKind::MaxPayloadExceeded => Outcome::Message(format!(
            "the message is larger than the server's max_payload: {why}"
        )),
        PublishErrorKind::InvalidSubject => Outcome::Message(format!("`subject`: {why}")),
        PublishErrorKind::Send => Outcome::Stream(format!("server: {why}")),
    }
}

/// The answer of JetStream to a publish.
#[derive(Deserialize)]
struct Answer {
    error: Option<Refusal>,
    seq: Option<u64>,
    #[serde(default)]
    duplicate: bool,
}

#[derive(Deserialize)]
struct Refusal {
    #[serde(default)]
    err_code: u64,
    #[serde(default)]
    description: String,
}

/// Decides whether the server refuses only this message, or every message at present, and names the setting.
fn outcome(message: &Message) -> Outcome {
    if message.status == Some(StatusCode::NO_RESPONDERS) {
        return Outcome::Stream("`subject`: no stream has this subject".to_owned());
    }
    let refusal = match serde_json::from_slice(&message.payload) {
        Ok(Answer {
            error: Some(refusal),
            ..
        }) => refusal,
        Ok(Answer {
            seq: Some(_),
            duplicate,
            ..
        }) => return Outcome::Stored { duplicate },
        _ => {
            return Outcome::Stream(
                "`stream`: the server did not acknowledge the message".to_owned(),
            );
        }
    };
    let why = format!("{} (code {})", refusal.description, refusal.err_code);
    match refusal.err_code {
        TOO_LARGE => Outcome::Message(format!(
            "the message is larger than the stream's max_msg_size: {why}"
        )),
        OTHER_STREAM => {
            Outcome::Stream(format!("`subject`: another stream has this subject: {why}"))
        }
        _ => Outcome::Stream(format!("`stream`: {why}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(payload: &'static str, status: Option<StatusCode>) -> Outcome {
        outcome(&Message {
            subject: "_INBOX.a.1".into(),
            reply: None,
            payload: payload.into(),
            headers: None,
            status,
            description: None,
            length: 0,
        })
    }

    #[test]
    fn an_answer_is_an_acknowledgement_only_with_a_sequence() {
        let stored = |duplicate| Outcome::Stored { duplicate };
        assert_eq!(answer(r#"{"stream":"S","seq":7}"#, None), stored(false));
        assert_eq!(
            answer(r#"{"stream":"S","seq":7,"duplicate":true}"#, None),
            stored(true)
        );
        let refused = answer(
            r#"{"error":{"code":400,"err_code":10054,"description":"d"}}"#,
            None,
        );
        assert!(
            matches!(&refused, Outcome::Message(why) if why.contains("max_msg_size")),
            "{refused:?}"
        );
        let refused = answer(
            r#"{"error":{"code":503,"err_code":10077,"description":"maximum messages exceeded"},"seq":0}"#,
            None,
        );
        assert!(
            matches!(&refused, Outcome::Stream(why) if why.contains("maximum messages")),
            "{refused:?}"
        );
        for (payload, status) in [
            ("", Some(StatusCode::NO_RESPONDERS)),
            ("", None),
            ("{}", None),
            ("+OK", None),
        ] {
            assert!(
                matches!(answer(payload, status), Outcome::Stream(_)),
                "{payload}"
            );
        }
    }

    #[test]
    fn publishes_without_an_acknowledgement_leave_nothing_behind() {
        use crate::local::Key;
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        runtime.block_on(async {
            // No server listens at this address.
            let options = async_nats::ConnectOptions::new().retry_on_initial_connect();
            let client = options.connect("nats://127.0.0.1:1").await.unwrap();
            let time = Duration::from_millis(1);
            let mut flights = Flights::open(&client, time).await.unwrap();
            for place in 0..100 {
                let (id, now) = (place.to_string(), std::time::SystemTime::now());
                let taken = Taken::new(Bytes::new(), Key::Priority(0), (id, now, 1));
                let what = ("s".to_owned(), HeaderMap::new(), Bytes::new());
                assert!(flights.publish((place, taken), what).await.is_none());
            }
            tokio::time::sleep(2 * time).await;
            let places: Vec<u64> = flights.take_late().iter().map(|late| late.place).collect();
            assert_eq!(places, (0..100).collect::<Vec<_>>());
            assert_eq!(
                (flights.len(), flights.entries.len(), flights.first),
                (0, 0, 100)
            );
        });
    }
}
