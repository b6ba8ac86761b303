//! System V queues: how calls wait, and as whom they ask.

use std::ffi::c_int;

use umsg::sysv::forget_caller;

use super::refusal::find;
use crate::error::answer;
use crate::waiting;

/// Chooses how this process's calls on a System V queue wait.
///
/// `waiting` is one of `UMSG_WAITING_ADAPTIVE`, `UMSG_WAITING_BLOCKING` and `UMSG_WAITING_SPINNING`, which umsg_mq_set_waiting(3)
/// describes. The choice counts from the next call on, for all threads of the process.
///
/// # Return value
/// 0, or -1 with errno set.
///
/// # Errors
/// - `EACCES`: the queue's mode grants the caller nothing.
/// - `EINVAL`: no queue has the identifier `msqid`, or none has it any more; or `waiting` is none of the three.
///
/// # If the process dies
/// Nothing is left: the choice is this process's own.
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

/// Has each System V queue ask again who the process is.
///
/// Whether a process may send and receive is found out when it first does so, and again whenever the queue's owner or mode has changed.
/// A program that changes its user or group, by setuid(2) or setgroups(2) for example, and goes on using queues that it has
/// used before calls this afterwards. The kernel asks at each call; here that would cost more than the call itself.
///
/// # Return value
/// 0.
///
/// # Errors
/// None.
///
/// # If the process dies
/// Nothing is left.
///
/// # See also
/// umsg_msgget(3), credentials(7)
#[unsafe(no_mangle)]
pub extern "C" fn umsg_msg_forget_caller() -> c_int {
    forget_caller();
    0
}
