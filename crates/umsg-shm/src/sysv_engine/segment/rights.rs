//! The rights of a queue: whether it exists, its owner and mode, and the version under which permissions are checked.
//!
//! A process that removes a queue may keep its segment for another queue. Each queue of a segment has its own [`Generation`]:
//!
//! | state | low byte | generation above | meaning | leaves it by |
//! |---|---|---|---|---|
//! | live | 1 | that of the queue | the queue exists | its removal: vacant or removed |
//! | vacant | 4 | that of the removed queue | no queue; the process that removed it keeps the segment | that process changes it to live, of the next generation; a process that wants a name of the file changes it to removed |
//! | removed | 2 | 0 | no queue, for ever | nothing |
//!
//! Every handle of a queue stores the queue's generation, and each call compares this generation with the state under the lock. So a handle of an
//! earlier queue finds its queue removed, and never uses a later queue.

use crate::lock::tokens::ReceiverHeld;
use crate::sync::{AtomicU32, AtomicU64, Guarded32, Ordering, fence};

/// The value of [`Rights::state`] for a queue that exists, of the first generation.
pub const LIVE: u32 = 1;
/// The value of [`Rights::state`] for a queue that was removed. This value never changes again.
pub const REMOVED: u32 = 2;
/// The value of [`Rights::state`] for a segment without a queue, whose last queue was of the first generation.
const VACANT: u32 = 4;
/// The bits of the state that show whether the queue is live, vacant or removed. The bits above them show the generation.
const KIND: u32 = 0xff;
/// The number that each further generation adds to the state.
const NEXT: u32 = 0x100;

/// The position of a queue in the sequence of queues that a segment holds. The field contains the value that [`Rights::state`] has while the queue
/// exists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Generation(u32);

impl Default for Generation {
    fn default() -> Self {
        Generation(LIVE)
    }
}

impl Generation {
    /// The largest generation: a segment holds at most 1,008 queues. With this limit, a process that uses 64 indices in turn repeats an identifier as
    /// late as possible: after 63 times 65,535 queues.
    pub const LAST: Generation = Generation(LIVE + 1007 * NEXT);

    /// Returns the number of the generation; the first generation has number 0.
    #[must_use]
    pub fn number(self) -> u32 {
        self.0 / NEXT
    }

    fn next(self) -> Option<Generation> {
        (self.0 < Generation::LAST.0).then_some(Generation(self.0 + NEXT))
    }

    fn live(self) -> u32 {
        self.0
    }

    fn vacant(self) -> u32 {
        self.0 - LIVE + VACANT
    }
}

/// A value of [`Rights::state`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct State(u32);

impl State {
    /// Decodes a state word that was read from a queue's file.
    #[must_use]
    pub fn of_word(word: u32) -> State {
        State(word)
    }

    /// Returns the generation of the queue, if a queue exists.
    #[must_use]
    pub fn live(self) -> Option<Generation> {
        self.of_kind(LIVE)
    }

    /// Returns the generation of the removed queue, if the segment is vacant.
    #[must_use]
    pub fn vacant(self) -> Option<Generation> {
        self.of_kind(VACANT)
    }

    /// Returns whether there is no queue. A state that is not in the module's table is corrupted, and is treated as that of an existing queue.
    #[must_use]
    pub fn is_removed(self) -> bool {
        self.0 == REMOVED || self.vacant().is_some()
    }

    fn of_kind(self, kind: u32) -> Option<Generation> {
        let generation = self.0 & !KIND | LIVE;
        (self.0 & KIND == kind && generation <= Generation::LAST.0)
            .then_some(Generation(generation))
    }
}

/// A bit of [`Rights::version`]: the queue is closed for sending.
pub const CLOSED: u32 = 1 << 31;

/// The state, owner and mode of a queue.
#[repr(C, align(128))]
#[derive(Default)]
pub struct Rights {
    /// The state: see the table of the module.
    pub(super) state: AtomicU32,
    /// The version grows with each change of the words below, and with each change of its own bit [`CLOSED`]. A permission that was checked under an
    /// older version is checked again.
    pub(super) version: AtomicU32,
    pub(super) uid: AtomicU32,
    pub(super) gid: AtomicU32,
    pub(super) cuid: AtomicU32,
    pub(super) cgid: AtomicU32,
    /// The permission bits.
    pub(super) mode: AtomicU32,
    /// The flags of pollers: see [`crate::doorbell`]; 0 if no process polls. The word is in this struct because every operation reads the struct's
    /// cache line.
    pub(super) watched: Guarded32,
    /// The time of the last change: CLOCK_REALTIME, in seconds since 1970.
    pub(super) changed_at: AtomicU64,
}

