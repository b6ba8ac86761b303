//! The hooks of mq_receive and mq_timedreceive.
//!
//! The order of the checks is the kernel's: time-out, descriptor, room in the buffer, and at last whether the call would block.

use std::ffi::{c_char, c_int, c_uint};
use std::time::SystemTime;

use libc::{size_t, ssize_t, timespec};
use umsg::posix::{ReceiveError, Received};
use umsg_trace::Function;

use super::mq_wait;
use crate::cancellation::{self, cancellation_point};
use crate::table::{self, Held};
use crate::trace::{self, Copied, Described, Target};
use crate::{adopt, errno, next, pointer, timeout};

cancellation_point! {
    /// Receives a message. Blocks while the queue is empty, unless the descriptor has O_NONBLOCK.
    mq_receive => receive(0), traced_receive
}

cancellation_point! {
    /// Receives a message. Blocks at most until `timeout`, a time of CLOCK_REALTIME.
    mq_timedreceive => receive, traced_receive
}

unsafe extern "C" fn receive(
    fd: c_int,
    buffer: *mut c_char,
    len: size_t,
    priority: *mut c_uint,
    timeout: *const timespec,
) -> ssize_t {
    let call = Call {
        fd,
        buffer,
        len,
        priority,
        timeout,
    };
    // SAFETY: the caller makes the promises that libc's mq_timedreceive requires.
    cancellation::answer(unsafe { call.run() })
}

/// Receives as [`receive`] does, and records the call if `umsg trace` has requested that.
///
/// # Safety
/// The conditions of libc's mq_timedreceive.
pub(super) unsafe extern "C" fn traced_receive(
    fd: c_int,
    buffer: *mut c_char,
    len: size_t,
    priority: *mut c_uint,
    timeout: *const timespec,
) -> ssize_t {
    let function = match timeout.is_null() {
        true => Function::MqReceive,
        false => Function::MqTimedReceive,
    };
    trace::recorded(
        // SAFETY: the caller makes the promises that `receive` requires.
        || unsafe { receive(fd, buffer, len, priority, timeout) },
        function,
        |result| {
            // SAFETY: the call has read the time-out, unless it is refused.
            let [seconds, nanoseconds] = unsafe { trace::limit(timeout) };
            let came = result >= 0;
            let priority = match came && !priority.is_null() {
                // SAFETY: the call has written `priority`.
                true => unsafe { priority.read_unaligned() }.into(),
                false => -1,
            };
            Described {
                arguments: [fd.into(), len as i64, priority, seconds, nanoseconds],
                queue: Target::Descriptor(fd),
                data: match came {
                    // SAFETY: the call has written `result` bytes.
                    true => unsafe { Copied::of(buffer, result as usize) },
                    false => Copied::default(),
                },
            }
        },
    )
}

struct Call {
    fd: c_int,
    buffer: *mut c_char,
    len: size_t,
    priority: *mut c_uint,
    timeout: *const timespec,
}

impl Call {
    /// # Safety
    /// `buffer` has `len` writable bytes; `priority` is NULL or writable; `timeout` is NULL or a timespec. Or these pointers are addresses that a
    /// pointer check refuses.
    #[inline(always)]
    unsafe fn run(&self) -> Result<ssize_t, c_int> {
        // SAFETY: by this function's contract.
        let deadline = unsafe { timeout::deadline(self.timeout)? };
        match table::hold(self.fd) {
            // SAFETY: by this function's contract.
            Some(held) => unsafe { self.receive_from(held, deadline) },
            // SAFETY: by this function's contract.
            None => unsafe { self.receive_from_unknown(deadline) },
        }
    }

