//! The record of a registration for a notification. [`crate::posix_engine::notification`] lists the states of a record.

use crate::consent::Shown;
use crate::lock::tokens::ReceiverHeld;
use crate::sync::{AtomicU32, AtomicU64, Ordering};

/// A state: a process is registered.
pub(crate) const ARMED: u32 = 1;
/// A state: the registration was fired, and its process has not handled the notification yet.
pub(crate) const FIRED: u32 = 2;
/// A state: the holder of the receiver lock raises the signal of the registered process.
pub(crate) const RAISING: u32 = 3;
/// The bits of a record's word that contain the state.
pub(crate) const STATE: u32 = 3;
/// A bit of a fired record: a thread sleeps until the process has handled the record.
const WAITED: u32 = 4;
/// The amount by which the word grows with each registration.
const TURN: u32 = 8;

/// The value in place of the sender's user, until a process has asked the system for the user. No user has this id.
pub(crate) const NOT_ASKED: u32 = u32::MAX;

/// The number of records for registrations in the fixed part. One record is for the armed registration. The others are for fired registrations that
/// their processes have not handled yet. Additional records are in a separate region.
#[cfg(not(loom))]
pub(crate) const NOTICES: usize = 8;
#[cfg(loom)]
pub(crate) const NOTICES: usize = 2;

/// The record of a process's registration for a notification.
#[repr(C, align(64))]
#[derive(Default)]
pub struct Notice {
    /// The state. The registered process sleeps on this word until the record is fired. The sender that fired the record sleeps on this word until
    /// the process has handled the record.
    word: AtomicU32,
    /// The kind of the notification, followed by the signal. Both words are for display, and for other processes that fire the registration. The
    /// registered process has its own copy in its memory.
    what: AtomicU32,
    signal: AtomicU32,
    /// The process, followed by its birth, which distinguishes the process from other processes with the same id.
    pid: AtomicU32,
    birth: AtomicU64,
    /// A number that distinguishes this registration from other registrations of the same process.
    ticket: AtomicU64,
    /// The lower half is the process whose message fired the record. The upper half is the real user of that process, or [`NOT_ASKED`] until a
    /// process has asked the system.
    sender: AtomicU64,
    /// The location of the process's consent to its signal: the two words of [`Shown`].
    descriptor: AtomicU32,
    place: AtomicU32,
}

impl Notice {
    /// The offset of the consent's location, for the layout hash.
    #[cfg(not(loom))]
    pub(super) const CONSENT: usize = std::mem::offset_of!(Notice, descriptor);

    /// Returns the state and the turn. The caller also sees the words that were written before this word.
    pub(crate) fn word(&self) -> u32 {
        self.word.load(Ordering::Acquire) & !WAITED
    }

    /// Makes the process that frees a fired record wake the caller. Returns the value of the futex on which the caller sleeps. Returns `None` if the
    /// word is no longer `fired`.
    pub(crate) fn ask_for_wake(&self, fired: u32) -> Option<u32> {
        // Acquire on failure: the caller sees the words that the process wrote before it freed the record. Relaxed on success: the process has not
        // freed the record yet, so the caller reads none of these words.
        let found =
            self.word
                .compare_exchange(fired, fired | WAITED, Ordering::Relaxed, Ordering::Acquire);
        match found {
            Ok(_) => Some(fired | WAITED),
            Err(word) => (word == fired | WAITED).then_some(word),
        }
    }

    /// Returns the record's futex. The registered process sleeps on it, and so does a sender that has fired the record.
    pub(crate) fn futex(&self) -> &AtomicU32 {
        &self.word
    }

    /// Writes the data of a registration of the process `pid` into a free record.
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

    /// Arms a free record that contains the data of a process. The process is then registered. Returns the new word.
    pub(crate) fn arm(&self, _: ReceiverHeld<'_>) -> u32 {
        // Relaxed: under the receiver lock no other process changes a free record.
        let free = self.word.load(Ordering::Relaxed) & !(STATE | WAITED);
        let armed = free.wrapping_add(TURN) | ARMED;
        // Release: a process that sees this word sees the other words of the record.
        self.word.store(armed, Ordering::Release);
        armed
    }

