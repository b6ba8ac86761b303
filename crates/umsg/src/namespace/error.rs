//! Errors of a namespace, with advice.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use rustix::fs;
use rustix::io::Errno;

/// The reason why a namespace can't be used. Every message ends with advice.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NamespaceError {
    /// The directory does not exist (`ENOENT`).
    #[error("{}", missing(.path))]
    Missing {
        /// The directory.
        path: PathBuf,
    },
    /// A symbolic link is in place of the directory (`ELOOP`): a process that can change the link could select the queues.
    #[error("{path} is a symbolic link: set UMSG_DIR to the target of the link", path = .path.display())]
    Symlink {
        /// The link.
        path: PathBuf,
    },
    /// Another kind of file is in place of the directory, or of a directory above it (`ENOTDIR`).
    #[error("{path} is not a directory, or a parent of it is a file: set UMSG_DIR to a directory", path = .path.display())]
    NotADirectory {
        /// The path that is no directory.
        path: PathBuf,
    },
    /// The directory is no namespace, and the call only reads namespaces (`ENOENT`).
    #[error("{path} is not a namespace: set UMSG_DIR to the namespace's directory, or, if {path} is empty, create a first queue in it", path = .path.display())]
    NotANamespace {
        /// The directory.
        path: PathBuf,
    },
    /// The directory holds other files and is probably not meant to become a namespace (`ENOTEMPTY`).
    #[error("{path} holds other files, such as {file:?}, and can't become a namespace. Set UMSG_DIR to an empty directory, for example a new directory in /dev/shm.", path = .path.display(), file = .file)]
    HoldsOtherFiles {
        /// The directory.
        path: PathBuf,
        /// One of the other files.
        file: OsString,
    },
    /// The directory belongs to a user that could tamper with the queues (`EACCES`).
    #[error("{path} belongs to user {owner}, but must belong to root or user {trusted}: set UMSG_DIR to a directory of your own", path = .path.display())]
    Stranger {
        /// The directory.
        path: PathBuf,
        /// The user id of the directory's owner.
        owner: u32,
        /// The user, besides root, that may own the directory: the caller's effective user id, or the namespace's owner.
        trusted: u32,
    },
    /// The directory belongs to a user that has no id in the caller's user namespace (`EACCES`). The caller can't tell which user that is.
    #[error("{path} belongs to a user that has no id in this user namespace: name a directory that belongs to root or user {trusted} of this user namespace", path = .path.display())]
    OwnerNotMapped {
        /// The directory.
        path: PathBuf,
        /// The user that may own the directory besides root, as in `Stranger`.
        trusted: u32,
    },
    /// Other users can write in the directory, which is not sticky. So these users could replace queues (`EACCES`).
    #[error("other users can write to {path} (mode {mode:04o}), and it is not sticky. Run `chmod go-w {path}` for a private namespace, or `chmod +t {path}` for a shared one.", path = .path.display())]
    Tamperable {
        /// The directory.
        path: PathBuf,
        /// The permission bits of the directory.
        mode: u32,
    },
    /// The caller may not look into the directory (`EACCES`).
    #[error("this user can't search {path}: ask its owner for chmod +x, or set UMSG_DIR to a directory of your own", path = .path.display())]
    NotAccessible {
        /// The directory.
        path: PathBuf,
    },
    /// The caller can't create or remove files in the directory. The file system refuses it (`EACCES`), is read-only (`EROFS`),
    /// or belongs to the kernel, such as /proc (`ENOENT`).
    #[error("{}", why_not_writable(.path, *.errno))]
    NotWritable {
        /// The directory.
        path: PathBuf,
        /// `EACCES`, `EROFS` or `ENOENT`.
        errno: i32,
    },
    /// The directory has no sub-directory for queues and the caller may not make it (`ENOENT`).
    #[error("{path} is missing: ask the namespace's owner or root to create it, or set UMSG_DIR to a directory of your own", path = .path.display())]
    NoQueuesDirectory {
        /// The missing sub-directory.
        path: PathBuf,
    },
    /// The caller can't read the namespace's record (`EACCES`). All users can read a new record, so a user has changed the mode of this record.
    #[error("this user can't read {path}. Ask its owner to run `chmod 644 {path}`, or to remove the file, which restores the default limits.", path = .path.display())]
    RecordNotReadable {
        /// The record.
        path: PathBuf,
    },
    /// The namespace's record is corrupted (`EBADMSG`).
    #[error("{path} is damaged ({what}): remove it to restore the default limits", path = .path.display())]
    RecordDamaged {
        /// The record.
        path: PathBuf,
        /// The defect of the record.
        what: &'static str,
    },
    /// The namespace's record was written by another version of umsg (`ENOTSUP`).
    #[error("{path} has format version {found}, and this umsg reads version {known}: use the version of umsg that wrote the file, or remove the file", path = .path.display())]
    RecordVersion {
        /// The record.
        path: PathBuf,
        /// The version in the record.
        found: u32,
        /// The version that this library writes.
        known: u32,
    },
    /// A limit is out of its range (`EINVAL`).
    #[error("{limit} must be from {least} to {most}, not {value}")]
    InvalidLimit {
        /// The field of [`Limits`](super::Limits).
        limit: &'static str,
        /// The requested value.
        value: u64,
        /// The smallest permitted value.
        least: u64,
        /// The largest permitted value.
        most: u64,
    },
    /// Only the namespace's owner or root may do this (`EPERM`).
    #[error("only {who} may {action} {path}: run the program as {who}", path = .path.display())]
    NotPermitted {
        /// The namespace's directory.
        path: PathBuf,
        /// The refused action.
        action: &'static str,
        /// The users that may do the action.
        who: &'static str,
    },
    /// A stopped process has been changing the names of queues for too long (`EBUSY`).
    #[error("{path}: {who} is stopped while it creates or removes a queue. Continue that process (kill -CONT PID), or end it.",
             path = .path.display(), who = holder.map_or("another process".to_owned(), |process| format!("process {process}")))]
    Busy {
        /// The directory of the queues.
        path: PathBuf,
        /// The stopped process. None if /proc/locks does not show the process.
        holder: Option<u32>,
    },
    /// No file descriptor is left (`EMFILE` of the process, `ENFILE` of the system).
    #[error("no file descriptor is left: close some, or raise the limit (ulimit -n)")]
    TooManyFiles {
        /// `EMFILE` or `ENFILE`.
        errno: i32,
    },
    /// There is no /proc (`ENOSYS`): files are identified, opened and named through the links in /proc/self/fd.
    #[error(
        "/proc is not mounted, and no queue works without it: mount it (mount -t proc proc /proc)"
    )]
    NoProc,
    /// A system call failed in another way.
    #[error("system call {call} failed on {path}: {error}. Set UMSG_DIR to another directory if the error persists.", path = .path.display(), error = Errno::from_raw_os_error(*.errno))]
    System {
        /// The system call.
        call: &'static str,
        /// The path that the call names.
        path: PathBuf,
        /// The errno of the system call.
        errno: i32,
    },
}

