//! Calls on POSIX queues. Errors are checked in the kernel's order. Source: ipc/mqueue.c.

use std::ffi::OsStr;
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use libc::{mq_attr, timespec};
use rustix::fs::{Mode, OFlags};
use umsg::posix::{Lease, Notify, OpenError, OpenOptions, ReceiveError, SendError};
use umsg::{Namespace, NamespaceError};

use super::cookies::{self, Cookie, NOTIFIED};
use super::descriptors::{Opened, Registered};
use super::listener::{Call, Gone};
use super::memory::{self, Event, Status};
use super::serve::{Outcome, Server};
use super::waits::{End, Wait};

/// The number of priorities: they are 0 to 32,767.
const MQ_PRIO_MAX: u64 = 32_768;
/// The longest path that the kernel reads from a program, without its NUL byte.
pub const PATH_MAX: usize = 4095;
const NAME_MAX: usize = 255;
pub const ACCESS_MODE: i32 = libc::O_WRONLY | libc::O_RDWR;

/// Reads the name in a call, which has no slash. Returns the name with a slash.
fn name(call: &Call, address: u64) -> Result<Vec<u8>, i32> {
    let bare = memory::read_string(call.thread, address, PATH_MAX)?;
    match bare.as_slice() {
        b"" => Err(libc::ENOENT),
        b"." | b".." => Err(libc::EACCES),
        _ if bare.contains(&b'/') => Err(libc::EACCES),
        _ if bare.len() > NAME_MAX => Err(libc::ENAMETOOLONG),
        _ => Ok([b"/", bare.as_slice()].concat()),
    }
}

/// Reads a structure at an address in the program's memory. Returns None if the address is NULL.
fn optional<T: memory::Plain>(call: &Call, address: u64) -> Result<Option<T>, i32> {
    match address {
        0 => Ok(None),
        address => memory::read(call.thread, address).map(Some),
    }
}

/// Reads the time-out of a call. Returns None if the call has no time-out.
fn deadline(call: &Call, address: u64) -> Result<Option<SystemTime>, i32> {
    match optional(call, address)? {
        None => Ok(None),
        Some(time) => time_of(&time),
    }
}

/// Converts a time-out to a time. Returns None if there is no limit.
fn time_of(time: &timespec) -> Result<Option<SystemTime>, i32> {
    match (u64::try_from(time.tv_sec), u32::try_from(time.tv_nsec)) {
        (Ok(seconds), Ok(nanoseconds @ 0..1_000_000_000)) => {
            // A time beyond the range of `SystemTime` means no limit.
            Ok(UNIX_EPOCH.checked_add(Duration::new(seconds, nanoseconds)))
        }
        _ => Err(libc::EINVAL),
    }
}

/// Opens a queue's file again without the flags that were needed only to create it, because F_GETFL would show these flags to the program. If the
/// file can't be opened again, it keeps the flags.
fn plain(file: OwnedFd) -> OwnedFd {
    let Ok(flags) = rustix::fs::fcntl_getfl(&file) else {
        return file;
    };
    let flags = flags & (OFlags::RWMODE | OFlags::NONBLOCK) | OFlags::CLOEXEC;
    let path = format!("/proc/self/fd/{}", file.as_raw_fd());
    rustix::fs::open(path, flags, Mode::empty()).unwrap_or(file)
}

fn errno_of(error: &OpenError, creates: bool) -> i32 {
    match error {
        OpenError::Namespace(NamespaceError::NoQueuesDirectory { .. }) if creates => libc::EACCES,
        other => other.errno(),
    }
}

/// The arguments of a call that opens a queue.
pub struct Wanted<'a> {
    /// The name with its slash.
    pub name: &'a [u8],
    pub flags: i32,
    pub mode: u32,
    pub attributes: Option<mq_attr>,
}

impl Server {
    pub fn mq_open(&self, call: &Call) -> Result<Outcome, i32> {
        let [name_at, flags, mode, attributes, ..] = call.arguments;
        let flags = flags as i32;
        let attributes: Option<mq_attr> = optional(call, attributes)?;
        let name = name(call, name_at)?;
        let status = self.status_of_opener(call)?;
        let queues = self.queues(call)?;
        if !self.listener.waits(call) {
            return Ok(Outcome::Answered);
        }
        let wanted = Wanted {
            name: &name,
            flags,
            mode: mode as u32,
            attributes,
        };
        let opened = Arc::new(self.open_queue(call, queues.namespace(), &wanted, &status)?);
        self.give_queue(call, &opened, true);
        Ok(Outcome::Answered)
    }

