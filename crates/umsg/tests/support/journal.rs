//! The record of every message, in memory that a killed process leaves behind.
//!
//! A message is its number (4 bytes) and a pattern that follows from it. What its sender notes before and after the
//! call, and what its receiver notes, is enough to judge at the end: nothing lost, nothing twice, nothing mangled.

use super::now;
use super::shared::Zeroed;
use std::sync::atomic::{AtomicU8, AtomicU16, AtomicU32, AtomicU64, Ordering::SeqCst};
use std::time::Duration;
use umsg::posix::{Lease, LeaseError, Queue, ReceiveError, Received, Reservation, SendError};

/// Messages that a journal has room for.
pub const MESSAGES: usize = 1 << 23;
/// Processes that take part.
pub const ROLES: usize = 16;
/// Shortest message, in bytes: its number.
pub const SHORTEST: usize = 4;

/// What became of a send.
pub const BEGUN: u8 = 1;
pub const RETURNED: u8 = 2;
pub const REFUSED: u8 = 3;

#[repr(C)]
pub struct Message {
    pub state: AtomicU8,
    pub sender: AtomicU8,
    /// Of a System V queue, the type.
    pub priority: AtomicU16,
    pub len: AtomicU32,
    /// How often it was received, and as which of all receipts.
    pub received: AtomicU32,
    pub receipt: AtomicU32,
    /// 1 from the moment on at which somebody began to acknowledge its lease: who dies in there may have done it.
    pub ending: AtomicU32,
}

/// What is known of one process.
#[repr(C)]
pub struct Role {
    /// While it is inside of a receive, how many messages that may take; else 0.
    pub receiving: AtomicU32,
    /// Set by the process when it is ready, and by others to let it go on.
    pub ready: AtomicU32,
    pub go: AtomicU32,
    /// Calls that returned, and when the last one did.
    pub done: AtomicU64,
    pub done_at: AtomicU64,
    /// When a call that is still going on was begun; 0 for none.
    pub begun_at: AtomicU64,
    /// The first call that returned after [`Journal::mark`].
    pub first_after_mark: AtomicU64,
    /// The longest call.
    pub longest: AtomicU64,
}

#[repr(C)]
pub struct Journal {
    pub next: AtomicU32,
    /// Receipts so far.
    pub receipts: AtomicU32,
    /// Messages that were received other than they were sent.
    pub mangled: AtomicU32,
    /// A moment of CLOCK_MONOTONIC that somebody set; see [`Role::first_after_mark`].
    pub mark: AtomicU64,
    pub roles: [Role; ROLES],
    pub messages: [Message; MESSAGES],
}

// SAFETY: atomics only.
unsafe impl Zeroed for Journal {}

/// How to call.
#[derive(Clone, Copy, Debug)]
pub enum How {
    Try,
    Block,
    Within(Duration),
}

impl Message {
    /// Notes that a role is about to send it, and writes its bytes.
    pub fn begin(&self, number: usize, role: usize, priority: u16, bytes: &mut [u8]) {
        write_pattern(bytes, number as u32);
        self.sender.store(role as u8, SeqCst);
        self.priority.store(priority, SeqCst);
        self.len.store(bytes.len() as u32, SeqCst);
        self.state.store(BEGUN, SeqCst);
    }

    /// Notes whether the call that sends it succeeded.
    pub fn end(&self, is_sent: bool) {
        let state = if is_sent { RETURNED } else { REFUSED };
        self.state.store(state, SeqCst);
    }
}

impl Journal {
    /// Forgets everything. When nobody else uses it.
    pub fn reset(&self) {
        for message in &self.messages[..self.used()] {
            message.state.store(0, SeqCst);
            message.received.store(0, SeqCst);
            message.ending.store(0, SeqCst);
        }
        for role in &self.roles {
            for word in [
                &role.done,
                &role.done_at,
                &role.begun_at,
                &role.first_after_mark,
                &role.longest,
            ] {
                word.store(0, SeqCst);
            }
            for word in [&role.receiving, &role.ready, &role.go] {
                word.store(0, SeqCst);
            }
        }
        self.mark.store(0, SeqCst);
        self.receipts.store(0, SeqCst);
        self.next.store(0, SeqCst);
    }

