//! Makes system calls without libc's `syscall`, whose code costs one more page fault in a new process. Under the drop-in, `syscall` is the drop-in's
//! own function, which would first look up the function of libc.

#[cfg(not(miri))]
use std::arch::asm;
use std::ffi::{c_int, c_long};

/// The highest errno of the kernel. A result above `-MOST` is a negated errno.
#[cfg(not(miri))]
const MOST: isize = 4095;

/// Makes a system call. `Err` contains the errno of the call.
///
/// # Safety
/// The caller meets the conditions of the system call. Unused arguments are 0.
///
/// # Errors
/// The errors of the system call.
#[cfg(not(miri))]
#[inline]
pub unsafe fn call(number: c_long, arguments: [usize; 6]) -> Result<isize, c_int> {
    let [a, b, c, d, e, f] = arguments;
    let result: isize;
    #[cfg(target_arch = "x86_64")]
    // SAFETY: by this function's contract; the instruction also changes rax, rcx and r11.
    unsafe {
        asm!(
            "syscall",
            inlateout("rax") number as isize => result,
            in("rdi") a, in("rsi") b, in("rdx") c, in("r10") d, in("r8") e, in("r9") f,
            lateout("rcx") _, lateout("r11") _,
            options(nostack),
        );
    }
    #[cfg(target_arch = "aarch64")]
    // SAFETY: by this function's contract; the instruction also changes x0.
    unsafe {
        asm!(
            "svc 0",
            in("x8") number,
            inlateout("x0") a => result,
            in("x1") b, in("x2") c, in("x3") d, in("x4") e, in("x5") f,
            options(nostack),
        );
    }
    if (-MOST..0).contains(&result) {
        Err(-result as c_int)
    } else {
        Ok(result)
    }
}

/// Makes a system call by libc's function, which Miri supports.
///
/// # Safety
/// The caller meets the conditions of the system call. Unused arguments are 0.
///
/// # Errors
/// The errors of the system call.
#[cfg(miri)]
pub unsafe fn call(number: c_long, arguments: [usize; 6]) -> Result<isize, c_int> {
    let [a, b, c, d, e, f] = arguments;
    // SAFETY: by this function's contract.
    match unsafe { libc::syscall(number, a, b, c, d, e, f) } {
        // SAFETY: libc returns a pointer to the calling thread's errno.
        -1 => Err(unsafe { *libc::__errno_location() }),
        result => Ok(result as isize),
    }
}

#[cfg(all(test, not(miri)))]
mod tests {
    use super::call;
    use std::ffi::CStr;
    use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

    #[test]
    fn a_result_is_a_value_or_an_errno() {
        // SAFETY: the call takes no arguments.
        let pid = unsafe { call(libc::SYS_getpid, [0; 6]) };
        assert_eq!(pid, Ok(std::process::id() as isize));
        // SAFETY: the call takes a number that is not a descriptor.
        let closed = unsafe { call(libc::SYS_close, [usize::MAX, 0, 0, 0, 0, 0]) };
        assert_eq!(closed, Err(libc::EBADF));
    }

    #[test]
    fn six_arguments_reach_the_kernel() {
        let name: &CStr = c"umsg-test";
        // SAFETY: the argument is a C string.
        let file = unsafe {
            call(
                libc::SYS_memfd_create,
                [name.as_ptr().addr(), 0, 0, 0, 0, 0],
            )
        };
        // SAFETY: the descriptor is new, and has no other owner.
        let file = unsafe { OwnedFd::from_raw_fd(file.unwrap() as i32) };
        rustix::fs::ftruncate(&file, 3 << 12).unwrap();
        rustix::io::pwrite(&file, b"third", 2 << 12).unwrap();
        let number = file.as_raw_fd() as usize;
        let (read, private) = (libc::PROT_READ as usize, libc::MAP_PRIVATE as usize);
        // SAFETY: maps a page at an address of the kernel's choice.
        let page = unsafe { call(libc::SYS_mmap, [0, 4096, read, private, number, 2 << 12]) };
        let page = std::ptr::with_exposed_provenance::<u8>(page.unwrap() as usize);
        // SAFETY: the page is mapped, and stays so.
        let begin = unsafe { std::slice::from_raw_parts(page, 5) };
        assert_eq!(begin, b"third");
    }
}
