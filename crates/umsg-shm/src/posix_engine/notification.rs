//! Notification: the registered process is notified once, when a message arrives in an empty queue. Source: mq_notify(3), and linux/ipc/mqueue.c,
//! `__do_notify`.
//!
//! Each registration has a record. At most one record is armed. A fired record stays until the registered process has handled it, and another process
//! may register meanwhile. A queue has eight records from the start. If many notified processes are stopped or get no processor time, the queue gets
//! memory for a thousand more records.
//! | word | state | may change it | if the registered process dies |
//! |---|---|---|---|
//! | `turn << 3` | free | holder of the receiver lock: armed, another turn | - |
//! | `turn << 3 \| ARMED` | registered | holder of the receiver lock: fired, or free if the process wants no notification. Its process, without the lock: free | free, by the process that registers next |
//! | `turn << 3 \| RAISING` | the holder of the receiver lock raises the signal | that holder: free, or fired; after its death the next holder: fired | as for any other process |
//! | `turn << 3 \| FIRED`, perhaps with `WAITED` | fired; the record names the sender; with `WAITED` a thread sleeps until the record is free | its process, without the lock: free | free, by the process that registers next and finds no other record |
//!
//! Each change of a record's word is one compare-and-swap. So if a withdrawal and a message happen at the same time, exactly one of them takes
//! effect. A bit of `registered` records that the queue was empty. Each holder of the receiver lock updates this bit before it unlocks, and before it
//! takes a message. Therefore a message fires the registration even if a receiver takes the message at once. The attention word asks senders to
//! update the bit only while the bit says that the queue was empty.
//!
//! No process trusts the action in a record. The registered process reads the action from its own memory. A sender in another process raises a signal
//! only if the registered process consents to the signal ([`crate::consent`]). Therefore a process with write access to the segment can't make a
//! sender signal a process that is not registered.

mod registration;

pub use registration::{Claim, Outcome, RegisterError};

use super::{DeferredWakes, Engine, NOTICE};
use crate::consent::{self, Asked};
use crate::crash::crash_point;
use crate::fault::Fault;
use crate::lock::deferred_wakes::Fired;
use crate::lock::tokens::ReceiverHeld;
use crate::lock::{SLICE, STOPPED};
use crate::posix_engine::Priorities;
use crate::posix_engine::segment::notice::{
    FIRED, NOT_ASKED, NOTICES, RAISING, STATE, armed, fired,
};
use crate::posix_engine::segment::{MORE_NOTICES, Notice, Ring};
use crate::sync::{Ordering, fence};
use crate::sys::clock::{self, Deadline};
use crate::sys::futex::{self, Slept};
use crate::sys::liveness::{self, Liveness};
use crate::sys::process;
use crate::sys::thread::{self, Thread};
use crate::waiters::{List, Waiters};
use std::time::Duration;

/// The type of a function that handles a fired registration of the calling process. The function gets the engine, and the index, the record and its
/// word. See [`Engine::set_identity`].
#[cfg(not(loom))]
pub(crate) type RaiseOwn = fn(&Engine, u32, &Notice, u32) -> bool;

/// A bit of `registered`: a process is registered. The bits above [`EMPTY`] contain the index of the record.
const REGISTERED: u32 = 1;
/// A bit of `registered`: the queue was empty at the last update of the bit.
const EMPTY: u32 = 2;
const INDEX: u32 = 8;

/// The time, in nanoseconds, for which a sender waits for a registered process. After this time, the sender checks whether that process can run.
const PROMPT: u64 = 2_000_000;

/// The kind of notification that a process requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum What {
    /// A signal. Its number is stored beside this value; the number 0 means no signal.
    Signal = 0,
    /// No notification.
    Nothing = 1,
    /// A function of the process runs in a thread.
    Call = 2,
    /// A thread of the process waits for the notification.
    Wait = 3,
}

impl What {
    fn of(notice: &Notice) -> What {
        match notice.means().0 {
            0 => What::Signal,
            2 => What::Call,
            3 => What::Wait,
            _ => What::Nothing,
        }
    }
}

/// A registration whose record is armed or fired.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Registered {
    pub(crate) index: u32,
    pub what: What,
    pub signal: u32,
    pub pid: u32,
    pub birth: u64,
    /// The word of the record.
    pub(crate) word: u32,
}

impl Engine {
    fn registration(&self) -> u32 {
        self.segment().fixed().receiver.registration()
    }

    fn set_registration(&self, receiving: ReceiverHeld<'_>, registration: u32) {
        let receiver = &self.segment().fixed().receiver;
        receiver.set_registration(receiving, registration);
        self.update_wait_flags(receiving);
    }

