//! System calls that every queue needs. They are checked when a queue is opened, so the refusal of a sandbox is an error of the opening.
//!
//! `docs/syscalls.md` lists all other system calls, and the result if they are refused.

use crate::fault::AttachError;
use crate::sys::{futex, inheritance, process, thread};
use rustix::io::Errno;
use std::sync::atomic::{AtomicBool, Ordering};

/// A call that the kernel or a sandbox refuses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refused {
    pub call: &'static str,
    pub errno: Errno,
}

/// Checks that the calling thread can use queues.
///
/// # Errors
/// The first call that is refused.
pub(crate) fn check() -> Result<(), Refused> {
    let refused = |call| move |errno| Refused { call, errno };
    thread::current()
        .can_be_marked()
        .map_err(refused("set_robust_list"))?;
    futex::probe().map_err(refused("futex"))
}

/// Checks that this process can send itself the signal of a notification with its value.
///
/// # Errors
/// The refused call.
pub fn check_for_signals() -> Result<(), Refused> {
    /// True if the call was permitted. If the process enters a sandbox later, the refusal appears when the signal is raised.
    static PERMITTED: AtomicBool = AtomicBool::new(false);
    // Relaxed: the answer publishes no other data. A forked child has its parent's sandbox.
    if !PERMITTED.load(Ordering::Relaxed) {
        let call = "rt_sigqueueinfo";
        process::can_raise_for_message().map_err(|errno| Refused { call, errno })?;
        PERMITTED.store(true, Ordering::Relaxed);
    }
    Ok(())
}

/// Checks that the calling thread could lend its priority to the owner of a lock. Queues work without it.
///
/// # Errors
/// The refused call.
pub fn check_for_inheritance() -> Result<(), Refused> {
    if cfg!(miri) {
        return Ok(());
    }
    inheritance::probe().map_err(|(call, errno)| Refused { call, errno })
}

/// Checks that the ends of a ring can wake pollers and pass descriptors. The calls name a closed descriptor, so they have no effect.
///
/// # Errors
/// The first call that is refused.
pub fn check_for_rings() -> Result<(), Refused> {
    const NONE: libc::c_int = -1;
    if cfg!(miri) {
        return Ok(());
    }
    let refused = |call, result: libc::ssize_t| match (result, crate::sys::errno()) {
        (-1, libc::EBADF) => Ok(()),
        (_, errno) => Err(Refused {
            call,
            errno: Errno::from_raw_os_error(errno),
        }),
    };
    // SAFETY: no bytes at no address, which nothing reads, and a descriptor that no process has.
    let sent = unsafe { libc::sendto(NONE, std::ptr::null(), 0, 0, std::ptr::null(), 0) };
    refused("sendto", sent)?;
    // SAFETY: a structure of zeroes is one without buffers; the rest as above.
    let received = unsafe {
        let mut nothing: libc::msghdr = std::mem::zeroed();
        libc::recvmsg(NONE, &raw mut nothing, 0)
    };
    refused("recvmsg", received)
}

impl From<Refused> for AttachError {
    fn from(refused: Refused) -> AttachError {
        AttachError::CallRefused {
            call: refused.call,
            errno: refused.errno,
        }
    }
}
