//! recvmsg, recvmmsg, sendmsg and sendmmsg: descriptors that pass through a socket may be queues'.

use std::ffi::{c_int, c_uint};

use libc::{mmsghdr, msghdr, ssize_t, timespec};

use super::dup::share;
use crate::{arrivals, next};

/// Receives a message from a socket.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn recvmsg(fd: c_int, message: *mut msghdr, flags: c_int) -> ssize_t {
    // SAFETY: the caller's promises to libc's recvmsg are handed on; a successful call has filled `message`.
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
    // SAFETY: the caller guarantees the requirements of libc's recvmmsg; the call has filled as many entries as it returns.
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
    // SAFETY: the caller's promises to libc's sendmsg are handed on; a successful call has read `message`.
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
    // SAFETY: the caller guarantees the requirements of libc's sendmmsg; the call has read as many entries as it returns.
    unsafe {
        let outcome = next::sendmmsg(fd, messages, count, flags);
        for index in 0..outcome.max(0) as usize {
            look_for_descriptors(&(*messages.add(index)).msg_hdr, share);
        }
        outcome
    }
}

/// Calls `each` for every descriptor in the control data of a message.
///
/// # Safety
/// `message` was filled by a successful call to recvmsg, or accepted by one to sendmsg.
#[inline(always)]
unsafe fn look_for_descriptors(message: &msghdr, each: fn(c_int)) {
    if message.msg_controllen >= size_of::<libc::cmsghdr>() {
        // SAFETY: by this function's contract.
        unsafe { look_at_control(message, each) };
    }
}

/// # Safety
/// As for [`look_for_descriptors`].
#[cold]
unsafe fn look_at_control(message: &msghdr, each: fn(c_int)) {
    // SAFETY: the kernel wrote or read well-formed control messages in the buffer that `message` names; data follows its
    // header, without alignment.
    unsafe {
        let mut header = libc::CMSG_FIRSTHDR(message);
        while let Some(control) = header.as_ref() {
            if (control.cmsg_level, control.cmsg_type) == (libc::SOL_SOCKET, libc::SCM_RIGHTS) {
                let data = libc::CMSG_DATA(header).cast::<c_int>();
                let bytes = control.cmsg_len - libc::CMSG_LEN(0) as usize;
                for index in 0..bytes / size_of::<c_int>() {
                    each(data.add(index).read_unaligned());
                }
            }
            header = libc::CMSG_NXTHDR(message, header);
        }
    }
}
