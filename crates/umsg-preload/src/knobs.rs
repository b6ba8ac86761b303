//! The limits in /proc/sys that belong to message queues: reads and writes of these files concern the limits of the namespace ([`umsg::Limits`]).
//!
//! A descriptor for writing is a file in memory. Its name contains the path, and its mode is [`MARK`], so each process that inherits it recognises
//! it: a shell passes it on to its commands. The library parses a write to it as the kernel does, and the write takes effect before it returns. The
//! streams of libc write without a call of this library. The text that they have written to the file takes effect in fflush, fclose, fseek or rewind.
//!
//! The file must belong to the process's user or to root. If another user passes such a file on, writes to it have no effect.

use std::ffi::c_int;
use std::fs::File;
use std::io::Read;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};

use libc::{iovec, off_t, ssize_t};
use rustix::fs::{FileType, MemfdFlags, Mode, OFlags, SeekFrom, Stat};
use umsg::{Limits, Namespace};
use umsg_shm::sys::stack::roomy;

use crate::table::ACCESS_MODE;
use crate::{debug, errno, fd, home, pointer};

/// A limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Knob {
    MsgDefault,
    MsgMost,
    MsgsizeDefault,
    MsgsizeMost,
    QueuesMost,
    /// The maximum number of bytes in a System V message.
    Msgmax,
    /// The default limit of the bytes in a System V queue.
    Msgmnb,
    /// The maximum number of System V queues in the namespace.
    Msgmni,
    /// The identifier of the next System V queue. The setting applies to one queue.
    MsgNextId,
}

use Knob::*;

const ALL: [Knob; 9] = [
    MsgDefault,
    MsgMost,
    MsgsizeDefault,
    MsgsizeMost,
    QueuesMost,
    Msgmax,
    Msgmnb,
    Msgmni,
    MsgNextId,
];

/// The mode of the files in memory that are open for writing.
const MARK: u32 = 0o1600;

/// The beginning of the names of these files.
const NAME: &str = "umsg:";

/// Set once the process has opened or inherited a limit for writing.
#[unsafe(link_section = ".data.umsg")]
static ANY: AtomicBool = AtomicBool::new(false);

/// Notes a file that the program was started with.
pub(crate) fn note_arrival(status: &Stat) {
    if is_marked(status) {
        ANY.store(true, Ordering::Relaxed);
    }
}

fn is_marked(status: &Stat) -> bool {
    let mode = status.st_mode;
    FileType::from_raw_mode(mode) == FileType::RegularFile && mode & 0o7777 == MARK
}

/// Returns whether the process may have a descriptor that writes to a limit.
#[inline(always)]
pub(crate) fn are_there() -> bool {
    // Relaxed: as in `of`.
    ANY.load(Ordering::Relaxed)
}

/// Returns the limit that a descriptor writes to.
#[inline(always)]
pub(crate) fn of(number: c_int) -> Option<Knob> {
    // Relaxed: a thread that has the descriptor sees the mark.
    if ANY.load(Ordering::Relaxed) {
        identify(number)
    } else {
        None
    }
}

#[cold]
fn identify(number: c_int) -> Option<Knob> {
    let status = rustix::fs::fstat(fd::borrow(number)?).ok()?;
    let user = rustix::process::geteuid().as_raw();
    if !is_marked(&status) || ![0, user].contains(&status.st_uid) {
        return None;
    }
    roomy(|| {
        let target = rustix::fs::readlink(path_of(number), Vec::new()).ok()?;
        let name = target.as_bytes().strip_prefix(b"/memfd:")?;
        let name = name.strip_prefix(NAME.as_bytes())?;
        Knob::named(name.strip_suffix(b" (deleted)").unwrap_or(name))
    })
}

fn path_of(number: c_int) -> String {
    format!("/proc/self/fd/{number}")
}

impl Knob {
    /// Returns the limit that a path in /proc/sys names.
    pub(crate) fn named(path: &[u8]) -> Option<Knob> {
        ALL.into_iter().find(|knob| knob.path().as_bytes() == path)
    }

