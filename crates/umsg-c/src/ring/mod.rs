//! Rings: `umsg::ring` for C.
//!
//! Both ends of a ring are addresses. The handles of queues, in contrast, are numbers that the library looks up in a table. A table of rings would
//! have to count the uses of its entries, so all senders of a process would write to one cache line. As with `FILE *`, the program frees an end only
//! after the last use of the end.
//!
//! | what | where |
//! |---|---|
//! | making a ring, and its options | `create` |
//! | senders; freeing both ends; names | `ends`, `unlink` |
//! | sending | `send`, `send_batch`, `descriptor` |
//! | receiving | `receive`, `drain` |
//! | waiting without receiving, polling | `waiting` |
//! | enabling, closing, choosing senders | `control` |
//! | the state of a ring | `status` |
//! | one receiver at a time | `receiver` |
//! | errors | `refusal` |

mod control;
mod create;
mod descriptor;
mod drain;
mod ends;
mod receive;
mod receiver;
mod refusal;
mod send;
mod send_batch;
mod status;
mod unlink;
mod waiting;

pub(crate) use refusal::Refusal;

use std::time::SystemTime;

use libc::c_int;
use umsg::ring::Until;

use self::send::UMSG_RING_NOWAIT;
use crate::error::Failure;

/// Returns the limit of a call's wait. With UMSG_RING_NOWAIT the call does not wait, and ignores the deadline.
fn until(flags: c_int, deadline: Option<SystemTime>) -> Result<Until, Failure> {
    match (flags, deadline) {
        (UMSG_RING_NOWAIT, _) => Ok(Until::Now),
        (0, Some(time)) => Ok(Until::Time(time)),
        (0, None) => Ok(Until::Forever),
        _ => Err(Failure::Invalid("flags must be 0 or UMSG_RING_NOWAIT")),
    }
}

/// Returns the limit of a wait, for calls without flags.
fn deadline(deadline: Option<SystemTime>) -> Until {
    deadline.map_or(Until::Forever, Until::Time)
}
