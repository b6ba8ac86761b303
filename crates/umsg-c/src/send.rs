//! POSIX queues: sending.
//!
//! The order of the checks, as in the kernel: time-out, priority, handle, length, and at last whether the call would wait.

use std::ffi::{c_char, c_int, c_uint};
use std::time::{Duration, SystemTime};

use libc::{size_t, timespec};
use umsg::posix::SendError;

use crate::error::{Failure, answer};
use crate::handle::{self, Held, umsg_mqd_t};
use crate::pointer;
use crate::time;

/// The number of priorities: they are 0 to 32,767.
pub(crate) const MQ_PRIO_MAX: c_uint = 32_768;

/// Sends a message.
///
/// Puts the `msg_len` bytes at `msg_ptr` into the queue, after all messages of the same priority or a higher one. `msg_prio` is from 0 to 32,767; the
/// highest priority is 32,767. If the queue is full, the call waits until there is room; if the handle has `O_NONBLOCK`, it fails.
/// umsg_mq_open_with(3) can create queues with another rule for a full queue.
///
/// A message may be empty. The function is not a cancellation point of pthread_cancel(3).
///
/// # Return value
/// On success, the call returns 0. On error, -1 is returned, and errno is set to indicate the error.
///
/// # Errors
/// - `EAGAIN`: the queue is full and the handle has `O_NONBLOCK`, or the queue was created with `UMSG_ON_FULL_FAIL`; or a stopped process
///   has held a lock of this queue for more than a second.
/// - `EBADF`: `mqdes` is not the handle of an open queue, or was not opened for sending.
/// - `EBADMSG`: the queue's memory is corrupted: it holds values that no operation writes.
/// - `EDEADLK`: the call was made by a signal handler that interrupted a call on the same queue; see umsg_defer_signal(3).
/// - `EFAULT`: `msg_ptr` is at an address that can't be read.
/// - `EINTR`: a signal handler ran while the call waited.
/// - `EINVAL`: `msg_prio` is 32,768 or more.
/// - `EMSGSIZE`: `msg_len` is more than the queue's message size.
/// - `ENOMEM`, `ENOSPC`: the system has no memory for the message, or the namespace's file system is full or its limit of
///   bytes is reached.
/// - `EPIPE`: the queue was closed by umsg_mq_close_send(3). No SIGPIPE is raised.
///
/// # If the process dies
/// Before the call returns, the message is either sent completely or not sent.
///
/// # See also
/// umsg_mq_receive(3), umsg_mq_timedsend(3), mq_send(3)
#[unsafe(no_mangle)]
pub unsafe extern "C" fn umsg_mq_send(
    mqdes: umsg_mqd_t,
    msg_ptr: *const c_char,
    msg_len: size_t,
    msg_prio: c_uint,
) -> c_int {
    // SAFETY: the caller promises `msg_len` readable bytes. NULL means no time-out.
    unsafe { call(mqdes, msg_ptr, msg_len, msg_prio, std::ptr::null()) }
}

/// Sends a message, and waits for room at most until a deadline.
///
/// Does the same as umsg_mq_send(3), but a call that waits ends at `abs_timeout`, a time of the clock `CLOCK_REALTIME`; NULL means no limit. If there
/// is room, the call ignores the time; if the handle has `O_NONBLOCK`, the call does not wait at all.
///
/// # Return value
/// On success, the call returns 0. On error, -1 is returned, and errno is set to indicate the error.
///
/// # Errors
/// The errors of umsg_mq_send(3), and these:
///
/// - `EFAULT`: `abs_timeout` is at an address that can't be read.
/// - `EINVAL`: `tv_sec` of `abs_timeout` is negative, or `tv_nsec` is not from 0 to 999,999,999.
/// - `ETIMEDOUT`: the deadline passed before there was room.
///
/// # If the process dies
/// Before the call returns, the message is either sent completely or not sent.
///
/// # See also
/// umsg_mq_send(3), umsg_mq_timedreceive(3), clock_gettime(2), mq_timedsend(3)
#[unsafe(no_mangle)]
pub unsafe extern "C" fn umsg_mq_timedsend(
    mqdes: umsg_mqd_t,
    msg_ptr: *const c_char,
    msg_len: size_t,
    msg_prio: c_uint,
    abs_timeout: *const timespec,
) -> c_int {
    // SAFETY: the caller promises NULL or a readable timespec, and `msg_len` readable bytes.
    unsafe { call(mqdes, msg_ptr, msg_len, msg_prio, abs_timeout) }
}

