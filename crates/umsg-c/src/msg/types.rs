//! System V queues: the types of the queued messages.

use std::ffi::{c_int, c_long};

use libc::{size_t, ssize_t};

use super::refusal::{Refusal, find};
use crate::error::answer;
use crate::pointer;

/// A message type, and the number of queued messages of this type.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct umsg_msg_type {
    /// The message type.
    pub mtype: c_long,
    /// The number of queued messages of this type.
    pub messages: u32,
    /// The library sets this field to 0.
    pub reserved: u32,
}

/// Lists the types of the messages in a System V queue, with the number of messages of each.
///
/// Up to `n` types are written to `types`, the lowest first.
///
/// # Return value
/// On success, the call returns the number of types that were written. On error, -1 is returned, and errno is set to indicate the error.
///
/// # Errors
/// - `EACCES`: the queue's mode does not let the caller receive.
/// - `EAGAIN`, `ENOMSG`: a stopped process has held a lock of this queue for more than a second.
/// - `EBADMSG`: the queue's memory is corrupted: it holds values that no operation writes.
/// - `EDEADLK`: the call was made by a signal handler that interrupted a call on the same queue.
/// - `EFAULT`: `types` is at an address that can't be written.
/// - `EIDRM`: the queue was removed during the call.
/// - `EINVAL`: no queue has the identifier `msqid`, or that queue was removed.
///
/// # If the process dies
/// The call changes nothing.
///
/// # See also
/// umsg(1), umsg_msg_peek(3), umsg_msg_status(3)
#[unsafe(no_mangle)]
pub unsafe extern "C" fn umsg_msg_types(
    msqid: c_int,
    types: *mut umsg_msg_type,
    n: size_t,
) -> ssize_t {
    let tell = || {
        let queue = find(msqid)?;
        if n != 0 {
            pointer::check_array(types, n, "types")?;
        }
        // The number of types is at most the number of messages.
        let messages = queue.entry().map_err(Refusal::from)?.messages;
        let most = n.min(usize::try_from(messages).unwrap_or(usize::MAX));
        let found = queue.types(most).map_err(Refusal::from)?;
        for (index, &(mtype, messages)) in found.iter().enumerate() {
            let told = umsg_msg_type {
                mtype,
                messages,
                reserved: 0,
            };
            // SAFETY: the caller guarantees `n` writable members, and the loop writes at most `n`.
            unsafe { types.add(index).write(told) };
        }
        Ok(found.len().cast_signed())
    };
    answer(tell())
}
