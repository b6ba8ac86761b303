//! The hooks of mq_open and of its variant for _FORTIFY_SOURCE.

use std::ffi::{OsStr, c_char, c_int};
use std::os::fd::{AsRawFd, IntoRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;

use libc::{mode_t, mq_attr, mqd_t};
use rustix::fs::{Mode, OFlags};
use umsg::posix::{FileState, OpenError, OpenOptions, Queue};
use umsg::{Namespace, NamespaceError};
use umsg_shm::sys::stack::{roomy, uncancelled};
use umsg_trace::Function;

use super::close;
use crate::attachments::{self, Attached};
use crate::blocking::Forks;
use crate::names::{Room, Slashed};
use crate::table::ACCESS_MODE;
use crate::trace::{self, Copied, Described, Target};
use crate::{debug, errno, fd, home, kept, kernel, names, pointer, process, table, vacated};

/// Opens a queue, or creates it. `mode` and `attributes` are used only with O_CREAT.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn mq_open(
    name: *const c_char,
    flags: c_int,
    mode: mode_t,
    attributes: *const mq_attr,
) -> mqd_t {
    // SAFETY: the caller makes the promises of libc's mq_open. Without O_CREAT, the last two arguments are not read.
    unsafe {
        if flags & libc::O_CREAT == 0 {
            recorded_open(name, flags, 0, std::ptr::null())
        } else {
            recorded_open(name, flags, mode, attributes)
        }
    }
}

/// Opens a queue. A program that is compiled with _FORTIFY_SOURCE calls this function where its source calls mq_open with two arguments.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn __mq_open_2(name: *const c_char, flags: c_int) -> mqd_t {
    if flags & libc::O_CREAT != 0 {
        fortify_fail();
    }
    // SAFETY: the caller makes the promises that libc's function requires.
    unsafe { recorded_open(name, flags, 0, std::ptr::null()) }
}

/// # Safety
/// The conditions of [`open`].
#[inline(always)]
unsafe fn recorded_open(
    name: *const c_char,
    flags: c_int,
    mode: mode_t,
    attributes: *const mq_attr,
) -> mqd_t {
    trace::recorded(
        // SAFETY: by this function's contract.
        || unsafe { open(name, flags, mode, attributes) }.unwrap_or_else(errno::fail),
        Function::MqOpen,
        // SAFETY: by this function's contract.
        |_| unsafe { describe(Target::named(name), flags, mode, attributes) },
    )
}

/// # Safety
/// The conditions of [`open`], for the attributes.
unsafe fn describe(
    queue: Target,
    flags: c_int,
    mode: mode_t,
    attributes: *const mq_attr,
) -> Described {
    // SAFETY: by this function's contract: the call has read the attributes, unless a check refused their address.
    let limits = unsafe { read_attributes(attributes) }.unwrap_or(None);
    let [is_given, most, longest] =
        limits.map_or([0; 3], |limits| [1, limits.mq_maxmsg, limits.mq_msgsize]);
    Described {
        arguments: [flags.into(), mode.into(), is_given, most, longest],
        queue,
        data: Copied::default(),
    }
}

/// Ends a program that passes O_CREAT without a mode, in the same way as glibc.
fn fortify_fail() -> ! {
    debug::say(b"*** invalid mq_open call: O_CREAT without mode and attr ***: terminated\n");
    std::process::abort()
}

/// # Safety
/// `name` is a C string; `attributes` is NULL, an address that a pointer check refuses, or a readable mq_attr.
unsafe fn open(
    name: *const c_char,
    flags: c_int,
    mode: mode_t,
    attributes: *const mq_attr,
) -> Result<mqd_t, c_int> {
    // SAFETY: by this function's contract.
    let name = unsafe { names::bytes(name) };
    let rest = names::passed_on(name)?;
    // SAFETY: by this function's contract.
    let attributes = unsafe { read_attributes(attributes)? };
    names::check(rest)?;
    let mut room = Room::new();
    open_checked(room.with_slash(name, rest), flags, mode, attributes)
}

/// Handles the system call mq_open. In contrast to libc's function, the system call takes a name without a slash.
///
/// # Safety
/// The conditions of the system call. Without O_CREAT, the attributes are not read.
pub(super) unsafe fn open_bare(
    name: *const c_char,
    flags: c_int,
    mode: mode_t,
    attributes: *const mq_attr,
) -> mqd_t {
    let attributes = match flags & libc::O_CREAT != 0 || pointer::is_bad(attributes) {
        true => attributes,
        false => std::ptr::null(),
    };
    let open = || {
        // SAFETY: by this function's contract. Without O_CREAT, the address is not read.
        let attributes = unsafe { read_attributes(attributes)? };
        // SAFETY: by this function's contract.
        let name = Slashed::new(unsafe { names::bytes_or_fault(name)? })?;
        open_checked(name.bytes(), flags, mode, attributes)
    };
    trace::recorded(
        || open().unwrap_or_else(errno::fail),
        Function::MqOpen,
        // SAFETY: by this function's contract.
        |_| unsafe { describe(Target::named_bare(name), flags, mode, attributes) },
    )
}

