//! The native API, `umsg::posix`, behind the interface of the C calls.
//!
//! Rust has handles where C has descriptors, so this file gives small numbers to handles and keeps a table of them. This file implements `O_NONBLOCK`
//! and the error for a number without a handle. All other answers come from the library.

use std::ffi::{CStr, OsStr, c_int, c_void};
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use umsg::posix::{OpenOptions, Queue, sigevent, unlink_in, withdraw_notification};
use umsg::{Edges, Namespace};

use super::calls::{control_epoll_by, poll_by};
use super::deferred::handle_deferred;
use super::{
    AbsTime, Answer, Attributes, Backend, Basics, EpollControl, Failure, Fd, Held, OpenAttributes,
    Ownership,
};
use crate::errno::Errno;
use crate::sys;

/// The number of the first handle: the first free descriptor of a process that has the three standard descriptors open.
const FIRST: usize = 3;

/// The state that several handles share after a `dup` or a fork.
struct Description {
    queue: Queue,
    /// The flag lies in shared memory, because forked children share the flag of an open file.
    nonblocking: &'static AtomicU32,
}

impl Description {
    fn is_nonblocking(&self) -> bool {
        self.nonblocking.load(Ordering::Acquire) != 0
    }
}

/// A backend that calls the native API.
pub struct Native {
    namespace: Namespace,
    handles: Mutex<Vec<Option<Arc<Description>>>>,
}

impl Held for MutexGuard<'_, Vec<Option<Arc<Description>>>> {}

/// The time at which a timed call gives up.
enum Until {
    Never,
    At(SystemTime),
}

impl Native {
    /// Makes a backend whose queues are in `directory`.
    ///
    /// # Errors
    /// The reason why the directory is no namespace.
    pub fn new(directory: &Path) -> Result<Native, String> {
        let namespace = Namespace::at(directory).map_err(|error| error.to_string())?;
        Ok(Native {
            namespace,
            handles: Mutex::new(Vec::new()),
        })
    }

    fn handles(&self) -> MutexGuard<'_, Vec<Option<Arc<Description>>>> {
        self.handles.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn handle(&self, fd: Fd) -> Result<Arc<Description>, Failure> {
        let at = usize::try_from(fd)
            .ok()
            .and_then(|at| at.checked_sub(FIRST));
        let handle = at.and_then(|at| self.handles().get(at).cloned().flatten());
        handle.ok_or(Failure::Errno(Errno::EBADF))
    }

    /// Returns the descriptor of a queue for event loops. The descriptor is open as long as the queue's handle.
    fn pollable(&self, fd: Fd, edges: Edges) -> Answer<i32> {
        let handle = self.handle(fd)?;
        match handle.queue.pollable_with(edges) {
            Ok(descriptor) => Ok(descriptor.as_raw_fd()),
            Err(error) => Err(Errno(error.raw_os_error().unwrap_or(libc::EIO)).into()),
        }
    }

    /// Stores a handle in the first free entry of the table, and returns the number of the handle.
    fn keep(&self, description: Arc<Description>) -> Fd {
        let mut handles = self.handles();
        let at = handles
            .iter()
            .position(Option::is_none)
            .unwrap_or(handles.len());
        if at == handles.len() {
            handles.push(None);
        }
        handles[at] = Some(description);
        (at + FIRST) as Fd
    }

    fn send_until(&self, fd: Fd, message: &[u8], priority: u32, until: Until) -> Answer<()> {
        let handle = match self.handle(fd) {
            Err(_) if priority > 32767 => return Err(Errno::EINVAL.into()),
            handle => handle?,
        };
        let sent = match until {
            _ if handle.is_nonblocking() => handle.queue.try_send(message, priority),
            Until::Never => handle.queue.send(message, priority),
            Until::At(deadline) => handle.queue.send_deadline(message, priority, deadline),
        };
        sent.map_err(|error| Errno(error.errno()).into())
    }

    fn receive_until(&self, fd: Fd, buffer: &mut [u8], until: Until) -> Answer<(usize, u32)> {
        let handle = self.handle(fd)?;
        let received = match until {
            _ if handle.is_nonblocking() => handle.queue.try_receive(buffer),
            Until::Never => handle.queue.receive(buffer),
            Until::At(deadline) => handle.queue.receive_deadline(buffer, deadline),
        };
        match received {
            Ok(received) => Ok((received.len, received.priority)),
            Err(error) => Err(Errno(error.errno()).into()),
        }
    }
}

/// Returns the point in time of a valid timespec.
fn until(deadline: AbsTime) -> Answer<Until> {
    const NO_TIME: Failure = Failure::Unsupported("a SystemTime is always a point in time");
    let Some(deadline) = deadline else {
        return Ok(Until::Never);
    };
    let seconds = u64::try_from(deadline.tv_sec).map_err(|_| NO_TIME)?;
    let nanoseconds = u32::try_from(deadline.tv_nsec).map_err(|_| NO_TIME)?;
    if nanoseconds >= 1_000_000_000 {
        return Err(NO_TIME);
    }
    let since = Duration::new(seconds, nanoseconds);
    SystemTime::UNIX_EPOCH
        .checked_add(since)
        .map(Until::At)
        .ok_or(NO_TIME)
}

/// Converts an attribute to the type that the library takes.
fn attribute(value: i64) -> Answer<u32> {
    u32::try_from(value).map_err(|_| Failure::Unsupported("its attributes are of type u32"))
}

