//! POSIX queues: the status of a queue.

use std::ffi::{OsStr, c_char, c_int};
use std::os::unix::ffi::OsStrExt;
use std::time::Duration;

use libc::size_t;
use umsg::posix::{OnFull, Status};

use crate::error::{Failure, answer};
use crate::handle::{self, umsg_mqd_t};
use crate::options::{UMSG_ON_FULL_BLOCK, UMSG_ON_FULL_DROP_OLDEST, UMSG_ON_FULL_FAIL};
use crate::pointer;
use crate::time::told;

/// The status of a queue, without its messages. Times are in nanoseconds since 1970, accurate to a few milliseconds; 0 means never. Counts
/// of events begin with the creation of the queue.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct umsg_mq_status {
    /// The maximum number of messages in the queue.
    pub max_messages: u64,
    /// The maximum length of a message, in bytes.
    pub message_size: u64,
    /// The number of queued messages.
    pub messages: u64,
    /// The number of bytes in the queued messages.
    pub bytes: u64,
    /// Permission bits.
    pub mode: u32,
    /// The owner's user id.
    pub uid: u32,
    /// The owner's group id.
    pub gid: u32,
    /// Process id of the creator.
    pub creator: u32,
    /// The time of the queue's creation.
    pub created: i64,
    /// The time of the last send.
    pub last_send: i64,
    /// The time of the last receive.
    pub last_receive: i64,
    /// Threads that wait for room.
    pub blocked_senders: u64,
    /// Threads that wait for a message.
    pub blocked_receivers: u64,
    /// The number of slots, in use or free: slightly more than the greatest number of messages and blocked senders that the queue ever had at once.
    pub slots: u64,
    /// Bytes of memory in use by slots and blocks.
    pub memory: u64,
    /// Sends that found the queue full and waited.
    pub sends_blocked: u64,
    /// Receives that found the queue empty and waited.
    pub receives_blocked: u64,
    /// Messages handed to a waiting receiver.
    pub handed_over: u64,
    /// Waits that ended while their thread was still spinning.
    pub spins_paid: u64,
    /// Waits that ended with a time-out or a signal.
    pub given_up: u64,
    /// Waiting threads that were found dead.
    pub waiters_died: u64,
    /// Repairs of the senders' side after a death.
    pub sender_repairs: u64,
    /// Repairs of the receivers' side after a death.
    pub receiver_repairs: u64,
    /// Messages that are written in place and not committed; they count for the capacity.
    pub reserved: u64,
    /// Messages that were received in place and not acknowledged; they count for the capacity.
    pub leased: u64,
    /// Leased messages that went back to the queue.
    pub returned: u64,
    /// The behaviour of a send that finds the queue full: UMSG_ON_FULL_BLOCK, UMSG_ON_FULL_FAIL or UMSG_ON_FULL_DROP_OLDEST.
    pub on_full: u32,
    /// The maximum number of leases of a message; 0 for no limit.
    pub max_deliveries: u32,
    /// The maximum age of a message, in nanoseconds; 0 for no limit.
    pub time_to_live: u64,
    /// The name of the dead-letter queue; empty for none.
    pub dead_letter: [c_char; 264],
    /// The number of messages that are set aside for the dead-letter queue. These messages take memory, but do not count for the capacity.
    pub set_aside: u64,
    /// Messages that were dropped because the queue was full.
    pub dropped: u64,
    /// Messages that were older than the queue's time to live.
    pub expired: u64,
    /// Messages that were moved to the dead-letter queue.
    pub dead_lettered: u64,
    /// 1 if a call has found the queue's memory corrupted, with values that no operation writes; otherwise 0.
    pub damaged: u64,
    /// 1 if the queue is removed when no process has it open any more, else 0.
    pub remove_on_last_close: u64,
    /// 1 if the queue is closed for sending, by umsg_mq_close_send(3) or by the end of its last producer; otherwise 0.
    pub send_closed: u64,
    /// The number of messages that were sent or returned for a later delivery, and still wait for their delivery time; they count for the capacity.
    pub delayed: u64,
    /// 1 if the queue is closed for sending when its last producer ends, else 0.
    pub close_with_last_producer: u64,
    /// The number of living processes that are counted as producers; always 0 for a queue without UMSG_CLOSE_WITH_LAST_PRODUCER.
    pub producers: u64,
    /// The delay before a returned message is delivered again, in nanoseconds; 0 for no delay. The delay doubles after each further delivery.
    pub retry_delay: u64,
    /// The maximum of the growing retry delay, in nanoseconds.
    pub retry_delay_max: u64,
    /// The number of deliveries of higher priorities before a lower priority has its turn; 0 for strict order.
    pub fair_priorities: u64,
    /// 1 if the queue notes the events of its messages (UMSG_TRACE_MESSAGES), else 0.
    pub trace_messages: u64,
}