/// Opens a queue by a valid name with a slash. The check for O_DIRECT comes last, once the queue exists.
pub(crate) fn open_checked(
    name: &[u8],
    flags: c_int,
    mode: mode_t,
    attributes: Option<mq_attr>,
) -> Result<mqd_t, c_int> {
    home::notice_child();
    if flags & (libc::O_DIRECT | libc::O_PATH) == libc::O_DIRECT {
        let opened = open_checked(name, flags & !libc::O_DIRECT, mode, attributes)?;
        // SAFETY: this call has made the descriptor, and no other code uses it.
        unsafe { close::mq_close(opened) };
        return Err(libc::EINVAL);
    }
    let request = Request {
        name,
        flags,
        mode,
        attributes,
        forks: Forks::now(),
    };
    if let Some(opened) = request.open_kept(&name[1..]) {
        return opened;
    }
    roomy(|| {
        let opened = if flags & libc::O_PATH != 0 {
            request.open_as_place()
        } else if flags & ACCESS_MODE == ACCESS_MODE {
            request.open_without_access()
        } else {
            request.open()
        };
        let creates = flags & libc::O_CREAT != 0;
        opened.map_err(|refusal| refusal.errno(name, creates))
    })
}

/// # Safety
/// The conditions of [`open`].
unsafe fn read_attributes(attributes: *const mq_attr) -> Result<Option<mq_attr>, c_int> {
    match attributes {
        _ if attributes.is_null() => Ok(None),
        _ if pointer::is_bad(attributes) => Err(libc::EFAULT),
        // SAFETY: by this function's contract. The address need not be aligned, as in the kernel.
        _ => Ok(Some(unsafe { attributes.read_unaligned() })),
    }
}

/// The reason why mq_open returns no descriptor.
enum Refusal {
    Library(OpenError),
    Namespace(NamespaceError),
    Errno(c_int),
}

impl Refusal {
    /// Returns the errno. `creates` means that the call has O_CREAT, and so never fails with ENOENT.
    #[cold]
    fn errno(self, name: &[u8], creates: bool) -> c_int {
        let of = |error: &NamespaceError| match error {
            NamespaceError::NoQueuesDirectory { .. } if creates => libc::EACCES,
            other => other.errno(),
        };
        match self {
            Refusal::Library(OpenError::Namespace(error)) => {
                debug::explain("mq_open", name, &error);
                of(&error)
            }
            Refusal::Library(error) => {
                debug::explain("mq_open", name, &error);
                if matches!(error, OpenError::NotFound) {
                    debug::look_in_kernel(name);
                }
                error.errno()
            }
            Refusal::Namespace(error) => {
                debug::explain("mq_open", name, &error);
                of(&error)
            }
            Refusal::Errno(errno) => errno,
        }
    }
}

struct Request<'a> {
    name: &'a [u8],
    flags: c_int,
    mode: mode_t,
    attributes: Option<mq_attr>,
    /// The number of forks before this opening.
    forks: Forks,
}

