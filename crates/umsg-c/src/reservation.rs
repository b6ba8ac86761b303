//! POSIX queues: sending in place.

use std::ffi::{c_int, c_uint, c_void};
use std::sync::Mutex;

use libc::{size_t, timespec};
use umsg::posix::{Reservation, SendError};

use crate::error::{Failure, answer};
use crate::handle::{self, Held, umsg_mqd_t};
use crate::handles::{Handles, Kept};
use crate::pointer;
use crate::send::MQ_PRIO_MAX;
use crate::time;

/// Room in a queue for a message that is written in place. `id` must not be changed.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct umsg_mq_reservation {
    /// The address of the reserved room; valid until the reservation ends.
    pub data: *mut c_void,
    /// The length of the reserved room, in bytes.
    pub len: size_t,
    /// The identifier of the reservation; 0 after the reservation has ended.
    pub id: u64,
}

/// A reservation, and the value that keeps its queue open.
struct Reserved {
    /// None after a call has taken the reservation to end it. No call waits for this mutex.
    reservation: Mutex<Option<Reservation<'static>>>,
    len: usize,
    /// Keeps the queue open. Fields are dropped in order, so the queue is released after the reservation.
    _held: Held,
}

static RESERVATIONS: Handles<Reserved> = Handles::new();

/// A reservation that a call has taken from the table, to end it. The reservation's identifier is no longer valid.
struct Taken {
    reservation: Reservation<'static>,
    /// Keeps the entry of the table in use. Fields are dropped in order, so the entry is released after the reservation.
    _reserved: Kept<Reserved>,
}

/// Reserves room for a message that is written in place.
///
/// The caller writes up to `len` bytes to `data` of `reservation`, and umsg_mq_commit(3) sends them without copying. At first, the room holds
/// arbitrary bytes, possibly of earlier messages. The reservation counts for the queue's capacity from the beginning. Other senders can send
/// meanwhile: the message follows the messages of its priority that were sent before the commit.
///
/// A call that waits for room ends at `abs_timeout`, a time of the clock `CLOCK_REALTIME`; NULL means no limit. If the handle has `O_NONBLOCK`, the
/// call does not wait, and ignores the time.
///
/// Reservations may be ended in any order and by any thread of the process, also after the handle was closed. A child made
/// by fork(2) does not own its parent's reservations.
///
/// # Return value
/// On success, the call returns 0. On error, -1 is returned, and errno is set to indicate the error.
///
/// # Errors
/// - `EAGAIN`: the queue is full, and the handle has `O_NONBLOCK`.
/// - `EBADF`: `mqdes` is not the handle of an open queue, or was not opened for sending.
/// - `EBADMSG`: the queue's memory is corrupted: it holds values that no operation writes.
/// - `EDEADLK`: the call was made by a signal handler that interrupted a call on the same queue.
/// - `EFAULT`: `reservation` or `abs_timeout` is at an address that can't be written or read.
/// - `EINTR`: a signal handler ran while the call waited.
/// - `EINVAL`: `tv_sec` of `abs_timeout` is negative, or `tv_nsec` is not from 0 to 999,999,999.
/// - `EMFILE`: the process has 65,536 reservations, which is the limit.
/// - `EMSGSIZE`: `len` is more than the queue's message size.
/// - `ENOMEM`, `ENOSPC`: the system has no memory for the message, or the namespace's file system is full or its limit of
///   bytes is reached.
/// - `ETIMEDOUT`: the deadline passed before there was room.
///
/// # If the process dies
/// The room becomes free. A call that finds the queue full checks for dead holders; a blocked call checks ten times a second.
///
/// # See also
/// umsg_mq_cancel(3), umsg_mq_commit(3), umsg_mq_lease(3), umsg_mq_send(3)
#[unsafe(no_mangle)]
pub unsafe extern "C" fn umsg_mq_reserve(
    mqdes: umsg_mqd_t,
    len: size_t,
    reservation: *mut umsg_mq_reservation,
    abs_timeout: *const timespec,
) -> c_int {
    let reserve = || {
        // SAFETY: the caller promises NULL or a readable timespec.
        let deadline = unsafe { time::deadline(abs_timeout)? };
        let held = handle::keep(mqdes)?;
        pointer::check(reservation, "reservation")?;
        // SAFETY: the reservation is kept together with `held` and dropped before it.
        let queue = unsafe { &held.unbounded().queue };
        let reserved = match deadline {
            _ if held.nonblocking.get() => queue.try_reserve(len),
            Some(time) => queue.reserve_deadline(len, time),
            None => queue.reserve(len),
        };
        let told = keep(reserved?, held)?;
        // SAFETY: the caller promises a writable structure.
        unsafe { pointer::write(reservation, told, "reservation")? };
        Ok(0)
    };
    answer(reserve())
}

