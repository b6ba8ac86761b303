//! POSIX queues: dead letters, their histories, and sending them back.

use std::ffi::{c_char, c_int};
use std::os::unix::ffi::OsStrExt;

use libc::{pid_t, size_t, ssize_t};
use umsg::posix::{DeadReason, History, Redrive};

use crate::error::{Failure, answer};
use crate::handle::{self, umsg_mqd_t};
use crate::lease::umsg_mq_lease;
use crate::leases;
use crate::pointer;
use crate::status::write_as_far_as_known;
use crate::time::told;

/// The message left its source queue for an unknown reason: the queue's memory has a reason code that no operation writes.
pub const UMSG_DEAD_UNKNOWN: c_int = 0;
/// The message was older than the source queue's time to live.
pub const UMSG_DEAD_EXPIRED: c_int = 1;
/// The message was leased and returned as often as the source queue allows.
pub const UMSG_DEAD_UNDELIVERED: c_int = 2;
/// The source queue was full and dropped its oldest message.
pub const UMSG_DEAD_DROPPED: c_int = 3;

/// The history of a dead letter, or of a dead letter that was sent back. Times are in nanoseconds since 1970, accurate to a few
/// milliseconds; 0 means never or unknown.
///
/// Every process that may use the queue can forge a history.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct umsg_mq_history {
    /// An identifier that no other message of the queue has.
    pub id: u64,
    /// The time of the first send.
    pub sent: i64,
    /// The time of the first delivery on a lease.
    pub first_delivery: i64,
    /// The time of the last delivery on a lease.
    pub last_delivery: i64,
    /// The time at which the message last left its source queue.
    pub dead: i64,
    /// Real user id of the first sender; -1 if unknown.
    pub uid: i64,
    /// Process id of the first sender.
    pub pid: pid_t,
    /// The number of deliveries on a lease, summed over all stays of the message in a source queue.
    pub deliveries: u32,
    /// The number of times that the message was sent back.
    pub redrives: u32,
    /// The reason: one of UMSG_DEAD_EXPIRED, UMSG_DEAD_UNDELIVERED, UMSG_DEAD_DROPPED and UMSG_DEAD_UNKNOWN.
    pub reason: u32,
    /// The name of the queue that the message comes from; empty if unknown.
    pub source: [c_char; 264],
}

/// Selects the dead letters that umsg_mq_redrive sends back, and their destination. If a member is 0 or NULL, it does not restrict the selection.
///
/// Initialise the structure by `struct umsg_mq_redrive which = {.size = sizeof which};` and set further members by name, because a later version of
/// the library may have more members.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct umsg_mq_redrive {
    /// sizeof(struct umsg_mq_redrive). The library learns from this size which members the program knows.
    pub size: size_t,
    /// The queue of the same namespace to which the messages are sent; NULL for the queue from which each message comes.
    pub to: *const c_char,
    /// Select only messages that come from this queue.
    pub source: *const c_char,
    /// Select only the message with this `id`.
    pub id: u64,
    /// Select at most this many messages, in order of delivery.
    pub count: u64,
    /// Select only messages that left their source for this reason.
    pub reason: u32,
    /// The program sets this field to 0.
    pub reserved: u32,
}

/// The size of the first version of the structure.
const LEAST: size_t = 48;
/// The maximum size of any version of the structure, as for umsg_mq_options.
const MOST: size_t = 4096;

/// Gets the history of a leased message.
///
/// `lease` is a lease of umsg_mq_lease(3). If the message is a dead letter, or a dead letter that was sent back, the call writes its history to
/// `history`. `size` is `sizeof(struct umsg_mq_history)`: a program that was compiled with an older `umsg.h` gets the members that it knows.
///
/// # Return value
/// On success, the call returns 1 if the message has a history, and 0 if it has none. On error, -1 is returned, and errno is set to indicate the
/// error.
///
/// # Errors
/// - `EBADMSG`: the queue's memory is corrupted: it holds values that no operation writes.
/// - `EDEADLK`: the call was made by a signal handler that interrupted a call on the same queue.
/// - `EFAULT`: `lease` or `history` is at an address that can't be read or written.
/// - `EINVAL`: this process has no such lease.
/// - `ESTALE`: a time limit or another thread has ended the lease, or the calling process is a forked child of the lease's holder.
///
/// # If the process dies
/// The lease ends, and the message goes back to its old place in the queue.
///
/// # See also
/// umsg_mq_dead_letter(3), umsg_mq_lease(3), umsg_mq_redrive(3)
#[unsafe(no_mangle)]
pub unsafe extern "C" fn umsg_mq_lease_history(
    lease: *const umsg_mq_lease,
    history: *mut umsg_mq_history,
    size: size_t,
) -> c_int {
    let tell = || {
        pointer::check(history, "history")?;
        // SAFETY: the caller promises a readable lease.
        let found = unsafe { leases::with(lease, umsg::posix::Lease::history)? };
        // SAFETY: the caller promises `size` writable bytes.
        Ok(unsafe { write(found.as_ref(), history, size) })
    };
    answer(tell())
}