/// `umsg::signals::defer` with the declaration of the C function.
pub(crate) unsafe extern "C" fn defer(
    signal: c_int,
    info: *const c_void,
    context: *mut c_void,
) -> c_int {
    // SAFETY: the caller passes the arguments that the kernel gave to the running handler.
    unsafe { umsg::signals::defer(signal, info.cast(), context.cast()) }.into()
}

impl Basics for Native {
    fn label(&self) -> &'static str {
        "native API"
    }

    fn hold(&self) -> Option<Box<dyn Held + '_>> {
        Some(Box::new(self.handles()))
    }

    fn handle_signal(&self, signal: i32, handler: extern "C" fn(i32), flags: i32) -> Answer<()> {
        handle_deferred(defer, signal, handler, flags)
    }
}

impl Backend for Native {
    fn has_descriptors(&self) -> bool {
        false
    }

    fn open(&self, name: &CStr, flags: i32, mode: u32, attributes: OpenAttributes) -> Answer<Fd> {
        let access = flags & libc::O_ACCMODE;
        let mut options = OpenOptions::new();
        options
            .read(matches!(access, libc::O_RDONLY | libc::O_RDWR))
            .write(matches!(access, libc::O_WRONLY | libc::O_RDWR))
            .create(flags & libc::O_CREAT != 0)
            .exclusive(flags & libc::O_EXCL != 0)
            .mode(mode)
            .without_access(true)
            .namespace(&self.namespace);
        if let Some(attributes) = attributes {
            options
                .max_messages(attribute(attributes.max_messages)?)
                .message_size(attribute(attributes.message_size)?);
        }
        let opened = options.open(OsStr::from_bytes(name.to_bytes()));
        let queue = opened.map_err(|error| Errno(error.errno()))?;
        let nonblocking = &sys::shared_words(1)?[0];
        nonblocking.store(u32::from(flags & libc::O_NONBLOCK != 0), Ordering::Release);
        Ok(self.keep(Arc::new(Description { queue, nonblocking })))
    }

    fn close(&self, fd: Fd) -> Answer<()> {
        let handle = self.handle(fd)?;
        self.handles()[fd as usize - FIRST] = None;
        // In the kernel, a registration ends when the process closes the descriptor that made the registration. This backend does not record that
        // descriptor. So when any descriptor of the queue is closed, the registration ends.
        withdraw_notification(handle.queue.identity());
        drop(handle);
        Ok(())
    }

    fn unlink(&self, name: &CStr) -> Answer<()> {
        let unlinked = unlink_in(&self.namespace, OsStr::from_bytes(name.to_bytes()));
        unlinked.map_err(|error| Errno(error.errno()).into())
    }

    fn send(&self, fd: Fd, message: &[u8], priority: u32) -> Answer<()> {
        self.send_until(fd, message, priority, Until::Never)
    }

    fn timed_send(&self, fd: Fd, message: &[u8], priority: u32, deadline: AbsTime) -> Answer<()> {
        self.send_until(fd, message, priority, until(deadline)?)
    }

    fn receive(&self, fd: Fd, buffer: &mut [u8]) -> Answer<(usize, u32)> {
        self.receive_until(fd, buffer, Until::Never)
    }

    fn timed_receive(&self, fd: Fd, buffer: &mut [u8], deadline: AbsTime) -> Answer<(usize, u32)> {
        self.receive_until(fd, buffer, until(deadline)?)
    }

    fn attributes(&self, fd: Fd) -> Answer<Attributes> {
        let handle = self.handle(fd)?;
        let attributes = handle.queue.attributes();
        Ok(Attributes {
            flags: if handle.is_nonblocking() {
                i64::from(libc::O_NONBLOCK)
            } else {
                0
            },
            max_messages: attributes.max_messages as i64,
            message_size: attributes.message_size as i64,
            messages: attributes.messages as i64,
        })
    }

    fn set_attributes(&self, fd: Fd, attributes: &Attributes) -> Answer<Attributes> {
        if attributes.flags & !i64::from(libc::O_NONBLOCK) != 0 {
            return Err(Errno::EINVAL.into());
        }
        let before = self.attributes(fd)?;
        let nonblocking = u32::from(attributes.flags != 0);
        self.handle(fd)?
            .nonblocking
            .store(nonblocking, Ordering::Release);
        Ok(before)
    }

    fn notify(&self, fd: Fd, event: Option<&libc::sigevent>) -> Answer<()> {
        let Some(event) = event else {
            withdraw_notification(self.handle(fd)?.queue.identity());
            return Ok(());
        };
        // SAFETY: if an event names a function, the function exists, and its attributes are null.
        let how = unsafe { sigevent::wanted(event) }.map_err(|error| Errno(error.errno()))?;
        let registered = self.handle(fd)?.queue.register(how);
        registered
            .map(|_| ())
            .map_err(|error| Errno(error.errno()).into())
    }

    fn ownership(&self, fd: Fd) -> Answer<Ownership> {
        let status = self.handle(fd)?.queue.status();
        Ok(Ownership {
            mode: status.mode,
            uid: status.uid,
            gid: status.gid,
        })
    }

    fn dup(&self, fd: Fd) -> Answer<Fd> {
        let handle = self.handle(fd)?;
        Ok(self.keep(handle))
    }

    fn poll(&self, descriptors: &mut [libc::pollfd], timeout: i32) -> Answer<usize> {
        poll_by(descriptors, timeout, |fd| self.pollable(fd, Edges::Changes))
    }

    fn control_epoll(&self, fd: Fd, control: EpollControl) -> Answer<()> {
        control_epoll_by(control, |edges| self.pollable(fd, edges))
    }

    fn namespace(&self) -> Option<&Namespace> {
        Some(&self.namespace)
    }
}
