//! Changing permissions and capacity (IPC_SET), and removing the queue (IPC_RMID).

use super::offer::Walk;
use super::segment::{Fixed, REMOVED};
use super::wait::Reply;
use super::{Engine, Refused, Why};
use crate::crash::crash_point;
use crate::doorbell::Watched;
use crate::fault::Fault;
use crate::lock::deferred_wakes::DeferredWakes;
use crate::lock::tokens::ReceiverHeld;
use crate::sync::Ordering;
use crate::sys::clock::{self, Deadline, SECOND};
use crate::sys::thread::Thread;
use crate::waiters::{self, List, State};

impl Engine {
    /// Changes the queue's rights or what it may hold, and has every process that waits ask again. `change` runs under the lock and
    /// may refuse. [`Fault::Busy`] if the lock's owner was stopped: the caller holds the lock of all names meanwhile.
    pub fn change<E>(
        &self,
        me: &Thread,
        change: impl FnOnce(&Fixed) -> Result<(), E>,
    ) -> Result<Result<(), E>, Refused> {
        self.with_lock(me, Deadline::Passed, |receiving, wakes| {
            self.foretell_doorbell(receiving, 0, 1);
            let result = change(self.fixed());
            if result.is_ok() {
                let rights = &self.fixed().rights;
                let now = clock::realtime_coarse() / SECOND;
                rights.changed_at.store(now, Ordering::Relaxed);
                // Release: RIGHTS. A process that judges by the new version sees the new rights.
                rights.version.fetch_add(1, Ordering::Release);
                crash_point!(MSG_CHANGED);
                self.rejudge(receiving, wakes)?;
            }
            Ok(result)
        })
    }

    /// Receivers ask again whether they may; senders do if there is room for them now. Source: msgctl_down in linux/ipc/msg.c.
    fn rejudge(&self, receiving: ReceiverHeld<'_>, wakes: &mut DeferredWakes) -> Result<(), Fault> {
        self.each_seat(List::Receivers, |who| {
            let _ = self.reply(who, Reply::Rejudge, wakes);
            self.waiters().remove(receiving, who.node())?;
            Ok(Walk::GoesOn)
        })?;
        self.each_seat(List::Senders, |who| {
            if waiters::state(who.node()) != State::Waiting {
                self.withdraw(receiving, who)?;
            } else if self.fits(who) {
                let _ = self.reply(who, Reply::Rejudge, wakes);
                self.withdraw(receiving, who)?;
            }
            Ok(Walk::GoesOn)
        })
    }

    /// Removes the queue: a process that waits is told so, and nothing can be done with it any more. [`Why::Removed`] if it was
    /// removed before. `may` runs under the lock.
    pub fn remove<E>(
        &self,
        me: &Thread,
        may: impl FnOnce(&Fixed) -> Result<(), E>,
    ) -> Result<Result<(), E>, Refused> {
        self.with_lock(me, Deadline::Passed, |receiving, wakes| {
            let result = may(self.fixed());
            if result.is_ok() {
                self.foretell_removal(receiving);
                // The store that removes it. Relaxed: under the lock; a process that looks without it sees it a moment later.
                self.fixed().rights.state.store(REMOVED, Ordering::Relaxed);
                crash_point!(MSG_REMOVED);
                self.dismiss(receiving, wakes);
            }
            Ok(result)
        })
    }

    /// As [`remove`](Self::remove), without the lock: its owner does not let go of it, or what it guards makes no sense. It is one store, behind
    /// which every call finds the queue removed. A process that waits finds out at the next slice.
    ///
    /// Then the lock is taken from its owner, who may live, so that a process that waits for it learns of the removal, too. A call that the owner is in the
    /// middle of ends as one that came before: no other process changes what it changes, as a process that gets the lock does nothing but find the queue
    /// removed ([`lock_slow`](Self::lock_slow), [`enter`](Self::enter)).
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
            // Relaxed: as in `remove`. Nothing is handed over with it.
            self.fixed().rights.state.store(REMOVED, Ordering::Relaxed);
            self.show_removal();
            // Its compare-and-swap is a release: a process that gets the lock finds the queue removed.
            self.fixed().control.lock.break_up();
        }
        Ok(result)
    }

    /// Tells every process that waits that the queue is gone. A process that is not told finds out at the next slice.
    pub(super) fn dismiss(&self, receiving: ReceiverHeld<'_>, wakes: &mut DeferredWakes) {
        for list in [List::Receivers, List::Senders] {
            let told = self.each_seat(list, |who| {
                let _ = self.reply(who, Reply::Removed, wakes);
                self.waiters().remove(receiving, who.node())?;
                Ok(Walk::GoesOn)
            });
            if told.is_err() {
                self.note_damage();
            }
        }
    }
}
