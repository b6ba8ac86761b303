//! The calls of a test's process on a System V queue, which a journal records, as [`Actor`](super::actor::Actor) does for a POSIX queue. In the
//! journal, types take the place of priorities.

use super::journal::{How, Journal, Part, SHORTEST};
use std::sync::atomic::Ordering::SeqCst;
use std::time::Duration;
use umsg::sysv::{Lease, LeaseError, Queue, ReceiveError, Received, SendError, Want};

/// The work of a test's process on a System V queue.
pub type Clerk<'a> = Part<'a, Queue>;

impl<'a> Part<'a, Queue> {
    pub fn new(queue: &'a Queue, journal: &'a Journal, role: usize) -> Self {
        Part::of(queue, journal, role, queue.msgmax())
    }

    /// Returns the `Clerk` of a process for a queue whose messages have at most `size` bytes.
    pub fn of_short(queue: &'a Queue, journal: &'a Journal, role: usize, size: usize) -> Self {
        Part::of(queue, journal, role, size)
    }

    /// Sends the next message; returns its number.
    pub fn send(&mut self, how: How, mtype: u16, len: usize) -> Result<usize, SendError> {
        let len = len.clamp(SHORTEST, self.buffer.len());
        let (number, records) = self.journal.next(1);
        let bytes = &mut self.buffer[..len];
        records[0].begin(number, self.author, mtype, bytes);
        self.journal.begin(self.role, how);
        let result = self.queue.send_until(mtype.into(), bytes, how.into());
        records[0].end(result.is_ok());
        self.journal.end(self.role);
        result.map(|()| number)
    }

    /// Sends the next message for a delivery after `delay`; returns its number.
    pub fn send_after(
        &mut self,
        how: How,
        mtype: u16,
        len: usize,
        delay: Duration,
    ) -> Result<usize, SendError> {
        let len = len.clamp(SHORTEST, self.buffer.len());
        let (number, records) = self.journal.next(1);
        let bytes = &mut self.buffer[..len];
        records[0].begin(number, self.author, mtype, bytes);
        self.journal.begin(self.role, how);
        let (bytes, mtype) = (&*bytes, i64::from(mtype));
        let result = match how {
            How::Try => self.queue.try_send_after(mtype, bytes, delay),
            How::Block => self.queue.send_after(mtype, bytes, delay),
            How::Within(time) => self.queue.send_after_timeout(mtype, bytes, delay, time),
            How::At(time) => self.queue.send_after_deadline(mtype, bytes, delay, time),
        };
        records[0].end(result.is_ok());
        self.journal.end(self.role);
        result.map(|()| number)
    }

    /// Sends the next messages as one batch, each with its type and length; returns the number of the first.
    pub fn send_batch(&mut self, how: How, batch: &[(u16, usize)]) -> Result<usize, SendError> {
        let (first, records) = self.journal.next(batch.len());
        let mut more = batch.len();
        let mut letters: Vec<(i64, Vec<u8>)> = Vec::new();
        for (number, (record, &(mtype, len))) in (first..).zip(records.iter().zip(batch)) {
            let mut bytes = vec![0; len.clamp(SHORTEST, self.buffer.len())];
            record.begin(number, self.author, mtype, &mut bytes);
            more -= 1;
            record.leads(more);
            letters.push((mtype.into(), bytes));
        }
        let messages: Vec<(i64, &[u8])> = letters
            .iter()
            .map(|(mtype, bytes)| (*mtype, &bytes[..]))
            .collect();
        let bytes = messages.iter().map(|(_, bytes)| bytes.len() as u64);
        self.me().wants.store(bytes.sum(), SeqCst);
        self.journal.begin(self.role, how);
        let result = self.queue.send_batch_until(&messages, how.into());
        for record in records {
            record.end(result.is_ok());
        }
        self.journal.end(self.role);
        self.me().wants.store(0, SeqCst);
        result.map(|()| first)
    }

    /// Receives a message; returns its number.
    pub fn receive(&mut self, how: How, want: Want) -> Result<usize, ReceiveError> {
        self.me().receiving.fetch_add(1, SeqCst);
        self.journal.begin(self.role, how);
        let mut room = self.journal.room(self.role, self.buffer.len());
        let result = self.queue.receive_until(want, &mut room, false, how.into());
        let result = result.map(|received| {
            let bytes = &room[..received.len];
            self.journal.note(bytes, received.mtype as u64)
        });
        self.me().receiving.fetch_sub(1, SeqCst);
        self.journal.end(self.role);
        result
    }

    /// Receives the messages of the queue, up to `most`, with one call. Returns their numbers.
    pub fn receive_batch(
        &mut self,
        how: How,
        want: Want,
        most: usize,
    ) -> Result<Vec<usize>, ReceiveError> {
        self.me().receiving.fetch_add(most as u32, SeqCst);
        self.journal.begin(self.role, how);
        // A batch receive that has to wait needs room for the longest possible message.
        let len = (most * self.buffer.len()).max(self.queue.msgmax());
        let mut buffer = self.journal.room(self.role, len);
        let mut received = vec![Received::default(); most];
        let result = self
            .queue
            .receive_batch_until(want, &mut buffer, &mut received, how.into());
        let result = result.map(|count| {
            let messages = received[..count].iter();
            self.note_all(&buffer, messages.map(|one| (one.len, one.mtype as u64)))
        });
        self.me().receiving.fetch_sub(most as u32, SeqCst);
        self.journal.end(self.role);
        result
    }

    /// Leases a message.
    pub fn lease(&self, how: How, want: Want) -> Result<Lease<'a>, ReceiveError> {
        self.journal.begin(self.role, how);
        let result = self.queue.receive_lease_until(want, how.into());
        self.journal.end(self.role);
        result
    }

    /// Acknowledges a lease, and records that the message is received. Returns the message's number.
    pub fn acknowledge(&mut self, lease: Lease<'a>) -> Result<usize, LeaseError> {
        let (bytes, mtype) = (lease.to_vec(), lease.mtype() as u64);
        if let Some(message) = self.journal.of(&bytes) {
            message.ending.store(1, SeqCst);
        }
        self.journal.begin(self.role, How::Try);
        let result = lease.acknowledge();
        let result = result.map(|()| self.journal.note(&bytes, mtype));
        self.journal.end(self.role);
        result
    }

    /// Returns whether poll reports a message before the wait of `how` ends.
    pub fn poll(&self, how: How) -> bool {
        self.poll_doorbell(self.queue.pollable(), how)
    }
}
