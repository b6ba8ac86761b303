//! The directory of queues, and the conditions for trusting it.
//!
//! ```text
//! /dev/shm/umsg              root's, mode 1777: the namespace of all users, if an administrator made it
//! ├── .namespace             limits: 96 bytes, see `record.rs`
//! ├── .dead-04d2-... -> mq/log names the dead-letter queue of a queue: see `dead_letters.rs`
//! ├── .life-0001e240         a process that shares queues with other PID namespaces, locked while it lives, see `life.rs`
//! ├── mq                     root's, mode 1777
//! │   ├── work               the queue /work: a regular file of the user that made it
//! │   ├── log
//! │   └── jobs               the queue /jobs, a transient one: a directory of the user that made it,
//! │       └── queue          and its file; see `transient/`
//! ├── msg                    root's, mode 1777: System V queues, see `msg/mod.rs`
//! │   ├── 3                  a queue's file, by its index
//! │   └── k-00001234         its key symlink: the key is in its name, the identifier is its text
//! ├── bell                   root's, mode 1777: a FIFO for each queue that is polled, see `poll_fifos.rs`
//! ├── ring                   root's, mode 1777: rings
//! │   ├── jobs               the ring /jobs: a regular file of the user that receives from it
//! │   └── .bell-1234-2f...   its doorbell: a socket; the number of that file's inode, and a random one
//! ├── ipc-141097             root's, mode 1777: the namespace of another IPC namespace of the kernel, see `ipc.rs`
//! └── own                    root's, mode 1777
//!     └── 1000               user 1000's own files beside System V queues, see `msg/own_directory.rs`
//! /dev/shm/umsg-1000         else user 1000's own, mode 0700, of the same shape
//! ```
//!
//! Programs that share the directory share the queues, also across containers. They share nothing else, and there is no daemon. A
//! [`Namespace`] is a path that was checked. It holds no descriptor, which a program could close. Each use opens and checks the directory
//! again.
//!
//! **Selection.** `$UMSG_DIR` if it is set; or else `/dev/shm/umsg` if it belongs to root; or else the user's own directory (`user.rs`).
//!
//! A namespace is created only in an empty directory.
//!
//! **Trust.** Each directory belongs to root or the caller, is not a symbolic link, and is sticky if other users may write to it.
//!
//! **PID namespaces.** Processes of several PID namespaces share queues. A liveness id identifies each process, see `life.rs`.
//!
//! **If a process dies** while it creates a namespace, the next process completes the namespace. If a process dies while it sets limits, either all
//! old limits or all new limits apply. If a process dies while it creates a queue, there is no queue, or a complete one: the link is the commit.
//!
//! ```
//! # let path = std::env::temp_dir().join(format!("umsg-doc-{}", std::process::id()));
//! # std::os::unix::fs::DirBuilderExt::mode(&mut std::fs::DirBuilder::new(), 0o700).create(&path)?;
//! let namespace = umsg::Namespace::at(&path)?;
//! let mut limits = namespace.limits()?;
//! limits.default_messages = 1000;
//! namespace.set_limits(&limits)?;
//! assert_eq!(namespace.limits()?.default_messages, 1000);
//! # std::fs::remove_dir_all(&path)?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod changes;
mod charges;
mod claim;
mod contents;
mod dead_letters;
mod directory;
mod entries;
mod error;
mod file_error;
mod home;
mod host;
mod identified;
mod intruders;
pub mod ipc;
pub(crate) mod life;
mod limits;
mod meeting;
mod msg;
mod names;
mod open;
mod poll_fifos;
mod publish;
mod queues;
mod record;
mod resolve;
mod ring_sockets;
mod setup;
mod staged;
mod stamp;
mod temporary;
#[cfg(test)]
pub(crate) mod testing;
mod this_process;
mod transient;
mod trust;
mod user;
mod vacated;

use std::path::Path;
use std::sync::Arc;

pub(crate) use changes::{BELIEVED, Changes, Watch};
pub(crate) use charges::charge;
pub(crate) use dead_letters::{Label as DeadLetterLabel, NewLabel as NewDeadLetterLabel};
pub(crate) use directory::proc_link;
pub use error::NamespaceError;
pub(crate) use file_error::FileError;
pub use intruders::Intruder;
pub use limits::Limits;
pub(crate) use msg::{
    Entry, Files, INDICES, KeySymlink, Locked, NewFile, Next, PATIENCE, indices_from,
    key_symlink_name,
};
pub(crate) use names::{NameError, QueueName};
pub(crate) use open::FileAccess;
pub(crate) use publish::Unpublished;
pub(crate) use queues::RINGS;
pub use resolve::PassedOver;
pub(crate) use ring_sockets::socket_prefix;
pub use setup::{OutOfSight, SetupReport, TMPFILES};
pub(crate) use stamp::Stamp;
pub(crate) use transient::{Hold, Patience, Removal, hold, hold_unnamed, whereabouts};
pub(crate) use vacated::presence_of;

/// A checked directory of queues. A `Namespace` is cheap to clone, and usable after a fork.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Namespace {
    path: Arc<Path>,
    kind: NamespaceKind,
    owner: u32,
    /// Device and inode of the directory.
    identity: (u64, u64),
    /// True if only the caller and root could create files in the directory when it was checked.
    is_own: bool,
}

/// The way in which a namespace was selected.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NamespaceKind {
    /// `$UMSG_DIR` or the program names the directory.
    Environment,
    /// The directory of all users, `/dev/shm/umsg`.
    Shared,
    /// The user's own directory, `/dev/shm/umsg-UID`.
    User,
}

impl Namespace {
    /// Returns the absolute path of the directory.
    ///
    /// ```
    /// # let dir = tempfile::tempdir_in("/dev/shm")?;
    /// # let namespace = umsg::Namespace::at(dir.path())?;
    /// assert_eq!(namespace.path(), dir.path().canonicalize()?);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the way in which the namespace was selected.
    ///
    /// ```
    /// # let dir = tempfile::tempdir_in("/dev/shm")?;
    /// # let namespace = umsg::Namespace::at(dir.path())?;
    /// assert_eq!(namespace.kind(), umsg::NamespaceKind::Environment);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn kind(&self) -> NamespaceKind {
        self.kind
    }

    /// Returns the owner of the directory at its check. Only this user and root are trusted afterwards.
    fn owner(&self) -> u32 {
        self.owner
    }

    /// Returns whether the path leads to the checked directory. In a chroot or another mount namespace, the path may lead to another directory.
    fn is_in_sight(&self) -> bool {
        let found = rustix::fs::stat(self.path());
        found.is_ok_and(|found| (found.st_dev, found.st_ino) == self.identity)
    }
}

/// Returns the caller's effective user id, which becomes the owner of created files.
pub(crate) fn caller() -> u32 {
    rustix::process::geteuid().as_raw()
}
