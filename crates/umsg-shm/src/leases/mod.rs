//! Messages that a process holds beyond a call, leased or reserved: their records, and the list of records.
//!
//! A sender may *reserve* a slot, write its message in place and commit the message later. A receiver may *lease* a message, read it in place and
//! acknowledge it later. Between these calls, the process holds no lock, so the kernel marks nothing if the process dies. Instead, a record names the
//! process. A process that finds the queue empty or full checks whether the named process is alive.
//!
//! | state | the slot is | may leave it | if the process dies |
//! |---|---|---|---|
//! | `Free` | none | a process that claims the record | - |
//! | `Reserved` | its sender's, to be written | that sender: committed to the store, or given back | the slot is free |
//! | `Leased` | its receiver's, to be read | that receiver: acknowledged, or returned. Any process, once its time is up | the message is returned to its old place |
//! | `Aside` | owned by no process: its message goes to the dead-letter queue | any process: to `Moving` | - |
//! | `Moving` | that of the process that copies it there | that process: to `Free`, or back to `Aside` | the next process that moves it begins again |
//! | `Delayed` | owned by no process: its message is delivered later | any process, once it is due: to the store | - |
//! | `Arrived` | none: a message was moved here from another queue, and is in the store | the process that moved it, or the next that moves from there | - |
//! | `Redriving` | that of the process that sends it back to its source | that process: to `Free`, or back to the store | the next redrive finds out whether the message has arrived |
//!
//! The lock under which messages are received protects the records. The store to `state` makes a change take effect, and a repair rebuilds lists and
//! counts from the states. Each lease and reservation has a unique `ticket`, which proves that the record still belongs to that lease.

mod due;
mod end;
#[cfg(not(loom))]
#[allow(unsafe_code, reason = "copies in and out of a message's place")]
mod in_place;
mod record;

#[cfg(not(loom))]
pub use in_place::InPlace;
pub use record::{LeaseRecord, LeaseRoots};

use crate::fault::Fault;
use crate::lock::tokens::ReceiverHeld;
use crate::sync::{AtomicU64, Ordering};
use crate::sys::liveness::{self, Liveness};
use crate::sys::process;
use crate::sys::thread::Thread;
use crate::waiters::Links;

/// A handle of a message that this process holds. The handle is valid as long as the record has its ticket.
#[derive(Clone, Copy, Debug)]
pub struct LeaseHandle<Key> {
    pub index: u32,
    pub ticket: u64,
    pub slot: u32,
    /// The length of the message, or of the reserved room, in bytes.
    pub len: usize,
    /// The priority of a POSIX message, or the type of a System V message.
    pub key: Key,
    /// The number of deliveries, including the present delivery.
    pub deliveries: u32,
    /// The sender's process id.
    pub pid: u32,
    /// The time of the send, in nanoseconds of the engine's clock.
    pub sent_at: u64,
}

/// The state of a record: see the table of the module.
#[must_use]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum State {
    Free = 0,
    Reserved = 1,
    Leased = 2,
    Aside = 3,
    Moving = 4,
    Delayed = 5,
    Arrived = 6,
    Redriving = 7,
}

impl State {
    /// Returns the state of a record. An unknown word is read as [`State::Free`].
    pub fn of(record: &LeaseRecord) -> State {
        match record.state.get() {
            1 => State::Reserved,
            2 => State::Leased,
            3 => State::Aside,
            4 => State::Moving,
            5 => State::Delayed,
            6 => State::Arrived,
            7 => State::Redriving,
            _ => State::Free,
        }
    }
}

/// The value of `slot` in a record without a message: see `Arrived`.
pub const NO_MESSAGE: u32 = u32::MAX;

/// Returns whether the record is that of a delayed message that waits for its first delivery.
pub(crate) fn is_first_delay(record: &LeaseRecord) -> bool {
    State::of(record) == State::Delayed && record.deliveries.get() == 0
}

/// Changes a record's state.
pub(crate) fn set(record: &LeaseRecord, state: State) {
    record.state.set(state as u32);
}