    /// How many numbers were given out.
    pub fn used(&self) -> usize {
        (self.next.load(SeqCst) as usize).min(MESSAGES)
    }

    /// Room for the next `count` messages; the number of the first.
    pub fn next(&self, count: usize) -> (usize, &[Message]) {
        let first = self.next.fetch_add(count as u32, SeqCst) as usize;
        assert!(first + count <= MESSAGES, "the journal is full");
        (first, &self.messages[first..first + count])
    }

    /// Notes that a message was received, its bytes and its priority (or type) as they came; its number.
    pub fn note(&self, bytes: &[u8], priority: u64) -> usize {
        let number = read_pattern(bytes).map_or(usize::MAX, |number| number as usize);
        match self.messages.get(number) {
            Some(message)
                if message.len.load(SeqCst) as usize == bytes.len()
                    && u64::from(message.priority.load(SeqCst)) == priority =>
            {
                let receipt = self.receipts.fetch_add(1, SeqCst) + 1;
                message.receipt.store(receipt, SeqCst);
                message.received.fetch_add(1, SeqCst);
            }
            _ => {
                self.mangled.fetch_add(1, SeqCst);
            }
        }
        number
    }

    /// The record of a message, if every byte is as it was sent.
    pub fn of(&self, bytes: &[u8]) -> Option<&Message> {
        self.messages.get(read_pattern(bytes)? as usize)
    }

    /// A role begins a call.
    pub fn begin(&self, role: usize) {
        self.roles[role].begun_at.store(now(), SeqCst);
    }

    /// A role's call has returned.
    pub fn end(&self, role: usize) {
        let (role, now) = (&self.roles[role], now());
        role.longest
            .fetch_max(now.saturating_sub(role.begun_at.swap(0, SeqCst)), SeqCst);
        role.done.fetch_add(1, SeqCst);
        role.done_at.store(now, SeqCst);
        let mark = self.mark.load(SeqCst);
        if mark != 0 && now > mark {
            let _ = role
                .first_after_mark
                .compare_exchange(0, now, SeqCst, SeqCst);
        }
    }

    pub fn messages(&self) -> &[Message] {
        &self.messages[..self.used()]
    }

    /// Judges every message, once everybody has ended and the queue was drained: those whose send returned were
    /// received once, others at most once. Returns how many are missing, but for those whose acknowledgement began.
    #[track_caller]
    pub fn missing(&self, what: &str) -> usize {
        assert_eq!(self.mangled.load(SeqCst), 0, "{what}: mangled messages");
        let mut missing = 0;
        for (number, message) in self.messages().iter().enumerate() {
            let (state, received) = (message.state.load(SeqCst), message.received.load(SeqCst));
            match (state, received) {
                (RETURNED, 0) if message.ending.load(SeqCst) != 0 => {}
                (RETURNED, 0) => missing += 1,
                (RETURNED | BEGUN, 1) | (BEGUN | REFUSED | 0, 0) => {}
                _ => {
                    panic!("{what}: message {number} (state {state}) was received {received} times")
                }
            }
        }
        missing
    }

    /// How many messages of a send that did not return were received, and how many there are.
    pub fn unfinished(&self) -> (usize, usize) {
        let begun = || {
            self.messages()
                .iter()
                .filter(|message| message.state.load(SeqCst) == BEGUN)
        };
        let received = begun().filter(|message| message.received.load(SeqCst) != 0);
        (received.count(), begun().count())
    }

    /// How many messages were received.
    pub fn received(&self) -> usize {
        self.messages()
            .iter()
            .filter(|message| message.received.load(SeqCst) != 0)
            .count()
    }

    /// The messages that were received after the first `earlier` receipts, in the order of their receipt.
    pub fn received_after(&self, earlier: u32) -> Vec<usize> {
        let receipt = |number: usize| self.messages[number].receipt.load(SeqCst);
        let mut numbers: Vec<usize> = (0..self.used())
            .filter(|&number| self.messages[number].received.load(SeqCst) != 0)
            .filter(|&number| receipt(number) > earlier)
            .collect();
        numbers.sort_by_key(|&number| receipt(number));
        numbers
    }

