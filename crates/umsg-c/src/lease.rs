//! POSIX queues: receiving in place.

use std::ffi::{c_int, c_uint, c_void};
use std::time::Duration;

use libc::{pid_t, size_t, timespec};
use umsg::posix::Lease;

use crate::error::answer;
use crate::handle::{self, Held, umsg_mqd_t};
use crate::leases::{self, Described, Leases};
use crate::pointer;
use crate::time::{self, told};

/// A message that was received in place. The members describe it. Changing them has no effect, but `id` must stay as it is.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct umsg_mq_lease {
    /// The address of the message: valid until the lease ends.
    pub data: *const c_void,
    /// The length of the message in bytes.
    pub len: size_t,
    /// The time of the send, in nanoseconds since 1970, accurate to a few milliseconds.
    pub sent: i64,
    /// The message's priority.
    pub priority: c_uint,
    /// The number of leases of the message, this lease included: 1 for the first lease.
    pub deliveries: c_uint,
    /// Process id of the sender.
    pub pid: pid_t,
    /// The library sets this field to 0.
    pub reserved: u32,
    /// The identifier of the lease; 0 after the lease has ended.
    pub id: u64,
}

static LEASES: Leases<Lease<'static>, Held> = Leases::new();

impl Described for umsg_mq_lease {
    type Lease = Lease<'static>;
    type Queue = Held;

    fn all() -> &'static Leases<Lease<'static>, Held> {
        &LEASES
    }

    fn place(&mut self) -> (&mut *const c_void, &mut u64) {
        (&mut self.data, &mut self.id)
    }
}

/// Receives a message in place.
///
/// Does the same as umsg_mq_receive(3), but copies nothing: `data` and `len` of `lease` are the address of the message in the queue's memory and its
/// length. The bytes must not be written. The message counts for the queue's capacity until umsg_mq_acknowledge(3) removes it. Three events return
/// the message to its old place: a call of umsg_mq_return(3), the death of the process, and the end of a time limit that
/// umsg_mq_lease_limit(3) has set. The next receiver then gets the message.
///
/// A call that waits ends at `abs_timeout`, a time of the clock `CLOCK_REALTIME`; NULL means no limit. If the handle has `O_NONBLOCK`, the call does
/// not wait, and ignores the time.
///
/// Leases may be ended in any order and by any thread of the process, even after the handle was closed. A child made by fork(2) does not own its
/// parent's leases.
///
/// # Return value
/// On success, the call returns 0. On error, -1 is returned, and errno is set to indicate the error.
///
/// # Errors
/// - `EAGAIN`: the queue is empty, and the handle has `O_NONBLOCK`.
/// - `EBADF`: `mqdes` is not the handle of an open queue, or was not opened for receiving.
/// - `EBADMSG`: the queue's memory is corrupted: it holds values that no operation writes.
/// - `EDEADLK`: the call was made by a signal handler that interrupted a call on the same queue.
/// - `EFAULT`: `lease` or `abs_timeout` is at an address that can't be written or read.
/// - `EINTR`: a signal handler ran while the call waited.
/// - `EINVAL`: `tv_sec` of `abs_timeout` is negative, or `tv_nsec` is not from 0 to 999,999,999.
/// - `EMFILE`: the process has 65,536 leases, which is the limit.
/// - `ENOMEM`, `ENOSPC`: the system has no memory left, or the namespace's file system is full.
/// - `ETIMEDOUT`: the deadline passed before a message came.
///
/// # If the process dies
/// The message goes back to its old place. A call that finds the queue empty or full checks for dead holders; a blocked call
/// checks ten times a second.
///
/// # See also
/// umsg_mq_acknowledge(3), umsg_mq_lease_limit(3), umsg_mq_receive(3), umsg_mq_reserve(3), umsg_mq_return(3)
#[unsafe(no_mangle)]
pub unsafe extern "C" fn umsg_mq_lease(
    mqdes: umsg_mqd_t,
    lease: *mut umsg_mq_lease,
    abs_timeout: *const timespec,
) -> c_int {
    let receive = || {
        // SAFETY: the caller promises NULL or a readable timespec.
        let deadline = unsafe { time::deadline(abs_timeout)? };
        let held = handle::keep(mqdes)?;
        pointer::check(lease, "lease")?;
        // SAFETY: the lease is kept together with `held` and dropped before it.
        let queue = unsafe { &held.unbounded().queue };
        let received = match deadline {
            _ if held.nonblocking.get() => queue.try_receive_lease(),
            Some(time) => queue.receive_lease_deadline(time),
            None => queue.receive_lease(),
        };
        let received = received?;
        let told = described(&received);
        let told = leases::keep(received, held, told)?;
        // SAFETY: the caller promises a writable structure.
        unsafe { pointer::write(lease, told, "lease")? };
        Ok(0)
    };
    answer(receive())
}

