//! Peers that are compiled separately and loaded as libraries. So the build of this program needs neither the peers nor their compilers.
//!
//! Each peer is a shared library with the following functions; the sources are `boost.cpp`, and the crate `peers-iceoryx2` beside this crate. The
//! functions return 0 or an error number; a receive returns the length or a negative error number. If a function that makes a queue or an end fails,
//! it writes the reason as text to `why`. The call through a pointer adds about a nanosecond to each message.
//!
//! ```c
//! const char *umsg_bench_about(void);
//! void *umsg_bench_make(const char *directory, const char *name, unsigned depth, unsigned size, char *why, size_t why_size);
//! void *umsg_bench_end(void *queue, int sends, int waits, char *why, size_t why_size);
//! int umsg_bench_send(void *end, const void *message, size_t size);        // waits
//! int umsg_bench_try_send(void *end, const void *message, size_t size);    // EAGAIN if there is no room
//! long umsg_bench_receive(void *end, void *buffer, size_t size);           // waits
//! long umsg_bench_try_receive(void *end, void *buffer, size_t size);       // -EAGAIN if there is nothing
//! void umsg_bench_drop(void *queue);
//! ```
//!
//! A queue is made once, before the processes are forked. An end is made in the process that uses it, and is never freed.

use std::ffi::{CStr, CString, c_char, c_int, c_long, c_uint, c_void};
use std::mem;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use super::scratch::{self, Scratch};
use super::{Abilities, Link, Peer, Receiver, Sender, Way, whole};
use crate::backends::library::Library;
use crate::backends::{Errno, Spec};
use crate::failure::Failure;

type About = unsafe extern "C" fn() -> *const c_char;
type Make = unsafe extern "C" fn(
    *const c_char,
    *const c_char,
    c_uint,
    c_uint,
    *mut c_char,
    usize,
) -> *mut c_void;
type MakeEnd = unsafe extern "C" fn(*mut c_void, c_int, c_int, *mut c_char, usize) -> *mut c_void;
type Send = unsafe extern "C" fn(*mut c_void, *const c_void, usize) -> c_int;
type Receive = unsafe extern "C" fn(*mut c_void, *mut c_void, usize) -> c_long;
type Drops = unsafe extern "C" fn(*mut c_void);

/// The functions of the library, in the order of the list at the top of this file.
#[derive(Clone, Copy)]
struct Functions {
    make: Make,
    end: MakeEnd,
    send: Send,
    try_send: Send,
    receive: Receive,
    try_receive: Receive,
    drop: Drops,
}

/// A peer that is loaded as a library.
pub struct Plug<'a> {
    name: &'static str,
    about: String,
    functions: Functions,
    scratch: &'a Scratch,
}

impl<'a> Plug<'a> {
    /// Loads the library. `how` describes how the library was built and is used.
    pub fn load(
        name: &'static str,
        how: &str,
        path: &Path,
        scratch: &'a Scratch,
    ) -> Result<Self, Failure> {
        let library = Library::open(path)?;
        // SAFETY: each symbol is the function of that name in the list above, and has the type that is declared here; function
        // pointers and data pointers have one representation on Linux.
        let (about, functions) = unsafe {
            let about = mem::transmute::<*mut c_void, About>(library.symbol(c"umsg_bench_about")?);
            let functions = Functions {
                make: mem::transmute::<*mut c_void, Make>(library.symbol(c"umsg_bench_make")?),
                end: mem::transmute::<*mut c_void, MakeEnd>(library.symbol(c"umsg_bench_end")?),
                send: mem::transmute::<*mut c_void, Send>(library.symbol(c"umsg_bench_send")?),
                try_send: mem::transmute::<*mut c_void, Send>(
                    library.symbol(c"umsg_bench_try_send")?,
                ),
                receive: mem::transmute::<*mut c_void, Receive>(
                    library.symbol(c"umsg_bench_receive")?,
                ),
                try_receive: mem::transmute::<*mut c_void, Receive>(
                    library.symbol(c"umsg_bench_try_receive")?,
                ),
                drop: mem::transmute::<*mut c_void, Drops>(library.symbol(c"umsg_bench_drop")?),
            };
            (about, functions)
        };
        // SAFETY: the function takes no argument, and returns a string that lives as long as the library, which is never unloaded.
        let version = unsafe { CStr::from_ptr(about()) }.to_string_lossy();
        Ok(Self {
            name,
            about: format!("{version}, {how}"),
            functions,
            scratch,
        })
    }
}

