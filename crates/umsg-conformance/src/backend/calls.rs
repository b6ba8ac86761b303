//! The backends of the kernel and of the drop-in. Both backends call the same C functions: for the kernel they are glibc's, for the drop-in `dlsym`
//! finds them in its library.

use std::ffi::{CStr, c_int};
use std::mem::{self, MaybeUninit};
use std::path::{Path, PathBuf};
use std::ptr;

use libc::mq_attr;

use umsg::{Edges, Namespace};

use super::functions::Calls;
use super::{
    AbsTime, Answer, Attributes, Backend, Basics, EpollControl, Failure, Fd, OpenAttributes,
    Ownership, Status,
};
use crate::errno::Errno;
use crate::sys;

/// A backend that calls C functions.
pub struct Called {
    label: &'static str,
    calls: Calls,
    preload: Option<Preload>,
}

/// The drop-in and its queues.
struct Preload {
    library: PathBuf,
    namespace: Namespace,
}

impl Called {
    /// Returns a backend of glibc's own functions, which use the kernel's queues.
    pub fn kernel() -> Called {
        Called {
            label: "kernel",
            calls: Calls::of_libc(),
            preload: None,
        }
    }

    /// Returns a backend of the drop-in's functions, each found by `dlsym`. The queues of the drop-in are in `directory`.
    ///
    /// # Errors
    /// The loader's message if the library can't be loaded, or the reason why the directory is no namespace.
    pub fn dropin(library: &Path, directory: &Path) -> Result<Called, String> {
        let calls = Calls::of_library(library)?;
        let preload = Some(Preload::new(library, directory)?);
        Ok(Called {
            label: "drop-in",
            calls,
            preload,
        })
    }

    /// Returns a backend of the drop-in's functions, which the loader has found under the plain C names because the drop-in is preloaded into this
    /// program. The queues of the drop-in are in `directory`.
    ///
    /// # Errors
    /// The reason why the directory is no namespace.
    pub fn preloaded(library: &Path, directory: &Path) -> Result<Called, String> {
        let preload = Some(Preload::new(library, directory)?);
        Ok(Called {
            label: "preloaded drop-in",
            calls: Calls::of_libc(),
            preload,
        })
    }
}

impl Preload {
    fn new(library: &Path, directory: &Path) -> Result<Preload, String> {
        let namespace = Namespace::at(directory).map_err(|error| error.to_string())?;
        Ok(Preload {
            library: library.to_path_buf(),
            namespace,
        })
    }
}

/// Converts the result of a C function that returns -1 for a failure and sets errno.
pub(crate) fn answer<T: Copy + PartialEq + From<i8>>(returned: T) -> Answer<T> {
    if returned == T::from(-1) {
        Err(Failure::Errno(Errno::last()))
    } else {
        Ok(returned)
    }
}

pub(crate) fn nothing(returned: c_int) -> Answer<()> {
    answer(returned).map(|_| ())
}

/// Calls poll for a backend that has its own handle numbers. `descriptor` returns the real descriptor of a queue.
pub(super) fn poll_by(
    descriptors: &mut [libc::pollfd],
    timeout: i32,
    descriptor: impl Fn(Fd) -> Answer<c_int>,
) -> Answer<usize> {
    let mut polled = descriptors.to_vec();
    for one in polled.iter_mut().filter(|one| one.fd >= 0) {
        one.fd = match descriptor(one.fd) {
            Err(Failure::Errno(Errno::EBADF)) => Fd::MAX,
            answer => answer?,
        };
    }
    let (start, count) = (polled.as_mut_ptr(), polled.len() as libc::nfds_t);
    // SAFETY: `start` and `count` describe a vector.
    let ready = answer(unsafe { libc::poll(start, count, timeout) })?;
    for (one, polled) in descriptors.iter_mut().zip(polled) {
        one.revents = polled.revents;
    }
    Ok(ready as usize)
}

/// Calls epoll_ctl for a backend that has its own handle numbers. `descriptor` returns the real descriptor of the queue.
pub(super) fn control_epoll_by(
    control: EpollControl,
    descriptor: impl Fn(Edges) -> Answer<c_int>,
) -> Answer<()> {
    let EpollControl {
        set,
        operation,
        mut event,
    } = control;
    let has = |flag: c_int| event.events & flag as u32 != 0;
    let edges = match (has(libc::EPOLLET), has(libc::EPOLLOUT)) {
        (false, _) => Edges::Changes,
        (true, false) => Edges::Messages,
        (true, true) => Edges::All,
    };
    // SAFETY: the call reads one event.
    nothing(unsafe { libc::epoll_ctl(set, operation, descriptor(edges)?, &mut event) })
}

