//! The limits in /proc/sys that belong to message queues: their values, and the files in memory that a program gets in place of the kernel's files.
//!
//! A file in memory that is open for writing has a name that contains the limit's path, and the mode `MARK`. So each process that inherits the
//! descriptor, such as a command of a shell, recognises the file. The file must belong to the process's user or to root. If another user passes such
//! a file on, writes to the file have no effect.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use rustix::fs::{FileType, MemfdFlags, Mode, OFlags, Stat};

use crate::{Limits, Namespace, NamespaceError};

/// A limit in /proc/sys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Limit {
    /// The depth of a POSIX queue that is created without attributes.
    MsgDefault,
    /// The maximum depth of a POSIX queue.
    MsgMost,
    /// The message size of a POSIX queue that is created without attributes.
    MsgsizeDefault,
    /// The maximum message size of a POSIX queue.
    MsgsizeMost,
    /// The maximum number of POSIX queues in the namespace.
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

use Limit::*;

const ALL: [Limit; 9] = [
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

/// The beginning of the names of the files in memory that represent limits.
const NAME: &str = "umsg:";

/// The reason why a limit was not set.
#[derive(Debug)]
pub enum SetError {
    /// The text is no number, or the number is below the lowest value.
    Invalid,
    /// The namespace refused the value, or its limits could not be read or written.
    Namespace(NamespaceError),
}

impl SetError {
    /// Returns the errno with which the write to the limit's file fails.
    ///
    /// ```
    /// use umsg::kernel_files::limit::{Limit, SetError};
    /// # let dir = tempfile::tempdir_in("/dev/shm")?;
    /// # let namespace = umsg::Namespace::at(dir.path())?;
    /// let error = Limit::Msgmni.set(&namespace, b"many").unwrap_err();
    /// assert!(matches!(error, SetError::Invalid));
    /// assert_eq!(error.errno(), libc::EINVAL);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn errno(&self) -> i32 {
        match self {
            SetError::Invalid => libc::EINVAL,
            SetError::Namespace(error) => error.errno(),
        }
    }
}

impl From<NamespaceError> for SetError {
    fn from(error: NamespaceError) -> SetError {
        SetError::Namespace(error)
    }
}

/// Returns whether a file may represent a limit that is open for writing: the file has the mark, and belongs to root or to `user`.
///
/// ```
/// use umsg::kernel_files::limit::{Limit, is_marked};
/// # let dir = tempfile::tempdir_in("/dev/shm")?;
/// # let namespace = umsg::Namespace::at(dir.path())?;
/// let file = Limit::Msgmni.open(&namespace, libc::O_WRONLY, 0).unwrap();
/// let user = rustix::process::geteuid().as_raw();
/// assert!(is_marked(&rustix::fs::fstat(&file)?, user));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[must_use]
pub fn is_marked(status: &Stat, user: u32) -> bool {
    has_mark(status) && [0, user].contains(&status.st_uid)
}

/// Returns whether a file has the mode of the files that are open for writing to a limit.
///
/// ```
/// use umsg::kernel_files::limit::has_mark;
/// assert!(!has_mark(&rustix::fs::stat("/proc/self/status")?));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[must_use]
pub fn has_mark(status: &Stat) -> bool {
    let mode = status.st_mode;
    FileType::from_raw_mode(mode) == FileType::RegularFile && mode & 0o7777 == MARK
}

fn path_of(descriptor: BorrowedFd<'_>) -> String {
    format!("/proc/self/fd/{}", descriptor.as_raw_fd())
}

impl Limit {
    /// Returns the limit that a path in /proc/sys names.
    ///
    /// ```
    /// use umsg::kernel_files::limit::Limit;
    /// assert_eq!(Limit::named(b"/proc/sys/kernel/msgmni"), Some(Limit::Msgmni));
    /// assert_eq!(Limit::named(b"/proc/sys/kernel/osrelease"), None);
    /// ```
    #[must_use]
    pub fn named(path: &[u8]) -> Option<Limit> {
        ALL.into_iter()
            .find(|limit| limit.path().as_bytes() == path)
    }

