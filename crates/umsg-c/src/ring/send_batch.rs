//! Rings: sending several messages in one call.

use std::ffi::c_int;

use libc::{size_t, timespec};
use umsg::ring::Post;

use super::ends::{sender, umsg_ring_sender};
use super::send::{Wanted, umsg_ring_post};
use super::{Refusal, until};
use crate::error::{Failure, answer};
use crate::pointer;
use crate::time;

/// Sends several messages to a ring as one batch: all of them or none.
///
/// The call makes one reservation and at most one wake-up. The receiver finds all of the `n` messages at once. Each payload has up to 64 bytes.
/// `flags` is 0, or `UMSG_RING_NOWAIT` for a call that does not wait for room for all messages. A call that waits ends at `abs_timeout`, a time of
/// the clock `CLOCK_REALTIME`; NULL means no limit.
///
/// # Return value
/// On success, the call returns 0. On error, -1 is returned, and errno is set to indicate the error; nothing was sent.
///
/// # Errors
/// The errors of umsg_ring_send(3), and these:
///
/// - `EAGAIN`: there is no room for all messages and `flags` has `UMSG_RING_NOWAIT`.
/// - `EFAULT`: `posts`, a payload or `abs_timeout` is at an address that can't be read.
/// - `EINVAL`: `flags` has other bits; `tv_sec` of `abs_timeout` is negative, or `tv_nsec` is not from 0 to 999,999,999.
/// - `EMSGSIZE`: a payload has more than 64 bytes, or `n` is more than the ring and its overflow hold.
/// - `ETIMEDOUT`: the deadline passed before there was room for all messages.
///
/// # If the process dies
/// Before the call returns, either all messages were sent or none.
///
/// # See also
/// umsg_ring_receive_batch(3), umsg_ring_send(3)
#[unsafe(no_mangle)]
pub unsafe extern "C" fn umsg_ring_send_batch(
    sender: *mut umsg_ring_sender,
    posts: *const umsg_ring_post,
    n: size_t,
    flags: c_int,
    abs_timeout: *const timespec,
) -> c_int {
    let run = || {
        // SAFETY: the caller promises NULL or a readable timespec, a sender, and `n` structures with their payloads.
        let (until, sender, posts) = unsafe {
            let until = until(flags, time::deadline(abs_timeout)?)?;
            (until, self::sender(sender)?, read(posts, n)?)
        };
        let sent = sender.send_batch_until(&posts, until);
        sent.map_err(Refusal::from)?;
        Ok(0)
    };
    answer(run())
}

/// # Safety
/// `posts` has `n` readable members, each with as many readable bytes of payload as it says; or they are addresses that a pointer
/// check refuses.
unsafe fn read(posts: *const umsg_ring_post, n: size_t) -> Result<Vec<Post>, Failure> {
    if n == 0 {
        return Ok(Vec::new());
    }
    pointer::check_array(posts, n, "posts")?;
    // SAFETY: by this function's contract; the member is one of the `n`.
    let read = |index| unsafe { Wanted::read_short(posts.add(index)) };
    (0..n).map(read).collect()
}
