//! Proofs of registrations for notifications, which let a sender raise the signal of another process of its own user.
//!
//! Any process with write access to a queue can forge a record in its segment. So a record proves nothing. A *proof page* does: it is the first
//! page of a process's liveness file, which only processes of that file's owner can write. A sender reads the page of a process of its own user
//! and believes it. It sends no signal that a process of that user could not send.
//!
//! The page has a slot for each registration by a signal:
//!
//! | state | who changes it | to |
//! |---|---|---|
//! | free | its process | armed, when the queue, the signal and the value are written |
//! | armed | its process | free: it raises the signal itself, or the registration is withdrawn |
//! | | a sender | taken by that sender |
//! | taken by a sender | that sender | free, after the signal; armed if the kernel refused the signal |
//! | | its process, if the sender is dead | free: it raises the signal itself |
//!
//! Each change is one compare-and-swap on the word, which also has the ticket of the registration. So a signal is raised once for a
//! registration, whatever the records say. The exception is a sender that dies between the signal and the change to free: then the signal is
//! raised twice, because a notification too many is better than a missing one.
//!
//! The word `alive` says whether the process still runs its program. A thread of the process has named the word to the kernel, which marks the
//! word when the thread ends: see [`crate::sys::thread`].

use crate::crash::crash_point;
use crate::sync::{AtomicU32, AtomicU64, Ordering};
#[cfg(not(loom))]
use crate::sys::thread::Thread;

/// The number of slots in a page.
#[cfg(not(loom))]
pub const SLOTS: usize = 63;
#[cfg(loom)]
pub const SLOTS: usize = 1;

/// The first page of a liveness file. Zeroes are a page without proofs.
#[repr(C, align(64))]
#[derive(Default)]
pub struct ProofPage {
    /// The id of the thread that the kernel watches; 0 before it is watched. Other values count as dead.
    alive: AtomicU32,
    /// The process, and the namespaces in which that id is valid: `sys::home::here`.
    pid: AtomicU32,
    home: AtomicU64,
    slots: Slots,
}

#[repr(transparent)]
struct Slots([Slot; SLOTS]);

impl Default for Slots {
    fn default() -> Slots {
        Slots(std::array::from_fn(|_| Slot::default()))
    }
}

#[cfg(not(loom))]
const _: () = assert!(size_of::<ProofPage>() == crate::sys::map::PAGE);

/// See the module.
#[repr(C, align(64))]
#[derive(Default)]
pub struct Slot {
    /// The lower half of the ticket above 32 bits, the process id of the sender above 2 bits, and the state.
    word: AtomicU64,
    /// Device and inode of the queue.
    device: AtomicU64,
    inode: AtomicU64,
    value: AtomicU64,
    signal: AtomicU32,
}

const FREE: u64 = 0;
const ARMED: u64 = 1;
const TAKEN: u64 = 2;
const STATE: u64 = 3;

fn armed(ticket: u64) -> u64 {
    ticket << 32 | ARMED
}

fn taken(ticket: u64, by: u32) -> u64 {
    ticket << 32 | u64::from(by) << 2 & 0xffff_ffff | TAKEN
}

/// A registration by a signal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Proof {
    /// Which of its process's registrations. The lower half counts.
    pub ticket: u64,
    /// Device and inode of the queue.
    pub queue: (u64, u64),
    pub signal: i32,
    pub value: usize,
}

/// The answer to a process that wants to raise the signal of its own registration, or withdraws it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reclaimed {
    /// No sender raises the signal.
    Own,
    /// The sender with that process id is about to raise the signal.
    Taken(u32),
    /// A sender has raised the signal.
    Raised,
}

impl ProofPage {
    /// Names the process of a page that no sender believes yet, because it is not alive.
    pub fn introduce(&self, pid: u32, home: u64) {
        // Relaxed: `set_alive` publishes them.
        self.pid.store(pid, Ordering::Relaxed);
        self.home.store(home, Ordering::Relaxed);
    }

