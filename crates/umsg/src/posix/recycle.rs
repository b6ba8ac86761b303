//! Reusing the segment of a removed queue for the next queue, for the drop-in. The next queue needs no new file, mapping or pages, and no change of
//! a directory.
//!
//! A process may remove a queue that no other process has opened. Then the process leaves the file under its name, and marks the segment as vacant
//! ([`Presence`](umsg_shm::posix_engine::segment::Presence)). If the process creates a queue of the same name with the same attributes, it only
//! changes this mark: the segment is then the new queue. All other processes treat the file as missing, and remove the file if they want its name
//! ([`crate::namespace`], `vacated.rs`).
//!
//! | condition | reason |
//! |---|---|
//! | only the caller can use the namespace's directory, and the file's mode is 0600 | no other user has the file open, or is hindered by it |
//! | no other process has opened the queue | it would use the next queue, too |
//! | lstat(2) shows the same state of the file as at its creation | another process may have changed its mode or its names |
//! | the caller has the same user and group as at the creation | the next queue would have the wrong owner |
//! | the file has no more memory than a new queue | all of the memory is cleared |
//! | the limits of the namespace are the same as at the creation | the next queue might exceed the new limits |
//! | the namespace has no limit of bytes | the memory would count towards the limit |

use super::known_file::{FileState, KnownFile};
use super::options::OpenOptions;
use super::queue::Queue;
use crate::namespace::{Limits, Namespace, QueueName};
use rustix::fs::Stat;
use rustix::process::{getegid, geteuid};
use std::ffi::OsStr;
use std::os::fd::OwnedFd;
use umsg_shm::posix_engine::segment::Policy;

/// The mode of a queue whose segment may be used again, and of the queue's file.
const PRIVATE: u32 = 0o600;

impl OpenOptions {
    /// Sets whether the creator of a new queue may later [`vacate`](Queue::vacate) the queue, if the queue meets the conditions in the module's
    /// table.
    #[doc(hidden)]
    pub fn recyclable(&mut self, recyclable: bool) -> &mut Self {
        self.recyclable = recyclable;
        self
    }

    /// Returns whether a new queue begins as one that only its creator uses. `mode` is the queue's mode after the umask.
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

    /// Makes the next queue in the segment of the removed queue `removed`. `file` was opened by the name of the new queue. `created` is the state of
    /// the file at its creation. Returns None if the queue has to be created in full, for example to find out why it can't be created.
    ///
    /// The caller is the process that has vacated the segment, and uses `removed` only for this call.
    ///
    /// # If the process dies
    /// If the process dies during the call, the queue does not exist, or is complete.
    #[doc(hidden)]
    pub fn revive(
        &self,
        namespace: &Namespace,
        file: KnownFile,
        removed: &Queue,
        created: FileState,
    ) -> Option<OwnedFd> {
        // The namespace had room for the queue when the file was created, and has counted the file towards the limit since that time.
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
    /// A hint: returns whether this process has created the queue as one that it may [`vacate`](Self::vacate), and no other process has opened the
    /// queue.
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

    /// Makes the queue an ordinary queue if its creator may vacate it, because a forked child is about to use the queue. Returns false if the queue
    /// was removed.
    #[doc(hidden)]
    #[must_use]
    pub fn join(&self) -> bool {
        self.engine.segment().fixed().header.presence.join()
    }

    /// Removes the queue `name`, and keeps its segment for the next queue of the name. Returns false if the queue has to be removed in
    /// full. `created` is the state of the file at its creation.
    ///
    /// The caller is the process that has created the queue. No thread uses this handle, and no process has a copy of a descriptor with which this
    /// process opened the file.
    ///
    /// # If the process dies
    /// If the process dies during the call, the queue exists, or is removed.
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
        // The name leads to the queue while only its creator uses the queue. The creator ends this state by removing the queue, and another process
        // by opening the queue.
        self.is_sole()
            && namespace
                .look_up(name)
                .is_some_and(|stat| is_as_created(&stat))
            && segment.vacate()
    }
}

/// Removes the name of a vacated queue's file, so that the name is free.
#[doc(hidden)]
pub fn give_up(namespace: &Namespace, name: &OsStr) {
    if let Ok(name) = QueueName::parse(name) {
        namespace.remove_vacant(&name);
    }
}

/// Prepares a process that reuses segments. After this call, the namespace counts the changes of its limits, so the process does not have to check
/// the limits for each queue. The call also removes the files of some vacated queues whose creators have died.
#[doc(hidden)]
pub fn begin_recycling(namespace: &Namespace) {
    namespace.begin_count_of_changes();
    let _ = namespace.remove_vacant_of_dead();
}
