//! Placing a message in the queue, and the steps that follow: the note in the window, the acknowledgement, and the dead-letter queue.

use super::{Work, note, unwritten};
use crate::config::OnReject;
use crate::crash::{self, Point};
use crate::envelope;
use crate::export::REFUSED;
use crate::headers;
use crate::local::{Placing, Refusal};
use crate::log;
use crate::window::{Entry, NoteError};
use async_nats::jetstream::{AckKind, Message};
use std::rc::Rc;
use std::time::{Duration, Instant};

/// The interval at which the import checks which messages of a durable queue were consumed.
const LOOK: Duration = Duration::from_millis(100);

/// The maximum number of messages of a POSIX queue that are settled together: noted in the window's file, removed from the arrival records, and
/// acknowledged. Until then, each message has a record in the queue.
const TOGETHER: usize = 32;

/// A message in the queue that must still be noted in the window's file, removed from the arrival records, and acknowledged.
#[derive(Clone)]
pub(super) struct Unsettled {
    pub(super) message: Rc<Message>,
    pub(super) entry: Entry,
}

/// The result of an attempt to place a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Placed {
    /// The message is placed, was placed before, or can never be placed.
    Settled,
    /// There was no room for a long time: the message must return to the stream.
    NoRoom,
}

impl Work<'_> {
    /// Places a message. Waits for room until the given time.
    pub(super) async fn place(
        &self,
        message: &Rc<Message>,
        until: Instant,
    ) -> Result<Placed, String> {
        let info = message
            .info()
            .map_err(|error| format!("`consumer`: {error}"))?;
        let sequence = info.stream_sequence;
        let mut placing = headers::placing(message.headers.as_ref(), message.payload.clone());
        if let Some(known) = self.known(sequence, placing.name)? {
            self.board.count(|state| state.duplicates += 1);
            let known = Entry { sequence, ..known };
            self.settle_later(message, known).await?;
            return Ok(Placed::Settled);
        }
        if self.bridge.envelope {
            let reply_to = placing.reply_to.as_deref().unwrap_or_default();
            placing.data = envelope::wrap(reply_to, &placing.data);
        }
        if placing.is_expired() {
            self.expire(message, &placing).await;
            return Ok(Placed::Settled);
        }
        loop {
            match self.importer.try_place(&placing, sequence) {
                Ok(number) => {
                    crash::reached(Point::IMPORT_PLACED);
                    let entry = Entry {
                        sequence,
                        number,
                        name: placing.name,
                    };
                    self.note(entry)?;
                    let (messages, bytes) = self.counts.get();
                    let now = bytes + placing.data.len() as u64;
                    self.counts.set((messages + 1, now));
                    self.settle_later(message, entry).await?;
                    return Ok(Placed::Settled);
                }
                Err(Refusal::Full) => {
                    self.settle().await?;
                    if Instant::now() >= until {
                        return Ok(Placed::NoRoom);
                    }
                    self.importer.writable().await;
                }
                Err(Refusal::Message(why)) => {
                    return Ok(self.reject(message, &placing, &why).await);
                }
                Err(Refusal::Queue(why)) => {
                    return Err(format!("`queue` {}: {why}", self.bridge.queue));
                }
            }
        }
    }

    /// Finds the entry of a message that was placed before: either the server delivers the message again, or the stream has a second copy.
    fn known(&self, sequence: u64, name: u128) -> Result<Option<Entry>, String> {
        let known = {
            let window = self.window.borrow();
            let by_name = || {
                Some(name)
                    .filter(|name| *name != 0)
                    .and_then(|name| window.find_name(name))
            };
            window.find(sequence).or_else(by_name)
        };
        let Some(known) = known else { return Ok(None) };
        let now = Entry {
            sequence,
            name,
            ..known
        };
        // The entry changes if this is the second copy in the stream, or if a bridge died before it noted the name.
        if now != known {
            self.note(now)?;
        }
        Ok(Some(known))
    }

    fn note(&self, entry: Entry) -> Result<(), String> {
        let number = entry.number;
        let mut window = self.window.borrow_mut();
        let (Some(unconsumed), Some(queue)) = (&self.unconsumed, self.importer.posix()) else {
            return note(&mut window, entry, &|_| false);
        };
        let mut unconsumed = unconsumed.borrow_mut();
        unconsumed.hold(number);
        match window.note(entry, &|number| unconsumed.is_held(number)) {
            Err(NoteError::NoPlace) => {}
            noted => return noted.map_err(|error| unwritten(&error)),
        }
        unconsumed.look(queue)?;
        unconsumed.hold(number);
        note(&mut window, entry, &|number| unconsumed.is_held(number))
    }

    /// Moves a placed message to the messages that are settled together.
    async fn settle_later(&self, message: &Rc<Message>, entry: Entry) -> Result<(), String> {
        self.unsettled.borrow_mut().push_back(Unsettled {
            message: Rc::clone(message),
            entry,
        });
        self.in_hand.set(None);
        // A message in a queue without arrival records is settled at once: if the bridge died, messages that are not in the window's file would be
        // placed a second time.
        let most = self.importer.posix().map_or(1, |_| TOGETHER);
        let has_most = self.unsettled.borrow().len() >= most;
        if has_most {
            self.settle().await?;
        }
        Ok(())
    }

    /// Writes the window. Then removes the arrival records of the placed messages, and acknowledges the messages.
    ///
    /// Fails before that if the queue was removed or replaced, or if a ring has lost its receiver. The check is after the placing, so each
    /// acknowledged message has been in the queue of the name.
    pub(super) async fn settle(&self) -> Result<(), String> {
        if self.unsettled.borrow().is_empty() {
            return Ok(());
        }
        self.check_queue()?;
        let flushed = self.window.borrow_mut().flush();
        flushed.map_err(|error| unwritten(&error))?;
        let (messages, bytes) = self.counts.take();
        self.board.count(|state| {
            state.messages += messages;
            state.bytes += bytes;
        });
        loop {
            // The message stays in the list until it is acknowledged: this future may be dropped.
            let first = self.unsettled.borrow().front().cloned();
            let Some(first) = first else { break };
            crash::reached(Point::IMPORT_NOTED);
            self.importer.forget(first.entry.sequence)?;
            crash::reached(Point::IMPORT_FORGOTTEN);
            let Entry {
                sequence, number, ..
            } = first.entry;
            self.end(&first.message, sequence, number).await;
            self.unsettled.borrow_mut().pop_front();
        }
        Ok(())
    }

    /// Acknowledges a message that is in the queue. For a durable queue, only notes the message: it is acknowledged after a local
    /// receiver has acknowledged it.
    async fn end(&self, message: &Message, sequence: u64, number: u64) {
        match &self.unconsumed {
            Some(unconsumed) => unconsumed.borrow_mut().add(number, sequence, message),
            None => acknowledge(message).await,
        }
    }

    /// Acknowledges the messages of a durable queue that local receivers have acknowledged. Runs for ever.
    pub(super) async fn acknowledge_consumed(&self) -> Result<(), String> {
        let (Some(unconsumed), Some(queue)) = (&self.unconsumed, self.importer.posix()) else {
            return std::future::pending().await;
        };
        loop {
            tokio::time::sleep(LOOK).await;
            let consumed = unconsumed.borrow_mut().take_consumed(queue)?;
            for acker in consumed {
                let _ = acker.ack().await;
            }
            let prolonged = unconsumed.borrow_mut().take_due(self.ack_wait() / 3);
            for acker in prolonged {
                let _ = acker.ack_with(AckKind::Progress).await;
            }
            let waiting = unconsumed.borrow().len() as u64;
            self.board.count(|state| state.in_flight = waiting);
        }
    }

    /// Moves an expired message to the dead-letter queue, if there is one, and acknowledges the message. If the dead-letter queue refuses the
    /// message, the message waits in the stream.
    async fn expire(&self, message: &Message, placing: &Placing) {
        if let Some(dead) = &self.dead {
            if let Err(error) = dead.try_send(&placing.data, placing.priority.min(32_767)) {
                return self.wait_for_dead_letter(message, &error).await;
            }
            self.board.count(|state| state.dead_lettered += 1);
        }
        self.board.count(|state| state.expired += 1);
        acknowledge(message).await;
    }

    /// Lets a message wait in the stream, because the dead-letter queue does not take it now.
    async fn wait_for_dead_letter(&self, message: &Message, error: &str) {
        let error = format!("`dead_letter`: {error}");
        log::failure(&self.bridge.name, "the message waits", &error);
        let _ = message.ack_with(AckKind::Nak(Some(REFUSED))).await;
    }

    /// Moves a message that the queue can never take to the dead-letter queue, or leaves it in the stream.
    async fn reject(&self, message: &Message, placing: &Placing, why: &str) -> Placed {
        self.board.count(|state| state.rejected += 1);
        log::failure(&self.bridge.name, "message rejected", &why);
        let dead = self
            .dead
            .as_ref()
            .filter(|_| self.bridge.on_reject == OnReject::DeadLetter);
        match dead.map(|dead| dead.try_send(&placing.data, placing.priority.min(32_767))) {
            Some(Ok(())) => {
                self.board.count(|state| state.dead_lettered += 1);
                acknowledge(message).await;
            }
            Some(Err(error)) => self.wait_for_dead_letter(message, &error).await,
            None => {
                let _ = message.ack_with(AckKind::Nak(Some(REFUSED))).await;
            }
        }
        Placed::Settled
    }
}

async fn acknowledge(message: &Message) {
    // A lost acknowledgement causes a redelivery, which the window recognises.
    let _ = message.ack().await;
    crash::reached(Point::IMPORT_ENDED);
}
