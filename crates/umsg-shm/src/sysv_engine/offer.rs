//! Hand-off of messages to waiting receivers, and the end of offers. The caller of each function holds the lock.
//!
//! A hand-off notes the message in the receiver's waiter record, and then settles the word of the record's node. From then on
//! the message belongs to the node, even while other words still say that the message is queued. The waiting thread copies the
//! message and accepts it with one compare-and-swap. The next holder of the lock frees the slot.

use super::Engine;
use super::segment::Reply;
use super::wait::Waiter;
use crate::counters::Event;
use crate::crash::crash_point;
use crate::fault::Fault;
use crate::lock::SLICE;
use crate::lock::deferred_wakes::DeferredWakes;
use crate::lock::tokens::ReceiverHeld;
use crate::report::What;
use crate::sys::clock;
use crate::sys::thread::Thread;
use crate::sysv_engine::order::{TypeIndexStore, Want};
use crate::waiters::{self, List, State};
use crate::waiters::{NODES, Node};
use std::ops::ControlFlow;

/// The greatest number of waiter records that a list can have. A longer list is corrupted: it has a cycle.
const BOUND: usize = NODES;

/// The time, in nanoseconds of the coarse clock, after which an unanswered offer is withdrawn.
///
/// This time is a clock tick (10 ms) shorter than a slice, because the coarse clock may be a tick behind. So a thread that falls asleep right after
/// an offer was made finds the offer overdue after one slice.
const TIME: u64 = SLICE - 10_000_000;