impl Peer for Plug<'_> {
    type Link = Queue;

    const ABILITIES: Abilities = Abilities::ALL;

    fn name(&self) -> &'static str {
        self.name
    }

    fn about(&self) -> String {
        self.about.clone()
    }

    fn make(&self, spec: &Spec) -> Result<Queue, Failure> {
        let zero = |_| Failure::new("TMPDIR contains a zero byte");
        let name = self.scratch.fresh_name();
        let directory = self.scratch.path().as_os_str().as_bytes();
        let directory = CString::new(directory).map_err(zero)?;
        let zero_ended = CString::new(name.as_str()).map_err(zero)?;
        let queue = with_reason(self.name, |why| {
            let (directory, name) = (directory.as_ptr(), zero_ended.as_ptr());
            let Spec {
                depth,
                message_size,
            } = *spec;
            // SAFETY: both strings end with zero and outlive the call. The call writes only as much of the reason as there is room for.
            unsafe {
                (self.functions.make)(
                    directory,
                    name,
                    depth,
                    message_size,
                    why.as_mut_ptr().cast(),
                    why.len(),
                )
            }
        })?;
        Ok(Queue {
            peer: self.name,
            functions: self.functions,
            queue,
            name,
        })
    }
}

/// Calls a function that returns a pointer, or null and the reason.
fn with_reason(
    peer: &str,
    call: impl FnOnce(&mut [u8]) -> *mut c_void,
) -> Result<*mut c_void, Failure> {
    let mut why = [0; 256];
    let made = call(&mut why);
    if made.is_null() {
        let reason = CStr::from_bytes_until_nul(&why).unwrap_or_default();
        return Err(Failure::new(format!(
            "{peer}: {}",
            reason.to_string_lossy()
        )));
    }
    Ok(made)
}

/// A queue of the peer.
pub struct Queue {
    peer: &'static str,
    functions: Functions,
    queue: *mut c_void,
    name: String,
}

// SAFETY: this program only passes the pointer to the library's functions. They accept the queue from several processes at once, and from one
// thread of each process.
unsafe impl Sync for Queue {}

impl Queue {
    fn end(&self, sends: bool, way: Way) -> Result<End, Failure> {
        let waits = way != Way::Polling;
        let end = with_reason(self.peer, |why| {
            // SAFETY: the same library made the queue. The call writes only as much of the reason as there is room for.
            unsafe {
                (self.functions.end)(
                    self.queue,
                    sends.into(),
                    waits.into(),
                    why.as_mut_ptr().cast(),
                    why.len(),
                )
            }
        })?;
        Ok(End {
            functions: self.functions,
            end,
        })
    }
}

impl Drop for Queue {
    fn drop(&mut self) {
        // SAFETY: the same library made the queue, and this is the only drop. The ends of the queue ended with the processes that had them.
        unsafe { (self.functions.drop)(self.queue) };
        // Removes the shared memory that killed processes left.
        scratch::sweep(&self.name);
    }
}

impl Link for Queue {
    type Sender<'a> = End;
    type Receiver<'a> = End;

    fn sender(&self, way: Way) -> Result<End, Failure> {
        self.end(true, way)
    }

    fn receiver(&self, way: Way) -> Result<End, Failure> {
        self.end(false, way)
    }
}

/// The sending or the receiving end of a queue.
pub struct End {
    functions: Functions,
    end: *mut c_void,
}

impl End {
    #[inline]
    fn send_by(&self, send: Send, message: &[u8]) -> Result<(), Errno> {
        // SAFETY: this library made the end. The pointer and the length are those of one slice, which the call only reads.
        match unsafe { send(self.end, message.as_ptr().cast(), message.len()) } {
            0 => Ok(()),
            errno => Err(Errno(errno)),
        }
    }

    #[inline]
    fn receive_by(&self, receive: Receive, buffer: &mut [u8]) -> Result<(), Errno> {
        // SAFETY: this library made the end. The pointer and the length are those of one slice, borrowed mutably.
        let length = unsafe { receive(self.end, buffer.as_mut_ptr().cast(), buffer.len()) };
        match usize::try_from(length) {
            Ok(length) => whole(length),
            Err(_) => Err(Errno(-length as c_int)),
        }
    }
}

impl Sender for End {
    #[inline]
    fn send(&mut self, message: &[u8]) -> Result<(), Errno> {
        self.send_by(self.functions.send, message)
    }

    #[inline]
    fn try_send(&mut self, message: &[u8]) -> Result<(), Errno> {
        self.send_by(self.functions.try_send, message)
    }
}

impl Receiver for End {
    #[inline]
    fn receive(&mut self, buffer: &mut [u8]) -> Result<(), Errno> {
        self.receive_by(self.functions.receive, buffer)
    }

    #[inline]
    fn try_receive(&mut self, buffer: &mut [u8]) -> Result<(), Errno> {
        self.receive_by(self.functions.try_receive, buffer)
    }
}