/// Sends a message that was written in place.
///
/// The message is the first `len` bytes of the reserved room, and `msg_prio` its priority. The reservation ends, even if the call fails. The
/// exceptions are `EFAULT`, `EINVAL` and `EMSGSIZE`: then the reservation continues. If the message was not sent, its room is free again.
///
/// # Return value
/// On success, the call returns 0. On error, -1 is returned, and errno is set to indicate the error.
///
/// # Errors
/// - `EBADF`: this is a forked child of the process that made the reservation.
/// - `EBADMSG`: the queue's memory is corrupted: it holds values that no operation writes.
/// - `EDEADLK`: the call was made by a signal handler that interrupted a call on the same queue.
/// - `EFAULT`: `reservation` is at an address that can't be read and written.
/// - `EINVAL`: this process has no such reservation, or another thread is ending it at this moment; or
///   `msg_prio` is 32,768 or more.
/// - `EMSGSIZE`: `len` is more than was reserved.
/// - `ENOMEM`, `ENOSPC`: the system has no memory left, or the namespace's file system is full.
///
/// # If the process dies
/// Before the call returns, the message is either sent completely or not sent.
///
/// # See also
/// umsg_mq_cancel(3), umsg_mq_reserve(3)
#[unsafe(no_mangle)]
pub unsafe extern "C" fn umsg_mq_commit(
    reservation: *mut umsg_mq_reservation,
    len: size_t,
    msg_prio: c_uint,
) -> c_int {
    let commit = || {
        if msg_prio >= MQ_PRIO_MAX {
            return Err(SendError::PriorityTooHigh.into());
        }
        // SAFETY: the caller promises a readable and writable structure.
        let mut taken = unsafe { take(reservation, len)? };
        taken.reservation.truncate(len);
        taken.reservation.commit(msg_prio)?;
        Ok(0)
    };
    answer(commit())
}

/// Gives reserved room back.
///
/// The call sends nothing, and ends the reservation.
///
/// # Return value
/// On success, the call returns 0. On error, -1 is returned, and errno is set to indicate the error.
///
/// # Errors
/// - `EFAULT`: `reservation` is at an address that can't be read and written.
/// - `EINVAL`: this process has no such reservation, or another thread is ending it at this moment.
///
/// # If the process dies
/// The room is free again, as if the call had succeeded.
///
/// # See also
/// umsg_mq_commit(3), umsg_mq_reserve(3)
#[unsafe(no_mangle)]
pub unsafe extern "C" fn umsg_mq_cancel(reservation: *mut umsg_mq_reservation) -> c_int {
    // SAFETY: the caller promises a readable and writable structure.
    let taken = unsafe { take(reservation, 0) };
    answer(taken.map(|taken| {
        drop(taken);
        0
    }))
}

/// Enters a reservation in the table, and returns the structure that describes it to the program.
fn keep(mut reservation: Reservation<'static>, held: Held) -> Result<umsg_mq_reservation, Failure> {
    let mut told = umsg_mq_reservation {
        data: reservation.as_mut_ptr().cast(),
        len: reservation.len(),
        id: 0,
    };
    let kept = RESERVATIONS.put(Reserved {
        len: reservation.len(),
        reservation: Mutex::new(Some(reservation)),
        _held: held,
    });
    // A reservation that the table can't keep is given back when it is dropped.
    told.id = kept.ok_or(Failure::TooManyHolds)?.into();
    Ok(told)
}

/// Removes a reservation of at least `len` bytes, and marks the program's structure as unused.
///
/// # Safety
/// `reservation` is readable and writable, or an address that a pointer check refuses.
unsafe fn take(reservation: *mut umsg_mq_reservation, len: size_t) -> Result<Taken, Failure> {
    const NONE: Failure =
        Failure::Invalid("the handle does not belong to a reservation of this process");
    pointer::check(reservation, "reservation")?;
    // SAFETY: by this function's contract.
    let mut ended = unsafe { reservation.read_unaligned() };
    let number = ended.id.into();
    let reserved = RESERVATIONS.get(number).ok_or(NONE)?;
    let max = reserved.len;
    if len > max {
        return Err(SendError::TooLong { len, max }.into());
    }
    let kept = reserved
        .reservation
        .try_lock()
        .ok()
        .and_then(|mut kept| kept.take());
    let kept = kept.ok_or(NONE)?;
    RESERVATIONS.end(number);
    ended.data = std::ptr::null_mut();
    ended.id = 0;
    // SAFETY: by this function's contract.
    unsafe { reservation.write_unaligned(ended) };
    Ok(Taken {
        reservation: kept,
        _reserved: reserved,
    })
}