    /// Fails unless `numbers`, in the order in which they were received from a queue at rest, are in the order of
    /// delivery: by priority, and within one as [`check_turns`](Self::check_turns) says.
    #[track_caller]
    pub fn check_order(
        &self,
        numbers: &[usize],
        before: impl Fn(usize, usize) -> bool,
        what: &str,
    ) {
        for pair in numbers.windows(2) {
            let priority = |number: usize| self.messages[number].priority.load(SeqCst);
            let (earlier, later) = (priority(pair[0]), priority(pair[1]));
            assert!(
                earlier >= later,
                "{what}: priority {earlier} was received before {later}"
            );
        }
        self.check_turns(numbers, before, what);
    }

    /// Fails unless messages of one sender and priority were received as they were sent, and before others of that
    /// priority those of which `before` says that they were sent earlier.
    #[track_caller]
    pub fn check_turns(
        &self,
        numbers: &[usize],
        before: impl Fn(usize, usize) -> bool,
        what: &str,
    ) {
        let priority = |number: usize| self.messages[number].priority.load(SeqCst);
        let sender = |number: usize| self.messages[number].sender.load(SeqCst);
        let mut latest: std::collections::HashMap<(u16, u8), usize> =
            std::collections::HashMap::new();
        for &number in numbers {
            let key = (priority(number), sender(number));
            for (&(other_priority, other), &last) in &latest {
                if other_priority == key.0
                    && (other == key.1 && last > number || before(number, last))
                {
                    panic!(
                        "{what}: message {last} of role {other} was received before {number} of role {}, both of priority {}",
                        key.1, key.0
                    );
                }
            }
            latest.insert(key, number);
        }
    }
}

/// A process's part: a queue and the record of what it does with it.
pub struct Actor<'a> {
    pub queue: &'a Queue,
    pub journal: &'a Journal,
    pub role: usize,
    buffer: Vec<u8>,
}

