//! The C calls of trials, with errors as sentences. Under the drop-in, the dynamic linker binds these calls to the drop-in.

use std::ffi::{CStr, c_int, c_long};
use std::mem;
use std::ptr;

use crate::backends::Errno;
use crate::failure::Failure;

/// The length of a message, in bytes.
pub const SIZE: usize = 16;

/// The maximum size of a message in the queues, in bytes.
const LIMIT: usize = 64;

/// The name of the POSIX queue of a trial. Each trial has its own namespace, or removes its queues at its end.
pub const NAME: &CStr = c"/umsg-bench-trial";
pub const OTHER: &CStr = c"/umsg-bench-trial-2";

/// The key of the System V queue of a trial.
pub const KEY: libc::key_t = 0x756d_6576;

/// A deadline in the past.
static OVER: libc::timespec = libc::timespec {
    tv_sec: 0,
    tv_nsec: 0,
};

fn checked(what: &str, result: c_int) -> Result<c_int, Failure> {
    match result {
        -1 => Err(Failure::system(what)),
        result => Ok(result),
    }
}

/// A descriptor of a POSIX queue. The descriptor is closed when this value is dropped.
pub struct Queue(libc::mqd_t);

impl Queue {
    /// Creates a queue for ten messages.
    #[inline]
    pub fn create(name: &CStr) -> Result<Self, Failure> {
        // SAFETY: an all-zero mq_attr is valid.
        let mut attributes: libc::mq_attr = unsafe { mem::zeroed() };
        attributes.mq_maxmsg = 10;
        attributes.mq_msgsize = LIMIT as c_long;
        let flags = libc::O_RDWR | libc::O_CREAT | libc::O_EXCL;
        // SAFETY: with O_CREAT, mq_open takes a mode and attributes, and the call passes a mode and attributes.
        let queue = unsafe {
            libc::mq_open(
                name.as_ptr(),
                flags,
                0o600 as libc::mode_t,
                &raw mut attributes,
            )
        };
        checked("mq_open", queue).map(Self)
    }

    /// Opens a queue for sending and receiving, with additional flags such as O_NONBLOCK.
    #[inline]
    pub fn open(name: &CStr, flags: c_int) -> Result<Self, Failure> {
        // SAFETY: without O_CREAT two arguments suffice.
        let queue = unsafe { libc::mq_open(name.as_ptr(), libc::O_RDWR | flags) };
        checked("mq_open", queue).map(Self)
    }

    pub fn descriptor(&self) -> c_int {
        self.0
    }

    #[inline]
    pub fn send(&self, message: &[u8]) -> Result<(), Failure> {
        // SAFETY: the pointer and the length are those of one slice.
        let sent = unsafe { libc::mq_send(self.0, message.as_ptr().cast(), message.len(), 0) };
        checked("mq_send", sent).map(drop)
    }

    /// Receives a message. Returns only its first bytes, because callers use no others.
    #[inline]
    pub fn receive(&self) -> Result<[u8; SIZE], Failure> {
        self.try_receive()
            .map_err(|errno| Failure::queue("mq_receive", errno))
    }

    #[inline]
    pub fn try_receive(&self) -> Result<[u8; SIZE], Errno> {
        let mut buffer = [0_u8; LIMIT];
        let mut priority = 0;
        let start = buffer.as_mut_ptr().cast();
        // SAFETY: the buffer and the priority are locals.
        match unsafe { libc::mq_receive(self.0, start, LIMIT, &raw mut priority) } {
            -1 => Err(Errno::last()),
            _ => Ok(std::array::from_fn(|at| buffer[at])),
        }
    }

    /// Sends with a deadline in the past: if the queue is full, the call fails at once.
    #[inline]
    pub fn send_late(&self, message: &[u8]) -> Result<(), Errno> {
        let start = message.as_ptr().cast();
        // SAFETY: the pointer and the length are those of one slice, and the time is a local.
        let sent = unsafe { libc::mq_timedsend(self.0, start, message.len(), 0, &raw const OVER) };
        match sent {
            -1 => Err(Errno::last()),
            _ => Ok(()),
        }
    }

    /// Receives with a deadline in the past: if the queue is empty, the call fails at once.
    #[inline]
    pub fn receive_late(&self) -> Result<(), Errno> {
        let mut buffer = [0_u8; LIMIT];
        let start = buffer.as_mut_ptr().cast();
        // SAFETY: the buffer and the time are locals; no priority is asked for.
        let length = unsafe {
            libc::mq_timedreceive(self.0, start, LIMIT, ptr::null_mut(), &raw const OVER)
        };
        match length {
            -1 => Err(Errno::last()),
            _ => Ok(()),
        }
    }

    #[inline]
    pub fn attributes(&self) -> Result<(), Failure> {
        // SAFETY: an all-zero mq_attr is valid, and the call fills it.
        let got = unsafe {
            let mut attributes: libc::mq_attr = mem::zeroed();
            libc::mq_getattr(self.0, &raw mut attributes)
        };
        checked("mq_getattr", got).map(drop)
    }

