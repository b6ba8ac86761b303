//! System V queues: receiving.
//!
//! The order of the checks, as in the kernel: length and flags, the queue, the permission, whether there is a message, the length of the message, and
//! last the addresses. So a message is lost if its address is bad.

use std::ffi::{c_int, c_long, c_void};
use std::time::SystemTime;

use libc::{size_t, ssize_t, timespec};
use umsg::sysv::Received;
use umsg::sysv::raw::{self, Used, Which};

use super::{Refusal, until};
use crate::error::{Failure, answer};
use crate::pointer;
use crate::time;

/// Receives a message from a System V queue.
///
/// Removes the first matching message from the queue, and writes its type, a `long`, to `msgp` and its bytes after the type; `msgsz` is the
/// room for the bytes. `msgtyp` selects the message:
///
/// - 0: the oldest message
/// - above 0: the oldest message of this type; with `MSG_EXCEPT` in `msgflg`, the oldest message of any other type
/// - below 0: the oldest message of the lowest type in the queue that is at most the absolute value of `msgtyp`
///
/// If there is no such message, the call waits until one comes; with `IPC_NOWAIT` in `msgflg` it fails. If several calls wait for
/// the same message, the call that has waited longest gets it. The number of other messages does not change the cost of receiving by type.
///
/// A message that is longer than `msgsz` stays in the queue and the call fails; with `MSG_NOERROR` the call receives its first `msgsz` bytes, and the
/// other bytes are lost. With `MSG_COPY` and `IPC_NOWAIT`, `msgtyp` is a position in order of arrival, from 0. The message at this position is copied
/// and stays in the queue; umsg_msg_peek(3) also returns its sender and time.
///
/// If `msgp` can't be written, the message is lost. The function is not a cancellation point of pthread_cancel(3).
///
/// # Return value
/// On success, the call returns the number of bytes that were written after the type. On error, -1 is returned, and errno is set to indicate the
/// error.
///
/// # Errors
/// - `E2BIG`: the message is longer than `msgsz`, and `msgflg` lacks `MSG_NOERROR`. The message is still in the queue, or another receiver got it.
/// - `EACCES`: the queue's mode does not let the caller receive.
/// - `EBADMSG`: the queue's memory is corrupted: it holds values that no operation writes.
/// - `EDEADLK`: the call was made by a signal handler that interrupted a call on the same queue; see umsg_defer_signal(3).
/// - `EFAULT`: `msgp` is at an address that can't be written.
/// - `EIDRM`: the queue was removed while the call waited.
/// - `EINTR`: a signal handler ran while the call waited, whether it was installed with `SA_RESTART` or not.
/// - `EINVAL`: no queue has the identifier `msqid`, or that queue was removed; `msgsz` is larger than `SSIZE_MAX`; or
///   `msgflg` has `MSG_COPY` without `IPC_NOWAIT`, with `MSG_EXCEPT`, or with `MSG_NOERROR` and the message is longer than `msgsz`.
/// - `ENOMEM`: the system has no memory left.
/// - `ENOMSG`: `msgflg` has `IPC_NOWAIT`, and there is no such message, or a stopped process has held a lock of this queue for more
///   than a second.
/// - `EPIPE`: the end of the stream: the queue was closed by umsg_msg_close_send(3), and no matching message is left or can come back.
///
/// # If the process dies
/// Before the call returns, the message is still in the queue, or lost if it was already copied out. umsg_msg_lease(3) does not
/// lose the message.
///
/// # See also
/// umsg_msg_lease(3), umsg_msg_receive_batch(3), umsg_msg_timedreceive(3), umsg_msgsnd(3), msgrcv(2)
#[unsafe(no_mangle)]
pub unsafe extern "C" fn umsg_msgrcv(
    msqid: c_int,
    msgp: *mut c_void,
    msgsz: size_t,
    msgtyp: c_long,
    msgflg: c_int,
) -> ssize_t {
    // SAFETY: the caller promises a writable long that is followed by `msgsz` writable bytes. NULL means no time-out.
    unsafe { call(msqid, msgp, msgsz, msgtyp, msgflg, std::ptr::null()) }
}

