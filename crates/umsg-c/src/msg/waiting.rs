//! System V queues: how calls wait, and the credentials that they use.

use std::ffi::c_int;

use umsg::sysv::forget_caller;

use super::refusal::find;
use crate::error::answer;
use crate::waiting;

/// Chooses how this process's calls on a System V queue wait.
///
/// `waiting` is one of `UMSG_WAITING_ADAPTIVE`, `UMSG_WAITING_BLOCKING` and `UMSG_WAITING_SPINNING`, which umsg_mq_set_waiting(3)
/// describes. The choice applies from the next call on, to all threads of the process.
///
/// # Return value
/// On success, the call returns 0. On error, -1 is returned, and errno is set to indicate the error.
///
/// # Errors
/// - `EACCES`: the queue's mode grants the caller no access.
/// - `EINVAL`: no queue has the identifier `msqid`, or that queue was removed; or `waiting` is not one of the three values `UMSG_WAITING_*`.
///
/// # If the process dies
/// The choice ends with the process.
///
/// # See also
/// umsg_mq_set_waiting(3), umsg_msgrcv(3), umsg_msgsnd(3)
#[unsafe(no_mangle)]
pub extern "C" fn umsg_msg_set_waiting(msqid: c_int, waiting: c_int) -> c_int {
    let set = || {
        let waiting = waiting::of(waiting)?;
        find(msqid)?.set_waiting(waiting);
        Ok(0)
    };
    answer(set())
}

/// Makes each System V queue check the credentials of the process again.
///
/// A queue checks the process's permissions at the first send and at the first receive, and again after a change of its owner or mode. After a change
/// of its user or groups, by setuid(2) or setgroups(2) for example, a program calls this function before it uses queues again. The kernel checks at
/// each call; in this library, such a check would cost more than the call itself.
///
/// # Return value
/// The call always returns 0.
///
/// # Errors
/// None.
///
/// # If the process dies
/// The call has no further effect.
///
/// # See also
/// umsg_msgget(3), credentials(7)
#[unsafe(no_mangle)]
pub extern "C" fn umsg_msg_forget_caller() -> c_int {
    forget_caller();
    0
}
