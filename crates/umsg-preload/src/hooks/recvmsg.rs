//! recvmsg and recvmmsg: descriptors received over a socket may be queues'.

use std::ffi::{c_int, c_uint};

use libc::{mmsghdr, msghdr, ssize_t, timespec};

use crate::{arrivals, next};

/// Receives a message from a socket.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn recvmsg(fd: c_int, message: *mut msghdr, flags: c_int) -> ssize_t {
    // SAFETY: the caller's promises to libc's recvmsg are handed on; a successful call has filled `message`.
    unsafe {
        let outcome = next::recvmsg(fd, message, flags);
        if outcome >= 0 {
            look_for_queues(&*message);
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
            look_for_queues(&(*messages.add(index)).msg_hdr);
        }
        outcome
    }
}

/// # Safety
/// `message` was filled by a successful call.
#[inline(always)]
unsafe fn look_for_queues(message: &msghdr) {
    if message.msg_controllen >= size_of::<libc::cmsghdr>() {
        // SAFETY: by this function's contract.
        unsafe { look_at_control(message) };
    }
}

/// # Safety
/// As for [`look_for_queues`].
#[cold]
unsafe fn look_at_control(message: &msghdr) {
    // SAFETY: the kernel wrote well-formed control messages into the buffer that `message` names; data follows its
    // header, without alignment.
    unsafe {
        let mut header = libc::CMSG_FIRSTHDR(message);
        while let Some(control) = header.as_ref() {
            if (control.cmsg_level, control.cmsg_type) == (libc::SOL_SOCKET, libc::SCM_RIGHTS) {
                let data = libc::CMSG_DATA(header).cast::<c_int>();
                let bytes = control.cmsg_len - libc::CMSG_LEN(0) as usize;
                for index in 0..bytes / size_of::<c_int>() {
                    arrivals::received(data.add(index).read_unaligned());
                }
            }
            header = libc::CMSG_NXTHDR(message, header);
        }
    }
}
