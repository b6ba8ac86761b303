//! Waiting: a thread takes a waiter record, which says what the thread waits for, and sleeps in slices.
//!
//! | reply | addressed to | the waiter |
//! |---|---|---|
//! | `Message` | a receiver | takes the message in its node's slot, with one compare-and-swap and without the lock |
//! | `TooSmall` | a receiver | fails, because its buffer is too small; the message went to the next receiver |
//! | `Sent` | a sender | succeeds: its message is sent |
//! | `Retry` | a sender of a batch | tries again: there is room |
//! | `Rejudge` | both | checks its permission again, and waits again in its old place among the waiters |
//! | `Removed` | both | fails, because the queue was removed |
//!
//! A reply is stored before the node's word says that the wait has an outcome ([`crate::waiters::settle`]).

use super::segment::{Choice, Reply, WaiterRecord};
use super::{Engine, Refused, Why};
use crate::counters::Event;
use crate::crash::crash_point;
use crate::fault::Fault;
use crate::lock::deferred_wakes::DeferredWakes;
use crate::lock::tokens::ReceiverHeld;
use crate::lock::{Held, STOPPED};
use crate::report::{self, Subject, What};
use crate::sync::{Ordering, fence};
use crate::sys::clock::Deadline;
use crate::sys::thread::{Calm, Outer, Thread};
use crate::waiters::pacing::spin_until;
use crate::waiters::wait::{self, End, GRACE, Sleeper, nap};
use crate::waiters::{self, List, State};
use crate::waiters::{NO_SLOT, Node};
use std::cell::Cell;

/// One call of a thread: its thread, its deadline and the state of its wait.
pub struct Call<'a> {
    pub(crate) me: &'a Thread,
    pub(crate) calm: Calm<'a>,
    pub(crate) deadline: Deadline,
    /// The version of the queue's rights under which the caller's permission was checked.
    pub(super) rights: u32,
    /// True if the call fails at the end of a stream, unlike msgrcv(2).
    heeds_end: bool,
    /// The ticket of an earlier wait of this call; 0 for none. With this ticket, the call keeps its place among the waiters.
    ticket: Cell<u64>,
    /// True if a signal has interrupted a wait of this call, and the call makes one more attempt.
    is_interrupted: Cell<bool>,
    /// The word that the thread had named to the kernel before it named its node; None while it names no node.
    outer: Cell<Option<Outer>>,
}

impl<'a> Call<'a> {
    /// Returns whether the call has waited before, and is attempting again.
    pub(super) fn has_waited(&self) -> bool {
        self.ticket.get() != 0
    }

    pub fn new(me: &'a Thread, deadline: Deadline) -> Call<'a> {
        Call {
            me,
            calm: me.interruptions.calm_without_handlers(),
            deadline,
            rights: 0,
            heeds_end: false,
            ticket: Cell::new(0),
            is_interrupted: Cell::new(false),
            outer: Cell::new(None),
        }
    }

    /// Notes the version of the queue's rights under which the caller's permission was checked.
    #[inline(always)]
    pub fn set_rights(&mut self, version: u32) {
        self.rights = version;
    }

    /// Makes a receive fail at the end of a stream.
    #[inline(always)]
    pub fn heed_end(&mut self) {
        self.heeds_end = true;
    }

    #[inline(always)]
    pub(super) fn heeds_end(&self) -> bool {
        self.heeds_end
    }

    /// Removes the node's name from the kernel's record of this thread, before the thread gives the node up.
    ///
    /// FOREIGN_MARK: a node that was given up may belong to a thread of another PID namespace with the same thread id.
    pub(super) fn unname(&self) {
        if let Some(outer) = self.outer.take() {
            self.me.unname(outer);
        }
    }
}

/// The outcome of an attempt: see [`wait::Enlisted`].
pub(super) type Enlisted<'a, T> = wait::Enlisted<Waiter<'a>, T>;

/// A waiter record, and its index.
#[derive(Clone, Copy)]
pub(super) struct Waiter<'a> {
    pub(super) index: u32,
    pub(super) record: &'a WaiterRecord,
}

impl<'a> Waiter<'a> {
    pub(super) fn node(self) -> &'a Node {
        self.record.node()
    }
}

