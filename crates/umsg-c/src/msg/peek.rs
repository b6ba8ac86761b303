//! System V queues: peeking at messages.

use std::ffi::{c_int, c_long, c_void};

use libc::{pid_t, size_t};
use umsg::sysv::Peeked;

use super::refusal::{Refusal, find};
use crate::error::{Failure, answer};
use crate::pointer;
use crate::time::told;

/// A message of a System V queue that was peeked at. The program sets `data` and `size`, the call the other members.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct umsg_msg_peeked {
    /// The place to which the bytes are copied; NULL if `size` is 0.
    pub data: *mut c_void,
    /// The length of the buffer, in bytes.
    pub size: size_t,
    /// The length of the message in bytes, which may be more than `size`.
    pub len: size_t,
    /// The time of the send, in nanoseconds since 1970, accurate to a few milliseconds.
    pub sent: i64,
    /// The message's type.
    pub mtype: c_long,
    /// Process id of the sender.
    pub pid: pid_t,
    /// The number of leases of the message that ended without an acknowledgement.
    pub returns: u32,
    /// The library sets this field to 0.
    pub reserved: [u32; 4],
}

/// Copies a message of a System V queue without receiving it.
///
/// `n` counts in order of arrival, and 0 is the oldest message. The call copies as many bytes as there is room for. `len` is the whole
/// length of the message, so a call with a `size` of 0 returns only the length and the other members. A step from one message to the next
/// takes constant time. The message may be gone when the call returns.
///
/// # Return value
/// On success, the call returns 0. On error, -1 is returned, and errno is set to indicate the error.
///
/// # Errors
/// - `EACCES`: the queue's mode does not let the caller receive.
/// - `EBADMSG`: the queue's memory is corrupted: it holds values that no operation writes.
/// - `EDEADLK`: the call was made by a signal handler that interrupted a call on the same queue.
/// - `EFAULT`: `peeked` or its `data` is at an address that can't be written.
/// - `EIDRM`: the queue was removed during the call.
/// - `EINVAL`: no queue has the identifier `msqid`, or that queue was removed.
/// - `ENOMSG`: the queue has at most `n` messages; or a stopped process has held a lock of this queue for more than
///   a second.
///
/// # If the process dies
/// The call changes nothing.
///
/// # See also
/// umsg(1), umsg_msg_status(3), umsg_msg_types(3), umsg_msgrcv(3)
#[unsafe(no_mangle)]
pub unsafe extern "C" fn umsg_msg_peek(
    msqid: c_int,
    n: size_t,
    peeked: *mut umsg_msg_peeked,
) -> c_int {
    let peek = || {
        let queue = find(msqid)?;
        pointer::check(peeked, "peeked")?;
        // SAFETY: the caller promises a structure.
        let room = unsafe { peeked.read_unaligned() };
        if room.size != 0 {
            pointer::check(room.data, "data")?;
        }
        // No queue has u32::MAX messages.
        let n = u32::try_from(n).unwrap_or(u32::MAX);
        let seen = queue.look(n, 1, room.size).map_err(Refusal::from)?;
        let message = seen.first().ok_or(Failure::NoMessage)?;
        // SAFETY: the caller promises `size` writable bytes at `data`, and a structure that is writable.
        unsafe {
            copy(&message.data, &room);
            peeked.write_unaligned(told_of(message, &room));
        }
        Ok(0)
    };
    answer(peek())
}

/// # Safety
/// There are `room.size` writable bytes at `room.data`.
unsafe fn copy(bytes: &[u8], room: &umsg_msg_peeked) {
    let fits = bytes.len().min(room.size);
    if fits != 0 {
        // SAFETY: `fits` bytes are in the vector and, by this function's contract, in the program's buffer.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), room.data.cast(), fits) };
    }
}

fn told_of(message: &Peeked, room: &umsg_msg_peeked) -> umsg_msg_peeked {
    umsg_msg_peeked {
        data: room.data,
        size: room.size,
        len: message.len,
        sent: told(Some(message.sent)),
        mtype: message.mtype,
        pid: message.pid.cast_signed(),
        returns: message.returns,
        reserved: [0; 4],
    }
}