/// The owner, the creator and the mode of a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Permissions {
    pub uid: u32,
    pub gid: u32,
    pub cuid: u32,
    pub cgid: u32,
    /// The permission bits.
    pub mode: u32,
}

impl Rights {
    /// Fills in the rights of a new queue. `now` is the time of its last change, in seconds since 1970.
    pub fn begin(&self, permissions: &Permissions, now: u64) {
        // Relaxed throughout: no other process sees the segment before its file is linked.
        self.state.store(LIVE, Ordering::Relaxed);
        self.version.store(1, Ordering::Relaxed);
        self.store(permissions);
        self.changed_at.store(now, Ordering::Relaxed);
    }

    /// Returns the current state.
    pub fn state(&self) -> State {
        // Acquire: GENERATION. If a reader finds the same state before and after it reads the identifier, the identifier belongs to the generation
        // of that state.
        State(self.state.load(Ordering::Acquire))
    }

    /// Returns whether the queue of this generation exists.
    #[inline(always)]
    pub(crate) fn is_live(&self, generation: Generation) -> bool {
        // Relaxed: the value is exact under the lock, otherwise a hint.
        self.state.load(Ordering::Relaxed) == generation.live()
    }

    /// Returns whether the queue of this generation was removed. Returns false for a state that is not in the module's table, because such a state is
    /// corrupted.
    #[inline(always)]
    pub(crate) fn is_removed(&self, generation: Generation) -> bool {
        // Relaxed: the value is exact under the lock, otherwise a hint.
        let state = self.state.load(Ordering::Relaxed);
        state != generation.live() && is_known(State(state))
    }

    /// Removes the queue by a single store. The caller holds the lock.
    pub(crate) fn remove(&self) {
        // Relaxed: the store publishes no other data. A reader without the lock sees it a moment later.
        self.state.store(REMOVED, Ordering::Relaxed);
    }

    /// Removes the queue of this generation, without the lock, even if the state is corrupted. Returns false if the queue was removed before.
    #[cfg(not(loom))]
    pub(crate) fn remove_unlocked(&self, generation: Generation) -> bool {
        Rights::remove_word(&self.state, generation)
    }

    /// Removes the queue of this generation as [`remove_unlocked`](Self::remove_unlocked) does, for a caller that has only the word of the state.
    #[cfg(not(loom))]
    pub(super) fn remove_word(word: &AtomicU32, generation: Generation) -> bool {
        // Relaxed: as in `remove`.
        let (state, relaxed) = (word.load(Ordering::Relaxed), Ordering::Relaxed);
        let is_it = state == generation.live() || !is_known(State(state));
        is_it
            && word
                .compare_exchange(state, REMOVED, relaxed, relaxed)
                .is_ok()
    }

    /// Removes the queue of this generation, and keeps the segment for the next queue. The caller holds the lock. Returns false if the queue was
    /// removed without the lock meanwhile, or if the segment has already held the greatest number of queues.
    pub(crate) fn vacate(&self, _: ReceiverHeld<'_>, generation: Generation) -> bool {
        let is_vacated = generation.next().is_some()
            && self
                .state
                .compare_exchange(
                    generation.live(),
                    generation.vacant(),
                    Ordering::AcqRel,
                    Ordering::Relaxed,
                )
                .is_ok();
        // Release: GENERATION. A reader that finds a word of the next queue and then reads the state again finds this state or a later state.
        fence(Ordering::Release);
        is_vacated
    }

    /// Returns whether the queue of this generation was removed, and its segment is kept and vacant.
    pub(crate) fn is_vacant(&self, generation: Generation) -> bool {
        // Relaxed: under the lock, the answer is exact with one exception: another process may take the segment. `revive` decides.
        self.state.load(Ordering::Relaxed) == generation.vacant()
    }

    /// Turns a vacant segment into the next queue. The caller holds the lock, and has already filled in the other words of the new queue. Returns
    /// None if another process has taken the segment away.
    pub(crate) fn revive(&self, _: ReceiverHeld<'_>, last: Generation) -> Option<Generation> {
        let next = last.next()?;
        // Release: GENERATION. A process that finds the new state finds the new identifier.
        self.state
            .compare_exchange(
                last.vacant(),
                next.live(),
                Ordering::AcqRel,
                Ordering::Relaxed,
            )
            .is_ok()
            .then_some(next)
    }

