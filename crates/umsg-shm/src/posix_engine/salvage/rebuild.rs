//! The part of a salvage that rebuilds the queue's data for the messages that are kept.

use super::super::wait::lose_message;
use super::{Kept, Owner, Salvage};
use crate::arena;
use crate::crash::crash_point;
use crate::fault::Fault;
use crate::leases::{self, Leases, State as LeaseState};
use crate::lock::tokens::{BothHeld, ReceiverHeld};
use crate::posix_engine::Priorities;
use crate::posix_engine::segment::Ring;
use crate::repair::salvage::Real;
use crate::waiters::NO_SLOT;
use crate::waiters::{List, Waiters};

impl Salvage<'_> {
    /// Rebuilds the arena: the blocks of messages that are kept, and the free blocks between them. If two blocks overlap, one of these blocks and its
    /// message are lost.
    pub(super) fn rebuild_arena(&mut self, both: BothHeld<'_>, real: Real) -> Result<(), Fault> {
        let segment = self.engine.segment();
        let inline = segment.layout().inline();
        let tenants = self.cells().map(|(slot, cell)| {
            let is_kept = self.messages[slot as usize].is_some();
            let len = cell.len();
            arena::Tenant {
                slot,
                named: cell.block(),
                len: (is_kept && len > inline).then_some(len),
            }
        });
        for slot in arena::lay(segment, both.sender(), tenants, real.arena)? {
            self.messages[slot as usize] = None;
            self.corrupt.insert(slot);
        }
        crash_point!(SALVAGE_BLOCKS_LAID);
        self.release_lost();
        Ok(())
    }

    /// Ends leases whose message was lost with its block. If the message of a waiting sender was lost, the sender sends the message again.
    fn release_lost(&mut self) {
        let segment = self.engine.segment();
        let is_kept = |slot: u32| matches!(self.messages.get(slot as usize), Some(Some(_)));
        for (_, record) in Leases::of(segment).all() {
            let has_message = !matches!(
                LeaseState::of(record),
                LeaseState::Free | LeaseState::Arrived
            );
            if has_message && !is_kept(record.slot.get()) {
                leases::set(record, LeaseState::Free);
            }
        }
        for (_, node) in Waiters::of(segment).all() {
            let slot = node.slot.get();
            if List::of(node) == List::Senders && slot != NO_SLOT && !is_kept(slot) {
                self.corrupt.remove(&slot);
                lose_message(node);
            }
        }
    }

    /// Lists the messages that are kept, in their order.
    fn kept(&self) -> Vec<Kept> {
        let slots = (0_u32..).zip(&self.messages);
        let mut kept: Vec<Kept> = slots
            .filter_map(|(slot, owner)| {
                owner.map(|(ring, number, owner)| ((ring, number), slot, owner))
            })
            .collect();
        kept.sort_unstable();
        kept
    }

    /// Gives the sent messages the sequence numbers from 1 on, and marks queued messages as stored. After this step, the ring is not needed any more.
    pub(super) fn number(&mut self, both: BothHeld<'_>) -> Result<(), Fault> {
        let segment = self.engine.segment();
        let kept = self.kept();
        // Messages of the ring first get greater sequence numbers than all other messages. So they keep their place at the end even if this process
        // dies before all messages are numbered.
        let mut last = self.greatest();
        for ((is_in_ring, _), slot, owner) in &kept {
            if *is_in_ring && *owner == Owner::Queued {
                let cell = segment.cell(*slot)?;
                last = last.wrapping_add(1);
                cell.set_sequence(last);
                cell.set_stored(true);
                crash_point!(SALVAGE_MARKED);
            }
        }
        let mut number = 0;
        for (_, slot, owner) in &kept {
            let cell = segment.cell(*slot)?;
            if *owner != Owner::Unsent {
                number += 1;
                cell.set_sequence(number);
            }
            cell.set_stored(*owner == Owner::Queued);
            crash_point!(SALVAGE_RENUMBERED);
        }
        segment.fixed().receiver.set_sequence(both, number);
        Ok(())
    }

    /// Makes a ring that contains only the free slots, from the senders' position on. Returns false if the positions start again at 0.
    pub(super) fn rebuild_ring(&mut self, both: BothHeld<'_>) -> Result<bool, Fault> {
        let fixed = self.engine.segment().fixed();
        let sent = fixed.sender.next_position(both.sender());
        // The one-priority word has only 48 bits for a position, so a ring whose positions have reached 2^47 starts again at 0.
        let goes_on = sent >> 47 == 0;
        let first = if goes_on { sent } else { 0 };
        let mut free = 0;
        for (slot, cell) in self.cells() {
            cell.clear_stamp();
            if self.messages[slot as usize].is_none() {
                cell.forget();
                Ring::of(self.engine.segment()).write(first.wrapping_add(free), slot);
                free += 1;
            }
        }
        let max = self.engine.segment().layout().max_messages;
        fixed.restart_ring(both, first, free, max);
        Ok(goes_on)
    }

    /// Rebuilds the store from the messages that are kept.
    pub(super) fn rebuild_store(&mut self, receiving: ReceiverHeld<'_>) -> Result<(), Fault> {
        let segment = self.engine.segment();
        let receiver = &segment.fixed().receiver;
        let kept = self.kept();
        Priorities::of(segment).clear(receiving)?;
        receiver.set_stored(receiving, 0, 0);
        for (_, slot, owner) in &kept {
            if *owner != Owner::Queued {
                continue;
            }
            let found = self.engine.in_hand(receiving, *slot)?;
            self.engine.provide_fifo(found.key)?;
            Priorities::of(segment).push_back(receiving, found.key, *slot)?;
            self.engine.count_stored(receiving, found.len as u64, 1);
        }
        self.outcome.kept = kept.len() as u64;
        self.outcome.lost = self.corrupt.len() as u64;
        Ok(())
    }
}
