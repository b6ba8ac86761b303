//! The end of the stream: a queue that is closed for sending, and its producers.
//!
//! | the version of the rights | a call that observes the end | msgsnd(2) and msgrcv(2) |
//! |---|---|---|
//! | without [`CLOSED`] | sends, and waits for messages | do the same |
//! | with [`CLOSED`] | sends nothing; receives the remaining messages, then learns of the end | do as if the queue were open |
//!
//! A queue that is closed for sending has a mark, which is a bit of the version of the rights. So the mark costs nothing as long as the queue is open
//! for sending. Each call checks its permission under a version, and compares the version again under the lock. If the queue was closed meanwhile,
//! the version differs, and the call checks again. The kernel's calls have no error for a queue that is closed for sending, so msgsnd and msgrcv
//! ignore the mark.
//!
//! A stream is at its end for a receiver if no message that the receiver wants is left, and no message can come back: none is leased, delayed or
//! offered. If a process dies after it has stored the version with the mark, the queue is closed. The waiters that the process did not wake check the
//! queue at the end of their slice.

use super::segment::{CLOSED, Reply};
use super::wait::Waiter;
use super::{Engine, Refused};
use crate::crash::crash_point;
use crate::doorbell::Watched;
use crate::fault::Fault;
use crate::lock::deferred_wakes::DeferredWakes;
use crate::lock::tokens::ReceiverHeld;
use crate::sys::clock::Deadline;
use crate::sys::liveness;
use crate::sys::thread::Thread;
use crate::waiters::{self, List, State};
use std::ops::ControlFlow;

impl Engine {
    /// Returns whether the queue is closed for sending. The result is exact under the lock, otherwise a hint.
    pub fn is_send_closed(&self) -> bool {
        self.fixed().rights.is_send_closed()
    }

    /// Returns the refusal of a receive that observes the end and found no message that it wants.
    #[cold]
    pub(super) fn no_message(
        &self,
        receiving: ReceiverHeld<'_>,
        wakes: &mut DeferredWakes,
    ) -> Refused {
        if let Err(fault) = self.close_if_left(receiving, wakes) {
            return fault.into();
        }
        match self.is_over(receiving) {
            true => Refused::Closed,
            false => Refused::NotNow,
        }
    }

    /// Returns whether the queue is closed for sending, and no message can come back.
    fn is_over(&self, _: ReceiverHeld<'_>) -> bool {
        self.seems_over()
    }

    /// Returns a hint, read without the lock, of [`is_over`](Self::is_over).
    pub(super) fn seems_over(&self) -> bool {
        self.is_send_closed()
            && !self.fixed().control.has_leased()
            && self.waiters().len(List::Offered) == 0
    }

    /// Ends the wait of a receiver at the end of the stream: the receiver tries again, and learns of the end.
    pub(super) fn end_if_over(
        &self,
        receiving: ReceiverHeld<'_>,
        waiter: Waiter<'_>,
        wakes: &mut DeferredWakes,
    ) -> Result<(), Fault> {
        self.close_if_left(receiving, wakes)?;
        let waits = waiters::state(waiter.node()) == State::Waiting
            && List::of(waiter.node()) == List::Receivers;
        match waits && self.is_over(receiving) {
            true => self.send_one_back(receiving, waiter, List::Receivers, wakes),
            false => Ok(()),
        }
    }

    /// Wakes the receivers of a queue that is closed for sending, after the end of a lease, if no other message can come back.
    pub(super) fn wake_at_end(
        &self,
        receiving: ReceiverHeld<'_>,
        wakes: &mut DeferredWakes,
    ) -> Result<(), Fault> {
        match self.waiters().len(List::Receivers) != 0 && self.is_over(receiving) {
            true => self.send_back(receiving, List::Receivers, wakes),
            false => Ok(()),
        }
    }

    /// Makes a waiter check its permission again, if the process that changed the rights or closed the queue for sending died before this step. A
    /// change of the rights wakes a sender only if there is room for its message, as in the kernel.
    pub(super) fn send_back_if_unjudged(
        &self,
        receiving: ReceiverHeld<'_>,
        waiter: Waiter<'_>,
        list: List,
        wakes: &mut DeferredWakes,
    ) -> Result<(), Fault> {
        let waits = waiters::state(waiter.node()) == State::Waiting;
        if !waits || List::of(waiter.node()) != list || self.is_judged(waiter) {
            return Ok(());
        }
        let is_due = list == List::Receivers || self.fits(waiter) || {
            let changed = waiter.record.rights() ^ self.fixed().rights.version();
            changed & CLOSED != 0
        };
        match is_due {
            true => self.send_one_back(receiving, waiter, list, wakes),
            false => Ok(()),
        }
    }

    fn send_one_back(
        &self,
        receiving: ReceiverHeld<'_>,
        waiter: Waiter<'_>,
        list: List,
        wakes: &mut DeferredWakes,
    ) -> Result<(), Fault> {
        if waiters::state(waiter.node()) == State::Waiting {
            let _ = self.reply(receiving, waiter, Reply::Rejudge, wakes);
        }
        match list {
            List::Senders => self.withdraw(receiving, waiter),
            _ => self.waiters().remove(receiving, waiter.node()),
        }
    }

    /// Makes all waiters of a list check their permission again. This check also shows them whether the queue is closed for sending.
    fn send_back(
        &self,
        receiving: ReceiverHeld<'_>,
        list: List,
        wakes: &mut DeferredWakes,
    ) -> Result<(), Fault> {
        self.each_waiter(list, |waiter| {
            self.send_one_back(receiving, waiter, list, wakes)?;
            Ok(ControlFlow::Continue(()))
        })
    }