/// A function that attempts the operation of a call under the lock. If the attempt fails, the function takes a waiter record.
type Enlist<'e, 'a, T> =
    dyn FnMut(ReceiverHeld<'_>, &mut DeferredWakes) -> Result<Enlisted<'a, T>, Refused> + 'e;

impl Engine {
    /// Ends a wait with a reply, and notes the wake-up in `wakes`. Returns false if the waiter has given up or died.
    #[must_use]
    pub(super) fn reply(
        &self,
        receiving: ReceiverHeld<'_>,
        to: Waiter<'_>,
        reply: Reply,
        wakes: &mut DeferredWakes,
    ) -> bool {
        let settled = to.record.answer(receiving, reply);
        if settled {
            wakes.add(to.index);
        }
        settled
    }

    /// Returns whether the waiter's permission was checked under the current rights. If not, the waiter has to check again. There are two kinds of
    /// such waiters. A change of the rights does not wake a sender without room for its message. A process that dies while it changes the rights does
    /// not wake the remaining waiters.
    pub(super) fn is_judged(&self, waiter: Waiter<'_>) -> bool {
        waiter.record.rights() == self.fixed().rights.version()
    }

    /// Attempts to send under the lock. If there is no room, waits for room until the call's deadline.
    pub(super) fn attempt_or_wait_for_room<'a>(
        &'a self,
        call: &Call<'_>,
        mut attempt: impl FnMut(ReceiverHeld<'_>, &mut DeferredWakes) -> Result<(), Refused>,
        mut claim_record: impl FnMut(ReceiverHeld<'_>) -> Result<Enlisted<'a, ()>, Refused>,
    ) -> Result<(), Refused> {
        match self.with_lock(call.me, call.deadline, &mut attempt) {
            Err(Refused::NotNow) if !call.deadline.has_passed() => {}
            other => return other.map_err(|refused| refused.by(call.deadline)),
        }
        self.fixed().counters.count(Event::SendBlocked);
        let mut enlist = |receiving: ReceiverHeld<'_>, wakes: &mut DeferredWakes| match attempt(
            receiving, wakes,
        ) {
            Err(Refused::NotNow) => claim_record(receiving),
            other => other.map(Enlisted::Done),
        };
        self.wait_for(call, List::Senders, &mut enlist, &mut |_| Ok(Some(())))
    }

    /// Takes a waiter record for the caller and puts the record into the list of receivers or of senders. Returns None if all waiter records are in
    /// use.
    pub(super) fn claim_record(
        &self,
        receiving: ReceiverHeld<'_>,
        call: &Call<'_>,
        choice: Choice,
    ) -> Result<Option<Waiter<'_>>, Fault> {
        let (slot, list) = match choice {
            Choice::Message { .. } => (NO_SLOT, List::Receivers),
            Choice::Room { slot, .. } => (slot, List::Senders),
        };
        let Some((index, node)) = self.waiters().claim(receiving, call.me, slot, FIFO)? else {
            return Ok(None);
        };
        if call.ticket.get() != 0 {
            node.ticket.set(call.ticket.get());
        }
        let record = self.segment().waiter_record(index)?;
        record.begin(receiving, choice, call.rights);
        crash_point!(MSG_CLAIMED);
        self.waiters().insert(receiving, list, index)?;
        crash_point!(MSG_LISTED);
        Ok(Some(Waiter { index, record }))
    }

    /// Takes a waiter record for the caller after a failed attempt.
    pub(super) fn enlist<T>(
        &self,
        receiving: ReceiverHeld<'_>,
        call: &Call<'_>,
        choice: Choice,
    ) -> Result<Enlisted<'_, T>, Refused> {
        let waiter = self.claim_record(receiving, call, choice)?;
        Ok(waiter.map_or(Enlisted::NoNode, Enlisted::Waiting))
    }

    /// Waits in a list. `enlist` makes one more attempt under the lock, and takes a waiter record if the attempt fails.
    ///
    /// `accept` takes the message that was offered to the waiter record, without the lock. `accept` returns None if the offer was withdrawn.
    pub(super) fn wait_for<'a, T>(
        &'a self,
        call: &Call<'_>,
        list: List,
        enlist: &mut Enlist<'_, 'a, T>,
        accept: &mut dyn FnMut(Waiter<'_>) -> Result<Option<T>, Refused>,
    ) -> Result<T, Refused> {
        let began = report::begin_wait();
        let outcome = self.wait_until_over(call, list, enlist, accept);
        let what = match list {
            List::Senders => What::WaitedForRoom,
            _ => What::WaitedForMessage,
        };
        report::end_wait(what, Subject::Id(self.fixed().header.id()), began);
        outcome
    }

    fn wait_until_over<'a, T>(
        &'a self,
        call: &Call<'_>,
        list: List,
        enlist: &mut Enlist<'_, 'a, T>,
        accept: &mut dyn FnMut(Waiter<'_>) -> Result<Option<T>, Refused>,
    ) -> Result<T, Refused> {
        let mut is_over = false;
        loop {
            let waited = self.wait_once(call, list, enlist, accept);
            match waited {
                Ok(Some(outcome)) => return Ok(outcome),
                // The deadline has passed: the call makes one more attempt, because a message or room may be available by now.
                Ok(None) if !is_over => is_over = call.deadline.has_passed(),
                Ok(None) => return Err(Refused::TimedOut.by(call.deadline)),
                Err(Refused::Fault(Fault::Busy)) if !call.deadline.has_passed() => {}
                Err(refused) => return Err(refused.by(call.deadline)),
            }
        }
    }

    /// Waits once. Returns None if the caller has to try again.
    fn wait_once<'a, T>(
        &'a self,
        call: &Call<'_>,
        list: List,
        enlist: &mut Enlist<'_, 'a, T>,
        accept: &mut dyn FnMut(Waiter<'_>) -> Result<Option<T>, Refused>,
    ) -> Result<Option<T>, Refused> {
        let mut wakes = DeferredWakes::default();
        let held = self.lock(call.me, call.deadline, &mut wakes)?;
        let receiving = held.receiver();
        let enlisted = self
            .enter(receiving, call.me, &mut wakes)
            .and_then(|()| enlist(receiving, &mut wakes));
        let (waiter, outer) = match enlisted {
            Ok(Enlisted::Waiting(waiter)) => {
                let name = |held: Held<'_>| held.unlock_and_name(&waiter.node().word);
                (waiter, self.leave(held, &mut wakes, name))
            }
            other => {
                self.leave(held, &mut wakes, Held::unlock);
                self.segment().check()?;
                return match other? {
                    Enlisted::Done(outcome) => Ok(Some(outcome)),
                    _ => nap(call.calm, call.deadline).map(|()| None),
                };
            }
        };
        crash_point!(MSG_NAMED);
        let end = match call.is_interrupted.get() {
            true => End::Interrupted,
            false => self.sleep(call, waiter, list),
        };
        call.is_interrupted.set(end == End::Interrupted);
        crash_point!(MSG_WOKEN);
        call.outer.set(Some(outer));
        let result = self.end_wait(call, waiter, end, accept);
        call.unname();
        self.segment().check()?;
        result
    }

    /// Spins, then sleeps in slices, until the node's word changes. The thread sleeps in slices because a wake-up is lost if the thread that should
    /// send it dies.
    fn sleep(&self, call: &Call<'_>, me: Waiter<'_>, list: List) -> End {
        let node = me.node();
        let settled = || waiters::state(node) != State::Waiting;
        if self.spin(call, settled) || self.pacing.give_way(settled) {
            return End::Settled;
        }
        let sleeper = Sleeper {
            me: call.me,
            node,
            list,
            calm: call.calm,
            deadline: call.deadline,
        };
        sleeper.sleep(
            &self.fixed().leases.due,
            || {
                me.record.fall_asleep();
                // ASLEEP: pairs with the fences in `wake` and `remove_unlocked`.
                fence(Ordering::SeqCst);
                self.is_removed()
            },
            // `is_removed` is called first, because it needs no lock: the lock's owner may never release the lock.
            || {
                self.is_removed()
                    || self.look_around(call, me, list) == Err(Refused::Own(Why::Removed))
            },
        )
    }

    fn spin(&self, call: &Call<'_>, ready: impl Fn() -> bool) -> bool {
        let budget = self.pacing.allowance();
        if budget == 0 {
            return false;
        }
        let paid = spin_until(budget, call.calm, call.deadline, ready);
        if budget != u32::MAX {
            self.pacing.learn(budget, paid);
        }
        if paid {
            self.fixed().counters.count(Event::SpinPaid);
        }
        paid
    }

    /// Checks the queue at the end of a slice: does the work that a dead waker left undone, and ends overdue leases.
    fn look_around(&self, call: &Call<'_>, me: Waiter<'_>, list: List) -> Result<(), Refused> {
        self.with_lock(
            call.me,
            call.deadline.or_slice(STOPPED),
            |receiving, wakes| {
                // An offer to this waiter was withdrawn, so its record goes into the list again.
                if waiters::state(me.node()) == State::Waiting && List::of(me.node()) == List::None
                {
                    self.waiters().insert(receiving, list, me.index)?;
                }
                self.reclaim_if_due(receiving, wakes)?;
                if list == List::Senders {
                    self.close_if_left(receiving, wakes)?;
                }
                self.serve_one(receiving, me, list, wakes)?;
                self.send_back_if_unjudged(receiving, me, list, wakes)?;
                if call.heeds_end && list == List::Receivers {
                    self.end_if_over(receiving, me, wakes)?;
                }
                Ok(())
            },
        )
    }

    /// Ends a wait: takes the outcome of the wait, or gives up the wait if there is no outcome. Returns None if the caller has to try again.
    fn end_wait<T>(
        &self,
        call: &Call<'_>,
        me: Waiter<'_>,
        end: End,
        accept: &mut dyn FnMut(Waiter<'_>) -> Result<Option<T>, Refused>,
    ) -> Result<Option<T>, Refused> {
        // A node with a reply is not given up: to take the lock for that would withdraw an old offer, and another thread could get its message.
        let has_reply = waiters::state(me.node()) == State::Settled;
        if end != End::Settled && !has_reply && self.gives_up(call, me)? {
            return Err(end.refused(Refused::Own(Why::Removed)));
        }
        let reply = match waiters::state(me.node()) {
            State::Settled => me.record.reply(),
            // The offer was withdrawn, so the caller tries again.
            _ => Some(Reply::Retry),
        };
        if reply == Some(Reply::Message) {
            return self.end_offer(call, me, accept(me));
        }
        if reply == Some(Reply::Sent) {
            // Crash point MSG_ADMITTED: the thread that admitted this sender may die before the message has its number. So the node keeps saying that
            // the message is sent, until a holder of the lock takes the node off its list.
            call.unname();
            let _ = waiters::accept(me.node());
            return accept(me);
        }
        let (ticket, longest) = (me.node().ticket.get(), me.record.size());
        call.unname();
        waiters::give_up(me.node());
        match reply {
            Some(Reply::Retry) => {
                call.ticket.set(ticket);
                Ok(None)
            }
            Some(Reply::TooSmall) => Err(Refused::Own(Why::TooSmall {
                len: longest as usize,
            })),
            Some(Reply::Rejudge) => {
                call.ticket.set(ticket);
                Err(Refused::Own(Why::Rejudge))
            }
            Some(Reply::Removed) => Err(Refused::Own(Why::Removed)),
            Some(Reply::Message | Reply::Sent) | None => Err(Fault::Damaged.into()),
        }
    }

    /// Ends the wait of a receiver that got an offer; `taken` is the result of taking the message. If no message was taken, the function gives up the
    /// node.
    fn end_offer<T>(
        &self,
        call: &Call<'_>,
        me: Waiter<'_>,
        taken: Result<Option<T>, Refused>,
    ) -> Result<Option<T>, Refused> {
        if matches!(taken, Ok(Some(_))) {
            call.me.taken_up.remember(self.address(), me.index);
            return taken;
        }
        // Another thread may withdraw the offer while this thread reads the message. The slot may then hold half of another message, which looks like
        // corruption.
        let is_withdrawn = waiters::state(me.node()) != State::Settled;
        call.unname();
        waiters::give_up(me.node());
        match taken {
            Err(Refused::Fault(Fault::Damaged)) if is_withdrawn => Ok(None),
            taken => taken,
        }
    }

    /// Gives up a wait. Returns false if a reply came first. Also returns false if an offer was withdrawn, because this thread did not run for a slice:
    /// the caller tries once more, because the message may still be in the queue.
    fn gives_up(&self, call: &Call<'_>, me: Waiter<'_>) -> Result<bool, Refused> {
        let patience = Deadline::after(GRACE);
        // The node's name is removed from the kernel's record before the lock is taken: taking the lock would name the node to the kernel again.
        call.unname();
        let given_up = self.with_lock(call.me, patience, |receiving, _| {
            let is_withdrawn = List::of(me.node()) == List::None;
            if is_withdrawn || waiters::state(me.node()) == State::Settled {
                return Ok(false);
            }
            self.fixed().counters.count(Event::GivenUp);
            self.withdraw(receiving, me)?;
            waiters::give_up(me.node());
            Ok(true)
        });
        // The lock's owner is stopped, or the queue is removed or corrupted. The node is given up here without the lock, and a later call frees it.
        given_up.or_else(
            |refused| match (waiters::give_up_waiting(me.node()), refused) {
                (given_up, Refused::Fault(Fault::Busy) | Refused::Own(Why::Removed)) => {
                    Ok(given_up)
                }
                (_, refused) => Err(refused),
            },
        )
    }

    /// Takes a node off its list. Frees the slot of a parked message, which was never sent.
    pub(super) fn withdraw(
        &self,
        receiving: ReceiverHeld<'_>,
        waiter: Waiter<'_>,
    ) -> Result<(), Fault> {
        let (node, list) = (waiter.node(), List::of(waiter.node()));
        if waiters::has_died(node) {
            self.fixed().counters.count(Event::WaiterDied);
        }
        self.waiters().remove(receiving, node)?;
        let slot = node.slot.get();
        if list == List::Senders && slot != NO_SLOT {
            self.release(receiving, slot)?;
        }
        Ok(())
    }
}

/// The rank of every waiter: System V queues serve waiters in order of arrival, whatever the priorities of their threads are.
const FIFO: u32 = 0;