impl Request<'_> {
    /// Opens a queue by the short way of [`kept`], which is possible for example if the queue is still mapped. Returns `None` if a full opening is
    /// needed.
    fn open_kept(&self, rest: &[u8]) -> Option<Result<mqd_t, c_int>> {
        if self.flags & (SETTABLE | further(!0)) != 0 || self.flags & ACCESS_MODE == ACCESS_MODE {
            return None;
        }
        // The short way is taken only if the namespace is already known: to determine it needs more stack than a small thread has.
        let namespace = Namespace::known_of_this_process()?;
        // The short way may close a file that it has opened, with libc's close. That close is a cancellation point, so cancellation is disabled.
        uncancelled(|| kept::open(namespace, rest, self.flags, || self.options()))
    }

    fn open(&self) -> Result<mqd_t, Refusal> {
        let (queue, descriptor) = self.ask(&self.options())?;
        self.finish(queue, descriptor, self.flags)
    }

    /// Opens a queue with access mode 3, which is refused for an existing queue but can create a queue. The resulting descriptor can only be closed.
    fn open_without_access(&self) -> Result<mqd_t, Refusal> {
        if self.flags & libc::O_CREAT == 0 {
            return match self.ask(OpenOptions::new().read(true)) {
                Err(Refusal::Library(OpenError::NotFound)) => Err(Refusal::Errno(libc::ENOENT)),
                _ => Err(Refusal::Errno(libc::EINVAL)),
            };
        }
        let mut options = self.options();
        let (queue, descriptor) = match self.ask(options.read(true).write(true).exclusive(true)) {
            Err(Refusal::Library(OpenError::AlreadyExists)) if self.flags & libc::O_EXCL == 0 => {
                return Err(Refusal::Errno(libc::EINVAL));
            }
            other => other?,
        };
        drop_access(&descriptor, self.flags & libc::O_NONBLOCK);
        self.finish(queue, descriptor, ACCESS_MODE)
    }

    /// Opens with O_PATH. The descriptor identifies the queue's file, but calls on queues refuse it.
    fn open_as_place(&self) -> Result<mqd_t, Refusal> {
        let (_, descriptor) = self.ask(&self.options())?;
        let path = format!("/proc/self/fd/{}", descriptor.as_raw_fd());
        let place = rustix::fs::open(path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty())
            .map_err(|error| Refusal::Errno(error.raw_os_error()))?;
        drop(descriptor);
        Ok(fd::lowest(place, true).into_raw_fd())
    }

    fn options(&self) -> OpenOptions {
        let access = self.flags & ACCESS_MODE;
        let mut options = OpenOptions::new();
        options
            .read(access != libc::O_WRONLY)
            .write(access != libc::O_RDONLY)
            .create(self.flags & libc::O_CREAT != 0)
            .exclusive(self.flags & libc::O_EXCL != 0)
            .mode(self.mode & 0o7777)
            .recyclable(vacated::was_removed(self.name));
        if let Some(attributes) = self.attributes {
            // A value of the caller that is out of range becomes 0, which no queue can have. Only a creation checks the value.
            options.max_messages(u32::try_from(attributes.mq_maxmsg).unwrap_or(0));
            options.message_size(u32::try_from(attributes.mq_msgsize).unwrap_or(0));
        }
        options
    }

    fn ask(&self, options: &OpenOptions) -> Result<(Queue, OwnedFd), Refusal> {
        let namespace = home::namespace().map_err(Refusal::Namespace)?;
        let nonblocking = self.flags & libc::O_NONBLOCK != 0;
        options
            .clone()
            .namespace(namespace)
            .open_with_descriptor(OsStr::from_bytes(self.name), nonblocking)
            .map_err(Refusal::Library)
    }

    fn finish(&self, queue: Queue, descriptor: OwnedFd, access: c_int) -> Result<mqd_t, Refusal> {
        let descriptor = fd::lowest(descriptor, true);
        self.set_further_flags(&descriptor);
        let mut attached = Attached::new(queue, self.name);
        attached.state = FileState::of(&attached.queue, &descriptor);
        attached.shown_flags = further(self.flags);
        if attached.shown_flags != 0 {
            // These flags belong to this open file description alone, so a later opening must not take over its mapping.
            attached.unmap_at_last_close();
        }
        let is_nonblocking = self.flags & libc::O_NONBLOCK != 0;
        attached.blocking.open(is_nonblocking, self.forks);
        if attached.queue.is_sole() && !vacated::may_be_spawned(descriptor.as_raw_fd()) {
            attached.note_creation(self.forks);
        }
        let attachment = attachments::attach(attached).ok_or(Refusal::Errno(libc::ENOMEM))?;
        let number = descriptor.into_raw_fd();
        let word = table::word(attachment, access);
        // A vfork child has its own descriptors, but the table describes those of its parent.
        if process::owns_table() {
            table::enter(number, word);
        } else {
            word.release();
        }
        Ok(number)
    }

    /// Sets the flags that have no meaning for a queue. The kernel stores the flags, and F_GETFL shows them.
    fn set_further_flags(&self, descriptor: &OwnedFd) {
        let settable = self.flags & SETTABLE;
        if settable != 0 {
            let all = (settable | self.flags & libc::O_NONBLOCK).cast_unsigned();
            // A flag that the kernel refuses stays unset. This does no harm, because nothing depends on the flag.
            let _ = rustix::fs::fcntl_setfl(descriptor, OFlags::from_bits_retain(all));
        }
    }
}

/// Flags that F_SETFL can set and that have no meaning for a queue. The kernel stores them in the open file description.
const SETTABLE: c_int = libc::O_APPEND | libc::O_NOATIME;

/// Returns the further flags of an opening: flags that the kernel keeps, that have no meaning for a queue, and that F_SETFL can't set.
fn further(flags: c_int) -> c_int {
    const FORGOTTEN: c_int = libc::O_CREAT | libc::O_EXCL | libc::O_NOCTTY | libc::O_TRUNC;
    flags & !(ACCESS_MODE | libc::O_NONBLOCK | SETTABLE | FORGOTTEN)
}

/// Replaces the open file description by one that can neither read nor write, with the same descriptor number. If the system refuses this, the table
/// still makes the drop-in refuse every use and return the right result for F_GETFL.
fn drop_access(descriptor: &OwnedFd, nonblocking: c_int) {
    let path = format!("/proc/self/fd/{}", descriptor.as_raw_fd());
    let bits = ACCESS_MODE | libc::O_CLOEXEC | nonblocking;
    let flags = OFlags::from_bits_retain(bits.cast_unsigned());
    let Ok(without) = rustix::fs::open(path, flags, Mode::empty()) else {
        return;
    };
    if let Some(number) = fd::borrow(descriptor.as_raw_fd()) {
        replace(number.as_raw_fd(), &without);
    }
}

fn replace(number: c_int, with: &OwnedFd) {
    let numbers =
        [with.as_raw_fd(), number, libc::O_CLOEXEC, 0, 0, 0].map(|number| number as usize);
    // SAFETY: dup3 takes no pointers. The caller owns the descriptor `number`, and keeps it.
    let _ = unsafe { kernel::call(libc::SYS_dup3, numbers) };
}
