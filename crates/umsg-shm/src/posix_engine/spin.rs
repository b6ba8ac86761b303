//! Spinning: before a sleep, a call repeatedly checks for a message or for room, as long as the handle's pacing permits.

use super::Engine;
use crate::counters::Event;
use crate::sys::clock::Deadline;
use crate::sys::thread::{Calm, Thread};
use crate::waiters::pacing::{LONGEST, look_away, spin_until};

impl Engine {
    /// Spins until the queue seems to have a message, as long as the handle's pacing permits. Returns true if another attempt is worthwhile.
    pub(super) fn spin_for_message(&self, calm: Calm<'_>, deadline: Deadline) -> bool {
        // Senders do not notify a registered process while a receiver waits in the list. So the receiver waits in the list, where senders see it, and
        // does not spin.
        if self.has_registration() {
            return false;
        }
        let budget = self.pacing.allowance();
        // A handle that only spins never pauses, because it has to get the next message at once.
        if budget != 0 && budget != u32::MAX {
            look_away(
                self.pacing
                    .gathering_time(self.segment().layout().max_messages),
            );
        }
        let ready = || self.seems_filled();
        self.spin(budget, calm, deadline, ready) || self.pacing.give_way(ready)
    }

    /// Spins until the queue seems to have a message, for as long as a call spins before it sleeps. An event loop calls this function, because it
    /// does not sleep in umsg. Returns whether the queue seems to have a message.
    pub fn look_for_message(&self, me: &Thread) -> bool {
        let ready = || self.seems_filled();
        let budget = self.pacing.allowance().min(LONGEST);
        ready() || self.spin(budget, me.interruptions.calm(), Deadline::Never, ready)
    }

    /// Spins until the queue seems to have room for `messages` messages, as long as the handle's pacing permits. Returns true if another attempt is
    /// worthwhile.
    pub(super) fn spin_for_room(&self, messages: u64, calm: Calm<'_>, deadline: Deadline) -> bool {
        // If the receiver shares the processor, it can't run while this thread spins.
        if self.pacing.is_shared() && !self.pacing.only_spins() {
            return false;
        }
        let budget = self.pacing.allowance();
        // A handle that only spins never pauses, because it has to send the next message at once. A handle that rarely spins may be in a stream, so
        // it may pause. In a model, time does not pass.
        if budget != u32::MAX && !cfg!(loom) {
            self.let_room_accumulate(messages);
        }
        let ready = || self.seems_roomy(messages);
        self.spin(budget, calm, deadline, ready) || self.pacing.give_way_for_room(ready)
    }

    fn let_room_accumulate(&self, messages: u64) {
        let time = self
            .pacing
            .room_gathering_time(self.segment().layout().max_messages);
        if time != 0 {
            look_away(time);
            let more = messages.saturating_add(1);
            self.pacing.learn_of_room(self.seems_roomy(more));
        }
    }

    fn spin(
        &self,
        budget: u32,
        calm: Calm<'_>,
        deadline: Deadline,
        ready: impl Fn() -> bool,
    ) -> bool {
        if budget == 0 {
            return false;
        }
        let paid = spin_until(budget, calm, deadline, ready);
        if budget == u32::MAX {
            // If the queue is ready, or the slice or the deadline has passed, the call attempts again. If a signal handler has run, the call goes on
            // to its sleep, which checks for the signal.
            return paid || !calm.is_over();
        }
        self.pacing.learn(budget, paid);
        if paid {
            self.segment().fixed().counters.count(Event::SpinPaid);
        }
        paid
    }
}
