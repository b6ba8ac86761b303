//! Waiting: a node in a list, and a sleep in slices.

#[cfg(not(loom))]
use super::batch::NEVER;
use super::batch::Whole;
use super::found::FoundMessage;
use super::{DeferredWakes, Engine, Refused};
use crate::counters::Event;
use crate::crash::crash_point;
use crate::doorbell::Watched;
use crate::fault::Fault;
use crate::lock::tokens::ReceiverHeld;
use crate::lock::{Held, STOPPED};
use crate::sync::{Ordering, fence};
use crate::sys::clock::Deadline;
use crate::sys::thread::{Calm, Thread};
use crate::tracepoint;
use crate::waiters::wait::{self, End, GRACE, Sleeper, nap};
use crate::waiters::{self, List, State, UNRANKED, Waiters};
use crate::waiters::{NO_SLOT, Node};

/// The result of an attempt to enlist, see [`wait::Enlisted`]. If the thread waits, the result contains the index of the thread's node, and the node.
pub(super) type Enlisted<'a, T> = wait::Enlisted<(u32, &'a Node), T>;

/// A thread that takes messages, with its engine and the proof that it holds the receiver lock.
#[derive(Clone, Copy)]
pub(super) struct Taker<'a> {
    pub(super) receiving: ReceiverHeld<'a>,
    pub(super) engine: &'a Engine,
    pub(super) me: &'a Thread,
}

/// The value of `wanted` in the node of a thread that waits for a message to lease. A message that is offered to such a node counts as leased.
pub(super) const LEASES: u32 = 1;

/// The way in which a receive takes a message: it copies the message out, or leases the message.
pub(super) trait Receipt {
    type Outcome;

    /// The value of `wanted` in the node of the caller: [`LEASES`] or 0.
    const MARK: u32 = 0;

    /// Takes the next message in the queue, if the queue has a message.
    fn take(
        &mut self,
        taker: Taker<'_>,
        wakes: &mut DeferredWakes,
    ) -> Result<Self::Outcome, Refused>;

    /// Takes the message that was offered to the caller's node. Removes the node from its list at the step that transfers the message to the caller.
    fn accept(
        &mut self,
        taker: Taker<'_>,
        node: &Node,
        found: FoundMessage<'_>,
    ) -> Result<Self::Outcome, Refused>;
}

/// The result of a wait in a list.
pub(super) enum Waited<E, T> {
    /// The caller's node was not enlisted. With `Some`, the call has this outcome. With `None`, the caller has to try again.
    Not(Option<E>),
    /// The wait has ended with this outcome.
    Ended(T),
}

impl<E, T> Waited<E, T> {
    /// Returns the outcome of the wait. Returns `None` if the caller has to try again.
    pub(super) fn ended(self) -> Option<T> {
        match self {
            Waited::Ended(outcome) => Some(outcome),
            Waited::Not(_) => None,
        }
    }
}