pub(super) fn pointer<T>(option: Option<&T>) -> *const T {
    option.map_or(ptr::null(), ptr::from_ref)
}

impl From<Attributes> for mq_attr {
    fn from(from: Attributes) -> mq_attr {
        // SAFETY: the structure consists of integers, for which zero is valid.
        let mut attr: mq_attr = unsafe { mem::zeroed() };
        attr.mq_flags = from.flags;
        attr.mq_maxmsg = from.max_messages;
        attr.mq_msgsize = from.message_size;
        attr.mq_curmsgs = from.messages;
        attr
    }
}

impl From<mq_attr> for Attributes {
    fn from(from: mq_attr) -> Attributes {
        Attributes {
            flags: from.mq_flags,
            max_messages: from.mq_maxmsg,
            message_size: from.mq_msgsize,
            messages: from.mq_curmsgs,
        }
    }
}

impl Basics for Called {
    fn label(&self) -> &'static str {
        self.label
    }

    fn enter(&self) {
        if let Some(preload) = &self.preload {
            sys::set_environment("UMSG_DIR", preload.namespace.path());
        }
    }

    fn handle_signal(&self, signal: i32, handler: extern "C" fn(i32), flags: i32) -> Answer<()> {
        sys::handle_signal(self.calls.sigaction, signal, handler, flags).map_err(Failure::from)
    }
}

// Each call below passes the arguments that its C declaration requires: NUL-terminated names, pointers and lengths of live slices, structures of the
// right type or null where null is allowed. A descriptor may have any value: the cases test that the library checks descriptors.
impl Backend for Called {
    fn open(&self, name: &CStr, flags: i32, mode: u32, attributes: OpenAttributes) -> Answer<Fd> {
        let attributes = attributes.map(|&given| mq_attr::from(given));
        // SAFETY: see the comment on this impl.
        answer(unsafe {
            (self.calls.mq_open)(name.as_ptr(), flags, mode, pointer(attributes.as_ref()))
        })
    }

    fn close(&self, fd: Fd) -> Answer<()> {
        // SAFETY: see the comment on this impl.
        nothing(unsafe { (self.calls.mq_close)(fd) })
    }

    fn unlink(&self, name: &CStr) -> Answer<()> {
        // SAFETY: see the comment on this impl.
        nothing(unsafe { (self.calls.mq_unlink)(name.as_ptr()) })
    }

    fn send(&self, fd: Fd, message: &[u8], priority: u32) -> Answer<()> {
        // SAFETY: see the comment on this impl.
        nothing(unsafe {
            (self.calls.mq_send)(fd, message.as_ptr().cast(), message.len(), priority)
        })
    }

    fn timed_send(&self, fd: Fd, message: &[u8], priority: u32, deadline: AbsTime) -> Answer<()> {
        let deadline = pointer(deadline);
        // SAFETY: see the comment on this impl.
        nothing(unsafe {
            (self.calls.mq_timedsend)(
                fd,
                message.as_ptr().cast(),
                message.len(),
                priority,
                deadline,
            )
        })
    }

    fn receive(&self, fd: Fd, buffer: &mut [u8]) -> Answer<(usize, u32)> {
        let mut priority = 0;
        // SAFETY: see the comment on this impl.
        let length = unsafe {
            (self.calls.mq_receive)(fd, buffer.as_mut_ptr().cast(), buffer.len(), &mut priority)
        };
        Ok((answer(length)? as usize, priority))
    }

    fn timed_receive(&self, fd: Fd, buffer: &mut [u8], deadline: AbsTime) -> Answer<(usize, u32)> {
        let (mut priority, deadline) = (0, pointer(deadline));
        let (start, length) = (buffer.as_mut_ptr().cast(), buffer.len());
        // SAFETY: see the comment on this impl.
        let length =
            unsafe { (self.calls.mq_timedreceive)(fd, start, length, &mut priority, deadline) };
        Ok((answer(length)? as usize, priority))
    }

    fn receive_ignoring_priority(&self, fd: Fd, buffer: &mut [u8]) -> Answer<usize> {
        let (start, length) = (buffer.as_mut_ptr().cast(), buffer.len());
        // SAFETY: see the comment on this impl.
        let length = unsafe { (self.calls.mq_receive)(fd, start, length, ptr::null_mut()) };
        Ok(answer(length)? as usize)
    }

    fn send_null(&self, fd: Fd, length: usize, priority: u32) -> Answer<()> {
        // SAFETY: the case tests that a read from null fails.
        nothing(unsafe { (self.calls.mq_send)(fd, ptr::null(), length, priority) })
    }

