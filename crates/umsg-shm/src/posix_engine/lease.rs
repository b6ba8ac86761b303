//! Leases: receiving a message in place.
//!
//! A lease leaves the message in its slot and notes in a record who holds it; acknowledging frees the slot, returning
//! puts the message back to the head of its priority, and so does the holder's death or the end of a time limit.

use super::hold::Grip;
use super::receive::Found;
use super::wait::Receipt;
use super::{Engine, Refused, Wakes};
use crate::crash::crash_point;
use crate::fault::Trouble;
use crate::leases::{self, Holds, State};
use crate::sys::clock::Deadline;
use crate::sys::liveness;
use crate::sys::thread::Thread;
use crate::waiters::Node;
use crate::waiters::Waiters;

/// Leaves the message where it is.
struct Lease;

impl Receipt for Lease {
    type Outcome = Grip;

    fn take(&mut self, engine: &Engine, me: &Thread, wakes: &mut Wakes) -> Result<Grip, Refused> {
        let Some(found) = engine.next(wakes)? else {
            return Err(Refused::NotNow);
        };
        engine.sequence_offered(&found);
        let grip = engine.keep(me, &found)?;
        engine.take(&found)?;
        crash_point!(LEASE_TAKEN);
        engine.note_lease();
        Ok(grip)
    }

    fn accept(
        &mut self,
        engine: &Engine,
        me: &Thread,
        node: &Node,
        found: Found<'_>,
    ) -> Result<Grip, Refused> {
        let grip = engine.keep(me, &found)?;
        Waiters::of(engine.segment()).remove(node)?;
        found.cell.forget();
        engine.note_lease();
        Ok(grip)
    }
}

impl Engine {
    /// Leases the message that is next, if there is one at once.
    pub fn try_lease(&self, me: &Thread, deadline: Deadline) -> Result<Grip, Refused> {
        liveness::register(self.segment());
        self.try_take(me, &mut Lease, deadline)
    }

    /// Leases the message that is next; waits for one until `deadline`.
    pub fn lease(&self, me: &Thread, deadline: Deadline) -> Result<Grip, Refused> {
        match self.try_lease(me, deadline) {
            Err(Refused::NotNow) => self.receive_slow(me, &mut Lease, deadline),
            other => other.map_err(|refused| refused.by(deadline)),
        }
    }

    /// The step that makes a message the caller's: from here on it is, whatever else still says that it is queued.
    fn keep(&self, me: &Thread, found: &Found<'_>) -> Result<Grip, Trouble> {
        let deliveries = found.cell.returns().saturating_add(1);
        let (index, hold) = self.claim_hold(me, found.slot, deliveries)?;
        leases::set(hold, State::Leased);
        crash_point!(LEASE_HELD);
        Ok(self.grip(index, hold, found))
    }

    fn note_lease(&self) {
        self.count_held(1);
        self.publish_counts();
        self.note_receive();
    }

    /// Ends a lease, and with it the message. False if the lease has ended already: its time was up.
    pub fn acknowledge(&self, me: &Thread, grip: &Grip) -> Result<bool, Refused> {
        self.end_lease(me, grip, |engine, hold, wakes| {
            let slot = hold.slot.get();
            let cell = engine.segment().cell(slot)?;
            engine.release_hold(grip.index, hold)?;
            crash_point!(LEASE_ENDED);
            // A repair has left there how often the message came back, if it met the lease while it was being returned.
            cell.forget();
            engine.free_held(slot, wakes);
            Ok(())
        })
    }

    /// Ends a lease; the message is the first of its priority again. False as for [`acknowledge`](Self::acknowledge).
    pub fn give_back(&self, me: &Thread, grip: &Grip) -> Result<bool, Refused> {
        self.end_lease(me, grip, |engine, hold, wakes| {
            engine.return_lease(grip.index, hold)?;
            crash_point!(RETURN_ENDED);
            engine.serve(wakes)?;
            engine.update_board();
            Ok(())
        })
    }

    fn end_lease(
        &self,
        me: &Thread,
        grip: &Grip,
        end: impl FnOnce(&Engine, &crate::leases::Hold, &mut Wakes) -> Result<(), Trouble>,
    ) -> Result<bool, Refused> {
        self.with_receiver_lock(me, Deadline::Never, |wakes| {
            let holds = Holds::of(self.segment());
            match holds.find(grip.index, grip.ticket, State::Leased)? {
                Some(hold) => end(self, hold, wakes).map(|()| true).map_err(Refused::from),
                None => Ok(false),
            }
        })
    }
}