/// The number of messages that may be set aside without using the queue's capacity. The queue has this number of spare slots.
const ASIDE_FREE: u32 = 1024;

/// Returns the number of set-aside messages that use the queue's capacity.
pub fn in_the_way(aside: u32) -> u32 {
    aside.saturating_sub(ASIDE_FREE)
}

/// Returns whether the process that holds the record's message or reserved room is dead.
pub(crate) fn is_orphan(lives: &dyn Liveness, record: &LeaseRecord) -> bool {
    let (pid, birth) = (record.pid.get(), record.birth.get());
    liveness::is_dead(lives, birth, |birth| process::is_dead(pid, birth))
}

/// The contents of a new record.
pub(crate) struct Claim {
    pub(crate) slot: u32,
    /// The process that holds the message, and its birth, which distinguishes it from other processes with the same id.
    pub(crate) pid: u32,
    pub(crate) birth: u64,
    /// The number of deliveries of the message, including the present delivery.
    pub(crate) deliveries: u32,
}

/// Access to the records of a queue.
pub trait LeaseStore: Liveness + Sized {
    fn lease_record(&self, index: u32) -> Result<&LeaseRecord, Fault>;

    /// Allocates memory for more than `usable` records. Returns the number of records that have memory after the call.
    fn populate_lease_records(&self, usable: u32) -> Result<u32, Fault>;

    fn roots_of_leases(&self) -> &LeaseRoots;

    /// Returns the number of held messages that use the queue's capacity.
    fn held(&self) -> &AtomicU64;

    /// Returns the number of slots, which bounds the number of held messages.
    fn slots(&self) -> usize;
}

/// The records of a segment.
pub struct Leases<'a, S> {
    segment: &'a S,
}

impl<'a, S: LeaseStore> Leases<'a, S> {
    #[inline(always)]
    pub fn of(segment: &'a S) -> Self {
        Leases { segment }
    }

