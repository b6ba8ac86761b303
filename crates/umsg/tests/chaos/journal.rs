//! The record of every message, in memory that a killed process leaves behind.
//!
//! A message is its number (4 bytes) and a pattern that is computed from the number. The notes of the sender before and after the call, and the notes
//! of the receiver, suffice for the judgement at the end: no message is lost, repeated or changed.

use super::hands::{HANDS, Hand};
use super::poll_readable;
use crate::support::now;
use crate::support::shared::Zeroed;
use std::io;
use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicU8, AtomicU16, AtomicU32, AtomicU64, Ordering::SeqCst};
use std::time::{Duration, SystemTime};
use umsg_shm::crash::POINTS;

/// The number of messages for which a journal has room.
pub const MESSAGES: usize = 1 << 23;
/// The maximum number of processes and threads that take part.
pub const ROLES: usize = 64;
/// The length of the shortest message, in bytes: it has only its number.
pub const SHORTEST: usize = 4;

/// The states of a send.
pub const BEGUN: u8 = 1;
pub const RETURNED: u8 = 2;
pub const REFUSED: u8 = 3;

#[repr(C)]
pub struct Message {
    pub state: AtomicU8,
    pub sender: AtomicU8,
    /// 1 if the message was in the buffer of a receiver that died during the receive: it may be lost with the receiver.
    pub in_dead_hands: AtomicU8,
    /// The number of messages of the same batch that follow this message.
    pub more: AtomicU8,
    /// The position of the sending process among the processes that have had its role.
    pub life: AtomicU32,
    /// The priority, or in a System V queue the type.
    pub priority: AtomicU16,
    pub len: AtomicU32,
    /// The number of times that the message was received, and its position among all receipts.
    pub received: AtomicU32,
    pub receipt: AtomicU32,
    /// 1 as soon as a process begins to acknowledge the message's lease: if the process dies in this call, the message may be acknowledged.
    pub ending: AtomicU32,
}

/// The record of one process or thread.
#[repr(C)]
pub struct Role {
    /// The number of messages that the receive in progress may take; 0 outside of a receive.
    pub receiving: AtomicU32,
    /// While the process sends several messages at once: their total size, in the unit of the queue's capacity; otherwise 0.
    pub wants: AtomicU64,
    /// The number of processes that have had this role.
    pub lives: AtomicU32,
    /// Set by the process when it is ready, and by others to let it continue.
    pub ready: AtomicU32,
    pub go: AtomicU32,
    /// The number of calls that returned, and the time at which the last one returned.
    pub done: AtomicU64,
    pub done_at: AtomicU64,
    /// The start of a call that is still going on; 0 for none.
    pub begun_at: AtomicU64,
    /// The time by which the current call has to return, even while a process is stopped; 0 for a call without a limit.
    pub due_at: AtomicU64,
    /// The time at which the first call after [`Journal::mark`] returned; 0 for none.
    pub first_after_mark: AtomicU64,
    /// The duration of the longest call.
    pub longest: AtomicU64,
}

/// The record of all senders, or of all receivers.
#[repr(C)]
pub struct Kind {
    /// The crash points that the senders, or the receivers, have passed: one bit for each point.
    pub passed: [AtomicU64; POINTS.len().div_ceil(64)],
}

#[repr(C)]
pub struct Journal {
    pub next: AtomicU32,
    /// The number of receipts so far.
    pub receipts: AtomicU32,
    /// The number of messages that were received with other contents than were sent.
    pub mangled: AtomicU32,
    /// The number of times that each deed was done, see [`Deed`].
    pub deeds: [AtomicU64; DEEDS],
    /// A moment of CLOCK_MONOTONIC that a process set; see [`Role::first_after_mark`].
    pub mark: AtomicU64,
    pub roles: [Role; ROLES],
    /// The records of senders and of receivers.
    pub kinds: [Kind; 2],
    /// Counts the searches for a buffer without an owner: each search begins at the next buffer.
    pub next_hand: AtomicU32,
    pub hands: [Hand; HANDS],
    pub messages: [Message; MESSAGES],
}

// SAFETY: the type consists of atomics, and of bytes that one process at a time touches.
unsafe impl Zeroed for Journal {}

/// The way to make a call.
#[derive(Clone, Copy, Debug)]
pub enum How {
    Try,
    Block,
    Within(Duration),
    /// The call waits until this time of the system's clock, which may be long past or never come.
    At(SystemTime),
}

