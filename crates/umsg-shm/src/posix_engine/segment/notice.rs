//! The record of a registration for a notification. [`crate::posix_engine::notification`] lists its states.

use crate::consent::Shown;
use crate::lock::tokens::ReceiverHeld;
use crate::sync::{AtomicU32, AtomicU64, Ordering};

/// A state: a process is registered.
pub(crate) const ARMED: u32 = 1;
/// A state: the registration was fired, and its process has not handled it yet.
pub(crate) const FIRED: u32 = 2;
/// A state: the holder of the receiver lock raises the signal of the registered process.
pub(crate) const RAISING: u32 = 3;
/// The bits of a word that hold the state.
pub(crate) const STATE: u32 = 3;
/// A bit of a fired record: a thread sleeps until the process has handled the record.
const WAITED: u32 = 4;
/// The number that each registration adds to the word.
const TURN: u32 = 8;

/// In place of the sender's user, until a process has asked the system for it. No user has this number.
pub(crate) const NOT_ASKED: u32 = u32::MAX;

/// The number of records for registrations that a queue has from the start. One is for the armed registration, the others are for fired registrations
/// that their processes have not handled yet. Further records lie in a region of their own.
#[cfg(not(loom))]
pub(crate) const NOTICES: usize = 8;
#[cfg(loom)]
pub(crate) const NOTICES: usize = 2;

/// A process's registration for a notification.
#[repr(C, align(64))]
#[derive(Default)]
pub struct Notice {
    /// The state. The registered process sleeps on this word until the record is fired. The sender that fired the record sleeps on it until the
    /// process has handled the record.
    word: AtomicU32,
    /// How the process wants to be notified, and by which signal. The words are for display, and for another process that fires the registration. The
    /// registered process knows both from its own memory.
    what: AtomicU32,
    signal: AtomicU32,
    /// The process, and its birth, which distinguishes it from other processes with the same id.
    pid: AtomicU32,
    birth: AtomicU64,
    /// The number of the registration among those of its process.
    ticket: AtomicU64,
    /// The lower half is the process whose message fired the record. The upper half is the real user of that process, or [`NOT_ASKED`] until a
    /// process has asked the system.
    sender: AtomicU64,
    /// The place of the process's consent to its signal: [`Shown`].
    descriptor: AtomicU32,
    place: AtomicU32,
}

impl Notice {
    /// The offset of the place of the consent, for the layout hash.
    #[cfg(not(loom))]
    pub(super) const CONSENT: usize = std::mem::offset_of!(Notice, descriptor);

    /// Returns the state and the turn. The caller sees the words that were written before them.
    pub(crate) fn word(&self) -> u32 {
        self.word.load(Ordering::Acquire) & !WAITED
    }

    /// Asks the process that frees a fired record to wake the caller. Returns the value of the futex on which the caller sleeps, or None if
    /// the word is no longer `fired`.
    pub(crate) fn ask_for_wake(&self, fired: u32) -> Option<u32> {
        // Acquire on failure: the caller sees what the process wrote before it freed the record. Relaxed on success: the process has not freed the
        // record, so the caller reads nothing of it.
        let found =
            self.word
                .compare_exchange(fired, fired | WAITED, Ordering::Relaxed, Ordering::Acquire);
        match found {
            Ok(_) => Some(fired | WAITED),
            Err(word) => (word == fired | WAITED).then_some(word),
        }
    }

    /// Returns the futex on which the registered process sleeps, and a sender that has fired the record.
    pub(crate) fn futex(&self) -> &AtomicU32 {
        &self.word
    }

    /// Describes a registration of the process `pid`, in a free record.
    pub(crate) fn fill(
        &self,
        _: ReceiverHeld<'_>,
        (pid, birth): (u32, u64),
        (what, signal): (u32, u32),
        ticket: u64,
        shown: Shown,
    ) {
        // Relaxed: the store of the record's word in `arm` publishes these words.
        self.what.store(what, Ordering::Relaxed);
        self.signal.store(signal, Ordering::Relaxed);
        self.pid.store(pid, Ordering::Relaxed);
        self.birth.store(birth, Ordering::Relaxed);
        self.ticket.store(ticket, Ordering::Relaxed);
        self.descriptor.store(shown.descriptor, Ordering::Relaxed);
        self.place.store(shown.place, Ordering::Relaxed);
    }

    /// Arms a free record, which the caller has filled with the data of a process: the process is registered. Returns the new word.
    pub(crate) fn arm(&self, _: ReceiverHeld<'_>) -> u32 {
        // Relaxed: under the receiver lock no other process changes a free record.
        let free = self.word.load(Ordering::Relaxed) & !(STATE | WAITED);
        let armed = free.wrapping_add(TURN) | ARMED;
        // Release: a process that sees this word sees the other words of the record.
        self.word.store(armed, Ordering::Release);
        armed
    }

