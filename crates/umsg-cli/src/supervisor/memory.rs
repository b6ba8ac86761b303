//! The memory, the descriptors and the user of a thread that waits for the answer to a system call.
//!
//! After a thread has died, its thread id may be given to another thread. So each caller asks after the access whether the thread still waits
//! ([`Listener::waits`](super::listener::Listener::waits)), before it uses the result.

use std::ffi::CStr;
use std::fs::{self, File};
use std::io;
use std::mem::{self, MaybeUninit};
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::fs::FileExt;
use std::sync::LazyLock;

use libc::{iovec, pid_t};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

/// The number of bytes up to which a string is read at once. No piece crosses a page boundary, because the next page may be unmapped.
const PAGE: u64 = 4096;

fn piece(address: u64, length: usize) -> iovec {
    iovec {
        iov_base: std::ptr::without_provenance_mut(address as usize),
        iov_len: length,
    }
}

/// A structure of numbers that a program passes. Every bit pattern is a valid value.
///
/// # Safety
/// Every bit pattern is a valid value of the type.
pub unsafe trait Plain: Copy {}

// SAFETY: the type consists of numbers.
unsafe impl Plain for i64 {}
// SAFETY: the type consists of numbers.
unsafe impl<const N: usize> Plain for [u8; N] {}
// SAFETY: the type consists of numbers.
unsafe impl Plain for libc::timespec {}
// SAFETY: the type consists of numbers.
unsafe impl Plain for libc::mq_attr {}
// SAFETY: the type consists of numbers.
unsafe impl Plain for libc::msqid_ds {}
// SAFETY: the type consists of numbers.
unsafe impl Plain for libc::msginfo {}
// SAFETY: the type consists of numbers.
unsafe impl Plain for libc::stat {}
// SAFETY: the type consists of numbers.
unsafe impl Plain for libc::statx {}

/// The members of `struct sigevent` that the kernel reads.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Event {
    pub value: u64,
    pub signal: i32,
    pub notify: i32,
}
// SAFETY: the type consists of numbers.
unsafe impl Plain for Event {}

/// Reads a structure at an address in the memory of the thread's process.
pub fn read<T: Plain>(thread: pid_t, address: u64) -> Result<T, i32> {
    let mut value = MaybeUninit::<T>::zeroed();
    let own = iovec {
        iov_base: value.as_mut_ptr().cast(),
        iov_len: size_of::<T>(),
    };
    transfer(
        libc::SYS_process_vm_readv,
        thread,
        &[own],
        &[piece(address, size_of::<T>())],
    )?;
    // SAFETY: by the trait's contract.
    Ok(unsafe { value.assume_init() })
}

/// Reads a structure at one address, and fills a buffer from another address, with one system call. Two separate calls take nearly twice the time.
pub fn read_with<T: Plain>(
    thread: pid_t,
    address: u64,
    buffer: &mut [u8],
    from: u64,
) -> Result<T, i32> {
    let mut value = MaybeUninit::<T>::zeroed();
    let own = [
        iovec {
            iov_base: value.as_mut_ptr().cast(),
            iov_len: size_of::<T>(),
        },
        iovec {
            iov_base: buffer.as_mut_ptr().cast(),
            iov_len: buffer.len(),
        },
    ];
    let (theirs, count) = pieces([(address, size_of::<T>()), (from, buffer.len())]);
    transfer(libc::SYS_process_vm_readv, thread, &own, &theirs[..count])?;
    // SAFETY: by the trait's contract.
    Ok(unsafe { value.assume_init() })
}

/// Fills the buffer from an address in the memory of the thread's process.
pub fn read_bytes(thread: pid_t, address: u64, buffer: &mut [u8]) -> Result<(), i32> {
    if buffer.is_empty() {
        return Ok(());
    }
    let own = iovec {
        iov_base: buffer.as_mut_ptr().cast(),
        iov_len: buffer.len(),
    };
    transfer(
        libc::SYS_process_vm_readv,
        thread,
        &[own],
        &[piece(address, buffer.len())],
    )
}

