//! Handing messages over: to whom, what if it is not taken up. Under the lock.
//!
//! A hand-over is: note the message in the seat, settle its node's word. From then on the message is the node's, whatever
//! else still says that it is queued. Its thread copies the message and accepts it with one CAS; the next holder of the lock
//! frees the slot.

use super::Engine;
use super::wait::{Reply, Seated, want_of};
use crate::counters::Event;
use crate::crash::crash_point;
use crate::fault::Fault;
use crate::lock::SLICE;
use crate::lock::deferred_wakes::DeferredWakes;
use crate::lock::tokens::ReceiverHeld;
use crate::sys::clock;
use crate::sys::thread::Thread;
use crate::sysv_engine::order::{TypeIndexStore, Want};
use crate::waiters::{self, List, State};
use crate::waiters::{NODES, Node};

/// Longest walk over a list: a longer one was scribbled into a circle.
const BOUND: usize = NODES;

/// How long an offer may go unanswered, in nanoseconds of the coarse clock, which may be a tick of 10 ms behind: a thread that went to sleep
/// after it was made finds at the end of a slice that its time is over, and need not sleep another.
const TIME: u64 = SLICE - 10_000_000;

impl Engine {
    /// The seats of a list, in order. Each may be taken off the list while it is looked at.
    pub(super) fn each_seat(
        &self,
        list: List,
        mut visit: impl FnMut(Seated<'_>) -> Result<Walk, Fault>,
    ) -> Result<(), Fault> {
        let waiters = self.waiters();
        let mut next = waiters.first(list)?;
        let mut bound = BOUND;
        while let Some((index, node)) = next {
            bound = bound.checked_sub(1).ok_or(Fault::Damaged)?;
            next = waiters.next(node)?;
            let seat = self.segment().seat(index)?;
            if visit(Seated { index, seat })? == Walk::Ends {
                break;
            }
        }
        Ok(())
    }

    /// Offers a message to the first receiver that waits for it. Those whose buffers are too small for it are told so, and
    /// the next one gets it. Source: pipelined_send in linux/ipc/msg.c.
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
        self.each_seat(List::Receivers, |who| {
            if waiters::state(who.node()) != State::Waiting {
                self.waiters().remove(receiving, who.node())?;
                return Ok(Walk::GoesOn);
            }
            if !is_wanted(want_of(who.seat), mtype) {
                return Ok(Walk::GoesOn);
            }
            taken = self.offer_to(receiving, who, slot, len, wakes)?;
            Ok(if taken { Walk::Ends } else { Walk::GoesOn })
        })?;
        Ok(taken)
    }

    /// Offers a message to a receiver that wants it. False if it can't take it; then it waits no more.
    fn offer_to(
        &self,
        receiving: ReceiverHeld<'_>,
        who: Seated<'_>,
        slot: u32,
        len: usize,
        wakes: &mut DeferredWakes,
    ) -> Result<bool, Fault> {
        let node = who.node();
        if !self.is_judged(who) {
            let _ = self.reply(who, Reply::Rejudge, wakes);
            self.waiters().remove(receiving, node)?;
            return Ok(false);
        }
        if who.seat.size.get() < len as u64 {
            who.seat.size.set(len as u64);
            let _ = self.reply(who, Reply::TooSmall, wakes);
            self.waiters().remove(receiving, node)?;
            return Ok(false);
        }
        node.slot.set(slot);
        node.offered_at.set(clock::monotonic_coarse());
        crash_point!(MSG_NOTED);
        if !self.reply(who, Reply::Message, wakes) {
            self.waiters().remove(receiving, node)?;
            return Ok(false);
        }
        crash_point!(MSG_OFFERED);
        self.waiters()
            .relocate(receiving, node, who.index, List::Offered)?;
        // The thread, not its process: so does the kernel.
        self.note_receive(node.tid.get());
        self.fixed().counters.count(Event::HandedOver);
        Ok(true)
    }

    /// Clears away what became of offers: accepted ones leave a free slot; those of the dead, of threads that gave up, and of threads that have
    /// not reacted for a slice go back, because a stopped receiver must not swallow a message. First what the caller itself
    /// has accepted: so it takes no more than one seat, and mostly the same. Then in the order in which they
    /// were made, up to one that still has its time: a call does not look at all that are about to wake.
    #[inline(never)]
    pub(super) fn reap(
        &self,
        receiving: ReceiverHeld<'_>,
        me: &Thread,
        wakes: &mut DeferredWakes,
    ) -> Result<(), Fault> {
        if let Some(index) = me.taken_up.recall(self.address()) {
            let node = &self.segment().seat(index)?.node;
            if List::of(node) == List::Offered && waiters::state(node) == State::Accepted {
                self.clear_away(receiving, node)?;
            }
        }
        let now = clock::monotonic_coarse();
        self.each_seat(List::Offered, |who| {
            let node = who.node();
            match waiters::state(node) {
                State::Accepted => self.clear_away(receiving, node)?,
                State::Settled if !waiters::is_over(node.offered_at.get(), TIME, now) => {
                    return Ok(Walk::Ends);
                }
                // It was taken up, or given up, just now: the next call sees to it.
                State::Settled if !waiters::unsettle(node) => {}
                State::Settled => {
                    // Its thread looks by itself when it goes on; a dead one's node is free.
                    if waiters::is_orphan(self.segment(), node) {
                        waiters::give_up(node);
                    }
                    self.waiters().pass_over(receiving, node)?;
                    self.put_back(receiving, who, wakes)?;
                }
                State::DiedSettled | State::DiedWaiting => {
                    self.fixed().counters.count(Event::WaiterDied);
                    self.put_back(receiving, who, wakes)?;
                }
                State::Free | State::Waiting => self.put_back(receiving, who, wakes)?,
            }
            Ok(Walk::GoesOn)
        })
    }

