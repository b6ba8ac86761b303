//! Where queues live: a directory, and what it takes to trust it.
//!
//! ```text
//! /dev/shm/umsg              root's, mode 1777: the namespace of all users, if an administrator made it
//! ├── .namespace             limits: 96 bytes, see `record.rs`
//! ├── .dead-04d2-... -> mq/log names the dead-letter queue of a queue: see `dead_letters.rs`
//! ├── .life-0001e240         a process that shares queues with other PID namespaces, locked while it lives, see `life.rs`
//! ├── mq                     root's, mode 1777
//! │   ├── work               the queue /work: a regular file of the user that made it
//! │   ├── log
//! │   └── jobs               the queue /jobs, which goes with its last user: a directory of the user that made it,
//! │       └── queue          and its file; see `transient/`
//! ├── msg                    root's, mode 1777: System V queues, see `msg/mod.rs`
//! │   ├── 3                  a queue's file, by its index
//! │   └── k-00001234         its label: a link that has its key for a name and its identifier for a text
//! ├── bell                   root's, mode 1777: a FIFO for each queue that is polled, see `bells.rs`
//! ├── ring                   root's, mode 1777: rings
//! │   ├── jobs               the ring /jobs: a regular file of the user that receives from it
//! │   └── .bell-1234-2f...   its doorbell: a socket; the number of that file's inode, and a random one
//! └── own                    root's, mode 1777
//!     └── 1000               what user 1000 keeps for himself beside System V queues, see `msg/own_directory.rs`
//! /dev/shm/umsg-1000         else user 1000's own, mode 0700, of the same shape
//! ```
//!
//! Programs that share the directory share the queues, containers included. Nothing else is shared: there is no
//! daemon, and a [`Namespace`] is no more than a path that was checked; it holds no descriptor that a
//! program could close under it. What is used is opened and checked again each time.
//!
//! **Which one.** `$UMSG_DIR` if set; else `/dev/shm/umsg` if it belongs to root; else the user's own, see `user.rs`.
//!
//! It is made of an empty directory, never of one with other files in it.
//!
//! **Trust.** Each directory belongs to root or the caller, is no symbolic link, and is sticky if others may write.
//!
//! **PID namespaces.** Processes of several share queues: each process is known by its life, see `life.rs`.
//!
//! **If a process dies** while it makes a namespace, the next one completes it; while it sets limits, the old or the new ones
//! hold; while it makes a queue, there is no queue or a whole one. The link is the commit.
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

mod claim;
mod contents;
mod dead_letters;
mod directory;
mod error;
mod file_error;
mod home;
mod host;
mod identified;
mod intruders;
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
mod setup;
mod staged;
mod temporary;
#[cfg(test)]
mod testing;
mod this_process;
mod transient;
mod trust;
mod user;

use std::path::Path;
use std::sync::Arc;

pub(crate) use dead_letters::{Label as DeadLetterLabel, NewLabel as NewDeadLetterLabel};
pub(crate) use directory::proc_link;
pub use error::NamespaceError;
pub(crate) use file_error::FileError;
pub use intruders::Intruder;
pub use limits::Limits;
pub(crate) use msg::{Entry, Files, INDICES, Label, Locked, NewFile, PATIENCE, label_name};
pub(crate) use names::{NameError, QueueName};
pub(crate) use open::FileAccess;
pub(crate) use publish::Unpublished;
pub(crate) use queues::RINGS;
pub use resolve::PassedOver;
pub use setup::{OutOfSight, SetupReport, TMPFILES};
pub(crate) use transient::{Hold, Patience, Removal, hold, hold_unnamed, whereabouts};

/// A directory of queues that passed the checks. Cheap to clone, and usable after fork and exec of others.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Namespace {
    path: Arc<Path>,
    kind: NamespaceKind,
    owner: u32,
    /// Device and inode of the directory.
    identity: (u64, u64),
}

/// How a namespace was found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NamespaceKind {
    /// Named: by `$UMSG_DIR`, or by the program.
    Environment,
    /// The one of all users, `/dev/shm/umsg`.
    Shared,
    /// The user's own, `/dev/shm/umsg-UID`.
    User,
}

impl Namespace {
    /// The directory, absolute.
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

    /// How it was found.
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

    /// The owner of the directory when it was checked; with root, the only one trusted from then on.
    fn owner(&self) -> u32 {
        self.owner
    }

    /// Whether the path leads to the directory that was checked. In a chroot or another mount namespace it may lead elsewhere.
    fn is_in_sight(&self) -> bool {
        let found = rustix::fs::stat(self.path());
        found.is_ok_and(|found| (found.st_dev, found.st_ino) == self.identity)
    }
}

/// The caller's effective user id, which decides whose files are made.
pub(crate) fn caller() -> u32 {
    rustix::process::geteuid().as_raw()
}
