//! The environment of a case: a backend, unique names, and the children, threads and users that make the calls.
//!
//! If the backend can't express a call, the case ends as skipped. A case gets every other answer as `Result<_, Errno>`.

use std::ffi::{CStr, CString};
use std::fmt;
use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use crate::backend::{Answer, Attributes, Backend, Fd, Ownership, Status};
use crate::children::Carried;
use crate::errno::Errno;
use crate::runner;
use crate::stage::Stage;
use crate::sys;

/// A received message.
#[derive(Clone, PartialEq, Eq)]
pub struct Message {
    /// The bytes of the message.
    pub data: Vec<u8>,
    /// The priority of the message.
    pub priority: u32,
}

/// Returns a message with these bytes and this priority, for comparison with a received message.
pub fn message(data: impl AsRef<[u8]>, priority: u32) -> Message {
    Message {
        data: data.as_ref().to_vec(),
        priority,
    }
}

impl fmt::Debug for Message {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shown = String::from_utf8_lossy(&self.data[..self.data.len().min(40)]);
        write!(
            f,
            "{shown:?} ({} bytes) of priority {}",
            self.data.len(),
            self.priority
        )
    }
}

/// The environment of a case.
pub struct Site {
    stage: Stage<dyn Backend>,
    helper: PathBuf,
    names: AtomicU32,
}

impl Deref for Site {
    type Target = Stage<dyn Backend>;

    fn deref(&self) -> &Stage<dyn Backend> {
        &self.stage
    }
}

impl Site {
    /// Creates a site with this backend; `helper` is the program `mq_probe`.
    pub fn new(backend: Box<dyn Backend>, helper: PathBuf) -> Site {
        Site {
            stage: Stage { backend },
            helper,
            names: AtomicU32::new(0),
        }
    }

    /// Returns the path of the program `mq_probe`, which uses queues after an exec.
    pub fn helper(&self) -> &Path {
        &self.helper
    }

    /// Skips the case if the backend's descriptors are not real ones.
    pub fn need_descriptors(&self) {
        if !self.backend.has_descriptors() {
            self.skip("it has handles, not descriptors");
        }
    }

    /// Skips the case if the backend opens the namespace for each call by name, because that needs a free descriptor.
    pub fn need_lasting_namespace(&self) {
        if self.backend.label() == "C library" {
            self.skip("it looks for the namespace at each call");
        }
    }

    /// Returns a name that no other process uses.
    pub fn name(&self, stem: &str) -> CString {
        let number = self.names.fetch_add(1, Ordering::Relaxed);
        self.announced(format!("/umsg-{}-{number}-{stem}", sys::pid()))
    }

    /// Returns a name with this number of bytes after the slash.
    pub fn name_of_length(&self, length: usize) -> CString {
        let start = format!("/umsg-{}-", sys::pid());
        self.announced(format!("{start:x<width$}", width = length + 1))
    }

    /// Reports a name that the case chose, so that the runner removes the queue of this name at the end of the case.
    pub fn announced(&self, name: impl Into<Vec<u8>>) -> CString {
        let name = CString::new(name).expect("no NUL in a name");
        runner::announce(name.to_bytes());
        name
    }

    /// Creates a new blocking queue, open for reading and writing.
    pub fn queue(&self, messages: i64, size: i64) -> Queue<'_> {
        self.queue_called(&self.name("queue"), messages, size)
    }

    /// Creates a new blocking queue of this name, open for reading and writing.
    pub fn queue_called(&self, name: &CStr, messages: i64, size: i64) -> Queue<'_> {
        let flags = libc::O_CREAT | libc::O_EXCL | libc::O_RDWR;
        self.open_with(name, flags, 0o600, Some(&Attributes::new(messages, size)))
            .expect("a new queue")
    }

    /// Creates a new non-blocking queue, open for reading and writing.
    pub fn nonblocking(&self, messages: i64, size: i64) -> Queue<'_> {
        let name = self.name("queue");
        let flags = libc::O_CREAT | libc::O_EXCL | libc::O_RDWR | libc::O_NONBLOCK;
        self.open_with(&name, flags, 0o600, Some(&Attributes::new(messages, size)))
            .expect("a new queue")
    }

    /// `mq_open` without mode and attributes.
    pub fn open(&self, name: &CStr, flags: i32) -> Result<Queue<'_>, Errno> {
        self.open_with(name, flags, 0, None)
    }

    /// `mq_open`.
    pub fn open_with(
        &self,
        name: &CStr,
        flags: i32,
        mode: u32,
        attributes: Option<&Attributes>,
    ) -> Result<Queue<'_>, Errno> {
        let fd = self.ask(self.backend.open(name, flags, mode, attributes))?;
        Ok(Queue { site: self, fd })
    }

    /// Returns the queue of an existing descriptor.
    pub fn at(&self, fd: Fd) -> Queue<'_> {
        Queue { site: self, fd }
    }

    /// `mq_unlink`.
    pub fn unlink(&self, name: &CStr) -> Result<(), Errno> {
        self.ask(self.backend.unlink(name))
    }
}

/// A descriptor of a queue.
#[derive(Clone, Copy)]
pub struct Queue<'a> {
    site: &'a Site,
    fd: Fd,
}

impl fmt::Debug for Queue<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "descriptor {}", self.fd)
    }
}