    fn receive_null(&self, fd: Fd, length: usize) -> Answer<usize> {
        // SAFETY: the call does not write to null. The case tests that such a receive fails.
        let length =
            unsafe { (self.calls.mq_receive)(fd, ptr::null_mut(), length, ptr::null_mut()) };
        Ok(answer(length)? as usize)
    }

    fn set_no_attributes(&self, fd: Fd) -> Answer<Attributes> {
        let mut old = mq_attr::from(Attributes::default());
        // SAFETY: see the comment on this impl.
        nothing(unsafe { (self.calls.mq_setattr)(fd, ptr::null(), &mut old) })?;
        Ok(old.into())
    }

    fn attributes(&self, fd: Fd) -> Answer<Attributes> {
        let mut attr = mq_attr::from(Attributes::default());
        // SAFETY: see the comment on this impl.
        nothing(unsafe { (self.calls.mq_getattr)(fd, &mut attr) })?;
        Ok(attr.into())
    }

    fn set_attributes(&self, fd: Fd, attributes: &Attributes) -> Answer<Attributes> {
        let (attr, mut old) = (
            mq_attr::from(*attributes),
            mq_attr::from(Attributes::default()),
        );
        // SAFETY: see the comment on this impl.
        nothing(unsafe { (self.calls.mq_setattr)(fd, &attr, &mut old) })?;
        Ok(old.into())
    }

    fn set_attributes_only(&self, fd: Fd, attributes: &Attributes) -> Answer<()> {
        let attr = mq_attr::from(*attributes);
        // SAFETY: see the comment on this impl.
        nothing(unsafe { (self.calls.mq_setattr)(fd, &attr, ptr::null_mut()) })
    }

    fn notify(&self, fd: Fd, event: Option<&libc::sigevent>) -> Answer<()> {
        // SAFETY: see the comment on this impl. If an event names a function, the function exists, and the event's attributes are null.
        nothing(unsafe { (self.calls.mq_notify)(fd, pointer(event)) })
    }

    fn ownership(&self, fd: Fd) -> Answer<Ownership> {
        let Status { mode, uid, gid, .. } = self.status(fd)?;
        Ok(Ownership {
            mode: mode & 0o7777,
            uid,
            gid,
        })
    }

    fn dup(&self, fd: Fd) -> Answer<Fd> {
        // SAFETY: see the comment on this impl.
        answer(unsafe { (self.calls.dup)(fd) })
    }

    fn close_descriptor(&self, fd: Fd) -> Answer<()> {
        // SAFETY: see the comment on this impl.
        nothing(unsafe { (self.calls.close)(fd) })
    }

    fn close_range(&self, first: u32, last: u32, flags: i32) -> Answer<()> {
        // SAFETY: see the comment on this impl.
        nothing(unsafe { (self.calls.close_range)(first, last, flags) })
    }

    fn dup2(&self, fd: Fd, onto: Fd) -> Answer<Fd> {
        // SAFETY: see the comment on this impl.
        answer(unsafe { (self.calls.dup2)(fd, onto) })
    }

    fn dup3(&self, fd: Fd, onto: Fd, flags: i32) -> Answer<Fd> {
        // SAFETY: see the comment on this impl.
        answer(unsafe { (self.calls.dup3)(fd, onto, flags) })
    }

    fn fcntl(&self, fd: Fd, command: i32, argument: i32) -> Answer<i32> {
        // SAFETY: see the comment on this impl.
        answer(unsafe { (self.calls.fcntl)(fd, command, argument) })
    }

    fn status(&self, fd: Fd) -> Answer<Status> {
        let mut status = MaybeUninit::<libc::stat>::uninit();
        // SAFETY: see the comment on this impl.
        nothing(unsafe { (self.calls.fstat)(fd, status.as_mut_ptr()) })?;
        // SAFETY: a call that succeeded has filled the structure.
        let status = unsafe { status.assume_init() };
        // The type of this field depends on the architecture.
        #[allow(clippy::unnecessary_cast)]
        let links = status.st_nlink as u64;
        Ok(Status {
            mode: status.st_mode,
            uid: status.st_uid,
            gid: status.st_gid,
            size: status.st_size,
            links,
        })
    }

    fn read(&self, fd: Fd, buffer: &mut [u8]) -> Answer<usize> {
        // SAFETY: see the comment on this impl.
        Ok(
            answer(unsafe { (self.calls.read)(fd, buffer.as_mut_ptr().cast(), buffer.len()) })?
                as usize,
        )
    }

