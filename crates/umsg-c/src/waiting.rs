//! The ways in which calls wait.

use std::ffi::c_int;

use umsg::posix::Waiting;

use crate::error::{Failure, answer};
use crate::handle::{self, umsg_mqd_t};

/// Spin for some microseconds if recent spins were successful, then sleep.
pub const UMSG_WAITING_ADAPTIVE: c_int = 0;
/// Give way to other threads a few times, then sleep: the least CPU time.
pub const UMSG_WAITING_BLOCKING: c_int = 1;
/// Spin until the wait is over: the least delay, but the whole time of a CPU.
pub const UMSG_WAITING_SPINNING: c_int = 2;

/// Chooses how calls on a handle wait.
///
/// `waiting` is one of these:
///
/// - `UMSG_WAITING_ADAPTIVE`, the default: spin for some microseconds if recent spins were successful, then sleep.
/// - `UMSG_WAITING_BLOCKING`: give way to other threads a few times, then sleep: the least CPU time.
/// - `UMSG_WAITING_SPINNING`: spin until the wait is over: the least delay, but the whole time of a CPU.
///
/// The choice belongs to this handle, and applies from the next call on.
///
/// # Return value
/// On success, the call returns 0. On error, -1 is returned, and errno is set to indicate the error.
///
/// # Errors
/// - `EBADF`: `mqdes` is not the handle of an open queue.
/// - `EINVAL`: `waiting` is not one of the three values `UMSG_WAITING_*`.
///
/// # If the process dies
/// The choice ends with the process.
///
/// # See also
/// umsg_mq_open_with(3), umsg_mq_receive(3), umsg_mq_send(3)
#[unsafe(no_mangle)]
pub extern "C" fn umsg_mq_set_waiting(mqdes: umsg_mqd_t, waiting: c_int) -> c_int {
    let set = || {
        let waiting = of(waiting)?;
        handle::hold(mqdes)?.queue.set_waiting(waiting);
        Ok(0)
    };
    answer(set())
}

/// Converts a value of `waiting`, one of UMSG_WAITING_ADAPTIVE, UMSG_WAITING_BLOCKING and UMSG_WAITING_SPINNING.
pub(crate) fn of(waiting: c_int) -> Result<Waiting, Failure> {
    match waiting {
        UMSG_WAITING_ADAPTIVE => Ok(Waiting::Adaptive),
        UMSG_WAITING_BLOCKING => Ok(Waiting::Blocking),
        UMSG_WAITING_SPINNING => Ok(Waiting::Spinning),
        _ => Err(Failure::Invalid(
            "waiting must be UMSG_WAITING_ADAPTIVE, UMSG_WAITING_BLOCKING or UMSG_WAITING_SPINNING",
        )),
    }
}
