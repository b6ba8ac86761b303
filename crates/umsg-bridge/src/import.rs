//! Imports: messages from the stream to the local queue.
//!
//! ```text
//!   pull ---> reserve, commit ---> check the queue's name ---> note in the window ---> forget the arrival ---> ack
//!   |                        |     |                                                                         |
//!   +-- for each message ----+     +-- for all messages that came together ----------------------------------+
//!                |
//!                full: nothing is acknowledged, and nothing is pulled; after half of `ack_wait` the messages that are not placed go back
//!                      to the stream
//! ```
//!
//! A queue may be removed, and created again, while the import runs. Its messages are acknowledged only if its name refers to it after they were
//! placed. Otherwise they go back to the stream, and the next run of the import places them in the new queue. The receiver of a ring must also live,
//! and have the ring open: the messages of a ring end with its receiver.
//!
//! A bridge that is asked to stop makes no new pull. It places the messages of its last pulls, and returns the messages without room to the stream.
//!
//! The store that commits a message also leaves an arrival record in the queue. A bridge may die before it notes the message in the window: the next
//! bridge finds the record, and recognises the redelivery. The bridge removes the record once the window's file has the sequence.

mod place;

use crate::backoff::Backoff;
use crate::config::{Bridge, Direction};
use crate::crash::{self, Point};
use crate::durable::Unconsumed;
use crate::local::{DeadLetter, Importer};
use crate::pulls::{Pulled, Pulls};
use crate::status::Board;
use crate::supervise::Scene;
use crate::window::{self, Entry, Window};
use crate::{connect, stream};
use async_nats::jetstream::consumer::{Consumer, pull};
use async_nats::jetstream::{AckKind, Message};
use place::{Placed, Unsettled};
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::fmt;
use std::rc::Rc;
use std::time::{Duration, Instant};

/// The interval of the checks that the name still refers to the queue.
const LOOK_AT_QUEUE: Duration = Duration::from_secs(2);
/// The interval at which the import asks the server how many messages wait. The answer is work for the server, so the interval is long.
const ASK: Duration = Duration::from_secs(2);
/// The time to wait for messages that the server sent before their pull ended.
const LATE: Duration = Duration::from_millis(50);

/// The maximum number of kept entries of a window: 32 MiB of file and memory.
const MOST_KEPT: usize = 1 << 20;

/// Runs an import until the process stops it.
///
/// # Errors
/// The error is a sentence: the queue or the consumer is lost, and must be opened again.
pub async fn run(bridge: &Bridge, scene: &Scene, board: &Board) -> Result<(), String> {
    let mut importer = Importer::open(&scene.namespace, bridge)?;
    let dead = match &bridge.dead_letter {
        Some(name) => Some(DeadLetter::open(&scene.namespace, name)?),
        None => None,
    };
    board.become_(connect::WAITING, None);
    scene.link.wait_shown(board).await?;
    let context = stream::context(&scene.link, scene.domain.as_deref(), scene.timeout);
    let found = stream::find(&context, bridge, &scene.link).await?;
    let capacity = importer
        .posix()
        .map_or(0, |queue| queue.attributes().max_messages);
    let pending = match bridge.direction {
        // Messages stay unacknowledged as long as they are in the queue.
        Direction::Durable => capacity + 2 * bridge.window,
        _ => bridge.window,
    };
    let consumer = stream::consumer(&found, bridge, (&scene.host, pending), &scene.link).await?;
    let created = found.cached_info().created.unix_timestamp_nanos();
    let consumer_name = bridge.consumer_name(&scene.host);
    let origin = window::key(&[
        bridge.stream.as_bytes(),
        &created.to_le_bytes(),
        consumer_name.as_bytes(),
    ]);
    importer.set_source(origin);
    let key = window::key(&[&origin.to_le_bytes(), &importer.identity.to_le_bytes()]);
    let path = scene.directory.join(format!("{}.window", bridge.name));
    // The window must have all unacknowledged messages, because the server delivers them again after a restart.
    let limit = usize::try_from(consumer.cached_info().config.max_ack_pending);
    let kept = match bridge.is_durable() {
        // The server delivers at most `limit` messages before it needs acknowledgements.
        true => limit.unwrap_or(0).clamp(pending, MOST_KEPT.max(pending)),
        false => 0,
    };
    let window = Window::open(&path, key, (bridge.dedupe.max(pending), kept));
    let mut window = window.map_err(|error| format!("`state_dir` {}: {error}", path.display()))?;
    recover(&importer, &mut window)?;
    board.become_("running", None);
    let unconsumed = match (bridge.is_durable(), importer.posix()) {
        (true, Some(queue)) => {
            let early = window.numbers().collect();
            let time = 2 * consumer.cached_info().config.ack_wait;
            Some(RefCell::new(Unconsumed::begin(queue, early, time)?))
        }
        _ => None,
    };
    let work = Work {
        unconsumed,
        in_hand: Cell::new(None),
        unsettled: RefCell::default(),
        counts: Cell::default(),
        window: RefCell::new(window),
        importer,
        consumer,
        dead,
        bridge,
        scene,
        board,
    };
    let client = &scene.link.client;
    let pulls = Pulls::open(client, &context, &work.consumer, bridge.window).await?;
    work.go(pulls).await
}

