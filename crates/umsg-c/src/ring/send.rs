//! Rings: sending.

use std::ffi::{c_int, c_void};

use libc::{size_t, timespec};
use umsg::ring::{INLINE, Post, SendError, Sender, Until};

use super::ends::{sender, umsg_ring_sender};
use super::{Refusal, deadline, until};
use crate::error::{Failure, answer};
use crate::pointer;
use crate::time;

/// A message to be sent.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct umsg_ring_post {
    /// A value for the receiver.
    pub user_data: u64,
    /// A value for the receiver. In a message with a descriptor, the receiver finds the descriptor's number here.
    pub res: i32,
    /// A value for the receiver. All bits are free for the sender's use.
    pub flags: u32,
    /// The payload, which is copied; NULL for none.
    pub payload: *const c_void,
    /// The length of the payload, in bytes. Up to 64 bytes lie in the message itself.
    pub len: size_t,
}

/// The value of `flags` for a call that does not wait for room.
pub const UMSG_RING_NOWAIT: c_int = 1;

/// Sends a message to a ring.
///
/// While the ring and its overflow are full, the call waits. The receiver of the message sees all that the sender wrote before the
/// call. The call makes a system call only if it wakes a sleeping thread.
///
/// # Return value
/// On success, the call returns 0. On error, -1 is returned, and errno is set to indicate the error.
///
/// # Errors
/// - `EBADF`: `sender` is NULL, or can't be the address of a sender.
/// - `EBADFD`: the ring is disabled: umsg_ring_enable(3).
/// - `EBADMSG`: the ring's memory is corrupted: it holds values that no operation writes.
/// - `EDEADLK`: the call was made by a signal handler that interrupted a call on the same ring; see umsg_defer_signal(3).
/// - `EFAULT`: `post` or its payload is at an address that can't be read.
/// - `EINTR`: a signal handler that was installed without `SA_RESTART` ran while the call waited.
/// - `EMSGSIZE`: the payload is longer than the longest payload of the ring.
/// - `ENOMEM`: the system has no memory for the message.
/// - `ENOSPC`: the namespace's file system is full or its limit of bytes is reached.
/// - `EOWNERDEAD`: the receiving process has died.
/// - `EPIPE`: the ring was closed.
///
/// # If the process dies
/// Before the call returns, the message is either sent completely or not sent. Other senders are not delayed.
///
/// # See also
/// umsg_ring_open(3), umsg_ring_receive(3), umsg_ring_send_batch(3), umsg_ring_send_fd(3), umsg_ring_timedsend(3), umsg_ring_try_send(3)
#[unsafe(no_mangle)]
pub unsafe extern "C" fn umsg_ring_send(
    sender: *mut umsg_ring_sender,
    post: *const umsg_ring_post,
) -> c_int {
    // SAFETY: the caller promises a sender, and a structure with as many bytes of payload as it says.
    answer(unsafe { send(sender, post, Until::Forever) })
}

/// Sends a message to a ring if there is room.
///
/// Does the same as umsg_ring_send(3), but the call does not wait for room. If another process was stopped inside a call on the ring,
/// umsg_ring_try_send(3) returns after a second.
///
/// # Return value
/// On success, the call returns 0. On error, -1 is returned, and errno is set to indicate the error.
///
/// # Errors
/// The errors of umsg_ring_send(3), except `EINTR`, and this one:
///
/// - `EAGAIN`: the ring and its overflow are full.
///
/// # If the process dies
/// Before the call returns, the message is either sent completely or not sent.
///
/// # See also
/// umsg_ring_send(3), umsg_ring_send_or_drop(3)
#[unsafe(no_mangle)]
pub unsafe extern "C" fn umsg_ring_try_send(
    sender: *mut umsg_ring_sender,
    post: *const umsg_ring_post,
) -> c_int {
    // SAFETY: as in `umsg_ring_send`.
    answer(unsafe { send(sender, post, Until::Now) })
}

