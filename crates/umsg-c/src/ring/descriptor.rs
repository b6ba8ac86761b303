//! Rings: passing descriptors.

use std::ffi::c_int;
use std::os::fd::{BorrowedFd, IntoRawFd as _};

use libc::timespec;

use super::ends::{sender, umsg_ring_sender};
use super::receiver::{enter, umsg_ring};
use super::send::{Wanted, umsg_ring_post};
use super::{Refusal, until};
use crate::error::{Failure, answer};
use crate::time;

/// Sends a message with a descriptor to a ring.
///
/// The receiver gets its own descriptor for the same open file, in `fd` and `res` of its message. The sender keeps `fd`, and may close it
/// when the call has returned. The payload has up to 64 bytes. `flags` is 0, or `UMSG_RING_NOWAIT` for a call that does not wait for room. A
/// call that waits ends at `abs_timeout`, a time of the clock `CLOCK_REALTIME`; NULL means no limit.
///
/// The receiver keeps the descriptors of messages that it has not received yet: up to a quarter of its `RLIMIT_NOFILE`, at most 1,024. If there are
/// more, the receiver closes the oldest. The receiver also closes descriptors for which it has no descriptor number left. The messages of closed
/// descriptors arrive with -EBADF, and the sender gets no error.
///
/// # Return value
/// On success, the call returns 0. On error, -1 is returned, and errno is set to indicate the error.
///
/// # Errors
/// The errors of umsg_ring_send(3), and these:
///
/// - `EAGAIN`: the receiver's socket holds its maximum number of descriptors: `net.unix.max_dgram_qlen` plus one, mostly 11. The receiver empties the
///   socket when it receives. Or there is no room and `flags` has `UMSG_RING_NOWAIT`.
/// - `EBADF`: `fd` is not an open descriptor.
/// - `ECONNREFUSED`, `ENOENT`: the receiver's socket no longer exists.
/// - `EFAULT`: `abs_timeout` is at an address that can't be read.
/// - `EINVAL`: `flags` has other bits; `tv_sec` of `abs_timeout` is negative, or `tv_nsec` is not from 0 to 999,999,999.
/// - `EMSGSIZE`: the payload has more than 64 bytes.
/// - `ETIMEDOUT`: the deadline passed before there was room.
///
/// # If the process dies
/// Before the call returns, the message was sent with its descriptor, or nothing was sent.
///
/// # See also
/// umsg_ring_pass_fd(3), umsg_ring_receive(3), umsg_ring_send(3), unix(7)
#[unsafe(no_mangle)]
pub unsafe extern "C" fn umsg_ring_send_fd(
    sender: *mut umsg_ring_sender,
    post: *const umsg_ring_post,
    fd: c_int,
    flags: c_int,
    abs_timeout: *const timespec,
) -> c_int {
    let run = || {
        // SAFETY: the caller promises NULL or a readable timespec, a sender, and a structure with its payload.
        let (until, sender, post) = unsafe {
            let until = until(flags, time::deadline(abs_timeout)?)?;
            (until, self::sender(sender)?, Wanted::read_short(post)?)
        };
        let sent = sender.send_fd(&post, borrow(fd)?, until);
        sent.map_err(Refusal::from)?;
        Ok(0)
    };
    answer(run())
}

/// Passes a descriptor to a ring's receiver without a message.
///
/// The receiver is not woken. The sender passes the returned ticket to the receiver, for example in a message. The receiver takes the
/// descriptor by umsg_ring_take_fd(3) with this ticket. The sender keeps `fd`, and may close it when the call has returned.
///
/// # Return value
/// On success, the call returns the ticket. Each descriptor of the ring has its own ticket; the first ticket is 0. On error, -1 is returned, and
/// errno is set to indicate the error.
///
/// # Errors
/// - `EAGAIN`: the receiver's socket holds its maximum number of descriptors, which is `net.unix.max_dgram_qlen` plus one, mostly 11. The receiver
///   empties the socket when it receives a message or takes a descriptor.
/// - `EBADF`: `sender` is NULL, or can't be the address of a sender; or `fd` is not an open descriptor.
/// - `EBADFD`: the ring is disabled: umsg_ring_enable(3).
/// - `ECONNREFUSED`, `ENOENT`: the receiver's socket no longer exists.
/// - `EPIPE`: the ring was closed.
///
/// # If the process dies
/// Before the call returns, the descriptor may already have been sent. The receiver closes descriptors that the program does not
/// take.
///
/// # See also
/// umsg_ring_send_fd(3), umsg_ring_take_fd(3)
#[unsafe(no_mangle)]
pub unsafe extern "C" fn umsg_ring_pass_fd(sender: *mut umsg_ring_sender, fd: c_int) -> c_int {
    let run = || {
        // SAFETY: the caller promises a sender.
        let sender = unsafe { self::sender(sender)? };
        let ticket = sender.pass_fd(borrow(fd)?);
        Ok::<_, Failure>(ticket.map_err(Refusal::from)?)
    };
    answer(run())
}

/// Takes a descriptor that came without a message.
///
/// `ticket` is the value that umsg_ring_pass_fd(3) returned to the sender. The descriptor has `FD_CLOEXEC` set. The caller has to close it.
///
/// # Return value
/// On success, the call returns the descriptor. On error, -1 is returned, and errno is set to indicate the error.
///
/// # Errors
/// - `EBADF`: `ring` is NULL, or can't be the address of a ring; or no descriptor has arrived with this ticket, or it was already taken.
/// - `EBUSY`: a call that receives from the ring has not returned yet.
/// - `EPERM`: the calling process is a forked child of the process that created the ring.
///
/// # If the process dies
/// The system closes the descriptors of the dead process.
///
/// # See also
/// umsg_ring_pass_fd(3), umsg_ring_receive(3)
#[unsafe(no_mangle)]
pub unsafe extern "C" fn umsg_ring_take_fd(ring: *mut umsg_ring, ticket: c_int) -> c_int {
    let run = || {
        // SAFETY: the caller promises a ring.
        let mut turn = unsafe { enter(ring)? };
        let taken = turn.ring.take_fd(ticket);
        let taken = taken.ok_or(Refusal::NoSuchTicket(ticket))?;
        Ok::<_, Failure>(taken.into_raw_fd())
    };
    answer(run())
}

/// Borrows a program's descriptor during a call. The system checks whether the descriptor is open.
fn borrow<'a>(fd: c_int) -> Result<BorrowedFd<'a>, Refusal> {
    match fd {
        0.. => {
            // SAFETY: the descriptor number is not -1. If the descriptor is not open, or is closed meanwhile, the system calls that use it fail.
            Ok(unsafe { BorrowedFd::borrow_raw(fd) })
        }
        _ => Err(Refusal::NoDescriptor(fd)),
    }
}
