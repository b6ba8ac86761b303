//! The environment of a case: a backend, unique keys, and the children and users that make the calls.
//!
//! If the backend can't express a call, the case ends as skipped. A case gets every other answer as `Result<_, Errno>`. Calls without "wait" in their
//! names use `IPC_NOWAIT`, so that a case never hangs by mistake.

use std::fmt;
use std::ops::Deref;
use std::sync::atomic::{AtomicU32, Ordering};

use libc::{IPC_CREAT, IPC_EXCL, IPC_NOWAIT, IPC_PRIVATE, IPC_STAT};

use super::backend::{Backend, Change, Functions, Id, Info, MSG_COPY, Status};
use crate::backend::Answer;
use crate::children::{self, Carried, Child};
use crate::errno::Errno;
use crate::runner;
use crate::stage::Stage;
use crate::sys;

/// The length of a buffer with room for every message: the kernel's default for the maximum length of a message.
pub const LONGEST: usize = 8192;

/// The maximum number of bytes in a new queue, by the kernel's default.
pub const CAPACITY: u64 = 16384;

/// A received message.
#[derive(Clone, PartialEq, Eq)]
pub struct Message {
    /// The type of the message.
    pub mtype: i64,
    /// The text of the message.
    pub text: Vec<u8>,
}

/// Returns a message with this type and text, for comparison with a received message.
pub fn message(mtype: i64, text: impl AsRef<[u8]>) -> Message {
    Message {
        mtype,
        text: text.as_ref().to_vec(),
    }
}

impl fmt::Debug for Message {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shown = String::from_utf8_lossy(&self.text[..self.text.len().min(40)]);
        let (length, mtype) = (self.text.len(), self.mtype);
        write!(f, "{shown:?} ({length} bytes) of type {mtype}")
    }
}

impl Carried for Message {
    fn encode(&self) -> Vec<u8> {
        [&self.mtype.to_le_bytes(), &self.text[..]].concat()
    }
    fn decode(bytes: &[u8]) -> Message {
        let (mtype, text) = bytes.split_first_chunk().expect("eight bytes");
        message(i64::from_le_bytes(*mtype), text)
    }
}

/// The environment of a case.
pub struct Site {
    stage: Stage<dyn Backend>,
    alone: bool,
    keys: AtomicU32,
}

impl Deref for Site {
    type Target = Stage<dyn Backend>;

    fn deref(&self) -> &Stage<dyn Backend> {
        &self.stage
    }
}

impl Site {
    /// Creates a site with this backend. `alone` is true if the namespace contains no queues of processes outside the case.
    pub fn new(backend: Box<dyn Backend>, alone: bool) -> Site {
        Site {
            stage: Stage { backend },
            alone,
            keys: AtomicU32::new(0),
        }
    }

    /// Skips the case if the namespace contains queues of other processes.
    pub fn need_to_be_alone(&self) {
        if !self.alone {
            self.skip("only root can have an IPC namespace of its own");
        }
    }

    /// Skips the case if a thread can't be cancelled in the backend's calls.
    pub fn need_cancellation_points(&self) {
        if self.backend.label() == "C library" {
            self.skip("its calls are no cancellation points");
        }
    }

    /// Skips the case if a process can't see the counts of a queue to which it has no access.
    pub fn need_sight_of_closed_queues(&self) {
        if self.backend.is_library() {
            self.skip("a process can't map a queue that grants it no access, and sees no counts of the queue");
        }
    }

    /// Skips the case if a bad address would end the process. A library accesses the memory itself, so an address without memory causes a signal.
    pub fn need_checked_memory(&self) {
        if self.backend.is_library() {
            self.skip("only the kernel can tell that there is no memory at an address");
        }
    }

    /// Returns the backend's C functions. Skips the case if the backend has none.
    pub fn functions(&self) -> &Functions {
        match self.backend.functions() {
            Ok(functions) => functions,
            Err(_) => self.skip("it has slices, not sizes and pointers"),
        }
    }

    /// Returns a key that no other process uses.
    pub fn key(&self) -> i32 {
        let number = self.keys.fetch_add(1, Ordering::Relaxed);
        0x4d00_0000 | (sys::pid() & 0xffff) << 8 | (number as i32 & 0xff)
    }

    /// `msgget`. The queue is removed at the end of the case.
    pub fn get(&self, key: i32, flags: i32) -> Result<Queue<'_>, Errno> {
        let id = self.ask(self.backend.get(key, flags))?;
        if !self.alone {
            runner::announce(&id.to_le_bytes());
        }
        Ok(self.at(id))
    }

    /// Creates a new private queue of this mode.
    pub fn queue_of_mode(&self, mode: i32) -> Queue<'_> {
        self.get(IPC_PRIVATE, IPC_CREAT | mode)
            .expect("a new queue")
    }

    /// Creates a new private queue that only the caller's user may use.
    pub fn queue(&self) -> Queue<'_> {
        self.queue_of_mode(0o600)
    }

    /// Creates a private queue with room for this number of bytes.
    pub fn queue_for(&self, max_bytes: u64) -> Queue<'_> {
        let queue = self.queue();
        queue.limit(max_bytes);
        queue
    }

    /// Creates a new queue with a new key.
    pub fn queue_with_key(&self, mode: i32) -> (i32, Queue<'_>) {
        let key = self.key();
        let queue = self.get(key, IPC_CREAT | IPC_EXCL | mode);
        (key, queue.expect("a new queue"))
    }

    /// Returns the queue of this identifier. The identifier may be invalid.
    pub fn at(&self, id: Id) -> Queue<'_> {
        Queue { site: self, id }
    }

    /// `msgctl` with `IPC_INFO` or `MSG_INFO`.
    pub fn info(&self, command: i32) -> Result<(i32, Info), Errno> {
        self.ask(self.backend.info(command))
    }

    /// Starts a child that makes a call, and waits until the child is blocked in the call.
    pub fn blocked<'a, T: Carried>(&'a self, work: impl FnOnce() -> T) -> Child<'a, T> {
        let child = self.child(work);
        child.wait_until_blocked();
        child
    }

    /// Starts a child of another user that makes a call, and waits until the child is blocked in the call. Needs root.
    pub fn blocked_as<'a, T: Carried>(
        &'a self,
        user: sys::User,
        work: impl FnOnce() -> T,
    ) -> Child<'a, T> {
        self.need_root();
        let child = children::start_as(&*self.backend, user, work);
        child.wait_until_blocked();
        child
    }
}

