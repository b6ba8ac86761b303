//! The C library: `libumsg.so` and its functions `umsg_mq_*`, looked up by `dlsym`.
//!
//! Handles of the library are pointers, and the cases use small numbers, so this file keeps a table of handles. After a `dup`, several numbers share
//! a handle, and the close of the last number closes the handle. All other behaviour comes from the library.

use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::mem;
use std::path::Path;
use std::ptr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use libc::{mode_t, mq_attr, size_t, ssize_t, timespec};
use umsg::{Edges, Namespace};

use super::calls::{answer, control_epoll_by, nothing, pointer, poll_by};
use super::deferred::{Defer, handle_deferred};
use super::functions::Library;
use super::{
    AbsTime, Answer, Attributes, Backend, Basics, EpollControl, Failure, Fd, Held, OpenAttributes,
    Ownership,
};
use crate::errno::Errno;
use crate::sys;

/// A `umsg_mqd_t`: a pointer that this program never follows.
type Handle = usize;

/// The first members of `struct umsg_mq_status`, up to the last member that this file uses.
#[repr(C)]
#[derive(Default)]
struct StatusOfC {
    counts: [u64; 4],
    mode: u32,
    uid: u32,
    gid: u32,
    creator: u32,
}

macro_rules! functions {
    ($($name:ident: $signature:ty,)*) => {
        struct Functions {
            $($name: $signature,)*
        }

        impl Functions {
            fn of(library: &Library) -> Result<Functions, String> {
                Ok(Functions {
                    $($name: {
                        let symbol = library.symbol(concat!(stringify!($name), "\0"))?;
                        // SAFETY: the library's function of this name has the declaration in the library's header. The only difference: a handle is a
                        // pointer in the header and a number of the same size in this file. The library is never unloaded.
                        unsafe { mem::transmute::<*mut c_void, $signature>(symbol) }
                    },)*
                })
            }
        }
    };
}

functions! {
    umsg_mq_open: unsafe extern "C" fn(*const c_char, c_int, ...) -> Handle,
    umsg_mq_close: unsafe extern "C" fn(Handle) -> c_int,
    umsg_mq_unlink: unsafe extern "C" fn(*const c_char) -> c_int,
    umsg_mq_send: unsafe extern "C" fn(Handle, *const c_char, size_t, c_uint) -> c_int,
    umsg_mq_timedsend: unsafe extern "C" fn(Handle, *const c_char, size_t, c_uint, *const timespec) -> c_int,
    umsg_mq_receive: unsafe extern "C" fn(Handle, *mut c_char, size_t, *mut c_uint) -> ssize_t,
    umsg_mq_timedreceive: unsafe extern "C" fn(Handle, *mut c_char, size_t, *mut c_uint, *const timespec) -> ssize_t,
    umsg_mq_getattr: unsafe extern "C" fn(Handle, *mut mq_attr) -> c_int,
    umsg_mq_setattr: unsafe extern "C" fn(Handle, *const mq_attr, *mut mq_attr) -> c_int,
    umsg_mq_pollfd: unsafe extern "C" fn(Handle, c_int) -> c_int,
    umsg_mq_notify: unsafe extern "C" fn(Handle, *const libc::sigevent) -> c_int,
    umsg_defer_signal: Defer,
    umsg_mq_status: unsafe extern "C" fn(Handle, *mut StatusOfC, size_t) -> c_int,
}

/// The number of the first handle: the first free descriptor of a process that has the three standard descriptors open.
const FIRST: usize = 3;

type Handles = Vec<Option<Arc<Handle>>>;

impl Held for MutexGuard<'_, Handles> {}

/// A backend that calls the C library.
pub struct C {
    functions: Functions,
    namespace: Namespace,
    handles: Mutex<Handles>,
}

impl C {
    /// Loads the library at this path. The queues of the backend are in `directory`.
    ///
    /// # Errors
    /// The loader's message, or the reason why the directory is no namespace.
    pub fn new(library: &Path, directory: &Path) -> Result<C, String> {
        Ok(C {
            functions: Functions::of(&Library::load(library)?)?,
            namespace: Namespace::at(directory).map_err(|error| error.to_string())?,
            handles: Mutex::new(Vec::new()),
        })
    }

    fn handles(&self) -> MutexGuard<'_, Handles> {
        self.handles.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the handle that the cases know by this number. Returns the invalid handle of C if there is none.
    fn handle(&self, fd: Fd) -> Handle {
        self.shared(fd).map_or(Handle::MAX, |handle| *handle)
    }