/// Two values are equal if they have the same descriptor number.
impl PartialEq for Queue<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.fd == other.fd
    }
}

impl<'a> Queue<'a> {
    /// Returns the descriptor.
    pub fn fd(self) -> Fd {
        self.fd
    }

    fn ask<T>(self, question: impl FnOnce(&dyn Backend) -> Answer<T>) -> Result<T, Errno> {
        self.site.ask(question(&*self.site.backend))
    }

    /// `mq_send`.
    pub fn send(self, message: impl AsRef<[u8]>, priority: u32) -> Result<(), Errno> {
        self.ask(|backend| backend.send(self.fd, message.as_ref(), priority))
    }

    /// `mq_timedsend`.
    pub fn send_by(
        self,
        message: impl AsRef<[u8]>,
        priority: u32,
        deadline: libc::timespec,
    ) -> Result<(), Errno> {
        self.ask(|backend| backend.timed_send(self.fd, message.as_ref(), priority, Some(&deadline)))
    }

    /// `mq_receive` into a buffer of the queue's message size.
    pub fn receive(self) -> Result<Message, Errno> {
        let mut buffer = vec![0; self.message_size()];
        let (length, priority) = self.receive_into(&mut buffer)?;
        Ok(message(&buffer[..length], priority))
    }

    /// `mq_receive` into this buffer.
    pub fn receive_into(self, buffer: &mut [u8]) -> Result<(usize, u32), Errno> {
        self.ask(|backend| backend.receive(self.fd, buffer))
    }

    /// `mq_timedreceive` into a buffer of the queue's message size.
    pub fn receive_by(self, deadline: libc::timespec) -> Result<Message, Errno> {
        let mut buffer = vec![0; self.message_size()];
        let (length, priority) =
            self.ask(|backend| backend.timed_receive(self.fd, &mut buffer, Some(&deadline)))?;
        Ok(message(&buffer[..length], priority))
    }

    /// Receives messages until a receive would block. The queue must be non-blocking.
    pub fn drain(self) -> Vec<Message> {
        std::iter::from_fn(|| match self.receive() {
            Ok(message) => Some(message),
            Err(Errno::EAGAIN) => None,
            Err(errno) => panic!("draining: {errno}"),
        })
        .collect()
    }

    /// Fills a non-blocking queue with one-byte messages of priority 0. Returns the number of messages that it has sent.
    pub fn fill(self) -> usize {
        let mut count = 0;
        while self.send(b"x", 0) != Err(Errno::EAGAIN) {
            count += 1;
        }
        count
    }

    /// `mq_getattr`.
    pub fn attributes(self) -> Result<Attributes, Errno> {
        self.ask(|backend| backend.attributes(self.fd))
    }

    fn message_size(self) -> usize {
        self.attributes()
            .map_or(0, |attributes| attributes.message_size as usize)
    }

    /// Returns the number of messages in the queue.
    pub fn messages(self) -> i64 {
        self.attributes().expect("attributes").messages
    }

    /// `mq_setattr`.
    pub fn set_attributes(self, attributes: &Attributes) -> Result<Attributes, Errno> {
        self.ask(|backend| backend.set_attributes(self.fd, attributes))
    }

    /// Sets or clears `O_NONBLOCK` by `mq_setattr`.
    pub fn set_nonblocking(self, nonblocking: bool) {
        let flags = if nonblocking {
            i64::from(libc::O_NONBLOCK)
        } else {
            0
        };
        self.set_attributes(&Attributes {
            flags,
            ..Attributes::default()
        })
        .expect("setting O_NONBLOCK");
    }

    /// Returns whether `O_NONBLOCK` is set.
    pub fn is_nonblocking(self) -> bool {
        self.attributes().expect("attributes").flags == i64::from(libc::O_NONBLOCK)
    }

    /// `mq_notify`. `None` ends the registration.
    pub fn notify(self, event: Option<&libc::sigevent>) -> Result<(), Errno> {
        self.ask(|backend| backend.notify(self.fd, event))
    }

    /// `mq_close`.
    pub fn close(self) -> Result<(), Errno> {
        self.ask(|backend| backend.close(self.fd))
    }

    /// `dup`.
    pub fn dup(self) -> Result<Queue<'a>, Errno> {
        Ok(Queue {
            site: self.site,
            fd: self.ask(|backend| backend.dup(self.fd))?,
        })
    }

    /// Returns owner, group and permission bits.
    pub fn ownership(self) -> Result<Ownership, Errno> {
        self.ask(|backend| backend.ownership(self.fd))
    }

    /// `fstat`.
    pub fn status(self) -> Result<Status, Errno> {
        self.ask(|backend| backend.status(self.fd))
    }

    /// `fcntl`.
    pub fn fcntl(self, command: i32, argument: i32) -> Result<i32, Errno> {
        self.ask(|backend| backend.fcntl(self.fd, command, argument))
    }
}

impl Carried for Message {
    fn encode(&self) -> Vec<u8> {
        [&self.priority.to_le_bytes(), &self.data[..]].concat()
    }
    fn decode(bytes: &[u8]) -> Message {
        let (priority, data) = bytes.split_at(4);
        message(
            data,
            u32::from_le_bytes(priority.try_into().expect("four bytes")),
        )
    }
}
