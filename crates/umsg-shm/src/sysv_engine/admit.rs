//! Giving room to blocked senders, in order. Under the lock.

use super::Engine;
use super::offer::Walk;
use super::wait::{Reply, Seated};
use crate::crash::crash_point;
use crate::fault::Fault;
use crate::lock::deferred_wakes::DeferredWakes;
use crate::lock::tokens::ReceiverHeld;
use crate::sys::clock;
use crate::waiters::NO_SLOT;
use crate::waiters::{self, List, State};

impl Engine {
    /// Sends the messages of blocked senders that fit, in their order; one that is too long for the room there is lets shorter
    /// ones go first. Source: ss_wakeup in linux/ipc/msg.c.
    #[inline(never)]
    pub(super) fn admit(
        &self,
        receiving: ReceiverHeld<'_>,
        wakes: &mut DeferredWakes,
    ) -> Result<(), Fault> {
        self.each_seat(List::Senders, |who| {
            if waiters::state(who.node()) != State::Waiting {
                self.withdraw(receiving, who)?;
            } else if self.fits(who) {
                self.let_in(receiving, who, wakes)?;
            }
            Ok(Walk::GoesOn)
        })
    }

    /// Whether there is room for what a blocked sender brings.
    pub(super) fn fits(&self, who: Seated<'_>) -> bool {
        self.has_room(who.node().wanted.get().into(), who.seat.size.get())
    }

    fn let_in(
        &self,
        receiving: ReceiverHeld<'_>,
        who: Seated<'_>,
        wakes: &mut DeferredWakes,
    ) -> Result<(), Fault> {
        let node = who.node();
        let slot = node.slot.get();
        let is_judged = self.is_judged(who);
        if slot == NO_SLOT || !is_judged {
            let reply = if is_judged {
                Reply::Retry
            } else {
                Reply::Rejudge
            };
            let _ = self.reply(who, reply, wakes);
            return self.withdraw(receiving, who);
        }
        let mtype = self.segment().cell(slot)?.mtype.get() as i64;
        self.order().provide(mtype)?;
        // Settled before it is sent: from then on it is, and a repair sends it.
        if !self.reply(who, Reply::Sent, wakes) {
            return self.withdraw(receiving, who);
        }
        crash_point!(MSG_ADMITTED);
        self.send_parked(receiving, slot, wakes)?;
        self.waiters().remove(receiving, node)?;
        self.note_send(node.pid.get(), clock::realtime_coarse());
        Ok(())
    }

    /// Sends the message that a blocked sender has left in a slot.
    fn send_parked(
        &self,
        receiving: ReceiverHeld<'_>,
        slot: u32,
        wakes: &mut DeferredWakes,
    ) -> Result<(), Fault> {
        let cell = self.segment().cell(slot)?;
        let (mtype, len) = (cell.mtype.get() as i64, self.len_of(cell)?);
        // It is as old as its place in the queue.
        cell.sent_at.set(clock::realtime_coarse());
        let sequence = self.commit(receiving, slot)?;
        self.route(receiving, slot, mtype, sequence, len, wakes)
    }
}
