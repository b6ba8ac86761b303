//! From the queue to the stream.
//!
//! ```text
//!   lease ---> publish ---> the stream stores it ---> acknowledge locally
//!   |            |                                |
//!   |            +-- window: this many at once ---+
//!   a failure of one publish: no new lease; the others settle; the failed ones are published again, in their order
//! ```
//!
//! A message keeps its lease until the stream has it. So the death of the bridge returns it to its place, and the next bridge publishes it under
//! the same `Nats-Msg-Id`.

use crate::backoff::Backoff;
use crate::config::{Bridge, OnReject, SubjectBy};
use crate::crash::{self, Point};
use crate::headers::{self, Source};
use crate::local::{Exporter, Key, Spool, Taken};
use crate::log::{self, Level};
use crate::status::Board;
use crate::supervise::Scene;
use crate::{envelope, stream};
use async_nats::jetstream::Context;
use async_nats::jetstream::context::{PublishAckFuture, PublishError, PublishErrorKind};
use async_nats::jetstream::message::PublishMessage;
use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use std::future::{Future, IntoFuture};
use std::pin::Pin;
use std::time::Duration;
use umsg::posix;

/// The time after which a message that was refused is tried again.
pub const REFUSED: Duration = Duration::from_secs(30);
/// The interval at which states that report no change are checked.
const TICK: Duration = Duration::from_secs(1);
/// The time that publishes have to settle when the bridge ends.
const LAST: Duration = Duration::from_secs(5);

/// The end of a publish, with its message and the message's place in the order of leases.
type Flight = Pin<Box<dyn Future<Output = (u64, Taken, Outcome)>>>;

/// The result of a publish.
#[derive(Debug)]
enum Outcome {
    Stored {
        duplicate: bool,
    },
    /// The stream will never take this message.
    Message(String),
    /// The stream takes no message now.
    Stream(String),
}

/// Runs an export until the process stops it.
///
/// # Errors
/// The error is a sentence: the queue is lost, and has to be opened again.
pub async fn run(bridge: &Bridge, scene: &Scene, board: &Board) -> Result<(), String> {
    let exporter = Exporter::open(&scene.namespace, bridge)?;
    let dead = match &bridge.dead_letter {
        Some(name) => Some(crate::local::dead_letter(&scene.namespace, name)?),
        None => None,
    };
    board.become_("waiting for the server", None);
    scene.link.clone().wait().await;
    let context = stream::context(
        &scene.link,
        scene.domain.as_deref(),
        scene.timeout,
        bridge.window,
    );
    let found = stream::find(&context, bridge, &scene.link).await?;
    // The spool is opened after the steps that may fail: if the bridge closed its ring again, the messages in the ring would be lost.
    let spool = Spool::open(&scene.namespace, bridge)?;
    board.become_("running", None);
    let work = Work {
        source: Source {
            queue: bridge.queue.to_string(),
            host: scene.host.clone(),
            ttl: exporter.ttl(),
            reply_to: bridge.reply_to.clone(),
        },
        // The headers take room, too.
        longest: usize::try_from(found.cached_info().config.max_message_size)
            .ok()
            .filter(|most| *most > 0),
        exporter,
        context,
        dead,
        bridge,
        scene,
        board,
    };
    match spool {
        None => work.go().await,
        Some(mut spool) => tokio::select! {
            ended = spool.fill() => ended,
            ended = work.go() => ended,
        },
    }
}

/// A running export.
struct Work<'a> {
    exporter: Exporter,
    source: Source,
    longest: Option<usize>,
    context: Context,
    dead: Option<posix::Queue>,
    bridge: &'a Bridge,
    scene: &'a Scene,
    board: &'a Board,
}

