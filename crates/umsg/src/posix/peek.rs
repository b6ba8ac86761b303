//! Peeking: reading messages that stay in the queue.

use super::history::History;
use super::message_event::MessageEvent;
use super::queue::Queue;
use crate::error::ReceiveError;
use std::time::{Duration, SystemTime};
use umsg_shm::posix_engine::segment::Trace;
use umsg_shm::posix_engine::{PeekedMessages, Seen, SeenHistory};
use umsg_shm::sys::{clock, thread};

/// A message that was peeked at and stays in the queue.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Peeked {
    /// A number that no other message of the queue has. It is the same as [`Lease::message_id`](super::Lease::message_id), and, for a dead letter, as
    /// [`History::id`]. A message gets its number at its first lease, or when the queue sorts it by priority; `None` before that time.
    pub id: Option<u64>,
    /// The bytes of the message.
    pub data: Vec<u8>,
    /// Priority, 0 to 32,767.
    pub priority: u32,
    /// Process id of the sender.
    pub pid: u32,
    /// The time of the call that sent the message, accurate to a few milliseconds. If a delayed message was restored from a snapshot after its
    /// delivery time, the field has the delivery time.
    pub sent: SystemTime,
    /// For a delayed message, the earliest time of its delivery. For a queued message that was [sent for a later time](Queue::send_after), its
    /// delivery time, at which its time to live began. `None` for other messages.
    pub due: Option<SystemTime>,
    /// Number of leases after which the message came back.
    pub returns: u32,
    /// The history of a message that is or was a dead letter.
    pub history: Option<History>,
    /// The known events of the message, the oldest first, in a queue that [traces messages](super::OpenOptions::trace_messages); otherwise empty. The
    /// first event is the send, and the queue keeps the last 13 of the other events. A message takes its events along to a dead-letter queue and
    /// back.
    pub events: Vec<MessageEvent>,
    /// The number of events after the send that are no longer known.
    pub forgotten_events: u32,
}

impl Peeked {
    fn new(
        seen: &Seen,
        bytes: &[u8],
        history: Option<&SeenHistory>,
        trace: Option<&Trace>,
    ) -> Peeked {
        Peeked {
            id: seen.id,
            data: bytes.to_vec(),
            priority: seen.key as u32,
            pid: seen.pid,
            sent: clock::shown(seen.sent_at),
            due: (seen.due != 0).then(|| clock::shown(seen.due)),
            returns: seen.returns,
            history: history.map(|seen| History::of(seen.id, &seen.history)),
            events: trace.map_or_else(Vec::new, |trace| {
                let (at, pid) = match history {
                    Some(first) => (first.history.sent_at, first.history.pid),
                    None => (seen.sent_at, seen.pid),
                };
                let sent = std::iter::once(MessageEvent::sent(at, pid));
                sent.chain(MessageEvent::all_of(trace)).collect()
            }),
            forgotten_events: trace.map_or(0, Trace::forgotten),
        }
    }

    fn all_of(look: &PeekedMessages) -> Vec<Peeked> {
        let messages = look.iter().enumerate();
        messages
            .map(|(at, (seen, bytes))| Peeked::new(seen, bytes, look.history(at), look.trace(at)))
            .collect()
    }

    /// Returns the time since the send; zero if the system's clock was set back after the send.
    ///
    /// ```
    /// # let dir = tempfile::tempdir_in("/dev/shm")?;
    /// # let namespace = umsg::Namespace::at(dir.path())?;
    /// # let queue = umsg::posix::OpenOptions::new().read(true).write(true).create(true).namespace(&namespace).open("/q")?;
    /// queue.send(b"job", 0)?;
    /// let oldest = queue.peek(0)?.unwrap();
    /// assert!(oldest.age() < std::time::Duration::from_secs(60));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn age(&self) -> Duration {
        SystemTime::now()
            .duration_since(self.sent)
            .unwrap_or_default()
    }
}

