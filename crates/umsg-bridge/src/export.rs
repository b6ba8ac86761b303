//! Exports: messages from the local queue to the stream.
//!
//! ```text
//!   lease ---> publish ---> the stream stores it ---> acknowledge locally
//!   |            |                                |
//!   |            +-- window: this many at once ---+
//!   a failure of one publish: no new lease; the others settle; the failed ones are published again, in their order
//! ```
//!
//! A message stays leased until the stream has it. If the bridge dies, the message returns to its place in the queue, and the next bridge publishes
//! it under the same `Nats-Msg-Id`.

use crate::backoff::Backoff;
use crate::config::{Bridge, OnReject, SubjectBy};
use crate::crash::{self, Point};
use crate::flights::{Flights, Landed, Outcome};
use crate::headers::{self, Source};
use crate::local::{DeadLetter, Exporter, GONE, Key, Spool, Taken};
use crate::log::{self, Level};
use crate::status::Board;
use crate::supervise::Scene;
use crate::{connect, envelope, stream};
use async_nats::header::NATS_EXPECTED_STREAM;
use std::time::Duration;

/// The time after which the bridge tries a refused message again.
pub const REFUSED: Duration = Duration::from_secs(30);
/// The interval at which the bridge checks states that don't report their changes.
const TICK: Duration = Duration::from_secs(1);
/// The maximum time to wait for unacknowledged publishes when the bridge ends.
const LAST: Duration = Duration::from_secs(5);

/// Runs an export until the process stops it.
///
/// # Errors
/// The error is a sentence: the queue is lost, and must be opened again.
pub async fn run(bridge: &Bridge, scene: &Scene, board: &Board) -> Result<(), String> {
    let exporter = Exporter::open(&scene.namespace, bridge)?;
    let dead = match &bridge.dead_letter {
        Some(name) => Some(DeadLetter::open(&scene.namespace, name)?),
        None => None,
    };
    board.become_(connect::WAITING, None);
    scene.link.wait_shown(board).await?;
    let context = stream::context(&scene.link, scene.domain.as_deref(), scene.timeout);
    let found = stream::find(&context, bridge, &scene.link).await?;
    // The spool is opened after the steps that may fail. A failure after that would close the bridge's ring, and the messages in the ring would be
    // lost.
    let spool = Spool::open(&scene.namespace, bridge)?;
    board.become_("running", None);
    let work = Work {
        source: Source {
            queue: bridge.queue.to_string(),
            host: scene.host.clone(),
            ttl: exporter.ttl(),
            reply_to: bridge.reply_to.clone(),
        },
        // The limit of the stream includes the headers.
        longest: usize::try_from(found.cached_info().config.max_message_size)
            .ok()
            .filter(|most| *most > 0),
        exporter,
        dead,
        bridge,
        scene,
        board,
    };
    let mut flights = Flights::open(&scene.link.client, scene.timeout).await?;
    let Some(mut spool) = spool else {
        let ended = work.go(&mut flights).await;
        work.settle_rest(flights).await;
        return ended;
    };
    let ended = tokio::select! {
        ended = spool.fill() => ended,
        ended = work.go(&mut flights) => ended,
    };
    // The two futures run together: the acknowledgements of the export make room in the spool.
    let last = async { tokio::join!(spool.finish(&bridge.name), work.settle_rest(flights)) };
    last.await;
    ended
}

/// A running export.
struct Work<'a> {
    exporter: Exporter,
    source: Source,
    longest: Option<usize>,
    dead: Option<DeadLetter>,
    bridge: &'a Bridge,
    scene: &'a Scene,
    board: &'a Board,
}

