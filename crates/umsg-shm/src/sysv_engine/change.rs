//! Changing permissions and capacity (IPC_SET), and removing the queue (IPC_RMID).

use super::segment::{Fixed, Reply};
use super::{Engine, Refused, Why};
use crate::crash::crash_point;
use crate::doorbell::Watched;
use crate::fault::Fault;
use crate::lock::SLICE;
use crate::lock::deferred_wakes::DeferredWakes;
use crate::lock::tokens::ReceiverHeld;
#[cfg(not(loom))]
use crate::sync::{Ordering, fence};
use crate::sys::clock::{self, Deadline, SECOND};
use crate::sys::thread::Thread;
use crate::waiters::{self, List, State};
use std::ops::ControlFlow;

impl Engine {
    /// Changes the queue's rights or its capacity, and makes waiters check their permission again. `change` runs under the lock, and may return an
    /// error.
    ///
    /// Fails with [`Fault::Busy`] if the lock's owner is stopped, because the caller also holds the lock of all names.
    pub fn change<E>(
        &self,
        me: &Thread,
        change: impl FnOnce(&Fixed, ReceiverHeld<'_>) -> Result<(), E>,
    ) -> Result<Result<(), E>, Refused> {
        self.with_lock(me, Deadline::Passed, |receiving, wakes| {
            self.foretell_doorbell(receiving, 0, 1);
            let result = change(self.fixed(), receiving);
            if result.is_ok() {
                let now = clock::realtime_coarse() / SECOND;
                self.fixed().rights.publish(receiving, now);
                crash_point!(MSG_CHANGED);
                self.rejudge(receiving, wakes)?;
            }
            Ok(result)
        })
    }

    /// Makes all receivers check their permission again, and also those senders for whose messages the queue now has room. Source: msgctl_down in
    /// linux/ipc/msg.c.
    fn rejudge(&self, receiving: ReceiverHeld<'_>, wakes: &mut DeferredWakes) -> Result<(), Fault> {
        self.each_waiter(List::Receivers, |waiter| {
            let _ = self.reply(receiving, waiter, Reply::Rejudge, wakes);
            self.waiters().remove(receiving, waiter.node())?;
            Ok(ControlFlow::Continue(()))
        })?;
        self.each_waiter(List::Senders, |waiter| {
            if waiters::state(waiter.node()) != State::Waiting {
                self.withdraw(receiving, waiter)?;
            } else if self.fits(waiter) {
                let _ = self.reply(receiving, waiter, Reply::Rejudge, wakes);
                self.withdraw(receiving, waiter)?;
            }
            Ok(ControlFlow::Continue(()))
        })
    }

    /// Removes the queue and ends all waits. `may` runs under the lock, and may refuse the removal.
    ///
    /// Fails with [`Why::Removed`] if the queue was already removed, and with [`Fault::Busy`] after a slice if the lock's owner does not release it.
    /// Other calls that must not block wait for a second. This call waits only a slice, because waiters learn of the removal only after this wait.
    pub fn remove<E>(
        &self,
        me: &Thread,
        may: impl FnOnce(&Fixed) -> Result<(), E>,
    ) -> Result<Result<(), E>, Refused> {
        let patience = Deadline::Never.or_slice(SLICE);
        self.with_lock(me, patience, |receiving, wakes| {
            let result = may(self.fixed());
            if result.is_ok() {
                self.foretell_removal(receiving);
                self.fixed().rights.remove();
                crash_point!(MSG_REMOVED);
                self.dismiss(receiving, wakes);
            }
            Ok(result)
        })
    }

    /// Removes the queue as [`remove`](Self::remove) does, but without the lock. The function is for a lock that its owner does not release, and for
    /// a corrupted queue.
    ///
    /// The removal is one store, and every later call finds the queue removed. The function then takes the lock from its owner, so that threads that
    /// wait for the lock learn of the removal, too. At last it wakes all sleeping waiters, which find the queue removed.
    ///
    /// The owner may live and be in the middle of a call. That call ends as if it came before the removal. No other process changes the same data
    /// meanwhile, because each new owner of the lock finds the queue removed ([`lock_slow`](Self::lock_slow), [`enter`](Self::enter)).
    #[cfg(not(loom))]
    pub fn remove_unlocked<E>(
        &self,
        may: impl FnOnce(&Fixed) -> Result<(), E>,
    ) -> Result<Result<(), E>, Refused> {
        if self.is_removed() {
            return Err(Refused::Own(Why::Removed));
        }
        let result = may(self.fixed());
        if result.is_ok() {
            self.show_removal();
            if !self.fixed().rights.remove_unlocked(self.generation) {
                return Err(Refused::Own(Why::Removed));
            }
            self.show_removal();
            // The compare-and-swap has release ordering, so the next owner of the lock finds the queue removed.
            self.fixed().control.lock.break_up();
            // ASLEEP: pairs with the fence in `sleep`. So either this thread sees that a waiter sleeps, or the waiter sees the removal.
            fence(Ordering::SeqCst);
            let mut wakes = DeferredWakes::default();
            wakes.add_everybody(self.waiters().usable());
            self.wake(&wakes);
        }
        Ok(result)
    }

    /// Ends all waits, because the queue was removed. A waiter that gets no reply notices the removal at the end of its slice.
    pub(super) fn dismiss(&self, receiving: ReceiverHeld<'_>, wakes: &mut DeferredWakes) {
        for list in [List::Receivers, List::Senders] {
            let told = self.each_waiter(list, |waiter| {
                let _ = self.reply(receiving, waiter, Reply::Removed, wakes);
                self.waiters().remove(receiving, waiter.node())?;
                Ok(ControlFlow::Continue(()))
            });
            if told.is_err() {
                self.note_damage();
            }
        }
    }
}