/// Sends a message to a ring, and waits for room at most until a deadline.
///
/// Does the same as umsg_ring_send(3), but a call that waits ends at `abs_timeout`, a time of the clock `CLOCK_REALTIME`; NULL means no limit. If
/// there is room, the call ignores the time.
///
/// # Return value
/// On success, the call returns 0. On error, -1 is returned, and errno is set to indicate the error.
///
/// # Errors
/// The errors of umsg_ring_send(3), and these:
///
/// - `EFAULT`: `abs_timeout` is at an address that can't be read.
/// - `EINVAL`: `tv_sec` of `abs_timeout` is negative, or `tv_nsec` is not from 0 to 999,999,999.
/// - `ETIMEDOUT`: the deadline passed before there was room.
///
/// # If the process dies
/// Before the call returns, the message is either sent completely or not sent.
///
/// # See also
/// umsg_ring_send(3), umsg_ring_timedreceive(3), clock_gettime(2)
#[unsafe(no_mangle)]
pub unsafe extern "C" fn umsg_ring_timedsend(
    sender: *mut umsg_ring_sender,
    post: *const umsg_ring_post,
    abs_timeout: *const timespec,
) -> c_int {
    // SAFETY: the caller promises NULL or a readable timespec; else as in `umsg_ring_send`.
    let sent =
        unsafe { time::deadline(abs_timeout).and_then(|time| send(sender, post, deadline(time))) };
    answer(sent)
}

/// Sends a message to a ring if there is room; otherwise drops and counts it.
///
/// The count is `dropped` of umsg_ring_status(3).
///
/// # Return value
/// On success, the call returns 1 if the message was sent, 0 if it was dropped. On error, -1 is returned, and errno is set to indicate the error.
///
/// # Errors
/// The errors of umsg_ring_send(3), except `EINTR`.
///
/// # If the process dies
/// Before the call returns, the message is either sent completely or not sent.
///
/// # See also
/// umsg_ring_status(3), umsg_ring_try_send(3)
#[unsafe(no_mangle)]
pub unsafe extern "C" fn umsg_ring_send_or_drop(
    sender: *mut umsg_ring_sender,
    post: *const umsg_ring_post,
) -> c_int {
    let run = || {
        // SAFETY: as in `umsg_ring_send`.
        let (sender, wanted) = unsafe { (self::sender(sender)?, Wanted::read(post)?) };
        let sent = match wanted.long {
            Some(payload) => sender.send_long_or_drop(&wanted.post, payload),
            None => sender.send_or_drop(&wanted.post),
        };
        Ok(c_int::from(sent.map_err(Refusal::from)?))
    };
    answer(run())
}

/// Sends a message to a ring, and posts the outcome to another ring.
///
/// The other ring is usually the ring from which the sender receives. `completion` arrives there with `res` 0, or with the negative error
/// number of umsg_ring_send(3). `flags` is 0, or `UMSG_RING_NOWAIT` for a call that does not wait for room. A call that waits ends at
/// `abs_timeout`, a time of the clock `CLOCK_REALTIME`; NULL means no limit. The call never waits for room in the other ring.
///
/// # Return value
/// On success, the call returns 0: the completion was posted, and has the outcome of the message. On error, -1 is returned, and errno is set to
/// indicate the error.
///
/// # Errors
/// The errors of umsg_ring_try_send(3) for `own`; and these, before anything is sent:
///
/// - `EBADF`: `sender` or `own` is NULL, or can't be the address of a sender.
/// - `EFAULT`: `post`, its payload, `completion`, its payload or `abs_timeout` is at an address that can't be read.
/// - `EINVAL`: `flags` has other bits; `tv_sec` of `abs_timeout` is negative, or `tv_nsec` is not from 0 to 999,999,999.
///
/// # If the process dies
/// Before the call returns, the message is either sent completely or not sent. If the message was sent, the same holds for its
/// completion.
///
/// # See also
/// umsg_ring_send(3), umsg_ring_try_send(3)
#[unsafe(no_mangle)]
pub unsafe extern "C" fn umsg_ring_send_completing(
    sender: *mut umsg_ring_sender,
    post: *const umsg_ring_post,
    flags: c_int,
    abs_timeout: *const timespec,
    own: *mut umsg_ring_sender,
    completion: *const umsg_ring_post,
) -> c_int {
    let run = || {
        // SAFETY: the caller promises NULL or a readable timespec; otherwise as in `umsg_ring_send`, for both messages.
        let (until, sender, wanted, own, mut completion) = unsafe {
            let until = until(flags, time::deadline(abs_timeout)?)?;
            let (sender, own) = (self::sender(sender)?, self::sender(own)?);
            (
                until,
                sender,
                Wanted::read(post)?,
                own,
                Wanted::read(completion)?,
            )
        };
        let sent = wanted.send(sender, until);
        let res = sent.map_or_else(|error| -error.errno(), |()| 0);
        completion.post = completion.post.res(res);
        completion.send(own, Until::Now).map_err(Refusal::from)?;
        Ok(0)
    };
    answer(run())
}

