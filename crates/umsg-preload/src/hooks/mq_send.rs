//! The hooks of mq_send and mq_timedsend.
//!
//! The order of the checks is the kernel's: time-out, priority, descriptor, length, and at last whether the call would block.

use std::ffi::{c_char, c_int, c_uint};
use std::time::SystemTime;

use libc::{size_t, timespec};
use umsg::posix::SendError;
use umsg_trace::Function;

use super::mq_wait;
use crate::cancellation::{self, cancellation_point};
use crate::table::{self, Held};
use crate::trace::{self, Copied, Described, Target};
use crate::{adopt, errno, next, pointer, timeout};

/// The number of priorities: they are 0 to 32,767.
const MQ_PRIO_MAX: c_uint = 32_768;

cancellation_point! {
    /// Sends a message. Blocks while the queue is full, unless the descriptor has O_NONBLOCK.
    mq_send => send(0), traced_send
}

cancellation_point! {
    /// Sends a message. Blocks at most until `timeout`, a time of CLOCK_REALTIME.
    mq_timedsend => send, traced_send
}

unsafe extern "C" fn send(
    fd: c_int,
    message: *const c_char,
    len: size_t,
    priority: c_uint,
    timeout: *const timespec,
) -> c_int {
    let call = Call {
        fd,
        message,
        len,
        priority,
        timeout,
    };
    // SAFETY: the caller makes the promises that libc's mq_timedsend requires.
    cancellation::answer(unsafe { call.run() })
}

/// Sends as [`send`] does, and records the call if `umsg trace` has requested that.
///
/// # Safety
/// The conditions of libc's mq_timedsend.
pub(super) unsafe extern "C" fn traced_send(
    fd: c_int,
    message: *const c_char,
    len: size_t,
    priority: c_uint,
    timeout: *const timespec,
) -> c_int {
    let function = match timeout.is_null() {
        true => Function::MqSend,
        false => Function::MqTimedSend,
    };
    trace::recorded(
        // SAFETY: the caller makes the promises that `send` requires.
        || unsafe { send(fd, message, len, priority, timeout) },
        function,
        |result| {
            // SAFETY: the call has read the time-out, unless it is refused.
            let [seconds, nanoseconds] = unsafe { trace::limit(timeout) };
            Described {
                arguments: [fd.into(), len as i64, priority.into(), seconds, nanoseconds],
                queue: Target::Descriptor(fd),
                data: match result {
                    // SAFETY: the call has sent these bytes.
                    0 => unsafe { Copied::of(message, len) },
                    _ => Copied::default(),
                },
            }
        },
    )
}

struct Call {
    fd: c_int,
    message: *const c_char,
    len: size_t,
    priority: c_uint,
    timeout: *const timespec,
}

impl Call {
    /// # Safety
    /// `message` has `len` readable bytes, and `timeout` is NULL or a timespec. Or these pointers are addresses that a pointer check refuses.
    #[inline(always)]
    unsafe fn run(&self) -> Result<c_int, c_int> {
        // SAFETY: by this function's contract.
        let deadline = unsafe { timeout::deadline(self.timeout)? };
        if self.priority >= MQ_PRIO_MAX {
            return Err(libc::EINVAL);
        }
        match table::hold(self.fd) {
            // SAFETY: by this function's contract.
            Some(held) => unsafe { self.send_to(held, deadline) },
            // SAFETY: by this function's contract.
            None => unsafe { self.send_to_unknown(deadline) },
        }
    }

    /// # Safety
    /// The conditions of [`Call::run`].
    #[inline(always)]
    unsafe fn send_to(&self, held: Held, deadline: Option<SystemTime>) -> Result<c_int, c_int> {
        if !held.can_write() {
            return Err(libc::EBADF);
        }
        if self.len > held.message_size {
            return Err(libc::EMSGSIZE);
        }
        // SAFETY: by this function's contract. `len` is at most the message size, so it is below isize::MAX.
        let bytes = unsafe { self.bytes()? };
        let attempt = match deadline {
            None => held.queue.try_send(bytes, self.priority),
            Some(until) => held.queue.try_send_until(bytes, self.priority, until),
        };
        match attempt {
            Ok(()) => Ok(0),
            Err(error) => self.send_refused(held, bytes, deadline, &error),
        }
    }

    /// # Safety
    /// The conditions of [`Call::run`], and `len` is at most isize::MAX.
    #[inline(always)]
    unsafe fn bytes(&self) -> Result<&[u8], c_int> {
        if pointer::is_bad(self.message) {
            return if self.len == 0 {
                Ok(&[])
            } else {
                Err(libc::EFAULT)
            };
        }
        // SAFETY: by this function's contract; not NULL, and bytes have no alignment.
        Ok(unsafe { std::slice::from_raw_parts(self.message.cast(), self.len) })
    }

    /// Waits for room if the attempt to send found the queue full. Returns the errno of any other refusal.
    #[cold]
    fn send_refused(
        &self,
        held: Held,
        bytes: &[u8],
        deadline: Option<SystemTime>,
        refusal: &SendError,
    ) -> Result<c_int, c_int> {
        if !matches!(refusal, SendError::Full) {
            return Err(refusal.errno());
        }
        mq_wait::wait(held, self.fd, |held| {
            let sent = match deadline {
                None => held.queue.send(bytes, self.priority),
                Some(until) if timeout::has_passed(until) => Err(SendError::TimedOut),
                Some(until) => held.queue.send_deadline(bytes, self.priority, until),
            };
            sent.map(|()| 0).map_err(|error| error.errno())
        })
    }

    /// # Safety
    /// The conditions of [`Call::run`].
    #[cold]
    unsafe fn send_to_unknown(&self, deadline: Option<SystemTime>) -> Result<c_int, c_int> {
        match adopt::adopt_queue(self.fd)? {
            // SAFETY: by this function's contract.
            Some(held) => unsafe { self.send_to(held, deadline) },
            // SAFETY: by this function's contract. The descriptor belongs to a queue of the kernel, or to no queue: the kernel returns the right
            // error.
            None => unsafe {
                let outcome = next::mq_timedsend(
                    self.fd,
                    self.message,
                    self.len,
                    self.priority,
                    self.timeout,
                );
                errno::result(outcome)
            },
        }
    }
}
