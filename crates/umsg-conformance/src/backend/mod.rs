//! The interface that the backends share: one trait at the level of the C calls, and its implementations.
//!
//! Names and descriptors have the C types (bytes and small numbers), and a failure is an errno. So the results of the kernel, the drop-in and the
//! native API can be compared directly.

mod c;
mod calls;
mod deferred;
mod flawed;
mod functions;
mod native;

pub use c::C;
pub use calls::Called;
pub(crate) use calls::{answer, nothing};
pub(crate) use deferred::{Defer, handle_deferred};
pub use flawed::{Flaw, Flawed};
pub use functions::Calls;
pub(crate) use functions::Library;
pub use native::Native;
pub(crate) use native::defer;

use std::ffi::{CStr, CString};
use std::fmt;
use std::path::{Path, PathBuf};

use umsg::{Limits, Namespace, NamespaceError};

use crate::errno::Errno;
use crate::site::Site;
use crate::sys::{Credentials, User};

/// The number of a message queue descriptor. For the kernel and the drop-in it is a real descriptor; other backends assign the numbers of their
/// handles.
pub type Fd = i32;

/// The reason why a backend gave no result.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Failure {
    /// The call failed.
    Errno(Errno),
    /// This backend can't express the call; the text gives the reason.
    Unsupported(&'static str),
}

impl From<Errno> for Failure {
    fn from(errno: Errno) -> Self {
        Failure::Errno(errno)
    }
}

/// The answer to a call.
pub type Answer<T> = Result<T, Failure>;

/// The `abs_timeout` of a timed call. `None` passes a null pointer.
pub type AbsTime<'a> = Option<&'a libc::timespec>;

/// The attributes that are passed to `mq_open`. `None` passes a null pointer.
pub type OpenAttributes<'a> = Option<&'a Attributes>;

/// The arguments of `epoll_ctl` apart from the descriptor that it registers.
#[derive(Clone, Copy)]
pub struct EpollControl {
    /// The descriptor of the epoll set.
    pub set: i32,
    /// `EPOLL_CTL_ADD`, `EPOLL_CTL_MOD`, `EPOLL_CTL_DEL` or an invalid number.
    pub operation: i32,
    /// The requested events, and the data that is returned with them.
    pub event: libc::epoll_event,
}

/// The four fields of `struct mq_attr`.
#[derive(Clone, Copy, PartialEq, Eq, Default, serde::Serialize, serde::Deserialize)]
pub struct Attributes {
    /// `mq_flags`: 0 or `O_NONBLOCK`.
    pub flags: i64,
    /// `mq_maxmsg`: the maximum number of messages.
    pub max_messages: i64,
    /// `mq_msgsize`: the maximum length of a message, in bytes.
    pub message_size: i64,
    /// `mq_curmsgs`: the number of messages in the queue.
    pub messages: i64,
}

impl Attributes {
    /// Returns attributes for a queue with room for `max_messages` messages of at most `message_size` bytes each.
    pub fn new(max_messages: i64, message_size: i64) -> Attributes {
        Attributes {
            max_messages,
            message_size,
            ..Attributes::default()
        }
    }
}

impl fmt::Debug for Attributes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Attributes {
            flags,
            max_messages,
            message_size,
            messages,
        } = self;
        write!(
            f,
            "{{flags {flags:#o}, {messages} of {max_messages} messages of {message_size} bytes}}"
        )
    }
}

/// The fields of `struct stat` that the cases check.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Status {
    /// Kind of file and permission bits.
    pub mode: u32,
    /// The owner.
    pub uid: u32,
    /// The group.
    pub gid: u32,
    /// Size in bytes: 80 for a queue.
    pub size: i64,
    /// The number of names of the queue: 1, or 0 after an unlink.
    pub links: u64,
}

/// The owner of a queue, and its permission bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ownership {
    /// The permission bits, `07777`.
    pub mode: u32,
    /// The owner.
    pub uid: u32,
    /// The group.
    pub gid: u32,
}

/// A state that lasts until the value is dropped.
pub trait Held {}

const NO_NULL: &str = "it has slices and values, not pointers";

const NO_DESCRIPTORS: &str = "it has handles, not descriptors";

/// The part of a backend that does not depend on the family of calls: `mq_*` or `msg*`.
pub trait Basics: Send + Sync {
    /// Returns the backend's name, for messages to the user.
    fn label(&self) -> &'static str;

    /// Prepares a process that uses the backend, and may change the environment of the process. Each such process calls this function first.
    fn enter(&self) {}

