//! System V queues: receiving in place.

use std::ffi::{c_int, c_long, c_uint, c_void};
use std::time::Duration;

use libc::{pid_t, size_t, timespec};
use umsg::sysv::raw::Used;
use umsg::sysv::{Lease, Queue};

use super::receive_batch::want;
use super::refusal::{Refusal, keep};
use super::until;
use crate::error::answer;
use crate::leases::{self, Described, Leases};
use crate::pointer;
use crate::time::{self, told};

/// A message of a System V queue that was received in place. The members describe it. Changing them has no effect, but `id` must stay as it
/// is.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct umsg_msg_lease {
    /// The address of the message: valid until the lease ends.
    pub data: *const c_void,
    /// The length of the message in bytes.
    pub len: size_t,
    /// The time of the send, in nanoseconds since 1970, accurate to a few milliseconds.
    pub sent: i64,
    /// The message's type.
    pub mtype: c_long,
    /// The number of leases of the message, this lease included: 1 for the first lease.
    pub deliveries: c_uint,
    /// Process id of the sender.
    pub pid: pid_t,
    /// The identifier of the lease; 0 after the lease has ended.
    pub id: u64,
}

static LEASES: Leases<Lease<'static>, Used> = Leases::new();

impl Described for umsg_msg_lease {
    type Lease = Lease<'static>;
    type Queue = Used;

    fn all() -> &'static Leases<Lease<'static>, Used> {
        &LEASES
    }

    fn place(&mut self) -> (&mut *const c_void, &mut u64) {
        (&mut self.data, &mut self.id)
    }
}

/// Receives a message of a System V queue in place.
///
/// Does the same as umsg_msgrcv(3), but copies nothing. `msgtyp` selects the message; `msgflg` may have `MSG_EXCEPT` and `IPC_NOWAIT`. `data` and
/// `len` of `lease` are the address of the message in the queue's memory and its length. The bytes must not be written. The message counts for the
/// queue's capacity until umsg_msg_acknowledge(3) removes it. Three events return the message to its place in the queue: a call of
/// umsg_msg_return(3), the death of the process, and the end of a time limit that umsg_msg_lease_limit(3) has set. The next receiver then gets the
/// message.
///
/// A call that waits ends at `abs_timeout`, a time of the clock `CLOCK_REALTIME`; NULL means no limit.
///
/// Leases may be ended in any order and by any thread of the process. A child made by fork(2) does not own its parent's leases.
///
/// # Return value
/// On success, the call returns 0. On error, -1 is returned, and errno is set to indicate the error.
///
/// # Errors
/// - `EACCES`: the queue's mode does not let the caller receive.
/// - `EBADMSG`: the queue's memory is corrupted: it holds values that no operation writes.
/// - `EDEADLK`: the call was made by a signal handler that interrupted a call on the same queue; see umsg_defer_signal(3).
/// - `EFAULT`: `lease` or `abs_timeout` is at an address that can't be read or written.
/// - `EIDRM`: the queue was removed during the call.
/// - `EINTR`: a signal handler ran while the call waited.
/// - `EINVAL`: no queue has the identifier `msqid`, or that queue was removed; `msgflg` has other flags; or `tv_sec` of `abs_timeout` is
///   negative, or `tv_nsec` is not from 0 to 999,999,999.
/// - `EMFILE`: the process has 65,536 leases of System V queues.
/// - `ENOMEM`: the system has no memory left.
/// - `ENOMSG`: there is no such message, and `msgflg` has `IPC_NOWAIT`.
/// - `ETIMEDOUT`: the deadline passed before a wanted message came.
///
/// # If the process dies
/// The message goes back to its place in the queue. A call that finds no message or no room checks for dead holders; a blocked call checks
/// ten times a second.
///
/// # See also
/// umsg_msg_acknowledge(3), umsg_msg_lease_limit(3), umsg_msg_return(3), umsg_msgrcv(3)
#[unsafe(no_mangle)]
pub unsafe extern "C" fn umsg_msg_lease(
    msqid: c_int,
    lease: *mut umsg_msg_lease,
    msgtyp: c_long,
    msgflg: c_int,
    abs_timeout: *const timespec,
) -> c_int {
    let receive = || {
        // SAFETY: the caller promises NULL or a readable timespec.
        let deadline = unsafe { time::deadline(abs_timeout)? };
        let want = want(msgtyp, msgflg)?;
        let used = keep(msqid)?;
        pointer::check(lease, "lease")?;
        // SAFETY: the lease is kept together with `used` and dropped before it.
        let queue = unsafe { unbounded(&used) };
        let received = queue.receive_lease_until(want, until(msgflg, deadline));
        let received = received.map_err(Refusal::from)?;
        let told = described(&received);
        let told = leases::keep(received, used, told)?;
        // SAFETY: the caller promises a writable structure.
        unsafe { pointer::write(lease, told, "lease")? };
        Ok(0)
    };
    answer(receive())
}

