//! The calls of a test's process on a POSIX queue, which a journal records.

use super::journal::{Deed, How, Journal, Message, Part, SHORTEST};
use std::sync::atomic::Ordering::SeqCst;
use std::time::Duration;
use umsg::QueueError;
use umsg::posix::{
    Lease, LeaseError, NotifyError, Queue, ReceiveError, Received, Reservation, SendError,
};

/// The work of a test's process on a POSIX queue.
pub type Actor<'a> = Part<'a, Queue>;

impl<'a> Part<'a, Queue> {
    /// `size` is the queue's message size. It is not read from the queue, because a query would repair the remains of a dead receiver, and a test may
    /// need these remains.
    pub fn new(queue: &'a Queue, journal: &'a Journal, role: usize, size: usize) -> Self {
        Part::of(queue, journal, role, size)
    }

    /// Sends the next message; returns its number.
    pub fn send(&mut self, how: How, priority: u16, len: usize) -> Result<usize, SendError> {
        let len = len.clamp(SHORTEST, self.buffer.len());
        let (number, message) = self.write_next(priority, len);
        self.begin(how);
        let (bytes, priority) = (&self.buffer[..len], u32::from(priority));
        let result = match how {
            How::Try => self.queue.try_send(bytes, priority),
            How::Block => self.queue.send(bytes, priority),
            How::Within(time) => self.queue.send_timeout(bytes, priority, time),
            How::At(time) => self.queue.send_deadline(bytes, priority, time),
        };
        message.end(result.is_ok());
        self.end();
        result.map(|()| number)
    }

    /// Sends the next message for a delivery after `delay`; returns its number.
    pub fn send_after(
        &mut self,
        how: How,
        priority: u16,
        len: usize,
        delay: Duration,
    ) -> Result<usize, SendError> {
        let len = len.clamp(SHORTEST, self.buffer.len());
        let (number, message) = self.write_next(priority, len);
        self.begin(how);
        let (bytes, priority) = (&self.buffer[..len], u32::from(priority));
        let result = match how {
            How::Try => self.queue.try_send_after(bytes, priority, delay),
            How::Block => self.queue.send_after(bytes, priority, delay),
            How::Within(time) => self.queue.send_after_timeout(bytes, priority, delay, time),
            How::At(time) => self.queue.send_after_deadline(bytes, priority, delay, time),
        };
        message.end(result.is_ok());
        self.end();
        result.map(|()| number)
    }

    /// Sends the next messages as one batch, each with its priority and length; returns the number of the first.
    pub fn send_batch(&mut self, how: How, batch: &[(u16, usize)]) -> Result<usize, SendError> {
        let (first, records) = self.journal.next(batch.len());
        let mut more = batch.len();
        let mut letters: Vec<(Vec<u8>, u32)> = Vec::new();
        for (number, (record, &(priority, len))) in (first..).zip(records.iter().zip(batch)) {
            let mut bytes = vec![0; len.clamp(SHORTEST, self.buffer.len())];
            record.begin(number, self.author, priority, &mut bytes);
            more -= 1;
            record.leads(more);
            letters.push((bytes, priority.into()));
        }
        let messages: Vec<(&[u8], u32)> = letters
            .iter()
            .map(|(bytes, priority)| (&bytes[..], *priority))
            .collect();
        self.me().wants.store(batch.len() as u64, SeqCst);
        self.begin(how);
        let result = match how {
            How::Try => self.queue.try_send_batch(&messages),
            How::Block => self.queue.send_batch(&messages),
            How::Within(time) => self.queue.send_batch_timeout(&messages, time),
            How::At(time) => self.queue.send_batch_deadline(&messages, time),
        };
        for record in records {
            record.end(result.is_ok());
        }
        self.end();
        self.me().wants.store(0, SeqCst);
        result.map(|()| first)
    }

    /// Returns the next message, written into the buffer.
    fn write_next(&mut self, priority: u16, len: usize) -> (usize, &'a Message) {
        let (number, records) = self.journal.next(1);
        records[0].begin(number, self.author, priority, &mut self.buffer[..len]);
        (number, &records[0])
    }