    /// Returns the limit that a file in memory represents. The caller has checked [`is_marked`].
    ///
    /// ```
    /// use std::os::fd::AsFd;
    /// use umsg::kernel_files::limit::Limit;
    /// # let dir = tempfile::tempdir_in("/dev/shm")?;
    /// # let namespace = umsg::Namespace::at(dir.path())?;
    /// let file = Limit::Msgmni.open(&namespace, libc::O_WRONLY, 0).unwrap();
    /// assert_eq!(Limit::of_file(file.as_fd()), Some(Limit::Msgmni));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn of_file(descriptor: BorrowedFd<'_>) -> Option<Limit> {
        let target = rustix::fs::readlink(path_of(descriptor), Vec::new()).ok()?;
        let name = target.as_bytes().strip_prefix(b"/memfd:")?;
        let name = name.strip_prefix(NAME.as_bytes())?;
        Limit::named(name.strip_suffix(b" (deleted)").unwrap_or(name))
    }

    /// Returns the path of the kernel's file for this limit.
    ///
    /// ```
    /// use umsg::kernel_files::limit::Limit;
    /// assert_eq!(Limit::MsgMost.path(), "/proc/sys/fs/mqueue/msg_max");
    /// ```
    #[must_use]
    pub fn path(self) -> &'static str {
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

    /// Sets this limit in `limits`.
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

    /// Opens a file in memory that represents the limit, with an access mode of open(2) and further flags.
    ///
    /// ```
    /// use umsg::kernel_files::limit::Limit;
    /// # let dir = tempfile::tempdir_in("/dev/shm")?;
    /// # let namespace = umsg::Namespace::at(dir.path())?;
    /// let file = Limit::Msgmni.open(&namespace, libc::O_RDONLY, 0).unwrap();
    /// assert_eq!(std::io::read_to_string(std::fs::File::from(file))?, "32000\n");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// The errno of the opening.
    pub fn open(self, namespace: &Namespace, access: i32, others: i32) -> Result<OwnedFd, i32> {
        let raw = |error: rustix::io::Errno| error.raw_os_error();
        let name = format!("{NAME}{}", self.path());
        let file = rustix::fs::memfd_create(name, MemfdFlags::CLOEXEC).map_err(raw)?;
        if access != libc::O_WRONLY {
            let text = self.text(namespace).map_err(|error| error.errno())?;
            rustix::io::pwrite(&file, text.as_bytes(), 0).map_err(raw)?;
            mark_unwritten(file.as_fd());
        }
        if access != libc::O_RDONLY {
            rustix::fs::fchmod(&file, Mode::from_raw_mode(MARK)).map_err(raw)?;
        }
        // The file is opened once more, because the first descriptor is open for reading and writing.
        let flags = OFlags::from_bits_retain((access | others).cast_unsigned());
        rustix::fs::open(path_of(file.as_fd()), flags, Mode::empty()).map_err(raw)
    }

    /// Returns the present value, as the kernel's file shows it.
    ///
    /// ```
    /// use umsg::kernel_files::limit::Limit;
    /// # let dir = tempfile::tempdir_in("/dev/shm")?;
    /// # let namespace = umsg::Namespace::at(dir.path())?;
    /// assert_eq!(Limit::Msgmni.text(&namespace)?, "32000\n");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// The limits can't be read.
    pub fn text(self, namespace: &Namespace) -> Result<String, NamespaceError> {
        Ok(format!("{}\n", self.value(&namespace.limits()?)))
    }

    /// Sets the limit to the number at the beginning of a text. Returns the length of the parsed text in bytes: the number, and the white space
    /// around it.
    ///
    /// ```
    /// use umsg::kernel_files::limit::Limit;
    /// # let dir = tempfile::tempdir_in("/dev/shm")?;
    /// # let namespace = umsg::Namespace::at(dir.path())?;
    /// assert_eq!(Limit::Msgmni.set(&namespace, b"50\n").unwrap(), 3);
    /// assert_eq!(namespace.limits()?.msgmni, 50);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// The text is no number, or the namespace refuses the value.
    pub fn set(self, namespace: &Namespace, text: &[u8]) -> Result<usize, SetError> {
        let (value, used) = parse(text).ok_or(SetError::Invalid)?;
        if value < self.least() {
            return Err(SetError::Invalid);
        }
        namespace.update_limits(|limits| self.change(limits, value))?;
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

/// Sets the time of the file's last modification to 0. If a stream of the C library later writes to the file, the kernel sets this time to the
/// present.
///
/// ```
/// use std::os::fd::AsFd;
/// use umsg::kernel_files::limit::{Limit, is_written, mark_unwritten};
/// # let dir = tempfile::tempdir_in("/dev/shm")?;
/// # let namespace = umsg::Namespace::at(dir.path())?;
/// let file = Limit::Msgmni.open(&namespace, libc::O_RDWR, 0).unwrap();
/// mark_unwritten(file.as_fd());
/// assert!(!is_written(file.as_fd()));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn mark_unwritten(descriptor: BorrowedFd<'_>) {
    let zero = rustix::fs::Timespec::default();
    let times = rustix::fs::Timestamps {
        last_access: zero,
        last_modification: zero,
    };
    // If the call fails, a stream that has only read the file looks as if it had written. When that stream is closed, the limit is then set to the
    // value that the stream has read.
    let _ = rustix::fs::futimens(descriptor, &times);
}

/// Returns whether a stream has written to the file since [`mark_unwritten`].
///
/// ```
/// use std::io::Write;
/// use std::os::fd::AsFd;
/// use umsg::kernel_files::limit::{Limit, is_written, mark_unwritten};
/// # let dir = tempfile::tempdir_in("/dev/shm")?;
/// # let namespace = umsg::Namespace::at(dir.path())?;
/// let mut file = std::fs::File::from(Limit::Msgmni.open(&namespace, libc::O_RDWR, 0).unwrap());
/// mark_unwritten(file.as_fd());
/// file.write_all(b"50")?;
/// assert!(is_written(file.as_fd()));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[must_use]
pub fn is_written(descriptor: BorrowedFd<'_>) -> bool {
    rustix::fs::fstat(descriptor).is_ok_and(|stat| (stat.st_mtime, stat.st_mtime_nsec) != (0, 0))
}

#[cfg(test)]
mod tests {
    use super::{Limit, parse};

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
        assert_eq!(
            Limit::named(b"/proc/sys/kernel/msgmni"),
            Some(Limit::Msgmni)
        );
        assert_eq!(
            Limit::named(b"/proc/sys/fs/mqueue/msg_max"),
            Some(Limit::MsgMost)
        );
        assert_eq!(Limit::named(b"/proc/sys/kernel/msgmni2"), None);
    }
}
