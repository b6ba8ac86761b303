//! Reusing the segment of a removed queue for the next queue, for the drop-in. The next queue needs no new file, mapping or pages, and no change of
//! a directory.
//!
//! A process that removes its own queue may keep the segment, and then leaves the file and the key symlink in place. The header says
//! that there is no queue ([`Rights`](umsg_shm::sysv_engine::segment::Rights)), and all processes rely on the header. The next queue without a key,
//! or with the same key, is made by a store to the header, and has another identifier of the same index. A process that needs the key, the
//! index or the room takes the segment away by another store.
//!
//! | condition | reason |
//! |---|---|
//! | only the caller can use the namespace's directory, and the mode is 0600 | no other user has the file open, or is hindered by it |
//! | the namespace has no limit of bytes | the memory would count towards the limit |
//! | the file has the same attributes as at its creation (the time of change may differ if the file got memory since then), and its key symlink leads to it | another process may have changed its mode or its names |
//! | the limits of the namespace are the same as at the creation | the next queue might exceed the new limits, or have another layout |
//! | the caller has the same user and group as at the creation | the next queue would have the wrong owner |
//!
//! For at most [`BELIEVED`], the count of changes ([`Changes`]) shows without a system call that all conditions except the last one still hold. After
//! that time, lstat(2) and readlink(2) check these conditions again.

use super::permission::{Rights, caller};
use super::queue::Queue;
use super::{control, sweep};
use crate::namespace::{
    BELIEVED, Changes, Files, KeySymlink, Limits, Namespace, Next, PATIENCE, Stamp,
};
use rustix::fd::BorrowedFd;
use rustix::fs::Stat;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use umsg_shm::sys::{clock, thread};
use umsg_shm::sysv_engine::Successor;
use umsg_shm::sysv_engine::segment::{Fixed, Tenure};

/// The mode of a queue whose segment may be used again, and of the queue's file.
pub(super) const PRIVATE_MODE: u32 = 0o600;

/// The file of a queue whose segment this process may use again.
#[derive(Debug)]
pub(super) struct OwnFile {
    index: u32,
    /// The state of the file after the creation, or after the file got more memory.
    known: Mutex<KnownFile>,
    /// The name and the text of the queue's key symlink.
    name: String,
    link: KeySymlink,
    limits: Limits,
    changes: Arc<Changes>,
    /// The count of changes at the last comparison.
    count: AtomicU32,
    /// The time of the last comparison, of [`clock::monotonic_coarse`].
    since: AtomicU64,
}

/// The attributes of a file at the time of an inspection.
#[derive(Clone, Copy, Debug)]
struct KnownFile {
    stamp: Stamp,
    /// The memory of the file, in units of 512 bytes.
    blocks: i64,
}

impl KnownFile {
    fn of(stat: &Stat) -> KnownFile {
        KnownFile {
            stamp: Stamp::of(stat),
            blocks: stat.st_blocks,
        }
    }

    /// Returns whether `now` is the same file with unchanged attributes. Newly allocated memory also changes the file's times, so if the memory has
    /// changed, the times are not compared.
    fn is_still(&self, now: &KnownFile) -> bool {
        now.stamp == self.stamp
            || now.blocks != self.blocks && now.stamp.is_same_but_times(&self.stamp)
    }
}

/// Returns whether the segment of a new queue of this mode may be used again.
pub(super) fn may_be_reusable(namespace: &Namespace, mode: u32, limits: &Limits) -> bool {
    mode == PRIVATE_MODE && limits.max_bytes.is_none() && namespace.is_private()
}

impl OwnFile {
    /// Describes the file of a queue that was just created. None if the namespace has no count of changes.
    pub(super) fn of(
        namespace: &Namespace,
        file: BorrowedFd<'_>,
        (name, link): (String, KeySymlink),
        limits: &Limits,
    ) -> Option<OwnFile> {
        let KeySymlink::OfSegment(first) = link else {
            return None;
        };
        Some(OwnFile {
            index: super::registry::index_of(first),
            known: Mutex::new(KnownFile::of(&rustix::fs::fstat(file).ok()?)),
            name,
            link,
            limits: limits.clone(),
            changes: namespace.changes()?,
            count: AtomicU32::new(0),
            since: AtomicU64::new(0),
        })
    }

    /// Returns whether two conditions hold: the conditions of the module's table, except the last one, were checked less than [`BELIEVED`] ago, and
    /// no change was counted since that check. The function makes no system call.
    fn is_believed(&self) -> bool {
        // Relaxed, here and below: at worst, two threads check at the same time. The subtraction wraps around: a child in another time namespace may
        // have an earlier clock.
        let age = clock::monotonic_coarse().wrapping_sub(self.since.load(Ordering::Relaxed));
        age < BELIEVED && self.changes.count() == Some(self.count.load(Ordering::Relaxed))
    }

    /// Checks the conditions of the module's table again, except the last one.
    fn is_unchanged(&self, namespace: &Namespace) -> bool {
        // The count and the time are read before the check, so that the next call notices a change during the check.
        let (count, since) = (self.changes.count(), clock::monotonic_coarse());
        if self.is_as_created(namespace) != Some(true) {
            return false;
        }
        if let Some(count) = count {
            self.count.store(count, Ordering::Relaxed);
            self.since.store(since, Ordering::Relaxed);
        }
        true
    }