    /// Returns whether a process is registered. The result is a hint.
    pub(super) fn has_registration(&self) -> bool {
        self.registration() & REGISTERED != 0
    }

    /// Returns the bit of the attention word that asks senders to decide whether the registration fires. Returns 0 if no decision is necessary.
    #[inline(always)]
    pub(super) fn notice_wanted(&self) -> u32 {
        match self.registration() & (REGISTERED | EMPTY) {
            both if both == REGISTERED | EMPTY => NOTICE,
            _ => 0,
        }
    }

    fn notice(&self, index: u32) -> Option<&Notice> {
        let index = index as usize;
        match index.checked_sub(NOTICES) {
            None => self.segment().fixed().notices.get(index),
            Some(beyond) if beyond < self.more_notices() => self.segment().more_notice(beyond).ok(),
            Some(_) => None,
        }
    }

    /// Returns the number of additional records that have memory. The fixed records are not counted.
    fn more_notices(&self) -> usize {
        let more = self.segment().fixed().receiver.more_notices();
        (more as usize).min(MORE_NOTICES)
    }

    /// Iterates over all records with their indices.
    fn notices(&self) -> impl Iterator<Item = (u32, &Notice)> {
        let more =
            (0..self.more_notices()).filter_map(|index| self.segment().more_notice(index).ok());
        (0_u32..).zip(self.segment().fixed().notices.iter().chain(more))
    }

    /// Decides whether the queue has become empty, or has got a message, since the last decision. If an empty queue has got a message, fires the
    /// registration.
    #[inline(always)]
    pub(super) fn note_change(&self, receiving: ReceiverHeld<'_>, wakes: &mut DeferredWakes) {
        if self.registration() & REGISTERED != 0 && self.decide(receiving, wakes).is_err() {
            self.note_damage();
        }
    }

    #[cold]
    fn decide(&self, receiving: ReceiverHeld<'_>, wakes: &mut DeferredWakes) -> Result<(), Fault> {
        let registration = self.registration();
        let was_empty = registration & EMPTY != 0;
        match (was_empty, self.stays_filled(receiving, wakes)?) {
            (true, true) => self.fire(receiving, wakes),
            (false, false) => {
                self.set_registration(receiving, registration | EMPTY);
                // ATTENTION: the thread stores the flag and then reads the stamps, as in `enlist_receiver`. Either the next sender sees the flag, or
                // this thread finds the message of that sender.
                fence(Ordering::SeqCst);
                if self.stays_filled(receiving, wakes)? {
                    self.fire(receiving, wakes);
                }
            }
            _ => {}
        }
        Ok(())
    }

    /// Returns whether the queue has messages that no blocked receiver takes.
    fn stays_filled(
        &self,
        receiving: ReceiverHeld<'_>,
        wakes: &mut DeferredWakes,
    ) -> Result<bool, Fault> {
        let is_filled = self.is_filled(receiving)?;
        if !is_filled || Waiters::of(self.segment()).len(List::Receivers) == 0 {
            return Ok(is_filled);
        }
        self.hand_over(receiving, wakes)?;
        self.publish_counts(receiving);
        self.is_filled(receiving)
    }

    fn is_filled(&self, receiving: ReceiverHeld<'_>) -> Result<bool, Fault> {
        let receiver = &self.segment().fixed().receiver;
        if receiver.stored(receiving) != 0 {
            return Ok(true);
        }
        let drained = receiver.drained(receiving);
        Ok(Ring::of(self.segment()).published(drained)?.is_some())
    }

    /// Returns the process that sent the first message of the queue: the oldest message of the ring, or if the store has messages, the first one of
    /// the highest priority. Returns 0 if the queue is empty.
    fn first_sender(&self, receiving: ReceiverHeld<'_>) -> Result<u32, Fault> {
        let receiver = &self.segment().fixed().receiver;
        if receiver.stored(receiving) == 0 {
            let drained = receiver.drained(receiving);
            let message = Ring::of(self.segment()).published(drained)?;
            return Ok(message.map_or(0, |(_, cell)| cell.pid()));
        }
        let order = Priorities::of(self.segment());
        let slot = order.first(order.highest().ok_or(Fault::Damaged)?)?;
        Ok(self.segment().cell(slot)?.pid())
    }