    /// Takes a vacant segment from the process that keeps it. Returns true if the segment will never hold a queue again.
    pub fn take(&self) -> bool {
        Rights::take_word(&self.state)
    }

    /// Takes a vacant segment as [`take`](Self::take) does, for a caller that has only the word of the state.
    pub(crate) fn take_word(word: &AtomicU32) -> bool {
        // Relaxed: the caller uses nothing of the segment.
        let (state, relaxed) = (word.load(Ordering::Relaxed), Ordering::Relaxed);
        let is_vacant = State(state).vacant().is_some();
        let take = || word.compare_exchange(state, REMOVED, relaxed, relaxed);
        state == REMOVED || is_vacant && take().is_ok()
    }

    /// Replaces a corrupted state by the state of an existing queue. Returns false, and changes nothing, if the state is in the module's table.
    #[cfg(not(loom))]
    pub fn restore_state(&self) -> bool {
        // Relaxed: the store publishes no other data. A queue that another process removes meanwhile stays removed.
        let (state, relaxed) = (self.state.load(Ordering::Relaxed), Ordering::Relaxed);
        let is_corrupt = !is_known(State(state));
        let restore = || {
            self.state
                .compare_exchange(state, LIVE, relaxed, relaxed)
                .is_ok()
        };
        is_corrupt && restore()
    }

    /// Returns the current version. The result is exact under the lock, otherwise a hint.
    #[inline(always)]
    pub fn version(&self) -> u32 {
        // Relaxed: the value is exact under the lock, otherwise a hint.
        self.version.load(Ordering::Relaxed)
    }

    /// Returns the version under which the caller is about to check a permission.
    ///
    /// RIGHTS. Acquire: pairs with the release in [`publish`](Self::publish). A reader of a version also reads the rights that belong to it, or newer
    /// rights. If the rights are newer, the check under the lock finds the version outdated.
    #[inline(always)]
    pub fn version_to_check(&self) -> u32 {
        self.version.load(Ordering::Acquire)
    }

    /// Returns the permissions. The words belong to one instant if the caller holds the lock, or if it finds the same version before and after this
    /// call.
    pub fn permissions(&self) -> Permissions {
        // Relaxed: the caller makes sure that the words belong to one instant.
        let word = |word: &AtomicU32| word.load(Ordering::Relaxed);
        Permissions {
            uid: word(&self.uid),
            gid: word(&self.gid),
            cuid: word(&self.cuid),
            cgid: word(&self.cgid),
            mode: word(&self.mode),
        }
    }

    /// Changes the permissions. The caller then calls [`publish`](Self::publish).
    pub fn set(&self, _: ReceiverHeld<'_>, permissions: &Permissions) {
        self.store(permissions);
    }

    /// Changes only the permission bits. The caller then calls [`publish`](Self::publish).
    pub fn set_mode(&self, _: ReceiverHeld<'_>, mode: u32) {
        // Relaxed: as in `store`.
        self.mode.store(mode, Ordering::Relaxed);
    }

    fn store(&self, permissions: &Permissions) {
        // Relaxed: the release of the version that is stored later publishes these words.
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

    /// Notes the creation of the next queue of a vacant segment at `now`, in seconds since 1970. Permissions that were checked for an earlier
    /// queue are checked again.
    pub(crate) fn begin_next(&self, held: ReceiverHeld<'_>, now: u64) {
        self.publish(held, now);
    }

    /// Publishes a change of the rights that was made at `now`, in seconds since 1970.
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

    /// Returns whether the queue is closed for sending. The result is exact under the lock, otherwise a hint.
    pub fn is_send_closed(&self) -> bool {
        self.version() & CLOSED != 0
    }

    /// Returns the permission bits.
    pub fn mode(&self) -> u32 {
        // Relaxed: the word publishes no other data.
        self.mode.load(Ordering::Relaxed)
    }

    /// Returns the time of the last change: CLOCK_REALTIME, in seconds since 1970.
    pub fn changed_at(&self) -> u64 {
        // Relaxed: the word publishes no other data.
        self.changed_at.load(Ordering::Relaxed)
    }

    /// Returns the word with the flags of pollers.
    #[inline(always)]
    pub fn watched(&self) -> &Guarded32 {
        &self.watched
    }
}

/// Returns whether the state is in the module's table: live or vacant with a generation, or removed.
fn is_known(state: State) -> bool {
    state.live().is_some() || state.is_removed()
}