    /// Has a thread stand for the life of its process, from now until its end. It names the word to the kernel, which marks the word unless
    /// the thread dies while it holds a lock: then senders find no process of that id. False if the kernel would mark no word at all.
    #[cfg(not(loom))]
    pub fn stand_for_life(&self, me: &Thread) -> bool {
        if me.can_be_marked().is_err() {
            return false;
        }
        self.name_life(me);
        self.set_alive(me.tid());
        true
    }

    /// Names the word to the kernel again. libc forgets it when the thread locks a robust mutex.
    #[cfg(not(loom))]
    pub fn name_life(&self, me: &Thread) {
        me.rename(&self.alive);
    }

    fn set_alive(&self, tid: u32) {
        // Release: a sender that sees it sees the process id.
        self.alive.store(tid, Ordering::Release);
    }

    /// Returns whether the process runs the program that wrote the proofs, as far as the kernel has marked the word.
    pub fn is_alive(&self) -> bool {
        /// The bits of a thread id: FUTEX_TID_MASK of linux/futex.h.
        const TID: u32 = 0x3fff_ffff;
        // Acquire: pairs with `set_alive`.
        let word = self.alive.load(Ordering::Acquire);
        word != 0 && word & !TID == 0
    }

    /// Returns the process, and the namespaces in which its id is valid.
    pub fn process(&self) -> (u32, u64) {
        // Relaxed: `is_alive` came first.
        let pid = self.pid.load(Ordering::Relaxed);
        (pid, self.home.load(Ordering::Relaxed))
    }

    /// Returns a slot by its number, which begins with 1 and may come from a forged record.
    pub fn slot(&self, number: u32) -> Option<&Slot> {
        self.slots.0.get((number as usize).checked_sub(1)?)
    }

    /// Writes a proof into a free slot, and returns the slot's number. None if all are in use. The caller excludes the other threads of its
    /// process.
    pub fn offer(&self, proof: &Proof) -> Option<u32> {
        // Acquire: the sender that freed the slot has read it.
        let is_free = |slot: &Slot| slot.word.load(Ordering::Acquire) & STATE == FREE;
        let index = self.slots.0.iter().position(is_free)?;
        let slot = &self.slots.0[index];
        // Relaxed: the word publishes them.
        slot.device.store(proof.queue.0, Ordering::Relaxed);
        slot.inode.store(proof.queue.1, Ordering::Relaxed);
        slot.value.store(proof.value as u64, Ordering::Relaxed);
        slot.signal
            .store(proof.signal.cast_unsigned(), Ordering::Relaxed);
        slot.word.store(armed(proof.ticket), Ordering::Release);
        Some(index as u32 + 1)
    }
}

impl Slot {
    /// Takes the proof of a registration with a queue, for a sender that raises the signal. None if the slot does not prove it, or another
    /// process is first.
    pub fn take(&self, ticket: u64, queue: (u64, u64), by: u32) -> Option<Proof> {
        // Acquire: pairs with the release in `offer`. The words stay as they are while the slot has this ticket and is armed.
        if self.word.load(Ordering::Acquire) != armed(ticket) {
            return None;
        }
        let proof = Proof {
            ticket,
            queue: (
                self.device.load(Ordering::Relaxed),
                self.inode.load(Ordering::Relaxed),
            ),
            signal: self.signal.load(Ordering::Relaxed).cast_signed(),
            value: self.value.load(Ordering::Relaxed) as usize,
        };
        if proof.queue != queue || !self.change(armed(ticket), taken(ticket, by)) {
            return None;
        }
        crash_point!(PROOF_TAKEN);
        Some(proof)
    }

    /// Frees the slot after the sender has raised the signal.
    pub fn finish(&self, ticket: u64, by: u32) {
        crash_point!(PROOF_RAISED);
        // False if the process took the sender for dead.
        let _ = self.change(taken(ticket, by), FREE);
    }

    /// Undoes [`take`](Self::take), if the kernel has refused the signal.
    pub fn put_back(&self, ticket: u64, by: u32) {
        let _ = self.change(taken(ticket, by), armed(ticket));
    }

    /// Returns the sender that is about to raise the signal of the caller's own registration.
    pub fn taker(&self, ticket: u64) -> Option<u32> {
        // Relaxed: a hint, which `reclaim` confirms.
        let word = self.word.load(Ordering::Relaxed);
        let by = (word as u32) >> 2;
        (word == taken(ticket, by)).then_some(by)
    }

