//! Salvage: rebuilds a corrupted queue from its intact messages. Only `umsg doctor --repair` starts a salvage.
//!
//! A repair ([`repair`](super::repair)) trusts cells, numbers, nodes and lease records, and rebuilds all other data. A salvage first makes these four
//! trustworthy. It frees the cells, nodes and records that name no possible message, and limits lengths to the memory of the file. A blocked sender
//! whose parked message is corrupted sends the message again.
//!
//! If a process dies during a salvage, a mark in the queue shows that ([`crate::repair::log::Damage`]). Calls fail with EBADMSG
//! until another salvage, which must find each message. So messages are renumbered from the smallest number on, and numbers
//! only become smaller.

use super::repair::rebuild;
use super::segment::{Layout, Reply, WaiterRecord};
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

/// The largest credible difference between the number of the last sent message, which the control block has, and the greatest number of a message in
/// the queue.
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
        // The state of the lock does not matter: a salvage rebuilds all data of the queue. If this process dies, the next salvage rebuilds all data.
        let (held, _) = lock
            .lock_anyway(me, self.segment(), deadline)
            .map_err(|_| Fault::Busy)?;
        let receiving = held.receiver();
        self.announce_counts(receiving);
        // A removed queue is not rebuilt: the previous owner of the lock may live and continue at the same time, see `remove_unlocked`.
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
        // After an error, the lock stays orphaned, and a later salvage starts over.
        let salvaged = self.rebuild_from_intact(receiving, real)?;
        // Without memory, waiters are not served here, as after a repair without memory.
        if let Err(Fault::Damaged) = self.serve(receiving, &mut wakes) {
            return Err(Fault::Damaged);
        }
        self.repair_poll_fifo(receiving);
        wakes.add_everybody(self.waiters().usable());
        crash_point!(SALVAGE_DONE);
        damage.end_mending();
        // A helper that has found the queue corrupt sleeps until a process calls it. After this call, the helper checks the queue again.
        self.ringer().call_timekeepers(receiving);
        self.leave(held, &mut wakes, Held::unlock);
        self.segment().check()?;
        Ok(salvaged)
    }

    fn take_up(&self, me: &Thread, deadline: Deadline, knows_threads: bool) -> Result<(), Fault> {
        let taken = self.with_lock(me, deadline, |receiving, wakes| {
            self.reclaim(receiving, clock::monotonic_coarse(), wakes)?;
            if knows_threads {
                self.give_up_for_the_dead();
            }
            // This call also takes the waiters that have given up off their lists.
            Ok(self.serve(receiving, wakes)?)
        });
        taken.map_err(Refused::fault)
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
    /// Gives up the waits of dead threads that the kernel did not mark, or that died after their nodes had left the lists.
    fn give_up_for_the_dead(&self) {
        for (_, node) in self.waiters().all() {
            if List::of(node) != List::Offered && waiters::state(node) == State::Waiting {
                waiters::is_deserted(self.segment(), node, true);
            }
        }
    }

    fn rebuild_from_intact(
        &self,
        receiving: ReceiverHeld<'_>,
        real: Real,
    ) -> Result<Salvaged, Fault> {
        self.cut_to(receiving, real);
        let mut corrupt = BTreeSet::new();
        self.end_corrupt_messages(&mut corrupt)?;
        self.free_corrupt_leases();
        self.dismiss_corrupt_nodes(receiving);
        crash_point!(SALVAGE_SURVEYED);
        self.lay_arena(receiving, real, &mut corrupt)?;
        self.renumber(receiving, corrupt.len() as u64)?;
        crash_point!(SALVAGE_NUMBERED);
        rebuild(receiving, self)?;
        let contents = self.fixed().control.contents();
        Ok(Salvaged {
            kept: contents.messages(),
            lost: corrupt.len() as u64,
        })
    }

    /// Limits the lengths of all regions to the memory that the file has.
    fn cut_to(&self, receiving: ReceiverHeld<'_>, real: Real) {
        let (fixed, layout) = (self.fixed(), self.segment().layout());
        let slots = real.slots.min(layout.slots) as u32;
        fixed.control.cut_slots(receiving, slots);
        let nodes = real.nodes.min(NODES) as u32;
        fixed.control.cut_to(receiving, layout.capacity, nodes);
        let kinds = real.kinds.min(layout.slots) as u32;
        self.segment().kinds().cut_to(receiving, kinds);
        let lease_records = real.lease_records.min(layout.slots) as u32;
        fixed.leases.usable.set(lease_records);
        fixed
            .leases
            .used
            .set(fixed.leases.used.get().min(lease_records));
        fixed.leases.returned.set(0);
        // Relaxed: the words are hints for the time of the next check.
        fixed.leases.due.store(0, Ordering::Relaxed);
        fixed.leases.look_after.store(0, Ordering::Relaxed);
    }

    /// Returns whether the cell of a slot describes a possible message.
    fn is_intact(&self, slot: u32) -> bool {
        let Ok(cell) = self.segment().cell(slot) else {
            return false;
        };
        let len = cell.message_len();
        let is_placed = len <= Layout::inline() || self.segment().payload(cell, len).is_ok();
        let can_be = len <= self.segment().layout().msgmax && cell.mtype() >= 1;
        slot < self.segment().places() && can_be && is_placed
    }

    fn end_corrupt_messages(&self, corrupt: &mut BTreeSet<u32>) -> Result<(), Fault> {
        for slot in 0..self.segment().places() {
            let cell = self.segment().cell(slot)?;
            if cell.is_queued() && !self.is_intact(slot) {
                corrupt.insert(slot);
                cell.end();
            }
        }
        Ok(())
    }

    /// Frees each record that is not a valid lease. Such a record has a state other than that of a lease, names no possible message, or names the
    /// message of another record.
    fn free_corrupt_leases(&self) {
        let mut seen = BTreeSet::new();
        for (_, record) in Leases::of(self.segment()).all() {
            let slot = record.slot.get();
            let is_held = matches!(
                LeaseState::of(record),
                LeaseState::Leased | LeaseState::Delayed
            );
            let is_lease = is_held && self.is_intact(slot);
            if !(is_lease && seen.insert(slot)) {
                leases::set(record, LeaseState::Free);
            }
        }
    }

    /// Takes nodes whose slots hold no possible message off their lists. Their receivers check the queue again, and their senders send again.
    fn dismiss_corrupt_nodes(&self, receiving: ReceiverHeld<'_>) {
        let mut seen = BTreeSet::new();
        for (index, node) in self.waiters().all() {
            let slot = node.slot.get();
            let mut is_own = || self.is_intact(slot) && seen.insert(slot);
            match List::of(node) {
                List::Senders if slot == NO_SLOT || is_own() => continue,
                List::Receivers => continue,
                List::Offered if is_own() => continue,
                List::Offered => {
                    let _ = waiters::unsettle(node);
                }
                List::Senders => {
                    if let Ok(record) = self.segment().waiter_record(index) {
                        have_sent_again(receiving, record);
                    }
                }
                List::None => {}
            }
            node.list.set(List::None as u32);
        }
    }

    /// Rebuilds the arena from the blocks of the messages that are kept. If two blocks overlap, one of the messages is lost.
    fn lay_arena(
        &self,
        receiving: ReceiverHeld<'_>,
        real: Real,
        corrupt: &mut BTreeSet<u32>,
    ) -> Result<(), Fault> {
        let segment = self.segment();
        let nodes = self
            .waiters()
            .all()
            .filter(|(_, node)| List::of(node) != List::None);
        let parked: BTreeSet<u32> = nodes.map(|(_, node)| node.slot.get()).collect();
        let cells = (0..segment.places()).filter_map(|slot| Some((slot, segment.cell(slot).ok()?)));
        let tenants = cells.map(|(slot, cell)| {
            let is_kept = cell.is_queued() || parked.contains(&slot);
            let len = cell.message_len();
            arena::Tenant {
                slot,
                named: cell.block(),
                len: (is_kept && len > Layout::inline()).then_some(len),
            }
        });
        for slot in arena::lay(segment, receiving, tenants, real.arena)? {
            corrupt.insert(slot);
            segment.cell(slot)?.end();
        }
        crash_point!(SALVAGE_BLOCKS_LAID);
        // These steps run again, for the messages that have lost their blocks.
        self.free_corrupt_leases();
        self.dismiss_corrupt_nodes(receiving);
        Ok(())
    }

    /// Renumbers the sent messages from 1 on in their old order. A message that waits for its first delivery gets its number at the delivery.
    ///
    /// The number in the control block says which messages are sent. In two cases this number is not credible: it is far from the numbers of the
    /// messages, or by this number, fewer messages are sent than the queue has counted. The greatest number of a message then replaces it.
    fn renumber(&self, receiving: ReceiverHeld<'_>, corrupt: u64) -> Result<(), Fault> {
        let (segment, control) = (self.segment(), &self.fixed().control);
        // The list of the records may be corrupted, so all records are read.
        let records = Leases::of(segment).all().map(|(_, record)| record);
        let unnumbered: BTreeSet<u32> = records
            .filter(|record| leases::is_first_delay(record))
            .map(|record| record.slot.get())
            .collect();
        let mut queued = Vec::new();
        for slot in 0..segment.places() {
            if unnumbered.contains(&slot) {
                // The number is that of an earlier message in the slot. 0 stays below each number that a message has.
                segment.place(slot)?.set_sequence(receiving, 0);
            } else if segment.cell(slot)?.is_queued() {
                queued.push((segment.place(slot)?.sequence(), slot));
            }
        }
        queued.sort_unstable();
        let greatest = queued.last().map_or(0, |(number, _)| *number);
        let ignored = corrupt + unnumbered.len() as u64;
        let counted = control.contents().messages().saturating_sub(ignored);
        let mut last = control.last_number();
        let sent = queued.partition_point(|(number, _)| *number <= last);
        if last.abs_diff(greatest) > NEAR || (sent as u64) < counted.min(queued.len() as u64) {
            last = greatest;
        }
        let mut number = 0;
        for (was, slot) in queued {
            // The message was not sent: it belongs to a batch whose sender died, or a blocked sender has parked it.
            if was > last {
                segment.cell(slot)?.end();
                continue;
            }
            number += 1;
            segment.place(slot)?.set_sequence(receiving, number);
            crash_point!(SALVAGE_RENUMBERED);
        }
        control.send_up_to(receiving, number);
        Ok(())
    }
}

/// Makes a blocked sender send its message again. The sender keeps its place among the waiters.
fn have_sent_again(receiving: ReceiverHeld<'_>, record: &WaiterRecord) {
    if waiters::state(record.node()) == State::Waiting {
        let _ = record.answer(receiving, Reply::Rejudge);
    }
}
