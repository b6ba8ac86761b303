//! A queue that is not in the namespace: where it was looked for, and where a queue of this name is.
//!
//! The usual causes are a program in another namespace and a program that was started without `umsg run`, whose queues are the kernel's.

use std::ffi::{CStr, CString};
use std::os::fd::{FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use umsg::posix::OpenError;
use umsg::{Namespace, sysv};

use crate::address::Label;
use crate::failure::{Explain, Failure, without_advice};
use crate::names::Name;

/// The directory of the namespaces of the system and of users.
const BASE: &str = "/dev/shm";

/// Explains that no POSIX queue has the name.
pub fn no_name(namespace: &Namespace, name: &Name) -> Failure {
    let others = || others(namespace.path(), |other| has_name(other, name));
    let in_kernel = || {
        name.file()
            .is_some_and(|file| kernel_has_name(file.as_bytes()))
    };
    explain(namespace, name, &OpenError::NotFound, others, in_kernel)
}

/// Explains that no System V queue has the key or identifier.
pub fn no_label(namespace: &Namespace, label: Label, error: &sysv::OpenError) -> Failure {
    let others = || others(namespace.path(), |other| has_label(other, label));
    let in_kernel = || label.key().is_some_and(kernel_has_key);
    explain(namespace, label, error, others, in_kernel)
}

fn explain(
    namespace: &Namespace,
    subject: impl std::fmt::Display,
    error: &(impl Explain + std::fmt::Display),
    other: impl Fn() -> Option<PathBuf>,
    in_kernel: impl Fn() -> bool,
) -> Failure {
    let what = format!(
        "{} in {}",
        without_advice(error),
        namespace.path().display()
    );
    let hint = match other() {
        Some(other) => {
            let other = other.display();
            format!("{other} has one, which --dir {other} finds")
        }
        None if in_kernel() => {
            "the kernel has one: was its program started without `umsg run`?".to_owned()
        }
        None => "`umsg ls` lists the queues".to_owned(),
    };
    Failure::new(error.code(), format_args!("{subject}: {what}; {hint}"))
}

/// Returns the first other namespace in reach with the queue: of $UMSG_DIR, of the system, of the user.
fn others(but: &Path, has: impl Fn(&Path) -> bool) -> Option<PathBuf> {
    let chosen = std::env::var_os("UMSG_DIR").filter(|chosen| !chosen.is_empty());
    let me = rustix::process::geteuid().as_raw();
    let own = format!("umsg-{me}");
    let random = format!("{own}-");
    let usual = std::fs::read_dir(BASE).into_iter().flatten().flatten();
    let mut usual: Vec<PathBuf> = usual
        .filter(|entry| {
            let name = entry.file_name();
            let is_named = name == "umsg"
                || name == own.as_str()
                || name.as_bytes().starts_with(random.as_bytes());
            // Directories of other users are not trusted.
            is_named
                && entry
                    .metadata()
                    .is_ok_and(|found| found.is_dir() && [0, me].contains(&found.uid()))
        })
        .map(|entry| entry.path())
        .collect();
    usual.sort();
    let mut all = chosen.into_iter().map(PathBuf::from).chain(usual);
    all.find(|other| other != but && has(other))
}

fn has_name(namespace: &Path, name: &Name) -> bool {
    name.file()
        .is_some_and(|file| namespace.join("mq").join(file).symlink_metadata().is_ok())
}

fn has_label(namespace: &Path, label: Label) -> bool {
    let listed = Namespace::existing(namespace)
        .ok()
        .and_then(|namespace| sysv::list(&namespace).ok());
    listed.is_some_and(|queues| {
        queues.iter().any(|queue| match label {
            Label::Key(key, _) => queue.key == key,
            Label::Id(_) => false,
        })
    })
}

/// Asks the kernel, not the drop-in of `umsg run`, for a POSIX queue. `name` has no slash.
fn kernel_has_name(name: &[u8]) -> bool {
    let Ok(name) = CString::new(name) else {
        return false;
    };
    // Without the flag O_CREAT there are no further arguments.
    let flags = libc::O_RDONLY | libc::O_CLOEXEC;
    let name: &CStr = &name;
    // SAFETY: `name` is a string that ends with NUL, and outlives the call.
    let answer = unsafe { libc::syscall(libc::SYS_mq_open, name.as_ptr(), flags, 0, 0) };
    match i32::try_from(answer) {
        Ok(descriptor) if descriptor >= 0 => {
            // SAFETY: the kernel returned a new descriptor.
            drop(unsafe { OwnedFd::from_raw_fd(descriptor) });
            true
        }
        _ => denied(),
    }
}

/// Asks the kernel for the System V queue of a key.
fn kernel_has_key(key: i32) -> bool {
    if key == sysv::PRIVATE {
        return false;
    }
    // SAFETY: the call has no pointers, and without IPC_CREAT it changes nothing.
    let answer = unsafe { libc::syscall(libc::SYS_msgget, key, 0) };
    answer >= 0 || denied()
}

/// Returns whether the last system call failed because the queue's mode denies the access.
fn denied() -> bool {
    std::io::Error::last_os_error().raw_os_error() == Some(libc::EACCES)
}
