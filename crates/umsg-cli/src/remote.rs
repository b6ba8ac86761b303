//! Reads and writes the memory of another process, by process_vm_readv(2) and process_vm_writev(2).

use std::io;

use rustix::process::Pid;

/// Reads as many bytes as the buffer has room for.
pub fn read(pid: Pid, address: u64, into: &mut [u8]) -> io::Result<()> {
    let local = libc::iovec {
        iov_base: into.as_mut_ptr().cast(),
        iov_len: into.len(),
    };
    let remote = place(address, into.len());
    // SAFETY: both vectors describe one piece; the local one is a live buffer, and the kernel checks the other.
    let read = unsafe {
        libc::process_vm_readv(
            pid.as_raw_nonzero().get(),
            &raw const local,
            1,
            &raw const remote,
            1,
            0,
        )
    };
    whole(read, into.len())
}

/// Writes all bytes. An aligned word is written by one store.
pub fn write(pid: Pid, address: u64, from: &[u8]) -> io::Result<()> {
    let local = libc::iovec {
        iov_base: from.as_ptr().cast_mut().cast(),
        iov_len: from.len(),
    };
    let remote = place(address, from.len());
    // SAFETY: both vectors describe one piece; the local one is a live buffer that the kernel only reads, and the kernel checks the other.
    let written = unsafe {
        libc::process_vm_writev(
            pid.as_raw_nonzero().get(),
            &raw const local,
            1,
            &raw const remote,
            1,
            0,
        )
    };
    whole(written, from.len())
}

fn place(address: u64, len: usize) -> libc::iovec {
    libc::iovec {
        iov_base: std::ptr::without_provenance_mut(address as usize),
        iov_len: len,
    }
}

fn whole(count: isize, wanted: usize) -> io::Result<()> {
    match count {
        -1 => Err(io::Error::last_os_error()),
        count if count.cast_unsigned() == wanted => Ok(()),
        _ => Err(io::Error::from_raw_os_error(libc::EFAULT)),
    }
}
