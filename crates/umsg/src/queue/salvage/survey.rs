//! Which messages there are, and whose they are.

use super::{Home, Salvage};
use crate::holds::{self, Holds, State as HoldState};
use crate::segment::{Cell, NO_SLOT, Node};
use crate::sync::Ordering;
use crate::waiters::{self, List, State, Waiters};
use std::collections::BTreeSet;

impl Salvage<'_> {
    /// Messages in the ring, by their own stamps: entries are not needed to find them.
    pub(super) fn survey_ring(&mut self) {
        let fixed = self.engine.segment().fixed();
        let drained = fixed.receiver.drained.load(Ordering::Relaxed);
        let sent = fixed.sender.sent.load(Ordering::Relaxed);
        let stamps: BTreeSet<(u64, u32)> = self
            .cells()
            .filter(|(_, cell)| !cell.is_stored())
            .map(|(slot, cell)| (cell.stamp.load(Ordering::Relaxed).wrapping_sub(1), slot))
            .map(|(position, slot)| (position.wrapping_sub(drained), slot))
            .filter(|(ahead, _)| *ahead < self.slots as u64)
            .collect();
        let counted = sent.wrapping_sub(drained);
        let counted = if counted <= self.slots as u64 {
            counted
        } else {
            0
        };
        let mut next = 0;
        for (ahead, slot) in stamps {
            // Behind a gap at the end of what was sent are stamps of a batch that was not.
            if ahead >= counted && ahead != next {
                break;
            }
            next = ahead + 1;
            self.keep(slot, (true, ahead), Home::Queued);
        }
    }

    pub(super) fn survey_store(&mut self) {
        for (slot, cell) in self.cells() {
            if cell.is_stored() {
                self.keep(slot, (false, cell.sequence.get()), Home::Queued);
            }
        }
    }

    pub(super) fn survey_holds(&mut self) {
        let mut seen = BTreeSet::new();
        for (_, hold) in Holds::of(self.engine.segment()).all() {
            let slot = hold.slot.get();
            let state = HoldState::of(hold);
            // COMMIT_MARKED: the message is sent, and the store has it.
            let is_sent = state == HoldState::Reserved && self.is_stored(slot);
            let is_held = state != HoldState::Free && !is_sent && seen.insert(slot);
            let order = (false, self.sequence(slot));
            if hold.state.get() != HoldState::Free as u32
                && !(is_held && self.keep(slot, order, Home::Held))
            {
                holds::set(hold, HoldState::Free);
            }
        }
    }

    fn is_stored(&self, slot: u32) -> bool {
        let cell = self.engine.segment().cell(slot);
        cell.is_ok_and(Cell::is_stored)
    }

    fn sequence(&self, slot: u32) -> u64 {
        let cell = self.engine.segment().cell(slot);
        cell.map_or(0, |cell| cell.sequence.get())
    }

    pub(super) fn survey_nodes(&mut self) {
        for (_, node) in Waiters::of(self.engine.segment()).all() {
            if !self.goes_on_waiting(node) {
                node.list.set(List::None as u32);
            }
        }
    }

    /// Whether a node stays in its list. What it says of a message is done first.
    fn goes_on_waiting(&mut self, node: &Node) -> bool {
        let slot = node.slot.get();
        match (List::of(node), waiters::state(node)) {
            (List::None, _) => false,
            // It is queued again, at its place, though its thread may be dead; one that lives looks by itself.
            (List::Offered, _) => {
                self.store(slot, self.sequence(slot));
                let _ = waiters::unsettle(node);
                false
            }
            // SERVE_OFFERED: the message is still in the queue, and stays there.
            (List::Receivers, State::Settled) => {
                let _ = waiters::unsettle(node);
                false
            }
            // ADMIT_ACCEPTED: the message is sent, whether or not it was stored. The ring was drained before.
            (List::Senders, State::Settled | State::DiedSettled) if slot != NO_SLOT => {
                self.store(slot, self.greatest().saturating_add(1));
                false
            }
            (_, State::Waiting) if waiters::is_orphan(node) => false,
            (List::Senders, State::Waiting) if slot != NO_SLOT => {
                let is_kept = self.keep(slot, (false, 0), Home::Held);
                if !is_kept {
                    // What it was to send is lost: it need not wait.
                    let _ = waiters::settle(node);
                }
                is_kept
            }
            (_, state) => state == State::Waiting,
        }
    }

    /// Has a message that is nowhere in the store, under a number. It is marked at once: who dies here has forgotten whose it was.
    fn store(&mut self, slot: u32, number: u64) {
        if self.keep(slot, (false, number), Home::Queued)
            && let Ok(cell) = self.engine.segment().cell(slot)
        {
            cell.sequence.set(number);
            cell.set_stored(true);
        }
    }

    /// The greatest number of a message that is kept and was not in the ring.
    pub(super) fn greatest(&self) -> u64 {
        let kept = self.homes.iter().flatten();
        let numbers = kept.filter(|(is_in_ring, ..)| !is_in_ring);
        numbers.map(|(_, number, _)| *number).max().unwrap_or(0)
    }
}