    /// Returns a value that the caller holds during a fork, so that the child finds the backend's table in a consistent state.
    fn hold(&self) -> Option<Box<dyn Held + '_>> {
        None
    }

    /// Makes this process run permanently as another user. Needs root.
    ///
    /// # Errors
    /// The errors of `setgroups`, `setresgid` and `setresuid`.
    fn assume(&self, user: User) -> Result<(), Errno> {
        user.assume(&Credentials::OF_LIBC)
    }

    /// Makes another user the effective user of this process. The real and the saved ids stay unchanged.
    ///
    /// # Errors
    /// The errors of `setresgid` and `setresuid`.
    fn assume_effective(&self, user: User) -> Result<(), Errno> {
        user.assume_effective(&Credentials::OF_LIBC)
    }

    /// `sigaction`: installs a handler with these flags.
    ///
    /// # Errors
    /// The errors of `sigaction`.
    fn handle_signal(&self, signal: i32, handler: extern "C" fn(i32), flags: i32) -> Answer<()> {
        crate::sys::handle_signal(libc::sigaction, signal, handler, flags).map_err(Failure::from)
    }
}

/// An implementation of the `mq_*` calls of C.
///
/// The methods from [`close_descriptor`](Backend::close_descriptor) on need real descriptors. A backend without real descriptors keeps the default
/// methods.
#[allow(unused_variables)]
pub trait Backend: Basics {
    /// Returns whether the backend's descriptors are real: then other calls, such as `read` and `poll`, accept them.
    fn has_descriptors(&self) -> bool {
        true
    }

    /// `mq_open`.
    fn open(&self, name: &CStr, flags: i32, mode: u32, attributes: OpenAttributes) -> Answer<Fd>;
    /// `mq_close`.
    fn close(&self, fd: Fd) -> Answer<()>;
    /// `mq_unlink`.
    fn unlink(&self, name: &CStr) -> Answer<()>;
    /// `mq_send`.
    fn send(&self, fd: Fd, message: &[u8], priority: u32) -> Answer<()>;
    /// `mq_timedsend`; without a deadline a null pointer is passed.
    fn timed_send(&self, fd: Fd, message: &[u8], priority: u32, deadline: AbsTime) -> Answer<()>;
    /// `mq_receive`. Returns the message's length and its priority.
    fn receive(&self, fd: Fd, buffer: &mut [u8]) -> Answer<(usize, u32)>;
    /// `mq_timedreceive`; without a deadline a null pointer is passed.
    fn timed_receive(&self, fd: Fd, buffer: &mut [u8], deadline: AbsTime) -> Answer<(usize, u32)>;
    /// `mq_getattr`.
    fn attributes(&self, fd: Fd) -> Answer<Attributes>;
    /// `mq_setattr`. Returns the attributes before the call.
    fn set_attributes(&self, fd: Fd, attributes: &Attributes) -> Answer<Attributes>;
    /// `mq_notify`. `None` ends the registration.
    fn notify(&self, fd: Fd, event: Option<&libc::sigevent>) -> Answer<()>;
    /// Returns the owner, the group and the mode of the queue.
    fn ownership(&self, fd: Fd) -> Answer<Ownership>;
    /// `dup`. A backend without descriptors makes a second handle that shares its state with the first handle.
    fn dup(&self, fd: Fd) -> Answer<Fd>;