/// Sends a message for a later delivery.
///
/// Does the same as umsg_mq_send(3), but receivers get the message after `delay` nanoseconds at the earliest. Until this delivery time, the message
/// counts for the queue's capacity, and is counted in `delayed` of umsg_mq_status(3). At its delivery time, the message enters the queue after the
/// messages of its priority that are in the queue, and ahead of the messages that are sent later. A blocked receiver then wakes up. The message's
/// time to live begins at its delivery time, but `sent` of umsg_mq_peek(3) is the time of this call. umsg_mq_peek_delayed(3) shows the messages that
/// still wait for their delivery time. umsg_mq_pollfd(3) describes what a poller learns.
///
/// If the queue is full, the call waits until there is room; if the handle has `O_NONBLOCK`, it fails. The delay begins when there is room.
///
/// # Return value
/// On success, the call returns 0. On error, -1 is returned, and errno is set to indicate the error.
///
/// # Errors
/// The errors of umsg_mq_send(3).
///
/// # If the process dies
/// Before the call returns, the message is either sent completely or not sent. After the call has returned, the message is
/// delivered in any case.
///
/// # See also
/// umsg_mq_open_with(3), umsg_mq_return_after(3), umsg_mq_send(3), umsg_mq_send_at(3), umsg_mq_timedsend_after(3)
#[unsafe(no_mangle)]
pub unsafe extern "C" fn umsg_mq_send_after(
    mqdes: umsg_mqd_t,
    msg_ptr: *const c_char,
    msg_len: size_t,
    msg_prio: c_uint,
    delay: u64,
) -> c_int {
    let call = Call {
        mqdes,
        message: msg_ptr,
        len: msg_len,
        priority: msg_prio,
    };
    // SAFETY: the caller promises `len` readable bytes.
    answer(unsafe { call.run_after(Duration::from_nanos(delay), None) })
}

/// Sends a message for a later delivery, and waits for room at most until a deadline.
///
/// Does the same as umsg_mq_send_after(3), but a call that waits ends at `abs_timeout`, a time of the clock `CLOCK_REALTIME`; NULL means no limit. If
/// there is room, the call ignores the time; if the handle has `O_NONBLOCK`, the call does not wait at all.
///
/// # Return value
/// On success, the call returns 0. On error, -1 is returned, and errno is set to indicate the error.
///
/// # Errors
/// The errors of umsg_mq_timedsend(3).
///
/// # If the process dies
/// The same as for umsg_mq_send_after(3).
///
/// # See also
/// umsg_mq_send_after(3), umsg_mq_timedsend(3), clock_gettime(2)
#[unsafe(no_mangle)]
pub unsafe extern "C" fn umsg_mq_timedsend_after(
    mqdes: umsg_mqd_t,
    msg_ptr: *const c_char,
    msg_len: size_t,
    msg_prio: c_uint,
    delay: u64,
    abs_timeout: *const timespec,
) -> c_int {
    let call = Call {
        mqdes,
        message: msg_ptr,
        len: msg_len,
        priority: msg_prio,
    };
    let delay = Duration::from_nanos(delay);
    // SAFETY: the caller promises NULL or a readable timespec, and `len` readable bytes.
    let sent =
        unsafe { time::deadline(abs_timeout).and_then(|until| call.run_after(delay, until)) };
    answer(sent)
}