impl Engine {
    /// Waits in a list with a node. `enlist` adds the caller's node to the list. `end_sleep` runs after each sleep. The wait ends when `end_sleep`
    /// returns an outcome.
    pub(super) fn block<'a, S, E, T>(
        &'a self,
        me: &'a Thread,
        subject: &mut S,
        list: List,
        (calm, deadline): (Calm<'a>, Deadline),
        enlist: impl FnOnce(
            &mut S,
            ReceiverHeld<'_>,
            &mut DeferredWakes,
        ) -> Result<Enlisted<'a, E>, Refused>,
        mut end_sleep: impl FnMut(&mut S, (u32, &'a Node), End) -> Result<Option<T>, Refused>,
    ) -> Result<Waited<E, T>, Refused> {
        let mut wakes = DeferredWakes::default();
        let held = self.lock_receiver(me, deadline, &mut wakes)?;
        let enlisted = enlist(subject, held.receiver(), &mut wakes);
        let Some((index, node, outer)) = self.begin(held, &mut wakes, &enlisted) else {
            self.segment().check()?;
            return finish_early(enlisted, calm, deadline).map(Waited::Not);
        };
        crash_point!(WAIT_NAMED);
        let sleeper = Sleeper {
            me,
            node,
            list,
            calm,
            deadline,
        };
        loop {
            tracepoint!(wait_begin, self.segment().address(), list as u32);
            let end = self.sleep(&sleeper, index);
            tracepoint!(wait_end, self.segment().address(), list as u32);
            crash_point!(WAIT_WOKEN);
            // FOREIGN_MARK: a node that this thread has given up may belong to a thread with the same id in another PID namespace. So the kernel must
            // not mark the node if this thread dies.
            me.unname(outer);
            match end_sleep(subject, (index, node), end)? {
                Some(outcome) => return Ok(Waited::Ended(outcome)),
                None => me.rename(&node.word),
            }
        }
    }

    /// Describes the calling thread to a [`Receipt`].
    #[inline(always)]
    pub(super) fn taker<'a>(&'a self, receiving: ReceiverHeld<'a>, me: &'a Thread) -> Taker<'a> {
        Taker {
            receiving,
            engine: self,
            me,
        }
    }

    /// Removes the caller's node from its list after the offered message was copied out, and frees the message's slot.
    pub(super) fn finish_offer(
        &self,
        receiving: ReceiverHeld<'_>,
        node: &Node,
        found: &FoundMessage<'_>,
    ) -> Result<(), Fault> {
        // The node leaves the list of offers before its slot is freed, because a node in this list owns its slot.
        Waiters::of(self.segment()).remove(receiving, node)?;
        found.cell.forget();
        self.free_slot(receiving, found.slot);
        self.note_receive();
        Ok(())
    }

