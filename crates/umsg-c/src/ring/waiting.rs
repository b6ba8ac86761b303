//! Rings: waiting, and descriptors to poll.

use std::ffi::c_int;
use std::os::fd::AsRawFd as _;

use libc::{size_t, ssize_t, timespec};

use super::receiver::{enter, umsg_ring};
use super::{Refusal, deadline};
use crate::error::{Failure, answer};
use crate::{time, waiting};

/// Waits until a ring has several messages, without receiving them.
///
/// The thread is woken once, when the last of `at_least` messages has arrived. The wait ends at `abs_timeout`, a time of the clock
/// `CLOCK_REALTIME`. NULL means no limit. With a time in the past, the call only checks.
///
/// # Return value
/// On success, the call returns the number of messages that the receiver has found in the ring, at least `at_least`. On error, -1 is returned, and
/// errno is set to indicate the error.
///
/// # Errors
/// - `EBADF`: `ring` is NULL, or can't be the address of a ring.
/// - `EBUSY`: another call that receives from the ring has not returned yet.
/// - `EFAULT`: `abs_timeout` is at an address that can't be read.
/// - `EINTR`: a signal handler that was installed without `SA_RESTART` ran while the call waited.
/// - `EINVAL`: `tv_sec` of `abs_timeout` is negative, or `tv_nsec` is not from 0 to 999,999,999; or `at_least` is more than the ring and
///   its overflow hold.
/// - `EPERM`: the calling process is a forked child of the process that created the ring.
/// - `ETIMEDOUT`: the deadline passed before the messages came.
///
/// # If the process dies
/// The messages are lost with the process; senders get an error.
///
/// # See also
/// umsg_ring_descriptor(3), umsg_ring_drain(3), umsg_ring_receive(3), umsg_ring_receive_batch(3), umsg_ring_set_waiting(3)
#[unsafe(no_mangle)]
pub unsafe extern "C" fn umsg_ring_wait(
    ring: *mut umsg_ring,
    at_least: size_t,
    abs_timeout: *const timespec,
) -> ssize_t {
    let run = || {
        // SAFETY: the caller promises NULL or a readable timespec, and a ring.
        let (time, mut turn) = unsafe { (time::deadline(abs_timeout)?, enter(ring)?) };
        let there = turn.ring.wait(at_least as u64, deadline(time));
        let there = there.map_err(Refusal::from)?;
        Ok::<_, Failure>(ssize_t::try_from(there).unwrap_or(ssize_t::MAX))
    };
    answer(run())
}

/// Returns the descriptor of a ring, for poll(2), epoll(7) and io_uring(7).
///
/// The descriptor is readable while there are messages. From the first call of this function on, a sender makes the descriptor of an empty ring
/// readable. The descriptor stays readable until umsg_ring_try_receive(3), umsg_ring_receive_batch(3) or umsg_ring_drain(3) has found the ring empty.
/// A program that polls with `EPOLLET` repeats one of these calls until it reports an empty ring: by `EAGAIN`, or by 0. Otherwise messages may remain
/// without a further edge, for example messages that came while umsg_ring_drain(3) ran.
///
/// The descriptor belongs to the ring: the program must not read, write or close it.
///
/// # Return value
/// On success, the call returns the descriptor, the same each time. On error, -1 is returned, and errno is set to indicate the error.
///
/// # Errors
/// - `EBADF`: `ring` is NULL, or can't be the address of a ring.
/// - `EBUSY`: a call that receives from the ring has not returned yet.
/// - `EPERM`: the calling process is a forked child of the process that created the ring.
///
/// # If the process dies
/// The system closes the descriptor.
///
/// # See also
/// umsg_ring_drain(3), umsg_ring_try_receive(3), umsg_ring_wait(3), poll(2), epoll(7)
#[unsafe(no_mangle)]
pub unsafe extern "C" fn umsg_ring_descriptor(ring: *mut umsg_ring) -> c_int {
    let run = || {
        // SAFETY: the caller promises a ring.
        let mut turn = unsafe { enter(ring)? };
        Ok::<_, Failure>(turn.ring.pollable().as_raw_fd())
    };
    answer(run())
}

/// Chooses how the receiver of a ring waits.
///
/// `waiting` is one of `UMSG_WAITING_ADAPTIVE`, `UMSG_WAITING_BLOCKING` and `UMSG_WAITING_SPINNING`, which umsg_mq_set_waiting(3) describes.
/// umsg_ring_status(3) shows the CPU time that waiting costs.
///
/// # Return value
/// On success, the call returns 0. On error, -1 is returned, and errno is set to indicate the error.
///
/// # Errors
/// - `EBADF`: `ring` is NULL, or can't be the address of a ring.
/// - `EBUSY`: a call that receives from the ring has not returned yet.
/// - `EINVAL`: `waiting` is not one of the three values `UMSG_WAITING_*`.
/// - `EPERM`: the calling process is a forked child of the process that created the ring.
///
/// # If the process dies
/// The choice ends with the process.
///
/// # See also
/// umsg_mq_set_waiting(3), umsg_ring_create(3), umsg_ring_wait(3)
#[unsafe(no_mangle)]
pub unsafe extern "C" fn umsg_ring_set_waiting(ring: *mut umsg_ring, waiting: c_int) -> c_int {
    let run = || {
        let waiting = waiting::of(waiting)?;
        // SAFETY: the caller promises a ring.
        unsafe { enter(ring)? }.ring.set_waiting(waiting);
        Ok::<_, Failure>(0)
    };
    answer(run())
}