    /// # Safety
    /// The conditions of [`Call::run`].
    #[inline(always)]
    unsafe fn receive_from(
        &self,
        held: Held,
        deadline: Option<SystemTime>,
    ) -> Result<ssize_t, c_int> {
        if !held.can_read() {
            return Err(libc::EBADF);
        }
        if self.len < held.message_size {
            return Err(libc::EMSGSIZE);
        }
        if pointer::is_bad(self.buffer) {
            // SAFETY: by this function's contract.
            return unsafe { self.receive_nowhere(held, deadline) };
        }
        // SAFETY: the caller guarantees `len` writable bytes, enough for a message; not NULL.
        let buffer =
            unsafe { std::slice::from_raw_parts_mut(self.buffer.cast(), held.message_size) };
        let attempt = match deadline {
            None => held.queue.try_receive(buffer),
            Some(until) => held.queue.try_receive_until(buffer, until),
        };
        match attempt {
            // SAFETY: by this function's contract.
            Ok(received) => unsafe { self.deliver(&received) },
            // SAFETY: by this function's contract.
            Err(error) => unsafe { self.receive_refused(held, buffer, deadline, &error) },
        }
    }

    /// # Safety
    /// The conditions of [`Call::run`].
    #[inline(always)]
    unsafe fn deliver(&self, received: &Received) -> Result<ssize_t, c_int> {
        if !self.priority.is_null() {
            if pointer::is_bad(self.priority) {
                // The message is already removed from the queue: this error loses it, as in the kernel.
                return Err(libc::EFAULT);
            }
            // SAFETY: by this function's contract. The address need not be aligned, as in the kernel.
            unsafe { self.priority.write_unaligned(received.priority) };
        }
        Ok(received.len.cast_signed())
    }

    /// Waits for a message if the attempt to receive found the queue empty. Returns the errno of any other refusal.
    ///
    /// # Safety
    /// The conditions of [`Call::run`].
    #[cold]
    unsafe fn receive_refused(
        &self,
        held: Held,
        buffer: &mut [u8],
        deadline: Option<SystemTime>,
        refusal: &ReceiveError,
    ) -> Result<ssize_t, c_int> {
        if !matches!(refusal, ReceiveError::Empty) {
            return Err(refusal.errno());
        }
        let outcome = mq_wait::wait(held, self.fd, |held| {
            let received = match deadline {
                None => held.queue.receive(buffer),
                Some(until) if timeout::has_passed(until) => Err(ReceiveError::TimedOut),
                Some(until) => held.queue.receive_deadline(buffer, until),
            };
            received.map_err(|error| error.errno())
        });
        // SAFETY: by this function's contract.
        unsafe { self.deliver(&outcome?) }
    }

    /// Receives into a buffer at an impossible address: the message is consumed, as in the kernel, and the call succeeds only for an empty message.
    ///
    /// # Safety
    /// The conditions of [`Call::run`].
    #[cold]
    unsafe fn receive_nowhere(
        &self,
        held: Held,
        deadline: Option<SystemTime>,
    ) -> Result<ssize_t, c_int> {
        let mut elsewhere = vec![0; held.message_size];
        let call = Call {
            buffer: elsewhere.as_mut_ptr().cast(),
            len: elsewhere.len(),
            ..*self
        };
        // SAFETY: `elsewhere` has `len` writable bytes. This function's contract covers the rest.
        match unsafe { call.receive_from(held, deadline)? } {
            0 => Ok(0),
            _ => Err(libc::EFAULT),
        }
    }

    /// # Safety
    /// The conditions of [`Call::run`].
    #[cold]
    unsafe fn receive_from_unknown(&self, deadline: Option<SystemTime>) -> Result<ssize_t, c_int> {
        match adopt::adopt_queue(self.fd)? {
            // SAFETY: by this function's contract.
            Some(held) => unsafe { self.receive_from(held, deadline) },
            // SAFETY: by this function's contract. The descriptor belongs to a queue of the kernel, or to no queue: the kernel returns the right
            // error.
            None => unsafe {
                let outcome = next::mq_timedreceive(
                    self.fd,
                    self.buffer,
                    self.len,
                    self.priority,
                    self.timeout,
                );
                errno::result(outcome)
            },
        }
    }
}