impl From<How> for umsg::sysv::Until {
    fn from(how: How) -> Self {
        match how {
            How::Try => Self::Now,
            How::Block => Self::Forever,
            How::Within(time) => Self::After(time),
            How::At(time) => Self::Time(time),
        }
    }
}

/// The time that a non-blocking call may wait for a lock whose owner is stopped.
const PATIENCE: Duration = Duration::from_secs(1);

impl How {
    /// The time of CLOCK_MONOTONIC by which a call that begins now has to return; 0 for none.
    fn due_at(self) -> u64 {
        let time = match self {
            How::Block => return 0,
            How::Try => PATIENCE,
            How::Within(time) => time.max(PATIENCE),
            How::At(time) => {
                let left = time.duration_since(SystemTime::now()).unwrap_or_default();
                left.max(PATIENCE)
            }
        };
        now().saturating_add(time.as_nanos() as u64)
    }
}

/// The actions of the processes besides sends and receives.
#[derive(Clone, Copy)]
pub enum Deed {
    /// A second thread was started.
    Thread,
    /// A child was forked that uses its parent's queue.
    Fork,
    /// A child was made that runs another program.
    Spawn,
    /// A process ran another program itself, at any point of its threads.
    Exec,
    /// A process was made more urgent than others, or less.
    Urgent,
    Idle,
    /// A handler used the queue.
    Handled,
    /// A process was woken by poll, or by a notification.
    Polled,
    Notified,
}
pub const DEEDS: usize = Deed::Notified as usize + 1;

/// A sender: a role, and the position of the process among the processes that have had the role.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Author {
    pub role: usize,
    pub life: u32,
}

impl Message {
    pub fn author(&self) -> Author {
        Author {
            role: self.sender.load(SeqCst).into(),
            life: self.life.load(SeqCst),
        }
    }

    /// Notes that a process is about to send the message, and writes the message's bytes.
    pub fn begin(&self, number: usize, author: Author, priority: u16, bytes: &mut [u8]) {
        write_pattern(bytes, number as u32);
        self.sender.store(author.role as u8, SeqCst);
        self.life.store(author.life, SeqCst);
        self.priority.store(priority, SeqCst);
        self.len.store(bytes.len() as u32, SeqCst);
        self.more.store(0, SeqCst);
        self.state.store(BEGUN, SeqCst);
    }

    /// Notes that `more` further messages of the batch follow this message.
    pub fn leads(&self, more: usize) {
        self.more.store(more as u8, SeqCst);
    }

    /// Notes whether the call that sends the message succeeded.
    pub fn end(&self, is_sent: bool) {
        let state = if is_sent { RETURNED } else { REFUSED };
        self.state.store(state, SeqCst);
    }

    /// Returns whether the call that sent the message returned.
    pub fn was_sent(&self) -> bool {
        self.state.load(SeqCst) == RETURNED
    }
}

impl Journal {
    /// Empties the journal, which no other process may use meanwhile.
    pub fn reset(&self) {
        for message in &self.messages[..self.used()] {
            message.state.store(0, SeqCst);
            message.received.store(0, SeqCst);
            message.ending.store(0, SeqCst);
            message.in_dead_hands.store(0, SeqCst);
        }
        for role in &self.roles {
            for word in [
                &role.done,
                &role.done_at,
                &role.begun_at,
                &role.due_at,
                &role.first_after_mark,
                &role.longest,
                &role.wants,
            ] {
                word.store(0, SeqCst);
            }
            for word in [&role.receiving, &role.ready, &role.go] {
                word.store(0, SeqCst);
            }
        }
        for deed in &self.deeds {
            deed.store(0, SeqCst);
        }
        self.mark.store(0, SeqCst);
        self.receipts.store(0, SeqCst);
        self.next.store(0, SeqCst);
    }

    /// Returns the author of the messages that the current process of this role sends.
    pub fn author(&self, role: usize) -> Author {
        Author {
            role,
            life: self.roles[role].lives.load(SeqCst),
        }
    }

    /// Returns the number of messages for which senders have taken room in the journal so far.
    pub fn used(&self) -> usize {
        (self.next.load(SeqCst) as usize).min(MESSAGES)
    }