    fn links(&self) -> &'a Links {
        &self.segment.roots_of_leases().list
    }

    /// Returns the number of records in use.
    pub(crate) fn len(&self) -> u32 {
        self.links().len.load(Ordering::Relaxed)
    }

    /// Returns the record at an index, if it still has this ticket and this state.
    pub fn find(
        &self,
        index: u32,
        ticket: u64,
        state: State,
    ) -> Result<Option<&'a LeaseRecord>, Fault> {
        let record = self.segment.lease_record(index)?;
        Ok((State::of(record) == state && record.ticket.get() == ticket).then_some(record))
    }

    /// Runs `work` on the record of a lease. Returns false if the lease has ended.
    pub(crate) fn with_leased<K, E: From<Fault>>(
        &self,
        handle: &LeaseHandle<K>,
        work: impl FnOnce(&'a LeaseRecord) -> Result<(), E>,
    ) -> Result<bool, E> {
        match self.find(handle.index, handle.ticket, State::Leased)? {
            Some(record) => work(record).map(|()| true),
            None => Ok(false),
        }
    }

    /// Iterates over the records in use, the oldest first. The caller may release the current record.
    pub(crate) fn iter(
        &self,
    ) -> impl Iterator<Item = Result<(u32, &'a LeaseRecord), Fault>> + use<'a, S> {
        let segment = self.segment;
        let mut next = self.links().head.get();
        // A hostile process may have made a cycle of the list, and may have overwritten the length of the list. So the number of slots also limits
        // the walk.
        let mut bound = self.len().min(segment.slots() as u32);
        std::iter::from_fn(move || {
            let index = next.checked_sub(1)?;
            // A list with more records than its length says was corrupted into a cycle.
            let Some(left) = bound.checked_sub(1) else {
                next = 0;
                return Some(Err(Fault::Damaged));
            };
            bound = left;
            Some(segment.lease_record(index).map(|record| {
                next = record.next.get();
                (index, record)
            }))
        })
    }

    /// Claims a record for the calling process, as [`claim`](Self::claim) does.
    pub(crate) fn claim_own(
        &self,
        receiving: ReceiverHeld<'_>,
        me: &Thread,
        slot: u32,
        deliveries: u32,
    ) -> Result<(u32, &'a LeaseRecord), Fault> {
        let pid = me.pid();
        let birth = liveness::birth(self.segment, || process::birth(pid));
        let claim = Claim {
            slot,
            pid,
            birth,
            deliveries,
        };
        self.claim(receiving, &claim)
    }

    /// Claims a record for a slot, and adds the record to the list in the state `Free`. The claim takes effect when the caller sets the state.
    pub(crate) fn claim(
        &self,
        receiving: ReceiverHeld<'_>,
        claim: &Claim,
    ) -> Result<(u32, &'a LeaseRecord), Fault> {
        let roots = self.segment.roots_of_leases();
        let index = match roots.free.get().checked_sub(1) {
            Some(index) => {
                roots.free.set(self.segment.lease_record(index)?.next.get());
                index
            }
            None => self.extend(receiving)?,
        };
        let record = self.segment.lease_record(index)?;
        record.slot.set(claim.slot);
        record.pid.set(claim.pid);
        record.birth.set(claim.birth);
        record.deliveries.set(claim.deliveries);
        record.until.set(0);
        self.issue_ticket(receiving, record);
        self.append(receiving, index, record)?;
        Ok((index, record))
    }

    /// Gives a record a new ticket. Handles with the earlier ticket become void.
    pub(crate) fn issue_ticket(&self, _: ReceiverHeld<'_>, record: &LeaseRecord) {
        let last = &self.segment.roots_of_leases().ticket;
        last.set(last.get().wrapping_add(1));
        record.ticket.set(last.get());
    }

    /// Returns a record that was never used, and allocates memory for more records if necessary.
    fn extend(&self, _: ReceiverHeld<'_>) -> Result<u32, Fault> {
        let roots = self.segment.roots_of_leases();
        let index = roots.used.get();
        // If there is no record with this index, a process has overwritten `used`.
        self.segment.lease_record(index)?;
        if index >= roots.usable.get() {
            let usable = self.segment.populate_lease_records(roots.usable.get())?;
            roots.usable.set(usable);
        }
        roots.used.set(index + 1);
        Ok(index)
    }

    fn append(&self, _: ReceiverHeld<'_>, index: u32, record: &LeaseRecord) -> Result<(), Fault> {
        let links = self.links();
        let tail = links.tail.get();
        record.previous.set(tail);
        record.next.set(0);
        match tail.checked_sub(1) {
            Some(tail) => self.segment.lease_record(tail)?.next.set(index + 1),
            None => links.head.set(index + 1),
        }
        links.tail.set(index + 1);
        links
            .len
            .store(self.len().wrapping_add(1), Ordering::Relaxed);
        Ok(())
    }

    /// Ends a lease or reservation. The store to the state makes the end take effect; then the record joins the free list.
    pub(crate) fn release(
        &self,
        receiving: ReceiverHeld<'_>,
        index: u32,
        record: &LeaseRecord,
    ) -> Result<(), Fault> {
        set(record, State::Free);
        self.unlink(receiving, record)?;
        let free = &self.segment.roots_of_leases().free;
        record.next.set(free.get());
        free.set(index + 1);
        Ok(())
    }

    /// Moves a record to the end of the list of records in use.
    pub(crate) fn send_to_the_end(
        &self,
        receiving: ReceiverHeld<'_>,
        index: u32,
        record: &LeaseRecord,
    ) -> Result<(), Fault> {
        self.unlink(receiving, record)?;
        self.append(receiving, index, record)
    }

    fn unlink(&self, _: ReceiverHeld<'_>, record: &LeaseRecord) -> Result<(), Fault> {
        let links = self.links();
        let (previous, next) = (record.previous.get(), record.next.get());
        match previous.checked_sub(1) {
            Some(before) => self.segment.lease_record(before)?.next.set(next),
            None => links.head.set(next),
        }
        match next.checked_sub(1) {
            Some(behind) => self.segment.lease_record(behind)?.previous.set(previous),
            None => links.tail.set(previous),
        }
        links
            .len
            .store(self.len().saturating_sub(1), Ordering::Relaxed);
        Ok(())
    }

    /// Rebuilds the lists and counts from the states, after the death of the lock's owner.
    pub(crate) fn rebuild(&self, receiving: ReceiverHeld<'_>) -> Result<(), Fault> {
        let (links, roots) = (self.links(), self.segment.roots_of_leases());
        links.head.set(0);
        links.tail.set(0);
        links.len.store(0, Ordering::Relaxed);
        roots.free.set(0);
        let mut counts = [0_u32; 8];
        for (index, record) in self.all() {
            counts[State::of(record) as usize] += 1;
            if State::of(record) == State::Arrived {
                // A salvage has put the message of an unfinished arrival into the store.
                record.slot.set(NO_MESSAGE);
            }
            if State::of(record) != State::Free {
                self.append(receiving, index, record)?;
                continue;
            }
            record.next.set(roots.free.get());
            roots.free.set(index + 1);
        }
        let [_, reserved, leased, aside, moving, delayed, _, redriving] = counts;
        // Relaxed: this thread holds the lock. Other threads read these counts as hints.
        roots.reserved.store(reserved, Ordering::Relaxed);
        roots.aside.store(aside + moving, Ordering::Relaxed);
        roots.delayed.store(delayed, Ordering::Relaxed);
        let in_the_way = in_the_way(aside + moving);
        let held = [reserved, leased, in_the_way, delayed, redriving]
            .map(u64::from)
            .iter()
            .sum();
        self.segment.held().store(held, Ordering::Relaxed);
        Ok(())
    }

    /// Iterates over all records that were ever used.
    pub(crate) fn all(&self) -> impl Iterator<Item = (u32, &'a LeaseRecord)> + use<'a, S> {
        let segment = self.segment;
        let (used, mut unused) = (segment.roots_of_leases().used.get(), 0);
        (0..used).map_while(move |index| {
            let record = segment.lease_record(index).ok()?;
            // Only a hostile process leaves an unused record among the used records, and a model has no hostile process.
            unused = match cfg!(loom) || record.ticket.get() != 0 {
                true => 0,
                false => unused + 1,
            };
            (unused < NEVER_USED).then_some((index, record))
        })
    }
}

/// After this number of unused records in a row, all later records are taken as unused, because records come into use in order. The number of used
/// records does not suffice as a bound: a hostile process may forge it.
const NEVER_USED: u32 = 4096;

/// A scan for dead holders, with the answers that it has got so far. A query about a process costs a hundred times as much as reading a record.
pub(crate) struct HolderScan {
    /// The answers so far, in a table by process: the process id, the birth, and whether the process is dead.
    known: [Option<(u32, u64, bool)>; 64],
    records: u64,
    asked: u64,
}

impl Default for HolderScan {
    fn default() -> Self {
        HolderScan {
            known: [None; 64],
            records: 0,
            asked: 0,
        }
    }
}

impl HolderScan {
    /// Returns the same as the function [`is_orphan`], and asks about each process once.
    pub(crate) fn is_orphan(&mut self, lives: &dyn Liveness, record: &LeaseRecord) -> bool {
        self.records += 1;
        let (pid, birth) = (record.pid.get(), record.birth.get());
        // The calling process is alive. A query about the calling process would take tens of system calls.
        if liveness::is_own(lives, birth) {
            return false;
        }
        let known = &mut self.known[(u64::from(pid) ^ birth) as usize % 64];
        if let Some((of, then, is_dead)) = *known
            && (of, then) == (pid, birth)
        {
            return is_dead;
        }
        self.asked += 1;
        let is_dead = is_orphan(lives, record);
        *known = Some((pid, birth, is_dead));
        is_dead
    }

    /// Counts a record that no process holds.
    pub(crate) fn pass(&mut self) {
        self.records += 1;
    }

    /// Estimates how long the scan has taken, in nanoseconds.
    pub(crate) fn cost(&self) -> u64 {
        self.records * 50 + self.asked * 5000
    }
}
