//! How mq_send and mq_receive wait.

use std::ffi::c_int;

use crate::attachments::Attached;
use crate::table::Held;
use crate::{attachments, cancellation};

/// Makes a call that waits, unless the descriptor has O_NONBLOCK. Calls that need not wait do not read this flag.
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
