//! The rights of a queue: whether it exists, its owner and mode, and the version under which permissions are checked.

use crate::lock::tokens::ReceiverHeld;
use crate::sync::{AtomicU32, AtomicU64, Guarded32, Ordering};

/// [`Rights::state`] of a queue that exists.
pub const LIVE: u32 = 1;
/// [`Rights::state`] of a queue that was removed. It never changes again.
pub const REMOVED: u32 = 2;

/// A bit of [`Rights::version`]: the queue is closed for sending.
pub const CLOSED: u32 = 1 << 31;

/// The state, owner and mode of a queue.
#[repr(C, align(128))]
#[derive(Default)]
pub struct Rights {
    /// [`LIVE`] or [`REMOVED`].
    pub(super) state: AtomicU32,
    /// Grows with each change of the fields below, and of its bit [`CLOSED`]. A permission that was checked under an older version is checked
    /// again.
    pub(super) version: AtomicU32,
    pub(super) uid: AtomicU32,
    pub(super) gid: AtomicU32,
    pub(super) cuid: AtomicU32,
    pub(super) cgid: AtomicU32,
    /// Permission bits.
    pub(super) mode: AtomicU32,
    /// The levels that pollers watch, see [`crate::doorbell`]; 0 for none. It is here because every operation reads this line.
    pub(super) watched: Guarded32,
    /// CLOCK_REALTIME of the last change, in seconds since 1970.
    pub(super) changed_at: AtomicU64,
}

/// The owner, the creator and the mode of a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Permissions {
    pub uid: u32,
    pub gid: u32,
    pub cuid: u32,
    pub cgid: u32,
    /// Permission bits.
    pub mode: u32,
}

impl Rights {
    /// Makes the rights of a new queue, changed last at `now` in seconds since 1970.
    pub fn begin(&self, permissions: &Permissions, now: u64) {
        // Relaxed throughout: no other process sees the segment before its file is linked.
        self.state.store(LIVE, Ordering::Relaxed);
        self.version.store(1, Ordering::Relaxed);
        self.store(permissions);
        self.changed_at.store(now, Ordering::Relaxed);
    }

    /// Returns whether the queue exists. A state other than [`LIVE`] and [`REMOVED`] is corrupted.
    #[inline(always)]
    pub(crate) fn is_live(&self) -> bool {
        // Relaxed: exact under the lock; a hint elsewhere.
        self.state.load(Ordering::Relaxed) == LIVE
    }

    /// Returns whether the queue was removed.
    #[inline(always)]
    pub(crate) fn is_removed(&self) -> bool {
        // Relaxed: exact under the lock; a hint elsewhere.
        self.state.load(Ordering::Relaxed) == REMOVED
    }

    /// Removes the queue: this store ends it.
    pub(crate) fn remove(&self) {
        // Relaxed: the store publishes no other data. A reader without the lock sees it a moment later.
        self.state.store(REMOVED, Ordering::Relaxed);
    }

    /// Makes a corrupted state that of an existing queue. Returns false if the state is [`LIVE`] or [`REMOVED`].
    #[cfg(not(loom))]
    pub fn restore_state(&self) -> bool {
        // Relaxed: the store publishes no other data. A queue that is removed meanwhile stays so.
        let (state, relaxed) = (self.state.load(Ordering::Relaxed), Ordering::Relaxed);
        let is_corrupt = ![LIVE, REMOVED].contains(&state);
        let restore = || {
            self.state
                .compare_exchange(state, LIVE, relaxed, relaxed)
                .is_ok()
        };
        is_corrupt && restore()
    }

    /// The present version: exact under the lock, a hint elsewhere.
    #[inline(always)]
    pub fn version(&self) -> u32 {
        // Relaxed: see above.
        self.version.load(Ordering::Relaxed)
    }

    /// The version under which the caller is about to check a permission.
    ///
    /// RIGHTS. Acquire: pairs with the release in [`publish`](Self::publish). A reader of a version also reads the rights that
    /// belong to it, or newer ones. If the rights are newer, the check under the lock finds the version outdated.
    #[inline(always)]
    pub fn version_to_check(&self) -> u32 {
        self.version.load(Ordering::Acquire)
    }

    /// The permissions. The words are of one moment if the caller holds the lock, or finds the same version before and after.
    pub fn permissions(&self) -> Permissions {
        // Relaxed: see above.
        let word = |word: &AtomicU32| word.load(Ordering::Relaxed);
        Permissions {
            uid: word(&self.uid),
            gid: word(&self.gid),
            cuid: word(&self.cuid),
            cgid: word(&self.cgid),
            mode: word(&self.mode),
        }
    }

    /// Changes the permissions. [`publish`](Self::publish) comes after.
    pub fn set(&self, _: ReceiverHeld<'_>, permissions: &Permissions) {
        self.store(permissions);
    }

    /// Changes the permission bits alone. [`publish`](Self::publish) comes after.
    pub fn set_mode(&self, _: ReceiverHeld<'_>, mode: u32) {
        // Relaxed: as in `store`.
        self.mode.store(mode, Ordering::Relaxed);
    }

    fn store(&self, permissions: &Permissions) {
        // Relaxed: the version that is stored after them publishes them.
        for (word, value) in [
            (&self.uid, permissions.uid),
            (&self.gid, permissions.gid),
            (&self.cuid, permissions.cuid),
            (&self.cgid, permissions.cgid),
            (&self.mode, permissions.mode),
        ] {
            word.store(value, Ordering::Relaxed);
        }
    }

    /// Publishes a change that was made at `now`, in seconds since 1970.
    pub(crate) fn publish(&self, _: ReceiverHeld<'_>, now: u64) {
        self.changed_at.store(now, Ordering::Relaxed);
        self.next_version(self.version() & CLOSED);
    }

    /// Closes the queue for sending, or opens it again.
    pub(crate) fn set_send_closed(&self, _: ReceiverHeld<'_>, closed: bool) {
        self.next_version(if closed { CLOSED } else { 0 });
    }

    fn next_version(&self, closed: u32) {
        let next = self.version().wrapping_add(1) & !CLOSED;
        // Release: RIGHTS. A process that reads the new version also reads the new rights.
        self.version.store(next | closed, Ordering::Release);
    }

    /// Returns whether the queue is closed for sending. Exact under the lock, a hint elsewhere.
    pub fn is_send_closed(&self) -> bool {
        self.version() & CLOSED != 0
    }

    /// Permission bits.
    pub fn mode(&self) -> u32 {
        // Relaxed: a single word.
        self.mode.load(Ordering::Relaxed)
    }

    /// CLOCK_REALTIME of the last change, in seconds since 1970.
    pub fn changed_at(&self) -> u64 {
        // Relaxed: a single word.
        self.changed_at.load(Ordering::Relaxed)
    }

    /// The word that the doorbell keeps: the levels that pollers watch.
    #[inline(always)]
    pub fn watched(&self) -> &Guarded32 {
        &self.watched
    }
}
