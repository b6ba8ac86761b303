//! POSIX queues: receiving.
//!
//! The order of the checks, as in the kernel: the time-out, the handle, the length of the buffer, and last whether there is a message.

use std::ffi::{c_char, c_uint};
use std::time::SystemTime;

use libc::{size_t, ssize_t, timespec};
use umsg::posix::{ReceiveError, Received};

use crate::error::{Failure, answer};
use crate::handle::{self, Open, umsg_mqd_t};
use crate::pointer;
use crate::time;

/// Receives a message.
///
/// Takes the oldest message of the highest priority out of the queue, and copies its bytes to `msg_ptr`. If `msg_prio` is not NULL, the call writes
/// the priority to `msg_prio`. `msg_len` is the room at `msg_ptr` in bytes. `msg_len` must be at least the queue's message size, even for short
/// messages; umsg_mq_getattr(3) returns that size. The library allocates no memory for a message. If the queue is empty, the call waits until a
/// message comes; if the handle has `O_NONBLOCK`, it fails.
///
/// The function is not a cancellation point of pthread_cancel(3).
///
/// # Return value
/// On success, the call returns the length of the message in bytes. On error, -1 is returned, and errno is set to indicate the error.
///
/// # Errors
/// - `EAGAIN`: the queue is empty and the handle has `O_NONBLOCK`; or a stopped process has held a lock of this queue for more than a
///   second.
/// - `EBADF`: `mqdes` is not the handle of an open queue, or was not opened for receiving.
/// - `EBADMSG`: the queue's memory is corrupted: it holds values that no operation writes.
/// - `EDEADLK`: the call was made by a signal handler that interrupted a call on the same queue.
/// - `EFAULT`: `msg_ptr` or `msg_prio` is at an address that can't be written. As with the kernel's queues, the message is lost, except a message
///   without bytes.
/// - `EINTR`: a signal handler ran while the call waited.
/// - `EMSGSIZE`: `msg_len` is less than the queue's message size.
/// - `ENOMEM`, `ENOSPC`: the system has no memory left, or the namespace's file system is full.
/// - `EPIPE`: the end of the stream: the queue was closed by umsg_mq_close_send(3), and all its messages are received.
///
/// # If the process dies
/// Before the call returns, the message is still in the queue, or lost if it was already copied out.
///
/// # See also
/// umsg_mq_send(3), umsg_mq_timedreceive(3), mq_receive(3)
#[unsafe(no_mangle)]
pub unsafe extern "C" fn umsg_mq_receive(
    mqdes: umsg_mqd_t,
    msg_ptr: *mut c_char,
    msg_len: size_t,
    msg_prio: *mut c_uint,
) -> ssize_t {
    // SAFETY: the caller promises `msg_len` writable bytes, and NULL or a writable number. NULL means no time-out.
    unsafe { call(mqdes, msg_ptr, msg_len, msg_prio, std::ptr::null()) }
}

/// Receives a message, and waits for a message at most until a deadline.
///
/// Does the same as umsg_mq_receive(3), but a call that waits ends at `abs_timeout`, a time of the clock `CLOCK_REALTIME`; NULL means no limit. If
/// there is a message, the call ignores the time. If the handle has `O_NONBLOCK`, the call does not wait.
///
/// # Return value
/// On success, the call returns the length of the message in bytes. On error, -1 is returned, and errno is set to indicate the error.
///
/// # Errors
/// The errors of umsg_mq_receive(3), and these:
///
/// - `EFAULT`: `abs_timeout` is at an address that can't be read.
/// - `EINVAL`: `tv_sec` of `abs_timeout` is negative, or `tv_nsec` is not from 0 to 999,999,999.
/// - `ETIMEDOUT`: the deadline passed before a message came.
///
/// # If the process dies
/// Before the call returns, the message is still in the queue, or lost if it was already copied out.
///
/// # See also
/// umsg_mq_receive(3), umsg_mq_timedsend(3), clock_gettime(2), mq_timedreceive(3)
#[unsafe(no_mangle)]
pub unsafe extern "C" fn umsg_mq_timedreceive(
    mqdes: umsg_mqd_t,
    msg_ptr: *mut c_char,
    msg_len: size_t,
    msg_prio: *mut c_uint,
    abs_timeout: *const timespec,
) -> ssize_t {
    // SAFETY: the caller promises NULL or a readable timespec, `msg_len` writable bytes, and NULL or a writable number.
    unsafe { call(mqdes, msg_ptr, msg_len, msg_prio, abs_timeout) }
}

/// # Safety
/// `timeout` is NULL, readable, or an address that a pointer check refuses. For the buffer and the priority, the conditions of [`Call::run`] hold.
#[inline(always)]
unsafe fn call(
    mqdes: umsg_mqd_t,
    buffer: *mut c_char,
    len: size_t,
    priority: *mut c_uint,
    timeout: *const timespec,
) -> ssize_t {
    let call = Call {
        mqdes,
        buffer,
        len,
        priority,
    };
    // SAFETY: by this function's contract.
    answer(unsafe { time::deadline(timeout).and_then(|deadline| call.run(deadline)) })
}

struct Call {
    mqdes: umsg_mqd_t,
    buffer: *mut c_char,
    len: size_t,
    priority: *mut c_uint,
}

impl Call {
    /// # Safety
    /// `buffer` has `len` writable bytes and `priority` is NULL or writable, or they are addresses that a pointer check
    /// refuses.
    #[inline(always)]
    unsafe fn run(&self, deadline: Option<SystemTime>) -> Result<ssize_t, Failure> {
        let held = handle::hold(self.mqdes)?;
        if !held.can_receive {
            return Err(ReceiveError::NotReadable.into());
        }
        if self.len < held.message_size {
            return Err(self.too_small(held.message_size));
        }
        if pointer::is_bad(self.buffer) {
            return self.receive_nowhere(&held, deadline);
        }
        // SAFETY: `buffer` is not NULL, and by this function's contract it has `len` writable bytes. `len` is at least the queue's message size.
        let buffer =
            unsafe { std::slice::from_raw_parts_mut(self.buffer.cast(), held.message_size) };
        let received = receive(&held, buffer, deadline)?;
        if !self.priority.is_null() {
            // SAFETY: by this function's contract.
            unsafe { pointer::write(self.priority, received.priority, "msg_prio")? };
        }
        Ok(received.len.cast_signed())
    }

    /// Receives into a buffer at an impossible address, as the kernel does: the call succeeds only for an empty message.
    #[cold]
    fn receive_nowhere(
        &self,
        open: &Open,
        deadline: Option<SystemTime>,
    ) -> Result<ssize_t, Failure> {
        let mut elsewhere = vec![0; open.message_size];
        match receive(open, &mut elsewhere, deadline)?.len {
            0 => Ok(0),
            _ => Err(Failure::BadAddress("msg_ptr")),
        }
    }

    #[cold]
    fn too_small(&self, needed: usize) -> Failure {
        let len = self.len;
        ReceiveError::BufferTooSmall { len, needed }.into()
    }
}

#[inline(always)]
fn receive(
    open: &Open,
    buffer: &mut [u8],
    deadline: Option<SystemTime>,
) -> Result<Received, ReceiveError> {
    match deadline {
        _ if open.nonblocking.get() => open.queue.try_receive(buffer),
        None => open.queue.receive(buffer),
        Some(until) => open.queue.receive_deadline(buffer, until),
    }
}