/// Removes a leased message of a System V queue for good.
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
/// - `ESTALE`: a time limit or another thread has ended the lease, the queue was removed, or the calling process is a forked child of the lease's
///   holder.
///
/// # If the process dies
/// Before the call returns, the message is removed or goes back to its place in the queue.
///
/// # See also
/// umsg_defer_signal(3), umsg_msg_lease(3), umsg_msg_return(3)
#[unsafe(no_mangle)]
pub unsafe extern "C" fn umsg_msg_acknowledge(lease: *mut umsg_msg_lease) -> c_int {
    // SAFETY: the caller promises a readable and writable structure.
    unsafe { leases::end(lease, Lease::acknowledge_kept) }
}

/// Returns a leased message to its System V queue.
///
/// The message goes back to its place in the queue, and the next receiver gets it. The lease ends, even if the call fails. The exceptions
/// are `EDEADLK` and `EFAULT`: then the lease continues and can be ended later.
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
/// - `ESTALE`: a time limit or another thread has ended the lease, the queue was removed, or the calling process is a forked child of the lease's
///   holder.
///
/// # If the process dies
/// The message goes back, as if the call had succeeded.
///
/// # See also
/// umsg_defer_signal(3), umsg_msg_acknowledge(3), umsg_msg_lease(3)
#[unsafe(no_mangle)]
pub unsafe extern "C" fn umsg_msg_return(lease: *mut umsg_msg_lease) -> c_int {
    // SAFETY: the caller promises a readable and writable structure.
    unsafe { leases::end(lease, Lease::give_back_kept) }
}

/// Returns a leased message of a System V queue for a later delivery.
///
/// Does the same as umsg_msg_return(3), but receivers get the message after `delay` nanoseconds at the earliest. This delay replaces the queue's
/// retry delay (umsg_msgget_with(3)). Other messages are not delayed.
///
/// # Return value
/// On success, the call returns 0. On error, -1 is returned, and errno is set to indicate the error.
///
/// # Errors
/// The errors of umsg_msg_return(3).
///
/// # If the process dies
/// The message goes back to the queue, at once or after the delay.
///
/// # See also
/// umsg_msg_lease(3), umsg_msg_return(3), umsg_msg_send_after(3)
#[unsafe(no_mangle)]
pub unsafe extern "C" fn umsg_msg_return_after(lease: *mut umsg_msg_lease, delay: u64) -> c_int {
    let delay = Duration::from_nanos(delay);
    // SAFETY: the caller promises a lease of umsg_msg_lease.
    unsafe { leases::end(lease, |lease| lease.return_after_kept(delay)) }
}

/// Lets a lease of a message of a System V queue end by itself after some time.
///
/// `time` is relative to the call. When it has passed, the message goes back to its place in the queue, even if the holder still reads the message;
/// the holder's umsg_msg_acknowledge(3) then fails. A call that finds no message or no room returns the message. A blocked call checks ten times a
/// second. A later call of this function replaces the limit.
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
/// - `ESTALE`: an earlier limit or another thread has ended the lease, the queue was removed, or the calling process is a forked child of the lease's
///   holder.
///
/// # If the process dies
/// The message goes back at once.
///
/// # See also
/// umsg_msg_acknowledge(3), umsg_msg_lease(3)
#[unsafe(no_mangle)]
pub unsafe extern "C" fn umsg_msg_lease_limit(
    lease: *const umsg_msg_lease,
    time: *const timespec,
) -> c_int {
    // SAFETY: the caller promises a readable timespec and a readable structure.
    unsafe { leases::limit(lease, time, Lease::limit) }
}

/// Returns the queue with a lifetime that the compiler does not check.
///
/// # Safety
/// The result, and everything derived from it, must not outlive the use of the queue.
unsafe fn unbounded(queue: &Queue) -> &'static Queue {
    // SAFETY: by this function's contract; a queue in use does not move.
    unsafe { &*std::ptr::from_ref(queue) }
}

/// Describes a lease to the program. The caller sets `id`.
fn described(lease: &Lease<'_>) -> umsg_msg_lease {
    umsg_msg_lease {
        data: lease.as_ptr().cast(),
        len: lease.len(),
        sent: told(Some(lease.sent())),
        mtype: lease.mtype(),
        deliveries: lease.deliveries(),
        pid: lease.pid().cast_signed(),
        id: 0,
    }
}
