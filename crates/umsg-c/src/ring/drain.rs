//! Rings: receiving several messages in one call.

use std::ffi::c_void;

use libc::{size_t, ssize_t};

use super::Refusal;
use super::receive::{in_c, umsg_ring_message};
use super::receiver::{Inner, enter, umsg_ring};
use crate::error::{Failure, answer};
use crate::pointer;

/// A function that is called with each message. umsg_ring_receive(3) describes messages. `message` and its payload exist until the function
/// returns.
pub type umsg_ring_visitor =
    Option<unsafe extern "C" fn(message: *const umsg_ring_message, argument: *mut c_void)>;

/// Receives all messages that a ring holds, and calls a function with each.
///
/// The messages are copied out of the ring in groups, under one lock for each group. The call may also receive messages that arrive meanwhile, but it
/// returns even if senders continue. `visit` gets `argument`. `visit` must return, and must not leave by longjmp(3) or an exception of C++. `visit`
/// may send, to this ring only with calls that do not wait for room. `visit` must not receive from this ring.
///
/// The call does not wait; umsg_ring_wait(3) does.
///
/// # Return value
/// On success, the call returns the number of messages received, including the messages that umsg_ring_accept_only(3) drops. On error, -1 is
/// returned, and errno is set to indicate the error. Only 0 means that the ring was empty: with `EPOLLET`, repeat the call until it returns 0.
///
/// # Errors
/// - `EBADF`: `ring` is NULL, or can't be the address of a ring.
/// - `EBADMSG`: the ring's memory is corrupted: it holds values that no operation writes. Earlier messages may have been visited.
/// - `EBUSY`: another call that receives from the ring has not returned yet.
/// - `EDEADLK`: the call was made by a signal handler that interrupted a call on the same ring.
/// - `EFAULT`: `visit` is NULL.
/// - `EPERM`: the calling process is a forked child of the process that created the ring.
///
/// # If the process dies
/// The messages are lost with the process; senders get an error.
///
/// # See also
/// umsg_ring_receive(3), umsg_ring_receive_batch(3), umsg_ring_wait(3)
#[unsafe(no_mangle)]
pub unsafe extern "C" fn umsg_ring_drain(
    ring: *mut umsg_ring,
    visit: umsg_ring_visitor,
    argument: *mut c_void,
) -> ssize_t {
    let run = || {
        // SAFETY: the caller promises a ring.
        let mut turn = unsafe { enter(ring)? };
        let visit = visit.ok_or(Failure::BadAddress("visit"))?;
        let drained = turn.ring.drain(|message| {
            let payload = message.payload.as_ptr();
            let message = in_c(message, payload.cast());
            // SAFETY: the caller passed this function, which gets the arguments that its type declares.
            unsafe { visit(&raw const message, argument) };
        });
        Ok::<_, Failure>(drained.map_err(Refusal::from)?.cast_signed() as ssize_t)
    };
    answer(run())
}

/// Receives several messages of a ring.
///
/// Writes up to `n` messages of the ring to `messages`. Their payloads exist until the next call that receives from the ring. The call does not
/// wait; umsg_ring_wait(3) does.
///
/// # Return value
/// On success, the call returns the number of messages written: 0 if there were none, or if umsg_ring_accept_only(3) has dropped all of them. On
/// error, -1 is returned, and errno is set to indicate the error.
///
/// # Errors
/// - `EBADF`: `ring` is NULL, or can't be the address of a ring.
/// - `EBADMSG`: the ring's memory is corrupted: it holds values that no operation writes, and the call received no message before the corruption.
/// - `EBUSY`: another call that receives from the ring has not returned yet.
/// - `EDEADLK`: the call was made by a signal handler that interrupted a call on the same ring.
/// - `EFAULT`: `messages` is at an address that can't be written.
/// - `EPERM`: the calling process is a forked child of the process that created the ring.
///
/// # If the process dies
/// The messages are lost with the process; senders get an error.
///
/// # See also
/// umsg_ring_drain(3), umsg_ring_receive(3), umsg_ring_send_batch(3), umsg_ring_wait(3)
#[unsafe(no_mangle)]
pub unsafe extern "C" fn umsg_ring_receive_batch(
    ring: *mut umsg_ring,
    messages: *mut umsg_ring_message,
    n: size_t,
) -> ssize_t {
    let run = || {
        // SAFETY: the caller promises a ring.
        let mut turn = unsafe { enter(ring)? };
        if n == 0 {
            return Ok(0);
        }
        pointer::check_array(messages, n, "messages")?;
        // SAFETY: the caller promises `n` writable members.
        unsafe { receive(&mut turn, messages, n) }
    };
    answer(run())
}

/// # Safety
/// `messages` has `n` writable members.
unsafe fn receive(
    inner: &mut Inner,
    messages: *mut umsg_ring_message,
    n: size_t,
) -> Result<ssize_t, Failure> {
    let Inner { ring, payloads } = inner;
    payloads.clear();
    let mut filled = 0;
    let drained = ring.drain_some(n as u64, |message| {
        // The vector of payloads may be reallocated until all payloads are in it, so each message first gets the offset of its payload.
        let place = std::ptr::without_provenance(payloads.len());
        payloads.extend_from_slice(message.payload);
        // SAFETY: at most `n` messages arrive, and `n` members are writable.
        unsafe { messages.add(filled).write(in_c(message, place)) };
        filled += 1;
    });
    match drained {
        Err(error) if filled == 0 => return Err(Refusal::from(error).into()),
        _ => {}
    }
    for index in 0..filled {
        // SAFETY: the loop above has written this member.
        let payload = unsafe { &mut (*messages.add(index)).payload };
        *payload = payloads[payload.addr()..].as_ptr().cast();
    }
    Ok(filled.cast_signed())
}
