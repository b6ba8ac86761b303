//! Errors: errno gives the kind, and a text gives the cause.

use std::cell::RefCell;
use std::ffi::{CString, c_char, c_int};
use std::path::PathBuf;

use crate::{msg, ring};
use umsg::NamespaceError;
use umsg::posix::{
    LeaseError, NotifyError, OpenError, ReceiveError, RedriveFailure, RestoreError, SendError,
    SnapshotError, UnlinkError,
};

/// The reason why a call failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Failure {
    /// The call fails with EBADF.
    #[error("the handle does not belong to an open queue")]
    NotOpen,
    /// The call fails with EFAULT.
    #[error("{0} is at an address that can't be read or written")]
    BadAddress(&'static str),
    /// The call fails with EINVAL.
    #[error(
        "invalid time: seconds must be 0 or more, and nanoseconds must be from 0 to 999,999,999"
    )]
    BadTime,
    /// The call fails with EINVAL.
    #[error("{0}")]
    Invalid(&'static str),
    /// The call fails with E2BIG.
    #[error(
        "the structure sets members that this version of the library does not know: set them to 0, or use a newer library"
    )]
    TooNew,
    /// The call fails with EMFILE.
    #[error("this process has 65,536 queues open, which is the limit: close some")]
    TooManyHandles,
    /// The call fails with EMFILE.
    #[error("this process has 65,536 leases or reservations, which is the limit: end some")]
    TooManyHolds,
    /// The call fails with ENOMSG.
    #[error("no message has this position: the queue has fewer messages")]
    NoMessage,
    /// The call fails with ENOENT.
    #[error("no queue has this name in {}: correct the name, create the queue, or set UMSG_DIR to another directory", .0.display())]
    NotFound(PathBuf),
    #[error(transparent)]
    Open(#[from] OpenError),
    #[error(transparent)]
    Unlink(#[from] UnlinkError),
    #[error(transparent)]
    Send(#[from] SendError),
    #[error(transparent)]
    Receive(#[from] ReceiveError),
    #[error(transparent)]
    Lease(#[from] LeaseError),
    /// A dead letter was not sent back.
    #[error(transparent)]
    Redrive(RedriveFailure),
    #[error(transparent)]
    Notify(#[from] NotifyError),
    #[error(transparent)]
    Snapshot(#[from] SnapshotError),
    #[error(transparent)]
    Restore(#[from] RestoreError),
    #[error(transparent)]
    Namespace(#[from] NamespaceError),
    /// An error of a queue that the program polls.
    #[error("the queue can't be polled: {0}")]
    Poll(std::io::Error),
    /// An error of a System V queue.
    #[error(transparent)]
    SystemV(#[from] msg::Refusal),
    /// An error of a ring.
    #[error(transparent)]
    Ring(#[from] ring::Refusal),
    /// The error of a system call.
    #[error(transparent)]
    System(#[from] std::io::Error),
    /// The call fails with E2BIG.
    #[error("the message is longer than the buffer of {0} bytes")]
    TooShort(usize),
}

impl Failure {
    pub(crate) fn errno(&self) -> c_int {
        match self {
            Failure::NotOpen => libc::EBADF,
            Failure::BadAddress(_) => libc::EFAULT,
            Failure::BadTime | Failure::Invalid(_) => libc::EINVAL,
            Failure::TooNew | Failure::TooShort(_) => libc::E2BIG,
            Failure::TooManyHandles | Failure::TooManyHolds => libc::EMFILE,
            Failure::NoMessage => libc::ENOMSG,
            Failure::NotFound(_) => libc::ENOENT,
            Failure::Open(error) => error.errno(),
            Failure::Unlink(error) => error.errno(),
            Failure::Send(error) => error.errno(),
            Failure::Receive(error) => error.errno(),
            Failure::Lease(error) => error.errno(),
            Failure::Redrive(error) => error.errno(),
            Failure::Notify(error) => error.errno(),
            Failure::Snapshot(error) => error.errno(),
            Failure::Restore(error) => error.errno(),
            Failure::Namespace(error) => error.errno(),
            Failure::Poll(error) => error.raw_os_error().unwrap_or(libc::EIO),
            Failure::SystemV(refusal) => refusal.errno(),
            Failure::Ring(refusal) => refusal.errno(),
            Failure::System(error) => error.raw_os_error().unwrap_or(libc::EIO),
        }
    }
}

/// The calling thread's last failure, and its text after the first request for the text.
struct Last {
    failure: Option<Failure>,
    text: CString,
}

thread_local! {
    static LAST: RefCell<Last> = RefCell::new(Last {
        failure: None,
        text: CString::default(),
    });
}

/// Returns the result of a call, or sets errno, stores the reason, and returns -1.
#[inline(always)]
pub(crate) fn answer<T: From<i8>>(result: Result<T, Failure>) -> T {
    result.unwrap_or_else(|failure| {
        fail(failure);
        T::from(-1)
    })
}

/// Sets errno and remembers the reason.
#[cold]
pub(crate) fn fail(failure: Failure) {
    let errno = failure.errno();
    remember(failure);
    // SAFETY: libc returns the address of the calling thread's own errno.
    unsafe { *libc::__errno_location() = errno };
}

/// Remembers the reason, without setting errno.
#[cold]
pub(crate) fn remember(failure: Failure) {
    // If a signal handler interrupted this store, or the thread is ending, the reason is lost.
    let _ = LAST.try_with(|last| {
        if let Ok(mut last) = last.try_borrow_mut() {
            last.failure = Some(failure);
        }
    });
}

/// Returns the reason why the calling thread's last failed call failed.
///
/// errno names the kind of error, and the manual page lists its possible causes. The text states the cause of the thread's last error, with names and
/// numbers: which limit, which directory, and what to do. The text is in English and has no full stop or line feed at its end. A call that succeeds
/// does not change the text.
///
/// # Return value
/// The call returns a text, never NULL. If no call of this thread has failed, the text is empty. The text is valid until the thread calls this
/// function again or ends.
///
/// # Errors
/// None.
///
/// # If the process dies
/// The text is lost.
///
/// # See also
/// errno(3), umsg_mq_open(3)
#[unsafe(no_mangle)]
pub extern "C" fn umsg_last_error() -> *const c_char {
    let text = LAST.try_with(|last| {
        let mut last = last.try_borrow_mut().ok()?;
        if let Some(failure) = last.failure.take() {
            // Paths and names contain no NUL, so the conversion succeeds.
            last.text = CString::new(failure.to_string()).unwrap_or_default();
        }
        Some(last.text.as_ptr())
    });
    text.ok().flatten().unwrap_or(c"".as_ptr())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ffi::CStr;

    fn last() -> String {
        // SAFETY: the result is a C string that lives until the next call on this thread.
        unsafe { CStr::from_ptr(umsg_last_error()) }
            .to_str()
            .unwrap()
            .to_owned()
    }

    #[test]
    fn each_thread_has_a_last_error_of_its_own_which_stays() {
        assert_eq!(last(), "");
        assert_eq!(answer::<c_int>(Err(Failure::Send(SendError::Full))), -1);
        assert_eq!(last(), SendError::Full.to_string());
        assert_eq!(answer::<c_int>(Ok(0)), 0);
        assert_eq!(last(), SendError::Full.to_string());
        assert_eq!(std::thread::spawn(last).join().unwrap(), "");
    }

    #[test]
    fn a_failure_sets_errno() {
        fail(Failure::NotOpen);
        let errno = std::io::Error::last_os_error().raw_os_error();
        assert_eq!(errno, Some(libc::EBADF));
    }
}
