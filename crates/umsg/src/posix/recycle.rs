//! Queues that a process makes of the segments of queues that it has removed, for the drop-in: without a new file, a mapping, fresh pages,
//! and a change of a directory.
//!
//! If a process removes a queue that no other process has opened, it leaves the file under its name, and marks the segment as vacant
//! ([`Presence`](umsg_shm::posix_engine::segment::Presence)). The next queue of the same name and the same attributes is made of
//! it by another mark. All other processes treat the file as missing, and take it away if they want its name ([`crate::namespace`],
//! `vacated.rs`).
//!
//! | condition | reason |
//! |---|---|
//! | the namespace's directory is the caller's alone, the file's mode is 0600 | no other user has the file open, or finds it in the way |
//! | no other process has opened the queue | it would use the next one |
//! | the state of the file is that of the creation, as lstat(2) tells | another process may have changed its mode or its names |
//! | the caller has the user and the group of the creation | the next queue would have others |
//! | the file has the memory of a new queue | all of it is cleared |
//! | the limits of the namespace are those of the creation | the next queue may exceed the new ones |
//! | the namespace has no limit of bytes | the memory would count |

use super::known_file::{FileState, KnownFile};
use super::options::OpenOptions;
use super::queue::Queue;
use crate::namespace::{Limits, Namespace, QueueName};
use rustix::fs::Stat;
use rustix::process::{getegid, geteuid};
use std::ffi::OsStr;
use std::os::fd::OwnedFd;
use umsg_shm::posix_engine::segment::Policy;

/// The mode of the queues, and of their files.
const PRIVATE: u32 = 0o600;

impl OpenOptions {
    /// Lets the creator of a new queue [`vacate`](Queue::vacate) it later, if the queue meets the conditions.
    #[doc(hidden)]
    pub fn recyclable(&mut self, recyclable: bool) -> &mut Self {
        self.recyclable = recyclable;
        self
    }

    /// Returns whether a new queue of this mode, after the umask, becomes its creator's alone.
    pub(super) fn begins_sole(&self, namespace: &Namespace, limits: &Limits, mode: u32) -> bool {
        self.recyclable && mode == PRIVATE && self.is_plain(limits) && namespace.is_private()
    }

    fn is_plain(&self, limits: &Limits) -> bool {
        self.policy == Policy::default()
            && self.counted
            && self.mode == PRIVATE
            && limits.max_bytes.is_none()
            && !limits.rlimit_msgqueue
    }

    /// Makes a queue of the segment of the removed queue `removed`, whose file was opened by the name of the new queue. `created` is the
    /// state of the file at its creation. Returns None if the queue has to be created in full, for example to find out why it can't be
    /// created.
    ///
    /// The caller is the process that has vacated the segment, and uses `removed` for nothing else.
    ///
    /// # If the process dies
    /// There is no queue, or a whole one.
    #[doc(hidden)]
    pub fn revive(
        &self,
        namespace: &Namespace,
        file: KnownFile,
        removed: &Queue,
        created: FileState,
    ) -> Option<OwnedFd> {
        // The namespace had room for the queue when the file was made, and the file has counted since then.
        let limits = namespace.limits_since(created.changed())?;
        let layout = self.layout(&limits).ok()?;
        let segment = removed.engine.segment();
        if !self.is_plain(&limits)
            || !limits.allow_mode(PRIVATE)
            || layout != *segment.layout()
            || !file.is_in_state(created)
            || !created.is_of(geteuid(), getegid())
        {
            return None;
        }
        let descriptor = file.open_queue(removed, created)?;
        segment.revive(PRIVATE).then_some(descriptor)
    }
}

impl Queue {
    /// Returns whether this process has created the queue as one that it may [`vacate`](Self::vacate), and no other process has opened it.
    /// A hint.
    #[doc(hidden)]
    #[must_use]
    pub fn is_sole(&self) -> bool {
        self.engine.segment().fixed().header.presence.is_sole()
    }

    /// Returns whether the queue was vacated. A hint.
    #[doc(hidden)]
    #[must_use]
    pub fn is_vacant(&self) -> bool {
        self.engine.segment().is_vacant()
    }

    /// Makes a queue that its creator may vacate an ordinary one: a forked child is about to use it. Returns false if it was removed.
    #[doc(hidden)]
    #[must_use]
    pub fn join(&self) -> bool {
        self.engine.segment().fixed().header.presence.join()
    }

    /// Removes the queue `name`, and keeps its segment for the next queue of the name. Returns false if the queue has to be removed in
    /// full. `created` is the state of the file at its creation.
    ///
    /// The caller is the process that has created the queue, no thread uses this handle, and no process has a descriptor of the file that
    /// this process had.
    ///
    /// # If the process dies
    /// The queue exists, or it is removed.
    #[doc(hidden)]
    #[must_use]
    pub fn vacate(&self, namespace: &Namespace, name: &OsStr, created: FileState) -> bool {
        let segment = self.engine.segment();
        let is_as_created = |stat: &Stat| {
            (stat.st_dev, stat.st_ino) == self.identity()
                && stat.st_nlink == 1
                && FileState::from(stat) == created
                && stat.st_uid == geteuid().as_raw()
                && stat.st_blocks as usize * 512 == segment.first_len()
        };
        // While the queue is its creator's alone, the name leads to it until the creator or another process with an opening removes it; the
        // latter ends the state.
        self.is_sole()
            && namespace
                .look_up(name)
                .is_some_and(|stat| is_as_created(&stat))
            && segment.vacate()
    }
}

/// Removes the file of a vacated queue from its name.
#[doc(hidden)]
pub fn give_up(namespace: &Namespace, name: &OsStr) {
    if let Ok(name) = QueueName::parse(name) {
        namespace.remove_vacant(&name);
    }
}

/// Prepares a process that uses segments again: the namespace counts the changes of its limits from now on, which then need no check for each
/// queue. Removes the files of some queues that were removed by processes which have died since.
#[doc(hidden)]
pub fn begin_recycling(namespace: &Namespace) {
    namespace.begin_count_of_changes();
    let _ = namespace.remove_vacant_of_dead();
}