    fn path(self) -> &'static str {
        match self {
            MsgDefault => "/proc/sys/fs/mqueue/msg_default",
            MsgMost => "/proc/sys/fs/mqueue/msg_max",
            MsgsizeDefault => "/proc/sys/fs/mqueue/msgsize_default",
            MsgsizeMost => "/proc/sys/fs/mqueue/msgsize_max",
            QueuesMost => "/proc/sys/fs/mqueue/queues_max",
            Msgmax => "/proc/sys/kernel/msgmax",
            Msgmnb => "/proc/sys/kernel/msgmnb",
            Msgmni => "/proc/sys/kernel/msgmni",
            MsgNextId => "/proc/sys/kernel/msg_next_id",
        }
    }

    /// Returns the kernel's lowest value. umsg checks the highest value.
    fn least(self) -> u32 {
        match self {
            MsgDefault | MsgMost => 1,
            MsgsizeDefault | MsgsizeMost => 128,
            QueuesMost | Msgmax | Msgmnb | Msgmni | MsgNextId => 0,
        }
    }

    fn value(self, limits: &Limits) -> i64 {
        i64::from(match self {
            MsgDefault => limits.default_messages,
            MsgMost => limits.max_messages,
            MsgsizeDefault => limits.default_message_size,
            MsgsizeMost => limits.max_message_size,
            QueuesMost => limits.max_queues,
            Msgmax => limits.msgmax,
            Msgmnb => limits.msgmnb,
            Msgmni => limits.msgmni,
            MsgNextId => return limits.next_id.map_or(-1, i64::from),
        })
    }

    /// Sets a limit.
    fn change(self, limits: &mut Limits, value: u32) {
        match self {
            MsgDefault => limits.default_messages = value,
            MsgMost => limits.max_messages = value,
            MsgsizeDefault => limits.default_message_size = value,
            MsgsizeMost => limits.max_message_size = value,
            QueuesMost => limits.max_queues = value,
            Msgmax => limits.msgmax = value,
            Msgmnb => limits.msgmnb = value,
            Msgmni => limits.msgmni = value,
            MsgNextId => limits.next_id = Some(value),
        }
    }

    /// Opens a file in memory that stands for the limit.
    pub(crate) fn open(self, flags: c_int, may_write: bool) -> Result<OwnedFd, c_int> {
        let namespace = self.namespace()?;
        if may_write && !namespace.may_set_limits() {
            let error = "only the namespace's owner and root set its limits";
            debug::explain("open", self.path().as_bytes(), &error);
            return Err(libc::EACCES);
        }
        let access = flags & ACCESS_MODE;
        self.file(
            namespace,
            access,
            flags & (libc::O_CLOEXEC | libc::O_NONBLOCK),
        )
    }

    fn file(self, namespace: &Namespace, access: c_int, others: c_int) -> Result<OwnedFd, c_int> {
        let raw = |error: rustix::io::Errno| error.raw_os_error();
        let name = format!("{NAME}{}", self.path());
        let file = rustix::fs::memfd_create(name, MemfdFlags::CLOEXEC).map_err(raw)?;
        if access != libc::O_WRONLY {
            let text = self.text(namespace)?;
            rustix::io::pwrite(&file, text.as_bytes(), 0).map_err(raw)?;
            mark_unwritten(file.as_fd());
        }
        if access != libc::O_RDONLY {
            rustix::fs::fchmod(&file, Mode::from_raw_mode(MARK)).map_err(raw)?;
            ANY.store(true, Ordering::Relaxed);
        }
        // The file is opened once more, because the first descriptor can be read and written.
        let flags = OFlags::from_bits_retain((access | others).cast_unsigned());
        rustix::fs::open(path_of(file.as_raw_fd()), flags, Mode::empty()).map_err(raw)
    }

    fn namespace(self) -> Result<&'static Namespace, c_int> {
        home::namespace().map_err(|error| {
            debug::explain("open", self.path().as_bytes(), &error);
            error.errno()
        })
    }

    fn text(self, namespace: &Namespace) -> Result<String, c_int> {
        let limits = namespace.limits().map_err(|error| error.errno())?;
        Ok(format!("{}\n", self.value(&limits)))
    }

    /// Sets the limit to the number that a text begins with. Returns the number of bytes that were used.
    fn set(self, text: &[u8]) -> Result<usize, c_int> {
        let (value, used) = parse(text).ok_or(libc::EINVAL)?;
        if value < self.least() {
            return Err(libc::EINVAL);
        }
        let namespace = self.namespace()?;
        let mut limits = namespace.limits().map_err(|error| error.errno())?;
        self.change(&mut limits, value);
        namespace.set_limits(&limits).map_err(|error| {
            debug::explain("write", self.path().as_bytes(), &error);
            error.errno()
        })?;
        Ok(used)
    }
}