    /// `mq_receive` with a null pointer for the priority.
    fn receive_ignoring_priority(&self, fd: Fd, buffer: &mut [u8]) -> Answer<usize> {
        Err(Failure::Unsupported("it always returns the priority"))
    }
    /// `mq_send` with a null pointer for the message.
    fn send_null(&self, fd: Fd, length: usize, priority: u32) -> Answer<()> {
        Err(Failure::Unsupported(NO_NULL))
    }
    /// `mq_receive` with a null pointer for the buffer.
    fn receive_null(&self, fd: Fd, length: usize) -> Answer<usize> {
        Err(Failure::Unsupported(NO_NULL))
    }
    /// `mq_setattr` with a null pointer for the new attributes. Returns the current attributes.
    fn set_no_attributes(&self, fd: Fd) -> Answer<Attributes> {
        Err(Failure::Unsupported(NO_NULL))
    }
    /// `mq_setattr` with a null pointer for the old attributes.
    fn set_attributes_only(&self, fd: Fd, attributes: &Attributes) -> Answer<()> {
        Err(Failure::Unsupported("it has no attributes to set"))
    }
    /// `close`.
    fn close_descriptor(&self, fd: Fd) -> Answer<()> {
        Err(Failure::Unsupported(NO_DESCRIPTORS))
    }
    /// `close_range`.
    fn close_range(&self, first: u32, last: u32, flags: i32) -> Answer<()> {
        Err(Failure::Unsupported(NO_DESCRIPTORS))
    }
    /// `dup2`.
    fn dup2(&self, fd: Fd, onto: Fd) -> Answer<Fd> {
        Err(Failure::Unsupported(NO_DESCRIPTORS))
    }
    /// `dup3`.
    fn dup3(&self, fd: Fd, onto: Fd, flags: i32) -> Answer<Fd> {
        Err(Failure::Unsupported(NO_DESCRIPTORS))
    }
    /// `fcntl` with an integer argument.
    fn fcntl(&self, fd: Fd, command: i32, argument: i32) -> Answer<i32> {
        Err(Failure::Unsupported(NO_DESCRIPTORS))
    }
    /// `fstat`.
    fn status(&self, fd: Fd) -> Answer<Status> {
        Err(Failure::Unsupported(NO_DESCRIPTORS))
    }
    /// `read`.
    fn read(&self, fd: Fd, buffer: &mut [u8]) -> Answer<usize> {
        Err(Failure::Unsupported(NO_DESCRIPTORS))
    }
    /// `pread`.
    fn read_at(&self, fd: Fd, buffer: &mut [u8], offset: i64) -> Answer<usize> {
        Err(Failure::Unsupported(NO_DESCRIPTORS))
    }
    /// `write`.
    fn write(&self, fd: Fd, bytes: &[u8]) -> Answer<usize> {
        Err(Failure::Unsupported(NO_DESCRIPTORS))
    }
    /// `lseek`.
    fn seek(&self, fd: Fd, offset: i64, whence: i32) -> Answer<i64> {
        Err(Failure::Unsupported(NO_DESCRIPTORS))
    }
    /// `fsync`.
    fn sync(&self, fd: Fd) -> Answer<()> {
        Err(Failure::Unsupported(NO_DESCRIPTORS))
    }
    /// `fchmod`.
    fn change_mode(&self, fd: Fd, mode: u32) -> Answer<()> {
        Err(Failure::Unsupported(NO_DESCRIPTORS))
    }
    /// `fchown`.
    fn change_owner(&self, fd: Fd, uid: u32, gid: u32) -> Answer<()> {
        Err(Failure::Unsupported(NO_DESCRIPTORS))
    }
    /// `readlink`.
    fn read_link(&self, path: &CStr) -> Answer<Vec<u8>> {
        Err(Failure::Unsupported(NO_DESCRIPTORS))
    }
    /// `poll`. Returns the number of ready descriptors.
    fn poll(&self, descriptors: &mut [libc::pollfd], timeout: i32) -> Answer<usize> {
        Err(Failure::Unsupported(NO_DESCRIPTORS))
    }
    /// `select` without a wait, on the descriptors below the number `below`. `sets` are the descriptors to be checked for reading and those to be
    /// checked for writing. Returns the number of ready descriptors.
    fn select(&self, below: Fd, sets: [&mut libc::fd_set; 2]) -> Answer<usize> {
        Err(Failure::Unsupported(NO_DESCRIPTORS))
    }
    /// `epoll_ctl`.
    fn control_epoll(&self, fd: Fd, control: EpollControl) -> Answer<()> {
        Err(Failure::Unsupported(NO_DESCRIPTORS))
    }
    /// `mmap` of one page, shared and read-only. The page is unmapped at once.
    fn map(&self, fd: Fd) -> Answer<()> {
        Err(Failure::Unsupported(NO_DESCRIPTORS))
    }
    /// Sets the maximum number of queues. Fails if the backend has only a limit that other processes share.
    fn limit_queues(&self, max_queues: u32) -> Answer<()> {
        match self.namespace() {
            Some(namespace) => set_limits(namespace, |limits| limits.max_queues = max_queues),
            None => Err(Failure::Unsupported("its limits can't be set for one test")),
        }
    }
    /// Sets the maximum number and the maximum length of messages of new queues, if the backend has such limits for its namespace alone. The kernel's
    /// limits stay unchanged.
    fn limit_sizes(&self, max_messages: u32, max_message_size: u32) -> Answer<()> {
        self.namespace().map_or(Ok(()), |namespace| {
            set_limits(namespace, |limits| {
                limits.max_messages = max_messages;
                limits.max_message_size = max_message_size;
            })
        })
    }
    /// Returns the namespace of the queues, for a backend of umsg.
    fn namespace(&self) -> Option<&Namespace> {
        None
    }
    /// Returns the environment variables with which another program reaches the same queues by the plain C names.
    fn environment(&self) -> Answer<Vec<(&'static str, PathBuf)>> {
        Err(Failure::Unsupported("it has no C names"))
    }
}