    /// Ends an armed registration. Fires the record if the process wants a notification, otherwise frees the record. Returns false if the
    /// registration was withdrawn.
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

    /// Ends the state of [`begin_raising`](Self::begin_raising). If the signal was raised, frees the record. Otherwise fires the record, so that its
    /// process raises the signal.
    pub(crate) fn end_raising(&self, _: ReceiverHeld<'_>, armed: u32, is_raised: bool) {
        let after = match is_raised {
            true => armed & !STATE,
            false => fired(armed),
        };
        // The compare-and-swap fails if a process that does not hold the lock has overwritten the word.
        self.change(raising(armed), after);
    }

    /// Frees the record if its word is still `word`. Returns false if the word has changed.
    pub(crate) fn free(&self, word: u32) -> bool {
        self.change(word, word & !STATE)
    }

    /// Frees a fired record if its word is still `fired`. Returns true if the caller has to wake threads that wait for the free record.
    #[must_use]
    pub(crate) fn free_fired(&self, fired: u32) -> bool {
        !self.free(fired) && self.change(fired | WAITED, fired & !STATE)
    }

    fn change(&self, from: u32, to: u32) -> bool {
        self.word
            .compare_exchange(from, to, Ordering::AcqRel, Ordering::Relaxed)
            .is_ok()
    }

    /// Returns the kind of the notification, and the signal.
    pub(crate) fn means(&self) -> (u32, u32) {
        // Relaxed: the values are displayed, and decide only the length of a wait.
        let signal = self.signal.load(Ordering::Relaxed);
        (self.what.load(Ordering::Relaxed), signal)
    }

    /// Returns the registered process and its birth.
    pub fn owner(&self) -> (u32, u64) {
        // Relaxed: the values are hints, which the registered process confirms.
        let birth = self.birth.load(Ordering::Relaxed);
        (self.pid.load(Ordering::Relaxed), birth)
    }

    /// Returns the number that distinguishes this registration from other registrations of the same process.
    pub fn ticket(&self) -> u64 {
        // Relaxed: the value is a hint, which the registered process confirms.
        self.ticket.load(Ordering::Relaxed)
    }

    /// Returns the location of the process's consent to its signal.
    pub(crate) fn shown(&self) -> Shown {
        // Relaxed: the values are hints, which the consent confirms.
        Shown {
            descriptor: self.descriptor.load(Ordering::Relaxed),
            place: self.place.load(Ordering::Relaxed),
        }
    }

    /// Notes the sender of the message that will fire the record. `user` is the real user of the sender, or [`NOT_ASKED`].
    pub(crate) fn set_sender(&self, _: ReceiverHeld<'_>, pid: u32, user: u32) {
        // Relaxed: the store of the record's word publishes this store.
        self.sender.store(pack(pid, user), Ordering::Relaxed);
    }

    /// Returns the sender of the message that fired the record, and the sender's real user or [`NOT_ASKED`].
    pub(crate) fn sender(&self) -> (u32, u32) {
        // Relaxed: the record's word has published the sender.
        let found = self.sender.load(Ordering::Relaxed);
        (found as u32, (found >> 32) as u32)
    }

    /// Notes the real user of the sender `pid`, unless the record has another sender meanwhile.
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

/// Returns the word that a fired registration had before it was fired.
pub fn armed(fired: u32) -> u32 {
    fired & !STATE | ARMED
}

/// Returns the word that an armed registration has after it is fired.
pub(crate) fn fired(armed: u32) -> u32 {
    armed & !STATE | FIRED
}

/// Returns the word that an armed registration has while the holder of the receiver lock raises its signal.
pub(crate) fn raising(armed: u32) -> u32 {
    armed & !STATE | RAISING
}