    /// Opens a queue for a program.
    pub fn open_queue(
        &self,
        call: &Call,
        namespace: &Namespace,
        wanted: &Wanted<'_>,
        status: &Status,
    ) -> Result<Opened, i32> {
        let flags = wanted.flags;
        let access = flags & ACCESS_MODE;
        if access == ACCESS_MODE || flags & (libc::O_PATH | libc::O_DIRECT) != 0 {
            return Err(libc::EINVAL);
        }
        let creates = flags & libc::O_CREAT != 0;
        let mut options = OpenOptions::new();
        options
            .read(access != libc::O_WRONLY)
            .write(access != libc::O_RDONLY)
            .create(creates)
            .exclusive(flags & libc::O_EXCL != 0)
            .mode(wanted.mode & 0o7777 & !status.umask)
            .namespace(namespace);
        if creates {
            options.bytes_of_user(memory::msgqueue_limit(call.thread));
        }
        if let Some(attributes) = wanted.attributes.filter(|_| creates) {
            // A negative value becomes 0. No queue can have 0 messages, so the call fails with EINVAL.
            options.max_messages(u32::try_from(attributes.mq_maxmsg).unwrap_or(0));
            options.message_size(u32::try_from(attributes.mq_msgsize).unwrap_or(0));
        }
        let name = OsStr::from_bytes(wanted.name);
        let (queue, file) = options
            .open_with_descriptor(name, flags & libc::O_NONBLOCK != 0)
            .map_err(|error| {
                self.explain("mq_open", &error);
                errno_of(&error, creates)
            })?;
        Opened::new(plain(file), Arc::new(queue))
    }

    /// Ends a call that opens a queue: gives the queue's descriptor to the process, as the result of the call.
    pub fn give_queue(&self, call: &Call, opened: &Arc<Opened>, closes_at_exec: bool) {
        let _opening = self.descriptors.opening();
        // The call fails if the process has no free descriptor, or has died. A queue that was created stays, as in the kernel.
        let given = self
            .listener
            .give(call, opened.file.as_fd(), closes_at_exec);
        if let Ok(Ok(number)) = given {
            self.descriptors.note(call.thread, number, opened);
        }
    }

    pub fn mq_unlink(&self, call: &Call) -> Result<Outcome, i32> {
        let name = name(call, call.arguments[0])?;
        let (_, queues) = self.caller(call)?;
        if !self.listener.waits(call) {
            return Ok(Outcome::Answered);
        }
        umsg::posix::unlink_in(queues.namespace(), OsStr::from_bytes(&name)).map_err(|error| {
            self.explain("mq_unlink", &error);
            error.errno()
        })?;
        Ok(Outcome::Value(0))
    }

    pub fn mq_timedsend(&self, call: &Call) -> Result<Outcome, i32> {
        let [_, message, length, priority, timeout, _] = call.arguments;
        // The kernel checks the time-out before the queue.
        let found = self.queue_to_send(call);
        let mut bytes = match &found {
            Ok(Some(_)) => vec![0; length as usize],
            _ => Vec::new(),
        };
        // One system call reads both the time-out and the message, because two take longer. If it fails, separate reads find out which of the two
        // can't be read.
        let whole = match timeout {
            0 => None,
            at => memory::read_with::<timespec>(call.thread, at, &mut bytes, message).ok(),
        };
        let deadline = match &whole {
            Some(time) => time_of(time)?,
            None => deadline(call, timeout)?,
        };
        let Some(opened) = found? else {
            return Ok(Outcome::Pass);
        };
        if whole.is_none() {
            memory::read_bytes(call.thread, message, &mut bytes)?;
        }
        if !self.listener.waits(call) {
            return Ok(Outcome::Answered);
        }
        let priority = priority as u32;
        match opened.queue.try_send(&bytes, priority) {
            Ok(()) => Ok(Outcome::Value(0)),
            Err(SendError::Full) if opened.is_nonblocking() => Err(libc::EAGAIN),
            Err(SendError::Full) => {
                self.wait(call, move |server, wait| {
                    server.wait_to_send(wait, &opened, &bytes, priority, deadline);
                })?;
                Ok(Outcome::Answered)
            }
            Err(error) => Err(error.errno()),
        }
    }

