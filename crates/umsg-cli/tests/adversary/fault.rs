//! A page that is never there: a system call that reads it stays in the kernel, with all locks that it has taken.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicI32, Ordering};
use std::time::{Duration, Instant};

/// The descriptor that is told of faults, and tells nobody. Source: userfaultfd(2).
static FAULTS: AtomicI32 = AtomicI32::new(-1);

/// The kernel's numbers. Source: linux/userfaultfd.h.
const UFFDIO_API: u64 = 0xc018_aa3f;
const UFFDIO_REGISTER: u64 = 0xc020_aa00;
const API: u64 = 0xaa;
const MISSING: u64 = 1;
const PAGE: usize = 4096;

/// Makes the descriptor, as long as the process is root's: other users can't, where faults are of system calls. An adversary mounts a file system of
/// its own (FUSE) to the same end.
pub fn prepare() {
    // SAFETY: takes no pointers.
    let faults =
        unsafe { libc::syscall(libc::SYS_userfaultfd, libc::O_CLOEXEC | libc::O_NONBLOCK) };
    // Relaxed: a process prepares before it starts threads.
    FAULTS.store(faults as i32, Ordering::Relaxed);
}

/// Writes the page into a file, by a thread of its own, and returns when that sleeps over it.
pub fn write_for_ever(file: File) -> io::Result<()> {
    let page = page()?;
    let descriptor = file.as_raw_fd();
    let writer = std::thread::spawn(move || {
        // SAFETY: a mapping of this length, which nothing unmaps, and an open descriptor.
        unsafe { libc::write(descriptor, page as *const _, PAGE) };
        drop(file);
    });
    let end = Instant::now() + Duration::from_secs(10);
    while !writer.is_finished() && Instant::now() < end {
        if sleeps_over_a_page() {
            return Ok(());
        }
        std::thread::sleep(Duration::from_micros(200));
    }
    Err(io::Error::other("the write came back"))
}

/// The address of a page that is not there.
fn page() -> io::Result<usize> {
    let faults = FAULTS.load(Ordering::Relaxed);
    let mut api = [API, 0, 0];
    // SAFETY: a new mapping; structures of the lengths that the numbers of the calls tell, which live as long as the calls.
    unsafe {
        if libc::ioctl(faults, UFFDIO_API as _, api.as_mut_ptr()) != 0 {
            return Err(io::Error::last_os_error());
        }
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

/// Whether a thread of this process does. Source: proc_pid_wchan(5).
fn sleeps_over_a_page() -> bool {
    let tasks = std::fs::read_dir("/proc/self/task").into_iter().flatten();
    tasks.flatten().any(|task| {
        let place = std::fs::read_to_string(task.path().join("wchan"));
        place.is_ok_and(|place| place.contains("userfault"))
    })
}