/// Reads memory of the thread's process into the buffer, up to the first byte that can't be read. Returns the number of bytes that were read.
pub fn read_some(thread: pid_t, address: u64, buffer: &mut [u8]) -> usize {
    let own = iovec {
        iov_base: buffer.as_mut_ptr().cast(),
        iov_len: buffer.len(),
    };
    let theirs = piece(address, buffer.len());
    // SAFETY: the buffer is writable. The kernel checks the other address.
    let copied = unsafe {
        libc::syscall(
            libc::SYS_process_vm_readv,
            thread,
            &raw const own,
            1_usize,
            &raw const theirs,
            1_usize,
            0_usize,
        )
    };
    usize::try_from(copied).unwrap_or(0)
}

/// Returns the status of a file.
pub fn stat_of(path: &CStr) -> Result<libc::stat, i32> {
    let mut found = MaybeUninit::zeroed();
    // SAFETY: a C string, and room for the structure.
    match unsafe { libc::stat(path.as_ptr(), found.as_mut_ptr()) } {
        // SAFETY: the structure consists of numbers, for which zero is a value.
        0 => Ok(unsafe { found.assume_init() }),
        _ => Err(errno()),
    }
}

/// Returns the extended status of a file.
pub fn statx_of(path: &CStr, flags: i32, mask: u32) -> Result<libc::statx, i32> {
    let mut found = MaybeUninit::zeroed();
    // SAFETY: a C string, and room for the structure.
    match unsafe {
        libc::statx(
            libc::AT_FDCWD,
            path.as_ptr(),
            flags,
            mask,
            found.as_mut_ptr(),
        )
    } {
        // SAFETY: the structure consists of numbers, for which zero is a value.
        0 => Ok(unsafe { found.assume_init() }),
        _ => Err(errno()),
    }
}

fn errno() -> i32 {
    io::Error::last_os_error()
        .raw_os_error()
        .unwrap_or(libc::EIO)
}

/// Returns the RLIMIT_MSGQUEUE of a thread's process: the maximum number of bytes in its user's POSIX queues. Returns None if there is no limit, or
/// if the limit can't be read.
pub fn msgqueue_limit(thread: pid_t) -> Option<u64> {
    let mut limit = libc::rlimit {
        rlim_cur: libc::RLIM_INFINITY,
        rlim_max: libc::RLIM_INFINITY,
    };
    let (none, kind) = (std::ptr::null::<libc::rlimit>(), libc::RLIMIT_MSGQUEUE);
    // SAFETY: room for the structure. A failure leaves it unchanged.
    unsafe { libc::syscall(libc::SYS_prlimit64, thread, kind, none, &raw mut limit) };
    (limit.rlim_cur != libc::RLIM_INFINITY).then_some(limit.rlim_cur)
}

/// Reads a C string without its NUL byte. Fails with ENAMETOOLONG if the string has more than `most` bytes.
pub fn read_string(thread: pid_t, address: u64, most: usize) -> Result<Vec<u8>, i32> {
    let mut string = Vec::new();
    let mut at = address;
    while string.len() <= most {
        let mut room = vec![0; (PAGE - at % PAGE) as usize];
        read_bytes(thread, at, &mut room)?;
        at = at.checked_add(room.len() as u64).ok_or(libc::EFAULT)?;
        if let Some(end) = room.iter().position(|&byte| byte == 0) {
            string.extend_from_slice(&room[..end]);
            break;
        }
        string.append(&mut room);
    }
    match string.len() <= most {
        true => Ok(string),
        false => Err(libc::ENAMETOOLONG),
    }
}

/// Writes a structure to an address in the memory of the thread's process.
pub fn write<T: Plain>(thread: pid_t, address: u64, value: &T) -> Result<(), i32> {
    write_parts(
        thread,
        &[(std::ptr::from_ref(value).cast(), size_of::<T>(), address)],
    )
}

/// Writes pieces of this process's memory, each to its own address in the memory of the thread's process. Skips pieces without bytes.
pub fn write_parts<const N: usize>(
    thread: pid_t,
    parts: &[(*const u8, usize, u64); N],
) -> Result<(), i32> {
    let own = parts.map(|(from, length, _)| iovec {
        iov_base: from.cast_mut().cast(),
        iov_len: length,
    });
    let (theirs, count) = pieces(parts.map(|(_, length, to)| (to, length)));
    match count {
        0 => Ok(()),
        _ => transfer(libc::SYS_process_vm_writev, thread, &own, &theirs[..count]),
    }
}