impl NamespaceError {
    /// Returns the errno, for callers that can report only a number.
    ///
    /// ```
    /// let error = umsg::Namespace::existing("/none/at/all").unwrap_err();
    /// assert_eq!(error.errno(), libc::ENOENT);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn errno(&self) -> i32 {
        use NamespaceError as E;
        let errno = match self {
            E::Missing { .. } | E::NoQueuesDirectory { .. } | E::NotANamespace { .. } => {
                Errno::NOENT
            }
            E::HoldsOtherFiles { .. } => Errno::NOTEMPTY,
            E::Symlink { .. } => Errno::LOOP,
            E::NotADirectory { .. } => Errno::NOTDIR,
            E::Stranger { .. } | E::OwnerNotMapped { .. } => Errno::ACCESS,
            E::Tamperable { .. } | E::NotAccessible { .. } => Errno::ACCESS,
            E::RecordNotReadable { .. } => Errno::ACCESS,
            E::RecordDamaged { .. } => Errno::BADMSG,
            E::RecordVersion { .. } => Errno::OPNOTSUPP,
            E::InvalidLimit { .. } => Errno::INVAL,
            E::NotPermitted { .. } => Errno::PERM,
            E::Busy { .. } => Errno::BUSY,
            E::NoProc => Errno::NOSYS,
            E::NotWritable { errno, .. } | E::TooManyFiles { errno } | E::System { errno, .. } => {
                return *errno;
            }
        };
        errno.raw_os_error()
    }

    /// Returns the error of a system call that looked for `path`.
    pub(super) fn looking(call: &'static str, path: &Path, error: Errno) -> NamespaceError {
        let path = path.to_owned();
        match error {
            Errno::NOENT => NamespaceError::Missing { path },
            Errno::NOTDIR => NamespaceError::NotADirectory { path },
            Errno::LOOP => NamespaceError::Symlink { path },
            Errno::ACCESS => NamespaceError::NotAccessible { path },
            _ => NamespaceError::system(call, &path, error),
        }
    }

    /// Returns the error of a system call that wanted to change something in the directory `path`.
    pub(super) fn changing(call: &'static str, path: &Path, error: Errno) -> NamespaceError {
        match error {
            Errno::ACCESS | Errno::PERM if is_refused_by_a_sandbox(call, path) => {
                NamespaceError::system(call, path, error)
            }
            Errno::ACCESS | Errno::PERM => not_writable(path, Errno::ACCESS),
            Errno::ROFS => not_writable(path, error),
            // The directory exists, but its file system answers ENOENT to the creation of files, as /proc does.
            Errno::NOENT if is_directory(path) => not_writable(path, error),
            _ => NamespaceError::looking(call, path, error),
        }
    }

    /// Returns the error of a system call that has no variant of its own.
    pub(super) fn system(call: &'static str, path: &Path, error: Errno) -> NamespaceError {
        let errno = error.raw_os_error();
        match error {
            Errno::MFILE | Errno::NFILE => NamespaceError::TooManyFiles { errno },
            _ => NamespaceError::System {
                call,
                path: path.to_owned(),
                errno,
            },
        }
    }
}