    /// Returns the queue to which a call may send its message.
    fn queue_to_send(&self, call: &Call) -> Result<Option<Arc<Opened>>, i32> {
        let [number, _, length, priority, ..] = call.arguments;
        if priority & 0xffff_ffff >= MQ_PRIO_MAX {
            return Err(libc::EINVAL);
        }
        let Some(opened) = self.queue(call, number)? else {
            return Ok(None);
        };
        if !opened.can_write() {
            return Err(libc::EBADF);
        }
        if length > opened.message_size as u64 {
            return Err(libc::EMSGSIZE);
        }
        Ok(Some(opened))
    }

    fn wait_to_send(
        &self,
        wait: &Wait,
        opened: &Opened,
        bytes: &[u8],
        priority: u32,
        deadline: Option<SystemTime>,
    ) {
        let answer = loop {
            if !self.listener.waits(&wait.call) {
                return;
            }
            let sent = match deadline {
                Some(time) => opened.queue.send_deadline(bytes, priority, time),
                None => opened.queue.send(bytes, priority),
            };
            match sent {
                Ok(()) => break Ok(0),
                Err(SendError::Interrupted) => {}
                Err(error) => break Err(error.errno()),
            }
            match wait.end() {
                Some(End::Errno(errno)) => break Err(errno),
                Some(End::Gone) => return,
                None => {}
            }
        };
        // The answer fails only if the thread has died.
        let _ = self.listener.answer(&wait.call, answer);
    }

    pub fn mq_timedreceive(&self, call: &Call) -> Result<Outcome, i32> {
        let [number, _, length, _, timeout, _] = call.arguments;
        let deadline = deadline(call, timeout)?;
        let Some(opened) = self.queue(call, number)? else {
            return Ok(Outcome::Pass);
        };
        if !opened.can_read() {
            return Err(libc::EBADF);
        }
        if length < opened.message_size as u64 {
            return Err(libc::EMSGSIZE);
        }
        let refusal = match opened.queue.try_receive_lease() {
            Ok(lease) => {
                let _ = self.deliver(call, lease);
                return Ok(Outcome::Answered);
            }
            Err(refusal) => refusal,
        };
        match refusal {
            ReceiveError::Empty if opened.is_nonblocking() => Err(libc::EAGAIN),
            ReceiveError::Empty => {
                self.wait(call, move |server, wait| {
                    server.wait_to_receive(wait, &opened, deadline);
                })?;
                Ok(Outcome::Answered)
            }
            error => Err(error.errno()),
        }
    }

    fn wait_to_receive(&self, wait: &Wait, opened: &Opened, deadline: Option<SystemTime>) {
        let errno = loop {
            if !self.listener.waits(&wait.call) {
                return;
            }
            let received = match deadline {
                Some(time) => opened.queue.receive_lease_deadline(time),
                None => opened.queue.receive_lease(),
            };
            match received {
                Ok(lease) => {
                    let _ = self.deliver(&wait.call, lease);
                    return;
                }
                Err(ReceiveError::Interrupted) => {}
                Err(error) => break error.errno(),
            }
            match wait.end() {
                Some(End::Errno(errno)) => break errno,
                Some(End::Gone) => return,
                None => {}
            }
        };
        let _ = self.listener.answer(&wait.call, Err(errno));
    }

    /// Copies a message to the program. When the kernel has accepted the answer, removes the message from the queue; otherwise the message returns to
    /// the queue. If the message can't be copied, it is lost, as in the kernel.
    fn deliver(&self, call: &Call, lease: Lease<'_>) -> Result<(), Gone> {
        let [_, buffer, _, priority_at, ..] = call.arguments;
        if !self.listener.waits(call) {
            return Err(Gone);
        }
        let (length, priority) = (lease.len(), lease.priority());
        let priority_length = if priority_at == 0 {
            0
        } else {
            size_of::<u32>()
        };
        let copied = memory::write_parts(
            call.thread,
            &[
                (lease.as_ptr(), length, buffer),
                ((&raw const priority).cast(), priority_length, priority_at),
            ],
        );
        let answer = copied.map(|()| length as i64);
        self.listener.answer(call, answer)?;
        // The acknowledgement of a lease without a time limit fails only if the queue is corrupted. The next call reports this.
        let _ = lease.acknowledge();
        Ok(())
    }