/// Notes the messages that a bridge placed but did not note before its death.
fn recover(importer: &Importer, window: &mut Window) -> Result<(), String> {
    for sequence in importer.arrivals()? {
        if window.find(sequence).is_none() {
            // The numbers of these messages are unknown, so the window treats each message as held. A redelivery brings the message's name.
            let entry = Entry {
                sequence,
                ..Entry::default()
            };
            note(window, entry, &|_| true)?;
            window.flush().map_err(|error| unwritten(&error))?;
        }
        importer.forget(sequence)?;
    }
    Ok(())
}

fn note(window: &mut Window, entry: Entry, is_held: &dyn Fn(u64) -> bool) -> Result<(), String> {
    let noted = window.note(entry, is_held);
    noted.map_err(|error| unwritten(&error))
}

fn unwritten(error: &impl fmt::Display) -> String {
    format!("`state_dir`: the window can't be written: {error}")
}

/// A running import.
struct Work<'a> {
    importer: Importer,
    window: RefCell<Window>,
    /// The unsettled message of the pull, and the start of the pull. The message stays in this field if the future that places it is dropped.
    in_hand: Cell<Option<(Rc<Message>, Instant)>>,
    /// The messages that are in the queue but not in the window's file.
    unsettled: RefCell<VecDeque<Unsettled>>,
    /// The messages and bytes that the board does not count yet.
    counts: Cell<(u64, u64)>,
    /// The messages of a durable queue that no local receiver has acknowledged.
    unconsumed: Option<RefCell<Unconsumed>>,
    consumer: Consumer<pull::Config>,
    dead: Option<DeadLetter>,
    bridge: &'a Bridge,
    scene: &'a Scene,
    board: &'a Board,
}