/// Removes a leased message for good.
///
/// Call this function after the message has been processed. The message leaves the queue, its room becomes free, and the lease ends, even if the call
/// fails. The exceptions are `EDEADLK` and `EFAULT`: then the lease continues and can be ended later.
///
/// # Return value
/// On success, the call returns 0. On error, -1 is returned, and errno is set to indicate the error.
///
/// # Errors
/// - `EBADMSG`: the queue's memory is corrupted: it holds values that no operation writes.
/// - `EDEADLK`: the call was made by a signal handler that interrupted a call on the same queue; umsg_defer_signal(3) makes such a handler run
///   later. The lease continues.
/// - `EFAULT`: `lease` is at an address that can't be read and written.
/// - `EINVAL`: this process has no such lease.
/// - `ESTALE`: a time limit or another thread has ended the lease, or the calling process is a forked child of the lease's holder. Another receiver
///   gets the message, or has already received it.
///
/// # If the process dies
/// Before the call returns, the message is removed or goes back to its old place.
///
/// # See also
/// umsg_defer_signal(3), umsg_mq_lease(3), umsg_mq_return(3)
#[unsafe(no_mangle)]
pub unsafe extern "C" fn umsg_mq_acknowledge(lease: *mut umsg_mq_lease) -> c_int {
    // SAFETY: the caller promises a readable and writable structure.
    unsafe { leases::end(lease, Lease::acknowledge_kept) }
}

/// Returns a leased message to its queue.
///
/// The message goes back to its old place, and the next receiver gets it. The lease ends, even if the call fails. The
/// exceptions are `EDEADLK` and `EFAULT`: then the lease continues and can be ended later.
///
/// # Return value
/// On success, the call returns 0. On error, -1 is returned, and errno is set to indicate the error.
///
/// # Errors
/// - `EBADMSG`: the queue's memory is corrupted: it holds values that no operation writes.
/// - `EDEADLK`: the call was made by a signal handler that interrupted a call on the same queue; umsg_defer_signal(3) makes such a handler run
///   later. The lease continues.
/// - `EFAULT`: `lease` is at an address that can't be read and written.
/// - `EINVAL`: this process has no such lease.
/// - `ESTALE`: a time limit or another thread has ended the lease, or the calling process is a forked child of the lease's holder.
///
/// # If the process dies
/// The message goes back, as if the call had succeeded.
///
/// # See also
/// umsg_defer_signal(3), umsg_mq_acknowledge(3), umsg_mq_lease(3)
#[unsafe(no_mangle)]
pub unsafe extern "C" fn umsg_mq_return(lease: *mut umsg_mq_lease) -> c_int {
    // SAFETY: the caller promises a readable and writable structure.
    unsafe { leases::end(lease, Lease::give_back_kept) }
}

/// Returns a leased message to its queue for a later delivery.
///
/// Does the same as umsg_mq_return(3), but receivers get the message after `delay` nanoseconds at the earliest. This delay replaces the queue's retry
/// delay (umsg_mq_open_with(3)). Other messages are not delayed. If the message was delivered as often as the queue allows, it goes to the
/// dead-letter queue at once.
///
/// # Return value
/// On success, the call returns 0. On error, -1 is returned, and errno is set to indicate the error.
///
/// # Errors
/// The errors of umsg_mq_return(3).
///
/// # If the process dies
/// The message goes back to the queue, at once or after the delay.
///
/// # See also
/// umsg_mq_lease(3), umsg_mq_return(3), umsg_mq_send_after(3)
#[unsafe(no_mangle)]
pub unsafe extern "C" fn umsg_mq_return_after(lease: *mut umsg_mq_lease, delay: u64) -> c_int {
    let delay = Duration::from_nanos(delay);
    // SAFETY: the caller promises a lease of umsg_mq_lease.
    unsafe { leases::end(lease, |lease| lease.return_after_kept(delay)) }
}

/// Lets a lease end by itself after some time.
///
/// `time` is relative to the call. After that time the message goes back to its old place, even if the holder still reads the message; the holder's
/// umsg_mq_acknowledge(3) then fails. The next call on the queue that finds it empty or full, or receives while other leases exist, returns the
/// message. A blocked call checks ten times a second. A later call of this function replaces the limit.
///
/// # Return value
/// On success, the call returns 0. On error, -1 is returned, and errno is set to indicate the error.
///
/// # Errors
/// - `EBADMSG`: the queue's memory is corrupted: it holds values that no operation writes.
/// - `EDEADLK`: the call was made by a signal handler that interrupted a call on the same queue.
/// - `EFAULT`: `lease` or `time` is at an address that can't be read.
/// - `EINVAL`: this process has no such lease; or `tv_sec` of `time` is negative, or `tv_nsec` is not from 0 to
///   999,999,999.
/// - `ESTALE`: an earlier limit or another thread has ended the lease, or the calling process is a forked child of the lease's holder.
///
/// # If the process dies
/// The message goes back at once.
///
/// # See also
/// umsg_mq_acknowledge(3), umsg_mq_lease(3)
#[unsafe(no_mangle)]
pub unsafe extern "C" fn umsg_mq_lease_limit(
    lease: *const umsg_mq_lease,
    time: *const timespec,
) -> c_int {
    // SAFETY: the caller promises a readable timespec and a readable structure.
    unsafe { leases::limit(lease, time, Lease::limit) }
}

/// Describes a lease to the program. The caller sets `id`.
fn described(lease: &Lease<'_>) -> umsg_mq_lease {
    umsg_mq_lease {
        data: lease.as_ptr().cast(),
        len: lease.len(),
        sent: told(Some(lease.sent())),
        priority: lease.priority(),
        deliveries: lease.deliveries(),
        pid: lease.pid().cast_signed(),
        reserved: 0,
        id: 0,
    }
}