/// A queue, given by its identifier.
#[derive(Clone, Copy)]
pub struct Queue<'a> {
    site: &'a Site,
    id: Id,
}

impl fmt::Debug for Queue<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "queue {}", self.id)
    }
}

/// Two values are equal if they have the same identifier.
impl PartialEq for Queue<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.id == other.id
    }
}

impl Queue<'_> {
    /// Returns the identifier.
    pub fn id(self) -> Id {
        self.id
    }

    fn ask<T>(self, question: impl FnOnce(&dyn Backend) -> Answer<T>) -> Result<T, Errno> {
        self.site.ask(question(&*self.site.backend))
    }

    /// `msgsnd` that does not wait.
    pub fn send(self, mtype: i64, text: impl AsRef<[u8]>) -> Result<(), Errno> {
        self.send_with(mtype, text, IPC_NOWAIT)
    }

    /// `msgsnd` that waits for room.
    pub fn send_waiting(self, mtype: i64, text: impl AsRef<[u8]>) -> Result<(), Errno> {
        self.send_with(mtype, text, 0)
    }

    /// `msgsnd` with these flags.
    pub fn send_with(self, mtype: i64, text: impl AsRef<[u8]>, flags: i32) -> Result<(), Errno> {
        self.ask(|backend| backend.send(self.id, mtype, text.as_ref(), flags))
    }

    /// `msgrcv` that does not wait, into a buffer with room for every message.
    pub fn receive(self, mtype: i64) -> Result<Message, Errno> {
        self.receive_with(LONGEST, mtype, IPC_NOWAIT)
    }

    /// `msgrcv` that waits for a message.
    pub fn receive_waiting(self, mtype: i64) -> Result<Message, Errno> {
        self.receive_with(LONGEST, mtype, 0)
    }

    /// `msgrcv` of this number of bytes with these flags.
    pub fn receive_with(self, size: usize, mtype: i64, flags: i32) -> Result<Message, Errno> {
        let mut text = vec![0; size];
        let (length, got) =
            self.ask(|backend| backend.receive(self.id, &mut text, mtype, flags))?;
        Ok(message(got, &text[..length]))
    }

    /// Returns a copy of the message at this position, by `msgrcv` with `MSG_COPY`. The message stays in the queue.
    pub fn copy(self, at: i64) -> Result<Message, Errno> {
        self.receive_with(LONGEST, at, MSG_COPY | IPC_NOWAIT)
    }

    /// Receives all messages, from the first to the last.
    pub fn drain(self) -> Vec<Message> {
        std::iter::from_fn(|| match self.receive(0) {
            Ok(message) => Some(message),
            Err(Errno::ENOMSG) => None,
            Err(errno) => panic!("draining: {errno}"),
        })
        .collect()
    }

    /// Returns copies of all messages, which stay in the queue.
    pub fn messages(self) -> Vec<Message> {
        (0..)
            .map_while(|at| match self.copy(at) {
                Ok(message) => Some(message),
                Err(Errno::ENOMSG) => None,
                Err(errno) => panic!("looking at message {at}: {errno}"),
            })
            .collect()
    }

    /// `msgctl` with `IPC_STAT`.
    pub fn status(self) -> Result<Status, Errno> {
        Ok(self.stat(IPC_STAT)?.1)
    }

    /// `msgctl` with `IPC_STAT`, `MSG_STAT` or `MSG_STAT_ANY`. Passes the identifier or the index, as the command requires.
    pub fn stat(self, command: i32) -> Result<(i32, Status), Errno> {
        self.ask(|backend| backend.stat(self.id, command))
    }

    /// Returns the number of messages and of bytes in the queue.
    pub fn counts(self) -> (u64, u64) {
        let status = self.status().expect("its status");
        (status.messages, status.bytes)
    }

    /// `msgctl` with `IPC_SET`.
    pub fn set(self, change: &Change) -> Result<(), Errno> {
        self.ask(|backend| backend.set(self.id, change))
    }

    /// `IPC_SET` of some fields, with the other fields unchanged.
    pub fn alter(self, alter: impl FnOnce(&mut Change)) -> Result<(), Errno> {
        let mut change = self.status()?.unchanged();
        alter(&mut change);
        self.set(&change)
    }

    /// Sets the maximum number of bytes.
    pub fn limit(self, max_bytes: u64) {
        self.alter(|change| change.max_bytes = max_bytes)
            .expect("another limit");
    }

    /// `msgctl` with `IPC_RMID`.
    pub fn remove(self) -> Result<(), Errno> {
        self.ask(|backend| backend.remove(self.id))
    }
}
