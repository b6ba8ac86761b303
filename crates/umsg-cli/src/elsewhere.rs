//! The texts for a queue that is not in the namespace: where the command has searched, and where a queue of this name exists.
//!
//! The usual causes are that the other program uses another namespace, or was started without `umsg run` and uses the kernel's queues.

use std::ffi::{CStr, CString};
use std::os::fd::{FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use umsg::posix::OpenError;
use umsg::{Namespace, sysv};

use crate::address::{Address, Label};
use crate::failure::{Explain, Failure, without_advice};
use crate::names::Name;

/// The directory in which the default namespaces of the system and of the users are.
const BASE: &str = "/dev/shm";

/// Returns the failure that no POSIX queue has the name.
pub fn no_name(namespace: &Namespace, name: &Name) -> Failure {
    let others = || others(namespace.path(), |other| has_name(other, name));
    let in_kernel = || {
        name.file()
            .is_some_and(|file| kernel_has_name(file.as_bytes()))
    };
    explain(namespace, name, &OpenError::NotFound, others, in_kernel)
}

/// Returns the other places (a namespace, the kernel) that have a queue of the same name or key. A program that seems to use the queue of `namespace`
/// may use the queue of one of these places.
pub fn also_in(namespace: &Namespace, queue: &Address) -> Vec<String> {
    let directory = namespace.path();
    let (other, in_kernel) = match queue {
        Address::Posix(name) => (
            others(directory, |other| has_name(other, name)),
            name.file()
                .is_some_and(|file| kernel_has_name(file.as_bytes())),
        ),
        Address::SystemV(label) => (
            others(directory, |other| has_label(other, *label)),
            label.key().is_some_and(kernel_has_key),
        ),
    };
    let kernel = in_kernel.then(|| KERNEL.to_owned());
    let other = other.map(|other| other.display().to_string());
    kernel.into_iter().chain(other).collect()
}

/// The name by which the kernel appears in the list of places.
const KERNEL: &str = "kernel";

/// Returns a warning about another place that has a queue of the same name.
pub fn described(place: &str) -> String {
    match place {
        KERNEL => {
            "the kernel has a queue of this name, too: programs that run without `umsg run` use the kernel's queue".to_owned()
        }
        directory => format!(
            "{directory} has a queue of this name, too: programs with another UMSG_DIR or of another user may use that queue"
        ),
    }
}

/// Returns the failure that no System V queue has the key or identifier.
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
            format!("{other} has such a queue; to use that queue, give --dir {other}")
        }
        None if in_kernel() => {
            "the kernel has such a queue, perhaps of a program that was started without `umsg run`"
                .to_owned()
        }
        None => match other_users() {
            Some(directory) => format!(
                "`umsg ls` lists the queues; other users have directories of their own, such as {}, and `umsg setup` creates a directory for all users",
                directory.display()
            ),
            None => "`umsg ls` lists the queues".to_owned(),
        },
    };
    Failure::new(error.code(), format_args!("{subject}: {what}; {hint}"))
}

/// Returns the directory of another user if one exists and there is no directory for all users.
fn other_users() -> Option<PathBuf> {
    let all = usual();
    let is_for_all = |path: &PathBuf| path.ends_with("umsg");
    let (me, mut all) = (rustix::process::geteuid().as_raw(), all.into_iter());
    match all
        .clone()
        .any(|(path, owner)| owner == 0 && is_for_all(&path))
    {
        true => None,
        false => all.find(|(_, owner)| *owner != me).map(|(path, _)| path),
    }
}

/// Returns the usual directories of namespaces, with their owners. The directories of the caller and of root come first, because a search should find
/// them before the directories of other users, which root can also read.
fn usual() -> Vec<(PathBuf, u32)> {
    let me = rustix::process::geteuid().as_raw();
    let entries = std::fs::read_dir(BASE).into_iter().flatten().flatten();
    let mut found: Vec<(PathBuf, u32)> = entries
        .filter_map(|entry| {
            let name = entry.file_name();
            let behind = name.as_bytes().strip_prefix(b"umsg")?;
            let number = behind.strip_prefix(b"-").unwrap_or_default();
            let is_named = behind.is_empty() || number.first().is_some_and(u8::is_ascii_digit);
            let metadata = entry.metadata().ok()?;
            (is_named && metadata.is_dir()).then(|| (entry.path(), metadata.uid()))
        })
        .collect();
    found.sort_by_key(|(path, owner)| (![0, me].contains(owner), path.clone()));
    found
}

/// Returns the first accessible namespace, apart from `but`, that has the queue: the one of $UMSG_DIR, of the system, or of a user.
fn others(but: &Path, has: impl Fn(&Path) -> bool) -> Option<PathBuf> {
    let chosen = std::env::var_os("UMSG_DIR").filter(|chosen| !chosen.is_empty());
    let usual = usual().into_iter().map(|(path, _)| path);
    let mut all = chosen.into_iter().map(PathBuf::from).chain(usual);
    all.find(|other| !is_same(other, but) && has(other))
}

/// Returns whether two paths lead to the same directory.
fn is_same(one: &Path, other: &Path) -> bool {
    let identity = |path: &Path| path.metadata().ok().map(|found| (found.dev(), found.ino()));
    one == other || identity(one).is_some_and(|one| identity(other) == Some(one))
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

/// Returns whether the kernel has a POSIX queue of this name. The system call bypasses the drop-in of `umsg run`. `name` has no slash.
fn kernel_has_name(name: &[u8]) -> bool {
    let Ok(name) = CString::new(name) else {
        return false;
    };
    // Without the flag O_CREAT, mq_open(2) ignores the mode and the attributes.
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

/// Returns whether the kernel has a System V queue with this key.
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