    /// Returns room for the next `count` messages, and the number of the first.
    pub fn next(&self, count: usize) -> (usize, &[Message]) {
        let first = self.next.fetch_add(count as u32, SeqCst) as usize;
        assert!(first + count <= MESSAGES, "the journal is full");
        (first, &self.messages[first..first + count])
    }

    /// Notes that a message was received, with its bytes and its priority or type. Returns its number.
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

    /// Returns the record of a message, if every byte is as it was sent.
    pub fn of(&self, bytes: &[u8]) -> Option<&Message> {
        self.messages.get(read_pattern(bytes)? as usize)
    }

    pub fn did(&self, deed: Deed) {
        self.deeds[deed as usize].fetch_add(1, SeqCst);
    }

    pub fn deeds(&self, deed: Deed) -> u64 {
        self.deeds[deed as usize].load(SeqCst)
    }

    /// Notes that a role begins a call.
    pub fn begin(&self, role: usize, how: How) {
        let role = &self.roles[role];
        role.due_at.store(how.due_at(), SeqCst);
        role.begun_at.store(now(), SeqCst);
    }

    /// Notes that a role's call has returned.
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

    /// Judges every message, once all processes have ended and the queue was drained: those whose send returned were received once, others
    /// at most once. Returns the number of missing messages, except those whose acknowledgement began, or that were found [in dead
    /// hands](Journal::look_into_hands).
    #[track_caller]
    pub fn missing(&self, what: &str) -> usize {
        assert_eq!(self.mangled.load(SeqCst), 0, "{what}: mangled messages");
        let mut missing = 0;
        for (number, message) in self.messages().iter().enumerate() {
            let (state, received) = (message.state.load(SeqCst), message.received.load(SeqCst));
            match (state, received) {
                (RETURNED, 0)
                    if message.ending.load(SeqCst) != 0
                        || message.in_dead_hands.load(SeqCst) != 0 => {}
                (RETURNED, 0) => missing += 1,
                (RETURNED | BEGUN, 1) | (BEGUN | REFUSED | 0, 0) => {}
                _ => {
                    panic!("{what}: message {number} (state {state}) was received {received} times")
                }
            }
        }
        missing
    }

    /// Fails if a batch whose sender died was sent in part.
    #[track_caller]
    fn expect_whole_batches(&self, what: &str) {
        let mut rest = self.messages();
        while let Some(first) = rest.first() {
            let more = first.more.load(SeqCst) as usize;
            let (batch, behind) = rest.split_at((more + 1).min(rest.len()));
            let came = |message: &Message| message.received.load(SeqCst) != 0;
            let is_lost = |message: &Message| {
                let excuses = [
                    u32::from(message.in_dead_hands.load(SeqCst)),
                    message.ending.load(SeqCst),
                ];
                !came(message) && excuses == [0, 0]
            };
            let number = self.used() - rest.len();
            assert!(
                !(batch.iter().any(came) && batch.iter().any(is_lost)),
                "{what}: half of the batch of {} messages from number {number} on was received",
                batch.len()
            );
            rest = behind;
        }
    }

    /// Judges every message as [`missing`](Journal::missing) does, and fails if a message is missing.
    #[track_caller]
    pub fn expect_none_missing(&self, what: &str) {
        self.expect_whole_batches(what);
        let missing = self.missing(what);
        let is_missing = |message: &&Message| {
            let (received, ending) = (&message.received, &message.ending);
            let excuses = [received.load(SeqCst), ending.load(SeqCst)];
            message.was_sent() && excuses == [0, 0] && message.in_dead_hands.load(SeqCst) == 0
        };
        let first = self.messages().iter().find(is_missing);
        let first = first.map(|message| {
            let number = std::ptr::from_ref(message).addr() - self.messages.as_ptr().addr();
            let number = number / size_of::<Message>();
            let (len, sender) = (message.len.load(SeqCst), message.sender.load(SeqCst));
            let priority = message.priority.load(SeqCst);
            format!("number {number}, {len} bytes, priority or type {priority}, of role {sender}")
        });
        assert!(
            missing == 0,
            "{what}: {missing} messages are lost that no dead receiver held; the first: {first:?}"
        );
    }

    /// Returns the maximum room that a process in the middle of a send can need: a process that needs less may wait after a process that needs more.
    /// `one` is the size of a single message.
    pub fn most_wanted(&self, one: u64) -> u64 {
        let wanted = self.roles.iter().map(|role| role.wants.load(SeqCst));
        wanted.max().unwrap_or(0).max(one)
    }