    /// Fires the registration because the process `pid` has closed an empty queue for sending. After the close, no message can fire it.
    pub(super) fn fire_at_close(
        &self,
        receiving: ReceiverHeld<'_>,
        pid: u32,
        wakes: &mut DeferredWakes,
    ) {
        let registration = self.registration();
        if registration & REGISTERED != 0 && registration & EMPTY != 0 {
            self.fire_by(receiving, pid, wakes);
        }
    }

    /// Fires the registration, and notes the notification in the deferred wake-ups.
    fn fire(&self, receiving: ReceiverHeld<'_>, wakes: &mut DeferredWakes) {
        let pid = self.first_sender(receiving).unwrap_or(0);
        self.fire_by(receiving, pid, wakes);
    }

    /// Fires the registration as [`fire`](Self::fire) does. `pid` is the process that sent the message.
    fn fire_by(&self, receiving: ReceiverHeld<'_>, pid: u32, wakes: &mut DeferredWakes) {
        let index = self.registration() / INDEX;
        if let Some(notice) = self.notice(index) {
            let armed = notice.word();
            let is_notified = wants_notification(notice);
            // System calls are necessary to find the user of another process, so `tell_registered` finds the user after the unlock.
            let user = process::own_user(pid).unwrap_or(NOT_ASKED);
            notice.set_sender(receiving, pid, user);
            crash_point!(NOTICE_NOTED);
            let is_fired = match self.asked(notice).filter(|_| user != NOT_ASKED) {
                Some(asked) => self.raise(receiving, notice, armed, &asked, (pid, user)),
                None => notice.fire(receiving, armed, is_notified) && is_notified,
            };
            if is_fired {
                let word = fired(armed);
                wakes.add_fired(Fired { index, word });
            }
            crash_point!(NOTICE_FIRED);
        }
        self.set_registration(receiving, 0);
    }

    /// Returns the data with which the consent of a record's process is checked. Returns `None` if the record needs no consent, or belongs to this
    /// process.
    fn asked(&self, notice: &Notice) -> Option<Asked> {
        let (pid, _) = notice.owner();
        let shown = notice.shown();
        let is_asked = shown.place != 0
            && What::of(notice) == What::Signal
            && wants_notification(notice)
            && !is_own(pid);
        Some(Asked {
            queue: self.identity().filter(|_| is_asked)?,
            pid,
            ticket: notice.ticket(),
            shown,
        })
    }

    /// Raises the signal of a registration in another process, if that process consents to the signal. Returns true if the registered process has to
    /// raise the signal itself.
    ///
    /// This thread holds the receiver lock. So the signal is raised before a thread of the registered process can find the message. If this thread
    /// dies in this function, the next holder of the lock makes the registered process raise the signal. If this thread is stopped, it delays the
    /// queue as at any other step under the lock.
    fn raise(
        &self,
        receiving: ReceiverHeld<'_>,
        notice: &Notice,
        armed: u32,
        asked: &Asked,
        sender: (u32, u32),
    ) -> bool {
        if !notice.begin_raising(receiving, armed) {
            return false;
        }
        crash_point!(NOTICE_RAISING);
        let is_raised = consent::raise(asked, sender);
        crash_point!(NOTICE_SIGNALLED);
        notice.end_raising(receiving, armed, is_raised);
        !is_raised
    }

    /// Notifies the registered process, after the unlock. When this function returns, the signal has been raised, as in the kernel, unless the
    /// registered process can't run.
    #[cold]
    pub(super) fn tell_registered(&self, fired: Fired) {
        crash_point!(NOTICE_UNTOLD);
        let Some(notice) = self.notice(fired.index) else {
            return;
        };
        ask_for_user(notice);
        #[cfg(not(loom))]
        if self.raise_own(fired.index, notice, fired.word) {
            return;
        }
        // The record is read before the wake-up, because the woken process may free the record.
        let asked = self.asked(notice);
        futex::wake(notice.futex(), i32::MAX);
        // The process wakes up while this thread runs `meet` and the wait below.
        if let Some(asked) = asked {
            consent::meet(&asked);
        }
        if What::of(notice) == What::Signal && can_owner_run(self.segment(), notice) {
            wait_until_raised(self.segment(), notice, fired.word);
        }
    }

    /// After a receive, waits until the signals of this process's fired registrations are raised. In the kernel, the signal is pending before its
    /// message can be received. A signal that is raised later would interrupt the next call of the process.
    #[cfg(not(loom))]
    #[cold]
    pub fn raise_fired(&self, me: &Thread) {
        for (index, notice) in self.notices() {
            let word = notice.word();
            if word & STATE != FIRED
                || notice.owner().0 != me.pid()
                || What::of(notice) != What::Signal
            {
                continue;
            }
            if !self.raise_own(index, notice, word) {
                // The helper thread of this process will raise the signal soon.
                wait_until_raised(self.segment(), notice, word);
            }
        }
    }

