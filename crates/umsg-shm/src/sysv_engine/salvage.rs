//! Salvage: what is left of a queue whose bytes make no sense any more, made into one that does. For `umsg doctor --repair` only.
//!
//! [`repair`](super::repair) makes everything anew but what it believes: cells, numbers, nodes and records of leases. Here these are
//! made to be believed first: what names no message, or one that can't be, is taken back, and so are lengths beyond what is memory.
//! A blocked sender whose message makes no sense sends it again.
//!
//! A process that dies here leaves a queue that says that it is being rebuilt ([`crate::repair::log::Damage`]): calls fail with EBADMSG until another
//! salvage, which finds each message where the dead one left it. For that numbers only become smaller, from the smallest on.

use super::repair::rebuild;
use super::segment::{Layout, Seat};
use super::wait::Reply;
use super::{Engine, Refused};
use crate::arena;
use crate::crash::crash_point;
use crate::doorbell::Watched;
use crate::fault::Fault;
use crate::leases::{self, Leases, State as LeaseState};
use crate::lock::deferred_wakes::DeferredWakes;
use crate::lock::tokens::ReceiverHeld;
use crate::lock::{Held, Lock};
use crate::repair::log::Damage;
use crate::repair::salvage::{self, Real, Salvaged};
use crate::sync::Ordering;
use crate::sys::clock::{self, Deadline};
use crate::sys::liveness::Liveness;
use crate::sys::thread::Thread;
use crate::sysv_engine::order::TypeIndexStore;
use crate::waiters::{self, List, State};
use crate::waiters::{NO_SLOT, NODES};
use std::collections::BTreeSet;

/// How far the number of the last message may be from those of the messages that there are.
const NEAR: u64 = 1 << 32;

impl salvage::Salvage for Engine {
    fn salvage(
        &self,
        me: &Thread,
        deadline: Deadline,
        real: impl Fn() -> Real,
        give_back: impl Fn(usize),
    ) -> Result<Salvaged, Fault> {
        let lock = &self.fixed().control.lock;
        // How it was left does not matter: from the mark on, whatever a dead owner has left is made anew, by us or by another salvage.
        let (held, _) = lock
            .lock_anyway(me, self.segment(), deadline)
            .map_err(|_| Fault::Busy)?;
        let receiving = held.receiver();
        // The previous owner of the lock may live, and goes on beside us: see `remove_unlocked`.
        if self.is_removed() {
            held.unlock();
            return Err(Fault::Busy);
        }
        lock.take_over();
        let damage = &self.fixed().header.damage;
        damage.begin_to_mend();
        crash_point!(SALVAGE_BEGUN);
        let mut wakes = DeferredWakes::default();
        let real = real();
        give_back(real.slots);
        // If it fails the lock is left as the dead leave it: it is to be tried again.
        let salvaged = self.make_anew(receiving, real)?;
        // Without memory waiters are not served yet, as after any repair.
        if let Err(Fault::Damaged) = self.serve(receiving, &mut wakes) {
            return Err(Fault::Damaged);
        }
        self.mend_doorbell(receiving);
        wakes.add_everybody(self.waiters().usable());
        crash_point!(SALVAGE_DONE);
        damage.end_mending();
        self.leave(held, &wakes, Held::unlock);
        self.segment().check()?;
        Ok(salvaged)
    }

    fn take_up(&self, me: &Thread, deadline: Deadline, knows_threads: bool) -> Result<(), Fault> {
        let taken = self.with_lock(me, deadline, |receiving, wakes| {
            self.reclaim(receiving, clock::monotonic_coarse(), wakes)?;
            if knows_threads {
                self.give_up_for_the_dead();
            }
            // Takes off a process that does not wait any more.
            Ok(self.serve(receiving, wakes)?)
        });
        taken.map_err(Refused::trouble)
    }

    fn lives(&self) -> &dyn Liveness {
        self.segment()
    }

    fn locks(&self) -> Vec<&Lock> {
        vec![&self.fixed().control.lock]
    }

    fn damage(&self) -> &Damage {
        &self.fixed().header.damage
    }
}

impl Engine {
    /// Those whom the system did not mark wait no more, nor do those that were taken off their lists and died before they looked.
    fn give_up_for_the_dead(&self) {
        for (_, node) in self.waiters().all() {
            if List::of(node) != List::Offered && waiters::state(node) == State::Waiting {
                waiters::is_deserted(self.segment(), node, true);
            }
        }
    }

    fn make_anew(&self, receiving: ReceiverHeld<'_>, real: Real) -> Result<Salvaged, Fault> {
        self.cut_to(real);
        let mut nonsense = BTreeSet::new();
        self.end_nonsense(&mut nonsense)?;
        self.release_nonsense();
        self.dismiss_nonsense();
        crash_point!(SALVAGE_SURVEYED);
        self.lay_arena(real, &mut nonsense)?;
        self.mend_sequence(nonsense.len() as u64)?;
        crash_point!(SALVAGE_NUMBERED);
        rebuild(receiving, self)?;
        let control = &self.fixed().control;
        // Relaxed: under the lock.
        let kept = u64::from(control.messages.load(Ordering::Relaxed))
            + control.held.load(Ordering::Relaxed);
        Ok(Salvaged {
            kept,
            lost: nonsense.len() as u64,
        })
    }