/// Receives a message from a System V queue, and waits for a message at most until a deadline.
///
/// Does the same as umsg_msgrcv(3), but a call that waits ends at `abs_timeout`, a time of the clock `CLOCK_REALTIME`; NULL means no limit. If there
/// is a message, the call ignores the time. With `IPC_NOWAIT` in `msgflg`, the call does not wait.
///
/// # Return value
/// On success, the call returns the number of bytes that were written after the type. On error, -1 is returned, and errno is set to indicate the
/// error.
///
/// # Errors
/// The errors of umsg_msgrcv(3), and these:
///
/// - `EFAULT`: `abs_timeout` is at an address that can't be read.
/// - `EINVAL`: `tv_sec` of `abs_timeout` is negative, or `tv_nsec` is not from 0 to 999,999,999.
/// - `ETIMEDOUT`: the deadline passed before a wanted message came.
///
/// # If the process dies
/// The same as for umsg_msgrcv(3).
///
/// # See also
/// umsg_msg_timedsend(3), umsg_msgrcv(3), clock_gettime(2)
#[unsafe(no_mangle)]
pub unsafe extern "C" fn umsg_msg_timedreceive(
    msqid: c_int,
    msgp: *mut c_void,
    msgsz: size_t,
    msgtyp: c_long,
    msgflg: c_int,
    abs_timeout: *const timespec,
) -> ssize_t {
    // SAFETY: the caller promises NULL or a readable timespec, and a writable long that is followed by `msgsz` writable bytes.
    unsafe { call(msqid, msgp, msgsz, msgtyp, msgflg, abs_timeout) }
}

/// # Safety
/// `timeout` is NULL, readable, or an address that a pointer check refuses; otherwise the conditions of [`Call::run`].
#[inline(always)]
unsafe fn call(
    id: c_int,
    message: *mut c_void,
    len: size_t,
    mtype: c_long,
    flags: c_int,
    timeout: *const timespec,
) -> ssize_t {
    let call = Call {
        id,
        message: message.cast(),
        len,
        mtype,
        flags,
    };
    // SAFETY: by this function's contract.
    answer(unsafe { time::deadline(timeout).and_then(|deadline| call.run(deadline)) })
}

struct Call {
    id: c_int,
    /// The address of the message: its type, followed by its text.
    message: *mut c_long,
    len: size_t,
    mtype: c_long,
    flags: c_int,
}

impl Call {
    /// # Safety
    /// `message` is an address that a pointer check refuses, or has a writable long, followed by `len` writable bytes. If the longest possible
    /// message is shorter than `len`, the bytes of that message are enough.
    #[inline(always)]
    unsafe fn run(&self, deadline: Option<SystemTime>) -> Result<ssize_t, Failure> {
        if self.len > isize::MAX.cast_unsigned() {
            return Err(Failure::Invalid("msgsz is larger than SSIZE_MAX"));
        }
        let which = Which::of(self.mtype, self.flags).map_err(|_| WRONG_COPY)?;
        if pointer::is_bad(self.message) {
            return self.receive_nowhere(which, deadline);
        }
        let queue = self.find()?;
        let room = self.len.min(queue.msgmax());
        // SAFETY: by this function's contract. No message of the queue has more bytes, and bytes need no alignment.
        let buffer = unsafe { std::slice::from_raw_parts_mut(self.message.add(1).cast(), room) };
        let received = self.receive(queue, buffer, which, deadline)?;
        // SAFETY: by this function's contract. The address need not be aligned, as in the kernel.
        unsafe { self.message.write_unaligned(received.mtype) };
        Ok(received.len.cast_signed())
    }

    #[inline(always)]
    fn find(&self) -> Result<Used, Failure> {
        raw::find(self.id).map_err(|errno| Refusal::of_receive(errno, self.id).into())
    }

    #[inline(always)]
    fn receive(
        &self,
        queue: Used,
        buffer: &mut [u8],
        which: Which,
        deadline: Option<SystemTime>,
    ) -> Result<Received, Failure> {
        let received = match queue.try_receive_until_end(buffer, which) {
            Err(libc::ENOMSG) if self.flags & libc::IPC_NOWAIT == 0 => {
                let received = queue.receive_until_end(buffer, which, until(self.flags, deadline));
                drop(queue);
                raw::reap();
                received
            }
            outcome => outcome,
        };
        received.map_err(|errno| self.refused(errno, which))
    }

    /// Receives into a buffer at an impossible address: the message is consumed, as in the kernel. With MSG_COPY, the call fails before it copies.
    #[cold]
    fn receive_nowhere(
        &self,
        which: Which,
        deadline: Option<SystemTime>,
    ) -> Result<ssize_t, Failure> {
        if matches!(which, Which::Copy(..)) && self.len > 0 {
            return Err(Failure::BadAddress("msgp"));
        }
        let queue = self.find()?;
        let mut elsewhere = vec![0; self.len.min(queue.msgmax())];
        self.receive(queue, &mut elsewhere, which, deadline)?;
        Err(Failure::BadAddress("msgp"))
    }

    #[cold]
    fn refused(&self, errno: c_int, which: Which) -> Failure {
        match (errno, which) {
            (libc::E2BIG, _) => Failure::TooShort(self.len),
            (libc::ENOMSG, Which::Copy(..)) => Failure::NoMessage,
            (libc::EINVAL, Which::Copy(_, true)) => WRONG_COPY,
            _ => Refusal::of_receive(errno, self.id).into(),
        }
    }
}

const WRONG_COPY: Failure = Failure::Invalid(
    "MSG_COPY requires IPC_NOWAIT, excludes MSG_EXCEPT, and does not truncate messages",
);
