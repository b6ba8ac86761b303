//! The interface of a diagnosis to a queue of either kind. Rings have the layout of POSIX queues.

use super::Diagnosis;
use super::findings::Findings;
use super::locks::{Lock, Side, is_settled};
use super::repair::Repaired;
use super::slots::Survey;
use crate::error::OpenError;
use crate::namespace::Namespace;
use rustix::fd::BorrowedFd;
use rustix::io::Errno;
use std::ops::Range;
use umsg_shm::arena::ArenaStore;
use umsg_shm::leases::LeaseStore;
use umsg_shm::lock::Lock as Word;
use umsg_shm::repair::salvage::{Real, Salvage};
use umsg_shm::sync::Guarded32;
use umsg_shm::waiters::WaiterStore;

/// A segment under diagnosis: a private copy of the file.
pub(super) trait Subject: WaiterStore + LeaseStore + ArenaStore + Sized {
    /// The facts about a queue outside its file: identifier and key of a System V queue.
    type Id: Copy;
    type Layout: Copy;
    type Engine: Salvage;

    /// Checks the header, and returns the values that follow from it. None if the header is corrupted.
    ///
    /// # Errors
    /// `NotAQueue`, `OtherVersion`.
    fn header(
        file: BorrowedFd<'_>,
        id: Self::Id,
        findings: &mut Findings,
    ) -> Result<Option<Self::Layout>, OpenError>;

    fn copy(
        file: BorrowedFd<'_>,
        layout: Self::Layout,
        namespace: &Namespace,
    ) -> Result<Self, Errno>;

    /// Returns the length of a copy, in bytes.
    fn len(layout: &Self::Layout) -> usize;

    /// Returns the range of the words that every operation changes, from the first byte to the last.
    fn pulse() -> Range<usize>;

    /// Returns the address of the first byte of the copy.
    fn address(&self) -> usize;

    /// Returns the locks, each with the part that it guards.
    fn lock_words(&self) -> Vec<(Side, &Word)>;

    /// Returns the locks as their words describe them.
    fn locks(&self) -> Vec<Lock> {
        let words = self.lock_words().into_iter();
        words
            .map(|(side, word)| Lock::read(side, word, self.address()))
            .collect()
    }

    /// Returns whether a thread holds a lock, or died holding it.
    fn is_held(&self) -> bool {
        let mut words = self.lock_words().into_iter();
        words.any(|(_, word)| !is_settled(word))
    }

    /// Checks the words that can be checked even while the queue is in use.
    ///
    /// # Errors
    /// `NotFound` if the queue was removed.
    fn check_words(&self, findings: &mut Findings) -> Result<(), OpenError>;

    /// Checks the place of each slot, and all data whose lock no thread holds now, except the arena. Returns None if nothing more can be checked.
    fn check_slots(&self, findings: &mut Findings) -> Option<Survey>;

    /// Returns the number of slots that were ever used, and the number that may have memory.
    fn slots_in_use(&self) -> (u32, u32);

    /// Returns the word of a slot's cell that names the slot's block, and the length of the message, in bytes.
    fn block(&self, slot: u32) -> Option<(&Guarded32, usize)>;

    /// Returns the maximum length of a message that lies in the cell itself, in bytes. Longer messages lie in a block.
    fn inline(&self) -> usize;

    /// Returns the beginning of the arena, in bytes from the beginning of the file.
    fn arena(&self) -> usize;

    /// Receives and sends messages in the copy, as a program would, and adds a finding if that fails. The copy can't be used afterwards.
    fn rehearse(self, findings: &mut Findings);

    /// Returns a diagnosis that names the processes that use the queue.
    fn describe(&self, namespace: &Namespace) -> Diagnosis;

    /// Repairs the words of the header that prevent an attachment, if they can be computed from other words.
    fn mend_header(
        file: BorrowedFd<'_>,
        id: Self::Id,
        layout: &Self::Layout,
        repaired: &mut Repaired,
    ) -> Result<(), OpenError>;

    /// Attaches to the queue itself, for a repair. Memory that the repair allocates counts for the namespace's limit.
    fn attach(file: BorrowedFd<'_>, namespace: &Namespace) -> Result<Self::Engine, OpenError>;

    /// Repairs single words after the header that can be computed from other words.
    fn mend_words(engine: &Self::Engine, repaired: &mut Repaired);

    /// Returns the sizes of the parts of the segment that have allocated memory.
    fn real(file: BorrowedFd<'_>, engine: &Self::Engine) -> Real;

    /// Frees the memory of all slots from the slot `slots` on.
    fn give_back(file: BorrowedFd<'_>, engine: &Self::Engine, slots: usize);
}
