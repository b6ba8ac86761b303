//! POSIX queues: peeking at messages, which stay in the queue.

use std::ffi::{c_int, c_uint, c_void};

use libc::{pid_t, size_t};
use umsg::posix::{Peeked, Queue, ReceiveError};

use crate::error::{Failure, answer};
use crate::handle::{self, umsg_mqd_t};
use crate::pointer;
use crate::time::told;

/// A message that was peeked at. The program sets `data` and `size`, the call the other members.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct umsg_mq_peeked {
    /// The buffer into which the call copies the message's bytes; NULL if `size` is 0.
    pub data: *mut c_void,
    /// The length of the buffer, in bytes.
    pub size: size_t,
    /// The length of the message in bytes, which may be more than `size`.
    pub len: size_t,
    /// The time of the send, in nanoseconds since 1970, accurate to a few milliseconds.
    pub sent: i64,
    /// The message's priority.
    pub priority: c_uint,
    /// Process id of the sender.
    pub pid: pid_t,
    /// The number of leases of the message that ended without an acknowledgement.
    pub returns: u32,
    /// The library sets this field to 0.
    pub unused: u32,
    /// For a delayed message, the earliest time of its delivery, in nanoseconds since 1970. For a queued message that was sent for a later delivery,
    /// the delivery time, at which the message's time to live began. 0 for other messages.
    pub due: i64,
    /// The library sets this field to 0.
    pub reserved: [u32; 2],
}

/// Copies a message without receiving it.
///
/// `n` counts in order of delivery, and 0 is the message that the next receive would get. The call copies as many bytes as there is room
/// for. `len` is the whole length of the message, so a call with a `size` of 0 returns only the length and the other members.
///
/// Other receivers wait during the call, for a time in proportion to `n`: some nanoseconds for each message. The message may be gone when the call
/// returns.
///
/// # Return value
/// On success, the call returns 0. On error, -1 is returned, and errno is set to indicate the error.
///
/// # Errors
/// - `EBADF`: `mqdes` is not the handle of an open queue, or was not opened for receiving.
/// - `EBADMSG`: the queue's memory is corrupted: it holds values that no operation writes.
/// - `EDEADLK`: the call was made by a signal handler that interrupted a call on the same queue.
/// - `EFAULT`: `peeked` or its `data` is at an address that can't be written.
/// - `ENOMSG`: the queue has at most `n` messages.
/// - `ETIMEDOUT`: a stopped process has held a lock of this queue for more than a second.
///
/// # If the process dies
/// The call changes nothing.
///
/// # See also
/// umsg(1), umsg_mq_peek_delayed(3), umsg_mq_receive(3), umsg_mq_status(3)
#[unsafe(no_mangle)]
pub unsafe extern "C" fn umsg_mq_peek(
    mqdes: umsg_mqd_t,
    n: size_t,
    peeked: *mut umsg_mq_peeked,
) -> c_int {
    // SAFETY: by the contract of the caller.
    answer(unsafe { peek(mqdes, peeked, |queue| queue.peek(n)) })
}

/// Copies a delayed message without receiving it.
///
/// Does the same as umsg_mq_peek(3) for delayed messages: messages that were sent or returned for a later delivery and still wait for their delivery
/// time. `n` counts in the order of their delivery times. `due` is the earliest time of the message's delivery.
///
/// Other receivers wait during the call, for a time in proportion to all leased and delayed messages.
///
/// # Return value
/// On success, the call returns 0. On error, -1 is returned, and errno is set to indicate the error.
///
/// # Errors
/// The errors of umsg_mq_peek(3), where `ENOMSG` means that the queue has at most `n` delayed messages.
///
/// # If the process dies
/// The call changes nothing.
///
/// # See also
/// umsg(1), umsg_mq_peek(3), umsg_mq_return_after(3), umsg_mq_send_after(3), umsg_mq_status(3)
#[unsafe(no_mangle)]
pub unsafe extern "C" fn umsg_mq_peek_delayed(
    mqdes: umsg_mqd_t,
    n: size_t,
    peeked: *mut umsg_mq_peeked,
) -> c_int {
    let find = |queue: &Queue| {
        let messages = queue.delayed_messages(n.saturating_add(1))?;
        Ok(messages.into_iter().nth(n))
    };
    // SAFETY: by the contract of the caller.
    answer(unsafe { peek(mqdes, peeked, find) })
}

/// Copies the message that `find` finds.
///
/// # Safety
/// `peeked` is a writable structure that names `size` writable bytes at `data`, or an address that can't be written.
unsafe fn peek(
    mqdes: umsg_mqd_t,
    peeked: *mut umsg_mq_peeked,
    find: impl FnOnce(&Queue) -> Result<Option<Peeked>, ReceiveError>,
) -> Result<c_int, Failure> {
    let held = handle::hold(mqdes)?;
    pointer::check(peeked, "peeked")?;
    // SAFETY: the caller promises a structure.
    let room = unsafe { peeked.read_unaligned() };
    if room.size != 0 {
        pointer::check(room.data, "data")?;
    }
    let message = find(&held.queue)?.ok_or(Failure::NoMessage)?;
    // SAFETY: the caller promises `size` writable bytes at `data`, and a structure that is writable.
    unsafe {
        copy(&message.data, &room);
        peeked.write_unaligned(told_of(&message, &room));
    }
    Ok(0)
}

/// # Safety
/// There are `room.size` writable bytes at `room.data`.
unsafe fn copy(bytes: &[u8], room: &umsg_mq_peeked) {
    let fits = bytes.len().min(room.size);
    if fits != 0 {
        // SAFETY: `fits` bytes are in the vector and, by this function's contract, in the program's buffer.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), room.data.cast(), fits) };
    }
}

fn told_of(message: &Peeked, room: &umsg_mq_peeked) -> umsg_mq_peeked {
    umsg_mq_peeked {
        data: room.data,
        size: room.size,
        len: message.data.len(),
        sent: told(Some(message.sent)),
        priority: message.priority,
        pid: message.pid.cast_signed(),
        returns: message.returns,
        unused: 0,
        due: message.due.map_or(0, |due| told(Some(due))),
        reserved: [0; 2],
    }
}