    fn shared(&self, fd: Fd) -> Option<Arc<Handle>> {
        self.handles().get(place_of(fd)?).cloned().flatten()
    }

    /// Returns the descriptor of a queue for event loops. The descriptor is open as long as the queue's handle.
    fn pollable(&self, fd: Fd, edges: Edges) -> Answer<c_int> {
        let edges = match edges {
            Edges::Messages => 1,
            Edges::All => 2,
            _ => 0,
        };
        // SAFETY: the call takes two numbers, and accepts any value for the handle.
        answer(unsafe { (self.functions.umsg_mq_pollfd)(self.handle(fd), edges) })
    }

    /// Stores a handle in the first free entry of the table, and returns the number of the handle.
    fn keep(&self, handle: Arc<Handle>) -> Fd {
        let mut handles = self.handles();
        let free = handles.iter().position(Option::is_none);
        let at = free.unwrap_or(handles.len());
        if at == handles.len() {
            handles.push(None);
        }
        handles[at] = Some(handle);
        (at + FIRST) as Fd
    }
}

/// Returns the index in the table for a handle's number.
fn place_of(fd: Fd) -> Option<usize> {
    usize::try_from(fd).ok()?.checked_sub(FIRST)
}

impl Basics for C {
    fn label(&self) -> &'static str {
        "C library"
    }

    fn enter(&self) {
        sys::set_environment("UMSG_DIR", self.namespace.path());
    }

    fn hold(&self) -> Option<Box<dyn Held + '_>> {
        Some(Box::new(self.handles()))
    }

    fn handle_signal(&self, signal: i32, handler: extern "C" fn(i32), flags: i32) -> Answer<()> {
        handle_deferred(self.functions.umsg_defer_signal, signal, handler, flags)
    }
}

// Each call below passes the arguments that its C declaration requires: NUL-terminated names, pointers and lengths of live slices, structures of the
// right type or null where null is allowed. A handle may have any value: the cases test that the library checks handles.
impl Backend for C {
    fn has_descriptors(&self) -> bool {
        false
    }

    fn open(&self, name: &CStr, flags: i32, mode: u32, attributes: OpenAttributes) -> Answer<Fd> {
        let attributes = attributes.map(|&given| mq_attr::from(given));
        let attributes = pointer(attributes.as_ref());
        // SAFETY: see the comment on this impl.
        let handle = unsafe {
            (self.functions.umsg_mq_open)(name.as_ptr(), flags, mode as mode_t, attributes)
        };
        match handle {
            Handle::MAX => Err(Errno::last().into()),
            handle => Ok(self.keep(Arc::new(handle))),
        }
    }

    fn close(&self, fd: Fd) -> Answer<()> {
        let handle = self.handle(fd);
        let taken = place_of(fd).and_then(|at| self.handles().get_mut(at)?.take());
        if taken.is_some_and(|taken| Arc::into_inner(taken).is_none()) {
            return Ok(());
        }
        // SAFETY: see the comment on this impl.
        nothing(unsafe { (self.functions.umsg_mq_close)(handle) })
    }

    fn poll(&self, descriptors: &mut [libc::pollfd], timeout: i32) -> Answer<usize> {
        poll_by(descriptors, timeout, |fd| self.pollable(fd, Edges::Changes))
    }

    fn control_epoll(&self, fd: Fd, control: EpollControl) -> Answer<()> {
        control_epoll_by(control, |edges| self.pollable(fd, edges))
    }

    fn unlink(&self, name: &CStr) -> Answer<()> {
        // SAFETY: see the comment on this impl.
        nothing(unsafe { (self.functions.umsg_mq_unlink)(name.as_ptr()) })
    }

    fn send(&self, fd: Fd, message: &[u8], priority: u32) -> Answer<()> {
        let (start, length) = (message.as_ptr().cast(), message.len());
        // SAFETY: see the comment on this impl.
        nothing(unsafe { (self.functions.umsg_mq_send)(self.handle(fd), start, length, priority) })
    }

    fn timed_send(&self, fd: Fd, message: &[u8], priority: u32, deadline: AbsTime) -> Answer<()> {
        let (start, length) = (message.as_ptr().cast(), message.len());
        let (handle, deadline) = (self.handle(fd), pointer(deadline));
        // SAFETY: see the comment on this impl.
        nothing(unsafe {
            (self.functions.umsg_mq_timedsend)(handle, start, length, priority, deadline)
        })
    }