    pub fn mq_getsetattr(&self, call: &Call) -> Result<Outcome, i32> {
        let [number, new, old, ..] = call.arguments;
        let new: Option<mq_attr> = optional(call, new)?;
        let wanted = match new.map(|new| u32::try_from(new.mq_flags)) {
            None => None,
            Some(Ok(flags)) => Some(OFlags::from_bits_retain(flags)),
            Some(Err(_)) => return Err(libc::EINVAL),
        };
        if wanted.is_some_and(|wanted| !OFlags::NONBLOCK.contains(wanted)) {
            return Err(libc::EINVAL);
        }
        let Some(opened) = self.queue(call, number)? else {
            return Ok(Outcome::Pass);
        };
        let errno = rustix::io::Errno::raw_os_error;
        let flags = rustix::fs::fcntl_getfl(&opened.file).map_err(errno)?;
        if !self.listener.waits(call) {
            return Ok(Outcome::Answered);
        }
        if let Some(wanted) = wanted {
            let all = (flags - OFlags::NONBLOCK) | wanted;
            rustix::fs::fcntl_setfl(&opened.file, all).map_err(errno)?;
        }
        if old != 0 {
            let now = opened.queue.attributes();
            let mut attributes = memory::no_attributes();
            attributes.mq_flags = (flags & OFlags::NONBLOCK).bits().into();
            attributes.mq_maxmsg = now.max_messages as libc::c_long;
            attributes.mq_msgsize = now.message_size as libc::c_long;
            attributes.mq_curmsgs = now.messages as libc::c_long;
            memory::write(call.thread, old, &attributes)?;
        }
        Ok(Outcome::Value(0))
    }

    pub fn mq_notify(&self, call: &Call) -> Result<Outcome, i32> {
        let [number, event, ..] = call.arguments;
        let event: Option<Event> = optional(call, event)?;
        let Some(opened) = self.queue(call, number)? else {
            return Ok(Outcome::Pass);
        };
        let process = memory::status(call.thread).ok_or(libc::EBADF)?.process;
        let told = memory::open_process(process)?;
        let bytes = match event {
            Some(event) if event.notify == libc::SIGEV_THREAD => {
                Some(cookies::read(call, event.value)?)
            }
            _ => None,
        };
        if !self.listener.waits(call) {
            return Ok(Outcome::Answered);
        }
        let mut registrations = self.descriptors.registrations();
        let Some(Event {
            value,
            signal,
            notify,
        }) = event
        else {
            registrations.withdraw(process, &opened.queue);
            return Ok(Outcome::Value(0));
        };
        let cookie = match bytes {
            Some(bytes) => {
                let mailboxes = &mut registrations.mailboxes;
                let cookie = Cookie::of(&self.listener, call, bytes, signal, mailboxes)?;
                Some(Arc::new(cookie))
            }
            None => None,
        };
        let registered = Registered::new(
            process,
            number as RawFd,
            Arc::clone(&opened),
            cookie.clone(),
        );
        let registered = Arc::new(registered);
        // Each closure keeps its own registration: when the closure runs, another program may have registered for the same queue.
        let how = match (notify, cookie) {
            (libc::SIGEV_NONE, _) => Notify::Nothing,
            (_, Some(cookie)) => {
                let registered = Arc::clone(&registered);
                Notify::Quick(Box::new(move |_| {
                    if registered.is_open() {
                        cookie.send(NOTIFIED);
                    }
                }))
            }
            (libc::SIGEV_SIGNAL, _) if (0..=64).contains(&signal) => {
                let registered = Arc::clone(&registered);
                Notify::Quick(Box::new(move |by| {
                    // If the process has executed another program or has closed the descriptor, it does not expect the signal.
                    if registered.is_open() {
                        memory::tell(told.as_fd(), signal, value, (by.pid, by.uid));
                    }
                }))
            }
            _ => return Err(libc::EINVAL),
        };
        let outcome = opened.queue.register(how);
        outcome.map_err(|error| error.errno())?;
        registrations.note(registered);
        Ok(Outcome::Value(0))
    }

    fn queue(&self, call: &Call, number: u64) -> Result<Option<Arc<Opened>>, i32> {
        self.descriptors.find(call.thread, number as RawFd)
    }
}