    fn is_as_created(&self, namespace: &Namespace) -> Option<bool> {
        let files = namespace.msg_files().ok()?;
        let stat = files.stat(self.index).ok()??;
        // If a signal handler or a forked child finds the lock taken, the queue is created in full.
        let mut known = self.known.try_lock().ok()?;
        let now = KnownFile::of(&stat);
        let is_same = known.is_still(&now)
            && stat.st_nlink == 1
            && files.key_symlink(&self.name).ok()? == self.link
            && namespace.is_private()
            && self.has_same_limits(namespace);
        if is_same {
            *known = now;
        }
        Some(is_same)
    }

    fn has_same_limits(&self, namespace: &Namespace) -> bool {
        let limits = namespace
            .unchanged_limits()
            .or_else(|| namespace.limits().ok());
        limits.is_some_and(|limits| limits == self.limits)
    }

    /// Counts a change that this process has made, so that the next comparison does not take it for a change by another process.
    fn note_change(&self, namespace: &Namespace) {
        match self.changes.add_one() {
            // No other process has changed anything since the last comparison.
            Some(before) if before == self.count.load(Ordering::Relaxed) => {
                self.count.store(before.wrapping_add(1), Ordering::Relaxed);
            }
            Some(_) => {}
            None => namespace.note_change(),
        }
    }

    /// Reserves further identifiers of the index for this segment: as many as the segment has held queues so far.
    fn note_turns(&self, files: &Files, fixed: &Fixed, queues: u32) -> Option<()> {
        let turns = fixed.header.turn().checked_add(u64::from(queues))?;
        let lock = files.lock(PATIENCE).ok()?;
        files.note_turns(self.index, turns).ok()?;
        drop(lock);
        fixed.header.note_turns(turns);
        Some(())
    }
}

/// The queues that one segment holds, one after the other.
impl Queue {
    /// Removes the queue, and keeps the segment. Returns false if the queue has to be removed in full, for example because this process has not
    /// created it.
    ///
    /// # If the process dies
    /// If the process dies during the call, the queue exists or is removed. The next process of the user that needs the queue's names removes them.
    pub(super) fn vacate(&self) -> bool {
        let Some(own) = self.own_file.as_ref().filter(|_| self.is_creators()) else {
            return false;
        };
        let vacated = self.engine.vacate(thread::current(), control::may_change);
        let is_vacated = matches!(vacated, Ok(Ok(true)));
        if is_vacated {
            own.note_change(&self.namespace);
        }
        is_vacated
    }

    /// Makes the next queue in a segment that this handle has vacated. Returns None if a queue has to be created in full. Without `may_compare`,
    /// the only system calls are those for the caller's identity, and little stack is needed.
    ///
    /// # If the process dies
    /// If the process dies during the call, there is no queue, or a complete queue.
    pub(super) fn revive(&self, may_compare: bool) -> Option<Queue> {
        let own = self.own_file.as_ref()?;
        let is_good = own.is_believed() || may_compare && own.is_unchanged(&self.namespace);
        if !is_good || !self.is_of_caller() {
            return None;
        }
        let mut made = self.make_next(own);
        if made.is_none() && may_compare && self.fixed().header.next_turn().is_none() {
            let queues = self.engine.segment().tenure().generation.number() + 1;
            let files = self.namespace.msg_files().ok()?;
            own.note_turns(&files, self.fixed(), queues)?;
            made = self.make_next(own);
        }
        let segment = self.engine.segment().share_as(made?);
        own.note_change(&self.namespace);
        Some(Queue {
            own_file: Some(Arc::clone(own)),
            ..Queue::new(segment, &self.namespace)
        })
    }

    fn make_next(&self, own: &OwnFile) -> Option<Tenure> {
        let mut id = 0;
        let generation = self.engine.revive(thread::current(), |fixed| {
            let turn = fixed.header.next_turn()?;
            id = Next::id_of(turn, own.index);
            let qbytes = u64::from(own.limits.msgmnb);
            Some(Successor { id, turn, qbytes })
        })?;
        Some(Tenure { generation, id })
    }

    /// Returns whether this process has created the queue.
    pub(super) fn is_creators(&self) -> bool {
        self.fixed().header.creator() == thread::current().pid()
    }

    fn is_of_caller(&self) -> bool {
        let (uid, gid) = caller();
        let rights = Rights::of(self.fixed());
        [rights.uid, rights.cuid] == [uid.as_raw(); 2]
            && [rights.gid, rights.cgid] == [gid.as_raw(); 2]
    }

    /// Returns whether this process may make the next queue of the segment. The answer is only a hint.
    pub(super) fn is_vacant(&self) -> bool {
        self.fixed().rights.state().vacant() == Some(self.engine.segment().tenure().generation)
    }

    /// Removes the names of a vacated segment, unless the segment holds a queue again.
    pub(super) fn give_up(&self) {
        if self.is_vacant() && self.fixed().rights.take() {
            sweep::removed(&self.namespace, self.id());
        }
    }

    fn fixed(&self) -> &Fixed {
        self.engine.segment().fixed()
    }
}