    /// Ends an armed registration: fires it if the process wants a notification, otherwise frees it. Returns false if the registration was
    /// withdrawn.
    #[must_use]
    pub(crate) fn fire(&self, _: ReceiverHeld<'_>, armed: u32, is_notified: bool) -> bool {
        let after = match is_notified {
            true => fired(armed),
            false => armed & !STATE,
        };
        // Release: a thread that sees this word sees the sender.
        armed & STATE == ARMED && self.change(armed, after)
    }

    /// Changes an armed word before this thread raises the process's signal. Returns false if the registration was withdrawn.
    #[must_use]
    pub(crate) fn begin_raising(&self, _: ReceiverHeld<'_>, armed: u32) -> bool {
        armed & STATE == ARMED && self.change(armed, raising(armed))
    }

    /// Ends [`begin_raising`](Self::begin_raising). If the signal was raised, frees the record. If not, fires the record, and its process raises
    /// the signal.
    pub(crate) fn end_raising(&self, _: ReceiverHeld<'_>, armed: u32, is_raised: bool) {
        let after = match is_raised {
            true => armed & !STATE,
            false => fired(armed),
        };
        // The compare-and-swap fails if a process that does not hold the lock has overwritten the word.
        self.change(raising(armed), after);
    }

    /// Frees the record, if its word still is `word`. Returns false if the word has changed.
    pub(crate) fn free(&self, word: u32) -> bool {
        self.change(word, word & !STATE)
    }

    /// Frees a fired record, if its word still is `fired`. Returns true if the caller has to wake the threads that wait until the record is free.
    #[must_use]
    pub(crate) fn free_fired(&self, fired: u32) -> bool {
        !self.free(fired) && self.change(fired | WAITED, fired & !STATE)
    }

    fn change(&self, from: u32, to: u32) -> bool {
        self.word
            .compare_exchange(from, to, Ordering::AcqRel, Ordering::Relaxed)
            .is_ok()
    }

    /// Returns how the process wants to be notified, and by which signal.
    pub(crate) fn means(&self) -> (u32, u32) {
        // Relaxed: the values are displayed, and decide only the length of a wait.
        let signal = self.signal.load(Ordering::Relaxed);
        (self.what.load(Ordering::Relaxed), signal)
    }

    /// Returns the registered process, and its birth.
    pub fn owner(&self) -> (u32, u64) {
        // Relaxed: the values are hints, which the process itself confirms.
        let birth = self.birth.load(Ordering::Relaxed);
        (self.pid.load(Ordering::Relaxed), birth)
    }

    /// Returns the number of this registration among those of its process.
    pub fn ticket(&self) -> u64 {
        // Relaxed: the value is a hint, which the process itself confirms.
        self.ticket.load(Ordering::Relaxed)
    }

    /// Returns the place of the process's consent to its signal.
    pub(crate) fn shown(&self) -> Shown {
        // Relaxed: the values are hints, which the consent confirms.
        Shown {
            descriptor: self.descriptor.load(Ordering::Relaxed),
            place: self.place.load(Ordering::Relaxed),
        }
    }

    /// Notes the sender of the message that is about to fire the record. `user` is its real user or [`NOT_ASKED`].
    pub(crate) fn set_sender(&self, _: ReceiverHeld<'_>, pid: u32, user: u32) {
        // Relaxed: the store of the record's word publishes this store.
        self.sender.store(pack(pid, user), Ordering::Relaxed);
    }

    /// Returns the sender of the message that fired the record, and its real user or [`NOT_ASKED`].
    pub(crate) fn sender(&self) -> (u32, u32) {
        // Relaxed: the record's word has published the sender.
        let found = self.sender.load(Ordering::Relaxed);
        (found as u32, (found >> 32) as u32)
    }

    /// Notes the real user of the sender `pid`, unless the record has another sender by now.
    pub(crate) fn set_user(&self, pid: u32, user: u32) {
        let _ = self.sender.compare_exchange(
            pack(pid, NOT_ASKED),
            pack(pid, user),
            Ordering::Relaxed,
            Ordering::Relaxed,
        );
    }

    /// Removes the registration from a copy of the segment that no other process uses.
    pub(super) fn forget(&self) {
        self.word.store(0, Ordering::Relaxed);
    }
}

fn pack(pid: u32, user: u32) -> u64 {
    u64::from(pid) | u64::from(user) << 32
}

/// Returns the word of a registration before it was fired.
pub fn armed(fired: u32) -> u32 {
    fired & !STATE | ARMED
}

/// Returns the word of a registration once it was fired.
pub(crate) fn fired(armed: u32) -> u32 {
    armed & !STATE | FIRED
}

/// Returns the word of a registration while the holder of the receiver lock raises its signal.
pub(crate) fn raising(armed: u32) -> u32 {
    armed & !STATE | RAISING
}
