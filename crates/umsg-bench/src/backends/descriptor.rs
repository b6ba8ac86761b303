//! A queue that is used through the C functions of `<mqueue.h>`, either those of libc (the kernel's queues) or those of the drop-in.

use std::ffi::{CString, c_char, c_int, c_uint};
use std::mem;

use super::{Errno, Spec, fresh_name};
use crate::failure::Failure;

pub type Open = unsafe extern "C" fn(*const c_char, c_int, ...) -> c_int;
pub type Close = unsafe extern "C" fn(c_int) -> c_int;
pub type Unlink = unsafe extern "C" fn(*const c_char) -> c_int;
pub type Send = unsafe extern "C" fn(c_int, *const c_char, usize, c_uint) -> c_int;
pub type Receive = unsafe extern "C" fn(c_int, *mut c_char, usize, *mut c_uint) -> isize;

/// The functions of `<mqueue.h>` that the measurements use.
#[derive(Clone, Copy)]
pub struct Names {
    pub open: Open,
    pub close: Close,
    pub unlink: Unlink,
    pub send: Send,
    pub receive: Receive,
}

/// A queue with two descriptors: calls on `waiting` wait, and calls on `nonblocking` return at once. In the C interface, waiting is a property of the
/// open file.
pub struct DescriptorQueue {
    names: Names,
    waiting: c_int,
    nonblocking: c_int,
}

impl DescriptorQueue {
    /// Makes a queue, and unlinks its name at once. The queue exists until both descriptors are closed.
    pub fn make(names: Names, spec: &Spec) -> Result<Self, Errno> {
        // A fresh name contains no zero byte.
        let name = CString::new(fresh_name()).map_err(|_| Errno(libc::EINVAL))?;
        // SAFETY: all-zero is a valid mq_attr. The fields that mq_open reads are set below.
        let mut attributes: libc::mq_attr = unsafe { mem::zeroed() };
        attributes.mq_maxmsg = spec.depth.into();
        attributes.mq_msgsize = spec.message_size.into();
        let create = libc::O_RDWR | libc::O_CREAT | libc::O_EXCL;
        // SAFETY: with O_CREAT, mq_open takes a mode and attributes, and the call passes a mode and attributes; the name ends with zero.
        let waiting = unsafe {
            (names.open)(
                name.as_ptr(),
                create,
                0o600 as libc::mode_t,
                &raw const attributes,
            )
        };
        if waiting < 0 {
            return Err(Errno::last());
        }
        // SAFETY: without O_CREAT two arguments suffice; the name ends with zero.
        let nonblocking = unsafe { (names.open)(name.as_ptr(), libc::O_RDWR | libc::O_NONBLOCK) };
        let outcome = Errno::last();
        // SAFETY: the name ends with zero.
        unsafe { (names.unlink)(name.as_ptr()) };
        if nonblocking < 0 {
            // SAFETY: the descriptor belongs to this value, which closes it once.
            unsafe { (names.close)(waiting) };
            return Err(outcome);
        }
        Ok(Self {
            names,
            waiting,
            nonblocking,
        })
    }

    /// Returns the number of the nonblocking descriptor.
    pub fn number(&self) -> c_int {
        self.nonblocking
    }

    #[inline]
    pub fn send(&self, message: &[u8], priority: u32) -> Result<(), Errno> {
        self.send_by(self.waiting, message, priority)
    }

    #[inline]
    pub fn try_send(&self, message: &[u8], priority: u32) -> Result<(), Errno> {
        self.send_by(self.nonblocking, message, priority)
    }

    #[inline]
    pub fn receive(&self, buffer: &mut [u8]) -> Result<usize, Errno> {
        self.receive_by(self.waiting, buffer)
    }

    #[inline]
    pub fn try_receive(&self, buffer: &mut [u8]) -> Result<usize, Errno> {
        self.receive_by(self.nonblocking, buffer)
    }

    #[inline]
    fn send_by(&self, queue: c_int, message: &[u8], priority: u32) -> Result<(), Errno> {
        let start = message.as_ptr().cast();
        // SAFETY: the pointer and the length are those of one slice, which is only read.
        match unsafe { (self.names.send)(queue, start, message.len(), priority) } {
            0 => Ok(()),
            _ => Err(Errno::last()),
        }
    }

    #[inline]
    fn receive_by(&self, queue: c_int, buffer: &mut [u8]) -> Result<usize, Errno> {
        let start = buffer.as_mut_ptr().cast();
        let mut priority = 0;
        // SAFETY: the pointer and the length are those of one slice, borrowed mutably; the priority is written to an unsigned int of this function.
        let length = unsafe { (self.names.receive)(queue, start, buffer.len(), &raw mut priority) };
        usize::try_from(length).map_err(|_| Errno::last())
    }
}

impl Drop for DescriptorQueue {
    fn drop(&mut self) {
        // SAFETY: the descriptors belong to this value, which closes them once.
        unsafe {
            (self.names.close)(self.nonblocking);
            (self.names.close)(self.waiting);
        }
    }
}

/// Implements [`super::MessageQueue`] for a type that wraps a [`DescriptorQueue`]. `$make` is the function that makes the inner queue.
macro_rules! message_queue {
    ($queue:ty, $make:expr) => {
        impl $crate::backends::MessageQueue for $queue {
            fn make(spec: &$crate::backends::Spec) -> Result<Self, $crate::failure::Failure> {
                $make(spec).map(Self)
            }

            #[inline]
            fn send(&self, message: &[u8], priority: u32) -> Result<(), $crate::backends::Errno> {
                self.0.send(message, priority)
            }

            #[inline]
            fn try_send(
                &self,
                message: &[u8],
                priority: u32,
            ) -> Result<(), $crate::backends::Errno> {
                self.0.try_send(message, priority)
            }

            #[inline]
            fn receive(&self, buffer: &mut [u8]) -> Result<usize, $crate::backends::Errno> {
                self.0.receive(buffer)
            }

            #[inline]
            fn try_receive(&self, buffer: &mut [u8]) -> Result<usize, $crate::backends::Errno> {
                self.0.try_receive(buffer)
            }
        }
    };
}
pub(super) use message_queue;

/// Makes a queue. Converts the errno of a failure to a sentence.
pub fn make(names: Names, spec: &Spec, whose: &str) -> Result<DescriptorQueue, Failure> {
    DescriptorQueue::make(names, spec).map_err(|errno| {
        let Spec {
            depth,
            message_size,
        } = spec;
        Failure::queue(
            format_args!("{whose} mq_open for {depth} messages of {message_size} bytes"),
            errno,
        )
    })
}
