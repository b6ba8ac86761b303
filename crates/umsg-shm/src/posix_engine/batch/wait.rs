//! Waits for room for a whole batch or for a reservation.
//!
//! A sender that waits for room for several messages puts a node into the list of senders, and takes no slots. While the sender is blocked:
//!
//! - Room that does not suffice for the first waiter is *kept*: later senders find the queue full (`Engine::room`) and wait after the first waiter.
//!   Otherwise single messages would take each free place at once, and the batch would wait for ever.
//! - Once the room suffices for the batch of the first waiter, the node of this waiter is settled: the batch has its *turn*. The node stays in the
//!   list and blocks later waiters until its thread has sent under both locks. A thread that does not send within a slice loses its turn. When the
//!   thread continues, it adds its node to the list again.
//!
//! The node of a batch does not show whether its messages are sent. Only the stamp of the first message shows that they are sent.

use super::super::wait::Enlisted;
use super::super::{DeferredWakes, Engine, Refused};
use crate::counters::Event;
use crate::crash::crash_point;
use crate::fault::Fault;
use crate::lock::SLICE;
use crate::lock::tokens::{BothHeld, ReceiverHeld};
use crate::sys::clock::{self, Deadline};
use crate::sys::liveness::Liveness;
use crate::sys::thread::{Calm, Thread};
use crate::waiters::wait::End;
use crate::waiters::{self, List, State, UNRANKED, Waiters};
use crate::waiters::{NO_SLOT, Node};

/// A sender that waits for its turn, and the step that the sender takes in its turn: it sends a whole batch, or reserves a slot.
pub(in crate::posix_engine) trait Turn {
    type Outcome;

    /// Returns the number of messages for which the queue must have room.
    fn wanted(&self) -> u64;

    /// Takes the sender's step, under both locks. The queue has room, and enough slots are free.
    fn take(
        &mut self,
        both: BothHeld<'_>,
        engine: &Engine,
        me: &Thread,
    ) -> Result<Self::Outcome, Refused>;
}

impl Engine {
    /// Waits with a node until the caller has its turn, and takes the caller's step. Returns `None` if the caller has to try again.
    pub(in crate::posix_engine) fn block_for_turn<T: Turn>(
        &self,
        me: &Thread,
        turn: &mut T,
        calm: Calm<'_>,
        deadline: Deadline,
    ) -> Result<Option<T::Outcome>, Refused> {
        let waited = self.block(
            me,
            turn,
            List::Senders,
            (calm, deadline),
            |turn, receiving, wakes| {
                self.enlist_batch(receiving, me, turn.wanted(), deadline, wakes)
            },
            |turn, node, end| self.end_batch(me, turn, node, end, deadline),
        )?;
        Ok(waited.ended())
    }