/// Returns the pieces of a thread's memory at these addresses, and their number. Adjacent pieces become one piece, because the kernel takes a lock
/// and looks up pages for each piece.
fn pieces<const N: usize>(parts: [(u64, usize); N]) -> ([iovec; N], usize) {
    let (mut pieces, mut count) = ([piece(0, 0); N], 0);
    let mut end = None;
    for (address, length) in parts.into_iter().filter(|(_, length)| *length > 0) {
        if end == Some(address) {
            pieces[count - 1].iov_len += length;
        } else {
            pieces[count] = piece(address, length);
            count += 1;
        }
        end = address.checked_add(length as u64);
    }
    (pieces, count)
}

/// Copies all bytes of the pieces, or fails. A partial copy fails with EFAULT.
fn transfer(
    number: libc::c_long,
    thread: pid_t,
    own: &[iovec],
    theirs: &[iovec],
) -> Result<(), i32> {
    // SAFETY: the pieces of this process are memory of the callers: writable for a read, readable for a write. The kernel checks the pieces of the
    // other process.
    let copied = unsafe {
        libc::syscall(
            number,
            thread,
            own.as_ptr(),
            own.len(),
            theirs.as_ptr(),
            theirs.len(),
            0_usize,
        )
    };
    let wanted: usize = own.iter().map(|piece| piece.iov_len).sum();
    match usize::try_from(copied) {
        Ok(copied) if copied == wanted => Ok(()),
        Ok(_) => Err(libc::EFAULT),
        Err(_) => Err(io::Error::last_os_error()
            .raw_os_error()
            .unwrap_or(libc::EFAULT)),
    }
}

/// Returns whether a descriptor of the thread and a descriptor of this process refer to the same open file description.
pub fn is_same_file(thread: pid_t, theirs: RawFd, own: BorrowedFd<'_>) -> bool {
    const KCMP_FILE: i32 = 0;
    /// The process id is kept in a static, because `std::process::id` makes a system call each time.
    static OWN: LazyLock<u32> = LazyLock::new(std::process::id);
    // SAFETY: the call takes only numbers.
    let order = unsafe {
        libc::syscall(
            libc::SYS_kcmp,
            *OWN,
            thread,
            KCMP_FILE,
            own.as_raw_fd() as usize,
            theirs as usize,
        )
    };
    order == 0
}

/// Returns a descriptor of a process (pidfd). It never refers to a later process with the same id.
pub fn open_process(process: pid_t) -> Result<OwnedFd, i32> {
    // SAFETY: the call takes only numbers.
    own_descriptor(unsafe { libc::syscall(libc::SYS_pidfd_open, process, 0) })
}

/// Returns a descriptor of this process for the open file description of a thread's descriptor.
pub fn copy_descriptor(thread: pid_t, number: RawFd) -> Result<OwnedFd, i32> {
    let process = match open_thread(thread) {
        // Linux before 6.9: if the first thread of a process has ended, pidfd_getfd(2) does not find the descriptors of the process.
        Err(libc::EINVAL | libc::ENOENT) => {
            open_process(status(thread).ok_or(libc::EBADF)?.process)?
        }
        other => other?,
    };
    // SAFETY: the call takes only numbers.
    own_descriptor(unsafe { libc::syscall(libc::SYS_pidfd_getfd, process.as_raw_fd(), number, 0) })
}

/// Converts the result of a system call that creates a descriptor.
fn own_descriptor(result: libc::c_long) -> Result<OwnedFd, i32> {
    match result {
        // SAFETY: the descriptor is new, and has no other owner.
        0.. => Ok(unsafe { OwnedFd::from_raw_fd(result as RawFd) }),
        _ => Err(io::Error::last_os_error()
            .raw_os_error()
            .unwrap_or(libc::EBADF)),
    }
}

/// Returns whether a descriptor of the thread has the flag close-on-exec.
pub fn closes_at_exec(thread: pid_t, number: RawFd) -> bool {
    let info = fs::read_to_string(format!("/proc/{thread}/fdinfo/{number}")).unwrap_or_default();
    let flags = info.lines().find_map(|line| line.strip_prefix("flags:"));
    let flags = flags.and_then(|flags| i32::from_str_radix(flags.trim(), 8).ok());
    flags.is_none_or(|flags| flags & libc::O_CLOEXEC != 0)
}

