//! System V queues: the status of a queue.

use std::ffi::c_int;
use std::time::Duration;

use libc::size_t;
use umsg::sysv::Status;

use super::refusal::{Refusal, find};
use crate::error::answer;
use crate::pointer;
use crate::status::write_as_far_as_known;
use crate::time::told;

/// The status of a System V queue, without its messages. Times are in nanoseconds since 1970; 0 means never. The times of the last calls are
/// accurate to a second. Counts of events begin with the creation of the queue.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct umsg_msg_status {
    /// The number of queued messages.
    pub messages: u64,
    /// The number of bytes in the queued messages.
    pub bytes: u64,
    /// The maximum number of queued bytes.
    pub qbytes: u64,
    /// The maximum length of a message, in bytes.
    pub msgmax: u64,
    /// The queue's identifier.
    pub id: i32,
    /// The queue's key; 0 if it has none.
    pub key: i32,
    /// Permission bits.
    pub mode: u32,
    /// The owner's user id.
    pub uid: u32,
    /// The owner's group id.
    pub gid: u32,
    /// The creator's user id.
    pub cuid: u32,
    /// The creator's group id.
    pub cgid: u32,
    /// Process id of the creator.
    pub creator: u32,
    /// Process id of the last sender; 0 if there was none.
    pub last_sender: u32,
    /// Process id of the last receiver; 0 if there was none.
    pub last_receiver: u32,
    /// The time of the queue's creation.
    pub created: i64,
    /// The time of the creation, or of the last change of owner, mode or size.
    pub changed: i64,
    /// The time of the last send.
    pub last_send: i64,
    /// The time of the last receive.
    pub last_receive: i64,
    /// Threads that wait for room.
    pub blocked_senders: u64,
    /// Threads that wait for a message.
    pub blocked_receivers: u64,
    /// Messages that were received in place and not acknowledged; they count for the capacity.
    pub leased: u64,
    /// The number of bytes in the leased and the delayed messages.
    pub leased_bytes: u64,
    /// Bytes of memory in use by slots and blocks.
    pub memory: u64,
    /// Sends that found no room and waited.
    pub sends_blocked: u64,
    /// Receives that found no wanted message and waited.
    pub receives_blocked: u64,
    /// Messages handed to a waiting receiver.
    pub handed_over: u64,
    /// Waits that ended while their thread was still spinning.
    pub spins_paid: u64,
    /// Waits that ended with a time-out or a signal.
    pub given_up: u64,
    /// Waiting threads that were found dead.
    pub waiters_died: u64,
    /// Leased messages that went back to the queue.
    pub returned: u64,
    /// Repairs after a death.
    pub repairs: u64,
    /// 1 if a call has found the queue's memory corrupted, with values that no operation writes; otherwise 0.
    pub damaged: u64,
    /// The number of messages that were sent or returned for a later delivery and still wait for their delivery time; they count for the capacity.
    pub delayed: u64,
    /// 1 if the queue is closed for sending, by umsg_msg_close_send(3) or by the end of its last producer; otherwise 0.
    pub send_closed: u64,
    /// The number of living processes that are counted as producers; always 0 for a queue without UMSG_CLOSE_WITH_LAST_PRODUCER.
    pub producers: u64,
    /// The delay, in nanoseconds, before a message is delivered again after its first return; 0 for no delay.
    pub retry_delay: u64,
    /// The maximum of the growing retry delay, in nanoseconds.
    pub retry_delay_max: u64,
}

/// Gets the complete status of a System V queue.
///
/// Writes the status of the queue to `status`, with all counts as they are at one instant. `size` is `sizeof(struct umsg_msg_status)`: a program that
/// was compiled with an older `umsg.h` has a shorter structure, and gets the members that it knows. In a program that was compiled with a newer
/// `umsg.h`, the members that this library does not know are set to 0.
///
/// # Return value
/// On success, the call returns 0. On error, -1 is returned, and errno is set to indicate the error.
///
/// # Errors
/// - `EACCES`: the queue's mode does not let the caller receive.
/// - `EAGAIN`: a stopped process has held a lock of this queue for more than a second.
/// - `EBADMSG`: the queue's memory is corrupted: it holds values that no operation writes.
/// - `EDEADLK`: the call was made by a signal handler that interrupted a call on the same queue.
/// - `EFAULT`: `status` is at an address that can't be written.
/// - `EIDRM`: the queue was removed during the call.
/// - `EINVAL`: no queue has the identifier `msqid`, or that queue was removed.
///
/// # If the process dies
/// The call changes nothing.
///
/// # See also
/// umsg(1), umsg_msg_peek(3), umsg_msg_types(3), umsg_msgctl(3)
#[unsafe(no_mangle)]
pub unsafe extern "C" fn umsg_msg_status(
    msqid: c_int,
    status: *mut umsg_msg_status,
    size: size_t,
) -> c_int {
    let tell = || {
        let queue = find(msqid)?;
        pointer::check(status, "status")?;
        let told = in_c(&queue.status().map_err(Refusal::from)?);
        // SAFETY: the caller promises `size` writable bytes.
        unsafe { write_as_far_as_known(&told, status, size) };
        Ok(0)
    };
    answer(tell())
}

fn in_c(status: &Status) -> umsg_msg_status {
    let (entry, counted) = (&status.entry, &status.statistics);
    let nanoseconds = |time: Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
    let delay = status.retry_delay;
    let (first, most) = delay.map_or((0, 0), |(a, b)| (nanoseconds(a), nanoseconds(b)));
    umsg_msg_status {
        messages: entry.messages,
        bytes: entry.bytes,
        qbytes: entry.qbytes,
        msgmax: status.msgmax as u64,
        id: entry.id,
        key: entry.key,
        mode: entry.mode,
        uid: entry.uid,
        gid: entry.gid,
        cuid: entry.cuid,
        cgid: entry.cgid,
        creator: status.creator,
        last_sender: entry.last_sender,
        last_receiver: entry.last_receiver,
        created: told(Some(status.created)),
        changed: told(entry.changed),
        last_send: told(entry.last_send),
        last_receive: told(entry.last_receive),
        blocked_senders: status.blocked_senders as u64,
        blocked_receivers: status.blocked_receivers as u64,
        leased: status.leased,
        leased_bytes: status.leased_bytes,
        memory: status.memory,
        sends_blocked: counted.sends_blocked,
        receives_blocked: counted.receives_blocked,
        handed_over: counted.handed_over,
        spins_paid: counted.spins_paid,
        given_up: counted.given_up,
        waiters_died: counted.waiters_died,
        returned: counted.returned,
        repairs: counted.repairs.into(),
        damaged: status.damaged.into(),
        delayed: status.delayed,
        send_closed: status.send_closed.into(),
        producers: status.producers as u64,
        retry_delay: first,
        retry_delay_max: most,
    }
}