/// Returns whether the path leads to a directory. Uses stat(2), because sandboxes allow it. The standard library uses statx(2), and has no fallback
/// if a sandbox answers EPERM.
pub(super) fn is_directory(path: &Path) -> bool {
    fs::stat(path).is_ok_and(|stat| fs::FileType::from_raw_mode(stat.st_mode).is_dir())
}

/// Returns whether a sandbox refused the call: the caller may write in the directory, and the call still failed. A rename
/// can also be denied because of the file that it replaces.
fn is_refused_by_a_sandbox(call: &str, directory: &Path) -> bool {
    matches!(
        call,
        "open" | "mkdir" | "chmod" | "link" | "symlink" | "write"
    ) && fs::accessat(
        fs::CWD,
        directory,
        fs::Access::WRITE_OK | fs::Access::EXEC_OK,
        fs::AtFlags::EACCESS,
    )
    .is_ok()
}

/// Returns advice for a missing directory.
fn missing(path: &Path) -> String {
    let path = path.display().to_string();
    match path.as_str() {
        "" => "the path of the namespace's directory is empty: name a directory, for instance a new one in /dev/shm".to_owned(),
        path => format!("{path} does not exist: make it (mkdir -m 700 {path}), or set UMSG_DIR to another directory"),
    }
}

/// Returns advice for a directory in which the caller can't create or remove files.
fn why_not_writable(path: &Path, errno: i32) -> String {
    let path = path.display();
    if errno == Errno::ROFS.raw_os_error() {
        return format!(
            "{path} is on a read-only file system: remount it for writing (mount -o remount,rw), or set UMSG_DIR to a directory on another file system"
        );
    }
    format!(
        "this user can't create or remove files in {path}: set UMSG_DIR to a directory of your own, for example in /dev/shm"
    )
}

fn not_writable(path: &Path, error: Errno) -> NamespaceError {
    NamespaceError::NotWritable {
        path: path.to_owned(),
        errno: error.raw_os_error(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_read_only_file_system_is_called_so_for_any_user() {
        let told = |error| not_writable(Path::new("/x"), error).to_string();
        assert!(told(Errno::ROFS).contains("read-only") && !told(Errno::ROFS).contains("user"));
        assert!(told(Errno::ACCESS).contains("this user can't"));
    }
}