    /// Handles a fired registration of this process. Returns false if the registration belongs to another process, or another thread handles the
    /// registration.
    #[cfg(not(loom))]
    fn raise_own(&self, index: u32, notice: &Notice, word: u32) -> bool {
        self.raise_own
            .is_some_and(|raise_own| raise_own(self, index, notice, word))
    }

    /// Fires the registration if the sender of a message died before it could fire the registration. A blocked thread calls this function at the end
    /// of its slice, when it checks the queue.
    pub fn fire_if_due(&self, me: &Thread) {
        let is_orphaned = self.segment().fixed().receiver.lock.is_orphaned();
        if is_orphaned || (self.notice_wanted() != 0 && self.seems_filled()) {
            let patience = Deadline::after(Duration::from_nanos(SLICE));
            // An error is ignored: if the lock's owner is stopped, the thread tries again at the end of its next slice.
            let _ = self.with_receiver_lock(me, patience, |receiving, wakes| {
                Ok(self.serve(receiving, wakes)?)
            });
        }
    }

    /// Restores the armed registration after the death of a lock owner. It is not known whether the queue was empty meanwhile, so the registration is
    /// armed as if it was: a superfluous notification is better than a missing one.
    pub(crate) fn find_registration(&self, receiving: ReceiverHeld<'_>) {
        // The dead owner may or may not have raised a signal. The registered process raises the signal itself at the end of its slice.
        for (_, notice) in self.notices() {
            let word = notice.word();
            if word & STATE == RAISING {
                notice.end_raising(receiving, armed(word), false);
            }
        }
        let registration = match self.registered() {
            Some(registered) => REGISTERED | EMPTY | (registered.index * INDEX),
            None => 0,
        };
        self.set_registration(receiving, registration);
    }
}

/// Returns whether the process of a registration requests a notification.
fn wants_notification(notice: &Notice) -> bool {
    match What::of(notice) {
        What::Nothing => false,
        What::Signal => notice.means().1 != 0,
        What::Call | What::Wait => true,
    }
}

/// Returns the process and the real user of the sender that fired the record. Asks the system for the user, unless a process has already asked.
fn ask_for_user(notice: &Notice) -> (u32, u32) {
    let (pid, user) = notice.sender();
    if user != NOT_ASKED {
        return (pid, user);
    }
    let user = process::real_user(pid);
    notice.set_user(pid, user);
    (pid, user)
}

/// Returns whether `pid` is the calling process.
fn is_own(pid: u32) -> bool {
    #[cfg(loom)]
    return crate::model::thread::with_current(|me| me.is_some_and(|me| me.pid() == pid));
    #[cfg(not(loom))]
    return thread::current().pid() == pid;
}

fn is_owner_dead(lives: &dyn Liveness, notice: &Notice) -> bool {
    let (pid, birth) = notice.owner();
    liveness::is_dead(lives, birth, |birth| process::is_dead(pid, birth))
}

/// Returns whether the registered process lives and is not stopped. Returns true if the state is unknown.
fn can_owner_run(lives: &dyn Liveness, notice: &Notice) -> bool {
    let (pid, _) = notice.owner();
    let is_stopped = || lives.is_plain() && process::is_stopped(pid);
    !is_owner_dead(lives, notice) && !is_stopped()
}

/// Waits until the process has raised its signal, unless it is dead or stopped. The wait is limited like the wait for a stopped lock owner, and
/// both waits of one call share that limit.
fn wait_until_raised(lives: &dyn Liveness, notice: &Notice, fired: u32) {
    let began = clock::monotonic();
    // In a model, no thread waits for several processes one after the other.
    #[cfg(loom)]
    let stall = thread::Stall::none();
    #[cfg(not(loom))]
    let stall = &thread::current().stall;
    let end = Deadline::Monotonic(stall.end(began, STOPPED));
    wait_until_raised_by(lives, notice, fired, end);
    stall.note(began, clock::monotonic());
}

fn wait_until_raised_by(lives: &dyn Liveness, notice: &Notice, fired: u32, end: Deadline) {
    let mut slice = PROMPT;
    while let Some(word) = notice.ask_for_wake(fired) {
        if futex::wait(notice.futex(), word, end.or_slice(slice)) != Slept::TimedOut {
            continue;
        }
        if end.has_passed() || !can_owner_run(lives, notice) {
            return;
        }
        slice = SLICE;
    }
}
