//! Serving: a thread that has changed the queue offers messages to waiting receivers, and admits the messages of waiting senders to the queue.
//!
//! All functions run under the receiver lock. A hand-off to a receiver has three steps: note the slot in the node, settle the node's word, take the
//! message from the queue. If the serving thread dies between two steps, the node's word decides whether the queue or the receiver has the message.

use super::{DeferredWakes, Engine};
use crate::counters::Event;
use crate::crash::crash_point;
use crate::fault::Fault;
use crate::lock::SLICE;
use crate::lock::tokens::ReceiverHeld;
use crate::report::What;
use crate::sys::clock;
use crate::waiters::{self, List, State, Waiters};
use crate::waiters::{NO_SLOT, NODES, Node};

/// The maximum number of nodes that a walk over a list visits. Each node leaves the list at its first or second visit.
const BOUND: usize = 2 * NODES;

impl Engine {
    /// Serves all waiters that can be served.
    pub(crate) fn serve(
        &self,
        receiving: ReceiverHeld<'_>,
        wakes: &mut DeferredWakes,
    ) -> Result<(), Fault> {
        let waiters = Waiters::of(self.segment());
        if waiters.len(List::Offered) != 0 {
            self.reclaim_offers(receiving)?;
            wakes.add_reports();
        }
        self.hand_over(receiving, wakes)?;
        // While messages are held or expire, receivers and senders may wait at the same time. Each pass then admits a message and offers the message
        // to a receiver, which ends the receiver's wait.
        while waiters.len(List::Senders) != 0 && self.admit(receiving, wakes)? != 0 {
            if waiters.len(List::Receivers) == 0 {
                break;
            }
            self.hand_over(receiving, wakes)?;
        }
        self.publish_counts(receiving);
        self.note_change(receiving, wakes);
        Ok(())
    }

    /// Offers messages to blocked receivers, in the order of the receivers' list.
    pub(super) fn hand_over(
        &self,
        receiving: ReceiverHeld<'_>,
        wakes: &mut DeferredWakes,
    ) -> Result<(), Fault> {
        let waiters = Waiters::of(self.segment());
        let mut bound = BOUND;
        while let Some((index, node)) = waiters.first(List::Receivers)? {
            bound = bound.checked_sub(1).ok_or(Fault::Damaged)?;
            if waiters::state(node) != State::Waiting {
                self.count_death(node);
                waiters.remove(receiving, node)?;
                continue;
            }
            let Some(found) = self.upcoming(receiving)? else {
                return Ok(());
            };
            self.sequence_offered(receiving, &found);
            node.slot.set(found.slot);
            node.offered_at.set(clock::monotonic());
            crash_point!(SERVE_NOTED);
            if !waiters::settle(node) {
                continue;
            }
            crash_point!(SERVE_OFFERED);
            waiters.relocate(receiving, node, index, List::Offered)?;
            let returns = found.cell.returns();
            self.take(receiving, &found)?;
            if returns != 0 {
                found.cell.set_returns(returns, false);
            }
            crash_point!(SERVE_TAKEN);
            self.segment().fixed().counters.count(Event::HandedOver);
            wakes.add(index);
        }
        Ok(())
    }

    /// Admits the messages of blocked senders to the queue, in the order of the senders' list, while the queue has room. Returns the number of
    /// admitted messages.
    pub(crate) fn admit(
        &self,
        receiving: ReceiverHeld<'_>,
        wakes: &mut DeferredWakes,
    ) -> Result<u32, Fault> {
        let waiters = Waiters::of(self.segment());
        let (mut bound, mut admitted) = (BOUND, 0);
        if self.is_send_closed() {
            // The queue is closed for sending, so no message of a blocked sender may follow the end of the stream. These senders will find that the
            // queue is closed.
            return Ok(0);
        }
        while let Some((index, node)) = waiters.first(List::Senders)? {
            bound = bound.checked_sub(1).ok_or(Fault::Damaged)?;
            if node.slot.get() == NO_SLOT {
                if self.keep_for_batch(receiving, index, node, wakes)? {
                    return Ok(admitted);
                }
                continue;
            }
            if waiters::state(node) != State::Waiting {
                self.withdraw_sender(receiving, node)?;
                continue;
            }
            if !self.has_room_now(receiving, 1) {
                return Ok(admitted);
            }
            // The messages in the ring were sent earlier, so they enter the store first. The ring is drained before the node is settled, because a
            // repair stores the message of a settled node at once.
            self.drain(receiving)?;
            let found = self.in_hand(receiving, node.slot.get())?;
            let published = &self.segment().fixed().published;
            published.count_entered(receiving, found.len);
            if !waiters::settle(node) {
                published.uncount_entered(receiving, found.len);
                continue;
            }
            crash_point!(ADMIT_ACCEPTED);
            // The age of the message counts from its admission.
            found.cell.renew(clock::monotonic_coarse());
            self.store(receiving, &found)?;
            waiters.remove(receiving, node)?;
            wakes.add(index);
            admitted += 1;
        }
        Ok(admitted)
    }