/// Changes the limits of a namespace.
pub(crate) fn set_limits(namespace: &Namespace, change: impl FnOnce(&mut Limits)) -> Answer<()> {
    let set = || {
        let mut limits = namespace.limits()?;
        change(&mut limits);
        namespace.set_limits(&limits)
    };
    set().map_err(|error: NamespaceError| Errno(error.errno()).into())
}

/// A family of calls: the calls of one kind of queue.
pub trait Family: Clone + fmt::Debug + PartialEq + Eq + 'static {
    /// A deliberate mistake that a backend of the family can make.
    type Flaw: Clone + fmt::Debug + PartialEq + Eq;
    /// The interface of the backends.
    type Backend: Basics + ?Sized;
    /// The site of the family's cases.
    type Site;

    /// Makes a backend. `directory` is the path of the namespace, for backends that have a namespace.
    ///
    /// # Errors
    /// Returns a sentence with the reason.
    fn make(kind: &Kind<Self>, directory: &Path) -> Result<Box<Self::Backend>, String>;

    /// Returns the site of a case, in the process that runs the case. `helper` is a program that uses queues after an exec.
    fn site(kind: &Kind<Self>, backend: Box<Self::Backend>, helper: &Path) -> Self::Site;

    /// Removes from the kernel a queue that a case has announced.
    fn remove_from_kernel(notice: &[u8]);
}

/// POSIX message queues: `mq_*`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Posix;

impl Family for Posix {
    type Flaw = Flaw;
    type Backend = dyn Backend;
    type Site = Site;

    fn make(kind: &Kind, directory: &Path) -> Result<Box<dyn Backend>, String> {
        Ok(match kind {
            Kind::Kernel => Box::new(Called::kernel()),
            Kind::Dropin(library) => Box::new(Called::dropin(library, directory)?),
            Kind::Preloaded(library) => Box::new(Called::preloaded(library, directory)?),
            Kind::Native => Box::new(Native::new(directory)?),
            Kind::C(library) => Box::new(C::new(library, directory)?),
            Kind::Flawed(flaw) => Box::new(Flawed::new(Called::kernel(), *flaw)),
        })
    }

    fn site(_: &Kind, backend: Box<dyn Backend>, helper: &Path) -> Site {
        Site::new(backend, helper.to_path_buf())
    }

    fn remove_from_kernel(notice: &[u8]) {
        if let Ok(name) = CString::new(notice) {
            // SAFETY: the name ends with a NUL.
            unsafe { libc::mq_unlink(name.as_ptr()) };
        }
    }
}

/// The backend to make.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Kind<F: Family = Posix> {
    /// glibc's functions, which reach the kernel's queues.
    Kernel,
    /// The functions of `libumsg_preload.so`, loaded from this path.
    Dropin(PathBuf),
    /// The drop-in, loaded before all other libraries and called by the plain C names, as in a program under `umsg run`.
    Preloaded(PathBuf),
    /// The native API.
    Native,
    /// The functions of `libumsg.so`, loaded from this path.
    C(PathBuf),
    /// The kernel with one deliberate mistake, to prove that the tests find mistakes.
    Flawed(F::Flaw),
}

impl<F: Family> Kind<F> {
    /// Returns whether the backend keeps its queues in a directory, not in the kernel.
    pub fn needs_directory(&self) -> bool {
        !matches!(self, Kind::Kernel | Kind::Flawed(_))
    }

    /// Returns the backend's name, for messages to the user.
    pub fn label(&self) -> &'static str {
        match self {
            Kind::Kernel => "kernel",
            Kind::Dropin(_) => "drop-in",
            Kind::Preloaded(_) => "preloaded drop-in",
            Kind::Native => "native API",
            Kind::C(_) => "C library",
            Kind::Flawed(_) => "flawed kernel",
        }
    }

    /// Makes the backend. `directory` is the path of the namespace, for backends that have a namespace.
    ///
    /// # Errors
    /// Returns a sentence with the reason.
    pub fn make(&self, directory: &Path) -> Result<Box<F::Backend>, String> {
        F::make(self, directory)
    }
}