impl Work<'_> {
    /// Returns the time after which the server delivers an unacknowledged message again. An existing consumer keeps its own setting.
    fn ack_wait(&self) -> Duration {
        let own = self.consumer.cached_info().config.ack_wait;
        match own.is_zero() {
            true => self.bridge.ack_wait.0,
            false => own,
        }
    }

    async fn go(&self, mut pulls: Pulls) -> Result<(), String> {
        let mut stop = self.scene.stop.clone();
        let ended = tokio::select! {
            ended = self.pull_for_ever(&mut pulls) => ended,
            ended = self.acknowledge_consumed() => ended,
            () = self.show_waiting() => Ok(()),
            _ = stop.wait_for(|stop| *stop) => Ok(()),
        };
        let settled = self.settle().await;
        let mut ended = ended.and(settled);
        if ended.is_ok() {
            ended = self.finish(&mut pulls).await;
        }
        if ended.is_err() {
            self.give_up(&mut pulls).await;
        }
        ended
    }

    /// Waits for the end of all requests. Places the messages that they bring, and returns messages without room to the stream: other machines then
    /// get them at once, instead of after `ack_wait`.
    async fn finish(&self, pulls: &mut Pulls) -> Result<(), String> {
        let mut may_place = true;
        while self.scene.link.holds() {
            let message = match self.in_hand.take() {
                Some((message, _)) => message,
                None => {
                    self.settle().await?;
                    match pulls.rest().await {
                        Some(message) => message,
                        None => return Ok(()),
                    }
                }
            };
            // After one message without room, no later message is placed: a shorter message could overtake the first one.
            may_place = may_place
                && matches!(
                    self.place(&message, Instant::now()).await,
                    Ok(Placed::Settled)
                );
            if !may_place {
                // The delay lasts until the last request of this bridge has ended. Otherwise the server could deliver the message to this bridge
                // again.
                give_back(&message, pulls.left()).await;
            }
        }
        self.settle().await
    }

    /// Returns the messages that are not acknowledged to the stream, because the queue or the consumer is lost. Waits for the end of all requests: a
    /// message that came to a closed inbox would wait for `ack_wait`. The delays are those of [`finish`](Self::finish).
    async fn give_up(&self, pulls: &mut Pulls) {
        for one in self.unsettled.take() {
            give_back(&one.message, pulls.left()).await;
        }
        if let Some((message, _)) = self.in_hand.take() {
            give_back(&message, pulls.left()).await;
        }
        while self.scene.link.holds()
            && let Some(message) = pulls.rest().await
        {
            give_back(&message, pulls.left()).await;
        }
    }

    async fn pull_for_ever(&self, pulls: &mut Pulls) -> Result<(), String> {
        let mut link = self.scene.link.clone();
        let mut connections = link.connections();
        let mut backoff = Backoff::default();
        loop {
            self.show();
            self.check_queue()?;
            link.wait_shown(self.board).await?;
            if link.connections() != connections {
                // The server forgets a pull when its connection ends.
                pulls.forget();
                connections = link.connections();
            }
            let pulled = tokio::select! {
                pulled = self.pull(pulls) => pulled?,
                changed = link.changed(connections) => {
                    changed?;
                    continue;
                }
            };
            match pulled {
                Ok(()) => {
                    backoff.reset();
                    self.board.become_("running", None);
                }
                Err(why) => {
                    let why = stream::with_refusal(why, &self.scene.link);
                    self.board
                        .become_("waiting for the stream", Some(why.clone()));
                    self.board.count(|state| state.retries += 1);
                    tokio::time::sleep(backoff.pause()).await;
                    self.check_consumer(why).await?;
                }
            }
        }
    }

    /// Shows on the board how many messages of the stream the consumer has not acknowledged, without those that are in a durable queue. Without a
    /// connection, the last number stays. Never returns.
    async fn show_waiting(&self) {
        let mut consumer = self.consumer.clone();
        let mut backoff = Backoff::default();
        let mut pause = ASK;
        loop {
            let now = consumer.cached_info();
            // The server has two counts: messages that were never delivered, and delivered messages without an acknowledgement.
            let waiting = now.num_pending + now.num_ack_pending as u64;
            let unconsumed = self.unconsumed.as_ref();
            let held = unconsumed.map_or(0, |unconsumed| unconsumed.borrow().most_held());
            self.board
                .count(|state| state.backlog = waiting.saturating_sub(held as u64));
            loop {
                tokio::time::sleep(pause).await;
                // The client leaks a little memory for each request without an answer. So there is no request without a connection, and the pauses
                // grow while there are no answers.
                if !self.scene.link.holds() {
                    continue;
                }
                if consumer.info().await.is_ok() {
                    break;
                }
                pause = ASK.max(backoff.pause());
            }
            backoff.reset();
            pause = ASK;
        }
    }

    /// Fails with `why` if there is a connection but the server no longer has the consumer.
    async fn check_consumer(&self, why: String) -> Result<(), String> {
        if !self.scene.link.is_alive() {
            return Err(connect::ENDED.to_owned());
        }
        if !self.scene.link.holds() {
            return Ok(());
        }
        let mut consumer = self.consumer.clone();
        match consumer.info().await {
            Ok(_) => Ok(()),
            Err(_) => Err(why),
        }
    }

    fn show(&self) {
        let connected = self.scene.link.holds();
        self.board.count(|state| state.connected = connected);
        if !connected {
            self.board
                .become_(connect::WAITING, self.scene.link.refusal());
        }
    }

    /// Pulls messages and places them, until there are none or until the next check of the queue. The inner error is an error of the stream. The
    /// outer error is an error of the queue or the window, which must then be opened again.
    async fn pull(&self, pulls: &mut Pulls) -> Result<Result<(), String>, String> {
        let looked = Instant::now();
        while looked.elapsed() < LOOK_AT_QUEUE {
            let (message, began) = match self.in_hand.take() {
                Some(held) => held,
                None => {
                    let pulled = match pulls.ready() {
                        Some(pulled) => pulled,
                        None => {
                            self.settle().await?;
                            self.importer.rest();
                            pulls.next().await
                        }
                    };
                    match pulled {
                        Ok(Pulled::Message(message, began)) => (message, began),
                        Ok(Pulled::Nothing) => break,
                        Err(why) => return Ok(Err(why)),
                    }
                }
            };
            crash::reached(Point::IMPORT_PULLED);
            self.in_hand.set(Some((Rc::clone(&message), began)));
            // The wait for room starts at `began`, because the server may have delivered the message as early as that, and `ack_wait` has run since.
            let placed = self.place(&message, began + self.ack_wait() / 2).await?;
            if placed == Placed::NoRoom {
                // The message is returned without a delay, because other machines may have room.
                give_back(&message, Duration::ZERO).await;
            }
            self.in_hand.set(None);
            if placed == Placed::Settled {
                continue;
            }
            while let Some(message) = pulls.late(LATE).await {
                give_back(&message, Duration::ZERO).await;
            }
            // The old inbox is closed while the bridge waits for room. A message in the inbox would use up its `ack_wait`; a message at the server
            // does not.
            if let Err(why) = pulls.begin_again().await {
                return Ok(Err(why));
            }
            return self.wait_for_room(message.payload.len()).await.map(Ok);
        }
        Ok(Ok(()))
    }

    async fn wait_for_room(&self, len: usize) -> Result<(), String> {
        self.board.become_("the local queue is full", None);
        while !self.importer.has_room(len) {
            self.importer.writable().await;
            self.board.refresh();
            self.check_queue()?;
        }
        Ok(())
    }

    /// Fails if the queue's name no longer refers to the queue, or if a ring has no receiver.
    fn check_queue(&self) -> Result<(), String> {
        self.importer.check(&self.scene.namespace, self.bridge)
    }
}

/// Returns a message to the stream, which delivers it again after the given time.
async fn give_back(message: &Message, delay: Duration) {
    let delay = Some(delay).filter(|delay| !delay.is_zero());
    let _ = message.ack_with(AckKind::Nak(delay)).await;
}
