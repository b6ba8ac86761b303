//! Notification: a process is told once that a message has come to the empty queue. Source: mq_notify(3), and
//! linux/ipc/mqueue.c, `__do_notify`.
//!
//! A registration is a record. One at most is armed; those that were fired stay until their process has taken note, so that
//! another may register at once. There is room for eight, and for a thousand more where as many processes were told and are
//! stopped, or get no processor: memory for them is made real when they are needed.
//!
//! | word | state | may leave it | if the registered process dies |
//! |---|---|---|---|
//! | `turn << 2` | free | holder of the receiver lock: armed, another turn | - |
//! | `turn << 2 \| ARMED` | registered | holder of the receiver lock: fired, or free if no process is to be told. Its process, without the lock: free | free, by the process that registers next |
//! | `turn << 2 \| FIRED` | fired, the sender stands beside it | its process, without the lock: free | free, by the process that registers next and finds no other |
//!
//! Each change is one compare-and-swap, so a withdrawal and a message decide for one of them. That the queue was empty is a
//! bit of `registered`, decided anew whenever the receiver lock is about to be dropped, and before a message is taken: so it counts
//! what came and went in between. While it was empty, and only then, senders are asked (`attention`) to come and decide.
//!
//! No process acts on what a record says but its own, which knows by itself what is to be done: a process that can write the segment
//! can't have a signal sent to any process.

use super::{DeferredWakes, Engine, NOTICE, Refused};
use crate::crash::crash_point;
use crate::fault::Fault;
use crate::lock::deferred_wakes::Fired;
use crate::lock::tokens::ReceiverHeld;
use crate::lock::{SLICE, STOPPED};
use crate::posix_engine::Priorities;
use crate::posix_engine::segment::notice::{ARMED, FIRED, NOT_ASKED, NOTICES, STATE, fired};
use crate::posix_engine::segment::{MORE_NOTICES, Notice, Ring};
use crate::sync::{Ordering, fence};
use crate::sys::clock::{self, Deadline};
use crate::sys::futex::{self, Slept};
use crate::sys::liveness::{self, Liveness};
use crate::sys::process;
use crate::sys::thread::{self, Thread};
use crate::waiters::{List, Waiters};
use std::time::Duration;

/// Sees to a registration of the calling process that was fired: the engine, the record's number, the record, and its word. See
/// [`Engine::set_identity`].
#[cfg(not(loom))]
pub(crate) type RaiseOwn = fn(&Engine, u32, &Notice, u32) -> bool;

/// Bits of `registered`: a process is registered; the queue was empty. Above: in which record.
const REGISTERED: u32 = 1;
const EMPTY: u32 = 2;
const INDEX: u32 = 8;

/// How long a sender waits for a registered process before it looks again whether that process can run, in nanoseconds.
const PROMPT: u64 = 2_000_000;

/// How a process is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum What {
    /// By a signal of that number; by none if it is 0.
    Signal = 0,
    /// Not at all.
    Nothing = 1,
    /// By a function of its own, in a thread.
    Call = 2,
    /// By a thread that waits for it.
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

/// A registration that counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Registered {
    pub(crate) index: u32,
    pub what: What,
    pub signal: u32,
    pub pid: u32,
    pub birth: u64,
    /// What its word says.
    pub(crate) word: u32,
}

/// The registered process, and how it wants to be told.
pub struct Claim {
    pub what: What,
    pub signal: u32,
    pub ticket: u64,
}

/// Why there is no registration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RegisterError {
    /// A process is registered.
    Busy,
    /// As many living processes as there can be records were told and have not run since.
    NoRecord,
    Refused(Refused),
}

