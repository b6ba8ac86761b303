//! Admission of blocked senders, in order. The caller of each function holds the lock.

use super::Engine;
use super::segment::Reply;
use super::wait::Waiter;
use crate::crash::crash_point;
use crate::fault::Fault;
use crate::lock::deferred_wakes::DeferredWakes;
use crate::lock::tokens::ReceiverHeld;
use crate::sys::clock;
use crate::waiters::NO_SLOT;
use crate::waiters::{self, List, State};
use std::ops::ControlFlow;

impl Engine {
    /// Sends the messages of blocked senders for which there is room, in the order of their senders. A shorter message may overtake a message for
    /// which there is no room. Source: ss_wakeup in linux/ipc/msg.c.
    #[inline(never)]
    pub(super) fn admit(
        &self,
        receiving: ReceiverHeld<'_>,
        wakes: &mut DeferredWakes,
    ) -> Result<(), Fault> {
        self.each_waiter(List::Senders, |waiter| {
            if waiters::state(waiter.node()) != State::Waiting {
                self.withdraw(receiving, waiter)?;
            } else if self.fits(waiter) {
                self.let_in(receiving, waiter, wakes)?;
            }
            Ok(ControlFlow::Continue(()))
        })
    }

    /// Frees the slots of senders that have died or given up. Otherwise the slots would stay in use until a message is received, and a queue
    /// without a receiver would grow with each killed sender.
    #[cold]
    pub(super) fn withdraw_dead_senders(&self, receiving: ReceiverHeld<'_>) -> Result<(), Fault> {
        self.each_waiter(List::Senders, |waiter| {
            if waiters::has_left(self.segment(), waiter.node()) {
                self.withdraw(receiving, waiter)?;
            }
            Ok(ControlFlow::Continue(()))
        })
    }

    /// Returns whether there is room for the messages of a blocked sender.
    pub(super) fn fits(&self, waiter: Waiter<'_>) -> bool {
        self.has_room(waiter.node().wanted.get().into(), waiter.record.size())
    }

    fn let_in(
        &self,
        receiving: ReceiverHeld<'_>,
        waiter: Waiter<'_>,
        wakes: &mut DeferredWakes,
    ) -> Result<(), Fault> {
        let node = waiter.node();
        let slot = node.slot.get();
        let is_judged = self.is_judged(waiter);
        if slot == NO_SLOT || !is_judged {
            let reply = if is_judged {
                Reply::Retry
            } else {
                Reply::Rejudge
            };
            let _ = self.reply(receiving, waiter, reply, wakes);
            return self.withdraw(receiving, waiter);
        }
        let mtype = self.segment().cell(slot)?.mtype();
        self.order().provide(mtype)?;
        // This thread replies to the sender before it sends the message. If this thread dies between these two steps, the repair sends the message.
        if !self.reply(receiving, waiter, Reply::Sent, wakes) {
            return self.withdraw(receiving, waiter);
        }
        crash_point!(MSG_ADMITTED);
        self.send_parked(receiving, slot, wakes)?;
        self.waiters().remove(receiving, node)?;
        self.fixed()
            .control
            .note_send(node.pid.get(), clock::realtime_coarse());
        Ok(())
    }

    /// Sends the message that a blocked sender has *parked*: written into a slot before the wait.
    fn send_parked(
        &self,
        receiving: ReceiverHeld<'_>,
        slot: u32,
        wakes: &mut DeferredWakes,
    ) -> Result<(), Fault> {
        let found = self.found(slot)?;
        // A parked message is sent at its admission, so it gets the time and the number of the admission.
        found.cell.set_sent_at(clock::realtime_coarse());
        let sequence = self.commit(receiving, slot)?;
        self.route(receiving, slot, found.mtype(), sequence, found.len, wakes)
    }
}
