//! The survey of a salvage, which finds the messages and their owners.

use super::super::wait::lose_message;
use super::{LAST, Owner, Salvage};
use crate::leases::{self, Leases, State as LeaseState};
use crate::posix_engine::segment::Cell;
use crate::waiters::{self, List, State, Waiters};
use crate::waiters::{NO_SLOT, Node};
use std::collections::BTreeSet;

impl Salvage<'_> {
    /// Finds the messages of the ring by the stamps of their cells, without the entries of the ring.
    pub(super) fn survey_ring(&mut self) {
        let (first, counted) = self.span();
        let stamps: BTreeSet<(u64, u32, bool)> = self
            .cells()
            .map(|(slot, cell)| (cell.position().wrapping_sub(first), slot, cell.is_stored()))
            .filter(|(ahead, ..)| *ahead < self.slots as u64)
            .collect();
        let mut end = counted;
        for (ahead, slot, is_stored) in stamps {
            // At the end of the ring, stamps after a gap belong to a batch that was not sent.
            if ahead > end {
                break;
            }
            end = end.max(ahead + 1);
            // Death at the crash point DRAIN_MARKED or SALVAGE_MARKED: the message was being moved into the store, and is no gap.
            if !is_stored {
                self.keep(slot, (true, ahead), Owner::Queued);
            }
        }
    }

    /// Returns the ring position of the first message, and the number of messages that senders have counted from this position on. The number is 0 if
    /// the cursors contradict each other.
    fn span(&self) -> (u64, u64) {
        let (fixed, slots) = (self.engine.segment().fixed(), self.slots as u64);
        let receiver = &fixed.receiver;
        let sent = fixed.sender.sent();
        let freed = fixed.published.freed_so_far();
        let can_be =
            |first: u64| sent.wrapping_sub(first) <= slots && freed.wrapping_sub(first) <= slots;
        let drained = receiver.drained_so_far();
        // Other words also give the position of the first message: the published count of removed messages, plus the stored and the held messages.
        let removed = fixed.published.removed();
        let stored = receiver.stored_so_far();
        let held = receiver.held_so_far();
        let reckoned = removed.wrapping_add(stored).wrapping_add(held);
        let first = match !can_be(drained) && can_be(reckoned) {
            true => reckoned,
            false => drained,
        };
        let counted = Some(sent.wrapping_sub(first)).filter(|counted| *counted <= slots);
        (first, counted.unwrap_or(0))
    }

    pub(super) fn survey_store(&mut self) {
        for (slot, cell) in self.cells() {
            if cell.is_stored() {
                self.keep(slot, (false, cell.sequence()), Owner::Queued);
            }
        }
    }

    pub(super) fn survey_holds(&mut self) {
        let mut seen = BTreeSet::new();
        for (_, record) in Leases::of(self.engine.segment()).all() {
            let slot = record.slot.get();
            let state = LeaseState::of(record);
            if state == LeaseState::Arrived {
                // Death at the crash point ARRIVE_NOTED: the message is sent, and belongs to the queue.
                if slot != leases::NO_MESSAGE && seen.insert(slot) && !self.is_stored(slot) {
                    self.keep(slot, LAST, Owner::Queued);
                }
                continue;
            }
            // Death at the crash point COMMIT_MARKED: the message is sent, and is in the store.
            let is_sent = state == LeaseState::Reserved && self.is_stored(slot);
            let is_held = state != LeaseState::Free && !is_sent && seen.insert(slot);
            let (order, owner) = match state {
                LeaseState::Reserved => (LAST, Owner::Unsent),
                _ => ((false, self.sequence(slot)), Owner::Held),
            };
            if record.state.get() != LeaseState::Free as u32
                && !(is_held && self.keep(slot, order, owner))
            {
                leases::set(record, LeaseState::Free);
            }
        }
    }

    fn is_stored(&self, slot: u32) -> bool {
        let cell = self.engine.segment().cell(slot);
        cell.is_ok_and(Cell::is_stored)
    }

    fn sequence(&self, slot: u32) -> u64 {
        let cell = self.engine.segment().cell(slot);
        cell.map_or(0, |cell| cell.sequence())
    }

    pub(super) fn survey_nodes(&mut self) {
        for (_, node) in Waiters::of(self.engine.segment()).all() {
            if !self.goes_on_waiting(node) {
                node.list.set(List::None as u32);
            }
        }
    }

    /// Completes the interrupted step of a node. Returns whether the node stays in its list.
    fn goes_on_waiting(&mut self, node: &Node) -> bool {
        let slot = node.slot.get();
        match (List::of(node), waiters::state(node)) {
            (List::None, _) => false,
            // The offer is withdrawn, and the message returns to its place in the queue, even if the node's thread is dead. A living thread then
            // finds no offer and checks the queue.
            (List::Offered, _) => {
                self.store(slot, self.sequence(slot));
                let _ = waiters::unsettle(node);
                false
            }
            // Death at the crash point SERVE_OFFERED: the message is still in the queue, and stays in it.
            (List::Receivers, State::Settled) => {
                let _ = waiters::unsettle(node);
                false
            }
            // Death at the crash point ADMIT_ACCEPTED: the message is sent, even if it was not stored yet. An admission first drains the ring, so the
            // message follows all messages of the store.
            (List::Senders, State::Settled | State::DiedSettled) if slot != NO_SLOT => {
                self.store(slot, self.greatest().saturating_add(1));
                false
            }
            (_, State::Waiting) if waiters::is_orphan(self.engine.segment(), node) => false,
            (List::Senders, State::Waiting) if slot != NO_SLOT => {
                if !(self.is_whole(slot) && self.keep(slot, LAST, Owner::Unsent)) {
                    lose_message(node);
                }
                true
            }
            (_, state) => state == State::Waiting,
        }
    }

    /// Puts a message into the store with this sequence number, unless the message is already stored. The mark is set at once, because the list of
    /// the message's node is removed next.
    fn store(&mut self, slot: u32, number: u64) {
        if self.keep(slot, (false, number), Owner::Queued)
            && let Ok(cell) = self.engine.segment().cell(slot)
        {
            cell.set_sequence(number);
            cell.set_stored(true);
        }
    }

    /// Returns the greatest sequence number of the kept messages that were not in the ring.
    pub(super) fn greatest(&self) -> u64 {
        let kept = self.messages.iter().flatten();
        let numbers = kept.filter(|(is_in_ring, ..)| !is_in_ring);
        numbers.map(|(_, number, _)| *number).max().unwrap_or(0)
    }
}