/// Gets the history of a dead letter in a queue.
///
/// `n` counts the messages that have a history, in order of delivery, from 0. A message that was sent back to this queue does not count. The messages
/// stay in the queue. `size` is `sizeof(struct umsg_mq_history)`, as for umsg_mq_lease_history(3). Other receivers wait during the call, for a time in
/// proportion to the number of messages.
///
/// # Return value
/// On success, the call returns 1, or 0 if the queue has at most `n` messages with a history. On error, -1 is returned, and errno is set to indicate
/// the error.
///
/// # Errors
/// The errors of umsg_mq_peek(3), except `ENOMSG`.
///
/// # If the process dies
/// The call changes nothing.
///
/// # See also
/// umsg(1), umsg_mq_lease_history(3), umsg_mq_peek(3), umsg_mq_redrive(3)
#[unsafe(no_mangle)]
pub unsafe extern "C" fn umsg_mq_dead_letter(
    mqdes: umsg_mqd_t,
    n: size_t,
    history: *mut umsg_mq_history,
    size: size_t,
) -> c_int {
    let tell = || {
        let held = handle::hold(mqdes)?;
        pointer::check(history, "history")?;
        let first = Redrive::new().count(n.saturating_add(1));
        let found = held.queue.dead_letters(&first)?;
        // SAFETY: the caller promises `size` writable bytes.
        Ok(unsafe { write(found.get(n), history, size) })
    };
    answer(tell())
}

/// Sends dead letters back to the queues from which they come.
///
/// `mqdes` is the handle of a dead-letter queue, opened for receiving. `which` selects messages; NULL selects all. A message enters its queue after
/// the other messages of its priority, and its deliveries are counted from 0 again. The message keeps its bytes, its priority and its history.
///
/// If `to` is NULL, a message goes to the queue that its history names. That queue must have the same owner as the dead-letter queue, and
/// must use this dead-letter queue. If `to` is set, all selected messages go to that queue, without this check.
///
/// A message stays in the dead-letter queue if the other queue does not take it. The call still sends the remaining messages. umsg_last_error(3)
/// returns the reason why a message stayed, even if the call sent other messages. The call does not wait for room.
///
/// # Return value
/// On success, the call returns the number of messages that were sent back. On error, -1 is returned, and errno is set to indicate the error. If no
/// message was sent back and a queue refused a message, the call fails with the reason.
///
/// # Errors
/// - `E2BIG`: a member that this version of the library does not know is not 0.
/// - `EACCES`: the other queue's mode does not let the caller send to it.
/// - `EAGAIN`: the other queue is full.
/// - `EBADF`: `mqdes` is not the handle of an open queue, or was not opened for receiving.
/// - `EBADMSG`: the memory of one of the queues is corrupted: it holds values that no operation writes.
/// - `EDEADLK`: the call was made by a signal handler that interrupted a call on the same queue.
/// - `EFAULT`: `which` or one of its texts is at an address that can't be read.
/// - `EINVAL`: `size` or `reason` has no valid value, `reserved` is not 0, or `to` is the dead-letter queue itself.
/// - `EMSGSIZE`: the message is longer than the other queue's message size.
/// - `ENOENT`: the other queue does not exist, or the history names no queue.
/// - `ENOMEM`, `ENOSPC`: the system has no memory left, or the namespace's file system is full.
/// - `EPERM`: the queue from which the message came belongs to another user than the dead-letter queue.
/// - `EPIPE`: the other queue is closed for sending.
/// - `ESTALE`: the queue from which the message came does not have this queue as its dead-letter queue.
///
/// # If the process dies
/// No message is lost, and none is in two queues. The message that the call was sending stays in the dead-letter queue, where receivers don't see the
/// message. The next call, or `umsg redrive`, completes the move or returns the message to this queue.
///
/// # See also
/// umsg(1), umsg_mq_close_send(3), umsg_mq_dead_letter(3), umsg_mq_open_with(3)
#[unsafe(no_mangle)]
pub unsafe extern "C" fn umsg_mq_redrive(
    mqdes: umsg_mqd_t,
    which: *const umsg_mq_redrive,
) -> ssize_t {
    let send = || {
        let held = handle::hold(mqdes)?;
        // SAFETY: the caller promises NULL, or a structure as long as its first member says, with texts that are NULL or strings.
        let which = unsafe { selection(which)? };
        let done = held.queue.redrive(&which)?;
        match done.refused.into_iter().next() {
            Some(refused) if done.messages == 0 => Err(Failure::Redrive(refused.why)),
            Some(refused) => {
                crate::error::remember(Failure::Redrive(refused.why));
                Ok(done.messages as ssize_t)
            }
            None => Ok(done.messages as ssize_t),
        }
    };
    match send() {
        Ok(messages) => messages,
        Err(failure) => answer(Err::<i8, _>(failure)).into(),
    }
}