impl Work<'_> {
    async fn go(&self) -> Result<(), String> {
        let mut flights: FuturesUnordered<Flight> = FuturesUnordered::new();
        let mut failed: Vec<(u64, Taken)> = Vec::new();
        let mut backoff = Backoff::default();
        let mut leases = 0;
        let mut in_vain = 0_u32;
        let mut tick = tokio::time::interval(TICK);
        let mut stop = self.scene.stop.clone();
        loop {
            while failed.is_empty() && flights.len() < self.bridge.window {
                let Some(taken) = self.exporter.try_take()? else {
                    break;
                };
                crash::reached(Point::EXPORT_LEASED);
                leases += 1;
                in_vain = 0;
                if let Some(flight) = self.publish(leases, taken).await {
                    flights.push(flight);
                }
            }
            if !failed.is_empty() && flights.is_empty() {
                self.wait(&mut backoff).await?;
                self.board
                    .count(|state| state.retries += failed.len() as u64);
                for (place, taken) in failed.drain(..) {
                    flights.extend(self.publish(place, taken).await);
                }
            }
            let may_take = failed.is_empty() && flights.len() < self.bridge.window;
            tokio::select! {
                biased;
                Some(landed) = flights.next(), if !flights.is_empty() => {
                    if self.settle(landed, &mut failed) {
                        backoff.reset();
                    }
                }
                () = self.ready(in_vain), if may_take => in_vain = in_vain.saturating_add(1),
                _ = tick.tick() => self.look(flights.len() + failed.len())?,
                _ = stop.wait_for(|stop| *stop) => break,
            }
        }
        // The leases of messages that do not settle return by their drop.
        let settle = async {
            while let Some(landed) = flights.next().await {
                self.settle(landed, &mut failed);
            }
        };
        let _ = tokio::time::timeout(LAST, settle).await;
        Ok(())
    }

    /// Waits until there may be a message. A queue that is closed for sending stays readable and has none.
    async fn ready(&self, in_vain: u32) {
        if in_vain > 3 {
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        self.exporter.readable().await;
    }

    /// Updates the counts on the board. Fails if the name no longer leads to this queue.
    fn look(&self, flying: usize) -> Result<(), String> {
        let backlog = self.exporter.backlog();
        let connected = self.scene.link.connected.borrow().1;
        self.board.count(|state| {
            state.in_flight = flying as u64;
            state.backlog = backlog;
            state.connected = connected;
        });
        if !connected {
            self.board.become_("waiting for the server", None);
        } else if self.board.get().state == "waiting for the server" {
            self.board.become_("running", None);
        }
        let is_done = flying == 0 && backlog == 0;
        match is_done && !self.exporter.is_current(&self.scene.namespace, self.bridge) {
            true => Err(format!(
                "`queue` {}: the queue was removed or replaced",
                self.bridge.queue
            )),
            false => Ok(()),
        }
    }

    /// Waits before publishes are repeated: for a connection, and for the time of the back-off.
    async fn wait(&self, backoff: &mut Backoff) -> Result<(), String> {
        let mut stop = self.scene.stop.clone();
        let mut link = self.scene.link.clone();
        let wait = async {
            tokio::time::sleep(backoff.pause()).await;
            link.wait().await;
        };
        tokio::pin!(wait);
        let mut tick = tokio::time::interval(TICK);
        loop {
            tokio::select! {
                () = &mut wait => return Ok(()),
                _ = tick.tick() => self.board.refresh(),
                _ = stop.wait_for(|stop| *stop) => return Ok(()),
            }
        }
    }

    fn subject(&self, key: Key) -> String {
        let base = self.bridge.subject.as_deref().unwrap_or_default();
        match (self.bridge.subject_by, key) {
            (SubjectBy::Priority, Key::Priority(priority)) => format!("{base}.p.{priority}"),
            (SubjectBy::Type, Key::Type(mtype)) => format!("{base}.t.{mtype}"),
            _ => base.to_owned(),
        }
    }

    /// Publishes a message. Returns None if the message can't be published: it was rejected.
    async fn publish(&self, place: u64, taken: Taken) -> Option<Flight> {
        let (subject, data) = match self.bridge.envelope {
            false => (self.subject(taken.key), taken.data.clone()),
            true => {
                let below = self.bridge.subject.as_deref().unwrap_or_default();
                match envelope::unwrap(&taken.data, below) {
                    Ok(parts) => parts,
                    Err(why) => {
                        self.reject(taken, &why);
                        return None;
                    }
                }
            }
        };
        if self.longest.is_some_and(|longest| data.len() > longest) {
            let longest = self.longest.unwrap_or_default();
            let why = format!(
                "the message has {} bytes, and the stream's max_msg_size is {longest}",
                data.len()
            );
            self.reject(taken, &why);
            return None;
        }
        let message = PublishMessage::build()
            .payload(data)
            .headers(headers::of(&taken, &self.source))
            // The subject may belong to another stream, which would acknowledge the message.
            .expected_stream(&self.bridge.stream);
        let sent = self.context.send_publish(subject, message).await;
        crash::reached(Point::EXPORT_PUBLISHED);
        match sent {
            Ok(ack) => Some(Box::pin(land(place, taken, ack))),
            Err(error) => {
                let outcome = judge(&error);
                Some(Box::pin(std::future::ready((place, taken, outcome))))
            }
        }
    }

    /// Acts on the end of a publish. Returns whether the stream has the message.
    fn settle(
        &self,
        (place, taken, outcome): (u64, Taken, Outcome),
        failed: &mut Vec<(u64, Taken)>,
    ) -> bool {
        match outcome {
            Outcome::Stored { duplicate } => {
                crash::reached(Point::EXPORT_STORED);
                let bytes = taken.data.len() as u64;
                let ended = taken.acknowledge();
                crash::reached(Point::EXPORT_ENDED);
                if let Err(error) = ended {
                    // The queue delivers the message once more, and JetStream recognises the repeat.
                    let name = &self.bridge.name;
                    log::event(
                        Level::Warning,
                        name,
                        "a lease has ended early",
                        &[("error", &error)],
                    );
                }
                self.board.count(|state| {
                    state.messages += 1;
                    state.bytes += bytes;
                    state.duplicates += u64::from(duplicate);
                });
                self.board.become_("running", None);
                true
            }
            Outcome::Message(why) => {
                self.reject(taken, &why);
                false
            }
            Outcome::Stream(why) => {
                let why = stream::with_refusal(why, &self.scene.link);
                self.board.become_("waiting for the stream", Some(why));
                let at = failed.partition_point(|(other, _)| *other < place);
                failed.insert(at, (place, taken));
                false
            }
        }
    }

    /// Moves a message that the stream will never take to the dead-letter queue, or lets the message wait in its own queue.
    fn reject(&self, taken: Taken, why: &str) {
        self.board.count(|state| state.rejected += 1);
        let fields: [(&str, &dyn std::fmt::Display); 2] = [("error", &why), ("id", &taken.id)];
        log::event(Level::Error, &self.bridge.name, "message rejected", &fields);
        let priority = match taken.key {
            Key::Priority(priority) => priority,
            _ => 0,
        };
        let dead = self
            .dead
            .as_ref()
            .filter(|_| self.bridge.on_reject == OnReject::DeadLetter);
        match dead.map(|dead| dead.try_send(&taken.data, priority)) {
            Some(Ok(())) => {
                crash::reached(Point::EXPORT_DEAD);
                let _ = taken.acknowledge();
                self.board.count(|state| state.dead_lettered += 1);
            }
            Some(Err(error)) => {
                let error = format!("`dead_letter`: {error}");
                log::event(
                    Level::Error,
                    &self.bridge.name,
                    "the message waits",
                    &[("error", &error)],
                );
                taken.return_after(REFUSED);
            }
            None => taken.return_after(REFUSED),
        }
    }
}