    /// Closes the queue for sending. Returns whether it was open for sending before.
    pub fn close_send(&self, me: &Thread) -> Result<bool, Refused> {
        self.with_lock(me, Deadline::Never, |receiving, wakes| {
            let was_open = !self.is_send_closed();
            if was_open {
                self.set_send_closed(receiving, wakes)?;
            }
            Ok(was_open)
        })
    }

    fn set_send_closed(
        &self,
        receiving: ReceiverHeld<'_>,
        wakes: &mut DeferredWakes,
    ) -> Result<(), Fault> {
        if self.is_watched() {
            // After the close, a send and a receive may have another result, so pollers get an event for both.
            let now = self.level(receiving);
            self.ringer().foretell(receiving, now, now.after(1, 1));
        }
        self.fixed().rights.set_send_closed(receiving, true);
        crash_point!(MSG_CLOSED);
        self.send_back(receiving, List::Receivers, wakes)?;
        self.send_back(receiving, List::Senders, wakes)
    }

    /// Opens the queue for sending again. Returns whether it was closed.
    pub fn reopen_send(&self, me: &Thread) -> Result<bool, Refused> {
        self.with_lock(me, Deadline::Never, |receiving, _| {
            let was_closed = self.is_send_closed();
            let producers = &self.fixed().delivery.producers;
            producers.forget_dead(receiving, self.segment());
            if was_closed {
                self.fixed().rights.set_send_closed(receiving, false);
                crash_point!(MSG_REOPENED);
            }
            Ok(was_closed)
        })
    }

    /// Returns the number of living producers.
    pub fn producers(&self, me: &Thread) -> Result<usize, Refused> {
        self.with_lock(me, Deadline::Passed, |receiving, _| {
            let producers = &self.fixed().delivery.producers;
            Ok(producers.living(receiving, self.segment()))
        })
    }

    /// Registers the calling process as a producer. If the process is already registered, gives it one more guard. Returns false if the process has
    /// no record and too many other processes are registered.
    pub fn begin_to_produce(&self, me: &Thread) -> Result<bool, Refused> {
        liveness::register(self.segment());
        self.with_lock(me, Deadline::Never, |receiving, wakes| {
            self.close_for_sender(receiving, wakes)?;
            if self.is_send_closed() {
                return Err(Refused::Closed);
            }
            let producers = &self.fixed().delivery.producers;
            let counts = producers.begin(receiving, self.segment(), me);
            self.ringer().call_timekeepers(receiving);
            Ok(counts)
        })
    }

    /// Removes one guard of the calling process. The end of the last producer closes the queue for sending. Returns false if the process was not
    /// registered.
    pub fn end_producing(&self, me: &Thread) -> Result<bool, Refused> {
        self.with_lock(me, Deadline::Never, |receiving, wakes| {
            let producers = &self.fixed().delivery.producers;
            let left = producers.end(receiving, self.segment(), me);
            let is_last = left == Some(0) && self.may_be_left(receiving);
            if is_last && producers.are_gone(receiving, self.segment()) {
                self.set_send_closed(receiving, wakes)?;
            }
            Ok(left.is_some())
        })
    }

    /// Returns whether the queue is open for sending and had producers, so that the end of the last producer closes it for sending.
    pub(super) fn may_be_left(&self, receiving: ReceiverHeld<'_>) -> bool {
        self.policy.close_with_producers
            && !self.is_send_closed()
            && self.fixed().delivery.producers.had_any(receiving)
    }

    /// Returns whether the queue is open for sending although all its producers have died. The next call that checks the producers closes the queue
    /// for sending.
    pub fn has_lost_producers(&self, me: &Thread) -> bool {
        let is_left = self.with_lock(me, Deadline::Passed, |receiving, _| {
            Ok(self.may_be_left(receiving) && {
                let producers = &self.fixed().delivery.producers;
                producers.are_gone(receiving, self.segment())
            })
        });
        is_left.unwrap_or(false)
    }

    /// Closes the queue for sending if all its producers have died. A send calls this function first.
    pub fn look_for_producers(&self, me: &Thread, deadline: Deadline) {
        if !self.is_send_closed() && self.next_query_to_send.seems_due() {
            // If this call fails, the send itself finds out why.
            let _ = self.with_lock(me, deadline, |receiving, wakes| {
                Ok(self.close_for_sender(receiving, wakes)?)
            });
        }
    }

    /// Closes the queue for sending if all its producers have died. After each check of the producers, the handle waits for a while before it checks
    /// them again.
    pub(super) fn close_if_left(
        &self,
        receiving: ReceiverHeld<'_>,
        wakes: &mut DeferredWakes,
    ) -> Result<(), Fault> {
        match self.may_be_left(receiving) && self.next_query.is_due(receiving) {
            true => self.close_left(receiving, wakes),
            false => Ok(()),
        }
    }

    /// Closes the queue for sending before a send, as [`close_if_left`](Self::close_if_left) does after a receive. Sends and receives of a handle
    /// have separate pauses between two checks.
    fn close_for_sender(
        &self,
        receiving: ReceiverHeld<'_>,
        wakes: &mut DeferredWakes,
    ) -> Result<(), Fault> {
        match self.may_be_left(receiving) && self.next_query_to_send.is_due(receiving) {
            true => self.close_left(receiving, wakes),
            false => Ok(()),
        }
    }

    fn close_left(
        &self,
        receiving: ReceiverHeld<'_>,
        wakes: &mut DeferredWakes,
    ) -> Result<(), Fault> {
        let producers = &self.fixed().delivery.producers;
        match producers.are_gone(receiving, self.segment()) {
            true => self.set_send_closed(receiving, wakes),
            false => Ok(()),
        }
    }
}
