//! Receiving a message.

use super::segment::Cell;
use super::segment::Choice;
use super::wait::{Call, Enlisted, Waiter};
use super::{Engine, Refused, Why};
use crate::counters::Event;
use crate::crash::crash_point;
use crate::doorbell::Watched;
use crate::fault::Fault;
use crate::lock::deferred_wakes::DeferredWakes;
use crate::lock::tokens::ReceiverHeld;
use crate::sysv_engine::order::Want;
use crate::tracepoint;
use crate::waiters::{self, List};

/// A received message, whose bytes are in the caller's buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Taken {
    /// The number of bytes that were copied.
    pub len: usize,
    pub mtype: i64,
}

/// The way in which a receive takes its message: it copies the message out, or leases it in place.
pub(super) trait Receipt {
    type Outcome;

    /// Returns the length in bytes of the longest message that the receive accepts.
    fn longest(&self) -> u64;

    /// Takes a message from the queue, under the lock.
    fn take(
        &mut self,
        receiving: ReceiverHeld<'_>,
        step: Step<'_>,
    ) -> Result<Self::Outcome, Refused>;

    /// Takes the message that was offered to the caller's waiter record, without the lock. Returns None if the offer was withdrawn.
    fn accept(&mut self, me: Waiter<'_>, step: Step<'_>) -> Result<Option<Self::Outcome>, Refused>;
}

/// The values that a receipt needs to take a message.
#[derive(Clone, Copy)]
pub(super) struct Step<'a> {
    pub(super) engine: &'a Engine,
    pub(super) call: &'a Call<'a>,
    pub(super) found: FoundMessage<'a>,
}

/// A message of the queue; its length is checked.
#[derive(Clone, Copy)]
pub(super) struct FoundMessage<'a> {
    pub(super) slot: u32,
    pub(super) cell: &'a Cell,
    pub(super) len: usize,
}

impl FoundMessage<'_> {
    pub(super) fn mtype(&self) -> i64 {
        self.cell.mtype()
    }
}

/// A receive that copies its message into the caller's buffer.
pub(super) struct Copy<'a> {
    pub(super) buffer: &'a mut [u8],
    /// True if a longer message is cut off at the end of the buffer (MSG_NOERROR).
    pub(super) truncate: bool,
}

impl Copy<'_> {
    #[inline(always)]
    fn copy(&mut self, engine: &Engine, found: FoundMessage<'_>) -> Result<Taken, Fault> {
        let mtype = found.mtype();
        let len = engine
            .segment()
            .copy_prefix(found.cell, found.len, self.buffer)?;
        Ok(Taken { len, mtype })
    }
}

impl Receipt for Copy<'_> {
    type Outcome = Taken;

    #[inline(always)]
    fn longest(&self) -> u64 {
        if self.truncate {
            u64::MAX
        } else {
            self.buffer.len() as u64
        }
    }

    #[inline(always)]
    fn take(&mut self, receiving: ReceiverHeld<'_>, step: Step<'_>) -> Result<Taken, Refused> {
        let Step {
            engine,
            call,
            found,
        } = step;
        let taken = self.copy(engine, found)?;
        crash_point!(MSG_COPIED);
        engine.remove_and_free(receiving, found)?;
        engine.fixed().control.note_receive(call.me.pid());
        tracepoint!(
            msg_receive,
            engine.segment().address(),
            taken.len,
            taken.mtype
        );
        Ok(taken)
    }

    fn accept(&mut self, me: Waiter<'_>, step: Step<'_>) -> Result<Option<Taken>, Refused> {
        let taken = self.copy(step.engine, step.found)?;
        crash_point!(MSG_TAKEN_UP);
        step.call.unname();
        Ok(waiters::accept(me.node()).then_some(taken))
    }
}

impl Engine {
    /// Receives the first wanted message, if there is one now.
    #[inline(always)]
    pub fn try_receive(
        &self,
        call: &Call<'_>,
        want: Want,
        buffer: &mut [u8],
        truncate: bool,
    ) -> Result<Taken, Refused> {
        self.take_now(call, want, &mut Copy { buffer, truncate })
    }

    /// Receives the first wanted message. Waits for a message until the call's deadline.
    pub fn receive(
        &self,
        call: &Call<'_>,
        want: Want,
        buffer: &mut [u8],
        truncate: bool,
    ) -> Result<Taken, Refused> {
        self.take_or_wait(call, want, &mut Copy { buffer, truncate })
    }