async fn land(place: u64, taken: Taken, ack: PublishAckFuture) -> (u64, Taken, Outcome) {
    let outcome = match ack.into_future().await {
        Ok(ack) => Outcome::Stored {
            duplicate: ack.duplicate,
        },
        Err(error) => judge(&error),
    };
    (place, taken, outcome)
}

/// JetStream's code for a message that is too large for a stream.
const TOO_LARGE: u64 = 10054;

/// JetStream's code for a subject of another stream than the expected one.
const OTHER_STREAM: u64 = 10060;

/// Decides whether the message or the stream is the cause of a failure, and names the setting.
fn judge(error: &PublishError) -> Outcome {
    let why = stream::in_full(error);
    match (error.kind(), stream::publish_code(error)) {
        (PublishErrorKind::MaxPayloadExceeded, _) => Outcome::Message(format!(
            "the message is larger than the server's max_payload: {why}"
        )),
        (_, Some(TOO_LARGE)) => Outcome::Message(format!(
            "the message is larger than the stream's max_msg_size: {why}"
        )),
        (_, Some(OTHER_STREAM)) => {
            Outcome::Stream(format!("`subject`: another stream has this subject: {why}"))
        }
        (PublishErrorKind::StreamNotFound, _) => {
            Outcome::Stream("`subject`: no stream has this subject".to_owned())
        }
        (PublishErrorKind::TimedOut, _) => {
            Outcome::Stream("the server has not acknowledged a publish in time".to_owned())
        }
        _ => Outcome::Stream(format!("`stream`: {why}")),
    }
}
