//! Rings: the status of a ring.

use std::ffi::c_int;

use libc::size_t;
use umsg::ring::{Sender, Status};

use super::ends::{sender, umsg_ring_sender};
use super::receiver::{look, umsg_ring};
use crate::error::{Failure, answer};
use crate::pointer;
use crate::status::write_as_far_as_known;
use crate::time::told;

/// The status of a ring, without its messages. Counts begin with the creation of the ring.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct umsg_ring_status {
    /// The current number of messages, including the overflow.
    pub messages: u64,
    /// The number of messages beyond `entries`, in the overflow.
    pub overflowing: u64,
    /// The capacity of the ring without its overflow, in messages.
    pub entries: u32,
    /// The capacity of the overflow, in messages.
    pub overflow: u32,
    /// The longest payload, in bytes.
    pub longest: u64,
    /// Process id of the owner.
    pub owner: u32,
    /// 1 if the owner lives, as far as is known; else 0.
    pub owner_alive: u32,
    /// 1 if the ring accepts senders, else 0.
    pub enabled: u32,
    /// 1 if the ring was closed, else 0.
    pub closed: u32,
    /// Permission bits.
    pub mode: u32,
    /// The number of senders that were created.
    pub senders: u32,
    /// The time of the ring's creation, in nanoseconds since 1970.
    pub created: i64,
    /// Bytes of memory in use.
    pub memory: u64,
    /// Threads that wait for room.
    pub blocked_senders: u64,
    /// Sends that found no room and waited.
    pub sends_blocked: u64,
    /// Messages that umsg_ring_send_or_drop has dropped.
    pub dropped: u64,
    /// The number of times that the receiver went to sleep.
    pub slept: u64,
    /// Waits of the receiver that ended while it was still spinning.
    pub spun: u64,
    /// The time that the receiver spun, in nanoseconds. The time is CPU time, unless other threads ran in place of the receiver.
    pub time_spun: u64,
    /// The time that the receiver slept, in nanoseconds. Each sleep costs some microseconds of CPU time.
    pub time_asleep: u64,
    /// Repairs after the death of a process in the middle of a call.
    pub repairs: u64,
    /// 1 if a call has found the ring's memory corrupted, with values that no operation writes; otherwise 0.
    pub damaged: u64,
}

/// The identity of a sender.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct umsg_ring_tag {
    /// Process id.
    pub pid: u32,
    /// The sender's index, which is unique among the senders of the ring.
    pub index: u32,
}

/// Gets the complete status of a ring.
///
/// `size` is `sizeof(struct umsg_ring_status)`: a program that was compiled with an older `umsg.h` has a shorter structure, and gets the
/// members that it knows. In a program that was compiled with a newer `umsg.h`, the members that this library does not know are set to 0.
/// The function may be called while another thread receives.
///
/// # Return value
/// On success, the call returns 0. On error, -1 is returned, and errno is set to indicate the error.
///
/// # Errors
/// - `EBADF`: `ring` is NULL, or can't be the address of a ring.
/// - `EFAULT`: `status` is at an address that can't be written.
///
/// # If the process dies
/// The call changes nothing.
///
/// # See also
/// umsg(1), umsg_ring_refused(3), umsg_ring_sender_status(3), umsg_ring_wait(3)
#[unsafe(no_mangle)]
pub unsafe extern "C" fn umsg_ring_status(
    ring: *mut umsg_ring,
    status: *mut umsg_ring_status,
    size: size_t,
) -> c_int {
    // SAFETY: the caller promises a ring and `size` writable bytes.
    answer(unsafe {
        look(ring)
            .map_err(Failure::from)
            .and_then(|ring| tell(&ring.sender, status, size))
    })
}

/// Gets the complete status of the ring of a sender.
///
/// Does the same as umsg_ring_status(3), for the ring to which `sender` sends.
///
/// # Return value
/// On success, the call returns 0. On error, -1 is returned, and errno is set to indicate the error.
///
/// # Errors
/// - `EBADF`: `sender` is NULL, or can't be the address of a sender.
/// - `EFAULT`: `status` is at an address that can't be written.
///
/// # If the process dies
/// The call changes nothing.
///
/// # See also
/// umsg(1), umsg_ring_send(3), umsg_ring_status(3)
#[unsafe(no_mangle)]
pub unsafe extern "C" fn umsg_ring_sender_status(
    sender: *mut umsg_ring_sender,
    status: *mut umsg_ring_status,
    size: size_t,
) -> c_int {
    let run = || {
        // SAFETY: the caller promises a sender and `size` writable bytes.
        unsafe { tell(self::sender(sender)?, status, size) }
    };
    answer(run())
}

/// Gets the tag by which the receiver of a ring identifies a sender.
///
/// Each message that the calling process sends with `sender` has the values of `pid` and `index` that the call writes to `tag`.
///
/// # Return value
/// On success, the call returns 0. On error, -1 is returned, and errno is set to indicate the error.
///
/// # Errors
/// - `EBADF`: `sender` is NULL, or can't be the address of a sender.
/// - `EFAULT`: `tag` is at an address that can't be written.
///
/// # If the process dies
/// The call changes nothing.
///
/// # See also
/// umsg_ring_accept_only(3), umsg_ring_receive(3), umsg_ring_sender_clone(3)
#[unsafe(no_mangle)]
pub unsafe extern "C" fn umsg_ring_tag(
    sender: *mut umsg_ring_sender,
    tag: *mut umsg_ring_tag,
) -> c_int {
    let run = || {
        // SAFETY: the caller promises a sender and a writable structure.
        unsafe {
            let umsg::ring::Tag { pid, index } = self::sender(sender)?.tag();
            pointer::write(tag, umsg_ring_tag { pid, index }, "tag")?;
        }
        Ok::<_, Failure>(0)
    };
    answer(run())
}

/// # Safety
/// `status` has `size` writable bytes, or is an address that a pointer check refuses.
unsafe fn tell(
    sender: &Sender,
    status: *mut umsg_ring_status,
    size: size_t,
) -> Result<c_int, Failure> {
    pointer::check(status, "status")?;
    let told = in_c(&sender.status());
    // SAFETY: by this function's contract.
    unsafe { write_as_far_as_known(&told, status, size) };
    Ok(0)
}

fn in_c(status: &Status) -> umsg_ring_status {
    let nanoseconds =
        |time: std::time::Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
    umsg_ring_status {
        messages: status.messages,
        overflowing: status.overflowing,
        entries: status.entries,
        overflow: status.overflow,
        longest: status.longest as u64,
        owner: status.owner,
        owner_alive: status.owner_alive.into(),
        enabled: status.enabled.into(),
        closed: status.closed.into(),
        mode: status.mode,
        senders: status.senders,
        created: told(Some(status.created)),
        memory: status.memory,
        blocked_senders: status.blocked_senders as u64,
        sends_blocked: status.sends_blocked,
        dropped: status.dropped,
        slept: status.slept,
        spun: status.spun,
        time_spun: nanoseconds(status.time_spun),
        time_asleep: nanoseconds(status.time_asleep),
        repairs: status.repairs.into(),
        damaged: status.damaged.into(),
    }
}
