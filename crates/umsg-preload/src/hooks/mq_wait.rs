//! The waits of mq_send and mq_receive.

use std::ffi::c_int;

use crate::attachments::Attached;
use crate::table::Held;
use crate::{attachments, cancellation};

/// Makes a call that waits, if the descriptor does not have O_NONBLOCK. This is the first place at which the flag matters.
pub(super) fn wait<T>(
    held: Held,
    fd: c_int,
    call: impl FnOnce(&Attached) -> Result<T, c_int>,
) -> Result<T, c_int> {
    let is_nonblocking = held.blocking.is_nonblocking(fd);
    if is_nonblocking.map_err(|_| libc::EBADF)? {
        return Err(libc::EAGAIN);
    }
    let outcome = cancellation::while_blocked_or_begun_anew(|| call(&held));
    drop(held);
    attachments::reap();
    outcome
}