/// # Safety
/// `sender` is a sender; `post` has as many readable bytes of payload as it says; or they are addresses that a pointer check
/// refuses.
#[inline]
unsafe fn send(
    sender: *mut umsg_ring_sender,
    post: *const umsg_ring_post,
    until: Until,
) -> Result<c_int, Failure> {
    // SAFETY: by this function's contract.
    let (sender, wanted) = unsafe { (self::sender(sender)?, Wanted::read(post)?) };
    wanted.send(sender, until).map_err(Refusal::from)?;
    Ok(0)
}

/// The message that a program sends.
pub(super) struct Wanted<'a> {
    pub(super) post: Post,
    /// The payload, if it is too long for the message itself.
    long: Option<&'a [u8]>,
}

impl<'a> Wanted<'a> {
    /// # Safety
    /// `post` is a readable structure with as many readable bytes of payload as it says, as long as the result is used; or they are
    /// addresses that a pointer check refuses.
    #[inline]
    pub(super) unsafe fn read(post: *const umsg_ring_post) -> Result<Wanted<'a>, Failure> {
        pointer::check(post, "post")?;
        // SAFETY: by this function's contract. The address need not be aligned, as in the kernel.
        let given = unsafe { post.read_unaligned() };
        let post = Post::new(given.user_data).res(given.res).flags(given.flags);
        if given.len == 0 {
            return Ok(Wanted { post, long: None });
        }
        pointer::check_array(given.payload.cast::<u8>(), given.len, "the payload")?;
        // SAFETY: by this function's contract. The length was checked not to exceed that of an object.
        let payload = unsafe { std::slice::from_raw_parts(given.payload.cast(), given.len) };
        Ok(match given.len > INLINE {
            true => Wanted {
                post,
                long: Some(payload),
            },
            false => Wanted {
                post: post.payload(payload),
                long: None,
            },
        })
    }

    /// Reads a message as [`read`](Self::read) does, if its payload has to be in the message itself.
    ///
    /// # Safety
    /// The conditions of `read`.
    pub(super) unsafe fn read_short(post: *const umsg_ring_post) -> Result<Post, Failure> {
        // SAFETY: by this function's contract.
        let wanted = unsafe { Wanted::read(post)? };
        match wanted.long {
            Some(payload) => Err(Refusal::TooLong(payload.len()).into()),
            None => Ok(wanted.post),
        }
    }

    #[inline]
    fn send(&self, sender: &Sender, until: Until) -> Result<(), SendError> {
        match (self.long, until) {
            (Some(payload), until) => sender.send_long(&self.post, payload, until),
            (None, Until::Now) => sender.try_send(&self.post),
            (None, Until::Forever) => sender.send(&self.post),
            (None, until) => sender.send_until(&self.post, until),
        }
    }
}
