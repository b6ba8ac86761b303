//! System calls that every queue needs. The calls are checked when a queue is opened: if a sandbox refuses such a call, the opening fails.
//!
//! `docs/syscalls.md` lists all other system calls, and the result if they are refused.

use crate::fault::AttachError;
use crate::sys::map::PAGE;
use crate::sys::{futex, inheritance, process, thread};
use rustix::io::Errno;
use std::sync::atomic::{AtomicBool, Ordering};

/// A call that the kernel or a sandbox refuses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refused {
    pub call: &'static str,
    pub errno: Errno,
}

/// The text in place of a call's name, if the kernel uses memory pages larger than 4 KiB.
pub const PAGES: &str = "mmap with pages of 4 KiB";

/// Checks that the calling thread can use queues.
///
/// # Errors
/// The first call that is refused.
pub(crate) fn check() -> Result<(), Refused> {
    // Processors for x86-64 have pages of one size. To ask libc would cost a page fault in each process.
    if cfg!(not(target_arch = "x86_64")) {
        check_pages(rustix::param::page_size())?;
    }
    let refused = |call| move |errno| Refused { call, errno };
    thread::current()
        .can_be_marked()
        .map_err(refused("set_robust_list"))?;
    futex::probe().map_err(refused("futex"))
}

/// Checks that memory is mapped in pages of 4 KiB. A kernel for aarch64 may have been built for pages of 16 or 64 KiB. On such a kernel, mmap(2),
/// mincore(2) and mprotect(2) refuse the addresses and offsets of smaller pages, or change the memory beside the smaller pages.
fn check_pages(size: usize) -> Result<(), Refused> {
    match size == PAGE {
        true => Ok(()),
        false => Err(Refused {
            call: PAGES,
            errno: Errno::INVAL,
        }),
    }
}

/// Checks that this process can send itself the signal of a notification with its value.
///
/// # Errors
/// The refused call.
pub fn check_for_signals() -> Result<(), Refused> {
    /// True if an earlier call was permitted. If the process enters a sandbox later, the refusal appears when the signal is raised.
    static PERMITTED: AtomicBool = AtomicBool::new(false);
    // Relaxed: the answer publishes no other data. A forked child has its parent's sandbox.
    if !PERMITTED.load(Ordering::Relaxed) {
        let call = "rt_sigqueueinfo";
        process::can_raise_for_message().map_err(|errno| Refused { call, errno })?;
        PERMITTED.store(true, Ordering::Relaxed);
    }
    Ok(())
}

/// Checks that the calling thread could lend its priority to the owner of a lock. Queues also work without priority inheritance.
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
    // SAFETY: the call gets a length of 0, so it reads no bytes, and no process has the descriptor.
    let sent = unsafe { libc::sendto(NONE, std::ptr::null(), 0, 0, std::ptr::null(), 0) };
    refused("sendto", sent)?;
    // SAFETY: a structure of zeroes has no buffers, and no process has the descriptor.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kernel_with_longer_pages_is_refused() {
        assert_eq!(check_pages(PAGE), Ok(()));
        for size in [4 * PAGE, 16 * PAGE] {
            let refused = check_pages(size).unwrap_err();
            assert_eq!(refused.errno, Errno::INVAL);
        }
    }
}