/// # Safety
/// `which` is NULL, or a structure whose first member is its length and whose texts are NULL or strings, or an address that a pointer check
/// refuses.
unsafe fn selection(which: *const umsg_mq_redrive) -> Result<Redrive, Failure> {
    let mut selected = Redrive::new();
    // SAFETY: by this function's contract; the size is the first member.
    let Some(size) = (unsafe { pointer::read(which.cast::<size_t>(), "which")? }) else {
        return Ok(selected);
    };
    if !(LEAST..=MOST).contains(&size) {
        return Err(Failure::Invalid(
            "the member `size` must be sizeof(struct umsg_mq_redrive)",
        ));
    }
    // SAFETY: by this function's contract, the structure has `size` readable bytes; zero is a valid value of every member.
    let which: umsg_mq_redrive = unsafe { pointer::read_as_far_as_known(which, size)? };
    if which.reserved != 0 {
        return Err(Failure::Invalid("reserved must be 0"));
    }
    if !which.to.is_null() {
        // SAFETY: by this function's contract.
        selected = selected.to(unsafe { pointer::text(which.to, "to")? });
    }
    if !which.source.is_null() {
        // SAFETY: by this function's contract.
        selected = selected.source(unsafe { pointer::text(which.source, "source")? });
    }
    if which.id != 0 {
        selected = selected.id(which.id);
    }
    if which.count != 0 {
        selected = selected.count(usize::try_from(which.count).unwrap_or(usize::MAX));
    }
    Ok(match which.reason.cast_signed() {
        0 => selected,
        UMSG_DEAD_EXPIRED => selected.reason(DeadReason::Expired),
        UMSG_DEAD_UNDELIVERED => selected.reason(DeadReason::Undelivered),
        UMSG_DEAD_DROPPED => selected.reason(DeadReason::Dropped),
        _ => {
            return Err(Failure::Invalid(
                "reason must be 0, UMSG_DEAD_EXPIRED, UMSG_DEAD_UNDELIVERED or UMSG_DEAD_DROPPED",
            ));
        }
    })
}

/// Writes a history, if there is one. Returns whether there is one.
///
/// # Safety
/// `to` has `size` writable bytes.
unsafe fn write(history: Option<&History>, to: *mut umsg_mq_history, size: size_t) -> c_int {
    let Some(history) = history else {
        return 0;
    };
    // SAFETY: by this function's contract.
    unsafe { write_as_far_as_known(&in_c(history), to, size) };
    1
}

fn in_c(history: &History) -> umsg_mq_history {
    let mut source = [0; 264];
    let room = source.len() - 1;
    let name = history.source.as_deref().unwrap_or_default();
    for (to, from) in source[..room].iter_mut().zip(name.as_bytes()) {
        *to = *from as c_char;
    }
    let reason = match history.reason {
        DeadReason::Expired => UMSG_DEAD_EXPIRED,
        DeadReason::Undelivered => UMSG_DEAD_UNDELIVERED,
        DeadReason::Dropped => UMSG_DEAD_DROPPED,
        _ => UMSG_DEAD_UNKNOWN,
    };
    umsg_mq_history {
        id: history.id,
        sent: told(Some(history.sent)),
        first_delivery: told(history.first_delivery),
        last_delivery: told(history.last_delivery),
        dead: told(Some(history.dead)),
        uid: history.uid.map_or(-1, i64::from),
        pid: history.pid.cast_signed(),
        deliveries: history.deliveries,
        redrives: history.redrives,
        reason: reason.cast_unsigned(),
        source,
    }
}