/// Returns a descriptor of a thread. The descriptor never refers to a later thread with the same id.
pub fn open_thread(thread: pid_t) -> Result<OwnedFd, i32> {
    /// Source: linux/pidfd.h.
    const PIDFD_THREAD: i32 = libc::O_EXCL;
    // SAFETY: the call takes only numbers.
    let opened =
        own_descriptor(unsafe { libc::syscall(libc::SYS_pidfd_open, thread, PIDFD_THREAD) });
    match opened {
        // Linux before 6.9 opens only processes, so only the first thread of a process can be opened.
        Err(libc::EINVAL) => open_process(thread),
        other => other,
    }
}

/// Returns whether a thread lives. For a first thread on Linux before 6.9, returns whether its process lives.
pub fn lives(thread: &OwnedFd) -> bool {
    let mut polled = [PollFd::new(thread, PollFlags::IN)];
    poll(&mut polled, Some(&Timespec::default())) == Ok(0)
}

/// Returns whether a process has a thread with this id.
pub fn has_thread(process: pid_t, thread: pid_t) -> bool {
    fs::exists(format!("/proc/{process}/task/{thread}")).unwrap_or(true)
}

/// The state of a thread's process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Status {
    pub process: pid_t,
    /// The effective user id.
    pub user: u32,
    /// The effective group id.
    pub group: u32,
    /// The real user and group ids.
    pub real: (u32, u32),
    pub umask: u32,
}

/// Returns the status of a thread's process, from /proc. Returns None if there is no such thread.
pub fn status(thread: pid_t) -> Option<Status> {
    let text = fs::read_to_string(format!("/proc/{thread}/status")).ok()?;
    let line = |name| text.lines().find_map(|line| line.strip_prefix(name));
    let id = |name, at| line(name)?.split_ascii_whitespace().nth(at)?.parse().ok();
    Some(Status {
        process: line("Tgid:")?.trim().parse().ok()?,
        user: id("Uid:", 1)?,
        group: id("Gid:", 1)?,
        real: (id("Uid:", 0)?, id("Gid:", 0)?),
        umask: u32::from_str_radix(line("Umask:")?.trim(), 8).ok()?,
    })
}

/// Whether a thread has a pending signal that it does not mask, and which threads can handle the signal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Signal {
    None,
    /// Only this thread can handle the signal.
    OfThread,
    /// This thread or another thread of its process can handle the signal.
    OfProcess,
}

/// Opens the file in /proc that shows a thread's pending signals.
pub fn open_status(thread: pid_t) -> io::Result<File> {
    File::open(format!("/proc/{thread}/status"))
}

/// Reads a file in /proc from its start. The file may have been opened and read before.
fn text_of(file: &File) -> io::Result<String> {
    let mut bytes = vec![0; 4096];
    // The buffer grows until the file fits: a thread may have many groups.
    loop {
        let len = file.read_at(&mut bytes, 0)?;
        if len < bytes.len() {
            bytes.truncate(len);
            return Ok(String::from_utf8_lossy(&bytes).into_owned());
        }
        bytes.resize(2 * len, 0);
    }
}

/// Returns whether a thread has a pending signal, from its file in /proc. The file never shows a signal that the process ignores.
pub fn signal(thread: pid_t, kept: Option<&File>) -> Signal {
    let text = match kept {
        Some(file) => text_of(file),
        None => open_status(thread).and_then(|file| text_of(&file)),
    };
    let text = text.unwrap_or_default();
    let line = |name| text.lines().find_map(|line| line.strip_prefix(name));
    let set = |name| u64::from_str_radix(line(name).unwrap_or("0").trim(), 16).unwrap_or(0);
    let open = !set("SigBlk:");
    let is_alone = line("Threads:").is_some_and(|count| count.trim() == "1");
    match (set("SigPnd:") & open, set("ShdPnd:") & open) {
        (0, 0) => Signal::None,
        (0, _) if !is_alone => Signal::OfProcess,
        _ => Signal::OfThread,
    }
}

