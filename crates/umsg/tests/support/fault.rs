//! A page that the test never provides (userfaultfd). A system call that reads or writes this page stays in the kernel, with all locks that the call
//! has taken.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicI32, Ordering};
use std::time::{Duration, Instant};

/// The descriptor to which the kernel reports page faults. Source: userfaultfd(2).
static FAULTS: AtomicI32 = AtomicI32::new(-1);

/// The kernel's constants for userfaultfd(2). Source: linux/userfaultfd.h.
const UFFDIO_API: u64 = 0xc018_aa3f;
const UFFDIO_REGISTER: u64 = 0xc020_aa00;
const API: u64 = 0xaa;
const MISSING: u64 = 1;
const PAGE: usize = 4096;

/// Makes the descriptor `FAULTS` while the process is root: other users do not get the page faults that system calls cause. An adversary can mount a
/// file system of its own (FUSE) for the same effect.
pub fn prepare() {
    let mut api = [API, 0, 0];
    // SAFETY: the first call takes numbers. The structure has the length that the request's number defines, and outlives the call.
    let faults = unsafe {
        let faults = libc::syscall(libc::SYS_userfaultfd, libc::O_CLOEXEC | libc::O_NONBLOCK);
        libc::ioctl(faults as i32, UFFDIO_API as _, api.as_mut_ptr());
        faults
    };
    // Relaxed: a process prepares before it starts threads.
    FAULTS.store(faults as i32, Ordering::Relaxed);
}

/// Returns whether the kernel permits pages that are never provided.
pub fn is_possible() -> bool {
    // SAFETY: the call takes numbers.
    let faults = unsafe { libc::syscall(libc::SYS_userfaultfd, libc::O_CLOEXEC) };
    if faults < 0 {
        eprintln!("left out: takes userfaultfd(2)");
        return false;
    }
    // SAFETY: the descriptor is new, and has no other owner.
    unsafe { libc::close(faults as i32) == 0 }
}

/// Writes the page into a file in a new thread, and returns when that thread sleeps in the call: it then holds the lock of the file's inode,
/// or of the FIFO.
pub fn write_for_ever(file: File) -> io::Result<()> {
    sleep_over_a_page(file, |descriptor, page| {
        // SAFETY: the mapping has this length, nothing unmaps it, and the descriptor is open.
        unsafe { libc::write(descriptor, page as *const _, PAGE) };
    })
}

/// Lists the directory into the page in a new thread, and returns when that thread sleeps in the call: it then holds the lock of the directory's
/// inode.
pub fn list_for_ever(directory: File) -> io::Result<()> {
    sleep_over_a_page(directory, |descriptor, page| {
        // SAFETY: as in `write_for_ever`; the kernel writes no more than the length.
        unsafe { libc::syscall(libc::SYS_getdents64, descriptor, page, PAGE) };
    })
}

fn sleep_over_a_page(file: File, call: fn(i32, usize)) -> io::Result<()> {
    let (page, others) = (page()?, sleepers());
    let caller = std::thread::spawn(move || {
        call(file.as_raw_fd(), page);
        drop(file);
    });
    let end = Instant::now() + Duration::from_secs(10);
    while !caller.is_finished() && Instant::now() < end {
        if sleepers() > others {
            return Ok(());
        }
        std::thread::sleep(Duration::from_micros(200));
    }
    Err(io::Error::other("the call came back"))
}

/// Returns the address of a page that is never provided.
fn page() -> io::Result<usize> {
    let faults = FAULTS.load(Ordering::Relaxed);
    // SAFETY: the mapping is new. The structure has the length that the request's number defines, and outlives the call.
    unsafe {
        let rights = libc::PROT_READ | libc::PROT_WRITE;
        let kind = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        let page = libc::mmap(std::ptr::null_mut(), PAGE, rights, kind, -1, 0);
        let mut range = [page as u64, PAGE as u64, MISSING, 0];
        match libc::ioctl(faults, UFFDIO_REGISTER as _, range.as_mut_ptr()) {
            0 => Ok(page as usize),
            _ => Err(io::Error::last_os_error()),
        }
    }
}

/// Returns how many threads of this process sleep on a page that is never provided. Source: proc_pid_wchan(5).
fn sleepers() -> usize {
    let tasks = std::fs::read_dir("/proc/self/task").into_iter().flatten();
    let sleeps = |task: &std::fs::DirEntry| {
        let place = std::fs::read_to_string(task.path().join("wchan"));
        place.is_ok_and(|place| place.contains("userfault"))
    };
    tasks.flatten().filter(sleeps).count()
}