    fn read_at(&self, fd: Fd, buffer: &mut [u8], offset: i64) -> Answer<usize> {
        // SAFETY: see the comment on this impl.
        let length =
            unsafe { (self.calls.pread)(fd, buffer.as_mut_ptr().cast(), buffer.len(), offset) };
        Ok(answer(length)? as usize)
    }

    fn write(&self, fd: Fd, bytes: &[u8]) -> Answer<usize> {
        // SAFETY: see the comment on this impl.
        Ok(answer(unsafe { (self.calls.write)(fd, bytes.as_ptr().cast(), bytes.len()) })? as usize)
    }

    fn seek(&self, fd: Fd, offset: i64, whence: i32) -> Answer<i64> {
        // SAFETY: see the comment on this impl.
        answer(unsafe { (self.calls.lseek)(fd, offset, whence) })
    }

    fn sync(&self, fd: Fd) -> Answer<()> {
        // SAFETY: see the comment on this impl.
        nothing(unsafe { (self.calls.fsync)(fd) })
    }

    fn change_mode(&self, fd: Fd, mode: u32) -> Answer<()> {
        // SAFETY: see the comment on this impl.
        nothing(unsafe { (self.calls.fchmod)(fd, mode) })
    }

    fn change_owner(&self, fd: Fd, uid: u32, gid: u32) -> Answer<()> {
        // SAFETY: see the comment on this impl.
        nothing(unsafe { (self.calls.fchown)(fd, uid, gid) })
    }

    fn read_link(&self, path: &CStr) -> Answer<Vec<u8>> {
        let mut target = vec![0; 4096];
        // SAFETY: see the comment on this impl.
        let length = unsafe {
            (self.calls.readlink)(path.as_ptr(), target.as_mut_ptr().cast(), target.len())
        };
        target.truncate(answer(length)? as usize);
        Ok(target)
    }

    fn poll(&self, descriptors: &mut [libc::pollfd], timeout: i32) -> Answer<usize> {
        let (start, count) = (descriptors.as_mut_ptr(), descriptors.len());
        // SAFETY: see the comment on this impl.
        Ok(answer(unsafe { (self.calls.poll)(start, count as libc::nfds_t, timeout) })? as usize)
    }

    fn select(&self, below: Fd, [readable, writable]: [&mut libc::fd_set; 2]) -> Answer<usize> {
        let mut now = libc::timeval {
            tv_sec: 0,
            tv_usec: 0,
        };
        let others = ptr::null_mut();
        // SAFETY: see the comment on this impl.
        let count = unsafe { (self.calls.select)(below, readable, writable, others, &mut now) };
        Ok(answer(count)? as usize)
    }

    fn control_epoll(&self, fd: Fd, control: EpollControl) -> Answer<()> {
        let mut event = control.event;
        // SAFETY: see the comment on this impl.
        nothing(unsafe { (self.calls.epoll_ctl)(control.set, control.operation, fd, &mut event) })
    }

    fn map(&self, fd: Fd) -> Answer<()> {
        // SAFETY: a new mapping at an address of the kernel's choice disturbs no other mapping.
        let page = unsafe {
            (self.calls.mmap)(
                ptr::null_mut(),
                4096,
                libc::PROT_READ,
                libc::MAP_SHARED,
                fd,
                0,
            )
        };
        if page == libc::MAP_FAILED {
            return Err(Errno::last().into());
        }
        // SAFETY: the mapping was made above, and no reference to it exists.
        unsafe { libc::munmap(page, 4096) };
        Ok(())
    }

    fn limit_queues(&self, max_queues: u32) -> Answer<()> {
        if let Some(preload) = &self.preload {
            return super::set_limits(&preload.namespace, |limits| limits.max_queues = max_queues);
        }
        sys::enter_private_ipc_namespace()
            .and_then(|()| {
                std::fs::write("/proc/sys/fs/mqueue/queues_max", max_queues.to_string()).ok()
            })
            .ok_or(Failure::Unsupported(
                "only root can limit the kernel's queues",
            ))
    }

    fn limit_sizes(&self, max_messages: u32, max_message_size: u32) -> Answer<()> {
        let Some(preload) = &self.preload else {
            return Ok(());
        };
        super::set_limits(&preload.namespace, |limits| {
            limits.max_messages = max_messages;
            limits.max_message_size = max_message_size;
        })
    }

    fn environment(&self) -> Answer<Vec<(&'static str, PathBuf)>> {
        Ok(match &self.preload {
            None => Vec::new(),
            Some(Preload { library, namespace }) => {
                vec![
                    ("LD_PRELOAD", library.clone()),
                    ("UMSG_DIR", namespace.path().to_path_buf()),
                ]
            }
        })
    }
}