    /// Releases the lock and wakes the waiters that were served. If the caller's node is enlisted, registers the node with the kernel before the
    /// release.
    fn begin<'a, T>(
        &self,
        held: Held<'a>,
        wakes: &mut DeferredWakes,
        enlisted: &Result<Enlisted<'a, T>, Refused>,
    ) -> Option<(u32, &'a Node, crate::sys::thread::Outer)> {
        let receiving = held.receiver();
        self.note_change(receiving, wakes);
        self.settle_doorbell(receiving, wakes);
        let begun = match enlisted {
            Ok(Enlisted::Waiting((index, node))) => {
                Some((*index, *node, held.unlock_and_name(&node.word)))
            }
            _ => {
                held.unlock();
                None
            }
        };
        self.wake(wakes);
        begun
    }

    /// Waits for a message in the list of receivers. Returns `None` if the caller has to try again.
    pub(super) fn block_receiver<R: Receipt>(
        &self,
        me: &Thread,
        receipt: &mut R,
        calm: Calm<'_>,
        deadline: Deadline,
    ) -> Result<Option<R::Outcome>, Refused> {
        let waited = self.block(
            me,
            receipt,
            List::Receivers,
            (calm, deadline),
            |receipt, receiving, wakes| self.enlist_receiver(receiving, me, receipt, wakes),
            |receipt, (_, node), end| match self.end_receiver(me, receipt, node, end, deadline) {
                // The offer was withdrawn before this thread got the lock.
                Err(Refused::NotNow) => Ok(Some(None)),
                other => other.map(|outcome| Some(Some(outcome))),
            },
        )?;
        Ok(match waited {
            Waited::Not(outcome) | Waited::Ended(outcome) => outcome,
        })
    }

    /// Serves waiters that came earlier. Then either takes a message, or adds the caller's node to the list.
    fn enlist_receiver<R: Receipt>(
        &self,
        receiving: ReceiverHeld<'_>,
        me: &Thread,
        receipt: &mut R,
        wakes: &mut DeferredWakes,
    ) -> Result<Enlisted<'_, R::Outcome>, Refused> {
        let taker = self.taker(receiving, me);
        match receipt.take(taker, wakes) {
            Err(Refused::NotNow) if self.is_at_end(receiving) => return Err(Refused::Closed),
            Err(Refused::NotNow) => {}
            other => return other.map(Enlisted::Done),
        }
        let waiters = Waiters::of(self.segment());
        let Some((index, node)) = waiters.claim(receiving, me, 0, UNRANKED)? else {
            return Ok(Enlisted::NoNode);
        };
        node.wanted.set(R::MARK);
        crash_point!(WAIT_NODE_FILLED);
        waiters.insert(receiving, List::Receivers, index)?;
        crash_point!(WAIT_LISTED);
        self.update_wait_flags(receiving);
        // ATTENTION: this thread sets the flag and then reads the stamps. The fence pairs with the barrier between stamp and flag in `try_send`.
        // Either the sender sees the flag and serves this thread, or this thread finds the message of the sender.
        fence(Ordering::SeqCst);
        let served = self.serve(receiving, wakes);
        if let Err(fault) = served {
            waiters.remove(receiving, node)?;
            waiters::give_up(node);
            return Err(fault.into());
        }
        self.update_wait_flags(receiving);
        Ok(Enlisted::Waiting((index, node)))
    }

    /// Takes the outcome of a wait for a message. The call needs the lock to free the slot or to remove the node from its list.
    fn end_receiver<R: Receipt>(
        &self,
        me: &Thread,
        receipt: &mut R,
        node: &Node,
        end: End,
        deadline: Deadline,
    ) -> Result<R::Outcome, Refused> {
        let work = |receiving: ReceiverHeld<'_>, wakes: &mut DeferredWakes| {
            let taker = self.taker(receiving, me);
            let result = self.take_offer(taker, receipt, (node, end), wakes);
            waiters::give_up(node);
            self.update_wait_flags(receiving);
            result
        };
        self.end_wait(me, end, deadline, work, || {
            // If a message was offered to the node, the next owner of the lock puts the message back into the queue.
            waiters::give_up(node);
            None
        })
    }

    /// Ends a wait under the receiver lock. If the lock is not available, `let_go` releases the node without the lock. `let_go` returns the outcome
    /// of the wait if the outcome is certain.
    pub(super) fn end_wait<T>(
        &self,
        me: &Thread,
        end: End,
        deadline: Deadline,
        work: impl FnOnce(ReceiverHeld<'_>, &mut DeferredWakes) -> Result<T, Refused>,
        let_go: impl FnOnce() -> Option<T>,
    ) -> Result<T, Refused> {
        let mut locked = false;
        let result =
            self.with_receiver_lock(me, last_patience(end, deadline), |receiving, wakes| {
                locked = true;
                work(receiving, wakes)
            });
        if locked {
            return result;
        }
        if let Some(outcome) = let_go() {
            return Ok(outcome);
        }
        match result {
            // The owner of the lock is stopped, so this thread can't take the outcome.
            Err(Refused::Fault(Fault::Busy)) if end == End::Settled => Err(Refused::TimedOut),
            Err(Refused::Fault(Fault::Busy)) => Err(self.refusal(end)),
            other => other,
        }
    }

    fn take_offer<R: Receipt>(
        &self,
        taker: Taker<'_>,
        receipt: &mut R,
        (node, end): (&Node, End),
        wakes: &mut DeferredWakes,
    ) -> Result<R::Outcome, Refused> {
        let receiving = taker.receiving;
        if waiters::state(node) == State::Settled {
            let found = self.in_hand(receiving, node.slot.get())?;
            return receipt.accept(taker, node, found);
        }
        let is_withdrawn = List::of(node) == List::None;
        Waiters::of(self.segment()).remove(receiving, node)?;
        if end == End::Abandoned {
            // The stream seemed to be at its end. This attempt gives the right result even if the state has changed.
            return receipt.take(taker, wakes);
        }
        self.segment().fixed().counters.count(Event::GivenUp);
        // The node is in no list if an offer to this thread was withdrawn, because the thread did not run for a slice. Its message may still be in the
        // queue. If a lease has expired or is orphaned, its end may give this receiver a message now.
        if is_withdrawn || (end == End::TimedOut && self.may_reclaim()) {
            return match receipt.take(taker, wakes) {
                Err(Refused::NotNow) => Err(self.refusal(end)),
                other => other,
            };
        }
        Err(self.refusal(end))
    }

    /// Waits for room in the list of senders, until the message is sent. Returns `None` if the caller has to try again.
    pub(super) fn block_sender(
        &self,
        me: &Thread,
        message: (&[u8], usize),
        calm: Calm<'_>,
        deadline: Deadline,
    ) -> Result<Option<()>, Refused> {
        let waited = self.block(
            me,
            &mut (),
            List::Senders,
            (calm, deadline),
            |(), receiving, wakes| self.enlist_sender(receiving, me, message, deadline, wakes),
            |(), node, end| self.end_sender(me, message, node, end, deadline),
        )?;
        Ok(waited.ended())
    }

    /// Writes the message into a slot and adds the caller's node to the list. If the queue now has room, does neither.
    fn enlist_sender(
        &self,
        receiving: ReceiverHeld<'_>,
        me: &Thread,
        (message, key): (&[u8], usize),
        deadline: Deadline,
        wakes: &mut DeferredWakes,
    ) -> Result<Enlisted<'_, ()>, Refused> {
        self.check_open(receiving)?;
        self.serve(receiving, wakes)?;
        self.update_wait_flags(receiving);
        let slot = match self.park(receiving, me, message, key, deadline) {
            Ok(Some(slot)) => slot,
            Ok(None) => return Ok(Enlisted::Done(())),
            Err(Refused::NotNow) => return Ok(Enlisted::NoNode),
            Err(refused) => return Err(refused),
        };
        let waiters = Waiters::of(self.segment());
        let (index, node) = match waiters.claim(receiving, me, slot, UNRANKED) {
            Ok(Some(claimed)) => claimed,
            other => {
                self.free_slot(receiving, slot);
                return other.map(|_| Enlisted::NoNode).map_err(Refused::from);
            }
        };
        crash_point!(WAIT_NODE_FILLED);
        waiters.insert(receiving, List::Senders, index)?;
        crash_point!(WAIT_LISTED);
        Ok(Enlisted::Waiting((index, node)))
    }

    /// Takes the outcome of a wait for room. Returns `None` if the caller keeps waiting.
    fn end_sender(
        &self,
        me: &Thread,
        (message, key): (&[u8], usize),
        (index, node): (u32, &Node),
        end: End,
        deadline: Deadline,
    ) -> Result<Option<()>, Refused> {
        let work = |receiving: ReceiverHeld<'_>, wakes: &mut DeferredWakes| {
            if has_lost_message(node) {
                let again = &mut Whole(&(message, key));
                return self.end_batch_locked(
                    receiving,
                    me,
                    again,
                    (index, node),
                    (end, deadline),
                    wakes,
                );
            }
            let result = if waiters::state(node) == State::Settled {
                // The message is in the store: the thread that admitted the message has stored it, or a repair has stored it.
                Ok(Some(()))
            } else {
                self.segment().fixed().counters.count(Event::GivenUp);
                self.withdraw_sender(receiving, node)
                    .map_err(Refused::from)
                    .and(Err(self.refusal(end)))
            };
            waiters::give_up(node);
            result
        };
        self.end_wait(me, end, deadline, work, || let_go_of_sender(node))
    }

    /// Sleeps until the node's word changes. Ends the wait of a sender if the queue is closed for sending, or is a ring without a receiving process.
    /// Ends the wait of a receiver at the end of the stream.
    pub(super) fn sleep(&self, sleeper: &Sleeper<'_>, index: u32) -> End {
        let is_sender = sleeper.list == List::Senders;
        if self.pacing.give_way_enlisted(|| sleeper.is_settled()) {
            return End::Settled;
        }
        sleeper.sleep(
            &self.segment().fixed().leases.due,
            || self.is_over_for(is_sender) && !sleeper.is_settled(),
            || {
                if is_sender && self.is_deserted() {
                    return true;
                }
                self.look_around(sleeper, index);
                false
            },
        )
    }

    /// Returns whether a wait is over although no process has settled its node.
    fn is_over_for(&self, is_sender: bool) -> bool {
        match is_sender {
            true => self.is_closed() || self.is_send_closed(),
            false => self.seems_at_end(),
        }
    }

    /// Checks the queue at the end of a slice. Does the work that a dead waker may have left undone, because this thread may be the only one to do
    /// it.
    fn look_around(&self, sleeper: &Sleeper<'_>, index: u32) {
        let (node, patience) = (sleeper.node, sleeper.deadline.or_slice(STOPPED));
        let _ = self.with_receiver_lock(sleeper.me, patience, |receiving, wakes| {
            if self.may_reclaim() {
                self.reclaim_leases(receiving, wakes)?;
            }
            self.close_if_left(receiving, sleeper.me, wakes);
            let waiters = Waiters::of(self.segment());
            for _ in 0..2 {
                // The node is in no list if its offer was withdrawn. The same state occurs if this thread left an earlier wait by longjmp and now
                // waits again.
                let is_out = waiters::state(node) == State::Waiting && List::of(node) == List::None;
                if is_out {
                    waiters.insert(receiving, sleeper.list, index)?;
                }
                self.update_wait_flags(receiving);
                // ATTENTION: the fence has the same purpose as the fence in `enlist_receiver`.
                fence(Ordering::SeqCst);
                self.serve(receiving, wakes)?;
                if List::of(node) != List::None {
                    break;
                }
            }
            self.update_wait_flags(receiving);
            Ok(())
        });
        self.do_chore();
    }
}

