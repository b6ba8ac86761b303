//! Rings: receiving.

use std::ffi::{c_int, c_void};
use std::os::fd::IntoRawFd as _;

use libc::{size_t, timespec};
use umsg::ring::{Message, Until};

use super::receiver::{enter, umsg_ring};
use super::{Refusal, deadline};
use crate::error::{Failure, answer};
use crate::pointer;
use crate::time;

/// A message that was received.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct umsg_ring_message {
    /// The value of `user_data` that the sender gave.
    pub user_data: u64,
    /// The value of `res` that the sender gave. In a message with a descriptor, the same as `fd`, or -EBADF if the descriptor did not arrive.
    pub res: i32,
    /// The value of `flags` that the sender gave.
    pub flags: u32,
    /// The bytes of the message, valid until the next call that receives from the ring; never NULL.
    pub payload: *const c_void,
    /// The length of the payload, in bytes.
    pub len: size_t,
    /// Process id of the sender.
    pub pid: u32,
    /// The sender's index, which is unique among the senders of the ring.
    pub index: u32,
    /// The descriptor of the message, with `FD_CLOEXEC` set, which the receiver has to close; -1 for a message without a descriptor.
    pub fd: i32,
    /// The library sets this field to 0.
    pub reserved: u32,
}

/// Receives the next message of a ring.
///
/// While the ring is empty, the call waits. By default it spins for some microseconds if recent spins were successful, and then sleeps;
/// umsg_ring_set_waiting(3) selects another way of waiting. The payload stays in the ring until the next call that receives, and must not be freed.
/// If the ring is closed (umsg_ring_close(3)) and empty, no message can arrive any more, but the call still waits.
///
/// # Return value
/// On success, the call returns 0. On error, -1 is returned, and errno is set to indicate the error.
///
/// # Errors
/// - `EBADF`: `ring` is NULL, or can't be the address of a ring.
/// - `EBADMSG`: the ring's memory is corrupted: it holds values that no operation writes.
/// - `EBUSY`: another call that receives from the ring has not returned yet: a call of another thread, a call that this signal handler
///   interrupted, or a call of umsg_ring_drain(3) whose function makes this call.
/// - `EDEADLK`: the call was made by a signal handler that interrupted a call on the same ring.
/// - `EFAULT`: `message` is at an address that can't be written.
/// - `EINTR`: a signal handler that was installed without `SA_RESTART` ran while the call waited.
/// - `ENOMEM`: the system has no memory left.
/// - `EPERM`: the calling process is a forked child of the process that created the ring.
///
/// # If the process dies
/// The messages are lost with the process; senders get an error.
///
/// # See also
/// umsg_ring_create(3), umsg_ring_drain(3), umsg_ring_receive_batch(3), umsg_ring_send(3), umsg_ring_timedreceive(3), umsg_ring_try_receive(3),
/// umsg_ring_wait(3)
#[unsafe(no_mangle)]
pub unsafe extern "C" fn umsg_ring_receive(
    ring: *mut umsg_ring,
    message: *mut umsg_ring_message,
) -> c_int {
    // SAFETY: the caller promises a ring and a writable structure.
    answer(unsafe { receive(ring, message, Until::Forever) })
}

/// Receives the next message of a ring, if there is one.
///
/// Does the same as umsg_ring_receive(3), but the call does not wait.
///
/// # Return value
/// On success, the call returns 0. On error, -1 is returned, and errno is set to indicate the error.
///
/// # Errors
/// The errors of umsg_ring_receive(3), except `EINTR`, and this one:
///
/// - `EAGAIN`: there is no message.
///
/// # If the process dies
/// The messages are lost with the process; senders get an error.
///
/// # See also
/// umsg_ring_receive(3), umsg_ring_receive_batch(3)
#[unsafe(no_mangle)]
pub unsafe extern "C" fn umsg_ring_try_receive(
    ring: *mut umsg_ring,
    message: *mut umsg_ring_message,
) -> c_int {
    // SAFETY: as in `umsg_ring_receive`.
    answer(unsafe { receive(ring, message, Until::Now) })
}

/// Receives the next message of a ring, and waits for a message at most until a deadline.
///
/// Does the same as umsg_ring_receive(3), but a call that waits ends at `abs_timeout`, a time of the clock `CLOCK_REALTIME`; NULL means no limit. If
/// there is a message, the call ignores the time.
///
/// # Return value
/// On success, the call returns 0. On error, -1 is returned, and errno is set to indicate the error.
///
/// # Errors
/// The errors of umsg_ring_receive(3), and these:
///
/// - `EFAULT`: `abs_timeout` is at an address that can't be read.
/// - `EINVAL`: `tv_sec` of `abs_timeout` is negative, or `tv_nsec` is not from 0 to 999,999,999.
/// - `ETIMEDOUT`: the deadline passed before a message came.
///
/// # If the process dies
/// The messages are lost with the process; senders get an error.
///
/// # See also
/// umsg_ring_receive(3), umsg_ring_timedsend(3), clock_gettime(2)
#[unsafe(no_mangle)]
pub unsafe extern "C" fn umsg_ring_timedreceive(
    ring: *mut umsg_ring,
    message: *mut umsg_ring_message,
    abs_timeout: *const timespec,
) -> c_int {
    // SAFETY: the caller promises NULL or a readable timespec; else as in `umsg_ring_receive`.
    let received = unsafe {
        time::deadline(abs_timeout).and_then(|time| receive(ring, message, deadline(time)))
    };
    answer(received)
}

/// # Safety
/// `ring` is a ring and `to` is writable, or they are addresses that a pointer check refuses.
#[inline]
unsafe fn receive(
    ring: *mut umsg_ring,
    to: *mut umsg_ring_message,
    until: Until,
) -> Result<c_int, Failure> {
    // SAFETY: by this function's contract.
    let mut turn = unsafe { enter(ring)? };
    pointer::check(to, "message")?;
    let received = turn.ring.receive_until(until).map_err(Refusal::from)?;
    let payload = received.payload.as_ptr();
    // SAFETY: by this function's contract.
    unsafe { to.write_unaligned(in_c(received, payload.cast())) };
    Ok(0)
}

/// Converts a message whose payload the program reads at this address.
#[inline]
pub(super) fn in_c(message: Message<'_>, payload: *const c_void) -> umsg_ring_message {
    umsg_ring_message {
        user_data: message.user_data,
        res: message.res,
        flags: message.flags,
        payload,
        len: message.payload.len(),
        pid: message.tag.pid,
        index: message.tag.index,
        fd: message
            .descriptor
            .map_or(-1, |descriptor| descriptor.into_raw_fd()),
        reserved: 0,
    }
}