    /// Frees the slot of the caller's own registration, unless a sender raises the signal.
    pub fn reclaim(&self, ticket: u64) -> Reclaimed {
        if self.change(armed(ticket), FREE) {
            return Reclaimed::Own;
        }
        // Acquire: the signal has been raised.
        let word = self.word.load(Ordering::Acquire);
        let by = (word as u32) >> 2;
        match word == taken(ticket, by) {
            true => Reclaimed::Taken(by),
            false => Reclaimed::Raised,
        }
    }

    /// Frees the slot that a dead sender has taken. False if the sender had raised the signal.
    pub fn reclaim_from_dead(&self, ticket: u64, by: u32) -> bool {
        self.change(taken(ticket, by), FREE)
    }

    fn change(&self, from: u64, to: u64) -> bool {
        // AcqRel: a proof is read before the slot is free, and a signal raised.
        self.word
            .compare_exchange(from, to, Ordering::AcqRel, Ordering::Relaxed)
            .is_ok()
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    const PROOF: Proof = Proof {
        ticket: 7 << 40 | 5,
        queue: (3, 4),
        signal: 10,
        value: 99,
    };

    fn page() -> ProofPage {
        ProofPage::default()
    }

    #[test]
    fn a_proof_is_taken_once_and_only_for_its_queue_and_ticket() {
        let page = page();
        let number = page.offer(&PROOF).unwrap();
        let slot = page.slot(number).unwrap();
        assert_eq!(slot.take(6, PROOF.queue, 1), None);
        assert_eq!(slot.take(PROOF.ticket, (3, 5), 1), None);
        assert_eq!(slot.take(PROOF.ticket, PROOF.queue, 1), Some(PROOF));
        assert_eq!(slot.take(PROOF.ticket, PROOF.queue, 2), None);
        assert_eq!(slot.reclaim(PROOF.ticket), Reclaimed::Taken(1));
        slot.finish(PROOF.ticket, 1);
        assert_eq!(slot.reclaim(PROOF.ticket), Reclaimed::Raised);
        assert_eq!(page.offer(&PROOF), Some(number), "it is free");
    }

    #[test]
    fn a_withdrawn_proof_is_taken_by_no_sender() {
        let page = page();
        let number = page.offer(&PROOF).unwrap();
        let slot = page.slot(number).unwrap();
        assert_eq!(slot.reclaim(PROOF.ticket), Reclaimed::Own);
        assert_eq!(slot.take(PROOF.ticket, PROOF.queue, 1), None);
    }

    #[test]
    fn what_a_dead_sender_has_taken_is_reclaimed_once() {
        let page = page();
        let number = page.offer(&PROOF).unwrap();
        let slot = page.slot(number).unwrap();
        slot.take(PROOF.ticket, PROOF.queue, 1).unwrap();
        assert!(!slot.reclaim_from_dead(PROOF.ticket, 2));
        assert!(slot.reclaim_from_dead(PROOF.ticket, 1));
        slot.finish(PROOF.ticket, 1);
        slot.put_back(PROOF.ticket, 1);
        assert_eq!(slot.reclaim(PROOF.ticket), Reclaimed::Raised);
    }

    #[test]
    fn a_full_page_and_wrong_numbers_prove_nothing() {
        let page = page();
        for ticket in 1..=SLOTS as u64 {
            assert_eq!(page.offer(&Proof { ticket, ..PROOF }), Some(ticket as u32));
        }
        assert_eq!(page.offer(&PROOF), None);
        assert!(page.slot(0).is_none() && page.slot(SLOTS as u32 + 1).is_none());
        assert!(page.slot(u32::MAX).is_none());
    }

    #[test]
    fn a_page_is_alive_until_the_kernel_marks_it() {
        let page = page();
        assert!(!page.is_alive());
        page.introduce(5, 6);
        page.set_alive(1234);
        assert!(page.is_alive());
        assert_eq!(page.process(), (5, 6));
        page.alive.store(1234 | 1 << 30, Ordering::Relaxed);
        assert!(!page.is_alive());
    }
}