    /// Counts the death of a node's thread, if the thread died while it waited. The caller removes the node from its list.
    fn count_death(&self, node: &Node) {
        if waiters::has_died(node) {
            self.segment().fixed().counters.count(Event::WaiterDied);
        }
    }

    /// Removes a sender's node from its list. If the node has a slot, frees the slot: the message was never sent.
    pub(super) fn withdraw_sender(
        &self,
        receiving: ReceiverHeld<'_>,
        node: &Node,
    ) -> Result<(), Fault> {
        self.count_death(node);
        let slot = node.slot.get();
        if slot == NO_SLOT {
            return Waiters::of(self.segment()).remove(receiving, node);
        }
        self.segment().cell(slot)?;
        Waiters::of(self.segment()).remove(receiving, node)?;
        self.free_slot(receiving, slot);
        Ok(())
    }

    /// Frees the slots of all senders in the list that have died or given up. Otherwise dead senders after a waiting sender would keep their slots
    /// until a message is received, and a queue without a receiver would grow with each killed sender.
    #[cold]
    pub(super) fn withdraw_dead_senders(&self, receiving: ReceiverHeld<'_>) -> Result<(), Fault> {
        let waiters = Waiters::of(self.segment());
        let mut next = waiters.first(List::Senders)?;
        let mut bound = waiters.len(List::Senders);
        while let Some((_, node)) = next {
            bound = bound.checked_sub(1).ok_or(Fault::Damaged)?;
            next = waiters.next(node)?;
            if node.slot.get() != NO_SLOT && waiters::has_left(self.segment(), node) {
                self.withdraw_sender(receiving, node)?;
            }
        }
        Ok(())
    }

    /// Returns whether the queue has room for this number of further messages.
    pub(super) fn has_room_now(&self, receiving: ReceiverHeld<'_>, messages: u32) -> bool {
        self.room_now(receiving) >= i64::from(messages)
    }

    /// Returns the number of messages for which the queue has room. The number is negative if withdrawn offers exceed the capacity.
    pub(super) fn room_now(&self, receiving: ReceiverHeld<'_>) -> i64 {
        let fixed = self.segment().fixed();
        let sent = fixed.sender.sent();
        let queued = sent.wrapping_sub(fixed.receiver.removed(receiving)) as i64;
        (self.segment().layout().max_messages as i64).saturating_sub(queued)
    }

    /// Puts a message back if its receiver died, gave up, or has not reacted to the offer for a slice: a stopped receiver must not keep a message.
    fn reclaim_offers(&self, receiving: ReceiverHeld<'_>) -> Result<(), Fault> {
        let waiters = Waiters::of(self.segment());
        let now = clock::monotonic();
        let mut next = waiters.first(List::Offered)?;
        let mut bound = waiters.len(List::Offered);
        while let Some((_, node)) = next {
            next = waiters.next(node)?;
            if self.is_forfeit(receiving, node, now) {
                self.put_back(receiving, node.slot.get())?;
                waiters.remove(receiving, node)?;
            }
            bound = bound.checked_sub(1).ok_or(Fault::Damaged)?;
        }
        Ok(())
    }

    /// Returns whether the thread of a node has lost the offer.
    fn is_forfeit(&self, receiving: ReceiverHeld<'_>, node: &Node, now: u64) -> bool {
        match waiters::state(node) {
            State::Settled => {
                if !waiters::is_over(node.offered_at.get(), SLICE, now) || !waiters::unsettle(node)
                {
                    return false;
                }
                // A living thread checks the queue itself when it continues. The node of a dead thread becomes free.
                if waiters::is_orphan(self.segment(), node) {
                    waiters::give_up(node);
                }
                // An error is ignored: if the list is corrupt, the caller's walk reports the corruption.
                let _ = Waiters::of(self.segment()).pass_over(receiving, node);
                true
            }
            State::DiedSettled | State::DiedWaiting => {
                self.segment().fixed().counters.count(Event::WaiterDied);
                self.report(What::WaiterDied, node.pid.get());
                true
            }
            State::Free | State::Accepted | State::Waiting => true,
        }
    }
}