    /// An offer was accepted: the slot is free.
    fn clear_away(&self, receiving: ReceiverHeld<'_>, node: &Node) -> Result<(), Fault> {
        let slot = node.slot.get();
        // The cell first: a node in this list owns its slot.
        self.segment().cell(slot)?.end();
        self.waiters().remove(receiving, node)?;
        crash_point!(MSG_REAPED);
        self.push_free(receiving, slot)
    }

    /// An offer was not taken up: the message goes to the next waiter for it, or back to its place.
    fn put_back(
        &self,
        receiving: ReceiverHeld<'_>,
        who: Seated<'_>,
        wakes: &mut DeferredWakes,
    ) -> Result<(), Fault> {
        let slot = who.node().slot.get();
        self.provide_for(receiving, slot)?;
        self.waiters().remove(receiving, who.node())?;
        crash_point!(MSG_PUT_BACK);
        self.return_to_queue(receiving, slot, wakes)
    }

    /// Memory for a message that is going to come back.
    pub(super) fn provide_for(&self, _: ReceiverHeld<'_>, slot: u32) -> Result<(), Fault> {
        let mtype = self.segment().cell(slot)?.mtype.get() as i64;
        self.order().provide(mtype)
    }

    /// A message that was in a process's hands, and was [provided for](Self::provide_for), is in the queue again, where its number puts it, or the next waiter's.
    pub(super) fn return_to_queue(
        &self,
        receiving: ReceiverHeld<'_>,
        slot: u32,
        wakes: &mut DeferredWakes,
    ) -> Result<(), Fault> {
        let cell = self.segment().cell(slot)?;
        let (mtype, len) = (cell.mtype.get() as i64, self.len_of(cell)?);
        if self.offer(receiving, slot, mtype, len, wakes)? {
            return Ok(());
        }
        let sequence = self.segment().place(slot)?.sequence.get();
        self.order().insert(receiving, slot, mtype, sequence)?;
        self.count(1, len as i64);
        Ok(())
    }

    /// Serves every process that can be served. Where no process has died there is nobody: a message is offered when it comes.
    pub(super) fn serve(
        &self,
        receiving: ReceiverHeld<'_>,
        wakes: &mut DeferredWakes,
    ) -> Result<(), Fault> {
        self.each_seat(List::Receivers, |who| {
            self.serve_receiver(receiving, who, wakes)
                .map(|()| Walk::GoesOn)
        })?;
        self.admit(receiving, wakes)
    }

    /// Serves one that waits in a list, for itself: if all that wait did this for all others, each slice would cost the square of
    /// their number.
    pub(super) fn serve_one(
        &self,
        receiving: ReceiverHeld<'_>,
        who: Seated<'_>,
        list: List,
        wakes: &mut DeferredWakes,
    ) -> Result<(), Fault> {
        // What it was offered is in another list: that is no more of our business.
        if List::of(who.node()) != list {
            return Ok(());
        }
        match list {
            List::Senders if self.fits(who) => self.admit(receiving, wakes),
            List::Receivers => self.serve_receiver(receiving, who, wakes),
            _ => Ok(()),
        }
    }

    fn serve_receiver(
        &self,
        receiving: ReceiverHeld<'_>,
        who: Seated<'_>,
        wakes: &mut DeferredWakes,
    ) -> Result<(), Fault> {
        if waiters::state(who.node()) != State::Waiting {
            return self.waiters().remove(receiving, who.node());
        }
        let Some(slot) = self.order().first(want_of(who.seat))? else {
            return Ok(());
        };
        let len = self.len_of(self.segment().cell(slot)?)?;
        if self.offer_to(receiving, who, slot, len, wakes)? {
            self.order().remove(receiving, slot)?;
            self.count(-1, -(len as i64));
        }
        Ok(())
    }
}

/// What a walk over a list does next.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Walk {
    GoesOn,
    Ends,
}

/// Whether a message of this type is wanted. Source: testmsg in linux/ipc/msg.c.
pub(super) fn is_wanted(want: Want, mtype: i64) -> bool {
    match want {
        Want::Any => true,
        Want::Exactly(wanted) => mtype == wanted,
        Want::Except(unwanted) => mtype != unwanted,
        Want::Lowest(most) => mtype <= most,
    }
}
