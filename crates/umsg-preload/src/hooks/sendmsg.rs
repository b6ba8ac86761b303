//! recvmsg, recvmmsg, sendmsg and sendmmsg: descriptors that are passed through a socket may belong to queues.

use std::ffi::{c_int, c_uint};

use libc::{cmsghdr, mmsghdr, msghdr, ssize_t, timespec};

use super::dup::share;
use crate::{arrivals, next};

/// Receives a message from a socket.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn recvmsg(fd: c_int, message: *mut msghdr, flags: c_int) -> ssize_t {
    // SAFETY: the caller makes the promises of libc's recvmsg. A successful call has filled `message`.
    unsafe {
        let outcome = next::recvmsg(fd, message, flags);
        if outcome >= 0 {
            look_for_descriptors(&*message, arrivals::received);
        }
        outcome
    }
}

/// Receives several messages from a socket.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn recvmmsg(
    fd: c_int,
    messages: *mut mmsghdr,
    count: c_uint,
    flags: c_int,
    timeout: *mut timespec,
) -> c_int {
    // SAFETY: the caller makes the promises of libc's recvmmsg. The call has filled as many entries as it returns.
    unsafe {
        let outcome = next::recvmmsg(fd, messages, count, flags, timeout);
        for index in 0..outcome.max(0) as usize {
            look_for_descriptors(&(*messages.add(index)).msg_hdr, arrivals::received);
        }
        outcome
    }
}

/// Sends a message to a socket.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn sendmsg(fd: c_int, message: *const msghdr, flags: c_int) -> ssize_t {
    // SAFETY: the caller makes the promises of libc's sendmsg. A successful call has read `message`.
    unsafe {
        let outcome = next::sendmsg(fd, message, flags);
        if outcome >= 0 {
            look_for_descriptors(&*message, share);
        }
        outcome
    }
}

/// Sends several messages to a socket.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn sendmmsg(
    fd: c_int,
    messages: *mut mmsghdr,
    count: c_uint,
    flags: c_int,
) -> c_int {
    // SAFETY: the caller makes the promises of libc's sendmmsg. The call has read as many entries as it returns.
    unsafe {
        let outcome = next::sendmmsg(fd, messages, count, flags);
        for index in 0..outcome.max(0) as usize {
            look_for_descriptors(&(*messages.add(index)).msg_hdr, share);
        }
        outcome
    }
}

/// Converts a length of the control data, whose type depends on the libc.
fn bytes(length: impl TryInto<usize>) -> usize {
    length.try_into().unwrap_or(0)
}

/// Calls `each` for every descriptor in the control data of a message.
///
/// # Safety
/// `message` was filled by a successful call to recvmsg, or was accepted by a successful call to sendmsg.
#[inline(always)]
unsafe fn look_for_descriptors(message: &msghdr, each: fn(c_int)) {
    if bytes(message.msg_controllen) >= size_of::<libc::cmsghdr>() {
        // SAFETY: by this function's contract.
        unsafe { look_at_control(message, each) };
    }
}

/// # Safety
/// The conditions of [`look_for_descriptors`].
#[cold]
unsafe fn look_at_control(message: &msghdr, each: fn(c_int)) {
    let (start, len) = (
        message.msg_control.cast::<u8>(),
        bytes(message.msg_controllen),
    );
    let mut at = 0;
    while len - at >= size_of::<cmsghdr>() {
        // SAFETY: the header is inside the buffer, whose bytes the kernel wrote or read. A sending program may not have aligned the header.
        let control = unsafe { start.add(at).cast::<cmsghdr>().read_unaligned() };
        // SAFETY: the call takes no pointers.
        let before = unsafe { libc::CMSG_LEN(0) } as usize;
        let control_len = bytes(control.cmsg_len);
        if control_len < before || control_len > len - at {
            return;
        }
        if (control.cmsg_level, control.cmsg_type) == (libc::SOL_SOCKET, libc::SCM_RIGHTS) {
            for index in 0..(control_len - before) / size_of::<c_int>() {
                let place = at + before + index * size_of::<c_int>();
                // SAFETY: the descriptor lies inside the buffer, because `control_len` is at most the rest of the buffer. It need not be aligned.
                each(unsafe { start.add(place).cast::<c_int>().read_unaligned() });
            }
        }
        // Each control message begins at a multiple of the word size, counted from the beginning of the buffer. The last control message may end
        // without padding.
        at = (at + control_len.next_multiple_of(size_of::<usize>())).min(len);
    }
}