/// Sends a message for a delivery at a time of the day.
///
/// Does the same as umsg_mq_send_after(3), but receivers get the message at `time` at the earliest, a time of the clock `CLOCK_REALTIME`. The call
/// computes the delay, so setting the clock later has no effect. A time in the past means no delay.
///
/// # Return value
/// On success, the call returns 0. On error, -1 is returned, and errno is set to indicate the error.
///
/// # Errors
/// The errors of umsg_mq_send(3), and these:
///
/// - `EFAULT`: `time` is NULL, or at an address that can't be read.
/// - `EINVAL`: `tv_sec` of `time` is negative, or `tv_nsec` is not from 0 to 999,999,999.
///
/// # If the process dies
/// The same as for umsg_mq_send_after(3).
///
/// # See also
/// umsg_mq_send(3), umsg_mq_send_after(3), clock_gettime(2)
#[unsafe(no_mangle)]
pub unsafe extern "C" fn umsg_mq_send_at(
    mqdes: umsg_mqd_t,
    msg_ptr: *const c_char,
    msg_len: size_t,
    msg_prio: c_uint,
    time: *const timespec,
) -> c_int {
    let call = Call {
        mqdes,
        message: msg_ptr,
        len: msg_len,
        priority: msg_prio,
    };
    let send = || {
        pointer::check(time, "time")?;
        // SAFETY: the caller promises a readable timespec.
        let due = unsafe { time::deadline(time)? };
        // `None` is a time beyond the range of `SystemTime`: the message is delayed without end.
        let delay = due.map_or(Duration::MAX, |due| {
            due.duration_since(SystemTime::now()).unwrap_or_default()
        });
        // SAFETY: the caller promises `len` readable bytes.
        unsafe { call.run_after(delay, None) }
    };
    answer(send())
}

/// # Safety
/// `timeout` is NULL, readable, or an address that a pointer check refuses. For the message, the conditions of [`Call::run`] hold.
#[inline(always)]
unsafe fn call(
    mqdes: umsg_mqd_t,
    message: *const c_char,
    len: size_t,
    priority: c_uint,
    timeout: *const timespec,
) -> c_int {
    let call = Call {
        mqdes,
        message,
        len,
        priority,
    };
    // SAFETY: by this function's contract.
    answer(unsafe { time::deadline(timeout).and_then(|deadline| call.run(deadline)) })
}

struct Call {
    mqdes: umsg_mqd_t,
    message: *const c_char,
    len: size_t,
    priority: c_uint,
}

impl Call {
    /// Checks the arguments in the kernel's order.
    ///
    /// # Safety
    /// The conditions of [`run`](Self::run).
    #[inline(always)]
    unsafe fn check(&self) -> Result<(Held, &[u8]), Failure> {
        if self.priority >= MQ_PRIO_MAX {
            return Err(SendError::PriorityTooHigh.into());
        }
        let held = handle::hold(self.mqdes)?;
        if !held.can_send {
            return Err(SendError::NotWritable.into());
        }
        if self.len > held.message_size {
            return Err(self.too_long(held.message_size));
        }
        // SAFETY: by this function's contract. `len` is at most the message size, so it is below isize::MAX.
        let bytes = unsafe { self.bytes()? };
        Ok((held, bytes))
    }

    /// # Safety
    /// The conditions of [`run`](Self::run).
    unsafe fn run_after(
        &self,
        delay: Duration,
        deadline: Option<SystemTime>,
    ) -> Result<c_int, Failure> {
        // SAFETY: by this function's contract.
        let (held, bytes) = unsafe { self.check()? };
        let (queue, priority) = (&held.queue, self.priority);
        match deadline {
            _ if held.nonblocking.get() => queue.try_send_after(bytes, priority, delay)?,
            None => queue.send_after(bytes, priority, delay)?,
            Some(until) => queue.send_after_deadline(bytes, priority, delay, until)?,
        }
        Ok(0)
    }

    /// # Safety
    /// `message` has `len` readable bytes, or is an address that a pointer check refuses.
    #[inline(always)]
    unsafe fn run(&self, deadline: Option<SystemTime>) -> Result<c_int, Failure> {
        // SAFETY: by this function's contract.
        let (held, bytes) = unsafe { self.check()? };
        match deadline {
            _ if held.nonblocking.get() => {
                held.queue.try_send(bytes, self.priority)?;
            }
            None => held.queue.send(bytes, self.priority)?,
            Some(until) => held.queue.send_deadline(bytes, self.priority, until)?,
        }
        Ok(0)
    }

    #[cold]
    fn too_long(&self, max: usize) -> Failure {
        let len = self.len;
        SendError::TooLong { len, max }.into()
    }

    /// # Safety
    /// The conditions of [`Call::run`], and `len` is at most isize::MAX.
    #[inline(always)]
    unsafe fn bytes(&self) -> Result<&[u8], Failure> {
        if self.len == 0 {
            return Ok(&[]);
        }
        pointer::check(self.message, "msg_ptr")?;
        // SAFETY: by this function's contract. `message` is not NULL, and bytes need no alignment.
        Ok(unsafe { std::slice::from_raw_parts(self.message.cast(), self.len) })
    }
}