/// Parses a number as the kernel does for these files: white space, a decimal, octal or hexadecimal number, and white space. Also returns the
/// number of bytes up to the next byte that is not white space. Source: `do_proc_dointvec` in kernel/sysctl.c.
fn parse(text: &[u8]) -> Option<(u32, usize)> {
    let is_space = |byte: &u8| byte.is_ascii_whitespace() || *byte == 0x0b;
    let begin = text.iter().position(|byte| !is_space(byte))?;
    let rest = &text[begin..];
    let (radix, prefix) = match rest {
        [b'0', b'x' | b'X', next, ..] if next.is_ascii_hexdigit() => (16, 2),
        [b'0', ..] => (8, 0),
        _ => (10, 0),
    };
    let digits = &rest[prefix..];
    let is_digit = |byte: &u8| char::from(*byte).is_digit(radix);
    let count = digits.iter().take_while(|byte| is_digit(byte)).count();
    let number = std::str::from_utf8(&digits[..count]).ok()?;
    let value = i32::from_str_radix(number, radix).ok()?;
    let behind = &digits[count..];
    if !matches!(behind.first(), None | Some(b' ' | b'\t' | b'\n')) {
        return None;
    }
    let spaces = behind.iter().take_while(|byte| is_space(byte)).count();
    Some((value.cast_unsigned(), begin + prefix + count + spaces))
}

/// Answers a write to a limit, at an offset or at the position of the descriptor. `None` for any other file.
///
/// # Safety
/// Each part has as many readable bytes as it says, or an address that a pointer check refuses.
#[inline(always)]
pub(crate) unsafe fn written(
    number: c_int,
    parts: &[iovec],
    offset: Option<off_t>,
) -> Option<ssize_t> {
    let knob = of(number)?;
    // SAFETY: by this function's contract.
    Some(unsafe { write(knob, number, parts, offset) }.unwrap_or_else(errno::fail))
}

/// # Safety
/// The conditions of [`written`].
#[cold]
unsafe fn write(
    knob: Knob,
    number: c_int,
    parts: &[iovec],
    offset: Option<off_t>,
) -> Result<ssize_t, c_int> {
    let descriptor = fd::borrow(number).ok_or(libc::EBADF)?;
    if fd::status_flags(descriptor).map_err(|_| libc::EBADF)? & ACCESS_MODE == libc::O_RDONLY {
        return Err(libc::EBADF);
    }
    // SAFETY: by this function's contract.
    let text = unsafe { gather(parts)? };
    if text.is_empty() {
        return Ok(0);
    }
    let position = match offset {
        Some(offset) => u64::try_from(offset).map_err(|_| libc::EINVAL)?,
        None => rustix::fs::tell(descriptor).map_err(|error| error.raw_os_error())?,
    };
    // The kernel ignores a write that does not begin at offset 0.
    let used = match position {
        0 => roomy(|| knob.set(&text).inspect(|_| show(knob, descriptor)))?,
        _ => text.len(),
    };
    if offset.is_none() {
        let _ = rustix::fs::seek(descriptor, SeekFrom::Start(position + used as u64));
    }
    Ok(used.cast_signed())
}

/// # Safety
/// The conditions of [`written`].
unsafe fn gather(parts: &[iovec]) -> Result<Vec<u8>, c_int> {
    /// The maximum number of bytes that the kernel reads of a write.
    const MOST: usize = 4095;
    let mut text = Vec::new();
    for part in parts.iter().filter(|part| part.iov_len > 0) {
        if pointer::is_bad(part.iov_base) {
            return Err(libc::EFAULT);
        }
        let len = part.iov_len.min(MOST - text.len());
        // SAFETY: by this function's contract.
        text.extend_from_slice(unsafe { std::slice::from_raw_parts(part.iov_base.cast(), len) });
    }
    Ok(text)
}