/// What a process finds that looks at its registration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Nothing has happened.
    Armed,
    /// It was fired, by a message of that process and user.
    Fired { pid: u32, uid: u32 },
    /// It was taken away.
    Gone,
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

    /// Whether a process is registered, as a hint.
    pub(super) fn has_registration(&self) -> bool {
        self.registration() & REGISTERED != 0
    }

    /// What senders are to be asked for.
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

    /// How many records beyond the fixed ones are real memory.
    fn more_notices(&self) -> usize {
        let more = self.segment().fixed().receiver.more_notices();
        (more as usize).min(MORE_NOTICES)
    }

    /// All records that there are, and their numbers.
    fn notices(&self) -> impl Iterator<Item = (u32, &Notice)> {
        let more =
            (0..self.more_notices()).filter_map(|index| self.segment().more_notice(index).ok());
        (0_u32..).zip(self.segment().fixed().notices.iter().chain(more))
    }

    /// Decides whether the queue has become empty, or has ceased to be, since that was decided last.
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
                // ATTENTION: the flag, then the stamps, as in `enlist_receiver`: the next sender comes to decide, or we find its
                // message here.
                fence(Ordering::SeqCst);
                if self.stays_filled(receiving, wakes)? {
                    self.fire(receiving, wakes);
                }
            }
            _ => {}
        }
        Ok(())
    }

    /// Whether messages are there that no blocked receiver takes.
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

    /// The process that sent what is there longest.
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

    /// The registration is over, and its process is told.
    fn fire(&self, receiving: ReceiverHeld<'_>, wakes: &mut DeferredWakes) {
        let index = self.registration() / INDEX;
        if let Some(notice) = self.notice(index) {
            let armed = notice.word();
            let is_notified = wants_notification(notice);
            let pid = self.first_sender(receiving).unwrap_or(0);
            // Of another process it is asked for without the lock: that takes system calls.
            let user = process::own_user(pid).unwrap_or(NOT_ASKED);
            notice.set_sender(receiving, pid, user);
            crash_point!(NOTICE_NOTED);
            if notice.fire(receiving, armed, is_notified) && is_notified {
                let word = fired(armed);
                wakes.add_fired(Fired { index, word });
            }
            crash_point!(NOTICE_FIRED);
        }
        self.set_registration(receiving, 0);
    }

    /// After the lock was dropped: the registered process hears of it. If that is by a signal, it has been raised when this
    /// returns, unless that process can't run: in the kernel it has, too.
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
        futex::wake(notice.futex(), i32::MAX);
        // The look overlaps with the wake-up of the process.
        if What::of(notice) == What::Signal && can_owner_run(self.segment(), notice) {
            wait_until_raised(self.segment(), notice, fired.word);
        }
    }

    /// After a message was received by a process that has registrations: what was fired for it here has been raised when this
    /// returns. In the kernel a signal is pending before its message can be received; one that came later would interrupt what the
    /// process does next.
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
                // A helper is about to.
                wait_until_raised(self.segment(), notice, word);
            }
        }
    }

    /// Sees to a registration that was fired, if it is this process's. False if it is another process's, or another thread sees to it.
    #[cfg(not(loom))]
    fn raise_own(&self, index: u32, notice: &Notice, word: u32) -> bool {
        self.raise_own
            .is_some_and(|raise_own| raise_own(self, index, notice, word))
    }

    /// Registers this process for the next message that comes to the empty queue. Answers in which record, and what its word
    /// says.
    pub fn register(&self, me: &Thread, claim: &Claim) -> Result<(u32, u32), RegisterError> {
        let mut outcome = Err(RegisterError::NoRecord);
        let patience = Deadline::after(Duration::from_nanos(STOPPED));
        liveness::register(self.segment());
        self.with_receiver_lock(me, patience, |receiving, wakes| {
            self.serve(receiving, wakes)?;
            outcome = self.register_locked(receiving, me, claim, wakes);
            Ok(())
        })
        .map_err(RegisterError::Refused)?;
        outcome
    }

    fn register_locked(
        &self,
        receiving: ReceiverHeld<'_>,
        me: &Thread,
        claim: &Claim,
        wakes: &mut DeferredWakes,
    ) -> Result<(u32, u32), RegisterError> {
        self.clear_dead_registration(receiving)?;
        let (index, notice) = self.free_notice(receiving)?;
        let birth = liveness::birth(self.segment(), || process::birth(me.pid()));
        let means = (claim.what as u32, claim.signal);
        notice.fill(receiving, (me.pid(), birth), means, claim.ticket);
        crash_point!(NOTICE_FILLED);
        let registration = REGISTERED | (index * INDEX);
        self.set_registration(receiving, registration | EMPTY);
        // ATTENTION: as in `decide`. What is there now was there before: it takes a drain first.
        fence(Ordering::SeqCst);
        match self.stays_filled(receiving, wakes) {
            Ok(false) => {}
            Ok(true) => self.set_registration(receiving, registration),
            Err(trouble) => {
                self.set_registration(receiving, 0);
                return Err(RegisterError::Refused(trouble.into()));
            }
        }
        crash_point!(NOTICE_DECIDED);
        // Last, because it is what all processes sees: a process that sends to the empty queue after that has the registered process told.
        let armed = notice.arm(receiving);
        crash_point!(NOTICE_ARMED);
        Ok((index, armed))
    }

    /// An error if a process living is registered.
    fn clear_dead_registration(&self, _: ReceiverHeld<'_>) -> Result<(), RegisterError> {
        for (_, notice) in self.notices() {
            let word = notice.word();
            if word & STATE != ARMED {
                continue;
            }
            if !is_owner_dead(self.segment(), notice) {
                return Err(RegisterError::Busy);
            }
            notice.free(word);
        }
        Ok(())
    }

    /// A record that no process needs.
    fn free_notice(&self, receiving: ReceiverHeld<'_>) -> Result<(u32, &Notice), RegisterError> {
        let state = |notice: &Notice| notice.word() & STATE;
        // Acquire by the lock: whose process has freed it touches it no more.
        let is_free = |notice: &Notice| ![ARMED, FIRED].contains(&state(notice));
        if let Some(free) = self.notices().find(|(_, notice)| is_free(notice)) {
            return Ok(free);
        }
        if let Some(dead) = self
            .notices()
            .find(|(_, notice)| is_owner_dead(self.segment(), notice))
        {
            dead.1.free(dead.1.word());
            return Ok(dead);
        }
        self.provide_notice(receiving)
    }

    /// A record of memory that becomes real for it and for those behind it.
    #[cold]
    fn provide_notice(&self, receiving: ReceiverHeld<'_>) -> Result<(u32, &Notice), RegisterError> {
        let used = self.more_notices();
        if used >= MORE_NOTICES {
            return Err(RegisterError::NoRecord);
        }
        let more = self
            .segment()
            .populate_notices(used as u32)
            .map_err(|trouble| RegisterError::Refused(trouble.into()))?;
        let receiver = &self.segment().fixed().receiver;
        receiver.set_more_notices(receiving, more);
        let index = (NOTICES + used) as u32;
        let notice = self.notice(index).ok_or(RegisterError::NoRecord)?;
        Ok((index, notice))
    }

    /// Takes a registration back, without the lock: senders find out by themselves. False if it is not there any more.
    pub fn withdraw(&self, index: u32, armed: u32) -> bool {
        let withdrawn = self.notice(index).is_some_and(|notice| notice.free(armed));
        crash_point!(NOTICE_WITHDRAWN);
        withdrawn
    }

    /// The registration that there is, whether or not its process lives.
    pub fn registered(&self) -> Option<Registered> {
        let mut all = self.registrations();
        all.find_map(|(registered, is_told)| (!is_told).then_some(registered))
    }

    /// All that there are, and whether they were fired.
    pub fn registrations(&self) -> impl Iterator<Item = (Registered, bool)> {
        self.notices().filter_map(|(index, notice)| {
            let (word, (pid, birth)) = (notice.word(), notice.owner());
            let registered = || Registered {
                index,
                what: What::of(notice),
                signal: notice.means().1,
                pid,
                birth,
                word,
            };
            match word & STATE {
                ARMED => Some((registered(), false)),
                FIRED => Some((registered(), true)),
                _ => None,
            }
        })
    }

    /// What has become of this process's own registration.
    pub fn outcome(&self, index: u32, armed: u32) -> Outcome {
        let Some(notice) = self.notice(index) else {
            return Outcome::Gone;
        };
        match notice.word() {
            word if word == armed => Outcome::Armed,
            word if word == fired(armed) => {
                let (pid, uid) = ask_for_user(notice);
                Outcome::Fired { pid, uid }
            }
            _ => Outcome::Gone,
        }
    }

    /// The process has done what there was to do. The sender that fired it may wait for that.
    pub fn acknowledge_notice(&self, index: u32, armed: u32) {
        crash_point!(NOTICE_RAISED);
        if let Some(notice) = self.notice(index) {
            notice.free(fired(armed));
            futex::wake(notice.futex(), i32::MAX);
        }
    }

    /// The word that the registered process sleeps on.
    pub fn notice_word(&self, index: u32) -> Option<&crate::sync::AtomicU32> {
        self.notice(index).map(Notice::futex)
    }

    /// At the end of a slice: fires for a sender that died before it could, as blocked receivers look around.
    pub fn look_for_notice(&self, me: &Thread) {
        let is_orphaned = self.segment().fixed().receiver.lock.is_orphaned();
        if is_orphaned || (self.notice_wanted() != 0 && self.seems_filled()) {
            let patience = Deadline::after(Duration::from_nanos(SLICE));
            // In vain if an owner is stopped: there is another slice.
            let _ = self.with_receiver_lock(me, patience, |receiving, wakes| {
                Ok(self.serve(receiving, wakes)?)
            });
        }
    }

    /// Finds out the registered process again: after the death of a holder of the lock. Whether the queue was empty in between nobody
    /// knows: better a notification too many.
    pub(crate) fn find_registration(&self, receiving: ReceiverHeld<'_>) {
        let registration = match self.registered() {
            Some(registered) => REGISTERED | EMPTY | (registered.index * INDEX),
            None => 0,
        };
        self.set_registration(receiving, registration);
    }
}