/// Queues a signal as the kernel does for a queue's notification: with SI_MESGQ, the value, and the sender.
pub fn tell(process: BorrowedFd<'_>, signal: i32, value: u64, sender: (u32, u32)) {
    /// The members of `siginfo_t` that a queue's notification sets, on 64-bit machines.
    #[repr(C)]
    struct Info {
        signal: i32,
        errno: i32,
        code: i32,
        padding: i32,
        sender: i32,
        user: u32,
        value: u64,
        rest: [u64; 12],
    }
    const _: () = assert!(size_of::<Info>() == size_of::<libc::siginfo_t>());
    let info = Info {
        signal,
        errno: 0,
        code: libc::SI_MESGQ,
        padding: 0,
        sender: sender.0.cast_signed(),
        user: sender.1,
        value,
        rest: [0; 12],
    };
    // SAFETY: the structure has the size that the kernel reads. If the process has ended, the call fails.
    unsafe {
        libc::syscall(
            libc::SYS_pidfd_send_signal,
            process.as_raw_fd(),
            signal,
            &raw const info,
            0,
        );
    }
}

/// Returns queue attributes in which all fields are zero, as the kernel sets the reserved fields.
pub fn no_attributes() -> libc::mq_attr {
    // SAFETY: the structure consists of numbers, for which zero is a value.
    unsafe { mem::zeroed() }
}

/// Returns a queue description in which all fields are zero.
pub fn no_description() -> libc::msqid_ds {
    // SAFETY: the structure consists of numbers, for which zero is a value.
    unsafe { mem::zeroed() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_read_and_written_and_a_bad_address_is_efault() {
        let me = std::process::id().cast_signed();
        let mut place = 7_i64;
        let address = (&raw mut place).addr() as u64;
        assert_eq!(read::<i64>(me, address), Ok(7));
        assert_eq!(write(me, address, &9_i64), Ok(()));
        assert_eq!(std::hint::black_box(place), 9);
        assert_eq!(read::<i64>(me, 8), Err(libc::EFAULT));
        assert_eq!(write(me, 8, &9_i64), Err(libc::EFAULT));
        let name = c"a name";
        let address = name.as_ptr().addr() as u64;
        assert_eq!(read_string(me, address, 6), Ok(b"a name".to_vec()));
        assert_eq!(read_string(me, address, 5), Err(libc::ENAMETOOLONG));
    }

    #[test]
    fn parts_are_copied_wherever_they_lie() {
        let me = std::process::id().cast_signed();
        let mut room = [0_u8; 32];
        let start = room.as_mut_ptr().addr() as u64;
        let write = |parts| write_parts(me, &parts);
        let part = |text: &'static [u8], to| (text.as_ptr(), text.len(), to);
        // The parts are: two adjacent parts, a part without bytes at a bad address, and a part at a lower address.
        let parts = [
            part(b"one", start + 4),
            part(b"two", start + 7),
            part(b"", 8),
            part(b"0", start),
        ];
        assert_eq!(write(parts), Ok(()));
        assert_eq!(std::hint::black_box(&room)[..11], *b"0\0\0\0onetwo\0");
        assert_eq!(write([part(b"", 8); 4]), Ok(()));
        let fails = [part(b"0", start), part(b"", 8), part(b"", 8), part(b"2", 8)];
        assert_eq!(write(fails), Err(libc::EFAULT));
        let last = [
            part(b"1", u64::MAX),
            part(b"2", 0),
            part(b"", 8),
            part(b"", 8),
        ];
        assert_eq!(write(last), Err(libc::EFAULT));
        let mut text = [0; 3];
        let number = read_with::<[u8; 4]>(me, start, &mut text, start + 7);
        assert_eq!((number, &text), (Ok(*b"0\0\0\0"), b"two"));
        let number = read_with::<[u8; 4]>(me, start + 3, &mut text, start + 7);
        assert_eq!((number, &text), (Ok(*b"\0one"), b"two"));
        assert_eq!(read_with::<[u8; 4]>(me, start, &mut [], 8), Ok(*b"0\0\0\0"));
        let bad = read_with::<[u8; 4]>(me, start, &mut text, 8);
        assert_eq!(bad, Err(libc::EFAULT));
    }

    #[test]
    fn the_status_of_this_thread_is_that_of_its_process() {
        // SAFETY: the call takes no arguments.
        let thread = unsafe { libc::gettid() };
        let status = status(thread).unwrap();
        assert_eq!(status.process, std::process::id().cast_signed());
        assert_eq!(status.user, rustix::process::geteuid().as_raw());
    }
}
