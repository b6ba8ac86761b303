//! Messages that are held beyond a call: what leases and reservations have in common, and what becomes of those whose
//! holder died or whose time is up. The states stand in [`crate::leases`]. Everything here but [`Engine::limit`] runs
//! under the receiver lock.

use super::receive::Found;
use super::{DeferredWakes, Engine, Refused};
use crate::counters::Event;
use crate::crash::crash_point;
use crate::doorbell::Watched;
use crate::fault::Fault;
use crate::leases::LeaseRecord;
use crate::leases::{self, Claim, HolderScan, Leases, State};
use crate::lock::tokens::ReceiverHeld;
use crate::posix_engine::Priorities;
use crate::sync::Ordering;
use crate::sys::clock::{self, Deadline};
use crate::sys::liveness;
use crate::sys::process;
use crate::sys::thread::Thread;

/// So many times what a look at the holders cost passes before the next.
const PAUSE: u64 = 16;

/// A message that this process holds, and the proof of it.
#[derive(Clone, Copy, Debug)]
pub struct LeaseHandle {
    pub index: u32,
    pub ticket: u64,
    pub slot: u32,
    /// Bytes of the message, or of the room for it.
    pub len: usize,
    pub key: usize,
    /// Deliveries, this one included.
    pub deliveries: u32,
    /// Process id of the sender, and when it sent.
    pub pid: u32,
    pub sent_at: u64,
}

impl Engine {
    /// Whether anything is held.
    #[inline(always)]
    pub(super) fn holds_any(&self) -> bool {
        // Relaxed: under the receiver lock exact, otherwise a hint.
        self.segment().fixed().receiver.held.load(Ordering::Relaxed) != 0
    }

    /// Whether messages are held or grow too old, so that there is sometimes something to take back.
    #[inline(always)]
    pub(super) fn keeps_time(&self) -> bool {
        self.holds_any() || self.policy().time_to_live != 0
    }

    /// Whether a look at the holders, and at what is too old, might give something back.
    #[inline(always)]
    pub(super) fn holders_may_give(&self) -> bool {
        self.keeps_time() && self.holders_want_a_look()
    }

    /// Because a lease's time is up, or because no process has looked for a while which of them lives.
    #[cold]
    fn holders_want_a_look(&self) -> bool {
        let holding = &self.segment().fixed().holding;
        // Relaxed: whether to look, not what is found.
        self.a_lease_is_over()
            || holding.look_after.load(Ordering::Relaxed) < clock::monotonic_coarse()
    }

    /// Whether a lease's time is up.
    pub(super) fn a_lease_is_over(&self) -> bool {
        let due = self.segment().fixed().holding.due.load(Ordering::Relaxed);
        due != 0 && due <= clock::monotonic_coarse()
    }

    /// Claims a record for a slot that is the caller's. It counts once its state is set.
    pub(super) fn claim_hold(
        &self,
        receiving: ReceiverHeld<'_>,
        me: &Thread,
        slot: u32,
        deliveries: u32,
    ) -> Result<(u32, &LeaseRecord), Fault> {
        let birth = liveness::birth(self.segment(), || process::birth(me.pid()));
        self.claim_hold_for(receiving, (me.pid(), birth), slot, deliveries)
    }

    /// As [`claim_hold`](Self::claim_hold), for a process and its start time.
    pub(super) fn claim_hold_for(
        &self,
        receiving: ReceiverHeld<'_>,
        (pid, birth): (u32, u64),
        slot: u32,
        deliveries: u32,
    ) -> Result<(u32, &LeaseRecord), Fault> {
        Leases::of(self.segment()).claim(
            receiving,
            &Claim {
                slot,
                pid,
                birth,
                deliveries,
            },
        )
    }

    /// Counts a message that is held from now on, or (-1) no more.
    pub(super) fn count_held(&self, _: ReceiverHeld<'_>, change: i64) {
        let held = &self.segment().fixed().receiver.held;
        // Relaxed: under the receiver lock; read elsewhere as a hint.
        let now = held.load(Ordering::Relaxed).wrapping_add_signed(change);
        held.store(now, Ordering::Relaxed);
    }

    /// As [`count_held`](Self::count_held), for those of a kind.
    pub(super) fn count_kind(&self, receiving: ReceiverHeld<'_>, state: State, change: i32) {
        let holding = &self.segment().fixed().holding;
        let kind = match state {
            State::Reserved => &holding.reserved,
            State::Aside | State::Moving => &holding.aside,
            State::Free | State::Leased => return,
        };
        // Relaxed: as above.
        let before = kind.load(Ordering::Relaxed);
        let now = before.wrapping_add_signed(change);
        kind.store(now, Ordering::Relaxed);
        if matches!(state, State::Aside | State::Moving) {
            self.count_held(
                receiving,
                i64::from(leases::in_the_way(now)) - i64::from(leases::in_the_way(before)),
            );
        }
    }

    /// Ends a hold. Its slot is then in the caller's hands.
    pub(super) fn release_hold(
        &self,
        receiving: ReceiverHeld<'_>,
        index: u32,
        hold: &LeaseRecord,
    ) -> Result<(), Fault> {
        let state = State::of(hold);
        Leases::of(self.segment()).release(receiving, index, hold)?;
        self.count_kind(receiving, state, -1);
        if matches!(state, State::Reserved | State::Leased) {
            self.count_held(receiving, -1);
        }
        Ok(())
    }