    /// Adds the caller's node to the list of senders, unless the queue now has room.
    fn enlist_batch(
        &self,
        receiving: ReceiverHeld<'_>,
        me: &Thread,
        wanted: u64,
        deadline: Deadline,
        wakes: &mut DeferredWakes,
    ) -> Result<Enlisted<'_, ()>, Refused> {
        self.check_open(receiving)?;
        self.serve(receiving, wakes)?;
        self.update_wait_flags(receiving);
        let both = self.borrow_sender_lock(receiving, me, deadline)?;
        let enlisted = self.enlist_borrowed(both, me, wanted);
        self.segment().fixed().sender.lock.give_back();
        Ok(enlisted?)
    }

    fn enlist_borrowed(
        &self,
        both: BothHeld<'_>,
        me: &Thread,
        wanted: u64,
    ) -> Result<Enlisted<'_, ()>, Fault> {
        let sent = self.segment().fixed().sender.next_position(both.sender());
        if self.room(sent, wanted) == wanted {
            return Ok(Enlisted::Done(()));
        }
        let waiters = Waiters::of(self.segment());
        let Some((index, node)) = waiters.claim(both.receiver(), me, NO_SLOT, UNRANKED)? else {
            return Ok(Enlisted::NoNode);
        };
        node.wanted.set(wanted as u32);
        node.offered_at.set(NEVER);
        crash_point!(WAIT_NODE_FILLED);
        waiters.insert(both.receiver(), List::Senders, index)?;
        crash_point!(WAIT_LISTED);
        self.keep_room(both);
        Ok(Enlisted::Waiting((index, node)))
    }

    /// Serves the first waiting sender, which waits for its turn. Returns true if later waiters must not be served yet.
    pub(in crate::posix_engine) fn keep_for_batch(
        &self,
        receiving: ReceiverHeld<'_>,
        index: u32,
        node: &Node,
        wakes: &mut DeferredWakes,
    ) -> Result<bool, Fault> {
        match waiters::state(node) {
            State::Waiting if !self.has_room_now(receiving, 1) => return Ok(true),
            State::Waiting if is_gone(self.segment(), node) => waiters::give_up(node),
            State::Waiting if !self.has_room_now(receiving, node.wanted.get()) => return Ok(true),
            State::Waiting => {
                node.offered_at.set(clock::monotonic());
                let is_notified = waiters::settle(node);
                crash_point!(BATCH_TURN);
                if is_notified {
                    wakes.add(index);
                }
                // If the waiter gave up or died meanwhile, the next walk over the list removes its node.
                return Ok(is_notified);
            }
            State::Settled => {
                if !waiters::is_over(node.offered_at.get(), SLICE, clock::monotonic()) {
                    return Ok(true);
                }
                if !waiters::unsettle(node) {
                    return Ok(false);
                }
                // A living thread enlists its node again when it continues. The node of a dead thread becomes free.
                if waiters::is_orphan(self.segment(), node) {
                    waiters::give_up(node);
                }
            }
            State::DiedSettled | State::DiedWaiting => {
                self.segment().fixed().counters.count(Event::WaiterDied);
            }
            State::Free | State::Accepted => {}
        }
        Waiters::of(self.segment()).remove(receiving, node)?;
        Ok(false)
    }

    /// Ends a sleep. If the caller has its turn, takes the caller's step. Returns `None` if the caller keeps waiting.
    fn end_batch<T: Turn>(
        &self,
        me: &Thread,
        turn: &mut T,
        (index, node): (u32, &Node),
        end: End,
        deadline: Deadline,
    ) -> Result<Option<T::Outcome>, Refused> {
        let work = |receiving: ReceiverHeld<'_>, wakes: &mut DeferredWakes| {
            self.end_batch_locked(receiving, me, turn, (index, node), (end, deadline), wakes)
        };
        self.end_wait(me, end, deadline, work, || {
            // The receiver lock was not available, so the node is given up. No message of the batch was sent, because only this thread can send the
            // batch.
            waiters::give_up(node);
            None
        })
    }

    /// Ends a sleep as [`end_batch`](Self::end_batch) does, for a caller that holds the receiver lock.
    pub(in crate::posix_engine) fn end_batch_locked<T: Turn>(
        &self,
        receiving: ReceiverHeld<'_>,
        me: &Thread,
        turn: &mut T,
        (index, node): (u32, &Node),
        (end, deadline): (End, Deadline),
        wakes: &mut DeferredWakes,
    ) -> Result<Option<T::Outcome>, Refused> {
        let waiters = Waiters::of(self.segment());
        let result = self.end_turn(receiving, me, turn, node, end, deadline);
        if !matches!(result, Ok(None)) {
            waiters.remove(receiving, node)?;
            waiters::give_up(node);
        } else if List::of(node) == List::None {
            waiters.insert(receiving, List::Senders, index)?;
        }
        // Receivers may wait for the new messages, and senders for the room that was kept. The result of the turn is valid even if the lists of these
        // waiters are corrupt.
        if self.serve(receiving, wakes).is_err() {
            self.note_damage();
        }
        self.update_wait_flags(receiving);
        result
    }

    fn end_turn<T: Turn>(
        &self,
        receiving: ReceiverHeld<'_>,
        me: &Thread,
        turn: &mut T,
        node: &Node,
        end: End,
        deadline: Deadline,
    ) -> Result<Option<T::Outcome>, Refused> {
        if waiters::state(node) == State::Settled {
            match self.take_turn(receiving, me, turn, deadline) {
                // Meanwhile, offers to other receivers were withdrawn, and their messages fill the queue. This turn ends, and the sender gets another
                // turn later.
                Err(Refused::NotNow) => {
                    let _ = waiters::unsettle(node);
                    if deadline.has_passed() {
                        self.segment().fixed().counters.count(Event::GivenUp);
                        return Err(Refused::TimedOut);
                    }
                }
                other => return other.map(Some),
            }
        }
        // The turn was withdrawn, or the node contradicts its list.
        if end == End::Settled && !deadline.has_passed() {
            return Ok(None);
        }
        self.segment().fixed().counters.count(Event::GivenUp);
        match end {
            End::Settled => Err(Refused::TimedOut),
            end => Err(self.refusal(end)),
        }
    }

    /// Borrows the sender lock, and takes the caller's step.
    fn take_turn<T: Turn>(
        &self,
        receiving: ReceiverHeld<'_>,
        me: &Thread,
        turn: &mut T,
        deadline: Deadline,
    ) -> Result<T::Outcome, Refused> {
        let both = self.borrow_sender_lock(receiving, me, deadline)?;
        let result = self.take_turn_borrowed(both, me, turn);
        self.segment().fixed().sender.lock.give_back();
        result
    }

    fn take_turn_borrowed<T: Turn>(
        &self,
        both: BothHeld<'_>,
        me: &Thread,
        turn: &mut T,
    ) -> Result<T::Outcome, Refused> {
        self.check_open(both.receiver())?;
        if !self.has_room_now(both.receiver(), turn.wanted() as u32) {
            return Err(Refused::NotNow);
        }
        self.grow_until(both, turn.wanted())?;
        self.foretell_arrival(both.receiver(), turn.wanted() as i64);
        turn.take(both, self, me)
    }
}

/// A value of `offered_at` in the node of a batch: no process has checked yet whether the node's thread lives.
pub(in crate::posix_engine) const NEVER: u64 = 0;

/// Returns whether the thread for which room is kept is dead, although the kernel did not mark its node. Such a thread died before it registered the
/// node with the kernel, or while it checked the queue after a slice. The function asks the system at most once in a slice.
fn is_gone(lives: &dyn Liveness, node: &Node) -> bool {
    let (now, asked) = (clock::monotonic(), node.offered_at.get());
    if asked != NEVER && !waiters::is_over(asked, SLICE, now) {
        return false;
    }
    node.offered_at.set(now);
    waiters::is_orphan(lives, node)
}