    fn receive(&self, fd: Fd, buffer: &mut [u8]) -> Answer<(usize, u32)> {
        let (start, length) = (buffer.as_mut_ptr().cast(), buffer.len());
        let mut priority = 0;
        // SAFETY: see the comment on this impl.
        let length = unsafe {
            (self.functions.umsg_mq_receive)(self.handle(fd), start, length, &mut priority)
        };
        Ok((answer(length)? as usize, priority))
    }

    fn timed_receive(&self, fd: Fd, buffer: &mut [u8], deadline: AbsTime) -> Answer<(usize, u32)> {
        let (start, length) = (buffer.as_mut_ptr().cast(), buffer.len());
        let (mut priority, deadline) = (0, pointer(deadline));
        let handle = self.handle(fd);
        // SAFETY: see the comment on this impl.
        let length = unsafe {
            (self.functions.umsg_mq_timedreceive)(handle, start, length, &mut priority, deadline)
        };
        Ok((answer(length)? as usize, priority))
    }

    fn receive_ignoring_priority(&self, fd: Fd, buffer: &mut [u8]) -> Answer<usize> {
        let (start, length) = (buffer.as_mut_ptr().cast(), buffer.len());
        // SAFETY: see the comment on this impl.
        let length = unsafe {
            (self.functions.umsg_mq_receive)(self.handle(fd), start, length, ptr::null_mut())
        };
        Ok(answer(length)? as usize)
    }

    fn send_null(&self, fd: Fd, length: usize, priority: u32) -> Answer<()> {
        // SAFETY: the case tests that a read from null fails.
        nothing(unsafe {
            (self.functions.umsg_mq_send)(self.handle(fd), ptr::null(), length, priority)
        })
    }

    fn receive_null(&self, fd: Fd, length: usize) -> Answer<usize> {
        let handle = self.handle(fd);
        // SAFETY: the library does not write to null; the case tests this.
        let length = unsafe {
            (self.functions.umsg_mq_receive)(handle, ptr::null_mut(), length, ptr::null_mut())
        };
        Ok(answer(length)? as usize)
    }

    fn attributes(&self, fd: Fd) -> Answer<Attributes> {
        let mut attr = mq_attr::from(Attributes::default());
        // SAFETY: see the comment on this impl.
        nothing(unsafe { (self.functions.umsg_mq_getattr)(self.handle(fd), &mut attr) })?;
        Ok(attr.into())
    }

    fn set_attributes(&self, fd: Fd, attributes: &Attributes) -> Answer<Attributes> {
        let attr = mq_attr::from(*attributes);
        let mut old = mq_attr::from(Attributes::default());
        // SAFETY: see the comment on this impl.
        nothing(unsafe { (self.functions.umsg_mq_setattr)(self.handle(fd), &attr, &mut old) })?;
        Ok(old.into())
    }

    fn set_no_attributes(&self, fd: Fd) -> Answer<Attributes> {
        let mut old = mq_attr::from(Attributes::default());
        // SAFETY: see the comment on this impl.
        nothing(unsafe {
            (self.functions.umsg_mq_setattr)(self.handle(fd), ptr::null(), &mut old)
        })?;
        Ok(old.into())
    }

    fn set_attributes_only(&self, fd: Fd, attributes: &Attributes) -> Answer<()> {
        let attr = mq_attr::from(*attributes);
        // SAFETY: see the comment on this impl.
        nothing(unsafe {
            (self.functions.umsg_mq_setattr)(self.handle(fd), &attr, ptr::null_mut())
        })
    }

    fn notify(&self, fd: Fd, event: Option<&libc::sigevent>) -> Answer<()> {
        // SAFETY: see the comment on this impl. If an event names a function, the function exists, and the event's attributes are null.
        nothing(unsafe { (self.functions.umsg_mq_notify)(self.handle(fd), pointer(event)) })
    }

    fn ownership(&self, fd: Fd) -> Answer<Ownership> {
        let mut status = StatusOfC::default();
        let size = size_of::<StatusOfC>();
        // SAFETY: see the comment on this impl. The library writes at most `size` bytes.
        nothing(unsafe { (self.functions.umsg_mq_status)(self.handle(fd), &mut status, size) })?;
        Ok(Ownership {
            mode: status.mode,
            uid: status.uid,
            gid: status.gid,
        })
    }

    fn dup(&self, fd: Fd) -> Answer<Fd> {
        let handle = self.shared(fd).ok_or(Failure::Errno(Errno::EBADF))?;
        Ok(self.keep(handle))
    }

    fn namespace(&self) -> Option<&Namespace> {
        Some(&self.namespace)
    }
}