/// Whether the process of a registration is notified when it is fired.
fn wants_notification(notice: &Notice) -> bool {
    match What::of(notice) {
        What::Nothing => false,
        What::Signal => notice.means().1 != 0,
        What::Call | What::Wait => true,
    }
}

/// The process and real user of the sender. Asks the system for the user if no process has.
fn ask_for_user(notice: &Notice) -> (u32, u32) {
    let (pid, user) = notice.sender();
    if user != NOT_ASKED {
        return (pid, user);
    }
    let user = process::real_user(pid);
    notice.set_user(pid, user);
    (pid, user)
}

fn is_owner_dead(lives: &dyn Liveness, notice: &Notice) -> bool {
    let (pid, birth) = notice.owner();
    liveness::is_dead(lives, birth, |birth| process::is_dead(pid, birth))
}

/// Whether the registered process lives and is not stopped. Unknown means that it does.
fn can_owner_run(lives: &dyn Liveness, notice: &Notice) -> bool {
    let (pid, _) = notice.owner();
    let is_stopped = || lives.is_plain() && process::is_stopped(pid);
    !is_owner_dead(lives, notice) && !is_stopped()
}

/// Waits until the process has raised its signal; not for a dead or stopped one, and not for longer than for a stopped owner of a
/// lock, one that the call may have waited for before included.
fn wait_until_raised(lives: &dyn Liveness, notice: &Notice, fired: u32) {
    let began = clock::monotonic();
    // In a model no thread waits for several, one after the other.
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
    while notice.word() == fired {
        if futex::wait(notice.futex(), fired, end.or_slice(slice)) != Slept::TimedOut {
            continue;
        }
        if end.has_passed() || !can_owner_run(lives, notice) {
            return;
        }
        slice = SLICE;
    }
}
