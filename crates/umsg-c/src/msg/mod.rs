//! System V queues: the functions of sys/msg.h, and functions that System V lacks.
//!
//! Each call identifies a queue by its System V identifier. The process attaches to the queue at the first call with that identifier: see
//! `umsg::sysv::raw`.

mod batch;
mod close;
mod control;
mod get;
mod get_with;
mod later;
mod lease;
mod peek;
mod pollable;
mod receive;
mod receive_batch;
mod refusal;
mod send;
mod status;
mod types;
mod waiting;

pub(crate) use batch::umsg_msg_message;
pub(crate) use refusal::Refusal;

use std::time::SystemTime;

use libc::{IPC_NOWAIT, c_int};
use umsg::sysv::Until;

/// Returns the limit of a call's wait. With IPC_NOWAIT the call does not wait, and ignores the deadline.
fn until(flags: c_int, deadline: Option<SystemTime>) -> Until {
    match deadline {
        _ if flags & IPC_NOWAIT != 0 => Until::Now,
        Some(time) => Until::Time(time),
        None => Until::Forever,
    }
}