/// Puts the present value into a file that can be read, too.
fn show(knob: Knob, descriptor: BorrowedFd<'_>) {
    let access = fd::status_flags(descriptor).unwrap_or(0) & ACCESS_MODE;
    let text = match knob.namespace().and_then(|namespace| knob.text(namespace)) {
        Ok(text) if access == libc::O_RDWR => text,
        _ => String::new(),
    };
    // A failure leaves the old value to be read.
    let _ = rustix::fs::ftruncate(descriptor, text.len() as u64);
    let _ = rustix::io::pwrite(descriptor, text.as_bytes(), 0);
    mark_unwritten(descriptor);
}

/// Sets the time of the file's last change to 0: a write by a stream sets it again.
fn mark_unwritten(descriptor: BorrowedFd<'_>) {
    let zero = rustix::fs::Timespec::default();
    let times = rustix::fs::Timestamps {
        last_access: zero,
        last_modification: zero,
    };
    // If this fails, a stream that has only read sets the limit to the value that it has read.
    let _ = rustix::fs::futimens(descriptor, &times);
}

/// Returns whether a stream has written to the file.
fn is_written(descriptor: BorrowedFd<'_>) -> bool {
    rustix::fs::fstat(descriptor).is_ok_and(|stat| (stat.st_mtime, stat.st_mtime_nsec) != (0, 0))
}

/// Sets a limit from the text that a stream has written to the limit's file.
pub(crate) fn settle(number: c_int) -> Result<(), c_int> {
    let (Some(knob), Some(descriptor)) = (of(number), fd::borrow(number)) else {
        return Ok(());
    };
    let access = fd::status_flags(descriptor).unwrap_or(0) & ACCESS_MODE;
    // The old text is behind the bytes that a stream has written at the beginning.
    let len = match access {
        libc::O_WRONLY => 4095,
        libc::O_RDWR if is_written(descriptor) => rustix::fs::tell(descriptor).unwrap_or(0),
        _ => return Ok(()),
    };
    roomy(|| {
        let mut text = Vec::new();
        let file = File::open(path_of(number)).map_err(|_| libc::EIO)?;
        file.take(len.min(4095))
            .read_to_end(&mut text)
            .map_err(|_| libc::EIO)?;
        if access == libc::O_WRONLY {
            let _ = rustix::fs::ftruncate(descriptor, 0);
        }
        // An empty text was written by a call, or not at all. If the first byte is zero, the write was not at the beginning of the file, and is
        // ignored.
        let outcome = match text.first() {
            None | Some(0) => Ok(()),
            Some(_) => knob.set(&text).map(drop),
        };
        if access == libc::O_RDWR {
            show(knob, descriptor);
        }
        outcome
    })
}

#[cfg(test)]
mod tests {
    use super::{Knob, parse};

    #[test]
    fn numbers_are_parsed_as_by_the_kernel() {
        let good: [(&[u8], _); 9] = [
            (b"1", (1, 1)),
            (b"128\n", (128, 4)),
            (b" 5 ", (5, 3)),
            (b"\t6\n\n", (6, 4)),
            (b"0x10", (16, 4)),
            (b"007", (7, 3)),
            (b"5 6", (5, 2)),
            (b"0\n", (0, 2)),
            (b"2147483647", (i32::MAX as u32, 10)),
        ];
        for (text, expected) in good {
            assert_eq!(parse(text), Some(expected), "{}", text.escape_ascii());
        }
        let bad: [&[u8]; 10] = [
            b"5x",
            b"x",
            b"\n",
            b" ",
            b"-1",
            b"+7",
            b"5\0",
            b"2147483648",
            b"08",
            b"0x",
        ];
        for text in bad {
            assert_eq!(parse(text), None, "{}", text.escape_ascii());
        }
    }

    #[test]
    fn a_limit_is_known_by_its_path() {
        assert_eq!(Knob::named(b"/proc/sys/kernel/msgmni"), Some(Knob::Msgmni));
        assert_eq!(
            Knob::named(b"/proc/sys/fs/mqueue/msg_max"),
            Some(Knob::MsgMost)
        );
        assert_eq!(Knob::named(b"/proc/sys/kernel/msgmni2"), None);
    }
}