    /// Frees the slot of a hold that has ended, gives the room to waiters for it, and what they bring to receivers.
    pub(super) fn free_held(
        &self,
        receiving: ReceiverHeld<'_>,
        slot: u32,
        wakes: &mut DeferredWakes,
    ) {
        self.foretell_doorbell(receiving, 0, 1);
        self.free_slot(receiving, slot);
        // What ended is ended, whatever is wrong with waiters.
        if self.serve(receiving, wakes).is_err() {
            self.note_damage();
        }
        self.update_wait_flags(receiving);
        self.publish_counts(receiving);
    }

    /// Ends a lease whose message goes back to the head of its priority, or is set aside if it came back too often.
    pub(super) fn return_lease(
        &self,
        receiving: ReceiverHeld<'_>,
        index: u32,
        hold: &LeaseRecord,
    ) -> Result<(), Fault> {
        if self.is_undeliverable(hold) {
            self.set_lease_aside(receiving, hold);
            return Ok(());
        }
        let slot = hold.slot.get();
        let found = self.in_hand(receiving, slot)?;
        self.foretell_doorbell(receiving, 1, 0);
        found.cell.set_returns(hold.deliveries.get(), true);
        crash_point!(RETURN_MARKED);
        Priorities::of(self.segment()).push_in_order(receiving, found.key, slot)?;
        self.count_stored(receiving, found.len as u64, 1);
        self.release_hold(receiving, index, hold)?;
        self.segment().fixed().counters.count(Event::Returned);
        Ok(())
    }

    /// Takes back what the dead held, and leases whose time is up; drops what is too old.
    pub(super) fn reclaim_holds(
        &self,
        receiving: ReceiverHeld<'_>,
        wakes: &mut DeferredWakes,
    ) -> Result<(), Fault> {
        if self.policy().time_to_live != 0 {
            self.sweep(receiving)?;
        }
        let holding = &self.segment().fixed().holding;
        let now = clock::monotonic_coarse();
        let mut due = u64::MAX;
        let mut holders = HolderScan::default();
        for record in Leases::of(self.segment()).iter() {
            let (index, hold) = record?;
            // Nobody's, or of no use to a process that looks for messages and room.
            if matches!(State::of(hold), State::Aside | State::Moving) {
                continue;
            }
            let is_orphan = holders.is_orphan(self.segment(), hold);
            let until = hold.until.get();
            match State::of(hold) {
                State::Leased if is_orphan || (until != 0 && until <= now) => {
                    self.return_lease(receiving, index, hold)?;
                }
                State::Leased if until != 0 => due = due.min(until),
                State::Reserved if is_orphan => {
                    let slot = hold.slot.get();
                    self.segment().cell(slot)?;
                    self.release_hold(receiving, index, hold)?;
                    self.free_held(receiving, slot, wakes);
                }
                _ => {}
            }
        }
        // Relaxed: hints when to look again.
        let due = if due == u64::MAX { 0 } else { due };
        holding.due.store(due, Ordering::Relaxed);
        let look_after = now.saturating_add(PAUSE * holders.cost());
        holding.look_after.store(look_after, Ordering::Relaxed);
        self.publish_counts(receiving);
        Ok(())
    }

    /// Takes back what there is to take back, and gives it to waiters.
    #[cold]
    pub(super) fn reclaim_and_serve(
        &self,
        receiving: ReceiverHeld<'_>,
        wakes: &mut DeferredWakes,
    ) -> Result<(), Fault> {
        self.reclaim_holds(receiving, wakes)?;
        self.serve(receiving, wakes)?;
        self.update_wait_flags(receiving);
        Ok(())
    }

    /// Gives a lease a time limit: the reading of the monotonic clock at which it ends by itself, in nanoseconds; 0 for
    /// none. False if the lease has ended.
    pub fn limit(&self, me: &Thread, handle: &LeaseHandle, until: u64) -> Result<bool, Refused> {
        self.with_receiver_lock(me, Deadline::Never, |_, _| {
            let holds = Leases::of(self.segment());
            let Some(hold) = holds.find(handle.index, handle.ticket, State::Leased)? else {
                return Ok(false);
            };
            hold.until.set(until);
            let due = &self.segment().fixed().holding.due;
            let earliest = due.load(Ordering::Relaxed);
            if until != 0 && (earliest == 0 || until < earliest) {
                due.store(until, Ordering::Relaxed);
            }
            Ok(true)
        })
    }

    /// Where the message lies that is held.
    #[cfg(not(loom))]
    pub fn place(&self, handle: &LeaseHandle) -> Result<*mut u8, Fault> {
        let cell = self.segment().cell(handle.slot)?;
        self.segment().payload(cell, handle.len)
    }

    /// What the holder of a message knows of it.
    pub(super) fn handle(&self, index: u32, hold: &LeaseRecord, found: &Found<'_>) -> LeaseHandle {
        LeaseHandle {
            index,
            ticket: hold.ticket.get(),
            slot: found.slot,
            len: found.len,
            key: found.key,
            deliveries: hold.deliveries.get(),
            pid: found.cell.pid.get(),
            sent_at: found.cell.sent_at.get(),
        }
    }
}
