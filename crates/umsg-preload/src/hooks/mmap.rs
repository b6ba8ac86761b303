//! mmap: a queue's descriptor can't be mapped.

use std::ffi::{c_int, c_void};

use libc::{off_t, size_t};

use crate::table::Held;
use crate::{errno, kernel, ours, start};

hooks! {
    /// Maps memory.
    fn [mmap, mmap64](address: *mut c_void, len: size_t, protection: c_int, flags: c_int, fd: c_int, offset: off_t) -> *mut c_void {
        next => if let Some(held) = queue(flags, fd) {
            refuse(&held, len, protection, flags, offset)
        } else if start::is_done() {
            next(address, len, protection, flags, fd, offset)
        } else {
            early(address, len, protection, flags, fd, offset)
        }
    }
}

#[inline(always)]
fn queue(flags: c_int, fd: c_int) -> Option<Held> {
    if flags & libc::MAP_ANONYMOUS != 0 {
        None
    } else {
        ours::file(fd)
    }
}

/// Maps memory before this library's constructor has run. The caller may be an allocator that is starting, so this function must not call dlsym.
///
/// # Safety
/// The conditions of libc's mmap.
#[cold]
unsafe fn early(
    address: *mut c_void,
    len: size_t,
    protection: c_int,
    flags: c_int,
    fd: c_int,
    offset: off_t,
) -> *mut c_void {
    let [protection, flags, fd] = [protection, flags, fd].map(|word| word as usize);
    let (address, offset) = (address.expose_provenance(), offset as usize);
    let arguments = [address, len, protection, flags, fd, offset];
    // SAFETY: by this function's contract.
    match unsafe { kernel::call(libc::SYS_mmap, arguments) } {
        Ok(mapped) => std::ptr::with_exposed_provenance_mut(mapped as usize),
        Err(errno) => {
            errno::set(errno);
            libc::MAP_FAILED
        }
    }
}

/// Fails with the errno with which the kernel refuses to map a queue's descriptor. The checks are in the kernel's order.
#[cold]
fn refuse(held: &Held, len: size_t, protection: c_int, flags: c_int, offset: off_t) -> *mut c_void {
    let kind = flags & libc::MAP_TYPE;
    let shared = matches!(kind, libc::MAP_SHARED | libc::MAP_SHARED_VALIDATE);
    let writes = shared && protection & libc::PROT_WRITE != 0;
    errno::set(match () {
        () if offset & 0xfff != 0 || len == 0 => libc::EINVAL,
        () if !shared && kind != libc::MAP_PRIVATE => libc::EINVAL,
        () if writes && !held.can_write() => libc::EACCES,
        () if !held.can_read() => libc::EACCES,
        () => libc::ENODEV,
    });
    libc::MAP_FAILED
}