impl Queue {
    /// Returns the n-th message in order of delivery, counted from 0, and leaves it in the queue. `None` if there are fewer
    /// messages.
    ///
    /// ```
    /// # let dir = tempfile::tempdir_in("/dev/shm")?;
    /// # let namespace = umsg::Namespace::at(dir.path())?;
    /// # let queue = umsg::posix::OpenOptions::new().read(true).write(true).create(true).namespace(&namespace).open("/q")?;
    /// queue.send(b"job", 0)?;
    /// assert_eq!(queue.peek(0)?.unwrap().data, b"job");
    /// assert!(queue.peek(1)?.is_none());
    /// assert_eq!(queue.attributes().messages, 1);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Blocking
    /// Other receivers wait during the call, for a time in proportion to `n`: some nanoseconds for each message.
    ///
    /// # Errors
    /// The errors of [`messages`](Self::messages).
    pub fn peek(&self, n: usize) -> Result<Option<Peeked>, ReceiveError> {
        Ok(self.peeked(n, 1)?.pop())
    }

    /// Returns up to `most` messages in order of delivery, as they were at one instant, and leaves them in the queue.
    ///
    /// The result includes expired messages that no receiver has found yet. The result leaves out messages that were handed to a blocked receiver,
    /// messages of blocked senders, and leased messages. For delayed messages see [`delayed_messages`](Self::delayed_messages).
    ///
    /// ```
    /// # let dir = tempfile::tempdir_in("/dev/shm")?;
    /// # let namespace = umsg::Namespace::at(dir.path())?;
    /// # let queue = umsg::posix::OpenOptions::new().read(true).write(true).create(true).namespace(&namespace).open("/q")?;
    /// queue.send(b"low", 1)?;
    /// queue.send(b"high", 2)?;
    /// let messages = queue.messages(10)?;
    /// assert_eq!(messages[0].data, b"high");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Blocking
    /// Other receivers wait while the call copies the messages. Senders do not wait.
    ///
    /// # Errors
    /// [`ReceiveError::NotReadable`], `Damaged`, `WouldDeadlock`; `NoMemory` if there is no memory for the copies; `TimedOut` if
    /// a process was stopped a second ago or more inside an operation on this queue.
    ///
    /// # If the process dies
    /// Nothing is lost: the next receiver continues.
    pub fn messages(&self, most: usize) -> Result<Vec<Peeked>, ReceiveError> {
        self.peeked(0, most)
    }

    /// Returns up to `most` delayed messages in the order of their delivery times, as they were at one instant, and leaves them delayed.
    ///
    /// ```
    /// # let dir = tempfile::tempdir_in("/dev/shm")?;
    /// # let namespace = umsg::Namespace::at(dir.path())?;
    /// # let queue = umsg::posix::OpenOptions::new().read(true).write(true).create(true).namespace(&namespace).open("/q")?;
    /// use std::time::Duration;
    ///
    /// queue.send_after(b"tomorrow", 0, Duration::from_secs(24 * 3600))?;
    /// queue.send_after(b"in an hour", 0, Duration::from_secs(3600))?;
    /// let delayed = queue.delayed_messages(10)?;
    /// assert_eq!(delayed[0].data, b"in an hour");
    /// assert!(delayed[0].due > Some(delayed[0].sent));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Blocking
    /// Other receivers wait during the call, for a time in proportion to all leased and delayed messages.
    ///
    /// # Errors
    /// The errors of [`messages`](Self::messages).
    ///
    /// # If the process dies
    /// The same as for [`messages`](Self::messages).
    pub fn delayed_messages(&self, most: usize) -> Result<Vec<Peeked>, ReceiveError> {
        self.check_to_look()?;
        self.engine
            .peek_at_delayed(thread::current(), most)
            .map(|look| Peeked::all_of(&look))
            .map_err(|refused| self.receive_error(refused))
    }

    fn peeked(&self, skip: usize, most: usize) -> Result<Vec<Peeked>, ReceiveError> {
        Ok(Peeked::all_of(&self.look(skip, most)?))
    }

    /// Refuses to show messages to a handle that was not opened for receiving.
    pub(super) fn check_to_look(&self) -> Result<(), ReceiveError> {
        match self.access.read {
            true => Ok(()),
            false => Err(ReceiveError::NotReadable),
        }
    }

    /// Copies all messages: first the queued messages, then the delayed messages.
    pub(super) fn look_at_all(&self) -> Result<PeekedMessages, ReceiveError> {
        self.check_to_look()?;
        self.engine
            .peek_at_all(thread::current())
            .map_err(|refused| self.receive_error(refused))
    }

    /// Returns up to `most` messages after the first `skip` messages.
    fn look(&self, skip: usize, most: usize) -> Result<PeekedMessages, ReceiveError> {
        self.check_to_look()?;
        self.engine
            .peek(thread::current(), skip, most)
            .map_err(|refused| self.receive_error(refused))
    }
}