    /// Lengths of regions are what is memory.
    fn cut_to(&self, real: Real) {
        let (fixed, layout) = (self.fixed(), self.segment().layout());
        let slots = real.slots.min(layout.slots) as u32;
        fixed.control.usable.set(slots);
        fixed.control.used.set(slots);
        fixed.control.nodes.set(real.nodes.min(NODES) as u32);
        self.segment()
            .kinds()
            .usable
            .set(real.kinds.min(layout.slots) as u32);
        let lease_records = real.lease_records.min(layout.slots) as u32;
        fixed.leases.usable.set(lease_records);
        fixed
            .leases
            .used
            .set(fixed.leases.used.get().min(lease_records));
        fixed.leases.returned.set(0);
        // Relaxed: under the lock.
        fixed
            .control
            .capacity
            .fetch_min(layout.capacity, Ordering::Relaxed);
        // Relaxed: hints when to look.
        fixed.leases.due.store(0, Ordering::Relaxed);
        fixed.leases.look_after.store(0, Ordering::Relaxed);
    }

    /// Whether what the cell of a slot says of its message can be so.
    fn is_whole(&self, slot: u32) -> bool {
        let Ok(cell) = self.segment().cell(slot) else {
            return false;
        };
        let len = cell.len.get() as usize;
        let is_placed = len <= Layout::inline() || self.segment().payload(cell, len).is_ok();
        let can_be = len <= self.segment().layout().msgmax && cell.mtype.get() as i64 >= 1;
        slot < self.segment().places() && can_be && is_placed
    }

    fn end_nonsense(&self, nonsense: &mut BTreeSet<u32>) -> Result<(), Fault> {
        for slot in 0..self.segment().places() {
            let cell = self.segment().cell(slot)?;
            if cell.is_queued() && !self.is_whole(slot) {
                nonsense.insert(slot);
                cell.end();
            }
        }
        Ok(())
    }

    /// There are leases only, each of a message of its own: what else a record says it is not.
    fn release_nonsense(&self) {
        let mut seen = BTreeSet::new();
        for (_, record) in Leases::of(self.segment()).all() {
            let slot = record.slot.get();
            let is_lease = LeaseState::of(record) == LeaseState::Leased && self.is_whole(slot);
            if !(is_lease && seen.insert(slot)) {
                leases::set(record, LeaseState::Free);
            }
        }
    }

    /// Nodes whose slot holds no message: receivers look by themselves, senders begin again.
    fn dismiss_nonsense(&self) {
        let mut seen = BTreeSet::new();
        for (index, node) in self.waiters().all() {
            let slot = node.slot.get();
            let mut is_own = || self.is_whole(slot) && seen.insert(slot);
            match List::of(node) {
                List::Senders if slot == NO_SLOT || is_own() => continue,
                List::Receivers => continue,
                List::Offered if is_own() => continue,
                List::Offered => {
                    let _ = waiters::unsettle(node);
                }
                List::Senders => {
                    if let Ok(seat) = self.segment().seat(index) {
                        begin_again(seat);
                    }
                }
                List::None => {}
            }
            node.list.set(List::None as u32);
        }
    }

    /// Makes the arena anew: the blocks of messages that are kept, and what lies between them. One that overlaps another is lost.
    fn lay_arena(&self, real: Real, nonsense: &mut BTreeSet<u32>) -> Result<(), Fault> {
        let segment = self.segment();
        let nodes = self
            .waiters()
            .all()
            .filter(|(_, node)| List::of(node) != List::None);
        let parked: BTreeSet<u32> = nodes.map(|(_, node)| node.slot.get()).collect();
        let cells = (0..segment.places()).filter_map(|slot| Some((slot, segment.cell(slot).ok()?)));
        let tenants = cells.map(|(slot, cell)| {
            let is_kept = cell.is_queued() || parked.contains(&slot);
            let len = cell.len.get() as usize;
            arena::Tenant {
                slot,
                named: &cell.block,
                len: (is_kept && len > Layout::inline()).then_some(len),
            }
        });
        for slot in arena::lay(segment, tenants, real.arena)? {
            nonsense.insert(slot);
            segment.cell(slot)?.end();
        }
        crash_point!(SALVAGE_BLOCKS_LAID);
        // Whose block was lost.
        self.release_nonsense();
        self.dismiss_nonsense();
        Ok(())
    }

    /// Numbers the messages that were sent from 1 on, in the order that they had. The greatest number that a message has is the last one's,
    /// if what stands for that can't be: too far away, or smaller than those of messages that were counted as sent.
    fn mend_sequence(&self, nonsense: u64) -> Result<(), Fault> {
        let (segment, control) = (self.segment(), &self.fixed().control);
        let mut queued = Vec::new();
        for slot in 0..segment.places() {
            if segment.cell(slot)?.is_queued() {
                queued.push((segment.place(slot)?.sequence.get(), slot));
            }
        }
        queued.sort_unstable();
        let greatest = queued.last().map_or(0, |(number, _)| *number);
        // Relaxed: under the lock.
        let counted = u64::from(control.messages.load(Ordering::Relaxed))
            .saturating_add(control.held.load(Ordering::Relaxed))
            .saturating_sub(nonsense);
        let mut last = control.sequence.get();
        let sent = queued.partition_point(|(number, _)| *number <= last);
        if last.abs_diff(greatest) > NEAR || (sent as u64) < counted.min(queued.len() as u64) {
            last = greatest;
        }
        let mut number = 0;
        for (was, slot) in queued {
            // A batch whose sender died, or the message of one that waits for room: it was not sent.
            if was > last {
                segment.cell(slot)?.end();
                continue;
            }
            number += 1;
            segment.place(slot)?.sequence.set(number);
            crash_point!(SALVAGE_RENUMBERED);
        }
        control.sequence.set(number);
        Ok(())
    }
}

/// Its thread sends its message again, in its place in the line.
fn begin_again(seat: &Seat) {
    if waiters::state(&seat.node) == State::Waiting {
        seat.reply.set(Reply::Rejudge as u32);
        let _ = waiters::settle(&seat.node);
    }
}
