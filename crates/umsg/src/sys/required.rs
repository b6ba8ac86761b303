//! System calls that no queue works without: asked for when a queue is opened, so that a sandbox that refuses one of them is an error
//! there and no surprise later.
//!
//! What each call of the library does if another call is refused stands in `docs/syscalls.md`.

use crate::sys::{futex, thread};
use rustix::io::Errno;

/// A call that the kernel or a sandbox refuses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Refused {
    pub(crate) call: &'static str,
    pub(crate) errno: Errno,
}

/// Whether the calling thread can use queues.
///
/// # Errors
/// The first call that is refused.
pub(crate) fn check() -> Result<(), Refused> {
    let refused = |call| move |errno| Refused { call, errno };
    thread::current()
        .is_marked_at_death()
        .map_err(refused("set_robust_list"))?;
    futex::probe().map_err(refused("futex"))
}
