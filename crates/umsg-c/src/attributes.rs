//! POSIX queues: attributes.

use std::ffi::{c_int, c_long};

use crate::error::{Failure, answer};
use crate::handle::{self, Held, umsg_mqd_t};
use crate::pointer;

/// Attributes of a queue, in the layout of libc's struct mq_attr.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct umsg_mq_attr {
    /// 0 or O_NONBLOCK. The flag belongs to the handle, not to the queue.
    pub mq_flags: c_long,
    /// The maximum number of messages in the queue.
    pub mq_maxmsg: c_long,
    /// The maximum length of a message, in bytes.
    pub mq_msgsize: c_long,
    /// The number of queued messages.
    pub mq_curmsgs: c_long,
    /// Reserved; 0.
    pub mq_reserved: [c_long; 4],
}

/// Gets the attributes of a queue.
///
/// Writes to `attr` the maximum and the current number of messages, the maximum length of a message, and whether the handle has
/// `O_NONBLOCK`.
///
/// # Return value
/// On success, the call returns 0. On error, -1 is returned, and errno is set to indicate the error.
///
/// # Errors
/// - `EBADF`: `mqdes` is not the handle of an open queue.
/// - `EFAULT`: `attr` is at an address that can't be written.
///
/// # If the process dies
/// The call changes nothing.
///
/// # See also
/// umsg_mq_setattr(3), umsg_mq_status(3), mq_getattr(3)
#[unsafe(no_mangle)]
pub unsafe extern "C" fn umsg_mq_getattr(mqdes: umsg_mqd_t, attr: *mut umsg_mq_attr) -> c_int {
    let get = || {
        let held = handle::hold(mqdes)?;
        // SAFETY: the caller promises a writable structure.
        unsafe { pointer::write(attr, current(&held), "attr")? };
        Ok(0)
    };
    answer(get())
}

/// Sets or clears O_NONBLOCK of a handle.
///
/// `mq_flags` of `newattr` is 0 or `O_NONBLOCK`; its other members are ignored. If `oldattr` is not NULL, the call writes the attributes before the
/// change to it, like umsg_mq_getattr(3). If `newattr` is NULL, the call changes nothing.
///
/// The flag applies to all threads that use the handle, and to processes that inherited the handle over fork(2), but not to other handles of the same
/// queue.
///
/// # Return value
/// On success, the call returns 0. On error, -1 is returned, and errno is set to indicate the error.
///
/// # Errors
/// - `EBADF`: `mqdes` is not the handle of an open queue.
/// - `EFAULT`: `newattr` or `oldattr` is at an address that can't be read or written.
/// - `EINVAL`: `mq_flags` has other bits than `O_NONBLOCK`.
///
/// # If the process dies
/// The flag keeps its value for processes that inherited the handle.
///
/// # See also
/// umsg_mq_getattr(3), umsg_mq_open(3), mq_setattr(3)
#[unsafe(no_mangle)]
pub unsafe extern "C" fn umsg_mq_setattr(
    mqdes: umsg_mqd_t,
    newattr: *const umsg_mq_attr,
    oldattr: *mut umsg_mq_attr,
) -> c_int {
    let set = || {
        // SAFETY: the caller promises NULL or a readable structure.
        let wanted = unsafe { pointer::read(newattr, "newattr")? };
        let wanted = wanted.map(nonblocking).transpose()?;
        let held = handle::hold(mqdes)?;
        let before = current(&held);
        if let Some(nonblocking) = wanted {
            held.nonblocking.set(nonblocking);
        }
        if !oldattr.is_null() {
            // SAFETY: the caller promises NULL or a writable structure.
            unsafe { pointer::write(oldattr, before, "oldattr")? };
        }
        Ok(0)
    };
    answer(set())
}

/// Returns whether the flags of the attributes have O_NONBLOCK. Fails if they have other flags.
fn nonblocking(attributes: umsg_mq_attr) -> Result<bool, Failure> {
    const O_NONBLOCK: c_long = libc::O_NONBLOCK as c_long;
    match attributes.mq_flags {
        0 => Ok(false),
        O_NONBLOCK => Ok(true),
        _ => Err(Failure::Invalid("mq_flags must be 0 or O_NONBLOCK")),
    }
}

fn current(held: &Held) -> umsg_mq_attr {
    let now = held.queue.attributes();
    umsg_mq_attr {
        mq_flags: if held.nonblocking.get() {
            c_long::from(libc::O_NONBLOCK)
        } else {
            0
        },
        mq_maxmsg: now.max_messages as c_long,
        mq_msgsize: now.message_size as c_long,
        mq_curmsgs: now.messages as c_long,
        mq_reserved: [0; 4],
    }
}
