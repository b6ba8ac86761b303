//! System V queues: sending.
//!
//! The order of the checks, as in the kernel: the address of the type, length and type, the queue, the permission, and last the room.

use std::ffi::{c_int, c_long, c_void};
use std::time::SystemTime;

use libc::{size_t, timespec};
use umsg::sysv::raw;

use super::{Refusal, until};
use crate::error::{Failure, answer};
use crate::pointer;
use crate::time;

/// Sends a message to a System V queue.
///
/// `msgp` points to a `long`, the message's type, followed by the `msgsz` bytes of its text, as in the `struct msgbuf` of msgsnd(2). The type is 1
/// or more; receivers select messages by their type. If the queue has no room, the call waits; with `IPC_NOWAIT` in `msgflg` it fails.
/// There is room if the queue, including this message, has at most `msg_qbytes` bytes and at most `msg_qbytes` messages.
///
/// A message may be empty. The function is not a cancellation point of pthread_cancel(3).
///
/// # Return value
/// On success, the call returns 0. On error, -1 is returned, and errno is set to indicate the error.
///
/// # Errors
/// - `EACCES`: the queue's mode does not let the caller send.
/// - `EAGAIN`: `msgflg` has `IPC_NOWAIT`, and there is no room, or a stopped process has held a lock of this queue for more than a
///   second.
/// - `EBADMSG`: the queue's memory is corrupted: it holds values that no operation writes.
/// - `EDEADLK`: the call was made by a signal handler that interrupted a call on the same queue; see umsg_defer_signal(3).
/// - `EFAULT`: `msgp` is at an address that can't be read.
/// - `EIDRM`: the queue was removed while the call waited.
/// - `EINTR`: a signal handler ran while the call waited, whether it was installed with `SA_RESTART` or not.
/// - `EINVAL`: no queue has the identifier `msqid`, or that queue was removed; the type is below 1; or `msgsz` is more than the value of `msgmax`
///   at the creation of the queue.
/// - `ENOMEM`: the system has no memory for the message, or the namespace's file system is full or its limit of bytes is
///   reached.
/// - `EPIPE`: the queue was closed by umsg_msg_close_send(3). No SIGPIPE is raised.
///
/// # If the process dies
/// Before the call returns, the message is either sent completely or not sent.
///
/// # See also
/// umsg_msg_close_send(3), umsg_msg_send_after(3), umsg_msg_send_batch(3), umsg_msg_timedsend(3), umsg_msgget(3), umsg_msgrcv(3), msgsnd(2)
#[unsafe(no_mangle)]
pub unsafe extern "C" fn umsg_msgsnd(
    msqid: c_int,
    msgp: *const c_void,
    msgsz: size_t,
    msgflg: c_int,
) -> c_int {
    // SAFETY: the caller promises a long that is followed by `msgsz` readable bytes. NULL means no time-out.
    unsafe { call(msqid, msgp, msgsz, msgflg, std::ptr::null()) }
}

/// Sends a message to a System V queue, and waits for room at most until a deadline.
///
/// Does the same as umsg_msgsnd(3), but a call that waits ends at `abs_timeout`, a time of the clock `CLOCK_REALTIME`; NULL means no limit. If there
/// is room, the call ignores the time. With `IPC_NOWAIT` in `msgflg`, the call does not wait.
///
/// # Return value
/// On success, the call returns 0. On error, -1 is returned, and errno is set to indicate the error.
///
/// # Errors
/// The errors of umsg_msgsnd(3), and these:
///
/// - `EFAULT`: `abs_timeout` is at an address that can't be read.
/// - `EINVAL`: `tv_sec` of `abs_timeout` is negative, or `tv_nsec` is not from 0 to 999,999,999.
/// - `ETIMEDOUT`: the deadline passed before there was room.
///
/// # If the process dies
/// Before the call returns, the message is either sent completely or not sent.
///
/// # See also
/// umsg_msg_timedreceive(3), umsg_msgsnd(3), clock_gettime(2)
#[unsafe(no_mangle)]
pub unsafe extern "C" fn umsg_msg_timedsend(
    msqid: c_int,
    msgp: *const c_void,
    msgsz: size_t,
    msgflg: c_int,
    abs_timeout: *const timespec,
) -> c_int {
    // SAFETY: the caller promises NULL or a readable timespec, and a long that is followed by `msgsz` readable bytes.
    unsafe { call(msqid, msgp, msgsz, msgflg, abs_timeout) }
}

/// # Safety
/// `timeout` is NULL, readable, or an address that a pointer check refuses. For the message, the conditions of [`Call::run`] hold.
#[inline(always)]
unsafe fn call(
    id: c_int,
    message: *const c_void,
    len: size_t,
    flags: c_int,
    timeout: *const timespec,
) -> c_int {
    let call = Call {
        id,
        message: message.cast(),
        len,
        flags,
    };
    // SAFETY: by this function's contract.
    answer(unsafe { time::deadline(timeout).and_then(|deadline| call.run(deadline)) })
}

struct Call {
    id: c_int,
    /// The address of the message: its type, followed by its text.
    message: *const c_long,
    len: size_t,
    flags: c_int,
}

impl Call {
    /// # Safety
    /// `message` points to a readable long, and if the queue accepts messages of `len` bytes, `len` readable bytes follow the long. Or `message` is
    /// an address that a pointer check refuses.
    #[inline(always)]
    unsafe fn run(&self, deadline: Option<SystemTime>) -> Result<c_int, Failure> {
        pointer::check(self.message, "msgp")?;
        // SAFETY: by this function's contract. The address need not be aligned, as in the kernel.
        let mtype = unsafe { self.message.read_unaligned() };
        let refused = |errno| Refusal::of_send(errno, self.id, mtype, self.len);
        let queue = raw::find_to_send(self.id, mtype, self.len).map_err(refused)?;
        // SAFETY: by this function's contract. `len` is not above the length of the queue's longest message, and bytes need no alignment.
        let text =
            unsafe { std::slice::from_raw_parts(self.message.add(1).cast::<u8>(), self.len) };
        match queue.try_send_unless_closed(mtype, text) {
            Err(libc::EAGAIN) if self.flags & libc::IPC_NOWAIT == 0 => {
                let sent = queue.send_unless_closed(mtype, text, until(self.flags, deadline));
                drop(queue);
                raw::reap();
                sent.map_err(refused)?;
            }
            outcome => outcome.map_err(refused)?,
        }
        Ok(0)
    }
}