/// Gets the complete status of a queue.
///
/// Writes the status of the queue to `status`. `size` is `sizeof(struct umsg_mq_status)`: a program that was compiled with an older `umsg.h`
/// has a shorter structure, and gets the members that it knows. In a program that was compiled with a newer `umsg.h`, the members that this
/// library does not know are set to 0.
///
/// # Return value
/// On success, the call returns 0. On error, -1 is returned, and errno is set to indicate the error.
///
/// # Errors
/// - `EBADF`: `mqdes` is not the handle of an open queue.
/// - `EFAULT`: `status` is at an address that can't be written.
///
/// # If the process dies
/// The call changes nothing.
///
/// # See also
/// umsg(1), umsg_mq_getattr(3), umsg_mq_peek(3)
#[unsafe(no_mangle)]
pub unsafe extern "C" fn umsg_mq_status(
    mqdes: umsg_mqd_t,
    status: *mut umsg_mq_status,
    size: size_t,
) -> c_int {
    let tell = || {
        let held = handle::hold(mqdes)?;
        pointer::check(status, "status")?;
        let told = in_c(&held.queue.status());
        // SAFETY: the caller promises `size` writable bytes.
        unsafe { write_as_far_as_known(&told, status, size) };
        Ok::<_, Failure>(0)
    };
    answer(tell())
}

/// Writes the members of the status that the program and the library both know, and sets the program's other members to 0.
///
/// # Safety
/// `status` has `size` writable bytes.
pub(crate) unsafe fn write_as_far_as_known<T: Copy>(told: &T, status: *mut T, size: size_t) {
    let common = size.min(size_of::<T>());
    let from = std::ptr::from_ref(told).cast::<u8>();
    let to = status.cast::<u8>();
    // SAFETY: `common` bytes are in the library's structure and in the program's structure, which do not overlap. By this function's contract, the
    // other bytes of the program's structure are writable.
    unsafe {
        std::ptr::copy_nonoverlapping(from, to, common);
        std::ptr::write_bytes(to.add(common), 0, size - common);
    }
}

fn in_c(status: &Status) -> umsg_mq_status {
    let Status {
        attributes,
        statistics,
        ..
    } = status;
    umsg_mq_status {
        max_messages: attributes.max_messages as u64,
        message_size: attributes.message_size as u64,
        messages: attributes.messages as u64,
        bytes: attributes.bytes,
        mode: status.mode,
        uid: status.uid,
        gid: status.gid,
        creator: status.creator,
        created: told(Some(status.created)),
        last_send: told(status.last_send),
        last_receive: told(status.last_receive),
        blocked_senders: status.blocked_senders as u64,
        blocked_receivers: status.blocked_receivers as u64,
        slots: status.slots as u64,
        memory: status.memory,
        sends_blocked: statistics.sends_blocked,
        receives_blocked: statistics.receives_blocked,
        handed_over: statistics.handed_over,
        spins_paid: statistics.spins_paid,
        given_up: statistics.given_up,
        waiters_died: statistics.waiters_died,
        sender_repairs: statistics.sender_repairs.into(),
        receiver_repairs: statistics.receiver_repairs.into(),
        reserved: attributes.reserved as u64,
        leased: attributes.leased as u64,
        returned: statistics.returned,
        on_full: number_of(status.on_full),
        max_deliveries: status.max_deliveries.unwrap_or(0),
        time_to_live: in_nanoseconds(status.time_to_live),
        dead_letter: text(status.dead_letter.as_deref().unwrap_or_default()),
        set_aside: status.set_aside as u64,
        dropped: statistics.dropped,
        expired: statistics.expired,
        dead_lettered: statistics.dead_lettered,
        damaged: status.damaged.into(),
        remove_on_last_close: status.remove_on_last_close.into(),
        send_closed: status.send_closed.into(),
        delayed: attributes.delayed as u64,
        close_with_last_producer: status.close_with_last_producer.into(),
        producers: status.producers as u64,
        retry_delay: in_nanoseconds(status.retry_delay.map(|(first, _)| first)),
        retry_delay_max: in_nanoseconds(status.retry_delay.map(|(_, most)| most)),
        fair_priorities: status.fair_priorities.unwrap_or(0).into(),
        trace_messages: status.trace_messages.into(),
    }
}

fn number_of(on_full: OnFull) -> u32 {
    let number = match on_full {
        OnFull::Fail => UMSG_ON_FULL_FAIL,
        OnFull::DropOldest => UMSG_ON_FULL_DROP_OLDEST,
        _ => UMSG_ON_FULL_BLOCK,
    };
    number.cast_unsigned()
}

/// Converts a length of time to nanoseconds; `None` becomes 0.
fn in_nanoseconds(time: Option<Duration>) -> u64 {
    let nanoseconds = time.map_or(0, |time| time.as_nanos());
    u64::try_from(nanoseconds).unwrap_or(u64::MAX)
}

/// Returns the name of a queue as C text, padded with NUL bytes. The array has room: a name has at most 256 bytes with its slash.
fn text(name: &OsStr) -> [c_char; 264] {
    let mut text = [0; 264];
    let room = text.len() - 1;
    for (to, from) in text[..room].iter_mut().zip(name.as_bytes()) {
        *to = *from as c_char;
    }
    text
}