impl Work<'_> {
    async fn go(&self, flights: &mut Flights) -> Result<(), String> {
        let mut failed: Vec<(u64, Taken)> = Vec::new();
        let mut backoff = Backoff::default();
        let mut leases = 0;
        let mut in_vain = 0_u32;
        let mut tick = tokio::time::interval(TICK);
        let mut stop = self.scene.stop.clone();
        loop {
            // One wake-up handles all acknowledgements that have arrived, and then all messages for which the window has room.
            while let Some(landed) = flights.try_next() {
                if self.settle(landed, &mut failed) {
                    backoff.reset();
                }
            }
            while failed.is_empty() && flights.len() < self.bridge.window {
                let Some(taken) = self.exporter.try_take()? else {
                    break;
                };
                crash::reached(Point::EXPORT_LEASED);
                leases += 1;
                in_vain = 0;
                self.publish((leases, taken), flights, &mut failed).await;
            }
            if !failed.is_empty() && flights.is_empty() {
                self.wait(&mut backoff, failed.len()).await?;
                // Without a connection, each publish may last until its time-out, so a bridge that must stop ends here.
                if self.scene.is_over() {
                    return Ok(());
                }
                self.board
                    .count(|state| state.retries += failed.len() as u64);
                for one in std::mem::take(&mut failed) {
                    self.publish(one, flights, &mut failed).await;
                }
            }
            let may_take = failed.is_empty() && flights.len() < self.bridge.window;
            tokio::select! {
                biased;
                // The stop is polled first, so that a busy export ends, too.
                _ = stop.wait_for(|stop| *stop) => return Ok(()),
                landed = flights.next(), if !flights.is_empty() => {
                    if self.settle(landed, &mut failed) {
                        backoff.reset();
                    }
                }
                () = self.ready(in_vain), if may_take => in_vain = in_vain.saturating_add(1),
                _ = tick.tick() => {
                    for landed in flights.take_late() {
                        self.settle(landed, &mut failed);
                    }
                    self.look(flights.len() + failed.len())?;
                }
            }
        }
    }

    /// Waits a last time for the acknowledgements of publishes. The messages without an acknowledgement return to the queue, because the drop ends
    /// their leases.
    async fn settle_rest(&self, mut flights: Flights) {
        if !self.scene.link.is_alive() {
            return;
        }
        let mut failed = Vec::new();
        let settle = async {
            while !flights.is_empty() {
                let landed = flights.next().await;
                self.settle(landed, &mut failed);
            }
        };
        let _ = tokio::time::timeout(LAST, settle).await;
    }

    /// Waits until there may be a message. A queue that is closed for sending stays readable without a message, so the function pauses after several
    /// attempts in vain.
    async fn ready(&self, in_vain: u32) {
        if in_vain > 3 {
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        self.exporter.readable().await;
    }

    /// Updates the counts on the board. Fails if the name no longer refers to this queue, or if the client has ended.
    fn look(&self, flying: usize) -> Result<(), String> {
        if !self.scene.link.is_alive() {
            return Err(connect::ENDED.to_owned());
        }
        let connected = self.scene.link.holds();
        self.board.count(|state| {
            state.in_flight = flying as u64;
            state.connected = connected;
        });
        if !connected {
            self.board
                .become_(connect::WAITING, self.scene.link.refusal());
        } else if self.board.get().state == connect::WAITING {
            self.board.become_("running", None);
        }
        let is_done = flying == 0 && self.exporter.is_empty();
        match is_done && !self.exporter.is_current(&self.scene.namespace, self.bridge) {
            true => Err(format!("`queue` {}: {GONE}", self.bridge.queue)),
            false => Ok(()),
        }
    }

    /// Waits before publishes of this number of messages are repeated: until there is a connection, and for the back-off time.
    async fn wait(&self, backoff: &mut Backoff, failed: usize) -> Result<(), String> {
        let mut stop = self.scene.stop.clone();
        let wait = async {
            tokio::time::sleep(backoff.pause()).await;
            self.scene.link.wait_shown(self.board).await
        };
        tokio::pin!(wait);
        let mut tick = tokio::time::interval(TICK);
        loop {
            tokio::select! {
                waited = &mut wait => return waited,
                _ = tick.tick() => self.board.count(|state| state.in_flight = failed as u64),
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

    /// Publishes a message, or rejects it.
    async fn publish(
        &self,
        (place, taken): (u64, Taken),
        flights: &mut Flights,
        failed: &mut Vec<(u64, Taken)>,
    ) {
        let (subject, data) = match self.bridge.envelope {
            false => (self.subject(taken.key), taken.data.clone()),
            true => {
                let below = self.bridge.subject.as_deref().unwrap_or_default();
                match envelope::unwrap(&taken.data, below) {
                    Ok(parts) => parts,
                    Err(why) => return self.reject(taken, &why),
                }
            }
        };
        if let Some(longest) = self.longest.filter(|longest| data.len() > *longest) {
            let why = format!(
                "the message has {} bytes, and the stream's max_msg_size is {longest}",
                data.len()
            );
            return self.reject(taken, &why);
        }
        let mut headers = headers::of(&taken, &self.source);
        // The header makes another stream refuse the message: the subject may belong to another stream.
        headers.insert(NATS_EXPECTED_STREAM, &*self.bridge.stream);
        let ended = flights
            .publish((place, taken), (subject, headers, data))
            .await;
        crash::reached(Point::EXPORT_PUBLISHED);
        if let Some(landed) = ended {
            self.settle(landed, failed);
        }
    }

    /// Handles the result of a publish. Returns whether the stream has the message.
    fn settle(&self, landed: Landed, failed: &mut Vec<(u64, Taken)>) -> bool {
        let Landed {
            place,
            taken,
            outcome,
        } = landed;
        match outcome {
            Outcome::Stored { duplicate } => {
                crash::reached(Point::EXPORT_STORED);
                let bytes = taken.data.len() as u64;
                let ended = taken.acknowledge();
                crash::reached(Point::EXPORT_ENDED);
                if let Err(error) = ended {
                    // The acknowledgement failed, so the queue delivers the message once more, and JetStream recognises the repeat.
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

    /// Moves a message that the stream can never take to the dead-letter queue, if `on_reject` says so. Otherwise, the message waits in its own
    /// queue.
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
                log::failure(&self.bridge.name, "the message waits", &error);
                taken.return_after(REFUSED);
            }
            None => taken.return_after(REFUSED),
        }
    }
}