    /// Registers the calling process for a signal.
    #[inline]
    pub fn notify(&self, signal: c_int) -> Result<(), Failure> {
        // SAFETY: an all-zero sigevent is valid; the call reads it.
        let registered = unsafe {
            let mut event: libc::sigevent = mem::zeroed();
            event.sigev_notify = libc::SIGEV_SIGNAL;
            event.sigev_signo = signal;
            libc::mq_notify(self.0, &raw const event)
        };
        checked("mq_notify", registered).map(drop)
    }

    /// Removes the registration of the calling process.
    #[inline]
    pub fn notify_no_more(&self) -> Result<(), Failure> {
        // SAFETY: a null pointer removes the registration.
        let removed = unsafe { libc::mq_notify(self.0, ptr::null()) };
        checked("mq_notify", removed).map(drop)
    }
}

impl Drop for Queue {
    #[inline]
    fn drop(&mut self) {
        // SAFETY: the descriptor belongs to this value, which closes it once.
        unsafe { libc::mq_close(self.0) };
    }
}

/// Removes the name of a queue.
#[inline]
pub fn unlink(name: &CStr) -> Result<(), Failure> {
    // SAFETY: the name ends with zero.
    checked("mq_unlink", unsafe { libc::mq_unlink(name.as_ptr()) }).map(drop)
}

/// A queue whose name is removed when this value is dropped.
pub struct Named(Queue, &'static CStr);

impl Named {
    pub fn create(name: &'static CStr) -> Result<Self, Failure> {
        Queue::create(name).map(|queue| Self(queue, name))
    }

    pub fn queue(&self) -> &Queue {
        &self.0
    }
}

impl Drop for Named {
    fn drop(&mut self) {
        // If the call fails, the queue is removed with the trial's namespace.
        let _ = unlink(self.1);
    }
}

/// A System V queue, removed when dropped.
pub struct Identifier(c_int);

impl Identifier {
    /// Creates a queue: with IPC_PRIVATE one without a key.
    #[inline]
    pub fn create(key: libc::key_t) -> Result<Self, Failure> {
        get(key, libc::IPC_CREAT | libc::IPC_EXCL | 0o600).map(Self)
    }
}

impl Drop for Identifier {
    #[inline]
    fn drop(&mut self) {
        // SAFETY: the call takes two numbers, and IPC_RMID accesses no memory of this process.
        unsafe { libc::msgctl(self.0, libc::IPC_RMID, ptr::null_mut()) };
    }
}

/// Returns the identifier of the queue that has this key.
#[inline]
pub fn get(key: libc::key_t, flags: c_int) -> Result<c_int, Failure> {
    // SAFETY: the call takes two numbers.
    checked("msgget", unsafe { libc::msgget(key, flags) })
}

#[repr(C)]
struct Typed {
    mtype: c_long,
    text: [u8; SIZE],
}

/// Sends a message of type 1 and receives it.
#[inline]
pub fn send_and_receive(identifier: c_int) -> Result<(), Failure> {
    let mut message = Typed {
        mtype: 1,
        text: [0; SIZE],
    };
    // SAFETY: the structure is the msgbuf that the call expects, and its text has the stated number of bytes.
    let sent = unsafe { libc::msgsnd(identifier, (&raw const message).cast(), SIZE, 0) };
    checked("msgsnd", sent)?;
    // SAFETY: the structure is the msgbuf that the call writes, and its text has the stated number of bytes.
    let received = unsafe { libc::msgrcv(identifier, (&raw mut message).cast(), SIZE, 0, 0) };
    match received {
        -1 => Err(Failure::system("msgrcv")),
        _ => Ok(()),
    }
}

/// Reads the totals or the limits of all System V queues.
#[inline]
pub fn control_all(command: c_int) -> Result<(), Failure> {
    // The buffer is larger than a msginfo and than a msqid_ds.
    let mut room = [0_u64; 32];
    // SAFETY: MSG_INFO and IPC_INFO fill a msginfo, for which the buffer has room.
    let done = unsafe { libc::msgctl(0, command, room.as_mut_ptr().cast()) };
    checked("msgctl", done).map(drop)
}

/// Reads a file from beginning to end.
#[inline]
pub fn read_all(file: &CStr) -> Result<(), Failure> {
    let mut buffer = [0_u8; 16_384];
    // SAFETY: the name ends with zero; the descriptor is closed once; the buffer is a local.
    unsafe {
        let descriptor = checked("open", libc::open(file.as_ptr(), libc::O_RDONLY))?;
        let mut length = 1;
        while length > 0 {
            length = libc::read(descriptor, buffer.as_mut_ptr().cast(), buffer.len());
        }
        libc::close(descriptor);
        match length {
            0 => Ok(()),
            _ => Err(Failure::system("read")),
        }
    }
}
