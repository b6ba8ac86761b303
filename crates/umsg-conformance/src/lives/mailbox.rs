//! Passes descriptors between processes, in messages on a socket. The functions are libc's, so the drop-in intercepts them.

use std::mem;
use std::os::fd::RawFd;
use std::ptr;

use crate::errno::Errno;

#[repr(C)]
struct Control {
    header: libc::cmsghdr,
    fd: RawFd,
}

/// Calls `call` with a message of one byte and one descriptor.
fn with_message(
    control: &mut Control,
    call: impl FnOnce(&mut libc::msghdr) -> isize,
) -> Result<isize, Errno> {
    let mut byte = [0_u8; 1];
    let mut bytes = libc::iovec {
        iov_base: byte.as_mut_ptr().cast(),
        iov_len: 1,
    };
    // SAFETY: the structure consists of integers and pointers, for which zero is valid.
    let mut message: libc::msghdr = unsafe { mem::zeroed() };
    message.msg_iov = &mut bytes;
    message.msg_iovlen = 1;
    message.msg_control = ptr::from_mut(control).cast();
    message.msg_controllen = size_of::<Control>() as _;
    match call(&mut message) {
        -1 => Err(Errno::last()),
        length => Ok(length),
    }
}

fn control(fd: RawFd) -> Control {
    // SAFETY: the structure consists of integers, for which zero is valid.
    let mut control: Control = unsafe { mem::zeroed() };
    control.header.cmsg_len = (size_of::<libc::cmsghdr>() + size_of::<RawFd>()) as _;
    control.header.cmsg_level = libc::SOL_SOCKET;
    control.header.cmsg_type = libc::SCM_RIGHTS;
    control.fd = fd;
    control
}

/// Sends a descriptor.
///
/// # Errors
/// The errors of `sendmsg`. `EAGAIN` means that the socket is full.
pub fn send(socket: RawFd, fd: RawFd) -> Result<(), Errno> {
    with_message(&mut control(fd), |message| {
        // SAFETY: `message` points to one byte and one control message with one descriptor, all alive during the call.
        unsafe { libc::sendmsg(socket, message, libc::MSG_DONTWAIT) }
    })
    .map(drop)
}

/// Receives a descriptor. The new descriptor stays open on exec.
///
/// # Errors
/// The errors of `recvmsg`. `EAGAIN` means that the socket has no message.
pub fn receive(socket: RawFd) -> Result<RawFd, Errno> {
    let mut control = control(-1);
    with_message(&mut control, |message| {
        // SAFETY: `message` points to room for one byte and for one control message with one descriptor, all alive during the call.
        unsafe { libc::recvmsg(socket, message, libc::MSG_DONTWAIT) }
    })?;
    Ok(control.fd)
}