/// Handles the loss of the message that a waiting sender had written: turns the sender into the sender of a batch with one message. The sender keeps
/// its place in the list, and sends the message again at its turn. A salvage calls this function, and its process may die during the call.
#[cfg(not(loom))]
pub(super) fn lose_message(node: &Node) {
    node.wanted.set(1);
    node.offered_at.set(NEVER);
    node.slot.set(NO_SLOT);
}

/// Returns whether the message that a waiting sender had written was lost.
fn has_lost_message(node: &Node) -> bool {
    node.slot.get() == NO_SLOT
}

/// Releases a sender's node without the lock. Returns an outcome if the message is sent, otherwise `None`.
fn let_go_of_sender(node: &Node) -> Option<Option<()>> {
    if waiters::give_up_waiting(node) {
        return None;
    }
    // HANDOVER, by the acquire in `state`: this thread sees why the node was settled.
    if waiters::state(node) == State::Settled && has_lost_message(node) {
        // The node was settled because it was the sender's turn. Only this thread can send the message, so the message was not sent.
        waiters::give_up(node);
        return None;
    }
    // If a node can't be given up, its message was admitted. The node stays until its thread ends.
    Some(Some(()))
}

/// Returns the result of a call that did not enlist a node.
pub(super) fn finish_early<T>(
    enlisted: Result<Enlisted<'_, T>, Refused>,
    calm: Calm<'_>,
    deadline: Deadline,
) -> Result<Option<T>, Refused> {
    match enlisted? {
        Enlisted::Done(outcome) => Ok(Some(outcome)),
        Enlisted::NoNode => nap(calm, deadline).map(|()| None),
        Enlisted::Waiting(_) => Ok(None),
    }
}