    /// Reserves room for a message of `len` bytes.
    pub fn reserve(&self, how: How, len: usize) -> Result<Reservation<'a>, SendError> {
        let len = len.clamp(SHORTEST, self.buffer.len());
        self.begin(how);
        let result = match how {
            How::Try => self.queue.try_reserve(len),
            How::Block => self.queue.reserve(len),
            How::Within(time) => self.queue.reserve_timeout(len, time),
            How::At(time) => self.queue.reserve_deadline(len, time),
        };
        self.end();
        result
    }

    /// Writes the next message, of `len` bytes at most, into the room and sends it; returns its number.
    pub fn commit(
        &mut self,
        mut room: Reservation<'a>,
        priority: u16,
        len: usize,
    ) -> Result<usize, SendError> {
        let len = len.clamp(SHORTEST, room.len());
        let (number, message) = self.write_next(priority, len);
        room.truncate(len);
        room.write_at(0, &self.buffer[..len]);
        self.begin(How::Try);
        let result = room.commit(u32::from(priority));
        message.end(result.is_ok());
        self.end();
        result.map(|()| number)
    }

    /// Leases a message.
    pub fn lease(&self, how: How) -> Result<Lease<'a>, ReceiveError> {
        self.begin(how);
        let result = match how {
            How::Try => self.queue.try_receive_lease(),
            How::Block => self.queue.receive_lease(),
            How::Within(time) => self.queue.receive_lease_timeout(time),
            How::At(time) => self.queue.receive_lease_deadline(time),
        };
        self.end();
        result
    }

    /// Returns the journal's record of a leased message.
    fn message_of(&mut self, lease: &Lease<'_>) -> Option<&'a Message> {
        lease.read_at(0, &mut self.buffer);
        self.journal.of(&self.buffer[..lease.len()])
    }

    /// Acknowledges a lease, and records that the message is received. Returns the message's number.
    pub fn acknowledge(&mut self, lease: Lease<'a>) -> Result<usize, LeaseError> {
        let (len, priority) = (lease.len(), lease.priority());
        if let Some(message) = self.message_of(&lease) {
            message.ending.store(1, SeqCst);
        }
        self.begin(How::Try);
        let result = lease.acknowledge();
        let result = result.map(|()| self.note(&self.buffer[..len], priority));
        self.end();
        result
    }

    /// Receives a message; returns its number.
    pub fn receive(&mut self, how: How) -> Result<usize, ReceiveError> {
        self.me().receiving.fetch_add(1, SeqCst);
        self.begin(how);
        let mut room = self.journal.room(self.role, self.buffer.len());
        let result = match how {
            How::Try => self.queue.try_receive(&mut room),
            How::Block => self.queue.receive(&mut room),
            How::Within(time) => self.queue.receive_timeout(&mut room, time),
            How::At(time) => self.queue.receive_deadline(&mut room, time),
        };
        let result = result.map(|received| self.note(&room[..received.len], received.priority));
        self.me().receiving.fetch_sub(1, SeqCst);
        self.end();
        result
    }

    /// Receives the messages that the queue contains at the time of the call, up to `most`; returns their numbers.
    pub fn receive_batch(&mut self, how: How, most: usize) -> Result<Vec<usize>, ReceiveError> {
        self.me().receiving.fetch_add(most as u32, SeqCst);
        self.begin(how);
        let mut buffer = self.journal.room(self.role, most * self.buffer.len());
        let mut received = vec![Received::default(); most];
        let result = match how {
            How::Try => self.queue.try_receive_batch(&mut buffer, &mut received),
            How::Block => self.queue.receive_batch(&mut buffer, &mut received),
            How::Within(time) => self
                .queue
                .receive_batch_timeout(&mut buffer, &mut received, time),
            How::At(time) => self
                .queue
                .receive_batch_deadline(&mut buffer, &mut received, time),
        };
        let result = result.map(|count| {
            let messages = received[..count].iter();
            self.note_all(&buffer, messages.map(|one| (one.len, one.priority.into())))
        });
        self.me().receiving.fetch_sub(most as u32, SeqCst);
        self.end();
        result
    }

    fn note(&self, bytes: &[u8], priority: u32) -> usize {
        self.journal.note(bytes, priority.into())
    }

    fn begin(&self, how: How) {
        self.journal.begin(self.role, how);
    }

    fn end(&self) {
        self.journal.end(self.role);
    }

    /// Returns whether poll reports a message before the wait of `how` ends.
    pub fn poll(&self, how: How) -> bool {
        self.poll_doorbell(self.queue.pollable(), how)
    }

    /// Registers for a notification, if no process is registered, and waits for the notification. Returns whether the notification came.
    pub fn await_notification(&self, time: Duration) -> bool {
        self.begin(How::Within(time));
        let waited = self
            .queue
            .notify_waiter()
            .and_then(|mut awaited| awaited.wait_timeout(time));
        self.end();
        match waited {
            Ok(_) => self.journal.did(Deed::Notified),
            Err(
                NotifyError::Busy
                | NotifyError::Queue(QueueError::NoMemory)
                | NotifyError::Unavailable
                | NotifyError::TimedOut
                | NotifyError::Interrupted,
            ) => {}
            Err(error) => panic!("notification: {error}"),
        }
        waited.is_ok()
    }
}