impl Engine {
    /// Visits the waiter records of a list in order, until a visit returns `Break`. A visit may take its waiter record off the list.
    pub(super) fn each_waiter(
        &self,
        list: List,
        mut visit: impl FnMut(Waiter<'_>) -> Result<ControlFlow<()>, Fault>,
    ) -> Result<(), Fault> {
        let waiters = self.waiters();
        let mut next = waiters.first(list)?;
        let mut bound = BOUND;
        while let Some((index, node)) = next {
            bound = bound.checked_sub(1).ok_or(Fault::Damaged)?;
            next = waiters.next(node)?;
            let record = self.segment().waiter_record(index)?;
            if visit(Waiter { index, record })?.is_break() {
                break;
            }
        }
        Ok(())
    }

    /// Offers a message to the first waiting receiver that wants it. Returns false if no receiver takes it.
    ///
    /// The wait of a receiver whose buffer is too small ends with an error, and the next receiver gets the message.
    /// Source: pipelined_send in linux/ipc/msg.c.
    #[inline(never)]
    pub(super) fn offer(
        &self,
        receiving: ReceiverHeld<'_>,
        slot: u32,
        mtype: i64,
        len: usize,
        wakes: &mut DeferredWakes,
    ) -> Result<bool, Fault> {
        let mut taken = false;
        self.each_waiter(List::Receivers, |waiter| {
            if waiters::state(waiter.node()) != State::Waiting {
                self.withdraw(receiving, waiter)?;
                return Ok(ControlFlow::Continue(()));
            }
            if !is_wanted(waiter.record.want(), mtype) {
                return Ok(ControlFlow::Continue(()));
            }
            taken = self.offer_to(receiving, waiter, slot, len, wakes)?;
            Ok(match taken {
                true => ControlFlow::Break(()),
                false => ControlFlow::Continue(()),
            })
        })?;
        Ok(taken)
    }

    /// Offers a message to a receiver that wants it. Returns false if the receiver can't take the message; the wait of the receiver has then ended.
    fn offer_to(
        &self,
        receiving: ReceiverHeld<'_>,
        waiter: Waiter<'_>,
        slot: u32,
        len: usize,
        wakes: &mut DeferredWakes,
    ) -> Result<bool, Fault> {
        let node = waiter.node();
        if !self.is_judged(waiter) {
            let _ = self.reply(receiving, waiter, Reply::Rejudge, wakes);
            self.waiters().remove(receiving, node)?;
            return Ok(false);
        }
        if waiter.record.size() < len as u64 {
            waiter.record.note_too_long(receiving, len);
            let _ = self.reply(receiving, waiter, Reply::TooSmall, wakes);
            self.waiters().remove(receiving, node)?;
            return Ok(false);
        }
        node.slot.set(slot);
        node.offered_at.set(clock::monotonic_coarse());
        crash_point!(MSG_NOTED);
        if !self.reply(receiving, waiter, Reply::Message, wakes) {
            self.waiters().remove(receiving, node)?;
            return Ok(false);
        }
        crash_point!(MSG_OFFERED);
        self.waiters()
            .relocate(receiving, node, waiter.index, List::Offered)?;
        // The receiver is noted by the id of its thread, as in the kernel.
        self.fixed().control.note_receive(node.tid.get());
        self.fixed().counters.count(Event::HandedOver);
        Ok(true)
    }

    /// Removes the offers that have an outcome or are overdue.
    ///
    /// - The slot of an accepted offer becomes free.
    /// - The message of a dead thread or of a thread that gave up goes back to the queue.
    /// - An offer that is unanswered for [`TIME`] goes back, too: a stopped receiver must not withhold a message.
    ///
    /// The function first removes the offer that the caller itself has accepted, so the caller mostly uses the same waiter record each time. Then it
    /// removes the other offers in the order in which they were made, up to the first offer whose time is not over. So a call does not visit all
    /// receivers that are about to wake.
    #[inline(never)]
    pub(super) fn reap(
        &self,
        receiving: ReceiverHeld<'_>,
        me: &Thread,
        wakes: &mut DeferredWakes,
    ) -> Result<(), Fault> {
        if let Some(index) = me.taken_up.recall(self.address()) {
            let node = self.segment().waiter_record(index)?.node();
            if List::of(node) == List::Offered && waiters::state(node) == State::Accepted {
                self.clear_away(receiving, node)?;
            }
        }
        let now = clock::monotonic_coarse();
        self.each_waiter(List::Offered, |waiter| {
            let node = waiter.node();
            match waiters::state(node) {
                State::Accepted => self.clear_away(receiving, node)?,
                State::Settled if !waiters::is_over(node.offered_at.get(), TIME, now) => {
                    return Ok(ControlFlow::Break(()));
                }
                // The receiver accepts the offer, or gives up, at this moment: the next call removes the offer.
                State::Settled if !waiters::unsettle(node) => {}
                State::Settled => {
                    // A living thread checks the queue again when it continues. The node of a dead thread becomes free.
                    if waiters::is_orphan(self.segment(), node) {
                        waiters::give_up(node);
                    }
                    self.waiters().pass_over(receiving, node)?;
                    self.put_back(receiving, waiter, wakes)?;
                }
                State::DiedSettled | State::DiedWaiting => {
                    self.fixed().counters.count(Event::WaiterDied);
                    self.report(What::WaiterDied, node.pid.get());
                    wakes.add_reports();
                    self.put_back(receiving, waiter, wakes)?;
                }
                State::Free | State::Waiting => self.put_back(receiving, waiter, wakes)?,
            }
            Ok(ControlFlow::Continue(()))
        })
    }

    /// Frees the slot of an accepted offer.
    fn clear_away(&self, receiving: ReceiverHeld<'_>, node: &Node) -> Result<(), Fault> {
        let slot = node.slot.get();
        // The message is removed from the cell before the node leaves its list, because a node in this list owns its slot.
        self.segment().cell(slot)?.end();
        self.waiters().remove(receiving, node)?;
        crash_point!(MSG_REAPED);
        self.push_free(receiving, slot)
    }

    /// Withdraws an offer: the message goes to the next waiter that wants it, or to its old place in the order.
    fn put_back(
        &self,
        receiving: ReceiverHeld<'_>,
        waiter: Waiter<'_>,
        wakes: &mut DeferredWakes,
    ) -> Result<(), Fault> {
        let slot = waiter.node().slot.get();
        self.provide_for(receiving, slot)?;
        self.waiters().remove(receiving, waiter.node())?;
        crash_point!(MSG_PUT_BACK);
        self.return_to_queue(receiving, slot, wakes)
    }

    /// Allocates the memory that a message needs in the order, before the message comes back.
    pub(super) fn provide_for(&self, _: ReceiverHeld<'_>, slot: u32) -> Result<(), Fault> {
        let mtype = self.segment().cell(slot)?.mtype();
        self.order().provide(mtype)
    }

    /// Puts a message back: it goes to the next waiter that wants it, or into the order at the place of its number. The caller has called
    /// [`provide_for`](Self::provide_for).
    pub(super) fn return_to_queue(
        &self,
        receiving: ReceiverHeld<'_>,
        slot: u32,
        wakes: &mut DeferredWakes,
    ) -> Result<(), Fault> {
        let found = self.found(slot)?;
        let (mtype, len) = (found.mtype(), found.len);
        if self.offer(receiving, slot, mtype, len, wakes)? {
            return Ok(());
        }
        let sequence = self.segment().place(slot)?.sequence();
        self.order().insert(receiving, slot, mtype, sequence)?;
        self.fixed().control.count_queued(receiving, 1, len as i64);
        Ok(())
    }

    /// Serves every waiter that can be served. Without a death, there is no such waiter, because each message is offered when it is sent.
    pub(super) fn serve(
        &self,
        receiving: ReceiverHeld<'_>,
        wakes: &mut DeferredWakes,
    ) -> Result<(), Fault> {
        self.each_waiter(List::Receivers, |waiter| {
            self.serve_receiver(receiving, waiter, wakes)
                .map(|()| ControlFlow::Continue(()))
        })?;
        self.admit(receiving, wakes)
    }

    /// Serves one waiter, the caller. If each waiter served all other waiters after each slice, the cost would grow with the square of their number.
    pub(super) fn serve_one(
        &self,
        receiving: ReceiverHeld<'_>,
        waiter: Waiter<'_>,
        list: List,
        wakes: &mut DeferredWakes,
    ) -> Result<(), Fault> {
        // The waiter was offered a message meanwhile, so it is in another list.
        if List::of(waiter.node()) != list {
            return Ok(());
        }
        match list {
            List::Senders if self.fits(waiter) => self.admit(receiving, wakes),
            List::Receivers => self.serve_receiver(receiving, waiter, wakes),
            _ => Ok(()),
        }
    }

    fn serve_receiver(
        &self,
        receiving: ReceiverHeld<'_>,
        waiter: Waiter<'_>,
        wakes: &mut DeferredWakes,
    ) -> Result<(), Fault> {
        if waiters::state(waiter.node()) != State::Waiting {
            return self.withdraw(receiving, waiter);
        }
        let Some(slot) = self.order().first(waiter.record.want())? else {
            return Ok(());
        };
        let len = self.len_of(self.segment().cell(slot)?)?;
        if self.offer_to(receiving, waiter, slot, len, wakes)? {
            self.unqueue(receiving, slot, len)?;
        }
        Ok(())
    }
}

/// Returns whether a receiver wants a message of this type. Source: testmsg in linux/ipc/msg.c.
pub(super) fn is_wanted(want: Want, mtype: i64) -> bool {
    match want {
        Want::Any => true,
        Want::Exactly(wanted) => mtype == wanted,
        Want::Except(unwanted) => mtype != unwanted,
        Want::Lowest(most) => mtype <= most,
    }
}