/// Returns the deadline for the lock at the end of a wait. After a hand-off, the call waits until the caller's deadline. After an interruption, the
/// call waits like a non-blocking call, because it may already have its message. After a time-out, the call waits for a grace period.
fn last_patience(end: End, deadline: Deadline) -> Deadline {
    match end {
        End::Settled if !deadline.is_within(GRACE.as_nanos() as u64) => deadline,
        End::Interrupted => Deadline::Passed,
        _ => Deadline::after(GRACE),
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::posix_engine::segment::testing;
    use crate::sys::thread;
    use std::time::Duration;

    /// The receiver's deadline is shorter than the sum of one slice for each node, so the test fails if each node delays the receiver by a slice.
    #[test]
    fn nodes_that_a_thread_has_jumped_away_from_hold_up_a_message_together_as_long_as_one() {
        let engine = Engine::new(testing::segment(4, 8));
        let (me, waiters) = (thread::current(), Waiters::of(engine.segment()));
        for _ in 0..50 {
            let (index, _) = waiters
                .claim(ReceiverHeld::in_test(), me, 0, UNRANKED)
                .unwrap()
                .unwrap();
            waiters
                .insert(ReceiverHeld::in_test(), List::Receivers, index)
                .unwrap();
        }
        engine.update_wait_flags(ReceiverHeld::in_test());
        std::thread::scope(|scope| {
            scope.spawn(|| {
                std::thread::sleep(Duration::from_millis(20));
                let sender = thread::current();
                engine.send(sender, b"m", 0, Deadline::Passed).unwrap();
            });
            let end = Deadline::after(Duration::from_millis(4500));
            let received = engine.receive(me, &mut [0; 8], end);
            assert!(received.is_ok(), "{:?}", received.err());
        });
    }

    /// In this test, the owner of the lock has offered the message, and does not run for longer than the grace period.
    #[test]
    #[allow(unsafe_code, reason = "a signal is sent by calls of libc")]
    fn a_signal_does_not_interrupt_a_receiver_that_has_its_message() {
        extern "C" fn nothing(_: i32) {}
        let handler = nothing as extern "C" fn(i32);
        // SAFETY: the handler does nothing. All zeros are a valid sigaction without flags, so the signal interrupts a wait.
        unsafe {
            let mut action: libc::sigaction = std::mem::zeroed();
            action.sa_sigaction = handler as libc::sighandler_t;
            libc::sigaction(libc::SIGURG, &raw const action, std::ptr::null_mut());
        }
        let engine = Engine::new(testing::segment(4, 8));
        let (me, waiters) = (thread::current(), Waiters::of(engine.segment()));
        let (tell, told) = std::sync::mpsc::channel();
        std::thread::scope(|scope| {
            let receiver = scope.spawn(|| {
                // SAFETY: the call has no preconditions.
                tell.send(unsafe { libc::pthread_self() }).unwrap();
                let me = thread::current();
                engine
                    .receive(me, &mut [0; 8], Deadline::Never)
                    .map(|taken| taken.len)
            });
            let receiving_thread = told.recv().unwrap();
            while waiters.len(List::Receivers) == 0 {
                std::thread::yield_now();
            }
            let mut wakes = DeferredWakes::default();
            let held = engine
                .lock_receiver(me, Deadline::Never, &mut wakes)
                .unwrap();
            let receiving = held.receiver();
            let sender = scope.spawn(|| engine.send(thread::current(), b"job", 0, Deadline::Never));
            while waiters.len(List::Receivers) != 0 {
                engine.hand_over(receiving, &mut wakes).unwrap();
            }
            // SAFETY: the scope joins the thread later, so the thread still exists.
            let killed = unsafe { libc::pthread_kill(receiving_thread, libc::SIGURG) };
            assert_eq!(killed, 0);
            std::thread::sleep(5 * GRACE);
            held.unlock();
            engine.wake(&wakes);
            assert_eq!(receiver.join().unwrap().ok(), Some(3));
            sender.join().unwrap().unwrap();
        });
    }
}
