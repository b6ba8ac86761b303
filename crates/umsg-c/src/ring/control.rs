//! Rings: the senders that the receiver accepts.

use std::ffi::{c_int, c_void};

use umsg::ring::Tag;

use super::receiver::{enter, umsg_ring};
use crate::error::{Failure, answer};

/// A function that decides whether the receiver wants the messages of a sender; it returns 0 if not. Calls that receive messages call this
/// function.
pub type umsg_ring_filter =
    Option<unsafe extern "C" fn(pid: u32, index: u32, argument: *mut c_void) -> c_int>;

/// Enables a ring that was created with `UMSG_RING_DISABLED`: it accepts senders from now on.
///
/// Senders that the ring admits see the caller's earlier writes. An enabled or closed ring stays unchanged.
///
/// # Return value
/// On success, the call returns 0. On error, -1 is returned, and errno is set to indicate the error.
///
/// # Errors
/// - `EBADF`: `ring` is NULL, or can't be the address of a ring.
/// - `EBUSY`: a call that receives from the ring has not returned yet.
/// - `EPERM`: the calling process is a forked child of the process that created the ring.
///
/// # If the process dies
/// Senders get an error that says that the owner is dead.
///
/// # See also
/// umsg_ring_close(3), umsg_ring_create(3)
#[unsafe(no_mangle)]
pub unsafe extern "C" fn umsg_ring_enable(ring: *mut umsg_ring) -> c_int {
    let run = || {
        // SAFETY: the caller promises a ring.
        unsafe { enter(ring)? }.ring.enable();
        Ok::<_, Failure>(0)
    };
    answer(run())
}

/// Closes a ring for senders.
///
/// Sends to the ring fail with `EPIPE` from now on. Messages that were already sent can still be received. Use calls that do not wait, because a call
/// that waits never returns once the ring is empty.
///
/// # Return value
/// On success, the call returns 0. On error, -1 is returned, and errno is set to indicate the error.
///
/// # Errors
/// - `EBADF`: `ring` is NULL, or can't be the address of a ring.
/// - `EBUSY`: a call that receives from the ring has not returned yet.
/// - `EPERM`: the calling process is a forked child of the process that created the ring.
///
/// # If the process dies
/// Senders get an error that says that the owner is dead.
///
/// # See also
/// umsg_ring_enable(3), umsg_ring_free(3)
#[unsafe(no_mangle)]
pub unsafe extern "C" fn umsg_ring_close(ring: *mut umsg_ring) -> c_int {
    let run = || {
        // SAFETY: the caller promises a ring.
        unsafe { enter(ring)? }.ring.close();
        Ok::<_, Failure>(0)
    };
    answer(run())
}

/// Chooses the users whose messages a ring's receiver gets.
///
/// From now on, each receive calls `accept` with the sender of each message and with `argument`. If `accept` returns 0, the message is dropped and
/// counted (umsg_ring_refused(3)). Until a receive drops it, such a message takes room in the ring. NULL accepts all senders again. `accept` must
/// return, and must not receive from the ring. Any thread that receives calls it.
///
/// # Return value
/// On success, the call returns 0. On error, -1 is returned, and errno is set to indicate the error.
///
/// # Errors
/// - `EBADF`: `ring` is NULL, or can't be the address of a ring.
/// - `EBUSY`: a call that receives from the ring has not returned yet.
/// - `EPERM`: the calling process is a forked child of the process that created the ring.
///
/// # If the process dies
/// The choice ends with the process.
///
/// # See also
/// umsg_ring_receive(3), umsg_ring_refused(3), umsg_ring_tag(3)
#[unsafe(no_mangle)]
pub unsafe extern "C" fn umsg_ring_accept_only(
    ring: *mut umsg_ring,
    accept: umsg_ring_filter,
    argument: *mut c_void,
) -> c_int {
    let run = || {
        // SAFETY: the caller promises a ring.
        let mut turn = unsafe { enter(ring)? };
        let argument = Argument(argument);
        match accept {
            // SAFETY: the caller passed this function, which gets the arguments that its type declares.
            Some(accept) => turn.ring.accept_only(move |Tag { pid, index }| unsafe {
                accept(pid, index, argument.get()) != 0
            }),
            None => turn.ring.accept_only(|_| true),
        }
        Ok::<_, Failure>(0)
    };
    answer(run())
}

/// Returns the number of messages of a ring that were dropped because of their senders.
///
/// The number counts the messages that umsg_ring_accept_only(3) has dropped in this process.
///
/// # Return value
/// On success, the call returns the number of dropped messages. On error, -1 is returned, and errno is set to indicate the error.
///
/// # Errors
/// - `EBADF`: `ring` is NULL, or can't be the address of a ring.
/// - `EBUSY`: a call that receives from the ring has not returned yet.
/// - `EPERM`: the calling process is a forked child of the process that created the ring.
///
/// # If the process dies
/// The count ends with the process.
///
/// # See also
/// umsg_ring_accept_only(3), umsg_ring_status(3)
#[unsafe(no_mangle)]
pub unsafe extern "C" fn umsg_ring_refused(ring: *mut umsg_ring) -> i64 {
    let run = || {
        // SAFETY: the caller promises a ring.
        let turn = unsafe { enter(ring)? };
        Ok::<_, Failure>(turn.ring.refused().cast_signed())
    };
    answer(run())
}

/// The argument that a program passed together with its function.
#[derive(Clone, Copy)]
struct Argument(*mut c_void);

impl Argument {
    fn get(self) -> *mut c_void {
        self.0
    }
}

// SAFETY: the library passes the pointer to the function, and never dereferences it. The manual says that any receiving thread may pass it to the
// function.
unsafe impl Send for Argument {}