impl<'a> Actor<'a> {
    /// `size` is the queue's message size. It is not asked of the queue: to ask repairs what a dead receiver left, and a
    /// test may want it left.
    pub fn new(queue: &'a Queue, journal: &'a Journal, role: usize, size: usize) -> Actor<'a> {
        Actor {
            queue,
            journal,
            role,
            buffer: vec![0; size],
        }
    }

    pub fn me(&self) -> &Role {
        &self.journal.roles[self.role]
    }

    /// Sends the next message; returns its number.
    pub fn send(&mut self, how: How, priority: u16, len: usize) -> Result<usize, SendError> {
        let len = len.clamp(SHORTEST, self.buffer.len());
        let (number, message) = self.write_next(priority, len);
        self.begin();
        let (bytes, priority) = (&self.buffer[..len], u32::from(priority));
        let result = match how {
            How::Try => self.queue.try_send(bytes, priority),
            How::Block => self.queue.send(bytes, priority),
            How::Within(time) => self.queue.send_timeout(bytes, priority, time),
        };
        message.end(result.is_ok());
        self.end();
        result.map(|()| number)
    }

    /// Sends the next messages as one batch, each with its priority and length; returns the number of the first.
    pub fn send_batch(&mut self, how: How, batch: &[(u16, usize)]) -> Result<usize, SendError> {
        let (first, records) = self.journal.next(batch.len());
        let mut letters: Vec<(Vec<u8>, u32)> = Vec::new();
        for (number, (record, &(priority, len))) in (first..).zip(records.iter().zip(batch)) {
            let mut bytes = vec![0; len.clamp(SHORTEST, self.buffer.len())];
            record.begin(number, self.role, priority, &mut bytes);
            letters.push((bytes, priority.into()));
        }
        let messages: Vec<(&[u8], u32)> = letters
            .iter()
            .map(|(bytes, priority)| (&bytes[..], *priority))
            .collect();
        self.begin();
        let result = match how {
            How::Try => self.queue.try_send_batch(&messages),
            How::Block => self.queue.send_batch(&messages),
            How::Within(time) => self.queue.send_batch_timeout(&messages, time),
        };
        for record in records {
            record.end(result.is_ok());
        }
        self.end();
        result.map(|()| first)
    }

    /// The next message, written into the buffer.
    fn write_next(&mut self, priority: u16, len: usize) -> (usize, &'a Message) {
        let (number, records) = self.journal.next(1);
        records[0].begin(number, self.role, priority, &mut self.buffer[..len]);
        (number, &records[0])
    }

    /// Reserves room for a message of `len` bytes.
    pub fn reserve(&self, how: How, len: usize) -> Result<Reservation<'a>, SendError> {
        let len = len.clamp(SHORTEST, self.buffer.len());
        self.begin();
        let result = match how {
            How::Try => self.queue.try_reserve(len),
            How::Block => self.queue.reserve(len),
            How::Within(time) => self.queue.reserve_timeout(len, time),
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
        self.begin();
        let result = room.commit(u32::from(priority));
        message.end(result.is_ok());
        self.end();
        result.map(|()| number)
    }

    /// Leases a message.
    pub fn lease(&self, how: How) -> Result<Lease<'a>, ReceiveError> {
        self.begin();
        let result = match how {
            How::Try => self.queue.try_receive_lease(),
            How::Block => self.queue.receive_lease(),
            How::Within(time) => self.queue.receive_lease_timeout(time),
        };
        self.end();
        result
    }

    /// The message that is leased.
    fn of(&mut self, lease: &Lease<'_>) -> Option<&'a Message> {
        lease.read_at(0, &mut self.buffer);
        self.journal.of(&self.buffer[..lease.len()])
    }

    /// Acknowledges a lease: only now its message counts as received. Returns its number.
    pub fn acknowledge(&mut self, lease: Lease<'a>) -> Result<usize, LeaseError> {
        let (len, priority) = (lease.len(), lease.priority());
        if let Some(message) = self.of(&lease) {
            message.ending.store(1, SeqCst);
        }
        self.begin();
        let result = lease.acknowledge();
        let result = result.map(|()| self.note(&self.buffer[..len], priority));
        self.end();
        result
    }

    /// Receives a message; returns its number.
    pub fn receive(&mut self, how: How) -> Result<usize, ReceiveError> {
        self.me().receiving.store(1, SeqCst);
        self.begin();
        let result = match how {
            How::Try => self.queue.try_receive(&mut self.buffer),
            How::Block => self.queue.receive(&mut self.buffer),
            How::Within(time) => self.queue.receive_timeout(&mut self.buffer, time),
        };
        let result =
            result.map(|received| self.note(&self.buffer[..received.len], received.priority));
        self.me().receiving.store(0, SeqCst);
        self.end();
        result
    }

    /// Receives up to `most` messages, those that are there; returns their numbers.
    pub fn receive_batch(&mut self, how: How, most: usize) -> Result<Vec<usize>, ReceiveError> {
        self.me().receiving.store(most as u32, SeqCst);
        self.begin();
        let mut buffer = vec![0; most * self.buffer.len()];
        let mut received = vec![Received::default(); most];
        let result = match how {
            How::Try => self.queue.try_receive_batch(&mut buffer, &mut received),
            How::Block => self.queue.receive_batch(&mut buffer, &mut received),
            How::Within(time) => self
                .queue
                .receive_batch_timeout(&mut buffer, &mut received, time),
        };
        let mut rest = &buffer[..];
        let result = result.map(|count| {
            let messages = received[..count].iter();
            messages
                .map(|message| {
                    let (bytes, behind) = rest.split_at(message.len);
                    rest = behind;
                    self.note(bytes, message.priority)
                })
                .collect()
        });
        self.me().receiving.store(0, SeqCst);
        self.end();
        result
    }

    fn note(&self, bytes: &[u8], priority: u32) -> usize {
        self.journal.note(bytes, priority.into())
    }

    fn begin(&self) {
        self.journal.begin(self.role);
    }

    fn end(&self) {
        self.journal.end(self.role);
    }
}

fn write_pattern(bytes: &mut [u8], number: u32) {
    for (index, byte) in bytes.iter_mut().enumerate() {
        *byte = (number as usize + index * 7) as u8;
    }
    bytes[..4].copy_from_slice(&number.to_le_bytes());
}

/// The number of a message, if every byte is as it was sent.
fn read_pattern(bytes: &[u8]) -> Option<u32> {
    let number = u32::from_le_bytes(*bytes.first_chunk()?);
    bytes
        .iter()
        .enumerate()
        .skip(4)
        .all(|(index, &byte)| byte == (number as usize + index * 7) as u8)
        .then_some(number)
}