    /// Counts the messages of the role's sends that have not returned. Returns the number of these messages that were received, and the number of all
    /// of them.
    pub fn unfinished(&self, role: usize) -> (usize, usize) {
        let begun = || {
            self.messages()
                .iter()
                .filter(|message| message.state.load(SeqCst) == BEGUN)
                .filter(|message| message.sender.load(SeqCst) as usize == role)
        };
        let received = begun().filter(|message| message.received.load(SeqCst) != 0);
        (received.count(), begun().count())
    }

    /// Returns the number of messages that were sent by a call that returned.
    pub fn sent(&self) -> usize {
        self.messages()
            .iter()
            .filter(|message| message.state.load(SeqCst) == RETURNED)
            .count()
    }

    /// Returns the number of messages that were received.
    pub fn received(&self) -> usize {
        self.messages()
            .iter()
            .filter(|message| message.received.load(SeqCst) != 0)
            .count()
    }

    /// Returns the messages that were received after the first `earlier` receipts, in the order of their receipt.
    pub fn received_after(&self, earlier: u32) -> Vec<usize> {
        let receipt = |number: usize| self.messages[number].receipt.load(SeqCst);
        let mut numbers: Vec<usize> = (0..self.used())
            .filter(|&number| self.messages[number].received.load(SeqCst) != 0)
            .filter(|&number| receipt(number) > earlier)
            .collect();
        numbers.sort_by_key(|&number| receipt(number));
        numbers
    }

    /// Fails unless `numbers`, in the order in which they were received from a queue at rest, are in the order of delivery: by priority, and within a
    /// priority as [`check_turns`](Self::check_turns) says.
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

    /// Fails unless messages of one sender and priority were received in the order of their sends. Messages of
    /// different senders and one priority must be in order if `before` says that one was sent earlier than the other.
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

fn write_pattern(bytes: &mut [u8], number: u32) {
    for (index, byte) in bytes.iter_mut().enumerate() {
        *byte = (number as usize + index * 7) as u8;
    }
    bytes[..4].copy_from_slice(&number.to_le_bytes());
}

/// Returns the number of a message, if every byte is as it was sent.
pub fn read_pattern(bytes: &[u8]) -> Option<u32> {
    let number = u32::from_le_bytes(*bytes.first_chunk()?);
    bytes
        .iter()
        .enumerate()
        .skip(4)
        .all(|(index, &byte)| byte == (number as usize + index * 7) as u8)
        .then_some(number)
}

/// The queue that a process uses, and the journal in which the process records its calls.
pub struct Part<'a, Q> {
    pub queue: &'a Q,
    pub journal: &'a Journal,
    pub role: usize,
    pub(super) author: Author,
    pub(super) buffer: Vec<u8>,
}

impl<'a, Q> Part<'a, Q> {
    /// `size` is the length of the longest message.
    pub(super) fn of(queue: &'a Q, journal: &'a Journal, role: usize, size: usize) -> Self {
        Part {
            queue,
            journal,
            role,
            author: journal.author(role),
            buffer: vec![0; size],
        }
    }

    pub fn me(&self) -> &'a Role {
        &self.journal.roles[self.role]
    }

    /// Returns whether poll reports a message by the queue's doorbell before the wait of `how` ends.
    pub(super) fn poll_doorbell(&self, doorbell: io::Result<BorrowedFd<'_>>, how: How) -> bool {
        self.journal.begin(self.role, how);
        let told = match doorbell {
            Ok(descriptor) => poll_readable(descriptor, how),
            // A process that is stopped in the middle of an operation holds the lock.
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => false,
            Err(error) => panic!("a doorbell: {error}"),
        };
        self.journal.end(self.role);
        if told {
            self.journal.did(Deed::Polled);
        }
        told
    }

    /// Records the messages of a batch with these lengths and labels. Returns their numbers.
    pub(super) fn note_all(
        &self,
        mut bytes: &[u8],
        messages: impl Iterator<Item = (usize, u64)>,
    ) -> Vec<usize> {
        let note = |(len, label)| {
            let (message, rest) = bytes.split_at(len);
            bytes = rest;
            self.journal.note(message, label)
        };
        messages.map(note).collect()
    }
}