    /// Takes a message. If there is none, takes a waiter record under the same lock, and waits. A send, in contrast, first makes an attempt without
    /// the record. For a receive, such an attempt would only take the lock twice.
    pub(super) fn take_or_wait<R: Receipt>(
        &self,
        call: &Call<'_>,
        want: Want,
        receipt: &mut R,
    ) -> Result<R::Outcome, Refused> {
        if call.deadline.has_passed() {
            return self.take_now(call, want, receipt);
        }
        let receipt = std::cell::RefCell::new(receipt);
        let mut enlist = |receiving: ReceiverHeld<'_>, wakes: &mut DeferredWakes| {
            let receipt = &mut **receipt.borrow_mut();
            match self.take_locked(receiving, call, want, receipt, wakes) {
                Err(Refused::NotNow) => {
                    self.wait_for_message(receiving, call, want, receipt.longest())
                }
                other => other.map(Enlisted::Done),
            }
        };
        let mut accept = |me: Waiter<'_>| {
            let found = self.found(me.node().slot.get())?;
            let step = self.step(call, found);
            receipt.borrow_mut().accept(me, step)
        };
        self.wait_for(call, List::Receivers, &mut enlist, &mut accept)
    }

    /// Takes the first wanted message, if there is one now.
    #[inline(always)]
    fn take_now<R: Receipt>(
        &self,
        call: &Call<'_>,
        want: Want,
        receipt: &mut R,
    ) -> Result<R::Outcome, Refused> {
        let taken = self.with_lock(call.me, call.deadline, |receiving, wakes| {
            self.take_locked(receiving, call, want, receipt, wakes)
        });
        taken.map_err(|refused| refused.by(call.deadline))
    }

    fn wait_for_message<T>(
        &self,
        receiving: ReceiverHeld<'_>,
        call: &Call<'_>,
        want: Want,
        longest: u64,
    ) -> Result<Enlisted<'_, T>, Refused> {
        // A call is counted once, even if it waits again.
        if !call.has_waited() {
            self.fixed().counters.count(Event::ReceiveBlocked);
        }
        self.enlist(receiving, call, Choice::Message { want, longest })
    }

    /// Takes the first wanted message, under the lock.
    #[inline(always)]
    fn take_locked<R: Receipt>(
        &self,
        receiving: ReceiverHeld<'_>,
        call: &Call<'_>,
        want: Want,
        receipt: &mut R,
        wakes: &mut DeferredWakes,
    ) -> Result<R::Outcome, Refused> {
        self.check_rights(receiving, call.rights)?;
        let found = match self.find(receiving, want, wakes) {
            Err(Refused::NotNow) if call.heeds_end() => {
                return Err(self.no_message(receiving, wakes));
            }
            found => found?,
        };
        if found.len as u64 > receipt.longest() {
            return Err(Refused::Own(Why::TooSmall { len: found.len }));
        }
        self.foretell_doorbell(receiving, -1, found.len as i64);
        let outcome = receipt.take(receiving, self.step(call, found))?;
        self.admit_if_any(receiving, wakes);
        Ok(outcome)
    }

    #[inline(always)]
    fn step<'a>(&'a self, call: &'a Call<'a>, found: FoundMessage<'a>) -> Step<'a> {
        Step {
            engine: self,
            call,
            found,
        }
    }

    /// Returns the first wanted message, or [`Refused::NotNow`]. Before that, ends overdue leases and the leases of dead holders.
    #[inline(always)]
    pub(super) fn find(
        &self,
        receiving: ReceiverHeld<'_>,
        want: Want,
        wakes: &mut DeferredWakes,
    ) -> Result<FoundMessage<'_>, Refused> {
        if self.fixed().control.has_leased() {
            self.reclaim_if_due(receiving, wakes)?;
        }
        match self.order().first(want)? {
            Some(slot) => Ok(self.found(slot)?),
            None => Err(Refused::NotNow),
        }
    }

    #[inline(always)]
    pub(super) fn found(&self, slot: u32) -> Result<FoundMessage<'_>, Fault> {
        let cell = self.segment().cell(slot)?;
        let len = self.len_of(cell)?;
        Ok(FoundMessage { slot, cell, len })
    }

    /// Removes a message from the queue after its bytes were copied out, and frees its slot.
    #[inline(always)]
    pub(super) fn remove_and_free(
        &self,
        receiving: ReceiverHeld<'_>,
        found: FoundMessage<'_>,
    ) -> Result<(), Fault> {
        found.cell.end();
        crash_point!(MSG_ENDED);
        self.unqueue(receiving, found.slot, found.len)?;
        self.push_free(receiving, found.slot)
    }

    /// Takes a message out of the order and out of the counts.
    #[inline(always)]
    pub(super) fn unqueue(
        &self,
        receiving: ReceiverHeld<'_>,
        slot: u32,
        len: usize,
    ) -> Result<(), Fault> {
        self.order().remove(receiving, slot)?;
        let control = &self.fixed().control;
        control.count_queued(receiving, -1, -(len as i64));
        Ok(())
    }

    /// Admits blocked senders, if there are any. If the admission fails, the caller still keeps its message: corruption is noted, and without memory
    /// the senders stay blocked.
    #[inline(always)]
    pub(super) fn admit_if_any(&self, receiving: ReceiverHeld<'_>, wakes: &mut DeferredWakes) {
        if self.waiters().len(List::Senders) != 0
            && self.admit(receiving, wakes) == Err(Fault::Damaged)
        {
            self.note_damage();
        }
    }
}
