//! Errors of files and system calls when a queue of any kind is opened.

use std::io;
use umsg_shm::memory::OUT_OF_RANGE;
use umsg_shm::sys::required::Refused;

/// The reason why the file of a queue or ring can't be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SegmentError {
    /// EINVAL: the file is not a segment of this kind of queue.
    #[error("the file is not a queue of the expected kind ({0})")]
    NotAQueue(&'static str),
    /// EINVAL: the file is a segment of another version or layout.
    #[error("{}", other_version(*.found, *.expected))]
    OtherVersion {
        /// Version of the format in the file.
        found: u32,
        /// Version of this library's format. It equals `found` if only the layouts differ.
        expected: u32,
    },
    /// EBADMSG: the header contradicts itself or the file's length. [`posix::repair`](crate::posix::repair), [`sysv::repair`](crate::sysv::repair)
    /// and [`ring::repair`](crate::ring::repair) rebuild the queue, if that is [possible](Self::is_repairable).
    #[error("the queue's file is corrupted ({0}): repair or remove the queue")]
    Damaged(&'static str),
    /// ENOMEM: no address space to map the file.
    #[error(
        "the queue's file of {len} bytes does not fit into the process's address space. Raise the limit (ulimit -v), or create a smaller queue."
    )]
    NoAddressSpace {
        /// Length of the file, in bytes.
        len: u64,
    },
    /// EFBIG: the process may not make a file of the queue's length.
    #[error(
        "the queue's file needs {len} bytes, which exceeds the process's limit on file sizes. Raise the limit (ulimit -f), or create a smaller queue."
    )]
    FileTooLarge {
        /// Length of the file, in bytes.
        len: u64,
    },
    /// EMFILE or ENFILE: no descriptor is left. A queue keeps no descriptor, but opening the queue needs some for a moment.
    #[error("no file descriptor is left: close some, or raise the limit (ulimit -n)")]
    TooManyFiles(i32),
    /// The errno of the call: the kernel or a sandbox refuses a system call that every queue needs.
    #[error("{}", super::call_refused(call, error))]
    CallRefused {
        /// The system call.
        call: &'static str,
        /// The error of the call.
        error: io::Error,
    },
    /// The errno of the cause: this process can't create its life file. Processes of several PID or time namespaces use the queue, and each of them
    /// keeps such a file locked in the namespace's directory. Without that file, the other processes would not learn of this process's death.
    #[error(
        "{call} failed on this process's life file (.life-* in the namespace's directory): {error}. Give the process write access to that directory, or run the process in the PID and time namespaces of the queue's creator."
    )]
    Unregistered {
        /// The system call that failed.
        call: &'static str,
        /// The error of the call.
        error: io::Error,
    },
    /// Another error of the system.
    #[error("the system call {call} failed: {error}")]
    System {
        /// The system call.
        call: &'static str,
        /// The error of the call.
        error: io::Error,
    },
}

/// Names the field of the header that shows another format or layout.
fn other_version(found: u32, expected: u32) -> String {
    match found == expected {
        true => format!(
            "the queue's file has format {expected} with another layout, so another build of umsg created it. Use that build, or remove the queue."
        ),
        false => format!(
            "the queue's file has format {found}, and this umsg reads only format {expected}. Use the version of umsg that created the queue, or remove the queue."
        ),
    }
}

impl SegmentError {
    /// Returns whether a repair may repair the queue. A corrupted queue beyond repair has lost its basic attributes and can only
    /// be removed.
    ///
    /// ```
    /// let error = umsg::SegmentError::NotAQueue("a directory");
    /// assert!(!error.is_repairable());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn is_repairable(&self) -> bool {
        matches!(self, SegmentError::Damaged(what) if *what != OUT_OF_RANGE)
    }

    /// Returns the error number that Linux gives, or the nearest number if Linux has no such error.
    ///
    /// ```
    /// assert_eq!(umsg::SegmentError::TooManyFiles(libc::EMFILE).errno(), libc::EMFILE);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn errno(&self) -> i32 {
        match self {
            SegmentError::NotAQueue(_) | SegmentError::OtherVersion { .. } => libc::EINVAL,
            SegmentError::Damaged(_) => libc::EBADMSG,
            SegmentError::NoAddressSpace { .. } => libc::ENOMEM,
            SegmentError::FileTooLarge { .. } => libc::EFBIG,
            SegmentError::TooManyFiles(errno) => *errno,
            SegmentError::CallRefused { error, .. }
            | SegmentError::Unregistered { error, .. }
            | SegmentError::System { error, .. } => error.raw_os_error().unwrap_or(libc::EIO),
        }
    }

    pub(crate) fn system(call: &'static str, errno: i32) -> SegmentError {
        let error = io::Error::from_raw_os_error(errno);
        SegmentError::System { call, error }
    }
}

impl From<Refused> for SegmentError {
    fn from(refused: Refused) -> SegmentError {
        let (call, error) = (refused.call, refused.errno.into());
        SegmentError::CallRefused { call, error }
    }
}
