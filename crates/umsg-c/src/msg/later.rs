//! System V queues: sending for a later delivery.

use std::ffi::{c_int, c_long, c_void};
use std::time::{Duration, SystemTime};

use libc::{IPC_NOWAIT, size_t, timespec};
use umsg::sysv::{Queue, SendError, raw};

use super::Refusal;
use crate::error::{Failure, answer};
use crate::pointer;
use crate::time;

/// Sends a message to a System V queue for a later delivery.
///
/// Does the same as umsg_msgsnd(3), but receivers get the message after `delay` nanoseconds at the earliest. The delay applies also to msgrcv(2) of a
/// program under `umsg run`. Until this delivery time, the message takes room in the queue, and is counted in `delayed` of umsg_msg_status(3). At its
/// delivery time, the message enters the queue after the messages that were sent before this time, and ahead of the messages that are sent later. A
/// blocked receiver then wakes up. umsg_msg_pollfd(3) describes what a poller learns.
///
/// If the queue has no room, the call waits until there is room; with `IPC_NOWAIT` in `msgflg` it fails. The delay begins when there is room.
///
/// # Return value
/// On success, the call returns 0. On error, -1 is returned, and errno is set to indicate the error.
///
/// # Errors
/// The errors of umsg_msgsnd(3).
///
/// # If the process dies
/// Before the call returns, the message is either sent completely or not sent. After the call has returned, the message is
/// delivered in any case.
///
/// # See also
/// umsg_msg_return_after(3), umsg_msg_timedsend_after(3), umsg_msgget_with(3), umsg_msgsnd(3)
#[unsafe(no_mangle)]
pub unsafe extern "C" fn umsg_msg_send_after(
    msqid: c_int,
    msgp: *const c_void,
    msgsz: size_t,
    msgflg: c_int,
    delay: u64,
) -> c_int {
    let message = Message {
        id: msqid,
        message: msgp.cast(),
        len: msgsz,
    };
    // SAFETY: the caller promises a long that is followed by `msgsz` readable bytes.
    answer(unsafe { message.send(msgflg, Duration::from_nanos(delay), None) })
}

/// Sends a message to a System V queue for a later delivery, and waits for room at most until a deadline.
///
/// Does the same as umsg_msg_send_after(3), but a call that waits ends at `abs_timeout`, a time of the clock `CLOCK_REALTIME`; NULL means no limit.
/// If there is room, the call ignores the time. With `IPC_NOWAIT` in `msgflg`, the call does not wait.
///
/// # Return value
/// On success, the call returns 0. On error, -1 is returned, and errno is set to indicate the error.
///
/// # Errors
/// The errors of umsg_msg_timedsend(3).
///
/// # If the process dies
/// The same as for umsg_msg_send_after(3).
///
/// # See also
/// umsg_msg_send_after(3), umsg_msg_timedsend(3), clock_gettime(2)
#[unsafe(no_mangle)]
pub unsafe extern "C" fn umsg_msg_timedsend_after(
    msqid: c_int,
    msgp: *const c_void,
    msgsz: size_t,
    msgflg: c_int,
    delay: u64,
    abs_timeout: *const timespec,
) -> c_int {
    let message = Message {
        id: msqid,
        message: msgp.cast(),
        len: msgsz,
    };
    let delay = Duration::from_nanos(delay);
    // SAFETY: the caller promises NULL or a readable timespec, and a long that is followed by `msgsz` readable bytes.
    let sent = unsafe {
        time::deadline(abs_timeout).and_then(|deadline| message.send(msgflg, delay, deadline))
    };
    answer(sent)
}

struct Message {
    id: c_int,
    /// The address of the message: its type, followed by its text.
    message: *const c_long,
    len: size_t,
}

impl Message {
    /// # Safety
    /// `message` has a readable long, followed by `len` readable bytes, if a message can have that many; or `message` is an address that a pointer
    /// check refuses.
    unsafe fn send(
        &self,
        flags: c_int,
        delay: Duration,
        deadline: Option<SystemTime>,
    ) -> Result<c_int, Failure> {
        pointer::check(self.message, "msgp")?;
        // SAFETY: by this function's contract.
        let mtype = unsafe { self.message.read_unaligned() };
        let refused = |errno| Refusal::of_send(errno, self.id, mtype, self.len);
        let used = raw::find_to_send(self.id, mtype, self.len).map_err(refused)?;
        let used = used.unless_removed().map_err(refused)?;
        // SAFETY: by this function's contract. `len` is not above the length of the queue's longest message, and bytes need no alignment.
        let text =
            unsafe { std::slice::from_raw_parts(self.message.add(1).cast::<u8>(), self.len) };
        send(&used, (mtype, text), flags, delay, deadline).map_err(Refusal::from)?;
        Ok(0)
    }
}

fn send(
    queue: &Queue,
    (mtype, text): (c_long, &[u8]),
    flags: c_int,
    delay: Duration,
    deadline: Option<SystemTime>,
) -> Result<(), SendError> {
    match deadline {
        _ if flags & IPC_NOWAIT != 0 => queue.try_send_after(mtype, text, delay),
        None => queue.send_after(mtype, text, delay),
        Some(until) => queue.send_after_deadline(mtype, text, delay, until),
    }
}
